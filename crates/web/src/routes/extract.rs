//! Parts of a request, with errors as JSON.

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::header;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::error::ApiError;
use crate::guard::too_large;

/// Time for a body.
const BODY_TIME: Duration = Duration::from_secs(10);

/// The query of the address.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let query = axum::extract::Query::from_request_parts(parts, state).await;
        query
            .map(|axum::extract::Query(query)| Self(query))
            .map_err(|error| {
                ApiError::invalid(format!(
                    "{}: /api/v1/openapi.json lists the parameters",
                    error.body_text()
                ))
            })
    }
}

/// A name in the path.
pub(super) struct Name(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = axum::extract::Path::from_request_parts(parts, state).await;
        path.map(|axum::extract::Path(name)| Self(name))
            .map_err(|error| ApiError::invalid(error.body_text()))
    }
}

/// A JSON body.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        // Forms of other sites cannot have this type.
        let kind = request.headers().get(header::CONTENT_TYPE).cloned();
        if !kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json")) {
            return Err(ApiError::invalid(
                "the body must be JSON: send Content-Type: application/json",
            ));
        }
        let body = timeout(BODY_TIME, Bytes::from_request(request, state)).await;
        let body = body.map_err(|_| {
            let limit = BODY_TIME.as_secs();
            ApiError::new(
                StatusCode::REQUEST_TIMEOUT,
                format!("the body did not arrive within {limit} s: send it faster"),
            )
        })?;
        let body = body.map_err(|error| match error.status() {
            StatusCode::PAYLOAD_TOO_LARGE => too_large(),
            _ => ApiError::invalid(error.body_text()),
        })?;
        Json::from_bytes(&body)
            .map(|Json(body)| Self(body))
            .map_err(|error| ApiError::invalid(error.body_text()))
    }
}
