//! How texts look: the width they may take, which characters they may use; tables and bars.

use std::borrow::Cow;

/// What the reader's terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Columns; texts keep within it from 60 on.
    pub width: usize,
    /// Rows a picture may take; texts other than pictures are as long as they are.
    pub height: usize,
    /// True: ASCII only.
    pub ascii: bool,
    /// True: with ANSI colours.
    pub colour: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            width: 80,
            height: 24,
            ascii: false,
            colour: false,
        }
    }
}

impl Style {
    /// A bar of `share` (0 to 1) of `width` columns, padded with spaces.
    #[must_use]
    pub fn bar(self, share: f64, width: usize) -> String {
        const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
        let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
        let (full, mut rest) = (eighths / 8, eighths % 8);
        if eighths == 0 && share > 0.0 {
            rest = 1;
        }
        let mut bar = if self.ascii { "#" } else { "█" }.repeat(full);
        match (self.ascii, rest) {
            (true, 4..) => bar.push('#'),
            (true, _) => {}
            (false, rest) => bar.push_str(EIGHTHS[rest]),
        }
        pad(&bar, width)
    }

    /// A row of characters as high as `values` are, the largest reaching the top; one character a value.
    #[must_use]
    pub fn sparkline(self, values: &[f64]) -> String {
        let levels: &[char] = match self.ascii {
            true => &['_', '.', '-', '=', '+', '*', '#'],
            false => &['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
        };
        let most = values.iter().copied().fold(0.0, f64::max);
        let level = |value: &f64| match most {
            0.0 => 0,
            most => ((value / most * (levels.len() - 1) as f64).round() as usize).min(levels.len() - 1),
        };
        values.iter().map(|value| levels[level(value)]).collect()
    }

    /// `text` without characters that are not ASCII, when those are not wanted.
    #[must_use]
    pub fn plain(self, text: &str) -> String {
        if !self.ascii {
            return text.to_owned();
        }
        text.chars()
            .map(|c| match c {
                '×' => 'x',
                '·' => '.',
                '≥' | '→' => '>',
                '│' => '|',
                '─' => '-',
                '└' | '┴' => '+',
                '–' => '-',
                '…' => '~',
                c if c.is_ascii() => c,
                _ => '?',
            })
            .collect()
    }

    /// `text` cut to `width` characters, an ellipsis telling so.
    #[must_use]
    pub fn cut(self, text: &str, width: usize) -> Cow<'_, str> {
        // A text of few bytes has few characters; most are not counted.
        if text.len() <= width || text.chars().count() <= width {
            return Cow::Borrowed(text);
        }
        let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
        cut.push(if self.ascii { '~' } else { '…' });
        Cow::Owned(cut)
    }
}

/// `text` and spaces up to `width` characters.
#[must_use]
pub fn pad(text: &str, width: usize) -> String {
    let missing = width.saturating_sub(text.chars().count());
    format!("{text}{}", " ".repeat(missing))
}

/// A table whose columns are as wide as their widest cell.
#[derive(Debug, Clone, Default)]
pub struct Table {
    left: usize,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings, the first `left` columns aligned to the left, the others to the right.
    #[must_use]
    pub fn new(left: usize, headings: &[&str]) -> Self {
        Self {
            left,
            rows: vec![headings.iter().map(|&heading| heading.to_owned()).collect()],
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The table, each line ended.
    #[must_use]
    pub fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let cells = row
                .iter()
                .enumerate()
                .map(|(column, cell)| match column < self.left {
                    true => pad(cell, widths[column]),
                    false => format!("{}{cell}", " ".repeat(widths[column] - cell.chars().count())),
                });
            text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
        }
        text
    }
}

/// A share as percent: `0`, `0.25 %`, `12.5 %`, `100 %`.
#[must_use]
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let decimals = match percent {
        p if p == 0.0 || p >= 99.95 => 0,
        p if p >= 9.995 => 1,
        _ => 2,
    };
    format!("{percent:.decimals$} %")
}

/// A table as CSV text, first row the headings.
pub(crate) fn csv_text<const N: usize>(
    headings: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let written = std::iter::once(headings.map(str::to_owned)).chain(rows);
    // Writing rows of one length into memory cannot fail; were it to, what is whole is kept.
    for row in written {
        if writer.write_record(&row).is_err() {
            break;
        }
    }
    String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_wide_as_said_and_never_vanish() {
        let style = Style::default();
        assert_eq!(style.bar(0.5, 4), "██  ");
        assert_eq!(style.bar(0.0001, 4), "▏   ");
        assert_eq!(style.bar(0.0, 4), "    ");
        assert_eq!(Style { ascii: true, ..style }.bar(1.0, 3), "###");
        assert_eq!(style.bar(7.0, 3), "███");
    }

    #[test]
    fn tables_align_and_csv_quotes() {
        let mut table = Table::new(1, &["name", "size"]);
        table.row(["a".to_owned(), "12 B".to_owned()]);
        assert_eq!(table.text(), "name  size\na     12 B\n");
        assert_eq!(
            csv_text(["a", "b"], [["1,2".to_owned(), "x".to_owned()]]),
            "a,b\n\"1,2\",x\n"
        );
    }

    #[test]
    fn cut_and_percent() {
        assert_eq!(Style::default().cut("abcdef", 4), "abc…");
        assert_eq!(
            [0.0, 0.0025, 0.125, 1.0].map(percent),
            ["0 %", "0.25 %", "12.5 %", "100 %"]
        );
        assert_eq!(Style::default().sparkline(&[0.0, 1.0, 2.0]), "▁▅█");
    }
}
