//! Anonymous and file pages.

/// A kind of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageKind {
    /// Anonymous pages.
    Anon,
    /// Pages of files, and shared memory.
    File,
}
