//! The ledger: what each policy did to each target, what came back, what it saved and what it cost. The sums
//! survive restarts: they are written to a file each minute, whole or not at all. [`days`] has the sums of
//! each day.

pub mod days;
pub mod fair_table;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use thermo_actions::Returns;
use thermo_engine::ops::{Applied, Skip};
use thermo_kernel::durable_file;
use thermo_units::{Bytes, Nanos};

use self::days::Days;
use self::fair_table::{FairTable, Value};
use crate::api::{self, LedgerDay, LedgerRow, Mode, NamedBytes, SCHEMA, UnixMillis};

/// Name of the file in the state directory.
const FILE: &str = "ledger.json";
/// Rows of targets are kept up to this number: names may come from users.
const MAX_ROWS: usize = 4096;

/// The sums.
#[derive(Debug)]
pub struct Ledger {
    since_ms: UnixMillis,
    rows: FairTable<LedgerRow>,
    days: Days,
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            since_ms: 0,
            rows: FairTable::new(MAX_ROWS),
            days: Days::default(),
        }
    }
}

impl Value for LedgerRow {
    fn fold(&mut self, other: Self) {
        let kinds = [
            (&mut self.acted_bytes, other.acted_bytes),
            (&mut self.skipped_bytes, other.skipped_bytes),
        ];
        for (sums, others) in kinds {
            for sum in others {
                add(sums, &sum.name, Bytes(sum.bytes));
            }
        }
        // What the last look of a dry run found belongs to a target that lives.
        self.moved_back_bytes += other.moved_back_bytes;
        self.back_1min_bytes += other.back_1min_bytes;
        self.back_10min_bytes += other.back_10min_bytes;
        self.back_1h_bytes += other.back_1h_bytes;
        self.net_saved_gib_hours += other.net_saved_gib_hours;
        self.watching_cpu_s += other.watching_cpu_s;
        self.acting_cpu_s += other.acting_cpu_s;
        self.watched_s += other.watched_s;
    }
}

/// The file.
#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    schema: u32,
    since_ms: UnixMillis,
    rows: Vec<LedgerRow>,
}

