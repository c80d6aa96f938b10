//! The policies, and below them all about the selected one.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Row, StatefulWidget, Table, TableState, Widget};
use thermo_agent::api::Policy;

use super::text;
use super::theme::Theme;
use crate::model::Model;

/// Widths of the columns.
const MIN_NAME: usize = 12;
const MODE: usize = 7;
const STATE: usize = 9;
const COUNT: usize = 9;
/// Lines of the lower part that the list leaves.
const MIN_BELOW: u16 = 8;
/// Columns of the words before the texts of the lower part.
const LABEL: usize = 12;

/// Draws the screen.
pub(super) fn draw(model: &Model, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let policies = &model.policies.policies;
    if policies.is_empty() {
        return Line::styled(" no policies", theme.dim()).render(area, buffer);
    }
    let wanted = u16::try_from(policies.len() + 2).unwrap_or(u16::MAX);
    let height = wanted.min(area.height.saturating_sub(MIN_BELOW));
    let [list, below] = Layout::vertical([Constraint::Length(height), Constraint::Fill(1)]).areas(area);
    draw_list(model, theme, list, buffer);
    if let Some(policy) = policies.get(model.selected_policy()) {
        draw_policy(policy, model.facts.is_agent, theme, below, buffer);
    }
}

fn draw_list(model: &Model, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let policies = &model.policies.policies;
    let name = policies
        .iter()
        .map(|policy| text::width(&text::line(&policy.name)) + 1);
    let name = name
        .max()
        .unwrap_or(0)
        .clamp(MIN_NAME, usize::from(area.width) / 3);
    let fixed = name + MODE + STATE + 2 * COUNT + 5;
    let matches = usize::from(area.width).saturating_sub(fixed);
    let widths = [name, MODE, STATE, COUNT, COUNT, matches]
        .map(|width| Constraint::Length(u16::try_from(width).unwrap_or(u16::MAX)));
    let right = |text: String| Cell::from(Text::from(text).right_aligned());
    let known = |text: &'static str| if model.facts.is_agent { text } else { "-" };
    let row = |policy: &Policy| {
        let (state, _) = text::policy_state(policy);
        let style = if state == "running" {
            Style::new()
        } else {
            theme.warning()
        };
        Row::new([
            Cell::from(format!(" {}", text::fit(&text::line(&policy.name), name - 1))),
            Cell::from(known(policy.mode.name())),
            Cell::from(known(state)).style(style),
            right(policy.targets.to_string()),
            right(policy.processes.to_string()),
            Cell::from(text::fit(&text::line(&policy.matches), matches)),
        ])
    };
    let header = Row::new([
        Cell::from(" policy"),
        Cell::from("mode"),
        Cell::from("state"),
        right("targets".to_owned()),
        right("processes".to_owned()),
        Cell::from("matches"),
    ]);
    let table = Table::new(policies.iter().map(row), widths)
        .header(header.style(theme.heading()))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(Some(model.selected_policy()));
    StatefulWidget::render(table, area, buffer, &mut state);
}

fn draw_policy(policy: &Policy, is_agent: bool, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let mut above = "";
    let mut y = area.y;
    for (label, text) in texts(policy, is_agent, theme) {
        let lines = text::wrap(
            &text::line(&text),
            usize::from(area.width).saturating_sub(LABEL + 1),
        );
        for (nth, line) in lines.into_iter().enumerate() {
            if y >= area.bottom() {
                return;
            }
            if nth == 0 && label != above {
                buffer.set_string(area.x + 1, y, label, theme.heading());
            }
            buffer.set_string(area.x + LABEL as u16, y, line, Style::new());
            y += 1;
        }
        above = label;
    }
}

/// All about a policy, each text with its label.
fn texts(policy: &Policy, is_agent: bool, theme: Theme) -> Vec<(&'static str, String)> {
    let (state, why) = text::policy_state(policy);
    let mut mode = policy.mode.name().to_owned();
    if policy.mode != policy.configured_mode {
        mode.push_str(&format!(", configured is {}", policy.configured_mode.name()));
    }
    let mut state_text = why.map_or(state.to_owned(), |why| format!("{state}: {why}"));
    if let Some(time) = policy.resumes_at_ms {
        state_text.push_str(&format!("; the guard tries again at {}", theme.clock(time)));
    }
    if policy.suspended_targets > 0 {
        let (some, all) = (policy.suspended_targets, policy.targets);
        state_text.push_str(&format!("; the guard suspended {some} of {all} targets"));
    }
    let mut texts = Vec::new();
    if is_agent {
        texts.extend([("mode", mode), ("state", state_text)]);
    }
    texts.push(("matches", policy.matches.clone()));
    let does = policy.does.iter().map(|does| ("does", does.clone()));
    texts.extend(does);
    texts.extend(policy.guard.iter().map(|guard| ("guard", guard.clone())));
    texts
}
