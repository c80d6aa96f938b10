//! Words in braces that each run fills in: `{pid}`, `{port}`.
//!
//! Only a lower-case word in braces is a placeholder, so JSON and shell braces pass through.

use std::collections::BTreeMap;

/// What may stand in braces: the measured program's process id, a free TCP port, the workload's work folder,
/// the folder of the experiment file, the measured memory cgroup, the seed of the repeat, the `thermo` that attaches, the
/// `thermo-lab` that makes workloads.
pub const KNOWN: [&str; 8] = ["pid", "port", "dir", "here", "cgroup", "seed", "thermo", "lab"];

/// The values of one run.
#[derive(Debug, Clone, Default)]
pub struct Values(BTreeMap<&'static str, String>);

impl Values {
    /// The values with one more.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.0.insert(name, value.to_string());
        self
    }

    /// `text` with every known word in braces filled in.
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

    /// Every one of `words` filled in.
    #[must_use]
    pub fn fill_all(&self, words: &[String]) -> Vec<String> {
        words.iter().map(|word| self.fill(word)).collect()
    }
}

/// The first word in braces that stands for nothing.
#[must_use]
pub fn unknown(text: &str) -> Option<&str> {
    let mut rest = text;
    while let Some((_, word, after)) = first_word(rest) {
        if !KNOWN.contains(&word) {
            return Some(word);
        }
        rest = after;
    }
    None
}

/// The text before the first `{word}`, the word, the text after it. `${word}` is the shell's.
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
    fn known_words_are_filled_in_and_other_braces_stay() {
        let values = Values::default().with("pid", 42).with("port", 7000);
        assert_eq!(
            values.fill("--pid={pid} :{port}{pid} {\"a\":1} ${pid} {"),
            "--pid=42 :700042 {\"a\":1} ${pid} {"
        );
    }

    #[test]
    fn what_stands_for_nothing_is_found() {
        assert_eq!(unknown("{pid} {prot}"), Some("prot"));
        assert_eq!(unknown("{pid} {A} {} ${home}"), None);
    }
}
