//! Advice: what proactive reclaim would save and cost, for each minimum age, from what was watched.
//!
//! The model is that of software-defined far memory (Lagar-Cavilla et al., ASPLOS 2019). With a minimum age,
//! all memory that was idle for at least this time is out. Every access to memory of this idle age is then a
//! refault. Both are in the page-exact tables, so one recording answers for all ages at once. Two things are
//! added: memory leaves some passes after it has the age, and memory that several processes map does not
//! leave.
//!
//! An age is judged only by the time after it could first be reached, and only if that time is as long as the
//! age. Earlier, the idle ages are censored: memory that was idle before the start looks younger than it is.

mod blocks;
mod content;
mod draw;
mod interval;
mod rows;
mod swap;
mod verdict;

#[cfg(test)]
mod tests;

use serde::Serialize;
use thermo_engine::access_tables::age_bucket;
use thermo_engine::budget::Method;
use thermo_recording::model::{Record, Snapshot};
use thermo_units::{Bytes, Nanos, PAGE_SIZE};

use self::blocks::Blocks;
pub use self::content::{Compression, ContentSample, Exclusive, Stratum};
pub use self::interval::Interval;
pub use self::rows::{AgeRow, Figures, PageCosts};
pub use self::swap::{SwapAdvice, SwapArea, SwapFacts};
pub use self::verdict::{Bounds, Verdict};
use crate::ages::AgeBytes;
use crate::idle::{Idle, IdleAccumulator};
use crate::layout::Layout;
use crate::tables::SnapshotTables;
use crate::{Accumulator, Basis};

/// Schema version of this report's JSON.
pub const SCHEMA: u32 = 1;

/// Builds [`Watched`].
#[derive(Debug, Clone, Default)]
pub struct AdviceAccumulator {
    layout: Layout,
    basis: Basis,
    idle: IdleAccumulator,
    blocks: Blocks,
    passes: Passes,
    is_sampled: bool,
    /// Bytes that schemes paged out while recording.
    paged_out: u64,
}

/// The mean length of scan passes, by memory and time: one slow pass, or a small process that waits for its
/// turn, does not decide about all.
#[derive(Debug, Clone, Copy, Default)]
struct Passes {
    /// Bytes times nanoseconds.
    weight: f64,
    sum: f64,
}

impl Passes {
    fn add(&mut self, snapshot: &Snapshot, tables: &SnapshotTables) {
        let time = snapshot.time_ns.saturating_sub(snapshot.start_ns) as f64;
        let targets = tables.targets.iter().map(|target| &target.tables);
        for tables in targets.filter(|tables| tables.nr_passes > 0) {
            let weight = tables.resident().0 as f64 * time;
            self.weight += weight;
            self.sum += weight * tables.pass.0 as f64;
        }
    }

    /// `None` before the first pass is complete.
    fn mean(self) -> Option<Nanos> {
        (self.weight > 0.0).then(|| Nanos((self.sum / self.weight) as u64))
    }
}

/// What was watched. [`Watched::advise`] makes the advice of it.
#[derive(Debug, Clone)]
pub struct Watched {
    idle: Idle,
    blocks: Blocks,
    pass: Option<Nanos>,
    is_sampled: bool,
    paged_out: u64,
}

/// What is known besides the recording, and what the user accepts.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The user's bounds.
    pub bounds: Bounds,
    /// Samples of page contents, one for each algorithm; empty if nothing was sampled.
    pub samples: Vec<ContentSample>,
    /// Which memory one process alone maps.
    pub exclusive: Exclusive,
    /// What paging costs on this machine.
    pub costs: Option<PageCosts>,
    /// The swap of the machine; `None` for the recording of another.
    pub swap: Option<SwapFacts>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Length of the recording in seconds.
    pub watched_s: f64,
    /// Resident bytes in the last snapshot.
    pub resident_bytes: u64,
    /// The part of it whose idle age is not known.
    pub unknown_bytes: u64,
    /// Bytes by idle age in the last snapshot.
    pub ages: Vec<AgeBytes>,
    /// A row for each minimum age.
    pub table: Vec<AgeRow>,
    /// The advice.
    pub advice: Verdict,
    /// The advice about swap; `None` for the recording of another machine.
    pub swap: Option<SwapAdvice>,
    /// Whether the compressed size was measured.
    pub content_sampled: bool,
    /// What paging costs.
    pub costs: Option<PageCosts>,
    /// What limits the answer, as sentences.
    pub notes: Vec<String>,
    #[serde(skip)]
    idle: Idle,
}

impl Accumulator for AdviceAccumulator {
    type Report = Watched;

