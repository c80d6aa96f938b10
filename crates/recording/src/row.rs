//! The table of a recording: its columns, and the conversion of records to rows.
//!
//! A record with a list (regions, mappings, skipped bytes) is a head row followed by one row per entry.
//! Regions have columns of their own. The numbers of all other kinds share the column `values`, because each
//! further column costs every batch some bytes even if it is empty.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use thermo_engine::access_tables::{AGE_EDGES_S, PageKind};
use thermo_units::Bytes;

use crate::model::{AccessTables, Metadata, Record, SchemeApplied, Snapshot, Target, Totals};

/// Key of [`Metadata`], as JSON, in the metadata of the Arrow schema.
pub(crate) const METADATA_KEY: &str = "thermo";
/// Key of the description of `kind` and `values`, for other readers.
const KINDS_KEY: &str = "thermo.kinds";
const KINDS: &str = "0 snapshot: values=[start_ns, aggr_ns]; 1 target of the snapshot: values=[1 if scanned, \
    averaged bytes]; 10 access tables of the target: name=method, values=[pass_ns, nr_passes, as_of_ns, bytes \
    left out because the target has the same pages in another mapping, bytes counted beyond the resident total, bytes of unknown idle age: not_scanned, first_scan, uncleared, hugetlb]; 11 resident bytes of the target by idle age: name=kind of \
    the pages, values=[bytes in each bucket of thermo.age_edges_s], kinds without bytes are omitted; 12 bytes of the \
    target accessed again, by idle age: values=[as 11], omitted if there are none; \
    2 region of the target; 3 mappings; 4 one of the mappings; \
    5 footprint: values=[vsz, rss, swap]; 6 cost: values=[cpu_ns, monitoring_cpu_ns, rss]; \
    7 scheme: name=action, values=[index, nr_tried, sz_tried, nr_applied, sz_applied, sz_ops_filter_passed, \
    sz_changed, qt_exceeds, effective_sz]; 8 bytes skipped by the scheme: name=reason, values=[bytes]; \
    9 note: name=kind; 13 totals: name=machine or control group; 14 row of the totals: name, values=[bytes]";
/// Key of the lower limits of the idle-age buckets in seconds, as a JSON list. The last bucket has no upper
/// limit.
const AGE_EDGES_KEY: &str = "thermo.age_edges_s";

/// Kind of a row: the number in column `kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Snapshot,
    Target,
    Region,
    Mappings,
    Mapping,
    Footprint,
    Cost,
    Scheme,
    Skipped,
    Note,
    Tables,
    IdleAges,
    Reaccessed,
    Totals,
    TotalsRow,
}

impl Kind {
    /// Number of kinds.
    pub(crate) const COUNT: usize = 15;
    const ALL: [Self; Self::COUNT] = [
        Self::Snapshot,
        Self::Target,
        Self::Region,
        Self::Mappings,
        Self::Mapping,
        Self::Footprint,
        Self::Cost,
        Self::Scheme,
        Self::Skipped,
        Self::Note,
        Self::Tables,
        Self::IdleAges,
        Self::Reaccessed,
        Self::Totals,
        Self::TotalsRow,
    ];

    /// The kinds of rows that begin a record.
    pub(crate) const HEADS: [Self; 7] = [
        Self::Snapshot,
        Self::Mappings,
        Self::Footprint,
        Self::Cost,
        Self::Scheme,
        Self::Note,
        Self::Totals,
    ];

    /// Whether rows of this kind begin a record.
    pub(crate) fn is_head(self) -> bool {
        Self::HEADS.contains(&self)
    }

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// A row. `None` is null.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row<'a> {
    pub kind: Kind,
    pub time_ns: u64,
    pub target: Option<u32>,
    pub pid: Option<u32>,
    pub start: Option<u64>,
    pub end: Option<u64>,
    pub nr_accesses: Option<u32>,
    pub max_nr_accesses: Option<u32>,
    pub age: Option<u32>,
    pub unknown: Option<bool>,
    pub name: Option<&'a str>,
    pub text: Option<&'a str>,
    pub values: &'a [u64],
}

