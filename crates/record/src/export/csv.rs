//! Regions as comma-separated values.

use std::io::Write;

use super::{ExportError, snapshots};
use crate::reader::Recording;

const HEAD: &str = "time_ns,target,pid,start,end,nr_accesses,max_nr_accesses,age,age_ns,unknown";

/// Writes the regions of all snapshots to `out`, one a line, below a line of names. Addresses and sizes are in
/// bytes; `pid` is empty for physical memory.
///
/// # Errors
/// The recording cannot be read on, or `out` not be written.
pub fn csv(recording: &mut Recording, mut out: impl Write) -> Result<(), ExportError> {
    writeln!(out, "{HEAD}")?;
    for snapshot in snapshots(recording) {
        let snapshot = snapshot?;
        let (time, max) = (snapshot.time_ns, snapshot.max_nr_accesses);
        for target in &snapshot.targets {
            let pid = target.pid.map_or_else(String::new, |pid| pid.to_string());
            for region in &target.regions {
                let (id, nr, age) = (target.id, region.nr_accesses, region.age);
                let age_ns = u64::from(age).saturating_mul(snapshot.aggr_ns);
                write!(out, "{time},{id},{pid},{},{},", region.start, region.end)?;
                writeln!(out, "{nr},{max},{age},{age_ns},{}", region.unknown)?;
            }
        }
    }
    Ok(out.flush()?)
}
