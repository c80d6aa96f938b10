//! The table of minimum ages: what would leave, what that saves, and what comes back.

use serde::Serialize;
use thermo_engine::access_tables::{AGE_EDGES_S, Backing, NR_AGES};
use thermo_units::{Bytes, Nanos, PAGE_SIZE};

use super::blocks::{Block, Blocks};
use super::content::{self, ContentSample, Exclusive};
use super::interval::Interval;

/// Shorter minimum ages are of no use: refaults would dominate.
const SHORTEST_AGE_S: u64 = 10;
/// Less time tells little about what comes back, and fewer blocks nothing about the spread.
const MIN_SECONDS: u64 = 30;
const MIN_BLOCKS: usize = 3;
/// With more unknown memory than this share, an age is not judged.
const MAX_UNKNOWN_SHARE: f64 = 0.5;

/// Passes between the moment at which memory has the minimum age and the moment at which it leaves. The
/// engine applies schemes with a quarter of the budget. An application costs about half of a pass, for both
/// walk the states of all pages; so one follows every two passes, and a pass is the time until the access
/// before an age is found. Measured on seven servers: docs/evaluation.md, advice beside reality.
const PASSES_TO_LEAVE: f64 = 3.0;

/// What it costs to page one page out and in, on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PageCosts {
    /// CPU time to page one page out.
    #[serde(rename = "out_ns", serialize_with = "nanoseconds")]
    pub out: Nanos,
    /// CPU time to bring one page back.
    #[serde(rename = "in_ns", serialize_with = "nanoseconds")]
    pub back: Nanos,
    /// Time that the program waits for one page.
    #[serde(rename = "wait_ns", serialize_with = "nanoseconds")]
    pub wait: Nanos,
}

fn nanoseconds<S: serde::Serializer>(time: &Nanos, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(time.0)
}

/// What a minimum age would bring and cost.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AgeRow {
    /// The minimum age, in seconds.
    pub min_age_s: u64,
    /// False if it cannot be told; then `why` says why and all figures are missing.
    pub known: bool,
    /// The reason, as the end of a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The figures.
    #[serde(flatten)]
    pub figures: Option<Figures>,
}

/// The figures of a minimum age.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// Bytes that would be paged out, on average.
    pub leaves_bytes: u64,
    /// The interval of `leaves_bytes`: most of the time watched; memory of unknown age counts in `high`.
    pub leaves_range_bytes: Interval<u64>,
    /// The part of it that belongs to files and needs no swap.
    pub leaves_file_bytes: u64,
    /// What the part in swap would occupy there.
    pub compressed_bytes: Interval<u64>,
    /// `leaves_bytes` less `compressed_bytes`.
    pub net_saved_bytes: Interval<u64>,
    /// Bytes that would come back in a minute.
    pub refault_bytes_per_min: Interval<u64>,
    /// The same as a share of the working set.
    pub share_per_min: Interval<f64>,
    /// CPU time for paging out and in, as a share of one CPU; `None` if the cost of a page is not known.
    pub cpu_share: Option<f64>,
    /// Time that programs would wait for pages in a minute, in milliseconds.
    pub wait_ms_per_min: Option<f64>,
}

/// What the rows are computed from.
pub(super) struct Basis<'a> {
    pub(super) blocks: &'a Blocks,
    /// Begin of the recording.
    pub(super) begin: Nanos,
    /// The mean length of a pass; `None` before the first is complete.
    pub(super) pass: Option<Nanos>,
    pub(super) is_sampled: bool,
    pub(super) exclusive: &'a Exclusive,
    /// Of the algorithm that is advised; `None` without a sample.
    pub(super) content: Option<&'a ContentSample>,
    pub(super) costs: Option<PageCosts>,
}

/// What leaves with an age, in bytes.
struct Leaving {
    /// Most of the time watched; memory of unknown age counts in `high`.
    bytes: Interval<f64>,
    /// The mean of pages of files.
    file: f64,
    /// The share of memory of the age that one process alone maps, so that it can leave.
    exclusive_share: f64,
}

