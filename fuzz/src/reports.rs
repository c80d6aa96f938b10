//! Reports of recordings that a program other than ours may have written.

use thermo_engine::budget::Method;
use thermo_recording::model::{
    AccessTables, Cost, Footprint, Mapping, Mappings, Metadata, Note, Record, Region, SchemeApplied,
    Settings, Snapshot, Target as ModelTarget, Totals,
};
use thermo_recording::read_all;
use thermo_report::footprint::FootprintAccumulator;
use thermo_report::heatmap::HeatmapAccumulator;
use thermo_report::idle::IdleAccumulator;
use thermo_report::info::InfoAccumulator;
use thermo_report::reaccess::ReaccessAccumulator;
use thermo_report::schemes::SchemesAccumulator;
use thermo_report::summary::SummaryAccumulator;
use thermo_report::wss::WssAccumulator;
use thermo_report::{Accumulator, Style};
use thermo_units::{Bytes, Nanos};

use crate::Target;
use crate::root::Root;

/// The targets of this group.
pub const TARGETS: &[Target] = &[
    Target::new("report", |data| {
        thread_local! {
            static ROOT: Root = Root::new(&["r"]);
        }
        let read = ROOT.with(|root| read_all(&root.fill_whole(data).join("r")));
        if let Ok((metadata, records, _)) = read {
            print_all(&metadata, &records);
        }
    }),
    // Records as the reader may return them. In a file they are compressed, which hides them from the engine.
    Target::new("report_records", |data| {
        let (metadata, records) = made_up(data);
        print_lists(&metadata, &records);
    }),
    Target::new("report_heatmap", |data| {
        let (_, records) = made_up(data);
        let _ = report(HeatmapAccumulator::default(), &records).text(&Style::default());
    }),
];

/// Records as the reader may return them. In a file they are compressed, which hides them from the engine.
fn made_up(data: &[u8]) -> (Metadata, Vec<Record>) {
    let mut numbers = Numbers(data);
    let metadata = metadata(numbers.next());
    (metadata, std::iter::from_fn(|| numbers.record()).collect())
}

