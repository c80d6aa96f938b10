//! What the agent tells others: the types of its HTTP API, and the service behind it.
//!
//! The types are the JSON of the API, field by field. The HTTP server, the metrics, the dashboard and `thermo
//! top` know the agent only through [`Service`] and these types. Times are Unix times in milliseconds, sizes
//! are bytes, rates are bytes a minute, and shares lie between 0 and 1. Fields are added, never renamed.

use serde::{Deserialize, Serialize};
use std::sync::mpsc::Receiver;
use thermo_engine::access_tables::{AGE_EDGES_S, NR_AGES};
use thermo_units::Bytes;
use utoipa::ToSchema;

use crate::audience::Audience;

/// Version of the JSON. A client rejects a newer one.
pub const SCHEMA: u32 = 1;

/// Unix time in milliseconds.
pub type UnixMillis = u64;

/// What a policy may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Watch only.
    #[default]
    Observe,
    /// Watch, and count what would be acted on.
    DryRun,
    /// Watch and act.
    Act,
}

impl Mode {
    /// The name in configuration and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::DryRun => "dry-run",
            Self::Act => "act",
        }
    }
}

/// Answer of `GET /api/v1/targets`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct Targets {
    /// [`SCHEMA`].
    pub schema: u32,
    /// When this was so.
    pub time_ms: UnixMillis,
    /// The targets, by policy and name.
    pub targets: Vec<Target>,
}

/// A target: all processes of one policy that have one name.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct Target {
    /// The name: what the policy's `name` makes of the process, by default the unit, the control group or the
    /// command.
    pub name: String,
    /// The policy that the processes belong to.
    pub policy: String,
    /// The mode of the policy.
    pub mode: Mode,
    /// The processes.
    pub pids: Vec<u32>,
    /// Resident bytes of known and unknown idle age.
    pub resident_bytes: u64,
    /// Bytes in swap.
    pub swap_bytes: u64,
    /// Resident bytes whose idle age is not known.
    pub unknown_bytes: u64,
    /// Bytes that were accessed within the last minute.
    pub working_set_bytes: u64,
    /// Resident bytes by idle age.
    pub ages: Vec<AgeBytes>,
    /// Resident bytes by kind and idle age: the rows of `ages` for each kind that has bytes.
    pub kinds: Vec<KindAges>,
    /// Bytes that were accessed again since the agent started, by the idle age they had then.
    pub reaccess: Vec<AgeBytes>,
    /// Bytes saved now: paged out and not back, less what they occupy in compressed swap. Negative if the
    /// swap occupies more.
    pub net_saved_bytes: i64,
    /// Bytes that came back in the last minute after the agent had paged them out.
    pub refault_bytes_per_min: u64,
    /// Length of a scan pass in seconds: the resolution of all ages. `None` before the first pass is
    /// complete.
    pub pass_s: Option<f64>,
    /// Why nothing is done to its memory now: the policy is paused or suspended, or the guard suspended this
    /// target. `None` if the policy acts on it, or only watches.
    pub suspended: Option<String>,
    /// When the guard will try again.
    #[serde(default)]
    pub resumes_at_ms: Option<UnixMillis>,
}

/// Bytes in one range of idle ages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgeBytes {
    /// Minimum idle age in seconds, inclusive.
    pub min_s: u64,
    /// Maximum idle age in seconds, exclusive; `None` for the last range.
    pub max_s: Option<u64>,
    /// Bytes.
    pub bytes: u64,
}

impl AgeBytes {
    /// A row for each idle age.
    #[must_use]
    pub fn rows(bytes: &[Bytes; NR_AGES]) -> Vec<Self> {
        let ends = AGE_EDGES_S.iter().skip(1).copied().map(Some).chain([None]);
        let row = |((min_s, max_s), bytes): ((&u64, Option<u64>), &Bytes)| Self {
            min_s: *min_s,
            max_s,
            bytes: bytes.0,
        };
        AGE_EDGES_S.iter().zip(ends).zip(bytes).map(row).collect()
    }
}

/// Idle ages of one kind of memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KindAges {
    /// `anon`, `file` or `shmem`, with `_huge` where a page-table entry maps 2 MiB or more.
    pub kind: String,
    /// Bytes by idle age.
    pub ages: Vec<AgeBytes>,
}