impl Basis<'_> {
    /// A row for each idle age from ten seconds on.
    pub(super) fn rows(&self) -> Vec<AgeRow> {
        let ages = (0..NR_AGES).zip(AGE_EDGES_S);
        let long = ages.filter(|(_, min_age_s)| *min_age_s >= SHORTEST_AGE_S);
        long.map(|(age, min_age_s)| self.row(age, min_age_s)).collect()
    }

    fn row(&self, age: usize, min_age_s: u64) -> AgeRow {
        let blocks = self.judging_blocks(min_age_s);
        let figures = self
            .check(min_age_s, blocks)
            .map(|()| self.figures(age, min_age_s, blocks));
        let (figures, why) = match figures {
            Ok(figures) => (Some(figures), None),
            Err(why) => (None, Some(why)),
        };
        AgeRow {
            min_age_s,
            known: figures.is_some(),
            why,
            figures,
        }
    }

    /// The time between the moment at which memory has the minimum age and the moment at which it leaves. The
    /// access that begins an age is found up to a pass later, and schemes are applied every few passes.
    fn delay(&self) -> f64 {
        self.pass.unwrap_or_default().as_secs_f64() * PASSES_TO_LEAVE
    }

    /// The blocks that tell about an age. Ages begin with the first pass: before one pass and the age have
    /// gone by, no memory can have the age.
    fn judging_blocks(&self, min_age_s: u64) -> &[Block] {
        let pass = self.pass.unwrap_or_default();
        self.blocks.since(self.begin + pass + Nanos::secs(min_age_s))
    }

    /// Whether the age can be judged by `blocks`.
    ///
    /// # Errors
    /// The reason why not, as the end of a sentence.
    fn check(&self, min_age_s: u64, blocks: &[Block]) -> Result<(), String> {
        let Some(pass) = self.pass else {
            return Err("the first scan pass was not complete".to_owned());
        };
        if self.is_sampled {
            return Err("sampling is too coarse; watch with a larger --cpu budget".to_owned());
        }
        if Nanos::secs(min_age_s) < pass {
            return Err(format!("a scan pass takes {pass}"));
        }
        let seconds: f64 = blocks.iter().map(|block| block.seconds).sum();
        // A tenth may be lost at the borders of blocks.
        if seconds < min_age_s.max(MIN_SECONDS) as f64 * 0.9 || blocks.len() < MIN_BLOCKS {
            return Err(format!("watch for {}", self.needed(min_age_s)));
        }
        let (unknown, resident) = (mean(blocks, Block::unknown), mean(blocks, Block::resident));
        if unknown > resident * MAX_UNKNOWN_SHARE {
            let (unknown, resident) = (Bytes(unknown as u64), Bytes(resident as u64));
            return Err(format!("the idle age of {unknown} of {resident} is not known"));
        }
        Ok(())
    }

    /// The time to watch for an age: it must have gone by twice, or once and the least time, and a little
    /// more.
    fn needed(&self, min_age_s: u64) -> Nanos {
        let pass = self.pass.unwrap_or_default().as_secs_f64().ceil() as u64;
        let seconds = min_age_s + min_age_s.max(MIN_SECONDS) + pass + 10;
        // Whole minutes, as a person would choose them.
        Nanos::secs(if seconds > 60 {
            seconds.next_multiple_of(60)
        } else {
            seconds
        })
    }

    /// What leaves with an age.
    fn leaving(&self, age: usize, min_age_s: u64, blocks: &[Block]) -> Leaving {
        let end = self.blocks.end();
        let exclusive = |backing| self.exclusive.share(&end, backing, age);
        let idle = blocks.iter().map(|block| block.idle_from(age, exclusive));
        let mut bytes = Interval::of_range(&idle.collect::<Vec<f64>>());
        let all = mean(blocks, |block| block.idle_from(age, |_| 1.0));
        let exclusive_share = bytes.mid / all.max(1.0);
        // What will come back is in memory for the delay before it leaves.
        let back = mean(blocks, |block| block.reaccessed_per_second(min_age_s as f64));
        let waits = back * exclusive_share * self.delay();
        let out = 1.0 - (waits / bytes.mid.max(1.0)).min(1.0);
        bytes = bytes.map(|bytes| bytes * out);
        bytes.high += mean(blocks, Block::unknown);
        let of_files = |backing| match backing {
            Backing::File => exclusive(backing),
            Backing::Anon | Backing::Shmem => 0.0,
        };
        Leaving {
            bytes,
            file: mean(blocks, |block| block.idle_from(age, of_files)) * out,
            exclusive_share,
        }
    }

    fn figures(&self, age: usize, min_age_s: u64, blocks: &[Block]) -> Figures {
        let leaving = self.leaving(age, min_age_s, blocks);
        let (leaves, file) = (leaving.bytes, leaving.file);
        let share = self
            .content
            .map_or_else(content::assumed, |content| content.share(&self.blocks.end(), age));
        let swapped = leaves.map(|bytes| (bytes - file).max(0.0));
        let compressed = Interval {
            low: swapped.low * share.low,
            mid: swapped.mid * share.mid,
            high: swapped.high * share.high,
        };
        let net = Interval {
            low: (leaves.low - swapped.low * share.high).max(0.0),
            mid: (leaves.mid - compressed.mid).max(0.0),
            high: (leaves.high - swapped.high * share.low).max(0.0),
        };
        let refaults = self.refaults(min_age_s, blocks, leaving.exclusive_share);
        let working_set = mean(blocks, Block::working_set);
        let pages = refaults.mid / PAGE_SIZE as f64;
        Figures {
            leaves_bytes: leaves.bytes().mid,
            leaves_range_bytes: leaves.bytes(),
            leaves_file_bytes: file as u64,
            compressed_bytes: compressed.bytes(),
            net_saved_bytes: net.bytes(),
            refault_bytes_per_min: refaults.bytes(),
            share_per_min: refaults.map(|bytes| bytes / working_set.max(PAGE_SIZE as f64)),
            // What comes back goes out again.
            cpu_share: self
                .costs
                .map(|costs| pages * (costs.out + costs.back).as_secs_f64() / 60.0),
            wait_ms_per_min: self.costs.map(|costs| pages * costs.wait.as_secs_f64() * 1000.0),
        }
    }

    /// Bytes that would come back in a minute. Where none came back, three pages may have been missed: an
    /// event that was not seen in a time has a rate below three in that time, with a probability of 95 %.
    fn refaults(&self, min_age_s: u64, blocks: &[Block], exclusive_share: f64) -> Interval<f64> {
        let age_s = min_age_s as f64 + self.delay();
        let rates: Vec<f64> = blocks
            .iter()
            .map(|block| block.reaccessed_per_second(age_s) * 60.0 * exclusive_share)
            .collect();
        let seconds: f64 = blocks.iter().map(|block| block.seconds).sum();
        let unseen = 3.0 * PAGE_SIZE as f64 * 60.0 / seconds.max(1.0);
        let rate = Interval::of_mean(&rates);
        Interval {
            high: rate.high.max(unseen),
            ..rate
        }
    }
}

/// The mean of `value` over time.
pub(super) fn mean(blocks: &[Block], value: impl Fn(&Block) -> f64) -> f64 {
    let weighted: f64 = blocks.iter().map(|block| value(block) * block.seconds).sum();
    let seconds: f64 = blocks.iter().map(|block| block.seconds).sum();
    weighted / seconds.max(f64::MIN_POSITIVE)
}
