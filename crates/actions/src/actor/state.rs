//! The actor's state between requests.

use std::collections::BTreeMap;
use std::path::PathBuf;

use thermo_kernel::kpageflags::PageFrames;
use thermo_units::Bytes;

use super::huge_state::Huge;
use super::move_journal::MoveJournal;
use super::nodes::Nodes;
use super::pageout_guard::PageoutGuard;
use super::returns::ReturnSamples;
use super::stop::Stop;

/// Applies actions to the memory of processes. See the documentation of `mod.rs`.
#[derive(Debug)]
pub struct Actor {
    pub(super) root: PathBuf,
    pub(super) frames: Option<PageFrames>,
    pub(super) guard: PageoutGuard,
    pub(super) huge: Huge,
    pub(super) returns: ReturnSamples,
    pub(super) nodes: Nodes,
    pub(super) journal: MoveJournal,
    pub(super) dry_run: bool,
    /// Memory that the dry run of this request would have moved to each node.
    pub(super) promised: BTreeMap<u32, Bytes>,
    pub(super) stop: Stop,
}
