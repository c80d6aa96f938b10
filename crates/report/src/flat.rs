//! CSV for reports that are not a table: a row `key,value` for each leaf of the JSON.
//!
//! The key of a nested value is its path, joined with dots (`settings.sample_ns`, `notes.0.text`). `null`, an
//! empty list and an empty object have an empty value.

use serde::Serialize;
use serde_json::Value;

use crate::style::csv_text;

/// The CSV text; rows are in the order of the JSON.
pub(crate) fn csv(report: &impl Serialize) -> String {
    let mut rows = Vec::new();
    // Serialization of plain structs with text keys cannot fail.
    flatten("", &serde_json::to_value(report).unwrap_or_default(), &mut rows);
    csv_text(["key", "value"], rows)
}

fn flatten(key: &str, value: &Value, rows: &mut Vec<[String; 2]>) {
    let nested = |name: &str| match key {
        "" => name.to_owned(),
        key => format!("{key}.{name}"),
    };
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                flatten(&nested(name), value, rows);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (nth, value) in items.iter().enumerate() {
                flatten(&nested(&nth.to_string()), value, rows);
            }
        }
        Value::Null | Value::Object(_) | Value::Array(_) => rows.push([key.to_owned(), String::new()]),
        Value::String(text) => rows.push([key.to_owned(), text.clone()]),
        Value::Bool(_) | Value::Number(_) => rows.push([key.to_owned(), value.to_string()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn csv_keys_are_paths() {
        let report = json!({"a": {"b": 1, "c": [true, "x, y"]}, "d": null, "e": [], "f": 0.5});
        assert_eq!(
            csv(&report),
            "key,value\na.b,1\na.c.0,true\na.c.1,\"x, y\"\nd,\ne,\nf,0.5\n"
        );
    }
}
