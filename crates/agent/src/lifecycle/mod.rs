//! The life cycle of applications: who is used, who is not, and what becomes of the memory of those who are not.
//!
//! ```text
//!   set (socket), freezer, oom_score_adj, idleness          words about applications
//!        │
//!        ▼
//!   Engine: state, throttles, guards → decisions             pure: no clock, no I/O, no threads
//!        │ orders                    ▲ what they cost
//!        ▼                           │
//!   hands: small calls, paced, cancelled between two         thermo_actions::hint
//! ```
//!
//! [`Daemon`] puts the three together: one thread decides and answers the socket, one looks at the sources, one
//! reclaims and one prefetches. Deciding never waits for memory to move.
//!
//! Throttles and guards have the numbers of Android's `CachedAppOptimizer` as defaults. Nobody is killed or frozen
//! here.

mod app_processes;
pub mod client;
pub mod config;
mod connection;
mod cost;
mod daemon;
mod decision;
mod engine;
mod executor;
mod profile;
mod rules;
mod sources;
mod state;
mod table;
mod throttle;
pub mod wire;

pub use config::{AppConfig, Config, ConfigError, Target};
pub use cost::{Cost, End};
pub use daemon::{Daemon, DaemonError, Options};
pub use decision::{Decision, Kind};
pub use engine::{Engine, Facts, Order, UnknownApp};
pub use profile::Profile;
pub use rules::{Rules, Throttle};
pub use sources::Accesses;
pub use state::{Source, State, StateEvent, StateEvents};
pub use throttle::{Calls, Pace, carry_out};
