//! A heatmap as text.

use thermo_units::{Bytes, Nanos};

use super::view::{Band, Row, TargetView, fit, label};
use super::{ABSENT, Heatmap, UNKNOWN};
use crate::layout::short_name;
use crate::picture::axis;
use crate::style::{Style, percent};

/// Columns for addresses and the left border.
const LEFT: usize = 16;
/// Columns for mapping names.
const RIGHT: usize = 18;

/// Shades: minimum rate in thousandths, character, ASCII character, ANSI colour.
const LEVELS: [(i16, char, char, u8); 5] = [
    (0, '·', '.', 24),
    (1, '░', ':', 37),
    (50, '▒', '+', 79),
    (200, '▓', '*', 220),
    (500, '█', '#', 202),
];

impl Heatmap {
    /// The heatmap with axes, legend and warnings.
    #[must_use]
    pub fn text(&self, style: &Style) -> String {
        let incomplete = self.basis.first_pass_text();
        let incomplete = incomplete.map(|text| format!("warning: {text}.\n"));
        self.map_text(style) + &incomplete.unwrap_or_default()
    }

    /// The heatmap with axes and legend.
    pub(crate) fn map_text(&self, style: &Style) -> String {
        if self.targets.is_empty() {
            return self.basis.no_data_text();
        }
        let columns = style.width.saturating_sub(LEFT + RIGHT).clamp(16, 240);
        let (targets, others) = self.largest((style.height / 3).max(1));
        let views = fit(&targets, columns, style.height.max(4), 1);
        let mut text = self.title(style, &views, columns);
        for view in &views {
            if views.len() > 1 {
                text.push_str(&format!("{}, {}\n", view.target.name, Bytes(bytes(view))));
            }
            text.push_str(&bands_text(view, style));
        }
        text.push_str(&self.time_axis(style, columns));
        text.push_str(&self.legend(style));
        if others > 0 {
            text.push_str(&format!(
                "{others} more targets, all smaller or later, are not shown.\n"
            ));
        }
        text
    }

    fn title(&self, style: &Style, views: &[TargetView<'_>], columns: usize) -> String {
        let column = Nanos((self.seconds() / columns as f64 * 1e9) as u64);
        let rows: usize = views
            .iter()
            .flat_map(|view| &view.bands)
            .map(|band| band.rows.len())
            .sum();
        // Together, targets may have more than one address space.
        let all = views.iter().map(bytes).fold(0, u64::saturating_add);
        let row = Bytes(all / rows.max(1) as u64);
        let title = format!(
            "Heatmap, {}; a character is {column} × about {row}\n",
            self.basis.summary()
        );
        style.plain(&title)
    }

    fn legend(&self, style: &Style) -> String {
        let names = ["none", "<5 %", "5-20 %", "20-50 %", "50-100 %"];
        let level =
            |((rate, ..), name): (&(i16, char, char, u8), &str)| format!("{} {name}", shade(*rate, style));
        let levels: Vec<String> = LEVELS.iter().zip(names).map(level).collect();
        let unknown = percent(self.unknown_share);
        format!(
            "access rate: {}  ? unknown\nunknown in the last snapshot: {unknown}\n",
            levels.join("  ")
        )
    }

    fn time_axis(&self, style: &Style, columns: usize) -> String {
        let mut line: Vec<char> = "─".repeat(columns).chars().collect();
        let mut labels = vec![' '; columns + RIGHT];
        let seconds = self.seconds().max(f64::MIN_POSITIVE);
        for tick in axis::ticks(seconds, columns / 12) {
            let at = ((tick / seconds * columns as f64) as usize).min(columns - 1);
            line[at] = '┴';
            for (slot, c) in labels[at..].iter_mut().zip(axis::seconds(tick).chars()) {
                *slot = c;
            }
        }
        let (line, labels): (String, String) = (line.into_iter().collect(), labels.into_iter().collect());
        let (left, after) = (" ".repeat(LEFT - 1), " ".repeat(LEFT));
        style.plain(&format!("{left}└{line} time\n{after}{}\n", labels.trim_end()))
    }
}

fn bytes(view: &TargetView<'_>) -> u64 {
    (view.target.cells() as u64).saturating_mul(view.target.cell_bytes)
}

/// The rows, highest address first, with a line between bands for the size of the gap.
fn bands_text(view: &TargetView<'_>, style: &Style) -> String {
    let bands = &view.bands;
    let gap_kind = match view.target.scanned {
        true => "without memory",
        false => "without memory, or not scanned yet",
    };
    let mut text = String::new();
    let mut above: Option<&Band<'_>> = None;
    for band in bands.iter().rev() {
        if let Some(above) = above.filter(|_| bands.len() <= 6) {
            let gap = Bytes(above.start.saturating_sub(band.end));
            let line = format!("{}: {gap} {gap_kind}\n", " ".repeat(LEFT - 1));
            text.push_str(&line);
        }
        let mut name_above = None;
        for row in band.rows.iter().rev() {
            let name = row.name.filter(|name| name_above != Some(*name));
            let name = name
                .map(|name| label(short_name(name), row.more_names))
                .unwrap_or_default();
            name_above = row.name;
            text.push_str(&row_text(row, &name, style));
        }
        above = Some(band);
    }
    text
}

fn row_text(row: &Row<'_>, name: &str, style: &Style) -> String {
    let shades: String = row.rates.iter().map(|&rate| shade(rate, style)).collect();
    let border = style.plain("│");
    let name = style.plain(&style.cut(name, RIGHT - 2));
    let line = format!(
        "{:>#width$x} {border}{shades}{border}{name}",
        row.start,
        width = LEFT - 2
    );
    format!("{}\n", line.trim_end())
}

fn shade(rate: i16, style: &Style) -> String {
    let level = LEVELS
        .iter()
        .rev()
        .find(|level| rate >= level.0)
        .unwrap_or(&LEVELS[0]);
    let shown = match rate {
        ABSENT => return " ".to_owned(),
        UNKNOWN => return "?".to_owned(),
        _ if style.ascii => level.2,
        _ => level.1,
    };
    match style.colour {
        true => format!("\u{1b}[38;5;{}m{shown}\u{1b}[0m", level.3),
        false => shown.to_string(),
    }
}
