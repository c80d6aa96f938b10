//! The replacement of perf: records the events of our engine as text, and prints such records. Everything
//! else goes to the real perf, if there is one.
//!
//! The real perf would record the kernel's kdamonds, not ours, and print nothing. So other uses of `damon:`
//! events are refused. damo runs `perf record -a -o OUT -e damon:...` until it interrupts it, and then
//! `perf script --force -i OUT`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, thread};

use anyhow::{Context as _, bail};
use thermo_damonfs::TRACED_EVENTS;
use thermo_term::exit::Exit;
use thermo_term::interrupt;

use super::perf_args::PerfArgs;
use crate::{launch, session};

/// How often an interruption is checked.
const POLL: Duration = Duration::from_millis(20);
/// File of `perf record` without `-o`, and of `perf script` without `-i`.
const DEFAULT_FILE: &str = "perf.data";
/// First bytes of a file of the real perf.
const REAL_PERF_MAGIC: &[u8] = b"PERFILE";

/// Runs as `perf ARGUMENTS`.
pub fn run(socket: &Path, arguments: &[OsString]) -> anyhow::Result<Exit> {
    let (verb, rest) = arguments.split_first().unzip();
    let verb = verb.and_then(|verb| verb.to_str()).unwrap_or_default();
    let parsed = PerfArgs::parse(verb, rest.unwrap_or_default());
    let has_damon_event = parsed.events.iter().any(|event| event.starts_with("damon:"));
    match verb {
        "--version" | "version" => {
            // `println!` would panic where standard output is closed.
            thermo_term::output::text(concat!("perf version 0 (thermo ", env!("CARGO_PKG_VERSION"), ")"))?;
            Ok(Exit::Done)
        }
        "record" if has_damon_event => {
            check_events(&parsed.events)?;
            record(&mut Source::connect(socket)?, &parsed)
        }
        "script" => match Some(input(&parsed)).filter(|path| is_our_record(path)) {
            Some(path) => print_record(&path),
            None => exec_real_perf(arguments),
        },
        _ if arguments
            .iter()
            .any(|argument| argument.to_string_lossy().contains("damon:")) =>
        {
            bail!(
                "`perf {verb}` cannot show thermo's damon: events: record them with `perf record -e {} -- CMD`, and \
             print them with `perf script`",
                TRACED_EVENTS[0]
            )
        }
        "record" if real_perf().is_none() => record(&mut Source::Nothing, &parsed),
        _ => exec_real_perf(arguments),
    }
}

/// Refuses events that would silently be missing from the record.
fn check_events(events: &[String]) -> anyhow::Result<()> {
    let is_ours = |event: &str| event == "damon:*" || TRACED_EVENTS.contains(&event);
    match events.iter().find(|event| !is_ours(event)) {
        None => Ok(()),
        Some(event) => bail!(
            "cannot record {event} with thermo's events: `perf record -e` takes {} here; record others in a \
             `perf record` of their own",
            TRACED_EVENTS.join(" and ")
        ),
    }
}

fn output(parsed: &PerfArgs) -> PathBuf {
    parsed
        .output
        .clone()
        .unwrap_or_else(|| PathBuf::from(DEFAULT_FILE))
}

fn input(parsed: &PerfArgs) -> PathBuf {
    parsed
        .input
        .clone()
        .unwrap_or_else(|| PathBuf::from(DEFAULT_FILE))
}

/// Opens the output, which may be a pipe. A symbolic link is not followed: in a folder that others can write
/// to, it may lead to any file of ours.
fn create(path: &Path) -> anyhow::Result<File> {
    let mut options = File::options();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    options
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))
}

/// What is recorded.
enum Source {
    /// The events of our engine.
    Events(UnixStream),
    /// Without a real perf, a profile of other events is an empty file.
    Nothing,
}

impl Source {
    /// Connects to the server of events. From then on, no event is lost.
    fn connect(socket: &Path) -> anyhow::Result<Self> {
        let gone = "the control files are gone: does `thermo fs` still run?";
        let mut stream = UnixStream::connect(socket).context(gone)?;
        // The server first sends a line end.
        stream.read_exact(&mut [0]).context(gone)?;
        stream.set_read_timeout(Some(POLL))?;
        Ok(Self::Events(stream))
    }

    /// Appends the events of at most [`POLL`] to `out`. Returns false when the server has ended.
    fn copy(&mut self, out: &mut File, buffer: &mut [u8]) -> anyhow::Result<bool> {
        let Self::Events(stream) = self else {
            thread::sleep(POLL);
            return Ok(true);
        };
        match stream.read(buffer) {
            Ok(0) => return Ok(false),
            Ok(length) => out.write_all(&buffer[..length])?,
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    /// Appends the events that have arrived.
    fn drain(&mut self, out: &mut File, buffer: &mut [u8]) -> anyhow::Result<()> {
        if let Self::Events(stream) = self {
            stream.set_nonblocking(true)?;
            while let Ok(length @ 1..) = stream.read(buffer) {
                out.write_all(&buffer[..length])?;
            }
        }
        Ok(())
    }
}

/// Records `source` until interrupted, or until the command, if there is one, has ended.
fn record(source: &mut Source, parsed: &PerfArgs) -> anyhow::Result<Exit> {
    interrupt::listen().context("cannot handle Ctrl-C")?;
    let mut out = create(&output(parsed))?;
    let mut command = match parsed.command.as_slice() {
        [] => None,
        command => Some(launch::launch(command, None)?),
    };
    let mut buffer = vec![0; 1 << 16];
    while !interrupt::requested() {
        let has_ended = match &mut command {
            Some(child) => child.try_wait().context("cannot wait for the command")?.is_some(),
            None => false,
        };
        if has_ended || !source.copy(&mut out, &mut buffer)? {
            break;
        }
    }
    source.drain(&mut out, &mut buffer)?;
    command.map_or(Ok(Exit::Done), |child| {
        session::wait_for(child).map(Exit::ChildStatus)
    })
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

fn is_our_record(path: &Path) -> bool {
    let mut begin = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(REAL_PERF_MAGIC.len() as u64).read_to_end(&mut begin));
    read.is_ok() && begin != REAL_PERF_MAGIC
}

fn print_record(path: &Path) -> anyhow::Result<Exit> {
    let mut file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    io::copy(&mut file, &mut io::stdout().lock())?;
    Ok(Exit::Done)
}

/// Replaces this process by the real perf.
fn exec_real_perf(arguments: &[OsString]) -> anyhow::Result<Exit> {
    let perf = real_perf().context(
        "perf is not installed, and thermo's replacement records and prints damon: events only: install perf",
    )?;
    Err(Command::new(perf).args(arguments).exec().into())
}

/// The next perf in PATH after ours.
fn real_perf() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let private_dir = Path::new("/sys/kernel/mm/.thermo");
    let dirs = env::split_paths(&path).filter(|dir| !dir.starts_with(private_dir));
    let mut found = dirs.map(|dir| dir.join(OsStr::new("perf")));
    found.find(|perf| perf.is_file())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn output_never_follows_a_symbolic_link() {
        let folder = tempfile::tempdir().unwrap();
        let (link, file) = (folder.path().join("perf.data"), folder.path().join("file"));
        fs::write(&file, "precious").unwrap();
        symlink(&file, &link).unwrap();
        assert!(create(&link).is_err());
        assert_eq!(fs::read(&file).unwrap(), b"precious");
        create(&file).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"");
    }
}
