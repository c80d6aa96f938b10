//! Checks the keys of the file and makes the configuration of them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use thermo_runtime::cpu_share;
use thermo_units::text::ParseError;
use thermo_units::{Bytes, Nanos};
use toml::Spanned;

use super::file;
use super::{Config, HistoryConfig, HttpConfig, PolicyConfig, STATE_DIR};
use crate::guard::Bounds;
use crate::identity::Asked;

pub(super) fn parse(text: &str, folder: &Path) -> Result<Config, ParseError> {
    let file: file::File =
        toml::from_str(text).map_err(|error| ParseError::from_parser(text, error.span(), error.message()))?;
    let mut source = Source {
        text,
        folder,
        knows_pods: false,
    };
    let kubernetes = file
        .kubernetes
        .map(|table| super::kubernetes::parse(&source, table));
    let kubernetes = kubernetes.transpose()?.flatten();
    source.knows_pods = kubernetes.is_some();
    let defaults = source.bounds(&file.guard, Bounds::default())?;
    let policies = source.policies(file.policy, defaults)?;
    let state_dir: PathBuf = file.state_dir.unwrap_or_else(|| STATE_DIR.to_owned()).into();
    let export = file
        .export
        .map(|table| super::export::parse(&source, table, &state_dir));
    Ok(Config {
        budget: source.value_with(file.budget.as_ref(), "1%", cpu_share::parse)?,
        state_dir,
        history: source.history(&file.history)?,
        export: export.transpose()?,
        http: source.http(file.http)?,
        lifecycle: file.lifecycle.map(|path| folder.join(path)),
        kubernetes,
        asked: asked(&policies),
        policies,
    })
}

/// What the policies look at.
fn asked(policies: &[PolicyConfig]) -> Asked {
    let needs_user = |policy: &PolicyConfig| policy.rule.has_user() || policy.target_name.has_user();
    Asked {
        variables: policies
            .iter()
            .flat_map(|policy| policy.rule.variables())
            .collect(),
        user: policies.iter().any(needs_user),
    }
}

/// The text, for positions, and the folder of relative paths.
pub(super) struct Source<'a> {
    pub(super) text: &'a str,
    pub(super) folder: &'a Path,
    /// Whether the kubelet is asked for names.
    pub(super) knows_pods: bool,
}

impl Source<'_> {
    pub(super) fn error<T>(&self, at: &Spanned<T>, message: impl Into<String>) -> ParseError {
        ParseError::at_offset(self.text, at.span().start, message)
    }

    /// A value, parsed; without one, the default.
    pub(super) fn value<T>(&self, given: Option<&Spanned<String>>, default: T) -> Result<T, ParseError>
    where
        T: FromStr,
        T::Err: fmt::Display,
    {
        given.map_or(Ok(default), |given| {
            let parsed = given.get_ref().parse();
            parsed.map_err(|error: T::Err| self.error(given, error.to_string()))
        })
    }

    fn value_with<T>(
        &self,
        given: Option<&Spanned<String>>,
        default: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, ParseError> {
        let Some(given) = given else {
            return parse(default).map_err(|error| ParseError::new(1, 1, error));
        };
        parse(given.get_ref()).map_err(|error| self.error(given, error))
    }

    fn history(&self, file: &file::History) -> Result<Option<HistoryConfig>, ParseError> {
        let config = HistoryConfig {
            keep: self.value(file.keep.as_ref(), Nanos::secs(7 * 86_400))?,
            max_size: self.value(file.max_size.as_ref(), Bytes::gib(1))?,
            every: self.value(file.every.as_ref(), Nanos::secs(10))?,
        };
        if let Some(every) = file.every.as_ref().filter(|_| config.every < Nanos::secs(1)) {
            return Err(self.error(every, "snapshots are at least a second apart: give 1s or more"));
        }
        if let Some(size) = file
            .max_size
            .as_ref()
            .filter(|_| config.max_size < Bytes::mib(16))
        {
            return Err(self.error(
                size,
                "the history needs room for its newest part: give 16M or more",
            ));
        }
        Ok(Some(config).filter(|_| file.enabled.unwrap_or(true)))
    }

    fn http(&self, file: file::Http) -> Result<HttpConfig, ParseError> {
        let listen = file.listen.as_ref().map(|listen| {
            let parsed = listen.get_ref().parse();
            parsed.map_err(|_| self.error(listen, "give an address and a port, like 127.0.0.1:9402"))
        });
        let tls = match (file.certificate, file.key) {
            (Some(certificate), Some(key)) => {
                Some((certificate.into_inner().into(), key.into_inner().into()))
            }
            (Some(alone), None) | (None, Some(alone)) => {
                return Err(self.error(&alone, "TLS needs both: give certificate and key"));
            }
            (None, None) => None,
        };
        Ok(HttpConfig {
            socket: file
                .socket
                .unwrap_or_else(|| "/run/thermo/agent.sock".to_owned())
                .into(),
            listen: listen.transpose()?,
            tls,
            read_token_file: file.read_token_file.map(Into::into),
            admin_token_file: file.admin_token_file.map(Into::into),
            hosts: file
                .hosts
                .into_iter()
                .map(|host| self.host(host))
                .collect::<Result<_, _>>()?,
        })
    }

    fn host(&self, host: Spanned<String>) -> Result<String, ParseError> {
        let is_label = |label: &str| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
            !label.is_empty() && label.len() <= 63 && label.chars().all(is_plain)
        };
        let name = host.get_ref();
        if name.len() > 253 || !name.split('.').all(is_label) {
            let message = format!(
                "{name:?} is not a host name: give one like server.example, without scheme, port and wildcards"
            );
            return Err(self.error(&host, message));
        }
        Ok(host.into_inner())
    }

    pub(super) fn bounds(&self, file: &file::Guard, default: Bounds) -> Result<Bounds, ParseError> {
        Ok(Bounds {
            max_refaults: self.value(file.max_refaults.as_ref(), default.max_refaults)?,
            max_stall: self.value(file.max_stall.as_ref(), default.max_stall)?,
            min_free_swap: self.value(file.min_free_swap.as_ref(), default.min_free_swap)?,
            resume_after: self.value(file.resume_after.as_ref(), default.resume_after)?,
        })
    }
}
