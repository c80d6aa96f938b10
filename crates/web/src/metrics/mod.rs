//! The metrics: what the API says, as numbers for Prometheus.
//!
//! They are made of the service's figures at each scrape, so they cannot differ from the JSON. Every family
//! is declared once in a table, from which the text, the tests of the dashboard and the alert rules derive.
//! Labels are names of the configuration: policy, target, kind, action, reason. Process IDs are never a
//! label.

mod agent;
mod family;
mod ledger;
mod policies;
mod targets;

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, prometheus_text, text};
use prometheus_client::registry::Registry;
use thermo_agent::api::{Ledger, Policies, Service, Status, Targets};

pub use self::family::{Family, Kind};

/// A format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' text format 0.0.4.
    Text,
}

impl Format {
    /// The format for a client that sent this `Accept` header: OpenMetrics, if it names it.
    #[must_use]
    pub fn from_accept(accept: Option<&str>) -> Self {
        match accept {
            Some(accept) if accept.contains("application/openmetrics-text") => Self::OpenMetrics,
            _ => Self::Text,
        }
    }

    /// The type of the text.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => prometheus_text::CONTENT_TYPE,
        }
    }
}

/// All families of metrics.
pub fn families() -> impl Iterator<Item = &'static Family> {
    let tables = [
        targets::FAMILIES,
        policies::FAMILIES,
        ledger::FAMILIES,
        agent::FAMILIES,
    ];
    tables.into_iter().flatten()
}

/// All metrics of an agent, as text.
#[must_use]
pub fn encode(service: &dyn Service, format: Format) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Figures {
        targets: service.targets(),
        policies: service.policies(),
        ledger: service.ledger(),
        status: service.status(),
    }));
    let mut text = String::new();
    let written = match format {
        Format::OpenMetrics => text::encode(&mut text, &registry),
        Format::Text => prometheus_text::encode(&mut text, &registry),
    };
    // Writing into a string cannot fail.
    debug_assert!(written.is_ok());
    text
}

/// What the service says at one moment.
#[derive(Debug)]
struct Figures {
    targets: Targets,
    policies: Policies,
    ledger: Ledger,
    status: Status,
}

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        targets::encode(&self.targets, &mut encoder)?;
        policies::encode(&self.policies, &mut encoder)?;
        ledger::encode(&self.ledger, &mut encoder)?;
        agent::encode(&self.status, &mut encoder)
    }
}
