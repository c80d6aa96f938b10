//! Colours, characters and clock of the terminal.

use jiff::Timestamp;
use jiff::tz::{Offset, TimeZone};
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};
use thermo_agent::api::UnixMillis;
use thermo_report::picture::palette;

/// The colours of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colours {
    /// None: characters have to do.
    None,
    /// The 256 colours of xterm.
    Indexed,
    /// Red, green, blue.
    True,
}

/// What a terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Theme {
    /// The colours.
    pub colours: Colours,
    /// True: ASCII characters only.
    pub ascii: bool,
    /// Local time minus UTC.
    pub offset: Offset,
}

/// Colours of xterm at evenly spaced square roots of the access rate, near those of pictures.
const INDEXED_RAMP: [u8; 10] = [17, 24, 31, 37, 72, 143, 220, 214, 208, 160];
/// Shades for terminals without colours: minimum heat and character.
const SHADES: [(i8, char); 5] = [(0, '·'), (1, '░'), (5, '▒'), (20, '▓'), (50, '█')];
/// Characters that are drawn, and those that replace them in ASCII.
const ASCII: [(char, char); 29] = [
    ('·', '.'),
    ('░', ':'),
    ('▒', '+'),
    ('▓', '*'),
    ('█', '#'),
    ('≥', '>'),
    ('×', 'x'),
    ('…', '~'),
    ('─', '-'),
    ('━', '='),
    ('│', '|'),
    ('┌', '+'),
    ('┐', '+'),
    ('└', '+'),
    ('┘', '+'),
    ('●', 'o'),
    ('▲', '^'),
    ('▶', '>'),
    ('←', '<'),
    ('→', '>'),
    ('↑', '^'),
    ('↓', 'v'),
    ('▁', '_'),
    ('▂', '.'),
    ('▃', '-'),
    ('▄', '='),
    ('▅', '+'),
    ('▆', '*'),
    ('▇', '%'),
];

impl Theme {
    /// The theme by the environment: `NO_COLOR`, `COLORTERM` and the time zone. `ascii`: the locale has no
    /// other characters.
    #[must_use]
    pub fn from_environment(ascii: bool) -> Self {
        let variable = |name: &str| std::env::var(name).unwrap_or_default();
        let colours = match variable("COLORTERM").as_str() {
            _ if !variable("NO_COLOR").is_empty() => Colours::None,
            "truecolor" | "24bit" => Colours::True,
            _ => Colours::Indexed,
        };
        let offset = TimeZone::system().to_offset(Timestamp::now());
        Self {
            colours,
            ascii,
            offset,
        }
    }

    /// Whether two rows of a heatmap fit in one line, by half blocks in two colours.
    #[must_use]
    pub fn has_half_blocks(self) -> bool {
        self.colours != Colours::None && !self.ascii
    }

    /// The colour of a heat from 0 to 100; none for unknown heat.
    #[must_use]
    pub fn heat_colour(self, heat: i8) -> Color {
        let share = f64::from(heat) / 100.0;
        match self.colours {
            _ if heat < 0 => Color::Reset,
            Colours::None => Color::Reset,
            Colours::Indexed => {
                let at = share.sqrt() * (INDEXED_RAMP.len() - 1) as f64;
                Color::Indexed(INDEXED_RAMP[(at.round() as usize).min(INDEXED_RAMP.len() - 1)])
            }
            Colours::True => {
                let [red, green, blue] = palette::of_rate(i16::from(heat) * 10);
                Color::Rgb(red, green, blue)
            }
        }
    }

    /// The character of a heat from 0 to 100; a space for unknown heat.
    #[must_use]
    pub fn heat_shade(heat: i8) -> char {
        let found = SHADES.iter().rev().find(|(min, _)| heat >= *min);
        found.map_or(' ', |(_, shade)| *shade)
    }

    /// `colour` (of xterm), where there are colours.
    #[must_use]
    pub fn colour(self, colour: u8) -> Style {
        match self.colours {
            Colours::None => Style::new(),
            _ => Style::new().fg(Color::Indexed(colour)),
        }
    }

    /// The bar at the top.
    #[must_use]
    pub fn title(self) -> Style {
        match self.colours {
            Colours::None => Style::new().add_modifier(Modifier::REVERSED),
            _ => Style::new().fg(Color::Indexed(231)).bg(Color::Indexed(24)),
        }
    }

    /// Headings.
    #[must_use]
    pub fn heading(self) -> Style {
        self.colour(75).add_modifier(Modifier::BOLD)
    }

    /// Secondary text.
    #[must_use]
    pub fn dim(self) -> Style {
        self.colour(245)
    }

    /// What needs attention.
    #[must_use]
    pub fn warning(self) -> Style {
        self.colour(214).add_modifier(Modifier::BOLD)
    }

    /// `12:34:56` in local time.
    #[must_use]
    pub fn clock(self, time: UnixMillis) -> String {
        self.format(time, "%H:%M:%S")
    }

    /// `2026-11-26 12:34:56` in local time.
    #[must_use]
    pub fn date(self, time: UnixMillis) -> String {
        self.format(time, "%Y-%m-%d %H:%M:%S")
    }

    fn format(self, time: UnixMillis, format: &str) -> String {
        let time = i64::try_from(time)
            .ok()
            .and_then(|time| Timestamp::from_millisecond(time).ok());
        let local = time.map(|time| self.offset.to_datetime(time).strftime(format).to_string());
        local.unwrap_or_else(|| "-".to_owned())
    }

    /// Replaces characters in `buffer` that the terminal cannot show.
    pub(super) fn restrict(self, buffer: &mut Buffer) {
        if !self.ascii {
            return;
        }
        for cell in &mut buffer.content {
            if let Some(c) = cell.symbol().chars().next().filter(|c| !c.is_ascii()) {
                let known = ASCII.iter().find(|(from, _)| *from == c);
                cell.set_char(known.map_or('?', |(_, to)| *to));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heat_has_a_colour_and_a_shade() {
        let theme = |colours| Theme {
            colours,
            ascii: false,
            offset: Offset::UTC,
        };
        assert_eq!(theme(Colours::True).heat_colour(100), Color::Rgb(214, 40, 40));
        assert_eq!(theme(Colours::Indexed).heat_colour(0), Color::Indexed(17));
        assert_eq!(theme(Colours::Indexed).heat_colour(100), Color::Indexed(160));
        assert_eq!(theme(Colours::Indexed).heat_colour(-1), Color::Reset);
        let shades: String = [-1, 0, 1, 5, 20, 50, 100].map(Theme::heat_shade).iter().collect();
        assert_eq!(shades, " ·░▒▓██");
        assert_eq!(theme(Colours::None).date(0), "1970-01-01 00:00:00");
        assert_eq!(theme(Colours::None).clock(u64::MAX), "-");
    }
}
