//! iSCSI as a protocol of initiators: a session by which an association is kept, and sessions for I/O, of one connection each.
//!
//! What a lost session had sent is over when the session is made again: a login with the same initiator name, ISID, target and portal
//! group ends the tasks of the session that it replaces before it is complete (RFC 7143 section 6.3.5). So session `qid` of every
//! association has the same ISID. A command that is aborted has ended when the target says so.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use weir_block::VolumeError;
use weir_initiator::options::{CommonOptions, authority};
use weir_initiator::plan::Method;
use weir_initiator::{
    Association, Caller, Command, Ended, Established, Judged, LinkFailure, Next, Protocol, Remote,
    Verdict,
};
use weir_iscsi::login::SessionType;
use weir_iscsi::pdu::Itt;
use weir_reactor::Reactor;
use weir_scsi::lun::Lun;
use weir_scsi::sense::Status;

use crate::asking::{Asking, CommandFailure, log_out};
use crate::command;
use crate::nexus::{Answer, Nexus};
use crate::options::{Options, SCHEME};
use crate::outcome;
use crate::profile::Profile;
use crate::session::{
    ConnectError, Identity, Keeper, LoginFailure, Unit, check_group, keep, logged_in, recognise,
    settings,
};

/// For how long a target is waited for that is told to end something.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// For how long a queue that is given up waits for its logout.
const LOGOUT_TIMEOUT: Duration = Duration::from_secs(1);
/// Sessions for I/O that one volume may have.
const QUEUES_MAX: u16 = 1024;
/// Time after which a target has ended what a lost session sent. Nothing in the protocol bounds it: a target ends the tasks of a
/// session when it notices that its connection is gone (RFC 7143 section 7.1.5), for which targets wait some seconds. It matters only
/// where the session is never made again; making it again ends its tasks.
const QUIET: Duration = Duration::from_secs(60);
/// How often a session for I/O is asked whether its unit is ready: what happened before it was made is told first.
const ATTENTIONS_MAX: u32 = 8;

/// iSCSI.
pub struct Iscsi;

/// What an association has of iSCSI's own.
pub struct Details {
    pub(crate) depth: u16,
}

impl Protocol for Iscsi {
    type Wire = Nexus;
    type Options = Options;
    type Host = Identity;
    type Identity = crate::profile::Identity;
    type Details = Details;
    type Admin = Keeper;
    type WayOut = ();
    type Tag = Itt;
    type ConnectError = ConnectError;

    const SCHEME: &'static str = SCHEME;

    fn name(options: &Options) -> String {
        let Options {
            host,
            port,
            target,
            lun,
            ..
        } = options;
        let place = authority(host, *port);
        format!("{SCHEME}://{place}/{target}/{lun}")
    }

    fn replaces(_: &Self::Options) -> bool {
        true
    }

    fn common(options: &Options) -> &CommonOptions {
        &options.common
    }

    async fn establish(
        reactor: &Reactor,
        remote: &Unit,
        next: Next,
    ) -> Result<Established<Iscsi>, ConnectError> {
        let kept = keep(reactor, remote, next.generation).await?;
        let common = &remote.options.common;
        Ok(Established {
            association: Arc::new(Association {
                generation: next.generation,
                address: kept.address,
                profile: kept.profile,
                queues: QUEUES_MAX,
                details: Details {
                    depth: common.depth,
                },
            }),
            admin: kept.keeper,
            keep_alive: common.keep_alive,
            traffic_based: false,
            quiet: QUIET,
        })
    }

    async fn end_of(keeper: &Keeper) -> String {
        keeper.asking.caller.calls.end().await.to_string()
    }

    async fn keep_alive(established: &Established<Iscsi>) -> Result<(), String> {
        let ping = established.admin.asking.ping(established.keep_alive).await;
        ping.map_err(|failure| failure.to_string())
    }

    /// Asks the unit whether it is ready, now and then: what changed is told to whoever asks anything.
    async fn events(
        established: &Established<Iscsi>,
        remote: &Unit,
        changed: &dyn Fn(Option<Profile>),
    ) {
        let asking = &established.admin.asking;
        loop {
            asking
                .caller
                .reactor
                .sleep(established.keep_alive / 2)
                .await;
            match asking.test_unit_ready().await {
                Ok(()) if !asking.is_outdated() => continue,
                Ok(()) | Err(CommandFailure::Status { .. }) => {}
                // The end of the connection is noticed elsewhere.
                Err(_) => return,
            }
            match Iscsi::look(established, remote).await {
                Ok(profile) => changed(profile),
                Err(error) => tracing::warn!(%error, "cannot see what changed of the unit"),
            }
        }
    }

