//! The advice as text, and as a page with the curve of memory kept against refaults.

use thermo_units::{Bytes, printable};

use super::{Advice, AgeRow, Figures, SwapAdvice};
use crate::ages;
use crate::picture::{self, LineChart};
use crate::style::{Style, Table, percent};

/// Columns of the text.
const WIDTH: usize = 96;

impl Advice {
    /// Idle memory, the table of minimum ages, the advice, and the advice about swap.
    #[must_use]
    pub fn text(&self, style: &Style) -> String {
        let mut text = self.idle_text();
        text.push('\n');
        text.push_str(&self.table_text());
        text.push_str(&self.unknown_text());
        text.push('\n');
        text.push_str(&wrapped(&self.advice.why));
        if let Some(swap) = &self.swap {
            text.push_str(&swap.text());
        }
        for note in &self.notes {
            text.push_str(&wrapped(&format!("Note: {note}")));
        }
        style.plain(&(text + &self.idle.basis.text()))
    }

    /// Resident memory by idle age and kind.
    fn idle_text(&self) -> String {
        let mut text = format!(
            "Resident: {}, watched for {}.",
            Bytes(self.resident_bytes),
            self.idle.basis.span()
        );
        if self.unknown_bytes > 0 {
            text.push_str(&format!(" {} cannot be judged:", Bytes(self.unknown_bytes)));
            let reasons = self.idle.unknown.iter().filter(|unknown| unknown.bytes > 0);
            let reasons: Vec<String> = reasons
                .map(|unknown| format!(" {} {}", Bytes(unknown.bytes), unknown.text))
                .collect();
            text.push_str(&(reasons.join(",") + "."));
        }
        let mut text = wrapped(&text);
        let longest = self.ages.iter().rposition(|age| age.bytes > 0).unwrap_or(0);
        let is_shown = |nth: usize| nth <= longest && self.ages[nth].min_s >= 10;
        let shown: Vec<usize> = (0..self.ages.len()).filter(|nth| is_shown(*nth)).collect();
        let first = shown.first().copied().unwrap_or(self.ages.len());
        let mut headings = vec!["idle for".to_owned(), "< 10 s".to_owned()];
        headings.extend(
            shown
                .iter()
                .map(|nth| format!("≥ {}", ages::text(self.ages[*nth].min_s))),
        );
        let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
        let mut table = Table::new(1, &headings);
        let mut row = |name: &str, bytes: &[u64]| {
            let mut cells = vec![name.to_owned(), Bytes(bytes.iter().take(first).sum()).to_string()];
            cells.extend(
                shown
                    .iter()
                    .map(|nth| Bytes(bytes.iter().skip(*nth).sum()).to_string()),
            );
            table.row(cells);
        };
        for kind in &self.idle.kinds {
            row(&kind.kind.replace('_', " "), &kind.ages);
        }
        let all: Vec<u64> = self.ages.iter().map(|age| age.bytes).collect();
        row("all", &all);
        text.push_str(&table.text());
        text
    }

    fn table_text(&self) -> String {
        let in_swap = if self.content_sampled {
            "in swap"
        } else {
            "half of it"
        };
        let mut headings = vec![
            "page out after",
            "leaves",
            in_swap,
            "net saved",
            "at least",
            "back/min",
            "of set",
            "at most",
        ];
        if self.costs.is_some() {
            headings.extend(["CPU", "wait/min"]);
        }
        let mut table = Table::new(1, &headings);
        let mut is_empty = true;
        for (row, figures) in self.known() {
            is_empty = false;
            let mut cells = vec![
                ages::text(row.min_age_s),
                Bytes(figures.leaves_bytes).to_string(),
                Bytes(figures.compressed_bytes.mid).to_string(),
                Bytes(figures.net_saved_bytes.mid).to_string(),
                Bytes(figures.net_saved_bytes.low).to_string(),
                Bytes(figures.refault_bytes_per_min.mid).to_string(),
                percent(figures.share_per_min.mid),
                percent(figures.share_per_min.high),
            ];
            cells.extend(figures.cpu_share.map(percent));
            cells.extend(figures.wait_ms_per_min.map(|wait| format!("{wait:.1} ms")));
            table.row(cells);
        }
        if is_empty { String::new() } else { table.text() }
    }

    /// One sentence for each reason why ages are not known.
    fn unknown_text(&self) -> String {
        let unknown: Vec<&AgeRow> = self.table.iter().filter(|row| !row.known).collect();
        let mut texts = Vec::new();
        for rows in unknown.chunk_by(|a, b| a.why == b.why) {
            let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
                continue;
            };
            let why = first.why.clone().unwrap_or_default();
            let range = ages::range_text(first.min_age_s, last.min_age_s);
            texts.push(format!("{range}: {why}"));
        }
        if texts.is_empty() {
            return String::new();
        }
        // The longest ages need hours: the next ones are what a user would try.
        let more = if texts.len() > 2 { "; …" } else { "" };
        texts.truncate(2);
        wrapped(&format!("Cannot tell for {}{more}.", texts.join("; ")))
    }

    /// A page with the curve of memory kept against refaults, and the text.
    #[must_use]
    pub fn html(&self) -> String {
        let style = Style {
            width: WIDTH,
            ..Style::default()
        };
        picture::page(
            "Advice",
            &self.chart().scene_over_bytes("refaults a minute").svg(),
            &self.text(&style),
        )
    }

    /// Memory kept by refaults a minute, and the advised point.
    fn chart(&self) -> LineChart {
        let point = |figures: &Figures| {
            let kept = self.resident_bytes.saturating_sub(figures.leaves_bytes);
            (figures.refault_bytes_per_min.mid as f64, kept as f64)
        };
        let mut curve: Vec<(f64, f64)> = self.known().map(|(_, figures)| point(figures)).collect();
        curve.reverse();
        let advised = self
            .known()
            .find(|(row, _)| Some(row.min_age_s) == self.advice.min_age_s);
        let mut lines = vec![("kept".to_owned(), curve)];
        if let Some((row, figures)) = advised {
            let (refaults, kept) = point(figures);
            let name = format!("advised: {}", ages::text(row.min_age_s));
            lines.push((name, vec![(refaults, 0.0), (refaults, kept)]));
        }
        LineChart {
            title: format!("Memory kept by refaults a minute ({})", self.idle.basis.summary()),
            lines,
            empty: self.advice.why.clone(),
        }
    }

    fn known(&self) -> impl Iterator<Item = (&AgeRow, &Figures)> {
        self.table
            .iter()
            .filter_map(|row| Some((row, row.figures.as_ref()?)))
    }
}

impl SwapAdvice {
    fn text(&self) -> String {
        let mut text = wrapped(&format!("Swap: {}", printable(&self.why)));
        if !self.ratio.is_empty() {
            let all = self.ratio.iter().map(|(algorithm, share)| {
                let time = self.compress_ns.get(algorithm).copied().unwrap_or(0);
                format!(
                    "{algorithm} to {} in {:.1} µs a page",
                    percent(*share),
                    time as f64 / 1000.0
                )
            });
            let all: Vec<String> = all.collect();
            text.push_str(&wrapped(&format!(
                "These pages compress with {}.",
                all.join(", with ")
            )));
        }
        for lack in &self.lacks {
            text.push_str(&wrapped(&format!("Note: {}", printable(lack))));
        }
        text
    }
}

/// `text` in lines of at most [`WIDTH`] characters.
fn wrapped(text: &str) -> String {
    let mut lines = String::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push_str(&line);
            lines.push('\n');
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines + &line + "\n"
}
