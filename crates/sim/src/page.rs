//! One simulated page.

/// The location of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PageLocation {
    /// Never touched, or freed.
    #[default]
    Absent,
    /// In memory.
    Present,
    /// In swap.
    Swapped,
}

/// A page of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Page {
    /// Location of the page.
    pub location: PageLocation,
    /// The accessed bit.
    pub accessed: bool,
    /// Other processes map the page too: its accessed bit cannot be cleared, and actions skip it.
    pub shared: bool,
    /// The page is on the active LRU list.
    pub active: bool,
    /// Number of refaults from swap.
    pub refaults: u32,
    /// The memory node the page is on, or will be on when it is touched.
    pub node: u32,
}

impl Page {
    /// Simulates a read or write.
    pub(crate) fn touch(&mut self) {
        if self.location == PageLocation::Swapped {
            self.refaults += 1;
        }
        self.location = PageLocation::Present;
        self.accessed = true;
    }
}
