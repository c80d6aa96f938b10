//! The decisions about a target with their reasons, the newest first.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;
use thermo_agent::api::{Decision, DecisionKind};

use super::text;
use super::theme::Theme;
use crate::model::Model;

/// Columns before the reason: time, kind, action and bytes.
const LEFT: usize = 1 + 8 + 2 + 12 + 2 + 10 + 1 + 8 + 2;

/// Draws the list.
pub(super) fn draw(model: &Model, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let decisions = match &model.detail {
        Some(detail) if Some(&detail.target) == model.selected_id() => &detail.decisions[..],
        _ => return Line::styled(" reading the decisions…", theme.dim()).render(area, buffer),
    };
    if decisions.is_empty() {
        return Line::styled(" no decision yet", theme.dim()).render(area, buffer);
    }
    let heading = format!(
        " {:<8}  {:<12}  {:<10} {:>8}  why",
        "time", "decision", "action", "bytes"
    );
    Line::styled(heading, theme.heading()).render(area, buffer);
    let newest_first = decisions.iter().rev().skip(model.scroll);
    let lines = newest_first.flat_map(|decision| lines(decision, theme, usize::from(area.width)));
    for (line, y) in lines.zip(area.y + 1..area.bottom()) {
        line.render(Rect { y, height: 1, ..area }, buffer);
    }
}

/// A decision in as many lines as its reason needs.
fn lines(decision: &Decision, theme: Theme, width: usize) -> Vec<Line<'static>> {
    let bytes = match decision.bytes {
        0 => String::new(),
        bytes => text::size(bytes),
    };
    let (kind, style) = match decision.kind {
        // An event of a recording is no decision: its name stands in place of one.
        DecisionKind::Warning if !decision.action.is_empty() => (decision.action.as_str(), Style::new()),
        kind => kind_text(kind, theme),
    };
    let action = if kind == decision.action {
        ""
    } else {
        &decision.action
    };
    let reasons = text::wrap(&text::line(&decision.why), width.saturating_sub(LEFT + 1));
    let mut reasons = reasons.into_iter();
    let mut lines = vec![Line::from(vec![
        Span::raw(format!(" {:<8}  ", theme.clock(decision.time_ms))),
        Span::styled(format!("{kind:<12}  "), style),
        Span::raw(format!("{:<10} {bytes:>8}  ", text::fit(action, 10))),
        Span::raw(reasons.next().unwrap_or_default()),
    ])];
    lines.extend(reasons.map(|reason| Line::raw(format!("{}{reason}", " ".repeat(LEFT)))));
    lines
}

fn kind_text(kind: DecisionKind, theme: Theme) -> (&'static str, Style) {
    match kind {
        DecisionKind::Acted => ("acted", theme.colour(72)),
        DecisionKind::WouldAct => ("would act", Style::new()),
        DecisionKind::Skipped => ("skipped", theme.dim()),
        DecisionKind::Suspended => ("suspended", theme.warning()),
        DecisionKind::Resumed => ("resumed", Style::new()),
        DecisionKind::Paused => ("paused", theme.warning()),
        DecisionKind::ModeChanged => ("mode changed", Style::new()),
        DecisionKind::AgeChosen => ("age chosen", Style::new()),
        DecisionKind::Reloaded => ("reloaded", Style::new()),
        DecisionKind::Application => ("application", Style::new()),
        DecisionKind::Warning => ("warning", theme.warning()),
    }
}
