//! `thermo reclaim` acts on a workload, and its memory is measured.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use thermo_units::{Bytes, PAGE_SIZE};

use super::workload::Workload;
use crate::error::RunFailure;
use crate::process::{Program, ProgramSpec, last_lines};
use crate::swap::Swap;

/// How often memory is read.
const INTERVAL: Duration = Duration::from_secs(1);
/// `thermo reclaim` without guards, quotas and watermarks: the age alone decides.
const UNLIMITED: [&str; 14] = [
    "--quota-ms",
    "0",
    "--quota-sz",
    "0",
    "--wmarks-high",
    "1000",
    "--wmarks-mid",
    "1000",
    "--wmarks-low",
    "0",
    "--min-net",
    "0%",
    "--swap-floor",
    "0%",
];

/// What was measured while `thermo reclaim` acted, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Resident memory before.
    pub resident_bytes: f64,
    /// Memory that left, on average.
    pub left_bytes: f64,
    /// Memory that zram used, on average.
    pub zram_bytes: f64,
    /// Memory that major faults brought back in a minute.
    pub refault_bytes_per_min: f64,
}

impl Measured {
    /// Memory saved net.
    #[must_use]
    pub fn net_bytes(&self) -> f64 {
        self.left_bytes - self.zram_bytes
    }
}

/// `thermo reclaim` on a workload. Dropping it ends the command, and brings all memory back by removing the
/// swap.
pub(super) struct Acting<'a, 'b> {
    workload: &'a mut Workload<'b>,
    command: Program,
    swap: Swap,
    /// Resident bytes and zram's memory at the start.
    before: (f64, f64),
}

impl<'a, 'b> Acting<'a, 'b> {
    /// Starts `thermo reclaim` with `age`, its flags for the age. Its output goes to `thermo.out` in
    /// `folder`.
    pub(super) fn start(
        workload: &'a mut Workload<'b>,
        thermo: &Path,
        (cpu, zram): (&str, Bytes),
        age: &[String],
        folder: &Path,
    ) -> Result<Self, RunFailure> {
        let failed = |error: &dyn std::fmt::Display| RunFailure::failed(error.to_string());
        let swap = Swap::create(zram).map_err(|error| failed(&error))?;
        let before = (resident(workload), zram_bytes(&swap));
        let mut argv = vec![thermo.display().to_string(), "reclaim".to_owned()];
        argv.extend(workload.target());
        argv.extend(["--cpu", cpu].map(str::to_owned));
        argv.extend(UNLIMITED.map(str::to_owned));
        argv.extend_from_slice(age);
        let command = ProgramSpec {
            argv: &argv,
            env: &BTreeMap::new(),
            dir: folder,
            procs_files: &[],
            output: &folder.join("thermo.out"),
        };
        let command = command.start().map_err(|error| failed(&error))?;
        Ok(Self {
            workload,
            command,
            swap,
            before,
        })
    }

    /// Lets it act for `span` without measuring.
    pub(super) fn settle(&mut self, span: Duration) -> Result<(), RunFailure> {
        self.workload.pause(span)
    }

    /// Measures for `span`.
    pub(super) fn measure(&mut self, span: Duration) -> Result<Measured, RunFailure> {
        let (mut samples, mut sum, began) = (0.0, (0.0, 0.0), std::time::Instant::now());
        let faults = self.workload.group.memory().major_faults;
        while began.elapsed() < span {
            self.workload.pause(INTERVAL)?;
            samples += 1.0;
            sum.0 += resident(self.workload);
            sum.1 += zram_bytes(&self.swap);
        }
        if let Ok(Some(_)) | Err(_) = self.command.wait(Duration::ZERO) {
            let printed = last_lines(&self.command.printed());
            return Err(RunFailure::failed(format!("thermo reclaim has ended: {printed}")));
        }
        let faults = self.workload.group.memory().major_faults.saturating_sub(faults);
        // Each fault reads one page: swap is read without read-ahead.
        let returned = faults.saturating_mul(PAGE_SIZE) as f64;
        Ok(Measured {
            resident_bytes: self.before.0,
            left_bytes: self.before.0 - sum.0 / samples,
            zram_bytes: sum.1 / samples - self.before.1,
            refault_bytes_per_min: returned / (began.elapsed().as_secs_f64() / 60.0),
        })
    }
}

impl Drop for Acting<'_, '_> {
    fn drop(&mut self) {
        self.command.end(Signal::TERM, Duration::from_secs(10));
    }
}

#[expect(clippy::cast_precision_loss, reason = "memory sizes fit")]
fn resident(workload: &Workload<'_>) -> f64 {
    workload.group.memory().resident as f64
}

#[expect(clippy::cast_precision_loss, reason = "memory sizes fit")]
fn zram_bytes(swap: &Swap) -> f64 {
    swap.memory().0 as f64
}
