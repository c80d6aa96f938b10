//! Loads the program, and reports why the kernel refuses it.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Mutex;

use libbpf_rs::{ErrorKind, MapCore, Object, ObjectBuilder, OpenProgramMut, PrintLevel};

use crate::confidential;
use crate::error::BpfError;
use crate::shared::{Call, Head, MAX_PROBES, MAX_TABLES, Plain, ProbeSlot, RawTable, Shared};

/// The compiled program, aligned as ELF requires.
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/pagetable.bpf.o")));

#[repr(align(8))]
struct Aligned<T: ?Sized>(T);

/// The two ways to run the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `BPF_PROG_TEST_RUN` of a syscall program that looks up the task by its pid.
    Syscall,
    /// An iterator over one task.
    Iterator,
}

impl Kind {
    const fn program(self) -> &'static str {
        match self {
            Self::Syscall => "by_syscall",
            Self::Iterator => "by_iterator",
        }
    }
}

/// The loaded program and its maps. The bookkeeping of libbpf is freed after loading.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub kind: Kind,
    pub program: OwnedFd,
    pub calls: Shared<Call>,
    pub probes: Shared<ProbeSlot>,
    pub heads: Shared<Head>,
    pub tables: Shared<RawTable>,
}

/// Loads the program in the first form that the kernel accepts. The syscall form costs one system call a run,
/// but only newer kernels let it use `bpf_task_from_pid()`, which takes pids of the initial pid namespace.
/// The iterator form works since 6.1 and in any namespace.
pub(crate) fn load() -> Result<Loaded, BpfError> {
    preconditions()?;
    if !in_initial_pid_namespace() {
        return load_as(Kind::Iterator);
    }
    load_as(Kind::Syscall).or_else(|refusal| match refusal {
        BpfError::NotPermitted | BpfError::NoBpf => Err(refusal),
        before => load_as(Kind::Iterator).map_err(|refusal| with_earlier_refusal(refusal, before)),
    })
}

/// Adds the refusal of the first form: either reason may be the one that helps.
fn with_earlier_refusal(refusal: BpfError, first: BpfError) -> BpfError {
    match refusal {
        BpfError::Refused { program, log, .. } => BpfError::Refused {
            program,
            log,
            before: Some(Box::new(first)),
        },
        other => other,
    }
}

fn preconditions() -> Result<(), BpfError> {
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(BpfError::NoBtf);
    }
    let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    if lockdown.contains("[confidentiality]") {
        return Err(BpfError::Lockdown);
    }
    if let Some(reason) = confidential::reason(Path::new("/")) {
        return Err(BpfError::Confidential(reason));
    }
    Ok(())
}

/// The initial pid namespace has a fixed inode number (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
fn in_initial_pid_namespace() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|name| name.as_os_str() == "pid:[4026531836]")
}

pub(crate) fn load_as(kind: Kind) -> Result<Loaded, BpfError> {
    let object = load_object(kind, |_| ())?;
    let program = object
        .progs()
        .find(|program| program.name() == OsStr::new(kind.program()))
        .map(|program| program.as_fd().try_clone_to_owned())
        .ok_or_else(|| failed("finding the BPF program", "the object file does not contain it"))?
        .map_err(|error| failed("keeping the BPF program", error))?;
    Ok(Loaded {
        kind,
        program,
        calls: shared(&object, "calls", 1)?,
        probes: shared(&object, "probes", MAX_PROBES)?,
        heads: shared(&object, "heads", MAX_TABLES)?,
        tables: shared(&object, "tables", MAX_TABLES)?,
    })
}