/// Answer of `GET /api/v1/policies`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct Policies {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The policies, in the order of the configuration: the first that matches a process has it.
    pub policies: Vec<Policy>,
}

/// A policy.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// The mode now.
    pub mode: Mode,
    /// The mode in the configuration.
    pub configured_mode: Mode,
    /// Which processes it matches, as text.
    pub matches: String,
    /// What it does, a sentence for each scheme.
    pub does: Vec<String>,
    /// Number of targets.
    pub targets: u64,
    /// Number of targets that the guard suspended.
    #[serde(default)]
    pub suspended_targets: u64,
    /// Number of processes.
    pub processes: u64,
    /// True if a user paused it.
    pub paused: bool,
    /// Why the guard suspended it; `None` if it did not.
    pub suspended: Option<String>,
    /// When the guard will try again.
    pub resumes_at_ms: Option<UnixMillis>,
    /// The bounds of the guard, as text.
    pub guard: Vec<String>,
    /// Why it cannot run on this machine; `None` if it can.
    pub error: Option<String>,
}

/// Answer of `GET /api/v1/decisions`: the newest last.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct Decisions {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The decisions.
    pub decisions: Vec<Decision>,
}

/// Something that the agent did or did not do, and why.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct Decision {
    /// Number, rising by one from the start of the agent.
    pub number: u64,
    /// When.
    pub time_ms: UnixMillis,
    /// The policy.
    pub policy: String,
    /// The target; `None` if it concerns the whole policy.
    pub target: Option<String>,
    /// What was decided.
    pub kind: DecisionKind,
    /// The action, for example `pageout`; empty for decisions that are not about one.
    pub action: String,
    /// Bytes acted on, or skipped.
    pub bytes: u64,
    /// The reason, as a sentence.
    pub why: String,
}

/// Kind of a decision.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum DecisionKind {
    /// An action was applied.
    #[default]
    Acted,
    /// A dry run would have applied it.
    WouldAct,
    /// Memory matched, but was left alone.
    Skipped,
    /// The guard suspended the policy, or a target of it.
    Suspended,
    /// The guard, or a user, let it go on.
    Resumed,
    /// A user paused it.
    Paused,
    /// Its mode was changed.
    ModeChanged,
    /// An automatic age was chosen.
    AgeChosen,
    /// The configuration was read again.
    Reloaded,
    /// The life cycle of an application: a change of its state, or what was done to its memory.
    Application,
    /// A warning.
    Warning,
}

/// Answer of `GET /api/v1/ledger`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct Ledger {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Since when the sums run. They survive restarts.
    pub since_ms: UnixMillis,
    /// A row for each policy and target that ever was.
    pub rows: Vec<LedgerRow>,
}

/// The sums of one target of one policy.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct LedgerRow {
    /// The policy.
    pub policy: String,
    /// The target.
    pub target: String,
    /// Bytes acted on, by action.
    pub acted_bytes: Vec<NamedBytes>,
    /// Bytes that matched and were left alone, by reason.
    pub skipped_bytes: Vec<NamedBytes>,
    /// Bytes that a dry run would have acted on at its last look, by action. It looks once a minute.
    pub would_act_bytes: Vec<NamedBytes>,
    /// Bytes that went back to a memory node from which they had been moved before.
    #[serde(default)]
    pub moved_back_bytes: u64,
    /// Bytes that came back within a minute after they were paged out.
    pub back_1min_bytes: u64,
    /// Bytes that came back within ten minutes.
    pub back_10min_bytes: u64,
    /// Bytes that came back within an hour.
    pub back_1h_bytes: u64,
    /// Net saving over time, in GiB times hours.
    pub net_saved_gib_hours: f64,
    /// CPU time of watching, in seconds.
    pub watching_cpu_s: f64,
    /// CPU time of acting, in seconds.
    pub acting_cpu_s: f64,
    /// For how long it was watched, in seconds.
    pub watched_s: f64,
}

