//! The ptrace requests of one injected call, in order, on one thread.
//!
//! | after | if the tracer dies, the thread |
//! | --- | --- |
//! | seize, interrupt, reading its state | continues; the kernel restarts the interrupted call |
//! | writing the frame | the same: memory below the red zone is unused |
//! | setting the registers of the call | makes the call, and returns through the frame |
//! | the stops at entry and exit of the call | the same |
//! | stopping it again, setting its own registers | continues, as after the interrupt |

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use thermo_kernel::pidfd::PidFd;
use thermo_kernel::process_vm;
use thermo_kernel::ptrace::{Memory, Registers, Stop, Tracee};
use thermo_units::Nanos;

use crate::call::{Call, Injected};
use crate::call_state::{CallState, RESTART_SYSCALL};
use crate::frame::{self, Saved};
use crate::gadget::Gadgets;
use crate::seccomp::{self, Mode, NR_MADVISE};
use crate::stacks::Stacks;

/// Maximum time for a thread to stop. It is long because the thread first needs a processor, and the call of
/// a thread that is detached before it stopped could still fail.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum time for the call. It takes microseconds once the thread runs.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// A completed step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the table of the module explains them")]
pub enum Request {
    Seize,
    Interrupt,
    Stopped,
    GetRegisters,
    GetRseq,
    GetFilters,
    GetXstate,
    GetSigmask,
    WriteFrame,
    SetCall,
    ToEntry,
    ToExit,
    GetResult,
    InterruptAgain,
    Cont,
    Restore,
    Detach,
}

/// The inputs of one attempt.
pub(super) struct CallPlan<'a> {
    pub root: &'a Path,
    /// Holds process `pid`.
    pub pidfd: &'a PidFd,
    pub pid: u32,
    pub tid: u32,
    pub call: Call,
    pub gadgets: Gadgets,
    pub stacks: &'a Stacks,
}

/// Why an attempt on a thread ended without the call.
#[derive(Debug)]
pub(super) enum AttemptError {
    /// Not now: try another thread, or later.
    NotNow(String),
    /// Never possible with this target.
    Refused(String),
    /// The call started but did not end.
    Unfinished,
    Kernel(io::Error),
}

impl From<io::Error> for AttemptError {
    fn from(error: io::Error) -> Self {
        Self::Kernel(error)
    }
}

/// An attempt in progress.
struct Sequence<'a> {
    plan: &'a CallPlan<'a>,
    tracee: Tracee,
    hook: &'a mut dyn FnMut(Request),
}

/// Makes the thread execute the call. Must run on a thread of its own that ends when this returns: the kernel
/// then detaches what could not be detached here.
pub(super) fn run(plan: &CallPlan<'_>, hook: &mut dyn FnMut(Request)) -> Result<Injected, AttemptError> {
    let tracee = Tracee::seize(plan.tid)?;
    hook(Request::Seize);
    let mut sequence = Sequence { plan, tracee, hook };
    sequence.check_identity()?;
    sequence.tracee.interrupt()?;
    (sequence.hook)(Request::Interrupt);
    match sequence.stopped(STOP_TIMEOUT)? {
        Some(Stop::Interrupt) => sequence.at_stop(),
        Some(Stop::Group) => {
            Err(sequence.not_now("it is stopped by a signal; `kill -CONT` resumes it".into()))
        }
        // Detaching delivers the signal.
        Some(Stop::Signal(signal)) => Err(sequence.not_now(format!("it is receiving signal {signal}"))),
        Some(Stop::Syscall) => Err(AttemptError::NotNow("it is in a system call".into())),
        None => Err(AttemptError::NotNow(format!(
            "thread {} did not stop within {STOP_TIMEOUT:?}",
            plan.tid
        ))),
    }
}

