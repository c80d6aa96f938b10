//! The kernel's NBD client as the load, in place of blkfront in the kernel patch's experiment: `dd` writes to
//! a block device through the page cache, followed by `sync`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::last_line;
use crate::Error;

/// An export attached to a block device. Dropping it detaches the export.
pub(super) struct NbdDevice {
    device: PathBuf,
    is_attached: bool,
}

impl NbdDevice {
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

    /// Runs `dd if=/dev/zero of=DEVICE bs=4k count=COUNT; sync` and returns its duration.
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

    /// Detaches the export.
    pub(super) fn detach(mut self) -> Result<(), Error> {
        self.detach_once()
    }

    fn detach_once(&mut self) -> Result<(), Error> {
        if !std::mem::take(&mut self.is_attached) {
            return Ok(());
        }
        let mut client = Command::new("nbd-client");
        client.arg("-d").arg(&self.device);
        run(client)
    }
}

impl Drop for NbdDevice {
    fn drop(&mut self) {
        // The run already failed with another error, which is reported instead.
        let _ = self.detach_once();
    }
}

fn run(mut command: Command) -> Result<(), Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| {
        Error::Squeeze(format!(
            "cannot run {program}: {error}. nbd-client is in the Debian package nbd-client"
        ))
    })?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(Error::Squeeze(format!(
        "{program} ended with {}: {}",
        output.status,
        last_line(&stderr)
    )))
}
