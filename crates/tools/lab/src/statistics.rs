//! What numbers allow to be said: whether a run was steady, whether its numbers hang together, where a curve bends, and whether a
//! difference is one.
//!
//! Everything here is a function of its arguments. What a rule cannot tell from too few numbers it does not tell.

mod knee;
mod littles_law;
mod objective;
mod orders;
mod paired;
mod steady_state;
mod student;

pub use knee::{Sample, knee, past_saturation};
pub use littles_law::littles_law;
pub use objective::{Attained, Objective, ObjectiveError, Quantity, attained};
pub use orders::orders;
pub use paired::{Estimate, FRACTION_MAX, PAIRS_MIN, Pair, difference, is_disturbed};
pub use steady_state::{Steady, rounds_of, steady_state};
pub use student::student_t;

/// The mean; 0 of nothing.
#[must_use]
pub fn mean(values: &[f64]) -> f64 {
    match values.len() {
        0 => 0.0,
        count => values.iter().sum::<f64>() / count as f64,
    }
}
