//! JSON and TOML as one tree in which everything knows its place.

mod json;
mod toml;

pub(crate) use json::parse as parse_json;
pub(crate) use toml::parse as parse_toml;

use thermo_units::text::ParseError;

/// A value and where it begins.
#[derive(Debug)]
pub(crate) struct Node {
    /// Byte offset in the text.
    pub(crate) at: usize,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Null,
    Bool(bool),
    /// As it is written, in decimal.
    Number(String),
    Text(String),
    List(Vec<Node>),
    Table(Vec<Entry>),
    /// What no scheme has a use for (dates).
    Other,
}

/// A named value.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) at: usize,
    pub(crate) node: Node,
}

impl Node {
    /// A mistake at this value.
    pub(crate) fn fault(&self, text: &str, message: impl Into<String>) -> ParseError {
        ParseError::at_offset(text, self.at, message)
    }

    /// What it is, for sentences.
    pub(crate) const fn what(&self) -> &'static str {
        match self.kind {
            Kind::Null => "nothing (null)",
            Kind::Bool(_) => "true or false",
            Kind::Number(_) => "a number",
            Kind::Text(_) => "a text",
            Kind::List(_) => "a list",
            Kind::Table(_) => "a table",
            Kind::Other => "a date",
        }
    }

    /// Its entries, if it is a list.
    pub(crate) fn list(self, text: &str, name: &str) -> Result<Vec<Self>, ParseError> {
        match self.kind {
            Kind::List(nodes) => Ok(nodes),
            _ => Err(self.fault(text, format!("{name} is {} and must be a list", self.what()))),
        }
    }
}

/// The fields of a table, to be taken one by one.
pub(crate) struct Fields<'t> {
    pub(crate) text: &'t str,
    /// Where the table begins.
    pub(crate) at: usize,
    entries: Vec<Entry>,
}

impl<'t> Fields<'t> {
    /// The fields of `node`, called `name` in sentences.
    pub(crate) fn of(text: &'t str, node: Node, name: &str) -> Result<Self, ParseError> {
        let what = node.what();
        let Kind::Table(entries) = node.kind else {
            return Err(ParseError::at_offset(
                text,
                node.at,
                format!("{name} is {what} and must be a table"),
            ));
        };
        for (index, entry) in entries.iter().enumerate() {
            if entries[..index].iter().any(|earlier| earlier.name == entry.name) {
                return Err(ParseError::at_offset(
                    text,
                    entry.at,
                    format!("{:?} is given twice: keep one", entry.name),
                ));
            }
        }
        Ok(Self {
            text,
            at: node.at,
            entries,
        })
    }

    /// Takes the field of this name, unless it is absent or null.
    pub(crate) fn take(&mut self, name: &str) -> Option<Node> {
        let index = self.entries.iter().position(|entry| entry.name == name)?;
        let node = self.entries.swap_remove(index).node;
        (!matches!(node.kind, Kind::Null)).then_some(node)
    }

    /// A mistake of the table as a whole.
    pub(crate) fn fault(&self, message: impl Into<String>) -> ParseError {
        ParseError::at_offset(self.text, self.at, message)
    }

    /// Refuses what was not taken.
    pub(crate) fn finish(self, name: &str, known: &[&str]) -> Result<(), ParseError> {
        match self.entries.iter().min_by_key(|entry| entry.at) {
            None => Ok(()),
            Some(entry) => {
                let message = format!("{name} has no {:?}: use one of {}", entry.name, known.join(", "));
                Err(ParseError::at_offset(self.text, entry.at, message))
            }
        }
    }
}
