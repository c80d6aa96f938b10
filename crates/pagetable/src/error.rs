//! What can go wrong, and what would help.

/// Why page tables cannot be read on this machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BpfError {
    /// The kernel describes its types nowhere.
    #[error(
        "the kernel has no type information (/sys/kernel/btf/vmlinux is missing): page tables cannot be read \
         through BPF. Use a kernel with CONFIG_DEBUG_INFO_BTF=y (Debian's have it), or --tracker smaps"
    )]
    NoBtf,
    /// The kernel is locked down so far that BPF may not read it.
    #[error(
        "the kernel is locked down for confidentiality (/sys/kernel/security/lockdown): BPF may not read its \
         memory. Boot with lockdown=integrity or none, or use --tracker smaps"
    )]
    Lockdown,
    /// We lack privilege.
    #[error(
        "the kernel refused the BPF program (EPERM): run as root or with CAP_BPF and CAP_PERFMON, or use \
         --tracker smaps"
    )]
    NotPermitted,
    /// This processor, or page size, is not one whose tables we can read.
    #[error("page tables cannot be read here: {0}. Use --tracker smaps")]
    Unsupported(String),
    /// The kernel's verifier did not accept the program.
    #[error(
        "the kernel's verifier refused the BPF program {program}: use --tracker smaps. Its last words:\n{log}\
         {}", also(.before)
    )]
    Refused {
        /// Which.
        program: String,
        /// The last lines of its log.
        log: String,
        /// The form of the program that was tried before this one, and what was said of it.
        before: Option<Box<Self>>,
    },
    /// The direct map of physical memory was not found.
    #[error(
        "the kernel's direct map was not found: {tried} places below {below:#x} were tried. This kernel lays its \
         memory out in a way not known yet; use --tracker smaps"
    )]
    NoDirectMap {
        /// How many places were tried.
        tried: usize,
        /// The address of our own top table, which must lie in it.
        below: u64,
    },
    /// Something else failed.
    #[error("{what}: {why}")]
    Failed {
        /// What was being done.
        what: String,
        /// What the kernel or a library said.
        why: String,
    },
}

fn also(before: &Option<Box<BpfError>>) -> String {
    let said = before.as_ref().map(|error| format!("\nAnd before: {error}"));
    said.unwrap_or_default()
}

/// Why it cannot be seen which accessed marks others took off and noted in the folio.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoFolios {
    /// Nobody can note it.
    #[error("this kernel has neither in-kernel DAMON nor the idle-page bitmap (no CONFIG_PAGE_IDLE_FLAG)")]
    NoMark,
    /// `struct page` is not what it was in the kernels that are known.
    #[error("this kernel lays struct page out in a way not known yet")]
    Layout,
    /// A page of ours, by which the array is found, could not be had.
    #[error("no page could be had by which to find the kernel's array of struct page: {0}")]
    NoPage(String),
    /// What was found does not fit together.
    #[error("the kernel's array of struct page was not found: {0}")]
    NotFound(String),
}

/// Why the tables of one process could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WalkError {
    /// The process is gone, or about to be, or never had memory of its own (kernel threads).
    #[error("process {pid} is gone or has no address space")]
    Gone {
        /// Its number.
        pid: u32,
    },
    /// The kernel would not run the program.
    #[error("reading the page tables of process {pid} failed: {why}")]
    Failed {
        /// Whose tables.
        pid: u32,
        /// What the kernel said.
        why: String,
    },
}
