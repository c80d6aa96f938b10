#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::path::Path;

use thermo_engine::Action;
use thermo_engine::budget::CpuShare;
use thermo_units::{Bytes, Nanos, Permille, SharePerMinute};

use super::*;

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(text, Path::new("/nonexistent")).map_err(|error| error.to_string())
}

const ONE: &str = "[[policy]]\nname = \"a\"\nmatch = { command = \"a\" }\n";

#[test]
fn defaults_are_safe() {
    let config = parse("").unwrap();
    assert_eq!((config.budget, config.policies.len()), (CpuShare(10_000), 0));
    assert_eq!(config.http.socket, Path::new("/run/thermo/agent.sock"));
    assert_eq!(config.http.listen, None);
    let history = config.history.unwrap();
    assert_eq!(
        (history.keep, history.max_size),
        (Nanos::secs(604_800), Bytes::gib(1))
    );
    let policy = parse(ONE).unwrap().policies.remove(0);
    assert_eq!((policy.mode, policy.schemes.len()), (Mode::Observe, 0));
    assert_eq!(policy.bounds, Bounds::default());
}

#[test]
fn policy_has_all_that_is_given() {
    let text = r#"
budget = "0.5%"
[guard]
max_refaults = "3%/min"
max_stall = "5%"
[[policy]]
name = "databases"
match = { unit = ["mariadb", "redis-*.service"], user = "0" }
mode = "act"
preset = "reclaim"
min_age = "30s"
target_name = "{unit}/{command}"
guard = { max_stall = "2%", resume_after = "1m" }
"#;
    let config = parse(text).unwrap();
    let policy = &config.policies[0];
    assert_eq!(policy.rule.text(), "unit mariadb or redis-*.service, user 0");
    assert_eq!(policy.bounds.max_refaults, SharePerMinute(30_000));
    assert_eq!(
        (policy.bounds.max_stall, policy.bounds.resume_after),
        (Permille(20), Nanos::secs(60))
    );
    assert_eq!(policy.schemes[0].action, Action::Pageout);
    assert_eq!(policy.schemes[0].auto_age, None);
    let identity = Identity {
        command: "x".to_owned(),
        ..Identity::default()
    };
    assert_eq!(policy.target_name.of(&identity), "/x");
}

#[test]
fn presets_are_schemes() {
    let actions = |preset: &str| {
        let text = format!("{ONE}mode = \"act\"\npreset = \"{preset}\"\n");
        let schemes = parse(&text).unwrap().policies.remove(0).schemes;
        schemes
            .iter()
            .map(|scheme| (scheme.action, scheme.auto_age.is_some()))
            .collect::<Vec<_>>()
    };
    assert_eq!(actions("reclaim"), [(Action::Pageout, true)]);
    assert_eq!(
        actions("lru-sort"),
        [(Action::LruPrio, false), (Action::LruDeprio, false)]
    );
    assert!(actions("huge-pages").contains(&(Action::Collapse, false)));
    assert_eq!(
        actions("tier\"\nfast = 0\nslow = 1\ncool_down = \"30s"),
        [
            Action::MigrateHot,
            Action::MigrateCold,
            Action::MigrateHot,
            Action::MigrateCold
        ]
        .map(|action| (action, false))
    );
}

#[test]
fn memory_that_was_moved_cools_down() {
    let cool_down = |keys: &str| {
        let text = format!("{ONE}mode = \"act\"\npreset = \"tier\"\nfast = 0\nslow = 2\n{keys}");
        parse(&text).unwrap().policies.remove(0).cool_down
    };
    assert_eq!(cool_down(""), Nanos::secs(60));
    assert_eq!(cool_down("cool_down = \"5m\"\n"), Nanos::secs(300));
}

