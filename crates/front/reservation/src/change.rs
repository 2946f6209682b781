//! Changes: what an operation makes of a table, and what follows for other hosts.

use weir_nvme::HostId;
use weir_nvme::feature::HostIdentifier;

use crate::operation::{Operation, Proof};
use crate::refused::Refused;
use crate::registrant::{Nexus, Registrant};
use crate::rights::{Access, ReservationType, Rights, Standing};
use crate::table::{REGISTRANTS_MAX, Registration, Reservation, Table};

/// Event that another registrant is told of: a unit attention of SCSI, or a reservation notification of
/// NVMe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Notice {
    /// Its registration was preempted: REGISTRATIONS PREEMPTED, Registration Preempted.
    RegistrationPreempted,
    /// A reservation that it shared is released: RESERVATIONS RELEASED, Reservation Released.
    ReservationReleased,
    /// Its registration was cleared: RESERVATIONS PREEMPTED, Reservation Preempted.
    ReservationPreempted,
}

/// Outcome of an operation that is not refused. Carry it out in this order: store the table if
/// [`stores`](Self::stores), put it in force, end commands of those that lost, answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The table as it is to be.
    pub table: Table,
    /// What is stored of the table changes.
    pub stores: bool,
    /// Registrants that might read or write before, and may not now. What they began must have ended before the
    /// operation is answered.
    pub losers: Vec<Registrant>,
    /// The same holds for all that are not registered.
    pub strangers_lose: bool,
    /// Registrants whose commands are aborted (PREEMPT AND ABORT). The operation is answered after these.
    pub aborts: Vec<Registrant>,
    /// Events, for each that is told of one.
    pub notices: Vec<(Registrant, Notice)>,
}

impl Change {
    /// Says that one lost a right, whether or not it is in a table.
    pub fn takes_from(&self, registrant: &Registrant) -> bool {
        let is_stranger = self.table.standing(registrant) == Standing::Stranger;
        self.losers.contains(registrant) || (self.strangers_lose && is_stranger)
    }
}

impl Table {
    /// Computes this table without anything that is registered or reserved, RESERVE (6) and (10) included: what an operator takes
    /// away of hosts that are gone. Each registrant is told.
    pub fn discard(&self) -> Change {
        // No registrant has this identifier.
        let nobody = Registrant::Host(HostIdentifier::Extended(HostId([0; 16])));
        let mut draft = Draft::new(self, &nobody);
        draft.clear_all();
        draft.after.unit_holder = None;
        draft.finish()
    }

    /// Computes what an operation makes of this table, which stays as it is.
    ///
    /// # Errors
    /// The reason why the operation is refused.
    pub fn apply(&self, caller: &Registrant, operation: &Operation) -> Result<Change, Refused> {
        if caller.is_nameless() {
            return Err(Refused::NamelessHost);
        }
        let mut draft = Draft::new(self, caller);
        draft.carry_out(operation)?;
        Ok(draft.finish())
    }
}

/// A change that is being computed.
struct Draft<'a> {
    before: &'a Table,
    after: Table,
    caller: &'a Registrant,
    aborts: Vec<Registrant>,
    notices: Vec<(Registrant, Notice)>,
}

impl<'a> Draft<'a> {
    fn new(before: &'a Table, caller: &'a Registrant) -> Self {
        Draft {
            before,
            after: before.clone(),
            caller,
            aborts: Vec::new(),
            notices: Vec::new(),
        }
    }

