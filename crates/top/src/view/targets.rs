//! The list of targets.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Row, StatefulWidget, Table, TableState, Widget};
use thermo_agent::api::Target;
use thermo_report::ages;

use super::text;
use super::theme::Theme;
use crate::model::{IdleAge, Model, SortKey, idle_from};

/// Widths of the columns of sizes.
const SIZE: usize = 8;
/// Least widths of mode, net saving and state: those of the headings. A replay does not know them.
const HEADINGS: [usize; 3] = [4, 6, 5];
/// Width of a state with its reason.
const WITH_REASON: usize = 28;
/// Least widths of names, policies and bars.
const MIN_NAME: usize = 9;
const MIN_POLICY: usize = 6;
/// Width up to which a policy is not cut, if names need the room.
const WHOLE_POLICY: usize = 8;
const MIN_BAR: usize = 6;
const MAX_BAR: usize = 36;
/// Number of columns, with a space between two.
const COLUMNS: usize = 9;
/// Colours of the parts of a bar, the youngest first.
const PART_COLOURS: [u8; 3] = [117, 33, 25];
/// Characters of the parts of a bar, and of the rest.
const PARTS: [char; 3] = ['▒', '▓', '█'];
const REST: char = '·';

/// Widths of the columns whose width depends on the terminal.
struct Widths {
    name: usize,
    policy: usize,
    mode: usize,
    bar: usize,
    saving: usize,
    state: usize,
}

impl Widths {
    fn new(model: &Model, rows: &[&Target], width: usize) -> Self {
        let [mode, saving, state] = of_agent(model, rows);
        let widest =
            |text: fn(&Target) -> &str| rows.iter().map(|row| text::width(&text::line(text(row)))).max();
        let name = widest(|row| &row.name).unwrap_or(0).max(MIN_NAME);
        let policy = widest(|row| &row.policy).unwrap_or(0).max(MIN_POLICY);
        let fixed = mode + 3 * SIZE + saving + state + COLUMNS - 1;
        let room = width.saturating_sub(fixed + MIN_BAR);
        let policy = policy.min(room.saturating_sub(name).max(WHOLE_POLICY));
        let name = name.min(room.saturating_sub(policy)).max(MIN_NAME);
        let left = width.saturating_sub(fixed + name + policy);
        let bar = left.clamp(MIN_BAR, MAX_BAR);
        let state = state + left.saturating_sub(bar);
        Self {
            name,
            policy,
            mode,
            bar,
            saving,
            state,
        }
    }

    fn constraints(&self) -> [Constraint; COLUMNS] {
        [
            self.name,
            self.policy,
            self.mode,
            SIZE,
            SIZE,
            self.bar,
            self.saving,
            SIZE,
            self.state,
        ]
        .map(|width| Constraint::Length(u16::try_from(width).unwrap_or(u16::MAX)))
    }
}

/// Widths of mode, net saving and state: as wide as those that there are.
fn of_agent(model: &Model, rows: &[&Target]) -> [usize; 3] {
    let [mode, saving, state] = HEADINGS;
    if !model.facts.is_agent {
        return HEADINGS;
    }
    let state_of = |row: &&Target| text::target_state(row, model.policy_of(row)).0.len();
    let widest_mode = rows.iter().map(|row| row.mode.name().len()).max();
    let widest_state = rows.iter().map(state_of).max();
    // Sizes change all the time: their column does not, except for a sign.
    let sign = usize::from(rows.iter().any(|row| row.net_saved_bytes < 0));
    [
        mode.max(widest_mode.unwrap_or(0)),
        saving.max(SIZE + sign),
        state.max(widest_state.unwrap_or(0)),
    ]
}

/// Draws the list, with a line of sums above.
pub(super) fn draw(model: &Model, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let [sums, list] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    draw_sums(model, theme, sums, buffer);
    let rows = model.rows();
    let widths = Widths::new(model, &rows, usize::from(list.width));
    let lines = rows.iter().map(|target| row(model, theme, target, &widths));
    let table = Table::new(lines, widths.constraints())
        .header(header(model, theme))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected((!rows.is_empty()).then(|| model.selected_row()));
    StatefulWidget::render(table, list, buffer, &mut state);
}

fn draw_sums(model: &Model, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let all = &model.targets.targets;
    let sum = |of: &dyn Fn(&Target) -> u64| all.iter().map(of).fold(0, u64::saturating_add);
    let age = model.age.seconds();
    let mut parts = vec![
        format!("{} target{}", all.len(), if all.len() == 1 { "" } else { "s" }),
        format!("{} resident", text::size(sum(&|target| target.resident_bytes))),
        format!(
            "{} idle ≥ {}",
            text::size(sum(&|target| idle_from(&target.ages, age))),
            ages::text(age)
        ),
    ];
    if model.facts.is_agent {
        let saved = all.iter().map(|target| target.net_saved_bytes);
        let saved = saved.fold(0, i64::saturating_add);
        parts.push(format!("{} saved", text::signed_size(saved)));
    }
    let sums = format!(" {}", parts.join(", "));
    let reversed = if model.reversed { ", reversed" } else { "" };
    let sorted = format!("by {}{reversed} ", model.sort.text());
    let has_room = text::width(&sums) + text::width(&sorted) < usize::from(area.width);
    Line::raw(sums).render(area, buffer);
    if has_room {
        Line::styled(sorted, theme.dim())
            .right_aligned()
            .render(area, buffer);
    }
}

