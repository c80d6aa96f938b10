//! The life cycle of applications: tracks the state of each application, reclaims memory of cached ones, and
//! prefetches when they return.
//!
//! ```text
//!   socket (set), freezer, oom_score_adj, idleness          sources of state events
//!        │ events
//!        ▼
//!   Engine: state, minimum intervals, guards → decisions    pure: no clock, no I/O, no threads
//!        │ commands                    ▲ results and costs
//!        ▼                           │
//!   executor: small throttled calls, cancelled in between   thermo_actions::hint
//! ```
//!
//! [`Daemon`] connects the three: one thread decides and serves the socket, one polls the sources, one
//! reclaims and one prefetches. Decisions never wait for reclaim.
//!
//! The defaults of intervals and guards are those of Android's `CachedAppOptimizer`. No application is killed
//! or frozen.

mod app_processes;
pub mod client;
mod command;
pub mod config;
mod connection;
mod cost;
mod daemon;
mod decision;
mod engine;
mod executor;
#[doc(hidden)]
pub mod fuzzing;
mod profile;
mod rules;
mod sources;
mod state;
mod table;
mod throttle;
mod unit_cache;
pub mod wire;

pub use command::CommandTarget;
pub use config::{AppConfig, Config, ConfigError, Target};
pub use cost::{JobCost, Outcome};
pub use daemon::{Daemon, DaemonError, ListeningDaemon, Options};
pub use decision::{Decision, DecisionKind};
pub use engine::{AppStatus, Engine, ExecutorCommand, MemoryInfo, UnknownApp};
pub use profile::Profile;
pub use rules::{MinIntervals, Rules};
pub use sources::AccessProbe;
pub use state::{Source, State, StateEvent, StateEvents};
pub use throttle::{CallThrottle, ThrottledJob, run_throttled};
