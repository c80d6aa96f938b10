//! The state of a stopped thread with respect to system calls, and how it resumes.

use thermo_kernel::ptrace::Registers;

// Values of rax for a call that a stop interrupted (include/linux/errno.h).
const RESTARTSYS: i64 = -512;
const RESTARTNOINTR: i64 = -513;
const RESTARTNOHAND: i64 = -514;
const RESTART_RESTARTBLOCK: i64 = -516;
const EINTR: i64 = -4;

/// Calls that return `EINTR` after any stop, and can be restarted without a visible effect (signal(7),
/// "Interruption of system calls and library functions by stop signals"): semop, rt_sigtimedwait,
/// io_getevents, semtimedop, epoll_wait, epoll_pwait, io_pgetevents, io_uring_enter, epoll_pwait2; and on
/// sockets with a timeout: accept, sendto, recvfrom, sendmsg, recvmsg, accept4, recvmmsg, sendmmsg, read,
/// write, readv, writev. If anything had been transferred, they would have returned its size.
///
/// Not close, which has already closed the descriptor, and not connect, which continues to connect.
const RESTARTABLE_AFTER_EINTR: [u64; 21] = [
    65, 128, 208, 220, 232, 281, 333, 426, 441, 43, 44, 45, 46, 47, 288, 299, 307, 0, 1, 19, 20,
];

/// pause and rt_sigsuspend only wait for a signal. If the tracer dies, a signal that arrived during the
/// injected call would already be consumed, and the thread would wait in vain.
const WAITS_FOR_SIGNAL: [u64; 2] = [34, 130];

/// restart_syscall: continues a call from the kernel's restart block, which returning from a signal frame
/// discards.
pub(super) const RESTART_SYSCALL: u64 = 219;

/// futex: waiters check the word again after any return, so it makes no difference whether a signal ends the
/// wait or arrives before the wait restarts.
const FUTEX: u64 = 202;

/// The state of a thread at the stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallState {
    /// It runs in user space, or its system call is complete.
    UserMode,
    /// In a call that the kernel restarts.
    Restartable,
    /// In a call that the stop ended with `EINTR`, which we can turn into a restart.
    Interrupted,
    /// In a call that only the restart block can continue, or whose `EINTR` cannot be undone.
    NotRestartable,
}

/// The index (from 0) of the argument that points at a temporary signal mask: rt_sigsuspend, ppoll,
/// epoll_pwait, epoll_pwait2, io_uring_enter, pselect6, io_pgetevents. `None`: no such argument.
pub(super) const fn mask_argument(nr: u64) -> Option<usize> {
    match nr {
        130 => Some(0),
        271 => Some(3),
        281 | 441 | 426 => Some(4),
        270 | 333 => Some(5),
        _ => None,
    }
}

/// Argument `index` (from 0) of a system call.
const fn argument(registers: &Registers, index: usize) -> u64 {
    match index {
        0 => registers.rdi,
        1 => registers.rsi,
        2 => registers.rdx,
        3 => registers.r10,
        4 => registers.r8,
        _ => registers.r9,
    }
}

impl CallState {
    /// Decodes the registers of a stop by `PTRACE_INTERRUPT`.
    pub(super) fn from_registers(registers: &Registers) -> Self {
        let Some(nr) = registers.syscall_nr() else {
            return Self::UserMode;
        };
        match registers.rax.cast_signed() {
            RESTARTSYS | RESTARTNOINTR | RESTARTNOHAND
                if nr != RESTART_SYSCALL && !WAITS_FOR_SIGNAL.contains(&nr) =>
            {
                Self::Restartable
            }
            RESTART_RESTARTBLOCK..=RESTARTSYS => Self::NotRestartable,
            EINTR if RESTARTABLE_AFTER_EINTR.contains(&nr) => Self::Interrupted,
            // Other calls may mean something else by EINTR.
            EINTR => Self::NotRestartable,
            _ => Self::UserMode,
        }
    }

