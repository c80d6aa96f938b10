#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use super::*;
use crate::lifecycle::Profile;
use thermo_units::Bytes;

#[test]
fn the_defaults_are_androids() {
    let config = Config::parse("[[app]]\nname = \"a\"\ncgroup = \"/a\"\n").unwrap();
    let app = &config.apps[0];
    assert_eq!(app.rules, Rules::default());
    assert_eq!(
        (app.rules.min_anon_rss, app.rules.min_change),
        (Bytes::mib(12), Bytes::mib(8))
    );
    assert_eq!(app.rules.swap_low, Permille(200));
    let throttle = app.rules.throttle;
    let intervals = [
        throttle.some_some,
        throttle.some_full,
        throttle.full_some,
        throttle.full_full,
    ];
    assert_eq!(
        intervals,
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
fn every_key_is_taken() {
    let text = "socket = \"/run/x\"\nduty = \"50%\"\npoll = \"1s\"\n\
        [[app]]\nname = \"a\"\npid = 7\nprofile = \"anon\"\nbackground = \"some\"\nprefetch = true\n\
        idle_after = \"5m\"\nidle_touched = \"2%\"\nsome_some = \"1s\"\nsome_full = \"2s\"\nfull_some = \"3s\"\n\
        full_full = \"4s\"\nmin_anon_rss = \"1M\"\nmin_change = \"2M\"\nswap_low = \"10%\"\n\
        [[app]]\nname = \"b\"\nunit = \"redis\"\nbackground = \"none\"\n\
        [[app]]\nname = \"c\"\ncommand = \"^java .*ide\"\n";
    let config = Config::parse(text).unwrap();
    assert_eq!(config.socket.as_deref(), Some(Path::new("/run/x")));
    assert_eq!((config.duty, config.poll), (Permille(500), Nanos::secs(1)));
    let [a, b, c] = &config.apps[..] else {
        panic!("{config:?}")
    };
    assert_eq!(
        (&a.target, &b.target),
        (&Target::Pid(7), &Target::Unit("redis".to_owned()))
    );
    assert_eq!(
        (a.rules.profile, a.rules.background, a.rules.prefetch),
        (Profile::Anon, Some(Profile::Some), true)
    );
    assert_eq!(
        (a.rules.throttle.full_full, a.rules.swap_low),
        (Nanos::secs(4), Permille(100))
    );
    assert_eq!(
        (a.idle_after, a.idle_touched),
        (Some(Nanos::secs(300)), Permille(20))
    );
    assert!(matches!(&c.target, Target::Command(pattern) if pattern.is_match("java -jar ide.jar")));
}

#[test]
fn mistakes_have_a_place_and_a_way_out() {
    let a = "[[app]]\nname = \"a\"\n";
    for (text, place, says) in [
        (String::new(), (1, 1), "no application is described"),
        ("apps = 1\n".to_owned(), (1, 1), "unknown field"),
        ("[[app]\n".to_owned(), (1, 7), ""),
        (format!("duty = \"0%\"\n{a}pid = 7\n"), (1, 8), "give 1%"),
        (format!("poll = \"1us\"\n{a}pid = 7\n"), (1, 8), "10ms"),
        (a.to_owned(), (1, 1), "Give one of pid"),
        (format!("{a}pid = 7\ncgroup = \"/a\"\n"), (1, 1), "keep one"),
        (format!("{a}pid = 1\n"), (3, 7), "never an application"),
        (format!("{a}cgroup = \"/\"\n"), (3, 10), "whole machine"),
        (format!("{a}command = \"(\"\n"), (3, 11), "unclosed group"),
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
        let fault = Config::parse(&text).unwrap_err();
        assert_eq!((fault.line, fault.column), place, "{text}: {fault}");
        assert!(fault.message.contains(says), "{text}: {fault}");
        assert!(!fault.message.contains('\n'), "{fault:?}");
    }
    let told = Config::read(Path::new("/no/such/file")).unwrap_err().to_string();
    assert!(told.contains("cannot read /no/such/file"), "{told}");
}

#[test]
fn groups_side_by_side_are_no_claim() {
    let text = "[[app]]\nname = \"a\"\ncgroup = \"/x/a\"\n[[app]]\nname = \"b\"\ncgroup = \"/x/ab\"\n";
    assert_eq!(Config::parse(text).unwrap().apps.len(), 2);
}
