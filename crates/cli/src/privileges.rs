//! The capabilities that the long-running commands keep once they are set up. SECURITY.md has the same table,
//! with the reason of each.
//!
//! A command that starts another gives it what the caller had, or with `--user` no capability.

use std::thread;

use anyhow::Context as _;
use thermo_engine::{Action, Scheme};
use thermo_kernel::capabilities::{self, Capabilities, Capability};
use thermo_kernel::no_new_privs;

/// Monitoring other processes, with all trackers.
const MONITORING: &[Capability] = &[
    Capability::Bpf,
    Capability::DacReadSearch,
    Capability::Perfmon,
    Capability::SysAdmin,
    Capability::SysNice,
    Capability::SysPtrace,
    Capability::Syslog,
];

/// `thermo hint`.
pub const HINT: &[Capability] = &[
    Capability::Bpf,
    Capability::DacOverride,
    Capability::DacReadSearch,
    Capability::Fowner,
    Capability::Perfmon,
    Capability::SysAdmin,
    Capability::SysNice,
    Capability::SysPtrace,
    Capability::Syslog,
];

/// `thermo fs`.
pub const FS: &[Capability] = &[
    Capability::Bpf,
    Capability::DacOverride,
    Capability::DacReadSearch,
    Capability::Fowner,
    Capability::Kill,
    Capability::Perfmon,
    Capability::SysAdmin,
    Capability::SysNice,
    Capability::SysPtrace,
    Capability::Syslog,
];

/// `thermo lifecycle run`.
pub const LIFECYCLE: &[Capability] = &[
    Capability::Bpf,
    Capability::DacReadSearch,
    Capability::Fowner,
    Capability::IpcLock,
    Capability::Perfmon,
    Capability::SysNice,
    Capability::SysPtrace,
    Capability::Syslog,
];

/// `thermo agent`.
pub const AGENT: &[Capability] = &[
    Capability::Bpf,
    Capability::DacOverride,
    Capability::DacReadSearch,
    Capability::Fowner,
    Capability::IpcLock,
    Capability::Perfmon,
    Capability::SysAdmin,
    Capability::SysNice,
    Capability::SysPtrace,
    Capability::Syslog,
];

/// The thread of `thermo agent` that answers others. All memory of the agent is locked, also what this thread
/// allocates.
pub const AGENT_SERVER: &[Capability] = &[Capability::IpcLock];

/// What a session needs besides monitoring.
#[derive(Debug, Clone, Copy)]
pub struct SessionNeeds<'a> {
    /// The schemes to apply.
    pub schemes: &'a [Scheme],
    /// Whether accessed bits are cleared with `clear_refs`, a file of the target's user.
    pub clears_refs: bool,
    /// Whether there is a command, which signals are forwarded to.
    pub has_command: bool,
}

impl SessionNeeds<'_> {
    /// The capabilities of the session.
    pub fn capabilities(&self) -> Vec<Capability> {
        // Sets the flags of a mapping through /proc/PID/mem, a file of the target's user.
        let sets_flags = |scheme: &Scheme| matches!(scheme.action, Action::Hugepage | Action::Nohugepage);
        let mut kept = MONITORING.to_vec();
        if self.clears_refs || self.schemes.iter().any(sets_flags) {
            kept.push(Capability::DacOverride);
        }
        if !self.schemes.is_empty() {
            kept.push(Capability::Fowner);
        }
        if self.has_command {
            kept.push(Capability::Kill);
        }
        kept
    }
}

/// Drops all capabilities but `kept`, for this thread, the threads that it starts later, and whatever they
/// execute.
///
/// # Errors
/// The kernel refuses it.
pub fn keep_only(kept: &[Capability]) -> anyhow::Result<()> {
    capabilities::keep_only(Capabilities::of(kept)).context("cannot drop capabilities")?;
    no_new_privs::set().context("cannot set no_new_privs")
}

/// Calls `start` in a thread that keeps only `kept`, so that all threads it starts keep no more. This thread
/// keeps everything, for a command that it starts later.
///
/// # Errors
/// Those of `start`, or the kernel refuses to drop capabilities or to start the thread.
pub fn start_threads_with<T: Send>(
    kept: &[Capability],
    start: impl FnOnce() -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    thread::scope(|scope| {
        let begin = || keep_only(kept).and_then(|()| start());
        let started = thread::Builder::new().spawn_scoped(scope, begin);
        let joined = started.context("cannot start a thread")?.join();
        joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_keeps_what_its_schemes_need() {
        let needs = |schemes: &[Scheme], clears_refs, has_command| {
            let needs = SessionNeeds {
                schemes,
                clears_refs,
                has_command,
            };
            needs.capabilities()[MONITORING.len()..].to_vec()
        };
        let (write, own, kill) = (Capability::DacOverride, Capability::Fowner, Capability::Kill);
        assert_eq!(needs(&[], false, false), []);
        assert_eq!(needs(&[], true, true), [write, kill]);
        assert_eq!(needs(&[Scheme::new(Action::Pageout)], false, false), [own]);
        assert_eq!(
            needs(&[Scheme::new(Action::Nohugepage)], false, false),
            [write, own]
        );
    }
}