impl Row<'_> {
    pub(crate) fn new(kind: Kind, time_ns: u64) -> Self {
        Self {
            kind,
            time_ns,
            target: None,
            pid: None,
            start: None,
            end: None,
            nr_accesses: None,
            max_nr_accesses: None,
            age: None,
            unknown: None,
            name: None,
            text: None,
            values: &[],
        }
    }

    /// Uncompressed bytes of the row in a batch, rounded up: the fixed columns with their null bits and
    /// offsets, names and texts, and values.
    pub(crate) fn bytes(&self) -> usize {
        const FIXED: usize = 72;
        let text = |text: Option<&str>| text.map_or(0, str::len);
        FIXED + text(self.name) + text(self.text) + size_of_val(self.values)
    }
}

/// The columns, in order. All schema versions have the same columns.
pub(crate) fn fields() -> Vec<Field> {
    let values = Field::new_list_field(DataType::UInt64, false);
    vec![
        Field::new("kind", DataType::UInt8, false),
        Field::new("time_ns", DataType::UInt64, false),
        Field::new("target", DataType::UInt32, true),
        Field::new("pid", DataType::UInt32, true),
        Field::new("start", DataType::UInt64, true),
        Field::new("end", DataType::UInt64, true),
        Field::new("nr_accesses", DataType::UInt32, true),
        Field::new("max_nr_accesses", DataType::UInt32, true),
        Field::new("age", DataType::UInt32, true),
        Field::new("unknown", DataType::Boolean, true),
        Field::new("name", DataType::Utf8, true),
        Field::new("text", DataType::Utf8, true),
        Field::new("values", DataType::List(Arc::new(values)), false),
    ]
}

/// The Arrow schema of a recording with this metadata.
pub(crate) fn schema(metadata: &Metadata) -> Result<Schema, serde_json::Error> {
    let schema_metadata = HashMap::from([
        (METADATA_KEY.to_owned(), metadata_json(metadata)?),
        (KINDS_KEY.to_owned(), KINDS.to_owned()),
        (AGE_EDGES_KEY.to_owned(), serde_json::to_string(&AGE_EDGES_S)?),
    ]);
    Ok(Schema::new_with_metadata(fields(), schema_metadata))
}

/// The metadata as JSON. Missing numbers are 0: older readers accept nothing else.
fn metadata_json(metadata: &Metadata) -> Result<String, serde_json::Error> {
    let metadata = Metadata {
        seed: metadata.seed.or(Some(0)),
        wall_clock_offset_ns: metadata.wall_clock_offset_ns.or(Some(0)),
        settings: metadata.settings.with_zeros(),
        ..metadata.clone()
    };
    serde_json::to_string(&metadata)
}

/// Time of a record.
pub(crate) fn time_ns(record: &Record) -> u64 {
    match record {
        Record::Snapshot(r) => r.time_ns,
        Record::Mappings(r) => r.time_ns,
        Record::Footprint(r) => r.time_ns,
        Record::Cost(r) => r.time_ns,
        Record::Scheme(r) => r.time_ns,
        Record::Note(r) => r.time_ns,
        Record::Totals(r) => r.time_ns,
    }
}

/// Uncompressed bytes of the rows of `record` in a batch, rounded up.
pub(crate) fn bytes(record: &Record) -> usize {
    let mut bytes: usize = 0;
    for_each_row(record, |row| bytes = bytes.saturating_add(row.bytes()));
    bytes
}

/// What a record is, for messages.
pub(crate) fn description(record: &Record) -> String {
    match record {
        Record::Snapshot(r) => format!("the snapshot of {} targets", r.targets.len()),
        Record::Mappings(r) => format!("the list of {} mappings of target {}", r.mappings.len(), r.target),
        Record::Footprint(_) => "the size of a target".to_owned(),
        Record::Cost(_) => "the cost of monitoring".to_owned(),
        Record::Scheme(_) => "the result of a scheme".to_owned(),
        Record::Note(_) => "a note".to_owned(),
        Record::Totals(_) => "the totals of the machine".to_owned(),
    }
}

