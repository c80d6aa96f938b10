//! The address ranges of a process that are monitored.

use std::collections::BTreeMap;

use thermo_engine::access_tables::Backing;
use thermo_engine::layout::three_regions;
use thermo_engine::scan::Alias;
use thermo_kernel::maps::Mapping;
use thermo_units::{Addr, AddrRange, Bytes};

/// Minimum size of an inaccessible mapping that is monitored if it holds pages.
const MIN_INACCESSIBLE: Bytes = Bytes::kib(64);

/// How the monitored ranges are derived from the mappings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LayoutRule {
    /// DAMON's rule: everything except the two largest gaps.
    #[default]
    ThreeRegions,
    /// Only mappings that can be accessed, and with [`LayoutRule::resident_ranges`] those that hold pages all
    /// the same. Adjacent mappings are coalesced; mappings of the kernel and of devices are skipped.
    Mappings,
}

impl LayoutRule {
    /// The monitored ranges: ascending and disjoint.
    #[must_use]
    pub fn ranges(self, mappings: &[Mapping]) -> Vec<AddrRange> {
        self.resident_ranges(mappings, &|_| false)
    }

    /// Like [`LayoutRule::ranges`], with the mappings that the process may not access (`PROT_NONE`) but that
    /// hold pages, as `holds_pages` says: otherwise their memory would stay unknown for ever. It is not asked
    /// about small mappings, such as guard pages.
    #[must_use]
    pub fn resident_ranges(
        self,
        mappings: &[Mapping],
        holds_pages: &dyn Fn(&Mapping) -> bool,
    ) -> Vec<AddrRange> {
        let is_monitored = |mapping: &Mapping| match has_memory(mapping) {
            true if is_accessible(mapping) => true,
            true => mapping.range.len() >= MIN_INACCESSIBLE && holds_pages(mapping),
            false => false,
        };
        match self {
            // `[vsyscall]` is listed, but belongs to no address space. At its high address it would be a
            // region.
            Self::ThreeRegions => three_regions(&ranges_of(mappings, |mapping| mapping.name != "[vsyscall]")),
            Self::Mappings => coalesced(ranges_of(mappings, is_monitored)),
        }
    }
}

/// What backs the mappings: ascending and disjoint, adjacent ranges of one kind coalesced. Written pages of a
/// private file mapping are anonymous for the kernel; here they count as pages of the file.
#[must_use]
pub fn backings(mappings: &[Mapping]) -> Vec<(AddrRange, Backing)> {
    let mut backings: Vec<(AddrRange, Backing)> = Vec::new();
    for mapping in mappings {
        let backing = backing_of(mapping);
        match backings.last_mut() {
            Some((range, last)) if *last == backing && range.end == mapping.range.start => {
                range.end = mapping.range.end;
            }
            // Mappings overlap if they changed while `maps` was read; see `ranges_of()`.
            Some((range, _)) if mapping.range.start < range.end => {}
            _ => backings.push((mapping.range, backing)),
        }
    }
    backings
}

/// Prefixes of the names of shared memory. In `maps`, tmpfs files cannot be distinguished from other files.
const SHMEM_PREFIXES: [&str; 4] = ["/dev/shm/", "/memfd:", "/SYSV", "/dev/zero"];

/// What backs a mapping, as for [`backings`].
#[must_use]
pub fn backing_of(mapping: &Mapping) -> Backing {
    if SHMEM_PREFIXES
        .iter()
        .any(|prefix| mapping.name.starts_with(prefix))
    {
        Backing::Shmem
    } else if mapping.inode != 0 {
        Backing::File
    } else {
        Backing::Anon
    }
}

/// More aliases than this are not looked for: a process can have very many.
const MAX_ALIASES: usize = 1 << 16;

/// The parts of shared mappings whose memory another mapping has as well: ascending and disjoint. The largest
/// mapping of a file has its memory, and of equal ones the first.
#[must_use]
pub fn aliases(mappings: &[Mapping]) -> Vec<Alias> {
    // All anonymous inodes of one kind have the same number.
    let is_of_file = |mapping: &&Mapping| mapping.perms.shared && mapping.name.starts_with('/');
    let mut shared: Vec<&Mapping> = mappings.iter().filter(is_of_file).collect();
    shared.sort_by_key(|mapping| std::cmp::Reverse(mapping.range.len()));
    let mut files: BTreeMap<(u64, &str), Mapped> = BTreeMap::new();
    let mut aliases = Vec::new();
    for mapping in shared {
        let file = files.entry((mapping.inode, &mapping.name)).or_default();
        file.add(mapping, &mut aliases);
        if aliases.len() > MAX_ALIASES {
            return Vec::new();
        }
    }
    aliases.sort_by_key(|alias| alias.range.start);
    aliases
}

/// The parts of a file that a process maps: start in the file → end in the file and address.
#[derive(Debug, Default)]
struct Mapped(BTreeMap<u64, (u64, Addr)>);

