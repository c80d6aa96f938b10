//! A long series in little space: evenly thinned out whenever it grows too long.

/// Points kept at most, where no other number is asked for.
const MOST: usize = 1024;

/// Values over time, not many of them, spread evenly, and the last one.
#[derive(Debug, Clone)]
pub(crate) struct Series<T> {
    points: Vec<T>,
    last: Option<T>,
    seen: usize,
    every: usize,
    most: usize,
}

impl<T> Default for Series<T> {
    fn default() -> Self {
        Self::of_most(MOST)
    }
}

impl<T> Series<T> {
    /// A series of at most `most` values and the last one.
    pub(crate) const fn of_most(most: usize) -> Self {
        Self {
            points: Vec::new(),
            last: None,
            seen: 0,
            every: 1,
            most,
        }
    }
}

impl<T: Clone> Series<T> {
    /// Adds the next point.
    pub(crate) fn push(&mut self, point: T) {
        if self.seen.is_multiple_of(self.every) {
            self.points.push(point);
            self.last = None;
        } else {
            self.last = Some(point);
        }
        self.seen += 1;
        if self.points.len() > self.most {
            let mut index = 0;
            self.points.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.every *= 2;
        }
    }

    /// The newest point.
    pub(crate) fn last(&self) -> Option<&T> {
        self.last.as_ref().or(self.points.last())
    }

    /// All points kept, in order.
    pub(crate) fn into_points(self) -> Vec<T> {
        let mut points = self.points;
        points.extend(self.last);
        points
    }
}

/// The largest of `values` in each of `bins` stretches of time; a stretch without a value repeats the one before.
pub(crate) fn binned(points: &[(u64, u64)], bins: usize) -> Vec<f64> {
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return Vec::new();
    };
    let span = last.0.saturating_sub(first.0).max(1);
    let mut values: Vec<Option<u64>> = vec![None; bins];
    for (time, value) in points {
        let bin = (u128::from(time.saturating_sub(first.0)) * bins as u128 / u128::from(span)) as usize;
        let slot = &mut values[bin.min(bins - 1)];
        *slot = Some(slot.unwrap_or(0).max(*value));
    }
    let mut before = first.1;
    let fill = |value: Option<u64>| {
        before = value.unwrap_or(before);
        before as f64
    };
    values.into_iter().map(fill).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_series_keeps_first_and_last_and_even_spacing() {
        let mut series = Series::default();
        for n in 0..10_000_u64 {
            series.push(n);
            assert_eq!(series.last(), Some(&n));
        }
        let points = series.into_points();
        assert!(points.len() <= MOST + 1);
        assert_eq!((points.first(), points.last()), (Some(&0), Some(&9_999)));
        assert!(points.windows(2).all(|pair| pair[1] - pair[0] <= 16));
    }

    #[test]
    fn bins_take_the_largest_and_fill_holes() {
        assert_eq!(
            binned(&[(0, 1), (1, 5), (9, 2), (10, 3)], 5),
            [5.0, 5.0, 5.0, 5.0, 3.0]
        );
        assert!(binned(&[], 5).is_empty());
    }
}
