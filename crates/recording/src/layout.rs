//! Checks the lengths in a batch before the Arrow library decodes it.
//!
//! The library panics on a column with too few bytes for its rows, or with a length that is not a multiple of
//! the element width, and allocates any amount of memory that a length asks for. The columns are known here,
//! so each length can be checked first.

use arrow_ipc::{FieldNode, RecordBatch};
use arrow_schema::{DataType, Field};

/// Maximum uncompressed bytes of a batch, and maximum rows: about two million regions, far more than a
/// snapshot has, and still harmless. The writer keeps this limit as well.
pub(crate) const MAX_UNCOMPRESSED: i64 = 128 << 20;
/// Maximum bytes of a batch in the file, which is compressed.
pub(crate) const MAX_BODY: u64 = 32 << 20;
/// Maximum bytes of a header. That of the schema holds the metadata with the command line, at most 2 MiB on
/// Linux.
pub(crate) const MAX_HEAD: u64 = 4 << 20;

/// Checks `batch`, whose buffers are in `body`, against the columns `fields`.
pub(crate) fn check(batch: &RecordBatch<'_>, body: &[u8], fields: &[Field]) -> Result<(), String> {
    let (nodes, buffers) = batch
        .nodes()
        .zip(batch.buffers())
        .ok_or("a batch has no columns")?;
    let rows = batch.length();
    if !(0..=MAX_UNCOMPRESSED).contains(&rows) || batch.variadicBufferCounts().is_some() {
        return Err(format!("a batch says it has {rows} rows"));
    }
    let compressed = batch.compression().is_some();
    let lengths: Vec<i64> = buffers
        .iter()
        .map(|buffer| uncompressed_len(buffer, body, compressed))
        .collect::<Result<_, _>>()?;
    let total = lengths.iter().fold(0, |sum: i64, len| sum.saturating_add(*len));
    if total > MAX_UNCOMPRESSED {
        return Err(format!(
            "a batch of {total} bytes is larger than the maximum of {MAX_UNCOMPRESSED}"
        ));
    }
    let mut rest = UncheckedParts {
        nodes: nodes.iter(),
        lengths: lengths.into_iter(),
    };
    for field in fields {
        let node = rest.node()?;
        if node.length() != rows {
            return Err(format!(
                "column {} has {} of {rows} rows",
                field.name(),
                node.length()
            ));
        }
        rest.check_column(field, node)
            .ok_or_else(|| format!("column {} is too short for its rows", field.name()))?;
    }
    if rest.nodes.next().is_some() || rest.lengths.next().is_some() {
        return Err("a batch has too many columns".to_owned());
    }
    Ok(())
}

fn uncompressed_len(buffer: &arrow_ipc::Buffer, body: &[u8], compressed: bool) -> Result<i64, String> {
    let from = usize::try_from(buffer.offset()).map_err(|_| "a column begins before its batch")?;
    let len = usize::try_from(buffer.length()).map_err(|_| "a column has a negative length")?;
    let bytes = from.checked_add(len).and_then(|to| body.get(from..to));
    let bytes = bytes.ok_or("a column reaches beyond its batch")?;
    if !from.is_multiple_of(8) {
        return Err("a column is not aligned".to_owned());
    }
    if !compressed || len == 0 {
        return Ok(buffer.length());
    }
    let prefix = bytes
        .first_chunk()
        .ok_or("a compressed column lacks its length")?;
    match i64::from_le_bytes(*prefix) {
        -1 => Ok(buffer.length() - 8),
        n if (0..=MAX_UNCOMPRESSED).contains(&n) => Ok(n),
        n => Err(format!("a column has an uncompressed length of {n} bytes")),
    }
}

/// Nodes and buffer lengths not checked yet, in the order of the format.
struct UncheckedParts<N, L> {
    nodes: N,
    lengths: L,
}

impl<'a, N: Iterator<Item = &'a FieldNode>, L: Iterator<Item = i64>> UncheckedParts<N, L> {
    fn node(&mut self) -> Result<&'a FieldNode, String> {
        let node = self.nodes.next().ok_or("a batch has too few columns")?;
        let is_valid = (0..=MAX_UNCOMPRESSED).contains(&node.length())
            && (0..=node.length()).contains(&node.null_count());
        if is_valid {
            Ok(node)
        } else {
            Err("a column has an impossible length".to_owned())
        }
    }

    /// Checks the buffers of one column. `None`: a buffer is too short or not a multiple of the element
    /// width.
    fn check_column(&mut self, field: &Field, node: &FieldNode) -> Option<()> {
        let (rows, nulls) = (node.length(), node.null_count());
        let bitmap_len = rows / 8 + i64::from(rows % 8 != 0);
        let validity_len = self.lengths.next()?;
        let has_validity = validity_len >= bitmap_len;
        if !(has_validity || validity_len == 0 && nulls == 0) || (nulls > 0 && !field.is_nullable()) {
            return None;
        }
        match field.data_type() {
            DataType::Boolean => self.check_buffer(bitmap_len, 1),
            DataType::Utf8 => {
                self.check_buffer(rows + 1, 4)?;
                self.lengths.next().map(|_| ())
            }
            DataType::List(item) => {
                self.check_buffer(rows + 1, 4)?;
                let node = self.node().ok()?;
                self.check_column(item, node)
            }
            primitive => self.check_buffer(rows, i64::try_from(primitive.primitive_width()?).ok()?),
        }
    }

    fn check_buffer(&mut self, count: i64, width: i64) -> Option<()> {
        let length = self.lengths.next()?;
        (length >= count * width && length % width == 0).then_some(())
    }
}