impl Ledger {
    /// Reads the ledger of a state directory; a new one, beginning at `now`, if there is none.
    ///
    /// # Errors
    /// The file cannot be read, or is of a newer version. It is left alone then.
    pub fn load(state_dir: &Path, now: UnixMillis) -> io::Result<Self> {
        let path = state_dir.join(FILE);
        let mut days = Days::load(state_dir)?;
        days.set_time(now);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self {
                    since_ms: now,
                    days,
                    ..Self::default()
                });
            }
            Err(error) => return Err(error),
        };
        let saved: Saved = serde_json::from_str(&text)?;
        check_schema(saved.schema)?;
        let mut rows: FairTable<LedgerRow> = FairTable::new(MAX_ROWS);
        for row in saved.rows {
            let changed = rows.change(&row.policy, &row.target);
            match changed.name == row.target {
                true => *changed.value = row,
                false => changed.value.fold(row),
            }
        }
        // None of them lives yet.
        (0..fair_table::ENDED_AFTER).for_each(|_| rows.tick());
        Ok(Self {
            since_ms: saved.since_ms,
            rows,
            days,
        })
    }

    /// Writes the sums, and the days that have changed: each to a temporary file, which then takes the place
    /// of the old one.
    ///
    /// # Errors
    /// The directory cannot be written. The old files are whole then.
    pub fn save(&mut self, state_dir: &Path) -> io::Result<()> {
        let saved = Saved {
            schema: SCHEMA,
            since_ms: self.since_ms,
            rows: self.all_rows(),
        };
        write_whole(&state_dir.join(FILE), &saved)?;
        self.days.save(state_dir)
    }

    /// A tick: what is added from here on belongs to the day of `now`.
    pub fn set_time(&mut self, now: UnixMillis) {
        self.rows.tick();
        self.days.set_time(now);
    }

    /// The sums of each day, to read while the ledger goes on.
    #[must_use]
    pub fn days(&self) -> Days {
        self.days.clone()
    }

    /// Adds the result of an action.
    pub fn add_applied(&mut self, policy: &str, target: &str, action: &str, applied: &Applied) {
        let acted = applied.changed.unwrap_or(applied.applied);
        let of_all = |row: &mut LedgerRow| {
            add(&mut row.acted_bytes, action, acted);
            row.moved_back_bytes += applied.moved_back.0;
            for (why, bytes) in &applied.skipped {
                match why {
                    // Nothing was there to act on, or it was held back as a whole: the decisions say so.
                    Skip::NotPresent | Skip::Cancelled => {}
                    // The same memory matches at each look: `set_would_act` has the last.
                    Skip::DryRun => {}
                    why => add(&mut row.skipped_bytes, why.name(), *bytes),
                }
            }
        };
        self.change((policy, target), of_all, |day| {
            add(&mut day.acted_bytes, action, acted);
        });
    }

    /// Sets what the last look of a dry run would have acted on, by target and action. In other modes there
    /// is nothing to tell.
    pub fn set_would_act(&mut self, policy: &str, mode: Mode, sums: &BTreeMap<(String, String), Bytes>) {
        if mode != Mode::DryRun {
            let of_policy = self.rows.values_of(policy);
            of_policy.for_each(|row| row.would_act_bytes.clear());
            return;
        }
        for ((target, action), bytes) in sums {
            self.change_row(policy, target, |row| {
                row.would_act_bytes.retain(|sum| sum.name != *action);
                add(&mut row.would_act_bytes, action, *bytes);
            });
        }
    }

    /// What the last look of a dry run would have done to a target; `None` in other modes.
    #[must_use]
    pub fn would_act(&self, policy: &str, target: &str, action: &str) -> Option<Bytes> {
        let row = self.rows.get(policy, target)?;
        let sum = row.would_act_bytes.iter().find(|sum| sum.name == action)?;
        Some(Bytes(sum.bytes))
    }

    /// Adds what came back.
    pub fn add_returns(&mut self, policy: &str, target: &str, returns: &Returns) {
        let within_1min = returns.within_1min.0;
        let within_10min = within_1min + returns.within_10min.0;
        let within_1h = within_10min + returns.within_1h.0;
        let of_all = |row: &mut LedgerRow| {
            row.back_1min_bytes += within_1min;
            row.back_10min_bytes += within_10min;
            row.back_1h_bytes += within_1h;
        };
        self.change((policy, target), of_all, |day| {
            day.back_1min_bytes += within_1min;
            day.back_10min_bytes += within_10min;
            day.back_1h_bytes += within_1h;
        });
    }

    /// Adds `time`, in which `saved` bytes were saved and `watching` and `acting` CPU time was spent.
    pub fn add_time(
        &mut self,
        policy: &str,
        target: &str,
        time: Nanos,
        saved: i64,
        (watching, acting): (Nanos, Nanos),
    ) {
        let gib_hours = saved as f64 / Bytes::gib(1).0 as f64 * time.as_secs_f64() / 3600.0;
        let (watching, acting) = (watching.as_secs_f64(), acting.as_secs_f64());
        let of_all = |row: &mut LedgerRow| {
            row.net_saved_gib_hours += gib_hours;
            row.watching_cpu_s += watching;
            row.acting_cpu_s += acting;
            row.watched_s += time.as_secs_f64();
        };
        self.change((policy, target), of_all, |day| {
            day.net_saved_gib_hours += gib_hours;
            day.watching_cpu_s += watching;
            day.acting_cpu_s += acting;
        });
    }

    /// The ledger as others see it.
    #[must_use]
    pub fn published(&self) -> api::Ledger {
        api::Ledger {
            schema: SCHEMA,
            since_ms: self.since_ms,
            rows: self.all_rows(),
        }
    }

    /// The rows with their names.
    fn all_rows(&self) -> Vec<LedgerRow> {
        let named = |(policy, target, row): (&str, &str, &LedgerRow)| LedgerRow {
            policy: policy.to_owned(),
            target: target.to_owned(),
            ..row.clone()
        };
        self.rows.rows().map(named).collect()
    }

    /// Whether targets share rows because there were too many.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.rows.is_full()
    }

    /// Changes the row of a target. Returns the name of the row.
    fn change_row(&mut self, policy: &str, target: &str, change: impl FnOnce(&mut LedgerRow)) -> String {
        let changed = self.rows.change(policy, target);
        change(changed.value);
        if let Some((policy, target)) = &changed.folded {
            self.days.fold(policy, target);
        }
        changed.name
    }

    /// Changes the row of a target, and its row of today: both have the same name.
    fn change(
        &mut self,
        (policy, target): (&str, &str),
        of_all: impl FnOnce(&mut LedgerRow),
        of_day: impl Fn(&mut LedgerDay),
    ) {
        let name = self.change_row(policy, target, of_all);
        self.days.change(policy, &name, of_day);
    }
}

