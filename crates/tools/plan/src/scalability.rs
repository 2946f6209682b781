//! The universal scalability law (Gunther 1993): what `n` of something do together, `C(n) = l n / (1 + s (n - 1) + k n (n - 1))`, with what one would do
//! (`l`), contention (`s`) and coherency (`k`).
//!
//! `n / C(n)` is linear in `1 / l`, `s / l` and `k / l`, so that they are found by linear least squares on relative errors, with neither below zero.

use crate::matrix;

/// What a law was fitted to: how many, and what they did.
pub type Peak = (f64, f64);

/// A fitted law.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Law {
    /// What one does.
    pub single: f64,
    /// Contention: the part that is done one after the other.
    pub contention: f64,
    /// Coherency: what each pair costs.
    pub coherency: f64,
    /// Whether coherency was estimated; it is taken to be none where there are too few points for it.
    pub with_coherency: bool,
    /// Points beyond those that parameters need.
    pub freedom: usize,
    /// Root mean square of the relative errors.
    pub error: f64,
}

/// Why there is no law.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LawError {
    /// There are too few different counts.
    #[error(
        "a scalability law needs peaks at two different counts at least, and there are {0}; measure a curve with another count"
    )]
    TooFew(usize),
    /// A point has no sense.
    #[error("a peak of {rate} at a count of {count} has no sense")]
    Senseless {
        /// The count.
        count: f64,
        /// The peak.
        rate: f64,
    },
    /// The points grow by more than in proportion.
    #[error(
        "these peaks grow by more than in proportion, which the law does not know: something else changed between them"
    )]
    Superlinear,
}

impl Law {
    /// What so many do together.
    #[must_use]
    pub fn at(&self, count: f64) -> f64 {
        self.single * count
            / (1.0 + self.contention * (count - 1.0) + self.coherency * count * (count - 1.0))
    }

    /// The count beyond which more do less; none without coherency.
    #[must_use]
    pub fn best(&self) -> Option<f64> {
        (self.coherency > 0.0).then(|| ((1.0 - self.contention) / self.coherency).max(0.0).sqrt())
    }
}

/// Fits a law. Coherency is estimated from four different counts on, so that no fit only passes through its points.
///
/// # Errors
/// [`LawError`].
pub fn fit(peaks: &[Peak]) -> Result<Law, LawError> {
    if let Some(&(count, rate)) = peaks
        .iter()
        .find(|(count, rate)| !(*count >= 1.0 && *rate > 0.0 && rate.is_finite()))
    {
        return Err(LawError::Senseless { count, rate });
    }
    let mut counts: Vec<f64> = peaks.iter().map(|of| of.0).collect();
    counts.sort_by(f64::total_cmp);
    counts.dedup();
    if counts.len() < 2 {
        return Err(LawError::TooFew(counts.len()));
    }
    let with_coherency = counts.len() >= 4;
    let candidates: &[[bool; 2]] = match with_coherency {
        true => &[[true, true], [true, false], [false, true], [false, false]],
        false => &[[true, false], [false, false]],
    };
    let mut best: Option<Law> = None;
    for &[contention, coherency] in candidates {
        let Some(law) = linear(peaks, contention, coherency, with_coherency) else {
            continue;
        };
        if best.is_none_or(|best| law.error < best.error * (1.0 - 1e-9)) {
            best = Some(law);
        }
    }
    let law = best.ok_or(LawError::Superlinear)?;
    let (first, last) = (counts[0], counts[counts.len() - 1]);
    let mean = |count: f64| {
        let at: Vec<f64> = (peaks.iter().filter(|of| of.0 == count))
            .map(|of| of.1)
            .collect();
        at.iter().sum::<f64>() / at.len() as f64
    };
    // With the whole freedom of the law used up at zero contention, the points say more than proportion.
    if law.contention == 0.0
        && law.coherency == 0.0
        && mean(last) / last > 1.05 * mean(first) / first
    {
        return Err(LawError::Superlinear);
    }
    Ok(law)
}

fn linear(peaks: &[Peak], contention: bool, coherency: bool, with_coherency: bool) -> Option<Law> {
    let row = |count: f64| {
        let mut row = vec![1.0];
        if contention {
            row.push(count - 1.0);
        }
        if coherency {
            row.push(count * (count - 1.0));
        }
        row
    };
    let size = 1 + usize::from(contention) + usize::from(coherency);
    let mut normal = vec![vec![0.0; size]; size];
    let mut right = vec![0.0; size];
    for &(count, rate) in peaks {
        let wanted = count / rate;
        let row: Vec<f64> = row(count).into_iter().map(|of| of / wanted).collect();
        for (at, value) in row.iter().enumerate() {
            right[at] += value;
            for (beside, other) in row.iter().enumerate() {
                normal[at][beside] += value * other;
            }
        }
    }
    let found = matrix::solve(&normal, &right)?;
    let mut values = found.iter();
    let inverse = *values.next()?;
    let mut take = |is: bool| {
        if is {
            values.next().copied().unwrap_or(0.0) / inverse
        } else {
            0.0
        }
    };
    let (contention, coherency) = (take(contention), take(coherency));
    // What is below zero is less than rounding, or not allowed.
    const ROUNDING: f64 = -1e-9;
    if inverse <= 0.0 || contention < ROUNDING || coherency < ROUNDING {
        return None;
    }
    let mut law = Law {
        single: 1.0 / inverse,
        contention: contention.max(0.0),
        coherency: coherency.max(0.0),
        with_coherency,
        freedom: peaks.len().saturating_sub(size),
        error: 0.0,
    };
    let squares = peaks
        .iter()
        .map(|&(count, rate)| (law.at(count) / rate - 1.0).powi(2));
    law.error = (squares.sum::<f64>() / peaks.len() as f64).sqrt();
    Some(law)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn too_little_is_refused() {
        assert_eq!(fit(&[]), Err(LawError::TooFew(0)));
        assert_eq!(fit(&[(4.0, 1.0), (4.0, 2.0)]), Err(LawError::TooFew(1)));
        assert!(matches!(
            fit(&[(1.0, 0.0), (2.0, 1.0)]),
            Err(LawError::Senseless { .. })
        ));
        assert_eq!(fit(&[(1.0, 1.0), (2.0, 4.0)]), Err(LawError::Superlinear));
    }

    #[test]
    fn two_counts_say_nothing_of_coherency() {
        let law = fit(&[(1.0, 576.0), (2.0, 792.0)]).unwrap();
        assert!(!law.with_coherency && law.freedom == 0);
        assert!((law.at(3.0) - 905.0).abs() < 1.0, "{}", law.at(3.0));
    }

    proptest! {
        #[test]
        fn a_planted_law_is_found_again(single in 1.0f64..1e6, contention in 0.0f64..0.5, coherency in 0.0f64..0.02) {
            let planted = Law { single, contention, coherency, with_coherency: true, freedom: 0, error: 0.0 };
            let peaks: Vec<Peak> = [1.0, 2.0, 4.0, 8.0, 16.0].iter().map(|&count| (count, planted.at(count))).collect();
            let found = fit(&peaks).unwrap();
            prop_assert!((found.single / single - 1.0).abs() < 1e-6);
            prop_assert!((found.contention - contention).abs() < 1e-6);
            prop_assert!((found.coherency - coherency).abs() < 1e-6);
            prop_assert!((found.at(32.0) / planted.at(32.0) - 1.0).abs() < 1e-4);
        }
    }
}
