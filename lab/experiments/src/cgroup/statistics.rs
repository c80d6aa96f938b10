//! Parses a cgroup's statistics files, of version 1 and 2.

/// Memory use of a cgroup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Resident bytes: anonymous memory, and mapped files or shared memory.
    pub resident: u64,
    /// Bytes in swap.
    pub swapped: u64,
    /// Major faults since the cgroup was created.
    pub major_faults: u64,
}

/// CPU time in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CpuUse {
    /// User time.
    pub user: f64,
    /// System time.
    pub system: f64,
}

/// Parses `memory.stat` of either version. Names with the prefix `total_` in version 1 include child cgroups.
pub(super) fn memory_use(stat: &str, swap_current: Option<&str>) -> MemoryUse {
    let field = |name: &str| -> Option<u64> {
        stat.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
    };
    let either = |v1: &str, v2: &str| field(v1).or_else(|| field(v2)).unwrap_or(0);
    // Mapped shared memory is in both numbers: take the larger instead of the sum.
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

/// Parses `cpuacct.stat` of version 1 (ticks of 10 ms) or `cpu.stat` of version 2 (microseconds).
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

/// The total of the `some` line of a pressure file, in microseconds.
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
    fn statistics_of_both_versions_are_parsed() {
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
    fn stalled_micros_is_total_of_some_line() {
        let text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=123\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=4\n";
        assert_eq!(stalled_micros(text), Some(123));
        assert_eq!(stalled_micros(""), None);
    }
}
