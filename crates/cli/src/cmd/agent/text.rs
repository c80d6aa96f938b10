//! Answers of the agent as text.

use thermo_agent::api::{
    Decision, DecisionKind, Decisions, Explanation, Ledger, LedgerDay, LedgerDays, LedgerRow, NamedBytes,
    Policies, Policy, Status, Target, Targets,
};
use thermo_agent::config::Config;
use thermo_report::style::Table;
use thermo_units::{Bytes, Nanos};

/// Idle memory in lists: what was not accessed for this long.
const IDLE_S: u64 = 60;

/// The policies of a configuration.
pub(super) fn policies_of(config: &Config) -> String {
    if config.policies.is_empty() {
        return "The configuration is right. It has no policy, so nothing is watched.\n".to_owned();
    }
    let mut text = format!(
        "The configuration is right. Of {} policies, the first that matches a process has it:\n",
        config.policies.len()
    );
    for policy in &config.policies {
        text += &format!(
            "  {} ({}): {}\n",
            policy.name,
            policy.mode.name(),
            policy.rule.text()
        );
        for scheme in &policy.schemes {
            text += &format!("    {}\n", thermo_schemes::describe(scheme));
        }
    }
    text
}

/// Everything at a glance.
pub(super) fn status(status: &Status, policies: &Policies, targets: &Targets) -> String {
    let lifetime = (status.time_ms.saturating_sub(status.started_ms) as f64 / 1000.0).max(1.0);
    let mut text = format!(
        "thermo {} on {}, for {}: {:.2} % of a CPU for watching (budget {:.2} %), {:.2} % for acting, {} resident\n",
        status.version,
        status.host,
        Nanos::secs(lifetime as u64),
        100.0 * status.watching_cpu_s / lifetime,
        100.0 * status.budget_cpu_share,
        100.0 * status.acting_cpu_s / lifetime,
        Bytes(status.resident_bytes)
    );
    for warning in &status.warnings {
        text += &format!("warning: {warning}\n");
    }
    if let Some(export) = &status.export {
        let (files, dropped) = (export.files, export.dropped_files);
        text += &format!(
            "{files} files for the fleet wait ({}), {dropped} were dropped\n",
            Bytes(export.bytes)
        );
    }
    text += "\n";
    policies
        .policies
        .iter()
        .for_each(|policy| text += &policy_line(policy));
    let headings = [
        "target",
        "policy",
        "resident",
        "idle 1 min",
        "net saving",
        "refaults/min",
    ];
    let mut table = Table::new(2, &headings);
    for target in &targets.targets {
        table.row(target_row(target));
    }
    text += "\n";
    text + &table.text()
}

fn policy_line(policy: &Policy) -> String {
    let state = match (&policy.error, policy.paused, &policy.suspended) {
        (Some(error), ..) => format!("does not run: {error}"),
        (_, true, _) => "paused".to_owned(),
        (.., Some(why)) => format!("suspended: {why}"),
        _ if policy.suspended_targets > 0 => format!(
            "{} processes; {} of {} targets suspended",
            policy.processes, policy.suspended_targets, policy.targets
        ),
        _ => format!("{} processes", policy.processes),
    };
    format!(
        "{} ({}, {}): {state}\n",
        policy.name,
        policy.mode.name(),
        policy.matches
    )
}

fn target_row(target: &Target) -> [String; 6] {
    let idle: u64 = target
        .ages
        .iter()
        .filter(|row| row.min_s >= IDLE_S)
        .map(|row| row.bytes)
        .sum();
    [
        target.name.clone(),
        target.policy.clone(),
        Bytes(target.resident_bytes).to_string(),
        Bytes(idle).to_string(),
        Bytes::signed(target.net_saved_bytes),
        Bytes(target.refault_bytes_per_min).to_string(),
    ]
}

/// Which policy has a process.
pub(super) fn explanation(explanation: &Explanation) -> String {
    let mut text = match (&explanation.policy, &explanation.target) {
        (Some(policy), Some(target)) => {
            format!(
                "Process {} belongs to policy {policy}, target {target}.\n",
                explanation.pid
            )
        }
        _ => format!("No policy has process {}.\n", explanation.pid),
    };
    text += &format!("{}\n\n", explanation.rule);
    for policy in &explanation.policies {
        let matches = if policy.matches {
            "matches"
        } else {
            "does not match"
        };
        text += &format!("{}: {matches}: {}\n", policy.policy, policy.why);
    }
    text += "\n";
    let facts = explanation.facts.iter();
    let rows = facts.map(|(name, value)| vec![name.clone(), value.clone()]);
    text + &Table::of_rows(2, rows.collect()).text()
}

/// The last decisions.
pub(super) fn decisions(decisions: &Decisions) -> String {
    let text: String = decisions.decisions.iter().map(decision_line).collect();
    if text.is_empty() {
        "No decision was made yet.
"
        .to_owned()
    } else {
        text
    }
}

