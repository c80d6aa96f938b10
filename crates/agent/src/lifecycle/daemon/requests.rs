//! Answers to requests, and the permission check.

use std::path::Path;

use serde_json::{Value, json};
use thermo_kernel::{clock, status};

use super::Daemon;
use crate::lifecycle::engine::AppStatus;
use crate::lifecycle::state::{State, StateEvent};
use crate::lifecycle::wire::{self, Request};

impl Daemon {
    /// Handles a request of user `uid` and returns the answer.
    pub(super) fn handle_request(&mut self, request: Request, uid: u32) -> Value {
        match request {
            Request::Set { app, state } => self.set(&app, state, uid),
            Request::Status => self.status(),
            Request::Why { app } => self.why(&app),
        }
    }

    fn set(&mut self, app: &str, state: State, uid: u32) -> Value {
        if let Err(unknown) = self.engine.decisions(app).map(drop) {
            return wire::error_answer(&unknown.to_string());
        }
        if is_privileged(uid) {
            self.owner_states.remove(app);
        } else if self.table.is_owner(app, uid) {
            self.owner_states.insert(app.to_owned(), uid);
        } else {
            return wire::error_answer(&format!(
                "user {uid} does not own all processes of {app:?}: only their owner, root and the daemon's \
                 user may set its state"
            ));
        }
        match self
            .engine
            .handle_event(app, StateEvent::Set(state), clock::monotonic(), &mut self.table)
        {
            Ok(state) => {
                let last = self.engine.decisions(app).ok().and_then(Iterator::last);
                let decision = last.map(|decision| decision.json(clock::wall_clock_offset_ns()));
                wire::ok_answer(json!({"app": app, "state": state.name(), "decision": decision}))
            }
            Err(unknown) => wire::error_answer(&unknown.to_string()),
        }
    }

    /// Ends all states set by users that no longer own all processes of the application. The processes that
    /// authorised such a state have ended, or others have joined them.
    pub(super) fn end_states_of_former_owners(&mut self) {
        let apps: Vec<String> = self.owner_states.keys().cloned().collect();
        for app in apps {
            self.end_state_of_former_owner(&app);
        }
    }

    /// Ends the state of `app` if it was set by a user that no longer owns all processes of the application.
    /// Returns whether it was ended.
    pub(super) fn end_state_of_former_owner(&mut self, app: &str) -> bool {
        let owner = self.owner_states.get(app);
        if owner.is_none_or(|uid| self.table.is_owner(app, *uid)) {
            return false;
        }
        self.owner_states.remove(app);
        let now = clock::monotonic();
        // Fails if a reload has removed the application.
        drop(
            self.engine
                .handle_event(app, StateEvent::Unset, now, &mut self.table),
        );
        true
    }

    fn why(&self, app: &str) -> Value {
        let offset = clock::wall_clock_offset_ns();
        match self.engine.decisions(app) {
            Ok(decisions) => {
                let decisions: Vec<Value> = decisions.map(|decision| decision.json(offset)).collect();
                wire::ok_answer(json!({"app": app, "decisions": decisions}))
            }
            Err(unknown) => wire::error_answer(&unknown.to_string()),
        }
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "a JSON object gets the keys that it lacks"
    )]
    fn status(&mut self) -> Value {
        let now = clock::monotonic();
        let app = |status: AppStatus| {
            let processes = self.table.pids(&status.name).len();
            let mut value = status.json(now);
            value["processes"] = processes.into();
            value
        };
        let apps: Vec<Value> = self.engine.status().into_iter().map(app).collect();
        let daemon = status::read(Path::new("/"), std::process::id()).unwrap_or_default();
        wire::ok_answer(json!({
            "pid": std::process::id(),
            "cpu_us": clock::process_cpu().0 / 1000,
            "rss_kb": daemon.vm_rss.unwrap_or_default().0 >> 10,
            "requests": self.requests,
            "longest_request_us": self.longest_request.0 / 1000,
            "apps": apps,
        }))
    }
}

/// Whether user `uid` may set the state of every application.
pub(super) fn is_privileged(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}
