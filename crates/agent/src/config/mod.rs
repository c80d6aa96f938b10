//! The configuration of the agent: `agent.toml`.
//!
//! [`file`] has the keys as the file has them, with their positions. [`parse`](Config::parse) checks them
//! and makes a [`Config`]: a file with one mistake gives no configuration at all.

mod export;
mod file;
mod kubernetes;
mod parse;
mod policy;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use thermo_actions::PageoutLimits;
use thermo_engine::Scheme;
use thermo_engine::budget::CpuShare;
use thermo_units::text::ParseError;
use thermo_units::{Bytes, Nanos, template};

use crate::api::Mode;
use crate::guard::Bounds;
use crate::identity::{Asked, Identity};
use crate::kubernetes::kubelet::KubeletConfig;
use crate::kubernetes::pod_list::Pod;
use crate::kubernetes::pod_names::MissingNames;
use crate::matching::MatchRule;

/// Where history and ledger are kept, unless the configuration names another directory.
pub const STATE_DIR: &str = "/var/lib/thermo";

/// The configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// The CPU budget for watching, of all policies together.
    pub budget: CpuShare,
    /// Where history and ledger are kept.
    pub state_dir: PathBuf,
    /// How the past is kept; `None`: it is not.
    pub history: Option<HistoryConfig>,
    /// Export settings; `None`: off.
    pub export: Option<ExportConfig>,
    /// HTTP settings.
    pub http: HttpConfig,
    /// The description of applications (`thermo lifecycle`), if the agent follows their life cycle.
    pub lifecycle: Option<PathBuf>,
    /// The kubelet that names pods; `None`: names are not known.
    pub kubernetes: Option<KubeletConfig>,
    /// The policies, in their order: the first that matches a process has it.
    pub policies: Vec<PolicyConfig>,
    /// What the policies look at.
    pub asked: Asked,
}

/// How the past is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryConfig {
    /// For how long.
    pub keep: Nanos,
    /// The size of all of it.
    pub max_size: Bytes,
    /// Time between two snapshots.
    pub every: Nanos,
}

/// Settings of the export of files for a fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportConfig {
    /// Length of an interval: a row of each target. Whole seconds.
    pub every: Nanos,
    /// Length of a window: a file. A multiple of `every`.
    pub window: Nanos,
    /// Where finished files wait.
    pub folder: PathBuf,
    /// The oldest files of this machine are dropped beyond this size; `None`: never.
    pub max_size: Option<Bytes>,
    /// Name of the cluster.
    pub cluster: String,
    /// Name of the machine.
    pub node: String,
    /// Address of the dashboard; empty: none.
    pub link: String,
}

impl ExportConfig {
    /// Length of an interval in milliseconds.
    #[must_use]
    pub const fn every_ms(&self) -> u64 {
        self.every.0 / Nanos::millis(1).0
    }

    /// Length of a window in milliseconds.
    #[must_use]
    pub const fn window_ms(&self) -> u64 {
        self.window.0 / Nanos::millis(1).0
    }
}

/// Settings of the HTTP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpConfig {
    /// The UNIX socket.
    pub socket: PathBuf,
    /// A TCP address.
    pub listen: Option<SocketAddr>,
    /// Certificate and key of TLS.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// A file with the token that may read.
    pub read_token_file: Option<PathBuf>,
    /// A file with the token that may change.
    pub admin_token_file: Option<PathBuf>,
    /// Names of this machine that clients may ask for without TLS, besides `localhost`.
    pub hosts: Vec<String>,
}

/// A policy.
#[derive(Debug, Clone)]
pub struct PolicyConfig {
    /// Its name: part of metrics, file names and URLs.
    pub name: String,
    /// Which processes it matches.
    pub rule: MatchRule,
    /// What it may do.
    pub mode: Mode,
    /// What it does; empty: it only watches.
    pub schemes: Vec<Scheme>,
    /// Limits of paging out.
    pub limits: PageoutLimits,
    /// How long memory that was moved to another node stays there.
    pub cool_down: Nanos,
    /// Beyond these bounds it is suspended.
    pub bounds: Bounds,
    /// How targets are named.
    pub target_name: TargetName,
}

