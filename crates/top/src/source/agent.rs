//! A running agent: its HTTP API.

use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use thermo_agent::api::{Decisions, Heatmap, Policies, Series, Targets, UnixMillis};
use thermo_web::client::{Client, ClientError};

use super::{Extent, Facts, Source, SourceError, TargetId};

/// How long a heatmap is shown before it is read again. Reading the past costs the agent the most, and a
/// column of an hour's heatmap is longer than this.
const PAST_REFRESH: Duration = Duration::from_secs(10);

/// A running agent.
#[derive(Debug)]
pub struct Agent {
    client: Client,
    past: Option<Past>,
}

/// The past of a target, as last read.
#[derive(Debug)]
struct Past {
    extent: Extent,
    read_at: Instant,
    heatmap: Heatmap,
}

impl Agent {
    /// The agent that `client` asks. Connects with the first request.
    #[must_use]
    pub const fn new(client: Client) -> Self {
        Self { client, past: None }
    }

    fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, SourceError> {
        self.client.get(path).map_err(source_error)
    }
}

fn source_error(error: ClientError) -> SourceError {
    match error {
        // Shorter than the error's own text: the line has room for little.
        ClientError::Unreachable { address, why } => {
            let why = why.split(" (os error").next().unwrap_or_default();
            SourceError::Lost(format!("no agent at {address}: {why}"))
        }
        ClientError::Refused { status: 503, message } => SourceError::Lost(message),
        other => SourceError::Refused(other.to_string()),
    }
}

/// `text` for a query or path of a URL (RFC 3986, 2.3).
fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

fn query(target: &TargetId) -> String {
    format!(
        "target={}&policy={}",
        encode(&target.name),
        encode(&target.policy)
    )
}

impl Source for Agent {
    fn facts(&self) -> Facts {
        Facts {
            title: format!("agent at {}", self.client.address()),
            times_ms: Vec::new(),
            is_agent: true,
        }
    }

    fn targets(&mut self, _at: Option<UnixMillis>) -> Result<Targets, SourceError> {
        self.get("/api/v1/targets")
    }

    fn policies(&mut self, _at: Option<UnixMillis>) -> Result<Policies, SourceError> {
        self.get("/api/v1/policies")
    }

    fn decisions(&mut self, target: &TargetId, _at: Option<UnixMillis>) -> Result<Decisions, SourceError> {
        self.get(&format!("/api/v1/decisions?{}", query(target)))
    }

    fn history(&mut self, extent: &Extent) -> Result<Series, SourceError> {
        let Extent { target, columns, .. } = extent;
        self.get(&format!("/api/v1/history?{}&columns={columns}", query(target)))
    }

    fn heatmap(&mut self, extent: &Extent) -> Result<Heatmap, SourceError> {
        let is_fresh = |past: &&Past| past.extent == *extent && past.read_at.elapsed() < PAST_REFRESH;
        if let Some(past) = self.past.as_ref().filter(is_fresh) {
            return Ok(past.heatmap.clone());
        }
        let Extent {
            target,
            columns,
            rows,
        } = extent;
        let path = format!("/api/v1/heatmap?{}&columns={columns}&rows={rows}", query(target));
        let heatmap: Heatmap = self.get(&path)?;
        self.past = Some(Past {
            extent: extent.clone(),
            read_at: Instant::now(),
            heatmap: heatmap.clone(),
        });
        Ok(heatmap)
    }

    fn pause(&mut self, policy: &str, paused: bool) -> Result<(), SourceError> {
        let verb = if paused { "pause" } else { "resume" };
        let path = format!("/api/v1/policies/{}/{verb}", encode(policy));
        self.client.post(&path, None).map_err(source_error)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

    use thermo_fake_agent::FakeAgent;
    use thermo_web::client::Address;
    use thermo_web::{Server, ServerConfig};

    use super::*;
    use crate::model::{Model, Request, answer, id_of};

    #[test]
    fn names_are_encoded_for_urls() {
        assert_eq!(encode("a b/ü&.service"), "a%20b%2F%C3%BC%26.service");
    }

    #[test]
    fn agent_answers_every_request_and_is_lost_when_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("agent.sock");
        let config = ServerConfig {
            socket: Some(socket.clone()),
            ..ServerConfig::default()
        };
        let server = Server::start(config, FakeAgent::new(1_795_694_400_000)).unwrap();
        let mut agent = Agent::new(Client::open(&Address::Unix(socket)).unwrap());
        let targets = agent.targets(None).unwrap().targets;
        let policies = agent.policies(None).unwrap().policies;
        let request = Request {
            at: None,
            detail: Some(Extent {
                target: id_of(&targets[0]),
                columns: 60,
                rows: 30,
            }),
            order: None,
        };
        let mut model = Model::new(agent.facts());
        model.receive(answer(&mut agent, request));
        assert_eq!((model.lost.as_deref(), model.rows().len()), (None, targets.len()));
        let detail = model.detail.unwrap();
        assert!(!detail.heatmap.unwrap().rows.is_empty() && !detail.points.is_empty());
        agent.pause(&policies[0].name, true).unwrap();
        assert!(agent.policies(None).unwrap().policies[0].paused);
        let refused = agent.pause("no such policy", true);
        assert!(matches!(refused, Err(SourceError::Refused(_))), "{refused:?}");
        drop(server);
        let lost = agent.targets(None);
        assert!(matches!(lost, Err(SourceError::Lost(_))), "{lost:?}");
    }
}
