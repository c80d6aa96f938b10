//! Errors of this crate, with the way out.

/// Why page tables cannot be read on this machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BpfError {
    /// The kernel has no BTF.
    #[error(
        "the kernel has no type information (/sys/kernel/btf/vmlinux is missing): page tables cannot be read \
         through BPF. Use a kernel with CONFIG_DEBUG_INFO_BTF=y (Debian's have it), or --tracker smaps"
    )]
    NoBtf,
    /// Lockdown (confidentiality) forbids BPF to read kernel memory.
    #[error(
        "the kernel is locked down for confidentiality (/sys/kernel/security/lockdown): BPF may not read its \
         memory. Boot with lockdown=integrity or none, or use --tracker smaps"
    )]
    Lockdown,
    /// Memory may not be accepted from the hypervisor yet.
    #[error(
        "this is {0}: an access to memory that the kernel has not accepted yet could end the machine, so page \
         tables are not read. Use --tracker smaps"
    )]
    Confidential(String),
    /// Missing privilege.
    #[error(
        "the kernel refused the BPF program (EPERM): run as root or with CAP_BPF and CAP_PERFMON outside of any \
         user namespace, where no system call filter forbids bpf(2), or use --tracker smaps"
    )]
    NotPermitted,
    /// There is no BPF, or it is hidden.
    #[error(
        "bpf(2): Function not implemented: the kernel has no BPF (CONFIG_BPF_SYSCALL), or the system call filter \
         (seccomp) of a container hides the call. Allow it, or use --tracker smaps"
    )]
    NoBpf,
    /// The processor or the page size is not supported.
    #[error("page tables cannot be read here: {0}. Use --tracker smaps")]
    Unsupported(String),
    /// The kernel's verifier rejected the program.
    #[error(
        "the kernel's verifier refused the BPF program {program}: use --tracker smaps. End of its log:\n{log}\
         {}", earlier_refusal(.before)
    )]
    Refused {
        /// The program.
        program: String,
        /// The last lines of the verifier's log.
        log: String,
        /// The refusal of the form of the program that was tried first.
        before: Option<Box<Self>>,
    },
    /// The kernel did not show its direct map of physical memory.
    #[error(
        "the kernel does not show where it maps physical memory: a breakpoint on its memory (CAP_SYS_ADMIN): \
         {translation}; page_offset_base in /proc/kallsyms (CAP_SYSLOG): {variable}. Run as root, or use \
         --tracker smaps"
    )]
    NoDirectMap {
        /// Why no address was translated.
        translation: String,
        /// Why the variable could not be read.
        variable: String,
    },
    /// Our own memory is not where the direct map should have it.
    #[error(
        "our own memory could not be read through the kernel's direct map at {base:#x}: the memory layout of \
         this kernel is not supported. Use --tracker smaps"
    )]
    WrongDirectMap {
        /// The base of the direct map.
        base: u64,
    },
    /// Something else failed.
    #[error("{what}: {why}")]
    Failed {
        /// The step that failed.
        what: String,
        /// The message of the kernel or a library.
        why: String,
    },
}

fn earlier_refusal(before: &Option<Box<BpfError>>) -> String {
    before
        .as_ref()
        .map(|error| format!("\nThe form tried before: {error}"))
        .unwrap_or_default()
}

/// Why the young flags of folios cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FolioError {
    /// The kernel has no young flag.
    #[error(
        "this kernel has no young flag for folios: it has neither in-kernel DAMON nor the idle-page bitmap (no CONFIG_PAGE_IDLE_FLAG)"
    )]
    NoYoungFlag,
    /// The layout of `struct page` is unknown.
    #[error("the layout of struct page in this kernel is not supported")]
    Layout,
    /// The page of our own by which the array is found could not be created.
    #[error("cannot create a page to find the kernel's array of struct page with: {0}")]
    NoPage(String),
    /// The results contradict each other.
    #[error("the kernel's array of struct page was not found: {0}")]
    NotFound(String),
}

/// Why the page tables of a process could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WalkError {
    /// The process has ended or is ending, or never had an address space (kernel threads).
    #[error("process {pid} is gone or has no address space")]
    Gone {
        /// The process.
        pid: u32,
    },
    /// The kernel failed to run the program.
    #[error("reading the page tables of process {pid} failed: {why}")]
    Failed {
        /// The process.
        pid: u32,
        /// The message of the kernel.
        why: String,
    },
}
