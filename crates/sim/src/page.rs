//! One simulated page.

/// Where a page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Place {
    /// Never touched, or given back.
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
    /// Where it is.
    pub place: Place,
    /// Touched since the mark was last taken off.
    pub accessed: bool,
    /// Mapped by others too: marks cannot be taken off and nothing can be done to it.
    pub shared: bool,
    /// On the active LRU list.
    pub active: bool,
    /// How often it had to be brought back from swap.
    pub refaults: u32,
}

impl Page {
    /// Somebody reads or writes it.
    pub(crate) fn touch(&mut self) {
        if self.place == Place::Swapped {
            self.refaults += 1;
        }
        self.place = Place::Present;
        self.accessed = true;
    }
}
