//! Prints quantities exactly: they parse to the same value.

use thermo_engine::scheme::{Age, Rate};
use thermo_units::{Bytes, Nanos, Permille};

/// `500M`; `4097` if no larger unit is exact; `max`.
pub(crate) fn bytes_text(bytes: Bytes) -> String {
    split_bytes(bytes).map_or_else(|| "max".to_owned(), |(n, unit)| format!("{n}{unit}"))
}

/// In damo's notation: `500 MiB`, `17 B`.
pub(crate) fn damo_bytes_text(bytes: Bytes) -> String {
    match split_bytes(bytes) {
        None => "max".to_owned(),
        Some((n, "")) => format!("{n} B"),
        Some((n, unit)) => format!("{n} {unit}iB"),
    }
}

fn split_bytes(bytes: Bytes) -> Option<(u64, &'static str)> {
    const UNITS: [(u32, &str); 6] = [(60, "E"), (50, "P"), (40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let whole = |(shift, _): &&(u32, &str)| bytes.0 != 0 && bytes.0.trailing_zeros() >= *shift;
    match UNITS.iter().find(whole) {
        _ if bytes == Bytes::MAX => None,
        Some((shift, unit)) => Some((bytes.0 >> shift, unit)),
        None => Some((bytes.0, "")),
    }
}

/// `5s`, `1500us`, `0`, `max`.
pub(crate) fn nanos_text(span: Nanos) -> String {
    const UNITS: [(u64, &str); 6] = [
        (3_600_000_000_000, "h"),
        (60_000_000_000, "m"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "us"),
        (1, "ns"),
    ];
    match span {
        Nanos::MAX => "max".to_owned(),
        Nanos::ZERO => "0".to_owned(),
        Nanos(ns) => {
            let (scale, unit) = UNITS
                .into_iter()
                .find(|(scale, _)| ns % scale == 0)
                .unwrap_or((1, "ns"));
            format!("{}{unit}", ns / scale)
        }
    }
}

/// In damo's notation: `5 s`, `0 ns`.
pub(crate) fn damo_nanos_text(span: Nanos) -> String {
    let text = nanos_text(span);
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    match text.split_at(digits) {
        ("", word) => word.to_owned(),
        (number, "") => format!("{number} ns"),
        (number, unit) => format!("{number} {unit}"),
    }
}

/// `5%`, `0.5%`.
pub(crate) fn permille_text(Permille(share): Permille) -> String {
    if share.is_multiple_of(10) {
        format!("{}%", share / 10)
    } else {
        format!("{}.{}%", share / 10, share % 10)
    }
}

/// `5%`, `3 samples`.
pub(crate) fn rate_text(rate: Rate) -> String {
    match rate {
        Rate::Permille(share) => permille_text(share),
        Rate::Samples(n) => format!("{n} samples"),
    }
}

/// `5s`, `20 aggr_intervals`.
pub(crate) fn age_text(age: Age) -> String {
    match age {
        Age::Time(span) => nanos_text(span),
        Age::Aggrs(n) => format!("{n} aggr_intervals"),
    }
}
