//! The requests of one call, in their order, on one thread.
//!
//! | after | if we die, the thread |
//! | --- | --- |
//! | seize, interrupt, looking at it | goes on; the kernel restarts what the stop broke off |
//! | writing the frame | the same: what lies below the red zone is nobody's |
//! | setting the registers of the call | makes it, returns through the frame to where it was |
//! | the stops at the call's begin and end | the same |
//! | stopping it anew, setting its own registers | goes on, as after the interrupt |

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use thermo_kernel::process_vm;
use thermo_kernel::ptrace::{self, Registers, Stop, Tracee};
use thermo_units::Nanos;

use crate::call::{Call, Injected};
use crate::calls::{Doing, RESTART_SYSCALL};
use crate::frame::{self, Saved};
use crate::gadget::Gadgets;
use crate::seccomp::{self, Mode, NR_MADVISE};
use crate::stacks::Stacks;

/// How long a thread may take to stop: long, because it must get a processor first, and one that was asked and let go
/// before it stopped could still see its call fail.
const TO_STOP: Duration = Duration::from_secs(1);
/// How long the call may take. It takes microseconds, once the thread is given a processor.
const TO_END: Duration = Duration::from_secs(5);

/// A request that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the module's table says what each is for")]
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
    ToBegin,
    ToEnd,
    GetAnswer,
    InterruptAgain,
    GoOn,
    SetBack,
    Detach,
}

/// What the call is made with.
pub(super) struct CallPlan<'a> {
    pub root: &'a Path,
    pub pid: u32,
    pub tid: u32,
    pub call: Call,
    pub gadgets: Gadgets,
    pub stacks: &'a Stacks,
}

/// How an attempt on a thread ended, other than by a call that was made.
#[derive(Debug)]
pub(super) enum Failed {
    /// Another thread, or another time.
    NotNow(String),
    /// This target never.
    Refused(String),
    /// The call is under way.
    Unfinished,
    Kernel(io::Error),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Kernel(error)
    }
}

/// A thread in the middle of it.
struct Sequence<'a> {
    plan: &'a CallPlan<'a>,
    tracee: Tracee,
    watch: &'a mut dyn FnMut(Request),
}

/// Has the thread make the call. Must run on a thread of its own, which ends when this returns: then the kernel lets go
/// of what could not be let go of here.
pub(super) fn run(plan: &CallPlan<'_>, watch: &mut dyn FnMut(Request)) -> Result<Injected, Failed> {
    let tracee = Tracee::seize(plan.tid)?;
    watch(Request::Seize);
    let mut sequence = Sequence { plan, tracee, watch };
    sequence.tracee.interrupt()?;
    (sequence.watch)(Request::Interrupt);
    match sequence.stopped(TO_STOP)? {
        Some(Stop::Asked) => sequence.at_stop(),
        Some(Stop::Group) => {
            Err(sequence.not_now("it is stopped by a signal; `kill -CONT` lets it run".into()))
        }
        // The signal goes to it when we let go.
        Some(Stop::Signal(signal)) => Err(sequence.not_now(format!("it is taking signal {signal}"))),
        Some(Stop::Syscall) => Err(Failed::NotNow("it is in a system call".into())),
        None => Err(Failed::NotNow(format!(
            "thread {} did not stop within {TO_STOP:?}",
            plan.tid
        ))),
    }
}

