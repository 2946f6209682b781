//! Reservation commands (NVMe Base 2.0c, sections 7.2 to 7.5 and 8.19): what they ask of the table of their namespace's volume,
//! and what reservations let other commands do.

use std::collections::VecDeque;

use weir_front::Reservations;
use weir_memory::{Segment, View, Views};
use weir_nvme::Status;
use weir_nvme::command::CommandError;
use weir_nvme::event::EventType;
use weir_nvme::feature::ReservationNotificationMask;
use weir_nvme::log::{ReservationNotification, ReservationNotificationType};
use weir_nvme::opcode::NvmOpcode;
use weir_nvme::reservation::{
    AcquireAction, RegisterAction, ReleaseAction, ReservationAcquire, ReservationAcquireKeys,
    ReservationRegister, ReservationRegisterKeys, ReservationRelease, ReservationReleaseKey,
};
use weir_nvme::sgl::Payload;
use weir_nvme::sqe::Sqe;
use weir_reservation::{Access, Notice, Operation, Proof, Registrant, ReservationType};

use super::controller::Controller;
use super::nvm::{Work, list_length, refuse};
use super::queue_pair::{Effect, QueuePair, SlotIndex};
use crate::namespaces::Attached;

/// Reservation Capabilities (RESCAP): all types, persistence through power loss, and Ignore Existing Key as revision 1.3 has it.
pub(super) const CAPABILITIES: u8 = 0xff;
/// Notifications that wait for a host at most: as many as the page can say.
const NOTIFICATIONS_MAX: usize = u8::MAX as usize;

/// A command that changes reservations.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reserve {
    Register(ReservationRegister),
    Acquire(ReservationAcquire),
    Release(ReservationRelease),
}

impl Reserve {
    /// Reads the fields of an entry that is one of these commands, and the length of its data.
    pub(super) fn plan(sqe: &Sqe, payload: Payload) -> Result<(Work, u32), Status> {
        let (reserve, length) = match NvmOpcode::from_value(sqe.opcode) {
            NvmOpcode::ReservationRegister => {
                let register = ReservationRegister::from_sqe(sqe);
                (
                    register.map(Reserve::Register),
                    ReservationRegisterKeys::SIZE,
                )
            }
            NvmOpcode::ReservationAcquire => {
                let acquire = ReservationAcquire::from_sqe(sqe);
                (acquire.map(Reserve::Acquire), ReservationAcquireKeys::SIZE)
            }
            _ => {
                let release = ReservationRelease::from_sqe(sqe);
                (release.map(Reserve::Release), ReservationReleaseKey::SIZE)
            }
        };
        let reserve = reserve.map_err(CommandError::status)?;
        // Linux sends two keys with each of them.
        let length = list_length(payload, length as u32)?;
        Ok((Work::Reserve(reserve), length))
    }

    /// What is asked of the table. `keys` is the command's data, of which there is enough.
    fn operation(self, keys: &[u8]) -> Operation {
        const SHORT: &str = "the length was checked";
        match self {
            Reserve::Register(ReservationRegister {
                action,
                ignores_existing_key,
                persistence,
            }) => {
                let keys = ReservationRegisterKeys::decode(keys.first_chunk().expect(SHORT));
                let proof = match ignores_existing_key {
                    true => Proof::Ignored,
                    false => Proof::Key(keys.current),
                };
                let key = keys.new;
                match action {
                    RegisterAction::Register => Operation::Register { key, persistence },
                    RegisterAction::Unregister => Operation::Unregister { proof, persistence },
                    RegisterAction::Replace => Operation::Replace {
                        proof,
                        key,
                        persistence,
                    },
                }
            }
            Reserve::Acquire(ReservationAcquire { action, kind }) => {
                let keys = ReservationAcquireKeys::decode(keys.first_chunk().expect(SHORT));
                let (key, kind) = (keys.current, ReservationType::from_nvme(kind));
                match action {
                    AcquireAction::Acquire => Operation::Reserve { key, kind },
                    AcquireAction::Preempt | AcquireAction::PreemptAndAbort => Operation::Preempt {
                        key,
                        victims: keys.preempted,
                        kind,
                        aborts: action == AcquireAction::PreemptAndAbort,
                    },
                }
            }
            Reserve::Release(ReservationRelease { action, kind }) => {
                let ReservationReleaseKey { current: key } =
                    ReservationReleaseKey::decode(keys.first_chunk().expect(SHORT));
                match action {
                    ReleaseAction::Release => Operation::Release {
                        key,
                        kind: ReservationType::from_nvme(kind),
                    },
                    ReleaseAction::Clear => Operation::Clear { key },
                }
            }
        }
    }
}

/// Class of a command of an I/O queue, as reservations tell commands apart.
#[inline]
pub(super) fn access_of(opcode: NvmOpcode) -> Access {
    match opcode {
        NvmOpcode::Read | NvmOpcode::Compare | NvmOpcode::Verify => Access::Read,
        NvmOpcode::ReservationReport => Access::Report,
        // The table judges these, which knows their keys.
        NvmOpcode::ReservationRegister
        | NvmOpcode::ReservationAcquire
        | NvmOpcode::ReservationRelease => Access::Exempt,
        _ => Access::Write,
    }
}

