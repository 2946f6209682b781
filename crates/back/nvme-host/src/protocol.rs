//! NVMe/TCP as a protocol of initiators: an admin queue by which an association is kept, and I/O queues.
//!
//! What was sent to a lost controller is over when
//!
//! * the controller said so: it was reset over its admin queue (CC.EN cleared) and reported CSTS.RDY clear, so that it
//!   has deleted its I/O queues. One that answers and stays ready still executes commands; or
//! * it must have ended by itself: since this host closed its last connection to it, the Keep Alive Timeout has passed
//!   (twice, where I/O counts as keep-alive, since a timer that saw traffic runs once more), and a margin.
//!
//! The second relies on the controller keeping time. What this host had handed to its sockets and did not reach the controller
//! yet is dropped with them: they are closed by a reset. So nothing reaches it later than what was in the network already,
//! for which the margin stands.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use weir_initiator::options::{CommonOptions, authority};
use weir_initiator::plan::Method;
use weir_initiator::{Ended, Judged, LinkFailure, Next, Protocol, Verdict};
use weir_nvme::Status;
use weir_nvme::command::GetLogPage;
use weir_nvme::event::{AsynchronousEvent, EventType};
use weir_nvme::log::LogId;
use weir_reactor::Reactor;

use crate::admin::{Caller, CommandFailure, QueueConnect};
use crate::association::{Admin, ConnectError, Details, Namespace, WayOut, enable, recognise};
use crate::command::{Made, NamespaceCommand};
use crate::options::{HostIdentity, Options, SCHEME};
use crate::outcome::{judge, may_have_been_done};
use crate::profile::{Identity, Profile};
use crate::queue_pair::{Answer, QueuePair, Settings};

/// For how long a queue that is given up waits for its Disconnect.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// NVMe over TCP.
pub struct NvmeTcp;

type Association = weir_initiator::Association<NvmeTcp>;
type Established = weir_initiator::Established<NvmeTcp>;

/// CIDs of a command in flight: two of a fused pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cids(u16, Option<u16>);

impl Protocol for NvmeTcp {
    type Wire = QueuePair;
    type Options = Options;
    type Host = HostIdentity;
    type Identity = Identity;
    type Details = Details;
    type Admin = Admin;
    type WayOut = WayOut;
    type Tag = Cids;
    type ConnectError = ConnectError;

    const SCHEME: &'static str = SCHEME;

    fn name(options: &Options) -> String {
        let Options {
            host,
            port,
            subsystem,
            nsid,
            ..
        } = options;
        let place = authority(host, *port);
        format!("{SCHEME}://{place}/{subsystem}?nsid={nsid}")
    }

    fn replaces(_: &Self::Options) -> bool {
        false
    }

    fn common(options: &Options) -> &CommonOptions {
        &options.common
    }

    async fn establish(
        reactor: &Reactor,
        remote: &Namespace,
        next: Next,
    ) -> Result<Established, ConnectError> {
        let enabled = enable(reactor, remote, next).await?;
        Ok(Established {
            association: Arc::new(Association {
                generation: next.generation,
                address: enabled.admin.address,
                profile: enabled.profile,
                queues: enabled.queues,
                details: enabled.details,
            }),
            admin: enabled.admin,
            keep_alive: enabled.keep_alive,
            traffic_based: enabled.traffic_based,
            quiet: enabled.quiet,
        })
    }

    async fn end_of(admin: &Admin) -> String {
        format!("admin queue: {}", admin.caller.0.calls.end().await)
    }

    async fn keep_alive(established: &Established) -> Result<(), String> {
        let caller = &established.admin.caller;
        let answer = caller.keep_alive(established.keep_alive).await;
        match answer {
            Ok(_) => Ok(()),
            Err(failure) => Err(failure.to_string()),
        }
    }

    /// Keeps one Asynchronous Event Request at the controller, and sees after what it tells.
    async fn events(
        established: &Established,
        remote: &Namespace,
        changed: &dyn Fn(Option<Profile>),
    ) {
        loop {
            let event = match established.admin.caller.event().await {
                Ok(event) => event,
                Err(CommandFailure::Status { status, .. }) => {
                    tracing::debug!(%status, "no more events");
                    return;
                }
                // The end of the connection is noticed elsewhere.
                Err(_) => return,
            };
            if let Err(failure) = see_after(established, remote, event, changed).await {
                tracing::warn!(%failure, event = %event.event, "an event could not be seen after");
            }
        }
    }

