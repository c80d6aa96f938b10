//! `thermo doctor`: what this machine lets us do.

use std::path::Path;

use serde_json::{Value, json};
use thermo_kernel::leftovers::{self, Found};
use thermo_term::exit::Exit;
use thermo_term::output;

use crate::session::Host;

/// Tell which trackers and actions can be used on this machine, and why not the rest.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo doctor
  thermo doctor --leftovers --json")]
pub struct Doctor {
    /// Tell what instances that were killed left switched on, instead
    #[arg(long)]
    leftovers: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Doctor {
    /// The answer is negative when no tracker can be used, or something was left.
    pub fn run(self) -> anyhow::Result<Exit> {
        if self.leftovers {
            return tell_leftovers(self.json);
        }
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

fn tell_leftovers(json: bool) -> anyhow::Result<Exit> {
    let root = Path::new("/");
    let found = leftovers::folder(root).map_or_else(Vec::new, |folder| leftovers::found(root, &folder));
    if json {
        let one = |note: &Found| json!({ "kind": note.kind, "pid": note.writer.pid, "left": note.left, "note": note.path });
        output::json(&json!({ "schema": 1, "leftovers": found.iter().map(one).collect::<Vec<_>>() }))?;
    } else {
        output::text(&leftovers_text(&found))?;
    }
    Ok(if found.is_empty() {
        Exit::Done
    } else {
        Exit::Negative
    })
}

fn leftovers_text(found: &[Found]) -> String {
    if found.is_empty() {
        return "nothing is left of instances that were killed\n".to_owned();
    }
    let one = |note: &Found| {
        let left: String = note.left.iter().map(|what| format!("  {what}\n")).collect();
        let (pid, path) = (note.writer.pid, note.path.display());
        format!(
            "{} of thermo (pid {pid}), which was killed; noted in {path}\n{left}",
            note.kind
        )
    };
    found.iter().map(one).collect()
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

/// A row; what the kernel said in several lines stays in its column.
fn row(name: &str, available: bool, reason: &str) -> String {
    let reason = reason.replace('\n', &format!("\n{:20}", ""));
    format!(
        "  {name:<13}{:<5}{reason}\n",
        if available { "yes" } else { "no" }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_of_several_lines_stay_in_their_column() {
        let told = row("pte", false, "refused:\nR1 type=ctx\nprocessed 3 insns");
        assert_eq!(
            told,
            "  pte          no   refused:\n                    R1 type=ctx\n                    processed 3 insns\n"
        );
    }
}
