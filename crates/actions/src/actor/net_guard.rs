//! Net saving of each target: paging out stops where too little is saved, because contents do not compress.
//!
//! Bytes that left resident memory are compared with the growth of all zram devices right around the calls
//! (writes to zram end within the call). Other programs write to zram too: a measurement in which zram took
//! clearly more data than left memory is dropped. Pages that were dropped or went to other swap do not let
//! zram grow, so they count as saved.
//!
//! The first pages of a target go in small parts until 16 MiB have left. Later calls are measured whole, and
//! older measurements lose weight. A stopped target is tried again after 10 minutes, as its contents may have
//! changed; then after 20, 40 and each 60 minutes.

use std::collections::BTreeMap;
use std::path::Path;

use thermo_engine::TargetId;
use thermo_kernel::zram::{self, MmStat};
use thermo_targets::Processes;
use thermo_units::{AddrRange, Bytes, Nanos, Permille};

use super::plan::RangePlan;
use super::range_ops::Ranges;

/// Bytes that must have left before a target is judged: zram allocates whole pages for many compressed ones,
/// and other programs write to it.
const MIN_LEFT: Bytes = Bytes::mib(16);
/// With more than this, all measurements so far count half.
const MAX_LEFT: Bytes = Bytes::mib(256);
/// Until a target is tried again, for the first time.
const FIRST_WAIT: Nanos = Nanos::secs(600);
/// Until a target is tried again, at most.
const MAX_WAIT: Nanos = Nanos::secs(3600);

/// What may be paged out of a target now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Permit {
    /// Everything.
    All,
    /// A part of this size, and then ask again: it is not known yet what the contents compress to.
    Part(Bytes),
    /// Nothing.
    Nothing,
}

/// The measurements of one target.
#[derive(Debug, Default)]
struct TargetNet {
    /// Bytes that left resident memory.
    left: Bytes,
    /// Growth of zram meanwhile.
    grew: Bytes,
    /// Size of the next part.
    part: Bytes,
    /// Until when the target is stopped.
    stopped_until: Option<Nanos>,
    /// The last wait; zero after a judgement in favour.
    wait: Nanos,
}

/// Measures and judges targets.
#[derive(Debug)]
pub(super) struct NetGuard {
    min_net: Permille,
    targets: BTreeMap<TargetId, TargetNet>,
    notes: Vec<String>,
}

impl NetGuard {
    /// Stops targets of which less than `min_net` is saved; at 0 nothing is measured.
    pub(super) const fn new(min_net: Permille) -> Self {
        Self {
            min_net,
            targets: BTreeMap::new(),
            notes: Vec::new(),
        }
    }

    /// Forgets targets that have ended.
    pub(super) fn retain(&mut self, processes: &Processes) {
        self.targets.retain(|target, _| processes.get(target).is_some());
    }

    /// Sentences about targets that were stopped, since the last call.
    pub(super) fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// What may be paged out of `target`.
    pub(super) fn permit(&mut self, target: TargetId, now: Nanos) -> Permit {
        if self.min_net == Permille(0) {
            return Permit::All;
        }
        let net = self.targets.entry(target).or_default();
        match net.stopped_until {
            Some(until) if now < until => return Permit::Nothing,
            Some(_) => {
                *net = TargetNet {
                    wait: net.wait,
                    ..TargetNet::default()
                }
            }
            None => {}
        }
        if net.left >= MIN_LEFT {
            return Permit::All;
        }
        // Where most addresses hold no page, parts grow.
        net.part = Bytes(net.part.0.saturating_mul(2)).max(MIN_LEFT);
        Permit::Part(net.part)
    }

    /// Memory use of zram; `None` where it is not measured.
    pub(super) fn zram(&self, root: &Path) -> Option<MmStat> {
        (self.min_net > Permille(0))
            .then(|| zram::total(root).ok())
            .flatten()
    }

