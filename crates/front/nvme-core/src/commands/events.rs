//! Asynchronous events of one controller (NVMe Base 2.0c, section 5.2).
//!
//! An event is told once; another of its kind only after its log page was read with Retain Asynchronous Event clear.

use std::collections::{BTreeSet, VecDeque};

use weir_nvme::Status;
use weir_nvme::event::{AsynchronousEvent, EventType};
use weir_nvme::feature::AsynchronousEventConfiguration;
use weir_nvme::log::LogId;

use super::queue_pair::SlotIndex;

/// Asynchronous Event Requests outstanding at most (AERL + 1).
pub(super) const EVENT_REQUESTS_MAX: usize = 8;

/// The events that Weir tells of.
const EVENTS: [EventType; 5] = [
    EventType::NamespaceAttributeChanged,
    EventType::AnaChange,
    EventType::DiscoveryLogChange,
    EventType::NormalSubsystemShutdown,
    EventType::ReservationLogAvailable,
];

#[derive(Debug, Clone, Copy, Default)]
struct EventState {
    pending: bool,
    masked: bool,
}

/// Outstanding requests, pending events and the namespaces that changed.
#[derive(Debug, Default)]
pub(super) struct Events {
    requests: VecDeque<SlotIndex>,
    states: [EventState; EVENTS.len()],
    changed: BTreeSet<u32>,
}

impl Events {
    /// Takes a request, up to the limit.
    pub(super) fn request(&mut self, slot: SlotIndex) -> Result<(), Status> {
        if self.requests.len() == EVENT_REQUESTS_MAX {
            return Err(Status::ASYNCHRONOUS_EVENT_REQUEST_LIMIT_EXCEEDED.with_do_not_retry());
        }
        self.requests.push_back(slot);
        Ok(())
    }

    /// Requests outstanding.
    pub(super) fn requests(&self) -> usize {
        self.requests.len()
    }

    /// Takes a request back; whether it was outstanding.
    pub(super) fn withdraw(&mut self, slot: SlotIndex) -> bool {
        let before = self.requests.len();
        self.requests.retain(|request| *request != slot);
        self.requests.len() < before
    }

    /// Forgets all but the namespaces that changed; the requests that were outstanding.
    pub(super) fn reset(&mut self) -> Vec<SlotIndex> {
        self.states = Default::default();
        self.requests.drain(..).collect()
    }

    /// Something happened.
    pub(super) fn raise(&mut self, event: EventType) {
        if let Some(state) = self.state(event) {
            state.pending = true;
        }
    }

    /// Namespaces changed.
    pub(super) fn namespaces_changed(&mut self, changed: impl IntoIterator<Item = u32>) {
        self.changed.extend(changed);
        if !self.changed.is_empty() {
            self.raise(EventType::NamespaceAttributeChanged);
        }
    }

    fn state(&mut self, event: EventType) -> Option<&mut EventState> {
        let index = EVENTS.iter().position(|other| *other == event)?;
        Some(&mut self.states[index])
    }

    /// A request and the event that answers it.
    pub(super) fn next(
        &mut self,
        wanted: AsynchronousEventConfiguration,
    ) -> Option<(SlotIndex, u32)> {
        for (event, state) in EVENTS.iter().zip(&mut self.states) {
            if !state.pending || state.masked || !wanted.wants(*event) {
                continue;
            }
            let slot = self.requests.pop_front()?;
            *state = EventState {
                pending: false,
                masked: true,
            };
            return Some((slot, AsynchronousEvent::new(*event).to_dword()));
        }
        None
    }

    /// A log page was read to clear its event.
    pub(super) fn log_read(&mut self, log: LogId) {
        for (event, state) in EVENTS.iter().zip(&mut self.states) {
            if event.log() == Some(log) {
                state.masked = false;
            }
        }
    }

    /// The namespaces that changed since this was last cleared.
    pub(super) fn changed_namespaces(&self) -> Vec<u32> {
        self.changed.iter().copied().collect()
    }

    pub(super) fn clear_changed_namespaces(&mut self) {
        self.changed.clear();
        if let Some(state) = self.state(EventType::NamespaceAttributeChanged) {
            // What is pending was in the list that was read.
            state.pending = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: AsynchronousEventConfiguration = AsynchronousEventConfiguration(u32::MAX);

    #[test]
    fn an_event_stays_masked_until_its_log_is_read() {
        let mut events = Events::default();
        events.request(1).expect("room");
        events.request(2).expect("room");
        events.namespaces_changed([7]);
        assert_eq!(events.next(ALL), Some((1, 0x04_0002)));
        events.namespaces_changed([8]);
        assert_eq!(events.next(ALL), None);
        assert_eq!(events.changed_namespaces(), [7, 8]);
        events.log_read(LogId::ChangedNamespaceList);
        assert_eq!(events.next(ALL), Some((2, 0x04_0002)));
    }

    #[test]
    fn reading_the_list_settles_what_was_pending() {
        let mut events = Events::default();
        events.namespaces_changed([7]);
        events.clear_changed_namespaces();
        events.request(1).expect("room");
        assert_eq!(events.next(ALL), None);
    }

    #[test]
    fn an_event_that_is_not_wanted_waits() {
        let mut events = Events::default();
        events.request(1).expect("room");
        events.raise(EventType::AnaChange);
        assert_eq!(events.next(AsynchronousEventConfiguration::NONE), None);
        assert_eq!(events.next(ALL), Some((1, 0x0c_0302)));
    }

    #[test]
    fn requests_above_the_limit_are_refused() {
        let mut events = Events::default();
        for slot in 0..EVENT_REQUESTS_MAX as SlotIndex {
            assert_eq!(events.request(slot), Ok(()));
        }
        assert!(events.request(99).is_err());
        assert!(events.withdraw(0));
        assert!(!events.withdraw(0));
        assert_eq!(events.request(99), Ok(()));
    }
}
