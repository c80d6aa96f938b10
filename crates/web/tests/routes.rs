//! Each route, against an agent with made-up figures.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod support;

use std::io::{BufRead as _, BufReader, Write as _};

use serde::Serialize;
use serde::de::DeserializeOwned;
use support::Site;
use thermo_agent::api::{
    Decisions, Explanation, Heatmap, Ledger, LedgerDays, Mode, Policies, Series, Service as _, Status,
    Targets,
};
use thermo_web::assets::ASSETS;

fn get<T: DeserializeOwned>(site: &Site, path: &str) -> T {
    let answer = site.get(path);
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    serde_json::from_value(answer.json()).unwrap()
}

/// The answer is the JSON of `expected`, and can be read back.
fn check<T: DeserializeOwned + Serialize>(site: &Site, path: &str, expected: &T) {
    get::<T>(site, path);
    assert_eq!(
        site.get(path).body,
        serde_json::to_string(expected).unwrap(),
        "{path}"
    );
}

#[test]
fn addresses_and_paths_are_for_admins_only() {
    let site = Site::start();
    let paths = [
        "/api/v1/explain?pid=1201",
        "/api/v1/heatmap?target=redis-server.service&columns=2&rows=20",
    ];
    let told = [
        ("\"exe\"", "/usr/sbin/"),
        ("0x5555", "\"name\":\"redis-server.service\""),
    ];
    for (path, (what, more)) in paths.into_iter().zip(told) {
        let reader = site.get(path);
        assert_eq!(reader.status, 200, "{reader:?}");
        assert!(
            !reader.body.contains(what) && !reader.body.contains(more),
            "{path}: {reader:?}"
        );
        // The tests are the agent's own user.
        let admin = site.ask_locally("GET", path, &[], "");
        assert!(
            admin.body.contains(what) && admin.body.contains(more),
            "{path}: {admin:?}"
        );
    }
    let map: Heatmap = get(&site, paths[1]);
    let heap = map.rows.iter().find(|row| row.name == "[heap]").unwrap();
    assert_eq!(heap.start, "0x0");
}

#[test]
fn routes_answer_what_the_service_says() {
    let site = Site::start();
    let agent = &site.agent;
    check::<Targets>(&site, "/api/v1/targets", &agent.targets());
    check::<Policies>(&site, "/api/v1/policies", &agent.policies());
    check::<Ledger>(&site, "/api/v1/ledger", &agent.ledger());
    check::<LedgerDays>(&site, "/api/v1/ledger?by=day", &agent.ledger_days(false));
    let with_targets = "/api/v1/ledger?by=day&targets=true";
    check::<LedgerDays>(&site, with_targets, &agent.ledger_days(true));
    check::<Status>(&site, "/api/v1/status", &agent.status());
    let explanation: Explanation = get(&site, "/api/v1/explain?pid=1201");
    assert_eq!(explanation.policy.as_deref(), Some("databases"));
    let all: Decisions = get(&site, "/api/v1/decisions");
    assert_eq!(all, site.agent.decisions(None, None, 0));
    let some: Decisions = get(
        &site,
        "/api/v1/decisions?target=nginx.service&policy=web&after=20",
    );
    assert!(!some.decisions.is_empty() && some.decisions.len() < all.decisions.len());
    assert!(
        some.decisions
            .iter()
            .all(|decision| decision.number > 20 && decision.policy == "web")
    );
}

#[test]
fn past_has_at_most_the_columns_and_rows_asked_for() {
    let site = Site::start();
    let series: Series = get(&site, "/api/v1/history?target=mariadb.service&columns=7");
    assert_eq!(series.points.len(), 7);
    let map: Heatmap = get(
        &site,
        "/api/v1/heatmap?target=redis-server.service&policy=databases&columns=100&rows=100",
    );
    assert_eq!((map.times_ms.len(), map.rows.len()), (100, 100));
    assert!(map.rows.iter().all(|row| row.heat.len() == 100));
    let advice = site.get("/api/v1/advice?target=mariadb.service").json();
    assert_eq!(advice["advice"]["min_age_s"], 300);
}

#[test]
fn invalid_requests_get_a_sentence() {
    let site = Site::start();
    for (status, path, expected) in [
        (
            404,
            "/api/v1/history?target=nothing",
            "there is no target \"nothing\"",
        ),
        (404, "/api/v1/explain?pid=4000000", "there is no process"),
        (404, "/api/v1/nothing", "openapi.json"),
        (404, "/assets/../../etc/passwd", "there is no"),
        (404, "/assets/nothing.js", "no file"),
        (400, "/api/v1/history", "missing field `target`"),
        (400, "/api/v1/explain?pid=-1", "openapi.json"),
        (400, "/api/v1/decisions?limit=1", "unknown field `limit`"),
        (400, "/api/v1/history?target=x&columns=0", "give 1 to 2000"),
        (
            400,
            "/api/v1/heatmap?target=x&columns=2000&rows=2000",
            "4000000 cells",
        ),
        (400, "/api/v1/history?target=x&from_ms=5&to_ms=5", "earlier begin"),
    ] {
        let answer = site.get(path);
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        assert!(answer.error().contains(expected), "{path}: {answer:?}");
    }
    assert_eq!(site.ask("DELETE", "/api/v1/targets", &[], "").status, 405);
    assert_eq!(site.ask("POST", "/", &[], "").status, 405);
}

