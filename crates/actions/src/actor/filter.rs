//! Which pages of a run a scheme's filters let through.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use thermo_engine::ops::{Applied, OpsError, Skip};
use thermo_engine::scheme::{OpsFilter, OpsFilterKind};
use thermo_kernel::cgroup::Group;
use thermo_kernel::kpageflags::PageFrames;
use thermo_kernel::pagemap::{Page, Pagemap};
use thermo_targets::{Inspector, PageView, Process};
use thermo_units::{Addr, AddrRange, Bytes, PAGE_SIZE};

use super::spans;

/// A filter whose question is ready to be put to a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Question {
    Anon,
    /// Charged to the group whose folder has this inode.
    Memcg(u64),
    Young,
    Active,
    HugepageSize(Bytes, Bytes),
    /// Always answered no: a page found by its address in a process is mapped.
    Unmapped,
}

/// The filters of a request.
#[derive(Debug)]
pub(super) struct PageFilters {
    /// Question, the answer it speaks of, and whether that is allowed.
    filters: Vec<(Question, bool, bool)>,
}

/// What can be seen of a page.
struct PageFacts<'a> {
    page: Page,
    view: PageView,
    frames: Option<&'a PageFrames>,
}

impl PageFilters {
    /// Makes them ready, or says which of them cannot be answered here.
    pub(super) fn new(
        root: &Path,
        filters: &[OpsFilter],
        has_tables: bool,
        has_frames: bool,
    ) -> Result<Self, OpsError> {
        let ready = |filter: &OpsFilter| {
            let question = question(root, &filter.kind, has_tables, has_frames)?;
            Ok((question, filter.matching, filter.allow))
        };
        Ok(Self {
            filters: filters.iter().map(ready).collect::<Result<_, _>>()?,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }

    pub(super) fn asks_for_young(&self) -> bool {
        self.filters
            .iter()
            .any(|(question, _, _)| *question == Question::Young)
    }

    fn asks_for_tables(&self) -> bool {
        let of_tables =
            |question: &Question| matches!(question, Question::Young | Question::HugepageSize(..));
        self.filters.iter().any(|(question, _, _)| of_tables(question))
    }

    /// The first filter that speaks of the page decides; if none does, the page is kept out when the last filter
    /// is one that allows (it named what it wants), and let through otherwise.
    fn allows(&self, facts: &PageFacts<'_>) -> bool {
        let decides = self
            .filters
            .iter()
            .find(|(question, matching, _)| facts.answers(*question) == *matching);
        match decides {
            Some((_, _, allow)) => *allow,
            None => self.filters.last().is_none_or(|(_, _, allow)| !allow),
        }
    }

    /// What of `range` they let through. Pages that are not there pass only if `absent_too`, by what is known of
    /// them; the rest is counted in `applied`.
    pub(super) fn passed(
        &self,
        process: &Process,
        range: AddrRange,
        absent_too: bool,
        reader: &mut PageReader<'_>,
        applied: &mut Applied,
    ) -> Vec<AddrRange> {
        let mut passed = Vec::new();
        for chunk in spans::cut(&[range], Bytes::mib(2)) {
            reader.look(process, chunk, self.asks_for_tables());
            for (n, addr) in (chunk.start.0..chunk.end.0)
                .step_by(PAGE_SIZE as usize)
                .enumerate()
            {
                let page = AddrRange {
                    start: Addr(addr),
                    end: Addr(addr) + Bytes(PAGE_SIZE),
                };
                let facts = reader.facts(n);
                if !facts.page.is_present() && !absent_too {
                    applied.skip(Skip::NotPresent, page.len());
                } else if self.allows(&facts) {
                    page.join_onto(&mut passed);
                } else {
                    applied.skip(Skip::Filtered, page.len());
                }
            }
        }
        passed
    }
}

fn question(
    root: &Path,
    kind: &OpsFilterKind,
    has_tables: bool,
    has_frames: bool,
) -> Result<Question, OpsError> {
    let cannot = |what: &str, why: &str| {
        Err(OpsError::Unsupported {
            what: what.into(),
            why: why.into(),
        })
    };
    let tables = "it is read from page tables, which this tracker does not read; use --tracker pte";
    let frames = "it is read from /proc/kpageflags, which needs root";
    match kind {
        OpsFilterKind::Anon => Ok(Question::Anon),
        OpsFilterKind::Unmapped => Ok(Question::Unmapped),
        OpsFilterKind::Young if !has_tables => cannot("the filter young", tables),
        OpsFilterKind::Young => Ok(Question::Young),
        OpsFilterKind::HugepageSize { .. } if !has_tables => cannot("the filter hugepage_size", tables),
        OpsFilterKind::HugepageSize { min, max } => Ok(Question::HugepageSize(*min, *max)),
        OpsFilterKind::Active if !has_frames => cannot("the filter active", frames),
        OpsFilterKind::Active => Ok(Question::Active),
        OpsFilterKind::Memcg(_) if !has_frames => cannot("the filter memcg", frames),
        OpsFilterKind::Memcg(path) => Group::find_in(root, "memory", path)
            .map_err(|error| error.to_string())
            .and_then(|group| std::fs::metadata(group.dir).map_err(|error| error.to_string()))
            .map(|folder| Question::Memcg(folder.ino()))
            .map_err(|why| OpsError::Unsupported {
                what: format!("the filter memcg {path}"),
                why,
            }),
    }
}

impl PageFacts<'_> {
    fn answers(&self, question: Question) -> bool {
        let frame = self.page.pfn().zip(self.frames);
        match question {
            Question::Anon => (self.page.is_present() || self.page.is_swapped()) && !self.page.is_file(),
            Question::Unmapped => false,
            Question::Young => matches!(self.view, PageView::Page { accessed: true, .. }),
            Question::Active => frame
                .and_then(|(pfn, frames)| frames.flags(pfn).ok())
                .is_some_and(|flags| flags.is_active()),
            Question::Memcg(inode) => frame
                .and_then(|(pfn, frames)| frames.cgroup(pfn).ok())
                .is_some_and(|owner| owner == inode),
            Question::HugepageSize(min, max) => match self.view {
                PageView::Page { size, .. } => self.view.is_huge() && min <= size && size <= max,
                PageView::Absent { .. } | PageView::Unknown => false,
            },
        }
    }
}

/// Where pages are looked at.
pub(super) struct PageReader<'a> {
    pub pagemap: &'a Pagemap,
    pub frames: Option<&'a PageFrames>,
    pub tables: Inspector<'a>,
    pages: Vec<Page>,
    views: Vec<PageView>,
}

