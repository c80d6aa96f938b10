//! Decodes access tables from rows.

use thermo_engine::access_tables::{NR_AGES, PageKind};
use thermo_engine::budget::Method;
use thermo_units::{Bytes, Nanos};

use crate::model::AccessTables;
use crate::row::Row;

/// Maximum memory of a target: physical addresses of x86 and arm64 have 52 bits. A larger value means damage,
/// and sums could overflow.
const MAX_BYTES: u64 = 1 << 52;

/// Decodes the first row: tables without ages.
pub(crate) fn head(row: &Row<'_>) -> Result<AccessTables, String> {
    let name = row.name.unwrap_or_default();
    let method = [Method::Sampling, Method::Scan]
        .into_iter()
        .find(|method| method.name() == name)
        .ok_or_else(|| format!("access tables have the unknown method {name:?}"))?;
    let [
        pass,
        nr_passes,
        as_of,
        aliased,
        surplus,
        not_scanned,
        first_scan,
        uncleared,
        hugetlb,
    ] = match numbers::<6>(row) {
        // Earlier recordings lack three values.
        Ok([pass, nr_passes, as_of, not_scanned, first_scan, uncleared]) => [
            pass,
            nr_passes,
            as_of,
            0,
            0,
            not_scanned,
            first_scan,
            uncleared,
            0,
        ],
        Err(_) => numbers(row)?,
    };
    Ok(AccessTables {
        pass: Nanos(pass),
        nr_passes,
        as_of: Nanos(as_of),
        unknown: [not_scanned, first_scan, uncleared, hugetlb, 0].map(Bytes),
        aliased: Bytes(aliased),
        surplus: Bytes(surplus),
        ..AccessTables::new(method)
    })
}

/// Decodes a kind of pages and their bytes by idle age.
pub(crate) fn idle_ages(row: &Row<'_>) -> Result<(PageKind, [Bytes; NR_AGES]), String> {
    let name = row.name.unwrap_or_default();
    let kind = PageKind::ALL
        .into_iter()
        .find(|kind| kind.name() == name)
        .ok_or_else(|| format!("idle ages have the unknown page kind {name:?}"))?;
    Ok((kind, ages(row)?))
}

/// Decodes bytes by idle age.
pub(crate) fn ages(row: &Row<'_>) -> Result<[Bytes; NR_AGES], String> {
    Ok(numbers(row)?.map(Bytes))
}

/// Rejects tables with a sum above [`MAX_BYTES`].
pub(crate) fn check(tables: &AccessTables) -> Result<(), String> {
    let cells = tables.idle.iter().flatten().chain(&tables.unknown);
    let resident: u128 = cells.map(|bytes| u128::from(bytes.0)).sum();
    let reaccessed: u128 = tables.reaccessed.iter().map(|bytes| u128::from(bytes.0)).sum();
    match resident
        .max(reaccessed)
        .max(tables.surplus.0.max(tables.aliased.0).into())
    {
        sum if sum > u128::from(MAX_BYTES) => Err(format!("access tables of a target sum to {sum} bytes")),
        _ => Ok(()),
    }
}

fn numbers<const N: usize>(row: &Row<'_>) -> Result<[u64; N], String> {
    let (len, kind) = (row.values.len(), row.kind as u8);
    let error = |_| format!("a row of kind {kind} has {len} values, not {N}");
    row.values.try_into().map_err(error)
}
