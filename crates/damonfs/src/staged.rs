//! Access to staged values by name, used to build a context from them.
//!
//! All names come from `table`. A name that is not in the table is a bug: it reads as zero or empty, and
//! panics in a debug build.

use crate::tree::{Ino, Tree};
use crate::value::Value;

/// A directory of staged values.
#[derive(Clone, Copy)]
pub struct StagedDir<'a> {
    tree: &'a Tree,
    ino: Ino,
}

impl<'a> StagedDir<'a> {
    /// The directory with this inode number.
    pub const fn at(tree: &'a Tree, ino: Ino) -> Self {
        Self { tree, ino }
    }

    /// The inode number of the directory.
    pub const fn ino(self) -> Ino {
        self.ino
    }

    /// The directory at this relative path.
    pub fn dir(self, path: &str) -> Self {
        let ino = path
            .split('/')
            .try_fold(self.ino, |dir, name| self.tree.lookup(dir, name));
        debug_assert!(ino.is_ok(), "{path} is not in the table");
        Self {
            ino: ino.unwrap_or(self.ino),
            ..self
        }
    }

    /// The numbered subdirectories, by ascending number.
    pub fn numbered(self) -> Vec<Self> {
        (0_u64..)
            .map_while(|nth| self.tree.lookup(self.ino, &nth.to_string()).ok())
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

    /// The value of a file that holds an unsigned number.
    pub fn number(self, name: &str) -> u64 {
        match self.value(name) {
            Some(Value::Unsigned(number)) => *number,
            _ => 0,
        }
    }

    /// The value of a file that holds a signed number.
    pub fn signed(self, name: &str) -> i64 {
        match self.value(name) {
            Some(Value::Signed(number)) => *number,
            _ => 0,
        }
    }

    /// The value of a file that holds a boolean.
    pub fn flag(self, name: &str) -> bool {
        matches!(self.value(name), Some(Value::Bool(true)))
    }

    /// The value of a file that holds a keyword.
    pub fn word(self, name: &str) -> &'static str {
        match self.value(name) {
            Some(Value::Word(word)) => word,
            _ => "",
        }
    }

    /// The value of a file that holds rows of numbers.
    pub fn rows(self, name: &str) -> &'a [Vec<u64>] {
        match self.value(name) {
            Some(Value::Rows(rows)) => rows,
            _ => &[],
        }
    }

    /// The value of a file that holds text, without a trailing newline.
    pub fn text(self, name: &str) -> &'a str {
        match self.value(name) {
            Some(Value::Text(text)) => text.strip_suffix('\n').unwrap_or(text),
            _ => "",
        }
    }
}
