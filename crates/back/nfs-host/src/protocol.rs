//! NFS as a protocol of initiators: a connection that keeps watch, and connections for I/O, all of one session where there are sessions.
//!
//! A connection that is lost loses no request of its slots: before the session is used again, each slot whose request was not answered is
//! settled, after which that request is over ([`crate::slots`]). A session that the server does not know any more is one that it has
//! given up, or one of a server that has started anew: what it had is over, too.
//!
//! Version 3 has no such proof. What was sent over a lost connection, and may change the file, is sent again when some time has passed,
//! and reads at once; a server that carries out after that time what came before can undo what came after.
//!
//! Writes are UNSTABLE, and a flush is a COMMIT. A server that may have lost what it has not committed says so by another verifier
//! (RFC 8881, section 18.32): the association ends, and what is retained is written again before the next one is used.

use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use weir_block::VolumeError;
use weir_initiator::options::{CommonOptions, authority};
use weir_initiator::plan::{Method, force_unit_access};
use weir_initiator::{
    Association, Caller, Command, Ended, Established, Judged, LinkFailure, Next, Profile, Protocol,
    Retained, Verdict, within,
};
use weir_nfs::rpc::Reply;
use weir_nfs::{FileHandle, OperationNumber as Number, StateId};
use weir_reactor::Reactor;

use crate::arguments::Arguments;
use crate::asking::{Asking, ConnectError, File, FileIdentity, Identity, Session, Way};
use crate::channel::{Answer, Channel, Request};
use crate::keeper::{Keeper, keep, look};
use crate::options::{Options, SCHEME, Version};
use crate::outcome;
use crate::session::{bind, end_client, share};
use crate::slots::{Division, SPARE_CONNECTIONS};

/// For how long a server is waited for that is told to end something.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of one write of what is retained.
const RESTORE_BYTES: usize = 256 << 10;
/// Says that what was written and not committed may be gone.
const VERIFIER_CHANGED: &str =
    "the server has another write verifier: what it has not committed may be gone";

/// NFS versions 3, 4.1 and 4.2.
pub struct Nfs;

/// Parts of an association that are NFS's own.
pub struct Details {
    places: Places,
    file: (FileHandle, StateId),
    /// The verifier of its writes, once it is known.
    verifier: Arc<OnceLock<[u8; 8]>>,
}

/// Room for requests that connections have.
enum Places {
    /// A session, whose slots are divided.
    Session(Session, Division),
    /// As many as this host likes, for each connection.
    V3 { connections: u16, depth: u16 },
}

impl Details {
    /// Slots of the session; none in version 3, which has no sessions.
    #[must_use]
    pub fn slots(&self) -> Option<u32> {
        match &self.places {
            Places::Session(session, _) => Some(session.made.slots),
            Places::V3 { .. } => None,
        }
    }
}

impl Protocol for Nfs {
    type Wire = Channel;
    type Options = Options;
    type Host = Identity;
    type Identity = FileIdentity;
    type Details = Details;
    type Admin = Keeper;
    type WayOut = ();
    type Tag = u32;
    type ConnectError = ConnectError;

    const SCHEME: &'static str = SCHEME;
    const RETAINS: bool = true;

    fn name(options: &Options) -> String {
        let place = authority(&options.host, options.port);
        format!("{SCHEME}://{place}{}", options.path_text())
    }

    /// Slots that are settled in version 4; in version 3 nothing says that a request is over.
    fn replaces(options: &Options) -> bool {
        options.version != Version::V3
    }

    fn common(options: &Options) -> &CommonOptions {
        &options.common
    }

