//! Exclusive use of in-kernel DAMON: granted only if no other program has set up a kdamond.
//!
//! The sysfs tree does not show which program set a kdamond up. So thermo records its own claim in a file
//! before it sets up a kdamond, before it starts one, and again when the kdamond's thread is known. If the
//! thermo of a claim file has ended, it was killed; its kdamond, and no other, may be removed. Until the
//! thread is known, the inode of the kdamond's folder identifies it: a program that sets up kdamonds creates
//! new folders, and the kernel gives each a number of its own.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use thermo_kernel::FileError;
use thermo_kernel::damon::{self, Admin, Command, DamonFacts, KdamondControl, enabled_module};
use thermo_kernel::leftovers::{OrphanedNote, ProcessId};
use thermo_kernel::{file, stat};

/// The current user of in-kernel DAMON.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DamonUser {
    /// No user.
    #[default]
    None,
    /// A thermo that was killed left its kdamond behind.
    KilledThermo {
        /// The pid of that thermo.
        by: u32,
        /// The thread of the kdamond, if it still runs.
        kdamond: Option<u32>,
    },
    /// Another running thermo.
    Thermo {
        /// Its pid.
        pid: u32,
    },
    /// Another program has set up kdamonds.
    Other {
        /// Number of kdamonds that are set up.
        nr_kdamonds: usize,
        /// The first running kdamond: its index and its thread.
        running: Option<(usize, Option<u32>)>,
    },
    /// A kernel module (e.g. `damon_reclaim`).
    Module(&'static str),
}

/// Why in-kernel DAMON cannot be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// It is in use, or missing.
    #[error("DAMON is busy: {0}")]
    Busy(String),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

impl DamonUser {
    /// The user of in-kernel DAMON on the machine at `root`, whose sysfs tree contains `facts`.
    #[must_use]
    pub fn find(root: &Path, facts: &DamonFacts) -> Self {
        if let Some(module) = enabled_module(root) {
            return Self::Module(module);
        }
        let claim = ClaimFile::read(root);
        if let Some(pid) = claim.as_ref().and_then(|claim| claim.live_thermo(root)) {
            return Self::Thermo { pid };
        }
        let running = facts.kdamonds.iter().position(|kdamond| kdamond.running);
        let thread = running.and_then(|nth| facts.kdamonds[nth].pid);
        match (claim, facts.kdamonds.len()) {
            (_, 0) => Self::None,
            (Some(claim), 1) if running.is_none() || claim.is_of(root, thread) => Self::KilledThermo {
                by: claim.thermo,
                kdamond: thread,
            },
            (_, nr_kdamonds) => Self::Other {
                nr_kdamonds,
                running: running.map(|nth| (nth, thread)),
            },
        }
    }

    /// Why DAMON cannot be claimed and how to change that; `None` if it can.
    #[must_use]
    pub fn obstacle(&self) -> Option<String> {
        let number = |pid: Option<u32>| pid.map_or_else(String::new, |pid| format!(" (pid {pid})"));
        match *self {
            Self::None | Self::KilledThermo { .. } => None,
            Self::Thermo { pid } => Some(format!(
                "another thermo (pid {pid}) uses it. Wait until it ends, or use --tracker pte"
            )),
            Self::Other {
                running: Some((nth, pid)),
                ..
            } => Some(format!(
                "kdamond.{nth}{} of another program is running. Stop it, or use --tracker pte",
                number(pid)
            )),
            Self::Other { nr_kdamonds, .. } => Some(format!(
                "{nr_kdamonds} kdamonds of another program are set up, none is running. Write 0 to \
                 /sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds if they are unused, or use --tracker pte"
            )),
            Self::Module(module) => Some(format!(
                "the kernel module {module} is enabled and uses DAMON exclusively. Write N to \
                 /sys/module/{module}/parameters/enabled, or use --tracker pte"
            )),
        }
    }
}

/// A claim of in-kernel DAMON with one kdamond. Dropping the claim ends the kdamond and restores the sysfs
/// tree.
#[derive(Debug)]
pub struct Claim {
    root: PathBuf,
    admin: Admin,
    control: KdamondControl,
}

