//! Access to control files by path, without a mount.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use thermo_backends::smaps::Smaps;
use thermo_damonfs::{ControlFiles, DebugfsFiles, Engine, Errno, LogFn, ModuleFiles, SysfsFiles, Write};
use thermo_targets::TargetSpec;

/// The only context of the first kdamond.
pub const CONTEXT: &str = "admin/kdamonds/0/contexts/0";
pub const STATE: &str = "admin/kdamonds/0/state";

pub struct Files(pub Arc<dyn ControlFiles>);

/// An engine whose kdamonds use the tracker that needs no privilege.
pub fn engine() -> Arc<Engine> {
    engine_with_log(|text| println!("{text}"))
}

/// The same, with a log function.
pub fn engine_with_log(log: LogFn) -> Arc<Engine> {
    let new_tracker = || Box::new(Smaps::new(Path::new("/"), 7)) as Box<_>;
    Arc::new(Engine::new("/", Box::new(new_tracker), log))
}

impl Files {
    /// The layout of sysfs with nothing staged.
    pub fn new() -> Self {
        Self::sysfs(engine())
    }

    /// The layout of sysfs with nothing staged.
    pub fn sysfs(engine: Arc<Engine>) -> Self {
        Self(SysfsFiles::new(engine).unwrap())
    }

    /// The layout of debugfs.
    pub fn debugfs(engine: Arc<Engine>) -> Self {
        Self(DebugfsFiles::new(engine))
    }

    /// The modules.
    pub fn modules(engine: Arc<Engine>, targets: Option<TargetSpec>) -> Self {
        Self(ModuleFiles::new(engine, targets))
    }

    /// The layout of sysfs with one of each numbered directory.
    pub fn with_one_of_each() -> Self {
        let files = Self::new();
        for count in [
            "admin/kdamonds/nr_kdamonds",
            "admin/kdamonds/0/contexts/nr_contexts",
            "admin/kdamonds/0/contexts/0/targets/nr_targets",
            "admin/kdamonds/0/contexts/0/targets/0/regions/nr_regions",
            "admin/kdamonds/0/contexts/0/schemes/nr_schemes",
            "admin/kdamonds/0/contexts/0/schemes/0/quotas/goals/nr_goals",
            "admin/kdamonds/0/contexts/0/schemes/0/filters/nr_filters",
            "admin/kdamonds/0/contexts/0/schemes/0/core_filters/nr_filters",
            "admin/kdamonds/0/contexts/0/schemes/0/ops_filters/nr_filters",
            "admin/kdamonds/0/contexts/0/schemes/0/dests/nr_dests",
        ] {
            files.set(count, 1);
        }
        files
    }

    /// The layout of sysfs with one target, `pid`, and one scheme that matches everything.
    pub fn staged(pid: u32) -> Self {
        Self::staged_with(engine(), pid)
    }

    /// The same for this engine.
    pub fn staged_with(engine: Arc<Engine>, pid: u32) -> Self {
        let files = Self::sysfs(engine);
        files.set("admin/kdamonds/nr_kdamonds", 1);
        files.set("admin/kdamonds/0/contexts/nr_contexts", 1);
        files.set_in_context("targets/nr_targets", 1);
        files.set_in_context("targets/0/pid_target", pid);
        files.set_in_context("monitoring_attrs/intervals/update_us", 100_000);
        files.set_in_context("schemes/nr_schemes", 1);
        for pattern in ["sz", "nr_accesses", "age"] {
            files.set_in_context(&format!("schemes/0/access_pattern/{pattern}/max"), u64::MAX);
        }
        files
    }

    pub fn write(&self, path: &str, text: &str) -> Result<usize, Errno> {
        let ino = self.0.tree().find(path)?;
        self.0.write(ino, Write::new(text.as_bytes()))
    }

    pub fn set(&self, path: &str, value: impl ToString) {
        let text = value.to_string();
        assert_eq!(self.write(path, &text), Ok(text.len()), "{text} to {path}");
    }

    /// Writes a value to a path relative to the context.
    pub fn set_in_context(&self, path: &str, value: impl ToString) {
        self.set(&format!("{CONTEXT}/{path}"), value);
    }

    pub fn read(&self, path: &str) -> Result<String, Errno> {
        let ino = self.0.tree().find(path)?;
        self.0.read(ino)
    }

    pub fn number(&self, path: &str) -> u64 {
        self.read(path).unwrap().trim_end().parse().unwrap()
    }

    pub fn command(&self, command: &str) -> Result<usize, Errno> {
        self.write(STATE, command)
    }

    pub fn is_on(&self) -> bool {
        self.read(STATE).unwrap() == "on\n"
    }
}

/// A process that is killed at the end of the test.
pub struct ChildProcess(Child);

impl ChildProcess {
    /// A process that sleeps.
    pub fn sleeping() -> Self {
        Self::spawn(Command::new("sleep").arg("600"))
    }

    pub fn spawn(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).spawn().unwrap())
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Sends SIGKILL and does not wait for the end.
    pub fn send_kill(&mut self) {
        self.0.kill().unwrap();
    }

    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Waits up to 60 s until `is_true` returns true. `condition` describes it in the panic message.
pub fn wait_until(condition: &str, is_true: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_true() {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "timed out waiting until {condition}"
        );
        thread::sleep(Duration::from_millis(10));
    }
}
