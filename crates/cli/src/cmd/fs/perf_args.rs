//! The arguments of perf, as far as its replacement needs them: events, files and the command.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

/// Short options of `perf record` with a value.
const SHORT_WITH_VALUE: &[u8] = b"cCDeFGjkmoprtu";
/// Long options with a value, which may be the next argument.
const LONG_WITH_VALUE: [&str; 24] = [
    "affinity",
    "branch-filter",
    "buildid-dir",
    "call-graph",
    "cgroup",
    "clockid",
    "control",
    "count",
    "cpu",
    "delay",
    "event",
    "filter",
    "freq",
    "input",
    "max-size",
    "mmap-pages",
    "output",
    "pid",
    "proc-map-timeout",
    "realtime",
    "switch-max-files",
    "synth",
    "tid",
    "uid",
];

/// Arguments after the verb.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PerfArgs {
    /// Values of `-e`, split at commas.
    pub events: Vec<String>,
    /// Value of `-o`.
    pub output: Option<PathBuf>,
    /// Value of `-i`.
    pub input: Option<PathBuf>,
    /// The command to run, with its arguments.
    pub command: Vec<OsString>,
}

impl PerfArgs {
    /// Parses the arguments after `verb`.
    pub fn parse(verb: &str, arguments: &[OsString]) -> Self {
        // `-i` of other verbs has no value.
        let short_with_value =
            |letter: u8| SHORT_WITH_VALUE.contains(&letter) || (verb == "script" && letter == b'i');
        let (mut parsed, mut rest) = (Self::default(), arguments);
        while let Some((first, others)) = rest.split_first() {
            let Some(option) = first
                .as_bytes()
                .strip_prefix(b"-")
                .filter(|rest| !rest.is_empty())
            else {
                // As in perf, the command begins with the first argument that is not an option.
                parsed.command = rest.to_vec();
                break;
            };
            rest = others;
            if option == b"-" {
                parsed.command = rest.to_vec();
                break;
            }
            let Some((name, value)) = option_with_value(option, short_with_value) else {
                continue;
            };
            let value = value.or_else(|| {
                let (next, others) = rest.split_first()?;
                rest = others;
                Some(next.clone())
            });
            parsed.set(name, value.unwrap_or_default());
        }
        parsed
    }

    fn set(&mut self, name: &str, value: OsString) {
        match name {
            "e" | "event" => {
                let value = value.to_string_lossy();
                self.events.extend(value.split(',').map(str::to_owned));
            }
            "o" | "output" => self.output = Some(value.into()),
            "i" | "input" => self.input = Some(value.into()),
            _ => {}
        }
    }
}

/// Name and attached value of an option (without its first dash) that takes a value; `None` for others.
fn option_with_value(
    option: &[u8],
    short_with_value: impl Fn(u8) -> bool,
) -> Option<(&str, Option<OsString>)> {
    let owned = |value: &[u8]| OsString::from_vec(value.to_vec());
    let Some(long) = option.strip_prefix(b"-") else {
        // Options without a value may come before it, as in `-ae EVENT`.
        let at = option.iter().position(|letter| short_with_value(*letter))?;
        let value = Some(&option[at + 1..]).filter(|value| !value.is_empty());
        return Some((std::str::from_utf8(&option[at..=at]).ok()?, value.map(owned)));
    };
    let (name, value) = match long.iter().position(|byte| *byte == b'=') {
        Some(at) => (&long[..at], Some(owned(&long[at + 1..]))),
        None => (long, None),
    };
    let name = OsStr::from_bytes(name).to_str()?;
    LONG_WITH_VALUE.contains(&name).then_some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(verb: &str, line: &str) -> PerfArgs {
        let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        PerfArgs::parse(verb, &arguments)
    }

    #[test]
    fn all_spellings_of_options_are_understood() {
        let expected = PerfArgs {
            events: vec!["damon:a".to_owned(), "damon:b".to_owned()],
            output: Some("record".into()),
            command: vec!["sleep".into(), "-e".into()],
            ..PerfArgs::default()
        };
        for line in [
            "-a -e damon:a -e damon:b -o record -- sleep -e",
            "-ae damon:a,damon:b -F 99 -orecord sleep -e",
            "--event=damon:a --event damon:b --output=record --no-buildid --call-graph dwarf sleep -e",
        ] {
            assert_eq!(parse("record", line), expected, "{line}");
        }
        assert_eq!(parse("script", "--force -i in").input, Some("in".into()));
        assert_eq!(
            parse("record", "-i -e"),
            PerfArgs {
                events: vec![String::new()],
                ..PerfArgs::default()
            }
        );
    }
}
