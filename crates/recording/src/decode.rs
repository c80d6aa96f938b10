//! Batches back into records.

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt8Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrowPrimitiveType, BooleanArray, ListArray, PrimitiveArray, RecordBatch, StringArray,
};

use crate::model::{
    AccessTables, Cost, Footprint, Mapping, Mappings, Note, Record, Region, SchemeApplied, Snapshot, Target,
    Totals,
};
use crate::row::{Kind, Row};
use crate::tables;

/// A batch and the place up to which it was read.
pub(crate) struct Rows {
    next: usize,
    kind: PrimitiveArray<UInt8Type>,
    time_ns: PrimitiveArray<UInt64Type>,
    target: PrimitiveArray<UInt32Type>,
    pid: PrimitiveArray<UInt32Type>,
    start: PrimitiveArray<UInt64Type>,
    end: PrimitiveArray<UInt64Type>,
    nr_accesses: PrimitiveArray<UInt32Type>,
    max_nr_accesses: PrimitiveArray<UInt32Type>,
    age: PrimitiveArray<UInt32Type>,
    unknown: BooleanArray,
    name: StringArray,
    text: StringArray,
    values: ListArray,
    numbers: PrimitiveArray<UInt64Type>,
}

/// Why a batch is not one of ours.
type Wrong = String;

impl Rows {
    /// Takes a batch of the schema of [`crate::row::fields`].
    pub(crate) fn new(batch: &RecordBatch) -> Result<Self, Wrong> {
        let values = batch
            .column(12)
            .as_list_opt::<i32>()
            .ok_or("values is no list")?
            .clone();
        let numbers = values
            .values()
            .as_primitive_opt()
            .ok_or("values holds no whole numbers")?
            .clone();
        Ok(Self {
            next: 0,
            kind: primitive(batch, 0)?,
            time_ns: primitive(batch, 1)?,
            target: primitive(batch, 2)?,
            pid: primitive(batch, 3)?,
            start: primitive(batch, 4)?,
            end: primitive(batch, 5)?,
            nr_accesses: primitive(batch, 6)?,
            max_nr_accesses: primitive(batch, 7)?,
            age: primitive(batch, 8)?,
            unknown: batch
                .column(9)
                .as_boolean_opt()
                .ok_or("unknown is no truth value")?
                .clone(),
            name: batch.column(10).as_string_opt().ok_or("name is no text")?.clone(),
            text: batch.column(11).as_string_opt().ok_or("text is no text")?.clone(),
            values,
            numbers,
        })
    }

    /// The next record, if one is left.
    pub(crate) fn next_record(&mut self) -> Option<Result<Record, Wrong>> {
        (self.next < self.kind.len()).then(|| self.record())
    }

    fn record(&mut self) -> Result<Record, Wrong> {
        let at = self.next;
        self.next += 1;
        let head = self.row(at)?;
        let time_ns = head.time_ns;
        match head.kind {
            Kind::Snapshot => {
                let (start_ns, aggr_ns) = (value(&head, 0)?, value(&head, 1)?);
                let max_nr_accesses = need(head.max_nr_accesses, "max_nr_accesses", at)?;
                // Once it was told of all targets together.
                let scanned = head.values.get(2).map(|&scanned| scanned != 0);
                let targets = self.targets(scanned)?;
                Ok(Record::Snapshot(Snapshot {
                    start_ns,
                    time_ns,
                    aggr_ns,
                    max_nr_accesses,
                    targets,
                }))
            }
            Kind::Mappings => {
                let target = need(head.target, "target", at)?;
                Ok(Record::Mappings(Mappings {
                    time_ns,
                    target,
                    mappings: self.mappings()?,
                }))
            }
            Kind::Footprint => footprint(&head, at).map(Record::Footprint),
            Kind::Cost => cost(&head).map(Record::Cost),
            Kind::Scheme => {
                let mut applied = scheme(&head, at)?;
                applied.skipped = self.named_bytes(Kind::Skipped)?;
                Ok(Record::Scheme(applied))
            }
            Kind::Note => Ok(Record::Note(Note {
                time_ns,
                kind: need(head.name, "name", at)?.to_owned(),
                text: need(head.text, "text", at)?.to_owned(),
            })),
            Kind::Totals => {
                let scope = need(head.name, "name", at)?.to_owned();
                Ok(Record::Totals(Totals {
                    time_ns,
                    scope,
                    rows: self.named_bytes(Kind::TotalsRow)?,
                }))
            }
            Kind::Target
            | Kind::Region
            | Kind::Mapping
            | Kind::Skipped
            | Kind::Tables
            | Kind::IdleAges
            | Kind::Reaccessed
            | Kind::TotalsRow => Err(format!("row {at} of the batch belongs to none before it")),
        }
    }

