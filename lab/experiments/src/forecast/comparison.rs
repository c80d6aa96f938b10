//! All cells of an experiment: the table, the share of cells that reach each aim, and the plot.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Value, json};

use super::auto_age::AutoRun;
use super::cell::{COMPRESSED_AIM, Cell, Difference, NET_AIM, REFAULT_AIM};
use crate::plot;

/// Net savings that differ by less than this share of resident memory have no order.
const LEAST_ORDER: f64 = 0.02;

/// The results of an experiment.
#[derive(Debug, Default, Serialize)]
pub struct Comparison {
    /// All runs with a fixed age, in the order in which they were made.
    pub cells: Vec<Cell>,
    /// The runs with an automatic age.
    pub auto: Vec<AutoRun>,
    /// Workloads that were skipped or failed, and the reasons.
    pub failures: Vec<String>,
}

/// How often an aim was reached.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Aim {
    /// The aim.
    pub aim: String,
    /// Number of cells that reach it.
    pub reached: usize,
    /// Number of cells.
    pub of: usize,
}

impl Comparison {
    /// How often each aim was reached.
    #[must_use]
    pub fn aims(&self) -> Vec<Aim> {
        let differences: Vec<Difference> = self.cells.iter().filter_map(Cell::difference).collect();
        let aim = |aim: String, is_reached: &dyn Fn(&Difference) -> bool| Aim {
            aim,
            reached: differences
                .iter()
                .filter(|difference| is_reached(difference))
                .count(),
            of: differences.len(),
        };
        let (pairs, right) = self.ranking();
        vec![
            aim(
                format!("net saving within {:.0} % of resident", NET_AIM * 100.0),
                &|cell| cell.net.abs() <= NET_AIM,
            ),
            aim(format!("refaults within a factor of {REFAULT_AIM}"), &|cell| {
                (1.0 / REFAULT_AIM..=REFAULT_AIM).contains(&cell.refaults)
            }),
            aim(
                format!("compressed size within {:.0} %", COMPRESSED_AIM * 100.0),
                &|cell| cell.compressed.abs() <= COMPRESSED_AIM,
            ),
            Aim {
                aim: "right ranking of two ages by net saving".to_owned(),
                reached: right,
                of: pairs,
            },
        ]
    }

    /// Pairs of ages in a round whose measured net savings differ, and how many of them the advice puts in
    /// the right order.
    fn ranking(&self) -> (usize, usize) {
        let (mut pairs, mut right) = (0, 0);
        for (nth, first) in self.cells.iter().enumerate() {
            let same_round = |cell: &&Cell| cell.workload == first.workload && cell.round == first.round;
            for second in self.cells.iter().skip(nth + 1).filter(same_round) {
                let (Ok(told), Ok(other)) = (&first.predicted, &second.predicted) else {
                    continue;
                };
                let difference = first.measured.net_bytes() - second.measured.net_bytes();
                if difference.abs() > LEAST_ORDER * first.measured.resident_bytes {
                    pairs += 1;
                    right += usize::from((difference > 0.0) == (told.net_bytes > other.net_bytes));
                }
            }
        }
        (pairs, right)
    }

    /// The table and the aims.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = heading();
        for cell in &self.cells {
            text += &row(cell);
        }
        for aim in self.aims() {
            let _ = writeln!(text, "{}: {} of {}{}", aim.aim, aim.reached, aim.of, share(&aim));
        }
        for run in &self.auto {
            text += &run.text(&self.cells);
        }
        for failure in &self.failures {
            let _ = writeln!(text, "{failure}");
        }
        text
    }

    /// The results as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        let auto = self.auto.iter().map(|run| run.json(&self.cells));
        json!({
            "schema": 1,
            "cells": self.cells,
            "aims": self.aims(),
            "auto": auto.collect::<Vec<_>>(),
            "failures": self.failures,
        })
    }

    /// Predicted against measured net savings in percent of resident memory, as an SVG image.
    #[must_use]
    pub fn svg(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        let mut points = Vec::new();
        for cell in &self.cells {
            let Ok(predicted) = &cell.predicted else { continue };
            let known = names.iter().position(|name| *name == cell.workload);
            let series = known.unwrap_or_else(|| {
                names.push(&cell.workload);
                names.len() - 1
            });
            let percent = |bytes: f64| bytes / cell.measured.resident_bytes * 100.0;
            points.push(plot::Point {
                x: percent(cell.measured.net_bytes()),
                y: percent(predicted.net_bytes),
                series,
                title: format!("{}, {} s", cell.workload, cell.age_s),
            });
        }
        plot::scatter(
            &points,
            &names,
            [
                "saved net, % of resident memory",
                "predicted, % of resident memory",
            ],
            NET_AIM * 100.0,
        )
    }
}

