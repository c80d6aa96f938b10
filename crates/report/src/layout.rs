//! Mappings and memory sizes of the targets, as last recorded.
//!
//! Mappings are read once in each update interval, so they may be older than a snapshot. A region that was
//! accessed but lies in no known mapping is newer than the mappings, and counts as mapped.

use std::collections::BTreeMap;

use thermo_recording::model::{Footprint, Mapping, Mappings, Record, Region};

/// The last known mappings and sizes of all targets.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    mapped: BTreeMap<u32, Mapped>,
    footprints: BTreeMap<u32, Footprint>,
}

/// The mappings of one target.
#[derive(Debug, Clone, Default)]
struct Mapped {
    /// Runs of adjacent mappings: start, end, mapped bytes below start.
    runs: Vec<(u64, u64, u64)>,
    mappings: Vec<Mapping>,
}

impl Layout {
    /// Stores the mappings or sizes of `record`; ignores other records.
    pub fn add(&mut self, record: &Record) {
        match record {
            Record::Mappings(mappings) => {
                self.mapped.insert(mappings.target, Mapped::new(mappings));
            }
            Record::Footprint(footprint) => {
                self.footprints.insert(footprint.target, *footprint);
            }
            _ => {}
        }
    }

    /// Drops what is known of `target`: it has ended.
    pub fn remove(&mut self, target: u32) {
        self.mapped.remove(&target);
        self.footprints.remove(&target);
    }

    /// True if the mappings of `target` are known.
    #[must_use]
    pub fn has_mappings(&self, target: u32) -> bool {
        self.mapped.contains_key(&target)
    }

    /// The last known sizes of `target`.
    #[must_use]
    pub fn footprint(&self, target: u32) -> Option<&Footprint> {
        self.footprints.get(&target)
    }

    /// Mapped bytes of `region`; all its bytes if the mappings of `target` are not known.
    #[must_use]
    pub fn mapped_bytes(&self, target: u32, region: &Region) -> u64 {
        let whole = region.end.saturating_sub(region.start);
        let Some(mapped) = self.mapped.get(&target) else {
            return whole;
        };
        match mapped
            .below(region.end)
            .saturating_sub(mapped.below(region.start))
        {
            0 if region.nr_accesses > 0 || region.unknown => whole,
            bytes => bytes,
        }
    }

    /// Mapped ranges of `region`, in ascending order.
    pub fn mapped_ranges(&self, target: u32, region: &Region) -> impl Iterator<Item = (u64, u64)> + use<'_> {
        let (start, end) = (region.start, region.end);
        let whole = match self.mapped.get(&target) {
            Some(_) if self.mapped_bytes(target, region) < end.saturating_sub(start) => None,
            _ => Some((start, end)),
        };
        let runs = match (whole, self.mapped.get(&target)) {
            (None, Some(mapped)) => &mapped.runs[mapped.runs.partition_point(|run| run.1 <= start)..],
            _ => &[],
        };
        let cut = move |run: &(u64, u64, u64)| (run.0.max(start), run.1.min(end));
        whole
            .into_iter()
            .chain(runs.iter().take_while(move |run| run.0 < end).map(cut))
    }

    /// The kernel's name of the mapping with the largest part of `start..end`; `None` if nothing is mapped
    /// there.
    #[must_use]
    pub fn mapping_name(&self, target: u32, start: u64, end: u64) -> Option<&str> {
        let mappings = &self.mapped.get(&target)?.mappings;
        let first = mappings.partition_point(|mapping| mapping.end <= start);
        let overlap = |mapping: &&Mapping| mapping.end.min(end).saturating_sub(mapping.start.max(start));
        let inside = mappings[first..].iter().take_while(|mapping| mapping.start < end);
        inside.max_by_key(overlap).map(|mapping| mapping.name.as_str())
    }
}

impl Mapped {
    fn new(mappings: &Mappings) -> Self {
        let mut runs: Vec<(u64, u64, u64)> = Vec::new();
        let mut bytes = 0;
        for mapping in &mappings.mappings {
            match runs.last_mut() {
                Some(last) if last.1 == mapping.start => last.1 = mapping.end,
                _ => runs.push((mapping.start, mapping.end, bytes)),
            }
            bytes += mapping.end.saturating_sub(mapping.start);
        }
        Self {
            runs,
            mappings: mappings.mappings.clone(),
        }
    }

    /// Mapped bytes below `addr`.
    fn below(&self, addr: u64) -> u64 {
        let next = self.runs.partition_point(|run| run.0 < addr);
        next.checked_sub(1).map_or(0, |index| {
            let (start, end, before) = self.runs[index];
            before + end.min(addr).saturating_sub(start)
        })
    }
}

/// A short form of a mapping's name: the file name of a path, `[anon]` for anonymous memory.
#[must_use]
pub fn short_name(name: &str) -> &str {
    match name {
        "" => "[anon]",
        path if path.starts_with('/') => path.rsplit('/').next().unwrap_or(path),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        let mapping = |start, end, name: &str| Mapping {
            start,
            end,
            name: name.to_owned(),
        };
        let mappings = vec![
            mapping(10, 20, "/bin/a"),
            mapping(20, 30, "[heap]"),
            mapping(90, 100, ""),
        ];
        let mut layout = Layout::default();
        layout.add(&Record::Mappings(Mappings {
            time_ns: 0,
            target: 0,
            mappings,
        }));
        layout
    }

    fn region(start: u64, end: u64, nr_accesses: u32) -> Region {
        Region {
            start,
            end,
            nr_accesses,
            ..Region::default()
        }
    }

    #[test]
    fn mapped_bytes_and_ranges_exclude_gaps() {
        let layout = layout();
        for (start, end, bytes) in [(0, 200, 30), (15, 95, 20), (30, 90, 0), (12, 18, 6), (0, 10, 0)] {
            let region = region(start, end, 0);
            assert_eq!(layout.mapped_bytes(0, &region), bytes, "{start}..{end}");
            assert_eq!(
                layout
                    .mapped_ranges(0, &region)
                    .map(|(start, end)| end - start)
                    .sum::<u64>(),
                bytes
            );
        }
        assert_eq!(
            layout.mapped_ranges(0, &region(15, 95, 0)).collect::<Vec<_>>(),
            [(15, 30), (90, 95)]
        );
    }

    #[test]
    fn accessed_region_outside_mappings_counts_as_mapped() {
        assert_eq!(layout().mapped_bytes(0, &region(40, 50, 3)), 10);
        assert_eq!(layout().mapped_ranges(0, &region(40, 50, 3)).count(), 1);
        assert_eq!(
            layout().mapped_bytes(5, &region(40, 50, 0)),
            10,
            "all bytes count if the mappings are not known"
        );
    }

    #[test]
    fn mapping_name_is_that_of_largest_overlap() {
        assert_eq!(layout().mapping_name(0, 18, 30), Some("[heap]"));
        assert_eq!(layout().mapping_name(0, 40, 80), None);
        assert_eq!(
            ["", "[heap]", "/usr/lib/libc.so.6"].map(short_name),
            ["[anon]", "[heap]", "libc.so.6"]
        );
    }
}
