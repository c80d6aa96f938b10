//! The sums of each day, in UTC: one file for each day in `STATE/ledger`, so that a save writes one day only.
//!
//! A clock that is stepped moves later sums to another day; days already kept stay. So a day is removed only
//! because there are too many, never because of its distance from the present one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::Offset;
use serde::{Deserialize, Serialize};

use thermo_units::Bytes;

use super::fair_table::OTHER;
use super::{add, write_whole};
use crate::api::{LedgerDay, LedgerDays, SCHEMA, UnixMillis};

/// Folder in the state directory.
const FOLDER: &str = "ledger";
const EXTENSION: &str = "json";
/// Days kept.
pub const MAX_DAYS: usize = 400;
/// Rows of targets kept over all days. If there are more, the policy with the most of them loses those of its
/// oldest day; the rows of policies stay.
pub const MAX_TARGET_ROWS: usize = 16_384;

/// Policy and target; without a target, the row is the sum of all targets of the policy.
type Key = (String, Option<String>);

/// The rows of a day.
#[derive(Debug, Clone, Default)]
struct Rows {
    all: BTreeMap<Key, LedgerDay>,
    /// Number of rows of targets.
    targets: usize,
}

impl Rows {
    fn insert(&mut self, row: LedgerDay) {
        let is_of_target = row.target.is_some();
        let before = self.all.insert((row.policy.clone(), row.target.clone()), row);
        self.targets += usize::from(is_of_target && before.is_none());
    }

    fn nr_targets_of(&self, policy: &str) -> usize {
        let from = (policy.to_owned(), None);
        let of_policy = self.all.range(from..).take_while(|((name, _), _)| name == policy);
        of_policy.filter(|((_, target), _)| target.is_some()).count()
    }

    fn drop_targets_of(&mut self, policy: &str) {
        self.all
            .retain(|(name, target), _| name != policy || target.is_none());
        self.targets = self.all.keys().filter(|(_, target)| target.is_some()).count();
    }
}

/// The days, shared with those who read: a copy shares all days but the one that changes.
#[derive(Debug, Clone, Default)]
pub struct Days {
    all: BTreeMap<Date, Arc<Rows>>,
    today: Date,
    /// Days that differ from their files.
    unsaved: BTreeSet<Date>,
}

/// The file of a day.
#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    schema: u32,
    rows: Vec<LedgerDay>,
}

impl Days {
    /// Reads the days of a state directory; none if there are none. Other files are ignored.
    ///
    /// # Errors
    /// A file cannot be read, is damaged, or is of a newer version.
    pub(super) fn load(state_dir: &Path) -> io::Result<Self> {
        let mut days = Self::default();
        let entries = match fs::read_dir(state_dir.join(FOLDER)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(days),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let path = entry?.path();
            if let Some(date) = date_of(&path) {
                let rows = read(&path)
                    .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
                days.all.insert(date, Arc::new(rows));
            }
        }
        Ok(days)
    }

    /// Writes the days that have changed, and removes the files of those that are no longer kept.
    ///
    /// # Errors
    /// The folder cannot be written. What was not written is tried again with the next call.
    pub(super) fn save(&mut self, state_dir: &Path) -> io::Result<()> {
        let folder = state_dir.join(FOLDER);
        if !self.unsaved.is_empty() {
            fs::create_dir_all(&folder)?;
        }
        while let Some(date) = self.unsaved.first().copied() {
            let path = folder.join(format!("{date}.{EXTENSION}"));
            match self.all.get(&date) {
                Some(rows) => {
                    let rows = rows.all.values().cloned().collect();
                    write_whole(&path, &Saved { schema: SCHEMA, rows })?;
                }
                None => remove(&path)?,
            }
            self.unsaved.remove(&date);
        }
        Ok(())
    }

    /// Sums belong to the day of `now` from here on.
    pub(super) fn set_time(&mut self, now: UnixMillis) {
        // A time that no calendar has changes nothing.
        self.today = utc_date(now).unwrap_or(self.today);
    }