impl Mapped {
    /// Adds a mapping. What others have already is an alias.
    fn add(&mut self, mapping: &Mapping, aliases: &mut Vec<Alias>) {
        let end = mapping.offset.saturating_add(mapping.range.len().0);
        let addr_of = |offset: u64| Addr(mapping.range.start.0 + (offset - mapping.offset));
        let mut at = mapping.offset;
        while at < end && aliases.len() <= MAX_ALIASES {
            let before = self.0.range(..=at).next_back();
            match before.filter(|(_, (mapped_end, _))| *mapped_end > at) {
                Some((start, (mapped_end, first))) => {
                    let until = end.min(*mapped_end);
                    aliases.push(Alias {
                        range: AddrRange::new(addr_of(at).0, addr_of(until).0),
                        first: Addr(first.0 + (at - start)),
                    });
                    at = until;
                }
                None => {
                    let next = self.0.range(at..).next().map_or(end, |(start, _)| *start);
                    let until = end.min(next);
                    self.0.insert(at, (until, addr_of(at)));
                    at = until;
                }
            }
        }
    }
}

// The kernel prints `maps` in pieces while the process runs. A mapping that grows downwards meanwhile can
// overlap the one printed before it. The overlap is cut off.
fn ranges_of(mappings: &[Mapping], is_monitored: impl Fn(&Mapping) -> bool) -> Vec<AddrRange> {
    let mut covered_to = Addr(0);
    let cut_overlap = |range: AddrRange| {
        let rest = AddrRange {
            start: range.start.max(covered_to),
            end: range.end,
        };
        covered_to = covered_to.max(range.end);
        (!rest.is_empty()).then_some(rest)
    };
    mappings
        .iter()
        .filter(|mapping| is_monitored(mapping))
        .map(|mapping| mapping.range)
        .filter_map(cut_overlap)
        .collect()
}

fn is_accessible(mapping: &Mapping) -> bool {
    let perms = mapping.perms;
    perms.read || perms.write || perms.exec
}

fn has_memory(mapping: &Mapping) -> bool {
    !mapping.is_special() && !mapping.is_device()
}

fn coalesced(ranges: Vec<AddrRange>) -> Vec<AddrRange> {
    let mut coalesced = Vec::new();
    for range in ranges {
        range.coalesce_into(&mut coalesced);
    }
    coalesced
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
            offset: 0,
            inode: 0,
            name: name.to_owned(),
        }
    }

    #[test]
    fn mappings_rule_coalesces_and_skips_kernel_and_devices() {
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
        let asked = std::cell::Cell::new(0);
        let holds_pages = |mapping: &Mapping| {
            asked.set(asked.get() + 1);
            mapping.range.start.0 == 50 << 12
        };
        let ranges = LayoutRule::Mappings.resident_ranges(&mappings, &holds_pages);
        assert_eq!(ranges.last(), Some(&AddrRange::new(50 << 12, 90 << 12)));
        assert_eq!((ranges.len(), asked.get()), (4, 1));
    }

    #[test]
    fn backings_are_anon_file_or_shmem() {
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
    fn ranges_of_overlapping_mappings_are_disjoint() {
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
    fn three_regions_ignore_vsyscall() {
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

    #[test]
    fn memory_mapped_more_than_once_is_found() {
        let view = |start: u64, end: u64, offset: u64, inode: u64, shared: bool| {
            let plain = mapping(start, end, "/memfd:heap (deleted)");
            Mapping {
                offset: offset << 12,
                inode,
                perms: Perms {
                    shared,
                    ..plain.perms
                },
                ..plain
            }
        };
        let found = aliases(&[
            view(100, 120, 10, 7, true),
            view(120, 140, 40, 7, true),
            // Another file, and a private copy.
            view(140, 160, 10, 8, true),
            view(160, 180, 10, 7, false),
            // Covers the end of the first, a gap, and the start of the second.
            view(200, 218, 25, 7, true),
            // The gap, which the mapping before it has filled.
            view(300, 305, 32, 7, true),
            // Anonymous inodes have the same number.
            Mapping {
                name: "anon_inode:[perf_event]".to_owned(),
                ..view(400, 410, 0, 9, true)
            },
            Mapping {
                name: "anon_inode:[perf_event]".to_owned(),
                ..view(420, 430, 0, 9, true)
            },
        ]);
        let alias = |start: u64, end: u64, first: u64| Alias {
            range: AddrRange::new(start << 12, end << 12),
            first: Addr(first << 12),
        };
        let expected = [alias(200, 205, 115), alias(215, 218, 120), alias(300, 305, 207)];
        assert_eq!(found, expected);
    }

    #[test]
    fn very_many_aliases_are_not_looked_for() {
        let view = |nth: u64, offset: u64, pages: u64| Mapping {
            offset: offset << 12,
            inode: 7,
            perms: Perms {
                shared: true,
                ..mapping(0, 1, "").perms
            },
            ..mapping(nth * 4000, nth * 4000 + pages, "/memfd:x (deleted)")
        };
        // Whole views over 1,000 parts with gaps between them.
        let parts = (0..1000).map(|nth| view(nth, nth * 2, 1));
        let whole = (1000..1200).map(|nth| view(nth, 0, 1000));
        let mappings: Vec<Mapping> = parts.chain(whole).collect();
        assert!(aliases(&mappings).len() <= MAX_ALIASES);
    }
}
