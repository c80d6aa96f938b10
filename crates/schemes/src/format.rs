//! Formats of scheme files.

/// A format of scheme files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One line per scheme: `min_sz max_sz min_freq max_freq min_age max_age action`.
    Line,
    /// damo's JSON list.
    Json,
    /// TOML with a `[[scheme]]` table per scheme.
    Toml,
}

impl Format {
    /// The format of `text` from a file called `name`: by the extension, else by the start of the text.
    #[must_use]
    pub fn detect(name: &str, text: &str) -> Self {
        match name.rsplit_once('.').map(|(_, extension)| extension) {
            Some("damos") => Self::Line,
            Some("json") => Self::Json,
            Some("toml") => Self::Toml,
            _ => Self::by_content(text),
        }
    }

    fn by_content(text: &str) -> Self {
        let has_content = |line: &&str| !line.is_empty() && !line.starts_with('#');
        let mut lines = text.lines().map(str::trim).filter(has_content);
        let Some(first) = lines.next() else {
            return Self::Line;
        };
        // `[[scheme]]` and `[scheme.quota]` start with a bracket like a JSON list, but a name follows.
        let inner = first.trim_start_matches('[').trim_start();
        let table = first.starts_with('[') && inner.starts_with(|c: char| c.is_ascii_alphabetic());
        if table || (first.contains('=') && !first.starts_with(['[', '{'])) {
            Self::Toml
        } else if first.starts_with(['[', '{']) {
            Self::Json
        } else {
            Self::Line
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_is_detected_by_extension_then_content() {
        assert_eq!(Format::detect("a.toml", "[]"), Format::Toml);
        for (text, format) in [
            ("# words\n4K max 0 0 5s max pageout", Format::Line),
            ("\n[\n {", Format::Json),
            ("[{\"action\": \"stat\"}]", Format::Json),
            ("# words\n[[scheme]]", Format::Toml),
            ("[[ scheme ]]", Format::Toml),
            ("scheme = [{ action = \"stat\" }]", Format::Toml),
            ("", Format::Line),
        ] {
            assert_eq!(Format::detect("-", text), format, "{text:?}");
        }
    }
}
