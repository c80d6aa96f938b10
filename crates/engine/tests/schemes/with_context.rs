//! A context with a pageout scheme on a simulated machine: idle memory is paged out, memory in use is not.

use thermo_engine::scheme::{Age, Bounds, Quota, Rate, Scheme};
use thermo_engine::{Action, Attrs, Context, Event, TargetId};
use thermo_sim::{Machine, PageLocation};
use thermo_units::{Bytes, Nanos, PAGE_SIZE};

use super::common::{pages, run_until};

const ALL: (u64, u64) = (1000, 5000);
const HOT: (u64, u64) = (2000, 2500);

/// Runs for 20 s a process that accesses [`HOT`] all the time, with a scheme that pages out memory idle for 1
/// s, within `quota`.
fn reclaim(quota: Quota) -> (Machine, TargetId, Context) {
    let mut machine = Machine::new();
    let id = machine.spawn(&[pages(ALL.0, ALL.1)]);
    machine.touch(id, pages(ALL.0, ALL.1));
    machine.change(id, pages(ALL.0, ALL.1), |page| page.accessed = false);
    let mut scheme = Scheme {
        quota,
        ..Scheme::new(Action::Pageout)
    };
    scheme.pattern.nr_accesses = Bounds {
        min: Rate::Samples(0),
        max: Rate::Samples(0),
    };
    scheme.pattern.age = Bounds {
        min: Age::Time(Nanos::secs(1)),
        max: Age::Time(Nanos::MAX),
    };

    let mut context = Context::new(Attrs::default(), 7).unwrap();
    context.set_schemes(vec![scheme]).unwrap();
    let mut sink = |_: &Event<'_>| {};
    let touch = |machine: &mut Machine, _| machine.touch(id, pages(HOT.0, HOT.1));
    run_until(&mut context, &mut machine, &mut sink, Nanos::secs(20), touch);
    (machine, id, context)
}

#[test]
fn pageout_takes_idle_and_spares_used_memory() {
    let (machine, id, context) = reclaim(Quota::default());
    let swapped = |range| machine.count(id, range, |page| page.location == PageLocation::Swapped);
    let cold = ALL.1 - ALL.0 - (HOT.1 - HOT.0);
    let all = swapped(pages(ALL.0, ALL.1));
    assert!(all * 100 >= cold * 95, "{all} of {cold} pages");
    let refaulted = machine.count(id, pages(HOT.0, HOT.1), |page| page.refaults > 0);
    assert!(
        refaulted * 20 <= HOT.1 - HOT.0,
        "{refaulted} pages in use were paged out"
    );
    let stats = context.schemes()[0].stats();
    assert_eq!(stats.qt_exceeds, 0);
}

#[test]
fn quota_holds_in_running_context() {
    let quota = Quota {
        sz: Bytes(100 * PAGE_SIZE),
        reset_interval: Nanos::secs(1),
        ..Quota::default()
    };
    let (_, _, context) = reclaim(quota);
    let stats = context.schemes()[0].stats();
    assert!(stats.sz_tried.0 <= 20 * 100 * PAGE_SIZE, "{stats:?}");
    assert!(stats.sz_applied.0 >= 10 * 100 * PAGE_SIZE, "{stats:?}");
    assert_eq!(stats.effective_sz, Bytes(100 * PAGE_SIZE));
    assert!(stats.qt_exceeds >= 10, "{stats:?}");
}
