//! The stand-in for perf: records the events of our engine as text, shows such records, and leaves everything else
//! to the real one, if there is one.
//!
//! A real perf would record the kernel's kdamonds, not ours. damo calls it as `perf record -a -o OUT -e damon:…` until
//! it interrupts it, and `perf script --force -i OUT`; nothing else is answered here.

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

use anyhow::Context as _;
use thermo_term::exit::Exit;
use thermo_term::interrupt;

/// How soon an interruption is noticed.
const POLL: Duration = Duration::from_millis(20);
/// What a record of the real perf begins with.
const REAL_RECORD: &[u8] = b"PERFILE";

/// Does what `perf ARGUMENTS` would.
pub fn run(socket: &Path, arguments: &[OsString]) -> anyhow::Result<Exit> {
    let verb = arguments
        .first()
        .and_then(|verb| verb.to_str())
        .unwrap_or_default();
    let ours = arguments
        .iter()
        .any(|argument| argument.as_encoded_bytes().starts_with(b"damon:"));
    match verb {
        "--version" | "version" => {
            println!("perf version 0 (thermo {})", env!("CARGO_PKG_VERSION"));
            Ok(Exit::Done)
        }
        "record" if ours => record(socket, &output(arguments)),
        "script" => match input(arguments).filter(|path| is_ours(path)) {
            Some(path) => show(&path),
            None => real(arguments),
        },
        "record" if next_perf().is_none() => record_nothing(&output(arguments)),
        _ => real(arguments),
    }
}

fn value_of(arguments: &[OsString], flag: &str) -> Option<PathBuf> {
    let at = arguments.iter().position(|argument| argument == flag)?;
    arguments.get(at + 1).map(PathBuf::from)
}

fn output(arguments: &[OsString]) -> PathBuf {
    value_of(arguments, "-o").unwrap_or_else(|| PathBuf::from("perf.data"))
}

fn input(arguments: &[OsString]) -> Option<PathBuf> {
    value_of(arguments, "-i")
}

fn create(path: &Path) -> anyhow::Result<File> {
    let mut options = File::options();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    options
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Writes events until interrupted.
fn record(socket: &Path, path: &Path) -> anyhow::Result<Exit> {
    interrupt::listen().context("cannot listen to Ctrl-C")?;
    let mut out = create(path)?;
    let mut stream =
        UnixStream::connect(socket).context("the control files are gone: is `thermo fs` still there?")?;
    stream.set_read_timeout(Some(POLL))?;
    let mut buffer = vec![0; 1 << 16];
    let mut begun = false;
    while !interrupt::asked() {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => {
                // The first line end says that recording has begun.
                let from = usize::from(!begun);
                begun = true;
                out.write_all(&buffer[from..length])?;
            }
            Err(error) if is_only_waiting(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Exit::Done)
}

fn is_only_waiting(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

/// A profile that nobody is there to take.
fn record_nothing(path: &Path) -> anyhow::Result<Exit> {
    interrupt::listen().context("cannot listen to Ctrl-C")?;
    create(path)?;
    while !interrupt::asked() {
        thread::sleep(POLL);
    }
    Ok(Exit::Done)
}

fn is_ours(path: &Path) -> bool {
    let mut begin = Vec::new();
    let read = File::open(path).and_then(|file| file.take(REAL_RECORD.len() as u64).read_to_end(&mut begin));
    read.is_ok() && begin != REAL_RECORD
}

fn show(path: &Path) -> anyhow::Result<Exit> {
    let mut file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    io::copy(&mut file, &mut io::stdout().lock())?;
    Ok(Exit::Done)
}

/// Becomes the real perf.
fn real(arguments: &[OsString]) -> anyhow::Result<Exit> {
    let perf = next_perf()
        .context("there is no perf here, and its stand-in records and shows damon: events only")?;
    Err(Command::new(perf).args(arguments).exec().into())
}

/// The perf that comes behind ours in PATH.
fn next_perf() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let ours = Path::new("/sys/kernel/mm/.thermo");
    let folders = env::split_paths(&path).filter(|folder| !folder.starts_with(ours));
    let mut found = folders.map(|folder| folder.join(OsStr::new("perf")));
    found.find(|perf| perf.is_file())
}
