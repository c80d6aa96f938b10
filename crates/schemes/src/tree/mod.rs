//! One tree for JSON and TOML; every node has its position in the text.

mod json;
mod toml;

pub(crate) use json::parse as parse_json;
pub(crate) use toml::parse as parse_toml;

use thermo_units::text::ParseError;

/// A value and its position.
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
    /// The decimal text of the number.
    Number(String),
    Text(String),
    List(Vec<Node>),
    Table(Vec<Entry>),
    /// A date: no scheme has a use for it.
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
    /// An error at this value.
    pub(crate) fn error(&self, text: &str, message: impl Into<String>) -> ParseError {
        ParseError::at_offset(text, self.at, message)
    }

    /// The kind of value, for error messages.
    pub(crate) const fn describe_kind(&self) -> &'static str {
        match self.kind {
            Kind::Null => "null",
            Kind::Bool(_) => "true or false",
            Kind::Number(_) => "a number",
            Kind::Text(_) => "a string",
            Kind::List(_) => "a list",
            Kind::Table(_) => "a table",
            Kind::Other => "a date",
        }
    }

    /// The entries of a list; an error for other values.
    pub(crate) fn list(self, text: &str, name: &str) -> Result<Vec<Self>, ParseError> {
        match self.kind {
            Kind::List(nodes) => Ok(nodes),
            _ => Err(self.error(
                text,
                format!("{name} must be a list, found {}", self.describe_kind()),
            )),
        }
    }
}

/// The fields of a table that were not taken yet.
pub(crate) struct Fields<'t> {
    pub(crate) text: &'t str,
    /// Byte offset of the table in the text.
    pub(crate) at: usize,
    entries: Vec<Entry>,
}

impl<'t> Fields<'t> {
    /// The fields of the table `node`, called `name` in error messages.
    pub(crate) fn new(text: &'t str, node: Node, name: &str) -> Result<Self, ParseError> {
        let found = node.describe_kind();
        let Kind::Table(entries) = node.kind else {
            return Err(ParseError::at_offset(
                text,
                node.at,
                format!("{name} must be a table, found {found}"),
            ));
        };
        for (index, entry) in entries.iter().enumerate() {
            if entries
                .iter()
                .take(index)
                .any(|earlier| earlier.name == entry.name)
            {
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

    /// Takes the field `name`; `None` if it is absent or null.
    pub(crate) fn take(&mut self, name: &str) -> Option<Node> {
        let index = self.entries.iter().position(|entry| entry.name == name)?;
        let node = self.entries.swap_remove(index).node;
        (!matches!(node.kind, Kind::Null)).then_some(node)
    }

    /// An error about the table as a whole.
    pub(crate) fn error(&self, message: impl Into<String>) -> ParseError {
        ParseError::at_offset(self.text, self.at, message)
    }

    /// Returns an error if any field was not taken.
    pub(crate) fn finish(self, name: &str, known: &[&str]) -> Result<(), ParseError> {
        match self.entries.iter().min_by_key(|entry| entry.at) {
            None => Ok(()),
            Some(entry) => {
                let message = format!(
                    "{name} has no field {:?}: use one of {}",
                    entry.name,
                    known.join(", ")
                );
                Err(ParseError::at_offset(self.text, entry.at, message))
            }
        }
    }
}