impl Claim {
    /// Claims in-kernel DAMON on the machine at `root` (`/`). Removes a kdamond that a killed thermo left
    /// behind.
    ///
    /// # Errors
    /// [`ClaimError::Busy`] if DAMON is in use.
    pub fn take(root: &Path) -> Result<Self, ClaimError> {
        let facts = damon::read(root)?
            .ok_or_else(|| ClaimError::Busy("this kernel has none. Use --tracker pte".to_owned()))?;
        let user = DamonUser::find(root, &facts);
        if let Some(obstacle) = user.obstacle() {
            return Err(ClaimError::Busy(obstacle));
        }
        let admin = Admin::new(root);
        let claim = Self {
            root: root.to_owned(),
            control: admin.kdamond(0),
            admin,
        };
        if matches!(user, DamonUser::KilledThermo { .. }) {
            claim.release()?;
        }
        ClaimFile::for_this_process(root, None).write(root)?;
        claim.admin.set_nr_kdamonds(1)?;
        Ok(claim)
    }

    /// The control files of the kdamond.
    #[must_use]
    pub const fn control(&self) -> &KdamondControl {
        &self.control
    }

    /// Starts the kdamond with the current setup, and returns its thread.
    ///
    /// # Errors
    /// The kernel refuses the setup.
    pub fn start(&self) -> Result<u32, FileError> {
        // A kill can follow before the thread is known.
        ClaimFile::for_this_process(&self.root, None).write(&self.root)?;
        self.control.send(Command::On)?;
        let thread = self.control.pid()?;
        ClaimFile::for_this_process(&self.root, thread).write(&self.root)?;
        Ok(thread.unwrap_or(0))
    }

    /// Stops the kdamond, if it runs.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn stop(&self) -> Result<(), FileError> {
        if !self.control.is_running()? {
            return Ok(());
        }
        match self.control.send(Command::Off) {
            // Its last target has ended meanwhile, and so has the kdamond.
            Err(_) if !self.control.is_running()? => Ok(()),
            answer => answer,
        }
    }

    fn release(&self) -> Result<(), FileError> {
        if self.admin.nr_kdamonds()? > 0 {
            self.stop()?;
            self.admin.set_nr_kdamonds(0)?;
        }
        let path = claim_path(&self.root);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(FileError::new(&path, error)),
            _ => Ok(()),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // If this fails, `thermo doctor --leftovers` lists the kdamond and the next claim removes it.
        drop(self.release());
    }
}

/// The kdamond that a killed thermo left on the machine at `root`, with the commands that remove it.
///
/// # Errors
/// Fails if the kernel has in-kernel DAMON, but its state cannot be read.
pub fn leftover(root: &Path) -> Result<Option<OrphanedNote>, FileError> {
    let Some(facts) = damon::read(root)? else {
        return Ok(None);
    };
    let (DamonUser::KilledThermo { kdamond, .. }, Some(claim)) =
        (DamonUser::find(root, &facts), ClaimFile::read(root))
    else {
        return Ok(None);
    };
    let folder = "/sys/kernel/mm/damon/admin/kdamonds";
    let (state, stop) = match kdamond {
        Some(thread) => (
            format!("runs as pid {thread}"),
            format!("echo off > {folder}/0/state && "),
        ),
        None => ("is set up".to_owned(), String::new()),
    };
    let sentence =
        format!("kdamond.0 of in-kernel DAMON {state}: `{stop}echo 0 > {folder}/nr_kdamonds` removes it");
    Ok(Some(OrphanedNote {
        path: claim_path(root),
        kind: "kdamond".to_owned(),
        writer: ProcessId {
            pid: claim.thermo,
            starttime: claim.starttime,
        },
        leftovers: vec![sentence],
    }))
}

/// Content of the claim file: the thermo that set up the kdamond. After a reboot the file is invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ClaimFile {
    thermo: u32,
    /// Together with the pid it identifies the process.
    starttime: u64,
    kdamond: Option<u32>,
    /// The inode of the kdamond's folder, if it exists.
    folder: Option<u64>,
}

fn claim_path(root: &Path) -> PathBuf {
    root.join("run/thermocline/kdamond")
}

fn folder_of_kdamond(root: &Path) -> Option<u64> {
    let found = fs::metadata(root.join("sys/kernel/mm/damon/admin/kdamonds/0"));
    found.ok().map(|found| found.ino())
}