/// Calls `put` with each row of `record`, in order.
pub(crate) fn for_each_row(record: &Record, mut put: impl FnMut(Row<'_>)) {
    let row = |kind| Row::new(kind, time_ns(record));
    match record {
        Record::Snapshot(snapshot) => snapshot_rows(snapshot, put),
        Record::Mappings(r) => {
            put(Row {
                target: Some(r.target),
                ..row(Kind::Mappings)
            });
            for m in &r.mappings {
                put(Row {
                    target: Some(r.target),
                    start: Some(m.start),
                    end: Some(m.end),
                    name: Some(&m.name),
                    ..row(Kind::Mapping)
                });
            }
        }
        Record::Footprint(r) => {
            put(Row {
                target: Some(r.target),
                values: &[r.vsz, r.rss, r.swap],
                ..row(Kind::Footprint)
            });
        }
        Record::Cost(r) => put(Row {
            values: &[r.cpu_ns, r.monitoring_cpu_ns, r.rss],
            ..row(Kind::Cost)
        }),
        Record::Scheme(scheme) => scheme_rows(scheme, put),
        Record::Note(r) => put(Row {
            name: Some(&r.kind),
            text: Some(&r.text),
            ..row(Kind::Note)
        }),
        Record::Totals(totals) => totals_rows(totals, put),
    }
}

fn snapshot_rows(snapshot: &Snapshot, mut put: impl FnMut(Row<'_>)) {
    let row = |kind| Row {
        max_nr_accesses: Some(snapshot.max_nr_accesses),
        ..Row::new(kind, snapshot.time_ns)
    };
    put(Row {
        values: &[snapshot.start_ns, snapshot.aggr_ns],
        ..row(Kind::Snapshot)
    });
    for target in &snapshot.targets {
        target_rows(snapshot, target, &mut put);
    }
}

fn target_rows(snapshot: &Snapshot, target: &Target, mut put: impl FnMut(Row<'_>)) {
    let row = |kind| Row {
        max_nr_accesses: Some(snapshot.max_nr_accesses),
        target: Some(target.id),
        pid: target.pid,
        ..Row::new(kind, snapshot.time_ns)
    };
    let method = target
        .scanned
        .map(|scanned| [u64::from(scanned), target.averaged]);
    put(Row {
        values: method.as_ref().map_or(&[], <[u64; 2]>::as_slice),
        ..row(Kind::Target)
    });
    if let Some(tables) = &target.tables {
        table_rows(tables, row, &mut put);
    }
    for region in &target.regions {
        put(Row {
            start: Some(region.start),
            end: Some(region.end),
            nr_accesses: Some(region.nr_accesses),
            age: region.age,
            unknown: Some(region.unknown),
            ..row(Kind::Region)
        });
    }
}

fn table_rows<'a>(tables: &AccessTables, row: impl Fn(Kind) -> Row<'a>, mut put: impl FnMut(Row<'_>)) {
    // Recorded tables have ages, so the last reason is not recorded.
    let [not_scanned, first_scan, uncleared, hugetlb, _] = tables.unknown.map(|bytes| bytes.0);
    put(Row {
        name: Some(tables.method.name()),
        values: &[
            tables.pass.0,
            tables.nr_passes,
            tables.as_of.0,
            tables.aliased.0,
            tables.surplus.0,
            not_scanned,
            first_scan,
            uncleared,
            hugetlb,
        ],
        ..row(Kind::Tables)
    });
    let has_bytes = |ages: &[Bytes]| ages.iter().any(|bytes| *bytes > Bytes::ZERO);
    for kind in PageKind::ALL {
        if let Some(ages) = tables.idle.get(kind.index()).filter(|ages| has_bytes(&ages[..])) {
            put(Row {
                name: Some(kind.name()),
                values: &ages.map(|bytes| bytes.0),
                ..row(Kind::IdleAges)
            });
        }
    }
    if has_bytes(&tables.reaccessed) {
        put(Row {
            values: &tables.reaccessed.map(|bytes| bytes.0),
            ..row(Kind::Reaccessed)
        });
    }
}

fn totals_rows(totals: &Totals, mut put: impl FnMut(Row<'_>)) {
    put(Row {
        name: Some(&totals.scope),
        ..Row::new(Kind::Totals, totals.time_ns)
    });
    for (name, bytes) in &totals.rows {
        put(Row {
            name: Some(name),
            values: &[*bytes],
            ..Row::new(Kind::TotalsRow, totals.time_ns)
        });
    }
}

fn scheme_rows(r: &SchemeApplied, mut put: impl FnMut(Row<'_>)) {
    let totals = [
        u64::from(r.index),
        r.nr_tried,
        r.sz_tried,
        r.nr_applied,
        r.sz_applied,
        r.sz_ops_filter_passed,
        r.sz_changed,
        r.qt_exceeds,
        r.effective_sz,
    ];
    put(Row {
        name: Some(&r.action),
        values: &totals,
        ..Row::new(Kind::Scheme, r.time_ns)
    });
    for (reason, bytes) in &r.skipped {
        put(Row {
            name: Some(reason),
            values: &[*bytes],
            ..Row::new(Kind::Skipped, r.time_ns)
        });
    }
}
