//! Student's t distribution with a whole number of degrees of freedom.

use std::f64::consts::{FRAC_2_PI, FRAC_PI_2};

/// Beyond this the quantile is not looked for: no confidence that anyone asks for needs it, except with one degree of freedom.
const T_MAX: f64 = 1e9;

/// The t that a value of Student's distribution exceeds in size with probability `alpha`.
///
/// # Panics
/// Where there is no degree of freedom, or `alpha` is not between 0 and 1.
#[must_use]
pub fn student_t(degrees: u32, alpha: f64) -> f64 {
    assert!(degrees > 0, "Student's t needs a degree of freedom");
    assert!(
        alpha > 0.0 && alpha < 1.0,
        "a probability of error lies between 0 and 1, not at {alpha}"
    );
    let (mut low, mut high) = (0.0, T_MAX);
    // The interval halves until neighbouring numbers are left, in far fewer steps than this.
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if 1.0 - within(middle, degrees) > alpha {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// The probability that a value lies between -t and t (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4).
fn within(t: f64, degrees: u32) -> f64 {
    let angle = (t / f64::from(degrees).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    let odd = degrees % 2 == 1;
    // The sum runs over cos, 2/3 cos^3, (2 4)/(3 5) cos^5 ... or over 1, 1/2 cos^2, (1 3)/(2 4) cos^4 ...
    let (mut term, mut index) = if odd { (cosine, 3) } else { (1.0, 2) };
    let mut sum = 0.0;
    while index <= degrees {
        sum += term;
        term *= f64::from(index - 1) / f64::from(index) * cosine * cosine;
        index += 2;
    }
    debug_assert!((0.0..=FRAC_PI_2).contains(&angle));
    if odd {
        FRAC_2_PI * (angle + sine * sum)
    } else {
        sine * sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tables as they stand in textbooks.
    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (degrees, alpha, expected) in [
            (1, 0.05, 12.7062),
            (2, 0.05, 4.3027),
            (3, 0.05, 3.1824),
            (4, 0.05, 2.7764),
            (8, 0.05, 2.3060),
            (10, 0.01, 3.1693),
            (10, 0.001, 4.5869),
            (9, 0.01, 3.2498),
            (30, 0.05, 2.0423),
            (30, 0.001, 3.6460),
            (121, 0.05, 1.9798),
            (1000, 0.05, 1.9623),
        ] {
            let t = student_t(degrees, alpha);
            assert!(
                (t - expected).abs() < 1e-4,
                "{degrees} {alpha}: {t}, not {expected}"
            );
        }
    }

    #[test]
    fn more_certainty_is_wider_and_more_freedom_narrower() {
        for degrees in 1..200 {
            for pair in [0.2, 0.1, 0.05, 0.01, 0.001, 0.0001].windows(2) {
                assert!(student_t(degrees, pair[0]) < student_t(degrees, pair[1]));
                assert!(student_t(degrees + 1, pair[0]) < student_t(degrees, pair[0]));
            }
        }
    }
}
