//! Whole systems in a simulated world: the real NVMe/TCP and iSCSI targets on several reactors, real initiators on several hosts, and
//! real volumes on simulated disks, under the faults that a seed decides, and checkers of what Weir promises.
//!
//! [`Plan::of`] says what a seed is; [`run`] runs it and says what was violated; `docs/fault-model.md` says what goes wrong and
//! what each check goes by. `weir-simulate` is the command.
//!
//! Nothing here is part of `weir`. Authentication, TLS and discovery are not simulated.

#![forbid(unsafe_code)]

mod check;
mod client;
mod gateway;
mod journal;
mod plan;
mod plant;
mod random;
mod run;
mod stamp;
mod tap;
mod violation;

pub use check::exercised::Exercised;
pub use plan::Plan;
pub use plant::Plant;
pub use run::{Report, run};
pub use violation::{Check, Violation};

/// Runs a seed twice, and says where the second run differs from the first.
#[must_use]
pub fn run_twice(plan: &Plan, plant: Option<Plant>) -> Report {
    let mut first = run(plan, plant);
    let second = run(plan, plant);
    if first.hash != second.hash {
        let differs = first
            .history()
            .zip(second.history())
            .find(|(one, other)| one != other);
        let (one, other) = differs.unwrap_or_default();
        first.violations.push(Violation {
            check: Check::Determinism,
            message: format!(
                "two runs differ (hashes {:016x} and {:016x}), first in:\n  {one}\n  {other}",
                first.hash, second.hash
            ),
        });
    }
    first
}
