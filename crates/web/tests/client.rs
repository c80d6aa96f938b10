//! The client against a server.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod support;

use serde_json::json;
use support::{ADMIN_TOKEN, Site};
use thermo_agent::api::{Change, DecisionKind, Mode, Policies, Service as _, Targets};
use thermo_web::client::{Address, Client, ClientError};

fn clients(site: &Site) -> [Client; 2] {
    let http = Address::Http {
        host: "127.0.0.1".to_owned(),
        port: site.address.port(),
    };
    [
        Client::open(&Address::Unix(site.socket.clone())).unwrap(),
        Client::open(&http).unwrap().with_token(ADMIN_TOKEN),
    ]
}

#[test]
fn client_reads_and_orders_over_both_kinds_of_address() {
    let site = Site::with_tokens();
    for client in clients(&site) {
        assert_eq!(
            client.get::<Targets>("/api/v1/targets").unwrap(),
            site.agent.targets()
        );
        client.post("/api/v1/policies/web/pause", None).unwrap();
        assert!(site.agent.policies().policies[1].paused);
        client
            .post("/api/v1/policies/web/mode", Some(&json!({"mode": "act"})))
            .unwrap();
        assert_eq!(site.agent.policies().policies[1].mode, Mode::Act);
        client.post("/api/v1/resume", None).unwrap();
    }
}

#[test]
fn client_makes_many_requests_without_using_up_its_connections() {
    let site = Site::start();
    let client = &clients(&site)[0];
    for _ in 0..300 {
        client.get::<Policies>("/api/v1/policies").unwrap();
    }
}

#[test]
fn client_reports_the_reason_of_a_refusal() {
    let site = Site::start();
    let [client, _] = clients(&site);
    let error = client.post("/api/v1/policies/nothing/pause", None).unwrap_err();
    assert!(
        matches!(error, ClientError::Refused { status: 404, .. }),
        "{error:?}"
    );
    assert!(
        error.to_string().starts_with("there is no policy \"nothing\""),
        "{error}"
    );
    drop(site);
    let error = client.get::<Targets>("/api/v1/targets").unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error:?}");
}

#[test]
fn stream_begins_with_now_and_goes_on_with_changes() {
    let site = Site::with_tokens();
    let [client, other] = clients(&site);
    let mut changes = other.stream().unwrap();
    assert_eq!(
        changes.next().unwrap().unwrap(),
        Change::Targets(site.agent.targets())
    );
    assert_eq!(
        changes.next().unwrap().unwrap(),
        Change::Policies(site.agent.policies())
    );
    client.post("/api/v1/policies/web/pause", None).unwrap();
    let Change::Decision(decision) = changes.next().unwrap().unwrap() else {
        panic!("no decision");
    };
    assert_eq!(
        (decision.kind, decision.policy.as_str()),
        (DecisionKind::Paused, "web")
    );
    assert_eq!(
        changes.next().unwrap().unwrap(),
        Change::Policies(site.agent.policies())
    );
    site.agent.tick();
    let seen = changes
        .by_ref()
        .map(Result::unwrap)
        .find(|change| *change == Change::Targets(site.agent.targets()));
    assert!(seen.is_some());
    drop(site);
    assert!(changes.any(|change| change.is_err()), "the end is an error");
    assert!(changes.next().is_none());
}
