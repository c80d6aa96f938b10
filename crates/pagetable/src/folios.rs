//! Which folios are read along with the page tables.

/// Of which leaves the folio is looked at as well, where folios can be read: a read or two of the kernel's memory
/// each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Folios {
    /// Of none.
    #[default]
    Unasked = 0,
    /// Of those that are not marked accessed: it tells whether somebody else took the mark off.
    OfUnmarked = 1,
    /// Of all: it tells how large they are, too. In whole tables the same as [`Folios::OfUnmarked`].
    OfAll = 2,
}
