//! Control files without a mount, by path.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use thermo_backends::smaps::Smaps;
use thermo_damonfs::{Control, ControlFiles, Early, Engine, Errno, Modules, Tell, Write};
use thermo_targets::TargetSpec;

/// The only context of the first kdamond.
pub const CONTEXT: &str = "admin/kdamonds/0/contexts/0";
pub const STATE: &str = "admin/kdamonds/0/state";

pub struct Files(pub Arc<dyn ControlFiles>);

/// Kdamonds would look by the tracker that needs no privilege.
pub fn engine() -> Arc<Engine> {
    engine_that_tells(|text| println!("{text}"))
}

/// The same, with somebody who is told.
pub fn engine_that_tells(tell: Tell) -> Arc<Engine> {
    let looks = || Box::new(Smaps::new(Path::new("/"), 7)) as Box<_>;
    Arc::new(Engine::new("/", Box::new(looks), tell))
}

impl Files {
    /// Nothing staged.
    pub fn new() -> Self {
        Self::over(engine())
    }

    /// Nothing staged.
    pub fn over(engine: Arc<Engine>) -> Self {
        Self(Control::new(engine).unwrap())
    }

    /// The layout in debugfs.
    pub fn early(engine: Arc<Engine>) -> Self {
        Self(Early::new(engine))
    }

    /// The modules.
    pub fn modules(engine: Arc<Engine>, reach: Option<TargetSpec>) -> Self {
        Self(Modules::new(engine, reach))
    }

    /// One of each kind of directory.
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

    /// One target, `pid`, and one scheme that matches everything.
    pub fn staged(pid: u32) -> Self {
        Self::staged_over(engine(), pid)
    }

    /// The same.
    pub fn staged_over(engine: Arc<Engine>, pid: u32) -> Self {
        let files = Self::over(engine);
        files.set("admin/kdamonds/nr_kdamonds", 1);
        files.set("admin/kdamonds/0/contexts/nr_contexts", 1);
        files.context("targets/nr_targets", 1);
        files.context("targets/0/pid_target", pid);
        files.context("monitoring_attrs/intervals/update_us", 100_000);
        files.context("schemes/nr_schemes", 1);
        for pattern in ["sz", "nr_accesses", "age"] {
            files.context(&format!("schemes/0/access_pattern/{pattern}/max"), u64::MAX);
        }
        files
    }

    pub fn write(&self, path: &str, text: &str) -> Result<usize, Errno> {
        let ino = self.0.tree().find(path)?;
        self.0.write(ino, Write::of(text.as_bytes()))
    }

    pub fn set(&self, path: &str, value: impl ToString) {
        let text = value.to_string();
        assert_eq!(self.write(path, &text), Ok(text.len()), "{text} to {path}");
    }

    /// The same below the context.
    pub fn context(&self, path: &str, value: impl ToString) {
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

/// A process that is ended with the test; one that only waits, mostly.
pub struct Sleeper(Child);

impl Sleeper {
    pub fn new() -> Self {
        Self::of(Command::new("sleep").arg("600"))
    }

    /// Any other program.
    pub fn of(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).spawn().unwrap())
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Tells it to end, and does not wait until it has.
    pub fn send_kill(&mut self) {
        self.0.kill().unwrap();
    }

    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Waits until `is_so`, for long.
pub fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "waited in vain until {what}"
        );
        thread::sleep(Duration::from_millis(10));
    }
}
