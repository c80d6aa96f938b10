//! The forecast as text: a table with one column for each file.

use thermo_report::style::{Table, percent};
use thermo_units::{Bytes, Nanos};

use crate::forecast::{FileForecast, Forecast};
use crate::timeline::Interval;

impl Forecast {
    /// The table, then what the figures rest on, then warnings.
    #[must_use]
    pub fn text(&self) -> String {
        if self.basis.snapshots == 0 {
            return self.basis.no_data_text();
        }
        let mut text = format!("Forecast, {}", self.basis.summary());
        if let Some(resident) = self.resident_bytes {
            text.push_str(&format!(": {} resident", Bytes(resident)));
        }
        if let Some(working_set) = self.working_set_bytes {
            text.push_str(&format!(
                ", {} of it accessed within a minute",
                Bytes(working_set)
            ));
        }
        text.push('\n');
        text.push_str(&self.table());
        text.push_str(&self.notes());
        text.push_str(&self.basis.text());
        for file in &self.files {
            for warning in file.cannot_tell.iter().chain(&file.warnings) {
                text.push_str(&format!("{}: {warning}.\n", file.file));
            }
        }
        text
    }

    fn table(&self) -> String {
        let names = self.files.iter().map(FileForecast::short_name);
        let headings: Vec<&str> = std::iter::once("").chain(names).collect();
        let mut table = Table::new(1, &headings);
        let mut row = |name: &str, cell: &dyn Fn(&FileForecast) -> String| {
            table.row(std::iter::once(name.to_owned()).chain(self.files.iter().map(cell)));
        };
        row("memory that leaves", &|file| bytes(file.leaves_bytes));
        if let Some(resident) = self.resident_bytes.filter(|resident| *resident > 0) {
            row("  of resident", &|file| {
                share(file.leaves_bytes.map(|bytes| bytes as f64 / resident as f64))
            });
        }
        row("  maximum", &|file| bytes(file.leaves_max_bytes));
        row("  at the end", &|file| bytes(file.leaves_end_bytes));
        row("net saved", &|file| mid(file.net_saved_bytes));
        row("  low to high", &|file| range(file.net_saved_bytes));
        row("refaults per minute", &|file| mid(file.refault_bytes_per_min));
        row("  low to high", &|file| range(file.refault_bytes_per_min));
        row("  of working set", &|file| {
            share(file.refault_share_of_working_set_per_min)
        });
        row("quota windows used up", &|file| match file.quota_used_up_share {
            None => "no quota".to_owned(),
            used_up => share(used_up),
        });
        row("inactive (watermarks)", &|file| percent(file.inactive_share()));
        if self.files.iter().any(|file| file.counted_bytes() > 0) {
            row("tried, other actions", &|file| {
                Bytes(file.counted_bytes()).to_string()
            });
        }
        table.text()
    }

    fn notes(&self) -> String {
        let [low, mid, high] = self.compressed_share.map(percent);
        let compressed = match self.compressed_size_is_given {
            true => format!("Compressed size: {mid}.\n"),
            false => format!(
                "Compressed size: not known, {mid} assumed ({low} to {high}); give --compressed-size.\n"
            ),
        };
        let warm_up = Nanos((self.warm_up_s * 1e9) as u64);
        if warm_up == Nanos::ZERO {
            return compressed;
        }
        format!("Means exclude the beginning, up to {warm_up}, where no age is long enough.\n{compressed}")
    }
}

impl FileForecast {
    /// The name without its folders.
    pub(crate) fn short_name(&self) -> &str {
        self.file.rsplit('/').next().unwrap_or(&self.file)
    }

    /// The share of the time for which watermarks deactivated all schemes.
    fn inactive_share(&self) -> f64 {
        let shares = self.schemes.iter().map(|scheme| scheme.inactive_share);
        shares.min_by(f64::total_cmp).unwrap_or(0.0)
    }

    /// Bytes tried by actions other than paging out.
    fn counted_bytes(&self) -> u64 {
        let others = self.schemes.iter().filter(|scheme| scheme.action != "pageout");
        others.map(|scheme| scheme.sz_tried).fold(0, u64::saturating_add)
    }
}

const UNKNOWN: &str = "?";

fn bytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| UNKNOWN.to_owned(), |bytes| Bytes(bytes).to_string())
}

fn share(share: Option<f64>) -> String {
    share.map_or_else(|| UNKNOWN.to_owned(), percent)
}

fn mid(interval: Option<Interval>) -> String {
    interval.map_or_else(|| UNKNOWN.to_owned(), |interval| Bytes::signed(interval.mid))
}

fn range(interval: Option<Interval>) -> String {
    let text = |Interval { low, high, .. }| format!("{} to {}", Bytes::signed(low), Bytes::signed(high));
    interval.map_or_else(|| UNKNOWN.to_owned(), text)
}
