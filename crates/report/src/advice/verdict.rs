//! The advice: the smallest minimum age within the bound, or why it is not worth it.

use serde::Serialize;
use thermo_units::{Bytes, SharePerMinute};

use super::rows::{AgeRow, Figures};
use crate::ages;
use crate::style::percent;

/// Less than this share of resident memory is not worth the effort.
const WORTHWHILE_SHARE: f64 = 0.01;

/// The advice.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// Whether proactive reclaim is worth it.
    pub worth: bool,
    /// The advised minimum age in seconds.
    pub min_age_s: Option<u64>,
    /// What it saves, net.
    pub net_saved_bytes: u64,
    /// The reason, as a sentence.
    pub why: String,
}

/// What the user accepts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// Refaults, as a share of the working set.
    pub max_refaults: SharePerMinute,
    /// The least share of what leaves that must be saved.
    pub min_net: f64,
}

impl Default for Bounds {
    /// Those of `thermo advise`.
    fn default() -> Self {
        Self {
            max_refaults: SharePerMinute(2000),
            min_net: 0.1,
        }
    }
}

/// The advice for `rows` of a program of `resident` bytes. `is_measured`: the compressed size was measured.
pub(super) fn verdict(rows: &[AgeRow], resident: u64, bounds: Bounds, is_measured: bool) -> Verdict {
    let known: Vec<(u64, &Figures)> = rows
        .iter()
        .filter_map(|row| Some((row.min_age_s, row.figures.as_ref()?)))
        .collect();
    let bound = f64::from(bounds.max_refaults.0) / 1e6;
    let within = known
        .iter()
        .find(|(_, figures)| figures.share_per_min.mid <= bound);
    let worthwhile = resident as f64 * WORTHWHILE_SHARE;
    let refused = |why: String| Verdict {
        worth: false,
        min_age_s: None,
        net_saved_bytes: 0,
        why,
    };
    let Some((_, shortest)) = known.first() else {
        let why = rows.first().and_then(|row| row.why.clone()).unwrap_or_default();
        return refused(format!("Cannot tell: {why}."));
    };
    if (shortest.leaves_bytes as f64) < worthwhile {
        let idle = Bytes(shortest.leaves_bytes);
        return refused(format!(
            "Not worth it here, because almost nothing is idle: {idle} of {} for {} or longer.",
            Bytes(resident),
            ages::text(known[0].0)
        ));
    }
    let Some((min_age_s, figures)) = within else {
        return refused(too_many_refaults(&known, bounds));
    };
    if (figures.leaves_bytes as f64) < worthwhile {
        return refused(format!(
            "Not worth it here, because the idle memory comes back: only {} of {} stay idle for {}, the shortest \
             age within {} of the working set.",
            Bytes(figures.leaves_bytes),
            Bytes(resident),
            ages::text(*min_age_s),
            bounds.max_refaults
        ));
    }
    let net = figures.net_saved_bytes.mid;
    if (net as f64) < figures.leaves_bytes as f64 * bounds.min_net {
        return refused(format!(
            "Not worth it here, because the memory does not compress: of {} that leave, {} come to lie in swap.",
            Bytes(figures.leaves_bytes),
            Bytes(figures.compressed_bytes.mid)
        ));
    }
    Verdict {
        worth: true,
        min_age_s: Some(*min_age_s),
        net_saved_bytes: net,
        why: worth_it(*min_age_s, figures, resident, is_measured),
    }
}

fn too_many_refaults(known: &[(u64, &Figures)], bounds: Bounds) -> String {
    let Some((longest, figures)) = known.last() else {
        return String::new();
    };
    format!(
        "Not worth it here, because the idle memory comes back: even of what is idle for {}, {} of the working set \
         are accessed again in a minute, and the bound is {}. Watch longer to judge longer ages.",
        ages::text(*longest),
        percent(figures.share_per_min.mid),
        bounds.max_refaults
    )
}

fn worth_it(min_age_s: u64, figures: &Figures, resident: u64, is_measured: bool) -> String {
    let net = figures.net_saved_bytes;
    let assumption = if is_measured {
        ""
    } else {
        ", if it compresses to half, which was not measured"
    };
    format!(
        "Page out what is idle for {}: {} of {} leave, {} ({} to {}) are saved net{assumption}; {} a minute come \
         back, {} of the working set.",
        ages::text(min_age_s),
        Bytes(figures.leaves_bytes),
        Bytes(resident),
        Bytes(net.mid),
        Bytes(net.low),
        Bytes(net.high),
        Bytes(figures.refault_bytes_per_min.mid),
        percent(figures.share_per_min.mid),
    )
}