/// Answer of `GET /api/v1/ledger?by=day`: the oldest first.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct LedgerDays {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Since when the sums of [`Ledger`] run. Days before may be missing.
    pub since_ms: UnixMillis,
    /// The rows of each day: for each policy its own row, then those of its targets if they were asked for.
    /// Days without anything watched have none.
    pub rows: Vec<LedgerDay>,
}

/// The sums of one policy, or of one of its targets, on one day.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct LedgerDay {
    /// The day in UTC, as `2026-11-26`.
    pub day: String,
    /// The policy.
    pub policy: String,
    /// The target; `None`: all targets of the policy together.
    pub target: Option<String>,
    /// Bytes acted on, by action.
    pub acted_bytes: Vec<NamedBytes>,
    /// Bytes that came back on this day, within a minute after they were paged out.
    pub back_1min_bytes: u64,
    /// Bytes that came back on this day within ten minutes.
    pub back_10min_bytes: u64,
    /// Bytes that came back on this day within an hour.
    pub back_1h_bytes: u64,
    /// Net saving over time, in GiB times hours.
    pub net_saved_gib_hours: f64,
    /// CPU time of watching, in seconds.
    pub watching_cpu_s: f64,
    /// CPU time of acting, in seconds.
    pub acting_cpu_s: f64,
}

/// Bytes under a name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct NamedBytes {
    /// The action or the reason.
    pub name: String,
    /// Bytes.
    pub bytes: u64,
}

/// Answer of `GET /api/v1/status`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Version of the program.
    pub version: String,
    /// Name of the machine.
    pub host: String,
    /// When the agent started.
    pub started_ms: UnixMillis,
    /// When this was so.
    pub time_ms: UnixMillis,
    /// The CPU budget of watching, as a share of one CPU.
    pub budget_cpu_share: f64,
    /// CPU time of watching since the start, in seconds.
    pub watching_cpu_s: f64,
    /// CPU time of acting since the start, in seconds.
    pub acting_cpu_s: f64,
    /// CPU time of the whole agent since its start, in seconds.
    pub cpu_s: f64,
    /// Resident memory of the agent.
    pub resident_bytes: u64,
    /// Name of the tracker; empty while nothing is watched.
    pub tracker: String,
    /// True when every policy runs.
    pub ready: bool,
    /// What limits the agent, as sentences: a full disk, an unreadable process, a clock that was stepped.
    pub warnings: Vec<String>,
    /// Files for the fleet; `None` without `[export]`.
    #[serde(default)]
    pub export: Option<Export>,
}

/// Files for the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Export {
    /// Files that wait in the export folder.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that were dropped since the agent started, because the folder was full.
    pub dropped_files: u64,
}

/// Answer of `GET /api/v1/explain?pid=N`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The process.
    pub pid: u32,
    /// What is known of it: `name` and value, for example `unit` and `nginx.service`. Admins also get
    /// `exe`.
    pub facts: Vec<(String, String)>,
    /// For each policy in its order: its name, whether it matches, and why.
    pub policies: Vec<PolicyMatch>,
    /// The policy that has it; `None` if none has.
    pub policy: Option<String>,
    /// The target that it belongs to.
    pub target: Option<String>,
    /// The rule, as a sentence.
    pub rule: String,
}

/// Whether a policy matches a process.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct PolicyMatch {
    /// The policy.
    pub policy: String,
    /// Whether it matches.
    pub matches: bool,
    /// Why, or why not.
    pub why: String,
}

/// Answer of `GET /api/v1/history`: a target over time, oldest first.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct Series {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The points.
    pub points: Vec<Point>,
}

/// A target at one moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct Point {
    /// When.
    pub time_ms: UnixMillis,
    /// Resident bytes.
    pub resident_bytes: u64,
    /// Bytes in swap.
    pub swap_bytes: u64,
    /// Resident bytes by idle age, as in [`Target::ages`].
    pub ages: Vec<AgeBytes>,
}

/// Answer of `GET /api/v1/heatmap`: how hot each part of a target's memory was over time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct Heatmap {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Begin of each column.
    pub times_ms: Vec<UnixMillis>,
    /// The rows, by ascending address.
    pub rows: Vec<HeatmapRow>,
}

