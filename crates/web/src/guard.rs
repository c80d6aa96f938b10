//! What every request passes: rate, host, origin, size, role and time, and the headers of every answer.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, HttpBody as _};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header, uri::Authority};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use thermo_agent::audience::Audience;

use crate::auth::{Peer, Role};
use crate::connection::Connection;
use crate::error::ApiError;
use crate::outbox::PIECE;
use crate::routes::App;

/// Longest body of a request in bytes.
pub(crate) const MAX_BODY: usize = 64 << 10;
/// Time for a request, from its head to the begin of its answer.
const REQUEST_TIME: Duration = Duration::from_secs(30);

/// Headers of every answer. Pages may load nothing from elsewhere, and nobody may frame them.
const HEADERS: [(HeaderName, HeaderValue); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        ),
    ),
    (
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    ),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
];

/// The outermost layer.
pub(crate) async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let peer = request
        .extensions()
        .get::<Connection>()
        .map(|connection| connection.peer);
    let response = match check(&app, request) {
        Err(error) => error.into_response(),
        Ok(request) => {
            match tokio::time::timeout(REQUEST_TIME, next.run(request)).await {
                Ok(response) => response,
                Err(_) => {
                    let limit = REQUEST_TIME.as_secs();
                    ApiError::new(
                    StatusCode::REQUEST_TIMEOUT,
                    format!("the request took longer than {limit} s: send it faster, or ask for a shorter period"),
                )
                .into_response()
                }
            }
        }
    };
    let mut response = match peer {
        Some(peer) => into_outbox(&app, peer, response).await,
        None => response,
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, value);
    }
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Lets an answer wait for its client in the outbox, which bounds what all clients have not taken yet. A live
/// stream puts its events there itself.
async fn into_outbox(app: &App, peer: Peer, response: Response) -> Response {
    let length = response.body().size_hint().exact();
    if length.is_none_or(|length| length <= PIECE as u64) {
        return response;
    }
    let (parts, body) = response.into_parts();
    match axum::body::to_bytes(body, usize::MAX).await {
        Ok(bytes) => Response::from_parts(parts, Body::new(app.outbox.add(peer, bytes))),
        Err(error) => ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// The role of a request, or why it has none. Routes that everybody may use do not ask.
#[derive(Debug, Clone)]
struct MaybeRole(Result<Role, ApiError>);

fn check(app: &App, mut request: Request) -> Result<Request, ApiError> {
    let connection = *request
        .extensions()
        .get::<Connection>()
        .ok_or_else(|| ApiError::busy("the connection is not known"))?;
    if !app.peers.request(connection.peer, Instant::now()) {
        return Err(ApiError::new(
            StatusCode::TOO_MANY_REQUESTS,
            "too many requests: wait a second, or use GET /api/v1/stream for what changes",
        ));
    }
    let host = host(request.headers(), request.uri())?;
    let is_local = matches!(connection.peer, Peer::User(_)) || connection.is_encrypted;
    if !is_local && !is_allowed(host.host(), &app.hosts) {
        return Err(ApiError::forbidden(format!(
            "the host {:?} is not one of the agent: use localhost or its IP address, or add the name to hosts \
             under [http] in the configuration",
            host.host()
        )));
    }
    check_origin(request.headers(), &host)?;
    check_length(request.headers())?;
    let role = MaybeRole(app.tokens.role(connection.peer, request.headers()));
    request.extensions_mut().insert(role);
    Ok(request)
}

fn host(headers: &HeaderMap, uri: &Uri) -> Result<Authority, ApiError> {
    let invalid = || ApiError::invalid("the request needs one valid Host header");
    if let Some(authority) = uri.authority() {
        return Ok(authority.clone());
    }
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(invalid());
    };
    Authority::try_from(host.as_bytes()).map_err(|_| invalid())
}

// A page of another site can make its own name resolve to this machine (DNS rebinding). Its requests then
// carry that name. An address cannot be rebound.
fn is_allowed(host: &str, hosts: &[String]) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<IpAddr>().is_ok()
        || host.eq_ignore_ascii_case("localhost")
        || hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(host))
}

// Browsers send `Origin` with every request that another page may not read or that changes something, and
// `Sec-Fetch-Site` with all. Programs send neither.
fn check_origin(headers: &HeaderMap, host: &Authority) -> Result<(), ApiError> {
    let foreign = |what: &str| {
        Err(ApiError::forbidden(format!(
            "the request comes from another site ({what}): open the dashboard of the agent itself"
        )))
    };
    if let Some(origin) = headers.get(header::ORIGIN) {
        let origin = origin.to_str().unwrap_or("an invalid origin");
        let own = origin
            .split_once("://")
            .is_some_and(|(_, authority)| authority == host.as_str());
        if !own {
            return foreign(origin);
        }
    }
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    let mode = headers.get("sec-fetch-mode").map(HeaderValue::as_bytes);
    // A link on another site may lead here: that page learns nothing.
    if matches!(site, Some(b"cross-site" | b"same-site")) && mode != Some(b"navigate") {
        return foreign("Sec-Fetch-Site");
    }
    Ok(())
}

fn check_length(headers: &HeaderMap) -> Result<(), ApiError> {
    let length = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok());
    match length.and_then(|length| length.parse::<u64>().ok()) {
        Some(length) if length > MAX_BODY as u64 => Err(too_large()),
        _ => Ok(()),
    }
}

/// The answer to a body that is too long.
pub(crate) fn too_large() -> ApiError {
    ApiError::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("the body is longer than {MAX_BODY} bytes"),
    )
}

/// Layer of the routes that read. It tells them for whom.
pub(crate) async fn require_read(mut request: Request, next: Next) -> Result<Response, ApiError> {
    let audience = match require(&request, Role::Read)? {
        Role::Read => Audience::Reader,
        Role::Admin => Audience::Admin,
    };
    request.extensions_mut().insert(audience);
    Ok(next.run(request).await)
}

/// Layer of the routes that change something.
pub(crate) async fn require_admin(request: Request, next: Next) -> Result<Response, ApiError> {
    require(&request, Role::Admin)?;
    Ok(next.run(request).await)
}

fn require(request: &Request, needed: Role) -> Result<Role, ApiError> {
    let role = request.extensions().get::<MaybeRole>().cloned();
    match role.map(|role| role.0) {
        Some(Ok(role)) if role >= needed => Ok(role),
        Some(Err(error)) => Err(error),
        Some(Ok(_)) | None => Err(ApiError::forbidden(
            "only an admin may do this: use the UNIX socket as root or as the agent's user, or send the admin \
             token",
        )),
    }
}
