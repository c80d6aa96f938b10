//! Commands on real processes, without a mount: effects and errors.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use common::{CONTEXT, ChildProcess, Files, STATE, wait_until};
use thermo_damonfs::Errno;
use thermo_kernel::scheduling::{Policy, set_policy};

/// Writes below the context: paths and values.
type Writes = &'static [(&'static str, &'static str)];

#[test]
fn commands_fail_before_on() {
    let sleeper = ChildProcess::sleeping();
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
fn on_rejects_invalid_configuration() {
    let sleeper = ChildProcess::sleeping();
    let cases: [(&str, Writes, Errno); 15] = [
        ("physical memory", &[("operations", "paddr")], Errno::INVAL),
        ("pid 0", &[("targets/0/pid_target", "0")], Errno::INVAL),
        ("a negative pid", &[("targets/0/pid_target", "-5")], Errno::INVAL),
        (
            "a process that does not exist",
            &[("targets/0/pid_target", "2147483647")],
            Errno::INVAL,
        ),
        (
            "a minimum of two regions",
            &[("monitoring_attrs/nr_regions/min", "2")],
            Errno::INVAL,
        ),
        (
            "min above max",
            &[("monitoring_attrs/nr_regions/max", "9")],
            Errno::INVAL,
        ),
        (
            "sample_us above aggr_us",
            &[("monitoring_attrs/intervals/aggr_us", "4999")],
            Errno::INVAL,
        ),
        (
            "an intervals goal out of bounds",
            &[
                ("monitoring_attrs/intervals/intervals_goal/aggrs", "3"),
                ("monitoring_attrs/intervals/intervals_goal/min_sample_us", "5001"),
                ("monitoring_attrs/intervals/intervals_goal/max_sample_us", "10000"),
            ],
            Errno::INVAL,
        ),
        (
            "a region that ends before its start",
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
            "regions that overlap after alignment",
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
            "an address filter that ends before its start",
            &[
                ("schemes/0/core_filters/nr_filters", "1"),
                ("schemes/0/core_filters/0/type", "addr"),
                ("schemes/0/core_filters/0/addr_start", "1"),
            ],
            Errno::NOMEM,
        ),
        (
            "a huge page filter with min above max",
            &[
                ("schemes/0/filters/nr_filters", "1"),
                ("schemes/0/filters/0/type", "hugepage_size"),
                ("schemes/0/filters/0/min", "1"),
            ],
            Errno::NOMEM,
        ),
        ("own process", &[], Errno::INVAL),
    ];
    for (case, writes, errno) in cases {
        let files = Files::staged(sleeper.pid());
        if case == "own process" {
            files.set_in_context("targets/0/pid_target", std::process::id());
        }
        for (path, text) in writes {
            files.set_in_context(path, text);
        }
        assert_eq!(files.command("on"), Err(errno), "{case}");
        assert!(!files.is_on(), "{case}");
    }
    let files = Files::staged(sleeper.pid());
    files.set("admin/kdamonds/0/contexts/nr_contexts", 0);
    assert_eq!(files.command("on"), Err(Errno::INVAL), "no context");
}

#[test]
fn on_accepts_scheme_that_never_matches() {
    let sleeper = ChildProcess::sleeping();
    let files = Files::staged(sleeper.pid());
    files.set_in_context("schemes/0/access_pattern/sz/min", 9);
    files.set_in_context("schemes/0/access_pattern/sz/max", 8);
    files.set_in_context("schemes/0/core_filters/nr_filters", 1);
    files.set_in_context("schemes/0/core_filters/0/type", "addr");
    files.set_in_context("schemes/0/quotas/goals/nr_goals", 1);
    files.set_in_context("schemes/0/quotas/goals/0/nid", -3);
    assert_eq!(files.command("on"), Ok(2));
    assert_eq!(files.command("update_schemes_tried_bytes"), Ok(26));
    assert_eq!(
        files.number(&format!("{CONTEXT}/schemes/0/tried_regions/total_bytes")),
        0
    );
    assert_eq!(files.command("off"), Ok(3));
}

#[test]
fn kdamond_runs_through_all_commands() {
    let sleeper = ChildProcess::sleeping();
    let files = Files::staged(sleeper.pid());
    assert_eq!(files.command("on\n"), Ok(3));
    assert!(files.is_on());
    assert!(files.number("admin/kdamonds/0/pid") > 0);
    assert_eq!(files.command("on"), Err(Errno::BUSY));
    assert_eq!(files.write("admin/kdamonds/nr_kdamonds", "1"), Err(Errno::BUSY));
    let tried = format!("{CONTEXT}/schemes/0/tried_regions");
    // There are no regions before the first update of the targets.
    wait_until("there are regions", || {
        files.command("update_schemes_tried_regions").unwrap();
        files.read(&format!("{tried}/0/start")).is_ok()
    });
    let (mut total, mut last_end) = (0, 0);
    for nth in 0.. {
        let Ok(start) = files.read(&format!("{tried}/{nth}/start")) else {
            break;
        };
        let (start, end): (u64, u64) = (
            start.trim().parse().unwrap(),
            files.number(&format!("{tried}/{nth}/end")),
        );
        assert!(last_end <= start && start < end, "ascending");
        (total, last_end) = (total + end - start, end);
    }
    assert_eq!(files.number(&format!("{tried}/total_bytes")), total);
    files.command("update_schemes_tried_bytes").unwrap();
    assert!(files.read(&format!("{tried}/0/start")).is_err(), "bytes only");
    assert!(files.number(&format!("{tried}/total_bytes")) > 0);

    files.command("update_schemes_stats").unwrap();
    let stats = format!("{CONTEXT}/schemes/0/stats/nr_tried");
    let nr_tried = files.number(&stats);
    assert!(nr_tried > 0);
    files.set_in_context("monitoring_attrs/nr_regions/min", 2);
    assert_eq!(files.command("commit"), Err(Errno::INVAL));
    assert!(files.is_on(), "a rejected commit does not stop the kdamond");
    files.set_in_context("monitoring_attrs/nr_regions/min", 20);
    files.set_in_context("monitoring_attrs/intervals/sample_us", 7000);
    assert_eq!(files.command("commit"), Ok(6));
    files.set_in_context("monitoring_attrs/intervals/sample_us", 1);
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
    assert_eq!(files.command("on"), Ok(2), "it can start again");
    assert_eq!(files.command("off"), Ok(3));
}

#[test]
fn target_may_die_in_any_state() {
    let mut sleeper = ChildProcess::sleeping();
    let files = Files::staged(sleeper.pid());
    sleeper.kill();
    assert_eq!(
        files.command("on"),
        Err(Errno::INVAL),
        "the staged process is gone"
    );

    let mut sleeper = ChildProcess::sleeping();
    files.set_in_context("targets/0/pid_target", sleeper.pid());
    files.command("on").unwrap();
    sleeper.kill();
    wait_until("the kdamond stops", || !files.is_on());
    assert_eq!(files.read("admin/kdamonds/0/pid").unwrap(), "-1\n");
    assert_eq!(files.command("off"), Err(Errno::PERM));
    assert_eq!(files.command("commit"), Err(Errno::INVAL));

    // While a command waits for an apply interval of two minutes.
    let mut sleeper = ChildProcess::sleeping();
    files.set_in_context("targets/0/pid_target", sleeper.pid());
    files.set_in_context("schemes/0/apply_interval_us", 120_000_000);
    files.command("on").unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| files.command("update_schemes_tried_regions"));
        sleeper.kill();
        let result = waiting.join().unwrap();
        assert!(
            matches!(result, Err(Errno::CANCELED | Errno::INVAL)),
            "{result:?}"
        );
    });
}

