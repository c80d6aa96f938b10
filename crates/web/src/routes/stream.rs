//! The live stream of server-sent events: `targets`, `policies` and `decision`.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive};
use axum::response::{IntoResponse, Sse};
use thermo_agent::api::Change;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_stream::wrappers::ReceiverStream;

use super::App;
use crate::error::ApiError;

/// Events that may wait for a slow client. The agent keeps more, and drops a client that is slower still.
const MAX_WAITING: usize = 16;
/// Time after which a thread finds out that its client is gone.
const CHECK_TIME: Duration = Duration::from_secs(1);
/// A comment is sent after so much silence: both sides learn that the other is there.
const SILENCE: Duration = Duration::from_secs(15);
/// The threads only pass events on.
const STACK_SIZE: usize = 256 << 10;

type Sender = mpsc::Sender<Result<Event, axum::Error>>;

/// Everything that changes: events `targets` (about once a second), `policies` and `decision`, whose data is
/// the JSON of the route of that name. It begins with the targets and policies of now, and, after a broken
/// connection, with the decisions since (`Last-Event-ID`).
#[utoipa::path(
    get, path = "/api/v1/stream",
    responses(
        (status = 200, description = "server-sent events", content_type = "text/event-stream", body = String),
        (status = 503, description = "there are too many streams")
    )
)]
pub(super) async fn stream(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
) -> Result<impl IntoResponse, ApiError> {
    let permit = Arc::clone(&app.streams)
        .try_acquire_owned()
        .map_err(|_| ApiError::busy("there are too many streams: close one"))?;
    let last_id = headers
        .get("last-event-id")
        .and_then(|id| id.to_str().ok()?.parse().ok());
    let (sender, receiver) = mpsc::channel(MAX_WAITING);
    let run = move || pass_on(&app, last_id, &sender, permit);
    thread::Builder::new()
        .name("web-stream".to_owned())
        .stack_size(STACK_SIZE)
        .spawn(run)
        .map_err(|error| ApiError::busy(format!("no thread for the stream: {error}. Try again later")))?;
    Ok(Sse::new(ReceiverStream::new(receiver)).keep_alive(KeepAlive::new().interval(SILENCE)))
}

/// Passes on events until the client or the agent goes. Holds the permit for the stream.
fn pass_on(app: &App, last_id: Option<u64>, sender: &Sender, _permit: OwnedSemaphorePermit) {
    // Subscribed first, so that nothing is missed in between.
    let changes = app.service.subscribe();
    let mut first = vec![
        Change::Targets(app.service.targets()),
        Change::Policies(app.service.policies()),
    ];
    if let Some(last_id) = last_id {
        let missed = app.service.decisions(None, None, last_id).decisions;
        first.extend(missed.into_iter().map(Change::Decision));
    }
    let all_sent = first.iter().all(|change| send(change, sender));
    if all_sent {
        while let Some(change) = next(&changes, sender)
            && send(&change, sender)
        {}
    }
}

fn next(changes: &Receiver<Change>, sender: &Sender) -> Option<Change> {
    loop {
        match changes.recv_timeout(CHECK_TIME) {
            Ok(change) => return Some(change),
            Err(RecvTimeoutError::Timeout) if !sender.is_closed() => {}
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
        }
    }
}

/// False if the client is gone.
fn send(change: &Change, sender: &Sender) -> bool {
    let event = match change {
        Change::Targets(targets) => Event::default().event("targets").json_data(targets),
        Change::Policies(policies) => Event::default().event("policies").json_data(policies),
        Change::Decision(decision) => {
            let id = decision.number.to_string();
            Event::default().event("decision").id(id).json_data(decision)
        }
    };
    sender.blocking_send(event).is_ok()
}
