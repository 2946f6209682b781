//! No stale write: what a volume was asked to do for a request is over before the request is answered, and before a later life of
//! its host is served.

use super::{Check, Violation};
use crate::journal::History;

pub(crate) fn check(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for (number, execution) in &history.executions {
        let Some(op) = execution.of.and_then(|of| history.ops.get(of as usize - 1)) else {
            continue;
        };
        let until = op.until();
        let over = execution.over.unwrap_or(u64::MAX);
        if over <= until {
            continue;
        }
        let answer = match (op.ended, op.fenced) {
            (Some(ended), _) => format!("answered ({:?}) at {}", ended.result, ended.order),
            (None, Some(order)) => format!("fenced at {order}"),
            (None, None) => continue,
        };
        let when = match execution.began > until {
            true => format!("began at {}", execution.began),
            false => format!(
                "went on from {} until {}",
                execution.began,
                Until(execution.over)
            ),
        };
        found.push(Violation::new(
            Check::StaleWrites,
            format!("{op} was {answer}, and its execution {number} {when}"),
        ));
    }
    found
}

struct Until(Option<u64>);

impl std::fmt::Display for Until {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(order) => write!(formatter, "{order}"),
            None => write!(formatter, "the end"),
        }
    }
}
