//! How the command ends: 0 done, 1 a negative answer, 2 error or misuse, 130 interrupted; or as the command it
//! started.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

/// The exit code of an error or a misuse.
pub const ERROR: u8 = 2;

/// An end that is not an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done as asked.
    Done,
    /// The answer is no.
    Negative,
    /// It went wrong in its course, which was said then.
    Failed,
    /// Ctrl-C, after what was begun was brought to an end.
    Interrupted,
    /// The command that was started ended like this, so this one does.
    As(ExitStatus),
}

impl Exit {
    fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Negative => 1,
            Self::Failed => ERROR,
            Self::Interrupted => 130,
            Self::As(status) => {
                let code = status
                    .code()
                    .or_else(|| status.signal().map(|signal| 128 + signal));
                code.and_then(|code| u8::try_from(code).ok()).unwrap_or(ERROR)
            }
        }
    }
}

/// The exit code of `program` for what its verb came to, after printing what went wrong in one sentence. `code_of_error`
/// says which code an error has, [`ERROR`] for most. A reader of our output that went away (`| head`) is no error.
pub fn code_of(
    program: &str,
    result: anyhow::Result<Exit>,
    code_of_error: impl Fn(&anyhow::Error) -> u8,
) -> ExitCode {
    match result {
        Ok(exit) => exit.code().into(),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {}", sentence(&error));
            code_of_error(&error).into()
        }
    }
}

/// The error and its causes, each once: many errors tell their cause in their own sentence already.
fn sentence(error: &anyhow::Error) -> String {
    error
        .chain()
        .fold(String::new(), |told, cause| match cause.to_string() {
            cause if told.contains(&cause) => told,
            cause if told.is_empty() => cause,
            cause => format!("{told}: {cause}"),
        })
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let told =
            anyhow::Error::new(io::Error::other("disk full")).context("cannot write x: disk full; make room");
        assert_eq!(sentence(&told), "cannot write x: disk full; make room");
        let untold = anyhow::Error::new(io::Error::other("disk full")).context("cannot write x");
        assert_eq!(sentence(&untold), "cannot write x: disk full");
    }

    #[test]
    fn a_killed_command_counts_as_128_and_its_signal() {
        assert_eq!(Exit::As(ExitStatus::from_raw(9)).code(), 137);
        assert_eq!(Exit::As(ExitStatus::from_raw(7 << 8)).code(), 7);
        assert_eq!(Exit::Interrupted.code(), 130);
    }
}
