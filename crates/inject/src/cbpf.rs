//! Evaluates seccomp filters: classic BPF, limited to what the kernel accepts in such filters
//! (kernel/seccomp.c, `seccomp_check_filter`), over the `struct seccomp_data` of a call.

/// An instruction, laid out as in the kernel.
#[cfg(target_arch = "x86_64")]
pub use thermo_kernel::ptrace::Instruction;

/// An instruction, laid out as in the kernel.
#[cfg(not(target_arch = "x86_64"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Instruction {
    /// The operation.
    pub code: u16,
    /// Instructions to skip if the condition is true.
    pub jump_true: u8,
    /// Instructions to skip if it is false.
    pub jump_false: u8,
    /// The operand.
    pub k: u32,
}

/// The architecture value of the injected calls.
pub(super) const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;

const RET_ACTION_FULL: u32 = 0xffff_0000;
const RET_ALLOW: u32 = 0x7fff_0000;
const RET_LOG: u32 = 0x7ffc_0000;

/// A system call as filters see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Syscall {
    /// Its number.
    pub nr: u32,
    /// The instruction pointer behind the system call instruction.
    pub ip: u64,
    /// Its arguments.
    pub args: [u64; 6],
}

impl Syscall {
    /// The words of `struct seccomp_data`.
    fn words(&self) -> [u32; 16] {
        let mut words = [0; 16];
        let (pairs, _) = words.as_chunks_mut::<2>();
        let head = u64::from(self.nr) | u64::from(AUDIT_ARCH_X86_64) << 32;
        let values = [head, self.ip].into_iter().chain(self.args);
        for (pair, value) in pairs.iter_mut().zip(values) {
            *pair = [value as u32, (value >> 32) as u32];
        }
        words
    }
}

/// True if all `filters` allow the call. A filter that cannot be evaluated does not allow it.
pub(super) fn allows(filters: &[Vec<Instruction>], call: &Syscall) -> bool {
    filters.iter().all(|filter| {
        let action = evaluate(filter, call).map(|value| value & RET_ACTION_FULL);
        matches!(action, Some(RET_ALLOW | RET_LOG))
    })
}

struct Machine<'a> {
    words: &'a [u32; 16],
    a: u32,
    x: u32,
    memory: [u32; 16],
}

/// The value that a filter returns for a call; `None` if the filter divides by zero, or the kernel would not
/// have accepted it.
#[must_use]
pub fn evaluate(filter: &[Instruction], call: &Syscall) -> Option<u32> {
    let mut machine = Machine {
        words: &call.words(),
        a: 0,
        x: 0,
        memory: [0; 16],
    };
    let mut at = 0_usize;
    // Jumps only go forward, so the loop ends.
    while let Some(instruction) = filter.get(at) {
        at += 1;
        match instruction.code & 7 {
            RET => return machine.return_value(instruction),
            JMP => at = at.checked_add(machine.jump(instruction)?)?,
            _ => machine.step(instruction)?,
        }
    }
    None
}

const LD: u16 = 0;
const LDX: u16 = 1;
const ST: u16 = 2;
const STX: u16 = 3;
const ALU: u16 = 4;
const JMP: u16 = 5;
const RET: u16 = 6;
const MISC: u16 = 7;