/// Numbers of any size, in three bytes each: two bytes, and how far they are shifted.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn next(&mut self) -> u64 {
        let Some(([shift, bytes @ ..], rest)) = self.0.split_first_chunk::<3>() else {
            self.0 = &[];
            return 0;
        };
        self.0 = rest;
        u64::from(u16::from_le_bytes(*bytes))
            .checked_shl(u32::from(shift % 64))
            .unwrap_or(0)
    }

    fn small(&mut self) -> u32 {
        u32::try_from(self.next()).unwrap_or(u32::MAX)
    }

    fn record(&mut self) -> Option<Record> {
        let (kind, rest) = self.0.split_first()?;
        self.0 = rest;
        let time_ns = self.next();
        let name = ["a".to_owned(), "[heap]".to_owned(), "target_gone".to_owned()][usize::from(kind / 8 % 3)]
            .clone();
        Some(match kind % 8 {
            0 | 1 => Record::Snapshot(self.snapshot(time_ns, kind & 1 == 1)),
            2 => Record::Mappings(Mappings {
                time_ns,
                target: self.small(),
                mappings: vec![Mapping {
                    start: self.next(),
                    end: self.next(),
                    name,
                }],
            }),
            3 => Record::Footprint(Footprint {
                time_ns,
                target: self.small(),
                vsz: self.next(),
                rss: self.next(),
                swap: self.next(),
            }),
            4 => Record::Cost(Cost {
                time_ns,
                cpu_ns: self.next(),
                monitoring_cpu_ns: self.next(),
                rss: self.next(),
            }),
            5 => Record::Scheme(SchemeApplied {
                time_ns,
                index: self.small() % 4,
                action: "pageout".to_owned(),
                sz_tried: self.next(),
                sz_applied: self.next(),
                sz_changed: self.next(),
                effective_sz: self.next(),
                nr_tried: self.next(),
                skipped: vec![(name, self.next())],
                ..SchemeApplied::default()
            }),
            6 => Record::Totals(Totals {
                time_ns,
                scope: "machine".to_owned(),
                rows: vec![(name, self.next())],
            }),
            _ => Record::Note(Note {
                time_ns,
                kind: name,
                text: "a text".to_owned(),
            }),
        })
    }

    fn snapshot(&mut self, time_ns: u64, has_tables: bool) -> Snapshot {
        let head = Snapshot {
            start_ns: self.next(),
            time_ns,
            aggr_ns: self.next(),
            max_nr_accesses: self.small(),
            targets: Vec::new(),
        };
        let (id, mut regions, mut free_from) = (self.small() % 4, Vec::new(), 0_u64);
        for _ in 0..self.small() % 4 {
            // The reader refuses other orders.
            let start = free_from.saturating_add(self.next());
            let end = start.saturating_add(self.next());
            if start < end {
                let (nr_accesses, age) = (self.small(), self.small());
                regions.push(Region {
                    start,
                    end,
                    nr_accesses,
                    // Recordings of other programs may have no age.
                    age: (age % 4 != 3).then_some(age),
                    unknown: age % 8 == 7,
                });
            }
            free_from = end;
        }
        let tables = has_tables.then(|| Box::new(self.tables()));
        let target = ModelTarget {
            id,
            pid: Some(7),
            scanned: Some(has_tables || id == 1),
            averaged: 0,
            tables,
            regions,
        };
        Snapshot {
            targets: vec![target],
            ..head
        }
    }

    fn tables(&mut self) -> AccessTables {
        // The reader refuses sums above 2^52.
        let mut cell = || Bytes(self.next() % (1 << 47));
        let mut tables = AccessTables::new(Method::Scan);
        (tables.idle[0][0], tables.idle[1][14], tables.idle[2][3]) = (cell(), cell(), cell());
        (tables.unknown[0], tables.reaccessed[2]) = (cell(), cell());
        (tables.pass, tables.nr_passes, tables.as_of) = (Nanos(self.next()), self.next(), Nanos(self.next()));
        tables
    }
}

fn metadata(start_ns: u64) -> Metadata {
    let settings = Settings {
        sample_ns: Some(5_000_000),
        aggr_ns: Some(100_000_000),
        update_ns: Some(1_000_000_000),
        min_nr_regions: Some(10),
        max_nr_regions: Some(1000),
        cpu_budget_percent: Some(1.0),
    };
    Metadata {
        schema: 2,
        writer: "thermo".to_owned(),
        kernel: "6.1".to_owned(),
        arch: "x86_64".to_owned(),
        tracker: "pte".to_owned(),
        tracker_reason: "a reason".to_owned(),
        seed: Some(0),
        wall_clock_offset_ns: Some(0),
        start_ns,
        targets: "pid 7".to_owned(),
        settings,
        schemes: vec!["page out what is cold".to_owned()],
        imported: false,
    }
}

/// Every report of a recording that can be read can be printed.
fn print_all(metadata: &Metadata, records: &[Record]) {
    print_lists(metadata, records);
    let _ = report(HeatmapAccumulator::new(metadata), records).text(&Style::default());
}

/// Every report but the heatmap, which takes milliseconds.
fn print_lists(metadata: &Metadata, records: &[Record]) {
    let style = Style::default();
    let _ = report(SummaryAccumulator::new(metadata), records).text(&style);
    let _ = report(InfoAccumulator::new(metadata), records).text(&style);
    let _ = report(IdleAccumulator::default(), records).text(&style);
    let _ = report(WssAccumulator::default(), records).text(&style);
    let _ = report(ReaccessAccumulator::default(), records).text(&style);
    let _ = report(SchemesAccumulator::default(), records).text(&style);
    let _ = report(FootprintAccumulator::default(), records).text(&style);
}

fn report<A: Accumulator>(mut accumulator: A, records: &[Record]) -> A::Report {
    records.iter().for_each(|record| accumulator.add(record));
    accumulator.finish()
}
