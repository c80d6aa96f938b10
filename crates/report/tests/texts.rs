//! The text output of the reports: golden files under `tests/snapshots`.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::convert::Infallible;

use thermo_recording::model::{Record, Snapshot};
use thermo_report::footprint::FootprintAccumulator;
use thermo_report::heatmap::HeatmapAccumulator;
use thermo_report::idle::IdleAccumulator;
use thermo_report::info::InfoAccumulator;
use thermo_report::reaccess::ReaccessAccumulator;
use thermo_report::regions::{Format, RegionsWriter, Snapshots};
use thermo_report::schemes::SchemesAccumulator;
use thermo_report::summary::SummaryAccumulator;
use thermo_report::wss::WssAccumulator;
use thermo_report::{Accumulator, Style, accumulate, no_data};

mod recording;

const ASCII: Style = Style {
    width: 60,
    height: 12,
    ascii: true,
    colour: false,
};

fn report<A: Accumulator>(accumulator: A, snapshots: u64) -> A::Report {
    let records = recording::records(snapshots).into_iter().map(Ok::<_, Infallible>);
    let Ok(report) = accumulate(accumulator, records);
    report
}

fn report_with_tables<A: Accumulator>(accumulator: A, snapshots: u64) -> A::Report {
    let records = recording::records_with_tables(snapshots);
    let Ok(report) = accumulate(accumulator, records.into_iter().map(Ok::<_, Infallible>));
    report
}

fn regions(selection: Snapshots, format: Format, snapshots: u64) -> String {
    let mut writer = RegionsWriter::new(&recording::metadata(), Vec::new(), selection, format);
    for record in recording::records(snapshots) {
        writer.add(&record).unwrap();
    }
    String::from_utf8(writer.finish().unwrap()).unwrap()
}

#[test]
fn summary_matches_snapshots() {
    let summary = report(SummaryAccumulator::new(&recording::metadata()), 300);
    insta::assert_snapshot!("summary", summary.text(&Style::default()));
    insta::assert_snapshot!("summary_ascii", summary.text(&ASCII));
}

#[test]
fn idle_schemes_footprint_info_match_snapshots() {
    let style = Style::default();
    insta::assert_snapshot!("idle", report(IdleAccumulator::default(), 300).text(&style));
    insta::assert_snapshot!("schemes", report(SchemesAccumulator::default(), 300).text(&style));
    insta::assert_snapshot!(
        "footprint",
        report(FootprintAccumulator::default(), 300).text(&style)
    );
    insta::assert_snapshot!(
        "info",
        report(InfoAccumulator::new(&recording::metadata()), 300).text(&style)
    );
}

#[test]
fn reports_with_tables_match_snapshots() {
    let style = Style::default();
    let summary = report_with_tables(SummaryAccumulator::new(&recording::metadata()), 700);
    insta::assert_snapshot!("exact_summary", summary.text(&style));
    insta::assert_snapshot!(
        "exact_idle",
        report_with_tables(IdleAccumulator::default(), 700).text(&style)
    );
    insta::assert_snapshot!(
        "exact_idle_before_first_pass",
        report_with_tables(IdleAccumulator::default(), 1).text(&style)
    );
    insta::assert_snapshot!(
        "exact_wss",
        report_with_tables(WssAccumulator::default(), 700).text(&style)
    );
    insta::assert_snapshot!(
        "exact_reaccess",
        report_with_tables(ReaccessAccumulator::default(), 700).text(&style)
    );
    insta::assert_snapshot!(
        "exact_info",
        report_with_tables(InfoAccumulator::new(&recording::metadata()), 700).text(&style)
    );
}

#[test]
fn regions_and_wss_match_snapshots() {
    let style = Style::default();
    insta::assert_snapshot!("regions_last", regions(Snapshots::Last, Format::Text(style), 300));
    insta::assert_snapshot!("regions_csv", regions(Snapshots::Last, Format::Csv, 3));
    insta::assert_snapshot!("wss", report(WssAccumulator::default(), 300).text(&style));
}

#[test]
fn lines_fit_terminal_width() {
    for width in [60, 80, 120, 200] {
        for ascii in [false, true] {
            let style = Style {
                width,
                ascii,
                ..Style::default()
            };
            let texts = [
                report(SummaryAccumulator::new(&recording::metadata()), 300).text(&style),
                report(IdleAccumulator::default(), 300).text(&style),
                report_with_tables(SummaryAccumulator::new(&recording::metadata()), 700).text(&style),
                report_with_tables(IdleAccumulator::default(), 700).text(&style),
                report_with_tables(WssAccumulator::default(), 700).text(&style),
                report_with_tables(ReaccessAccumulator::default(), 700).text(&style),
                report(SchemesAccumulator::default(), 300).text(&style),
                regions(Snapshots::Last, Format::Text(style), 300),
            ];
            for line in texts
                .iter()
                .flat_map(|text| text.lines())
                .filter(|line| !line.starts_with("warning"))
            {
                // The legend, sentences and the cost line need 80 columns.
                assert!(line.chars().count() <= width.max(80), "{width}: {line}");
                assert!(!ascii || line.is_ascii(), "{line}");
            }
        }
    }
}

#[test]
fn reports_without_snapshots_print_one_sentence() {
    let style = Style::default();
    let sentence = format!("{}\n", no_data(0));
    assert_eq!(report(WssAccumulator::default(), 0).text(&style), sentence);
    assert_eq!(report(HeatmapAccumulator::default(), 0).text(&style), sentence);
    assert_eq!(report(IdleAccumulator::default(), 0).text(&style), sentence);
    assert_eq!(report(ReaccessAccumulator::default(), 0).text(&style), sentence);
    assert_eq!(regions(Snapshots::All, Format::Text(style), 0), sentence);
    assert!(
        report(SummaryAccumulator::new(&recording::metadata()), 0)
            .text(&style)
            .starts_with(&sentence)
    );
    assert!(
        report(HeatmapAccumulator::default(), 0)
            .svg()
            .contains(&no_data(0))
    );
    assert!(report(WssAccumulator::default(), 0).png().is_ok());
}

#[test]
fn snapshots_without_memory_are_counted() {
    let style = Style::default();
    for nr in [1, 3] {
        let empty = || (0..nr).map(|_| Record::Snapshot(Snapshot::default()));
        let Ok(idle) = accumulate(IdleAccumulator::default(), empty().map(Ok::<_, Infallible>));
        let sentence = format!("{}\n", no_data(nr));
        assert_eq!(idle.text(&style), sentence);
        let mut writer = RegionsWriter::new(
            &recording::metadata(),
            Vec::new(),
            Snapshots::All,
            Format::Text(style),
        );
        empty().for_each(|record| writer.add(&record).unwrap());
        assert_eq!(String::from_utf8(writer.finish().unwrap()).unwrap(), sentence);
    }
    assert!(no_data(1).contains("one snapshot, without memory") && no_data(3).contains("3 snapshots, none"));
}
