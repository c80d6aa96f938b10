//! Decodes a batch into records. Control characters in names and texts are escaped: programs choose them, and
//! reports print them.

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt8Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrowPrimitiveType, BooleanArray, ListArray, PrimitiveArray, RecordBatch, StringArray,
};

use thermo_units::printable;

use crate::model::{
    AccessTables, Cost, Footprint, Mapping, Mappings, Note, Record, Region, SchemeApplied, Snapshot, Target,
    Totals,
};
use crate::part::Part;
use crate::row::{Kind, Row};
use crate::tables;

/// A batch being decoded.
pub(crate) struct BatchReader {
    /// Index of the next row.
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

/// Why a batch is invalid, as a sentence.
type DecodeError = String;

impl BatchReader {
    /// Reads a batch with the columns of [`crate::row::fields`].
    pub(crate) fn new(batch: &RecordBatch) -> Result<Self, DecodeError> {
        let values = batch
            .column(12)
            .as_list_opt::<i32>()
            .ok_or("column values is not a list")?
            .clone();
        let numbers = values
            .values()
            .as_primitive_opt()
            .ok_or("column values does not hold integers")?
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
                .ok_or("column unknown is not boolean")?
                .clone(),
            name: batch
                .column(10)
                .as_string_opt()
                .ok_or("column name is not text")?
                .clone(),
            text: batch
                .column(11)
                .as_string_opt()
                .ok_or("column text is not text")?
                .clone(),
            values,
            numbers,
        })
    }

    /// The next record of `part`; `None` at the end of the batch.
    pub(crate) fn next_record(&mut self, part: Option<&Part<'_>>) -> Option<Result<Record, DecodeError>> {
        if let Some(part) = part {
            self.skip_to(part);
        }
        (self.next < self.kind.len()).then(|| self.record(part))
    }

    /// Skips the records that are not in `part`.
    fn skip_to(&mut self, part: &Part<'_>) {
        while let Some(kind) = self.kind_at(self.next) {
            let is_in_part = part.has(kind, self.time_ns.value(self.next))
                && part.has_target(kind, get(&self.target, self.next));
            if is_in_part {
                return;
            }
            self.next += 1;
            self.skip_while(|kind| !kind.is_head());
        }
    }

    /// The kind of row `at`; `None` at the end of the batch, and if the kind is not known.
    fn kind_at(&self, at: usize) -> Option<Kind> {
        (at < self.kind.len()).then(|| Kind::from_number(self.kind.value(at)))?
    }

    fn skip_while(&mut self, is_skipped: impl Fn(Kind) -> bool) {
        while self.kind_at(self.next).is_some_and(&is_skipped) {
            self.next += 1;
        }
    }

    fn record(&mut self, part: Option<&Part<'_>>) -> Result<Record, DecodeError> {
        let at = self.next;
        self.next += 1;
        let head = self.row(at)?;
        let time_ns = head.time_ns;
        match head.kind {
            Kind::Snapshot => {
                let (start_ns, aggr_ns) = (value(&head, 0)?, value(&head, 1)?);
                let max_nr_accesses = need(head.max_nr_accesses, "max_nr_accesses", at)?;
                // Old recordings have one value for all targets.
                let scanned = head.values.get(2).map(|&scanned| scanned != 0);
                let targets = self.targets(scanned, part)?;
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
                applied.skipped = self.names_and_bytes(Kind::Skipped)?;
                Ok(Record::Scheme(applied))
            }
            Kind::Note => Ok(Record::Note(Note {
                time_ns,
                kind: name(&head, at)?,
                text: printable(need(head.text, "text", at)?).into_owned(),
            })),
            Kind::Totals => {
                let scope = name(&head, at)?;
                Ok(Record::Totals(Totals {
                    time_ns,
                    scope,
                    rows: self.names_and_bytes(Kind::TotalsRow)?,
                }))
            }
            Kind::Target
            | Kind::Region
            | Kind::Mapping
            | Kind::Skipped
            | Kind::Tables
            | Kind::IdleAges
            | Kind::Reaccessed
            | Kind::TotalsRow => Err(format!("row {at} of the batch has no head row before it")),
        }
    }

    /// Decodes the following rows of `kind`, each with `decode`.
    fn rows_of_kind<T>(
        &mut self,
        kind: Kind,
        decode: impl Fn(&Self, usize) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let rest = self.kind.values().iter().skip(self.next);
        let count = rest.take_while(|&&other| other == kind as u8).count();
        let rows = self.next..self.next + count;
        self.next = rows.end;
        rows.map(|at| decode(self, at)).collect()
    }

    fn targets(
        &mut self,
        all_scanned: Option<bool>,
        part: Option<&Part<'_>>,
    ) -> Result<Vec<Target>, DecodeError> {
        let mut targets = Vec::new();
        while self.next < self.kind.len() && self.kind.value(self.next) == Kind::Target as u8 {
            let row = self.row(self.next)?;
            let (id, pid) = (need(row.target, "target", self.next)?, row.pid);
            if part.is_some_and(|part| !(part.is_wanted)(id)) {
                self.next += 1;
                self.skip_while(|kind| !kind.is_head() && kind != Kind::Target);
                continue;
            }
            let scanned = row
                .values
                .first()
                .map_or(all_scanned, |&scanned| Some(scanned != 0));
            let averaged = row.values.get(1).copied().unwrap_or(0);
            self.next += 1;
            let tables = self.tables()?.map(Box::new);
            let regions = match part.is_some_and(|part| part.totals_only) && tables.is_some() {
                true => {
                    self.skip_while(|kind| kind == Kind::Region);
                    Vec::new()
                }
                false => self.regions()?,
            };
            targets.push(Target {
                id,
                pid,
                scanned,
                averaged,
                tables,
                regions,
            });
        }
        Ok(targets)
    }

    /// The access tables of a target, if their rows follow.
    fn tables(&mut self) -> Result<Option<AccessTables>, DecodeError> {
        let heads = self.rows_of_kind(Kind::Tables, |rows, at| tables::head(&rows.row(at)?))?;
        let Some(mut tables) = heads.into_iter().next_back() else {
            return Ok(None);
        };
        for (kind, ages) in self.rows_of_kind(Kind::IdleAges, |rows, at| tables::idle_ages(&rows.row(at)?))? {
            if let Some(idle) = tables.idle.get_mut(kind.index()) {
                *idle = ages;
            }
        }
        let reaccessed = self.rows_of_kind(Kind::Reaccessed, |rows, at| tables::ages(&rows.row(at)?))?;
        if let Some(ages) = reaccessed.into_iter().next_back() {
            tables.reaccessed = ages;
        }
        tables::check(&tables)?;
        Ok(Some(tables))
    }

    /// The regions of a target. Reports rely on their order.
    fn regions(&mut self) -> Result<Vec<Region>, DecodeError> {
        let first = self.next;
        let regions = self.rows_of_kind(Kind::Region, Self::region)?;
        let mut free_from = 0;
        for (at, Region { start, end, .. }) in (first..).zip(&regions) {
            if *start < free_from || end <= start {
                return Err(format!(
                    "row {at} of the batch has a region from {start:#x} to {end:#x}, where one from {free_from:#x} on \
                     is possible"
                ));
            }
            free_from = *end;
        }
        Ok(regions)
    }

    fn mappings(&mut self) -> Result<Vec<Mapping>, DecodeError> {
        self.rows_of_kind(Kind::Mapping, |rows, at| {
            let row = rows.row(at)?;
            Ok(Mapping {
                start: need(row.start, "start", at)?,
                end: need(row.end, "end", at)?,
                name: name(&row, at)?,
            })
        })
    }

    fn names_and_bytes(&mut self, kind: Kind) -> Result<Vec<(String, u64)>, DecodeError> {
        self.rows_of_kind(kind, |rows, at| {
            let row = rows.row(at)?;
            Ok((name(&row, at)?, value(&row, 0)?))
        })
    }

    /// Reads only the columns of a region, because nearly all rows are regions.
    fn region(&self, at: usize) -> Result<Region, DecodeError> {
        let unknown = self.unknown.is_valid(at).then(|| self.unknown.value(at));
        Ok(Region {
            start: need(get(&self.start, at), "start", at)?,
            end: need(get(&self.end, at), "end", at)?,
            nr_accesses: need(get(&self.nr_accesses, at), "nr_accesses", at)?,
            age: get(&self.age, at),
            unknown: need(unknown, "unknown", at)?,
        })
    }

    fn row(&self, at: usize) -> Result<Row<'_>, DecodeError> {
        let number = self.kind.value(at);
        let kind = Kind::from_number(number)
            .ok_or_else(|| format!("row {at} of the batch has the unknown kind {number}"))?;
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
        let offset = |nth: usize| usize::try_from(*offsets.get(nth)?).ok();
        let values = || self.numbers.values().get(offset(at)?..offset(at + 1)?);
        values().unwrap_or(&[])
    }
}

