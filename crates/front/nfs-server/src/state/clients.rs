//! Clients, and how they introduce themselves (RFC 8881, sections 18.35 and 18.36).

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_nfs::operation::{CreateSession, ExchangeId};
use weir_nfs::types::ChannelAttributes;
use weir_nfs::{SessionId, Status};
use weir_reactor::Instant;

use super::slots::Session;
use super::{Inner, State};
use crate::config::NfsConfig;

/// The flags of EXCHANGE_ID that a client may set.
const CLIENT_FLAGS: u32 = 0x4007_0107;
const UPDATE: u32 = 0x4000_0000;
const USE_NON_PNFS: u32 = 0x0001_0000;
const CONFIRMED: u32 = 0x8000_0000;
/// The flags of CREATE_SESSION.
const SESSION_FLAGS: u32 = 7;
/// Callbacks go by this connection: none are made.
const BACK_CHANNEL: u32 = 2;
/// Bytes that a request and a reply must have room for.
const MESSAGE_BYTES_MIN: u32 = 512;
/// Bytes of what a client says it is that are kept.
const IMPLEMENTATION_MAX: usize = 128;

/// User of a call, as the caller says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Principal(pub(crate) Option<u32>);

/// A client.
pub(crate) struct Client {
    pub(super) id: u64,
    pub(super) name: Vec<u8>,
    verifier: [u8; 8],
    principal: Principal,
    pub(super) is_confirmed: bool,
    /// The number of its last CREATE_SESSION, and what came of it.
    create_sequence: u32,
    created: Option<Granted>,
    heard: Arc<AtomicU64>,
    pub(super) sessions: Vec<Arc<Session>>,
    /// It has said that it reclaims nothing more.
    pub(super) is_complete: bool,
    /// It may reclaim what it had.
    pub(super) may_reclaim: bool,
    /// Its name is among those that may reclaim after the next start.
    pub(super) is_recorded: bool,
    /// Opens and owners of locks.
    pub(super) states: u32,
    pub(super) address: IpAddr,
    pub(super) implementation: String,
}

/// Results of EXCHANGE_ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Introduced {
    pub(crate) client: u64,
    pub(crate) sequence: u32,
    pub(crate) flags: u32,
}

/// Results of CREATE_SESSION.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) session: SessionId,
    pub(crate) sequence: u32,
    pub(crate) flags: u32,
    pub(crate) fore: ChannelAttributes,
    pub(crate) back: ChannelAttributes,
}

impl Client {
    fn is_silent(&self, now: Instant, config: &NfsConfig) -> bool {
        let heard = Instant::from_nanos(self.heard.load(Ordering::Relaxed));
        now.since(heard) > config.lease
    }

    fn is_busy(&self) -> bool {
        self.sessions.iter().any(|session| session.is_busy())
    }
}