fn share(aim: &Aim) -> String {
    match aim.of {
        0 => String::new(),
        of => format!(", {} %", aim.reached * 100 / of),
    }
}

/// The head of the table.
#[must_use]
pub fn heading() -> String {
    format!(
        "{:<18} {:>5} {:>5} {:>9} {:>15} {:>7} {:>8} {:>15} {:>7} {:>7} {:>15} {:>7} {:>8}\n",
        "workload",
        "round",
        "age",
        "resident",
        "net: predicted",
        "was",
        "of res.",
        "back/min: pred.",
        "was",
        "factor",
        "in zram: pred.",
        "was",
        "differs",
    )
}

/// A row of the table; sizes in MiB.
#[must_use]
pub fn row(cell: &Cell) -> String {
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    let was = &cell.measured;
    let begin = format!(
        "{:<18} {:>5} {:>4}s {:>9.0}",
        cell.workload,
        cell.round,
        cell.age_s,
        mib(was.resident_bytes)
    );
    match (&cell.predicted, cell.difference()) {
        (Ok(told), Some(difference)) => format!(
            "{begin} {:>15.0} {:>7.0} {:>+7.1}% {:>15.1} {:>7.1} {:>7.2} {:>15.0} {:>7.0} {:>+7.1}%\n",
            mib(told.net_bytes),
            mib(was.net_bytes()),
            difference.net * 100.0,
            mib(told.refault_bytes_per_min),
            mib(was.refault_bytes_per_min),
            difference.refaults,
            mib(told.zram_bytes),
            mib(was.zram_bytes),
            difference.compressed * 100.0,
        ),
        (told, _) => {
            let why = told.as_ref().err().map_or("", String::as_str);
            let (net, back, zram) = (was.net_bytes(), was.refault_bytes_per_min, was.zram_bytes);
            format!(
                "{begin} not predicted: {why}; was {:.0} net, {:.1} back/min, {:.0} in zram\n",
                mib(net),
                mib(back),
                mib(zram)
            )
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::super::act::Measured;
    use super::super::cell::Predicted;
    use super::*;

    const MIB: f64 = 1_048_576.0;

    fn cell(age_s: u64, (told, net): (f64, f64), (told_back, back): (f64, f64)) -> Cell {
        Cell {
            workload: "redis".to_owned(),
            round: 1,
            age_s,
            measured: Measured {
                resident_bytes: 1000.0 * MIB,
                left_bytes: (net + 100.0) * MIB,
                zram_bytes: 100.0 * MIB,
                refault_bytes_per_min: back * MIB,
            },
            predicted: Ok(Predicted {
                net_bytes: told * MIB,
                zram_bytes: 105.0 * MIB,
                refault_bytes_per_min: told_back * MIB,
            }),
        }
    }

    #[test]
    fn aims_count_cells_and_pairs() {
        let comparison = Comparison {
            cells: vec![
                cell(10, (500.0, 300.0), (100.0, 60.0)),
                cell(30, (400.0, 310.0), (50.0, 60.0)),
                cell(60, (450.0, 400.0), (0.0, 0.0)),
                Cell {
                    predicted: Err("watch for 5 m".to_owned()),
                    ..cell(120, (0.0, 100.0), (0.0, 0.0))
                },
            ],
            ..Comparison::default()
        };
        let reached = comparison
            .aims()
            .iter()
            .map(|aim| (aim.reached, aim.of))
            .collect::<Vec<_>>();
        // 10 s and 30 s differ too little to be ranked; 10 s is told to be more than 60 s, and was less.
        assert_eq!(reached, [(2, 3), (2, 3), (3, 3), (1, 2)]);
        let text = comparison.text();
        assert!(
            text.contains("+20.0%") && text.contains("not predicted: watch for 5 m"),
            "{text}"
        );
        assert!(
            text.contains("refaults within a factor of 1.5: 2 of 3, 66 %"),
            "{text}"
        );
        assert_eq!(comparison.json()["cells"].as_array().unwrap().len(), 4);
        assert_eq!(comparison.svg().matches("class=\"point\"").count(), 3);
    }
}
