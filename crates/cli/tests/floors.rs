//! The floors of the house: a crate uses only what is below it. ARCHITECTURE.md draws the same table.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

/// Crates of the product, lowest floor first. A crate uses none of its own floor.
const FLOORS: &[&[&str]] = &[
    &["units"],
    &["engine", "kernel"],
    &["pagetable", "inject", "term", "sim", "recording", "schemes"],
    &["targets", "report"],
    &["backends", "actions"],
    &["runtime"],
    &["agent", "damonfs"],
    &["cli", "capi"],
];

/// Crates below block/, and all that each may use.
const BLOCK: &[(&str, &[&str])] = &[
    ("pool", &["units", "kernel"]),
    ("pool-capi", &["units", "kernel", "pool"]),
    ("nbd", &["units", "kernel", "term", "pool"]),
];

/// Crates below lab/, and what each may use besides crates of the product.
const LAB: &[(&str, &[&str])] = &[
    ("workload", &[]),
    ("experiments", &["workload"]),
    ("lab", &["workload", "experiments"]),
];

fn floor(name: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&name))
}

/// Whether crate `name` may use crate `used`.
fn may_use(name: &str, used: &str) -> bool {
    let of =
        |table: &[(&str, &'static [&'static str])]| table.iter().find(|row| row.0 == name).map(|row| row.1);
    match (floor(name), of(BLOCK), of(LAB)) {
        (Some(floor_of_name), ..) => floor(used).is_some_and(|floor| floor < floor_of_name),
        (_, Some(allowed), _) => allowed.contains(&used),
        (.., Some(allowed)) => allowed.contains(&used) || floor(used).is_some() && used != "cli",
        _ => false,
    }
}

/// The crates of the workspace, by name without `thermo-`: each with what it is built from.
fn crates() -> BTreeMap<String, Vec<String>> {
    let metadata = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--format-version",
            "1",
            "--offline",
            "--manifest-path",
        ])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .output()
        .unwrap();
    assert!(
        metadata.status.success(),
        "{}",
        String::from_utf8_lossy(&metadata.stderr)
    );
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let ours = |name: &Value| Some(name.as_str()?.strip_prefix("thermo-")?.to_owned());
    let used = |package: &Value| {
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        let built = dependencies.filter(|dependency| dependency["kind"] != "dev");
        built.filter_map(|dependency| ours(&dependency["name"])).collect()
    };
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages
        .filter_map(|package| Some((ours(&package["name"])?, used(package))))
        .collect()
}

#[test]
fn crates_use_only_lower_floors() {
    let crates = crates();
    assert!(crates.len() > 20, "{crates:?}");
    let wrong: Vec<String> = crates
        .iter()
        .flat_map(|(name, used)| used.iter().map(move |used| (name, used)))
        .filter(|(name, used)| !may_use(name, used))
        .map(|(name, used)| format!("thermo-{name} uses thermo-{used}"))
        .collect();
    assert!(wrong.is_empty(), "not allowed by the table of floors: {wrong:?}");
}

#[test]
fn floors_forbid_what_they_should() {
    for (name, used) in [
        ("engine", "kernel"),
        ("actions", "backends"),
        ("cli", "pool"),
        ("pool", "engine"),
        ("units", "engine"),
    ] {
        assert!(!may_use(name, used), "{name} may use {used}");
    }
    assert!(may_use("runtime", "actions") && may_use("lab", "report") && may_use("nbd", "pool"));
}
