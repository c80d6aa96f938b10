//! The syntax of the three formats, and their agreement.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod damo;

use thermo_engine::scheme::{
    Age, AutoAge, Bounds, CoreFilter, CoreFilterKind, Destination, Rate, Weights, check,
};
use thermo_engine::{Action, Attrs, Scheme};
use thermo_schemes::{Format, checked_json, describe, fits_line, normal_form, parse, parse_as, print_line};
use thermo_units::{AddrRange, Bytes, Nanos, Permille};

fn one(name: &str, text: &str) -> Scheme {
    let mut schemes = parse(name, text).unwrap_or_else(|error| panic!("{}", error.in_file(name)));
    assert_eq!(schemes.len(), 1);
    schemes.remove(0)
}

fn shares(min: u32, max: u32) -> Bounds<Rate> {
    Bounds {
        min: Rate::Permille(Permille(min)),
        max: Rate::Permille(Permille(max)),
    }
}

fn times(min: Nanos, max: Nanos) -> Bounds<Age> {
    Bounds {
        min: Age::Time(min),
        max: Age::Time(max),
    }
}

#[test]
fn line_accepts_null_and_words_as_bounds() {
    // The two example schemes of the first DAMOS patches.
    let early = one("a.damos", "2M null null 5 1s null nohugepage\n");
    assert_eq!(
        early,
        one("a.damos", "2M max min 5% 1s max nohugepage # the same\n")
    );
    assert_eq!(early.action, Action::Nohugepage);
    assert_eq!(
        early.pattern.sz,
        Bounds {
            min: Bytes::mib(2),
            max: Bytes::MAX
        }
    );
    assert_eq!(early.pattern.nr_accesses, shares(0, 50));
    assert_eq!(early.pattern.age, times(Nanos::secs(1), Nanos::MAX));
    let rare = one("a.damos", "100M null 0 5 2m null pageout");
    assert_eq!(
        describe(&rare),
        "Page out memory regions of 100 MiB or more, accessed in at most 5 % of access checks for at least 2 minutes."
    );
}

#[test]
fn line_accepts_limit_at_end() {
    let limited = one("-", "4K max\tmin min\t5s max\tpageout\t500M 1s");
    assert_eq!(
        (limited.quota.sz, limited.quota.reset_interval),
        (Bytes::mib(500), Nanos::secs(1))
    );
    assert_eq!(limited.quota.weights, Weights::default());
    assert_eq!(
        describe(&limited),
        "Page out memory regions of 4 KiB or more, not accessed for at least 5 seconds; at most 500 MiB every second."
    );
}

#[test]
fn damo_defaults_mean_no_limit() {
    let text = r#"[{"action": "stat", "quotas": {"time_ms": "0 ns", "sz_bytes": "0 B", "reset_interval_ms": "max"},
        "watermarks": {"metric": "none", "interval_us": "0 ns", "high_permil": "0 %", "mid_permil": "0 %",
        "low_permil": "0 %"}, "filters": []}]"#;
    assert_eq!(one("a.json", text), Scheme::new(Action::Stat));
    let raw = r#"[{"action": "stat", "quotas": {"reset_interval_ms": 18446744073709551615}}]"#;
    assert_eq!(one("a.json", raw), Scheme::new(Action::Stat));
}

#[test]
fn line_and_damo_json_agree() {
    let list = r#"[{"action": "nohugepage", "access_pattern": {"sz_bytes": {"min": "2.000 MiB", "max": "max"},
        "nr_accesses": {"min": "0 %", "max": "0 %"}, "age": {"min": "7 s", "max": "max"}}}]"#;
    assert_eq!(one("-", list), one("-", "2M max min min 7s max nohugepage"));
}

