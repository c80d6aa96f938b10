//! The signal frame from which `rt_sigreturn` restores a thread: all of its registers, its mask, its vector
//! registers (arch/x86/include/asm/sigframe.h and uapi/asm/sigcontext.h, x86-64).

use thermo_kernel::ptrace::{Registers, size_of_features};
use thermo_units::Addr;

/// What a program may use below its stack pointer (System V ABI).
const RED_ZONE: u64 = 128;
/// From the frame's begin to the end of its siginfo.
const HEAD: usize = 440;

// Places in the frame.
const FLAGS: usize = 8;
const STACK_FLAGS: usize = 8 + 24;
const CONTEXT: usize = 8 + 40;
const FPSTATE: usize = CONTEXT + 184;
const SIGMASK: usize = CONTEXT + 256;

/// There is an XSAVE area; the stack selector is in the frame, and holds as it stands there.
const UC_FP_XSTATE: u64 = 1;
const UC_SIGCONTEXT_SS: u64 = 2;
const UC_STRICT_RESTORE_SS: u64 = 4;
/// No mode of an alternate signal stack. We cannot know which one the thread has; the kernel passes over one that it
/// does not take, and leaves the thread's as it is.
const NO_STACK_MODE: u32 = 4;

// Places in the XSAVE area.
const SOFTWARE: usize = 464;
const HEADER: usize = 512;
const PKRU: u64 = 1 << 9;
/// The one component that a thread has room for only after it asked for it.
const AMX_TILES: u64 = 1 << 18;
const MAGIC1: u32 = 0x4650_5853;
const MAGIC2: u32 = 0x4650_5845;

/// A frame and where it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    /// Where: the stack pointer of the call, whose return address is the frame's first word.
    pub at: Addr,
    /// What.
    pub bytes: Vec<u8>,
}

/// What is restored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Saved<'a> {
    /// The registers to go on with.
    pub registers: &'a Registers,
    /// The signals kept back.
    pub sigmask: u64,
    /// The XSAVE area, as ptrace shows it.
    pub xstate: &'a [u8],
}

/// How far below the stack pointer a frame reaches at most, with an area of `xstate` bytes.
pub(super) const fn reach(xstate: usize) -> u64 {
    RED_ZONE + xstate as u64 + HEAD as u64 + 128
}

/// The frame for a thread with stack pointer `saved.registers.rsp`, returned from through `restorer`. Nothing when the
/// area is none.
pub(super) fn build(saved: &Saved<'_>, restorer: Addr) -> Option<Frame> {
    let area = extended(saved.xstate)?;
    let top = saved.registers.rsp.checked_sub(reach(area.len()))?;
    // The area must lie on a cache line; the frame as a call would find it.
    let area_at = (saved.registers.rsp - RED_ZONE - area.len() as u64) & !63;
    let at = ((area_at - HEAD as u64) & !15) - 8;
    debug_assert!(at >= top, "the reach is a bound");
    let mut bytes = vec![0; (area_at - at) as usize];
    put(&mut bytes, 0, restorer.0);
    put(
        &mut bytes,
        FLAGS,
        UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS,
    );
    put(&mut bytes, STACK_FLAGS, u64::from(NO_STACK_MODE));
    context(&mut bytes, saved.registers);
    put(&mut bytes, FPSTATE, area_at);
    put(&mut bytes, SIGMASK, saved.sigmask);
    bytes.extend_from_slice(&area);
    Some(Frame { at: Addr(at), bytes })
}

fn put(bytes: &mut [u8], at: usize, word: u64) {
    bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

fn context(bytes: &mut [u8], r: &Registers) {
    let selectors = (r.cs & 0xffff) | (r.gs & 0xffff) << 16 | (r.fs & 0xffff) << 32 | (r.ss & 0xffff) << 48;
    let words = [
        r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15, r.rdi, r.rsi, r.rbp, r.rbx, r.rdx, r.rax,
        r.rcx, r.rsp, r.rip, r.eflags, selectors,
    ];
    for (n, word) in words.into_iter().enumerate() {
        put(bytes, CONTEXT + 8 * n, word);
    }
}

fn get(area: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(area.get(at..at + 8)?.try_into().ok()?))
}

