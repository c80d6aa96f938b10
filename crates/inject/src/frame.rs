//! The signal frame from which `rt_sigreturn` restores a thread: general registers, signal mask and vector
//! registers (arch/x86/include/asm/sigframe.h and uapi/asm/sigcontext.h, x86-64).

use thermo_kernel::ptrace::{Registers, size_of_features};
use thermo_units::Addr;

/// Size of the red zone below the stack pointer (System V ABI).
const RED_ZONE: u64 = 128;
/// Size of the frame up to the end of its siginfo.
const HEAD: usize = 440;

// Offsets in the frame.
const FLAGS: usize = 8;
const STACK_FLAGS: usize = 8 + 24;
const CONTEXT: usize = 8 + 40;
const FPSTATE: usize = CONTEXT + 184;
const SIGMASK: usize = CONTEXT + 256;

/// Flags: an XSAVE area exists; the frame holds the stack selector; the selector is restored exactly.
const UC_FP_XSTATE: u64 = 1;
const UC_SIGCONTEXT_SS: u64 = 2;
const UC_STRICT_RESTORE_SS: u64 = 4;
/// An invalid mode for the alternate signal stack. We cannot read the thread's alternate stack; the kernel
/// ignores an invalid mode and keeps the current stack.
const INVALID_STACK_MODE: u32 = 4;

// Offsets in the XSAVE area.
const SOFTWARE: usize = 464;
const HEADER: usize = 512;
const PKRU: u64 = 1 << 9;
/// The only component that a thread must request before use.
const AMX_TILES: u64 = 1 << 18;
const MAGIC1: u32 = 0x4650_5853;
const MAGIC2: u32 = 0x4650_5845;

/// A frame and its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    /// The stack pointer for the call. The first word of the frame is the return address of the call.
    pub addr: Addr,
    /// Its contents.
    pub bytes: Vec<u8>,
}

/// The state to restore.
#[derive(Debug, Clone, Copy)]
pub(super) struct Saved<'a> {
    /// The general registers.
    pub registers: &'a Registers,
    /// The mask of blocked signals.
    pub sigmask: u64,
    /// The XSAVE area, as ptrace shows it.
    pub xstate: &'a [u8],
}

/// Maximum distance of the frame's start below the stack pointer, with an XSAVE area of `xstate` bytes.
pub(super) const fn max_extent(xstate: usize) -> u64 {
    RED_ZONE + xstate as u64 + HEAD as u64 + 128
}

/// The frame for a thread with stack pointer `saved.registers.rsp`, whose return address is `restorer`.
/// `None` if the XSAVE area is malformed.
pub(super) fn build(saved: &Saved<'_>, restorer: Addr) -> Option<Frame> {
    let area = signal_xsave_area(saved.xstate)?;
    let top = saved.registers.rsp.checked_sub(max_extent(area.len()))?;
    // The XSAVE area is aligned to 64 bytes; the frame has the alignment of the stack at a call.
    let area_at = (saved.registers.rsp - RED_ZONE - area.len() as u64) & !63;
    let at = ((area_at - HEAD as u64) & !15) - 8;
    debug_assert!(at >= top, "max_extent is a bound");
    let mut bytes = vec![0; (area_at - at) as usize];
    put(&mut bytes, 0, restorer.0);
    put(
        &mut bytes,
        FLAGS,
        UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS,
    );
    put(&mut bytes, STACK_FLAGS, u64::from(INVALID_STACK_MODE));
    put_context(&mut bytes, saved.registers);
    put(&mut bytes, FPSTATE, area_at);
    put(&mut bytes, SIGMASK, saved.sigmask);
    bytes.extend_from_slice(&area);
    Some(Frame {
        addr: Addr(at),
        bytes,
    })
}

#[expect(
    clippy::indexing_slicing,
    reason = "the offsets are constants below the length of a frame"
)]
fn put(bytes: &mut [u8], at: usize, word: u64) {
    bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

fn put_context(bytes: &mut [u8], r: &Registers) {
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

/// The XSAVE area in the form of a signal frame: limited to the components that the thread may use, with the
/// kernel's magic numbers at both ends.
fn signal_xsave_area(xstate: &[u8]) -> Option<Vec<u8>> {
    // The kernel stores the features of the machine in the bytes reserved for software.
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
    let (size, total) = (size as u32, size as u32 + 4);
    put(&mut area, SOFTWARE, u64::from(MAGIC1) | u64::from(total) << 32);
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
    fn frame_lies_below_red_zone_and_within_extent() {
        for rsp in 0x7fff_0000..0x7fff_0100_u64 {
            let frame = frame(rsp, &area(0b111));
            let end = frame.addr.0 + frame.bytes.len() as u64;
            assert!(end <= rsp - RED_ZONE, "{rsp:x}");
            assert!(
                frame.addr.0 >= rsp - max_extent(frame.bytes.len() - HEAD),
                "{rsp:x}"
            );
            let fpstate = get(&frame.bytes, FPSTATE).unwrap();
            assert_eq!(fpstate % 64, 0);
            assert_eq!(frame.addr.0 % 16, 8);
            let in_frame = (fpstate - frame.addr.0) as usize;
            let software = get(&frame.bytes, in_frame + SOFTWARE).unwrap();
            assert_eq!(software as u32, MAGIC1);
            assert_eq!((software >> 32) as usize, frame.bytes.len() - in_frame);
            let last = frame.bytes.len() - 4;
            assert_eq!(frame.bytes[last..], MAGIC2.to_le_bytes());
        }
    }

    #[test]
    fn registers_are_at_kernel_offsets() {
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
    fn unused_amx_tiles_are_removed() {
        let mut unused = area(0b11 | AMX_TILES);
        put(&mut unused, HEADER, 0b11);
        let area = signal_xsave_area(&unused).unwrap();
        assert_eq!(get(&area, SOFTWARE + 8), Some(0b11));
        assert_eq!(area.len(), 576 + 4);
        assert_eq!(signal_xsave_area(&[0; 100]), None);
    }
}
