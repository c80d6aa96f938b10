//! Starting the command a user gave after `--`.

use std::ffi::OsString;
use std::io;
use std::process::{Child, Command};

/// Why a command could not be started.
#[derive(Debug)]
pub struct LaunchError {
    name: String,
    cause: io::Error,
}

impl LaunchError {
    /// The status shells give: 127 for a command that is not there, 126 for one that cannot be run.
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

/// Starts `command`, with our own standard streams.
///
/// # Errors
/// The command does not exist or cannot be run. `command` must not be empty.
pub fn launch(command: &[OsString]) -> Result<Child, LaunchError> {
    let (program, arguments) = command.split_first().ok_or_else(|| LaunchError {
        name: "an empty command".to_owned(),
        cause: io::ErrorKind::InvalidInput.into(),
    })?;
    Command::new(program)
        .args(arguments)
        .spawn()
        .map_err(|cause| LaunchError {
            name: program.to_string_lossy().into_owned(),
            cause,
        })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn a_missing_command_is_named_and_ends_with_127() {
        let error = launch(&["no-such-command-here".into()]).unwrap_err();
        assert_eq!(error.code(), 127);
        assert_eq!(error.to_string(), "command not found: no-such-command-here");
    }

    #[test]
    fn what_cannot_be_run_ends_with_126() {
        assert_eq!(launch(&["/".into()]).unwrap_err().code(), 126);
    }
}
