//! Sets the system's THP mode for the duration of a run.

use std::path::Path;

use thermo_kernel::FileError;
use thermo_kernel::leftovers::{self, Leftover, Note, Until};
use thermo_kernel::thp::{self, ThpGuard, ThpMode};

use crate::error::RunFailure;

/// Restores the previous mode when dropped. A leftover note records that mode in case this process is killed.
#[derive(Debug)]
pub(crate) struct ModeGuard {
    /// `None` after the mode was restored.
    guard: Option<ThpGuard>,
    note: Option<Note>,
}

/// Parses the name of a mode.
pub(crate) fn parse(word: &str) -> Option<ThpMode> {
    [ThpMode::Always, ThpMode::Madvise, ThpMode::Never]
        .into_iter()
        .find(|mode| mode.name() == word)
}

impl ModeGuard {
    /// Sets `mode` and drops the page cache, so that all runs start in the same state.
    pub(crate) fn set(root: &Path, mode: ThpMode) -> Result<Self, RunFailure> {
        let failed =
            |error: String| RunFailure::failed(format!("cannot set the THP mode to {mode}: {error}"));
        let before = thp::read(root)
            .map_err(|error| failed(error.to_string()))?
            .ok_or_else(|| failed("this kernel was built without transparent huge pages".into()))?;
        let note = note(root, before).map_err(|error| {
            failed(format!(
                "the mode before cannot be noted for `thermo doctor --leftovers`: {error}"
            ))
        })?;
        let guard = ThpGuard::set(root, mode).map_err(|error| failed(error.to_string()))?;
        // Without a dropped page cache runs vary more, but they are still valid.
        let _ = std::fs::write(root.join("proc/sys/vm/drop_caches"), "3");
        let guard = Some(guard);
        Ok(Self {
            guard,
            note: Some(note),
        })
    }
}

impl Drop for ModeGuard {
    fn drop(&mut self) {
        let Some(Err(error)) = self.guard.take().map(ThpGuard::restore) else {
            return;
        };
        thermo_kernel::message!(
            "thermo-lab: cannot restore the THP mode: {error}. `thermo doctor --leftovers` prints how to restore it"
        );
        if let Some(note) = self.note.take() {
            note.keep();
        }
    }
}

/// Writes a leftover note before the mode changes.
fn note(root: &Path, before: ThpMode) -> Result<Note, FileError> {
    let description = format!(
        "the THP mode was {before}: \
         `echo {before} > /sys/kernel/mm/transparent_hugepage/enabled` restores it"
    );
    let until = Until::Undone;
    leftovers::note_change(root, "huge-page-mode", Leftover { until, description })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn guard_restores_mode_after_panic() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("sys/kernel/mm/transparent_hugepage/enabled");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::create_dir_all(root.path().join("proc/sys/vm")).unwrap();
        std::fs::write(&file, "always [madvise] never\n").unwrap();
        let path = root.path().to_owned();
        let run = std::panic::catch_unwind(move || {
            let _guard = ModeGuard::set(&path, ThpMode::Always).unwrap();
            assert!(
                std::fs::read_to_string(path.join("sys/kernel/mm/transparent_hugepage/enabled"))
                    .unwrap()
                    .starts_with("always")
            );
            panic!("during the run");
        });
        assert!(run.is_err());
        assert!(std::fs::read_to_string(&file).unwrap().starts_with("madvise"));
        assert_eq!(
            std::fs::read_to_string(root.path().join("proc/sys/vm/drop_caches")).unwrap(),
            "3"
        );
    }

    #[test]
    fn mode_is_not_changed_if_it_cannot_be_noted() {
        let root = tempfile::tempdir().unwrap();
        if !leftovers::folder(root.path()).is_some_and(|folder| folder.starts_with(root.path())) {
            println!("SKIP: without root, the notes are outside the folder of this test");
            return;
        }
        let file = root.path().join("sys/kernel/mm/transparent_hugepage/enabled");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "always [madvise] never\n").unwrap();
        std::fs::write(root.path().join("run"), "no folder").unwrap();
        let failure = ModeGuard::set(root.path(), ThpMode::Always).unwrap_err();
        let RunFailure::Failed(message) = failure else {
            panic!("{failure:?}")
        };
        assert!(message.contains("run/thermocline"), "{message}");
        assert_eq!(
            std::fs::read_to_string(&file).unwrap(),
            "always [madvise] never\n"
        );
    }

    #[test]
    fn kernel_without_thp_is_reported() {
        let root = tempfile::tempdir().unwrap();
        let failure = ModeGuard::set(root.path(), ThpMode::Always).unwrap_err();
        let RunFailure::Failed(message) = failure else {
            panic!("{failure:?}")
        };
        assert!(message.contains("without transparent huge pages"), "{message}");
    }

    #[test]
    fn unknown_thp_mode_is_rejected() {
        assert_eq!(parse("always"), Some(ThpMode::Always));
        assert_eq!(parse("sometimes"), None);
        let text = "name = 'x'\nrepeats = 1\n[[configuration]]\nname = 'orig'\nthp = 'sometimes'\n\
                    [[workload]]\nname = 'w'\ncommand = ['true']\n";
        let error = crate::Experiment::parse(text, Path::new("/")).unwrap_err();
        let message = error.to_string();
        assert!(
            message.contains("sometimes") && message.contains("always, madvise or never"),
            "{message}"
        );
    }
}
