//! Seccomp filters: our verdict beside that of the kernel.
//!
//! A child that shares our memory sets the filter and makes one system call. The filter is changed for that,
//! so that it never lets the call happen, never kills, and never writes to the kernel's log: each value that
//! it returns becomes an error number with 12 bits of a hash of the value.
#![allow(
    unsafe_code,
    reason = "only a process of its own can have a filter of its own"
)]

use std::arch::asm;
use std::ptr;
use std::sync::LazyLock;

use thermo_inject::cbpf::{Instruction, Syscall, evaluate};

const NR_EXIT: u32 = 60;
const RET_ALLOW: u32 = 0x7fff_0000;
const RET_ERRNO: u32 = 0x0005_0000;
/// `RET K` and `RET A`.
const RETURN_K: u16 = 0x06;
const RETURN_A: u16 = 0x16;
const JUMP: u16 = 0x05;
/// Every operation that the kernel accepts in a filter (`seccomp_check_filter()` of kernel/seccomp.c).
const OPERATIONS: [u16; 38] = [
    0x20, 0x80, 0x81, 0x00, 0x01, 0x60, 0x61, 0x02, 0x03, 0x04, 0x0c, 0x14, 0x1c, 0x24, 0x2c, 0x34, 0x3c,
    0x44, 0x4c, 0x54, 0x5c, 0x64, 0x6c, 0x74, 0x7c, 0x84, 0xa4, 0xac, 0x07, 0x87, JUMP, 0x15, 0x1d, 0x25,
    0x2d, 0x35, 0x45, RETURN_A,
];
/// Number, arguments, and whether instructions are taken as they are.
const HEAD: usize = 4 + 6 * 8 + 1;
/// Our own instructions before and behind the filter.
const PROLOGUE: usize = 4;
const MAX_INSTRUCTIONS: usize = 256;

/// The address behind the system call instruction of the child.
static CALL_END: LazyLock<u64> = LazyLock::new(|| {
    let call = Syscall {
        nr: 0,
        ip: 0,
        args: [0; 6],
    };
    ask_kernel(&[op(RETURN_K, 0, 0, 0)], &call).map_or(0, |answer| answer.ip)
});

/// The kernel returns the same value as we do, for each filter that it accepts.
pub(super) fn verdict_is_that_of_the_kernel(data: &[u8]) {
    let Some((head, rest)) = data.split_at_checked(HEAD) else {
        return;
    };
    let words: Vec<u64> = head[4..HEAD - 1].chunks_exact(8).map(u64_of).collect();
    let nr = u64_of(&head[..4]) as u32;
    let Ok(args) = <[u64; 6]>::try_from(words) else {
        return;
    };
    if nr == NR_EXIT {
        return;
    }
    let call = Syscall {
        nr,
        ip: *CALL_END,
        args,
    };
    let filter = filter_of(rest, head[HEAD - 1] & 1 == 1);
    let Some(value) = evaluate(&filter, &call) else {
        // A division by zero, which kills, or a filter that the kernel refuses.
        return;
    };
    if let Some(answer) = ask_kernel(&filter, &call) {
        assert_eq!(answer.ip, call.ip, "the child is this function");
        let expected = -i64::from(hash(value));
        assert_eq!(
            answer.result,
            Some(expected),
            "we say {value:#x} to {call:x?} by {filter:x?}"
        );
    }
}