/// A row of a heatmap: one range of addresses of one process.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct HeatmapRow {
    /// The process.
    pub pid: u32,
    /// First byte, in hexadecimal with `0x`: JavaScript's numbers are too short. For admins the address; for
    /// readers the offset in the mapping.
    pub start: String,
    /// Byte after the last.
    pub end: String,
    /// Name of the largest mapping in it; for readers `[file]` in place of a path.
    pub name: String,
    /// A cell for each column: 0 (idle) to 100 (accessed at every check), or -1 (not known).
    pub heat: Vec<i8>,
}

/// What changed, for `GET /api/v1/stream`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", content = "data", rename_all = "snake_case")]
pub enum Change {
    /// New figures of all targets, about once a second.
    Targets(Targets),
    /// A decision.
    Decision(Decision),
    /// The policies, after one has changed.
    Policies(Policies),
}

/// Which part of the past is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Period {
    /// The target.
    pub target: String,
    /// The policy, where several have a target of this name.
    pub policy: Option<String>,
    /// Begin; `None`: an hour before the end.
    pub from_ms: Option<UnixMillis>,
    /// End; `None`: now.
    pub to_ms: Option<UnixMillis>,
    /// At most so many points or columns.
    pub columns: usize,
    /// At most so many rows of a heatmap.
    pub rows: usize,
}

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such target, policy or process: a sentence with the way out.
    #[error("{0}")]
    NotFound(String),
    /// The request makes no sense: a sentence with the way out.
    #[error("{0}")]
    Invalid(String),
    /// The agent cannot do it now: a sentence with the way out.
    #[error("{0}")]
    Unavailable(String),
}

/// The agent, as the HTTP server uses it. Calls return at once: they read the last published figures, or send
/// a request to the agent and wait for its answer. Reading the past takes longer.
pub trait Service: Send + Sync + 'static {
    /// The targets now.
    fn targets(&self) -> Targets;
    /// The policies now.
    fn policies(&self) -> Policies;
    /// The decisions kept in memory after number `after`, of one target or policy if it is given.
    fn decisions(&self, target: Option<&str>, policy: Option<&str>, after: u64) -> Decisions;
    /// The ledger now.
    fn ledger(&self) -> Ledger;
    /// The ledger of each day: of policies, and of their targets if `with_targets`.
    fn ledger_days(&self, with_targets: bool) -> LedgerDays;
    /// The agent itself.
    fn status(&self) -> Status;
    /// Which policy a process belongs to, and why: as much as `audience` may see.
    ///
    /// # Errors
    /// There is no such process.
    fn explain(&self, pid: u32, audience: Audience) -> Result<Explanation, Refusal>;
    /// The past of a target.
    ///
    /// # Errors
    /// There is no such target, or the history cannot be read.
    fn history(&self, period: &Period) -> Result<Series, Refusal>;
    /// The heatmap of a target.
    ///
    /// # Errors
    /// Those of [`Service::history`].
    fn heatmap(&self, period: &Period) -> Result<Heatmap, Refusal>;
    /// The advice of `thermo advise` from the history of a target, as its JSON.
    ///
    /// # Errors
    /// Those of [`Service::history`].
    fn advice(&self, period: &Period) -> Result<serde_json::Value, Refusal>;
    /// Pauses or resumes a policy, or all without a name.
    ///
    /// # Errors
    /// There is no such policy.
    fn pause(&self, policy: Option<&str>, paused: bool) -> Result<(), Refusal>;
    /// Changes the mode of a policy until the agent ends or reads its configuration again.
    ///
    /// # Errors
    /// There is no such policy, or it has nothing to do.
    fn set_mode(&self, policy: &str, mode: Mode) -> Result<(), Refusal>;
    /// Reads the configuration again.
    ///
    /// # Errors
    /// The configuration has a mistake: its position and the way out. Nothing has changed then.
    fn reload(&self) -> Result<(), Refusal>;
    /// The number of times that targets, policies, ledger or status have changed: while it stays, so do they.
    fn publication(&self) -> u64;
    /// A wake after something has changed: figures, or a new decision. A wake that waits stands for all
    /// since.
    fn subscribe(&self) -> Receiver<()>;
}
