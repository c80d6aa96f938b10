//! The swap of this machine, for the advice.

use std::path::Path;

use thermo_kernel::zram::{self, Zram};
use thermo_kernel::{file, swap};
use thermo_report::advice::{SwapArea, SwapFacts};

/// Reads the facts. What cannot be read is reported as missing: the kernel was built without it.
pub(super) fn read() -> anyhow::Result<SwapFacts> {
    let root = Path::new("/");
    let area = |area: swap::Swap| SwapArea {
        is_zram: area.is_zram(),
        path: area.path.display().to_string(),
        free: area.free(),
    };
    let text = |path: &str| file::text(&root.join(path)).unwrap_or_default();
    // All devices offer the same. Without a first device the names are not known.
    let algorithms = Zram { id: 0 }.algorithms(root).map(|(names, _)| names);
    Ok(SwapFacts {
        areas: swap::read(root)?.into_iter().map(area).collect(),
        zswap: text("sys/module/zswap/parameters/enabled").trim() == "Y",
        page_cluster: text("proc/sys/vm/page-cluster").trim().parse().unwrap_or(0),
        has_zram: zram::exists(root),
        algorithms: algorithms.unwrap_or_default(),
    })
}