#[test]
fn orders_reach_the_agent() {
    let site = Site::start();
    let post = |path: &str, body: &str| {
        site.ask_locally("POST", path, &[("Content-Type", "application/json")], body)
            .status
    };
    let policy = |name: &str| {
        let policies = site.agent.policies().policies;
        policies.into_iter().find(|policy| policy.name == name).unwrap()
    };
    assert_eq!(post("/api/v1/policies/web/pause", ""), 204);
    assert!(policy("web").paused && !policy("databases").paused);
    assert_eq!(post("/api/v1/policies/web/resume", ""), 204);
    assert!(!policy("web").paused);
    assert_eq!(post("/api/v1/pause", ""), 204);
    assert!(policy("web").paused && policy("databases").paused);
    assert_eq!(post("/api/v1/resume", ""), 204);
    assert!(!policy("databases").paused);
    assert_eq!(post("/api/v1/policies/web/mode", r#"{"mode":"act"}"#), 204);
    assert_eq!(policy("web").mode, Mode::Act);
    assert_eq!(post("/api/v1/reload", ""), 204);
    assert_eq!(post("/api/v1/policies/batch/mode", r#"{"mode":"act"}"#), 400);
    assert_eq!(post("/api/v1/policies/nothing/pause", ""), 404);
    assert_eq!(post("/api/v1/policies/%ff/pause", ""), 400);
    for body in [
        "",
        "{",
        "{}",
        r#"{"mode":"kill"}"#,
        r#"{"mode":"act","more":1}"#,
        "[1]",
    ] {
        assert_eq!(post("/api/v1/policies/web/mode", body), 400, "{body}");
    }
    let form = site.ask_locally("POST", "/api/v1/policies/web/mode", &[], r#"{"mode":"act"}"#);
    assert!(
        form.status == 400 && form.error().contains("Content-Type"),
        "{form:?}"
    );
}

#[test]
fn health_says_whether_every_policy_runs() {
    let site = Site::start();
    assert_eq!(site.get("/healthz").status, 200);
    assert_eq!(site.get("/readyz").status, 200);
    let fresh = thermo_fake_agent::FakeAgent::new(0);
    let config = thermo_web::ServerConfig {
        listen: Some("127.0.0.1:0".parse().unwrap()),
        ..Default::default()
    };
    let server = thermo_web::Server::start(config, fresh).unwrap();
    let stream = std::net::TcpStream::connect(server.address().unwrap()).unwrap();
    let answer = support::exchange(stream, &support::request("GET", "/readyz", &[], ""));
    assert_eq!(answer.status, 503);
}

#[test]
fn dashboard_is_served_once_and_then_known() {
    let site = Site::start();
    assert_eq!(site.get("/").body.as_bytes(), ASSETS[0].bytes);
    for asset in ASSETS {
        let path = format!("/assets/{}", asset.name);
        let answer = site.get(&path);
        assert_eq!(answer.status, 200, "{path}");
        assert!(
            answer
                .headers
                .contains(&format!("content-type: {}", asset.content_type))
        );
        for header in [
            "content-security-policy: default-src 'self'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cache-control: no-cache",
        ] {
            assert!(answer.headers.contains(header), "{path}: {}", answer.headers);
        }
        assert!(!answer.headers.contains("access-control"), "{}", answer.headers);
        let tag = answer
            .headers
            .split("etag: ")
            .nth(1)
            .unwrap()
            .lines()
            .next()
            .unwrap();
        let again = site.ask("GET", &path, &[("If-None-Match", tag)], "");
        assert!(again.status == 304 && again.body.is_empty(), "{again:?}");
    }
    let size: usize = ASSETS.iter().map(|asset| asset.bytes.len()).sum();
    assert!(size <= 300_000, "the dashboard has {size} bytes");
}

#[test]
fn stream_goes_on_after_the_last_decision_of_a_client() {
    let site = Site::start();
    let decisions = site.agent.decisions(None, None, 0).decisions;
    let last = decisions[decisions.len() - 3].number.to_string();
    let mut stream = site.connect();
    let text = support::request("GET", "/api/v1/stream", &[("Last-Event-ID", &last)], "");
    stream.write_all(text.as_bytes()).unwrap();
    let lines = BufReader::new(stream).lines().map(Result::unwrap);
    let ids: Vec<String> = lines.filter(|line| line.starts_with("id: ")).take(2).collect();
    let newest = decisions[decisions.len() - 1].number;
    assert_eq!(ids, [format!("id: {}", newest - 1), format!("id: {newest}")]);
}

#[test]
fn document_and_reference_have_every_route() {
    let site = Site::start();
    let document = site.get("/api/v1/openapi.json").json();
    assert_eq!(document, serde_json::to_value(thermo_web::openapi()).unwrap());
    let reference = include_str!("../../../docs/reference/api.md");
    let paths = document["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 20);
    for (path, methods) in paths {
        assert!(
            reference.contains(&format!("`{path}`")),
            "docs/reference/api.md lacks {path}"
        );
        // Streams do not end: tests/client.rs reads one.
        for method in methods
            .as_object()
            .unwrap()
            .keys()
            .filter(|_| !path.ends_with("/stream"))
        {
            let path = path.replace("{name}", "web");
            let answer = site.ask(&method.to_uppercase(), &path, &[], "");
            assert!(![404, 405].contains(&answer.status), "{path}: {answer:?}");
        }
    }
    for name in [
        "Targets",
        "Policies",
        "Decisions",
        "Ledger",
        "LedgerDays",
        "Status",
        "Explanation",
        "Series",
        "Heatmap",
        "Change",
    ] {
        assert!(
            document["components"]["schemas"][name].is_object(),
            "no schema of {name}"
        );
    }
}