#[test]
fn toml_accepts_tables_lists_and_hexadecimal() {
    let text = "
[[scheme]]
action = \"cold\"
sz = { min = 4096 }
age = [\"10 aggrs\", \"max\"]
filters = [{ type = \"addr\", address_range = { start = 0x1000, end = \"0x2000\" } }]
";
    let scheme = one("-", text);
    assert_eq!(
        scheme.pattern.sz,
        Bounds {
            min: Bytes(4096),
            max: Bytes::MAX
        }
    );
    assert_eq!(
        scheme.pattern.age,
        Bounds {
            min: Age::Aggrs(10),
            max: Age::Aggrs(u32::MAX)
        }
    );
    let addr = CoreFilterKind::Addr(AddrRange::new(0x1000, 0x2000));
    assert_eq!(
        scheme.filters.core,
        [CoreFilter {
            kind: addr,
            matching: true,
            allow: false
        }]
    );
}

#[test]
fn normal_form_is_line_if_possible() {
    let simple = one("-", "4096 null 0 0 5000ms null pageout 512000K 1000ms");
    assert_eq!(normal_form(&simple), "4K max 0% 0% 5s max pageout 500M 1s");
    let more = Scheme {
        max_nr_snapshots: 1,
        ..simple
    };
    assert!(!fits_line(&more) && print_line(&more).is_none());
    assert!(
        normal_form(&more).starts_with("[[scheme]]\naction = \"pageout\"\n"),
        "{}",
        normal_form(&more)
    );
    assert_eq!(one("a.toml", &normal_form(&more)), more);
}

#[test]
fn every_scheme_file_parses_and_starts_with_comment() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schemes");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.to_string_lossy();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# "), "{name} does not begin with a comment");
        let schemes = parse(&name, &text).unwrap_or_else(|error| panic!("{}", error.in_file(&name)));
        assert!(
            schemes.iter().all(|scheme| describe(scheme).ends_with('.')),
            "{name}"
        );
        assert_eq!(
            check(&schemes, &Attrs::default()),
            Ok(()),
            "{name}: the engine accepts it"
        );
        assert_eq!(
            parse("", &text).unwrap(),
            schemes,
            "{name}: the format is detected from the content"
        );
        count += 1;
    }
    assert!(count >= 5, "{count} files");
}

#[test]
fn everything_toml_has_every_key_and_matches_docs() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let text = std::fs::read_to_string(format!("{root}/schemes/everything.toml")).unwrap();
    let guide = std::fs::read_to_string(format!("{root}/docs/reference/formats.md")).unwrap();
    assert!(
        guide.contains(&text),
        "docs/reference/formats.md quotes another schemes/everything.toml"
    );
    // A missing key would have the value of a scheme with only an action.
    let (scheme, nothing) = (one("everything.toml", &text), Scheme::new(Action::Stat));
    assert_ne!(scheme.pattern.sz, nothing.pattern.sz);
    assert_ne!(scheme.pattern.nr_accesses, nothing.pattern.nr_accesses);
    assert_ne!(scheme.pattern.age, nothing.pattern.age);
    assert_ne!(scheme.apply_interval, nothing.apply_interval);
    assert_ne!(scheme.max_nr_snapshots, nothing.max_nr_snapshots);
    let (quota, unlimited) = (&scheme.quota, &nothing.quota);
    assert_ne!(quota.time, unlimited.time);
    assert_ne!(quota.sz, unlimited.sz);
    assert_ne!(quota.reset_interval, unlimited.reset_interval);
    assert_ne!(quota.weights, unlimited.weights);
    assert_ne!(quota.tuner, unlimited.tuner);
    assert_eq!(quota.goals.len(), 9, "one of each metric");
    let (watermarks, none) = (&scheme.watermarks, &nothing.watermarks);
    assert_ne!(watermarks.metric, none.metric);
    assert_ne!(
        (
            watermarks.interval,
            watermarks.high,
            watermarks.mid,
            watermarks.low
        ),
        (none.interval, none.high, none.mid, none.low)
    );
    let filters = &scheme.filters;
    assert_eq!(
        (filters.core.len(), filters.ops.len()),
        (2, 6),
        "one of each type"
    );
}

#[test]
fn descriptions_are_complete() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schemes/");
    let read = |name: &str| parse(name, &std::fs::read_to_string(format!("{file}{name}")).unwrap()).unwrap();
    assert_eq!(
        describe(&read("proactive_reclaim.toml")[0]),
        "Page out memory regions of 4 KiB or more, not accessed for at least 2 minutes; at most 10 milliseconds of CPU \
         time and 128 MiB every second; coldest first; only while 20 % to 50 % of memory is free, starting at 40 % or \
         less (checked every 5 seconds)."
    );
    assert_eq!(
        describe(&read("pressure_goal.toml")[0]),
        "Page out memory regions of 4 KiB or more, not accessed for at least 30 seconds; at most 1 GiB every second; \
         tuned to bring the memory stall time of the machine to 10 milliseconds (adjusted every second); coldest \
         first; skips pages accessed since the last access check; skips pages that are not anonymous."
    );
    assert_eq!(
        describe(&read("ethp.damos")[0]),
        "Allow huge pages for memory regions of any size, accessed in at least 5 % of access checks."
    );
}

#[test]
fn checked_json_has_plain_numbers() {
    let value = checked_json(&[
        one("-", "4K max 0 5 2m max pageout 128M 1s"),
        one("-", "[{\"action\": \"stat\"}]"),
    ]);
    assert_eq!(value["schema"], 1);
    let first = &value["schemes"][0];
    assert_eq!(first["action"], "pageout");
    assert_eq!(first["access_pattern"]["sz_bytes"]["min"], 4096);
    assert_eq!(first["access_pattern"]["sz_bytes"]["max"], u64::MAX);
    assert_eq!(first["access_pattern"]["nr_accesses_permil"]["max"], 50);
    assert_eq!(first["access_pattern"]["age_us"]["min"], 120_000_000);
    assert_eq!(first["access_pattern"]["age_us"]["max"], u64::MAX);
    assert_eq!(first["quotas"]["sz_bytes"], 128 << 20);
    assert_eq!(first["quotas"]["reset_interval_us"], 1_000_000);
    assert_eq!(first["watermarks"]["metric"], "none");
    assert!(first["filters"].as_array().unwrap().is_empty());
    assert!(
        first["text"]
            .as_str()
            .unwrap()
            .starts_with("Page out memory regions of 4 KiB or more")
    );
    assert_eq!(value["schemes"][1]["action"], "stat");
}