    /// Changes the rows of today: that of the policy, and that of its target.
    pub(super) fn change(&mut self, policy: &str, target: &str, change: impl Fn(&mut LedgerDay)) {
        for target in [None, Some(target)] {
            let key = (policy.to_owned(), target.map(str::to_owned));
            let today = Arc::make_mut(self.all.entry(self.today).or_default());
            if !today.all.contains_key(&key) {
                today.insert(new_row(self.today, &key));
                self.limit();
            }
            let today = Arc::make_mut(self.all.entry(self.today).or_default());
            if let Some(row) = today.all.get_mut(&key) {
                change(row);
            }
        }
        self.unsaved.insert(self.today);
    }

    /// Keeps the bounds. Today stays whole.
    fn limit(&mut self) {
        let oldest = self.all.keys().find(|date| **date != self.today).copied();
        if let Some(oldest) = oldest.filter(|_| self.all.len() > MAX_DAYS) {
            self.all.remove(&oldest);
            self.unsaved.insert(oldest);
        }
        while self.all.values().map(|rows| rows.targets).sum::<usize>() > MAX_TARGET_ROWS {
            if !self.drop_oldest_targets() {
                break;
            }
        }
    }

    /// Drops the rows of targets of one policy on one day before today. False if there are none.
    fn drop_oldest_targets(&mut self) -> bool {
        let before = || self.all.iter().filter(|(date, _)| **date != self.today);
        let mut sums: BTreeMap<&str, usize> = BTreeMap::new();
        for (policy, target) in before().flat_map(|(_, rows)| rows.all.keys()) {
            *sums.entry(policy).or_default() += usize::from(target.is_some());
        }
        let largest = sums.into_iter().max_by_key(|(_, sum)| *sum);
        let Some(policy) = largest
            .filter(|(_, sum)| *sum > 0)
            .map(|(policy, _)| policy.to_owned())
        else {
            return false;
        };
        let oldest = before().find(|(_, rows)| rows.nr_targets_of(&policy) > 0);
        let Some(date) = oldest.map(|(date, _)| *date) else {
            return false;
        };
        if let Some(rows) = self.all.get_mut(&date) {
            Arc::make_mut(rows).drop_targets_of(&policy);
            self.unsaved.insert(date);
        }
        true
    }

    /// Adds today's row of a target to the row that further targets of its policy share.
    pub(super) fn fold(&mut self, policy: &str, target: &str) {
        let Some(rows) = self.all.get_mut(&self.today) else {
            return;
        };
        let rows = Arc::make_mut(rows);
        let Some(folded) = rows.all.remove(&(policy.to_owned(), Some(target.to_owned()))) else {
            return;
        };
        rows.targets -= 1;
        let key = (policy.to_owned(), Some(OTHER.to_owned()));
        if !rows.all.contains_key(&key) {
            rows.insert(new_row(self.today, &key));
        }
        if let Some(other) = rows.all.get_mut(&key) {
            for sum in folded.acted_bytes {
                add(&mut other.acted_bytes, &sum.name, Bytes(sum.bytes));
            }
            other.back_1min_bytes += folded.back_1min_bytes;
            other.back_10min_bytes += folded.back_10min_bytes;
            other.back_1h_bytes += folded.back_1h_bytes;
            other.net_saved_gib_hours += folded.net_saved_gib_hours;
            other.watching_cpu_s += folded.watching_cpu_s;
            other.acting_cpu_s += folded.acting_cpu_s;
        }
        self.unsaved.insert(self.today);
    }

    /// The days as others see them, the oldest first: the rows of policies, and those of targets if
    /// `with_targets`.
    #[must_use]
    pub fn published(&self, since_ms: UnixMillis, with_targets: bool) -> LedgerDays {
        let rows = self.all.values().flat_map(|rows| rows.all.values());
        LedgerDays {
            schema: SCHEMA,
            since_ms,
            rows: rows
                .filter(|row| with_targets || row.target.is_none())
                .cloned()
                .collect(),
        }
    }
}