/// Loads the program of this kind, after `prepare` changed it.
fn load_object(kind: Kind, prepare: impl Fn(&mut OpenProgramMut<'_>)) -> Result<Object, BpfError> {
    let (object, log) = with_libbpf_log(|| {
        let mut open = ObjectBuilder::default().open_memory(&OBJECT.0)?;
        for mut program in open.progs_mut() {
            let is_wanted = program.name() == OsStr::new(kind.program());
            program.set_autoload(is_wanted);
            if is_wanted {
                prepare(&mut program);
            }
        }
        open.load()
    });
    object.map_err(|error| load_error(kind, &error, &log))
}

fn shared<T: Plain>(object: &Object, name: &str, len: usize) -> Result<Shared<T>, BpfError> {
    let map = object
        .maps()
        .find(|map| map.name() == OsStr::new(name))
        .ok_or_else(|| failed("finding a BPF map", name))?;
    // The only check that notices a change of the layout on one side alone.
    if map.value_size() as usize != size_of::<T>() || (map.max_entries() as usize) < len {
        return Err(failed(
            "sharing a BPF map",
            format_args!("the program and this crate disagree about the layout of {name}"),
        ));
    }
    Shared::map(map.as_fd(), len).map_err(|error| failed("sharing a BPF map", error))
}

pub(crate) fn failed(what: &str, why: impl std::fmt::Display) -> BpfError {
    BpfError::Failed {
        what: what.to_owned(),
        why: why.to_string(),
    }
}

fn load_error(kind: Kind, error: &libbpf_rs::Error, log: &str) -> BpfError {
    let log = last_lines(log, 12);
    // The verifier ends its log with the number of instructions. Other lines are of libbpf.
    match error.kind() {
        _ if log.contains("processed ") => BpfError::Refused {
            program: kind.program().to_owned(),
            log,
            before: None,
        },
        ErrorKind::PermissionDenied => BpfError::NotPermitted,
        ErrorKind::Unsupported => BpfError::NoBpf,
        _ if log.is_empty() => failed("loading the BPF program", error),
        _ => failed(
            "loading the BPF program",
            format_args!("{error}. libbpf says:\n{log}"),
        ),
    }
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

thread_local! {
    static LIBBPF_LOG: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs `load` and returns its result, with the messages of libbpf that would otherwise go to stderr.
fn with_libbpf_log<T>(load: impl FnOnce() -> T) -> (T, String) {
    // libbpf has one print callback for the whole process.
    static CALLBACK_LOCK: Mutex<()> = Mutex::new(());
    fn capture(_: PrintLevel, text: String) {
        LIBBPF_LOG.with_borrow_mut(|log| log.push_str(&text));
    }
    let _lock = CALLBACK_LOCK
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    LIBBPF_LOG.take();
    let before = libbpf_rs::set_print(Some((PrintLevel::Warn, capture)));
    let result = load();
    libbpf_rs::set_print(before);
    (result, LIBBPF_LOG.take())
}

#[cfg(test)]
mod tests {
    use libbpf_rs::ProgramType;

    use super::*;

    #[test]
    fn last_lines_keeps_end_of_log() {
        assert_eq!(last_lines("a\n\nb\nc\n", 2), "b\nc");
        assert_eq!(last_lines("a\n", 2), "a");
    }

    /// Loads the program as a socket filter, which may not access tasks.
    fn refusal(kind: Kind) -> BpfError {
        load_object(kind, |program| program.set_prog_type(ProgramType::SocketFilter))
            .expect_err("socket filters may not access tasks")
    }

    #[test]
    fn verifier_refusal_reports_end_of_log() {
        if let Err(why) = preconditions() {
            eprintln!("SKIP: {why}");
            return;
        }
        let first = refusal(Kind::Syscall);
        let second = refusal(Kind::Iterator);
        if first == BpfError::NotPermitted {
            eprintln!("SKIP: {first}");
            return;
        }
        let message = with_earlier_refusal(second, first).to_string();
        assert!(
            message.contains("refused the BPF program by_iterator: use --tracker smaps"),
            "{message}"
        );
        assert!(
            message.contains("The form tried before: ") && message.contains("by_syscall"),
            "{message}"
        );
        assert_eq!(
            message.matches("processed ").count(),
            2,
            "both logs end with the count of instructions: {message}"
        );
        assert!(
            message.lines().count() < 32,
            "only the end of each log: {message}"
        );
    }
}
