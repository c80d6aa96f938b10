//! What the kernel counts for a group, in the words of either version.

/// What a group holds and has suffered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes in memory: anonymous ones, and files and shared memory that are mapped or written.
    pub resident: u64,
    /// Bytes in swap.
    pub swapped: u64,
    /// Major faults since the group was made.
    pub major_faults: u64,
}

/// CPU seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CpuUse {
    /// In programs.
    pub user: f64,
    /// In the kernel for them.
    pub system: f64,
}

/// Reads `memory.stat` of either version. Version 1 has the sums over sub-groups under `total_…`.
pub(super) fn memory_use(stat: &str, swap_current: Option<&str>) -> MemoryUse {
    let field = |name: &str| -> Option<u64> {
        stat.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
    };
    let either = |v1: &str, v2: &str| field(v1).or_else(|| field(v2)).unwrap_or(0);
    // Shared memory is counted once, though its mapped part is in both numbers.
    let files = either("total_mapped_file", "file_mapped").max(either("total_shmem", "shmem"));
    MemoryUse {
        resident: either("total_rss", "anon") + files,
        swapped: swap_current
            .and_then(|text| text.trim().parse().ok())
            .or(field("total_swap"))
            .unwrap_or(0),
        major_faults: either("total_pgmajfault", "pgmajfault"),
    }
}

/// Reads `cpuacct.stat` (ticks of a hundredth of a second) or version 2's `cpu.stat` (microseconds).
pub(super) fn cpu_use(stat: &str) -> Option<CpuUse> {
    let field = |name: &str, scale: f64| -> Option<f64> {
        let value = stat.lines().find_map(|line| {
            line.strip_prefix(name)?
                .strip_prefix(' ')?
                .trim()
                .parse::<f64>()
                .ok()
        });
        value.map(|value| value * scale)
    };
    Some(CpuUse {
        user: field("user_usec", 1e-6).or_else(|| field("user", 1e-2))?,
        system: field("system_usec", 1e-6).or_else(|| field("system", 1e-2))?,
    })
}

pub(super) fn stalled_micros(pressure: &str) -> Option<u64> {
    pressure
        .lines()
        .find(|line| line.starts_with("some "))?
        .split("total=")
        .nth(1)?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_of_the_statistics() {
        let v1 = "rss 1\nswap 0\ntotal_shmem 50\ntotal_rss 100\ntotal_mapped_file 30\ntotal_swap 7\ntotal_pgmajfault 3\n";
        assert_eq!(
            memory_use(v1, None),
            MemoryUse {
                resident: 150,
                swapped: 7,
                major_faults: 3
            }
        );
        let v2 = "anon 100\nfile 900\nfile_mapped 30\nshmem 5\npgmajfault 3\n";
        assert_eq!(
            memory_use(v2, Some("8\n")),
            MemoryUse {
                resident: 130,
                swapped: 8,
                major_faults: 3
            }
        );
        assert_eq!(
            cpu_use("user 250\nsystem 50\n"),
            Some(CpuUse {
                user: 2.5,
                system: 0.5
            })
        );
        let v2 = "usage_usec 3000000\nuser_usec 2500000\nsystem_usec 500000\n";
        assert_eq!(
            cpu_use(v2),
            Some(CpuUse {
                user: 2.5,
                system: 0.5
            })
        );
    }

    #[test]
    fn pressure_is_the_total_of_some() {
        let text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=123\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=4\n";
        assert_eq!(stalled_micros(text), Some(123));
        assert_eq!(stalled_micros(""), None);
    }
}
