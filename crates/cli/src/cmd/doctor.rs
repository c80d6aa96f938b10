//! `thermo doctor`: the trackers and actions that this machine supports.

use std::path::Path;

use serde_json::{Value, json};
use thermo_backends::offload;
use thermo_kernel::FileError;
use thermo_kernel::leftovers::{self, OrphanedNote};
use thermo_runtime::host::Host;
use thermo_term::exit::Exit;
use thermo_term::output;
use thermo_units::printable;

/// List the trackers and actions that this machine supports, and why it does not support the others.
///
/// Exit code 1: no tracker can be used, or with --leftovers: something is left.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo doctor
  thermo doctor --leftovers --json")]
pub struct Doctor {
    /// List the settings that killed instances of thermo left changed, instead
    #[arg(long)]
    leftovers: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Doctor {
    /// Prints the report. The result is negative when no tracker is available, or when leftovers exist.
    pub fn run(self) -> anyhow::Result<Exit> {
        if self.leftovers {
            return print_leftovers(self.json);
        }
        let host = Host::probe();
        if self.json {
            output::json(&as_json(&host))?;
        } else {
            output::text(&printable(&as_text(&host)))?;
        }
        Ok(if host.default_tracker().is_some() {
            Exit::Done
        } else {
            Exit::Negative
        })
    }
}

fn print_leftovers(json: bool) -> anyhow::Result<Exit> {
    let root = Path::new("/");
    let mut found =
        leftovers::folder(root).map_or_else(Vec::new, |folder| leftovers::find_orphaned(root, &folder));
    match offload::leftover(root) {
        Ok(kdamond) => found.extend(kdamond),
        // Only root can use in-kernel DAMON, and only root can see what remains of it.
        Err(FileError::Denied { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    if json {
        let entry = |note: &OrphanedNote| json!({ "kind": note.kind, "pid": note.writer.pid, "left": note.leftovers, "note": note.path });
        output::json(&json!({ "schema": 1, "leftovers": found.iter().map(entry).collect::<Vec<_>>() }))?;
    } else {
        output::text(&printable(&leftovers_text(&found)))?;
    }
    Ok(if found.is_empty() {
        Exit::Done
    } else {
        Exit::Negative
    })
}

fn leftovers_text(found: &[OrphanedNote]) -> String {
    if found.is_empty() {
        return "killed instances of thermo left nothing behind\n".to_owned();
    }
    let text = |note: &OrphanedNote| {
        let left: String = note.leftovers.iter().map(|what| format!("  {what}\n")).collect();
        let (pid, path) = (note.writer.pid, note.path.display());
        format!(
            "{} left by thermo (pid {pid}), which was killed; noted in {path}:\n{left}",
            note.kind
        )
    };
    found.iter().map(text).collect()
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
        "Linux {} on {}\n\n{}",
        host.facts.uname.release,
        host.facts.uname.machine,
        header("tracker")
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
    text.push_str(&format!("\n{}", header("action")));
    for report in &host.actions {
        let interface = if report.via.is_empty() {
            String::new()
        } else {
            format!("{}: ", report.via)
        };
        text.push_str(&row(
            report.action.name(),
            report.available,
            &format!("{interface}{}", report.reason),
        ));
    }
    text
}

fn header(kind: &str) -> String {
    format!("  {kind:<13}can be used: how, or why not\n")
}

/// A row of the table. A reason of several lines stays in its column.
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
    fn multi_line_reason_stays_in_its_column() {
        let text = row("pte", false, "refused:\nR1 type=ctx\nprocessed 3 insns");
        assert_eq!(
            text,
            "  pte          no   refused:\n                    R1 type=ctx\n                    processed 3 insns\n"
        );
    }

    #[test]
    fn tables_have_a_header() {
        assert_eq!(header("tracker"), "  tracker      can be used: how, or why not\n");
        assert_eq!(row("pte", true, "r").find("yes"), header("tracker").find("can"));
    }
}
