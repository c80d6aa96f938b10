//! Output of results: text tables, JSON, CSV and HTML.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use thermo_experiments::Results;

/// Two workloads under two configurations, three repeats; one run failed and was not made again.
fn results() -> Results {
    let folder = tempfile::tempdir().unwrap();
    let mut text = String::from(
        r#"{"schema":1,"experiment":"example","hash":"0","workloads":["redis/recent","zstd"],"configurations":["orig","reclaim"],"host":{"kernel":"6.1.0","cpus":2,"memory_bytes":25769803776,"thp":"madvise"}}"#,
    );
    let mib = f64::from(1 << 20);
    let mut run = |workload: &str,
                   configuration: &str,
                   repeat: usize,
                   runtime: f64,
                   net: f64,
                   extra: &str| {
        let net = net * mib;
        text.push_str(&format!(
            "\n{{\"workload\":\"{workload}\",\"configuration\":\"{configuration}\",\"repeat\":{repeat},\"started_s\":1000,\"warmed_bytes\":1073741824,\
             \"measured\":{{\"runtime_s\":{runtime},\"net_avg_bytes\":{net}{extra}}},\"samples\":[[0,{net},0],[500,{net},1048576]]}}"
        ));
    };
    for (repeat, wobble) in [(0, -0.5), (1, 0.0), (2, 0.5)] {
        run(
            "redis/recent",
            "orig",
            repeat,
            60.0 + wobble,
            700.0 + wobble,
            ",\"latency.p99_ms\":0.5",
        );
        let ours = ",\"latency.p99_ms\":0.625,\"thermo_cpu_percent\":0.75";
        run(
            "redis/recent",
            "reclaim",
            repeat,
            60.3 + wobble,
            400.0 + wobble,
            ours,
        );
        run("zstd", "orig", repeat, 100.0 + wobble, 300.0, "");
        run(
            "zstd",
            "reclaim",
            repeat,
            110.0 + wobble,
            270.0,
            ",\"thermo_cpu_percent\":1.25",
        );
    }
    text.push_str("\n{\"workload\":\"zstd\",\"configuration\":\"reclaim\",\"repeat\":3,\"started_s\":1,\"failure\":\"the command was killed by signal 9: \"}\n");
    std::fs::write(folder.path().join("runs.jsonl"), text).unwrap();
    Results::load(folder.path()).unwrap()
}

const TABLE: &str = "\
example: 12 runs, 2 workloads, 2 configurations; Linux 6.1.0, 2 CPUs, 24.0 GiB, THP madvise; 1.00 GiB warmed before each run

memory.net.avg [MiB]: resident memory of the workload plus the size of its swapped pages in zram, average
memory.net.avg    orig  reclaim (overhead)
redis/recent     700.0     400.0 (-42.86)*
zstd             300.0     270.0 (-10.00)*
total           1000.0     670.0 (-33.00)

runtime [s]: wall time of the measured part
runtime          orig  reclaim (overhead)
redis/recent   60.000    60.300 (  0.50)
zstd          100.000   110.000 ( 10.00)*
total         160.000   170.300 (  6.44)

thermo.cpu [%]: CPU time of the attached thermo, percent of one CPU
thermo.cpu    orig  reclaim
redis/recent     -     0.75
zstd             -     1.25

latency.p99_ms: p99_ms, as printed by the workload's load
latency.p99_ms   orig  reclaim (overhead)
redis/recent    0.500     0.625 ( 25.00)*

* differs from orig by Welch's test at 95 %. Significant: 4 of 5 differences (chance alone would give about 1).
  runtime: not significant for redis/recent/reclaim

Appendix: stdev, min and max among the repeated runs

memory.net.avg_stdev  orig  reclaim
redis/recent           0.5      0.5
zstd                   0.0      0.0

memory.net.avg_min   orig  reclaim
redis/recent        699.5    399.5
zstd                300.0    270.0

memory.net.avg_max   orig  reclaim
redis/recent        700.5    400.5
zstd                300.0    270.0

runtime_stdev   orig  reclaim
redis/recent   0.500    0.500
zstd           0.500    0.500

runtime_min     orig  reclaim
redis/recent  59.500   59.800
zstd          99.500  109.500

runtime_max      orig  reclaim
redis/recent   60.500   60.800
zstd          100.500  110.500

thermo.cpu_stdev  orig  reclaim
redis/recent         -     0.00
zstd                 -     0.00

thermo.cpu_min  orig  reclaim
redis/recent       -     0.75
zstd               -     1.25

thermo.cpu_max  orig  reclaim
redis/recent       -     0.75
zstd               -     1.25

latency.p99_ms_stdev   orig  reclaim
redis/recent          0.000    0.000

latency.p99_ms_min   orig  reclaim
redis/recent        0.500    0.625

latency.p99_ms_max   orig  reclaim
redis/recent        0.500    0.625

Failed runs, not in the tables:
  zstd under reclaim, repeat 4: the command was killed by signal 9: 
";

#[test]
fn table_matches_expected_text() {
    let table = results().table();
    assert!(table == TABLE, "the table is now:\n{table}");
}