#[test]
fn mistakes_have_position_and_way_out() {
    for (text, expected) in [
        ("[[policy]]\nname = \"a\"\n", "1:1: missing field `match`"),
        ("speed = 3\n", "1:1: unknown field `speed`"),
        ("budget = \"much\"\n", "1:10: \"much\" is not a share of a CPU"),
        (
            &format!("{ONE}mode = \"active\"\n"),
            "4:8: \"active\" is not a mode: use observe, dry-run or act",
        ),
        (
            &format!("{ONE}mode = \"act\"\n"),
            "4:8: mode act needs something to do",
        ),
        (
            &format!("{ONE}preset = \"fast\"\n"),
            "4:10: \"fast\" is not a preset",
        ),
        (
            &format!("{ONE}preset = \"tier\"\nfast = 0\n"),
            "4:10: preset tier needs its memory nodes",
        ),
        (
            &format!("{ONE}preset = \"tier\"\nfast = 1\nslow = 1\n"),
            "4:10: node 1 is both",
        ),
        (
            &format!("{ONE}preset = \"reclaim\"\nslow = 1\n"),
            "5:8: fast, slow, fast_used and cool_down belong to preset",
        ),
        (
            &format!("{ONE}min_age = \"30s\"\n"),
            "4:11: min_age and max_refaults belong to preset",
        ),
        (
            &format!("{ONE}preset = \"reclaim\"\nmin_age = \"30\"\n"),
            "5:11: ",
        ),
        (
            &format!("{ONE}preset = \"reclaim\"\nmin_age = \"30s\"\nmax_refaults = \"1%/min\"\n"),
            "6:16: max_refaults is the bound of an automatic age",
        ),
        (
            &format!("{ONE}preset = \"reclaim\"\nmax_refaults = \"1%\"\n"),
            "5:16: ",
        ),
        (
            &format!("{ONE}schemes = \"none.toml\"\n"),
            "4:11: cannot read /nonexistent/none.toml",
        ),
        (&format!("{ONE}{ONE}"), "5:8: a policy \"a\" is in line 2 already"),
        (
            &format!("{ONE}{}", ONE.replace("name = \"a\"", "name = \"b\"")),
            "6:9: policy \"b\" matches the same processes as \"a\" (line 2)",
        ),
        (
            &ONE.replace("{ command = \"a\" }", "{}"),
            "3:9: a policy matches something",
        ),
        (&ONE.replace("\"a\" }", "\"[\" }"), "3:21: "),
        (
            &ONE.replace("command = \"a\"", "user = \"nobody-there\""),
            "3:18: no user \"nobody-there\"",
        ),
        (
            &ONE.replace("name = \"a\"", "name = \"a/b\""),
            "2:8: a policy's name has letters",
        ),
        (
            &format!("{ONE}target_name = \"{{pid}}\"\n"),
            "4:15: a target's name is a text with {unit}",
        ),
        ("[http]\nlisten = \"9402\"\n", "2:10: give an address and a port"),
        ("[http]\nkey = \"k.pem\"\n", "2:7: TLS needs both"),
        (
            "[http]\nhosts = [\"a.example\", \"a.example:9402\"]\n",
            "2:23: \"a.example:9402\" is not a host name: give one like server.example",
        ),
        (
            "[http]\nhosts = [\"*.example\"]\n",
            "2:10: \"*.example\" is not a host name",
        ),
        ("[http]\nhosts = [\"\"]\n", "2:10: \"\" is not a host name"),
        ("[http]\nhosts = \"a\"\n", "2:9: invalid type: string"),
        (
            "[history]\nevery = \"1ms\"\n",
            "2:9: snapshots are at least a second apart",
        ),
        ("[history]\nmax_size = \"1M\"\n", "2:12: the history needs room"),
        ("[guard]\nmax_stall = \"much\"\n", "2:13: "),
        (
            "[export]\nevery = \"1500ms\"\n",
            "2:9: an interval lasts whole seconds",
        ),
        (
            "[export]\nevery = \"7m\"\n",
            "2:9: a file holds whole intervals: give a `window` that is a multiple of `every`, which is 7 m",
        ),
        (
            "[export]\nwindow = \"90s\"\n",
            "2:10: a file holds whole intervals",
        ),
        (
            "[export]\ncluster = \"eu/west\"\n",
            "2:11: the name becomes part of file names",
        ),
        (
            "[export]\nnode = \".n\"\n",
            "2:8: the name becomes part of file names",
        ),
        ("[export]\nto = \"s3://x\"\n", "2:1: unknown field `to`"),
    ] {
        let error = parse(text).expect_err(text);
        assert!(error.starts_with(expected), "{text}\n{error}");
    }
}

