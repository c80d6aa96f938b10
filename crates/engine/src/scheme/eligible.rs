//! The value of the goal [`Goal::NodeEligibleMem`](super::Goal::NodeEligibleMem).
//!
//! The kernel looks up every folio of the eligible regions (`damos_calc_eligible_bytes()`). Here the node of
//! a page has to be asked for, so pages are drawn at random: at most [`SAMPLE`] at a time, one from each of
//! as many equal parts of the eligible memory. The standard error is then at most 1.6 percentage points.
//! Memory of up to [`SAMPLE`] pages is asked for completely.

use super::Scheme;
use super::candidate::{ApplyInput, TargetMut};
use crate::ops::{NodeCount, Operations, OpsError, TargetRange};
use crate::rng::Rng;
use crate::target_id::TargetId;
use thermo_units::{Addr, Bytes, PAGE_SIZE};

/// Pages of one sample.
const SAMPLE: u64 = 1024;
/// Sparse mappings have few resident pages: samples are drawn until this many were found.
const ENOUGH: u64 = SAMPLE / 2;
const MAX_SAMPLES: u32 = 4;

/// The share of the memory that matches the pattern of `scheme` that is on node `nid`, in ten-thousandths of
/// its resident pages. Filters of the scheme and pages that are shared make no difference. `None` if no
/// sampled page is resident.
///
/// # Errors
/// Those of [`Operations::count_on_node`].
pub(super) fn share_on_node(
    scheme: &Scheme,
    targets: &[TargetMut<'_>],
    input: &ApplyInput<'_>,
    nid: u32,
    ops: &mut dyn Operations,
) -> Result<Option<u64>, OpsError> {
    let ranges = eligible(scheme, targets, input);
    let nr_pages = ranges.iter().map(pages_of).sum();
    let mut rng = Rng::new(input.now.0);
    let mut found = NodeCount::default();
    for _ in 0..MAX_SAMPLES {
        if nr_pages == 0 || found.resident >= ENOUGH {
            break;
        }
        let NodeCount { resident, on_node } = ops.count_on_node(nid, &draw(&ranges, nr_pages, &mut rng))?;
        found.resident += resident;
        found.on_node += on_node;
        if nr_pages <= SAMPLE {
            break;
        }
    }
    Ok((found.on_node * 10_000).checked_div(found.resident))
}

/// The memory that matches the pattern, by target and address.
fn eligible(scheme: &Scheme, targets: &[TargetMut<'_>], input: &ApplyInput<'_>) -> Vec<TargetRange> {
    let mut ranges = Vec::new();
    for target in targets {
        let matching = target.regions.iter().filter(|region| {
            // As in the selection, unknown memory counts as not cold.
            let may_be_hot = region.unknown && scheme.action.requires_cold();
            let is_empty = region.resident == Some(Bytes::ZERO);
            !may_be_hot && !is_empty && scheme.pattern.matches(region, input.attrs)
        });
        ranges.extend(matching.map(|region| TargetRange {
            target: target.id,
            range: region.range,
        }));
    }
    ranges
}

fn pages_of(range: &TargetRange) -> u64 {
    range.range.len().0 / PAGE_SIZE
}

/// Draws one page from each of [`SAMPLE`] equal parts of `ranges`, which have `nr_pages` pages. A fixed
/// distance between the pages could fall in with that of pages interleaved between nodes.
fn draw(ranges: &[TargetRange], nr_pages: u64, rng: &mut Rng) -> Vec<(TargetId, Addr)> {
    let nr = nr_pages.min(SAMPLE);
    let part = |nth: u64| {
        let start = u128::from(nr_pages) * u128::from(nth) / u128::from(nr.max(1));
        u64::try_from(start).unwrap_or(nr_pages)
    };
    let mut drawn = Vec::new();
    // The ranges are gone through once, with the number of pages before each.
    let mut ranges = ranges.iter();
    let (mut range, mut before) = (ranges.next(), 0);
    for nth in 0..nr {
        let (start, end) = (part(nth), part(nth + 1));
        let page = start + rng.below(end - start);
        while let Some(current) = range {
            if page < before + pages_of(current) {
                let addr = current.range.start + Bytes((page - before) * PAGE_SIZE);
                drawn.push((current.target, addr));
                break;
            }
            before += pages_of(current);
            range = ranges.next();
        }
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_units::AddrRange;

    fn range(target: u32, start: u64, end: u64) -> TargetRange {
        TargetRange {
            target: TargetId(target),
            range: AddrRange::new(start * PAGE_SIZE, end * PAGE_SIZE),
        }
    }

    #[test]
    fn small_memory_is_drawn_completely() {
        let ranges = [range(0, 7, 9), range(2, 100, 103)];
        let drawn = draw(&ranges, 5, &mut Rng::new(1));
        let pages: Vec<(u32, u64)> = drawn
            .iter()
            .map(|(id, addr)| (id.0, addr.0 / PAGE_SIZE))
            .collect();
        assert_eq!(pages, [(0, 7), (0, 8), (2, 100), (2, 101), (2, 102)]);
        assert!(draw(&[], 0, &mut Rng::new(1)).is_empty());
    }

    #[test]
    fn large_memory_is_drawn_evenly_but_not_at_a_fixed_distance() {
        // 1 TiB in 1024 parts of 1 GiB.
        let pages = 1 << 28;
        let ranges = [range(0, 0, pages / 4), range(1, pages / 4, pages)];
        let drawn = draw(&ranges, pages, &mut Rng::new(3));
        assert_eq!(drawn.len(), 1024);
        for (nth, (id, addr)) in drawn.iter().enumerate() {
            assert_eq!(addr.0 >> 30, nth as u64, "one page of each part");
            assert_eq!(id.0, u32::from(nth >= 256));
        }
        let odd = drawn
            .iter()
            .filter(|(_, addr)| (addr.0 / PAGE_SIZE) % 2 == 1)
            .count();
        assert!((400..624).contains(&odd), "{odd} of 1024 pages are odd");
    }
}
