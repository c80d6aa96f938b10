//! Virtual machines whose memory the hypervisor cannot read. Their kernel accepts memory from the hypervisor
//! step by step, and an access to memory that it has not accepted can end the machine. Page tables are walked
//! without locks, so no access is made there at all.

use std::fs;
use std::path::Path;

/// What makes this machine one in which memory may not be accepted, as the subject of a sentence.
pub(crate) fn reason(root: &Path) -> Option<String> {
    let meminfo = fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
    guest().map(str::to_owned).or_else(|| {
        let kib = unaccepted(&meminfo).filter(|kib| *kib > 0)?;
        Some(format!(
            "a machine with {kib} KiB of memory not yet accepted from its hypervisor"
        ))
    })
}

/// Memory that the kernel has not accepted, in KiB, from the text of `/proc/meminfo`.
fn unaccepted(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("Unaccepted:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(target_arch = "x86_64")]
fn guest() -> Option<&'static str> {
    use std::arch::x86_64::__cpuid_count;
    guest_of(|leaf| {
        let answer = __cpuid_count(leaf, 0);
        [answer.eax, answer.ebx, answer.ecx, answer.edx]
    })
}

/// On arm64, memory is accepted before the kernel uses it.
#[cfg(not(target_arch = "x86_64"))]
const fn guest() -> Option<&'static str> {
    None
}

/// The kind of guest by CPUID, whose registers `leaf` returns from eax to edx. Sources:
/// arch/x86/coco/tdx/tdx.c of the kernel; AMD's manual 24594, functions `8000_0000h` and `8000_001Fh`.
#[cfg(any(target_arch = "x86_64", test))]
fn guest_of(leaf: impl Fn(u32) -> [u32; 4]) -> Option<&'static str> {
    const HYPERVISOR: u32 = 1 << 31;
    const TDX_LEAF: u32 = 0x21;
    const SEV_LEAF: u32 = 0x8000_001f;
    const SEV_SNP: u32 = 1 << 4;
    let [max, ..] = leaf(0);
    let [_, _, features, _] = leaf(1);
    if features & HYPERVISOR == 0 {
        return None;
    }
    if max >= TDX_LEAF {
        let [_, ebx, ecx, edx] = leaf(TDX_LEAF);
        if [ebx, edx, ecx].map(u32::to_le_bytes).concat() == b"IntelTDX    " {
            return Some("a guest of Intel TDX");
        }
    }
    let has_sev = leaf(0x8000_0000)[0] >= SEV_LEAF;
    (has_sev && leaf(SEV_LEAF)[0] & SEV_SNP != 0).then_some("a guest of AMD SEV-SNP")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYPERVISOR: [u32; 4] = [0, 0, 1 << 31, 0];

    #[test]
    fn tdx_and_snp_guests_are_recognised() {
        let number = |text: &[u8; 4]| u32::from_le_bytes(*text);
        let tdx = |leaf| match leaf {
            0 => [0x21, 0, 0, 0],
            1 => HYPERVISOR,
            0x21 => [0, number(b"Inte"), number(b"    "), number(b"lTDX")],
            _ => [0; 4],
        };
        let snp = |leaf| match leaf {
            1 => HYPERVISOR,
            0x8000_0000 => [0x8000_0023, 0, 0, 0],
            0x8000_001f => [0x1a, 0, 0, 0],
            _ => [0; 4],
        };
        // The host of such guests has the feature, too.
        let host = |leaf| if leaf == 1 { [0; 4] } else { snp(leaf) };
        let other_guest = |leaf| {
            if leaf == 0x8000_001f {
                [0x2, 0, 0, 0]
            } else {
                snp(leaf)
            }
        };
        assert_eq!(guest_of(tdx), Some("a guest of Intel TDX"));
        assert_eq!(guest_of(snp), Some("a guest of AMD SEV-SNP"));
        assert_eq!((guest_of(host), guest_of(other_guest)), (None, None));
    }

    #[test]
    fn unaccepted_memory_is_read() {
        assert_eq!(
            unaccepted("MemTotal: 100 kB\nUnaccepted:   4096 kB\n"),
            Some(4096)
        );
        assert_eq!(unaccepted("MemTotal: 100 kB\n"), None);
    }
}
