//! What a configuration says, and its normal form.

use std::fmt;
use std::path::PathBuf;

use thermo_units::text::ParseError;

use crate::options::Mode;

/// A region of memory to be mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionSpec {
    /// Its name, unique in the file.
    pub name: String,
    /// Its size in bytes.
    pub sz: u64,
    /// A file it is filled from before the first phase; what the file is too short for stays zero.
    pub init: Option<PathBuf>,
}

/// One way of accessing a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// Index of the region in [`Config::regions`].
    pub region: usize,
    /// Addresses are drawn at random (true) or follow one another (false).
    pub random: bool,
    /// Bytes from one access to the next; means nothing when `random`.
    pub stride: u64,
    /// How often this pattern is drawn, relative to the others of its phase.
    pub probability: u32,
    /// What an access does; `None`: as the options say.
    pub mode: Option<Mode>,
}

/// A span of time with its own patterns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phase {
    /// Its name.
    pub name: String,
    /// Its length in milliseconds.
    pub time_ms: u64,
    /// How memory is accessed in it. None: it is an idle phase.
    pub patterns: Vec<Pattern>,
}

/// A whole configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The regions.
    pub regions: Vec<RegionSpec>,
    /// The phases, in the order they run.
    pub phases: Vec<Phase>,
}

impl Config {
    /// Reads a configuration.
    ///
    /// # Errors
    /// The first mistake, with its place and what would be right.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        crate::parse::parse(text)
    }

    /// The normal form: no comments, every field that is known, one empty line between paragraphs. Reading it
    /// gives the same configuration.
    #[must_use]
    pub fn print(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for RegionSpec { name, sz, init } in &self.regions {
            match init {
                Some(file) => writeln!(f, "{name}, {sz}, {}", file.display())?,
                None => writeln!(f, "{name}, {sz}, none")?,
            }
        }
        for phase in &self.phases {
            write!(f, "\n{}\n{}\n", phase.name, phase.time_ms)?;
            for Pattern {
                region,
                random,
                stride,
                probability,
                mode,
            } in &phase.patterns
            {
                let name = self
                    .regions
                    .get(*region)
                    .map_or("?", |region| region.name.as_str());
                write!(f, "{name}, {}, {stride}, {probability}", u8::from(*random))?;
                match mode {
                    Some(mode) => writeln!(f, ", {mode}")?,
                    None => writeln!(f)?,
                }
            }
        }
        Ok(())
    }
}
