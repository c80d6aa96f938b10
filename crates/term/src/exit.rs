//! Exit codes: 0 success, 1 a negative answer, 2 error or misuse, 130 interrupted; or the exit code of the
//! command that was started.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

use thermo_units::printable;

/// The exit code for an error or misuse.
pub const ERROR: u8 = 2;

/// How a command ended, if not by an error that is still to be printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Success.
    Done,
    /// A negative answer.
    Negative,
    /// Failure, already reported while running.
    Failed,
    /// Interrupted by Ctrl-C, after an orderly shutdown.
    Interrupted,
    /// The status of the command that was started.
    ChildStatus(ExitStatus),
}

impl Exit {
    fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Negative => 1,
            Self::Failed => ERROR,
            Self::Interrupted => 130,
            Self::ChildStatus(status) => {
                let code = status
                    .code()
                    .or_else(|| status.signal().map(|signal| 128 + signal));
                code.and_then(|code| u8::try_from(code).ok()).unwrap_or(ERROR)
            }
        }
    }
}

/// Prints the error of `program`, if any, in one sentence, and returns the exit code. `code_of_error` gives
/// the code for an error, usually [`ERROR`]. A reader of our output that closed the pipe (`| head`) is not an
/// error.
pub fn finish(
    program: &str,
    result: anyhow::Result<Exit>,
    code_of_error: impl Fn(&anyhow::Error) -> u8,
) -> ExitCode {
    match result {
        Ok(exit) => exit.code().into(),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            thermo_kernel::message!("{program}: {}", printable(&sentence(&error)));
            code_of_error(&error).into()
        }
    }
}

/// The error and its causes, each once: many errors already contain the text of their cause.
fn sentence(error: &anyhow::Error) -> String {
    error
        .chain()
        .fold(String::new(), |sentence, cause| match cause.to_string() {
            cause if sentence.contains(&cause) => sentence,
            cause if sentence.is_empty() => cause,
            cause => format!("{sentence}: {cause}"),
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
    fn error_prints_each_cause_once() {
        let repeated =
            anyhow::Error::new(io::Error::other("disk full")).context("cannot write x: disk full; make room");
        assert_eq!(sentence(&repeated), "cannot write x: disk full; make room");
        let distinct = anyhow::Error::new(io::Error::other("disk full")).context("cannot write x");
        assert_eq!(sentence(&distinct), "cannot write x: disk full");
    }

    #[test]
    fn killed_child_exits_with_128_plus_signal() {
        assert_eq!(Exit::ChildStatus(ExitStatus::from_raw(9)).code(), 137);
        assert_eq!(Exit::ChildStatus(ExitStatus::from_raw(7 << 8)).code(), 7);
        assert_eq!(Exit::Interrupted.code(), 130);
    }
}