impl PolicyConfig {
    /// Whether only names that the kubelet has still to say keep the process from this policy: those that the
    /// rule compares, or of which the target is named.
    #[must_use]
    pub fn is_undecided(&self, identity: &Identity) -> bool {
        self.rule.is_undecided(identity)
            || (identity.lacks(self.target_name.needs()) && self.rule.check(identity).is_ok())
    }

    /// Whether a running policy with this configuration may go on with `other`. The mode may differ.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let bounds = |config: &Self| (config.limits, config.bounds);
        self.rule.text() == other.rule.text()
            && self.schemes == other.schemes
            && self.cool_down == other.cool_down
            && self.target_name == other.target_name
            && bounds(self) == bounds(other)
    }
}

/// How the targets of a policy are named: a text with `{unit}`, `{command}` and so on, or the default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TargetName(Option<String>);

/// Longest name of a target in bytes. Programs choose parts of it: their command, the path of their program,
/// and groups that are delegated to them.
pub const MAX_NAME: usize = 256;

/// The placeholders of target names, and what each stands for.
type Placeholder = (&'static str, fn(&Identity) -> String);
const PLACEHOLDERS: [Placeholder; 10] = [
    ("{unit}", |identity| identity.unit().unwrap_or_default()),
    ("{command}", |identity| identity.command.clone()),
    ("{exe}", |identity| identity.exe.clone()),
    ("{cgroup}", |identity| identity.cgroup().to_owned()),
    ("{container}", |identity| {
        identity.container().unwrap_or_default().to_owned()
    }),
    ("{uid}", |identity| identity.uid.to_string()),
    ("{namespace}", |identity| {
        of_pod(identity, |pod| pod.namespace.clone())
    }),
    ("{pod}", |identity| of_pod(identity, |pod| pod.name.clone())),
    ("{workload}", |identity| {
        of_pod(identity, |pod| pod.workload().to_owned())
    }),
    ("{container_name}", |identity| {
        identity.container_name().unwrap_or_default().to_owned()
    }),
];

fn of_pod(identity: &Identity, fact: fn(&Pod) -> String) -> String {
    identity.pod_names().map(fact).unwrap_or_default()
}

/// `name`, cut to [`MAX_NAME`] bytes. A hash of the whole keeps apart names that begin alike; it is the same
/// after a restart, so that the ledger goes on.
fn shortened(name: String) -> String {
    if name.len() <= MAX_NAME {
        return name;
    }
    // FNV-1a.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let end = format!("~{hash:016x}");
    let room = name.floor_char_boundary(MAX_NAME - end.len());
    name.get(..room).unwrap_or_default().to_owned() + &end
}

impl TargetName {
    /// What the name needs of the kubelet.
    #[must_use]
    pub fn needs(&self) -> MissingNames {
        let has = |name: &str| self.0.as_ref().is_some_and(|pattern| pattern.contains(name));
        if has("{container_name}") {
            return MissingNames::Container;
        }
        match ["{namespace}", "{pod}", "{workload}"].into_iter().any(has) {
            true => MissingNames::Pod,
            false => MissingNames::Nothing,
        }
    }

    /// Whether the name depends on the user.
    fn has_user(&self) -> bool {
        self.0.as_ref().is_some_and(|pattern| pattern.contains("{uid}"))
    }

    /// The name of the target that the process belongs to, at most [`MAX_NAME`] bytes. What the process calls
    /// itself is text: placeholders in it stay as they are.
    #[must_use]
    pub fn of(&self, identity: &Identity) -> String {
        let value = |nth: usize| {
            let placeholder = PLACEHOLDERS.get(nth);
            placeholder.map_or_else(String::new, |(_, value)| value(identity))
        };
        shortened(self.0.as_ref().map_or_else(
            || identity.default_name(),
            |pattern| template::fill(pattern, &PLACEHOLDERS.map(|(name, _)| name), value),
        ))
    }
}

impl Config {
    /// Parses and checks a configuration. Paths of scheme files are relative to `folder`.
    ///
    /// # Errors
    /// The first mistake, with its position and the way out.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, ParseError> {
        parse::parse(text, folder)
    }
}