    async fn look(
        established: &Established,
        remote: &Namespace,
    ) -> Result<Option<Profile>, ConnectError> {
        let profile = established.admin.profile(remote.options.nsid).await;
        let profile = profile.and_then(|profile| {
            recognise(remote, &profile)?;
            Ok(profile)
        });
        match profile {
            Ok(profile) => Ok(Some(profile)),
            Err(ConnectError::Namespace(error)) => {
                tracing::warn!(%error, "the namespace is gone");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn end(admin: &Admin, orderly: bool) -> Ended<WayOut> {
        match orderly {
            true => admin.shut_down().await,
            false => admin.reset().await,
        }
    }

    async fn outlive(established: &Established, way: WayOut) -> bool {
        let keep_alive = established.keep_alive;
        established.admin.outlive(way, keep_alive).await
    }

    fn close(admin: &Admin) {
        admin.caller.0.connection.close();
    }

    async fn answers(admin: &Admin, timeout: Duration) -> bool {
        admin.answers(timeout).await
    }

    fn wire(_: &Reactor, remote: &Namespace, association: &Association, _: u16) -> QueuePair {
        let Details {
            depth,
            in_capsule_bytes,
            ..
        } = association.details;
        QueuePair::new(Settings::io(&remote.options, depth, in_capsule_bytes))
    }

    async fn greet(
        caller: &weir_initiator::Caller<QueuePair>,
        remote: &Namespace,
        association: &Association,
        qid: u16,
    ) -> Result<(), LinkFailure> {
        let queue = QueueConnect {
            qid,
            depth: association.details.depth,
            keep_alive: Duration::ZERO,
            controller_id: association.details.controller_id,
            subsystem: &remote.options.subsystem,
            host: &remote.host,
        };
        match Caller(caller.clone()).connect(&queue).await {
            Ok(_) => Ok(()),
            Err(failure) => Err(LinkFailure {
                // The controller may still know the last connection of that queue.
                again: failure.status().is_some(),
                reason: failure.to_string(),
            }),
        }
    }

    async fn farewell(caller: &weir_initiator::Caller<QueuePair>, association: &Association) {
        if association.details.disconnect {
            let result = Caller(caller.clone()).disconnect(DISCONNECT_TIMEOUT).await;
            tracing::debug!(?result, "disconnected");
        }
    }

    fn needs(method: Method) -> usize {
        1 + usize::from(method == Method::CompareWrite)
    }

    fn issue(
        pair: &mut QueuePair,
        remote: &Namespace,
        command: &weir_initiator::Command<'_>,
        user: u64,
    ) -> Cids {
        let nsid = remote.options.nsid;
        match (NamespaceCommand { command, nsid }).make() {
            Made::One(sqe, payload) => Cids(pair.submit(sqe, payload, user), None),
            Made::Fused(compare, write) => {
                let (first, second) =
                    pair.submit_fused((compare.0, compare.1, user), (write.0, write.1, user));
                Cids(first, Some(second))
            }
        }
    }

    fn abort_here(_: &weir_initiator::Caller<QueuePair>, _: Cids) -> bool {
        false
    }

    async fn abort(established: Rc<Established>, qid: u16, Cids(first, second): Cids) {
        for cid in std::iter::once(first).chain(second) {
            let result = established.admin.caller.abort(qid, cid).await;
            tracing::debug!(qid, cid, ?result, "aborted");
        }
    }

    fn judge(association: Option<&Association>, answer: &Answer, _: u64) -> Judged {
        let (verdict, status) = match answer {
            Answer::Cqe(cqe) => (judge(cqe.status), cqe.status),
            Answer::Damaged => (
                Verdict::Retry(weir_block::VolumeError::Medium),
                Status::TRANSIENT_TRANSPORT_ERROR,
            ),
        };
        let retries = matches!(verdict, Verdict::Retry(_));
        let pause = match (association, status.command_retry_delay()) {
            (Some(association), index @ 1..) => {
                association.details.retry_delays[usize::from(index) - 1]
            }
            _ => Duration::ZERO,
        };
        Judged {
            may_have_been_done: retries && may_have_been_done(status),
            pause,
            ..Judged::new(verdict)
        }
    }
}

/// Reads the log that an event is about, which lets the controller send the next one of its kind.
async fn see_after(
    established: &Established,
    remote: &Namespace,
    event: AsynchronousEvent,
    changed: &dyn Fn(Option<Profile>),
) -> Result<(), ConnectError> {
    let caller = &established.admin.caller;
    tracing::debug!(event = %event.event, "event");
    match event.event {
        EventType::NamespaceAttributeChanged => {
            let log = LogId::ChangedNamespaceList;
            caller.log_page(GetLogPage::new(log, 0, 4096)).await?;
            changed(NvmeTcp::look(established, remote).await?);
        }
        other => {
            let Some(log) = other.log() else {
                return Ok(());
            };
            let length = match log {
                LogId::AsymmetricNamespaceAccess => 4096,
                LogId::ErrorInformation => 64,
                _ => 512,
            };
            if matches!(log, LogId::ErrorInformation | LogId::SmartHealth) {
                tracing::warn!(event = %other, "the controller reports trouble");
            }
            caller.log_page(GetLogPage::new(log, 0, length)).await?;
        }
    }
    Ok(())
}