fn u64_of(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

const fn op(code: u16, jump_true: u8, jump_false: u8, k: u32) -> Instruction {
    Instruction {
        code,
        jump_true,
        jump_false,
        k,
    }
}

/// The instructions that `bytes` describe; unless `raw`, with operations and operands that the kernel
/// accepts.
fn filter_of(bytes: &[u8], raw: bool) -> Vec<Instruction> {
    let instructions = bytes.chunks_exact(8).take(MAX_INSTRUCTIONS - 1);
    let count = instructions.len();
    let mut filter: Vec<Instruction> = instructions
        .enumerate()
        .map(|(at, bytes)| {
            let (code, k) = (u64_of(&bytes[..2]) as u16, u64_of(&bytes[4..]) as u32);
            let one = op(code, bytes[2], bytes[3], k);
            if raw { one } else { accepted(one, count - at) }
        })
        .collect();
    filter.push(op(RETURN_K, 0, 0, RET_ALLOW));
    filter
}

/// `one` with an operation and operands that the kernel accepts, where `left` instructions follow.
fn accepted(mut one: Instruction, left: usize) -> Instruction {
    let left = u32::try_from(left).unwrap_or(u32::MAX);
    one.code = OPERATIONS[usize::from(one.code) % OPERATIONS.len()];
    match one.code {
        0x20 => one.k = one.k % 16 * 4,
        0x60 | 0x61 | 0x02 | 0x03 => one.k %= 16,
        0x34 => one.k = one.k.max(1),
        0x64 | 0x74 => one.k %= 32,
        JUMP => one.k %= left,
        code if code & 7 == JUMP => {
            one.jump_true = (u32::from(one.jump_true) % left) as u8;
            one.jump_false = (u32::from(one.jump_false) % left) as u8;
        }
        _ => {}
    }
    one
}

/// 12 bits that stand for a value of a filter.
const fn hash(value: u32) -> u32 {
    value.wrapping_mul(0x9e37_79b1) >> 20
}

/// The filter with error numbers as its only results. The child may exit.
fn disarmed(filter: &[Instruction]) -> Vec<Instruction> {
    let prologue: [Instruction; PROLOGUE] = [
        op(0x20, 0, 0, 0),
        op(0x15, 0, 1, NR_EXIT),
        op(RETURN_K, 0, 0, RET_ALLOW),
        op(0x00, 0, 0, 0),
    ];
    let epilogue = [
        op(0x24, 0, 0, 0x9e37_79b1),
        op(0x74, 0, 0, 20),
        op(0x44, 0, 0, RET_ERRNO),
        op(RETURN_A, 0, 0, 0),
    ];
    let body = filter.iter().enumerate().map(|(at, one)| match one.code {
        RETURN_K => op(RETURN_K, 0, 0, RET_ERRNO | hash(one.k)),
        RETURN_A => op(
            JUMP,
            0,
            0,
            u32::try_from(filter.len() - at - 1).unwrap_or(u32::MAX),
        ),
        _ => *one,
    });
    prologue.into_iter().chain(body).chain(epilogue).collect()
}

/// What a child found out. `result` is `None` if the filter killed it.
#[derive(Debug, Default)]
struct Answer {
    ip: u64,
    result: Option<i64>,
}

/// `struct sock_fprog`, and what the child has to know.
#[repr(C)]
struct Order {
    length: u16,
    filter: *const Instruction,
    nr: u64,
    args: [u64; 6],
    is_refused: bool,
    answer: Answer,
}

/// Runs `filter` in the kernel; `None` if the kernel refuses it.
fn ask_kernel(filter: &[Instruction], call: &Syscall) -> Option<Answer> {
    const STACK: usize = 64 << 10;
    let filter = disarmed(filter);
    let mut order = Order {
        length: u16::try_from(filter.len()).ok()?,
        filter: filter.as_ptr(),
        nr: call.nr.into(),
        args: call.args,
        is_refused: false,
        answer: Answer::default(),
    };
    let mut stack = vec![0_u128; STACK / 16];
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the child runs `child` on a stack of its own and changes nothing but `order`. With CLONE_VFORK
    // we go on when it has ended, so both outlive it.
    let (pid, status) = unsafe {
        let top = stack.as_mut_ptr().add(stack.len()).cast();
        let pid = libc::clone(child, top, flags, ptr::from_mut(&mut order).cast());
        let mut status = 0;
        let waited = libc::waitpid(pid, &raw mut status, 0);
        assert_eq!(waited, pid, "no child: {}", std::io::Error::last_os_error());
        (pid, status)
    };
    assert!(pid > 0 && !order.is_refused || order.answer.result.is_none());
    if libc::WIFSIGNALED(status) {
        order.answer.result = None;
    }
    (!order.is_refused).then_some(order.answer)
}

/// Sets the filter and makes the call. Afterwards, the filter lets nothing through but the exit.
extern "C" fn child(order: *mut libc::c_void) -> libc::c_int {
    // SAFETY: our parent passes an `Order` and waits. Both calls take numbers, and memory of the order.
    unsafe {
        let order = &mut *order.cast::<Order>();
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        let filter = ptr::from_ref(order);
        if libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, filter) != 0 {
            order.is_refused = true;
            return 0;
        }
        let (result, ip): (i64, u64);
        let [rdi, rsi, rdx, r10, r8, r9] = order.args;
        asm!(
            "syscall",
            "2: lea rcx, [rip + 2b]",
            inlateout("rax") order.nr => result,
            in("rdi") rdi, in("rsi") rsi, in("rdx") rdx, in("r10") r10, in("r8") r8, in("r9") r9,
            lateout("rcx") ip, lateout("r11") _,
        );
        order.answer = Answer {
            ip,
            result: Some(result),
        };
        0
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    const CALL: Syscall = Syscall {
        nr: 39,
        ip: 0,
        args: [7; 6],
    };

    #[test]
    fn kernel_returns_hash_of_the_value() {
        for value in [0, RET_ALLOW, 0x8000_0000, 77] {
            let answer = ask_kernel(&[op(RETURN_K, 0, 0, value)], &CALL).unwrap();
            assert_eq!(answer.result, Some(-i64::from(hash(value))));
            let accumulated = [op(0x00, 0, 0, value), op(RETURN_A, 0, 0, 0)];
            assert_eq!(ask_kernel(&accumulated, &CALL).unwrap().result, answer.result);
        }
        assert!(*CALL_END > 0);
    }

    #[test]
    fn kernel_refuses_what_is_no_filter() {
        assert!(ask_kernel(&[op(0x28, 0, 0, 0), op(RETURN_K, 0, 0, 0)], &CALL).is_none());
        assert!(ask_kernel(&[op(0x60, 0, 0, 3), op(RETURN_K, 0, 0, 0)], &CALL).is_none());
    }

    #[test]
    fn filters_made_of_any_bytes_are_mostly_accepted() {
        let accepted = (0..100_u8).filter(|seed| {
            let bytes: Vec<u8> = (0..64_u8)
                .map(|at| at.wrapping_mul(*seed).wrapping_add(seed >> 1))
                .collect();
            ask_kernel(&filter_of(&bytes, false), &CALL).is_some()
        });
        assert!(accepted.count() > 20);
    }
}
