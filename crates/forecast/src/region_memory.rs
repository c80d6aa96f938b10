//! A target replayed by its recorded regions: sampled targets, and schemes that test addresses or sizes.
//!
//! A region with an access counts as accessed throughout, a region without one as idle for its age. Idle
//! regions span memory that is not resident, so their bytes are scaled to the resident size less the accessed
//! memory. Regions of memory that has left are not handed to the engine again. The live engine tries them
//! again at every age, which uses quota but changes nothing.

use rangemap::RangeSet;
use thermo_engine::Region;
use thermo_engine::access_tables::Backing;
use thermo_recording::model;
use thermo_units::{Addr, AddrRange, Bytes, PAGE_SIZE};

use crate::target::{BACKINGS, ByBacking, Known, PageFilters, TargetMemory, TargetView};

/// Maximum size of the regions of a target. They can span gaps between mappings; damaged recordings can have
/// more, and sums over many snapshots would overflow.
const MAX_BYTES: u64 = 1 << 48;

/// The memory of a target in the replay.
#[derive(Debug, Default)]
pub struct RegionMemory {
    /// Addresses that have left.
    out: RangeSet<u64>,
    /// Mapped memory of the last snapshot: ascending, disjoint.
    pieces: Vec<Piece>,
}

/// Mapped memory of one region and one mapping.
#[derive(Debug, Clone, Copy)]
struct Piece {
    range: AddrRange,
    backing: Backing,
    /// Resident bytes of each byte of address space.
    density: f64,
    /// Accessed, or its accesses are not known.
    in_use: bool,
}

impl Piece {
    /// Resident bytes of the part in `range`.
    fn bytes_in(&self, range: &AddrRange) -> u64 {
        let part = self.range.intersection(range).map_or(0, |part| part.len().0);
        (part as f64 * self.density) as u64
    }
}

impl TargetMemory for RegionMemory {
    fn update(&mut self, view: &TargetView<'_>) -> u64 {
        let mut refaults = 0;
        for region in regions(view.target).filter(|region| region.nr_accesses > 0) {
            let range = range_of(region);
            let out: Vec<AddrRange> = self
                .out
                .overlapping(&(range.start.0..range.end.0))
                .map(address_range)
                .collect();
            for back in out.iter().filter_map(|out| out.intersection(&range)) {
                // With the densities from before the access.
                refaults += self.bytes(&back).iter().sum::<u64>();
                self.out.remove(back.start.0..back.end.0);
            }
        }
        self.pieces = pieces(view);
        refaults
    }

    fn regions(&mut self, view: &TargetView<'_>) -> Vec<Region> {
        let mut resident_regions = Vec::new();
        for recorded in regions(view.target) {
            let whole = range_of(recorded);
            for resident in self.out.gaps(&(whole.start.0..whole.end.0)) {
                resident_regions.push(Region {
                    nr_accesses: recorded.nr_accesses,
                    nr_accesses_bp: u64::from(recorded.nr_accesses) * 10_000,
                    age: recorded.age.unwrap_or(0),
                    unknown: is_unknown(recorded),
                    ..Region::new(address_range(&resident))
                });
            }
        }
        resident_regions
    }

    fn page_out(&mut self, range: AddrRange, filters: &PageFilters<'_>) -> Bytes {
        let mut left = 0;
        let first = self
            .pieces
            .partition_point(|piece| piece.range.end <= range.start);
        for piece in &self.pieces[first..] {
            let Some(part) = piece.range.intersection(&range) else {
                break;
            };
            if filters.pass(piece.backing, piece.in_use) {
                let resident: Vec<AddrRange> = self
                    .out
                    .gaps(&(part.start.0..part.end.0))
                    .map(|gap| address_range(&gap))
                    .collect();
                left += resident.iter().map(|range| piece.bytes_in(range)).sum::<u64>();
                self.out.insert(part.start.0..part.end.0);
            }
        }
        if filters.0.is_empty() {
            // Also the gaps between mappings, which have no memory: they must not use quota again and again.
            self.out.insert(range.start.0..range.end.0);
        }
        Bytes(left)
    }

