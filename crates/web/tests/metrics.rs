//! The metrics: valid, equal to the JSON, and the only ones that the files in packaging/ use.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;
use support::Site;
use thermo_agent::api::Service as _;
use thermo_web::metrics::{self, Format};

const OPEN_METRICS: &str = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";

/// Labels of a sample, by name.
type Labels = BTreeMap<String, String>;
/// Name, labels and value.
type Sample = (String, Labels, f64);

fn parse_labels(text: &str) -> Labels {
    let mut labels = Labels::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once("=\"") {
        let mut value = String::new();
        let mut characters = after.chars();
        loop {
            match characters.next().unwrap() {
                '"' => break,
                '\\' => value.push(characters.next().unwrap()),
                other => value.push(other),
            }
        }
        assert!(
            labels
                .insert(name.trim_start_matches(',').to_owned(), value)
                .is_none()
        );
        rest = characters.as_str();
    }
    labels
}

fn samples(text: &str) -> Vec<Sample> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let labels = parse_labels(labels.strip_suffix('}').unwrap());
        (name.to_owned(), labels, value.parse().unwrap())
    };
    lines.map(sample).collect()
}

fn names() -> BTreeSet<String> {
    metrics::families().map(metrics::Family::sample_name).collect()
}

/// The samples of one target.
fn of_target<'a>(samples: &'a [Sample], target: &Value) -> Vec<&'a Sample> {
    let (name, policy) = (target["name"].as_str(), target["policy"].as_str());
    let is_of_target = |(_, labels, _): &&Sample| {
        labels.get("target").map(String::as_str) == name && labels.get("policy").map(String::as_str) == policy
    };
    samples.iter().filter(is_of_target).collect()
}

/// The sum of the samples called `name`, in one range of idle ages if it is given.
fn sum(samples: &[&Sample], name: &str, edge: Option<&Value>) -> f64 {
    let edge = edge.map(Value::to_string);
    let is_wanted = |(sample, labels, _): &&&Sample| {
        sample == name && (edge.is_none() || edge.as_ref() == labels.get("min_age_seconds"))
    };
    samples.iter().filter(is_wanted).map(|sample| sample.2).sum()
}

#[test]
fn buckets_equal_the_json() {
    let site = Site::start();
    let text = site.ask("GET", "/metrics", &[("Accept", OPEN_METRICS)], "").body;
    let samples = samples(&text);
    let targets = site.get("/api/v1/targets").json();
    for target in targets["targets"].as_array().unwrap() {
        let samples = of_target(&samples, target);
        let idle = sum(&samples, "thermo_target_idle_bytes", None);
        let unknown = sum(&samples, "thermo_target_unknown_bytes", None);
        assert_eq!(idle + unknown, target["resident_bytes"].as_f64().unwrap());
        for field in [
            "resident_bytes",
            "swap_bytes",
            "working_set_bytes",
            "net_saved_bytes",
        ] {
            let metric = format!("thermo_target_{field}");
            assert_eq!(
                sum(&samples, &metric, None),
                target[field].as_f64().unwrap(),
                "{metric}"
            );
        }
        for (metric, field) in [
            ("thermo_target_idle_bytes", "ages"),
            ("thermo_target_reaccessed_bytes_total", "reaccess"),
        ] {
            for age in target[field].as_array().unwrap() {
                let bytes = sum(&samples, metric, Some(&age["min_s"]));
                assert_eq!(bytes, age["bytes"].as_f64().unwrap(), "{metric} {age}");
            }
        }
    }
}

#[test]
fn families_are_declared_once() {
    let site = Site::start();
    let text = metrics::encode(site.agent.as_ref(), Format::OpenMetrics);
    assert!(text.ends_with("# EOF\n"));
    for family in metrics::families() {
        let name = family.sample_name();
        let plain = name.trim_end_matches("_total");
        assert!(name.starts_with("thermo_") && !family.help.is_empty() && !family.help.ends_with('.'));
        assert!(
            text.contains(&format!("# HELP {plain} {}\n", family.help)),
            "{name}"
        );
        if let Some(unit) = family.unit {
            assert!(text.contains(&format!("# UNIT {plain} {unit}\n")), "{name}");
        }
    }
    assert_eq!(names().len(), metrics::families().count());
}

