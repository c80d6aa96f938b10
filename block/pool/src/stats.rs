//! Statistics of pools: named counters and gauges.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one pool.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) magazine_hits: AtomicU64,
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
        /// Statistics of a pool: counters since it was opened, and its current size. The fields are read one
        /// after the other, so they may be a few requests apart.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct Stats {
            $(#[doc = $doc] pub $name: u64,)+
        }

        impl Stats {
            /// Every field with its name.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name)),+].into_iter()
            }
        }

        const FIELDS: &[(&str, &str, &str)] = &[$((stringify!($name), $kind, $doc)),+];
    };
}

stats! {
    held_pages "gauge" "Pages charged to the budget, lent or free.",
    free_pages "gauge" "Free pages kept for later requests.",
    magazine_hits "counter" "Buffers reused from the thread's own magazine.",
    depot_hits "counter" "Buffers reused from the depot shared by all threads of the pool.",
    grown "counter" "Buffers that needed new pages of the kernel.",
    mapped "counter" "Address space mappings made.",
    handed_over "counter" "Buffers passed directly to a waiting request.",
    waits "counter" "Requests that waited for the budget.",
    refused "counter" "Requests that failed: the budget was used up, or the timeout expired.",
    squeezes "counter" "Pressure reports that squeezed the pool.",
    returned_pages "counter" "Pages returned to the kernel.",
    return_calls "counter" "System calls that returned pages to the kernel.",
    return_errors "counter" "Failed attempts to return pages to the kernel.",
}

/// The statistics of several pools in the Prometheus text format, one metric family for each field.
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
    fn prometheus_has_family_per_field_and_escapes_labels() {
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
