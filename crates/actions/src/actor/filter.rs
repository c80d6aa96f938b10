//! Applies a scheme's filters to the pages of a range.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use thermo_engine::ops::{Applied, OpsError, Skip};
use thermo_engine::scheme::{OpsFilter, OpsFilterKind};
use thermo_kernel::cgroup::Group;
use thermo_kernel::kpageflags::PageFrames;
use thermo_kernel::pagemap::{Page, Pagemap};
use thermo_targets::{Inspector, PageView, Process};
use thermo_units::{Addr, AddrRange, Bytes, PAGE_SIZE};

use super::range_ops;

/// The condition of a filter, resolved for this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    Anon,
    /// Charged to the control group whose folder has this inode.
    Memcg(u64),
    Young,
    Active,
    HugepageSize(Bytes, Bytes),
    /// Never true: a page found by its address in a process is mapped.
    Unmapped,
}

/// The filters of a request.
#[derive(Debug)]
pub(super) struct PageFilters {
    /// Condition, the value of it that the filter applies to, and whether such pages are allowed.
    filters: Vec<(Condition, bool, bool)>,
}

/// What is known about a page.
struct PageFacts<'a> {
    page: Page,
    view: PageView,
    frames: Option<&'a PageFrames>,
}

impl PageFilters {
    /// Resolves `filters`; fails for a condition that cannot be evaluated here.
    pub(super) fn new(
        root: &Path,
        filters: &[OpsFilter],
        has_tables: bool,
        has_frames: bool,
    ) -> Result<Self, OpsError> {
        let resolve = |filter: &OpsFilter| {
            let condition = condition(root, &filter.kind, has_tables, has_frames)?;
            Ok((condition, filter.matching, filter.allow))
        };
        Ok(Self {
            filters: filters.iter().map(resolve).collect::<Result<_, _>>()?,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }

    pub(super) fn needs_young(&self) -> bool {
        self.filters
            .iter()
            .any(|(condition, _, _)| *condition == Condition::Young)
    }

    fn needs_tables(&self) -> bool {
        let uses_tables =
            |condition: &Condition| matches!(condition, Condition::Young | Condition::HugepageSize(..));
        self.filters
            .iter()
            .any(|(condition, _, _)| uses_tables(condition))
    }

    /// The first filter that applies to the page decides. If none applies, the page is rejected when the last
    /// filter allows, and passes otherwise.
    fn allows(&self, facts: &PageFacts<'_>) -> bool {
        let deciding = self
            .filters
            .iter()
            .find(|(condition, matching, _)| facts.matches(*condition) == *matching);
        match deciding {
            Some((_, _, allow)) => *allow,
            None => self.filters.last().is_none_or(|(_, _, allow)| !allow),
        }
    }

    /// The pages of `range` that pass. Absent pages can pass only with `include_absent`. All other pages are
    /// counted as skipped in `applied`.
    pub(super) fn passed(
        &self,
        process: &Process,
        range: AddrRange,
        include_absent: bool,
        reader: &mut PageReader<'_>,
        applied: &mut Applied,
    ) -> Vec<AddrRange> {
        let mut passed = Vec::new();
        for chunk in range_ops::cut(&[range], Bytes::mib(2)) {
            reader.read(process, chunk, self.needs_tables());
            for (n, addr) in (chunk.start.0..chunk.end.0)
                .step_by(PAGE_SIZE as usize)
                .enumerate()
            {
                let page = AddrRange {
                    start: Addr(addr),
                    end: Addr(addr) + Bytes(PAGE_SIZE),
                };
                let facts = reader.facts(n);
                if !facts.page.is_present() && !include_absent {
                    applied.skip(Skip::NotPresent, page.len());
                } else if self.allows(&facts) {
                    page.coalesce_into(&mut passed);
                } else {
                    applied.skip(Skip::Filtered, page.len());
                }
            }
        }
        passed
    }
}

fn condition(
    root: &Path,
    kind: &OpsFilterKind,
    has_tables: bool,
    has_frames: bool,
) -> Result<Condition, OpsError> {
    let cannot = |what: &str, why: &str| {
        Err(OpsError::Unsupported {
            what: what.into(),
            why: why.into(),
        })
    };
    let tables = "it needs page tables, which this tracker does not read; use --tracker pte";
    let frames = "it needs /proc/kpageflags, which only root can read";
    match kind {
        OpsFilterKind::Anon => Ok(Condition::Anon),
        OpsFilterKind::Unmapped => Ok(Condition::Unmapped),
        OpsFilterKind::Young if !has_tables => cannot("the filter young", tables),
        OpsFilterKind::Young => Ok(Condition::Young),
        OpsFilterKind::HugepageSize { .. } if !has_tables => cannot("the filter hugepage_size", tables),
        OpsFilterKind::HugepageSize { min, max } => Ok(Condition::HugepageSize(*min, *max)),
        OpsFilterKind::Active if !has_frames => cannot("the filter active", frames),
        OpsFilterKind::Active => Ok(Condition::Active),
        OpsFilterKind::Memcg(_) if !has_frames => cannot("the filter memcg", frames),
        OpsFilterKind::Memcg(path) => Group::find_in(root, "memory", path)
            .map_err(|error| error.to_string())
            .and_then(|group| std::fs::metadata(group.dir).map_err(|error| error.to_string()))
            .map(|folder| Condition::Memcg(folder.ino()))
            .map_err(|why| OpsError::Unsupported {
                what: format!("the filter memcg {path}"),
                why,
            }),
    }
}

impl PageFacts<'_> {
    fn matches(&self, condition: Condition) -> bool {
        let frame = self.page.pfn().zip(self.frames);
        match condition {
            Condition::Anon => (self.page.is_present() || self.page.is_swapped()) && !self.page.is_file(),
            Condition::Unmapped => false,
            Condition::Young => matches!(self.view, PageView::Page { accessed: true, .. }),
            Condition::Active => frame
                .and_then(|(pfn, frames)| frames.flags(pfn).ok())
                .is_some_and(|flags| flags.is_active()),
            Condition::Memcg(inode) => frame
                .and_then(|(pfn, frames)| frames.cgroup(pfn).ok())
                .is_some_and(|owner| owner == inode),
            Condition::HugepageSize(min, max) => match self.view {
                PageView::Page { size, .. } => self.view.is_huge() && min <= size && size <= max,
                PageView::Absent { .. } | PageView::Unknown => false,
            },
        }
    }
}

/// Reads page data of one process.
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

