//! Fixtures for tests of the life cycle daemon: the daemon, an application, and swap.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use thermo_kernel::meminfo;
use thermo_kernel::zram::ZramSwap;
use thermo_units::Bytes;

use crate::common::{Guard, PATIENCE, json, start_workload, thermo, wait_until, workload};

/// A daemon in a directory of its own.
pub struct Daemon {
    pub folder: tempfile::TempDir,
    pub process: Guard,
}

impl Daemon {
    /// Starts a daemon with this description, and waits until it listens.
    pub fn start(config: &str, more: &[&str]) -> Self {
        Self::start_with(config, more, |_| {})
    }

    /// Starts a daemon as above, after `prepare` has changed its command.
    pub fn start_with(config: &str, more: &[&str], prepare: impl FnOnce(&mut Command)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("apps.toml"), config).unwrap();
        let arguments = [&["lifecycle", "run", "apps.toml", "--socket", "s"], more].concat();
        let mut command = thermo(folder.path(), &arguments);
        prepare(&mut command);
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let process = Guard(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        let daemon = Self { folder, process };
        assert!(
            wait_until(|| daemon.log().contains("listening")),
            "{}",
            daemon.log()
        );
        daemon
    }

    /// The directory of the daemon.
    pub fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// Standard error of the daemon.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir().join("log")).unwrap()
    }

    /// Peak resident memory of the daemon.
    pub fn peak_rss(&self) -> Bytes {
        thermo_kernel::status::read(Path::new("/"), self.process.0.id())
            .unwrap()
            .vm_hwm
    }

    /// Connects to the socket.
    pub fn connect(&self) -> BufReader<UnixStream> {
        let stream = UnixStream::connect(self.dir().join("s")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        BufReader::new(stream)
    }

    /// Runs a client verb. Returns its JSON.
    pub fn ask(&self, verb: &[&str]) -> Value {
        json(
            self.dir(),
            &[&["lifecycle"], verb, &["--socket", "s", "--json"]].concat(),
        )
    }

    /// The last finished decision of a kind about an application, if there is one.
    pub fn finished(&self, app: &str, kind: &str) -> Option<Value> {
        let decisions = self.ask(&["why", app])["decisions"].clone();
        let is_finished = |one: &&Value| one["decision"] == kind && one["cost"].is_object();
        decisions.as_array().unwrap().iter().rfind(is_finished).cloned()
    }

    /// Waits for a finished decision of a kind.
    pub fn wait_for_finished(&self, app: &str, kind: &str) -> Value {
        assert!(
            wait_until(|| self.finished(app, kind).is_some()),
            "{}",
            self.ask(&["why", app])
        );
        self.finished(app, kind).unwrap()
    }
}

/// Sends bytes. Returns the answer, which is one line.
pub fn send(client: &mut BufReader<UnixStream>, bytes: &[u8]) -> Value {
    client.get_mut().write_all(bytes).unwrap();
    let mut line = String::new();
    client.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

/// Starts a program of 48 MiB that runs for minutes, and waits until it has accessed all of them.
pub fn target(folder: &Path) -> Guard {
    let cfg = workload(folder, 300_000).unwrap();
    let child = start_workload(folder, &cfg);
    let is_resident = || anon_rss(child.0.id()) >= Bytes::mib(44);
    assert!(wait_until(is_resident), "it has {}", anon_rss(child.0.id()));
    child
}

/// Resident anonymous memory of a process.
pub fn anon_rss(pid: u32) -> Bytes {
    thermo_kernel::status::read(Path::new("/"), pid)
        .unwrap_or_default()
        .rss_anon
}

/// The description of an application with one process.
pub fn app(name: &str, pid: u32, more: &str) -> String {
    format!("[[app]]\nname = \"{name}\"\npid = {pid}\n{more}\n")
}

/// Ensures that there is enough free swap: `Some(None)` if the machine has it, `Some(Some(_))` if swap was
/// set up (it is removed on drop), `None` (and SKIP) if neither is possible.
pub fn swap() -> Option<Option<ZramSwap>> {
    let info = meminfo::read(Path::new("/")).unwrap();
    if info.swap_free >= Bytes::mib(256) && info.swap_free.0 * 2 > info.swap_total.0 {
        return Some(None);
    }
    match ZramSwap::create(Path::new("/"), Bytes::mib(512)) {
        Ok(zram) => Some(Some(zram)),
        Err(why) => {
            eprintln!("SKIP: no swap is free and none can be made: {why}");
            None
        }
    }
}

/// Whether advice was refused because a privilege is missing; prints SKIP then.
pub fn is_refused(decision: &Value) -> bool {
    let refused = decision["cost"]["end"] == "failed";
    if refused {
        let why = decision["cost"]["error"].as_str().unwrap();
        assert!(why.contains("root") || why.contains("privilege"), "{why}");
        eprintln!("SKIP: other processes' memory cannot be advised here: {why}");
    }
    refused
}
