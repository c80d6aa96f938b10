//! What was. Reading it takes time and memory, so only a few requests do at once.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, State};
use serde::Deserialize;
use thermo_agent::api::{Heatmap, Period, Refusal, Series, Service};
use thermo_agent::audience::Audience;
use utoipa::IntoParams;

use super::App;
use super::extract::Query;
use crate::auth::Peer;
use crate::connection::Connection;
use crate::error::ApiError;

/// Points or columns if none are asked for.
const COLUMNS: usize = 200;
/// Rows of a heatmap if none are asked for.
const ROWS: usize = 50;
/// Most points, columns or rows.
const MAX_SIDE: usize = 2000;
/// Most cells of a heatmap.
const MAX_CELLS: usize = 50_000;

/// Which part of the past.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// The target.
    target: String,
    /// The policy, where several have a target of this name.
    policy: Option<String>,
    /// Begin; without it an hour before the end.
    from_ms: Option<u64>,
    /// End; without it now.
    to_ms: Option<u64>,
    /// At most so many points or columns, 1 to 2000 (200).
    columns: Option<usize>,
    /// At most so many rows of a heatmap, 1 to 2000 (50). Rows times columns are at most 50,000.
    rows: Option<usize>,
}

impl Wanted {
    fn period(self) -> Result<Period, ApiError> {
        let (columns, rows) = (self.columns.unwrap_or(COLUMNS), self.rows.unwrap_or(ROWS));
        for (name, count) in [("columns", columns), ("rows", rows)] {
            if !(1..=MAX_SIDE).contains(&count) {
                return Err(ApiError::invalid(format!(
                    "{name}={count} is out of range: give 1 to {MAX_SIDE}"
                )));
            }
        }
        if let (Some(from), Some(to)) = (self.from_ms, self.to_ms)
            && from >= to
        {
            return Err(ApiError::invalid(format!(
                "from_ms={from} is not before to_ms={to}: give an earlier begin"
            )));
        }
        Ok(Period {
            target: self.target,
            policy: self.policy,
            from_ms: self.from_ms,
            to_ms: self.to_ms,
            columns,
            rows,
        })
    }
}

async fn read<T: Send + 'static>(
    app: &App,
    peer: Peer,
    wanted: Wanted,
    call: impl FnOnce(&dyn Service, &Period) -> Result<T, Refusal> + Send + 'static,
) -> Result<Json<T>, ApiError> {
    let period = wanted.period()?;
    let permits = match peer {
        Peer::User(_) => &app.past_of_users,
        Peer::Loopback | Peer::Address(_) => &app.past_of_network,
    };
    let permit = Arc::clone(permits)
        .try_acquire_owned()
        .map_err(|_| ApiError::busy("the history is being read for others: try again in a second"))?;
    let read = move |service: &dyn Service| {
        // Held while the thread reads, even if the client has gone.
        let _permit = permit;
        call(service, &period)
    };
    app.wait(read).await.map(Json)
}

/// A target over time, oldest first.
#[utoipa::path(
    get, path = "/api/v1/history", params(Wanted),
    responses((status = 200, description = "points", body = Series), (status = 404, description = "no such target"))
)]
pub(super) async fn history(
    State(app): State<Arc<App>>,
    Extension(connection): Extension<Connection>,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Series>, ApiError> {
    read(&app, connection.peer, wanted, |service, period| {
        service.history(period)
    })
    .await
}

/// How hot each part of a target's memory was over time. Readers get offsets in mappings, admins addresses
/// and paths.
#[utoipa::path(
    get, path = "/api/v1/heatmap", params(Wanted),
    responses((status = 200, description = "cells", body = Heatmap), (status = 404, description = "no such target"))
)]
pub(super) async fn heatmap(
    State(app): State<Arc<App>>,
    Extension(connection): Extension<Connection>,
    Extension(audience): Extension<Audience>,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Heatmap>, ApiError> {
    let cells = wanted
        .columns
        .unwrap_or(COLUMNS)
        .saturating_mul(wanted.rows.unwrap_or(ROWS));
    if cells > MAX_CELLS {
        return Err(ApiError::invalid(format!(
            "{cells} cells are too many: rows times columns may be {MAX_CELLS}"
        )));
    }
    let told = move |service: &dyn Service, period: &Period| {
        let map = service.heatmap(period)?;
        Ok(map.told_to(audience))
    };
    read(&app, connection.peer, wanted, told).await
}

/// What paging out idle memory of a target would save and cost: the JSON of `thermo advise`.
#[utoipa::path(
    get, path = "/api/v1/advice", params(Wanted),
    responses((status = 200, description = "advice", body = Object), (status = 404, description = "no such target"))
)]
pub(super) async fn advice(
    State(app): State<Arc<App>>,
    Extension(connection): Extension<Connection>,
    Query(wanted): Query<Wanted>,
) -> Result<Json<serde_json::Value>, ApiError> {
    read(&app, connection.peer, wanted, |service, period| {
        service.advice(period)
    })
    .await
}