#[test]
fn labels_are_declared_and_never_a_process() {
    let site = Site::start();
    let text = metrics::encode(site.agent.as_ref(), Format::OpenMetrics);
    let targets = site.agent.targets().targets;
    let pids: BTreeSet<String> = targets
        .iter()
        .flat_map(|target| &target.pids)
        .map(u32::to_string)
        .collect();
    let mut series = BTreeSet::new();
    for (name, labels, value) in samples(&text) {
        let family = metrics::families().find(|family| family.sample_name() == name);
        let family = family.unwrap_or_else(|| panic!("{name} is not declared"));
        let declared: BTreeSet<&str> = family.labels.iter().copied().collect();
        assert_eq!(
            labels.keys().map(String::as_str).collect::<BTreeSet<_>>(),
            declared,
            "{name}"
        );
        assert!(
            labels.values().all(|value| !pids.contains(value)),
            "{name}: {labels:?}"
        );
        assert!(value.is_finite(), "{name}");
        assert!(
            series.insert((name.clone(), labels.clone())),
            "{name} {labels:?} twice"
        );
    }
}

#[test]
fn client_gets_the_format_that_it_accepts() {
    let site = Site::start();
    let open = site.ask("GET", "/metrics", &[("Accept", OPEN_METRICS)], "");
    assert!(
        open.headers
            .contains("content-type: application/openmetrics-text; version=1.0.0")
    );
    let text = site.get("/metrics");
    assert!(text.headers.contains("content-type: text/plain; version=0.0.4"));
    assert!(!text.body.contains("# UNIT") && !text.body.contains("# EOF"));
    let without_comments = |text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(without_comments(&open.body), without_comments(&text.body));
}

/// Runs promtool; false if there is none.
fn promtool(arguments: &[&str], input: &str) -> bool {
    let mut command = Command::new(std::env::var("PROMTOOL").unwrap_or_else(|_| "promtool".to_owned()));
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        println!("SKIP: no promtool (Debian: prometheus)");
        return false;
    };
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    assert!(
        arguments[1] != "metrics" || output.stdout.is_empty() && output.stderr.is_empty(),
        "{output:?}"
    );
    true
}

#[test]
fn promtool_finds_nothing() {
    let site = Site::start();
    let text = site.get("/metrics").body;
    let rules = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/prometheus/thermocline.rules.yml"
    );
    if promtool(&["check", "metrics"], &text) {
        promtool(&["check", "rules", rules], "");
        let tests = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../packaging/prometheus/thermocline.rules.test.yml"
        );
        promtool(&["test", "rules", tests], "");
    }
}

/// Words of a text that look like metrics.
fn metrics_of(text: &str) -> BTreeSet<String> {
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let words = text.split(|character| !is_part(character));
    words
        .filter(|word| word.starts_with("thermo_"))
        .map(str::to_owned)
        .collect()
}

fn unknown(text: &str) -> Vec<String> {
    metrics_of(text).difference(&names()).cloned().collect()
}

#[test]
fn alert_rules_use_metrics_that_exist() {
    let rules = include_str!("../../../packaging/prometheus/thermocline.rules.yml");
    assert!(metrics_of(rules).len() >= 5);
    assert_eq!(unknown(rules), [""; 0]);
}

#[test]
fn grafana_dashboard_uses_metrics_that_exist() {
    let text = include_str!("../../../packaging/grafana/thermocline.json");
    let dashboard: Value = serde_json::from_str(text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(
            ids.insert(panel["id"].as_u64().unwrap()),
            "two panels with one id"
        );
        assert!(panel["title"].is_string() && panel["gridPos"]["w"].as_u64().unwrap() <= 24);
        let queries = panel["targets"].as_array().unwrap();
        assert!(!queries.is_empty());
        for query in queries {
            assert!(!metrics_of(query["expr"].as_str().unwrap()).is_empty(), "{query}");
        }
    }
    assert!(panels.len() >= 8);
    assert_eq!(unknown(text), [""; 0]);
}