    fn out(&self) -> ByBacking {
        let mut sum: ByBacking = [0; 3];
        for out in self.out.iter().map(address_range) {
            let bytes = self.bytes(&out);
            sum.iter_mut().zip(bytes).for_each(|(sum, bytes)| *sum += bytes);
        }
        sum
    }
}

impl RegionMemory {
    /// Resident bytes of `range` in the recording.
    fn bytes(&self, range: &AddrRange) -> ByBacking {
        let first = self
            .pieces
            .partition_point(|piece| piece.range.end <= range.start);
        let inside = self.pieces[first..]
            .iter()
            .take_while(|piece| piece.range.start < range.end);
        let mut bytes: ByBacking = [0; 3];
        for piece in inside {
            let sum = &mut bytes[piece.backing as usize];
            *sum = sum.saturating_add(piece.bytes_in(range));
        }
        bytes
    }
}

fn address_range(range: &std::ops::Range<u64>) -> AddrRange {
    AddrRange::new(range.start, range.end)
}

/// The regions of `target`, without those that only damaged recordings have: empty, out of order, too large.
fn regions(target: &model::Target) -> impl Iterator<Item = &model::Region> {
    let (mut end, mut bytes) = (Addr(0), 0_u64);
    target.regions.iter().filter(move |region| {
        let range = range_of(region);
        bytes = bytes.saturating_add(range.len().0);
        let is_valid = !range.is_empty() && range.start >= end && bytes <= MAX_BYTES;
        end = if is_valid { range.end } else { end };
        is_valid
    })
}

/// Memory that no scheme may match: its accesses are unknown, or for how long it was idle.
const fn is_unknown(region: &model::Region) -> bool {
    region.unknown || region.age.is_none()
}

/// The whole pages of `region`.
fn range_of(region: &model::Region) -> AddrRange {
    let start = region.start.div_ceil(PAGE_SIZE).saturating_mul(PAGE_SIZE);
    let end = Addr(region.end).align_down().0.max(start);
    AddrRange::new(start, end)
}

/// The mapped memory of the regions, with its density.
fn pieces(view: &TargetView<'_>) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let (mut bytes_in_use, mut idle) = (0_u64, 0_u64);
    for region in regions(view.target) {
        let in_use = region.nr_accesses > 0 || is_unknown(region);
        for (range, backing) in mapped(range_of(region), view.known) {
            // Memory whose accesses are not known takes its place, and never leaves.
            let sum = if in_use { &mut bytes_in_use } else { &mut idle };
            *sum = sum.saturating_add(range.len().0);
            let density = 1.0;
            pieces.push(Piece {
                range,
                backing,
                density,
                in_use,
            });
        }
    }
    if let Some(resident) = resident(view).filter(|_| idle > 0) {
        let density = (resident.saturating_sub(bytes_in_use) as f64 / idle as f64).min(1.0);
        let cold = pieces.iter_mut().filter(|piece| !piece.in_use);
        cold.for_each(|piece| piece.density = density);
    }
    pieces
}

fn resident(view: &TargetView<'_>) -> Option<u64> {
    let tables = view.target.tables.as_deref();
    tables.map(|tables| tables.resident().0).or(view.known.rss)
}

/// The parts of `range` in known mappings; all of it, as anonymous memory, if no mappings were recorded.
fn mapped(range: AddrRange, known: &Known) -> Vec<(AddrRange, Backing)> {
    let Some(mappings) = &known.mappings else {
        return vec![(range, BACKINGS[0])];
    };
    let first = mappings.partition_point(|(mapping, _)| mapping.end <= range.start);
    let inside = mappings[first..]
        .iter()
        .take_while(|(mapping, _)| mapping.start < range.end);
    inside
        .filter_map(|(mapping, backing)| Some((mapping.intersection(&range)?, *backing)))
        .collect()
}
