//! Validation of schemes before they run.

use super::pattern::{Age, Bounds, Rate};
use super::validation_error::{SchemeError, SchemeErrorKind};
use super::{CoreFilterKind, OpsFilterKind, Scheme, WatermarkMetric, Watermarks};
use crate::attrs::Attrs;
use thermo_units::{Nanos, Permille};

/// Checks `schemes`, monitored with `attrs`, for contradictory settings.
///
/// # Errors
/// The first contradiction found, with the index of its scheme.
pub fn check(schemes: &[Scheme], attrs: &Attrs) -> Result<(), SchemeError> {
    schemes.iter().enumerate().try_for_each(|(index, scheme)| {
        let checked = check_pattern(scheme, attrs)
            .and_then(|()| check_auto_age(scheme, attrs))
            .and_then(|()| check_destinations(scheme))
            .and_then(|()| check_watermarks(scheme))
            .and_then(|()| check_filters(scheme));
        checked.map_err(|kind| SchemeError { scheme: index, kind })
    })
}

fn check_pattern(scheme: &Scheme, attrs: &Attrs) -> Result<(), SchemeErrorKind> {
    let pattern = &scheme.pattern;
    check_order("size", &pattern.sz, |sz| sz.0, ToString::to_string)?;
    for rate in [pattern.nr_accesses.min, pattern.nr_accesses.max] {
        if let Rate::Permille(share) = rate {
            check_share("a bound of nr_accesses", share)?;
        }
    }
    // Bounds in the same unit are compared in that unit: rounded to access checks, 5 % and 1 % may be equal.
    match pattern.nr_accesses {
        Bounds {
            min: Rate::Permille(min),
            max: Rate::Permille(max),
        } => {
            check_order(
                "nr_accesses",
                &Bounds { min, max },
                |share| u64::from(share.0),
                ToString::to_string,
            )?;
        }
        bounds => check_order(
            "nr_accesses",
            &bounds,
            |rate| u64::from(rate.samples(attrs)),
            |rate| match rate {
                Rate::Permille(share) => share.to_string(),
                Rate::Samples(samples) => format!("{samples} accesses"),
            },
        )?,
    }
    match pattern.age {
        Bounds {
            min: Age::Time(min),
            max: Age::Time(max),
        } => check_order("age", &Bounds { min, max }, |span| span.0, ToString::to_string),
        bounds => check_order("age", &bounds, |age| u64::from(age.aggrs(attrs)), age_text),
    }
}

fn check_auto_age(scheme: &Scheme, attrs: &Attrs) -> Result<(), SchemeErrorKind> {
    let pattern = &scheme.pattern;
    match scheme.auto_age {
        Some(_) if pattern.age.min.aggrs(attrs) > 0 => Err(SchemeErrorKind::AutoAndFixedAge {
            min: age_text(&pattern.age.min),
        }),
        Some(_) if pattern.nr_accesses.max.samples(attrs) > 0 => Err(SchemeErrorKind::AutoAgeOfAccessed),
        _ => Ok(()),
    }
}

fn check_destinations(scheme: &Scheme) -> Result<(), SchemeErrorKind> {
    let action = scheme.action;
    match (action.migrates(), scheme.destinations.as_slice()) {
        (true, []) => return Err(SchemeErrorKind::NoDestination { action }),
        (false, [_, ..]) => return Err(SchemeErrorKind::NeedlessDestination { action }),
        _ => {}
    }
    for (nth, destination) in scheme.destinations.iter().enumerate() {
        let nid = destination.nid;
        let is_double = scheme.destinations[..nth].iter().any(|other| other.nid == nid);
        if is_double || destination.weight == 0 {
            return Err(SchemeErrorKind::Destination { nid });
        }
    }
    Ok(())
}

fn age_text(age: &Age) -> String {
    match age {
        Age::Time(span) => span.to_string(),
        Age::Aggrs(aggrs) => format!("{aggrs} aggregations"),
    }
}

fn check_order<T>(
    bound: &'static str,
    bounds: &Bounds<T>,
    number: impl Fn(&T) -> u64,
    text: impl Fn(&T) -> String,
) -> Result<(), SchemeErrorKind> {
    if number(&bounds.min) <= number(&bounds.max) {
        return Ok(());
    }
    Err(SchemeErrorKind::MinAboveMax {
        bound,
        min: text(&bounds.min),
        max: text(&bounds.max),
    })
}

const fn check_share(setting: &'static str, given: Permille) -> Result<(), SchemeErrorKind> {
    if given.0 <= 1000 {
        Ok(())
    } else {
        Err(SchemeErrorKind::ShareAboveWhole { setting, given })
    }
}

fn check_watermarks(scheme: &Scheme) -> Result<(), SchemeErrorKind> {
    let watermarks = &scheme.watermarks;
    if watermarks.metric == WatermarkMetric::None {
        return Ok(());
    }
    check_share("the high watermark", watermarks.high)?;
    let Watermarks { high, mid, low, .. } = *watermarks;
    if high < mid || mid < low {
        return Err(SchemeErrorKind::Watermarks { high, mid, low });
    }
    if watermarks.interval == Nanos::ZERO {
        Err(SchemeErrorKind::WatermarkInterval)
    } else {
        Ok(())
    }
}

