//! Colours: blue for cold memory, red for hot memory, grey for unknown.

/// Red, green, blue.
pub type Rgb = [u8; 3];

/// Text and axes.
pub(crate) const INK: Rgb = [28, 39, 51];
/// Grid lines.
pub(crate) const GUIDE: Rgb = [205, 212, 219];
/// The background.
pub(crate) const PAPER: Rgb = [255, 255, 255];
/// Memory whose accesses are unknown.
pub(crate) const UNKNOWN: Rgb = [150, 150, 150];
/// No memory, or no snapshot.
pub(crate) const ABSENT: Rgb = [240, 242, 245];
/// The lines of a chart, in order.
pub(crate) const LINES: [Rgb; 6] = [
    [31, 111, 160],
    [214, 90, 40],
    [110, 80, 160],
    [42, 140, 90],
    [190, 50, 110],
    [130, 110, 30],
];

/// Colours at evenly spaced square roots of the access rate, from 0 to 1.
pub(crate) const RAMP: [Rgb; 6] = [
    [11, 29, 58],
    [24, 78, 119],
    [42, 157, 143],
    [233, 196, 80],
    [244, 140, 60],
    [214, 40, 40],
];

/// The colour of an access rate in thousandths. The square root gives low rates, where most rates are, more
/// colours.
#[must_use]
pub fn of_rate(permille: i16) -> Rgb {
    let at = (f64::from(permille) / 1000.0).clamp(0.0, 1.0).sqrt() * (RAMP.len() - 1) as f64;
    let low = (at as usize).min(RAMP.len() - 2);
    let share = at - low as f64;
    let mix = |channel: usize| {
        let (from, to) = (f64::from(RAMP[low][channel]), f64::from(RAMP[low + 1][channel]));
        (from + (to - from) * share).round() as u8
    };
    [mix(0), mix(1), mix(2)]
}

/// `#rrggbb`.
pub(crate) fn hex([r, g, b]: Rgb) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}
