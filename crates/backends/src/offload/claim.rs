//! Whose in-kernel DAMON is: ours only while nobody else has anything set up there.
//!
//! The tree does not say who set a kdamond up, so we note it ourselves before we do, and again when its thread is
//! known. A note whose thermo is gone tells of one that was killed: what it left is ours to take away, and only that.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thermo_kernel::FileError;
use thermo_kernel::damon::{Admin, Command, Control, DamonFacts, enabled_module};
use thermo_kernel::{file, stat};

/// Who has in-kernel DAMON.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Holder {
    /// Nobody: it is free.
    #[default]
    Nobody,
    /// A thermo that was killed left it behind.
    Left {
        /// That thermo.
        by: u32,
        /// The thread of the kdamond, if it runs still.
        kdamond: Option<u32>,
    },
    /// A thermo that runs.
    Thermo {
        /// That one.
        pid: u32,
    },
    /// Somebody else has set kdamonds up.
    Others {
        /// How many are set up.
        nr_kdamonds: usize,
        /// The first that runs: its place and its thread.
        running: Option<(usize, Option<u32>)>,
    },
    /// A module of the kernel.
    Module(&'static str),
}

/// Why in-kernel DAMON cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Somebody else has it.
    #[error("DAMON is busy: {0}")]
    Busy(String),
    /// A file of ours or of the kernel's.
    #[error(transparent)]
    File(#[from] FileError),
}

impl Holder {
    /// Who has it on the machine at `root`, whose tree says `facts`.
    #[must_use]
    pub fn find(root: &Path, facts: &DamonFacts) -> Self {
        if let Some(module) = enabled_module(root) {
            return Self::Module(module);
        }
        let note = Note::read(root);
        if let Some(pid) = note.as_ref().and_then(|note| note.thermo_that_lives(root)) {
            return Self::Thermo { pid };
        }
        let running = facts.kdamonds.iter().position(|kdamond| kdamond.running);
        let thread = running.and_then(|nth| facts.kdamonds[nth].pid);
        match (note, facts.kdamonds.len()) {
            (_, 0) => Self::Nobody,
            (Some(note), 1) if running.is_none() || (thread.is_some() && thread == note.kdamond) => {
                Self::Left {
                    by: note.thermo,
                    kdamond: thread,
                }
            }
            (_, nr_kdamonds) => Self::Others {
                nr_kdamonds,
                running: running.map(|nth| (nth, thread)),
            },
        }
    }

    /// Why we cannot have it, and what would change that; none when we can.
    #[must_use]
    pub fn obstacle(&self) -> Option<String> {
        let number = |pid: Option<u32>| pid.map_or_else(String::new, |pid| format!(" (pid {pid})"));
        match *self {
            Self::Nobody | Self::Left { .. } => None,
            Self::Thermo { pid } => Some(format!(
                "another thermo (pid {pid}) uses it. Wait for its end, or use --tracker pte"
            )),
            Self::Others {
                running: Some((nth, pid)),
                ..
            } => Some(format!(
                "kdamond.{nth}{} runs and is not ours. Stop it, or use --tracker pte",
                number(pid)
            )),
            Self::Others { nr_kdamonds, .. } => Some(format!(
                "{nr_kdamonds} kdamonds are set up, none runs, and they are not ours. Whoever set them up can write 0 \
                 to /sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds; or use --tracker pte"
            )),
            Self::Module(module) => Some(format!(
                "the kernel's {module} is enabled and uses it alone. Write N to \
                 /sys/module/{module}/parameters/enabled, or use --tracker pte"
            )),
        }
    }
}

/// In-kernel DAMON, held: one kdamond is set up, and it is ours. Dropping it ends the kdamond and leaves the tree as
/// it was found.
#[derive(Debug)]
pub struct Claim {
    root: PathBuf,
    admin: Admin,
    control: Control,
}