fn decision_line(decision: &Decision) -> String {
    let seconds = decision.time_ms / 1000 % 86_400;
    let clock = format!(
        "{:02}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    );
    let target = decision
        .target
        .as_deref()
        .map(|target| format!(" of {target}"))
        .unwrap_or_default();
    let (action, bytes) = (&decision.action, Bytes(decision.bytes));
    let what = match decision.kind {
        DecisionKind::Acted => format!("{action} {bytes}{target}"),
        DecisionKind::WouldAct => format!("would {action} {bytes}{target}"),
        DecisionKind::Skipped => format!("skipped {bytes}{target}"),
        DecisionKind::Suspended => "suspended".to_owned(),
        DecisionKind::Resumed => "resumed".to_owned(),
        DecisionKind::Paused => "paused".to_owned(),
        DecisionKind::ModeChanged => "mode changed".to_owned(),
        DecisionKind::AgeChosen => "automatic age".to_owned(),
        DecisionKind::Reloaded => "configuration".to_owned(),
        DecisionKind::Application => format!("application{target}"),
        DecisionKind::Warning => "warning".to_owned(),
    };
    let policy = if decision.policy.is_empty() {
        "agent"
    } else {
        &decision.policy
    };
    format!("{clock} UTC {policy}: {what}: {}\n", decision.why)
}

/// The ledger.
pub(super) fn ledger(ledger: &Ledger) -> String {
    if ledger.rows.is_empty() {
        return "The ledger is empty: nothing was watched yet.\n".to_owned();
    }
    ledger.rows.iter().map(ledger_row).collect()
}

fn ledger_row(row: &LedgerRow) -> String {
    let list = |sums: &[NamedBytes]| {
        let one = |sum: &NamedBytes| format!("{} {}", sum.name, Bytes(sum.bytes));
        match sums {
            [] => "nothing".to_owned(),
            sums => sums.iter().map(one).collect::<Vec<_>>().join(", "),
        }
    };
    let mut text = format!(
        "{} of policy {}, watched for {}:\n",
        row.target,
        row.policy,
        Nanos::secs(row.watched_s as u64)
    );
    text += &format!("  acted on   {}\n", list(&row.acted_bytes));
    if !row.would_act_bytes.is_empty() {
        text += &format!("  would act  {}\n", list(&row.would_act_bytes));
    }
    text += &format!("  skipped    {}\n", list(&row.skipped_bytes));
    text += &format!(
        "  came back  {} within 1 min, {} within 10 min, {} within 1 h\n",
        Bytes(row.back_1min_bytes),
        Bytes(row.back_10min_bytes),
        Bytes(row.back_1h_bytes)
    );
    if row.moved_back_bytes > 0 {
        text += &format!(
            "  moved back {} to the node it came from\n",
            Bytes(row.moved_back_bytes)
        );
    }
    text += &format!(
        "  saved      {:.3} GiB for an hour; CPU time {:.1} s watching, {:.1} s acting\n",
        row.net_saved_gib_hours, row.watching_cpu_s, row.acting_cpu_s
    );
    text
}

/// The ledger of each day. Rows of targets are below that of their policy, and indented.
pub(super) fn ledger_days(days: &LedgerDays) -> String {
    if days.rows.is_empty() {
        return "The ledger has no day: nothing was watched yet.\n".to_owned();
    }
    let headings = [
        "day (UTC)",
        "policy",
        "acted on",
        "back 1 min",
        "back 1 h",
        "saved GiB·h",
        "watching s",
        "acting s",
    ];
    let mut table = Table::new(2, &headings);
    for day in &days.rows {
        table.row(ledger_day(day));
    }
    table.text()
}

fn ledger_day(row: &LedgerDay) -> [String; 8] {
    let name = match &row.target {
        None => row.policy.clone(),
        Some(target) => format!("  {target}"),
    };
    let acted: u64 = row.acted_bytes.iter().map(|sum| sum.bytes).sum();
    [
        row.day.clone(),
        name,
        Bytes(acted).to_string(),
        Bytes(row.back_1min_bytes).to_string(),
        Bytes(row.back_1h_bytes).to_string(),
        format!("{:.3}", row.net_saved_gib_hours),
        format!("{:.1}", row.watching_cpu_s),
        format!("{:.1}", row.acting_cpu_s),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decision_has_time_policy_and_reason() {
        let decision = Decision {
            time_ms: 3_661_000,
            policy: "db".to_owned(),
            target: Some("redis".to_owned()),
            kind: DecisionKind::Acted,
            action: "pageout".to_owned(),
            bytes: 1 << 20,
            why: "It was idle.".to_owned(),
            ..Decision::default()
        };
        assert_eq!(
            decision_line(&decision),
            "01:01:01 UTC db: pageout 1.00 MiB of redis: It was idle.\n"
        );
        let none = super::decisions(&Decisions::default());
        assert_eq!(
            none,
            "No decision was made yet.
"
        );
    }

    #[test]
    fn days_are_a_table_of_policies_and_their_targets() {
        let day = |target: Option<&str>, saved| LedgerDay {
            day: "2026-11-26".to_owned(),
            policy: "db".to_owned(),
            target: target.map(str::to_owned),
            acted_bytes: vec![NamedBytes {
                name: "pageout".to_owned(),
                bytes: 3 << 20,
            }],
            back_1min_bytes: 1 << 10,
            back_1h_bytes: 2 << 10,
            net_saved_gib_hours: saved,
            watching_cpu_s: 864.0,
            acting_cpu_s: 1.25,
            ..LedgerDay::default()
        };
        let days = LedgerDays {
            rows: vec![day(None, 1.5), day(Some("redis.service"), -0.5)],
            ..LedgerDays::default()
        };
        let expected = "\
day (UTC)   policy           acted on  back 1 min  back 1 h  saved GiB·h  watching s  acting s
2026-11-26  db               3.00 MiB    1.00 KiB  2.00 KiB        1.500       864.0       1.2
2026-11-26    redis.service  3.00 MiB    1.00 KiB  2.00 KiB       -0.500       864.0       1.2
";
        assert_eq!(super::ledger_days(&days), expected);
        let none = super::ledger_days(&LedgerDays::default());
        assert_eq!(none, "The ledger has no day: nothing was watched yet.\n");
    }

    #[test]
    fn losses_have_a_sign() {
        assert_eq!(
            (Bytes::signed(-1 << 20), Bytes::signed(1 << 20)),
            ("-1.00 MiB".to_owned(), "1.00 MiB".to_owned())
        );
    }
}
