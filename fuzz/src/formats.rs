//! Files that users write: scheme files, workloads, and quantities with units; arguments of perf.

use std::ffi::OsString;
use std::fmt::{Debug, Display};
use std::os::unix::ffi::OsStringExt as _;
use std::str::FromStr;

use thermo_schemes::{
    Format, checked_json, describe, fits_line, normal_form, parse_as, print_json, print_toml,
};
use thermo_units::{Bytes, Nanos, Permille};
use thermo_workload::{Config, Truth};

use crate::Target;

/// The targets of this group.
pub const TARGETS: &[Target] = &[
    Target::new("schemes_line", |data| {
        schemes_survive_printing(Format::Line, data)
    }),
    Target::new("schemes_json", |data| {
        schemes_survive_printing(Format::Json, data)
    }),
    Target::new("schemes_toml", |data| {
        schemes_survive_printing(Format::Toml, data)
    }),
    Target::new("schemes_any", |data| {
        let Ok(text) = std::str::from_utf8(data) else {
            return;
        };
        drop(thermo_schemes::parse("-", text));
    }),
    Target::new("units", units_are_parsed),
    Target::new("perf_arguments", arguments_of_perf_end_at_the_command),
    Target::new("masim", |data| {
        let Ok(text) = std::str::from_utf8(data) else {
            return;
        };
        if let Err(error) = Config::parse(text) {
            position_is_in_text(text, error.line, error.column);
        }
    }),
    Target::new("truth", |data| {
        let Ok(text) = std::str::from_utf8(data) else {
            return;
        };
        let Ok(truth) = Truth::parse(text) else { return };
        assert!(truth.ranges.iter().all(|range| !range.is_empty()), "{truth:?}");
    }),
];

/// Schemes that were read are the same after they were printed, in each format that can express them, and
/// read again.
fn schemes_survive_printing(format: Format, data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let schemes = match parse_as(format, text) {
        Ok(schemes) => schemes,
        Err(error) => return position_is_in_text(text, error.line, error.column),
    };
    let reread = |format, text: &str| match parse_as(format, text) {
        Ok(reread) => assert_eq!(reread, schemes, "{text}"),
        Err(error) => panic!("{error} in what was printed:\n{text}"),
    };
    reread(Format::Toml, &print_toml(&schemes));
    if let Some(json) = print_json(&schemes) {
        reread(Format::Json, &json);
    }
    for scheme in &schemes {
        assert!(describe(scheme).ends_with('.'), "{}", describe(scheme));
        let _ = (fits_line(scheme), normal_form(scheme));
    }
    drop(checked_json(&schemes));
}

/// The position of an error is that of a character, or just behind the last one of a line.
fn position_is_in_text(text: &str, line: usize, column: usize) {
    assert!(line >= 1 && column >= 1, "{line}:{column}");
    let found = text.split('\n').nth(line - 1);
    let width = found.map(|found| found.chars().count());
    assert!(
        width.is_some_and(|width| column <= width + 1),
        "{line}:{column} of {text:?}"
    );
}

fn units_are_parsed(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    printed_again::<Bytes>(text);
    printed_again::<Nanos>(text);
    printed_again::<Permille>(text);
}

/// What a quantity prints is a quantity.
fn printed_again<T: FromStr + Display + Debug>(text: &str) {
    if let Ok(quantity) = text.parse::<T>() {
        assert!(!quantity.to_string().is_empty(), "{quantity:?}");
    }
}

/// The replacement of perf is a part of a command, not of a library.
#[path = "../../crates/cli/src/cmd/fs/perf_args.rs"]
mod perf_args;

/// Arguments are separated by zeros; the first is the verb. The command is the end of them, and after `--` it
/// is everything.
fn arguments_of_perf_end_at_the_command(data: &[u8]) {
    let mut words = data.split(|byte| *byte == 0);
    let verb = String::from_utf8_lossy(words.next().unwrap_or_default());
    let arguments: Vec<OsString> = words.map(|word| OsString::from_vec(word.to_vec())).collect();
    let parsed = perf_args::PerfArgs::parse(&verb, &arguments);
    assert!(arguments.ends_with(&parsed.command), "{parsed:?}");
    let escaped = [&[OsString::from("--")], &arguments[..]].concat();
    let parsed = perf_args::PerfArgs::parse(&verb, &escaped);
    assert_eq!(parsed.command, arguments);
    assert!(parsed.events.is_empty() && parsed.output.is_none() && parsed.input.is_none());
}
