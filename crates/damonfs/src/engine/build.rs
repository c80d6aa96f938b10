//! Builds the engine's configuration from staged values. Order of checks and errors are the kernel's.
//!
//! All values are checked before a running kdamond is changed.

use std::path::Path;

use rustix::io::Errno;
use thermo_engine::TargetId;
use thermo_engine::tuning::IntervalsGoal;
use thermo_engine::{Attrs, Scheme};
use thermo_targets::{Process, TrackedProcesses};
use thermo_units::{Addr, AddrRange, BasisPoints, Nanos};

use super::scheme;
use crate::staged::StagedDir;

/// The configuration of a kdamond's only context.
#[derive(Debug)]
pub struct ContextConfig {
    pub settings: Settings,
    pub targets: TargetSelection,
}

/// Monitoring attributes and schemes.
#[derive(Debug)]
pub struct Settings {
    pub attrs: Attrs,
    pub goal: Option<IntervalsGoal>,
    pub schemes: Vec<Scheme>,
}

/// The processes to monitor.
#[derive(Debug)]
pub enum TargetSelection {
    /// These processes, in this order.
    Staged(RangeSource, Vec<StagedTarget>),
    /// All processes of a control group, a process tree or the machine. The pids, if no further process can
    /// join.
    Tracked(Box<TrackedProcesses>, Option<Vec<u32>>),
}

/// The source of the ranges to monitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeSource {
    /// The mappings of the process. Staged ranges replace them in the first update.
    Mappings,
    /// The staged ranges only.
    Fixed,
}

/// A staged target and its process.
#[derive(Debug)]
pub struct StagedTarget {
    pub process: Process,
    pub ranges: Vec<AddrRange>,
}

/// Builds the configuration staged in `context`.
pub fn build(root: &Path, context: StagedDir<'_>) -> Result<ContextConfig, Errno> {
    let source = match context.word("operations") {
        "vaddr" => RangeSource::Mappings,
        "fvaddr" => RangeSource::Fixed,
        // `paddr` is not supported.
        _ => return Err(Errno::INVAL),
    };
    let (attrs, goal) = attrs(context.dir("monitoring_attrs"))?;
    let targets = targets(context.dir("targets"))?;
    let schemes = scheme::all(root, context.dir("schemes"))?;
    Ok(ContextConfig {
        settings: Settings::checked(attrs, goal, schemes)?,
        targets: TargetSelection::Staged(source, targets),
    })
}

impl Settings {
    /// Settings from these parts, checked.
    ///
    /// # Errors
    /// EINVAL: the parts contradict each other.
    pub fn checked(attrs: Attrs, goal: Option<IntervalsGoal>, schemes: Vec<Scheme>) -> Result<Self, Errno> {
        check(&attrs, goal)?;
        thermo_engine::scheme::check(&schemes, &attrs).map_err(|_| Errno::INVAL)?;
        Ok(Self { attrs, goal, schemes })
    }
}

fn attrs(staged: StagedDir<'_>) -> Result<(Attrs, Option<IntervalsGoal>), Errno> {
    let (intervals, nr_regions) = (staged.dir("intervals"), staged.dir("nr_regions"));
    // The kernel accepts 0 and divides by 1 instead.
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

fn goal(staged: StagedDir<'_>) -> Option<IntervalsGoal> {
    let aggrs = staged.number("aggrs");
    (aggrs > 0).then(|| IntervalsGoal {
        access: BasisPoints(staged.number("access_bp")),
        aggrs,
        min_sample: Nanos::micros(staged.number("min_sample_us")),
        max_sample: Nanos::micros(staged.number("max_sample_us")),
    })
}

fn targets(staged: StagedDir<'_>) -> Result<Vec<StagedTarget>, Errno> {
    let numbered = staged.numbered().into_iter().zip(0..);
    numbered
        .map(|(staged, nth)| {
            let pid = u32::try_from(staged.signed("pid_target")).map_err(|_| Errno::INVAL)?;
            Ok(StagedTarget {
                process: open_target(nth, pid)?,
                ranges: ranges(staged.dir("regions"))?,
            })
        })
        .collect()
}

/// Opens process `pid` as target number `nth`.
///
/// # Errors
/// EINVAL: there is no such process, or it is this process.
pub fn open_target(nth: u32, pid: u32) -> Result<Process, Errno> {
    // Each access check of the own memory would itself access that memory.
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

fn ranges(staged: StagedDir<'_>) -> Result<Vec<AddrRange>, Errno> {
    let regions = staged.numbered().into_iter();
    page_aligned(regions.map(|region| (region.number("start"), region.number("end"))))
}

/// Converts starts and ends to ranges, extended to whole pages.
///
/// # Errors
/// EINVAL: a range is empty, or does not lie after the range before.
pub fn page_aligned(regions: impl Iterator<Item = (u64, u64)>) -> Result<Vec<AddrRange>, Errno> {
    let mut ranges: Vec<AddrRange> = Vec::new();
    for (start, end) in regions {
        if start > end {
            return Err(Errno::INVAL);
        }
        let range = AddrRange {
            start: Addr(start).align_down(),
            end: Addr(end).align_up(),
        };
        let ascends = ranges.last().is_none_or(|last| last.end <= range.start);
        if range.end <= range.start || !ascends {
            return Err(Errno::INVAL);
        }
        ranges.push(range);
    }
    Ok(ranges)
}