impl Claim {
    /// Takes hold of it on the machine at `root` (`/`), after taking away what a killed thermo left.
    ///
    /// # Errors
    /// [`ClaimError::Busy`] when it is not free.
    pub fn take(root: &Path) -> Result<Self, ClaimError> {
        let facts = thermo_kernel::damon::read(root)?
            .ok_or_else(|| ClaimError::Busy("this kernel has none. Use --tracker pte".to_owned()))?;
        let holder = Holder::find(root, &facts);
        if let Some(obstacle) = holder.obstacle() {
            return Err(ClaimError::Busy(obstacle));
        }
        let admin = Admin::new(root);
        let claim = Self {
            root: root.to_owned(),
            control: admin.kdamond(0),
            admin,
        };
        if matches!(holder, Holder::Left { .. }) {
            claim.give_back()?;
        }
        Note::of_ours(root, None)?.write(root)?;
        claim.admin.set_nr_kdamonds(1)?;
        Ok(claim)
    }

    /// The kdamond.
    #[must_use]
    pub const fn control(&self) -> &Control {
        &self.control
    }

    /// Switches it on with what is set up, and returns its thread.
    ///
    /// # Errors
    /// The kernel refuses what is set up.
    pub fn start(&self) -> Result<u32, FileError> {
        self.control.tell(Command::On)?;
        let thread = self.control.pid()?;
        Note::of_ours(&self.root, thread)?.write(&self.root)?;
        Ok(thread.unwrap_or(0))
    }

    /// Switches it off, if it runs.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn stop(&self) -> Result<(), FileError> {
        if !self.control.is_running()? {
            return Ok(());
        }
        match self.control.tell(Command::Off) {
            // Its last target ended meanwhile, and it with that.
            Err(_) if !self.control.is_running()? => Ok(()),
            answer => answer,
        }
    }

    fn give_back(&self) -> Result<(), FileError> {
        if self.admin.nr_kdamonds()? > 0 {
            self.stop()?;
            self.admin.set_nr_kdamonds(0)?;
        }
        let path = note_path(&self.root);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(FileError::new(&path, error)),
            _ => Ok(()),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // What is left then is told by the doctor, and taken away by the next claim.
        drop(self.give_back());
    }
}

/// Who set the kdamond up, in a file that is gone after a reboot, as the kdamond is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Note {
    thermo: u32,
    /// With the number names that thermo for good.
    starttime: u64,
    kdamond: Option<u32>,
}

fn note_path(root: &Path) -> PathBuf {
    root.join("run/thermocline/kdamond")
}

fn boot_id(root: &Path) -> String {
    file::text(&root.join("proc/sys/kernel/random/boot_id")).unwrap_or_default()
}

impl Note {
    fn of_ours(root: &Path, kdamond: Option<u32>) -> Result<Self, FileError> {
        let thermo = std::process::id();
        let starttime = stat::read(root, thermo).map_or(0, |stat| stat.starttime);
        Ok(Self {
            thermo,
            starttime,
            kdamond,
        })
    }

    /// None when there is no note, or one from before the machine was booted.
    fn read(root: &Path) -> Option<Self> {
        let text = file::text(&note_path(root)).ok()?;
        let (words, boot) = text.split_once('\n')?;
        let mut words = words.split(' ');
        let note = Self {
            thermo: words.next()?.parse().ok()?,
            starttime: words.next()?.parse().ok()?,
            kdamond: words.next()?.parse().ok().filter(|pid| *pid != 0),
        };
        (boot.trim() == boot_id(root).trim()).then_some(note)
    }

    fn write(&self, root: &Path) -> Result<(), FileError> {
        let (path, boot) = (note_path(root), boot_id(root));
        let kdamond = self.kdamond.unwrap_or(0);
        let text = format!("{} {} {kdamond}\n{boot}", self.thermo, self.starttime);
        let dir = path.parent().unwrap_or(root);
        fs::create_dir_all(dir)
            .and_then(|()| fs::write(&path, text))
            .map_err(|error| FileError::new(&path, error))
    }

