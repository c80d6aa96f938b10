//! What is monitored of an address space.

use thermo_engine::access_tables::Backing;
use thermo_engine::layout::three_regions;
use thermo_kernel::maps::Mapping;
use thermo_units::{Addr, AddrRange};

/// How the ranges to monitor follow from the mappings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LayoutRule {
    /// DAMON's: everything but the two largest gaps.
    #[default]
    ThreeRegions,
    /// Just what is mapped and can be touched: neighbouring mappings are joined, those of the kernel and of devices
    /// left out.
    Mappings,
}

impl LayoutRule {
    /// The ranges to monitor: ascending, disjoint.
    #[must_use]
    pub fn ranges(self, mappings: &[Mapping]) -> Vec<AddrRange> {
        match self {
            // `[vsyscall]` is listed but belongs to no address space; far above all, it would be a region.
            Self::ThreeRegions => three_regions(&ranges_of(mappings, |mapping| mapping.name != "[vsyscall]")),
            Self::Mappings => joined(ranges_of(mappings, can_be_touched)),
        }
    }
}

/// What backs the mappings: ascending, disjoint, neighbours of one kind joined. Pages of a private mapping of a file that
/// were written to are anonymous to the kernel; here they count as the file's.
#[must_use]
pub fn backings(mappings: &[Mapping]) -> Vec<(AddrRange, Backing)> {
    let mut backings: Vec<(AddrRange, Backing)> = Vec::new();
    for mapping in mappings {
        let backing = backing_of(mapping);
        match backings.last_mut() {
            Some((range, last)) if *last == backing && range.end == mapping.range.start => {
                range.end = mapping.range.end;
            }
            // A list that changed while it was read may overlap; see below.
            Some((range, _)) if mapping.range.start < range.end => {}
            _ => backings.push((mapping.range, backing)),
        }
    }
    backings
}

/// What the names of shared memory begin with (tmpfs has no mark of its own in maps).
const SHARED_MEMORY: [&str; 4] = ["/dev/shm/", "/memfd:", "/SYSV", "/dev/zero"];

fn backing_of(mapping: &Mapping) -> Backing {
    if SHARED_MEMORY.iter().any(|begin| mapping.name.starts_with(begin)) {
        Backing::Shmem
    } else if mapping.inode != 0 {
        Backing::File
    } else {
        Backing::Anon
    }
}

// The list is read in pieces while the process goes on: a mapping that grew downwards meanwhile can reach into the one
// before it. What was told already is cut off.
fn ranges_of(mappings: &[Mapping], take: impl Fn(&Mapping) -> bool) -> Vec<AddrRange> {
    let mut told = Addr(0);
    let cut = |range: AddrRange| {
        let rest = AddrRange {
            start: range.start.max(told),
            end: range.end,
        };
        told = told.max(range.end);
        (!rest.is_empty()).then_some(rest)
    };
    mappings
        .iter()
        .filter(|mapping| take(mapping))
        .map(|mapping| mapping.range)
        .filter_map(cut)
        .collect()
}

fn can_be_touched(mapping: &Mapping) -> bool {
    let perms = mapping.perms;
    (perms.read || perms.write || perms.exec) && !mapping.is_kernel_made() && !mapping.is_device()
}

fn joined(ranges: Vec<AddrRange>) -> Vec<AddrRange> {
    let mut joined = Vec::new();
    for range in ranges {
        range.join_onto(&mut joined);
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_kernel::maps::Perms;

    fn mapping(start: u64, end: u64, name: &str) -> Mapping {
        let perms = Perms {
            read: true,
            write: true,
            exec: false,
            shared: false,
        };
        let range = AddrRange::new(start << 12, end << 12);
        Mapping {
            range,
            perms,
            inode: 0,
            name: name.to_owned(),
        }
    }

    #[test]
    fn neighbours_are_joined_and_the_kernels_and_devices_left_out() {
        let reserved = Mapping {
            perms: Perms::default(),
            ..mapping(50, 90, "")
        };
        let mappings = [
            mapping(1, 2, "/bin/x"),
            mapping(2, 4, "[heap]"),
            mapping(10, 11, "/dev/dri/card0"),
            mapping(11, 13, "/dev/shm/x"),
            mapping(20, 21, "[vvar]"),
            mapping(21, 22, "[vdso]"),
            mapping(30, 40, "[stack]"),
            reserved,
        ];
        let pages: Vec<_> = LayoutRule::Mappings
            .ranges(&mappings)
            .iter()
            .map(|range| (range.start.0 >> 12, range.end.0 >> 12))
            .collect();
        assert_eq!(pages, [(1, 4), (11, 13), (30, 40)]);
    }

    #[test]
    fn mappings_are_anonymous_of_a_file_or_shared_memory() {
        let file = |start, end, name| Mapping {
            inode: 9,
            ..mapping(start, end, name)
        };
        let mappings = [
            file(1, 2, "/usr/lib/libc.so.6"),
            file(2, 3, "/usr/lib/libc.so.6"),
            mapping(3, 4, ""),
            mapping(4, 6, "[heap]"),
            file(8, 9, "/dev/shm/x"),
            file(9, 10, "/memfd:y (deleted)"),
            mapping(12, 13, "[stack]"),
        ];
        let found: Vec<_> = backings(&mappings)
            .iter()
            .map(|(range, backing)| (range.start.0 >> 12, range.end.0 >> 12, *backing))
            .collect();
        let expected = [
            (1, 3, Backing::File),
            (3, 6, Backing::Anon),
            (8, 10, Backing::Shmem),
            (12, 13, Backing::Anon),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_list_that_changed_while_it_was_read_is_still_disjoint() {
        let mappings = [
            mapping(1, 4, ""),
            mapping(2, 6, ""),
            mapping(2, 3, ""),
            mapping(6, 7, ""),
        ];
        assert_eq!(
            LayoutRule::Mappings.ranges(&mappings),
            [AddrRange::new(1 << 12, 7 << 12)]
        );
    }

    #[test]
    fn vsyscall_makes_no_region() {
        let mut mappings = vec![
            mapping(1, 3, ""),
            mapping(1000, 1100, ""),
            mapping(9000, 9010, "[stack]"),
        ];
        let without = LayoutRule::ThreeRegions.ranges(&mappings);
        mappings.push(mapping(
            0x000f_ffff_ffff_f600,
            0x000f_ffff_ffff_f601,
            "[vsyscall]",
        ));
        assert_eq!(LayoutRule::ThreeRegions.ranges(&mappings), without);
        assert_eq!(without.len(), 3);
    }
}
