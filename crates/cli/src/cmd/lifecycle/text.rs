//! Decisions and status as text, from the JSON of the daemon.

use std::fmt::Write as _;

use serde_json::Value;
use thermo_report::style::Table;
use thermo_units::{Bytes, Nanos};

/// A line about a decision, and a line about its cost.
pub fn decision(value: &Value) -> String {
    let field = |key: &str| value[key].as_str().unwrap_or("?").to_owned();
    let mut decision = field("decision");
    let is_prefetch = decision == "prefetch";
    if let Some(profile) = value["profile"].as_str() {
        let _ = write!(decision, " {profile}");
    }
    let change = if value["from"] == value["to"] {
        field("to")
    } else {
        format!("{} -> {}", field("from"), field("to"))
    };
    let mut text = format!(
        "{}: {change} ({}): {decision}: {}\n",
        field("app"),
        field("source"),
        field("reason")
    );
    if value["cost"].is_object() {
        cost(&value["cost"], is_prefetch, &mut text);
    }
    text
}

fn cost(cost: &Value, is_prefetch: bool, text: &mut String) {
    let bytes = |key: &str| Bytes(cost[key].as_u64().unwrap_or(0) << 10);
    let time = |key: &str| Nanos(cost[key].as_u64().unwrap_or(0) * 1000);
    let end = cost["end"].as_str().unwrap_or("?");
    let (advised, freed) = (bytes("advised_kb"), bytes("freed_kb"));
    let _ = if is_prefetch {
        write!(text, "    {end}: {advised} requested to be read in")
    } else {
        write!(text, "    {end}: {freed} freed of {advised} advised")
    };
    if cost["compressed_growth_kb"].is_u64() {
        let _ = write!(text, ", zram grew by {}", bytes("compressed_growth_kb"));
    }
    let _ = write!(text, "; CPU time {}", time("cpu_us"));
    if let Some(ms) = cost["cpu_ms_per_mb"].as_f64() {
        let _ = write!(text, " ({ms:.2} ms for each MiB freed)");
    }
    let _ = writeln!(
        text,
        ", elapsed {}, {} calls, longest {}",
        time("elapsed_us"),
        cost["calls"],
        time("longest_call_us")
    );
    if let Some(error) = cost["error"].as_str() {
        let _ = writeln!(text, "    {error}");
    }
}

/// The table of applications, and the daemon's own cost.
pub fn status(value: &Value) -> String {
    let apps = value["apps"].as_array().map_or(&[][..], Vec::as_slice);
    let field = |app: &Value, key: &str| app[key].as_str().unwrap_or("?").to_owned();
    let headings = ["name", "state", "source", "rank", "processes", "freed in all", ""];
    let mut table = Table::new(3, &headings);
    for app in apps {
        let rank = app["rank"].as_u64();
        table.row([
            field(app, "name"),
            field(app, "state"),
            field(app, "source"),
            rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string()),
            app["processes"].as_u64().unwrap_or(0).to_string(),
            Bytes(app["freed_kb"].as_u64().unwrap_or(0) << 10).to_string(),
            if app["busy"] == true { "busy" } else { "" }.to_owned(),
        ]);
    }
    let mut text = table.text();
    let _ = writeln!(
        text,
        "daemon (pid {}): {} resident; since its start: CPU time {}, {} requests, longest {}",
        value["pid"],
        Bytes(value["rss_kb"].as_u64().unwrap_or(0) << 10),
        Nanos(value["cpu_us"].as_u64().unwrap_or(0) * 1000),
        value["requests"],
        Nanos(value["longest_request_us"].as_u64().unwrap_or(0) * 1000),
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn decision_has_its_reason_and_cost() {
        let value = json!({
            "app": "mail", "from": "background", "to": "cached", "source": "set", "decision": "reclaim",
            "profile": "full", "reason": "it is cached",
            "cost": {"end": "done", "error": null, "advised_kb": 2048, "freed_kb": 1024, "cpu_us": 1500,
                     "compressed_growth_kb": 512, "cpu_ms_per_mb": 1.5, "elapsed_us": 4000, "calls": 3,
                     "longest_call_us": 700},
        });
        let text = decision(&value);
        assert!(
            text.starts_with("mail: background -> cached (set): reclaim full: it is cached\n"),
            "{text}"
        );
        assert!(
            text.contains("done: 1.00 MiB freed of 2.00 MiB advised"),
            "{text}"
        );
        assert!(
            text.contains("1.50 ms for each MiB freed") && text.contains("3 calls"),
            "{text}"
        );
    }

    #[test]
    fn prefetch_reads_in_and_frees_nothing() {
        let cost = json!({"end": "done", "advised_kb": 2048, "freed_kb": 0, "calls": 1});
        let text = decision(&json!({"app": "mail", "decision": "prefetch", "cost": cost}));
        assert!(text.contains("2.00 MiB requested to be read in"), "{text}");
        assert!(!text.contains("freed"), "{text}");
    }

    #[test]
    fn status_has_a_line_for_each_application() {
        let app =
            |name: &str| json!({"name": name, "state": "cached", "source": "set", "rank": 1, "processes": 2});
        let text = status(&json!({"pid": 7, "requests": 9, "apps": [app("a"), app("a long name")]}));
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(
            text.contains("a long name  cached") && text.contains("daemon (pid 7)"),
            "{text}"
        );
        assert!(
            text.contains("freed in all") && text.contains("since its start"),
            "{text}"
        );
    }
}
