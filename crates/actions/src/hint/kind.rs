//! Kinds of pages.

/// A kind of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Anonymous ones.
    Anon,
    /// Those of files, and shared memory.
    File,
}