impl<'a> PageReader<'a> {
    pub(super) fn new(pagemap: &'a Pagemap, frames: Option<&'a PageFrames>, tables: Inspector<'a>) -> Self {
        Self {
            pagemap,
            frames,
            tables,
            pages: Vec::new(),
            views: Vec::new(),
        }
    }

    fn look(&mut self, process: &Process, chunk: AddrRange, at_tables: bool) {
        self.views.clear();
        // What cannot be read is not there.
        if self.pagemap.read(chunk, &mut self.pages).is_err() {
            self.pages.clear();
        }
        if let Some(tables) = self.tables.as_deref_mut().filter(|_| at_tables) {
            let addrs: Vec<Addr> = (chunk.start.0..chunk.end.0)
                .step_by(PAGE_SIZE as usize)
                .map(Addr)
                .collect();
            tables.inspect(process, &addrs, true, &mut self.views);
        }
    }

    fn facts(&self, n: usize) -> PageFacts<'_> {
        PageFacts {
            page: self.pages.get(n).copied().unwrap_or_default(),
            view: self.views.get(n).copied().unwrap_or(PageView::Unknown),
            frames: self.frames,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn filter(kind: OpsFilterKind, matching: bool, allow: bool) -> OpsFilter {
        OpsFilter {
            kind,
            matching,
            allow,
        }
    }

    fn decide(filters: &[OpsFilter], anon: bool, young: bool) -> bool {
        let filters = PageFilters::new(Path::new("/"), filters, true, true).unwrap();
        let page = Page::from_bits(1 << 63 | if anon { 0 } else { 1 << 61 });
        filters.allows(&PageFacts {
            page,
            view: PageView::Page {
                size: Bytes(PAGE_SIZE),
                accessed: young,
            },
            frames: None,
        })
    }

    #[test]
    fn the_first_filter_that_speaks_of_a_page_decides() {
        use OpsFilterKind::{Anon, Young};
        assert!(decide(&[], true, true));
        // Only anonymous pages: two ways to say it.
        for only_anon in [filter(Anon, false, false), filter(Anon, true, true)] {
            assert!(
                decide(std::slice::from_ref(&only_anon), true, false),
                "{only_anon:?}"
            );
            assert!(!decide(&[only_anon], false, false));
        }
        // Anonymous ones whatever else; of the others those that are not young.
        let both = [filter(Anon, true, true), filter(Young, true, false)];
        assert!(decide(&both, true, true));
        assert!(!decide(&both, false, true));
        assert!(
            decide(&both, false, false),
            "the last filter rejects, so what it does not speak of passes"
        );
        let both = [filter(Young, true, false), filter(Anon, true, true)];
        assert!(!decide(&both, true, true));
        assert!(decide(&both, true, false));
        assert!(
            !decide(&both, false, false),
            "the last filter allows, so what it does not speak of is kept out"
        );
    }

    #[test]
    fn a_huge_page_is_told_by_its_leaf() {
        let sizes = OpsFilterKind::HugepageSize {
            min: Bytes::mib(2),
            max: Bytes::mib(2),
        };
        let filters = PageFilters::new(Path::new("/"), &[filter(sizes, true, true)], true, false).unwrap();
        let page = Page::from_bits(1 << 63);
        let of_size = |size| PageFacts {
            page,
            view: PageView::Page {
                size,
                accessed: false,
            },
            frames: None,
        };
        assert!(filters.allows(&of_size(Bytes::mib(2))));
        assert!(!filters.allows(&of_size(Bytes(PAGE_SIZE))));
    }

    #[test]
    fn a_filter_that_cannot_be_answered_is_named() {
        for kind in [
            OpsFilterKind::Young,
            OpsFilterKind::Active,
            OpsFilterKind::Memcg("no/such group".into()),
        ] {
            let error = PageFilters::new(Path::new("/"), &[filter(kind.clone(), true, true)], false, false);
            assert!(matches!(error, Err(OpsError::Unsupported { .. })), "{kind:?}");
        }
        let missing = filter(OpsFilterKind::Memcg("no/such group".into()), true, true);
        let error = PageFilters::new(Path::new("/"), &[missing], true, true).unwrap_err();
        assert!(error.to_string().contains("no/such group"), "{error}");
    }
}
