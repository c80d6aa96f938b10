//! Reading staged values by name, as those do who build a context from them.
//!
//! Names come from our own table: one that is not there reads as zero or empty, and a test that builds everything
//! finds it.

use crate::tree::{Ino, Tree};
use crate::value::Value;

/// A directory of staged values.
#[derive(Clone, Copy)]
pub struct Staged<'a> {
    tree: &'a Tree,
    ino: Ino,
}

impl<'a> Staged<'a> {
    /// The directory with this number.
    pub const fn at(tree: &'a Tree, ino: Ino) -> Self {
        Self { tree, ino }
    }

    /// Its number.
    pub const fn ino(self) -> Ino {
        self.ino
    }

    /// The directory at this path below.
    pub fn dir(self, path: &str) -> Self {
        let found = path
            .split('/')
            .try_fold(self.ino, |at, name| self.tree.lookup(at, name));
        debug_assert!(found.is_ok(), "{path} is not in the table");
        Self {
            ino: found.unwrap_or(self.ino),
            ..self
        }
    }

    /// The numbered directories in it, in the order of their numbers.
    pub fn numbered(self) -> Vec<Self> {
        let numbers = (0_u64..).map(|nth| self.tree.lookup(self.ino, &nth.to_string()));
        numbers
            .map_while(Result::ok)
            .map(|ino| Self { ino, ..self })
            .collect()
    }

    fn value(self, name: &str) -> Option<&'a Value> {
        let value = self
            .tree
            .lookup(self.ino, name)
            .ok()
            .and_then(|ino| self.tree.value(ino));
        debug_assert!(value.is_some(), "{name} is not in the table");
        value
    }

    /// An unsigned number.
    pub fn number(self, name: &str) -> u64 {
        match self.value(name) {
            Some(Value::Unsigned(number)) => *number,
            _ => 0,
        }
    }

    /// A signed number.
    pub fn signed(self, name: &str) -> i64 {
        match self.value(name) {
            Some(Value::Signed(number)) => *number,
            _ => 0,
        }
    }

    /// Yes or no.
    pub fn yes(self, name: &str) -> bool {
        matches!(self.value(name), Some(Value::Bool(true)))
    }

    /// A word.
    pub fn word(self, name: &str) -> &'static str {
        match self.value(name) {
            Some(Value::Word(word)) => word,
            _ => "",
        }
    }

    /// Rows of numbers.
    pub fn rows(self, name: &str) -> &'a [Vec<u64>] {
        match self.value(name) {
            Some(Value::Rows(rows)) => rows,
            _ => &[],
        }
    }

    /// A text, without the line end it may have been written with.
    pub fn text(self, name: &str) -> &'a str {
        match self.value(name) {
            Some(Value::Text(text)) => text.strip_suffix('\n').unwrap_or(text),
            _ => "",
        }
    }
}
