//! Selects the pressure sources for this machine, with reasons.

use std::fmt;
use std::path::{Path, PathBuf};

use thermo_kernel::cgroup::Group;
use thermo_kernel::meminfo;
use thermo_kernel::psi::system_file;
use thermo_units::{Bytes, Nanos, Permille};

use super::{FreeMemory, Headroom, PsiTotal, ServiceManager, Source, SourceError};

/// Pressure is 1 ms of stall in 100 ms. That is far below systemd's threshold (100 ms in 1 s), because a
/// squeeze is cheap and lasts 10 ms.
const STALL: Nanos = Nanos::millis(1);
const WINDOW: Nanos = Nanos::millis(100);
/// Least room below a memory limit, as a share of the limit.
const MIN_HEADROOM: Permille = Permille(60);
/// Least free memory of the machine: total memory divided by this.
const MIN_FREE_DIVISOR: u64 = 50;

/// The selected sources.
#[derive(Default)]
pub struct Choice {
    /// The sources to poll.
    pub sources: Vec<Box<dyn Source>>,
    /// One sentence for each kind of source: why it is used, or why not.
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

/// Selects the sources for this process: the one named by the service manager, or else the stalls of its
/// control group or of the machine. In addition, room below its memory limit, or free memory of the machine.
/// `root` is `/`; `env` reads the environment (`|name| std::env::var(name).ok()`).
#[must_use]
pub fn choose(root: &Path, env: impl Fn(&str) -> Option<String>) -> Choice {
    let mut choice = Choice::default();
    match env("MEMORY_PRESSURE_WATCH") {
        Some(watch) if watch == "/dev/null" => {
            choice.reasons.push(
                "no source: the service manager disabled pressure monitoring (MEMORY_PRESSURE_WATCH=/dev/null)"
                    .to_owned(),
            );
            return choice;
        }
        Some(watch) => {
            let write = env("MEMORY_PRESSURE_WRITE");
            let manager = ServiceManager::new(Path::new(&watch), write.as_deref());
            if !choice.add("named by the service manager", manager) {
                add_psi(&mut choice, root);
            }
        }
        None => add_psi(&mut choice, root),
    }
    let limited = Group::of_process(root, None, "memory").into_iter().any(|group| {
        let headroom = Headroom::new(&group, MIN_HEADROOM);
        choice.add("a memory limit is reached before tasks stall", headroom)
    });
    if !limited {
        let min_free =
            meminfo::read(root).map_or(Bytes::mib(64), |info| Bytes(info.total.0 / MIN_FREE_DIVISOR));
        choice.add(
            "no memory limit is set, so the memory of the machine is the limit",
            FreeMemory::new(root, min_free),
        );
    }
    choice
}

fn add_psi(choice: &mut Choice, root: &Path) {
    let group_file = Group::of_process(root, None, "")
        .pop()
        .map(|group| group.dir.join("memory.pressure"));
    let own_file = group_file.filter(|path| path.exists());
    let why = "polled, because PSI triggers are slow without privilege";
    if own_file.is_some_and(|path| choice.add(why, PsiTotal::new(&path, STALL, WINDOW))) {
        return;
    }
    let machine_file: PathBuf = system_file(root);
    choice.add(why, PsiTotal::new(&machine_file, STALL, WINDOW));
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use std::fs;

    fn fake_root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal: 5000 kB\nMemAvailable: 4000 kB\n");
    const PSI_FILE: &str = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";

    #[test]
    fn choose_uses_cgroup_v2_with_limit() {
        let root = fake_root(&[
            MEMINFO,
            ("proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"),
            ("proc/self/cgroup", "0::/svc\n"),
            ("sys/fs/cgroup/svc/memory.pressure", PSI_FILE),
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
    fn choose_falls_back_to_meminfo() {
        let root = fake_root(&[MEMINFO]);
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
    fn choose_prefers_service_manager_and_respects_opt_out() {
        let root = fake_root(&[MEMINFO, ("proc/pressure/memory", PSI_FILE), ("psi", "")]);
        let psi = root.path().join("psi").display().to_string();
        let named = |name: &str| (name == "MEMORY_PRESSURE_WATCH").then(|| psi.clone());
        let choice = choose(root.path(), named);
        assert!(choice.reasons[0].contains("service manager"), "{choice:?}");
        let missing = |name: &str| (name == "MEMORY_PRESSURE_WATCH").then(|| "/nowhere".to_owned());
        let fallback = choose(root.path(), missing);
        assert!(
            fallback.reasons[1].contains("proc/pressure/memory"),
            "{fallback:?}"
        );
        let off = |name: &str| (name == "MEMORY_PRESSURE_WATCH").then(|| "/dev/null".to_owned());
        assert!(choose(root.path(), off).sources.is_empty());
    }
}
