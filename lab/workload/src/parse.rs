//! Parses masim's format: paragraphs of lines. The first paragraph lists regions, each other one is a phase.

use std::path::PathBuf;
use std::str::FromStr;

use thermo_units::Bytes;
use thermo_units::text::ParseError;

use crate::config::{Config, Pattern, Phase, RegionSpec};
use crate::options::Mode;

const REGION: &str = "a region is `name, size in bytes[, initial data file | none]`";
const PATTERN: &str = "an access pattern is `region, randomness (0 or 1), stride, probability[, ro|wo|rw]`";

/// Maximum size: the address space of a process, 128 TiB.
const MAX_BYTES: u64 = 1 << 47;

impl Config {
    /// Parses a configuration.
    ///
    /// # Errors
    /// The first error, with its line, its column and the expected form.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let paragraphs = paragraphs(text);
        let Some((first, rest)) = paragraphs.split_first() else {
            return Err(ParseError::new(
                1,
                1,
                format!("this file is empty: begin with regions, {REGION}"),
            ));
        };
        let regions = regions(text, first)?;
        if rest.is_empty() {
            let end = first.last().map_or(text, |line| &line[line.len()..]);
            let message = "there is no phase: after an empty line, add its name, its length in milliseconds and its \
                       access patterns, one per line";
            return Err(ParseError::at(text, end, message));
        }
        let phases = rest
            .iter()
            .map(|lines| phase(text, lines, &regions))
            .collect::<Result<_, _>>()?;
        Ok(Self { regions, phases })
    }
}

/// The paragraphs, each without its comment lines. A comment line does not end a paragraph.
fn paragraphs(text: &str) -> Vec<Vec<&str>> {
    let mut paragraphs = vec![Vec::new()];
    for line in text.lines() {
        if line.trim().is_empty() {
            paragraphs.push(Vec::new());
        } else if let (false, Some(last)) = (line.trim_start().starts_with('#'), paragraphs.last_mut()) {
            last.push(line);
        }
    }
    paragraphs.retain(|lines| !lines.is_empty());
    paragraphs
}

fn regions(text: &str, lines: &[&str]) -> Result<Vec<RegionSpec>, ParseError> {
    let mut regions: Vec<RegionSpec> = Vec::new();
    for line in lines {
        let fields = fields(text, line, 2..=3, REGION)?;
        let name = fields[0];
        if name.is_empty() {
            return Err(ParseError::at(
                text,
                line,
                format!("the region has no name: {REGION}"),
            ));
        }
        if regions.iter().any(|region| region.name == name) {
            return Err(ParseError::at(
                text,
                name,
                format!("region {name:?} is defined twice: use another name"),
            ));
        }
        let init = fields.get(2).filter(|file| **file != "none");
        if init.is_some_and(|file| file.is_empty()) {
            return Err(ParseError::at(
                text,
                fields[2],
                format!("the initial data file has no name: {REGION}"),
            ));
        }
        let sz = size(text, fields[1], "size")?;
        regions.push(RegionSpec {
            name: name.to_owned(),
            sz,
            init: init.map(PathBuf::from),
        });
    }
    Ok(regions)
}

fn phase(text: &str, lines: &[&str], regions: &[RegionSpec]) -> Result<Phase, ParseError> {
    let name = lines[0].trim();
    let Some(time) = lines.get(1) else {
        let message = format!(
            "phase {name:?} has no length: add a line with its milliseconds, e.g. 5000, after its name"
        );
        return Err(ParseError::at(text, &lines[0][lines[0].len()..], message));
    };
    let time_ms = number(text, time.trim(), "the length of the phase, in milliseconds")?;
    let patterns: Vec<Pattern> = lines[2..]
        .iter()
        .map(|line| pattern(text, line, regions))
        .collect::<Result<_, _>>()?;
    if !patterns.is_empty() && patterns.iter().all(|pattern| pattern.probability == 0) {
        let message = format!("no pattern of phase {name:?} has a probability above 0: give one at least 1");
        return Err(ParseError::at(text, lines[2].trim(), message));
    }
    Ok(Phase {
        name: name.to_owned(),
        time_ms,
        patterns,
    })
}

fn pattern(text: &str, line: &str, regions: &[RegionSpec]) -> Result<Pattern, ParseError> {
    let fields = fields(text, line, 4..=5, PATTERN)?;
    let name = fields[0];
    let Some(region) = regions.iter().position(|region| region.name == name) else {
        let known: Vec<&str> = regions.iter().map(|region| region.name.as_str()).collect();
        let message = format!("unknown region {name:?}: use one of {}", known.join(", "));
        return Err(ParseError::at(text, name, message));
    };
    let random = match fields[1] {
        "0" => false,
        "1" => true,
        other => {
            let message = format!("randomness {other:?} is neither 0 (sequential) nor 1 (random)");
            return Err(ParseError::at(text, other, message));
        }
    };
    let stride = if random {
        number(text, fields[2], "the stride, in bytes")?
    } else {
        size(text, fields[2], "stride")?
    };
    let probability = number(
        text,
        fields[3],
        "the probability, relative to the other patterns of the phase",
    )?;
    let mode = match fields.get(4) {
        Some(mode) => Some(
            mode.parse::<Mode>()
                .map_err(|error| ParseError::at(text, mode, error.to_string()))?,
        ),
        None => None,
    };
    Ok(Pattern {
        region,
        random,
        stride,
        probability,
        mode,
    })
}

/// The trimmed fields of a line. Each is a slice of `text`, so that errors can report its position.
fn fields<'a>(
    text: &str,
    line: &'a str,
    count: std::ops::RangeInclusive<usize>,
    expected: &str,
) -> Result<Vec<&'a str>, ParseError> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    if count.contains(&fields.len()) {
        return Ok(fields);
    }
    let (given, min, max) = (fields.len(), count.start(), count.end());
    // With too many fields, point at the first extra one. With too few, point at the end of the line.
    let position = fields
        .get(*max)
        .copied()
        .unwrap_or(&line[line.trim_end().len()..]);
    let noun = if given == 1 { "field" } else { "fields" };
    Err(ParseError::at(
        text,
        position,
        format!("{given} {noun} where {min} or {max} are expected: {expected}"),
    ))
}

fn number<T: FromStr>(text: &str, field: &str, what: &str) -> Result<T, ParseError> {
    let digits = !field.is_empty() && field.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| field.parse().ok()).flatten().ok_or_else(|| {
        let problem = if digits {
            "is too large"
        } else {
            "is not a whole number"
        };
        ParseError::at(
            text,
            field,
            format!("{field:?} {problem}: expected {what}, e.g. 64"),
        )
    })
}

fn size(text: &str, field: &str, what: &str) -> Result<u64, ParseError> {
    let bytes: Bytes = field
        .parse()
        .map_err(|error| ParseError::at(text, field, format!("{what}: {error}")))?;
    match bytes.0 {
        0 => Err(ParseError::at(
            text,
            field,
            format!("a {what} of 0 bytes is too small: use at least 1"),
        )),
        1..=MAX_BYTES => Ok(bytes.0),
        _ => Err(ParseError::at(
            text,
            field,
            format!("a {what} of {field} is more than an address space can hold (128 TiB)"),
        )),
    }
}
