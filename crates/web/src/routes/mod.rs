//! The routes. Each is declared once, at its handler: the router and the OpenAPI document derive from it.

mod extract;
mod health;
mod orders;
mod past;
mod read;
mod stream;

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::get;
use thermo_agent::api::{Refusal, Service};
use tokio::sync::{Semaphore, watch};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::assets;
use crate::auth::Tokens;
use crate::encoded::Encoded;
use crate::error::ApiError;
use crate::guard::{self, MAX_BODY};
use crate::limits::Peers;
use crate::outbox::Outbox;

/// Requests that read the past at a time: of users of the UNIX socket, and of the network.
const MAX_PAST: usize = 2;
/// Other requests at a time that wait for the agent's thread or make long answers. Further ones wait.
const MAX_SLOW: usize = 2;
/// Threads that the limits of this file can take up.
pub(crate) const MAX_WAITING_THREADS: usize = 2 * MAX_PAST + MAX_SLOW;

/// What the handlers share.
pub(crate) struct App {
    pub(crate) service: Arc<dyn Service>,
    pub(crate) tokens: Tokens,
    pub(crate) hosts: Vec<String>,
    pub(crate) peers: Arc<Peers>,
    pub(crate) outbox: Arc<Outbox>,
    encoded: Encoded,
    /// Changes when the agent published something or made a decision; closed when it has gone.
    changes: watch::Receiver<()>,
    past_of_users: Arc<Semaphore>,
    past_of_network: Arc<Semaphore>,
    slow: Arc<Semaphore>,
    /// The OpenAPI document.
    document: OnceLock<Bytes>,
}

impl App {
    pub(crate) fn new(
        service: Arc<dyn Service>,
        tokens: Tokens,
        hosts: Vec<String>,
        peers: Arc<Peers>,
        changes: watch::Receiver<()>,
    ) -> Arc<Self> {
        Arc::new(Self {
            service,
            tokens,
            hosts,
            peers,
            outbox: Arc::default(),
            encoded: Encoded::default(),
            changes,
            past_of_users: Arc::new(Semaphore::new(MAX_PAST)),
            past_of_network: Arc::new(Semaphore::new(MAX_PAST)),
            slow: Arc::new(Semaphore::new(MAX_SLOW)),
            document: OnceLock::new(),
        })
    }

    /// As [`App::wait`], after few others that do so.
    async fn wait_in_turn<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn Service) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, ApiError> {
        let turn = Arc::clone(&self.slow).acquire_owned().await;
        let turn = turn.map_err(|_| ApiError::busy("the agent ends"))?;
        self.wait(move |service| {
            // Held while the thread waits, even if the client has gone.
            let _turn = turn;
            call(service)
        })
        .await
    }

    /// Calls the service in a thread that may wait.
    async fn wait<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn Service) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, ApiError> {
        let service = Arc::clone(&self.service);
        let answer = tokio::task::spawn_blocking(move || call(service.as_ref())).await;
        let answer = answer.map_err(|_| {
            ApiError::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the agent failed to answer: its log says why. Please report it",
            )
        })?;
        answer.map_err(ApiError::from)
    }
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Thermocline agent",
        description = "Idle memory of programs: what the agent sees and does. Times are Unix times in milliseconds, \
            sizes are bytes, rates are bytes a minute, shares lie between 0 and 1. Fields are added, never renamed."
    ),
    components(schemas(thermo_agent::api::Change))
)]
struct Document;

/// Routes that need no role.
fn open_routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::document))
}

/// Routes that read.
fn read_routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(read::targets))
        .routes(routes!(read::policies))
        .routes(routes!(read::decisions))
        .routes(routes!(read::ledger))
        .routes(routes!(read::status))
        .routes(routes!(read::explain))
        .routes(routes!(past::history))
        .routes(routes!(past::heatmap))
        .routes(routes!(past::advice))
        .routes(routes!(stream::stream))
        .routes(routes!(health::metrics))
        .route_layer(from_fn(guard::require_read))
}

/// Routes that change something.
fn admin_routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(orders::pause_policy))
        .routes(routes!(orders::resume_policy))
        .routes(routes!(orders::pause_all))
        .routes(routes!(orders::resume_all))
        .routes(routes!(orders::set_mode))
        .routes(routes!(orders::reload))
        .route_layer(from_fn(guard::require_admin))
}

fn all_routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(Document::openapi())
        .merge(open_routes())
        .merge(read_routes())
        .merge(admin_routes())
}

/// The OpenAPI document of the routes.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    all_routes().split_for_parts().1
}

pub(crate) fn router(app: Arc<App>) -> Router {
    let (router, document) = all_routes().split_for_parts();
    let document = document.to_json().unwrap_or_default();
    // Fails only if it was set before.
    let _ = app.document.set(document.into());
    router
        .route("/", get(assets::index))
        .route("/assets/{name}", get(assets::asset))
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(from_fn_with_state(Arc::clone(&app), guard::guard))
        .with_state(app)
}

async fn not_found(uri: Uri) -> ApiError {
    let path = uri.path();
    ApiError::new(
        StatusCode::NOT_FOUND,
        format!("there is no {path:?}: /api/v1/openapi.json lists what there is"),
    )
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    let path = uri.path();
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        format!("{path:?} has no {method}: /api/v1/openapi.json lists the methods"),
    )
}
