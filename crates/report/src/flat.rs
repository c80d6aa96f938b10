//! Facts as CSV: for reports that are no table, a row `key,value` for each number and text of their JSON.
//!
//! The key of what lies deeper is the way there, joined with dots (`settings.sample_ns`, `notes.0.text`). What is not
//! known (null) has an empty value, and so has a list or an object with nothing in it.

use serde::Serialize;
use serde_json::Value;

use crate::style::csv_text;

/// The rows, in the order of the JSON.
pub(crate) fn csv(report: &impl Serialize) -> String {
    let mut rows = Vec::new();
    // Plain data with text keys can always be said in JSON.
    flatten("", &serde_json::to_value(report).unwrap_or_default(), &mut rows);
    csv_text(["key", "value"], rows)
}

fn flatten(key: &str, value: &Value, rows: &mut Vec<[String; 2]>) {
    let below = |name: &str| match key {
        "" => name.to_owned(),
        key => format!("{key}.{name}"),
    };
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                flatten(&below(name), value, rows);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (nth, value) in items.iter().enumerate() {
                flatten(&below(&nth.to_string()), value, rows);
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
    fn keys_are_the_way_to_their_values() {
        let report = json!({"a": {"b": 1, "c": [true, "x, y"]}, "d": null, "e": [], "f": 0.5});
        assert_eq!(
            csv(&report),
            "key,value\na.b,1\na.c.0,true\na.c.1,\"x, y\"\nd,\ne,\nf,0.5\n"
        );
    }
}