fn boot_id(root: &Path) -> String {
    file::text(&root.join("proc/sys/kernel/random/boot_id")).unwrap_or_default()
}

impl ClaimFile {
    fn for_this_process(root: &Path, kdamond: Option<u32>) -> Self {
        let thermo = std::process::id();
        let starttime = stat::read(root, thermo).map_or(0, |stat| stat.starttime);
        Self {
            thermo,
            starttime,
            kdamond,
            folder: folder_of_kdamond(root),
        }
    }

    /// Whether the kdamond that runs as `thread` is the claimed one.
    fn is_of(&self, root: &Path, thread: Option<u32>) -> bool {
        match self.kdamond {
            Some(_) => thread == self.kdamond,
            None => self.folder.is_some() && self.folder == folder_of_kdamond(root),
        }
    }

    /// `None` if there is no file, or if it is from before the last boot.
    fn read(root: &Path) -> Option<Self> {
        let text = file::text(&claim_path(root)).ok()?;
        let (words, boot) = text.split_once('\n')?;
        let mut words = words.split(' ');
        let claim = Self {
            thermo: words.next()?.parse().ok()?,
            starttime: words.next()?.parse().ok()?,
            kdamond: words.next()?.parse().ok().filter(|pid| *pid != 0),
            folder: words
                .next()
                .and_then(|word| word.parse().ok())
                .filter(|inode| *inode != 0),
        };
        (boot.trim() == boot_id(root).trim()).then_some(claim)
    }

    /// Replaces the file as a whole. Readers of leftovers remove a new version that a kill left unfinished.
    fn write(&self, root: &Path) -> Result<(), FileError> {
        let (path, boot) = (claim_path(root), boot_id(root));
        let new = path.with_file_name(format!("kdamond-{}-claim.new", self.thermo));
        let (kdamond, folder) = (self.kdamond.unwrap_or(0), self.folder.unwrap_or(0));
        let text = format!("{} {} {kdamond} {folder}\n{boot}", self.thermo, self.starttime);
        let dir = path.parent().unwrap_or(root);
        fs::create_dir_all(dir)
            .and_then(|()| fs::write(&new, text))
            .and_then(|()| fs::rename(&new, &path))
            .map_err(|error| FileError::new(&path, error))
    }

