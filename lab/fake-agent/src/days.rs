//! The ledger of the made-up programs, by day: the days before the start, and today.

use std::collections::BTreeMap;

use thermo_agent::api::{LedgerDay, LedgerDays, LedgerRow, NamedBytes, SCHEMA, UnixMillis};
use thermo_agent::ledger::days::utc_date;

use crate::profile::Profile;
use crate::state::State;

const DAY_MS: u64 = 86_400_000;
/// Days before the start.
const DAYS_BEFORE: u64 = 30;
/// Days before the start on which the agent did not run.
const OFF: [u64; 2] = [11, 12];
/// Days before the start on which swap occupied more than it saved.
const LOSS: u64 = 19;

/// When the ledger began.
pub(crate) fn since_ms(state: &State) -> UnixMillis {
    state.started_ms.saturating_sub(DAYS_BEFORE * DAY_MS)
}

/// The sums of a program on one of the days before the start.
fn before(profile: &Profile, ago: u64) -> LedgerDay {
    let load = 1.0 + (ago as f64 * 0.9 + profile.size_mib as f64).sin() / 3.0;
    let sign = if ago == LOSS { -0.2 } else { 1.0 };
    let acts = profile.policy != "batch";
    let out_gib = if acts {
        profile.size_mib as f64 / 1024.0 * (1.0 - profile.hot) * load
    } else {
        0.0
    };
    let acted = (out_gib * 3.0 * f64::from(1 << 30)) as u64;
    LedgerDay {
        policy: profile.policy.to_owned(),
        target: Some(profile.name.to_owned()),
        acted_bytes: pageout(acted),
        back_1min_bytes: acted / 100,
        back_10min_bytes: acted / 40,
        back_1h_bytes: acted / 16,
        net_saved_gib_hours: sign * out_gib * 16.0,
        watching_cpu_s: profile.size_mib as f64 * 0.08,
        acting_cpu_s: out_gib * 1.5,
        ..LedgerDay::default()
    }
}

fn pageout(bytes: u64) -> Vec<NamedBytes> {
    let name = "pageout".to_owned();
    let some = (bytes > 0).then_some(NamedBytes { name, bytes });
    some.into_iter().collect()
}

/// The days on which the agent ran before its start, as the number of days ago.
fn days_before() -> impl Iterator<Item = u64> {
    (1..=DAYS_BEFORE).rev().filter(|ago| !OFF.contains(ago))
}

/// Adds the days before the start to the sums of a program.
pub(crate) fn add_before(row: &mut LedgerRow, profile: &Profile) {
    for day in days_before().map(|ago| before(profile, ago)) {
        for acted in day.acted_bytes {
            add_named(&mut row.acted_bytes, &acted);
        }
        row.back_1min_bytes += day.back_1min_bytes;
        row.back_10min_bytes += day.back_10min_bytes;
        row.back_1h_bytes += day.back_1h_bytes;
        row.net_saved_gib_hours += day.net_saved_gib_hours;
        row.watching_cpu_s += day.watching_cpu_s;
        row.acting_cpu_s += day.acting_cpu_s;
        row.watched_s += 86_400.0;
    }
}

fn add_named(sums: &mut Vec<NamedBytes>, more: &NamedBytes) {
    match sums.iter_mut().find(|sum| sum.name == more.name) {
        Some(sum) => sum.bytes += more.bytes,
        None => sums.push(more.clone()),
    }
}

/// The sums since the start, all of them today.
fn today(row: LedgerRow) -> LedgerDay {
    LedgerDay {
        policy: row.policy,
        target: Some(row.target),
        acted_bytes: row.acted_bytes,
        back_1min_bytes: row.back_1min_bytes,
        back_10min_bytes: row.back_10min_bytes,
        back_1h_bytes: row.back_1h_bytes,
        net_saved_gib_hours: row.net_saved_gib_hours,
        watching_cpu_s: row.watching_cpu_s,
        acting_cpu_s: row.acting_cpu_s,
        ..LedgerDay::default()
    }
}

fn day(ms: UnixMillis) -> String {
    utc_date(ms).unwrap_or_default().to_string()
}

/// The answer of the ledger by day.
pub(crate) fn answer(state: &State, with_targets: bool) -> LedgerDays {
    let mut rows: BTreeMap<(String, String, Option<String>), LedgerDay> = BTreeMap::new();
    let mut put = |day: String, row: LedgerDay| {
        let policy = LedgerDay {
            target: None,
            ..row.clone()
        };
        for row in [policy, row].into_iter().take(if with_targets { 2 } else { 1 }) {
            let key = (day.clone(), row.policy.clone(), row.target.clone());
            let sum = rows.entry(key).or_insert_with(|| LedgerDay {
                day: day.clone(),
                policy: row.policy.clone(),
                target: row.target.clone(),
                ..LedgerDay::default()
            });
            row.acted_bytes
                .iter()
                .for_each(|acted| add_named(&mut sum.acted_bytes, acted));
            sum.back_1min_bytes += row.back_1min_bytes;
            sum.back_10min_bytes += row.back_10min_bytes;
            sum.back_1h_bytes += row.back_1h_bytes;
            sum.net_saved_gib_hours += row.net_saved_gib_hours;
            sum.watching_cpu_s += row.watching_cpu_s;
            sum.acting_cpu_s += row.acting_cpu_s;
        }
    };
    for profile in &super::PROFILES {
        for ago in days_before() {
            put(
                day(state.started_ms.saturating_sub(ago * DAY_MS)),
                before(profile, ago),
            );
        }
        put(day(state.started_ms), today(state.ledger_row(profile)));
    }
    LedgerDays {
        schema: SCHEMA,
        since_ms: since_ms(state),
        rows: rows.into_values().collect(),
    }
}
