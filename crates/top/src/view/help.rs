//! All keys, over the screen.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Widget};

use super::text;
use super::theme::Theme;
use crate::model::Model;

const LIST: &[(&str, &str)] = &[
    ("↑ ↓ PgUp PgDn", "select"),
    ("Enter", "open the target"),
    ("i", "sort by idle bytes"),
    ("s", "sort by net saving"),
    ("r", "sort by resident"),
    ("f", "sort by refaults"),
    ("n", "sort by name"),
    ("R, or key again", "reverse the order"),
    ("a", "idle age: 1 s to 1 h"),
    ("p", "policies"),
];
const TARGET: &[(&str, &str)] = &[
    ("Tab 1 2 3", "ages, heatmap, decisions"),
    ("↑ ↓", "scroll the decisions"),
    ("Esc", "back to the list"),
];
const POLICIES: &[(&str, &str)] = &[
    ("Enter", "pause, or resume if paused"),
    ("r", "resume if suspended"),
    ("Esc", "back to the list"),
];
const REPLAY: &[(&str, &str)] = &[
    ("Space", "play or pause"),
    ("← →", "one snapshot back, on"),
    ("< >", "ten snapshots back, on"),
    ("b e", "to the begin, the end"),
    ("+ -", "faster, slower"),
];
const ALWAYS: &[(&str, &str)] = &[("?", "this help"), ("q, Ctrl-C", "quit")];
/// Columns of the keys on the left and on the right.
const KEYS: [usize; 2] = [16, 10];

/// Draws the help in the middle of `area`.
pub(super) fn draw(model: &Model, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let is_replay = model.playback.is_some();
    let [on_left, on_right] = KEYS;
    let left = [
        section("List of targets", LIST, on_left, theme),
        section("Everywhere", ALWAYS, on_left, theme),
    ];
    let second: &[(&str, &str)] = if is_replay { REPLAY } else { POLICIES };
    let second_title = if is_replay { "Replay" } else { "Policies" };
    let right = [
        section("Target", TARGET, on_right, theme),
        section(second_title, second, on_right, theme),
    ];
    let area = area.centered(
        Constraint::Length(84.min(area.width)),
        Constraint::Length(18.min(area.height)),
    );
    Clear.render(area, buffer);
    let block = Block::bordered().title(" Keys ").title_bottom(" any key closes ");
    let inner = block.inner(area);
    block.render(area, buffer);
    let columns: [Rect; 2] = Layout::horizontal([Constraint::Fill(1); 2]).areas(inner);
    for (column, sections) in columns.into_iter().zip([left, right]) {
        Paragraph::new(sections.concat()).render(column, buffer);
    }
}

fn section(
    title: &'static str,
    keys: &[(&'static str, &'static str)],
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let mut lines = vec![Line::styled(format!(" {title}"), theme.heading())];
    for (key, does) in keys {
        let space = " ".repeat(width.saturating_sub(text::width(key)));
        lines.push(Line::from(vec![
            Span::raw(format!("  {key}{space}")),
            Span::raw(*does),
        ]));
    }
    lines.push(Line::default());
    lines
}
