//! The batches on a model of the kernel (`do_pages_move()` in mm/migrate.c, Linux 6.1 to 6.18).
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::BTreeMap;

use thermo_kernel::move_pages::PageStatus;

use super::*;

/// How the kernel treats a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Movable,
    /// Its move fails after it was taken off the LRU lists.
    Pinned,
    /// It is not on an LRU list.
    Busy,
    Shared,
    Absent,
}

/// Pages by address, with their node.
#[derive(Default)]
struct Model {
    pages: BTreeMap<Addr, (Kind, u32)>,
    /// Pages that node 0 can still take.
    room: usize,
    calls: usize,
    error: Option<i32>,
}

impl Model {
    fn new(kinds: &[Kind]) -> Self {
        let page = |(nth, kind): (u64, &Kind)| (Addr(nth * PAGE_SIZE), (*kind, 1));
        Self {
            pages: (0..).zip(kinds).map(page).collect(),
            room: usize::MAX,
            ..Self::default()
        }
    }

    fn units(&self) -> Vec<Unit> {
        let unit = |addr: &Addr| Unit {
            range: AddrRange {
                start: *addr,
                end: *addr + Bytes(PAGE_SIZE),
            },
            on: Some(1),
            to: 0,
        };
        self.pages.keys().map(unit).collect()
    }

    /// Moves the isolated pages, and writes their status if all of them moved.
    fn flush(&mut self, group: &mut Vec<(usize, Addr)>, statuses: &mut [PageStatus]) -> io::Result<usize> {
        let mut failed = 0;
        for (_, addr) in group.iter() {
            let page = self.pages.get_mut(addr).unwrap();
            match page.0 {
                Kind::Pinned => failed += 1,
                _ if self.room == 0 => return Err(io::Error::from_raw_os_error(libc::ENOMEM)),
                _ => (self.room, page.1) = (self.room - 1, 0),
            }
        }
        if failed == 0 {
            group
                .iter()
                .for_each(|(nth, _)| statuses[*nth] = PageStatus::from_raw(0));
        }
        group.clear();
        Ok(failed)
    }
}

impl MovePages for Model {
    fn move_pages(
        &mut self,
        pages: &[Addr],
        nodes: &[u32],
        statuses: &mut Vec<PageStatus>,
    ) -> io::Result<usize> {
        self.calls += 1;
        *statuses = vec![PageStatus::UNSET; pages.len()];
        if let Some(error) = self.error {
            return Err(io::Error::from_raw_os_error(error));
        }
        let mut group = Vec::new();
        for (nth, (addr, to)) in pages.iter().zip(nodes).enumerate() {
            let (kind, on) = self.pages[addr];
            let status = match kind {
                Kind::Absent => -libc::ENOENT,
                _ if on == *to => 0,
                Kind::Shared => -libc::EACCES,
                Kind::Busy => -libc::EBUSY,
                Kind::Movable | Kind::Pinned => {
                    group.push((nth, *addr));
                    continue;
                }
            };
            statuses[nth] = PageStatus::from_raw(status);
            let failed = self.flush(&mut group, statuses)?;
            if failed > 0 {
                return Ok(failed + pages.len() - nth - 1);
            }
        }
        self.flush(&mut group, statuses)
    }

    fn query(&mut self, pages: &[Addr], statuses: &mut Vec<PageStatus>) -> io::Result<()> {
        let status = |addr: &Addr| match self.pages[addr] {
            (Kind::Absent, _) => PageStatus::from_raw(-libc::ENOENT),
            (_, node) => PageStatus::from_raw(i32::try_from(node).unwrap()),
        };
        *statuses = pages.iter().map(status).collect();
        Ok(())
    }
}

fn moved(model: &mut Model) -> Vec<Result<(), Skip>> {
    let units = model.units();
    let results = move_units(model, &units).into_iter();
    results
        .map(|result| result.map_err(|refusal| skip_for(refusal.cause())))
        .collect()
}

#[test]
fn movable_pages_take_one_call() {
    let mut model = Model::new(&[Kind::Movable; 1000]);
    assert_eq!(moved(&mut model), vec![Ok(()); 1000]);
    assert_eq!(model.calls, 1);
    assert_eq!(move_units(&mut model, &[]), []);
}

