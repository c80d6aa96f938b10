//! Answers that are the same for everybody until the agent publishes again: each is encoded once, and its
//! bytes are shared.

use axum::body::Bytes;
use axum::http::StatusCode;
use serde::Serialize;
use std::sync::Arc;
use thermo_agent::api::Service;
use tokio::sync::Mutex;

use crate::error::ApiError;
use crate::metrics::{self, Format};

/// One answer, with the number of the publication that it was made of.
#[derive(Debug, Default)]
pub(crate) struct Slot(Mutex<Option<(u64, Bytes)>>);

/// The answers.
#[derive(Debug, Default)]
pub(crate) struct Encoded {
    pub(crate) targets: Slot,
    pub(crate) policies: Slot,
    pub(crate) ledger: Slot,
    pub(crate) status: Slot,
    metrics: Slot,
    open_metrics: Slot,
}

impl Slot {
    /// The answer that `encode` makes, now or since the last publication. Encoding waits in a thread of its
    /// own, so that others are served meanwhile.
    ///
    /// # Errors
    /// Encoding failed.
    pub(crate) async fn get(
        &self,
        service: &Arc<dyn Service>,
        encode: impl FnOnce(&dyn Service) -> Result<Vec<u8>, serde_json::Error> + Send + 'static,
    ) -> Result<Bytes, ApiError> {
        let mut slot = self.0.lock().await;
        // Read first: what is published meanwhile is encoded again.
        let publication = service.publication();
        if let Some((_, bytes)) = slot.as_ref().filter(|(last, _)| *last == publication) {
            return Ok(bytes.clone());
        }
        let service = Arc::clone(service);
        let encoded = tokio::task::spawn_blocking(move || encode(service.as_ref())).await;
        let failed = || {
            ApiError::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the agent failed to answer: its log says why. Please report it",
            )
        };
        let bytes = Bytes::from(encoded.map_err(|_| failed())?.map_err(|_| failed())?);
        *slot = Some((publication, bytes.clone()));
        Ok(bytes)
    }
}

/// The JSON of a value.
pub(crate) fn json(value: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(value)
}

impl Encoded {
    /// The targets, as JSON.
    pub(crate) async fn targets(&self, service: &Arc<dyn Service>) -> Result<Bytes, ApiError> {
        self.targets
            .get(service, |service| json(&service.targets()))
            .await
    }

    /// The policies, as JSON.
    pub(crate) async fn policies(&self, service: &Arc<dyn Service>) -> Result<Bytes, ApiError> {
        self.policies
            .get(service, |service| json(&service.policies()))
            .await
    }

    /// The metrics, as text.
    pub(crate) async fn metrics(
        &self,
        service: &Arc<dyn Service>,
        format: Format,
    ) -> Result<Bytes, ApiError> {
        let slot = match format {
            Format::OpenMetrics => &self.open_metrics,
            Format::Text => &self.metrics,
        };
        let encode = move |service: &dyn Service| Ok(metrics::encode(service, format).into_bytes());
        slot.get(service, encode).await
    }
}
