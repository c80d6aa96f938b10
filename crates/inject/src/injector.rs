//! Chooses a thread of a process and makes it call madvise.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use thermo_kernel::pidfd::PidFd;
use thermo_kernel::{maps, stat};

use crate::call::{Call, Injected};
use crate::error::InjectError;
use crate::gadget::Gadgets;
use crate::live_thread::live_thread;
use crate::sequence::{self, AttemptError, CallPlan, Request};
use crate::stacks::Stacks;
use crate::threads::{Candidate, candidates};

/// Maximum wait for a suitable thread.
const MAX_WAIT: Duration = Duration::from_millis(200);
/// Pause before the threads are checked again.
const PAUSE: Duration = Duration::from_millis(2);
/// Free stack below a sleeping thread's stack pointer that makes an attempt worthwhile. The exact need is
/// known after the stop.
const MIN_STACK_ROOM: u64 = 4096;

/// Injects calls into processes. Caches the code addresses of the last process.
#[derive(Debug)]
pub struct Injector {
    root: PathBuf,
    gadgets: Option<(u32, Gadgets)>,
}

impl Injector {
    /// An injector for the machine at `root` (`/`).
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            gadgets: None,
        }
    }

    /// Makes process `pid`, which `pidfd` holds, execute `call`. Only one of its threads stops, for some tens
    /// of microseconds.
    ///
    /// # Errors
    /// The reason why the call was not made; after [`InjectError::Unfinished`] the target may still make it.
    pub fn madvise(&mut self, pidfd: &PidFd, pid: u32, call: Call) -> Result<Injected, InjectError> {
        self.madvise_with_hook(pidfd, pid, call, &mut |_| ())
    }

    /// As [`Injector::madvise`], and calls `hook` after every ptrace request. For tests of what happens to
    /// the target if the tracer dies there.
    ///
    /// # Errors
    /// As [`Injector::madvise`].
    pub fn madvise_with_hook(
        &mut self,
        pidfd: &PidFd,
        pid: u32,
        call: Call,
        hook: &mut (dyn FnMut(Request) + Send),
    ) -> Result<Injected, InjectError> {
        let live_tid = self.check(pid)?;
        let mappings = maps::read(&self.root, live_tid).map_err(|_| InjectError::Gone { pid })?;
        let gadgets = self.gadgets_of(pid, live_tid, &mappings)?;
        let stacks = Stacks::find(&mappings);
        let deadline = Instant::now() + MAX_WAIT;
        loop {
            let (candidates, all) = candidates(&self.root, pid);
            let mut why = format!("all of its {all} threads are in system calls that cannot be restarted");
            for Candidate {
                tid, stack_pointer, ..
            } in candidates
            {
                if stack_pointer.is_some_and(|sp| !stacks.have_room(sp, MIN_STACK_ROOM)) {
                    "none of its threads has enough stack that is known to be free".clone_into(&mut why);
                    continue;
                }
                let plan = CallPlan {
                    root: &self.root,
                    pidfd,
                    pid,
                    tid,
                    call,
                    gadgets,
                    stacks: &stacks,
                };
                match run_on_thread(&plan, hook) {
                    Ok(injected) => return Ok(injected),
                    Err(AttemptError::NotNow(reason)) => why = reason,
                    Err(AttemptError::Refused(why)) => return Err(InjectError::Refused { pid, why }),
                    Err(AttemptError::Unfinished) => return Err(InjectError::Unfinished { pid }),
                    // A single thread may end at any time.
                    Err(AttemptError::Kernel(error)) if self.means_ended(tid, &error) && pidfd.is_alive() => {
                        "the thread ended".clone_into(&mut why);
                    }
                    Err(AttemptError::Kernel(error)) => return Err(InjectError::from_request(pid, error)),
                }
                // Waiting for a thread that does not stop may have used up the time.
                if Instant::now() >= deadline {
                    break;
                }
            }
            if !pidfd.is_alive() {
                return Err(InjectError::Gone { pid });
            }
            if Instant::now() >= deadline {
                return Err(InjectError::NoSuitableThread { pid, why });
            }
            thread::sleep(PAUSE);
        }
    }

    /// The code addresses of `pid`: the cached ones, if they are still valid.
    fn gadgets_of(
        &mut self,
        pid: u32,
        live_tid: u32,
        mappings: &[maps::Mapping],
    ) -> Result<Gadgets, InjectError> {
        let cached = self
            .gadgets
            .filter(|(cached_pid, gadgets)| *cached_pid == pid && gadgets.are_valid(live_tid));
        let gadgets = match cached {
            Some((_, gadgets)) => gadgets,
            None => Gadgets::find(live_tid, mappings).ok_or_else(|| {
                let why = "its code contains no signal restorer, as every C library does";
                InjectError::refused(pid, why)
            })?,
        };
        self.gadgets = Some((pid, gadgets));
        Ok(gadgets)
    }

    /// Whether `error`, of a request on thread `tid`, means that the thread has ended. A main thread that
    /// ended stays as an untraceable zombie until the other threads have ended.
    fn means_ended(&self, tid: u32, error: &io::Error) -> bool {
        let has_ended = || stat::read(&self.root, tid).map_or(true, |stat| stat.has_ended());
        match error.raw_os_error() {
            Some(libc::ESRCH) => true,
            Some(libc::EPERM) => has_ended(),
            _ => false,
        }
    }

    /// The checks that need no ptrace. Returns a live thread.
    fn check(&self, pid: u32) -> Result<u32, InjectError> {
        // It has ended, or has no address space.
        let live_tid = live_thread(&self.root, pid).ok_or(InjectError::Gone { pid })?;
        let text =
            std::fs::read_to_string(self.root.join(format!("proc/{live_tid}/status"))).map_err(|error| {
                match error.kind() {
                    io::ErrorKind::NotFound => InjectError::Gone { pid },
                    _ => InjectError::refused(pid, format!("its status cannot be read: {error}")),
                }
            })?;
        match refusal(&text).or_else(|| self.wrong_architecture(live_tid)) {
            Some(why) => Err(InjectError::Refused { pid, why }),
            None => Ok(live_tid),
        }
    }

    /// The reason for refusing a program of another architecture, or a 32-bit program.
    fn wrong_architecture(&self, tid: u32) -> Option<String> {
        let mut head = [0; 20];
        let mut file = File::open(self.root.join(format!("proc/{tid}/exe"))).ok()?;
        file.read_exact(&mut head).ok()?;
        (!is_x86_64(&head)).then(|| "its program is not for 64-bit x86".to_owned())
    }
}

