//! Choosing a thread of a process and having it make a call.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use thermo_kernel::{maps, stat};

use crate::call::{Call, Injected};
use crate::error::InjectError;
use crate::gadget::Gadgets;
use crate::live_thread::live_thread;
use crate::sequence::{self, CallPlan, Failed, Request};
use crate::stacks::Stacks;
use crate::threads::{Candidate, candidates};

/// How long a fit thread is waited for.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long is waited before the threads are looked at again.
const PAUSE: Duration = Duration::from_millis(2);
/// Room below the stack pointer of a sleeping thread that makes it worth stopping; how much it takes is known then.
const ROOM: u64 = 4096;

/// Has processes make calls. Keeps what it knows of the code of the last one.
#[derive(Debug)]
pub struct Injector {
    root: PathBuf,
    gadgets: Option<(u32, Gadgets)>,
}

impl Injector {
    /// One for the machine at `root` (`/`).
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            gadgets: None,
        }
    }

    /// Has process `pid` make `call`. Only one of its threads stops, for some tens of microseconds.
    ///
    /// # Errors
    /// Why it was not made; after [`InjectError::Unfinished`] it still may be.
    pub fn madvise(&mut self, pid: u32, call: Call) -> Result<Injected, InjectError> {
        self.madvise_watched(pid, call, &mut |_| ())
    }

    /// The same, telling `watch` of every request that was made, right after it. For tests of what becomes of the
    /// target when we end there.
    ///
    /// # Errors
    /// Those of [`Injector::madvise`].
    pub fn madvise_watched(
        &mut self,
        pid: u32,
        call: Call,
        watch: &mut (dyn FnMut(Request) + Send),
    ) -> Result<Injected, InjectError> {
        let living = self.check(pid)?;
        let mappings = maps::read(&self.root, living).map_err(|_| InjectError::Gone { pid })?;
        let gadgets = self.gadgets_of(pid, living, &mappings)?;
        let stacks = Stacks::of(&mappings);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (candidates, all) = candidates(&self.root, pid);
            let mut why = format!("all of its {all} threads are in calls that cannot be made again");
            for Candidate {
                tid, stack_pointer, ..
            } in candidates
            {
                if stack_pointer.is_some_and(|at| !stacks.have_room(at, ROOM)) {
                    "its stacks have no room that is known to be theirs".clone_into(&mut why);
                    continue;
                }
                let plan = CallPlan {
                    root: &self.root,
                    pid,
                    tid,
                    call,
                    gadgets,
                    stacks: &stacks,
                };
                match on_a_thread(&plan, watch) {
                    Ok(injected) => return Ok(injected),
                    Err(Failed::NotNow(reason)) => why = reason,
                    Err(Failed::Refused(why)) => return Err(InjectError::Refused { pid, why }),
                    Err(Failed::Unfinished) => return Err(InjectError::Unfinished { pid }),
                    // One of its threads may end at any time.
                    Err(Failed::Kernel(error)) if self.is_over(tid, &error) && self.lives(pid) => {
                        "the thread ended".clone_into(&mut why);
                    }
                    Err(Failed::Kernel(error)) => return Err(InjectError::of(pid, error)),
                }
                // One that does not stop may have taken longer than there is.
                if Instant::now() >= deadline {
                    break;
                }
            }
            if !self.lives(pid) {
                return Err(InjectError::Gone { pid });
            }
            if Instant::now() >= deadline {
                return Err(InjectError::NoFitThread { pid, why });
            }
            thread::sleep(PAUSE);
        }
    }

    /// What is used of the code of `pid`; what is known of it is kept, and looked at again.
    fn gadgets_of(
        &mut self,
        pid: u32,
        living: u32,
        mappings: &[maps::Mapping],
    ) -> Result<Gadgets, InjectError> {
        let known = self
            .gadgets
            .filter(|(of, gadgets)| *of == pid && gadgets.hold(living));
        let gadgets = match known {
            Some((_, gadgets)) => gadgets,
            None => Gadgets::find(living, mappings).ok_or_else(|| {
                let why = "its code has no place to return from a signal by, as a C library has one";
                InjectError::refused(pid, why)
            })?,
        };
        self.gadgets = Some((pid, gadgets));
        Ok(gadgets)
    }

    /// Whether `error` of a request on thread `tid` is that it ended. The first thread of a process stays, as one that
    /// may not be traced, until the others have ended.
    fn is_over(&self, tid: u32, error: &io::Error) -> bool {
        let has_ended = || stat::read(&self.root, tid).map_or(true, |stat| stat.has_ended());
        match error.raw_os_error() {
            Some(libc::ESRCH) => true,
            Some(libc::EPERM) => has_ended(),
            _ => false,
        }
    }

    /// Whether there is such a process, and it can be read.
    fn lives(&self, pid: u32) -> bool {
        stat::read(&self.root, pid).is_ok_and(|stat| stat.process_lives())
    }

    /// What can be told without touching it. Returns a thread to look at its memory by.
    fn check(&self, pid: u32) -> Result<u32, InjectError> {
        // It ended, or has no memory.
        let living = live_thread(&self.root, pid).ok_or(InjectError::Gone { pid })?;
        let text = std::fs::read_to_string(self.root.join(format!("proc/{living}/status")))
            .map_err(|_| InjectError::Gone { pid })?;
        match refusal(&text).or_else(|| self.of_other_machine(living)) {
            Some(why) => Err(InjectError::Refused { pid, why }),
            None => Ok(living),
        }
    }

    /// Why a program made for another machine, or for 32 bits of this one, is refused.
    fn of_other_machine(&self, tid: u32) -> Option<String> {
        let mut head = [0; 20];
        let mut file = File::open(self.root.join(format!("proc/{tid}/exe"))).ok()?;
        file.read_exact(&mut head).ok()?;
        (!is_x86_64(&head)).then(|| "its program is not made for 64-bit x86".to_owned())
    }
}