    /// The reason, from the registers alone, why no call can be injected before the thread continues; `None`
    /// if one can.
    pub(super) fn refusal_reason(self, registers: &Registers) -> Option<&'static str> {
        // The mask is in effect only while the call waits. The injected call would run with the thread's own
        // mask, and a signal that the temporary mask blocks could then end the waiting call.
        let waits_with_mask = || {
            let index = registers.syscall_nr().and_then(mask_argument)?;
            (argument(registers, index) != 0)
                .then_some("it waits in a system call with a temporary signal mask")
        };
        match self {
            Self::UserMode => None,
            Self::NotRestartable => Some("it is in a system call that cannot be restarted"),
            Self::Restartable | Self::Interrupted => waits_with_mask(),
        }
    }

    /// The registers to resume with from a stop by `PTRACE_INTERRUPT`: the kernel then restarts the call, or
    /// lets it fail if a handler runs, as it would have done without us.
    pub(super) const fn kernel_restart_registers(self, registers: &Registers) -> Registers {
        match self {
            Self::Interrupted => Registers {
                rax: RESTARTNOHAND.cast_unsigned(),
                ..*registers
            },
            _ => *registers,
        }
    }

    /// Whether the kernel itself must restart the call, so that a signal that arrived meanwhile ends the call
    /// as usual.
    pub(super) fn needs_kernel(self, registers: &Registers) -> bool {
        self != Self::UserMode && registers.syscall_nr() != Some(FUTEX)
    }

    /// The registers to resume with from a signal frame, after which the kernel knows of no interrupted call:
    /// the system call instruction is executed again.
    pub(super) const fn sigreturn_registers(self, registers: &Registers) -> Registers {
        match self {
            Self::UserMode => *registers,
            _ => Registers {
                rax: registers.orig_rax,
                rip: registers.rip.wrapping_sub(2),
                ..*registers
            },
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn at(nr: i64, rax: i64) -> Registers {
        Registers {
            orig_rax: nr.cast_unsigned(),
            rax: rax.cast_unsigned(),
            rip: 0x1002,
            ..Registers::default()
        }
    }

    #[test]
    fn call_state_is_decoded_from_registers() {
        for (nr, rax, state) in [
            (-1, -512, CallState::UserMode),
            (0, 17, CallState::UserMode),
            (0, -11, CallState::UserMode),
            (0, -512, CallState::Restartable),
            (61, -513, CallState::Restartable),
            (271, -514, CallState::Restartable),
            (7, -516, CallState::NotRestartable),
            (202, -516, CallState::NotRestartable),
            (34, -514, CallState::NotRestartable),
            (130, -514, CallState::NotRestartable),
            (219, -514, CallState::NotRestartable),
            (219, -516, CallState::NotRestartable),
            (219, -4, CallState::NotRestartable),
            (232, -4, CallState::Interrupted),
            (281, -4, CallState::Interrupted),
            (0, -4, CallState::Interrupted),
            (20, -4, CallState::Interrupted),
            (3, -4, CallState::NotRestartable),
        ] {
            assert_eq!(
                CallState::from_registers(&at(nr, rax)),
                state,
                "call {nr} with {rax}"
            );
        }
    }

    #[test]
    fn call_with_temporary_mask_is_refused() {
        let with_mask = |nr: i64, rax: i64| {
            let mut registers = at(nr, rax);
            match nr {
                130 => registers.rdi = 0x7000,
                271 => registers.r10 = 0x7000,
                270 | 333 => registers.r9 = 0x7000,
                _ => registers.r8 = 0x7000,
            }
            registers
        };
        for (nr, rax) in [
            (271, -514),
            (270, -514),
            (281, -4),
            (441, -4),
            (333, -4),
            (426, -4),
        ] {
            let (masked, plain) = (with_mask(nr, rax), at(nr, rax));
            let why = CallState::from_registers(&masked)
                .refusal_reason(&masked)
                .unwrap();
            assert!(why.contains("mask"), "call {nr}: {why}");
            assert_eq!(
                CallState::from_registers(&plain).refusal_reason(&plain),
                None,
                "call {nr}"
            );
            // The call is complete: the thread has its own mask again.
            let complete = with_mask(nr, 1);
            assert_eq!(
                CallState::from_registers(&complete).refusal_reason(&complete),
                None,
                "call {nr}"
            );
            // The registers still make the kernel restart the call.
            assert_eq!(
                CallState::from_registers(&masked).kernel_restart_registers(&masked),
                with_mask(nr, -514),
                "call {nr}"
            );
        }
        let sleeps = at(35, -516);
        assert!(
            CallState::from_registers(&sleeps)
                .refusal_reason(&sleeps)
                .is_some()
        );
    }

    #[test]
    fn interrupted_call_restarts_by_kernel_or_instruction() {
        let broken = at(232, -4);
        assert_eq!(
            CallState::Interrupted.kernel_restart_registers(&broken),
            at(232, -514)
        );
        assert_eq!(
            CallState::Restartable.kernel_restart_registers(&at(0, -512)),
            at(0, -512)
        );
        assert!(
            CallState::Interrupted.needs_kernel(&broken)
                && !CallState::Restartable.needs_kernel(&at(202, -512))
        );
        assert!(!CallState::UserMode.needs_kernel(&at(0, 5)));
        let again = CallState::Interrupted.sigreturn_registers(&broken);
        assert_eq!((again.rax, again.rip), (232, 0x1000));
        assert_eq!(CallState::UserMode.sigreturn_registers(&at(0, 5)), at(0, 5));
    }
}
