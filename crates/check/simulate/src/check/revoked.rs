//! No change without a right: from when it is acknowledged that a right was taken away until it is given back, no volume is at work
//! for whoever had it.

use super::{Check, Violation};
use crate::journal::{Execution, History, Order, Revocation, Whose};

pub(crate) fn check(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for revocation in &history.revocations {
        let Revocation { whose, from, until } = *revocation;
        let until = until.unwrap_or(Order::MAX);
        for (number, execution) in &history.executions {
            let over = execution.over.unwrap_or(Order::MAX);
            if concerns(whose, execution, history) && execution.began < until && over > from {
                let went_on = match execution.began > from {
                    true => "began",
                    false => "was under way",
                };
                let message = format!(
                    "{whose:?} lost its right at {from}, and execution {number} {went_on} afterwards: {execution:?}"
                );
                found.push(Violation::new(Check::RevokedWrites, message));
            }
        }
    }
    found
}

fn concerns(whose: Whose, execution: &Execution, history: &History) -> bool {
    match whose {
        Whose::Namespace(namespace) => execution.namespace == namespace,
        Whose::Host(host) => execution
            .of
            .and_then(|of| history.ops.get(of as usize - 1))
            .is_some_and(|op| op.ask.host == host),
    }
}
