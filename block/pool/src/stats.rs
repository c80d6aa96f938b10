//! What pools did and hold, as numbers with names.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one pool.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) shelf_hits: AtomicU64,
    pub(crate) depot_hits: AtomicU64,
    pub(crate) grown: AtomicU64,
    pub(crate) mapped: AtomicU64,
    pub(crate) handed_over: AtomicU64,
    pub(crate) waits: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) squeezes: AtomicU64,
    pub(crate) returned_pages: AtomicU64,
    pub(crate) return_calls: AtomicU64,
    pub(crate) return_errors: AtomicU64,
}

pub(crate) fn count(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::Relaxed);
}

macro_rules! stats {
    ($($name:ident $kind:literal $doc:literal),+ $(,)?) => {
        /// What a pool did since it was opened, and holds now. The parts are read one after the other, so they may be
        /// some requests apart.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct Stats {
            $(#[doc = $doc] pub $name: u64,)+
        }

        impl Stats {
            /// Every number with its name.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name)),+].into_iter()
            }
        }

        const FIELDS: &[(&str, &str, &str)] = &[$((stringify!($name), $kind, $doc)),+];
    };
}

stats! {
    held_pages "gauge" "Pages that count against the budget: lent or free.",
    free_pages "gauge" "Pages kept for the next requests.",
    shelf_hits "counter" "Buffers taken from the thread's own shelf.",
    depot_hits "counter" "Buffers taken from what all threads of the pool share.",
    grown "counter" "Buffers for which the kernel had to find pages.",
    mapped "counter" "Times that address space was mapped.",
    handed_over "counter" "Buffers that went straight from one request to one that waited.",
    waits "counter" "Requests that waited for the budget.",
    refused "counter" "Requests that got nothing: the budget was full, or their time was over.",
    squeezes "counter" "Reports of pressure that squeezed the pool.",
    returned_pages "counter" "Pages given back to the kernel.",
    return_calls "counter" "System calls that took.",
    return_errors "counter" "Times that the kernel refused to take pages back.",
}

/// The numbers of several pools in the text form of Prometheus, a family for each number.
pub(crate) fn prometheus(pools: &[(String, Stats)]) -> String {
    let mut text = String::new();
    for (at, (name, kind, help)) in FIELDS.iter().enumerate() {
        let suffix = if *kind == "counter" { "_total" } else { "" };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP thermo_pool_{name}{suffix} {help}");
        let _ = writeln!(text, "# TYPE thermo_pool_{name}{suffix} {kind}");
        for (pool, stats) in pools {
            let value = stats.named().nth(at).map_or(0, |(_, value)| value);
            let _ = writeln!(
                text,
                "thermo_pool_{name}{suffix}{{pool=\"{}\"}} {value}",
                escaped(pool)
            );
        }
    }
    text
}

fn escaped(label: &str) -> String {
    label
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_family_and_labels_are_escaped() {
        let stats = Stats {
            waits: 3,
            ..Stats::default()
        };
        let text = prometheus(&[("a\"b\\c\nd".to_owned(), stats)]);
        assert!(
            text.contains("thermo_pool_waits_total{pool=\"a\\\"b\\\\c\\nd\"} 3\n"),
            "{text}"
        );
        assert!(text.contains("# TYPE thermo_pool_free_pages gauge\n"));
        assert_eq!(text.lines().count(), 3 * stats.named().count());
    }
}
