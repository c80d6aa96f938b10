//! The live stream of server-sent events: `targets`, `policies` and `decision`.
//!
//! A stream has no queue. Its task remembers what it sent last, and when something has changed it sends the
//! newest: a slow client misses what was in between, and takes no memory for it. Events are encoded once for
//! all streams.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, header};
use axum::response::IntoResponse;
use thermo_agent::api::Decision;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;

use super::App;
use crate::auth::Peer;
use crate::connection::Connection;

/// A comment is sent after so much silence: both sides learn that the other is there.
const SILENCE: Duration = Duration::from_secs(15);

/// Why a stream ends: its client has gone or is too slow, or the agent ends.
struct End;

/// Everything that changes: events `targets` (about once a second), `policies` and `decision`, whose data is
/// the JSON of the route of that name. It begins with the targets and policies of now, and, after a broken
/// connection, with the decisions since (`Last-Event-ID`). A client that is slow misses what a newer event
/// replaces; one that is too slow is disconnected.
#[utoipa::path(
    get, path = "/api/v1/stream",
    responses((status = 200, description = "server-sent events", content_type = "text/event-stream", body = String))
)]
pub(super) async fn stream(
    State(app): State<Arc<App>>,
    Extension(connection): Extension<Connection>,
    headers: HeaderMap,
) -> impl IntoResponse {
    let last_id = headers
        .get("last-event-id")
        .and_then(|id| id.to_str().ok()?.parse().ok());
    // One piece waits for the connection, and one in it.
    let (sender, receiver) = mpsc::channel(1);
    let stream = Stream {
        app,
        peer: connection.peer,
        sender,
        publication: None,
        policies: Bytes::new(),
        decision: last_id,
    };
    tokio::spawn(stream.run());
    let kind = (header::CONTENT_TYPE, "text/event-stream");
    ([kind], Body::from_stream(ReceiverStream::new(receiver)))
}

/// A stream, and what it sent last.
struct Stream {
    app: Arc<App>,
    peer: Peer,
    sender: mpsc::Sender<io::Result<Bytes>>,
    /// The publication of the targets.
    publication: Option<u64>,
    policies: Bytes,
    /// The number of the last decision.
    decision: Option<u64>,
}

impl Stream {
    async fn run(mut self) {
        let mut changes = self.app.changes.clone();
        changes.mark_unchanged();
        if self.begin().await.is_err() {
            return;
        }
        loop {
            let changed = tokio::select! {
                changed = timeout(SILENCE, changes.changed()) => changed,
                () = self.sender.closed() => return,
            };
            let sent = match changed {
                Ok(Ok(())) => self.send_changes().await,
                // The agent has gone.
                Ok(Err(_)) => return,
                Err(_) => self.send(Bytes::from_static(b":\n\n")).await,
            };
            if sent.is_err() {
                return;
            }
        }
    }

    async fn begin(&mut self) -> Result<(), End> {
        let newest = self.app.service.decisions(None, None, 0).decisions;
        let newest = newest.last().map_or(0, |decision| decision.number);
        let missed_since = self.decision.replace(newest);
        self.send_targets().await?;
        self.send_policies().await?;
        self.decision = Some(missed_since.unwrap_or(newest));
        self.send_decisions().await
    }

    async fn send_changes(&mut self) -> Result<(), End> {
        self.send_decisions().await?;
        self.send_policies().await?;
        self.send_targets().await
    }

    async fn send_targets(&mut self) -> Result<(), End> {
        let app = &self.app;
        // Read first: what is published meanwhile is sent again.
        let publication = Some(app.service.publication());
        if publication == self.publication {
            return Ok(());
        }
        let targets = app.encoded.targets(&app.service).await.map_err(|_| End)?;
        self.publication = publication;
        self.send_event("targets", targets).await
    }

    async fn send_policies(&mut self) -> Result<(), End> {
        let app = &self.app;
        let policies = app.encoded.policies(&app.service).await.map_err(|_| End)?;
        if policies == self.policies {
            return Ok(());
        }
        self.policies = policies.clone();
        self.send_event("policies", policies).await
    }

    async fn send_decisions(&mut self) -> Result<(), End> {
        let after = self.decision.unwrap_or(0);
        let decisions = self.app.service.decisions(None, None, after).decisions;
        let mut events = Vec::new();
        for decision in &decisions {
            write_decision(&mut events, decision).map_err(|_| End)?;
        }
        if let Some(last) = decisions.last() {
            self.decision = Some(last.number);
            self.send(events.into()).await?;
        }
        Ok(())
    }

    async fn send_event(&self, name: &str, data: Bytes) -> Result<(), End> {
        self.send(format!("event: {name}\ndata: ").into()).await?;
        self.send(data).await?;
        self.send(Bytes::from_static(b"\n\n")).await
    }

    /// Waits until the client has taken all but the last piece.
    async fn send(&self, bytes: Bytes) -> Result<(), End> {
        let mut answer = self.app.outbox.add(self.peer, bytes);
        while let Some(piece) = answer.next_piece().map_err(|_| End)? {
            self.sender.send(Ok(piece)).await.map_err(|_| End)?;
        }
        Ok(())
    }
}

fn write_decision(events: &mut Vec<u8>, decision: &Decision) -> Result<(), serde_json::Error> {
    events.extend_from_slice(format!("event: decision\nid: {}\ndata: ", decision.number).as_bytes());
    serde_json::to_writer(&mut *events, decision)?;
    events.extend_from_slice(b"\n\n");
    Ok(())
}
