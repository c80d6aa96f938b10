//! What a stopped thread was doing, and how it goes on from there.

use thermo_kernel::ptrace::Registers;

// What the kernel leaves in rax of a call that a stop broke off (include/linux/errno.h).
const RESTARTSYS: i64 = -512;
const RESTARTNOINTR: i64 = -513;
const RESTARTNOHAND: i64 = -514;
const RESTART_RESTARTBLOCK: i64 = -516;
const INTERRUPTED: i64 = -4;

/// Calls that answer `EINTR` to any stop, and can be made again as if nothing had been (signal(7), "Interruption of
/// system calls and library functions by stop signals"): semop, rt_sigtimedwait, io_getevents, semtimedop, epoll_wait,
/// epoll_pwait, io_pgetevents, io_uring_enter, epoll_pwait2; and those on sockets, where a timeout was set on one:
/// accept, sendto, recvfrom, sendmsg, recvmsg, accept4, recvmmsg, sendmmsg, read, write, readv, writev. With anything
/// transferred they would have answered how much.
///
/// Not close, which has closed when it says so, and not connect, which goes on connecting.
const MADE_AGAIN: [u64; 21] = [
    65, 128, 208, 220, 232, 281, 333, 426, 441, 43, 44, 45, 46, 47, 288, 299, 307, 0, 1, 19, 20,
];

/// pause and rt_sigsuspend wait for a signal alone: one that came while our call ran would be waited for in vain
/// afterwards, were we to die in between.
const FOR_A_SIGNAL: [u64; 2] = [34, 130];

/// restart_syscall: goes on with a call from what the kernel keeps of it, which a return from a signal frame makes it
/// forget.
pub(super) const RESTART_SYSCALL: u64 = 219;

/// futex: whoever waits looks at the word again after any return, so that it makes no difference whether a signal ends
/// the wait or comes before it is taken up again.
const FUTEX: u64 = 202;

/// What a thread was doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    /// It runs its program, or a call of it is over.
    Program,
    /// It was in a call that the kernel makes again.
    Restartable,
    /// It was in a call that the stop ended with an error.
    Broken,
    /// It was in a call that goes on only from what the kernel keeps of it.
    Untouchable,
}

/// Which argument of a call, from 0, points at a signal mask to wait with: rt_sigsuspend, ppoll, epoll_pwait,
/// epoll_pwait2, io_uring_enter, pselect6, io_pgetevents. None: it has no such argument.
pub(super) const fn mask_argument(nr: u64) -> Option<usize> {
    match nr {
        130 => Some(0),
        271 => Some(3),
        281 | 441 | 426 => Some(4),
        270 | 333 => Some(5),
        _ => None,
    }
}

/// The argument of a call, from 0, as the kernel was given it.
const fn argument(registers: &Registers, at: usize) -> u64 {
    match at {
        0 => registers.rdi,
        1 => registers.rsi,
        2 => registers.rdx,
        3 => registers.r10,
        4 => registers.r8,
        _ => registers.r9,
    }
}

impl Doing {
    /// What the registers of a stop that we asked for tell.
    pub(super) fn of(registers: &Registers) -> Self {
        let Some(nr) = registers.syscall() else {
            return Self::Program;
        };
        match registers.rax.cast_signed() {
            RESTARTSYS | RESTARTNOINTR | RESTARTNOHAND
                if nr != RESTART_SYSCALL && !FOR_A_SIGNAL.contains(&nr) =>
            {
                Self::Restartable
            }
            RESTART_RESTARTBLOCK..=RESTARTSYS => Self::Untouchable,
            INTERRUPTED if MADE_AGAIN.contains(&nr) => Self::Broken,
            // What else it may mean is not known.
            INTERRUPTED => Self::Untouchable,
            _ => Self::Program,
        }
    }