    async fn establish(
        reactor: &Reactor,
        remote: &File,
        next: Next,
    ) -> Result<Established<Nfs>, ConnectError> {
        let kept = keep(reactor, remote).await?;
        let common = &remote.options.common;
        let places = match kept.keeper.way {
            Way::Session(session) => {
                let wanted = remote.queues_wanted.into();
                let division = Division::new(session.made.slots, wanted, common.depth.into());
                Places::Session(session, division)
            }
            Way::V3 { .. } => Places::V3 {
                connections: remote.queues_wanted.saturating_add(SPARE_CONNECTIONS),
                depth: common.depth,
            },
        };
        let keep_alive = match kept.lease {
            Some(lease) => common.keep_alive.min(lease / 2),
            None => common.keep_alive,
        };
        Ok(Established {
            association: Arc::new(Association {
                generation: next.generation,
                address: kept.address,
                profile: kept.profile,
                queues: match &places {
                    Places::Session(_, division) => division.connections(),
                    Places::V3 { connections, .. } => *connections,
                },
                details: Details {
                    places,
                    file: kept.keeper.file,
                    verifier: kept.verifier,
                },
            }),
            admin: kept.keeper,
            keep_alive,
            traffic_based: true,
            quiet: kept.lease.unwrap_or(keep_alive) * 2,
        })
    }

    async fn restore(
        established: &Established<Nfs>,
        remote: &File,
        writes: &[Retained],
    ) -> Result<(), ConnectError> {
        let keeper = &established.admin;
        let before = remote.host.lasting().verifier_before();
        if before == Some(keeper.commit().await?) {
            return Ok(());
        }
        let count = writes.len();
        tracing::warn!(
            volume = Self::name(&remote.options),
            writes = count,
            "the server may have lost what it had not committed: it is written again"
        );
        let shift = established.association.profile.geometry.block_size.shift();
        for write in writes {
            let mut offset = write.lba << shift;
            for data in write
                .data
                .chunks(RESTORE_BYTES.min(transfer_bytes(established)))
            {
                write_durably(keeper, offset, data).await?;
                offset += data.len() as u64;
            }
        }
        Ok(())
    }

    async fn end_of(keeper: &Keeper) -> String {
        keeper.asking.caller.calls.end().await.to_string()
    }

    async fn keep_alive(established: &Established<Nfs>) -> Result<(), String> {
        let timeout = established.keep_alive;
        established.admin.renew(timeout).await
    }

    /// Looks at the size of the file, now and then.
    async fn events(
        established: &Established<Nfs>,
        remote: &File,
        changed: &dyn Fn(Option<Profile<FileIdentity>>),
    ) {
        let reactor = &established.admin.asking.caller.reactor;
        let mut last = Some(established.association.profile.clone());
        loop {
            reactor.sleep(established.keep_alive).await;
            match look(&established.admin, remote).await {
                Ok(profile) if profile == last => {}
                Ok(profile) => {
                    changed(profile.clone());
                    last = profile;
                }
                // The end of the connection is noticed elsewhere.
                Err(ConnectError::Ended { .. }) => return,
                Err(error) => tracing::warn!(%error, "cannot see whether the file changed"),
            }
        }
    }

    async fn look(
        established: &Established<Nfs>,
        remote: &File,
    ) -> Result<Option<Profile<FileIdentity>>, ConnectError> {
        look(&established.admin, remote).await
    }

    /// Ends the connection that keeps watch, so that its slots are known to the next one.
    async fn end(keeper: &Keeper, orderly: bool) -> Ended<()> {
        if orderly {
            let taken = take_leave(keeper);
            let result = within(&keeper.asking.caller.reactor, END_TIMEOUT, taken).await;
            tracing::debug!(?result, "took leave");
            keeper.asking.caller.connection.close();
        } else {
            keeper.asking.caller.connection.abort();
        }
        keeper.asking.caller.calls.end().await;
        Ended::Unheard
    }

    async fn outlive(_: &Established<Nfs>, (): ()) -> bool {
        unreachable!("no NFS server says that it has not ended")
    }

    fn close(keeper: &Keeper) {
        keeper.asking.caller.connection.close();
    }

    async fn answers(_: &Keeper, _: Duration) -> bool {
        unreachable!("no connection outlives its association")
    }

    fn wire(_: &Reactor, remote: &File, association: &Association<Nfs>, qid: u16) -> Channel {
        let details = &association.details;
        let minor_version = remote.options.version.minor();
        let mut channel = Channel::new(&remote.host.credential(), minor_version);
        match &details.places {
            Places::Session(session, division) => {
                channel.take_share(share(&remote.host, session, division.slots(qid)));
            }
            Places::V3 { depth, .. } => channel.make_room(*depth),
        }
        channel.set_file(details.file);
        channel
    }

