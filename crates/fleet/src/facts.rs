//! Facts of a file, stored as its key-value metadata.

use std::collections::BTreeMap;

use parquet::file::metadata::KeyValue;
use thermo_engine::access_tables::AGE_EDGES_S;

use crate::FleetError;

/// Version of the schema.
pub const SCHEMA: u32 = 1;

const SCHEMA_KEY: &str = "thermo.fleet.schema";
const CLUSTER: &str = "thermo.fleet.cluster";
const NODE: &str = "thermo.fleet.node";
const WINDOW_START_MS: &str = "thermo.fleet.window_start_ms";
const WINDOW_MS: &str = "thermo.fleet.window_ms";
const INTERVAL_MS: &str = "thermo.fleet.interval_ms";
const WRITTEN_MS: &str = "thermo.fleet.written_ms";
const ROWS: &str = "thermo.fleet.rows";
const AGE_EDGES: &str = "thermo.fleet.age_edges_s";
const LINK: &str = "thermo.fleet.link";
const PROGRAM: &str = "thermo.fleet.program";

/// The end of the calendar: the year 10000, Unix time in ms.
const MAX_TIME_MS: u64 = 253_402_300_800_000;

/// Facts of a file: which machine and window its rows belong to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileFacts {
    /// Name of the cluster.
    pub cluster: String,
    /// Name of the machine.
    pub node: String,
    /// Start of the window, Unix time in ms: a multiple of `window_ms`.
    pub window_start_ms: u64,
    /// Length of the window in ms: whole seconds.
    pub window_ms: u64,
    /// Configured length of an interval in ms.
    pub interval_ms: u64,
    /// When the file was made, Unix time in ms.
    pub written_ms: u64,
    /// Address of the machine's dashboard; empty if there is none.
    pub link: String,
    /// The program and its version, such as `thermo 0.1.0`.
    pub program: String,
}

impl FileFacts {
    /// Checks that the window is in whole seconds and aligned.
    ///
    /// # Errors
    /// The rule that the window breaks.
    pub fn check(&self) -> Result<(), FleetError> {
        let impossible = |why| {
            Err(FleetError::Window {
                window_start_ms: self.window_start_ms,
                window_ms: self.window_ms,
                why,
            })
        };
        if self.window_ms == 0 || !self.window_ms.is_multiple_of(1000) {
            return impossible("a window lasts whole seconds, at least one");
        }
        if !self.window_start_ms.is_multiple_of(self.window_ms) {
            return impossible("a window starts at a multiple of its length");
        }
        Ok(())
    }

    /// The metadata of a file with `rows` rows.
    pub(crate) fn to_metadata(&self, rows: usize) -> Vec<KeyValue> {
        [
            (SCHEMA_KEY, SCHEMA.to_string()),
            (CLUSTER, self.cluster.clone()),
            (NODE, self.node.clone()),
            (WINDOW_START_MS, self.window_start_ms.to_string()),
            (WINDOW_MS, self.window_ms.to_string()),
            (INTERVAL_MS, self.interval_ms.to_string()),
            (WRITTEN_MS, self.written_ms.to_string()),
            (ROWS, rows.to_string()),
            (AGE_EDGES, age_edges()),
            (LINK, self.link.clone()),
            (PROGRAM, self.program.clone()),
        ]
        .into_iter()
        .map(|(key, value)| KeyValue::new(key.to_owned(), value))
        .collect()
    }

    /// The facts in `metadata`, and the number of rows. Unknown keys are ignored.
    pub(crate) fn from_metadata(metadata: &[KeyValue]) -> Result<(Self, u64), FleetError> {
        let values = metadata
            .iter()
            .filter_map(|pair| Some((pair.key.as_str(), pair.value.as_deref()?)));
        let values: BTreeMap<&str, &str> = values.collect();
        let text = |key: &str| values.get(key).copied().unwrap_or_default().to_owned();
        if text(SCHEMA_KEY) != SCHEMA.to_string() {
            return Err(FleetError::Schema {
                found: text(SCHEMA_KEY),
            });
        }
        let number = |key| {
            let number = text(key).parse().ok().filter(|number| *number < MAX_TIME_MS);
            number.ok_or_else(|| FleetError::Fact {
                key,
                value: text(key),
                expected: "a number up to the year 9999 in ms",
            })
        };
        if text(AGE_EDGES) != age_edges() {
            return Err(FleetError::Fact {
                key: AGE_EDGES,
                value: text(AGE_EDGES),
                expected: "the edges of schema 1",
            });
        }
        let facts = Self {
            cluster: text(CLUSTER),
            node: text(NODE),
            window_start_ms: number(WINDOW_START_MS)?,
            window_ms: number(WINDOW_MS)?,
            interval_ms: number(INTERVAL_MS)?,
            written_ms: number(WRITTEN_MS)?,
            link: text(LINK),
            program: text(PROGRAM),
        };
        facts.check()?;
        Ok((facts, number(ROWS)?))
    }
}

/// The lower edges of the age buckets in seconds, joined by commas.
fn age_edges() -> String {
    AGE_EDGES_S.map(|edge| edge.to_string()).join(",")
}