    fn live_thermo(&self, root: &Path) -> Option<u32> {
        let stat = stat::read(root, self.thermo).ok()?;
        (stat.starttime == self.starttime && !stat.has_ended()).then_some(self.thermo)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use thermo_kernel::damon;

    /// A fake root with this many kdamonds, the first of which is in `state`.
    fn machine(count: u32, state: &str, pid: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("sys/kernel/mm/damon/admin/kdamonds");
        for index in 0..count.max(1) {
            fs::create_dir_all(dir.join(index.to_string())).unwrap();
        }
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

    fn user(root: &Path) -> DamonUser {
        DamonUser::find(root, &damon::read(root).unwrap().unwrap())
    }

    fn write_claim(root: &Path, thermo: u32, kdamond: Option<u32>) {
        let claim = ClaimFile {
            thermo,
            starttime: 99,
            kdamond,
            folder: folder_of_kdamond(root),
        };
        claim.write(root).unwrap();
    }

    #[test]
    fn kdamond_of_thermo_killed_before_its_thread_is_known_is_recognized_by_its_folder() {
        let root = machine(1, "on\n", "77\n");
        write_claim(root.path(), 5, None);
        let left = DamonUser::KilledThermo {
            by: 5,
            kdamond: Some(77),
        };
        assert_eq!(user(root.path()), left);
        // Another program has set up kdamonds since. The old folder stays, so that its number is not reused.
        let dir = root.path().join("sys/kernel/mm/damon/admin/kdamonds");
        fs::rename(dir.join("0"), dir.join("old")).unwrap();
        fs::create_dir(dir.join("0")).unwrap();
        for name in ["state", "pid"] {
            fs::copy(dir.join("old").join(name), dir.join("0").join(name)).unwrap();
        }
        assert!(matches!(user(root.path()), DamonUser::Other { .. }));
    }

    #[test]
    fn leftover_names_the_commands_that_remove_the_kdamond() {
        let root = machine(1, "on\n", "77\n");
        assert_eq!(leftover(root.path()).unwrap(), None, "of another program");
        write_claim(root.path(), 5, Some(77));
        let note = leftover(root.path()).unwrap().unwrap();
        assert_eq!(
            (note.kind.as_str(), note.writer.pid, note.path),
            ("kdamond", 5, claim_path(root.path()))
        );
        let folder = "/sys/kernel/mm/damon/admin/kdamonds";
        let wanted = format!(
            "kdamond.0 of in-kernel DAMON runs as pid 77: `echo off > {folder}/0/state && echo 0 > {folder}/nr_kdamonds` \
             removes it"
        );
        assert_eq!(note.leftovers, [wanted]);
        fs::write(
            root.path().join("sys/kernel/mm/damon/admin/kdamonds/0/state"),
            "off\n",
        )
        .unwrap();
        let note = leftover(root.path()).unwrap().unwrap();
        assert!(note.leftovers[0].contains("is set up: `echo 0 > "), "{note:?}");
        live(root.path(), 5, 99);
        assert_eq!(leftover(root.path()).unwrap(), None, "its thermo runs");
        assert_eq!(
            leftover(tempfile::tempdir().unwrap().path()).unwrap(),
            None,
            "no DAMON"
        );
    }

    #[test]
    fn claim_refuses_kdamond_of_another_program() {
        let root = machine(1, "on\n", "77\n");
        let error = Claim::take(root.path()).unwrap_err().to_string();
        let wanted =
            "DAMON is busy: kdamond.0 (pid 77) of another program is running. Stop it, or use --tracker pte";
        assert_eq!(error, wanted);
        let root = machine(2, "off\n", "-1\n");
        let error = Claim::take(root.path()).unwrap_err().to_string();
        assert!(
            error.contains("2 kdamonds of another program are set up, none is running"),
            "{error}"
        );
        assert!(!claim_path(root.path()).exists(), "a refusal leaves nothing");
        let nr = root.path().join("sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds");
        assert_eq!(fs::read_to_string(nr).unwrap(), "2", "nothing was written");
    }

    #[test]
    fn enabled_module_is_the_user() {
        let root = machine(0, "off\n", "-1\n");
        let module = root.path().join("sys/module/damon_reclaim/parameters");
        fs::create_dir_all(&module).unwrap();
        fs::write(module.join("enabled"), "N\n").unwrap();
        assert_eq!(user(root.path()), DamonUser::None);
        fs::write(module.join("enabled"), "Y\n").unwrap();
        assert_eq!(user(root.path()), DamonUser::Module("damon_reclaim"));
    }

    #[test]
    fn only_kdamond_of_killed_thermo_is_taken_over() {
        let root = machine(1, "on\n", "77\n");
        write_claim(root.path(), 5, Some(77));
        let left = DamonUser::KilledThermo {
            by: 5,
            kdamond: Some(77),
        };
        assert_eq!(user(root.path()), left);
        live(root.path(), 5, 100);
        assert_eq!(user(root.path()), left, "another process has its number now");
        live(root.path(), 5, 99);
        assert_eq!(user(root.path()), DamonUser::Thermo { pid: 5 });
        fs::remove_dir_all(root.path().join("proc/5")).unwrap();
        write_claim(root.path(), 5, Some(78));
        assert!(
            matches!(user(root.path()), DamonUser::Other { .. }),
            "a later kdamond"
        );
        write_claim(root.path(), 5, Some(77));
        fs::write(root.path().join("proc/sys/kernel/random/boot_id"), "another\n").unwrap();
        assert!(
            matches!(user(root.path()), DamonUser::Other { .. }),
            "another boot"
        );
    }

    #[test]
    fn dropped_claim_restores_tree() {
        let root = machine(0, "off\n", "-1\n");
        let nr = root.path().join("sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds");
        let claim = Claim::take(root.path()).unwrap();
        assert_eq!(fs::read_to_string(&nr).unwrap(), "1");
        assert!(claim_path(root.path()).exists());
        drop(claim);
        assert_eq!(fs::read_to_string(&nr).unwrap(), "0");
        assert!(!claim_path(root.path()).exists());
    }
}