#[test]
fn json_has_means_tests_and_values() {
    let json = results().json();
    assert_eq!(
        (json["schema"].as_u64(), json["orig"].as_str()),
        (Some(1), Some("orig"))
    );
    let runtime = json["metrics"]
        .as_array()
        .unwrap()
        .iter()
        .find(|metric| metric["key"] == "runtime_s")
        .unwrap();
    let cell = |workload: &str| {
        let cells = runtime["cells"].as_array().unwrap();
        let of =
            |cell: &&serde_json::Value| cell["workload"] == workload && cell["configuration"] == "reclaim";
        cells.iter().find(of).unwrap().clone()
    };
    assert_eq!(cell("zstd")["values"], serde_json::json!([109.5, 110.0, 110.5]));
    assert!((cell("zstd")["overhead_percent"].as_f64().unwrap() - 10.0).abs() < 1e-9);
    assert!(cell("zstd")["welch"]["p"].as_f64().unwrap() < 0.05);
    assert!(cell("redis/recent")["welch"]["p"].as_f64().unwrap() > 0.05);
    assert_eq!(
        runtime["totals"][1]["overhead_percent"]
            .as_f64()
            .map(|over| over.round()),
        Some(6.0)
    );
    assert_eq!(json["failures"][0]["repeat"], 3);
    assert!(
        json["findings"]
            .as_array()
            .unwrap()
            .iter()
            .any(|one| one["significant"] == false)
    );
}

#[test]
fn csv_has_one_line_for_each_successful_run() {
    let csv = results().csv();
    let mut lines = csv.lines();
    let head =
        "workload,configuration,repeat,started_s,net_avg_bytes,runtime_s,thermo_cpu_percent,latency.p99_ms";
    assert_eq!(lines.next(), Some(head));
    assert_eq!(lines.next(), Some("redis/recent,orig,0,1000,733478912,59.5,,0.5"));
    assert_eq!(lines.count(), 11);
}

#[test]
fn html_is_self_contained_and_draws_every_run() {
    let page = results().html();
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    for outside in ["<script", "<link", "<img", "src=", "href=", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
    // 12 runs have 2 metrics, 6 of them thermo's CPU time, 6 a latency.
    assert_eq!(page.matches("<circle").count(), 12 * 2 + 6 + 6);
    assert_eq!(page.matches("<polyline").count(), 4);
    assert!(
        !page.contains("NaN") && !page.contains("inf"),
        "all positions are finite"
    );
    assert!(page.contains("reclaim (overhead)"));
}

const RATIOS: &str = "\
all workloads, averaged
metric               orig      mprs     plrus  plrus/mprs
runtime_seconds     30.75     61.50     46.12       0.75*
pgmajfaults          0.00   1500.00    750.00       0.50*
memory_psi_some_us   0.00  30000.00  30000.00       1.00
thermo_cpu_percent      -         -      1.50           -

a
metric               orig      mprs     plrus  plrus/mprs
runtime_seconds     20.50     41.00     30.75       0.75*
pgmajfaults          0.00   1000.00    500.00       0.50*
memory_psi_some_us   0.00  20000.00  20000.00       1.00
";

/// Two workloads, two repeats; `plrus` is compared to `mprs`, and that to `orig`.
fn pressed() -> Results {
    let folder = tempfile::tempdir().unwrap();
    let mut text = String::from(
        r#"{"schema":1,"experiment":"pressed","hash":"0","workloads":["a","b"],"configurations":["orig","mprs","plrus"],"against":{"plrus":"mprs"},"host":{"kernel":"6.1.0","cpus":2,"memory_bytes":25769803776,"thp":"madvise"}}"#,
    );
    for (workload, size) in [("a", 1.0), ("b", 2.0)] {
        for repeat in 0..2 {
            for (configuration, factor, faults, ours) in [
                ("orig", 1.0, 0.0, ""),
                ("mprs", 2.0, 1000.0, ""),
                ("plrus", 1.5, 500.0, ",\"thermo_cpu_percent\":1.5"),
            ] {
                let (runtime, faults) = ((20.0 + f64::from(repeat)) * factor * size, faults * size);
                let psi = if faults > 0.0 { 0.02 * size } else { 0.0 };
                text.push_str(&format!(
                    "\n{{\"workload\":\"{workload}\",\"configuration\":\"{configuration}\",\"repeat\":{repeat},\"started_s\":1,\
                     \"measured\":{{\"runtime_s\":{runtime},\"major_faults\":{faults},\"psi_some_s\":{psi}{ours}}}}}"
                ));
            }
        }
    }
    std::fs::write(folder.path().join("runs.jsonl"), text + "\n").unwrap();
    Results::load(folder.path()).unwrap()
}

#[test]
fn ratios_are_printed_next_to_their_configurations() {
    let results = pressed();
    let table = results.table();
    assert!(table.contains(RATIOS), "the table is now:\n{table}");
    assert!(
        table.contains("plrus (over mprs)") && table.contains("mprs (overhead)"),
        "{table}"
    );
    let json = results.json();
    let of_all = &json["ratios"][0];
    assert_eq!(of_all["workload"], "all");
    assert_eq!(of_all["metrics"][1]["metric"], "pgmajfaults");
    assert_eq!(of_all["metrics"][1]["ratios"][0]["of"], "plrus/mprs");
    assert_eq!(of_all["metrics"][1]["ratios"][0]["ratio"], 0.5);
}