    fn thermo_that_lives(&self, root: &Path) -> Option<u32> {
        let stat = stat::read(root, self.thermo).ok()?;
        (stat.starttime == self.starttime && !stat.has_ended()).then_some(self.thermo)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use thermo_kernel::damon;

    /// A machine with this many kdamonds, of which the first is in `state`.
    fn machine(count: u32, state: &str, pid: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("sys/kernel/mm/damon/admin/kdamonds");
        fs::create_dir_all(dir.join("0")).unwrap();
        fs::write(dir.join("nr_kdamonds"), count.to_string()).unwrap();
        fs::write(dir.join("0/state"), state).unwrap();
        fs::write(dir.join("0/pid"), pid).unwrap();
        let random = root.path().join("proc/sys/kernel/random");
        fs::create_dir_all(&random).unwrap();
        fs::write(random.join("boot_id"), "this boot\n").unwrap();
        root
    }

    fn live(root: &Path, pid: u32, starttime: u64) {
        let dir = root.join(format!("proc/{pid}"));
        fs::create_dir_all(&dir).unwrap();
        let line = format!("{pid} (thermo) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {starttime} 0 0");
        fs::write(dir.join("stat"), line).unwrap();
    }

    fn holder(root: &Path) -> Holder {
        Holder::find(root, &damon::read(root).unwrap().unwrap())
    }

    fn note(root: &Path, thermo: u32, kdamond: Option<u32>) {
        let note = Note {
            thermo,
            starttime: 99,
            kdamond,
        };
        note.write(root).unwrap();
    }

    #[test]
    fn what_is_not_ours_is_refused_by_name() {
        let root = machine(1, "on\n", "77\n");
        let error = Claim::take(root.path()).unwrap_err().to_string();
        let wanted = "DAMON is busy: kdamond.0 (pid 77) runs and is not ours. Stop it, or use --tracker pte";
        assert_eq!(error, wanted);
        let root = machine(2, "off\n", "-1\n");
        let error = Claim::take(root.path()).unwrap_err().to_string();
        assert!(error.contains("2 kdamonds are set up, none runs"), "{error}");
        assert!(!note_path(root.path()).exists(), "a refusal leaves nothing");
        let nr = root.path().join("sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds");
        assert_eq!(fs::read_to_string(nr).unwrap(), "2", "nothing was written");
    }

    #[test]
    fn a_module_that_is_enabled_has_it_alone() {
        let root = machine(0, "off\n", "-1\n");
        let module = root.path().join("sys/module/damon_reclaim/parameters");
        fs::create_dir_all(&module).unwrap();
        fs::write(module.join("enabled"), "N\n").unwrap();
        assert_eq!(holder(root.path()), Holder::Nobody);
        fs::write(module.join("enabled"), "Y\n").unwrap();
        assert_eq!(holder(root.path()), Holder::Module("damon_reclaim"));
    }

    #[test]
    fn what_a_killed_thermo_left_is_ours_and_nothing_else() {
        let root = machine(1, "on\n", "77\n");
        note(root.path(), 5, Some(77));
        let left = Holder::Left {
            by: 5,
            kdamond: Some(77),
        };
        assert_eq!(holder(root.path()), left);
        live(root.path(), 5, 100);
        assert_eq!(holder(root.path()), left, "another process has its number now");
        live(root.path(), 5, 99);
        assert_eq!(holder(root.path()), Holder::Thermo { pid: 5 });
        fs::remove_dir_all(root.path().join("proc/5")).unwrap();
        note(root.path(), 5, Some(78));
        assert!(
            matches!(holder(root.path()), Holder::Others { .. }),
            "a later kdamond"
        );
        note(root.path(), 5, Some(77));
        fs::write(root.path().join("proc/sys/kernel/random/boot_id"), "another\n").unwrap();
        assert!(
            matches!(holder(root.path()), Holder::Others { .. }),
            "another boot"
        );
    }

    #[test]
    fn a_claim_leaves_the_tree_as_it_found_it() {
        let root = machine(0, "off\n", "-1\n");
        let nr = root.path().join("sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds");
        let claim = Claim::take(root.path()).unwrap();
        assert_eq!(fs::read_to_string(&nr).unwrap(), "1");
        assert!(note_path(root.path()).exists());
        drop(claim);
        assert_eq!(fs::read_to_string(&nr).unwrap(), "0");
        assert!(!note_path(root.path()).exists());
    }
}
