//! From staged values to what the engine runs, in the order in which the kernel checks them and with its errors.
//!
//! Nothing is half built: whatever is wrong is found before a running kdamond hears of it.

use std::path::Path;

use rustix::io::Errno;
use thermo_engine::TargetId;
use thermo_engine::tuning::IntervalsGoal;
use thermo_engine::{Attrs, Scheme};
use thermo_targets::{Process, TrackedProcesses};
use thermo_units::{Addr, AddrRange, BasisPoints, Nanos};

use super::scheme;
use crate::staged::Staged;

/// A context as it was staged.
#[derive(Debug)]
pub struct Built {
    pub settings: Settings,
    pub watch: Watch,
}

/// How to look and what to do.
#[derive(Debug)]
pub struct Settings {
    pub attrs: Attrs,
    pub goal: Option<IntervalsGoal>,
    pub schemes: Vec<Scheme>,
}

/// Whom to watch.
#[derive(Debug)]
pub enum Watch {
    /// These processes, in their order.
    Staged(Rule, Vec<StagedTarget>),
    /// Whoever belongs to what was named; where nobody else can join, the processes that were.
    Named(Box<TrackedProcesses>, Option<Vec<u32>>),
}

/// Where the ranges to monitor come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// From the mappings; staged ranges are where it begins.
    Mappings,
    /// Staged ranges and nothing else.
    Fixed,
}

/// A target as it was staged, and the process it means.
#[derive(Debug)]
pub struct StagedTarget {
    pub process: Process,
    pub ranges: Vec<AddrRange>,
}

/// Builds what is staged in `context`.
pub fn build(root: &Path, context: Staged<'_>) -> Result<Built, Errno> {
    let rule = match context.word("operations") {
        "vaddr" => Rule::Mappings,
        "fvaddr" => Rule::Fixed,
        // Physical memory cannot be watched from here.
        _ => return Err(Errno::INVAL),
    };
    let (attrs, goal) = attrs(context.dir("monitoring_attrs"))?;
    let targets = targets(context.dir("targets"))?;
    let schemes = scheme::all(root, context.dir("schemes"))?;
    Ok(Built {
        settings: Settings::checked(attrs, goal, schemes)?,
        watch: Watch::Staged(rule, targets),
    })
}

impl Settings {
    /// These, if they can be meant.
    ///
    /// # Errors
    /// EINVAL: they cannot.
    pub fn checked(attrs: Attrs, goal: Option<IntervalsGoal>, schemes: Vec<Scheme>) -> Result<Self, Errno> {
        check(&attrs, goal)?;
        thermo_engine::scheme::check(&schemes, &attrs).map_err(|_| Errno::INVAL)?;
        Ok(Self { attrs, goal, schemes })
    }
}

fn attrs(staged: Staged<'_>) -> Result<(Attrs, Option<IntervalsGoal>), Errno> {
    let (intervals, nr_regions) = (staged.dir("intervals"), staged.dir("nr_regions"));
    // The kernel takes 0 and divides by 1 instead.
    let time = |name| Nanos::micros(intervals.number(name).max(1));
    let count = |name| usize::try_from(nr_regions.number(name)).unwrap_or(usize::MAX);
    let attrs = Attrs {
        sample: time("sample_us"),
        aggr: time("aggr_us"),
        update: time("update_us"),
        min_nr_regions: count("min"),
        max_nr_regions: count("max"),
    };
    let goal = goal(intervals.dir("intervals_goal"));
    check(&attrs, goal)?;
    Ok((attrs, goal))
}

fn check(attrs: &Attrs, goal: Option<IntervalsGoal>) -> Result<(), Errno> {
    goal.map_or(Ok(()), |goal| goal.check(attrs))
        .map_err(|_| Errno::INVAL)?;
    attrs.check().map_err(|_| Errno::INVAL)
}

fn goal(staged: Staged<'_>) -> Option<IntervalsGoal> {
    let aggrs = staged.number("aggrs");
    (aggrs > 0).then(|| IntervalsGoal {
        access: BasisPoints(staged.number("access_bp")),
        aggrs,
        min_sample: Nanos::micros(staged.number("min_sample_us")),
        max_sample: Nanos::micros(staged.number("max_sample_us")),
    })
}

fn targets(staged: Staged<'_>) -> Result<Vec<StagedTarget>, Errno> {
    let numbered = staged.numbered().into_iter().zip(0..);
    numbered
        .map(|(staged, nth)| {
            let pid = u32::try_from(staged.signed("pid_target")).map_err(|_| Errno::INVAL)?;
            Ok(StagedTarget {
                process: target(nth, pid)?,
                ranges: ranges(staged.dir("regions"))?,
            })
        })
        .collect()
}

/// The process `pid` as target number `nth`.
///
/// # Errors
/// EINVAL: there is none, or it is us.
pub fn target(nth: u32, pid: u32) -> Result<Process, Errno> {
    // Looking at ourselves would change what is seen with every look.
    if pid == 0 || pid == std::process::id() {
        return Err(Errno::INVAL);
    }
    let process = Process::open(TargetId(nth), pid).map_err(|_| Errno::INVAL)?;
    if process.is_alive() {
        Ok(process)
    } else {
        Err(Errno::INVAL)
    }
}

fn ranges(staged: Staged<'_>) -> Result<Vec<AddrRange>, Errno> {
    let regions = staged.numbered().into_iter();
    aligned(regions.map(|region| (region.number("start"), region.number("end"))))
}

/// These starts and ends, each grown to whole pages.
///
/// # Errors
/// EINVAL: one is nothing, or does not lie behind the one before.
pub fn aligned(regions: impl Iterator<Item = (u64, u64)>) -> Result<Vec<AddrRange>, Errno> {
    let mut ranges: Vec<AddrRange> = Vec::new();
    for (start, end) in regions {
        if start > end {
            return Err(Errno::INVAL);
        }
        let range = AddrRange {
            start: Addr(start).align_down(),
            end: Addr(end).align_up(),
        };
        let free = ranges.last().is_none_or(|last| last.end <= range.start);
        if range.end <= range.start || !free {
            return Err(Errno::INVAL);
        }
        ranges.push(range);
    }
    Ok(ranges)
}