    /// The rows of `kind` that follow, each turned into something by `take`.
    fn followers<T>(
        &mut self,
        kind: Kind,
        take: impl Fn(&Self, usize) -> Result<T, Wrong>,
    ) -> Result<Vec<T>, Wrong> {
        let rest = &self.kind.values()[self.next..];
        let count = rest.iter().take_while(|&&other| other == kind as u8).count();
        let rows = self.next..self.next + count;
        self.next = rows.end;
        rows.map(|at| take(self, at)).collect()
    }

    fn targets(&mut self, all_scanned: Option<bool>) -> Result<Vec<Target>, Wrong> {
        let mut targets = Vec::new();
        while self.next < self.kind.len() && self.kind.value(self.next) == Kind::Target as u8 {
            let row = self.row(self.next)?;
            let (id, pid) = (need(row.target, "target", self.next)?, row.pid);
            let scanned = row
                .values
                .first()
                .map_or(all_scanned, |&scanned| Some(scanned != 0));
            let averaged = row.values.get(1).copied().unwrap_or(0);
            self.next += 1;
            targets.push(Target {
                id,
                pid,
                scanned,
                averaged,
                tables: self.tables()?.map(Box::new),
                regions: self.followers(Kind::Region, Self::region)?,
            });
        }
        Ok(targets)
    }

    /// The access tables of a target, if the rows of some follow.
    fn tables(&mut self) -> Result<Option<AccessTables>, Wrong> {
        let heads = self.followers(Kind::Tables, |rows, at| tables::head(&rows.row(at)?))?;
        let Some(mut tables) = heads.into_iter().next_back() else {
            return Ok(None);
        };
        for (kind, ages) in self.followers(Kind::IdleAges, |rows, at| tables::idle_ages(&rows.row(at)?))? {
            tables.idle[kind.index()] = ages;
        }
        let reaccessed = self.followers(Kind::Reaccessed, |rows, at| tables::ages(&rows.row(at)?))?;
        if let Some(ages) = reaccessed.into_iter().next_back() {
            tables.reaccessed = ages;
        }
        tables::check(&tables)?;
        Ok(Some(tables))
    }

    fn mappings(&mut self) -> Result<Vec<Mapping>, Wrong> {
        self.followers(Kind::Mapping, |rows, at| {
            let row = rows.row(at)?;
            Ok(Mapping {
                start: need(row.start, "start", at)?,
                end: need(row.end, "end", at)?,
                name: need(row.name, "name", at)?.to_owned(),
            })
        })
    }

    fn named_bytes(&mut self, kind: Kind) -> Result<Vec<(String, u64)>, Wrong> {
        self.followers(kind, |rows, at| {
            let row = rows.row(at)?;
            Ok((need(row.name, "name", at)?.to_owned(), value(&row, 0)?))
        })
    }

    /// A region's row, by its own columns alone: nearly all rows are of this kind.
    fn region(&self, at: usize) -> Result<Region, Wrong> {
        let unknown = self.unknown.is_valid(at).then(|| self.unknown.value(at));
        Ok(Region {
            start: need(get(&self.start, at), "start", at)?,
            end: need(get(&self.end, at), "end", at)?,
            nr_accesses: need(get(&self.nr_accesses, at), "nr_accesses", at)?,
            age: need(get(&self.age, at), "age", at)?,
            unknown: need(unknown, "unknown", at)?,
        })
    }

