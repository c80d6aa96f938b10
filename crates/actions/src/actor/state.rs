//! What the actor keeps from request to request.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use thermo_kernel::kpageflags::PageFrames;

use super::guard::Guard;
use super::huge_state::Huge;

/// The actor. See the text of `mod.rs`.
#[derive(Debug)]
pub struct Actor {
    pub(super) root: PathBuf,
    pub(super) frames: Option<PageFrames>,
    pub(super) guard: Guard,
    pub(super) huge: Huge,
    pub(super) dry_run: bool,
    pub(super) cancel: Arc<AtomicBool>,
}
