//! One safe function for each kernel interface. Readers take a root path, so that tests can build a fake
//! machine.
//!
//! The root is the folder that contains `proc` and `sys`: `/` for this machine, a temporary folder in a test.
//! Functions that read files of a process take `(root, pid)` and return [`ProcError`]. A process that has
//! ended is a separate case of that error, because it is an everyday event and not a failure.

// `eprintln!` panics where standard error cannot be written: use `thermo_kernel::message!`.
#![cfg_attr(not(test), warn(clippy::print_stderr))]
// Reads what others wrote: an index or slice that could panic is an error here (CONTRIBUTING.md, Style).
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::string_slice))]

mod arguments;
pub mod btf;
pub mod capabilities;
pub mod cgroup;
pub mod children;
pub mod clear_refs;
pub mod clock;
pub mod damon;
pub mod durable_file;
pub mod file;
pub mod iomem;
pub mod kallsyms;
pub mod kcmp;
pub mod kernel_write;
pub mod kpageflags;
pub mod kvm;
pub mod landlock;
pub mod leftovers;
pub mod lockdown;
pub mod lru_gen;
pub mod madvise_batch;
pub mod malloc;
pub mod maps;
pub mod memcg;
pub mod meminfo;
pub mod memlock;
pub mod mountinfo;
pub mod move_pages;
pub mod namespace;
pub mod net_unix;
pub mod no_new_privs;
pub mod node;
pub mod ofd_lock;
pub mod open_files;
pub mod page_cache;
pub mod page_idle;
pub mod pagemap;
pub mod pidfd;
pub mod proc;
pub mod process_madvise;
pub mod process_vm;
pub mod psi;
#[cfg(target_arch = "x86_64")]
pub mod ptrace;
pub mod refusal;
pub mod schedstat;
pub mod scheduling;
pub mod signals;
pub mod smaps;
pub mod stalled_call;
pub mod stat;
pub mod statm;
pub mod status;
pub mod stderr;
pub mod subreaper;
pub mod swap;
pub mod syscall_filter;
pub mod thp;
pub mod trial;
pub mod uname;
pub mod unix_socket;
pub mod user;
pub mod vmstat;
pub mod zoneinfo;
pub mod zram;

pub use file::FileError;
pub use proc::ProcError;