impl Sequence<'_> {
    fn stopped(&mut self, within: Duration) -> io::Result<Option<Stop>> {
        let stop = self.tracee.wait(Instant::now() + within)?;
        (self.watch)(Request::Stopped);
        Ok(stop)
    }

    /// Lets go of it where a signal stopped it. One that it ignores ends its call all the same while it is traced; so
    /// it goes on as from a stop of ours, and the kernel decides by what is done about the signal.
    fn not_now(self, why: String) -> Failed {
        let left = self.tracee.registers().map_err(Failed::from);
        (self.watch)(Request::GetRegisters);
        let left = left.and_then(|registers| self.leave(&registers, Doing::of(&registers)));
        left.err().unwrap_or(Failed::NotNow(why))
    }

    /// It has stopped as we asked, on its way to its program.
    fn at_stop(mut self) -> Result<Injected, Failed> {
        let since = Instant::now();
        let registers = self.tracee.registers()?;
        (self.watch)(Request::GetRegisters);
        let doing = Doing::of(&registers);
        let begun = self.begin(&registers, doing);
        if let Err(failed) = begun {
            return self.leave(&registers, doing).and(Err(failed));
        }
        self.call(&registers, doing, since)
    }

    /// Checks that the thread fits, and makes ready for its return.
    fn begin(&mut self, registers: &Registers, doing: Doing) -> Result<(), Failed> {
        if !registers.is_64_bit() {
            return Err(Failed::Refused("it runs 32-bit code".into()));
        }
        if let Some(why) = doing.objection(registers) {
            return Err(Failed::NotNow(why.into()));
        }
        if !self.may_be_put_off(registers, doing) {
            return Err(Failed::NotNow("it goes on with a call of its past".into()));
        }
        if self.tracee.dispatches_syscalls()? == Some(true) {
            return Err(Failed::Refused(
                "it handles its system calls itself (syscall user dispatch)".into(),
            ));
        }
        if self.in_sequence(registers)? {
            return Err(Failed::NotNow(
                "it is, or may be, in a restartable sequence".into(),
            ));
        }
        self.check_filters()?;
        self.write_frame(registers, doing)
    }

    /// Whether what it does next can be done after our call as well as now.
    ///
    /// A stop may come right after an earlier one, when the kernel has already set its registers to go on with a call
    /// from what it keeps of it: that is forgotten in a return from a signal frame. And a call made in the way of
    /// 32-bit programs is not made again as ours are.
    fn may_be_put_off(&self, registers: &Registers, doing: Doing) -> bool {
        const SYSCALL: [u8; 2] = [0x0f, 0x05];
        const OLD_CALL: [u8; 2] = [0xcd, 0x80];
        let code = |at: u64| {
            let mut bytes = [0; 2];
            let read = process_vm::read(self.plan.tid, thermo_units::Addr(at), &mut bytes);
            read.is_ok_and(|read| read == bytes.len()).then_some(bytes)
        };
        match doing {
            Doing::Program if registers.rax == RESTART_SYSCALL => {
                code(registers.rip).is_some_and(|code| code != SYSCALL && code != OLD_CALL)
            }
            Doing::Program => code(registers.rip) != Some(OLD_CALL),
            _ => code(registers.rip.wrapping_sub(2)) == Some(SYSCALL),
        }
    }

    /// Whether it may make both calls. Looked at while it stands still, so that it cannot forbid them to itself.
    fn check_filters(&mut self) -> Result<(), Failed> {
        let CallPlan { root, pid, tid, .. } = *self.plan;
        match seccomp::mode(root, pid, tid) {
            Some(Mode::Off) => Ok(()),
            Some(Mode::Strict) => Err(Failed::Refused(
                "it may make no call but read, write and exit (seccomp strict mode)".into(),
            )),
            Some(Mode::Filtered) => {
                let objection = seccomp::objection(&self.tracee, self.plan.call, &self.plan.gadgets)?;
                (self.watch)(Request::GetFilters);
                objection.map_or(Ok(()), |why| Err(Failed::Refused(why)))
            }
            None => Err(Failed::NotNow(
                "its status does not tell which calls it may make".into(),
            )),
        }
    }

    /// Whether it is in a restartable sequence, or runs its program and cannot be known not to be: being stopped there
    /// must make it begin anew, and only the kernel could do that.
    fn in_sequence(&mut self, registers: &Registers) -> io::Result<bool> {
        let area = self.tracee.rseq();
        (self.watch)(Request::GetRseq);
        // There is no system call within such a sequence.
        let may_be = registers.syscall().is_none();
        let area = match area {
            Ok(Some(area)) => area,
            Ok(None) => return Ok(false),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Err(error),
            Err(_) => return Ok(may_be),
        };
        let word = |at| {
            let mut bytes = [0; 8];
            let whole = process_vm::read(self.plan.tid, at, &mut bytes).is_ok_and(|read| read == bytes.len());
            whole.then_some(u64::from_le_bytes(bytes))
        };
        let sequence = match word(area.pointer()) {
            Some(0) => return Ok(false),
            Some(sequence) => sequence,
            None => return Ok(may_be),
        };
        // `struct rseq_cs`: version and flags, the begin, how long it is.
        let field = |offset| word(thermo_units::Addr(sequence + offset));
        let (Some(begin), Some(length)) = (field(8), field(16)) else {
            return Ok(true);
        };
        Ok(registers.rip.wrapping_sub(begin) < length)
    }

    fn write_frame(&mut self, registers: &Registers, doing: Doing) -> Result<(), Failed> {
        let xstate = self.tracee.xstate()?;
        (self.watch)(Request::GetXstate);
        let sigmask = self.tracee.sigmask()?;
        (self.watch)(Request::GetSigmask);
        if !self
            .plan
            .stacks
            .have_room(registers.rsp, frame::reach(xstate.len()))
        {
            return Err(Failed::NotNow(
                "its stack has no room that is known to be its own".into(),
            ));
        }
        let saved = Saved {
            registers: &doing.by_itself(registers),
            sigmask,
            xstate: &xstate,
        };
        let frame = frame::build(&saved, self.plan.gadgets.restorer)
            .ok_or_else(|| Failed::Refused("its vector registers are laid out in an unknown way".into()))?;
        self.check_place()?;
        ptrace::write(self.plan.tid, frame.at, &frame.bytes)?;
        (self.watch)(Request::WriteFrame);
        let Call { range, flag } = self.plan.call;
        let call = Registers {
            rax: NR_MADVISE,
            rdi: range.start.0,
            rsi: range.len().0,
            rdx: flag.advice().unsigned_abs().into(),
            orig_rax: u64::MAX,
            rip: self.plan.gadgets.call.0,
            rsp: frame.at.0,
            ..*registers
        };
        self.tracee.set_registers(&call)?;
        (self.watch)(Request::SetCall);
        Ok(())
    }

    /// Whether it is still the thread of that process, with the code that was found: another of its threads may have
    /// run another program (exec) or unmapped some since.
    fn check_place(&self) -> Result<(), Failed> {
        let CallPlan { root, pid, tid, .. } = *self.plan;
        let is_there = root.join(format!("proc/{pid}/task/{tid}")).exists();
        if is_there && self.plan.gadgets.hold(tid) {
            Ok(())
        } else {
            Err(Failed::NotNow("its code is no longer what it was".into()))
        }
    }

    /// Lets it make the call, up to its end, and takes it back.
    fn call(mut self, registers: &Registers, doing: Doing, since: Instant) -> Result<Injected, Failed> {
        self.tracee.go_on_to_syscall()?;
        (self.watch)(Request::ToBegin);
        match self.stopped(TO_END)? {
            Some(Stop::Syscall) => {}
            // A signal came first. It is taken where it would have been taken, and the call not made.
            Some(_) => {
                let why = Failed::NotNow("a signal came for it".into());
                return self.leave(registers, doing).and(Err(why));
            }
            None => return Err(Failed::Unfinished),
        }
        self.tracee.go_on_to_syscall()?;
        (self.watch)(Request::ToEnd);
        if self.stopped(TO_END)? != Some(Stop::Syscall) {
            return Err(Failed::Unfinished);
        }
        let answer = self.tracee.registers()?.rax.cast_signed();
        (self.watch)(Request::GetAnswer);
        let tid = self.plan.tid;
        let back = if doing.needs_kernel(registers) {
            self.stop_anew()?;
            doing.exact(registers)
        } else {
            Registers {
                orig_rax: u64::MAX,
                ..doing.by_itself(registers)
            }
        };
        self.leave_with(&back)?;
        Ok(Injected {
            tid,
            errno: i32::try_from(-answer).unwrap_or(0).max(0),
            stopped: Nanos(u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)),
        })
    }

    /// From the end of the call to a stop like the first, the only kind from which the kernel makes a call again.
    fn stop_anew(&mut self) -> Result<(), Failed> {
        self.tracee.interrupt()?;
        (self.watch)(Request::InterruptAgain);
        self.tracee.go_on()?;
        (self.watch)(Request::GoOn);
        match self.stopped(TO_END)? {
            Some(Stop::Syscall) | None => Err(Failed::Unfinished),
            Some(_) => Ok(()),
        }
    }

    /// Sets it back to what it was, and lets go.
    fn leave(self, registers: &Registers, doing: Doing) -> Result<(), Failed> {
        self.leave_with(&doing.exact(registers))
    }

    fn leave_with(mut self, registers: &Registers) -> Result<(), Failed> {
        self.tracee.set_registers(registers)?;
        (self.watch)(Request::SetBack);
        let Self { tracee, watch, .. } = self;
        tracee.detach()?;
        watch(Request::Detach);
        Ok(())
    }
}
