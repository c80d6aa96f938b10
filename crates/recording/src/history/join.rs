//! Joins the records of several policies into one stream.
//!
//! Each policy has snapshots of its own targets only, and a report takes a snapshot for everything there is.
//! So snapshots of one slot of time become one, with the targets of all policies.

use thermo_units::Nanos;

use super::policy_stream::PolicyStream;
use super::query::NamedTarget;
use super::wall_clock;
use crate::model::{Record, Region, Snapshot, Target};

/// Length of a slot, as that of the writer.
const SLOT: Nanos = Nanos::secs(10);

/// The joined records.
pub(super) struct Join {
    streams: Vec<Stream>,
    slot: u64,
    /// End of the last joined snapshot.
    end_ns: u64,
}

struct Stream {
    records: PolicyStream,
    next: Option<Record>,
    /// The last snapshot, and whether it belongs to the current slot.
    last: Option<Snapshot>,
    is_new: bool,
}

impl Join {
    pub(super) fn new(streams: Vec<PolicyStream>) -> Self {
        let stream = |records| Stream {
            records,
            next: None,
            last: None,
            is_new: false,
        };
        Self {
            streams: streams.into_iter().map(stream).collect(),
            slot: 0,
            end_ns: 0,
        }
    }

    pub(super) fn next(&mut self) -> Option<Record> {
        if let [only] = &mut self.streams[..] {
            return only.records.next();
        }
        loop {
            let Some((index, time)) = self.first() else {
                return self.joined();
            };
            let slot = time.0 / SLOT.0;
            if slot != self.slot
                && let Some(joined) = self.joined()
            {
                return Some(joined);
            }
            self.slot = slot;
            let count = u32::try_from(self.streams.len()).unwrap_or(u32::MAX);
            let number = u32::try_from(index).unwrap_or(0);
            let stream = self.streams.get_mut(index)?;
            match stream.next.take()? {
                Record::Snapshot(snapshot) => stream.add(snapshot),
                record => return Some(distinct(record, number, count)),
            }
        }
    }

    pub(super) fn targets(&self) -> Vec<NamedTarget> {
        let mut all: Vec<NamedTarget> = self
            .streams
            .iter()
            .flat_map(|stream| stream.records.targets())
            .collect();
        all.sort_unstable();
        all
    }

    pub(super) fn target(&self, id: u32) -> Option<NamedTarget> {
        let count = u32::try_from(self.streams.len()).ok()?.max(1);
        let index = usize::try_from(id % count).ok()?;
        self.streams.get(index)?.records.target(id / count)
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        let all = self.streams.iter();
        all.flat_map(|stream| stream.records.warnings().iter().cloned())
            .collect()
    }

    /// The stream with the earliest next record, and its time.
    fn first(&mut self) -> Option<(usize, Nanos)> {
        let nexts = self.streams.iter_mut().enumerate();
        let times = nexts.filter_map(|(index, stream)| Some((wall_clock::time(stream.peek()?), index)));
        times.min().map(|(time, index)| (index, time))
    }

    /// The snapshots of the current slot as one; `None` if there is none.
    fn joined(&mut self) -> Option<Record> {
        let new = || self.streams.iter().filter(|stream| stream.is_new);
        let snapshots = || new().filter_map(|stream| stream.last.as_ref());
        let time_ns = snapshots().map(|snapshot| snapshot.time_ns).max()?;
        let begin = snapshots().map(|snapshot| snapshot.start_ns).min()?;
        let finest = snapshots().min_by_key(|snapshot| snapshot.aggr_ns)?;
        let mut joined = Snapshot {
            start_ns: begin.max(self.end_ns).min(time_ns),
            time_ns,
            aggr_ns: finest.aggr_ns,
            max_nr_accesses: snapshots().map(|snapshot| snapshot.max_nr_accesses).max()?,
            targets: Vec::new(),
        };
        let count = u32::try_from(self.streams.len()).unwrap_or(u32::MAX);
        for (stream, number) in self.streams.iter_mut().zip(0..) {
            let targets = stream.targets_at(time_ns, &joined);
            joined.targets.extend(targets.into_iter().map(|target| Target {
                id: distinct_id(target.id, number, count),
                ..target
            }));
        }
        self.end_ns = time_ns;
        Some(Record::Snapshot(joined))
    }
}

impl Stream {
    fn peek(&mut self) -> Option<&Record> {
        if self.next.is_none() {
            self.next = self.records.next();
        }
        self.next.as_ref()
    }

    /// Takes the next snapshot. If it is the second of its slot, re-accesses are those of both.
    fn add(&mut self, mut snapshot: Snapshot) {
        if let Some(last) = self.last.take().filter(|_| self.is_new) {
            for before in last.targets {
                let now = snapshot.targets.iter_mut().find(|target| target.id == before.id);
                let both = now.and_then(|target| target.tables.as_mut()).zip(before.tables);
                if let Some((tables, before)) = both {
                    let sums = tables.reaccessed.iter_mut().zip(before.reaccessed);
                    sums.for_each(|(sum, bytes)| sum.0 = sum.0.saturating_add(bytes.0));
                }
            }
            snapshot.start_ns = last.start_ns.min(snapshot.start_ns);
        }
        (self.last, self.is_new) = (Some(snapshot), true);
    }

    /// The targets of the joined snapshot that ends at `time_ns`, on the scale of `joined`. A policy with
    /// rare snapshots has those of the last one until the next is due.
    fn targets_at(&mut self, time_ns: u64, joined: &Snapshot) -> Vec<Target> {
        let is_new = std::mem::take(&mut self.is_new);
        let Some(last) = &mut self.last else {
            return Vec::new();
        };
        let length = last.time_ns.saturating_sub(last.start_ns);
        if !is_new && last.time_ns.saturating_add(length) < time_ns {
            self.last = None;
            return Vec::new();
        }
        let mut targets = last.targets.clone();
        for target in &mut targets {
            for region in &mut target.regions {
                rescale(region, last, joined);
            }
        }
        // They count once.
        let tables = last
            .targets
            .iter_mut()
            .filter_map(|target| target.tables.as_mut());
        tables.for_each(|tables| tables.reaccessed = Default::default());
        targets
    }
}

/// Moves the numbers of `region` from the scale of one snapshot to that of another.
fn rescale(region: &mut Region, from: &Snapshot, to: &Snapshot) {
    let scaled = |value: u32, factor: u64, divisor: u64| {
        let scaled = u128::from(value) * u128::from(factor) / u128::from(divisor.max(1));
        u32::try_from(scaled).unwrap_or(u32::MAX)
    };
    region.age = region.age.map(|age| scaled(age, from.aggr_ns, to.aggr_ns));
    let accesses = scaled(
        region.nr_accesses,
        to.max_nr_accesses.into(),
        from.max_nr_accesses.into(),
    );
    // What was accessed does not become idle.
    region.nr_accesses = accesses.max(u32::from(region.nr_accesses > 0));
}

/// The record with an id that no other stream gives.
fn distinct(mut record: Record, number: u32, count: u32) -> Record {
    let id = |id: &mut u32| *id = distinct_id(*id, number, count);
    match &mut record {
        Record::Mappings(mappings) => id(&mut mappings.target),
        Record::Footprint(footprint) => id(&mut footprint.target),
        Record::Scheme(applied) => id(&mut applied.index),
        Record::Snapshot(_) | Record::Cost(_) | Record::Note(_) | Record::Totals(_) => {}
    }
    record
}

const fn distinct_id(id: u32, number: u32, count: u32) -> u32 {
    id.saturating_mul(count).saturating_add(number)
}
