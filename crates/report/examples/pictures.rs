//! All reports of a synthetic recording: text on standard output, pictures in the given directory.
//!
//! `cargo run -p thermo-report --example pictures -- DIR [WIDTH] [--ascii]`

use std::convert::Infallible;
use std::path::Path;

use thermo_report::footprint::FootprintAccumulator;
use thermo_report::heatmap::HeatmapAccumulator;
use thermo_report::idle::IdleAccumulator;
use thermo_report::info::InfoAccumulator;
use thermo_report::regions::{Format, RegionsWriter, Snapshots};
use thermo_report::schemes::SchemesAccumulator;
use thermo_report::summary::SummaryAccumulator;
use thermo_report::wss::WssAccumulator;
use thermo_report::{Accumulator, Style, accumulate};

#[path = "../tests/recording/mod.rs"]
mod recording;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let directory = Path::new(arguments.first().map_or(".", String::as_str));
    let width = arguments
        .iter()
        .find_map(|argument| argument.parse().ok())
        .unwrap_or(80);
    let style = Style {
        width,
        ascii: arguments.iter().any(|a| a == "--ascii"),
        ..Style::default()
    };

    println!(
        "{}",
        report(SummaryAccumulator::new(&recording::metadata())).text(&style)
    );
    println!("{}", report(IdleAccumulator::default()).text(&style));
    println!("{}", report(SchemesAccumulator::default()).text(&style));
    println!("{}", report(FootprintAccumulator::default()).text(&style));
    println!(
        "{}",
        report(InfoAccumulator::new(&recording::metadata())).text(&style)
    );
    let mut regions = RegionsWriter::new(
        &recording::metadata(),
        std::io::stdout(),
        Snapshots::Last,
        Format::Text(style),
    );
    for record in recording::records(300) {
        regions.add(&record)?;
    }
    regions.finish()?;

    let heatmap = report(HeatmapAccumulator::default());
    std::fs::write(directory.join("heatmap.svg"), heatmap.svg())?;
    std::fs::write(directory.join("heatmap.png"), heatmap.png()?)?;
    std::fs::write(directory.join("heatmap.html"), heatmap.html())?;
    let wss = report(WssAccumulator::default());
    println!("\n{}", wss.text(&style));
    std::fs::write(directory.join("wss.svg"), wss.svg())?;
    std::fs::write(directory.join("wss.png"), wss.png()?)?;
    std::fs::write(directory.join("wss.html"), wss.html())?;
    Ok(())
}

fn report<A: Accumulator>(accumulator: A) -> A::Report {
    let records = recording::records(300).into_iter().map(Ok::<_, Infallible>);
    let Ok(report) = accumulate(accumulator, records);
    report
}
