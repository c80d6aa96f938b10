//! The machine's mode of transparent huge pages, for as long as a run lasts.

use std::path::Path;

use thermo_kernel::leftovers::{self, Leftover, Note};
use thermo_kernel::thp::{self, ThpGuard, ThpMode};

use crate::error::RunFailure;

/// The mode of a run. What there was before comes back when it is dropped; a note tells of it should we be killed.
#[derive(Debug)]
pub(crate) struct Mode {
    /// None once it was put back.
    guard: Option<ThpGuard>,
    note: Option<Note>,
}

/// The mode a word names.
pub(crate) fn parse(word: &str) -> Option<ThpMode> {
    [ThpMode::Always, ThpMode::Madvise, ThpMode::Never]
        .into_iter()
        .find(|mode| mode.name() == word)
}

impl Mode {
    /// Sets `mode`, and drops what the kernel keeps of files, so that every run begins alike.
    pub(crate) fn begin(root: &Path, mode: ThpMode) -> Result<Self, RunFailure> {
        let failed =
            |error: String| RunFailure::wrong(format!("huge pages cannot be set to {mode}: {error}"));
        let before = thp::read(root)
            .map_err(|error| failed(error.to_string()))?
            .ok_or_else(|| failed("this kernel is built without transparent huge pages".into()))?;
        let note = note(root, before);
        let guard = ThpGuard::set(root, mode).map_err(|error| failed(error.to_string()))?;
        // Less even runs are no reason to make none.
        let _ = std::fs::write(root.join("proc/sys/vm/drop_caches"), "3");
        let guard = Some(guard);
        Ok(Self { guard, note })
    }
}

impl Drop for Mode {
    fn drop(&mut self) {
        let Some(Err(why)) = self.guard.take().map(ThpGuard::restore) else {
            return;
        };
        eprintln!(
            "thermo: the mode of huge pages could not be put back: {why}. `thermo doctor --leftovers` tells how to"
        );
        if let Some(note) = self.note.take() {
            note.stay();
        }
    }
}

/// Noted before anything is changed. A machine without a place for notes is no reason not to go on.
fn note(root: &Path, before: ThpMode) -> Option<Note> {
    let folder = leftovers::folder(root)?;
    let note = Note::new(root, &folder, "huge-page-mode").ok()?;
    let what = format!(
        "the mode of transparent huge pages was {before}: \
         `echo {before} > /sys/kernel/mm/transparent_hugepage/enabled` sets it back"
    );
    note.say(&[Leftover { within: None, what }]).ok()?;
    Some(note)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn the_mode_there_was_comes_back_also_when_the_run_panics() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("sys/kernel/mm/transparent_hugepage/enabled");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::create_dir_all(root.path().join("proc/sys/vm")).unwrap();
        std::fs::write(&file, "always [madvise] never\n").unwrap();
        let path = root.path().to_owned();
        let run = std::panic::catch_unwind(move || {
            let _mode = Mode::begin(&path, ThpMode::Always).unwrap();
            assert!(
                std::fs::read_to_string(path.join("sys/kernel/mm/transparent_hugepage/enabled"))
                    .unwrap()
                    .starts_with("always")
            );
            panic!("in the middle");
        });
        assert!(run.is_err());
        assert!(std::fs::read_to_string(&file).unwrap().starts_with("madvise"));
        assert_eq!(
            std::fs::read_to_string(root.path().join("proc/sys/vm/drop_caches")).unwrap(),
            "3"
        );
    }

    #[test]
    fn a_kernel_without_huge_pages_is_named() {
        let root = tempfile::tempdir().unwrap();
        let refused = Mode::begin(root.path(), ThpMode::Always).unwrap_err();
        let RunFailure::Wrong(why) = refused else {
            panic!("{refused:?}")
        };
        assert!(why.contains("without transparent huge pages"), "{why}");
    }

    #[test]
    fn a_word_is_a_mode_or_not() {
        assert_eq!(parse("always"), Some(ThpMode::Always));
        assert_eq!(parse("sometimes"), None);
        let text = "name = 'x'\nrepeats = 1\n[[configuration]]\nname = 'orig'\nthp = 'sometimes'\n\
                    [[workload]]\nname = 'w'\ncommand = ['true']\n";
        let fault = crate::Experiment::parse(text, Path::new("/")).unwrap_err();
        let told = fault.to_string();
        assert!(
            told.contains("sometimes") && told.contains("always, madvise and never"),
            "{told}"
        );
    }
}
