#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use super::*;
use crate::lifecycle::Profile;
use thermo_units::Bytes;

#[test]
fn config_defaults_are_those_of_android() {
    let config = Config::parse("[[app]]\nname = \"a\"\ncgroup = \"/a\"\n").unwrap();
    let app = &config.apps[0];
    assert_eq!(app.rules, Rules::default());
    assert_eq!(
        (app.rules.min_anon_rss, app.rules.min_change),
        (Bytes::mib(12), Bytes::mib(8))
    );
    assert_eq!(app.rules.swap_low, Permille(200));
    let min = app.rules.min_intervals;
    assert_eq!(
        [min.some_some, min.some_full, min.full_some, min.full_full],
        [
            Nanos::secs(5),
            Nanos::secs(10),
            Nanos::millis(500),
            Nanos::secs(10)
        ]
    );
    assert_eq!((config.duty, app.idle_after), (Permille(250), None));
}

#[test]
fn config_reads_every_key() {
    let text = "socket = \"/run/x\"\nduty = \"50%\"\npoll = \"1s\"\n\
        [[app]]\nname = \"a\"\npid = 7\nprofile = \"anon\"\nbackground = \"some\"\nprefetch = true\n\
        idle_after = \"5m\"\nidle_touched = \"2%\"\nsome_some = \"1s\"\nsome_full = \"2s\"\nfull_some = \"3s\"\n\
        full_full = \"4s\"\nmin_anon_rss = \"1M\"\nmin_change = \"2M\"\nswap_low = \"10%\"\n\
        [[app]]\nname = \"b\"\nunit = \"redis\"\nuser = 5\nbackground = \"none\"\n\
        [[app]]\nname = \"c\"\ncommand = \"^java .*ide\"\nuser = 1000\n\
        [[app]]\nname = \"d\"\ncommand = \"^/usr/sbin/d\"\nuser = \"root\"\n\
        [[app]]\nname = \"e\"\ncommand = \"^/usr/bin/e\"\n";
    let config = Config::parse(text).unwrap();
    assert_eq!(config.socket.as_deref(), Some(Path::new("/run/x")));
    assert_eq!((config.duty, config.poll), (Permille(500), Nanos::secs(1)));
    let [a, b, commands @ ..] = &config.apps[..] else {
        panic!("{config:?}")
    };
    assert_eq!(
        (&a.target, &b.target),
        (
            &Target::Pid(7),
            &Target::Unit {
                unit: "redis".to_owned(),
                uid: 5
            }
        )
    );
    assert_eq!(
        (a.rules.profile, a.rules.background, a.rules.prefetch),
        (Profile::Anon, Some(Profile::Some), true)
    );
    assert_eq!(
        (a.rules.min_intervals.full_full, a.rules.swap_low),
        (Nanos::secs(4), Permille(100))
    );
    assert_eq!(
        (a.idle_after, a.idle_touched),
        (Some(Nanos::secs(300)), Permille(20))
    );
    let commands = commands.iter().map(|app| match &app.target {
        Target::Command(command) => (command.pattern.as_str(), command.uid),
        target => panic!("{target:?}"),
    });
    let own = rustix::process::geteuid().as_raw();
    assert_eq!(
        commands.collect::<Vec<_>>(),
        [("^java .*ide", 1000), ("^/usr/sbin/d", 0), ("^/usr/bin/e", own)]
    );
}

#[test]
fn config_errors_have_position_and_remedy() {
    let a = "[[app]]\nname = \"a\"\n";
    for (text, position, expected) in [
        (String::new(), (1, 1), "has no application"),
        ("apps = 1\n".to_owned(), (1, 1), "unknown field"),
        ("[[app]\n".to_owned(), (1, 7), ""),
        (format!("duty = \"0%\"\n{a}pid = 7\n"), (1, 8), "give 0.1%"),
        (format!("poll = \"1us\"\n{a}pid = 7\n"), (1, 8), "10ms"),
        (a.to_owned(), (1, 1), "give one of pid"),
        (format!("{a}pid = 7\ncgroup = \"/a\"\n"), (1, 1), "keep one"),
        (format!("{a}pid = 1\n"), (3, 7), "cannot be an application"),
        (format!("{a}cgroup = \"/\"\n"), (3, 10), "whole machine"),
        (format!("{a}command = \"(\"\n"), (3, 11), "unclosed group"),
        (
            format!("{a}pid = 7\nuser = 5\n"),
            (4, 8),
            "user applies to unit and command",
        ),
        (
            format!("{a}command = \"x\"\nuser = \"no such\"\n"),
            (4, 8),
            "give the user ID",
        ),
        (
            format!("{a}command = \"x\"\nuser = -1\n"),
            (4, 8),
            "a user ID or name",
        ),
        (
            format!("{a}pid = 7\nprofile = \"most\"\n"),
            (4, 11),
            "use full, anon, file or some",
        ),
        (
            format!("{a}pid = 7\nmin_change = \"8 quarts\"\n"),
            (4, 14),
            "quarts",
        ),
        (
            format!("{a}pid = 7\nidle_after = \"1ms\"\n"),
            (4, 14),
            "1s or more",
        ),
        (format!("{a}pid = 7\n{a}pid = 8\n"), (5, 8), "line 1 already"),
        (
            format!("{a}pid = 7\n[[app]]\nname = \"b\"\npid = 7\n"),
            (6, 7),
            "give each its own",
        ),
        (
            format!("{a}cgroup = \"/x\"\n[[app]]\nname = \"b\"\ncgroup = \"x/\"\n"),
            (6, 10),
            "\"a\" (line 1)",
        ),
        (
            format!("{a}cgroup = \"/x/y\"\n[[app]]\nname = \"b\"\ncgroup = \"/sys/fs/cgroup/memory/x\"\n"),
            (6, 10),
            "claims",
        ),
        (
            format!("{a}unit = \"u\"\n[[app]]\nname = \"b\"\nunit = \"u\"\n"),
            (6, 8),
            "claims",
        ),
        ("[[app]]\nname = \"\"\npid = 7\n".to_owned(), (2, 8), "1 to 80"),
    ] {
        let error = Config::parse(&text).unwrap_err();
        assert_eq!((error.line, error.column), position, "{text}: {error}");
        assert!(error.message.contains(expected), "{text}: {error}");
        assert!(!error.message.contains('\n'), "{error:?}");
    }
    let error = Config::read(Path::new("/no/such/file")).unwrap_err().to_string();
    assert!(error.contains("cannot read /no/such/file"), "{error}");
}

#[test]
fn config_accepts_sibling_groups() {
    let text = "[[app]]\nname = \"a\"\ncgroup = \"/x/a\"\n[[app]]\nname = \"b\"\ncgroup = \"/x/ab\"\n";
    assert_eq!(Config::parse(text).unwrap().apps.len(), 2);
}