    fn add(&mut self, record: &Record) {
        self.layout.add(record);
        self.idle.add(record);
        match record {
            Record::Scheme(applied) if applied.action == "pageout" => {
                self.paged_out = self.paged_out.max(applied.sz_changed);
            }
            _ => {}
        }
        if let Some(snapshot) = self.basis.add(record) {
            let tables = SnapshotTables::new(snapshot, &self.layout);
            self.passes.add(snapshot, &tables);
            let sum = tables.sum();
            self.is_sampled |= sum.method == Method::Sampling;
            self.blocks
                .add(Nanos(snapshot.start_ns), Nanos(snapshot.time_ns), &sum);
        }
    }

    fn finish(self) -> Watched {
        Watched {
            idle: self.idle.finish(),
            blocks: self.blocks,
            pass: self.passes.mean(),
            is_sampled: self.is_sampled,
            paged_out: self.paged_out,
        }
    }
}

impl Watched {
    /// Why there is no data, as a sentence; `None` if there is some.
    #[must_use]
    pub fn unavailable_reason(&self) -> Option<String> {
        (self.idle.basis.snapshots == 0).then(|| self.idle.basis.no_data())
    }

    /// The advice.
    #[must_use]
    pub fn advise(&self, question: &Question) -> Advice {
        let offered = question
            .swap
            .as_ref()
            .map(|swap| &swap.algorithms[..])
            .unwrap_or_default();
        let shares = |age: usize| self.compressions(&question.samples, age);
        // The algorithm is chosen by all memory that can go to swap: one device holds all of it.
        let chosen = swap::choose(&shares(0), offered).map(|chosen| chosen.algorithm.clone());
        let content = question
            .samples
            .iter()
            .find(|sample| Some(&sample.algorithm) == chosen.as_ref());
        let basis = rows::Basis {
            blocks: &self.blocks,
            begin: Nanos(self.idle.basis.start_ns),
            pass: self.pass,
            is_sampled: self.is_sampled,
            exclusive: &question.exclusive,
            content,
            costs: question.costs,
        };
        let table = basis.rows();
        let resident = self.idle.resident_bytes;
        let advice = verdict::verdict(&table, resident, question.bounds, content.is_some());
        let swap = question.swap.as_ref().map(|facts| {
            let row = table
                .iter()
                .find(|row| row.known && advice.min_age_s.is_none_or(|age| row.min_age_s == age));
            let figures = row.and_then(|row| row.figures.as_ref());
            let needed = figures.map_or(0, |figures| {
                figures.leaves_bytes.saturating_sub(figures.leaves_file_bytes)
            });
            let age = row.map_or(0, |row| age_bucket(Nanos::secs(row.min_age_s)));
            swap::advice(facts, &shares(age), if advice.worth { needed } else { 0 })
        });
        Advice {
            schema: SCHEMA,
            watched_s: self.idle.basis.span().as_secs_f64(),
            resident_bytes: resident,
            unknown_bytes: self.idle.unknown_bytes,
            ages: self.idle.ages.clone(),
            table,
            advice,
            swap,
            content_sampled: content.is_some(),
            costs: question.costs,
            notes: self.notes(&question.exclusive),
            idle: self.idle.clone(),
        }
    }

    /// Bytes that several processes map at the end; `None` without such memory.
    fn shared_bytes(&self, exclusive: &Exclusive) -> Option<Bytes> {
        let end = self.blocks.end();
        let bytes = end.idle_from(0, |backing| 1.0 - exclusive.share(&end, backing, 0));
        (bytes >= PAGE_SIZE as f64).then_some(Bytes(bytes as u64))
    }

    fn compressions(&self, samples: &[ContentSample], age: usize) -> Vec<Compression> {
        let end = self.blocks.end();
        let compression = |sample: &ContentSample| Compression {
            algorithm: sample.algorithm.clone(),
            share: sample.share(&end, age),
            compress_ns: sample.compress.0,
        };
        samples.iter().map(compression).collect()
    }

    fn notes(&self, exclusive: &Exclusive) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(shared) = self.shared_bytes(exclusive) {
            notes.push(format!(
                "{shared} are mapped by several processes. The kernel pages out no such page: they are in no figure \
                 of what leaves and comes back."
            ));
        }
        if self.paged_out > 0 {
            notes.push(format!(
                "{} were paged out by a scheme while this was recorded. They are missing in every column, and their \
                 refaults too: all figures are lower bounds.",
                Bytes(self.paged_out)
            ));
        }
        if let Some(swapped) = self.idle.swapped_bytes.filter(|bytes| *bytes > 0) {
            notes.push(format!(
                "{} are in swap already and are not counted.",
                Bytes(swapped)
            ));
        }
        notes
    }
}
