//! Loading the program, and saying why when the kernel will not have it.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Mutex;

use libbpf_rs::{ErrorKind, MapCore, Object, ObjectBuilder, OpenProgramMut, PrintLevel};

use crate::error::BpfError;
use crate::shared::{Call, Head, MAX_PROBES, MAX_TABLES, Plain, ProbeSlot, RawTable, Shared};

/// The compiled program, aligned as ELF wants it.
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/pagetable.bpf.o")));

#[repr(align(8))]
struct Aligned<T: ?Sized>(T);

/// The two ways the same program can be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `BPF_PROG_TEST_RUN` of a syscall program that looks the task up by its number.
    Syscall,
    /// An iterator over the one task.
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

/// What is left once libbpf's own bookkeeping is freed.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub kind: Kind,
    pub program: OwnedFd,
    pub calls: Shared<Call>,
    pub probes: Shared<ProbeSlot>,
    pub heads: Shared<Head>,
    pub tables: Shared<RawTable>,
}

/// Loads the program in the first form the kernel accepts. The syscall form costs one system call a run, but
/// `bpf_task_from_pid()` is open to it only in newer kernels, and takes numbers of the first pid namespace; the
/// iterator form works since 6.1 and in any namespace.
pub(crate) fn load() -> Result<Loaded, BpfError> {
    preconditions()?;
    if !in_first_pid_namespace() {
        return load_as(Kind::Iterator);
    }
    load_as(Kind::Syscall).or_else(|refusal| match refusal {
        BpfError::NotPermitted => Err(refusal),
        before => load_as(Kind::Iterator).map_err(|refusal| with_what_came_before(refusal, before)),
    })
}

/// Both forms were refused, and the reason of either may be the one that helps.
fn with_what_came_before(refusal: BpfError, first: BpfError) -> BpfError {
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
    Ok(())
}

/// The first namespace has a number of its own (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
fn in_first_pid_namespace() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|name| name.as_os_str() == "pid:[4026531836]")
}

pub(crate) fn load_as(kind: Kind) -> Result<Loaded, BpfError> {
    let object = load_object(kind, |_| ())?;
    let program = object
        .progs()
        .find(|program| program.name() == OsStr::new(kind.program()))
        .map(|program| program.as_fd().try_clone_to_owned())
        .ok_or_else(|| failed("finding the BPF program", "it is not in the object"))?
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

/// Loads the one program, after `prepare` had it.
fn load_object(kind: Kind, prepare: impl Fn(&mut OpenProgramMut<'_>)) -> Result<Object, BpfError> {
    let (object, log) = listening(|| {
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
    object.map_err(|error| why_not(kind, &error, &log))
}

fn shared<T: Plain>(object: &Object, name: &str, len: usize) -> Result<Shared<T>, BpfError> {
    let map = object
        .maps()
        .find(|map| map.name() == OsStr::new(name))
        .ok_or_else(|| failed("finding a BPF map", name))?;
    // The one place where a change on one side alone would show.
    if map.value_size() as usize != size_of::<T>() || (map.max_entries() as usize) < len {
        return Err(failed(
            "sharing a BPF map",
            format_args!("{name} is laid out differently"),
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

fn why_not(kind: Kind, error: &libbpf_rs::Error, log: &str) -> BpfError {
    let log = last_lines(log, 12);
    match error.kind() {
        ErrorKind::PermissionDenied if !log.contains("processed") => BpfError::NotPermitted,
        _ if !log.is_empty() => BpfError::Refused {
            program: kind.program().to_owned(),
            log,
            before: None,
        },
        _ => failed("loading the BPF program", error),
    }
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

thread_local! {
    static HEARD: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs `load` and returns with its result what libbpf printed meanwhile, which else would land on stderr.
fn listening<T>(load: impl FnOnce() -> T) -> (T, String) {
    // libbpf has one listener for the whole process.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    fn hear(_: PrintLevel, text: String) {
        HEARD.with_borrow_mut(|heard| heard.push_str(&text));
    }
    let _turn = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    HEARD.take();
    let before = libbpf_rs::set_print(Some((PrintLevel::Warn, hear)));
    let result = load();
    libbpf_rs::set_print(before);
    (result, HEARD.take())
}

#[cfg(test)]
mod tests {
    use libbpf_rs::ProgramType;

    use super::*;

    #[test]
    fn the_end_of_a_log_is_kept() {
        assert_eq!(last_lines("a\n\nb\nc\n", 2), "b\nc");
        assert_eq!(last_lines("a\n", 2), "a");
    }

    /// As a program for sockets, which may do next to nothing.
    fn refusal(kind: Kind) -> BpfError {
        load_object(kind, |program| program.set_prog_type(ProgramType::SocketFilter))
            .expect_err("no socket has tasks")
    }

    #[test]
    fn what_the_verifier_refuses_is_told_with_its_last_words() {
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
        let told = with_what_came_before(second, first).to_string();
        assert!(
            told.contains("refused the BPF program by_iterator: use --tracker smaps"),
            "{told}"
        );
        assert!(
            told.contains("And before: ") && told.contains("by_syscall"),
            "{told}"
        );
        assert_eq!(
            told.matches("processed ").count(),
            2,
            "both logs end with the count of instructions: {told}"
        );
        assert!(told.lines().count() < 32, "no more than its end: {told}");
    }
}
