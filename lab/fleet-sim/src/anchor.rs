//! Anchors: idle ages of a real server, which the random accesses of a class then follow.

mod from_recording;

use std::path::Path;

use serde::{Deserialize, Serialize};
use thermo_units::text;

use crate::class::CLASSES;
use crate::error::Error;
use crate::pattern::Band;

/// Idle ages of a real server, made from a recording. `lab/fleet-sim/anchors` has some.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Anchor {
    /// Version of the format: 1.
    pub schema: u32,
    /// The class that follows this recording.
    pub class: String,
    /// Server, load, date and command.
    pub source: String,
    /// Shares of resident memory by mean time between accesses: ascending; together 1.
    pub bands: Vec<AnchorBand>,
}

/// Memory with similar times between accesses.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnchorBand {
    /// Share of resident memory.
    pub share: f64,
    /// Range of the mean time between accesses, in seconds.
    pub mean_s: (f64, f64),
}

impl Anchor {
    /// Reads an anchor: JSON, or a recording of `thermo record`. A recording is for the class after which its
    /// file is named, such as `cache-zipf.arrow`.
    ///
    /// # Errors
    /// The file cannot be read, or is no anchor of a known class.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let wrong = |what| Error::input(path, what);
        let anchor = if path.extension().is_some_and(|extension| extension == "json") {
            let text = text::read_file(path).map_err(Error::io(path))?;
            let way_out = "expected an anchor as in lab/fleet-sim/anchors";
            serde_json::from_str(&text).map_err(|error| wrong(format!("{way_out} ({error})")))?
        } else {
            let class = path.file_stem().unwrap_or_default().to_string_lossy();
            let way_out = "name a recording after its class, or give an anchor in JSON";
            check_class(&class).map_err(|what| wrong(format!("{what}; {way_out}")))?;
            Self::from_recording(path, &class)?
        };
        anchor.check().map_err(wrong)?;
        Ok(anchor)
    }

    fn check(&self) -> Result<(), String> {
        if self.schema != 1 {
            return Err(format!("schema {}, but this version reads schema 1", self.schema));
        }
        check_class(&self.class)?;
        // The sum of nothing is -0.
        let share = 0.0 + self.bands.iter().map(|band| band.share).sum::<f64>();
        if (share - 1.0).abs() > 0.01 {
            return Err(format!("the shares of the bands add up to {share}, not to 1"));
        }
        let is_valid = |band: &AnchorBand| {
            let (low, high) = band.mean_s;
            band.share >= 0.0 && low > 0.0 && low < high && high.is_finite()
        };
        match self.bands.iter().find(|band| !is_valid(band)) {
            Some(band) => Err(format!(
                "the band {band:?} is impossible: a share, and two ascending times"
            )),
            None => Ok(()),
        }
    }

    pub(crate) fn bands(&self) -> Vec<Band> {
        let band = |band: &AnchorBand| Band {
            share: band.share,
            mean_s: band.mean_s,
        };
        self.bands.iter().map(band).collect()
    }
}

/// Checks that there is a class `name`.
pub(crate) fn check_class(name: &str) -> Result<(), String> {
    if CLASSES.iter().any(|class| class.name == name) {
        return Ok(());
    }
    let names: Vec<&str> = CLASSES.iter().map(|class| class.name).collect();
    Err(format!(
        "no job class is called {name:?}; there are {}",
        names.join(", ")
    ))
}
