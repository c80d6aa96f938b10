//! Commands on real processes, without a mount: what each does, and what it says when it cannot.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use common::{CONTEXT, Files, STATE, Sleeper, wait_until};
use thermo_damonfs::Errno;

/// What is written below the context: paths and values.
type Staged = &'static [(&'static str, &'static str)];

#[test]
fn nothing_runs_before_it_is_on() {
    let sleeper = Sleeper::new();
    let files = Files::staged(sleeper.pid());
    for command in [
        "off",
        "commit",
        "commit_schemes_quota_goals",
        "update_schemes_stats",
        "update_schemes_tried_regions",
        "update_schemes_tried_bytes",
        "update_schemes_effective_quotas",
        "update_tuned_intervals",
        "no_such_command",
    ] {
        assert_eq!(files.command(command), Err(Errno::INVAL), "{command}");
    }
    assert_eq!(files.read("admin/kdamonds/0/pid").unwrap(), "-1\n");
    assert_eq!(files.command("clear_schemes_tried_regions"), Ok(27));
}

#[test]
fn what_cannot_be_meant_is_refused_when_it_is_switched_on() {
    let sleeper = Sleeper::new();
    let cases: [(&str, Staged, Errno); 15] = [
        ("no physical memory", &[("operations", "paddr")], Errno::INVAL),
        ("nobody", &[("targets/0/pid_target", "0")], Errno::INVAL),
        ("a negative pid", &[("targets/0/pid_target", "-5")], Errno::INVAL),
        (
            "no such process",
            &[("targets/0/pid_target", "2147483647")],
            Errno::INVAL,
        ),
        (
            "two regions",
            &[("monitoring_attrs/nr_regions/min", "2")],
            Errno::INVAL,
        ),
        (
            "min over max",
            &[("monitoring_attrs/nr_regions/max", "9")],
            Errno::INVAL,
        ),
        (
            "sample over aggr",
            &[("monitoring_attrs/intervals/aggr_us", "4999")],
            Errno::INVAL,
        ),
        (
            "a goal out of bounds",
            &[
                ("monitoring_attrs/intervals/intervals_goal/aggrs", "3"),
                ("monitoring_attrs/intervals/intervals_goal/min_sample_us", "5001"),
                ("monitoring_attrs/intervals/intervals_goal/max_sample_us", "10000"),
            ],
            Errno::INVAL,
        ),
        (
            "a region backwards",
            &[
                ("targets/0/regions/nr_regions", "1"),
                ("targets/0/regions/0/start", "8192"),
            ],
            Errno::INVAL,
        ),
        (
            "an empty region",
            &[("targets/0/regions/nr_regions", "1")],
            Errno::INVAL,
        ),
        (
            "regions that overlap once aligned",
            &[
                ("targets/0/regions/nr_regions", "2"),
                ("targets/0/regions/0/end", "4097"),
                ("targets/0/regions/1/start", "4097"),
                ("targets/0/regions/1/end", "12288"),
            ],
            Errno::INVAL,
        ),
        (
            "an unknown control group",
            &[
                ("schemes/0/ops_filters/nr_filters", "1"),
                ("schemes/0/ops_filters/0/type", "memcg"),
                ("schemes/0/ops_filters/0/memcg_path", "/no/such/group"),
            ],
            Errno::NOMEM,
        ),
        (
            "an address filter backwards",
            &[
                ("schemes/0/core_filters/nr_filters", "1"),
                ("schemes/0/core_filters/0/type", "addr"),
                ("schemes/0/core_filters/0/addr_start", "1"),
            ],
            Errno::NOMEM,
        ),
        (
            "huge pages backwards",
            &[
                ("schemes/0/filters/nr_filters", "1"),
                ("schemes/0/filters/0/type", "hugepage_size"),
                ("schemes/0/filters/0/min", "1"),
            ],
            Errno::NOMEM,
        ),
        ("ourselves", &[], Errno::INVAL),
    ];
    for (what, writes, errno) in cases {
        let files = Files::staged(sleeper.pid());
        if what == "ourselves" {
            files.context("targets/0/pid_target", std::process::id());
        }
        for (path, text) in writes {
            files.context(path, text);
        }
        assert_eq!(files.command("on"), Err(errno), "{what}");
        assert!(!files.is_on(), "{what}");
    }
    let files = Files::staged(sleeper.pid());
    files.set("admin/kdamonds/0/contexts/nr_contexts", 0);
    assert_eq!(files.command("on"), Err(Errno::INVAL), "no context");
}