    fn carry_out(&mut self, operation: &Operation) -> Result<(), Refused> {
        match operation {
            Operation::ReserveUnit => return self.reserve_unit(),
            Operation::ReleaseUnit => return self.release_unit(),
            Operation::LoseNexus => {
                self.open_unit();
                return Ok(());
            }
            Operation::ResetUnit => {
                self.after.unit_holder = None;
                return Ok(());
            }
            Operation::SetPersistence(is_persistent) => {
                self.after.is_persistent = *is_persistent;
                return Ok(());
            }
            _ if self.after.unit_holder.is_some() => return Err(Refused::UnitReserved),
            _ => {}
        }
        match *operation {
            Operation::Register { key, persistence } => self.register(key, persistence),
            Operation::Unregister { proof, persistence } => self.unregister(proof, persistence),
            Operation::Replace {
                proof,
                key,
                persistence,
            } => self.replace(proof, key, persistence),
            Operation::Enroll {
                proof,
                key,
                persistence,
            } => self.enroll(proof, key, persistence),
            Operation::Reserve { key, kind } => self.reserve(key, kind),
            Operation::Release { key, kind } => self.release(key, kind),
            Operation::Clear { key } => self.clear(key),
            Operation::Preempt {
                key,
                victims,
                kind,
                aborts,
            } => self.preempt(key, victims, kind, aborts),
            Operation::Move {
                key,
                other_key,
                ref other,
                unregisters,
                persistence,
            } => {
                self.move_to(key, other_key, other, unregisters)?;
                self.registrations_changed(persistence);
                Ok(())
            }
            Operation::ReserveUnit
            | Operation::ReleaseUnit
            | Operation::LoseNexus
            | Operation::ResetUnit
            | Operation::SetPersistence(_) => Ok(()),
        }
    }

    fn finish(self) -> Change {
        let (before, after) = (self.before, &self.after);
        let of_table = |table: &Table| {
            let unit_holder = table.unit_holder.clone().map(Registrant::Nexus);
            let registered = table.registrations.iter().map(|one| one.registrant.clone());
            registered.chain(unit_holder).collect::<Vec<_>>()
        };
        let mut losers = of_table(before);
        for registrant in of_table(after) {
            if !losers.contains(&registrant) {
                losers.push(registrant);
            }
        }
        losers.retain(|registrant| {
            loses(
                (before.rights(), before.standing(registrant)),
                (after.rights(), after.standing(registrant)),
            )
        });
        Change {
            stores: before.stored() != after.stored(),
            losers,
            strangers_lose: loses(
                (before.rights(), Standing::Stranger),
                (after.rights(), Standing::Stranger),
            ),
            aborts: self.aborts,
            notices: self.notices,
            table: self.after,
        }
    }

    // Registrations.

    fn register(&mut self, key: u64, persistence: Option<bool>) -> Result<(), Refused> {
        nonzero(key)?;
        match self.after.key_of(self.caller) {
            Some(existing) if existing != key => return Err(Refused::WrongKey),
            Some(_) => {}
            None => self.assign(self.caller, key)?,
        }
        self.registrations_changed(persistence);
        Ok(())
    }

    fn unregister(&mut self, proof: Proof, persistence: Option<bool>) -> Result<(), Refused> {
        self.prove(proof)?;
        self.leave();
        self.registrations_changed(persistence);
        Ok(())
    }

    fn replace(
        &mut self,
        proof: Proof,
        key: u64,
        persistence: Option<bool>,
    ) -> Result<(), Refused> {
        nonzero(key)?;
        // With IEKEY it replaces without regard to registration status (NVMe Base 2.0c section 8.19.3).
        if proof != Proof::Ignored {
            self.prove(proof)?;
        }
        self.assign(self.caller, key)?;
        self.registrations_changed(persistence);
        Ok(())
    }

    fn enroll(&mut self, proof: Proof, key: u64, persistence: Option<bool>) -> Result<(), Refused> {
        let is_registered = self.after.key_of(self.caller).is_some();
        // One that has not registered has a key of zero.
        if is_registered || !matches!(proof, Proof::Key(0) | Proof::Ignored) {
            self.prove(proof)?;
        }
        match (is_registered, key) {
            // It is answered, and nothing else (SPC-4 table 47).
            (false, 0) => return Ok(()),
            (true, 0) => self.leave(),
            (_, key) => self.assign(self.caller, key)?,
        }
        self.registrations_changed(persistence);
        Ok(())
    }

    /// Checks that the caller has registered, with the key that it shows.
    fn prove(&self, proof: Proof) -> Result<(), Refused> {
        let existing = self
            .after
            .key_of(self.caller)
            .ok_or(Refused::NotRegistered)?;
        match proof {
            Proof::Key(key) if key != existing => Err(Refused::WrongKey),
            _ => Ok(()),
        }
    }

