//! Parsing configurations: accepted input, positions and messages of errors, and the round trip to text.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use proptest::prelude::*;
use thermo_workload::{Config, Mode, Pattern, Phase, RegionSpec};

const WHOLE: &str = "\
# name, size, initial data file
a, 256, none
b b, 64K, data.bin

# a phase
first phase
1000
# region, randomness, stride, probability, mode
a, 1, 64, 80, wo
b b, 0, 4096, 20, rw


idle
50
";

#[test]
fn parser_reads_every_field() {
    let config = Config::parse(WHOLE).unwrap();
    assert_eq!(
        config.regions[1],
        RegionSpec {
            name: "b b".into(),
            sz: 65536,
            init: Some("data.bin".into())
        }
    );
    assert_eq!(config.regions[0].init, None);
    assert_eq!(config.phases[0].time_ms, 1000);
    let second = Pattern {
        region: 1,
        random: false,
        stride: 4096,
        probability: 20,
        mode: Some(Mode::ReadWrite),
    };
    assert_eq!(config.phases[0].patterns[1], second);
    assert_eq!(
        config.phases[1],
        Phase {
            name: "idle".into(),
            time_ms: 50,
            patterns: vec![]
        }
    );
}

#[test]
fn optional_fields_default_to_none() {
    let config = Config::parse("a, 4096\n\np\n10\na, 0, 64, 1\n").unwrap();
    assert_eq!(config.regions[0].init, None);
    assert_eq!(config.phases[0].patterns[0].mode, None);
}

#[test]
fn errors_have_position_and_expected_form() {
    for (text, line, column, message) in [
        ("", 1, 1, "this file is empty"),
        ("# only words\n", 1, 1, "this file is empty"),
        ("a\n\np\n1\n", 1, 2, "1 field where 2 or 3"),
        ("a, 1, none, x\n\np\n1\n", 1, 13, "name, size in bytes"),
        (", 1\n\np\n1\n", 1, 1, "has no name"),
        ("a, ten\n\np\n1\n", 1, 4, "is not a number"),
        ("a, 0\n\np\n1\n", 1, 4, "0 bytes"),
        ("a, 900T\n\np\n1\n", 1, 4, "more than an address space"),
        ("a, max\n\np\n1\n", 1, 4, "more than an address space"),
        ("a, 1\na, 2\n\np\n1\n", 2, 1, "defined twice"),
        ("a, 1\n", 1, 5, "no phase"),
        ("a, 1\n\np\n", 3, 2, "has no length"),
        ("a, 1\n\np\n5s\n", 4, 1, "is not a whole number"),
        ("a, 1\n\np\n99999999999999999999\n", 4, 1, "is too large"),
        ("a, 1\n\np\n1\na, 0, 1\n", 5, 8, "3 fields where 4 or 5"),
        ("a, 1\n\np\n1\nb, 0, 1, 1\n", 5, 1, "use one of a"),
        ("a, 1\n\np\n1\na, 2, 1, 1\n", 5, 4, "neither 0"),
        ("a, 1\n\np\n1\na, 0, 0, 1\n", 5, 7, "a stride of 0 bytes"),
        ("a, 1\n\np\n1\na, 0, 1, -1\n", 5, 10, "the probability"),
        ("a, 1\n\np\n1\na, 0, 1, 1, wr\n", 5, 13, "use one of ro, wo, rw"),
        ("a, 1\n\np\n1\na, 0, 1, 0\n", 5, 1, "above 0"),
    ] {
        let error = Config::parse(text).expect_err(text);
        assert_eq!((error.line, error.column), (line, column), "{text:?}: {error}");
        assert!(error.message.contains(message), "{text:?}: {error}");
    }
}

#[test]
fn shipped_configurations_parse_and_begin_with_comment() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../workloads");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "cfg") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.starts_with("# "),
            "{} does not begin with a comment",
            path.display()
        );
        if let Err(error) = Config::parse(&text) {
            panic!("{}", error.in_file(&path.to_string_lossy()));
        }
        count += 1;
    }
    assert!(count >= 6, "{count} files");
}

prop_compose! {
    fn any_pattern(regions: usize)(
        region in 0..regions,
        random in any::<bool>(),
        stride in 1u64..1 << 40,
        probability in 1u32..,
        mode in prop::option::of(prop::sample::select(vec![Mode::Read, Mode::Write, Mode::ReadWrite])),
    ) -> Pattern {
        Pattern { region, random, stride, probability, mode }
    }
}

prop_compose! {
    fn any_config()(sizes in prop::collection::vec((1u64..1 << 40, prop::option::of("[a-z/]{1,8}\\.bin")), 1..5))(
        phases in prop::collection::vec(
            ("[a-z]{1,5}( [a-z0-9]{1,5})?", any::<u64>(), prop::collection::vec(any_pattern(sizes.len()), 0..4)), 1..4),
        sizes in Just(sizes),
    ) -> Config {
        let regions = sizes.into_iter().enumerate().map(|(index, (sz, init))| {
            RegionSpec { name: format!("region {index}"), sz, init: init.map(Into::into) }
        });
        let phases = phases.into_iter().map(|(name, time_ms, patterns)| Phase { name, time_ms, patterns });
        Config { regions: regions.collect(), phases: phases.collect() }
    }
}

proptest! {
    #[test]
    fn printed_configuration_parses_back(config in any_config()) {
        prop_assert_eq!(Config::parse(&config.print()), Ok(config));
    }

    #[test]
    fn parser_never_panics_on_any_text(text in "\\PC*") {
        let _ = Config::parse(&text);
    }

    #[test]
    fn parser_never_panics_on_similar_text(text in "([ab], ?|[0-9]{1,3}|\n|,|none|rw|#| ){0,40}") {
        let _ = Config::parse(&text);
    }
}
