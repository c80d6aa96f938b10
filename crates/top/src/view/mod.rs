//! Draws the model. Pure: a function of the model, the theme and the area.

mod ages;
mod decisions;
mod detail;
mod heatmap;
mod help;
mod policies;
mod targets;
#[cfg(test)]
mod tests;
mod text;
mod theme;

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

pub use theme::{Colours, Theme};

use crate::model::{Model, Playback, Screen};

/// The smallest terminal in which the screens are readable.
const MIN_WIDTH: u16 = 60;
/// See [`MIN_WIDTH`].
const MIN_HEIGHT: u16 = 16;

/// Draws `model` into `area` of `buffer`.
pub fn render(model: &Model, theme: Theme, area: Rect, buffer: &mut Buffer) {
    if area.width < MIN_WIDTH || area.height < MIN_HEIGHT {
        let text = format!("thermo top needs {MIN_WIDTH}×{MIN_HEIGHT} characters.");
        Line::raw(text).render(area, buffer);
        theme.restrict(buffer);
        return;
    }
    let [title, body, playback, status, keys] = split(model, area);
    draw_title(model, theme, title, buffer);
    match model.screen {
        Screen::Targets => targets::draw(model, theme, body, buffer),
        Screen::Detail => detail::draw(model, theme, body, buffer),
        Screen::Policies => policies::draw(model, theme, body, buffer),
    }
    if let Some(time) = &model.playback {
        draw_playback(time, theme, playback, buffer);
    }
    draw_status(model, theme, status, buffer);
    draw_keys(model, theme, keys, buffer);
    if model.help {
        help::draw(model, theme, area, buffer);
    }
    theme.restrict(buffer);
}

/// Columns and rows of the heatmap on the detail screen of a terminal of `area`.
#[must_use]
pub fn heatmap_cells(model: &Model, theme: Theme, area: Rect) -> (usize, usize) {
    let [_, body, ..] = split(model, area);
    detail::heatmap_cells(theme, body)
}

/// Title, body, time line of a replay, status and keys.
fn split(model: &Model, area: Rect) -> [Rect; 5] {
    let playback = u16::from(model.playback.is_some());
    Layout::vertical([
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(playback),
        Constraint::Length(1),
        Constraint::Length(1),
    ])
    .areas(area)
}

fn draw_title(model: &Model, theme: Theme, area: Rect, buffer: &mut Buffer) {
    buffer.set_style(area, theme.title());
    let clock = match model.targets.time_ms {
        0 => String::new(),
        time => format!("{} ", theme.date(time)),
    };
    let room = usize::from(area.width).saturating_sub(text::width(&clock) + 2);
    let title = text::fit(&format!(" thermo top  {}", text::line(&model.facts.title)), room);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    Line::styled(title, bold).render(area, buffer);
    Line::raw(clock).right_aligned().render(area, buffer);
}

/// `▶ ×4   12:30:01 ━━━━●──── 12:40:01`
fn draw_playback(playback: &Playback, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let (first, last) = playback.span_ms();
    let sign = if playback.is_playing() {
        "▶ playing"
    } else {
        "  paused"
    };
    let left = format!(" {sign:<9} {:<6} {} ", playback.speed_text(), theme.clock(first));
    let right = format!(" {} ", theme.clock(last));
    let room = usize::from(area.width).saturating_sub(text::width(&left) + text::width(&right));
    let at = (playback.share() * room.saturating_sub(1) as f64).round() as usize;
    Line::from(vec![
        Span::raw(left),
        Span::styled("━".repeat(at), theme.heading()),
        Span::styled("●", theme.heading()),
        Span::styled("─".repeat(room.saturating_sub(at + 1)), theme.dim()),
        Span::raw(right),
    ])
    .render(area, buffer);
}

/// The most important of: a question, the lost agent, a message, why the selected target rests, a legend.
fn draw_status(model: &Model, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let width = usize::from(area.width).saturating_sub(2);
    let (message, style) = if let Some(question) = &model.question {
        (question.question(), theme.warning())
    } else if let Some(why) = &model.lost {
        // The first answer is awaited before the first screen, so the figures shown are the last ones.
        (format!("{}; retrying", text::line(why)), theme.warning())
    } else if let Some(notice) = &model.notice {
        (text::line(notice), theme.warning())
    } else {
        (rest_reason(model).unwrap_or_default(), theme.warning())
    };
    if message.is_empty() && model.screen == Screen::Targets {
        return targets::legend(model, theme).render(area, buffer);
    }
    Line::styled(format!(" {}", text::fit(&message, width)), style).render(area, buffer);
}

/// Why the selected target rests, unless the screen has it elsewhere.
fn rest_reason(model: &Model) -> Option<String> {
    if model.screen == Screen::Policies {
        return None;
    }
    let target = model.selected()?;
    let (state, why) = text::target_state(target, model.policy_of(target));
    Some(format!("{state}: {}", text::line(why?)))
}

/// The keys of the screen, the most important first; those that do not fit are in the help.
fn draw_keys(model: &Model, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let of_screen: &[(&str, &str)] = match model.screen {
        Screen::Targets => &[
            ("Enter", "detail"),
            ("i s r f n", "sort"),
            ("a", "idle age"),
            ("p", "policies"),
        ],
        Screen::Detail => &[("Esc", "back"), ("Tab", "next part"), ("p", "policies")],
        Screen::Policies if model.facts.is_agent => {
            &[("Enter", "pause or resume"), ("r", "resume"), ("Esc", "back")]
        }
        Screen::Policies => &[("Esc", "back")],
    };
    let of_replay: &[(&str, &str)] = match model.playback {
        Some(_) => &[("Space", "play"), ("← →", "step"), ("+ -", "speed")],
        None => &[],
    };
    let mut spans = Vec::new();
    let mut room = usize::from(area.width).saturating_sub(1);
    let general = [("?", "help"), ("q", "quit")];
    let (first, others) = of_screen.split_at(1);
    for (key, does) in general.iter().chain(first).chain(of_replay).chain(others) {
        let taken = text::width(key) + text::width(does) + 3;
        if taken > room {
            break;
        }
        room -= taken;
        spans.push(Span::styled(format!(" {key}"), theme.heading()));
        spans.push(Span::raw(format!(" {does} ")));
    }
    Line::from(spans).render(area, buffer);
}