/// Why reservations refuse a command; none: they do not.
#[inline]
pub(super) fn refusal(
    namespace: &Attached,
    access: impl FnOnce() -> Access,
    registrant: Option<&Registrant>,
) -> Option<Status> {
    let reservations = namespace.export.reservations.as_ref()?;
    let allows = |registrant| reservations.allows(registrant, access());
    let is_allowed = registrant.is_none_or(allows);
    (!is_allowed).then(|| Status::RESERVATION_CONFLICT.with_do_not_retry())
}

/// Refuses a reservation command where the namespace has no reservations.
pub(super) fn check(namespace: &Attached) -> Result<(), Status> {
    match namespace.export.reservations {
        Some(_) => Ok(()),
        None => refuse(Status::INVALID_COMMAND_OPCODE),
    }
}

impl Work {
    /// What it does, as reservations tell commands apart.
    pub(super) fn access(&self) -> Access {
        match self {
            Work::Read { .. }
            | Work::Compare { .. }
            | Work::FusedCompare { .. }
            | Work::Verify { .. } => Access::Read,
            Work::Flush | Work::DatasetManagement(_) => Access::Write,
            work if work.writes() => Access::Write,
            _ => Access::Exempt,
        }
    }
}

impl QueuePair {
    /// Has the table of the command's volume do what it asks for. It is answered from outside.
    pub(super) fn run_reserve(&mut self, slot: SlotIndex, reserve: Reserve) {
        let mut keys = [0; ReservationRegisterKeys::SIZE];
        let data = self.take_data(slot);
        let bytes = data.iter().flat_map(|view| view.iter());
        for (to, from) in keys.iter_mut().zip(bytes) {
            *to = *from;
        }
        self.recover_reserve(slot, data);
        let reservations = self.reservations_of(slot);
        let operation = reserve.operation(&keys);
        self.wait_for(slot, |slot| Effect::Reserve {
            slot,
            reservations,
            operation,
        });
    }

    /// Has a report made of the command's volume.
    pub(super) fn run_report(&mut self, slot: SlotIndex, length: u32, is_extended: bool) {
        let reservations = self.reservations_of(slot);
        self.wait_for(slot, |slot| Effect::ReservationReport {
            slot,
            reservations,
            length,
            is_extended,
        });
    }

    fn reservations_of(&mut self, slot: SlotIndex) -> std::sync::Arc<Reservations> {
        let namespace = self.slot(slot).at.attached.as_ref().expect("it has one");
        let reservations = namespace.export.reservations.clone();
        reservations.expect("it was planned so")
    }

    /// Answers a command with a page of which the host wants so many bytes. What lies behind its end reads as zeroes.
    pub fn answer_with_page(&mut self, slot: SlotIndex, page: &[u8], length: u32) {
        let filled = page.len().min(length as usize);
        let mut front = Segment::heap(filled);
        front.copy_from_slice(&page[..filled]);
        let mut data = Views::from_iter([front.freeze()]);
        data.extend(View::zeroes(length as usize - filled));
        self.answer_waiting_with(slot, data, length);
    }
}

/// Events of reservations that a host has not read, and those that it does not want to hear of.
#[derive(Debug, Default)]
pub(super) struct Notifications {
    waiting: VecDeque<ReservationNotification>,
    /// Events since the controller was made.
    count: u64,
}

impl Notifications {
    /// Bytes that they take at worst.
    pub(super) const BYTES_MAX: usize = NOTIFICATIONS_MAX * size_of::<ReservationNotification>();

    fn add(&mut self, nsid: u32, event: ReservationNotificationType) {
        self.count += 1;
        // The count tells the host of those for which there is no room.
        if self.waiting.len() < NOTIFICATIONS_MAX {
            self.waiting.push_back(ReservationNotification {
                count: self.count,
                event,
                available: 0,
                nsid,
            });
        }
    }

    /// The oldest event, and how many wait behind it.
    pub(super) fn page(&self) -> ReservationNotification {
        match self.waiting.front() {
            None => ReservationNotification::default(),
            Some(first) => ReservationNotification {
                available: (self.waiting.len() - 1) as u8,
                ..*first
            },
        }
    }

    /// The oldest was read. Tells whether others wait.
    pub(super) fn read(&mut self) -> bool {
        self.waiting.pop_front();
        !self.waiting.is_empty()
    }
}

impl Controller {
    /// Something became of the host's registration or reservation on a namespace.
    pub fn notify(&mut self, nsid: u32, notice: Notice) {
        let (event, mask) = match notice {
            Notice::RegistrationPreempted => (
                ReservationNotificationType::RegistrationPreempted,
                ReservationNotificationMask::REGISTRATION_PREEMPTED,
            ),
            Notice::ReservationReleased => (
                ReservationNotificationType::ReservationReleased,
                ReservationNotificationMask::RESERVATION_RELEASED,
            ),
            Notice::ReservationPreempted => (
                ReservationNotificationType::ReservationPreempted,
                ReservationNotificationMask::RESERVATION_PREEMPTED,
            ),
        };
        if self.features.silenced(nsid).contains(mask) {
            return;
        }
        self.notifications.add(nsid, event);
        self.events.raise(EventType::ReservationLogAvailable);
    }
}