/// The day of `time` in UTC. `None`: the time is beyond the year 9999.
#[must_use]
pub fn utc_date(time: UnixMillis) -> Option<Date> {
    let time = Timestamp::from_millisecond(i64::try_from(time).ok()?).ok()?;
    Some(Offset::UTC.to_datetime(time).date())
}

fn new_row(date: Date, (policy, target): &Key) -> LedgerDay {
    LedgerDay {
        day: date.to_string(),
        policy: policy.clone(),
        target: target.clone(),
        ..LedgerDay::default()
    }
}

/// The day of a file; `None` if it is not the file of a day.
fn date_of(path: &Path) -> Option<Date> {
    let name = path.file_name()?.to_str()?;
    name.strip_suffix(EXTENSION)?.strip_suffix('.')?.parse().ok()
}

fn read(path: &Path) -> io::Result<Rows> {
    let saved: Saved = serde_json::from_str(&fs::read_to_string(path)?)?;
    super::check_schema(saved.schema)?;
    let mut rows = Rows::default();
    saved.rows.into_iter().for_each(|row| rows.insert(row));
    Ok(rows)
}

fn remove(path: &PathBuf) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    const DAY_MS: u64 = 86_400_000;
    /// 2026-11-26, midnight.
    const MIDNIGHT: u64 = 1_795_651_200_000;

    fn add(days: &mut Days, target: &str, hours: f64) {
        days.change("p", target, |row| row.net_saved_gib_hours += hours);
    }

    /// Day, target and net saving of all rows.
    fn rows(days: &Days) -> Vec<(String, Option<String>, f64)> {
        let all = days.published(0, true).rows.into_iter();
        all.map(|row| (row.day, row.target, row.net_saved_gib_hours))
            .collect()
    }

    fn row(day: &str, target: Option<&str>, hours: f64) -> (String, Option<String>, f64) {
        (day.to_owned(), target.map(str::to_owned), hours)
    }

    #[test]
    fn day_changes_at_midnight_and_back_when_the_clock_is_stepped_back() {
        let mut days = Days::default();
        for (now, hours) in [
            (MIDNIGHT - 1, 1.0),
            (MIDNIGHT, 2.0),
            (MIDNIGHT - 60_000, 4.0),
            (MIDNIGHT + 5, 8.0),
        ] {
            days.set_time(now);
            add(&mut days, "t", hours);
        }
        let expected = [
            row("2026-11-25", None, 5.0),
            row("2026-11-25", Some("t"), 5.0),
            row("2026-11-26", None, 10.0),
            row("2026-11-26", Some("t"), 10.0),
        ];
        assert_eq!(rows(&days), expected);
        assert_eq!(days.published(7, false).rows.len(), 2);
        assert_eq!(days.published(7, false).since_ms, 7);
    }

    #[test]
    fn policy_has_the_sum_of_its_targets() {
        let mut days = Days::default();
        days.set_time(MIDNIGHT);
        add(&mut days, "a", 1.0);
        add(&mut days, "b", 2.0);
        let expected = [
            row("2026-11-26", None, 3.0),
            row("2026-11-26", Some("a"), 1.0),
            row("2026-11-26", Some("b"), 2.0),
        ];
        assert_eq!(rows(&days), expected);
    }

    #[test]
    fn days_survive_a_restart_and_only_changed_ones_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = |day: &str| folder.path().join(FOLDER).join(format!("{day}.json"));
        let mut days = Days::default();
        days.set_time(MIDNIGHT - 1);
        add(&mut days, "t", 1.0);
        days.save(folder.path()).unwrap();
        fs::write(folder.path().join(FOLDER).join("notes.txt"), "x").unwrap();
        let mut loaded = Days::load(folder.path()).unwrap();
        assert_eq!(rows(&loaded), rows(&days));
        loaded.set_time(MIDNIGHT);
        add(&mut loaded, "t", 2.0);
        fs::remove_file(file("2026-11-25")).unwrap();
        loaded.save(folder.path()).unwrap();
        assert!(
            file("2026-11-26").exists() && !file("2026-11-25").exists(),
            "it had not changed"
        );
        fs::write(file("2026-11-25"), "{").unwrap();
        let error = Days::load(folder.path()).unwrap_err().to_string();
        assert!(error.contains("2026-11-25.json: EOF"), "{error}");
        fs::write(file("2026-11-25"), "{\"schema\":99,\"rows\":[]}").unwrap();
        let error = Days::load(folder.path()).unwrap_err().to_string();
        assert!(error.ends_with("schema 99 is newer than this program"), "{error}");
    }

    #[test]
    fn number_of_days_is_bounded_whatever_the_clock_says() {
        let folder = tempfile::tempdir().unwrap();
        let mut days = Days::default();
        for nth in 0..MAX_DAYS as u64 {
            days.set_time(MIDNIGHT + nth * DAY_MS);
            add(&mut days, "t", 1.0);
        }
        days.save(folder.path()).unwrap();
        // A clock far ahead costs one day, not all of them; one that begins in 1970 as well.
        for now in [MIDNIGHT + 20_000 * DAY_MS, 0] {
            days.set_time(now);
            add(&mut days, "t", 1.0);
            assert_eq!(days.all.len(), MAX_DAYS);
        }
        days.save(folder.path()).unwrap();
        let kept = Days::load(folder.path()).unwrap();
        assert_eq!(rows(&kept), rows(&days));
        let policies = kept.published(0, false).rows;
        assert_eq!(policies[0].day, "1970-01-01");
        assert_eq!(policies[1].day, "2026-11-28");
        assert_eq!(policies.last().unwrap().day, "2081-08-29");
        // The day of 1970 is the first to go.
        days.set_time(MIDNIGHT + 21_000 * DAY_MS);
        add(&mut days, "t", 1.0);
        assert_eq!(days.published(0, false).rows[0].day, "2026-11-28");
    }

    #[test]
    fn oldest_days_lose_their_targets_first() {
        let mut days = Days::default();
        let per_day = MAX_TARGET_ROWS / 4;
        for day in 0..5 {
            days.set_time(MIDNIGHT + day * DAY_MS);
            (0..per_day).for_each(|target| add(&mut days, &target.to_string(), 1.0));
        }
        let all = days.published(0, true).rows;
        assert_eq!(
            all.iter().filter(|row| row.target.is_some()).count(),
            MAX_TARGET_ROWS
        );
        assert_eq!(all[0].net_saved_gib_hours, per_day as f64);
        assert_eq!((all[1].day.as_str(), &all[1].target), ("2026-11-27", &None));
        assert_eq!(days.unsaved.len(), 5);
    }

    #[test]
    fn many_names_of_one_policy_leave_the_past_of_others() {
        let mut days = Days::default();
        days.set_time(MIDNIGHT);
        days.change("quiet", "service", |row| row.net_saved_gib_hours += 1.0);
        for day in 0..6 {
            days.set_time(MIDNIGHT + day * DAY_MS);
            (0..MAX_TARGET_ROWS / 4).for_each(|target| add(&mut days, &target.to_string(), 1.0));
        }
        let all = days.published(0, true).rows;
        assert!(all.iter().filter(|row| row.target.is_some()).count() <= MAX_TARGET_ROWS);
        assert!(all.iter().any(|row| row.target.as_deref() == Some("service")));
    }

    #[test]
    fn failed_write_is_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut days = Days::default();
        days.set_time(MIDNIGHT);
        add(&mut days, "t", 1.0);
        fs::write(folder.path().join(FOLDER), "").unwrap();
        assert!(days.save(folder.path()).is_err());
        fs::remove_file(folder.path().join(FOLDER)).unwrap();
        days.save(folder.path()).unwrap();
        assert_eq!(rows(&Days::load(folder.path()).unwrap()), rows(&days));
    }
}
