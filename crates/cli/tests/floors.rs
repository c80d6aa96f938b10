//! The floors of the architecture: a crate uses only crates on lower floors, as the table in ARCHITECTURE.md
//! says.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

const ARCHITECTURE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../ARCHITECTURE.md"));

/// Crates below block/, and the crates that each may use.
const BLOCK: &[(&str, &[&str])] = &[
    ("pool", &["units", "kernel"]),
    ("pool-capi", &["units", "kernel", "pool"]),
    ("nbd", &["units", "kernel", "term", "manual", "pool"]),
];

/// Crates below lab/, and the crates that each may use besides those of the product.
const LAB: &[(&str, &[&str])] = &[
    ("workload", &[]),
    ("experiments", &["workload"]),
    ("fake-agent", &[]),
    ("fleet-sim", &[]),
    ("lab", &["workload", "experiments", "fleet-sim"]),
];

/// The fuzz targets may use every library but those for C.
const FUZZ: &str = "fuzz";

/// The floor of a crate of the product: the row `| FLOOR | `NAME` | … |` of the table.
fn floor(name: &str) -> Option<u32> {
    let row = ARCHITECTURE.lines().find_map(|line| {
        let (floor, rest) = line.strip_prefix("| ")?.split_once(" | `")?;
        rest.starts_with(&format!("{name}` |")).then_some(floor)
    });
    row?.parse().ok()
}

/// Whether crate `name` may use crate `used`.
fn may_use(name: &str, used: &str) -> bool {
    let allowed =
        |table: &[(&str, &'static [&'static str])]| table.iter().find(|row| row.0 == name).map(|row| row.1);
    if name == FUZZ {
        return used != "cli" && used != "capi" && used != "pool-capi";
    }
    match (floor(name), allowed(BLOCK), allowed(LAB)) {
        (Some(floor_of_name), ..) => floor(used).is_some_and(|floor| floor < floor_of_name),
        (_, Some(allowed), _) => allowed.contains(&used),
        (.., Some(allowed)) => allowed.contains(&used) || floor(used).is_some() && used != "cli",
        _ => false,
    }
}

/// The crates of the workspace (names without `thermo-`), each with its dependencies in the workspace.
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
    let short_name = |name: &Value| Some(name.as_str()?.strip_prefix("thermo-")?.to_owned());
    let used = |package: &Value| {
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        let built = dependencies.filter(|dependency| dependency["kind"] != "dev");
        built
            .filter_map(|dependency| short_name(&dependency["name"]))
            .collect()
    };
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages
        .filter_map(|package| Some((short_name(&package["name"])?, used(package))))
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
    assert!(wrong.is_empty(), "the table of floors forbids: {wrong:?}");
}

#[test]
fn floors_forbid_upward_dependencies() {
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