/// The area as a frame has it: cut to what the thread has room for, with the kernel's marks at both ends.
fn extended(xstate: &[u8]) -> Option<Vec<u8>> {
    // The kernel puts the machine's features where software may keep words of its own.
    let (features, in_use) = (get(xstate, SOFTWARE)?, get(xstate, HEADER)?);
    let features = if in_use & AMX_TILES == 0 {
        features & !AMX_TILES
    } else {
        features
    };
    let size = size_of_features(features);
    let mut area = xstate.get(..size)?.to_vec();
    let keys = (features & PKRU != 0).then(|| size_of_features(PKRU) - 8);
    let has_keys = keys.and_then(|at| get(&area, at)).is_some_and(|keys| keys != 0);
    put(
        &mut area,
        HEADER,
        in_use & features | if has_keys { PKRU } else { 0 },
    );
    let (size, whole) = (size as u32, size as u32 + 4);
    put(&mut area, SOFTWARE, u64::from(MAGIC1) | u64::from(whole) << 32);
    put(&mut area, SOFTWARE + 8, features);
    put(&mut area, SOFTWARE + 16, u64::from(size));
    area.extend_from_slice(&MAGIC2.to_le_bytes());
    Some(area)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn area(features: u64) -> Vec<u8> {
        let mut area = vec![0; 11_008];
        put(&mut area, SOFTWARE, features);
        put(&mut area, HEADER, features);
        area
    }

    fn frame(rsp: u64, area: &[u8]) -> Frame {
        let registers = Registers {
            rsp,
            rip: 0x40_1000,
            rax: 7,
            eflags: 0x246,
            cs: 0x33,
            ss: 0x2b,
            r8: 8,
            ..Registers::default()
        };
        let saved = Saved {
            registers: &registers,
            sigmask: 0x4000,
            xstate: area,
        };
        build(&saved, Addr(0x7000)).unwrap()
    }

    #[test]
    fn a_frame_lies_below_the_red_zone_and_within_its_reach() {
        for rsp in 0x7fff_0000..0x7fff_0100_u64 {
            let frame = frame(rsp, &area(0b111));
            let end = frame.at.0 + frame.bytes.len() as u64;
            assert!(end <= rsp - RED_ZONE, "{rsp:x}");
            assert!(frame.at.0 >= rsp - reach(frame.bytes.len() - HEAD), "{rsp:x}");
            let fpstate = get(&frame.bytes, FPSTATE).unwrap();
            assert_eq!(fpstate % 64, 0);
            assert_eq!(frame.at.0 % 16, 8);
            let in_frame = (fpstate - frame.at.0) as usize;
            let software = get(&frame.bytes, in_frame + SOFTWARE).unwrap();
            assert_eq!(software as u32, MAGIC1);
            assert_eq!((software >> 32) as usize, frame.bytes.len() - in_frame);
            let last = frame.bytes.len() - 4;
            assert_eq!(frame.bytes[last..], MAGIC2.to_le_bytes());
        }
    }

    #[test]
    fn registers_stand_where_the_kernel_looks_for_them() {
        let bytes = frame(0x7fff_0000, &area(0b11)).bytes;
        let word = |at| get(&bytes, at).unwrap();
        assert_eq!((word(0), word(FLAGS)), (0x7000, 7));
        assert_eq!((word(CONTEXT), word(CONTEXT + 13 * 8)), (8, 7));
        assert_eq!(
            (word(CONTEXT + 15 * 8), word(CONTEXT + 16 * 8)),
            (0x7fff_0000, 0x40_1000)
        );
        assert_eq!(
            (word(CONTEXT + 17 * 8), word(CONTEXT + 18 * 8)),
            (0x246, 0x002b_0000_0000_0033)
        );
        assert_eq!(word(SIGMASK), 0x4000);
    }

    #[test]
    fn tiles_that_are_not_in_use_are_left_out() {
        let mut unused = area(0b11 | AMX_TILES);
        put(&mut unused, HEADER, 0b11);
        let area = extended(&unused).unwrap();
        assert_eq!(get(&area, SOFTWARE + 8), Some(0b11));
        assert_eq!(area.len(), 576 + 4);
        assert_eq!(extended(&[0; 100]), None);
    }
}
