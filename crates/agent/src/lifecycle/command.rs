//! The processes of `command` targets: user, program and arguments.
//!
//! A process chooses its own `argv`, so the first argument is replaced by the program that it runs
//! (`/proc/PID/exe`), and processes of other users never count.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use regex::Regex;
use thermo_kernel::{proc, status};
use thermo_units::Nanos;

/// Maximum bytes read of a command line. Any user can start processes with megabytes of arguments.
const MAX_COMMAND_LINE: usize = 4096;
/// Lifetime of the result of a scan.
const SCAN_LIFETIME: Nanos = Nanos::secs(1);

/// All processes of a user whose program and arguments, joined by spaces, match.
#[derive(Debug, Clone)]
pub struct CommandTarget {
    /// Pattern of the program's path and its arguments.
    pub pattern: Regex,
    /// The user.
    pub uid: u32,
}

impl PartialEq for CommandTarget {
    fn eq(&self, other: &Self) -> bool {
        (self.pattern.as_str(), self.uid) == (other.pattern.as_str(), other.uid)
    }
}

impl CommandTarget {
    /// Whether the process belongs to the target now.
    pub(super) fn is_match(&self, root: &Path, pid: u32) -> bool {
        user(root, pid) == Some(self.uid)
            && command_line(root, pid).is_some_and(|line| self.pattern.is_match(&line))
    }
}

/// The result of the last scan of all processes: the PIDs of each application.
#[derive(Debug, Default)]
pub(super) struct CommandScan {
    last: Option<(Nanos, BTreeMap<String, Vec<u32>>)>,
}

impl CommandScan {
    /// The processes of `app` in ascending order. One scan serves all `commands`, for [`SCAN_LIFETIME`].
    pub(super) fn pids<'a>(
        &mut self,
        root: &Path,
        app: &str,
        commands: impl Iterator<Item = (&'a String, &'a CommandTarget)>,
        now: Nanos,
    ) -> Vec<u32> {
        let is_fresh = |(when, _): &&mut (Nanos, _)| now.saturating_sub(*when) < SCAN_LIFETIME;
        if self.last.as_mut().filter(is_fresh).is_none() {
            self.last = Some((now, scan(root, &commands.collect::<Vec<_>>())));
        }
        let apps = self.last.as_ref().map(|(_, apps)| apps);
        apps.and_then(|apps| apps.get(app)).cloned().unwrap_or_default()
    }
}

fn scan(root: &Path, commands: &[(&String, &CommandTarget)]) -> BTreeMap<String, Vec<u32>> {
    let mut apps: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for pid in proc::pids(root).unwrap_or_default() {
        let Some(uid) = user(root, pid) else { continue };
        if commands.iter().all(|(_, command)| command.uid != uid) {
            continue;
        }
        let Some(line) = command_line(root, pid) else {
            continue;
        };
        for (app, command) in commands {
            if command.uid == uid && command.pattern.is_match(&line) {
                apps.entry((*app).clone()).or_default().push(pid);
            }
        }
    }
    apps
}

/// The effective user of a process.
fn user(root: &Path, pid: u32) -> Option<u32> {
    status::read(root, pid).ok().map(|status| status.euid)
}

/// The program's path and the start of its arguments; `None` for kernel threads, and for processes that this
/// process may not inspect (and so not advise).
fn command_line(root: &Path, pid: u32) -> Option<String> {
    let exe = fs::read_link(proc::dir(root, pid).join("exe")).ok()?;
    let exe = exe.to_string_lossy();
    // A package update replaces the file of a running program.
    let exe = exe.strip_suffix(" (deleted)").unwrap_or(&exe);
    let text = proc::text_start(root, pid, "cmdline", MAX_COMMAND_LINE).ok()?;
    let arguments = text.split_once('\0').map_or("", |(_, arguments)| arguments);
    let line = format!("{exe} {}", arguments.trim_end_matches('\0').replace('\0', " "));
    Some(line.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use std::os::unix::fs::symlink;

    use super::*;

    fn process(root: &Path, pid: u32, uid: u32, exe: &str, argv: &str) {
        let dir = root.join("proc").join(pid.to_string());
        fs::create_dir_all(&dir).unwrap();
        let status = format!("Tgid:\t{pid}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nCapEff:\t0\n");
        fs::write(dir.join("status"), status).unwrap();
        fs::write(dir.join("cmdline"), argv).unwrap();
        symlink(exe, dir.join("exe")).unwrap();
    }

    fn matching(root: &Path, pattern: &str) -> Vec<u32> {
        let command = CommandTarget {
            pattern: Regex::new(pattern).unwrap(),
            uid: 5,
        };
        let app = "a".to_owned();
        let commands = [(&app, &command)];
        let pids = CommandScan::default().pids(root, "a", commands.into_iter(), Nanos::ZERO);
        let verified = (1..100).filter(|pid| command.is_match(root, *pid));
        assert_eq!(pids, verified.collect::<Vec<_>>());
        pids
    }

    #[test]
    fn command_matches_program_and_arguments_of_its_user() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        process(root, 10, 5, "/usr/bin/java", "java\0-jar\0ide.jar\0");
        process(root, 11, 5, "/usr/bin/java (deleted)", "java\0-jar\0ide.jar\0");
        process(root, 12, 5, "/tmp/evil", "/usr/bin/java\0-jar\0ide.jar\0");
        process(root, 13, 6, "/usr/bin/java", "java\0-jar\0ide.jar\0");
        assert_eq!(matching(root, "^/usr/bin/java .*ide"), [10, 11]);
        assert_eq!(matching(root, "^java"), [0; 0]);
        assert_eq!(matching(root, "^/tmp/evil -jar ide.jar$"), [12]);
    }

    #[test]
    fn only_the_start_of_a_command_line_is_read() {
        let root = tempfile::tempdir().unwrap();
        let argv = format!("x\0first\0{}\0last\0", "y".repeat(1 << 20));
        process(root.path(), 10, 5, "/x", &argv);
        assert_eq!(matching(root.path(), "first"), [10]);
        assert_eq!(matching(root.path(), "last"), [0; 0]);
        assert!(command_line(root.path(), 10).unwrap().len() <= MAX_COMMAND_LINE + 8);
    }
}
