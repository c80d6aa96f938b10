//! A time series of bounded size. Whenever the series is full, every other point is dropped.

/// Default maximum number of points.
const DEFAULT_LIMIT: usize = 1024;

/// A bounded number of evenly spaced points, and the newest point.
#[derive(Debug, Clone)]
pub(crate) struct Series<T> {
    points: Vec<T>,
    /// The newest point, if it is not in `points`.
    last: Option<T>,
    pushed: usize,
    /// Every `stride`-th point is kept.
    stride: usize,
    limit: usize,
}

impl<T> Default for Series<T> {
    fn default() -> Self {
        Self::with_limit(DEFAULT_LIMIT)
    }
}

impl<T> Series<T> {
    /// A series of at most `limit` points and the newest one.
    pub(crate) const fn with_limit(limit: usize) -> Self {
        Self {
            points: Vec::new(),
            last: None,
            pushed: 0,
            stride: 1,
            limit,
        }
    }
}

impl<T: Clone> Series<T> {
    /// Adds the next point.
    pub(crate) fn push(&mut self, point: T) {
        if self.pushed.is_multiple_of(self.stride) {
            self.points.push(point);
            self.last = None;
        } else {
            self.last = Some(point);
        }
        self.pushed += 1;
        if self.points.len() > self.limit {
            let mut index = 0;
            self.points.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.stride *= 2;
        }
    }

    /// The newest point.
    pub(crate) fn last(&self) -> Option<&T> {
        self.last.as_ref().or(self.points.last())
    }

    /// The kept points, in order.
    pub(crate) fn into_points(self) -> Vec<T> {
        let mut points = self.points;
        points.extend(self.last);
        points
    }
}

/// The maximum value in each of `bins` time bins of equal length. An empty bin repeats the previous one.
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
    let mut previous = first.1;
    let fill = |value: Option<u64>| {
        previous = value.unwrap_or(previous);
        previous as f64
    };
    values.into_iter().map(fill).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_keeps_first_last_and_even_spacing() {
        let mut series = Series::default();
        for n in 0..10_000_u64 {
            series.push(n);
            assert_eq!(series.last(), Some(&n));
        }
        let points = series.into_points();
        assert!(points.len() <= DEFAULT_LIMIT + 1);
        assert_eq!((points.first(), points.last()), (Some(&0), Some(&9_999)));
        assert!(points.windows(2).all(|pair| pair[1] - pair[0] <= 16));
    }

    #[test]
    fn binned_takes_maximum_and_fills_gaps() {
        assert_eq!(
            binned(&[(0, 1), (1, 5), (9, 2), (10, 3)], 5),
            [5.0, 5.0, 5.0, 5.0, 3.0]
        );
        assert!(binned(&[], 5).is_empty());
    }
}
