use super::*;
use crate::class::CLASSES;
use crate::random::part_of;
use thermo_engine::access_tables::AGE_EDGES_S;

fn settings(mode: Mode, min_age_s: Option<u64>) -> Settings {
    Settings {
        mode,
        min_age: min_age_s.map(Nanos::secs),
        share: CpuShare(2500),
        pass: Nanos::secs(27),
        interval: Nanos::secs(300),
        swap_cost: Some(0.5),
        page_bytes: 1 << 20,
    }
}

fn target(class: &str, settings: Settings) -> Target {
    let class = CLASSES.iter().find(|other| other.name == class).expect("a class");
    let rng = &mut part_of(3, 1);
    Target::new(class.build(None, rng), settings, Rng::new(rng.next_u64())).expect("a target")
}

/// The number of pages with at least this exact idle age.
fn older(target: &Target, age: Nanos) -> u64 {
    let ages = target.machine.memory.idle_ages(target.now);
    ages.filter(|other| *other >= age).count() as u64
}

/// The engine's ages are known to a pass, and old ones to a share of the age. Accesses since the last scan,
/// at most a pass ago, are not known yet: the tables lie between the truth of then and now.
#[test]
fn idle_ages_of_the_engine_are_those_of_the_last_accesses() {
    let edges = AGE_EDGES_S.iter().enumerate().filter(|(_, edge)| **edge >= 60);
    let slack = |edge: u64| Nanos::secs(60 + edge / 10);
    for class in &CLASSES {
        let mut target = target(class.name, settings(Mode::Observe, None));
        for hour in 1..=8 {
            let tails = |target: &Target| {
                edges
                    .clone()
                    .map(|(_, edge)| {
                        let (age, slack) = (Nanos::secs(*edge), slack(*edge));
                        (
                            older(target, age + slack),
                            older(target, age.saturating_sub(slack)),
                        )
                    })
                    .collect::<Vec<_>>()
            };
            target.run(Nanos::secs(3600 * hour - 30)).expect("steps");
            let before = tails(&target);
            target.run(Nanos::secs(3600 * hour)).expect("steps");
            let now = tails(&target);
            let row = target.take_row();
            for (((nth, edge), before), now) in edges.clone().zip(before).zip(now) {
                let found: u64 = row.idle_bytes[nth..].iter().sum::<u64>() >> 20;
                let (least, most) = (before.0.min(now.0), before.1.max(now.1));
                // Pages that are allocated or freed meanwhile: a few.
                assert!(
                    found + 8 >= least && found <= most + 8,
                    "{}, hour {hour}, {edge} s: {least} <= {found} <= {most}",
                    class.name
                );
            }
        }
    }
}

#[test]
fn policies_page_out_what_is_idle_and_count_what_comes_back() {
    let mut target = target("cache-zipf", settings(Mode::Act, Some(120)));
    let (mut paged_out, mut back) = (0, 0);
    for hour in 1..=4 {
        target.run(Nanos::secs(3600 * hour)).expect("steps");
        let row = target.take_row();
        (paged_out, back) = (paged_out + row.paged_out_bytes, back + row.back_bytes);
        assert_eq!(row.out_bytes, paged_out - back, "nothing is freed");
        let resident = (512 << 20) - row.out_bytes;
        assert!(
            row.resident_bytes.abs_diff(resident) <= 16 << 20,
            "{} of {resident}",
            row.resident_bytes
        );
        let occupied = row.out_swap_bytes as i64 / 2;
        assert_eq!(row.net_saved_bytes, row.out_bytes as i64 - occupied);
        assert_eq!(row.min_age_ms, Some(120_000));
        assert_eq!(row.would_page_out_bytes, None);
    }
    assert!(back > 0 && paged_out > 150 << 20, "{back} of {paged_out}");
}

#[test]
fn dry_runs_change_nothing() {
    let mut dry = target("cache-zipf", settings(Mode::DryRun, Some(120)));
    let mut observed = target("cache-zipf", settings(Mode::Observe, None));
    for target in [&mut dry, &mut observed] {
        target.run(Nanos::secs(7200)).expect("steps");
    }
    let (dry, observed) = (dry.take_row(), observed.take_row());
    // Snapshots are more frequent in a dry run, so the random accesses differ.
    let idle = |row: &Row| row.idle_bytes[7..].iter().sum::<u64>();
    assert!(
        idle(&dry).abs_diff(idle(&observed)) <= 24 << 20,
        "{} and {}",
        idle(&dry),
        idle(&observed)
    );
    assert_eq!(dry.resident_bytes, observed.resident_bytes);
    assert_eq!((dry.paged_out_bytes, dry.out_bytes), (0, 0));
    let idle = idle(&dry);
    let would = dry.would_page_out_bytes.expect("a dry run");
    assert!(
        would.abs_diff(idle) <= 16 << 20 && would > 100 << 20,
        "{would} of {idle}"
    );
}

#[test]
fn without_swap_only_pages_of_files_leave() {
    let settings = Settings {
        swap_cost: None,
        ..settings(Mode::Act, Some(120))
    };
    let mut target = target("log-shipper", settings);
    target.run(Nanos::secs(3600)).expect("steps");
    let row = target.take_row();
    assert!(row.paged_out_bytes > 0);
    assert_eq!(
        (row.out_swap_bytes, row.net_saved_bytes),
        (0, row.out_bytes as i64)
    );
}

/// The share of memory that is idle for longer than `age_s`, by an anchor.
fn idle_share(anchor: &crate::Anchor, age_s: f64) -> f64 {
    let share = |band: &crate::AnchorBand| {
        let mean = (band.mean_s.0 * band.mean_s.1).sqrt();
        band.share * (-age_s / mean).exp()
    };
    anchor.bands.iter().map(share).sum()
}

#[test]
fn anchored_classes_have_the_idle_ages_of_the_recording() {
    for name in ["java", "mariadb", "node", "redis"] {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/anchors");
        let path = std::path::Path::new(folder).join(format!("{name}.json"));
        let anchor = crate::Anchor::read(&path).expect("an anchor");
        let class = CLASSES
            .iter()
            .find(|class| class.name == anchor.class)
            .expect("a class");
        let rng = &mut part_of(5, 1);
        let memory = class.build(Some(&anchor), rng);
        let mut target = Target::new(memory, settings(Mode::Observe, None), rng.clone()).expect("a target");
        // At nine, the daily load of the web is near its mean.
        target.run(Nanos::secs(9 * 3600)).expect("steps");
        let ages: Vec<Nanos> = target.machine.memory.idle_ages(target.now).collect();
        for age_s in [10, 60, 120] {
            let older = ages.iter().filter(|age| **age >= Nanos::secs(age_s)).count();
            let (found, expected) = (
                older as f64 / ages.len() as f64,
                idle_share(&anchor, age_s as f64),
            );
            assert!(
                (found - expected).abs() < 0.1,
                "{name}, {age_s} s: {found}, not {expected}"
            );
        }
    }
}
