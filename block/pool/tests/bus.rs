//! The reclaim bus and the pressure monitor under concurrent registration.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod until;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use thermo_pool::source::{PsiTotal, ScriptedSource, Source, SourceError};
use thermo_pool::{Pools, PressureMonitor, ReclaimBus, Settings};
use thermo_units::{Bytes, Nanos};
use until::until;

#[test]
fn bus_never_calls_removed_device() {
    let bus = ReclaimBus::new(Nanos::ZERO);
    let (done, late) = (AtomicBool::new(false), Arc::new(AtomicU64::new(0)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                bus.report_pressure("soak");
            }
        });
        let devices: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..300 {
                        let alive = Arc::new(AtomicBool::new(true));
                        let (seen, late) = (Arc::clone(&alive), Arc::clone(&late));
                        let reclaim = move |_: &thermo_pool::Pressure| {
                            late.fetch_add(u64::from(!seen.load(Ordering::SeqCst)), Ordering::SeqCst);
                            Bytes(1)
                        };
                        let registration = bus.register("device", 0, || Bytes(1), reclaim);
                        std::thread::yield_now();
                        drop(registration);
                        alive.store(false, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        devices.into_iter().for_each(|device| device.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(late.load(Ordering::SeqCst), 0);
    assert!(bus.reclaimers().is_empty());
}

#[test]
fn monitor_reports_pressure_of_source() {
    let pools = Pools::new(Bytes::mib(8), Settings::default());
    let bus = ReclaimBus::default();
    let _registration = pools.register_on(&bus, 0);
    let monitor = PressureMonitor::start(
        &pools,
        &bus,
        vec![Box::new(ScriptedSource::new(vec![Nanos(1), Nanos(2)]))],
    )
    .unwrap();
    until("both times are reported", || monitor.sources()[0].reports == 2);
    assert!(
        monitor.sources()[0]
            .last
            .as_deref()
            .unwrap()
            .starts_with("scripted")
    );
    assert_eq!(bus.reclaimers()[0].calls, 2);
}

#[test]
fn monitor_shrinks_pools_without_batch_end() {
    let pools = Pools::new(
        Bytes::mib(8),
        Settings {
            max_buffer_pages: 0,
            ..Settings::default()
        },
    );
    let disk = pools.open("disk", Bytes::mib(1)).unwrap();
    let cache = disk.cache();
    drop(cache.acquire(1 << 20).unwrap());
    let _monitor = PressureMonitor::start(&pools, &ReclaimBus::default(), Vec::new()).unwrap();
    until("the free buffer is released", || disk.stats().free_pages == 0);
}

struct Broken;

impl Source for Broken {
    fn name(&self) -> String {
        "broken".to_owned()
    }

    fn check(&mut self, _now: Nanos) -> Result<Option<String>, SourceError> {
        Err(PsiTotal::new("/nowhere".as_ref(), Nanos::ZERO, Nanos::ZERO).unwrap_err())
    }
}

#[test]
fn monitor_records_failed_source_and_polls_others() {
    let pools = Pools::new(Bytes::mib(8), Settings::default());
    let sources: Vec<Box<dyn Source>> = vec![Box::new(Broken), Box::new(ScriptedSource::new(vec![Nanos(1)]))];
    let monitor = PressureMonitor::start(&pools, &ReclaimBus::default(), sources).unwrap();
    until("the scripted source reports", || {
        monitor.sources()[1].reports == 1
    });
    assert!(
        monitor.sources()[0]
            .failed
            .as_deref()
            .unwrap()
            .contains("/nowhere")
    );
}
