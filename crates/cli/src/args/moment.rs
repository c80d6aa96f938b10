//! Points in time: so long ago, or a date and time.

use std::str::FromStr;

use anyhow::{Context as _, anyhow};
use jiff::civil::{Date, DateTime, Time};
use jiff::{Timestamp, ZonedDateTime};
use thermo_units::Nanos;

/// A point in time, in Unix time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub Nanos);

impl FromStr for Moment {
    type Err = anyhow::Error;

    /// Reads `-2h` (two hours ago), `now`, `2026-11-25 10:00`, `2026-11-25`, `10:00` (today), and RFC 3339.
    fn from_str(text: &str) -> anyhow::Result<Self> {
        parse(text, &ZonedDateTime::now())
    }
}

impl Moment {
    /// Now.
    pub fn now() -> Self {
        Self(nanos(Timestamp::now()))
    }

    /// The date and time in the time zone of this machine.
    pub fn text(self) -> String {
        let seconds = i64::try_from(self.0.0 / Nanos::secs(1).0).unwrap_or(i64::MAX);
        let time =
            Timestamp::from_second(seconds).map(|time| time.to_zoned_datetime(jiff::tz::TimeZone::system()));
        time.map_or_else(
            |_| self.0.to_string(),
            |time| time.strftime("%Y-%m-%d %H:%M:%S").to_string(),
        )
    }
}

fn parse(text: &str, now: &ZonedDateTime) -> anyhow::Result<Moment> {
    let text = text.trim();
    if text == "now" {
        return Ok(Moment(nanos(now.timestamp())));
    }
    if let Some(ago) = text.strip_prefix('-') {
        let ago: Nanos = ago
            .parse()
            .with_context(|| format!("{text:?} is no time before now, as in -2h"))?;
        return Ok(Moment(nanos(now.timestamp()).saturating_sub(ago)));
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(Moment(nanos(time)));
    }
    let date_time = text
        .parse::<DateTime>()
        .or_else(|_| {
            text.parse::<Date>()
                .map(|date| date.to_datetime(Time::midnight()))
        })
        .or_else(|_| text.parse::<Time>().map(|time| now.date().to_datetime(time)))
        .map_err(|_| {
            anyhow!("{text:?} is no time: give -2h, \"2026-11-25 10:00\", 10:00 or 2026-11-25T10:00:00Z")
        })?;
    let time = date_time
        .to_zoned_datetime(now.time_zone().clone())
        .with_context(|| format!("{text:?} is no time here"))?;
    Ok(Moment(nanos(time.timestamp())))
}

/// A time before 1970 is 1970.
fn nanos(time: Timestamp) -> Nanos {
    Nanos(u64::try_from(time.as_nanosecond()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn moments_are_read_in_every_notation() {
        let now: ZonedDateTime = "2026-11-25T12:30:00+01:00[Europe/Berlin]".parse().unwrap();
        let at = |text: &str| nanos(text.parse().unwrap());
        for (text, expected) in [
            ("now", "2026-11-25T11:30:00Z"),
            ("-2h", "2026-11-25T09:30:00Z"),
            ("-1d", "2026-11-24T11:30:00Z"),
            ("-1.5 h", "2026-11-25T10:00:00Z"),
            ("2026-11-25 10:00", "2026-11-25T09:00:00Z"),
            ("2026-06-25T10:00:30", "2026-06-25T08:00:30Z"),
            ("2026-11-25", "2026-11-24T23:00:00Z"),
            ("10:00", "2026-11-25T09:00:00Z"),
            ("2026-11-25T10:00:00Z", "2026-11-25T10:00:00Z"),
            ("2026-11-25T10:00:00-05:00", "2026-11-25T15:00:00Z"),
        ] {
            assert_eq!(parse(text, &now).unwrap().0, at(expected), "{text}");
        }
        for text in [
            "",
            "-",
            "-2",
            "2 o'clock",
            "2026-13-01",
            "-2 parsecs",
            "yesterday",
        ] {
            let error = parse(text, &now).unwrap_err().to_string();
            assert!(error.contains("is no time"), "{text}: {error}");
        }
    }
}
