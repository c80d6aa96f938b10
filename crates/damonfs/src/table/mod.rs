//! Declarations of all files: names, accepted values and defaults.
//!
//! [`sysfs`] is `/sys/kernel/mm/damon` of Linux 6.18, [`debugfs`] the older layout in debugfs, and
//! [`modules`] the parameters of the modules. To add a file, add a line here and read its value where a
//! context is built (`engine/build.rs`, `debugfs/build.rs`, `modules/build.rs`).

mod debugfs;
mod modules;
mod sysfs;

pub use debugfs::{CONTEXT as DEBUGFS_CONTEXT, DEBUGFS, SCHEME_FIELDS};
pub use modules::MODULES;
pub use sysfs::{STATE_COMMANDS, SYSFS};

/// A directory.
#[derive(Debug)]
pub struct Dir {
    /// The entries.
    pub entries: &'static [Entry],
}

/// An entry of a directory.
#[derive(Debug)]
pub enum Entry {
    /// A file.
    File(File),
    /// A directory with a fixed name.
    Dir(&'static str, &'static Dir),
    /// A file with the number of numbered directories next to it. Each write replaces all of them.
    Numbered {
        /// The file's name.
        count: &'static str,
        /// Maximum number of directories.
        max: i64,
        /// The content of each directory.
        child: &'static Dir,
        /// The effect of a write besides replacing the directories.
        role: Role,
    },
    /// Numbered directories that the engine creates.
    Generated {
        /// The content of each directory.
        child: &'static Dir,
    },
}

/// A file.
#[derive(Debug)]
pub struct File {
    /// The name.
    pub name: &'static str,
    /// True if the file can be written.
    pub writable: bool,
    /// The values that the file accepts.
    pub kind: Kind,
    /// The effect of the file besides holding a value.
    pub role: Role,
}

/// A kind of value. `erange`: a number that does not fit is ERANGE if true, and EINVAL like any other error
/// if false.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// An unsigned number.
    Unsigned {
        /// The initial value.
        default: u64,
        /// The smallest valid value. A smaller number is EINVAL.
        min: u64,
        /// The largest value of the type.
        max: u64,
        /// See [`Kind`].
        erange: bool,
    },
    /// A signed 32-bit number.
    Int {
        /// The initial value.
        default: i64,
        /// See [`Kind`].
        erange: bool,
    },
    /// A boolean, initially false.
    Bool,
    /// One of `words`.
    Word {
        /// The initial value, which need not be in `words`.
        default: &'static str,
        /// The valid values.
        words: &'static [&'static str],
    },
    /// Any text, initially empty.
    Text,
    /// Rows of decimal numbers, one row per line.
    Rows {
        /// The valid lengths of a row. A row of the first length may span lines.
        widths: &'static [usize],
        /// Maximum number of rows.
        max: usize,
        /// The initial row. Empty: initially no row.
        default: &'static [u64],
    },
}

/// The effect of a file besides holding a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// None.
    Plain,
    /// Executes commands. Reads as `on` or `off`.
    State,
    /// Shows the kdamond's thread id.
    Pid,
    /// Shows the supported operations.
    Operations,
    /// Creates kdamond directories. EBUSY while a kdamond runs.
    Kdamonds,
    /// Debugfs: monitoring attributes.
    Attrs,
    /// Debugfs: the processes to monitor.
    TargetIds,
    /// Debugfs: the initial regions of targets.
    InitRegions,
    /// Debugfs: schemes and their statistics.
    Schemes,
    /// Debugfs: shows the kdamond's thread id.
    KdamondPid,
    /// Debugfs: switches all contexts on and off.
    MonitorOn,
    /// Debugfs: creates a context.
    MakeContext,
    /// Debugfs: removes a context.
    RemoveContext,
    /// Modules: switches a module on and off.
    Enabled,
    /// Modules: applies changed parameters to a running module.
    CommitInputs,
    /// Modules: shows the statistic of the file's name.
    Statistic,
}

/// A layout of control files.
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
    /// The root directory.
    pub(crate) const fn root(self) -> &'static Dir {
        match self {
            Self::Sysfs => &SYSFS,
            Self::Debugfs => &DEBUGFS,
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
        min: 0,
        max: u64::MAX,
        erange: true,
    }
}

/// A number for which every error is EINVAL.
const fn strict_ulong(default: u64) -> Kind {
    Kind::Unsigned {
        default,
        min: 0,
        max: u64::MAX,
        erange: false,
    }
}

const fn uint(default: u64) -> Kind {
    Kind::Unsigned {
        default,
        min: 0,
        max: u32::MAX as u64,
        erange: true,
    }
}

/// One of `words`. The initial value is the first.
#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, for tables of constants"
)]
const fn word(words: &'static [&'static str]) -> Kind {
    Kind::Word {
        default: words[0],
        words,
    }
}

const fn int(default: i64) -> Kind {
    Kind::Int {
        default,
        erange: true,
    }
}

const fn counted(count: &'static str, child: &'static Dir) -> Entry {
    Entry::Numbered {
        count,
        max: i32::MAX as i64,
        child,
        role: Role::Plain,
    }
}