fn header(model: &Model, theme: Theme) -> Row<'static> {
    let heading = |first: &str, second: &str, sort: Option<SortKey>, right: bool| {
        let chosen = sort == Some(model.sort);
        let style = match chosen {
            true => theme.heading().add_modifier(Modifier::UNDERLINED),
            false => theme.heading(),
        };
        let lines = [first, second].map(|line| Line::from(Span::styled(line.to_owned(), style)));
        let text = Text::from(lines.to_vec());
        Cell::from(if right { text.right_aligned() } else { text })
    };
    let age = ages::text(model.age.seconds());
    Row::new([
        heading("", "name", Some(SortKey::Name), false),
        heading("", "policy", None, false),
        heading("", "mode", None, false),
        heading("", "resident", Some(SortKey::Resident), true),
        heading("idle", &format!("≥ {age}"), Some(SortKey::Idle), true),
        heading("", "by age", None, false),
        heading("net", "saving", Some(SortKey::NetSaving), true),
        heading("refaults", "/min", Some(SortKey::Refaults), true),
        heading("", "state", None, false),
    ])
    .height(2)
}

fn row(model: &Model, theme: Theme, target: &Target, widths: &Widths) -> Row<'static> {
    let right = |text: String| Cell::from(Text::from(text).right_aligned());
    let known = |text: String| {
        if model.facts.is_agent {
            text
        } else {
            "-".to_owned()
        }
    };
    let (state, why) = text::target_state(target, model.policy_of(target));
    let state_style = if state == "running" {
        Style::new()
    } else {
        theme.warning()
    };
    // The reason is also in the status line, so a few letters of it here are of no use.
    let state = match why {
        Some(why) if widths.state > WITH_REASON => format!("{state}: {}", text::line(why)),
        _ => state.to_owned(),
    };
    Row::new([
        Cell::from(short_name(&target.name, widths.name)),
        Cell::from(text::fit(&text::line(&target.policy), widths.policy)),
        Cell::from(known(target.mode.name().to_owned())),
        right(text::size(target.resident_bytes)),
        right(text::size(idle_from(&target.ages, model.age.seconds()))),
        Cell::from(bar(target, model.age, theme, widths.bar)),
        right(known(text::signed_size(target.net_saved_bytes))),
        right(known(text::size(target.refault_bytes_per_min))),
        Cell::from(known(text::fit(&state, widths.state))).style(state_style),
    ])
}

/// The name in `width` columns. That a unit is a service is the first to go.
fn short_name(name: &str, width: usize) -> String {
    let name = text::line(name);
    match name.strip_suffix(".service") {
        Some(unit) if text::width(&name) > width => text::fit(unit, width),
        _ => text::fit(&name, width),
    }
}

/// The resident memory of `target` as a bar: the oldest memory first.
fn bar(target: &Target, age: IdleAge, theme: Theme, width: usize) -> Line<'static> {
    let resident = target.resident_bytes.max(1) as f64;
    let end = |from: u64| {
        let share = idle_from(&target.ages, from) as f64 / resident;
        ((share * width as f64).round() as usize).min(width)
    };
    let ends = age.parts().map(end);
    let mut spans = Vec::new();
    let mut begin = 0;
    for part in [2, 1, 0] {
        let length = ends[part].saturating_sub(begin);
        spans.push(Span::styled(
            PARTS[part].to_string().repeat(length),
            theme.colour(PART_COLOURS[part]),
        ));
        begin = begin.max(ends[part]);
    }
    spans.push(Span::styled(REST.to_string().repeat(width - begin), theme.dim()));
    Line::from(spans)
}

/// What the parts of the bars mean.
pub(super) fn legend(model: &Model, theme: Theme) -> Line<'static> {
    let [young, middle, old] = model.age.parts().map(ages::text);
    let texts = [
        format!("{young} to {middle}"),
        format!("{middle} to {old}"),
        format!("≥ {old}"),
    ];
    let mut spans = vec![Span::raw(" idle: ")];
    for part in [2, 1, 0] {
        spans.push(Span::styled(
            PARTS[part].to_string(),
            theme.colour(PART_COLOURS[part]),
        ));
        spans.push(Span::raw(format!(" {}   ", texts[part])));
    }
    spans.push(Span::styled(REST.to_string(), theme.dim()));
    spans.push(Span::raw(" younger or unknown"));
    Line::from(spans)
}
