//! Text output: width, character set and colour of the terminal; tables, bars and sparklines.

use std::borrow::Cow;

/// Capabilities of the reader's terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Width in columns; text fits if the width is at least 60.
    pub width: usize,
    /// Maximum rows of a heatmap; other text has no limit.
    pub height: usize,
    /// True: print ASCII characters only.
    pub ascii: bool,
    /// True: print ANSI colours.
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
    /// A bar that fills `share` (0 to 1) of `width` columns, padded with spaces. A share above 0 is always
    /// visible.
    #[must_use]
    pub fn bar(self, share: f64, width: usize) -> String {
        const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
        let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
        let (full, mut partial) = (eighths / 8, eighths % 8);
        if eighths == 0 && share > 0.0 {
            partial = 1;
        }
        let mut bar = if self.ascii { "#" } else { "█" }.repeat(full);
        match (self.ascii, partial) {
            (true, 4..) => bar.push('#'),
            (true, _) => {}
            (false, partial) => bar.push_str(EIGHTHS[partial]),
        }
        pad(&bar, width)
    }

    /// One character for each of `values`, scaled to the maximum value.
    #[must_use]
    pub fn sparkline(self, values: &[f64]) -> String {
        let levels: &[char] = match self.ascii {
            true => &['_', '.', '-', '=', '+', '*', '#'],
            false => &['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
        };
        let max = values.iter().copied().fold(0.0, f64::max);
        let level = |value: &f64| match max {
            0.0 => 0,
            max => ((value / max * (levels.len() - 1) as f64).round() as usize).min(levels.len() - 1),
        };
        values.iter().map(|value| levels[level(value)]).collect()
    }

    /// `text`; with [`Self::ascii`], other characters are replaced by ASCII ones.
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

    /// `text` cut to `width` characters; a cut text ends in an ellipsis.
    #[must_use]
    pub fn cut(self, text: &str, width: usize) -> Cow<'_, str> {
        // The byte length bounds the number of characters, so most texts need no count.
        if text.len() <= width || text.chars().count() <= width {
            return Cow::Borrowed(text);
        }
        let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
        cut.push(if self.ascii { '~' } else { '…' });
        Cow::Owned(cut)
    }
}

/// `text`, padded with spaces to `width` characters.
#[must_use]
pub fn pad(text: &str, width: usize) -> String {
    let missing = width.saturating_sub(text.chars().count());
    format!("{text}{}", " ".repeat(missing))
}

/// A text table. Each column is as wide as its widest cell, and two spaces are between columns.
#[derive(Debug, Clone, Default)]
pub struct Table {
    left: usize,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with `headings`. The first `left` columns are aligned left, the others right.
    #[must_use]
    pub fn new(left: usize, headings: &[&str]) -> Self {
        Self {
            left,
            rows: vec![headings.iter().map(|&heading| heading.to_owned()).collect()],
        }
    }

    /// A table of `rows`, the first of which has the headings.
    #[must_use]
    pub const fn of_rows(left: usize, rows: Vec<Vec<String>>) -> Self {
        Self { left, rows }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The table; each line ends with a newline.
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

/// CSV text; the first row has the headings.
pub(crate) fn csv_text<const N: usize>(
    headings: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let written = std::iter::once(headings.map(str::to_owned)).chain(rows);
    // Writing rows of equal length to memory cannot fail. On an error, the rows before it are kept.
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
    fn bar_has_given_width_and_stays_visible() {
        let style = Style::default();
        assert_eq!(style.bar(0.5, 4), "██  ");
        assert_eq!(style.bar(0.0001, 4), "▏   ");
        assert_eq!(style.bar(0.0, 4), "    ");
        assert_eq!(Style { ascii: true, ..style }.bar(1.0, 3), "###");
        assert_eq!(style.bar(7.0, 3), "███");
    }

    #[test]
    fn table_aligns_columns_and_csv_quotes_cells() {
        let mut table = Table::new(1, &["name", "size"]);
        table.row(["a".to_owned(), "12 B".to_owned()]);
        assert_eq!(table.text(), "name  size\na     12 B\n");
        assert_eq!(
            csv_text(["a", "b"], [["1,2".to_owned(), "x".to_owned()]]),
            "a,b\n\"1,2\",x\n"
        );
    }

    #[test]
    fn cut_percent_and_sparkline_format() {
        assert_eq!(Style::default().cut("abcdef", 4), "abc…");
        assert_eq!(
            [0.0, 0.0025, 0.125, 1.0].map(percent),
            ["0 %", "0.25 %", "12.5 %", "100 %"]
        );
        assert_eq!(Style::default().sparkline(&[0.0, 1.0, 2.0]), "▁▅█");
    }
}