    /// Registers one, or gives it another key.
    fn assign(&mut self, registrant: &Registrant, key: u64) -> Result<(), Refused> {
        let registrations = &mut self.after.registrations;
        if let Some(one) = registrations
            .iter_mut()
            .find(|one| one.registrant == *registrant)
        {
            one.key = key;
            return Ok(());
        }
        if registrations.len() == REGISTRANTS_MAX {
            return Err(Refused::TooManyRegistrants);
        }
        registrations.push(Registration {
            registrant: registrant.clone(),
            key,
        });
        Ok(())
    }

    /// Ends the caller's registration, and the reservation where that was the last holder.
    fn leave(&mut self) {
        let caller = self.caller;
        let held = self.after.holds(caller);
        self.remove(|one| one.registrant == *caller);
        match self.after.reservation.clone() {
            Some(reservation) if held && !reservation.kind.is_all_registrants() => {
                self.end_reservation(reservation.kind);
            }
            _ => self.end_if_nobody_holds(),
        }
    }

    /// Removes registrations, and yields those that were not the caller's.
    fn remove(&mut self, is_removed: impl Fn(&Registration) -> bool) -> Vec<Registrant> {
        let mut removed = Vec::new();
        self.after.registrations.retain(|one| {
            let stays = !is_removed(one);
            if !stays && one.registrant != *self.caller {
                removed.push(one.registrant.clone());
            }
            stays
        });
        removed
    }

    fn registrations_changed(&mut self, persistence: Option<bool>) {
        self.after.generation = self.after.generation.wrapping_add(1);
        if let Some(is_persistent) = persistence {
            self.after.is_persistent = is_persistent;
        }
    }

    // The reservation.

    fn reserve(&mut self, key: u64, kind: Option<ReservationType>) -> Result<(), Refused> {
        self.prove(Proof::Key(key))?;
        match &self.after.reservation {
            None => self.hold(kind.ok_or(Refused::UnknownType)?),
            Some(held) if Some(held.kind) == kind && self.after.holds(self.caller) => {}
            Some(_) => return Err(Refused::Held),
        }
        Ok(())
    }

    fn hold(&mut self, kind: ReservationType) {
        let holder = (!kind.is_all_registrants()).then(|| self.caller.clone());
        self.after.reservation = Some(Reservation { kind, holder });
    }

    fn release(&mut self, key: u64, kind: Option<ReservationType>) -> Result<(), Refused> {
        self.prove(Proof::Key(key))?;
        let Some(held) = self.after.reservation.as_ref().map(|held| held.kind) else {
            return Ok(());
        };
        if !self.after.holds(self.caller) {
            return Ok(());
        }
        if kind != Some(held) {
            return Err(Refused::OtherType);
        }
        self.end_reservation(held);
        Ok(())
    }

    /// Ends the reservation. Registrants that shared it are told (SPC-4 section 5.12.11.2).
    fn end_reservation(&mut self, kind: ReservationType) {
        self.after.reservation = None;
        if kind.admits_registrants() {
            self.notify_others(Notice::ReservationReleased);
        }
    }

    /// Ends a reservation of all registrants with the last of them.
    fn end_if_nobody_holds(&mut self) {
        if self.after.registrations.is_empty() {
            self.after.reservation = None;
        }
    }

    fn clear(&mut self, key: u64) -> Result<(), Refused> {
        self.prove(Proof::Key(key))?;
        self.clear_all();
        Ok(())
    }

    fn clear_all(&mut self) {
        self.notify_others(Notice::ReservationPreempted);
        self.after.registrations.clear();
        self.after.reservation = None;
        self.registrations_changed(None);
    }

    fn preempt(
        &mut self,
        key: u64,
        victims: u64,
        kind: Option<ReservationType>,
        aborts: bool,
    ) -> Result<(), Refused> {
        self.prove(Proof::Key(key))?;
        // Zero where all registrants hold the reservation, and otherwise the holder's key.
        let removed = match self.after.reservation.as_ref().map(|held| held.kind) {
            Some(held) if self.after.reservation_key() == Some(victims) => {
                self.take_over(held, victims, kind.ok_or(Refused::UnknownType)?)
            }
            _ => self.remove_key(victims)?,
        };
        for registrant in &removed {
            let notice = (registrant.clone(), Notice::RegistrationPreempted);
            self.notices.push(notice);
        }
        if aborts {
            self.aborts = removed;
        }
        self.registrations_changed(None);
        Ok(())
    }

