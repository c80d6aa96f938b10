//! The keys of the configuration file, with their positions.

use serde::Deserialize;
use toml::Spanned;

/// One text, or a list of them.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a text, or a list of texts")]
pub enum Texts {
    One(String),
    Many(Vec<String>),
}

impl Texts {
    pub fn as_slice(&self) -> &[String] {
        match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::Many(texts) => texts,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    pub budget: Option<Spanned<String>>,
    pub state_dir: Option<String>,
    pub lifecycle: Option<String>,
    #[serde(default)]
    pub history: History,
    pub export: Option<Export>,
    #[serde(default)]
    pub http: Http,
    #[serde(default)]
    pub guard: Guard,
    pub kubernetes: Option<Spanned<Kubernetes>>,
    #[serde(default)]
    pub policy: Vec<Spanned<Policy>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct History {
    pub enabled: Option<bool>,
    pub keep: Option<Spanned<String>>,
    pub max_size: Option<Spanned<String>>,
    pub every: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Export {
    pub every: Option<Spanned<String>>,
    pub window: Option<Spanned<String>>,
    pub folder: Option<String>,
    pub max_size: Option<Spanned<String>>,
    pub cluster: Option<Spanned<String>>,
    pub node: Option<Spanned<String>>,
    pub link: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Http {
    pub socket: Option<String>,
    pub listen: Option<Spanned<String>>,
    pub certificate: Option<Spanned<String>>,
    pub key: Option<Spanned<String>>,
    pub read_token_file: Option<String>,
    pub admin_token_file: Option<String>,
    #[serde(default)]
    pub hosts: Vec<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kubernetes {
    pub enabled: Option<bool>,
    pub kubelet: Option<Spanned<String>>,
    pub token_file: Option<String>,
    pub ca_file: Option<String>,
    pub node: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guard {
    pub max_refaults: Option<Spanned<String>>,
    pub max_stall: Option<Spanned<String>>,
    pub min_free_swap: Option<Spanned<String>>,
    pub resume_after: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    pub name: Spanned<String>,
    #[serde(rename = "match")]
    pub matches: Spanned<Match>,
    pub mode: Option<Spanned<String>>,
    pub preset: Option<Spanned<String>>,
    pub min_age: Option<Spanned<String>>,
    pub max_refaults: Option<Spanned<String>>,
    pub min_net: Option<Spanned<String>>,
    pub fast: Option<Spanned<u32>>,
    pub slow: Option<Spanned<u32>>,
    pub fast_used: Option<Spanned<String>>,
    pub cool_down: Option<Spanned<String>>,
    pub schemes: Option<Spanned<String>>,
    pub target_name: Option<Spanned<String>>,
    #[serde(default)]
    pub guard: Guard,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Match {
    pub unit: Option<Spanned<Texts>>,
    pub cgroup: Option<Spanned<Texts>>,
    pub exe: Option<Spanned<Texts>>,
    pub command: Option<Spanned<Texts>>,
    pub user: Option<Spanned<Texts>>,
    pub env: Option<Spanned<Texts>>,
    pub container: Option<Spanned<Texts>>,
    pub namespace: Option<Spanned<Texts>>,
    pub pod: Option<Spanned<Texts>>,
    pub label: Option<Spanned<Texts>>,
    pub container_name: Option<Spanned<Texts>>,
}
