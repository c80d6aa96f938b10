//! The dashboard, built into the program.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use crate::error::ApiError;

/// A file of the dashboard.
#[derive(Debug, Clone, Copy)]
pub struct Asset {
    /// Name below `/assets/`.
    pub name: &'static str,
    /// Its type.
    pub content_type: &'static str,
    /// What is in it.
    pub bytes: &'static [u8],
}

macro_rules! assets {
    ($($name:literal: $content_type:literal),* $(,)?) => {
        &[$(Asset {
            name: $name,
            content_type: $content_type,
            bytes: include_bytes!(concat!("../assets/", $name)),
        }),*]
    };
}

/// All files. `/` is the first.
pub const ASSETS: &[Asset] = assets![
    "index.html": "text/html; charset=utf-8",
    "age-colours.js": "text/javascript; charset=utf-8",
    "agent.js": "text/javascript; charset=utf-8",
    "ages.js": "text/javascript; charset=utf-8",
    "api.js": "text/javascript; charset=utf-8",
    "app.css": "text/css; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "charts.js": "text/javascript; charset=utf-8",
    "curve.js": "text/javascript; charset=utf-8",
    "decisions.js": "text/javascript; charset=utf-8",
    "dom.js": "text/javascript; charset=utf-8",
    "fleet.js": "text/javascript; charset=utf-8",
    "gaps.js": "text/javascript; charset=utf-8",
    "heatmap-cells.js": "text/javascript; charset=utf-8",
    "heatmap.js": "text/javascript; charset=utf-8",
    "history.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "ledger-days.js": "text/javascript; charset=utf-8",
    "ledger.js": "text/javascript; charset=utf-8",
    "parts.js": "text/javascript; charset=utf-8",
    "past.js": "text/javascript; charset=utf-8",
    "policies.js": "text/javascript; charset=utf-8",
    "reader.js": "text/javascript; charset=utf-8",
    "table.js": "text/javascript; charset=utf-8",
    "target.js": "text/javascript; charset=utf-8",
    "time-axis.js": "text/javascript; charset=utf-8",
    "time-controls.js": "text/javascript; charset=utf-8",
    "units.js": "text/javascript; charset=utf-8",
    "uplot-LICENSE.txt": "text/plain; charset=utf-8",
    "uplot.css": "text/css; charset=utf-8",
    "uplot.js": "text/javascript; charset=utf-8",
];

pub(crate) async fn index(headers: HeaderMap) -> Result<Response, ApiError> {
    serve("index.html", &headers)
}

pub(crate) async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Result<Response, ApiError> {
    serve(&name, &headers)
}

fn serve(name: &str, headers: &HeaderMap) -> Result<Response, ApiError> {
    let asset = ASSETS.iter().find(|asset| asset.name == name).ok_or_else(|| {
        let message = format!("the dashboard has no file {name:?}: open /");
        ApiError::new(StatusCode::NOT_FOUND, message)
    })?;
    let tag = tag(asset.bytes);
    let known = headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .any(|value| *value == tag);
    let caching = [
        (header::ETAG, tag),
        // Asks each time, so that a new version of the agent shows at once.
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    if known {
        return Ok((StatusCode::NOT_MODIFIED, caching).into_response());
    }
    let content_type = [(header::CONTENT_TYPE, HeaderValue::from_static(asset.content_type))];
    Ok((caching, content_type, asset.bytes).into_response())
}

fn tag(bytes: &[u8]) -> HeaderValue {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    HeaderValue::try_from(format!("\"{:016x}\"", hasher.finish())).unwrap_or(HeaderValue::from_static("\"\""))
}