#[test]
fn what_means_nothing_is_taken_and_does_nothing() {
    let sleeper = Sleeper::new();
    let files = Files::staged(sleeper.pid());
    files.context("schemes/0/access_pattern/sz/min", 9);
    files.context("schemes/0/access_pattern/sz/max", 8);
    files.context("schemes/0/core_filters/nr_filters", 1);
    files.context("schemes/0/core_filters/0/type", "addr");
    files.context("schemes/0/quotas/goals/nr_goals", 1);
    files.context("schemes/0/quotas/goals/0/nid", -3);
    assert_eq!(files.command("on"), Ok(2));
    assert_eq!(files.command("update_schemes_tried_bytes"), Ok(26));
    assert_eq!(
        files.number(&format!("{CONTEXT}/schemes/0/tried_regions/total_bytes")),
        0
    );
    assert_eq!(files.command("off"), Ok(3));
}

#[test]
fn on_commit_tried_regions_off() {
    let sleeper = Sleeper::new();
    let files = Files::staged(sleeper.pid());
    assert_eq!(files.command("on\n"), Ok(3));
    assert!(files.is_on());
    assert!(files.number("admin/kdamonds/0/pid") > 0);
    assert_eq!(files.command("on"), Err(Errno::BUSY));
    assert_eq!(files.write("admin/kdamonds/nr_kdamonds", "1"), Err(Errno::BUSY));
    let tried = format!("{CONTEXT}/schemes/0/tried_regions");
    // Before the first update of the targets there may be no regions yet.
    wait_until("there are regions", || {
        files.command("update_schemes_tried_regions").unwrap();
        files.read(&format!("{tried}/0/start")).is_ok()
    });
    let (mut total, mut before) = (0, 0);
    for nth in 0.. {
        let Ok(start) = files.read(&format!("{tried}/{nth}/start")) else {
            break;
        };
        let (start, end): (u64, u64) = (
            start.trim().parse().unwrap(),
            files.number(&format!("{tried}/{nth}/end")),
        );
        assert!(before <= start && start < end, "ascending");
        (total, before) = (total + end - start, end);
    }
    assert_eq!(files.number(&format!("{tried}/total_bytes")), total);
    files.command("update_schemes_tried_bytes").unwrap();
    assert!(files.read(&format!("{tried}/0/start")).is_err(), "bytes only");
    assert!(files.number(&format!("{tried}/total_bytes")) > 0);

    files.command("update_schemes_stats").unwrap();
    let stats = format!("{CONTEXT}/schemes/0/stats/nr_tried");
    let nr_tried = files.number(&stats);
    assert!(nr_tried > 0);
    files.context("monitoring_attrs/nr_regions/min", 2);
    assert_eq!(files.command("commit"), Err(Errno::INVAL));
    assert!(files.is_on(), "a bad commit does no harm");
    files.context("monitoring_attrs/nr_regions/min", 20);
    files.context("monitoring_attrs/intervals/sample_us", 7000);
    assert_eq!(files.command("commit"), Ok(6));
    files.context("monitoring_attrs/intervals/sample_us", 1);
    assert_eq!(files.command("update_tuned_intervals"), Ok(22));
    assert_eq!(
        files.number(&format!("{CONTEXT}/monitoring_attrs/intervals/sample_us")),
        7000
    );
    files.command("update_schemes_stats").unwrap();
    assert!(files.number(&stats) >= nr_tried, "statistics survive a commit");
    assert_eq!(files.command("off"), Ok(3));
    assert!(!files.is_on());
    assert_eq!(files.command("off"), Err(Errno::PERM));
    assert_eq!(files.command("on"), Ok(2), "and on again");
    assert_eq!(files.command("off"), Ok(3));
}

