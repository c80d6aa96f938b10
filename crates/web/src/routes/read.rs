//! What is now.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Extension, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use thermo_agent::api::{Decisions, Explanation, Ledger, LedgerDays, Policies, Service, Status, Targets};
use thermo_agent::audience::Audience;
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::extract::Query;
use crate::encoded;
use crate::error::ApiError;

fn as_json(encoded: Bytes) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], encoded)
}

/// The targets now.
#[utoipa::path(get, path = "/api/v1/targets", responses((status = 200, description = "all targets", body = Targets)))]
pub(super) async fn targets(State(app): State<Arc<App>>) -> Result<impl IntoResponse, ApiError> {
    app.encoded.targets(&app.service).await.map(as_json)
}

/// The policies now.
#[utoipa::path(get, path = "/api/v1/policies", responses((status = 200, description = "all policies", body = Policies)))]
pub(super) async fn policies(State(app): State<Arc<App>>) -> Result<impl IntoResponse, ApiError> {
    app.encoded.policies(&app.service).await.map(as_json)
}

/// Which decisions.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// Only those about this target.
    target: Option<String>,
    /// Only those of this policy.
    policy: Option<String>,
    /// Only those after this number.
    after: Option<u64>,
}

/// Decisions with their reasons, the newest last.
#[utoipa::path(
    get, path = "/api/v1/decisions", params(Wanted),
    responses((status = 200, description = "decisions that are kept in memory", body = Decisions))
)]
pub(super) async fn decisions(
    State(app): State<Arc<App>>,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Decisions>, ApiError> {
    let Wanted {
        target,
        policy,
        after,
    } = wanted;
    let find = move |service: &dyn Service| {
        Ok(service.decisions(target.as_deref(), policy.as_deref(), after.unwrap_or(0)))
    };
    app.wait_in_turn(find).await.map(Json)
}

/// Which sums of the ledger.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Sums {
    /// `day`: sums of each day in UTC, a row for each day and policy. Without it: sums since the ledger
    /// began.
    by: Option<By>,
    /// With `by=day`: also the rows of targets.
    targets: Option<bool>,
}

/// What the sums of the ledger are divided by.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum By {
    /// The day, in UTC.
    Day,
}

/// The ledger, as it was asked for.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it documents what the handler encodes")]
pub(super) enum LedgerAnswer {
    /// Sums since the ledger began.
    All(Ledger),
    /// Sums of each day.
    Days(LedgerDays),
}

/// The sums of each policy and target, or with `by=day` those of each day.
#[utoipa::path(
    get, path = "/api/v1/ledger", params(Sums),
    responses(
        (status = 200, description = "the ledger; `LedgerDays` with `by=day`", body = LedgerAnswer),
        (status = 400, description = "`targets` without `by=day`")
    )
)]
pub(super) async fn ledger(
    State(app): State<Arc<App>>,
    Query(sums): Query<Sums>,
) -> Result<Response, ApiError> {
    match (sums.by, sums.targets) {
        (None, None) => {
            let encode = |service: &dyn Service| encoded::json(&service.ledger());
            let ledger = app.encoded.ledger.get(&app.service, encode).await?;
            Ok(as_json(ledger).into_response())
        }
        (None, Some(_)) => Err(ApiError::invalid(
            "`targets` chooses rows of days: give by=day as well, or leave it out",
        )),
        (Some(By::Day), targets) => {
            let with_targets = targets.unwrap_or(false);
            app.wait_in_turn(move |service| Ok(service.ledger_days(with_targets)))
                .await
                .map(|days| Json(days).into_response())
        }
    }
}

/// The agent itself.
#[utoipa::path(get, path = "/api/v1/status", responses((status = 200, description = "its state", body = Status)))]
pub(super) async fn status(State(app): State<Arc<App>>) -> Result<impl IntoResponse, ApiError> {
    let encode = |service: &dyn Service| encoded::json(&service.status());
    let status = app.encoded.status.get(&app.service, encode).await?;
    Ok(as_json(status))
}

/// Which process.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Process {
    /// Its process ID.
    pid: u32,
}

/// Which policy a process belongs to, and why. The path of its program is for admins only.
#[utoipa::path(
    get, path = "/api/v1/explain", params(Process),
    responses(
        (status = 200, description = "the explanation", body = Explanation),
        (status = 404, description = "there is no such process")
    )
)]
pub(super) async fn explain(
    State(app): State<Arc<App>>,
    Extension(audience): Extension<Audience>,
    Query(process): Query<Process>,
) -> Result<Json<Explanation>, ApiError> {
    app.wait_in_turn(move |service| service.explain(process.pid, audience))
        .await
        .map(Json)
}
