//! Which sources to ask on this machine, and why.

use std::fmt;
use std::path::{Path, PathBuf};

use thermo_kernel::cgroup::Group;
use thermo_kernel::meminfo;
use thermo_kernel::psi::system_file;
use thermo_units::{Bytes, Nanos, Permille};

use super::{FreeMemory, Headroom, Manager, PsiTotal, Source, SourceError};

/// A millisecond lost in a tenth of a second: far below what systemd calls pressure (100 ms in a second), because a
/// squeeze is cheap and over in 10 ms.
const STALL: Nanos = Nanos::millis(1);
const WINDOW: Nanos = Nanos::millis(100);
/// Of a memory limit.
const LEAST_ROOM: Permille = Permille(60);
/// Of the machine's memory, one part in so many.
const LEAST_FREE: u64 = 50;

/// What was chosen.
#[derive(Default)]
pub struct Choice {
    /// To be asked.
    pub sources: Vec<Box<dyn Source>>,
    /// One sentence for each kind of source: used, or why not.
    pub reasons: Vec<String>,
}

impl fmt::Debug for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.reasons).finish()
    }
}

impl Choice {
    fn add(&mut self, why: &str, source: Result<impl Source + 'static, SourceError>) -> bool {
        match source {
            Ok(source) => {
                self.reasons.push(format!("{}: {why}", source.name()));
                self.sources.push(Box::new(source));
                true
            }
            Err(error) => {
                self.reasons.push(format!("not used, {why}: {error}"));
                false
            }
        }
    }
}

/// Chooses for this process: what the service manager named; else the stalls of its control group, or of the machine.
/// In any case room below its memory limit, or free memory of the machine. `root` is `/`; `env` reads the
/// environment (`|name| std::env::var(name).ok()`).
#[must_use]
pub fn choose(root: &Path, env: impl Fn(&str) -> Option<String>) -> Choice {
    let mut choice = Choice::default();
    match env("MEMORY_PRESSURE_WATCH") {
        Some(watch) if watch == "/dev/null" => {
            choice.reasons.push(
                "no source: the service manager wants pressure ignored (MEMORY_PRESSURE_WATCH=/dev/null)"
                    .to_owned(),
            );
            return choice;
        }
        Some(watch) => {
            let write = env("MEMORY_PRESSURE_WRITE");
            let manager = Manager::new(Path::new(&watch), write.as_deref());
            if !choice.add("named by the service manager", manager) {
                add_stalls(&mut choice, root);
            }
        }
        None => add_stalls(&mut choice, root),
    }
    let limited = Group::of_process(root, None, "memory").into_iter().any(|group| {
        let headroom = Headroom::new(&group, LEAST_ROOM);
        choice.add("memory limits come before stalls", headroom)
    });
    if !limited {
        let least = meminfo::read(root).map_or(Bytes::mib(64), |info| Bytes(info.total.0 / LEAST_FREE));
        choice.add(
            "no memory limit, so the machine's memory is the limit",
            FreeMemory::new(root, least),
        );
    }
    choice
}

fn add_stalls(choice: &mut Choice, root: &Path) {
    let of_group = Group::of_process(root, None, "")
        .pop()
        .map(|group| group.dir.join("memory.pressure"));
    let own = of_group.filter(|path| path.exists());
    let why = "polled, for triggers come late without privilege";
    if own.is_some_and(|path| choice.add(why, PsiTotal::new(&path, STALL, WINDOW))) {
        return;
    }
    let machine: PathBuf = system_file(root);
    choice.add(why, PsiTotal::new(&machine, STALL, WINDOW));
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use std::fs;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal: 5000 kB\nMemAvailable: 4000 kB\n");
    const STALLS: &str = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";

    #[test]
    fn version_2_group_with_a_limit() {
        let root = machine(&[
            MEMINFO,
            ("proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"),
            ("proc/self/cgroup", "0::/svc\n"),
            ("sys/fs/cgroup/svc/memory.pressure", STALLS),
            ("sys/fs/cgroup/svc/memory.stat", ""),
            ("sys/fs/cgroup/svc/memory.max", "1000"),
            ("sys/fs/cgroup/svc/memory.current", "10"),
        ]);
        let choice = choose(root.path(), |_| None);
        assert_eq!(choice.sources.len(), 2, "{choice:?}");
        assert!(choice.reasons[0].contains("svc/memory.pressure"), "{choice:?}");
        assert!(choice.reasons[1].contains("room below the limit"), "{choice:?}");
    }

    #[test]
    fn nothing_but_meminfo() {
        let root = machine(&[MEMINFO]);
        let choice = choose(root.path(), |_| None);
        assert_eq!(choice.sources.len(), 1, "{choice:?}");
        assert!(
            choice.reasons[0].starts_with("not used") && choice.reasons[0].contains("proc/pressure"),
            "{choice:?}"
        );
        assert!(
            choice.reasons[1].contains("free memory below 100 KiB"),
            "{choice:?}"
        );
    }

    #[test]
    fn the_manager_comes_first_and_may_say_no() {
        let root = machine(&[MEMINFO, ("proc/pressure/memory", STALLS), ("psi", "")]);
        let psi = root.path().join("psi").display().to_string();
        let named = |name: &str| (name == "MEMORY_PRESSURE_WATCH").then(|| psi.clone());
        let choice = choose(root.path(), named);
        assert!(choice.reasons[0].contains("service manager"), "{choice:?}");
        let missing = |name: &str| (name == "MEMORY_PRESSURE_WATCH").then(|| "/nowhere".to_owned());
        let fallen_back = choose(root.path(), missing);
        assert!(
            fallen_back.reasons[1].contains("proc/pressure/memory"),
            "{fallen_back:?}"
        );
        let off = |name: &str| (name == "MEMORY_PRESSURE_WATCH").then(|| "/dev/null".to_owned());
        assert!(choose(root.path(), off).sources.is_empty());
    }
}