impl State {
    /// A client introduces itself.
    pub(crate) fn introduce(
        &self,
        request: &ExchangeId<'_>,
        principal: Principal,
        address: IpAddr,
        now: Instant,
    ) -> Result<Introduced, Status> {
        if request.flags & !CLIENT_FLAGS != 0 || request.protection != 0 {
            return Err(Status::Inval);
        }
        let mut inner = self.lock();
        inner.expire(now, &self.config);
        let named = inner
            .by_name
            .get(request.owner)
            .copied()
            .unwrap_or_default();
        let is_update = request.flags & UPDATE != 0;
        if let Some(id) = named.confirmed {
            let client = inner.clients.get_mut(&id).expect("it is named");
            let (same_run, same_user) = (
                client.verifier == request.verifier,
                client.principal == principal,
            );
            match (is_update, same_run, same_user) {
                (true, false, _) => return Err(Status::NotSame),
                (true, true, false) => return Err(Status::Perm),
                (_, true, true) => {
                    client.address = address;
                    client.heard.store(now.as_nanos(), Ordering::Relaxed);
                    return Ok(Introduced {
                        client: id,
                        sequence: client.create_sequence.wrapping_add(1),
                        flags: USE_NON_PNFS | CONFIRMED,
                    });
                }
                (false, _, false) if client.states > 0 && !client.is_silent(now, &self.config) => {
                    return Err(Status::ClidInuse);
                }
                // The client started anew; what it had ends when this is confirmed.
                (false, _, _) => {}
            }
        } else if is_update {
            return Err(Status::Noent);
        }
        if let Some(id) = named.unconfirmed {
            inner.remove_client(id);
        }
        if inner.clients.len() >= self.config.clients_max as usize {
            inner.drop_oldest_unconfirmed();
        }
        if inner.clients.len() >= self.config.clients_max as usize {
            return Err(Status::Delay);
        }
        let id = u64::from(self.boot) << 32 | (inner.next() & u64::from(u32::MAX));
        let said = String::from_utf8_lossy(request.implementation);
        let is_waited_for = |grace: &super::Grace| grace.waiting.contains(request.owner);
        let client = Client {
            id,
            name: request.owner.to_vec(),
            verifier: request.verifier,
            principal,
            is_confirmed: false,
            create_sequence: 0,
            created: None,
            heard: Arc::new(AtomicU64::new(now.as_nanos())),
            sessions: Vec::new(),
            is_complete: false,
            may_reclaim: inner.grace.as_ref().is_some_and(is_waited_for),
            is_recorded: false,
            states: 0,
            address,
            implementation: said.chars().take(IMPLEMENTATION_MAX).collect(),
        };
        inner.clients.insert(id, client);
        let named = inner.by_name.entry(request.owner.to_vec()).or_default();
        named.unconfirmed = Some(id);
        Ok(Introduced {
            client: id,
            sequence: 1,
            flags: USE_NON_PNFS,
        })
    }

    /// A client makes a session. `drawn` is random.
    pub(crate) fn create_session(
        &self,
        request: &CreateSession,
        principal: Principal,
        drawn: u64,
        now: Instant,
    ) -> Result<Granted, Status> {
        let mut inner = self.lock();
        inner.expire(now, &self.config);
        let left = self.config.all_max().saturating_sub(inner.slots) as u32;
        let client = inner.clients.get_mut(&request.client);
        let client = client.ok_or(Status::StaleClientid)?;
        if request.sequence == client.create_sequence {
            return client.created.ok_or(Status::SeqMisordered);
        }
        if request.sequence != client.create_sequence.wrapping_add(1) {
            return Err(Status::SeqMisordered);
        }
        if client.principal != principal {
            return Err(Status::ClidInuse);
        }
        if request.flags & !SESSION_FLAGS != 0 {
            return Err(Status::Inval);
        }
        let fore = self.grant(&request.fore, left)?;
        if left == 0 || client.sessions.len() >= self.config.sessions_per_client_max as usize {
            return Err(Status::Delay);
        }
        client.heard.store(now.as_nanos(), Ordering::Relaxed);
        let mut id = [0; 16];
        id[..8].copy_from_slice(&request.client.to_be_bytes());
        id[8..].copy_from_slice(&drawn.to_be_bytes());
        let id = SessionId(id);
        let granted = Granted {
            session: id,
            sequence: request.sequence,
            flags: request.flags & BACK_CHANNEL,
            fore,
            back: request.back,
        };
        let session = Session::new(id, client.id, fore, Arc::clone(&client.heard));
        client.sessions.push(Arc::clone(&session));
        client.create_sequence = request.sequence;
        client.created = Some(granted);
        if !client.is_confirmed {
            client.is_confirmed = true;
            let name = client.name.clone();
            let named = inner.by_name.get_mut(&name).expect("it is named");
            named.unconfirmed = None;
            if let Some(before) = named.confirmed.replace(request.client) {
                inner.remove_client(before);
            }
        }
        inner.sessions.insert(id, session);
        inner.slots += fore.slots as usize;
        Ok(granted)
    }

    /// Grants of the wished properties of calls, where so many slots are left for all clients.
    fn grant(&self, wished: &ChannelAttributes, left: u32) -> Result<ChannelAttributes, Status> {
        let message = self.config.message_bytes_max();
        if wished.request_bytes_max < MESSAGE_BYTES_MIN
            || wished.reply_bytes_max < MESSAGE_BYTES_MIN
            || wished.operations_max < 2
        {
            return Err(Status::Toosmall);
        }
        if wished.slots == 0 {
            return Err(Status::Inval);
        }
        Ok(ChannelAttributes {
            header_pad: 0,
            request_bytes_max: wished.request_bytes_max.min(message),
            reply_bytes_max: wished.reply_bytes_max.min(message),
            kept_reply_bytes_max: wished.kept_reply_bytes_max.min(NfsConfig::KEPT_BYTES_MAX),
            operations_max: wished.operations_max.min(NfsConfig::OPERATIONS_MAX),
            slots: wished.slots.min(self.config.slots_max).min(left).max(1),
        })
    }

