//! Pages of the reference that are written from declarations in the code. `UPDATE_DOCS=1` in the environment
//! writes them.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fmt::Write as _;

use thermo_web::metrics;

/// Checks that a file of docs/reference/ has this text.
fn assert_current(name: &str, expected: &str) {
    let path = format!("{}/../../docs/reference/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, expected).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).unwrap_or_default() == expected,
        "docs/reference/{name} is not what the code declares: run  UPDATE_DOCS=1 cargo test -p thermo-web documentation"
    );
}

#[test]
fn documentation_lists_every_metric() {
    let mut page = String::from(
        "# The agent's metrics\n\n\
         What `/metrics` of the [agent](../guide/agent.md) has, in [this format](api.md#metrics).\n\n\
         | metric | kind | labels | meaning |\n| --- | --- | --- | --- |\n",
    );
    for family in metrics::families() {
        let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind) = (family.sample_name(), format!("{:?}", family.kind).to_lowercase());
        let labels = labels.join(", ");
        writeln!(page, "| `{name}` | {kind} | {labels} | {} |", family.help).unwrap();
    }
    assert_current("metrics.md", &page);
}

#[test]
fn documentation_has_the_openapi_document() {
    let document = serde_json::to_string_pretty(&thermo_web::openapi()).unwrap();
    assert_current("openapi.json", &(document + "\n"));
}
