//! Orders to the agent. All need the role of an admin.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use thermo_agent::api::Mode;
use utoipa::ToSchema;

use super::App;
use super::extract::{Body, Name};
use crate::error::ApiError;

async fn pause(app: &App, policy: Option<String>, paused: bool) -> Result<StatusCode, ApiError> {
    app.wait(move |service| service.pause(policy.as_deref(), paused))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Pauses a policy at once.
#[utoipa::path(
    post, path = "/api/v1/policies/{name}/pause", params(("name" = String, Path, description = "the policy")),
    responses((status = 204, description = "paused"), (status = 404, description = "no such policy"))
)]
pub(super) async fn pause_policy(
    State(app): State<Arc<App>>,
    Name(name): Name,
) -> Result<StatusCode, ApiError> {
    pause(&app, Some(name), true).await
}

/// Resumes a policy.
#[utoipa::path(
    post, path = "/api/v1/policies/{name}/resume", params(("name" = String, Path, description = "the policy")),
    responses((status = 204, description = "resumed"), (status = 404, description = "no such policy"))
)]
pub(super) async fn resume_policy(
    State(app): State<Arc<App>>,
    Name(name): Name,
) -> Result<StatusCode, ApiError> {
    pause(&app, Some(name), false).await
}

/// Pauses all policies at once.
#[utoipa::path(post, path = "/api/v1/pause", responses((status = 204, description = "paused")))]
pub(super) async fn pause_all(State(app): State<Arc<App>>) -> Result<StatusCode, ApiError> {
    pause(&app, None, true).await
}

/// Resumes all policies.
#[utoipa::path(post, path = "/api/v1/resume", responses((status = 204, description = "resumed")))]
pub(super) async fn resume_all(State(app): State<Arc<App>>) -> Result<StatusCode, ApiError> {
    pause(&app, None, false).await
}

/// The new mode of a policy.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewMode {
    mode: Mode,
}

/// Changes the mode of a policy until the agent ends or reads its configuration again.
#[utoipa::path(
    post, path = "/api/v1/policies/{name}/mode", params(("name" = String, Path, description = "the policy")),
    request_body = NewMode,
    responses(
        (status = 204, description = "changed"),
        (status = 400, description = "the policy has nothing to do"),
        (status = 404, description = "no such policy")
    )
)]
pub(super) async fn set_mode(
    State(app): State<Arc<App>>,
    Name(name): Name,
    Body(NewMode { mode }): Body<NewMode>,
) -> Result<StatusCode, ApiError> {
    app.wait(move |service| service.set_mode(&name, mode)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Reads the configuration again.
#[utoipa::path(
    post, path = "/api/v1/reload",
    responses(
        (status = 204, description = "the new configuration holds"),
        (status = 400, description = "it has a mistake, and nothing has changed")
    )
)]
pub(super) async fn reload(State(app): State<Arc<App>>) -> Result<StatusCode, ApiError> {
    app.wait(move |service| service.reload()).await?;
    Ok(StatusCode::NO_CONTENT)
}
