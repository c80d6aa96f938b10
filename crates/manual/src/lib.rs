//! Man pages and shell completions of a command, from its clap declaration.
//!
//! [`Gen`] is the verb `gen` of each command; it writes what packages install. [`page`] makes a man page of a
//! verb. [`completions`] answers the shell's requests while a user types, and has candidates for values that
//! depend on the machine, such as process IDs.

pub mod completions;
mod r#gen;
pub mod page;

pub use r#gen::Gen;

/// What a program knows about itself besides its clap declaration.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// Its clap declaration.
    pub command: fn() -> clap::Command,
    /// Its exit statuses, each with its meaning. What the help of a verb says
    /// about "Exit code 1" replaces the meaning of 1.
    pub statuses: &'static [(&'static str, &'static str)],
    /// Files that verbs use.
    pub files: &'static [FileOf],
    /// Pages of sections 5 and 7, and pages of other programs, for SEE ALSO.
    pub related: &'static [RelatedPage],
}

/// A file that verbs use.
#[derive(Debug, Clone, Copy)]
pub struct FileOf {
    /// Pages that name the file, like `thermo-agent`. Pages of verbs below one of these name it too.
    pub pages: &'static [&'static str],
    /// The path.
    pub path: &'static str,
    /// What the file is, as a sentence.
    pub meaning: &'static str,
}

/// A page of another program, or of section 5 or 7.
#[derive(Debug, Clone, Copy)]
pub struct RelatedPage {
    /// Pages that name it; empty: all.
    pub pages: &'static [&'static str],
    /// Its name.
    pub name: &'static str,
    /// Its section.
    pub section: &'static str,
}