fn primitive<T: ArrowPrimitiveType>(
    batch: &RecordBatch,
    column: usize,
) -> Result<PrimitiveArray<T>, DecodeError> {
    let error = || format!("column {column} has the wrong type");
    Ok(batch
        .column(column)
        .as_primitive_opt::<T>()
        .ok_or_else(error)?
        .clone())
}

fn get<T: ArrowPrimitiveType>(column: &PrimitiveArray<T>, at: usize) -> Option<T::Native> {
    column.is_valid(at).then(|| column.value(at))
}

fn need<T>(value: Option<T>, column: &str, at: usize) -> Result<T, DecodeError> {
    value.ok_or_else(|| format!("row {at} of the batch has no {column}"))
}

/// The name of a row, of one line.
fn name(row: &Row<'_>, at: usize) -> Result<String, DecodeError> {
    let name = need(row.name, "name", at)?;
    Ok(printable(name).replace('\n', "\\n"))
}

fn value(row: &Row<'_>, index: usize) -> Result<u64, DecodeError> {
    let len = row.values.len();
    let error = || {
        format!(
            "a row of kind {} has only {len} values: value {index} is missing",
            row.kind as u8
        )
    };
    row.values.get(index).copied().ok_or_else(error)
}

fn footprint(row: &Row<'_>, at: usize) -> Result<Footprint, DecodeError> {
    Ok(Footprint {
        time_ns: row.time_ns,
        target: need(row.target, "target", at)?,
        vsz: value(row, 0)?,
        rss: value(row, 1)?,
        swap: value(row, 2)?,
    })
}

fn cost(row: &Row<'_>) -> Result<Cost, DecodeError> {
    Ok(Cost {
        time_ns: row.time_ns,
        cpu_ns: value(row, 0)?,
        monitoring_cpu_ns: value(row, 1)?,
        rss: value(row, 2)?,
    })
}

fn scheme(row: &Row<'_>, at: usize) -> Result<SchemeApplied, DecodeError> {
    let index = value(row, 0)?;
    Ok(SchemeApplied {
        time_ns: row.time_ns,
        index: u32::try_from(index)
            .map_err(|_| format!("row {at} of the batch has the scheme index {index}"))?,
        action: name(row, at)?,
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