    /// The session of an identifier.
    pub(crate) fn session(&self, id: &SessionId) -> Option<Arc<Session>> {
        self.lock().sessions.get(id).cloned()
    }

    /// Ends a session. Requests of it that are under way go on, and nobody gets their replies kept. One of them may be the caller's.
    pub(crate) fn destroy_session(&self, id: &SessionId) -> Result<(), Status> {
        let mut inner = self.lock();
        let session = inner.remove_session(id).ok_or(Status::Badsession)?;
        if let Some(client) = inner.clients.get_mut(&session.client) {
            client.sessions.retain(|other| other.id != *id);
        }
        Ok(())
    }

    /// Forgets a client that has nothing.
    pub(crate) fn destroy_client(&self, id: u64) -> Result<(), Status> {
        let mut inner = self.lock();
        let client = inner.clients.get(&id).ok_or(Status::StaleClientid)?;
        if !client.sessions.is_empty() || client.states > 0 {
            return Err(Status::ClientidBusy);
        }
        inner.remove_client(id);
        Ok(())
    }

    /// A client has reclaimed all that it wants to. Afterwards its name is to be [kept](State::keep_names).
    pub(crate) fn complete(&self, id: u64, now: Instant) -> Result<(), Status> {
        let mut inner = self.lock();
        let inner = &mut *inner;
        let client = inner.clients.get_mut(&id).ok_or(Status::StaleClientid)?;
        if client.is_complete {
            return Err(Status::CompleteAlready);
        }
        (client.is_complete, client.is_recorded) = (true, true);
        client.may_reclaim = false;
        inner.recorded.insert(client.name.clone());
        if let Some(grace) = &mut inner.grace {
            grace.waiting.remove(&client.name);
        }
        inner.look_at_grace(now);
        Ok(())
    }
}

impl Inner {
    /// Ends the clients whose lease has run out and that wait for nothing.
    pub(super) fn expire(&mut self, now: Instant, config: &NfsConfig) {
        self.look_at_grace(now);
        let silent: Vec<u64> = self
            .clients
            .values()
            .filter(|client| client.is_silent(now, config) && !client.is_busy())
            .map(|client| client.id)
            .collect();
        for id in silent {
            self.remove_client(id);
        }
    }

    /// A client that never made a session gives way to a newer one.
    fn drop_oldest_unconfirmed(&mut self) {
        let unconfirmed = self.clients.values().filter(|client| !client.is_confirmed);
        if let Some(id) = unconfirmed.map(|client| client.id).min() {
            self.remove_client(id);
        }
    }

    fn remove_session(&mut self, id: &SessionId) -> Option<Arc<Session>> {
        let session = self.sessions.remove(id)?;
        session.end();
        self.slots -= session.fore.slots as usize;
        Some(session)
    }

    /// Ends a client with all that it has.
    fn remove_client(&mut self, id: u64) {
        let Some(client) = self.clients.remove(&id) else {
            return;
        };
        for session in &client.sessions {
            self.remove_session(&session.id);
        }
        if client.states > 0 {
            let held: Vec<[u8; 12]> = self
                .held
                .iter()
                .filter(|(_, held)| held.client() == id)
                .map(|(&id, _)| id)
                .collect();
            for id in held {
                self.remove_held(&id);
            }
        }
        if let Some(named) = self.by_name.get_mut(&client.name) {
            for known in [&mut named.confirmed, &mut named.unconfirmed] {
                known.take_if(|known| *known == id);
            }
            if named.confirmed.is_none() && named.unconfirmed.is_none() {
                self.by_name.remove(&client.name);
            }
        }
        if client.is_recorded && !self.by_name.contains_key(&client.name) {
            self.recorded.remove(&client.name);
        }
    }
}