/// Whether an ELF file with this header is for x86-64 with 64-bit addresses.
fn is_x86_64(head: &[u8; 20]) -> bool {
    const CLASS_64: u8 = 2;
    const MACHINE_X86_64: [u8; 2] = [62, 0];
    head.starts_with(b"\x7fELF") && head[4] == CLASS_64 && head.ends_with(&MACHINE_X86_64)
}

/// The reason for refusing a process with this `status`.
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
            "process {tracer} already traces it (a debugger or strace); end that process first"
        ));
    }
    let features = field("x86_Thread_features:").unwrap_or_default();
    features
        .split_ascii_whitespace()
        .any(|feature| feature == "shstk")
        .then(|| "it uses a shadow stack, which allows it to return only to its caller".to_owned())
}

/// Runs the sequence on a thread of its own. When that thread ends, the kernel detaches whatever is still
/// traced.
fn run_on_thread(
    plan: &CallPlan<'_>,
    hook: &mut (dyn FnMut(Request) + Send),
) -> Result<Injected, AttemptError> {
    thread::scope(|scope| {
        let builder = thread::Builder::new().name("thermo-inject".into());
        let tracer = builder.spawn_scoped(scope, || sequence::run(plan, hook))?;
        let ended = tracer.join();
        ended.unwrap_or_else(|_| Err(AttemptError::Kernel(io::ErrorKind::Other.into())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elf_header_shows_architecture() {
        let head = |class: u8, machine: u8| {
            let mut head = [0; 20];
            head[..4].copy_from_slice(b"\x7fELF");
            (head[4], head[18]) = (class, machine);
            head
        };
        assert!(is_x86_64(&head(2, 62)));
        // x32, i386, arm64, not an ELF file.
        assert!(!is_x86_64(&head(1, 62)) && !is_x86_64(&head(1, 3)) && !is_x86_64(&head(2, 183)));
        assert!(!is_x86_64(&[0; 20]));
    }

    #[test]
    fn refusal_names_tracer_and_shadow_stack() {
        assert_eq!(refusal("TracerPid:\t0\nx86_Thread_features:\t\n"), None);
        assert!(refusal("TracerPid:\t77\n").is_some_and(|why| why.contains("77")));
        assert!(refusal("TracerPid:\t0\nx86_Thread_features:\tshstk wrss\n").is_some());
    }
}