impl Sequence<'_> {
    /// Checks that the seized thread belongs to the process that was meant: both numbers may have passed to
    /// others before. They cannot any more, because the kernel keeps the number of a traced thread, and that
    /// of its process.
    fn check_identity(&self) -> Result<(), AttemptError> {
        let CallPlan { root, pid, tid, .. } = *self.plan;
        let is_thread = root.join(format!("proc/{pid}/task/{tid}")).exists();
        if is_thread && self.plan.pidfd.is_alive() {
            Ok(())
        } else {
            Err(AttemptError::Kernel(io::Error::from_raw_os_error(libc::ESRCH)))
        }
    }

    fn stopped(&mut self, within: Duration) -> io::Result<Option<Stop>> {
        let stop = self.tracee.wait(Instant::now() + within)?;
        (self.hook)(Request::Stopped);
        Ok(stop)
    }

    /// Detaches from a thread that a signal stopped. A traced thread that ignores the signal would still have
    /// its call interrupted, so it resumes as from our own stop, and the kernel decides by the disposition of
    /// the signal.
    fn not_now(self, why: String) -> AttemptError {
        let registers = self.tracee.registers().map_err(AttemptError::from);
        (self.hook)(Request::GetRegisters);
        let detached =
            registers.and_then(|registers| self.leave(&registers, CallState::from_registers(&registers)));
        detached.err().unwrap_or(AttemptError::NotNow(why))
    }

    /// The thread has stopped on its way to user space.
    fn at_stop(mut self) -> Result<Injected, AttemptError> {
        let since = Instant::now();
        let registers = self.tracee.registers()?;
        (self.hook)(Request::GetRegisters);
        let state = CallState::from_registers(&registers);
        let prepared = self.prepare(&registers, state);
        if let Err(error) = prepared {
            return self.leave(&registers, state).and(Err(error));
        }
        self.call(&registers, state, since)
    }

    /// Checks that the thread is suitable, and prepares the call and the way back.
    fn prepare(&mut self, registers: &Registers, state: CallState) -> Result<(), AttemptError> {
        if !registers.is_64_bit() {
            return Err(AttemptError::Refused("it runs 32-bit code".into()));
        }
        if let Some(why) = state.refusal_reason(registers) {
            return Err(AttemptError::NotNow(why.into()));
        }
        if !self.can_be_delayed(registers, state) {
            return Err(AttemptError::NotNow(
                "it is about to continue an interrupted call".into(),
            ));
        }
        if self.tracee.dispatches_syscalls()? == Some(true) {
            return Err(AttemptError::Refused(
                "it handles its system calls itself (syscall user dispatch)".into(),
            ));
        }
        if self.in_rseq(registers)? {
            return Err(AttemptError::NotNow(
                "it is, or may be, in a restartable sequence".into(),
            ));
        }
        self.check_filters()?;
        self.write_frame(registers, state)
    }

    /// Whether the next action of the thread can be delayed until after the injected call.
    ///
    /// A stop may come right after an earlier one, when the kernel has already set the registers to continue
    /// a call from the restart block. Returning from a signal frame discards that block. And a call through
    /// the 32-bit interface is not restarted like 64-bit calls.
    fn can_be_delayed(&self, registers: &Registers, state: CallState) -> bool {
        const SYSCALL: [u8; 2] = [0x0f, 0x05];
        const INT_0X80: [u8; 2] = [0xcd, 0x80];
        let code = |at: u64| {
            let mut bytes = [0; 2];
            let read = process_vm::read(self.plan.tid, thermo_units::Addr(at), &mut bytes);
            read.is_ok_and(|read| read == bytes.len()).then_some(bytes)
        };
        match state {
            CallState::UserMode if registers.rax == RESTART_SYSCALL => {
                code(registers.rip).is_some_and(|code| code != SYSCALL && code != INT_0X80)
            }
            CallState::UserMode => code(registers.rip) != Some(INT_0X80),
            _ => code(registers.rip.wrapping_sub(2)) == Some(SYSCALL),
        }
    }

    /// Checks that the filters allow both calls. Done while the thread is stopped, so that it cannot add a
    /// filter in between.
    fn check_filters(&mut self) -> Result<(), AttemptError> {
        let CallPlan { root, pid, tid, .. } = *self.plan;
        match seccomp::mode(root, pid, tid) {
            Some(Mode::Off) => Ok(()),
            Some(Mode::Strict) => Err(AttemptError::Refused(
                "it may only call read, write and exit (seccomp strict mode)".into(),
            )),
            Some(Mode::Filtered) => {
                let reason = seccomp::refusal_reason(&self.tracee, self.plan.call, &self.plan.gadgets)?;
                (self.hook)(Request::GetFilters);
                reason.map_or(Ok(()), |why| Err(AttemptError::Refused(why)))
            }
            None => Err(AttemptError::NotNow(
                "its seccomp mode cannot be read from its status".into(),
            )),
        }
    }

    /// Whether the thread is in a restartable sequence, or runs in user space and might be in one. A stop
    /// there must restart the sequence, which only the kernel could do.
    fn in_rseq(&mut self, registers: &Registers) -> io::Result<bool> {
        let area = self.tracee.rseq();
        (self.hook)(Request::GetRseq);
        // A restartable sequence contains no system calls.
        let is_possible = registers.syscall_nr().is_none();
        let area = match area {
            Ok(Some(area)) => area,
            Ok(None) => return Ok(false),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Err(error),
            Err(_) => return Ok(is_possible),
        };
        let word = |addr| {
            let mut bytes = [0; 8];
            let is_complete =
                process_vm::read(self.plan.tid, addr, &mut bytes).is_ok_and(|read| read == bytes.len());
            is_complete.then_some(u64::from_le_bytes(bytes))
        };
        let sequence = match word(area.rseq_cs()) {
            Some(0) => return Ok(false),
            Some(sequence) => sequence,
            None => return Ok(is_possible),
        };
        // `struct rseq_cs`: version and flags, start, length.
        let field = |offset| word(thermo_units::Addr(sequence + offset));
        let (Some(start), Some(length)) = (field(8), field(16)) else {
            return Ok(true);
        };
        Ok(registers.rip.wrapping_sub(start) < length)
    }

    fn write_frame(&mut self, registers: &Registers, state: CallState) -> Result<(), AttemptError> {
        let CallPlan { root, pid, tid, .. } = *self.plan;
        // Another thread may call exec at any time, which ends this thread and gives its number to the new
        // program, perhaps one of more rights. The requests that follow fail then, so after them the memory
        // is known to be that of the stopped thread.
        let memory = Memory::open(root, pid, tid)?;
        let xstate = self.tracee.xstate()?;
        (self.hook)(Request::GetXstate);
        let sigmask = self.tracee.sigmask()?;
        (self.hook)(Request::GetSigmask);
        if !self
            .plan
            .stacks
            .have_room(registers.rsp, frame::max_extent(xstate.len()))
        {
            return Err(AttemptError::NotNow(
                "it has not enough stack that is known to be free".into(),
            ));
        }
        let saved = Saved {
            registers: &state.sigreturn_registers(registers),
            sigmask,
            xstate: &xstate,
        };
        let frame = frame::build(&saved, self.plan.gadgets.restorer)
            .ok_or_else(|| AttemptError::Refused("the layout of its vector registers is unknown".into()))?;
        self.check_unchanged()?;
        memory.write(frame.addr, &frame.bytes)?;
        (self.hook)(Request::WriteFrame);
        let Call { range, flag } = self.plan.call;
        let call = Registers {
            rax: NR_MADVISE,
            rdi: range.start.0,
            rsi: range.len().0,
            rdx: flag.advice().unsigned_abs().into(),
            orig_rax: u64::MAX,
            rip: self.plan.gadgets.call.0,
            rsp: frame.addr.0,
            ..*registers
        };
        self.tracee.set_registers(&call)?;
        (self.hook)(Request::SetCall);
        Ok(())
    }

    /// Checks that the thread still belongs to the process and that the code is unchanged: another thread may
    /// have called exec or unmapped code since.
    fn check_unchanged(&self) -> Result<(), AttemptError> {
        let CallPlan { root, pid, tid, .. } = *self.plan;
        let exists = root.join(format!("proc/{pid}/task/{tid}")).exists();
        if exists && self.plan.gadgets.are_valid(tid) {
            Ok(())
        } else {
            Err(AttemptError::NotNow("its code has changed".into()))
        }
    }

    /// Runs the call up to its exit, and restores the thread.
    fn call(
        mut self,
        registers: &Registers,
        state: CallState,
        since: Instant,
    ) -> Result<Injected, AttemptError> {
        self.tracee.cont_to_syscall()?;
        (self.hook)(Request::ToEntry);
        match self.stopped(CALL_TIMEOUT)? {
            Some(Stop::Syscall) => {}
            // A signal arrived first. It is delivered where it would have been delivered, and the call is not
            // made.
            Some(_) => {
                let error = AttemptError::NotNow("a signal arrived for it".into());
                return self.leave(registers, state).and(Err(error));
            }
            None => return Err(AttemptError::Unfinished),
        }
        self.tracee.cont_to_syscall()?;
        (self.hook)(Request::ToExit);
        if self.stopped(CALL_TIMEOUT)? != Some(Stop::Syscall) {
            return Err(AttemptError::Unfinished);
        }
        let result = self.tracee.registers()?.rax.cast_signed();
        (self.hook)(Request::GetResult);
        let tid = self.plan.tid;
        let restored = if state.needs_kernel(registers) {
            self.stop_again()?;
            state.kernel_restart_registers(registers)
        } else {
            Registers {
                orig_rax: u64::MAX,
                ..state.sigreturn_registers(registers)
            }
        };
        self.leave_with(&restored)?;
        Ok(Injected {
            tid,
            errno: i32::try_from(-result).unwrap_or(0).max(0),
            stopped: Nanos(u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)),
        })
    }

    /// Moves from the exit of the call to a stop like the first, the only kind from which the kernel restarts
    /// a call.
    fn stop_again(&mut self) -> Result<(), AttemptError> {
        self.tracee.interrupt()?;
        (self.hook)(Request::InterruptAgain);
        self.tracee.cont()?;
        (self.hook)(Request::Cont);
        match self.stopped(CALL_TIMEOUT)? {
            Some(Stop::Syscall) | None => Err(AttemptError::Unfinished),
            Some(_) => Ok(()),
        }
    }

    /// Restores the registers and detaches.
    fn leave(self, registers: &Registers, state: CallState) -> Result<(), AttemptError> {
        self.leave_with(&state.kernel_restart_registers(registers))
    }

    fn leave_with(mut self, registers: &Registers) -> Result<(), AttemptError> {
        self.tracee.set_registers(registers)?;
        (self.hook)(Request::Restore);
        let Self { tracee, hook, .. } = self;
        tracee.detach()?;
        hook(Request::Detach);
        Ok(())
    }
}