#[test]
fn the_target_may_die_in_any_state() {
    let mut sleeper = Sleeper::new();
    let files = Files::staged(sleeper.pid());
    sleeper.kill();
    assert_eq!(files.command("on"), Err(Errno::INVAL), "staged, then gone");

    let mut sleeper = Sleeper::new();
    files.context("targets/0/pid_target", sleeper.pid());
    files.command("on").unwrap();
    sleeper.kill();
    wait_until("it is off by itself", || !files.is_on());
    assert_eq!(files.read("admin/kdamonds/0/pid").unwrap(), "-1\n");
    assert_eq!(files.command("off"), Err(Errno::PERM));
    assert_eq!(files.command("commit"), Err(Errno::INVAL));

    // While somebody waits for what takes two minutes.
    let mut sleeper = Sleeper::new();
    files.context("targets/0/pid_target", sleeper.pid());
    files.context("schemes/0/apply_interval_us", 120_000_000);
    files.command("on").unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| files.command("update_schemes_tried_regions"));
        sleeper.kill();
        let answer = waiting.join().unwrap();
        assert!(
            matches!(answer, Err(Errno::CANCELED | Errno::INVAL)),
            "{answer:?}"
        );
    });
}

#[test]
fn a_long_wait_can_be_ended_by_off_and_is_had_by_one_at_a_time() {
    let sleeper = Sleeper::new();
    let files = Files::staged(sleeper.pid());
    files.context("schemes/0/apply_interval_us", 120_000_000);
    files.command("on").unwrap();
    std::thread::scope(|scope| {
        let waiting = [(); 2].map(|()| scope.spawn(|| files.command("update_schemes_tried_bytes")));
        wait_until("the second is told so", || {
            waiting.iter().any(|one| one.is_finished())
        });
        files.command("off").unwrap();
        let mut answers = waiting.map(|one| one.join().unwrap());
        answers.sort_by_key(|answer| *answer != Err(Errno::BUSY));
        assert_eq!(answers, [Err(Errno::BUSY), Err(Errno::CANCELED)]);
    });
}

#[test]
fn a_client_that_goes_between_staging_and_commit_changes_nothing_that_runs() {
    let sleeper = Sleeper::new();
    let files = Files::staged(sleeper.pid());
    files.command("on").unwrap();
    files.context("monitoring_attrs/intervals/sample_us", 9000);
    files.context("schemes/nr_schemes", 3);
    files.context("schemes/2/action", "pageout");
    // Whoever staged this is gone; the next one asks what runs.
    files.command("update_tuned_intervals").unwrap();
    assert_eq!(
        files.number(&format!("{CONTEXT}/monitoring_attrs/intervals/sample_us")),
        5000
    );
    files.command("update_schemes_stats").unwrap();
    assert!(files.is_on());
    files.command("off").unwrap();
}

#[test]
fn several_kdamonds_and_refreshed_files() {
    let sleeper = Sleeper::new();
    let files = Files::new();
    files.set("admin/kdamonds/nr_kdamonds", 2);
    for nth in 0..2 {
        let kdamond = format!("admin/kdamonds/{nth}");
        files.set(&format!("{kdamond}/contexts/nr_contexts"), 1);
        files.set(&format!("{kdamond}/contexts/0/targets/nr_targets"), 1);
        files.set(
            &format!("{kdamond}/contexts/0/targets/0/pid_target"),
            sleeper.pid(),
        );
        files.set(&format!("{kdamond}/contexts/0/schemes/nr_schemes"), 1);
        for pattern in ["sz", "nr_accesses", "age"] {
            files.set(
                &format!("{kdamond}/contexts/0/schemes/0/access_pattern/{pattern}/max"),
                u64::MAX,
            );
        }
        files.set(&format!("{kdamond}/state"), "on");
    }
    let tids = [0, 1].map(|nth| files.number(&format!("admin/kdamonds/{nth}/pid")));
    for (nth, tid) in tids.into_iter().enumerate() {
        let comm = std::fs::read_to_string(format!("/proc/self/task/{tid}/comm")).unwrap();
        assert_eq!(comm.trim(), format!("kdamond.{nth}"));
    }
    let stats = "admin/kdamonds/1/contexts/0/schemes/0/stats/nr_tried";
    files.set("admin/kdamonds/1/refresh_ms", 10);
    wait_until("its statistics appear without a command", || {
        files.number(stats) > 0
    });
    let other = "admin/kdamonds/0/contexts/0/schemes/0/stats/nr_tried";
    assert_eq!(files.number(other), 0, "the other's do not");
    files.set("admin/kdamonds/1/state", "off");
    assert!(files.is_on(), "{STATE} is the other's");
    files.set(STATE, "off");
    files.set("admin/kdamonds/nr_kdamonds", 0);
}
