//! Whether a batch can be what it says, before the Arrow library is let at it.
//!
//! That library panics on a column whose bytes are fewer than its rows need, or no multiple of their width, and
//! asks for as much memory as a length tells it to. The columns are known here, so each length is checked first.

use arrow_ipc::{FieldNode, RecordBatch};
use arrow_schema::{DataType, Field};

/// The most that one column of one batch may unpack to, and the most rows of a batch: far above what a writer
/// makes, far below what would hurt.
const MAX: i64 = 1 << 28;

/// Checks `batch`, whose buffers lie in `body`, against `fields`.
pub(crate) fn check(batch: &RecordBatch<'_>, body: &[u8], fields: &[Field]) -> Result<(), String> {
    let (nodes, buffers) = batch
        .nodes()
        .zip(batch.buffers())
        .ok_or("a batch has no columns")?;
    let rows = batch.length();
    if !(0..=MAX).contains(&rows) || batch.variadicBufferCounts().is_some() {
        return Err(format!("a batch says it has {rows} rows"));
    }
    let packed = batch.compression().is_some();
    let lengths = buffers.iter().map(|buffer| unpacked(buffer, body, packed));
    let mut parts = Parts {
        nodes: nodes.iter(),
        lengths: lengths.collect::<Result<Vec<_>, _>>()?.into_iter(),
    };
    for field in fields {
        let node = parts.node()?;
        if node.length() != rows {
            return Err(format!(
                "column {} has {} of {rows} rows",
                field.name(),
                node.length()
            ));
        }
        parts
            .column(field, node)
            .ok_or_else(|| format!("column {} is too short for its rows", field.name()))?;
    }
    if parts.nodes.next().is_some() || parts.lengths.next().is_some() {
        return Err("a batch has too many columns".to_owned());
    }
    Ok(())
}

/// How many bytes a buffer has when unpacked.
fn unpacked(buffer: &arrow_ipc::Buffer, body: &[u8], packed: bool) -> Result<i64, String> {
    let from = usize::try_from(buffer.offset()).map_err(|_| "a column begins before its batch")?;
    let len = usize::try_from(buffer.length()).map_err(|_| "a column has a negative length")?;
    let bytes = from.checked_add(len).and_then(|to| body.get(from..to));
    let bytes = bytes.ok_or("a column reaches beyond its batch")?;
    if !from.is_multiple_of(8) {
        return Err("a column is not aligned".to_owned());
    }
    if !packed || len == 0 {
        return Ok(buffer.length());
    }
    let prefix = bytes.first_chunk().ok_or("a packed column lacks its length")?;
    match i64::from_le_bytes(*prefix) {
        -1 => Ok(buffer.length() - 8),
        n if (0..=MAX).contains(&n) => Ok(n),
        n => Err(format!("a column would unpack to {n} bytes")),
    }
}

/// The parts of the columns that have not been looked at, in the order of the format.
struct Parts<N, L> {
    nodes: N,
    lengths: L,
}

impl<'a, N: Iterator<Item = &'a FieldNode>, L: Iterator<Item = i64>> Parts<N, L> {
    fn node(&mut self) -> Result<&'a FieldNode, String> {
        let node = self.nodes.next().ok_or("a batch has too few columns")?;
        let sane = (0..=MAX).contains(&node.length()) && (0..=node.length()).contains(&node.null_count());
        if sane {
            Ok(node)
        } else {
            Err("a column has an impossible length".to_owned())
        }
    }

    /// Passes over the buffers of one column; `None` when one is too short or uneven.
    fn column(&mut self, field: &Field, node: &FieldNode) -> Option<()> {
        let (rows, nulls) = (node.length(), node.null_count());
        let validity = self.lengths.next()?;
        let enough = validity >= rows.div_euclid(8) + i64::from(rows % 8 != 0);
        if !(enough || validity == 0 && nulls == 0) || (nulls > 0 && !field.is_nullable()) {
            return None;
        }
        match field.data_type() {
            DataType::Boolean => self.elements(rows / 8 + i64::from(rows % 8 != 0), 1),
            DataType::Utf8 => {
                self.elements(rows + 1, 4)?;
                self.lengths.next().map(|_| ())
            }
            DataType::List(item) => {
                self.elements(rows + 1, 4)?;
                let node = self.node().ok()?;
                self.column(item, node)
            }
            primitive => self.elements(rows, i64::try_from(primitive.primitive_width()?).ok()?),
        }
    }

    fn elements(&mut self, count: i64, width: i64) -> Option<()> {
        let length = self.lengths.next()?;
        (length >= count * width && length % width == 0).then_some(())
    }
}