impl Machine<'_> {
    fn return_value(&self, instruction: &Instruction) -> Option<u32> {
        match instruction.code & 0x18 {
            0x00 => Some(instruction.k),
            0x10 => Some(self.a),
            _ => None,
        }
    }

    /// The second operand: the constant, or X.
    fn operand(&self, instruction: &Instruction) -> u32 {
        if instruction.code & 0x08 == 0 {
            instruction.k
        } else {
            self.x
        }
    }

    fn jump(&self, instruction: &Instruction) -> Option<usize> {
        let other = self.operand(instruction);
        let is_true = match instruction.code & 0xf0 {
            0x00 => return usize::try_from(instruction.k).ok(),
            0x10 => self.a == other,
            0x20 => self.a > other,
            0x30 => self.a >= other,
            0x40 => self.a & other != 0,
            _ => return None,
        };
        Some(usize::from(if is_true {
            instruction.jump_true
        } else {
            instruction.jump_false
        }))
    }

    fn step(&mut self, instruction: &Instruction) -> Option<()> {
        let k = instruction.k;
        match instruction.code & 7 {
            LD => self.a = self.load(instruction)?,
            LDX => self.x = self.load(instruction)?,
            ST => *self.memory.get_mut(k as usize)? = self.a,
            STX => *self.memory.get_mut(k as usize)? = self.x,
            ALU => self.a = self.compute(instruction)?,
            MISC if instruction.code & 0xf8 == 0x80 => self.a = self.x,
            MISC if instruction.code & 0xf8 == 0 => self.x = self.a,
            _ => return None,
        }
        Some(())
    }

    fn load(&self, instruction: &Instruction) -> Option<u32> {
        const SIZE_OF_DATA: u32 = 64;
        let k = instruction.k as usize;
        match instruction.code & 0xf8 {
            // An absolute 32-bit load; filters may use aligned ones only.
            0x20 if k.is_multiple_of(4) => self.words.get(k / 4).copied(),
            0x80 => Some(SIZE_OF_DATA),
            0x00 => Some(instruction.k),
            0x60 => self.memory.get(k).copied(),
            _ => None,
        }
    }

    fn compute(&self, instruction: &Instruction) -> Option<u32> {
        let (a, other) = (self.a, self.operand(instruction));
        match instruction.code & 0xf0 {
            0x00 => Some(a.wrapping_add(other)),
            0x10 => Some(a.wrapping_sub(other)),
            0x20 => Some(a.wrapping_mul(other)),
            0x30 => a.checked_div(other),
            0x40 => Some(a | other),
            0x50 => Some(a & other),
            0x60 => Some(a.wrapping_shl(other)),
            0x70 => Some(a.wrapping_shr(other)),
            0x80 => Some(a.wrapping_neg()),
            0x90 => a.checked_rem(other),
            0xa0 => Some(a ^ other),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: u16 = 0x20;
    const EQUAL: u16 = 0x15;
    const SET: u16 = 0x45;
    const RETURN: u16 = 0x06;
    const KILL: u32 = 0;
    const ERRNO: u32 = 0x0005_0001;

    const fn op(code: u16, jump_true: u8, jump_false: u8, k: u32) -> Instruction {
        Instruction {
            code,
            jump_true,
            jump_false,
            k,
        }
    }

    fn madvise(advice: u64) -> Syscall {
        Syscall {
            nr: 28,
            ip: 0x7f12_3456_789a,
            args: [0x7f00_0020_0000, 2 << 20, advice, 0, 0, 0],
        }
    }

    /// Loads a word of the call and compares it with `k`.
    fn if_equal(offset: u32, k: u32, then: u32, or: u32) -> Vec<Instruction> {
        vec![
            op(LOAD, 0, 0, offset),
            op(EQUAL, 0, 1, k),
            op(RETURN, 0, 0, then),
            op(RETURN, 0, 0, or),
        ]
    }

    #[test]
    fn filter_reads_number_architecture_and_arguments() {
        let call = madvise(14);
        for (offset, k) in [
            (0, 28),
            (4, AUDIT_ARCH_X86_64),
            (8, 0x3456_789a),
            (12, 0x7f12),
            (16, 0x20_0000),
            (20, 0x7f00),
            (24, 2 << 20),
            (32, 14),
        ] {
            assert!(allows(&[if_equal(offset, k, RET_ALLOW, KILL)], &call), "{offset}");
            assert!(
                !allows(&[if_equal(offset, k, ERRNO, RET_ALLOW)], &call),
                "{offset}"
            );
        }
    }

    #[test]
    fn strictest_filter_decides() {
        let (call, allow) = (madvise(14), vec![op(RETURN, 0, 0, RET_ALLOW)]);
        assert!(allows(&[], &call));
        assert!(allows(&[allow.clone(), vec![op(RETURN, 0, 0, RET_LOG)]], &call));
        // 0x7ff00000: SECCOMP_RET_TRACE; 0x7fc00000: SECCOMP_RET_USER_NOTIF.
        for answer in [KILL, ERRNO, 0x8000_0000, 0x0003_0000, 0x7ff0_0000, 0x7fc0_0000] {
            assert!(!allows(&[allow.clone(), vec![op(RETURN, 0, 0, answer)]], &call));
        }
    }

    #[test]
    fn arithmetic_memory_and_jumps_match_kernel() {
        // A = ((advice + 2) * 4 / 8 % 5 | 0x10) ^ 1, stored in memory and moved through X. 14 gives 8 % 5 =
        // 3, then 0x13, then 0x12.
        let filter = vec![
            op(LOAD, 0, 0, 32),
            op(0x04, 0, 0, 2),
            op(0x24, 0, 0, 4),
            op(0x34, 0, 0, 8),
            op(0x94, 0, 0, 5),
            op(0x44, 0, 0, 0x10),
            op(0xa4, 0, 0, 1),
            op(0x02, 0, 0, 3),
            op(0x00, 0, 0, 99),
            op(0x61, 0, 0, 3),
            op(0x87, 0, 0, 0),
            op(0x05, 0, 0, 1),
            op(RETURN, 0, 0, KILL),
            op(SET, 0, 1, 0x2),
            op(EQUAL, 1, 0, 0x12),
            op(RETURN, 0, 0, KILL),
            op(RETURN, 0, 0, RET_ALLOW),
        ];
        let filters = [filter];
        assert!(allows(&filters, &madvise(14)));
        assert!(!allows(&filters, &madvise(16)));
    }

    #[test]
    fn invalid_filter_allows_nothing() {
        for invalid in [
            vec![],
            vec![op(LOAD, 0, 0, 64), op(RETURN, 0, 0, RET_ALLOW)],
            vec![op(LOAD, 0, 0, 2), op(RETURN, 0, 0, RET_ALLOW)],
            vec![op(0x34, 0, 0, 0), op(RETURN, 0, 0, RET_ALLOW)],
            vec![op(0x05, 0, 0, u32::MAX)],
            vec![op(0x02, 0, 0, 16), op(RETURN, 0, 0, RET_ALLOW)],
        ] {
            assert!(
                !allows(std::slice::from_ref(&invalid), &madvise(14)),
                "{invalid:?}"
            );
        }
    }
}
