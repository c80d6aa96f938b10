//! Starting the command that the user gave after `--`.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, WaitOptions, waitpid};
use thermo_kernel::user::User;
use thermo_kernel::{children, namespace};

/// Process ID of the started command; 0 before the start.
static COMMAND_PID: AtomicU32 = AtomicU32::new(0);

/// Why a command could not be started.
#[derive(Debug)]
pub struct LaunchError {
    name: String,
    cause: io::Error,
}

impl LaunchError {
    fn new(program: &OsStr, cause: io::Error) -> Self {
        Self {
            name: program.to_string_lossy().into_owned(),
            cause,
        }
    }

    /// The exit code of shells: 127 for a command that does not exist, 126 for one that cannot be run.
    pub fn code(&self) -> u8 {
        if self.cause.kind() == io::ErrorKind::NotFound {
            127
        } else {
            126
        }
    }
}

impl std::fmt::Display for LaunchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.cause.kind() == io::ErrorKind::NotFound {
            write!(f, "command not found: {}", self.name)
        } else {
            write!(f, "cannot start {}: {}", self.name, self.cause)
        }
    }
}

impl std::error::Error for LaunchError {}

/// Checks that the program of `command` exists, before anything is prepared for it.
///
/// # Errors
/// The program does not exist, or `command` is empty.
pub fn check(command: &[OsString]) -> Result<(), LaunchError> {
    let program = command.first().map_or(OsStr::new(""), OsString::as_os_str);
    let exists = if program.as_encoded_bytes().contains(&b'/') {
        Path::new(program).exists()
    } else {
        !program.is_empty()
            && env::var_os("PATH")
                .is_some_and(|path| env::split_paths(&path).any(|folder| folder.join(program).exists()))
    };
    if exists {
        Ok(())
    } else {
        Err(LaunchError::new(program, io::ErrorKind::NotFound.into()))
    }
}

/// Starts `command` with our standard streams, as `user` or as ourselves.
///
/// # Errors
/// The command does not exist or cannot be run.
pub fn launch(command: &[OsString], user: Option<&User>) -> Result<Child, LaunchError> {
    check(command)?;
    let mut process = Command::new(&command[0]);
    if let Some(user) = user {
        user.run_as(&mut process);
    }
    start(process, command)
}

/// Starts `command` with additional environment variables. The command gets SIGHUP when the
/// calling thread ends.
///
/// # Errors
/// Those of [`launch`].
pub fn launch_in_environment(
    command: &[OsString],
    environment: &[(&str, OsString)],
) -> Result<Child, LaunchError> {
    check(command)?;
    let mut process = Command::new(&command[0]);
    process.envs(environment.iter().map(|(name, value)| (name, value)));
    namespace::sighup_on_parent_exit(&mut process);
    start(process, command)
}

fn start(mut process: Command, command: &[OsString]) -> Result<Child, LaunchError> {
    let (program, arguments) = (&command[0], &command[1..]);
    let child = process
        .args(arguments)
        .spawn()
        .map_err(|cause| LaunchError::new(program, cause))?;
    COMMAND_PID.store(child.id(), Ordering::Relaxed);
    Ok(child)
}

/// Reaps the zombies of adopted descendants (this process is a subreaper), but not the command itself: its
/// exit status is read elsewhere.
pub fn reap_orphans() {
    let command = COMMAND_PID.load(Ordering::Relaxed);
    if command == 0 {
        return;
    }
    // If the list cannot be read now, the next call reads it.
    let all = children::read(Path::new("/"), std::process::id()).unwrap_or_default();
    let orphans = all.into_iter().filter(|&pid| pid != command);
    for pid in orphans.filter_map(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) {
        // The child runs, or was reaped already.
        let _ = waitpid(Some(pid), WaitOptions::NOHANG);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn missing_command_is_named_and_gives_127() {
        for name in ["no-such-command-here", "/no/such/path", ""] {
            let error = launch(&[name.into()], None).unwrap_err();
            assert_eq!(error.code(), 127);
            assert_eq!(error.to_string(), format!("command not found: {name}"));
        }
        assert_eq!(check(&[]).unwrap_err().code(), 127);
    }

    #[test]
    fn command_that_cannot_run_gives_126() {
        assert_eq!(launch(&["/".into()], None).unwrap_err().code(), 126);
    }

    #[test]
    fn command_is_found_in_path() {
        check(&["sh".into()]).unwrap();
    }
}
