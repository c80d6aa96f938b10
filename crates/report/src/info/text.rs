//! The facts of a recording as text.

use thermo_recording::model::Settings;
use thermo_units::{Bytes, Nanos};

use super::Info;
use crate::passes::PassLengths;
use crate::style::{Style, Table, percent};

impl Info {
    /// A table of facts, followed by the notes.
    #[must_use]
    pub fn text(&self, style: &Style) -> String {
        let mut table = Table::new(2, &["recording", &self.writer]);
        for (name, value) in self.setting_rows().into_iter().chain(self.result_rows()) {
            table.row([name.to_owned(), value]);
        }
        table.text() + &self.notes_text(style)
    }

    /// Host, targets and settings.
    fn setting_rows(&self) -> Vec<(&'static str, String)> {
        let is_planned = self.notes.iter().any(|note| note.kind == "plan");
        let mut rows = vec![
            ("host", format!("Linux {} {}", self.host.kernel, self.host.arch)),
            ("targets", self.targets.clone()),
            ("tracker", format!("{}: {}", self.tracker, self.tracker_reason)),
            ("intervals", intervals_text(&self.settings, is_planned)),
            ("regions", self.regions_text(is_planned)),
        ];
        if self.averaged_bytes > 0 {
            let averaged = Bytes(self.averaged_bytes);
            let text =
                format!("{averaged} resident in regions that average differing pages (tables are exact)");
            rows.push(("coalesced", text));
        }
        if let Some(budget) = self.settings.cpu_budget_percent {
            rows.push(("CPU budget", format!("{budget} % of one CPU")));
        }
        rows.push(("seed", or_unknown(self.seed)));
        rows
    }

    /// Duration, method, unknown memory, cost and schemes.
    fn result_rows(&self) -> Vec<(&'static str, String)> {
        let duration = Nanos(self.duration_ns);
        let mut rows = vec![("length", format!("{duration}, {} snapshots", self.snapshots))];
        if !self.methods.is_empty() {
            rows.push(("method", self.methods.join(" and ") + &self.passes_text()));
        }
        let (unknown, share) = (Bytes(self.unknown_bytes), percent(self.unknown_share));
        rows.push((
            "unknown",
            format!("idle age not known of {unknown} ({share}) in the last snapshot"),
        ));
        rows.push(("own cost", self.cost.text()));
        rows.push((
            "slow-down",
            format!("{} of the targets, estimated", self.cost.slow_down_text()),
        ));
        rows.extend(self.schemes.iter().map(|scheme| ("scheme", scheme.clone())));
        rows
    }

    fn regions_text(&self, is_planned: bool) -> String {
        let Settings {
            min_nr_regions,
            max_nr_regions,
            ..
        } = self.settings;
        let initially = if is_planned { " initially" } else { "" };
        format!(
            "{} to {}{initially}; at most {} in a snapshot",
            or_unknown(min_nr_regions),
            or_unknown(max_nr_regions),
            self.most_regions
        )
    }

    fn passes_text(&self) -> String {
        let text = |pass: PassLengths| {
            let [median, max] = [pass.p50, pass.max].map(|s| Nanos((s * 1e9).round() as u64));
            format!("; a scan pass took {median} (median), {max} at most")
        };
        self.pass_s.map(text).unwrap_or_default()
    }

    fn notes_text(&self, style: &Style) -> String {
        let mut text = String::new();
        for note in &self.notes {
            let at = Nanos(note.time_ns.saturating_sub(self.start_ns)).to_string();
            text.push_str(&style.plain(&format!("{at:>10}  {}: {}\n", note.kind, note.text)));
        }
        if self.more_notes > 0 {
            text.push_str(&format!("            and {} more notes\n", self.more_notes));
        }
        text
    }
}

fn intervals_text(settings: &Settings, is_planned: bool) -> String {
    let [sample, aggr, update] =
        [settings.sample_ns, settings.aggr_ns, settings.update_ns].map(|ns| or_unknown(ns.map(Nanos)));
    let initially = if is_planned {
        "; initially, then chosen to fit the budget"
    } else {
        ""
    };
    format!("sample {sample}, aggregation {aggr}, update {update}{initially}")
}

/// The value, or `unknown` if the recording does not have it.
fn or_unknown(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "unknown".to_owned(), |value| value.to_string())
}
