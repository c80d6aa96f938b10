//! The trees as one declaration: which files there are, what each takes and what it shows at first.
//!
//! [`damon`] is `/sys/kernel/mm/damon` as of Linux 6.18, [`early`] the layout in debugfs that came before it, and
//! [`modules`] the parameters of the modules. A new file is a line here; what it means is read where a context is
//! built (`engine/build.rs`, `early/build.rs`, `modules/build.rs`).

mod damon;
mod debugfs;
mod modules;

pub use damon::{DAMON, STATE_COMMANDS};
pub use debugfs::{CONTEXT as EARLY_CONTEXT, EARLY, SCHEME as EARLY_SCHEME};
pub use modules::MODULES;

/// A directory.
#[derive(Debug)]
pub struct Dir {
    /// What is in it.
    pub entries: &'static [Entry],
}

/// Something in a directory.
#[derive(Debug)]
pub enum Entry {
    /// A file.
    File(File),
    /// A directory of a fixed name.
    Dir(&'static str, &'static Dir),
    /// A file that says how many numbered directories there are beside it. Each write makes all of them anew.
    Numbered {
        /// The file's name.
        count: &'static str,
        /// The most there may be.
        most: i64,
        /// What each is like.
        child: &'static Dir,
        /// What else has a say in it.
        role: Role,
    },
    /// Numbered directories that the engine makes.
    Found {
        /// What each is like.
        child: &'static Dir,
    },
}

/// A file.
#[derive(Debug)]
pub struct File {
    /// Its name.
    pub name: &'static str,
    /// Whether it can be written.
    pub writable: bool,
    /// What it takes and shows.
    pub kind: Kind,
    /// What it does besides.
    pub role: Role,
}

/// A kind of value. `lax`: what does not fit is told apart from what is no number (ERANGE, EINVAL).
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A number from `least` to `most`.
    Unsigned {
        /// What it shows at first.
        default: u64,
        /// The least it takes.
        least: u64,
        /// The most its type holds.
        most: u64,
        /// See above.
        lax: bool,
    },
    /// A number of 32 bits.
    Int {
        /// What it shows at first.
        default: i64,
        /// See above.
        lax: bool,
    },
    /// Yes or no; no at first.
    Bool,
    /// One of `words`.
    Word {
        /// What it shows at first; not always a word it takes.
        default: &'static str,
        /// What it takes.
        words: &'static [&'static str],
    },
    /// Any text; empty at first.
    Text,
    /// Rows of decimal numbers, a line each.
    Rows {
        /// How many numbers a row may have. Of the first, one row may also go over several lines.
        widths: &'static [usize],
        /// The most rows.
        most: usize,
        /// The row it shows at first; none if empty.
        default: &'static [u64],
    },
}

/// What a file does besides holding a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Nothing.
    Plain,
    /// Runs commands, and tells whether the kdamond runs.
    State,
    /// Tells the kdamond's thread.
    Pid,
    /// Tells the operations there are here.
    Operations,
    /// Makes kdamonds, which cannot be while one runs.
    Kdamonds,
    /// Early layout: how to look.
    Attrs,
    /// Early layout: the processes.
    TargetIds,
    /// Early layout: where in them it begins.
    InitRegions,
    /// Early layout: what to do, and what was done.
    Schemes,
    /// Early layout: tells the kdamond's thread.
    KdamondPid,
    /// Early layout: switches all contexts on and off.
    MonitorOn,
    /// Early layout: makes a context.
    MakeContext,
    /// Early layout: takes one away.
    RemoveContext,
    /// Modules: switches one on and off.
    Enabled,
    /// Modules: takes over what was written while it runs.
    CommitInputs,
    /// Modules: what it does; the file's name says what of it.
    Told,
}

/// Which tree to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layout {
    /// `/sys/kernel/mm/damon`: `admin` and what is below.
    Sysfs,
    /// `/sys/kernel/debug/damon` of Linux 5.15 to 6.13.
    Debugfs,
    /// `damon_reclaim`, `damon_lru_sort` and `damon_stat` of `/sys/module`.
    Modules,
}

impl Layout {
    /// Its root.
    pub(crate) const fn root(self) -> &'static Dir {
        match self {
            Self::Sysfs => &DAMON,
            Self::Debugfs => &EARLY,
            Self::Modules => &MODULES,
        }
    }
}

const fn file(name: &'static str, writable: bool, kind: Kind, role: Role) -> Entry {
    Entry::File(File {
        name,
        writable,
        kind,
        role,
    })
}

const fn rw(name: &'static str, kind: Kind) -> Entry {
    file(name, true, kind, Role::Plain)
}

const fn ro(name: &'static str, kind: Kind) -> Entry {
    file(name, false, kind, Role::Plain)
}

const fn ulong(default: u64) -> Kind {
    Kind::Unsigned {
        default,
        least: 0,
        most: u64::MAX,
        lax: true,
    }
}

/// A number whose file says EINVAL whatever is wrong with it.
const fn strict_ulong(default: u64) -> Kind {
    Kind::Unsigned {
        default,
        least: 0,
        most: u64::MAX,
        lax: false,
    }
}

const fn uint(default: u64) -> Kind {
    Kind::Unsigned {
        default,
        least: 0,
        most: u32::MAX as u64,
        lax: true,
    }
}

/// One of `words`, the first at first.
const fn word(words: &'static [&'static str]) -> Kind {
    Kind::Word {
        default: words[0],
        words,
    }
}

const fn int(default: i64) -> Kind {
    Kind::Int { default, lax: true }
}

const fn counted(count: &'static str, child: &'static Dir) -> Entry {
    Entry::Numbered {
        count,
        most: i32::MAX as i64,
        child,
        role: Role::Plain,
    }
}
