//! What is known of the targets besides their regions: which bytes are mapped, how they are called, how much of
//! them is resident. The last word on each target is kept.
//!
//! Mappings are read once an update interval, so they may be older than a snapshot: a region that was accessed but lies
//! in no known mapping is newer than they are and counts whole.

use std::collections::BTreeMap;

use thermo_recording::model::{Footprint, Mapping, Mappings, Record, Region};

/// Mappings and sizes of all targets, as of the last record.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    mapped: BTreeMap<u32, Mapped>,
    footprints: BTreeMap<u32, Footprint>,
}

/// The mappings of one target, with their bytes summed up.
#[derive(Debug, Clone, Default)]
struct Mapped {
    /// Runs of touching mappings: start, end, mapped bytes below start.
    runs: Vec<(u64, u64, u64)>,
    mappings: Vec<Mapping>,
}

impl Layout {
    /// Takes what a record tells of a target.
    pub fn add(&mut self, record: &Record) {
        match record {
            Record::Mappings(mappings) => {
                self.mapped.insert(mappings.target, Mapped::of(mappings));
            }
            Record::Footprint(footprint) => {
                self.footprints.insert(footprint.target, *footprint);
            }
            _ => {}
        }
    }

    /// True when the mappings of `target` were read.
    #[must_use]
    pub fn knows(&self, target: u32) -> bool {
        self.mapped.contains_key(&target)
    }

    /// The last sizes of `target`.
    #[must_use]
    pub fn footprint(&self, target: u32) -> Option<&Footprint> {
        self.footprints.get(&target)
    }

    /// The bytes of `region` that are memory, not gaps.
    #[must_use]
    pub fn bytes(&self, target: u32, region: &Region) -> u64 {
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

    /// The pieces of `region` that are memory, ascending.
    pub fn pieces(&self, target: u32, region: &Region) -> impl Iterator<Item = (u64, u64)> + use<'_> {
        let (start, end) = (region.start, region.end);
        let whole = match self.mapped.get(&target) {
            Some(_) if self.bytes(target, region) < end.saturating_sub(start) => None,
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

    /// What the kernel calls the mapping that holds most of `start..end`; `None` when there is none.
    #[must_use]
    pub fn name(&self, target: u32, start: u64, end: u64) -> Option<&str> {
        let mappings = &self.mapped.get(&target)?.mappings;
        let first = mappings.partition_point(|mapping| mapping.end <= start);
        let overlap = |mapping: &&Mapping| mapping.end.min(end).saturating_sub(mapping.start.max(start));
        let inside = mappings[first..].iter().take_while(|mapping| mapping.start < end);
        inside.max_by_key(overlap).map(|mapping| mapping.name.as_str())
    }
}

impl Mapped {
    fn of(mappings: &Mappings) -> Self {
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

/// A mapping's name as it is shown in little space: the last part of a path, `[anon]` for anonymous memory.
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
    fn bytes_and_pieces_leave_gaps_out() {
        let layout = layout();
        for (start, end, bytes) in [(0, 200, 30), (15, 95, 20), (30, 90, 0), (12, 18, 6), (0, 10, 0)] {
            let region = region(start, end, 0);
            assert_eq!(layout.bytes(0, &region), bytes, "{start}..{end}");
            assert_eq!(
                layout
                    .pieces(0, &region)
                    .map(|(start, end)| end - start)
                    .sum::<u64>(),
                bytes
            );
        }
        assert_eq!(
            layout.pieces(0, &region(15, 95, 0)).collect::<Vec<_>>(),
            [(15, 30), (90, 95)]
        );
    }

    #[test]
    fn accessed_memory_that_is_newer_than_the_mappings_counts() {
        assert_eq!(layout().bytes(0, &region(40, 50, 3)), 10);
        assert_eq!(layout().pieces(0, &region(40, 50, 3)).count(), 1);
        assert_eq!(
            layout().bytes(5, &region(40, 50, 0)),
            10,
            "a target without mappings counts whole"
        );
    }

    #[test]
    fn the_name_is_that_of_the_largest_part() {
        assert_eq!(layout().name(0, 18, 30), Some("[heap]"));
        assert_eq!(layout().name(0, 40, 80), None);
        assert_eq!(
            ["", "[heap]", "/usr/lib/libc.so.6"].map(short_name),
            ["[anon]", "[heap]", "libc.so.6"]
        );
    }
}
