//! The parsed configuration, and its normal form as text.

use std::fmt;
use std::path::PathBuf;

use crate::options::Mode;

/// A region of memory to map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionSpec {
    /// Name, unique in the file.
    pub name: String,
    /// Size in bytes.
    pub sz: u64,
    /// File with the initial data, read before the first phase. Bytes beyond the end of the file are zero.
    pub init: Option<PathBuf>,
}

/// An access pattern of one region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// Index of the region in [`Config::regions`].
    pub region: usize,
    /// True for random addresses, false for sequential ones.
    pub random: bool,
    /// Bytes from one access to the next; ignored when `random`.
    pub stride: u64,
    /// Weight of this pattern relative to the other patterns of the phase.
    pub probability: u32,
    /// Access mode; `None` uses [`crate::Options::default_mode`].
    pub mode: Option<Mode>,
}

/// A span of time with its own access patterns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phase {
    /// Name.
    pub name: String,
    /// Length in milliseconds.
    pub time_ms: u64,
    /// Access patterns. The phase is idle when there are none.
    pub patterns: Vec<Pattern>,
}

/// A workload: regions and phases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The regions.
    pub regions: Vec<RegionSpec>,
    /// The phases, in the order they run.
    pub phases: Vec<Phase>,
}

impl Config {
    /// The normal form: no comments, all known fields, one empty line between paragraphs. Parsing it gives
    /// the same configuration.
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