    async fn look(
        established: &Established<Iscsi>,
        remote: &Unit,
    ) -> Result<Option<Profile>, ConnectError> {
        let profile = established.admin.asking.profile().await;
        let profile = profile.map_err(ConnectError::from).and_then(|profile| {
            recognise(remote, &profile)?;
            Ok(profile)
        });
        match profile {
            Ok(profile) => Ok(Some(profile)),
            Err(ConnectError::Unit(error)) => {
                tracing::warn!(%error, "the unit is gone");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn end(keeper: &Keeper, orderly: bool) -> Ended<()> {
        if orderly {
            let result = log_out(&keeper.asking.caller, END_TIMEOUT).await;
            tracing::debug!(?result, "logged out");
            return Ended::Unheard;
        }
        match keeper.asking.ping(END_TIMEOUT).await {
            Ok(()) => Ended::Alive,
            Err(_) => Ended::Unheard,
        }
    }

    async fn outlive(_: &Established<Iscsi>, (): ()) -> bool {
        unreachable!("no iSCSI target says that it has not ended")
    }

    fn close(keeper: &Keeper) {
        keeper.asking.caller.connection.close();
    }

    async fn answers(keeper: &Keeper, timeout: Duration) -> bool {
        keeper.asking.ping(timeout).await.is_ok()
    }

    fn wire(reactor: &Reactor, remote: &Unit, association: &Association<Iscsi>, qid: u16) -> Nexus {
        let Remote { options, host, .. } = remote;
        let session = SessionType::Normal(options.target.clone());
        let depth = association.details.depth;
        Nexus::new(settings(reactor, options, host, qid, session, depth))
    }

    async fn greet(
        caller: &Caller<Nexus>,
        remote: &Unit,
        _: &Association<Iscsi>,
        _: u16,
    ) -> Result<(), LinkFailure> {
        let refused = |failure: LoginFailure| LinkFailure {
            reason: failure.to_string(),
            again: failure.may_pass(),
        };
        logged_in(caller).await.map_err(refused)?;
        let fail = |reason: String| LinkFailure {
            reason,
            again: false,
        };
        let Remote { options, host, .. } = remote;
        check_group(caller, options, host).map_err(|error| fail(error.to_string()))?;
        let asking = Asking::new(caller.clone(), options.lun);
        for _ in 0..ATTENTIONS_MAX {
            match asking.test_unit_ready().await {
                Ok(()) => break,
                // Whatever it is, commands will tell.
                Err(CommandFailure::Status { .. }) => {}
                Err(failure) => return Err(fail(failure.to_string())),
            }
        }
        Ok(())
    }

    async fn farewell(caller: &Caller<Nexus>, _: &Association<Iscsi>) {
        let result = log_out(caller, LOGOUT_TIMEOUT).await;
        tracing::debug!(?result, "logged out");
    }

    fn needs(_: Method) -> usize {
        1
    }

    fn issue(nexus: &mut Nexus, remote: &Unit, command: &Command<'_>, user: u64) -> Itt {
        let lun = u64::from_be_bytes(Lun::Unit(remote.options.lun).encode());
        let (cdb, payload) = command::make(command);
        nexus.submit_task(lun, cdb, payload, user)
    }

    fn abort_here(caller: &Caller<Nexus>, itt: Itt) -> bool {
        let caller = caller.clone();
        let reactor = caller.reactor.clone();
        reactor
            .spawn(async move {
                let submit = |nexus: &mut Nexus, user| nexus.submit_abort(itt, user);
                let result = caller.ask_at_once(0, submit).await;
                tracing::debug!(%itt, result = ?result.map(|(answer, _)| answer), "aborted");
            })
            .detach();
        true
    }

    /// Does nothing: a task is aborted on its own session, or ends with it.
    async fn abort(_: Rc<Established<Iscsi>>, _: u16, _: Itt) {}

    fn judge(_: Option<&Association<Iscsi>>, answer: &Answer, bytes: u64) -> Judged {
        let quiet = Judged::new(Verdict::Done);
        let (status, sense) = match answer {
            Answer::Scsi { status, sense, .. } => (Status::from_value(*status), sense.as_ref()),
            Answer::Aborted => {
                return Judged {
                    verdict: Verdict::Aborted,
                    may_have_been_done: true,
                    ..quiet
                };
            }
            _ => {
                return Judged {
                    verdict: Verdict::Retry(VolumeError::Medium),
                    may_have_been_done: true,
                    ..quiet
                };
            }
        };
        match outcome::judge(status, sense, bytes) {
            outcome::Verdict::Done => quiet,
            outcome::Verdict::Failed(error) => Judged {
                verdict: Verdict::Failed(error),
                ..quiet
            },
            outcome::Verdict::Retry(error) => Judged {
                verdict: Verdict::Retry(error),
                may_have_been_done: !error.had_no_effect(),
                ..quiet
            },
            outcome::Verdict::Attention => Judged {
                verdict: Verdict::Retry(VolumeError::Busy),
                attention: true,
                ..quiet
            },
            outcome::Verdict::Deferred => Judged {
                verdict: Verdict::Retry(VolumeError::Busy),
                write_lost: true,
                ..quiet
            },
        }
    }
}
