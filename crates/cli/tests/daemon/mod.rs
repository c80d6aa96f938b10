//! A life cycle daemon, what it looks after, and the swap it may need, for the tests of it.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use thermo_kernel::meminfo;
use thermo_kernel::zram::ZramSwap;
use thermo_units::Bytes;

use crate::common::{Guard, PATIENCE, json, start_workload, thermo, wait_until, workload};

/// A daemon in a folder of its own.
pub struct Daemon {
    pub folder: tempfile::TempDir,
    pub process: Guard,
}

impl Daemon {
    /// Starts one with this description, and waits until it listens.
    pub fn start(config: &str, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("apps.toml"), config).unwrap();
        let arguments = [&["lifecycle", "run", "apps.toml", "--socket", "s"], more].concat();
        let mut command = thermo(folder.path(), &arguments);
        let told = fs::File::create(folder.path().join("told")).unwrap();
        let process = Guard(command.stdout(Stdio::null()).stderr(told).spawn().unwrap());
        let daemon = Self { folder, process };
        assert!(
            wait_until(|| daemon.told().contains("listening")),
            "{}",
            daemon.told()
        );
        daemon
    }

    /// Its folder.
    pub fn here(&self) -> &Path {
        self.folder.path()
    }

    /// What it said on standard error.
    pub fn told(&self) -> String {
        fs::read_to_string(self.here().join("told")).unwrap()
    }

    /// A client of its socket.
    pub fn connect(&self) -> BufReader<UnixStream> {
        let stream = UnixStream::connect(self.here().join("s")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        BufReader::new(stream)
    }

    /// What a verb answers.
    pub fn ask(&self, verb: &[&str]) -> Value {
        json(
            self.here(),
            &[&["lifecycle"], verb, &["--socket", "s", "--json"]].concat(),
        )
    }

    /// The last decision of a kind about an application that has come to its end, when there is one.
    pub fn ended(&self, app: &str, kind: &str) -> Option<Value> {
        let decisions = self.ask(&["why", app])["decisions"].clone();
        let is_meant = |one: &&Value| one["decision"] == kind && one["cost"].is_object();
        decisions.as_array().unwrap().iter().rfind(is_meant).cloned()
    }

    /// The same, waiting for it.
    pub fn wait_for_end(&self, app: &str, kind: &str) -> Value {
        assert!(
            wait_until(|| self.ended(app, kind).is_some()),
            "{}",
            self.ask(&["why", app])
        );
        self.ended(app, kind).unwrap()
    }
}

/// Sends bytes; the line that is answered.
pub fn say(client: &mut BufReader<UnixStream>, bytes: &[u8]) -> Value {
    client.get_mut().write_all(bytes).unwrap();
    let mut line = String::new();
    client.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

/// A program with 48 MiB that goes on for minutes, once it has touched them all.
pub fn target(folder: &Path) -> Guard {
    let cfg = workload(folder, 300_000).unwrap();
    let child = start_workload(folder, &cfg);
    let touched = || anon_rss(child.0.id()) >= Bytes::mib(44);
    assert!(wait_until(touched), "it has {}", anon_rss(child.0.id()));
    child
}

/// The anonymous memory of a process that is in memory.
pub fn anon_rss(pid: u32) -> Bytes {
    thermo_kernel::status::read(Path::new("/"), pid)
        .unwrap_or_default()
        .rss_anon
}

/// The description of an application that is one process.
pub fn app(name: &str, pid: u32, more: &str) -> String {
    format!("[[app]]\nname = \"{name}\"\npid = {pid}\n{more}\n")
}

/// Swap enough, theirs or ours; what of it is ours goes with the value.
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

/// Whether advising was refused for want of privilege; that is said then.
pub fn is_refused(decision: &Value) -> bool {
    let refused = decision["cost"]["end"] == "failed";
    if refused {
        let why = decision["cost"]["error"].as_str().unwrap();
        assert!(why.contains("root") || why.contains("privilege"), "{why}");
        eprintln!("SKIP: other processes' memory cannot be advised here: {why}");
    }
    refused
}
