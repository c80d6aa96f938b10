//! What scans keep of one target from pass to pass.

use std::collections::BTreeSet;

use thermo_engine::TargetId;
use thermo_units::AddrRange;

use super::exclusive_cache::ExclusiveCache;
use super::folio_young::FolioYoung;
use super::gap_cost::GapCost;
use super::spot_check::SpotCheck;
use super::table::STRIPE;
use super::uncleared_cache::UnclearedCache;

/// The state. Each target is scanned at its own pace.
#[derive(Debug)]
pub(super) struct TargetScan {
    /// Pages whose accessed bits need not be cleared in each pass.
    pub(super) spots: SpotCheck,
    /// Pages that are known to be mapped by the target alone.
    pub(super) exclusive: ExclusiveCache,
    /// Pages that the kernel is known not to clear.
    pub(super) uncleared: UnclearedCache,
    /// Whose folios are asked.
    pub(super) young: FolioYoung,
    /// Up to which gap ranges are joined.
    pub(super) gap_cost: GapCost,
    /// How much is read before it is cleared.
    pub(super) stripe: u64,
    /// Chunks that were scanned.
    pub(super) chunks: BTreeSet<u64>,
    /// All mappings, where a pass needed them.
    pub(super) mappings: Option<Vec<AddrRange>>,
}

impl TargetScan {
    /// Nothing is known of target `id` but an estimate of costs.
    pub(super) fn new(id: TargetId, gap_cost: GapCost) -> Self {
        Self {
            spots: SpotCheck::default(),
            exclusive: ExclusiveCache::default(),
            uncleared: UnclearedCache::of(id),
            young: FolioYoung::default(),
            gap_cost,
            stripe: STRIPE,
            chunks: BTreeSet::new(),
            mappings: None,
        }
    }

    /// A pass begins. Whether `others` clear accessed bits and note that in folios.
    pub(super) fn begin_pass(&mut self, others: bool) {
        self.spots.begin_pass();
        self.exclusive.begin_pass();
        self.uncleared.begin_pass();
        self.young.begin_pass(others);
        self.mappings = None;
    }

    /// The target is sampled: from now on most pages keep accessed bits that are old.
    pub(super) fn leave_to_samples(&mut self) {
        self.spots = SpotCheck::default();
        self.exclusive = ExclusiveCache::default();
        self.chunks.clear();
    }
}