#[test]
fn checked_json_has_numeric_filter_sizes() {
    let text = "[[scheme]]\naction = \"stat\"\nfilters = [
        { type = \"target\", damon_target_idx = 0 },
        { type = \"hugepage_size\", hugepage_size = [\"2M\", \"max\"], allow = true },
    ]\n";
    let value = checked_json(&[one("a.toml", text)]);
    let filters = value["schemes"][0]["filters"].as_array().unwrap();
    assert_eq!(filters[0]["damon_target_idx"], 0);
    assert_eq!(
        filters[1]["hugepage_size"],
        serde_json::json!([2 << 20, u64::MAX])
    );
    assert_eq!(filters[1]["allow"], true);
}

#[test]
fn parse_as_forces_format() {
    assert!(parse_as(Format::Json, "4K max 0 0 5s max pageout").is_err());
    assert_eq!(
        parse_as(Format::Line, "4K max 0 0 5s max pageout").unwrap().len(),
        1
    );
}

#[test]
fn automatic_age_is_read_described_and_printed() {
    let text = "[[scheme]]\naction = \"pageout\"\nnr_accesses = [\"0%\", \"0%\"]\nmin_age = \"auto\"\n";
    let scheme = one("a.toml", text);
    assert_eq!(scheme.auto_age, Some(AutoAge::default()));
    assert_eq!(one("a.damos", "0 max 0 0 auto max pageout"), scheme);
    assert_eq!(normal_form(&scheme), "0 max 0% 0% auto max pageout");
    assert_eq!(
        describe(&scheme),
        "Page out memory regions of any size, not accessed; the minimum age is chosen each minute: as small as \
         re-accesses within 0.2%/min of the working set allow."
    );
    let half = one("a.toml", &format!("{text}max_refaults = \"0.1%/min\"\n"));
    assert_eq!(half.auto_age.map(|auto| auto.max_refaults.0), Some(1000));
    assert!(normal_form(&half).contains("min_age = \"auto\"\nmax_refaults = \"0.1%/min\"\n"));
    let checked = &checked_json(&[half])["schemes"][0];
    assert_eq!(checked["auto_age"]["max_refaults_ppm_per_min"], 1000);
}

#[test]
fn destinations_agree_between_formats() {
    let toml = |nodes: &str| {
        one(
            "a.toml",
            &format!("[[scheme]]\naction = \"migrate_cold\"\n{nodes}\n"),
        )
    };
    let single = toml("target_nid = 1");
    assert_eq!(single.destinations, [Destination::only(1)]);
    assert_eq!(single, toml("dests = [{ id = 1 }]"));
    assert_eq!(
        single,
        one(
            "a.json",
            r#"[{"action": "migrate_cold", "target_nid": "1", "dests": []}]"#
        )
    );
    assert!(
        normal_form(&single).contains("target_nid = 1\n"),
        "{}",
        normal_form(&single)
    );
    assert!(!fits_line(&single));
    assert_eq!(
        describe(&single),
        "Migrate to node 1, coldest first, memory regions of any size."
    );

    let several = toml("dests = [{ id = 0, weight = 3 }, { id = 2, weight = 1 }]");
    assert!(
        describe(&several).starts_with("Migrate to node 0 (3 of 4 pages) and node 2 (1 of 4 pages), coldest")
    );
    assert_eq!(checked_json(&[several])["schemes"][0]["dests"][1]["id"], 2);

    // -1 and null are DAMON's and damo's values for no node; DAMON has the file for every action.
    let none = one("a.json", r#"[{"action": "migrate_hot", "target_nid": -1}]"#);
    assert_eq!(none.destinations, []);
    assert_eq!(
        one("a.json", r#"[{"action": "stat", "target_nid": 3}]"#).destinations,
        []
    );
    let error = |scheme| check(&[scheme], &Attrs::default()).unwrap_err().to_string();
    assert!(error(none).contains("migrate_hot has no node"));
    assert!(error(toml("dests = [{ id = 1 }, { id = 1 }]")).contains("node 1 is given twice"));
    let mut stat = Scheme::new(Action::Stat);
    stat.destinations = vec![Destination::only(0)];
    assert!(error(stat).contains("does not move memory"));
}