    fn read(&mut self, process: &Process, chunk: AddrRange, with_tables: bool) {
        self.views.clear();
        // Unreadable memory counts as not present.
        if self.pagemap.read(chunk, &mut self.pages).is_err() {
            self.pages.clear();
        }
        if let Some(tables) = self.tables.as_deref_mut().filter(|_| with_tables) {
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
    fn first_matching_filter_decides() {
        use OpsFilterKind::{Anon, Young};
        assert!(decide(&[], true, true));
        // Two filters that mean the same: only anonymous pages.
        for only_anon in [filter(Anon, false, false), filter(Anon, true, true)] {
            assert!(
                decide(std::slice::from_ref(&only_anon), true, false),
                "{only_anon:?}"
            );
            assert!(!decide(&[only_anon], false, false));
        }
        // All anonymous pages, and the file pages that are not young.
        let both = [filter(Anon, true, true), filter(Young, true, false)];
        assert!(decide(&both, true, true));
        assert!(!decide(&both, false, true));
        assert!(
            decide(&both, false, false),
            "the last filter rejects, so other pages pass"
        );
        let both = [filter(Young, true, false), filter(Anon, true, true)];
        assert!(!decide(&both, true, true));
        assert!(decide(&both, true, false));
        assert!(
            !decide(&both, false, false),
            "the last filter allows, so other pages are rejected"
        );
    }

    #[test]
    fn hugepage_size_filter_uses_mapping_size() {
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
    fn unavailable_filter_is_named() {
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