    /// Takes a measurement: `left` bytes left process `pid`, between the two readings of zram.
    pub(super) fn record(
        &mut self,
        (target, pid): (TargetId, u32),
        left: Bytes,
        zram: Option<(MmStat, MmStat)>,
        now: Nanos,
    ) {
        let Some((before, after)) = zram.filter(|_| left > Bytes::ZERO) else {
            return;
        };
        let taken = after.orig_data.saturating_sub(before.orig_data);
        if taken > left + Bytes(left.0 / 4) + Bytes::mib(1) {
            return;
        }
        let net = self.targets.entry(target).or_default();
        net.left += left;
        net.grew += after.mem_used.saturating_sub(before.mem_used);
        if net.left < MIN_LEFT {
            return;
        }
        let saved = net.left.saturating_sub(net.grew);
        let saved = u128::from(saved.0) * 1000 / u128::from(net.left.0);
        if saved >= u128::from(self.min_net.0) {
            net.wait = Nanos::ZERO;
            if net.left > MAX_LEFT {
                (net.left, net.grew) = (Bytes(net.left.0 / 2), Bytes(net.grew.0 / 2));
            }
            return;
        }
        net.wait = match net.wait {
            Nanos::ZERO => FIRST_WAIT,
            wait => Nanos(wait.0.saturating_mul(2)).min(MAX_WAIT),
        };
        net.stopped_until = Some(now.saturating_add(net.wait));
        self.notes.push(format!(
            "paging out of pid {pid} stops for {}: of {} that left memory, {} lie in zram, so less than {} is \
             saved (--min-net)",
            net.wait, net.left, net.grew, self.min_net
        ));
    }
}

