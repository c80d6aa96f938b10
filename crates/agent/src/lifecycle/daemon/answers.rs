//! What is answered to requests, and who may say what.

use std::path::Path;

use serde_json::{Value, json};
use thermo_kernel::{clock, status};

use super::Daemon;
use crate::lifecycle::engine::Standing;
use crate::lifecycle::state::{State, StateEvent};
use crate::lifecycle::wire::{self, Request};

impl Daemon {
    /// The answer to a request of user `uid`.
    pub(super) fn grant(&mut self, request: Request, uid: u32) -> Value {
        match request {
            Request::Set { app, state } => self.set(&app, state, uid),
            Request::Status => self.status(),
            Request::Why { app } => self.why(&app),
        }
    }

    fn set(&mut self, app: &str, state: State, uid: u32) -> Value {
        if let Err(unknown) = self.engine.why(app).map(drop) {
            return wire::refused(&unknown.to_string());
        }
        let ours = rustix::process::geteuid().as_raw();
        if uid != 0 && uid != ours {
            let owners = self.table.owners(app);
            if owners.iter().any(|owner| *owner != uid) || owners.is_empty() {
                return wire::refused(&format!(
                    "user {uid} does not own all processes of {app:?}: its owner and root may set its state"
                ));
            }
        }
        match self
            .engine
            .hear(app, StateEvent::Set(state), clock::monotonic(), &mut self.table)
        {
            Ok(state) => {
                let last = self.engine.why(app).ok().and_then(Iterator::last);
                let decision = last.map(|decision| decision.json(clock::wall_clock_offset_ns()));
                wire::granted(json!({"app": app, "state": state.name(), "decision": decision}))
            }
            Err(unknown) => wire::refused(&unknown.to_string()),
        }
    }

    fn why(&self, app: &str) -> Value {
        let offset = clock::wall_clock_offset_ns();
        match self.engine.why(app) {
            Ok(decisions) => {
                let decisions: Vec<Value> = decisions.map(|decision| decision.json(offset)).collect();
                wire::granted(json!({"app": app, "decisions": decisions}))
            }
            Err(unknown) => wire::refused(&unknown.to_string()),
        }
    }

    fn status(&mut self) -> Value {
        let now = clock::monotonic();
        let standings = self.engine.standings();
        let app = |standing: Standing| {
            let processes = self.table.pids(&standing.name).len();
            let mut value = standing.json(now);
            value["processes"] = processes.into();
            value
        };
        let apps: Vec<Value> = standings.into_iter().map(app).collect();
        let ours = status::read(Path::new("/"), std::process::id()).unwrap_or_default();
        wire::granted(json!({
            "pid": std::process::id(),
            "cpu_us": clock::process_cpu().0 / 1000,
            "rss_kb": ours.vm_rss.unwrap_or_default().0 >> 10,
            "requests": self.requests,
            "longest_request_us": self.longest_request.0 / 1000,
            "apps": apps,
        }))
    }
}
