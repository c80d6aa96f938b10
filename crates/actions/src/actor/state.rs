//! The actor's state between requests.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use thermo_kernel::kpageflags::PageFrames;

use super::huge_state::Huge;
use super::move_journal::MoveJournal;
use super::nodes::Nodes;
use super::pageout_guard::PageoutGuard;
use super::returns::ReturnSamples;

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
    pub(super) cancel: Arc<AtomicBool>,
}