/// Ends its process within a call.
struct Ends<'a> {
    model: &'a mut Model,
    child: std::process::Child,
    /// In which call of `move_pages`, counted from 1.
    at: usize,
}

impl MovePages for Ends<'_> {
    fn move_pages(
        &mut self,
        pages: &[Addr],
        nodes: &[u32],
        statuses: &mut Vec<PageStatus>,
    ) -> io::Result<usize> {
        let moved = self.model.move_pages(pages, nodes, statuses);
        if self.model.calls == self.at {
            self.child.kill()?;
            self.child.wait()?;
        }
        moved
    }

    fn query(&mut self, pages: &[Addr], statuses: &mut Vec<PageStatus>) -> io::Result<()> {
        self.model.query(pages, statuses)
    }
}

#[test]
fn no_call_is_made_by_the_number_of_a_process_that_has_ended() {
    // The pinned page makes the batch be tried again in smaller calls.
    let mut kinds = [Kind::Movable; 1000];
    kinds[3] = Kind::Pinned;
    let mut all = Model::new(&kinds);
    moved(&mut all);
    assert!(all.calls > 3, "{} calls", all.calls);
    for at in [1, 3] {
        let mut model = Model::new(&kinds);
        let units = model.units();
        let child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let process = Process::open(thermo_engine::TargetId(0), child.id()).unwrap();
        let ends = Ends {
            model: &mut model,
            child,
            at,
        };
        let results = move_units(&mut living(&process, ends), &units);
        assert_eq!(model.calls, at, "calls after the process has ended");
        let gone = |result: &Result<(), Refusal>| matches!(result, Err(why) if why.cause() == Cause::Gone);
        assert!(results.iter().any(gone), "{results:?}");
    }
}

#[test]
fn pages_that_cannot_move_do_not_keep_others() {
    let mut kinds = [Kind::Movable; 1000];
    let stuck = [
        (3, Kind::Pinned, Skip::Busy),
        (4, Kind::Shared, Skip::Shared),
        (500, Kind::Busy, Skip::Busy),
        (501, Kind::Pinned, Skip::Busy),
        (777, Kind::Absent, Skip::NotPresent),
        (999, Kind::Pinned, Skip::Busy),
    ];
    stuck.iter().for_each(|(nth, kind, _)| kinds[*nth] = *kind);
    let mut model = Model::new(&kinds);
    let results = moved(&mut model);
    for (nth, result) in results.iter().enumerate() {
        let why = stuck
            .iter()
            .find(|(stuck, ..)| *stuck == nth)
            .map(|(_, _, why)| *why);
        assert_eq!(*result, why.map_or(Ok(()), Err), "page {nth}");
    }
    assert!(model.calls < 200, "{} calls", model.calls);
}

#[test]
fn full_node_and_cpuset_end_the_batch() {
    let mut model = Model::new(&[Kind::Movable; 10]);
    model.room = 4;
    let results = moved(&mut model);
    assert_eq!(results[..4], [Ok(()); 4]);
    assert_eq!(results[4..], [Err(Skip::NodeFull); 6]);
    assert_eq!(model.calls, 1);
    for (errno, why) in [
        (libc::EACCES, Skip::Cpuset),
        (libc::ESRCH, Skip::TargetGone),
        (libc::EPERM, Skip::NotPermitted),
        (libc::ENODEV, Skip::Refused),
    ] {
        let mut model = Model::new(&[Kind::Movable; 10]);
        model.error = Some(errno);
        assert_eq!(moved(&mut model), [Err(why); 10]);
        assert_eq!(model.calls, 1);
    }
}

#[test]
fn batches_are_limited_in_pages_and_bytes() {
    let unit = |nth: u64, len: u64| Unit {
        range: AddrRange::new(nth * len, (nth + 1) * len),
        on: None,
        to: 0,
    };
    let lens = |units: &[Unit]| batches(units).map(<[Unit]>::len).collect::<Vec<_>>();
    let huge: Vec<Unit> = (0..70).map(|nth| unit(nth, HUGE_PAGE.0)).collect();
    assert_eq!(lens(&huge), [32, 32, 6]);
    let small: Vec<Unit> = (0..40_000).map(|nth| unit(nth, PAGE_SIZE)).collect();
    assert_eq!(lens(&small), [16_384, 16_384, 7232]);
    assert_eq!(lens(&[]), [0; 0]);
}
