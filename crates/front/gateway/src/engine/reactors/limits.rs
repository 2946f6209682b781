//! Volumes as they are served: at each export under its own limits.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_reactor::{Receiver, oneshot};
use weir_volume::LimitedVolume;

use super::{ANSWER_TIME_MAX, Books};
use crate::engine::EngineError;
use crate::state::State;

/// Changes of limits that queues are being told of.
pub(super) struct Changes(Vec<Receiver<()>>);

impl Changes {
    /// Waits until every queue keeps to its new limits.
    pub(super) async fn in_force(self) -> Result<(), EngineError> {
        for told in self.0 {
            if tokio::time::timeout(ANSWER_TIME_MAX, told).await.is_err() {
                let reason = "a reactor does not take new limits over".to_owned();
                return Err(EngineError::Failed { reason });
            }
        }
        Ok(())
    }
}

/// Has a served volume for each export of `state` whose volume is open, under its limits. One that was there before stays, so
/// that commands in flight do.
pub(super) fn take_over(books: &mut Books, state: &State) -> Changes {
    let mut before = std::mem::take(&mut books.served);
    let (mut served, mut changes) = (BTreeMap::new(), Vec::new());
    for export in state.exports() {
        let Some(open) = books.volumes.get(export.volume) else {
            continue;
        };
        let limits = export.qos.limits();
        let kept = before
            .remove(&export.name)
            .filter(|kept| Arc::ptr_eq(kept.guard(), &open.guard));
        let volume = match kept {
            Some(kept) if kept.limits() != limits => {
                let (sender, told) = oneshot();
                kept.set_limits(limits, Box::new(move |_| sender.send(())));
                changes.push(told);
                kept
            }
            Some(kept) => kept,
            None => LimitedVolume::new(open.guard.clone(), limits),
        };
        served.insert(export.name, volume);
    }
    books.served = served;
    Changes(changes)
}