    /// Makes the reservation the caller's, who keeps its registration (SPC-4 section 5.12.11.2.4).
    fn take_over(
        &mut self,
        held: ReservationType,
        victims: u64,
        kind: ReservationType,
    ) -> Vec<Registrant> {
        let caller = self.caller;
        let removed =
            self.remove(|one| one.registrant != *caller && (victims == 0 || one.key == victims));
        self.hold(kind);
        if kind != held {
            self.notify_others(Notice::ReservationReleased);
        }
        removed
    }

    /// Ends registrations alone, the caller's too if it has that key (SPC-4 section 5.12.11.2.5).
    fn remove_key(&mut self, victims: u64) -> Result<Vec<Registrant>, Refused> {
        nonzero(victims)?;
        if !self
            .after
            .registrations
            .iter()
            .any(|one| one.key == victims)
        {
            return Err(Refused::NoSuchKey);
        }
        let removed = self.remove(|one| one.key == victims);
        self.end_if_nobody_holds();
        Ok(removed)
    }

    fn move_to(
        &mut self,
        key: u64,
        other_key: u64,
        other: &Nexus,
        unregisters: bool,
    ) -> Result<(), Refused> {
        self.prove(Proof::Key(key))?;
        let other = Registrant::Nexus(other.clone());
        let kind = match &self.after.reservation {
            Some(held) if held.kind.is_all_registrants() => return Err(Refused::HeldByAll),
            Some(held) if self.after.holds(self.caller) => held.kind,
            _ => return Err(Refused::NotHolder),
        };
        nonzero(other_key)?;
        if other == *self.caller {
            return Err(Refused::MoveToSelf);
        }
        if unregisters {
            let caller = self.caller;
            self.remove(|one| one.registrant == *caller);
        }
        self.assign(&other, other_key)?;
        self.after.reservation = Some(Reservation {
            kind,
            holder: Some(other),
        });
        Ok(())
    }

    fn notify_others(&mut self, notice: Notice) {
        let registrants = self.after.registrations.iter().map(|one| &one.registrant);
        let others = registrants.filter(|&registrant| registrant != self.caller);
        let notices = others.map(|registrant| (registrant.clone(), notice));
        self.notices.extend(notices);
    }

    // RESERVE (6) and (10).

    fn reserve_unit(&mut self) -> Result<(), Refused> {
        let nexus = self.for_unit()?;
        match &self.after.unit_holder {
            Some(holder) if *holder != nexus => Err(Refused::UnitReserved),
            _ => {
                self.after.unit_holder = Some(nexus);
                Ok(())
            }
        }
    }

    fn release_unit(&mut self) -> Result<(), Refused> {
        self.for_unit()?;
        self.open_unit();
        Ok(())
    }

    /// The caller's nexus, which may use RESERVE (6) and (10) unless there are registrations.
    fn for_unit(&self) -> Result<Nexus, Refused> {
        match self.caller {
            Registrant::Host(_) => Err(Refused::NoNexus),
            Registrant::Nexus(_) if !self.after.registrations.is_empty() => {
                Err(Refused::Registrations)
            }
            Registrant::Nexus(nexus) => Ok(nexus.clone()),
        }
    }

    fn open_unit(&mut self) {
        let caller = self.caller;
        self.after
            .unit_holder
            .take_if(|holder| matches!(caller, Registrant::Nexus(nexus) if nexus == holder));
    }
}

const fn nonzero(key: u64) -> Result<(), Refused> {
    if key == 0 {
        Err(Refused::ZeroKey)
    } else {
        Ok(())
    }
}

/// Says that access to blocks is lost.
fn loses(before: (Rights, Standing), after: (Rights, Standing)) -> bool {
    let lost = |access| before.0.allows(access, before.1) && !after.0.allows(access, after.1);
    lost(Access::Read) || lost(Access::Write)
}