/// Takes the first `size` bytes of the kept memory out of `plans`.
pub(super) fn split_off(plans: &mut [RangePlan], size: Bytes) -> Vec<RangePlan> {
    let mut budget = size;
    let take = |plan: &mut RangePlan| {
        let (mut part, mut rest) = (Vec::new(), Vec::new());
        for range in plan.kept.iter() {
            let middle = range.start + range.len().min(budget);
            let (first, second) = (
                AddrRange {
                    end: middle,
                    ..*range
                },
                AddrRange {
                    start: middle,
                    ..*range
                },
            );
            budget = budget.saturating_sub(first.len());
            part.extend(Some(first).filter(|range| !range.is_empty()));
            rest.extend(Some(second).filter(|range| !range.is_empty()));
        }
        plan.kept = rest.into();
        RangePlan {
            kept: Ranges::from(part),
            ..RangePlan::default()
        }
    };
    plans.iter_mut().map(take).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::super::range_ops;
    use super::*;

    const TARGET: (TargetId, u32) = (TargetId(0), 7);

    fn zram(orig: u64, used: u64) -> MmStat {
        MmStat {
            orig_data: Bytes::mib(orig),
            mem_used: Bytes::mib(used),
            ..MmStat::default()
        }
    }

    fn guard() -> NetGuard {
        NetGuard::new(Permille(100))
    }

    fn record(guard: &mut NetGuard, left: u64, taken: u64, grew: u64, now: u64) {
        let readings = Some((zram(5, 5), zram(5 + taken, 5 + grew)));
        guard.record(TARGET, Bytes::mib(left), readings, Nanos::secs(now));
    }

    #[test]
    fn target_is_stopped_when_too_little_is_saved() {
        for (grew, permit, notes) in [
            (4, Permit::All, 0),
            (18, Permit::All, 0),
            (19, Permit::Nothing, 1),
        ] {
            let mut guard = guard();
            assert_eq!(guard.permit(TARGET.0, Nanos::ZERO), Permit::Part(Bytes::mib(16)));
            record(&mut guard, 10, 10, grew / 2, 1);
            assert_eq!(guard.permit(TARGET.0, Nanos::ZERO), Permit::Part(Bytes::mib(32)));
            record(&mut guard, 10, 10, grew - grew / 2, 2);
            assert_eq!(
                guard.permit(TARGET.0, Nanos::secs(3)),
                permit,
                "{grew} MiB in zram"
            );
            assert_eq!(guard.take_notes().len(), notes);
        }
    }

    #[test]
    fn stopped_target_is_tried_again_after_growing_waits() {
        let mut guard = guard();
        let mut now = 0;
        for wait in [600, 1200, 2400, 3600, 3600] {
            record(&mut guard, 16, 16, 16, now);
            assert_eq!(
                guard.permit(TARGET.0, Nanos::secs(now + wait - 1)),
                Permit::Nothing
            );
            now += wait;
            assert_eq!(guard.permit(TARGET.0, Nanos::secs(now)), Permit::Part(MIN_LEFT));
        }
        let notes = guard.take_notes();
        assert_eq!(
            notes[0],
            "paging out of pid 7 stops for 10 m: of 16.0 MiB that left memory, 16.0 MiB lie in zram, so less than \
             10 % is saved (--min-net)"
        );
        record(&mut guard, 16, 16, 4, now);
        record(&mut guard, 160, 160, 160, now);
        assert_eq!(
            guard.permit(TARGET.0, Nanos::secs(now + 600)),
            Permit::Part(MIN_LEFT)
        );
    }

    #[test]
    fn other_swap_saves_all_and_other_writers_do_not_count() {
        let mut guard = guard();
        record(&mut guard, 100, 0, 0, 1);
        assert_eq!(guard.permit(TARGET.0, Nanos::secs(2)), Permit::All, "not to zram");
        record(&mut guard, 16, 900, 900, 3);
        assert_eq!(
            guard.permit(TARGET.0, Nanos::secs(4)),
            Permit::All,
            "another program"
        );
        let mut off = NetGuard::new(Permille(0));
        record(&mut off, 100, 100, 100, 1);
        assert_eq!(off.permit(TARGET.0, Nanos::secs(2)), Permit::All);
        assert_eq!(off.zram(Path::new("/")), None);
    }

    #[test]
    fn growth_is_read_from_all_devices() {
        let root = tempfile::tempdir().unwrap();
        let put = |device: &str, orig: u64, used: u64| {
            let dir = root.path().join("sys/block").join(device);
            std::fs::create_dir_all(&dir).unwrap();
            let text = format!("{} 9 {} 0 0 0 0 0 0\n", orig << 20, used << 20);
            std::fs::write(dir.join("mm_stat"), text).unwrap();
        };
        let mut guard = guard();
        put("zram0", 100, 30);
        put("zram4", 7, 7);
        let before = guard.zram(root.path()).unwrap();
        assert_eq!(before, zram(107, 37));
        put("zram4", 27, 27);
        let after = guard.zram(root.path()).unwrap();
        guard.record(TARGET, Bytes::mib(20), Some((before, after)), Nanos::ZERO);
        assert_eq!(guard.permit(TARGET.0, Nanos::ZERO), Permit::Nothing);
    }

    #[test]
    fn old_measurements_lose_weight() {
        let mut guard = guard();
        for now in 0..100 {
            record(&mut guard, 64, 64, 16, now);
        }
        for now in 100..110 {
            record(&mut guard, 64, 64, 64, now);
        }
        // 640 MiB did not compress; 6400 MiB before did.
        assert_eq!(guard.permit(TARGET.0, Nanos::secs(111)), Permit::Nothing);
        assert_eq!(guard.zram(Path::new("/nowhere")), Some(MmStat::default()));
    }

    #[test]
    fn ended_targets_are_forgotten() {
        let mut guard = guard();
        record(&mut guard, 16, 16, 16, 0);
        guard.retain(&Processes::new());
        assert_eq!(guard.permit(TARGET.0, Nanos::secs(1)), Permit::Part(MIN_LEFT));
    }

    #[test]
    fn split_off_takes_first_bytes_of_plans() {
        let plan = |ranges: &[(u64, u64)]| {
            let ranges = ranges
                .iter()
                .map(|(start, end)| AddrRange::new(start << 12, end << 12));
            RangePlan {
                kept: ranges.collect(),
                ..RangePlan::default()
            }
        };
        let mut plans = [plan(&[(0, 2), (4, 6)]), plan(&[]), plan(&[(8, 9)])];
        let part = split_off(&mut plans, Bytes::kib(12));
        let pages = |plans: &[RangePlan]| -> Vec<u64> {
            plans
                .iter()
                .map(|plan| range_ops::sum(&plan.kept).0 >> 12)
                .collect()
        };
        assert_eq!((pages(&part), pages(&plans)), (vec![3, 0, 0], vec![1, 0, 1]));
        assert_eq!(plans[0].kept[0], AddrRange::new(5 << 12, 6 << 12));
        let part = split_off(&mut plans, Bytes::kib(999));
        assert_eq!((pages(&part), pages(&plans)), (vec![1, 0, 1], vec![0, 0, 0]));
    }
}
