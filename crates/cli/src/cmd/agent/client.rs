//! Verbs that ask a running agent.

use serde_json::{Value, json};
use thermo_agent::api::{Decisions, Explanation, Ledger, LedgerDays, Mode, Policies, Status, Targets};
use thermo_term::exit::Exit;
use thermo_term::output;
use thermo_units::printable;

use super::{Common, text};

/// Parses a mode.
pub(super) fn mode(text: &str) -> Result<Mode, String> {
    let modes = [Mode::Observe, Mode::DryRun, Mode::Act];
    let found = modes.into_iter().find(|mode| mode.name() == text);
    found.ok_or_else(|| format!("{text:?} is not a mode: use observe, dry-run or act"))
}

pub(super) fn status(common: &Common) -> anyhow::Result<Exit> {
    let client = common.address.client()?;
    if common.json {
        let targets: Value = client.get("/api/v1/targets")?;
        let policies: Value = client.get("/api/v1/policies")?;
        let status: Value = client.get("/api/v1/status")?;
        let all = json!({ "schema": 1, "targets": targets["targets"], "policies": policies["policies"], "status": status });
        return print_json(&all);
    }
    let status: Status = client.get("/api/v1/status")?;
    let policies: Policies = client.get("/api/v1/policies")?;
    let targets: Targets = client.get("/api/v1/targets")?;
    print(&text::status(&status, &policies, &targets))
}

pub(super) fn explain(pid: u32, common: &Common) -> anyhow::Result<Exit> {
    let path = format!("/api/v1/explain?pid={pid}");
    answer(common, &path, |explanation: &Explanation| {
        text::explanation(explanation)
    })
}

pub(super) fn why(target: Option<&str>, common: &Common) -> anyhow::Result<Exit> {
    let client = common.address.client()?;
    let mut decisions: Decisions = client.get("/api/v1/decisions")?;
    if let Some(target) = target {
        decisions
            .decisions
            .retain(|decision| decision.target.as_deref() == Some(target));
    }
    match common.json {
        true => print_json(&serde_json::to_value(&decisions)?),
        false => print(&text::decisions(&decisions)),
    }
}

pub(super) fn ledger(common: &Common) -> anyhow::Result<Exit> {
    answer(common, "/api/v1/ledger", |ledger: &Ledger| text::ledger(ledger))
}

pub(super) fn ledger_days(targets: bool, common: &Common) -> anyhow::Result<Exit> {
    let path = format!("/api/v1/ledger?by=day&targets={targets}");
    answer(common, &path, |days: &LedgerDays| text::ledger_days(days))
}

/// Prints the answer: as JSON, or as `text` makes it.
fn answer<T: serde::de::DeserializeOwned>(
    common: &Common,
    path: &str,
    text: impl Fn(&T) -> String,
) -> anyhow::Result<Exit> {
    let client = common.address.client()?;
    match common.json {
        true => print_json(&client.get::<Value>(path)?),
        false => print(&text(&client.get(path)?)),
    }
}

pub(super) fn pause(policy: Option<&str>, paused: bool, common: &Common) -> anyhow::Result<Exit> {
    let verb = if paused { "pause" } else { "resume" };
    let path = policy.map_or_else(
        || format!("/api/v1/{verb}"),
        |policy| format!("/api/v1/policies/{policy}/{verb}"),
    );
    let what = policy.map_or_else(|| "All policies".to_owned(), |policy| format!("Policy {policy}"));
    let done = match (policy, paused) {
        (Some(_), true) => "is paused",
        (None, true) => "are paused",
        (Some(_), false) => "is resumed",
        (None, false) => "are resumed",
    };
    order(common, &path, None, &format!("{what} {done}.\n"))
}

pub(super) fn set_mode(policy: &str, mode: Mode, common: &Common) -> anyhow::Result<Exit> {
    let path = format!("/api/v1/policies/{policy}/mode");
    let body = json!({ "mode": mode.name() });
    let done = format!(
        "Policy {policy} is in mode {} until the agent ends.\n",
        mode.name()
    );
    order(common, &path, Some(&body), &done)
}

pub(super) fn reload(common: &Common) -> anyhow::Result<Exit> {
    order(
        common,
        "/api/v1/reload",
        None,
        "The configuration was read again.\n",
    )
}

fn order(common: &Common, path: &str, body: Option<&Value>, done: &str) -> anyhow::Result<Exit> {
    common.address.client()?.post(path, body)?;
    match common.json {
        true => print_json(&json!({ "schema": 1, "done": true })),
        false => print(done),
    }
}

fn print_json(value: &Value) -> anyhow::Result<Exit> {
    output::json(value)?;
    Ok(Exit::Done)
}

/// Names come from programs: control characters must not reach the terminal.
fn print(text: &str) -> anyhow::Result<Exit> {
    let lines = text.lines().map(|line| printable(line).to_string() + "\n");
    output::text(&lines.collect::<String>())?;
    Ok(Exit::Done)
}