fn check_filters(scheme: &Scheme) -> Result<(), SchemeErrorKind> {
    for (filter, core) in scheme.filters.core.iter().enumerate() {
        if let CoreFilterKind::Addr(range) = core.kind
            && range.is_empty()
        {
            return Err(SchemeErrorKind::EmptyFilter { filter, range });
        }
    }
    for (filter, ops) in scheme.filters.ops.iter().enumerate() {
        if let OpsFilterKind::HugepageSize { min, max } = ops.kind
            && min > max
        {
            return Err(SchemeErrorKind::HugepageSize { filter, min, max });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Action;
    use crate::scheme::{AccessPattern, AutoAge, CoreFilter, Filters, OpsFilter};
    use thermo_units::AddrRange;
    use thermo_units::Bytes;

    fn error_text(change: impl FnOnce(&mut Scheme)) -> String {
        let mut scheme = Scheme::new(Action::Pageout);
        change(&mut scheme);
        let error = check(&[Scheme::new(Action::Stat), scheme], &Attrs::default());
        error.expect_err("the scheme is invalid").to_string()
    }

    fn pattern(scheme: &mut Scheme, change: impl FnOnce(&mut AccessPattern)) {
        change(&mut scheme.pattern);
    }

    #[test]
    fn check_accepts_valid_schemes() {
        let mut scheme = Scheme::new(Action::Pageout);
        scheme.pattern.nr_accesses = Bounds {
            min: Rate::Samples(20),
            max: Rate::Permille(Permille(1000)),
        };
        scheme.watermarks = Watermarks {
            high: Permille(3),
            mid: Permille(9),
            ..Watermarks::default()
        };
        assert_eq!(
            check(&[scheme], &Attrs::default()),
            Ok(()),
            "watermarks without a metric are not checked"
        );
        assert_eq!(check(&[], &Attrs::default()), Ok(()));
    }

    #[test]
    fn check_rejects_minimum_above_maximum() {
        let sz = Bounds {
            min: Bytes::mib(2),
            max: Bytes::mib(1),
        };
        assert_eq!(
            error_text(|s| pattern(s, |p| p.sz = sz)),
            "scheme 1: the minimum size (2.00 MiB) is above the maximum (1.00 MiB), so nothing can match: \
             swap the two or widen one"
        );
        let rates = Bounds {
            min: Rate::Permille(Permille(20)),
            max: Rate::Permille(Permille(10)),
        };
        assert!(
            error_text(|s| pattern(s, |p| p.nr_accesses = rates))
                .contains("nr_accesses (2 %) is above the maximum (1 %)")
        );
        let rates = Bounds {
            min: Rate::Samples(11),
            max: Rate::Permille(Permille(500)),
        };
        assert!(
            error_text(|s| pattern(s, |p| p.nr_accesses = rates))
                .contains("(11 accesses) is above the maximum (50 %)")
        );
        let ages = Bounds {
            min: Age::Aggrs(11),
            max: Age::Time(Nanos::secs(1)),
        };
        assert!(
            error_text(|s| pattern(s, |p| p.age = ages))
                .contains("(11 aggregations) is above the maximum (1.00 s)")
        );
    }

    #[test]
    fn check_rejects_automatic_age_of_accessed_or_with_fixed_age() {
        let idle = Bounds {
            min: Rate::Samples(0),
            max: Rate::Samples(0),
        };
        let mut auto = Scheme {
            auto_age: Some(AutoAge::default()),
            ..Scheme::new(Action::Pageout)
        };
        assert!(error_text(|s| *s = auto.clone()).contains("set the maximum of nr_accesses to 0"));
        auto.pattern.nr_accesses = idle;
        assert_eq!(check(&[auto.clone()], &Attrs::default()), Ok(()));
        auto.pattern.age.min = Age::Time(Nanos::secs(5));
        assert!(error_text(|s| *s = auto).contains("5.00 s is given as well"));
    }

    #[test]
    fn check_rejects_shares_watermarks_and_filters() {
        let watermarks = |high, mid, low, interval| Watermarks {
            metric: WatermarkMetric::FreeMemRate,
            high: Permille(high),
            mid: Permille(mid),
            low: Permille(low),
            interval: Nanos(interval),
        };
        let rates = Bounds {
            min: Rate::Permille(Permille(0)),
            max: Rate::Permille(Permille(1010)),
        };
        assert!(error_text(|s| pattern(s, |p| p.nr_accesses = rates)).contains("nr_accesses is 101 %"));
        assert!(
            error_text(|s| s.watermarks = watermarks(200, 300, 100, 1))
                .contains("(high 20 %, mid 30 %, low 10 %)")
        );
        assert!(error_text(|s| s.watermarks = watermarks(200, 100, 150, 1)).contains("out of order"));
        assert!(
            error_text(|s| s.watermarks = watermarks(2000, 100, 50, 1))
                .contains("the high watermark is 200 %")
        );
        assert!(error_text(|s| s.watermarks = watermarks(200, 100, 50, 0)).contains("like 5s"));

        let range = AddrRange::new(0x3000, 0x1000);
        let core = vec![CoreFilter {
            kind: CoreFilterKind::Addr(range),
            matching: true,
            allow: true,
        }];
        assert!(
            error_text(|s| s.filters = Filters {
                core,
                ops: Vec::new()
            })
            .contains("address range 0x3000-0x1000")
        );
        let kind = OpsFilterKind::HugepageSize {
            min: Bytes::mib(2),
            max: Bytes::ZERO,
        };
        let ops = vec![OpsFilter {
            kind,
            matching: true,
            allow: true,
        }];
        assert!(
            error_text(|s| s.filters = Filters {
                core: Vec::new(),
                ops
            })
            .contains("from 2.00 MiB to 0 B")
        );
    }
}
