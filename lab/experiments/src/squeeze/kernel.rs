//! The kernel's own NBD client between the load and the server, as blkfront was in the patch's experiment: a block
//! device, written by `dd` through the page cache, and `sync`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::last_words;
use crate::Error;

/// An export attached to a block device; detached when dropped.
pub(super) struct Attached {
    device: PathBuf,
    is_attached: bool,
}

impl Attached {
    /// Attaches `export` of the server at `socket` to `device`, such as /dev/nbd0 (module nbd).
    pub(super) fn attach(device: &Path, socket: &Path, export: &str) -> Result<Self, Error> {
        let mut client = Command::new("nbd-client");
        client.arg("-unix").arg(socket).arg(device).args(["-N", export]);
        run(client)?;
        Ok(Self {
            device: device.to_owned(),
            is_attached: true,
        })
    }

    /// `dd if=/dev/zero of=DEVICE bs=4k count=COUNT; sync`, and how long it took.
    pub(super) fn write_zeros(&self, bytes: u64) -> Result<Duration, Error> {
        let begin = Instant::now();
        let mut writer = Command::new("dd");
        writer
            .arg("if=/dev/zero")
            .arg(format!("of={}", self.device.display()))
            .args(["bs=4k", &format!("count={}", bytes / 4096)]);
        run(writer)?;
        run(Command::new("sync"))?;
        Ok(begin.elapsed())
    }

    /// Detaches it.
    pub(super) fn detach(mut self) -> Result<(), Error> {
        self.let_go()
    }

    fn let_go(&mut self) -> Result<(), Error> {
        if !std::mem::take(&mut self.is_attached) {
            return Ok(());
        }
        let mut client = Command::new("nbd-client");
        client.arg("-d").arg(&self.device);
        run(client)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // What broke the run off is on its way to the user; that the device stays says less.
        let _ = self.let_go();
    }
}

fn run(mut command: Command) -> Result<(), Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| {
        Error::Squeeze(format!(
            "cannot run {program}: {error}. nbd-client is in Debian's package nbd-client"
        ))
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::Squeeze(format!(
        "{program} ended with {}: {}",
        output.status,
        last_words(&said)
    )))
}