    async fn greet(
        caller: &Caller<Channel>,
        _: &File,
        association: &Association<Nfs>,
        _: u16,
    ) -> Result<(), LinkFailure> {
        let Places::Session(session, _) = &association.details.places else {
            return Ok(());
        };
        let asking = Asking {
            caller: caller.clone(),
        };
        let bound = bind(&asking, session.made.id).await;
        bound.map_err(|error| LinkFailure {
            reason: error.to_string(),
            again: false,
        })
    }

    /// Does nothing: the session ends with the volume.
    async fn farewell(_: &Caller<Channel>, _: &Association<Nfs>) {}

    fn needs(_: Method) -> usize {
        1
    }

    fn issue(channel: &mut Channel, _: &File, command: &Command<'_>, user: u64) -> u32 {
        let offset = command.lba << command.shift();
        let request = match command.method {
            Method::Read | Method::ReadAndCompare | Method::ReadAndDrop => Request::Read {
                offset,
                count: command.bytes() as u32,
            },
            Method::Write | Method::WriteOfZeroes => Request::Write {
                offset,
                is_durable: force_unit_access(command.operation),
                data: command.written(),
            },
            Method::Flush => Request::Commit,
            Method::WriteZeroes
            | Method::Compare
            | Method::CompareWrite
            | Method::Deallocate
            | Method::Verify => unreachable!("the limits of an NFS file have none of these"),
        };
        channel.submit(request, user)
    }

    /// Does nothing: a call cannot be taken back. Where it goes on for long the session is taken up again, which waits for it.
    fn abort_here(_: &Caller<Channel>, _: u32) -> bool {
        true
    }

    async fn abort(_: Rc<Established<Nfs>>, _: u16, _: u32) {}

    fn judge(association: Option<&Association<Nfs>>, answer: &Answer, bytes: u64) -> Judged {
        let in_part = Judged {
            may_have_been_done: true,
            ..Judged::new(Verdict::Retry(VolumeError::Medium))
        };
        match answer {
            // A server may do less than it was asked for (RFC 8881, sections 18.22 and 18.32).
            Answer::Read(count) if u64::from(*count) < bytes => in_part,
            Answer::Written { bytes: count, .. } if u64::from(*count) != bytes => in_part,
            Answer::Read(_)
            | Answer::Written {
                is_unstable: false, ..
            } => Judged::new(Verdict::Done),
            Answer::Written { verifier, .. } | Answer::Committed(verifier) => {
                let is_known = association.is_some_and(|association| {
                    let known = &association.details.verifier;
                    known.get_or_init(|| *verifier) == verifier
                });
                match is_known {
                    true => Judged::new(Verdict::Done),
                    false => Judged {
                        ends: Some(VERIFIER_CHANGED),
                        ..in_part
                    },
                }
            }
            Answer::Failed(status) => outcome::judge(*status),
            Answer::Refused(Reply::SystemError) => Judged::new(Verdict::Retry(VolumeError::Busy)),
            Answer::Refused(_) | Answer::Results(_) => {
                Judged::new(Verdict::Failed(VolumeError::Medium))
            }
        }
    }
}

fn transfer_bytes(established: &Established<Nfs>) -> usize {
    let limits = &established.association.profile.limits;
    (limits.transfer_blocks_max as usize) << limits.block_size.shift()
}

async fn write_durably(
    keeper: &Keeper,
    mut offset: u64,
    mut data: &[u8],
) -> Result<(), ConnectError> {
    while !data.is_empty() {
        let count = keeper.write_durably(offset, data).await?;
        offset += count as u64;
        data = &data[count..];
    }
    Ok(())
}

/// Closes the file, and ends the session and the client.
async fn take_leave(keeper: &Keeper) -> Result<(), ConnectError> {
    let asking = &keeper.asking;
    let Way::Session(session) = &keeper.way else {
        // There is nothing that the server would know of.
        return Ok(());
    };
    let (handle, stateid) = &keeper.file;
    let close = Arguments::default().put(handle).close(stateid);
    asking
        .call("CLOSE", &close, |results| {
            results.next(Number::Putfh)?;
            results.next(Number::Close)
        })
        .await?;
    end_client(asking, session).await
}