    /// Why no other call can be put before what it was doing, by its registers alone; nothing when one can.
    pub(super) fn objection(self, registers: &Registers) -> Option<&'static str> {
        // The mask holds while the call waits. Ours would run with the thread's own, and a signal that came for it
        // then, and that the call keeps out, would end the call.
        let waits_with_a_mask = || {
            let at = registers.syscall().and_then(mask_argument)?;
            (argument(registers, at) != 0).then_some("it waits with a signal mask for that call alone")
        };
        match self {
            Self::Program => None,
            Self::Untouchable => Some("it is in a call that cannot be made again"),
            Self::Restartable | Self::Broken => waits_with_a_mask(),
        }
    }

    /// The registers the kernel is to go on with from a stop we asked for: it then makes a call again, or has it fail
    /// if a handler runs, as it would have done without us.
    pub(super) const fn exact(self, registers: &Registers) -> Registers {
        match self {
            Self::Broken => Registers {
                rax: RESTARTNOHAND.cast_unsigned(),
                ..*registers
            },
            _ => *registers,
        }
    }

    /// Whether the kernel must be the one that makes the call again, so that a signal that came meanwhile ends it as it
    /// would have.
    pub(super) fn needs_kernel(self, registers: &Registers) -> bool {
        self != Self::Program && registers.syscall() != Some(FUTEX)
    }

    /// The registers to go on with from a signal frame, where the kernel knows of no call: at its instruction again.
    pub(super) const fn by_itself(self, registers: &Registers) -> Registers {
        match self {
            Self::Program => *registers,
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
    fn every_way_a_call_ends_is_known() {
        for (nr, rax, doing) in [
            (-1, -512, Doing::Program),
            (0, 17, Doing::Program),
            (0, -11, Doing::Program),
            (0, -512, Doing::Restartable),
            (61, -513, Doing::Restartable),
            (271, -514, Doing::Restartable),
            (7, -516, Doing::Untouchable),
            (202, -516, Doing::Untouchable),
            (34, -514, Doing::Untouchable),
            (130, -514, Doing::Untouchable),
            (219, -514, Doing::Untouchable),
            (219, -516, Doing::Untouchable),
            (219, -4, Doing::Untouchable),
            (232, -4, Doing::Broken),
            (281, -4, Doing::Broken),
            (0, -4, Doing::Broken),
            (20, -4, Doing::Broken),
            (3, -4, Doing::Untouchable),
        ] {
            assert_eq!(Doing::of(&at(nr, rax)), doing, "call {nr} with {rax}");
        }
    }

    #[test]
    fn nothing_is_put_before_a_call_with_a_mask_of_its_own() {
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
            let why = Doing::of(&masked).objection(&masked).unwrap();
            assert!(why.contains("mask"), "call {nr}: {why}");
            assert_eq!(Doing::of(&plain).objection(&plain), None, "call {nr}");
            // It has come to its end: the mask is the thread's own again.
            let over = with_mask(nr, 1);
            assert_eq!(Doing::of(&over).objection(&over), None, "call {nr}");
            // Whatever is put before it, it is left to be made again.
            assert_eq!(
                Doing::of(&masked).exact(&masked),
                with_mask(nr, -514),
                "call {nr}"
            );
        }
        let sleeps = at(35, -516);
        assert!(Doing::of(&sleeps).objection(&sleeps).is_some());
    }

    #[test]
    fn a_call_is_made_again_by_the_kernel_or_from_its_instruction() {
        let broken = at(232, -4);
        assert_eq!(Doing::Broken.exact(&broken), at(232, -514));
        assert_eq!(Doing::Restartable.exact(&at(0, -512)), at(0, -512));
        assert!(Doing::Broken.needs_kernel(&broken) && !Doing::Restartable.needs_kernel(&at(202, -512)));
        assert!(!Doing::Program.needs_kernel(&at(0, 5)));
        let again = Doing::Broken.by_itself(&broken);
        assert_eq!((again.rax, again.rip), (232, 0x1000));
        assert_eq!(Doing::Program.by_itself(&at(0, 5)), at(0, 5));
    }
}
