//! Decisions and standings in words, from the JSON the daemon answers with.

use std::fmt::Write as _;

use serde_json::Value;
use thermo_units::{Bytes, Nanos};

/// A line about a decision, and a second one of what it cost.
pub fn decision(value: &Value) -> String {
    let word = |key: &str| value[key].as_str().unwrap_or("?").to_owned();
    let mut what = word("decision");
    if let Some(profile) = value["profile"].as_str() {
        let _ = write!(what, " {profile}");
    }
    let change = if value["from"] == value["to"] {
        word("to")
    } else {
        format!("{} -> {}", word("from"), word("to"))
    };
    let mut text = format!(
        "{}: {change} ({}): {what}: {}\n",
        word("app"),
        word("source"),
        word("reason")
    );
    if value["cost"].is_object() {
        cost(&value["cost"], &mut text);
    }
    text
}

fn cost(cost: &Value, text: &mut String) {
    let bytes = |key: &str| Bytes(cost[key].as_u64().unwrap_or(0) << 10);
    let time = |key: &str| Nanos(cost[key].as_u64().unwrap_or(0) * 1000);
    let _ = write!(
        text,
        "    {}: {} advised, {} freed",
        cost["end"].as_str().unwrap_or("?"),
        bytes("advised_kb"),
        bytes("freed_kb")
    );
    if cost["compressed_growth_kb"].is_u64() {
        let _ = write!(text, ", zram grew by {}", bytes("compressed_growth_kb"));
    }
    let _ = write!(text, "; {} of CPU", time("cpu_us"));
    if let Some(ms) = cost["cpu_ms_per_mb"].as_f64() {
        let _ = write!(text, " ({ms:.2} ms a MiB)");
    }
    let _ = writeln!(
        text,
        " in {}, {} calls, the longest {}",
        time("elapsed_us"),
        cost["calls"],
        time("longest_call_us")
    );
    if let Some(error) = cost["error"].as_str() {
        let _ = writeln!(text, "    {error}");
    }
}

/// The table of applications, and the daemon's own use.
pub fn status(value: &Value) -> String {
    let apps = value["apps"].as_array().map_or(&[][..], Vec::as_slice);
    let word = |app: &Value, key: &str| app[key].as_str().unwrap_or("?").to_owned();
    let width = apps
        .iter()
        .map(|app| word(app, "name").chars().count())
        .max()
        .unwrap_or(0)
        .max(4);
    let mut text = format!(
        "{:width$}  {:11}  {:13}  rank  processes       freed\n",
        "name", "state", "source"
    );
    for app in apps {
        let rank = app["rank"]
            .as_u64()
            .map_or_else(|| "-".to_owned(), |rank| rank.to_string());
        let _ = writeln!(
            text,
            "{:width$}  {:11}  {:13}  {rank:>4}  {:>9}  {:>10}{}",
            word(app, "name"),
            word(app, "state"),
            word(app, "source"),
            app["processes"].as_u64().unwrap_or(0),
            Bytes(app["freed_kb"].as_u64().unwrap_or(0) << 10).to_string(),
            if app["busy"] == true { "  busy" } else { "" },
        );
    }
    let _ = writeln!(
        text,
        "daemon {}: {} of CPU, {} resident, {} requests, the longest took {}",
        value["pid"],
        Nanos(value["cpu_us"].as_u64().unwrap_or(0) * 1000),
        Bytes(value["rss_kb"].as_u64().unwrap_or(0) << 10),
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
    fn a_decision_is_told_with_its_reason_and_cost() {
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
            text.contains("1M freed") || text.contains("1.0") || text.contains("1 MiB freed"),
            "{text}"
        );
        assert!(
            text.contains("1.50 ms a MiB") && text.contains("3 calls"),
            "{text}"
        );
    }

    #[test]
    fn a_status_has_a_line_for_each() {
        let app =
            |name: &str| json!({"name": name, "state": "cached", "source": "set", "rank": 1, "processes": 2});
        let text = status(&json!({"pid": 7, "requests": 9, "apps": [app("a"), app("a long name")]}));
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(
            text.contains("a long name  cached") && text.contains("daemon 7"),
            "{text}"
        );
    }
}
