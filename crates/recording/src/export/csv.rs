//! CSV export.

use std::io::Write;

use super::ages::{self, AgeRow};
use super::{ExportError, Table, snapshots};
use crate::model::Snapshot;
use crate::reader::Recording;

const REGIONS: &str = "time_ns,target,pid,start,end,nr_accesses,max_nr_accesses,age,age_ns,unknown";
const AGES: &str =
    "time_ns,target,pid,method,pass_ns,nr_passes,as_of_ns,table,name,min_age_s,max_age_s,bytes";

/// Writes `table` of all snapshots to `out`, with a header line. Addresses and sizes are in bytes. `pid` is
/// empty for physical memory, `age` and `age_ns` if the recording has no age.
///
/// # Errors
/// The recording cannot be read, or `out` cannot be written.
pub fn csv(recording: &mut Recording, table: Table, mut out: impl Write) -> Result<(), ExportError> {
    match table {
        Table::Regions => writeln!(out, "{REGIONS}")?,
        Table::Ages => writeln!(out, "{AGES}")?,
    }
    for snapshot in snapshots(recording) {
        let snapshot = snapshot?;
        match table {
            Table::Regions => write_regions(&snapshot, &mut out)?,
            Table::Ages => ages::rows(&snapshot).try_for_each(|row| write_age_row(&row, &mut out))?,
        }
    }
    Ok(out.flush()?)
}

fn write_regions(snapshot: &Snapshot, out: &mut impl Write) -> std::io::Result<()> {
    let (time, max) = (snapshot.time_ns, snapshot.max_nr_accesses);
    for target in &snapshot.targets {
        let pid = or_empty(target.pid);
        for region in &target.regions {
            let (id, nr) = (target.id, region.nr_accesses);
            let (age, age_ns) = (or_empty(region.age), or_empty(region.age_ns(snapshot.aggr_ns)));
            write!(out, "{time},{id},{pid},{},{},", region.start, region.end)?;
            writeln!(out, "{nr},{max},{age},{age_ns},{}", region.unknown)?;
        }
    }
    Ok(())
}

fn write_age_row(row: &AgeRow, out: &mut impl Write) -> std::io::Result<()> {
    write!(
        out,
        "{},{},{},{},",
        row.time_ns,
        row.target,
        or_empty(row.pid),
        row.method
    )?;
    write!(
        out,
        "{},{},{},{},{},",
        row.pass_ns, row.nr_passes, row.as_of_ns, row.table, row.name
    )?;
    let (min, max) = (or_empty(row.min_age_s), or_empty(row.max_age_s));
    writeln!(out, "{min},{max},{}", row.bytes)
}

fn or_empty<T: ToString>(value: Option<T>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}
