//! The choice of folios that are read along with the page tables.

/// The leaves whose folio is read as well, where folios can be read. Each costs one or two reads of kernel
/// memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Folios {
    /// No folio is read.
    #[default]
    None = 0,
    /// Leaves whose accessed bit is clear: the folio shows whether another user cleared the bit.
    NotAccessed = 1,
    /// All leaves: the folio shows its size, too. For whole tables the same as [`Folios::NotAccessed`].
    All = 2,
}