/// Whether an ELF file with this head is for x86-64 with 64-bit addresses.
fn is_x86_64(head: &[u8; 20]) -> bool {
    const CLASS_64: u8 = 2;
    const MACHINE_X86_64: [u8; 2] = [62, 0];
    head.starts_with(b"\x7fELF") && head[4] == CLASS_64 && head[18..] == MACHINE_X86_64
}

/// Why a process with this `status` is refused.
fn refusal(status: &str) -> Option<String> {
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .map(str::trim)
    };
    let tracer = field("TracerPid:").filter(|tracer| *tracer != "0");
    if let Some(tracer) = tracer {
        return Some(format!(
            "process {tracer} traces it already (a debugger or strace); end that first"
        ));
    }
    let features = field("x86_Thread_features:").unwrap_or_default();
    features
        .split_ascii_whitespace()
        .any(|feature| feature == "shstk")
        .then(|| "it has a shadow stack, which lets it return only where it came from".to_owned())
}

/// Has a thread of our own do it, and end: the kernel then lets go of whatever is still held.
fn on_a_thread(plan: &CallPlan<'_>, watch: &mut (dyn FnMut(Request) + Send)) -> Result<Injected, Failed> {
    thread::scope(|scope| {
        let builder = thread::Builder::new().name("thermo-inject".into());
        let tracer = builder.spawn_scoped(scope, || sequence::run(plan, watch))?;
        let ended = tracer.join();
        ended.unwrap_or_else(|_| Err(Failed::Kernel(io::ErrorKind::Other.into())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_other_machines_are_told_by_their_files() {
        let head = |class: u8, machine: u8| {
            let mut head = [0; 20];
            head[..4].copy_from_slice(b"\x7fELF");
            (head[4], head[18]) = (class, machine);
            head
        };
        assert!(is_x86_64(&head(2, 62)));
        // x32, i386, arm64, no program at all.
        assert!(!is_x86_64(&head(1, 62)) && !is_x86_64(&head(1, 3)) && !is_x86_64(&head(2, 183)));
        assert!(!is_x86_64(&[0; 20]));
    }

    #[test]
    fn tracers_and_shadow_stacks_are_named() {
        assert_eq!(refusal("TracerPid:\t0\nx86_Thread_features:\t\n"), None);
        assert!(refusal("TracerPid:\t77\n").is_some_and(|why| why.contains("77")));
        assert!(refusal("TracerPid:\t0\nx86_Thread_features:\tshstk wrss\n").is_some());
    }
}