    fn row(&self, at: usize) -> Result<Row<'_>, Wrong> {
        let number = self.kind.value(at);
        let kind =
            Kind::of(number).ok_or_else(|| format!("row {at} of the batch has the unknown kind {number}"))?;
        Ok(Row {
            kind,
            time_ns: self.time_ns.value(at),
            target: get(&self.target, at),
            pid: get(&self.pid, at),
            start: get(&self.start, at),
            end: get(&self.end, at),
            nr_accesses: get(&self.nr_accesses, at),
            max_nr_accesses: get(&self.max_nr_accesses, at),
            age: get(&self.age, at),
            unknown: self.unknown.is_valid(at).then(|| self.unknown.value(at)),
            name: self.name.is_valid(at).then(|| self.name.value(at)),
            text: self.text.is_valid(at).then(|| self.text.value(at)),
            values: self.values_at(at),
        })
    }

    fn values_at(&self, at: usize) -> &[u64] {
        let offsets = self.values.value_offsets();
        let range = usize::try_from(offsets[at])
            .ok()
            .zip(usize::try_from(offsets[at + 1]).ok());
        range
            .and_then(|(from, to)| self.numbers.values().get(from..to))
            .unwrap_or(&[])
    }
}

fn primitive<T: ArrowPrimitiveType>(batch: &RecordBatch, column: usize) -> Result<PrimitiveArray<T>, Wrong> {
    let wrong = || format!("column {column} has another type");
    Ok(batch
        .column(column)
        .as_primitive_opt::<T>()
        .ok_or_else(wrong)?
        .clone())
}

fn get<T: ArrowPrimitiveType>(column: &PrimitiveArray<T>, at: usize) -> Option<T::Native> {
    column.is_valid(at).then(|| column.value(at))
}

fn need<T>(value: Option<T>, column: &str, at: usize) -> Result<T, Wrong> {
    value.ok_or_else(|| format!("row {at} of the batch lacks its {column}"))
}

fn value(row: &Row<'_>, index: usize) -> Result<u64, Wrong> {
    let has = row.values.len();
    let wrong = || {
        format!(
            "a row of kind {} has {has} values, value {index} is needed",
            row.kind as u8
        )
    };
    row.values.get(index).copied().ok_or_else(wrong)
}

fn footprint(row: &Row<'_>, at: usize) -> Result<Footprint, Wrong> {
    Ok(Footprint {
        time_ns: row.time_ns,
        target: need(row.target, "target", at)?,
        vsz: value(row, 0)?,
        rss: value(row, 1)?,
        swap: value(row, 2)?,
    })
}

fn cost(row: &Row<'_>) -> Result<Cost, Wrong> {
    Ok(Cost {
        time_ns: row.time_ns,
        cpu_ns: value(row, 0)?,
        monitoring_cpu_ns: value(row, 1)?,
        rss: value(row, 2)?,
    })
}

fn scheme(row: &Row<'_>, at: usize) -> Result<SchemeApplied, Wrong> {
    let index = value(row, 0)?;
    Ok(SchemeApplied {
        time_ns: row.time_ns,
        index: u32::try_from(index).map_err(|_| format!("row {at} of the batch names scheme {index}"))?,
        action: need(row.name, "name", at)?.to_owned(),
        nr_tried: value(row, 1)?,
        sz_tried: value(row, 2)?,
        nr_applied: value(row, 3)?,
        sz_applied: value(row, 4)?,
        sz_ops_filter_passed: value(row, 5)?,
        sz_changed: value(row, 6)?,
        qt_exceeds: value(row, 7)?,
        effective_sz: value(row, 8)?,
        skipped: Vec::new(),
    })
}
