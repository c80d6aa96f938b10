//! `thermo doctor`: what this machine lets us do.

use serde_json::{Value, json};

use crate::exit::Exit;
use crate::output;
use crate::session::Host;

/// Tell which trackers and actions can be used on this machine, and why not the rest.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo doctor
  thermo doctor --json")]
pub struct Doctor {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Doctor {
    /// The answer is negative when no tracker can be used.
    pub fn run(self) -> anyhow::Result<Exit> {
        let host = Host::probe();
        if self.json {
            output::json(&as_json(&host))?;
        } else {
            output::text(&as_text(&host))?;
        }
        Ok(if host.default_tracker().is_some() {
            Exit::Done
        } else {
            Exit::Negative
        })
    }
}

fn as_json(host: &Host) -> Value {
    let trackers = host
        .trackers
        .iter()
        .map(|report| json!({ "name": report.name, "available": report.available, "reason": report.reason }));
    let actions = host.actions.iter().map(|report| {
        json!({
            "name": report.action.name(),
            "available": report.available,
            "via": report.via,
            "reason": report.reason,
        })
    });
    json!({
        "schema": 1,
        "kernel": host.facts.uname.release,
        "arch": host.facts.uname.machine,
        "trackers": trackers.collect::<Vec<_>>(),
        "default_tracker": host.default_tracker(),
        "actions": actions.collect::<Vec<_>>(),
    })
}

fn as_text(host: &Host) -> String {
    let mut text = format!(
        "Linux {} on {}\n\ntrackers\n",
        host.facts.uname.release, host.facts.uname.machine
    );
    for report in &host.trackers {
        let default = if host.default_tracker() == Some(report.name) {
            " (the default)"
        } else {
            ""
        };
        text.push_str(&row(
            report.name,
            report.available,
            &format!("{}{default}", report.reason),
        ));
    }
    text.push_str("\nactions\n");
    for report in &host.actions {
        let how = if report.via.is_empty() {
            String::new()
        } else {
            format!("{}: ", report.via)
        };
        text.push_str(&row(
            report.action.name(),
            report.available,
            &format!("{how}{}", report.reason),
        ));
    }
    text
}

fn row(name: &str, available: bool, reason: &str) -> String {
    format!(
        "  {name:<13}{:<5}{reason}\n",
        if available { "yes" } else { "no" }
    )
}
