//! Schemes that contradict themselves are refused before anything is done.

use super::pattern::{Age, Bounds, Rate};
use super::validation_error::{Contradiction, SchemeError};
use super::{CoreFilterKind, OpsFilterKind, Scheme, WatermarkMetric};
use crate::attrs::Attrs;
use thermo_units::{Nanos, Permille};

/// Whether `schemes` can be meant, monitored with `attrs`.
///
/// # Errors
/// The first contradiction found, with the place of its scheme.
pub fn check(schemes: &[Scheme], attrs: &Attrs) -> Result<(), SchemeError> {
    schemes.iter().enumerate().try_for_each(|(index, scheme)| {
        let checked = check_pattern(scheme, attrs)
            .and_then(|()| check_watermarks(scheme))
            .and_then(|()| check_filters(scheme));
        checked.map_err(|contradiction| SchemeError {
            scheme: index,
            contradiction,
        })
    })
}

fn check_pattern(scheme: &Scheme, attrs: &Attrs) -> Result<(), Contradiction> {
    let pattern = &scheme.pattern;
    ordered("size", &pattern.sz, |sz| sz.0, ToString::to_string)?;
    for rate in [pattern.nr_accesses.min, pattern.nr_accesses.max] {
        if let Rate::Permille(share) = rate {
            at_most_all("a bound of its nr_accesses", share)?;
        }
    }
    // Compared as they were said where both have one unit: rounded to looks, 5 % and 1 % may be the same.
    match pattern.nr_accesses {
        Bounds {
            min: Rate::Permille(min),
            max: Rate::Permille(max),
        } => {
            ordered(
                "nr_accesses",
                &Bounds { min, max },
                |share| u64::from(share.0),
                ToString::to_string,
            )?;
        }
        bounds => ordered(
            "nr_accesses",
            &bounds,
            |rate| u64::from(rate.samples(attrs)),
            |rate| match rate {
                Rate::Permille(share) => share.to_string(),
                Rate::Samples(samples) => format!("{samples} looks"),
            },
        )?,
    }
    match pattern.age {
        Bounds {
            min: Age::Time(min),
            max: Age::Time(max),
        } => ordered("age", &Bounds { min, max }, |span| span.0, ToString::to_string),
        bounds => ordered(
            "age",
            &bounds,
            |age| u64::from(age.aggrs(attrs)),
            |age| match age {
                Age::Time(span) => span.to_string(),
                Age::Aggrs(aggrs) => format!("{aggrs} aggregations"),
            },
        ),
    }
}

fn ordered<T>(
    what: &'static str,
    bounds: &Bounds<T>,
    number: impl Fn(&T) -> u64,
    text: impl Fn(&T) -> String,
) -> Result<(), Contradiction> {
    if number(&bounds.min) <= number(&bounds.max) {
        return Ok(());
    }
    Err(Contradiction::Bounds {
        what,
        min: text(&bounds.min),
        max: text(&bounds.max),
    })
}

const fn at_most_all(what: &'static str, given: Permille) -> Result<(), Contradiction> {
    if given.0 <= 1000 {
        Ok(())
    } else {
        Err(Contradiction::OverAll { what, given })
    }
}

fn check_watermarks(scheme: &Scheme) -> Result<(), Contradiction> {
    let marks = &scheme.watermarks;
    if marks.metric == WatermarkMetric::None {
        return Ok(());
    }
    at_most_all("the high watermark", marks.high)?;
    if marks.high < marks.mid || marks.mid < marks.low {
        return Err(Contradiction::Watermarks {
            high: marks.high,
            mid: marks.mid,
            low: marks.low,
        });
    }
    if marks.interval == Nanos::ZERO {
        Err(Contradiction::WatermarkInterval)
    } else {
        Ok(())
    }
}

fn check_filters(scheme: &Scheme) -> Result<(), Contradiction> {
    for (filter, core) in scheme.filters.core.iter().enumerate() {
        if let CoreFilterKind::Addr(range) = core.kind
            && range.is_empty()
        {
            return Err(Contradiction::EmptyFilter { filter, range });
        }
    }
    for (filter, ops) in scheme.filters.ops.iter().enumerate() {
        if let OpsFilterKind::HugepageSize { min, max } = ops.kind
            && min > max
        {
            return Err(Contradiction::HugepageSize { filter, min, max });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Action;
    use crate::scheme::{AccessPattern, CoreFilter, Filters, OpsFilter, Watermarks};
    use thermo_units::AddrRange;
    use thermo_units::Bytes;

    fn refused(change: impl FnOnce(&mut Scheme)) -> String {
        let mut scheme = Scheme::new(Action::Pageout);
        change(&mut scheme);
        let error = check(&[Scheme::new(Action::Stat), scheme], &Attrs::default());
        error.expect_err("it contradicts itself").to_string()
    }

    fn pattern(scheme: &mut Scheme, change: impl FnOnce(&mut AccessPattern)) {
        change(&mut scheme.pattern);
    }

    #[test]
    fn what_can_be_meant_is_accepted() {
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
            "marks without a metric are not looked at"
        );
        assert_eq!(check(&[], &Attrs::default()), Ok(()));
    }

    #[test]
    fn bounds_the_wrong_way_round() {
        let sz = Bounds {
            min: Bytes::mib(2),
            max: Bytes::mib(1),
        };
        assert_eq!(
            refused(|s| pattern(s, |p| p.sz = sz)),
            "scheme 1: the least size (2.00 MiB) is above the most (1.00 MiB), so nothing can match: \
             swap them or widen one"
        );
        let rates = Bounds {
            min: Rate::Permille(Permille(20)),
            max: Rate::Permille(Permille(10)),
        };
        assert!(
            refused(|s| pattern(s, |p| p.nr_accesses = rates))
                .contains("nr_accesses (2 %) is above the most (1 %)")
        );
        let rates = Bounds {
            min: Rate::Samples(11),
            max: Rate::Permille(Permille(500)),
        };
        assert!(
            refused(|s| pattern(s, |p| p.nr_accesses = rates))
                .contains("(11 looks) is above the most (50 %)")
        );
        let ages = Bounds {
            min: Age::Aggrs(11),
            max: Age::Time(Nanos::secs(1)),
        };
        assert!(
            refused(|s| pattern(s, |p| p.age = ages))
                .contains("(11 aggregations) is above the most (1.00 s)")
        );
    }

    #[test]
    fn shares_watermarks_and_filters() {
        let marks = |high, mid, low, interval| Watermarks {
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
        assert!(refused(|s| pattern(s, |p| p.nr_accesses = rates)).contains("nr_accesses is 101 %"));
        assert!(
            refused(|s| s.watermarks = marks(200, 300, 100, 1)).contains("(high 20 %, mid 30 %, low 10 %)")
        );
        assert!(refused(|s| s.watermarks = marks(200, 100, 150, 1)).contains("out of order"));
        assert!(refused(|s| s.watermarks = marks(2000, 100, 50, 1)).contains("the high watermark is 200 %"));
        assert!(refused(|s| s.watermarks = marks(200, 100, 50, 0)).contains("like 5s"));

        let range = AddrRange::new(0x3000, 0x1000);
        let core = vec![CoreFilter {
            kind: CoreFilterKind::Addr(range),
            matching: true,
            allow: true,
        }];
        assert!(
            refused(|s| s.filters = Filters {
                core,
                ops: Vec::new()
            })
            .contains("addresses 0x3000-0x1000")
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
            refused(|s| s.filters = Filters {
                core: Vec::new(),
                ops
            })
            .contains("from 2.00 MiB to 0 B")
        );
    }
}
