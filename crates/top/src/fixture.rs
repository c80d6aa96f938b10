//! Made-up figures for the tests of the model and the view.

use thermo_agent::api::{
    AgeBytes, Decision, DecisionKind, Heatmap, HeatmapRow, KindAges, Mode, Point, Policies, Policy, Target,
    Targets,
};
use thermo_engine::access_tables::AGE_EDGES_S;

use crate::model::{Answer, Detail, Model, id_of};
use crate::source::Facts;

const MIB: u64 = 1 << 20;
/// 2026-11-26 12:00:00 UTC.
pub(crate) const NOON_MS: u64 = 1_795_694_400_000;

fn ages(mib: [u64; 15]) -> Vec<AgeBytes> {
    let age = |(nth, mib): (usize, u64)| AgeBytes {
        min_s: AGE_EDGES_S[nth],
        max_s: AGE_EDGES_S.get(nth + 1).copied(),
        bytes: mib * MIB,
    };
    mib.into_iter().enumerate().map(age).collect()
}

fn target(name: &str, policy: &str, mode: Mode, scale: u64) -> Target {
    let anon = [40, 2, 3, 5, 11, 13, 30, 41, 17, 90, 60, 0, 0, 0, 0].map(|mib| mib * scale);
    let file = [4, 0, 1, 2, 0, 6, 7, 0, 19, 0, 0, 0, 0, 0, 0].map(|mib| mib * scale);
    let sum: [u64; 15] = std::array::from_fn(|nth| anon[nth] + file[nth]);
    let kind = |kind: &str, mib| KindAges {
        kind: kind.to_owned(),
        ages: ages(mib),
    };
    Target {
        name: name.to_owned(),
        policy: policy.to_owned(),
        mode,
        pids: vec![4242, 4243],
        resident_bytes: (sum.iter().sum::<u64>() + 12) * MIB,
        swap_bytes: 33 * MIB * scale,
        unknown_bytes: 12 * MIB,
        working_set_bytes: sum[..6].iter().sum::<u64>() * MIB,
        ages: ages(sum),
        kinds: vec![kind("anon", anon), kind("file", file)],
        reaccess: ages([0, 100, 40, 20, 9, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0]),
        net_saved_bytes: 31 * MIB as i64 * scale as i64,
        refault_bytes_per_min: 4096 * scale,
        pass_s: Some(1.25),
        suspended: None,
        resumes_at_ms: None,
    }
}

fn policy(name: &str, mode: Mode) -> Policy {
    Policy {
        name: name.to_owned(),
        mode,
        configured_mode: mode,
        matches: format!("systemd unit {name}*.service"),
        does: vec!["pageout of anonymous memory idle for at least 2 min, at most 64 MiB/s".to_owned()],
        targets: 2,
        processes: 4,
        guard: vec![
            "refaults at most 8 MiB/min".to_owned(),
            "free swap at least 10 %".to_owned(),
        ],
        ..Policy::default()
    }
}

/// Four targets of two policies; `database` is suspended.
pub(crate) fn lists() -> (Targets, Policies) {
    let why = "refaults of 12 MiB/min exceed the bound of 8 MiB/min";
    let mut database = policy("database", Mode::Act);
    database.suspended = Some(why.to_owned());
    database.resumes_at_ms = Some(NOON_MS + 90_000);
    let mut mariadb = target("mariadb.service", "database", Mode::Act, 4);
    mariadb.suspended = Some(why.to_owned());
    let mut cache = target(
        "redis-server@cache-of-the-web-shop.service",
        "cache",
        Mode::DryRun,
        2,
    );
    cache.net_saved_bytes = -3 * MIB as i64;
    let targets = Targets {
        schema: 1,
        time_ms: NOON_MS,
        targets: vec![
            cache,
            mariadb,
            target("nginx.service", "web", Mode::Observe, 1),
            target("cron.service", "web", Mode::Observe, 0),
        ],
    };
    let mut web = policy("web", Mode::Observe);
    web.paused = true;
    let policies = vec![database, policy("cache", Mode::DryRun), web];
    (targets, Policies { schema: 1, policies })
}

fn heatmap(columns: usize) -> Heatmap {
    let row = |nth: u64| HeatmapRow {
        pid: 4242,
        start: format!("{:#x}", nth << 24),
        end: format!("{:#x}", (nth + 1) << 24),
        name: ["mariadbd", "[heap]", "[anon]", "libc.so.6"][nth as usize / 5].to_owned(),
        heat: (0..columns)
            .map(|column| match (column, nth) {
                (0..10, _) => -1,
                (_, 5..=8) => 100,
                (column, 10) => (column % 100) as i8,
                (_, 15..) => 3,
                _ => 0,
            })
            .collect(),
    };
    Heatmap {
        schema: 1,
        times_ms: (0..columns as u64)
            .map(|column| NOON_MS - 3_600_000 + column * 60_000)
            .collect(),
        rows: (0..20).map(row).collect(),
    }
}

fn decisions() -> Vec<Decision> {
    let decision = |number: u64, kind, action: &str, mib: u64, why: &str| Decision {
        number,
        time_ms: NOON_MS - 100_000 + number * 10_000,
        policy: "database".to_owned(),
        target: Some("mariadb.service".to_owned()),
        kind,
        action: action.to_owned(),
        bytes: mib * MIB,
        why: why.to_owned(),
    };
    vec![
        decision(
            1,
            DecisionKind::AgeChosen,
            "",
            0,
            "2 min: at this age 0.1 % of the working set comes back in a minute",
        ),
        decision(2, DecisionKind::Acted, "pageout", 64, "idle for at least 2 min"),
        decision(
            3,
            DecisionKind::Skipped,
            "pageout",
            7,
            "young: accessed since the scan",
        ),
        decision(
            4,
            DecisionKind::Suspended,
            "",
            0,
            "refaults of 12 MiB/min exceed the bound of 8 MiB/min",
        ),
    ]
}

/// What an agent answers, with the detail of `mariadb.service`.
pub(crate) fn answer() -> Answer {
    let lists = lists();
    let target = id_of(&lists.0.targets[1]);
    let point = |minute: u64| Point {
        time_ms: NOON_MS - 3_600_000 + minute * 60_000,
        resident_bytes: 1000 * MIB,
        swap_bytes: 0,
        ages: ages([
            900 - minute * 10,
            0,
            0,
            0,
            0,
            0,
            100 + minute * 10,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
        ]),
    };
    Answer {
        list: Ok(lists),
        detail: Some(Ok(Detail {
            target,
            decisions: decisions(),
            heatmap: Ok(heatmap(60)),
            points: (0..60).map(point).collect(),
        })),
        order: None,
    }
}

/// A model with the figures of an agent.
pub(crate) fn agent() -> Model {
    let mut model = Model::new(Facts {
        title: "agent at /run/thermo/agent.sock".to_owned(),
        times_ms: Vec::new(),
        is_agent: true,
    });
    model.receive(answer());
    model
}

/// A model of a replay of the hour before noon.
pub(crate) fn replay() -> Model {
    let mut model = Model::new(Facts {
        title: "replay of thermo.arrow".to_owned(),
        times_ms: (0..=60)
            .map(|minute| NOON_MS - 3_600_000 + minute * 60_000)
            .collect(),
        is_agent: false,
    });
    model.receive(answer());
    model
}
