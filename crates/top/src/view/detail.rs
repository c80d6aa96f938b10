//! One target: all parts side by side where there is room, else one at a time.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;
use thermo_agent::api::Target;
use thermo_report::ages as age_texts;
use thermo_units::Nanos;

use super::text;
use super::theme::Theme;
use super::{ages, decisions, heatmap};
use crate::model::{Model, Tab, idle_from};

/// Terminals of this size show all parts.
const ALL_PARTS: (u16, u16) = (130, 36);
/// Width of the ages beside the heatmap.
const AGES_WIDTH: u16 = 78;
/// Height of the ages: a heading, 15 ages and the unknown.
const AGES_HEIGHT: u16 = 17;

/// The parts of the screen; those without area are not drawn.
struct Parts {
    head: Rect,
    tabs: Rect,
    /// Area of each of [`Tab::ALL`].
    areas: [Rect; 3],
}

impl Parts {
    fn new(body: Rect, tab: Option<Tab>) -> Self {
        let [head, rest] = Layout::vertical([Constraint::Length(2), Constraint::Fill(1)]).areas(body);
        if has_all_parts(body) {
            let [upper, lower] =
                Layout::vertical([Constraint::Length(AGES_HEIGHT + 7), Constraint::Fill(1)]).areas(rest);
            let [left, _, right] = Layout::horizontal([
                Constraint::Length(AGES_WIDTH),
                Constraint::Length(2),
                Constraint::Fill(1),
            ])
            .areas(upper);
            let areas = [left, right, lower];
            return Self {
                head,
                tabs: Rect::ZERO,
                areas,
            };
        }
        let [tabs, part] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(rest);
        let areas = Tab::ALL.map(|of| {
            if tab.is_none_or(|tab| tab == of) {
                part
            } else {
                Rect::ZERO
            }
        });
        Self { head, tabs, areas }
    }
}

fn has_all_parts(body: Rect) -> bool {
    body.width >= ALL_PARTS.0 && body.height >= ALL_PARTS.1
}

/// Columns and rows of the heatmap.
pub(super) fn heatmap_cells(theme: Theme, body: Rect) -> (usize, usize) {
    let [_, area, _] = Parts::new(body, None).areas;
    heatmap::cells(theme, below_title(body, area))
}

/// The area of a part without its title, which a screen with tabs has elsewhere.
fn below_title(body: Rect, area: Rect) -> Rect {
    let title = u16::from(has_all_parts(body)).min(area.height);
    Rect {
        y: area.y + title,
        height: area.height - title,
        ..area
    }
}

/// Draws the screen.
pub(super) fn draw(model: &Model, theme: Theme, body: Rect, buffer: &mut Buffer) {
    let parts = Parts::new(body, Some(model.tab));
    draw_head(model, theme, parts.head, buffer);
    draw_tabs(model, theme, parts.tabs, buffer);
    for (tab, area) in Tab::ALL.into_iter().zip(parts.areas) {
        if area.is_empty() {
            continue;
        }
        if has_all_parts(body) {
            let title = Line::styled(format!(" {}", tab.title()), theme.heading());
            title.render(area, buffer);
        }
        let area = below_title(body, area);
        match tab {
            Tab::Ages => ages::draw(model, theme, area, buffer),
            Tab::Heatmap => heatmap::draw(model, theme, area, buffer),
            Tab::Decisions => decisions::draw(model, theme, area, buffer),
        }
    }
}

/// Name, policy and state, then sizes: as many as fit.
fn draw_head(model: &Model, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let width = usize::from(area.width).saturating_sub(2);
    let Some(target) = model.selected() else {
        let name = model.selected_id().map_or("", |id| &id.name);
        let text = format!(" {}: not running at this moment", text::line(name));
        Line::styled(text, theme.warning()).render(area, buffer);
        return;
    };
    let name = text::fit(&text::line(&target.name), width / 2);
    let (mut words, mut figures) = (words(model, target), figures(model, target));
    let (figures_text, shown) = text::join(&figures, "   ", width);
    words.extend(figures.drain(shown..));
    let (words, _) = text::join(&words, " · ", width.saturating_sub(text::width(&name) + 3));
    let [first, second] = Layout::vertical([Constraint::Length(1); 2]).areas(area);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let line = vec![
        Span::styled(format!(" {name}"), bold),
        Span::raw(format!(" · {words}")),
    ];
    Line::from(line).render(first, buffer);
    Line::raw(format!(" {figures_text}")).render(second, buffer);
}

/// Policy, mode, state and processes.
fn words(model: &Model, target: &Target) -> Vec<String> {
    let mut words = vec![format!("policy {}", text::line(&target.policy))];
    if model.facts.is_agent {
        let (state, _) = text::target_state(target, model.policy_of(target));
        words.extend([target.mode.name().to_owned(), state.to_owned()]);
    }
    match target.pids[..] {
        [] => {}
        [pid] => words.push(format!("pid {pid}")),
        _ => words.push(format!("{} processes", target.pids.len())),
    }
    words
}

/// Sizes, the most important first.
fn figures(model: &Model, target: &Target) -> Vec<String> {
    let mut figures = vec![
        format!("resident {}", text::size(target.resident_bytes)),
        idle_text(model),
    ];
    if model.facts.is_agent {
        figures.push(format!(
            "net saving {}",
            text::signed_size(target.net_saved_bytes)
        ));
        figures.push(format!(
            "refaults {}/min",
            text::size(target.refault_bytes_per_min)
        ));
    }
    figures.push(format!("in swap {}", text::size(target.swap_bytes)));
    figures.push(format!("working set {}", text::size(target.working_set_bytes)));
    if let Some(pass_s) = target.pass_s {
        figures.push(format!("scan pass {}", Nanos((pass_s * 1e9) as u64)));
    }
    figures
}

fn idle_text(model: &Model) -> String {
    let age = model.age.seconds();
    let bytes = model.selected().map_or(0, |target| idle_from(&target.ages, age));
    format!("idle ≥ {} {}", age_texts::text(age), text::size(bytes))
}

fn draw_tabs(model: &Model, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let mut spans = Vec::new();
    for (nth, tab) in Tab::ALL.into_iter().enumerate() {
        let style = match tab == model.tab {
            true => theme.heading().add_modifier(Modifier::REVERSED),
            false => theme.dim(),
        };
        spans.push(Span::raw(" "));
        spans.push(Span::styled(format!(" {} {} ", nth + 1, tab.title()), style));
    }
    Line::from(spans).render(area, buffer);
}
