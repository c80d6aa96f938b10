//! The swap of this machine, for the advice.

use std::path::Path;

use thermo_kernel::{file, swap, zram};
use thermo_report::advice::{SwapArea, SwapFacts};

/// Reads the facts. What cannot be read is reported as missing: the kernel was built without it.
pub(super) fn read() -> anyhow::Result<SwapFacts> {
    let root = Path::new("/");
    let area = |area: swap::Swap| SwapArea {
        is_zram: area.path.starts_with("/dev") && area.path.to_string_lossy().contains("zram"),
        path: area.path.display().to_string(),
        free: area.size.saturating_sub(area.used),
    };
    let text = |path: &str| file::text(&root.join(path)).unwrap_or_default();
    let algorithms = text("sys/block/zram0/comp_algorithm");
    Ok(SwapFacts {
        areas: swap::read(root)?.into_iter().map(area).collect(),
        zswap: text("sys/module/zswap/parameters/enabled").trim() == "Y",
        page_cluster: text("proc/sys/vm/page-cluster").trim().parse().unwrap_or(0),
        has_zram: zram::exists(root),
        algorithms: algorithms
            .split_whitespace()
            .map(|name| name.trim_matches(['[', ']']).to_owned())
            .collect(),
    })
}
