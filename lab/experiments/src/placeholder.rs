//! Placeholders such as `{pid}` and `{port}`, replaced for each run.
//!
//! Only a lower-case word in braces is a placeholder, so braces of JSON and shells are kept.

use std::collections::BTreeMap;

/// All placeholders: process id of the measured program, a free TCP port, work folder of the workload, folder
/// of the experiment file, memory cgroup of the workload, seed of the repeat, path of `thermo`, path of
/// `thermo-lab`.
pub const KNOWN: [&str; 8] = ["pid", "port", "dir", "here", "cgroup", "seed", "thermo", "lab"];

/// The values of the placeholders in one run.
#[derive(Debug, Clone, Default)]
pub struct Values(BTreeMap<&'static str, String>);

impl Values {
    /// Adds a value.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.0.insert(name, value.to_string());
        self
    }

    /// Replaces every placeholder in `text` that has a value.
    #[must_use]
    pub fn fill(&self, text: &str) -> String {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, word, after)) = first_word(rest) {
            filled.push_str(before);
            match self.0.get(word) {
                Some(value) => filled.push_str(value),
                None => filled.extend(["{", word, "}"]),
            }
            rest = after;
        }
        filled.push_str(rest);
        filled
    }

    /// Applies [`Self::fill`] to each of `words`.
    #[must_use]
    pub fn fill_all(&self, words: &[String]) -> Vec<String> {
        words.iter().map(|word| self.fill(word)).collect()
    }
}

/// The first unknown placeholder in `text`.
#[must_use]
pub fn first_unknown(text: &str) -> Option<&str> {
    let mut rest = text;
    while let Some((_, word, after)) = first_word(rest) {
        if !KNOWN.contains(&word) {
            return Some(word);
        }
        rest = after;
    }
    None
}

/// The text before the first `{word}`, the word, and the text after it. `${word}` is left to the shell.
fn first_word(text: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    while let Some(open) = text[from..].find('{').map(|at| from + at) {
        let inside = &text[open + 1..];
        let end = inside
            .find(|c: char| !c.is_ascii_lowercase())
            .unwrap_or(inside.len());
        if end > 0 && inside[end..].starts_with('}') && !text[..open].ends_with('$') {
            return Some((&text[..open], &inside[..end], &inside[end + 1..]));
        }
        from = open + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fill_replaces_known_placeholders_only() {
        let values = Values::default().with("pid", 42).with("port", 7000);
        assert_eq!(
            values.fill("--pid={pid} :{port}{pid} {\"a\":1} ${pid} {"),
            "--pid=42 :700042 {\"a\":1} ${pid} {"
        );
    }

    #[test]
    fn unknown_placeholder_is_found() {
        assert_eq!(first_unknown("{pid} {prot}"), Some("prot"));
        assert_eq!(first_unknown("{pid} {A} {} ${home}"), None);
    }
}
