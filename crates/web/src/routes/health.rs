//! Health, the OpenAPI document and metrics.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;

use super::App;
use crate::error::ApiError;
use crate::metrics::Format;

/// Whether the server answers.
#[utoipa::path(get, path = "/healthz", responses((status = 200, description = "it does", body = String)))]
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether every policy runs.
#[utoipa::path(
    get, path = "/readyz",
    responses((status = 200, description = "all run", body = String), (status = 503, description = "not yet, or not all"))
)]
pub(super) async fn readyz(State(app): State<Arc<App>>) -> (StatusCode, &'static str) {
    match app.service.status().ready {
        true => (StatusCode::OK, "ready\n"),
        false => (
            StatusCode::SERVICE_UNAVAILABLE,
            "not ready: GET /api/v1/policies says why\n",
        ),
    }
}

/// This document.
#[utoipa::path(get, path = "/api/v1/openapi.json", responses((status = 200, description = "OpenAPI 3.1", body = Object)))]
pub(super) async fn document(State(app): State<Arc<App>>) -> impl IntoResponse {
    let document: Bytes = app.document.get().cloned().unwrap_or_default();
    ([(header::CONTENT_TYPE, "application/json")], document)
}

/// Metrics for Prometheus: OpenMetrics if the client accepts it, otherwise the text format 0.0.4.
#[utoipa::path(get, path = "/metrics", responses((status = 200, description = "all metrics", body = String)))]
pub(super) async fn metrics(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
) -> Result<impl IntoResponse, ApiError> {
    let format = Format::from_accept(
        headers
            .get(header::ACCEPT)
            .and_then(|accept| accept.to_str().ok()),
    );
    let text = app.encoded.metrics(&app.service, format).await?;
    Ok(([(header::CONTENT_TYPE, format.content_type())], text))
}