#[test]
fn export_is_off_and_has_defaults() {
    assert_eq!(parse("").unwrap().export, None);
    let export = parse("state_dir = \"/s\"\n[export]\n").unwrap().export.unwrap();
    assert_eq!((export.every_ms(), export.window_ms()), (300_000, 3_600_000));
    assert_eq!(export.folder, Path::new("/s/export"));
    assert_eq!(
        (export.max_size, export.cluster.as_str()),
        (Some(Bytes::mib(256)), "default")
    );
    assert!(!export.node.is_empty());
    let export = parse("[export]\nevery = \"2h\"\nmax_size = \"0\"\n")
        .unwrap()
        .export
        .unwrap();
    assert_eq!((export.window_ms(), export.max_size), (7_200_000, None));
}

#[test]
fn hosts_are_names() {
    let hosts = |text: &str| parse(text).unwrap().http.hosts;
    assert!(hosts("").is_empty());
    let text = "[http]\nhosts = [\"agent\", \"metrics-1.example\"]\n";
    assert_eq!(hosts(text), ["agent", "metrics-1.example"]);
}

#[test]
fn variable_without_value_matches_any_value() {
    let text = ONE.replace("command = \"a\"", "env = \"TIER\"");
    let rule = parse(&text).unwrap().policies.remove(0).rule;
    let identity = |entry: &str| Identity {
        environment: vec![entry.to_owned()],
        ..Identity::default()
    };
    assert!(rule.check(&identity("TIER=/a/b")).is_ok());
    assert!(rule.check(&identity("TIERS=a")).is_err());
}

/// serde names the keys that it knows in the error about one that it does not know.
#[test]
fn guide_has_every_key() {
    let guide = include_str!("../../../../docs/guide/agent.md");
    let policy = |rest: &str| format!("[[policy]]\nname = \"a\"\n{rest}");
    let sections = [
        "x = 1".to_owned(),
        "[history]\nx = 1".to_owned(),
        "[http]\nx = 1".to_owned(),
        "[guard]\nx = 1".to_owned(),
        "[kubernetes]\nx = 1".to_owned(),
        policy("match = {}\nx = 1"),
        policy("match = { x = 1 }"),
    ];
    for section in sections {
        let error = parse(&section).unwrap_err();
        let (_, keys) = error.split_once("expected one of ").unwrap();
        let keys: Vec<&str> = keys.split('`').skip(1).step_by(2).collect();
        assert!(keys.len() >= 4, "{error}");
        for key in keys {
            let names = [format!("`{key}`"), format!("`[{key}]`"), format!("`[[{key}]]`")];
            let is_named = names.iter().any(|name| guide.contains(name));
            assert!(is_named, "docs/guide/agent.md lacks {key}");
        }
    }
}

#[test]
fn what_a_process_calls_itself_is_text_in_names_of_targets() {
    let name = |pattern: &str, command: &str, exe: &str| {
        let config = parse(&format!("{ONE}target_name = \"{pattern}\"\n")).unwrap();
        config.policies[0].target_name.of(&Identity {
            command: command.to_owned(),
            exe: exe.to_owned(),
            ..Identity::default()
        })
    };
    assert_eq!(name("{command}", "{exe}{uid}", "/x"), "{exe}{uid}");
    assert_eq!(name("{command}-{exe}", "{exe}", "/{command}"), "{exe}-/{command}");
    let path = format!("/{}", "ä/".repeat(1300));
    let (one, other) = (name("{exe}", "c", &path), name("{exe}", "c", &format!("{path}x")));
    assert!(one.len() <= 256 && other.len() <= 256, "{} bytes", one.len());
    assert_ne!(one, other, "names that begin alike stay apart");
    assert_eq!(one, name("{exe}", "c", &path), "and are the same at each look");
    let repeated = "{exe}".repeat(800);
    assert!(name(&repeated, "c", &path).len() <= 256);
}