/// A file of a newer program may mean what this one does not know.
fn check_schema(schema: u32) -> io::Result<()> {
    if schema > SCHEMA {
        let message = format!("schema {schema} is newer than this program");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(())
}

/// Makes `value` the content of `path`, whole or not at all.
fn write_whole(path: &Path, value: &impl Serialize) -> io::Result<()> {
    durable_file::replace(path, &serde_json::to_vec(value)?)
}

fn add(sums: &mut Vec<NamedBytes>, name: &str, bytes: Bytes) {
    if bytes == Bytes::ZERO {
        return;
    }
    match sums.iter_mut().find(|sum| sum.name == name) {
        Some(sum) => sum.bytes += bytes.0,
        None => sums.push(NamedBytes {
            name: name.to_owned(),
            bytes: bytes.0,
        }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn filled() -> Ledger {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::load(folder.path(), 5).unwrap();
        let applied = Applied {
            applied: Bytes::mib(3),
            changed: Some(Bytes::mib(2)),
            moved_back: Bytes::mib(1),
            skipped: vec![
                (Skip::Shared, Bytes::mib(1)),
                (Skip::NotPresent, Bytes::mib(9)),
                (Skip::DryRun, Bytes::mib(4)),
            ],
            ..Applied::default()
        };
        ledger.add_applied("p", "t", "pageout", &applied);
        ledger.add_applied("p", "t", "pageout", &applied);
        let sums = BTreeMap::from([(("t".to_owned(), "pageout".to_owned()), Bytes::mib(4))]);
        ledger.set_would_act("p", Mode::DryRun, &sums);
        ledger.set_would_act("p", Mode::DryRun, &sums);
        let returns = Returns {
            within_1min: Bytes(1),
            within_10min: Bytes(2),
            within_1h: Bytes(4),
            ..Returns::default()
        };
        ledger.add_returns("p", "t", &returns);
        let cpu = (Nanos::secs(1), Nanos::secs(2));
        ledger.add_time("p", "t", Nanos::secs(1800), 1 << 30, cpu);
        ledger
    }

    #[test]
    fn sums_are_by_action_and_reason() {
        let published = filled().published();
        let row = &published.rows[0];
        let bytes = |sums: &[NamedBytes]| sums.iter().map(|sum| sum.bytes >> 20).collect::<Vec<_>>();
        assert_eq!(
            (bytes(&row.acted_bytes), bytes(&row.skipped_bytes)),
            (vec![4], vec![2])
        );
        assert_eq!(bytes(&row.would_act_bytes), [4], "the last look counts");
        assert_eq!(
            (row.back_1min_bytes, row.back_10min_bytes, row.back_1h_bytes),
            (1, 3, 7)
        );
        assert_eq!(row.moved_back_bytes >> 20, 2);
        assert!((row.net_saved_gib_hours - 0.5).abs() < 1e-9);
    }

    #[test]
    fn day_has_the_sums_of_its_policy_and_target() {
        let ledger = filled();
        let row = ledger.published().rows[0].clone();
        let days = ledger.days().published(5, true).rows;
        let targets: Vec<Option<&str>> = days.iter().map(|day| day.target.as_deref()).collect();
        assert_eq!(targets, [None, Some("t")]);
        for day in days {
            assert_eq!((day.day.as_str(), day.policy.as_str()), ("1970-01-01", "p"));
            assert_eq!(day.acted_bytes, row.acted_bytes);
            let back = (day.back_1min_bytes, day.back_10min_bytes, day.back_1h_bytes);
            assert_eq!(back, (1, 3, 7));
            let cpu = (day.watching_cpu_s, day.acting_cpu_s);
            assert_eq!(
                (day.net_saved_gib_hours, cpu),
                (row.net_saved_gib_hours, (1.0, 2.0))
            );
        }
    }

    #[test]
    fn ledger_without_days_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let old = "{\"schema\":1,\"since_ms\":1,\"rows\":[{\"policy\":\"p\",\"target\":\"t\",\"acted_bytes\":[],\
                   \"skipped_bytes\":[],\"would_act_bytes\":[],\"back_1min_bytes\":0,\"back_10min_bytes\":0,\
                   \"back_1h_bytes\":0,\"net_saved_gib_hours\":2.5,\"watching_cpu_s\":0.0,\"acting_cpu_s\":0.0,\
                   \"watched_s\":9.0}]}";
        fs::write(folder.path().join(FILE), old).unwrap();
        let mut ledger = Ledger::load(folder.path(), 99).unwrap();
        assert_eq!(ledger.published().rows[0].net_saved_gib_hours, 2.5);
        assert!(ledger.days().published(1, true).rows.is_empty());
        ledger.set_time(86_400_000);
        ledger.add_returns("p", "t", &Returns::default());
        assert_eq!(ledger.days().published(1, false).rows[0].day, "1970-01-02");
    }

    #[test]
    fn dry_run_counts_its_last_look() {
        let mut ledger = filled();
        let found_nothing = BTreeMap::from([(("t".to_owned(), "pageout".to_owned()), Bytes::ZERO)]);
        ledger.set_would_act("p", Mode::DryRun, &found_nothing);
        assert!(ledger.published().rows[0].would_act_bytes.is_empty());
        let mut ledger = filled();
        ledger.set_would_act("p", Mode::Act, &BTreeMap::new());
        assert!(ledger.published().rows[0].would_act_bytes.is_empty());
    }

    #[test]
    fn ledger_survives_a_restart() {
        let (folder, mut ledger) = (tempfile::tempdir().unwrap(), filled());
        ledger.save(folder.path()).unwrap();
        let loaded = Ledger::load(folder.path(), 99).unwrap();
        assert_eq!(loaded.published(), ledger.published());
        let days = ledger.days().published(5, true);
        assert_eq!(loaded.days().published(5, true), days);
        assert_eq!(days.rows.len(), 2);
        fs::write(
            folder.path().join(FILE),
            "{\"schema\":99,\"since_ms\":1,\"rows\":[]}",
        )
        .unwrap();
        let error = Ledger::load(folder.path(), 99).unwrap_err().to_string();
        assert_eq!(error, "schema 99 is newer than this program");
    }

    #[test]
    fn number_of_rows_is_bounded() {
        let mut ledger = Ledger::default();
        for nth in 0..MAX_ROWS + 10 {
            ledger.add_returns("p", &nth.to_string(), &Returns::default());
        }
        assert!(ledger.is_full() && ledger.all_rows().len() == MAX_ROWS + 1);
    }
    #[test]
    fn short_lived_names_of_one_policy_leave_room_for_others() {
        let (mut ledger, tick) = (Ledger::default(), Nanos::secs(1));
        let cpu = (Nanos::secs(1), Nanos::ZERO);
        for nth in 0..MAX_ROWS + 10 {
            ledger.set_time(nth as u64 * 1000);
            ledger.add_time("noisy", "lives on", tick, 0, cpu);
            ledger.add_time("noisy", &format!("short-{nth}"), tick, 0, cpu);
        }
        ledger.add_time("noisy", "new", tick, 0, cpu);
        ledger.add_time("quiet", "service", tick, 0, cpu);
        let rows = ledger.published().rows;
        let find = |policy: &str, target: &str| {
            rows.iter()
                .find(|row| (row.policy.as_str(), row.target.as_str()) == (policy, target))
        };
        assert!(find("quiet", "service").is_some() && find("noisy", "new").is_some());
        let (living, folded) = (
            find("noisy", "lives on").unwrap(),
            find("noisy", "(other)").unwrap(),
        );
        assert_eq!(living.watched_s, (MAX_ROWS + 10) as f64);
        assert!(
            find("noisy", "short-0").is_none(),
            "the oldest that has ended is folded"
        );
        let sum: f64 = rows.iter().map(|row| row.watched_s).sum();
        assert_eq!(
            sum,
            (2 * (MAX_ROWS + 10) + 2) as f64,
            "nothing is lost: {folded:?}"
        );
    }
}
