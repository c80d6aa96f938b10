//! A family of metrics: its declaration, and how its samples are written.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// Kind of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A value now.
    Gauge,
    /// A sum that only grows, until the agent loses its state.
    Counter,
}

/// The declaration of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Family {
    /// Name without unit and without `_total`.
    pub name: &'static str,
    /// Unit, which is the end of the name; `None` for states and numbers of things.
    pub unit: Option<&'static str>,
    /// Kind.
    pub kind: Kind,
    /// Names of the labels.
    pub labels: &'static [&'static str],
    /// What it means, without a full stop.
    pub help: &'static str,
}

/// Value of a sample, with the values of its labels.
pub(super) type Sample<'a, const LABELS: usize> = ([&'a str; LABELS], f64);

impl Family {
    /// Name of the samples.
    #[must_use]
    pub fn sample_name(&self) -> String {
        let unit = self.unit.map(|unit| format!("_{unit}")).unwrap_or_default();
        let total = if self.kind == Kind::Counter { "_total" } else { "" };
        format!("{}{unit}{total}", self.name)
    }

    /// Writes the family with its samples.
    pub(super) fn write<'a, const LABELS: usize>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        samples: impl IntoIterator<Item = Sample<'a, LABELS>>,
    ) -> fmt::Result {
        debug_assert_eq!(self.labels.len(), LABELS, "{}", self.name);
        let unit = self.unit.map(|unit| match unit {
            "bytes" => Unit::Bytes,
            "seconds" => Unit::Seconds,
            other => Unit::Other(other.to_owned()),
        });
        let kind = match self.kind {
            Kind::Gauge => MetricType::Gauge,
            Kind::Counter => MetricType::Counter,
        };
        let mut metric = encoder.encode_descriptor(self.name, self.help, unit.as_ref(), kind)?;
        for (values, value) in samples {
            let labels: Vec<(&str, &str)> = self.labels.iter().copied().zip(values).collect();
            let metric = metric.encode_family(&labels)?;
            match self.kind {
                Kind::Gauge => ConstGauge::new(value).encode(metric)?,
                Kind::Counter => ConstCounter::new(value).encode(metric)?,
            }
        }
        Ok(())
    }
}