#[test]
fn off_cancels_the_single_waiting_command() {
    let sleeper = ChildProcess::sleeping();
    let files = Files::staged(sleeper.pid());
    files.set_in_context("schemes/0/apply_interval_us", 120_000_000);
    files.command("on").unwrap();
    std::thread::scope(|scope| {
        let waiting = [(); 2].map(|()| scope.spawn(|| files.command("update_schemes_tried_bytes")));
        wait_until("one of the two commands fails", || {
            waiting.iter().any(|command| command.is_finished())
        });
        files.command("off").unwrap();
        let mut results = waiting.map(|command| command.join().unwrap());
        results.sort_by_key(|result| *result != Err(Errno::BUSY));
        assert_eq!(results, [Err(Errno::BUSY), Err(Errno::CANCELED)]);
    });
}

#[test]
fn staging_without_commit_changes_nothing_running() {
    let sleeper = ChildProcess::sleeping();
    let files = Files::staged(sleeper.pid());
    files.command("on").unwrap();
    files.set_in_context("monitoring_attrs/intervals/sample_us", 9000);
    files.set_in_context("schemes/nr_schemes", 3);
    files.set_in_context("schemes/2/action", "pageout");
    // The client that staged this does not commit. Another client queries the running kdamond.
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
fn kdamonds_refresh_their_own_files() {
    let sleeper = ChildProcess::sleeping();
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
    wait_until("statistics appear without a command", || files.number(stats) > 0);
    let other = "admin/kdamonds/0/contexts/0/schemes/0/stats/nr_tried";
    assert_eq!(files.number(other), 0, "kdamond 0 has no refresh_ms");
    files.set("admin/kdamonds/1/state", "off");
    assert!(files.is_on(), "{STATE} belongs to kdamond 0");
    files.set(STATE, "off");
    files.set("admin/kdamonds/nr_kdamonds", 0);
}

#[test]
fn migration_without_a_node_counts_and_changes_nothing() {
    let sleeper = ChildProcess::sleeping();
    let files = Files::staged(sleeper.pid());
    let stat = |name: &str| {
        files.command("update_schemes_stats").unwrap();
        files.number(&format!("{CONTEXT}/schemes/0/stats/{name}"))
    };
    files.set_in_context("schemes/0/action", "migrate_hot");
    assert_eq!(files.command("on"), Ok(2));
    wait_until("memory is tried", || stat("sz_tried") > 0);
    assert_eq!(stat("sz_applied"), 0);
    assert_eq!(
        files.read(&format!("{CONTEXT}/schemes/0/action")).unwrap(),
        "migrate_hot\n"
    );
    // Every machine has node 0, so memory there needs no move; a node that is not there takes nothing.
    for (nr_dests, id) in [(0, 0), (1, 0), (1, 1023)] {
        files.set_in_context("schemes/0/target_nid", 0);
        files.set_in_context("schemes/0/dests/nr_dests", nr_dests);
        if nr_dests > 0 {
            files.set_in_context("schemes/0/dests/0/id", id);
            files.set_in_context("schemes/0/dests/0/weight", 1);
        }
        assert_eq!(files.command("commit"), Ok(6));
        assert!(files.is_on());
    }
}

#[test]
fn filter_passed_counts_only_with_ops_filters() {
    let sleeper = ChildProcess::sleeping();
    let files = Files::staged(sleeper.pid());
    let stat = |name: &str| {
        files.command("update_schemes_stats").unwrap();
        files.number(&format!("{CONTEXT}/schemes/0/stats/{name}"))
    };
    let region_passed = format!("{CONTEXT}/schemes/0/tried_regions/0/sz_filter_passed");
    assert_eq!(files.command("on"), Ok(2));
    wait_until("memory is tried", || stat("sz_tried") > 0);
    assert_eq!(stat("sz_ops_filter_passed"), 0, "no filter is set");
    wait_until("there are regions", || {
        files.command("update_schemes_tried_regions").unwrap();
        files.read(&region_passed).is_ok()
    });
    assert_eq!(files.number(&region_passed), 0);

    files.set_in_context("schemes/0/ops_filters/nr_filters", 1);
    files.set_in_context("schemes/0/ops_filters/0/type", "anon");
    files.set_in_context("schemes/0/ops_filters/0/matching", "Y");
    files.set_in_context("schemes/0/ops_filters/0/allow", "Y");
    files.command("commit").unwrap();
    wait_until("anonymous memory passes", || stat("sz_ops_filter_passed") > 0);
    assert!(stat("sz_ops_filter_passed") < stat("sz_tried"));
}

/// Nice value and scheduling policy of a thread of this process.
fn scheduling_of(tid: u64) -> [i32; 2] {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    // Fields 19 and 41 of proc_pid_stat(5); the first field here is number 3.
    [16, 38].map(|field: usize| fields[field].parse().unwrap())
}

#[test]
fn kdamond_inherits_neither_nice_value_nor_policy() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP: raising the priority needs root");
        return;
    }
    let sleeper = ChildProcess::sleeping();
    let files = Files::staged(sleeper.pid());
    // Of this thread alone, from which the kdamond is started.
    rustix::process::setpriority_process(None, 10).unwrap();
    set_policy(Policy::Idle).unwrap();
    assert_eq!(files.command("on"), Ok(2));
    assert_eq!(scheduling_of(files.number("admin/kdamonds/0/pid")), [0, 0]);
}
