//! Scan state of one target, kept from pass to pass.

use std::collections::BTreeSet;

use thermo_engine::TargetId;
use thermo_units::AddrRange;

use super::exclusive_cache::ExclusiveCache;
use super::folio_young::FolioYoung;
use super::gap_cost::GapCost;
use super::page_bits::MIN_STRIPE;
use super::spot_check::SpotCheck;
use super::uncleared_cache::UnclearedCache;

/// The state. Each target is scanned at its own pace.
#[derive(Debug)]
pub(super) struct TargetScan {
    /// Pages whose accessed bits are not cleared in each pass.
    pub(super) spot_check: SpotCheck,
    /// Pages that are known to be mapped exclusively by the target.
    pub(super) exclusive: ExclusiveCache,
    /// Pages that the kernel does not clear.
    pub(super) uncleared: UnclearedCache,
    /// Which folios are checked for the young flag.
    pub(super) folio_young: FolioYoung,
    /// Estimate of the largest gap that is worth bridging.
    pub(super) gap_cost: GapCost,
    /// Memory that is read before it is cleared.
    pub(super) stripe: u64,
    /// Chunks that were scanned.
    pub(super) chunks: BTreeSet<u64>,
    /// All mappings, if this pass needed them.
    pub(super) mappings: Option<Vec<AddrRange>>,
}

impl TargetScan {
    /// Empty state of target `id`, with an initial estimate of costs.
    pub(super) fn new(id: TargetId, gap_cost: GapCost) -> Self {
        Self {
            spot_check: SpotCheck::default(),
            exclusive: ExclusiveCache::default(),
            uncleared: UnclearedCache::new(id),
            folio_young: FolioYoung::default(),
            gap_cost,
            stripe: MIN_STRIPE,
            chunks: BTreeSet::new(),
            mappings: None,
        }
    }

    /// Begins a pass. `other_monitors`: whether other monitors exist, which record cleared bits in folios.
    pub(super) fn begin_pass(&mut self, other_monitors: bool) {
        self.spot_check.begin_pass();
        self.exclusive.begin_pass();
        self.uncleared.begin_pass();
        self.folio_young.begin_pass(other_monitors);
        self.mappings = None;
    }

    /// Forgets what was found, because the target is sampled now: most of its pages will keep old accessed
    /// bits.
    pub(super) fn forget(&mut self) {
        self.spot_check = SpotCheck::default();
        self.exclusive = ExclusiveCache::default();
        self.chunks.clear();
    }
}
