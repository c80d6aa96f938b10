//! Encodes records as an Arrow batch.

use std::sync::Arc;

use arrow_array::builder::{
    BooleanBuilder, ListBuilder, StringBuilder, UInt8Builder, UInt32Builder, UInt64Builder,
};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, SchemaRef};

use crate::model::Record;
use crate::row::{Row, for_each_row};

/// The columns of the next batch.
pub(crate) struct BatchBuilder {
    schema: SchemaRef,
    len: usize,
    bytes: usize,
    kind: UInt8Builder,
    time_ns: UInt64Builder,
    target: UInt32Builder,
    pid: UInt32Builder,
    start: UInt64Builder,
    end: UInt64Builder,
    nr_accesses: UInt32Builder,
    max_nr_accesses: UInt32Builder,
    age: UInt32Builder,
    unknown: BooleanBuilder,
    name: StringBuilder,
    text: StringBuilder,
    values: ListBuilder<UInt64Builder>,
}

impl BatchBuilder {
    /// An empty builder for batches of `schema`.
    pub(crate) fn new(schema: SchemaRef) -> Self {
        let value = Field::new_list_field(DataType::UInt64, false);
        Self {
            schema,
            len: 0,
            bytes: 0,
            kind: UInt8Builder::new(),
            time_ns: UInt64Builder::new(),
            target: UInt32Builder::new(),
            pid: UInt32Builder::new(),
            start: UInt64Builder::new(),
            end: UInt64Builder::new(),
            nr_accesses: UInt32Builder::new(),
            max_nr_accesses: UInt32Builder::new(),
            age: UInt32Builder::new(),
            unknown: BooleanBuilder::new(),
            name: StringBuilder::new(),
            text: StringBuilder::new(),
            values: ListBuilder::new(UInt64Builder::new()).with_field(value),
        }
    }

    /// Number of rows since the last [`BatchBuilder::finish`].
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Uncompressed bytes of these rows, rounded up.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds all rows of `record`. A record is never split between two batches.
    pub(crate) fn push(&mut self, record: &Record) {
        for_each_row(record, |row| self.push_row(&row));
    }

    fn push_row(&mut self, row: &Row<'_>) {
        self.len += 1;
        self.bytes = self.bytes.saturating_add(row.bytes());
        self.kind.append_value(row.kind as u8);
        self.time_ns.append_value(row.time_ns);
        self.target.append_option(row.target);
        self.pid.append_option(row.pid);
        self.start.append_option(row.start);
        self.end.append_option(row.end);
        self.nr_accesses.append_option(row.nr_accesses);
        self.max_nr_accesses.append_option(row.max_nr_accesses);
        self.age.append_option(row.age);
        self.unknown.append_option(row.unknown);
        self.name.append_option(row.name);
        self.text.append_option(row.text);
        self.values.values().append_slice(row.values);
        self.values.append(true);
    }

    /// Returns the rows as a batch and empties the builder.
    pub(crate) fn finish(&mut self) -> Result<RecordBatch, ArrowError> {
        (self.len, self.bytes) = (0, 0);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.kind.finish()),
            Arc::new(self.time_ns.finish()),
            Arc::new(self.target.finish()),
            Arc::new(self.pid.finish()),
            Arc::new(self.start.finish()),
            Arc::new(self.end.finish()),
            Arc::new(self.nr_accesses.finish()),
            Arc::new(self.max_nr_accesses.finish()),
            Arc::new(self.age.finish()),
            Arc::new(self.unknown.finish()),
            Arc::new(self.name.finish()),
            Arc::new(self.text.finish()),
            Arc::new(self.values.finish()),
        ];
        RecordBatch::try_new(Arc::clone(&self.schema), columns)
    }
}
