//! Operations on clients and sessions.

use std::sync::Arc;

use weir_nfs::operation::{CreateSession, ExchangeId, Sequence};
use weir_nfs::types::StateId;
use weir_nfs::{SessionId, Status};

use super::{Compound, Done, Stop, Under};
use crate::state::Begun;

/// Calls of either side (channel_dir_from_server4).
const BOTH: u32 = 3;

impl Compound<'_> {
    pub(super) fn exchange_id(&mut self, request: &ExchangeId<'_>) -> Done {
        let peer = self.seen.context.peer.ip();
        let (shared, now) = (self.seen.context.shard.shared.own.clone(), self.seen.now());
        let introduced = shared.state.introduce(request, self.principal, peer, now)?;
        tracing::debug!(
            client = introduced.client, %peer,
            owner = %String::from_utf8_lossy(request.owner), "an NFS client introduced itself"
        );
        let out = &mut self.out;
        out.u64(introduced.client);
        out.u32(introduced.sequence);
        out.u32(introduced.flags);
        // No protection of state.
        out.u32(0);
        // The server's owner and scope.
        out.u64(0);
        out.opaque(&shared.name);
        out.opaque(&shared.name);
        // Of what it is it says nothing.
        out.u32(0);
        Ok(())
    }

    pub(super) fn create_session(&mut self, request: &CreateSession) -> Done {
        let drawn = self.seen.context.reactor().random();
        let (shared, now) = (self.seen.context.shard.shared.own.clone(), self.seen.now());
        let state = &shared.state;
        let granted = state.create_session(request, self.principal, drawn, now)?;
        tracing::info!(
            client = request.client, session = %granted.session, peer = %self.seen.context.peer.ip(),
            slots = granted.fore.slots, "an NFS client has a session"
        );
        let out = &mut self.out;
        out.fixed(&granted.session.0);
        out.u32(granted.sequence);
        out.u32(granted.flags);
        granted.fore.write(out);
        granted.back.write(out);
        Ok(())
    }

    pub(super) fn sequence(&mut self, request: &Sequence) -> Done {
        let session = self.seen.context.session(&request.session)?;
        let fore = session.fore;
        if self.record.len() > fore.request_bytes_max as usize {
            return Err(Status::ReqTooBig.into());
        }
        if self.count > fore.operations_max {
            return Err(Status::TooManyOps.into());
        }
        let now = self.seen.now();
        let begun = session.begin(request, now)?;
        let highest = session.highest();
        let out = &mut self.out;
        out.fixed(&request.session.0);
        out.u32(request.sequence);
        out.u32(request.slot);
        out.u32(highest);
        out.u32(highest);
        out.u32(0);
        if let Begun::Again(kept) = begun {
            return Err(Stop::Again(kept));
        }
        self.seen.context.client.set(Some(session.client));
        self.bytes_max = self.bytes_max.min(fore.reply_bytes_max as usize);
        self.under = Some(Under {
            session,
            slot: request.slot,
            is_kept: request.is_kept,
            started: now,
            is_answered: false,
        });
        Ok(())
    }

    pub(super) fn bind(&mut self, id: &SessionId, direction: u32) -> Done {
        let session = self.seen.context.session(id)?;
        let direction = match direction {
            1 | 2 => direction,
            3 | 7 => BOTH,
            _ => return Err(Status::Inval.into()),
        };
        self.seen.context.client.set(Some(session.client));
        self.out.fixed(&id.0);
        self.out.u32(direction);
        // Not over RDMA.
        self.out.bool(false);
        Ok(())
    }

    pub(super) fn destroy_session(&mut self, id: &SessionId, index: u32) -> Done {
        // A request may end its own session where it is the last that it does.
        let is_own = self
            .under
            .as_ref()
            .is_some_and(|under| under.session.id == *id);
        if is_own && index + 1 != self.count {
            return Err(Status::NotOnlyOp.into());
        }
        self.seen.shared().state.destroy_session(id)?;
        Ok(())
    }

    pub(super) fn destroy_client(&mut self, client: u64) -> Done {
        let shared = Arc::clone(&self.seen.context.shard.shared.own);
        shared.state.destroy_client(client)?;
        // After a restart nobody waits for a client that has left. Should it be forgotten that it has, that lasts a lease.
        let reactor = self.seen.context.reactor().clone();
        let keep = async move {
            let kept = reactor.offload(move || shared.state.keep_names()).await;
            if let Some(Err(error)) = kept {
                tracing::warn!(%error, "it cannot be kept that an NFS client has left");
            }
        };
        self.seen.context.reactor().spawn(keep).detach();
        Ok(())
    }

    /// The client's name is kept before the answer, and so before its first OPEN.
    pub(super) async fn reclaim_complete(&mut self, one_file_system: bool) -> Done {
        if one_file_system {
            // Nothing moves between servers.
            self.current()?;
            return Ok(());
        }
        let shared = Arc::clone(&self.seen.context.shard.shared.own);
        shared.state.complete(self.client(), self.seen.now())?;
        let keep = move || shared.state.keep_names();
        let kept = self.seen.context.reactor().offload(keep).await;
        match kept {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => {
                tracing::error!(%error, "the names of NFS clients cannot be kept");
                Err(Status::Delay.into())
            }
            None => Err(Status::Serverfault.into()),
        }
    }

    pub(super) fn test_stateids(&mut self, stateids: &[StateId]) -> Done {
        let client = self.client();
        self.out.u32(stateids.len() as u32);
        for stateid in stateids {
            let status = self.seen.shared().state.test(client, stateid);
            self.out.u32(status.value());
        }
        Ok(())
    }

    pub(super) fn free_stateid(&mut self, stateid: &StateId) -> Done {
        self.seen.shared().state.free(self.client(), stateid)?;
        Ok(())
    }
}
