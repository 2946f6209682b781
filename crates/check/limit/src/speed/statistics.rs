//! Medians and spreads of a few runs.

use serde::Serialize;

/// The middle and the ends of some values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The value in the middle, or the mean of the two there.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of values that are numbers; none of no values.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        } else {
            sorted[middle]
        };
        Some(Spread { median, min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_found_in_any_order() {
        assert_eq!(Spread::of([]), None);
        let one = Spread::of([7.0]).unwrap();
        assert_eq!((one.median, one.min, one.max), (7.0, 7.0, 7.0));
        let odd = Spread::of([9.0, -1.0, 3.0]).unwrap();
        assert_eq!((odd.median, odd.min, odd.max), (3.0, -1.0, 9.0));
        let even = Spread::of([4.0, 1.0, 100.0, 2.0]).unwrap();
        assert_eq!((even.median, even.min, even.max), (3.0, 1.0, 100.0));
    }
}
