//! Which format a text is.

/// A format of scheme files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A line a scheme: `min_sz max_sz min_freq max_freq min_age max_age action`.
    Line,
    /// damo's JSON list.
    Json,
    /// TOML, a `[[scheme]]` each.
    Toml,
}

impl Format {
    /// The format of `text` from a file called `name`: by its extension, else by how it begins.
    #[must_use]
    pub fn of(name: &str, text: &str) -> Self {
        match name.rsplit_once('.').map(|(_, extension)| extension) {
            Some("damos") => Self::Line,
            Some("json") => Self::Json,
            Some("toml") => Self::Toml,
            _ => Self::by_content(text),
        }
    }

    fn by_content(text: &str) -> Self {
        let said = |line: &&str| !line.is_empty() && !line.starts_with('#');
        let mut lines = text.lines().map(str::trim).filter(said);
        let Some(first) = lines.next() else {
            return Self::Line;
        };
        // `[[scheme]]` and `[scheme.quota]` begin with a bracket as a JSON list does, but a name follows.
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
    fn the_extension_decides_then_the_begin() {
        assert_eq!(Format::of("a.toml", "[]"), Format::Toml);
        for (text, format) in [
            ("# words\n4K max 0 0 5s max pageout", Format::Line),
            ("\n[\n {", Format::Json),
            ("[{\"action\": \"stat\"}]", Format::Json),
            ("# words\n[[scheme]]", Format::Toml),
            ("[[ scheme ]]", Format::Toml),
            ("scheme = [{ action = \"stat\" }]", Format::Toml),
            ("", Format::Line),
        ] {
            assert_eq!(Format::of("-", text), format, "{text:?}");
        }
    }
}
