//! What questions about the past cost: writes a made-up history, and prints the CPU time of each question.
//! `benches/history.sh` runs it.
//!
//! ```text
//! history_cost [HOURS [TARGETS]]   (default: 24 hours of 50 targets in one policy)
//! ```

use std::error::Error;
use std::path::Path;

use thermo_agent::api::Period;
use thermo_agent::history::Past;
use thermo_engine::access_tables::AccessTables;
use thermo_engine::budget::Method;
use thermo_engine::ops::TargetId;
use thermo_kernel::clock;
use thermo_recording::history::{Clocks, History, Query, SegmentWriter, WriteLimits};
use thermo_recording::model::{Footprint, Mapping, Mappings, Metadata, Record, Region, Snapshot, Target};
use thermo_units::{Bytes, Nanos};

const SECOND: u64 = 1_000_000_000;
const START_S: u64 = 1_790_000_000;
/// Seconds between two snapshots.
const STEP: u64 = 5;
const REGIONS: u64 = 40;
const MAPPINGS: u64 = 300;

/// A xorshift generator: numbers that hardly compress.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

fn target(id: u32, random: &mut Random) -> Target {
    let mut tables = AccessTables::new(Method::Scan);
    (tables.nr_passes, tables.pass) = (1000 + random.below(9000), Nanos(SECOND));
    for kind in [0, 2] {
        for bytes in tables.idle[kind].iter_mut().take(12) {
            *bytes = Bytes(random.below(16 << 10) * 4096);
        }
    }
    for bytes in tables.reaccessed.iter_mut().take(6) {
        *bytes = Bytes(random.below(4096) * 4096);
    }
    let mut start = 0x5555_0000_0000 + (u64::from(id) << 36);
    let regions = (0..REGIONS).map(|_| {
        start += random.below(3) * 4096 * random.below(100);
        let region = Region {
            start,
            end: start + 4096 * (1 + random.below(10_000)),
            nr_accesses: random.below(21) as u32,
            age: Some(random.below(2000) as u32),
            unknown: false,
        };
        start = region.end;
        region
    });
    let regions = regions.collect();
    Target {
        id,
        pid: Some(1000 + id),
        scanned: Some(true),
        averaged: 0,
        regions,
        tables: Some(Box::new(tables)),
    }
}

fn mappings(id: u32, time_ns: u64, random: &mut Random) -> Record {
    let mut start = 0x5555_0000_0000 + (u64::from(id) << 36);
    let mapping = |index: u64| {
        start += 4096 * (1 + random.below(100));
        let end = start + 4096 * (1 + random.below(1000));
        let name = format!("/usr/lib/x86_64-linux-gnu/lib{}.so.{}", index / 4, id % 7);
        let mapping = Mapping { start, end, name };
        start = end;
        mapping
    };
    Record::Mappings(Mappings {
        time_ns,
        target: id,
        mappings: (0..MAPPINGS).map(mapping).collect(),
    })
}

fn write(dir: &Path, hours: u64, targets: u32) -> Result<(), Box<dyn Error>> {
    let mut random = Random(42);
    let clocks = |second: u64| Clocks {
        monotonic: Nanos::secs(second),
        unix: Nanos::secs(START_S + second),
    };
    let mut writer = SegmentWriter::new(dir, "web", WriteLimits::default(), clocks(0), Metadata::default)?;
    for id in 0..targets {
        writer.name(
            Nanos(1),
            TargetId(id),
            Some(1000 + id),
            &format!("unit-{id}.service"),
        );
    }
    for second in (STEP..=hours * 3600).step_by(STEP as usize) {
        let time_ns = second * SECOND;
        for id in (0..targets).filter(|_| second % 60 == 0) {
            writer.record(&mappings(id, time_ns, &mut random));
            writer.record(&Record::Footprint(Footprint {
                time_ns,
                target: id,
                vsz: 1 << 40,
                rss: random.below(1 << 30),
                swap: random.below(1 << 28),
            }));
        }
        writer.record(&Record::Snapshot(Snapshot {
            start_ns: time_ns - STEP * SECOND,
            time_ns,
            aggr_ns: SECOND,
            max_nr_accesses: 20,
            targets: (0..targets).map(|id| target(id, &mut random)).collect(),
        }));
        writer.tick(clocks(second));
    }
    match writer.finish().first() {
        Some(warning) => Err(warning.clone().into()),
        None => Ok(()),
    }
}

/// Prints the CPU time of `question`, and which part of `whole` it is.
fn measure<T, E: Into<Box<dyn Error>>>(
    name: &str,
    whole: Option<f64>,
    question: impl FnOnce() -> Result<T, E>,
) -> Result<f64, Box<dyn Error>> {
    let begin = clock::process_cpu();
    drop(question().map_err(Into::into)?);
    let seconds = clock::process_cpu().saturating_sub(begin).as_secs_f64();
    let ratio = whole.map(|whole| format!(", 1/{:.1} of the whole", whole / seconds.max(1e-6)));
    println!(
        "{name:<44} {seconds:7.3} s of CPU time{}",
        ratio.unwrap_or_default()
    );
    Ok(seconds)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let hours = numbers.next().transpose()?.unwrap_or(24);
    let targets = u32::try_from(numbers.next().transpose()?.unwrap_or(50))?;
    let dir = tempfile::tempdir()?;
    write(dir.path(), hours, targets)?;
    let history = History::open(dir.path())?;
    let bytes: u64 = history
        .segments(&Query::default())?
        .iter()
        .map(|segment| segment.bytes)
        .sum();
    println!("{hours} h of {targets} targets, {} MB", bytes / 1_000_000);
    let whole = measure("every record", None, || -> Result<usize, Box<dyn Error>> {
        let mut records = history.records(&Query::default())?;
        let count = records.by_ref().count();
        // A damaged segment would be skipped, and cost nothing.
        let warnings = records.warnings();
        warnings
            .first()
            .map_or(Ok(count), |warning| Err(warning.clone().into()))
    })?;
    let past = Past::new(dir.path());
    let end = (START_S + hours * 3600) * 1000;
    let period = |from: u64, to: u64| Period {
        target: "unit-7.service".to_owned(),
        from_ms: Some(end - from * 3_600_000),
        to_ms: Some(end - to * 3_600_000),
        columns: 240,
        rows: 50,
        ..Period::default()
    };
    let middle = period(hours / 2 + 1, hours / 2);
    let whole = Some(whole);
    measure("heatmap of 1 h in the middle, one target", whole, || {
        past.heatmap(&middle, end)
    })?;
    measure("memory over 1 h in the middle, one target", whole, || {
        past.series(&middle, end)
    })?;
    measure("heatmap of all, one target", whole, || {
        past.heatmap(&period(hours, 0), end)
    })?;
    measure("memory over all, one target", whole, || {
        past.series(&period(hours, 0), end)
    })?;
    measure("advice from all, one target", whole, || {
        past.advice(&period(hours, 0), end)
    })?;
    Ok(())
}
