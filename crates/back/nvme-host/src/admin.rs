//! Commands one at a time, as futures: for the admin queue, and for the Connect and Disconnect of an I/O queue.

use std::time::Duration;

use weir_memory::{View, Views};
use weir_nvme::command::{
    Abort, AdminCommand, Connect, ConnectAttributes, ConnectData, ConnectResponse, FabricsCommand,
    GetFeatures, GetLogPage, Identify, PropertyGet, PropertySet, PropertySize, SetFeatures,
};
use weir_nvme::event::AsynchronousEvent;
use weir_nvme::feature::FeatureId;
use weir_nvme::property::Property;
use weir_nvme::status::CommandSet;
use weir_nvme::{SglDescriptor, Sqe, Status};

use weir_initiator::wire::Payload;
use weir_initiator::{EndReason, within};

use crate::options::HostIdentity;
use crate::queue_pair::{Answer, QueuePair};

/// Outstanding commands on an admin queue: those of one task at a time, keep-alives, event requests and aborts.
pub(crate) const ADMIN_DEPTH: u16 = 32;
/// After how long an admin command is given up.
pub(crate) const ADMIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of every Identify data structure.
pub(crate) const IDENTIFY_BYTES: u32 = 4096;

/// Why a command of the admin queue, or a fabrics command, did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandFailure {
    /// The controller answered with an error.
    #[error("{command}: {}", status_text(*.status, .fabrics))]
    Status {
        /// The command's name.
        command: &'static str,
        /// What it answered.
        status: Status,
        /// Whether it is a Fabrics command.
        fabrics: bool,
        /// Completion dword 0.
        dword: u32,
    },
    /// Its data was damaged or did not come.
    #[error("{command}: the data that came is damaged or incomplete")]
    Data {
        /// The command's name.
        command: &'static str,
    },
    /// There was no answer in time.
    #[error("{command}: no answer in {} ms", .timeout.as_millis())]
    TimedOut {
        /// The command's name.
        command: &'static str,
        /// How long was waited.
        timeout: Duration,
    },
    /// The connection ended before the answer.
    #[error("{command}: the connection ended: {reason}")]
    Ended {
        /// The command's name.
        command: &'static str,
        /// Why.
        reason: String,
    },
}

fn status_text(status: Status, fabrics: &bool) -> String {
    let set = if *fabrics {
        CommandSet::Fabrics
    } else {
        CommandSet::Nvm
    };
    match status.name(set) {
        Some(name) => format!("{name} ({:#05x})", status.bits()),
        None => status.to_string(),
    }
}

impl CommandFailure {
    /// The controller's status, if it answered.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        match self {
            CommandFailure::Status { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// What a command yields: completion dwords 0 and 1, and its data.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub(crate) result: u64,
    pub(crate) data: Vec<u8>,
}

impl Reply {
    /// Completion dword 0.
    pub(crate) fn dword(&self) -> u32 {
        self.result as u32
    }
}

/// A connection that is asked one command at a time.
#[derive(Clone)]
pub(crate) struct Caller(pub(crate) weir_initiator::Caller<QueuePair>);

/// A command, its name and its data.
pub(crate) struct Ask {
    pub(crate) name: &'static str,
    pub(crate) sqe: Sqe,
    pub(crate) payload: Payload,
}

impl Ask {
    fn admin(command: AdminCommand, receive: u32) -> Ask {
        Ask {
            name: command.opcode().name().unwrap_or("admin command"),
            sqe: command.sqe(0, SglDescriptor::NONE),
            payload: match receive {
                0 => Payload::None,
                bytes => Payload::In(bytes),
            },
        }
    }

    fn fabrics(command: FabricsCommand, data: Views) -> Ask {
        Ask {
            name: command.fabrics_type().name().unwrap_or("Fabrics command"),
            sqe: command.sqe(0, SglDescriptor::NONE),
            payload: match data.is_empty() {
                true => Payload::None,
                false => Payload::Out(data),
            },
        }
    }
}

/// An I/O or admin queue to be connected (NVMe Base 2.0c section 6.3).
pub(crate) struct QueueConnect<'host> {
    pub(crate) qid: u16,
    /// Outstanding commands; the queue has one entry more.
    pub(crate) depth: u16,
    pub(crate) keep_alive: Duration,
    pub(crate) controller_id: u16,
    pub(crate) subsystem: &'host weir_nvme::Nqn,
    pub(crate) host: &'host HostIdentity,
}

impl Caller {
    /// Submits one command and waits for its answer; for ever where `timeout` is none.
    ///
    /// # Errors
    /// [`CommandFailure`].
    pub(crate) async fn call(
        &self,
        ask: Ask,
        timeout: Option<Duration>,
    ) -> Result<Reply, CommandFailure> {
        let command = ask.name;
        let fabrics = ask.sqe.is_fabrics();
        let answer = match timeout {
            None => self.submit(ask).await,
            Some(timeout) => within(&self.0.reactor, timeout, self.submit(ask))
                .await
                .ok_or(CommandFailure::TimedOut { command, timeout })?,
        };
        let (answer, data) = answer.map_err(|reason| CommandFailure::Ended {
            command,
            reason: reason.to_string(),
        })?;
        match answer {
            Answer::Damaged => Err(CommandFailure::Data { command }),
            Answer::Cqe(cqe) if !cqe.status.is_success() => Err(CommandFailure::Status {
                command,
                status: cqe.status,
                fabrics,
                dword: cqe.dw0(),
            }),
            Answer::Cqe(cqe) => Ok(Reply {
                result: cqe.result,
                data,
            }),
        }
    }

    async fn submit(&self, ask: Ask) -> Result<(Answer, Vec<u8>), EndReason> {
        let receive = match ask.payload {
            Payload::In(bytes) => bytes as usize,
            _ => 0,
        };
        let submit = |pair: &mut QueuePair, user| {
            pair.submit(ask.sqe, ask.payload, user);
        };
        self.0.ask(receive, submit).await
    }

    async fn admin(&self, command: AdminCommand, receive: u32) -> Result<Reply, CommandFailure> {
        self.call(Ask::admin(command, receive), Some(ADMIN_TIMEOUT))
            .await
    }

    /// Connects the queue that this connection is to be.
    ///
    /// # Errors
    /// [`CommandFailure`].
    pub(crate) async fn connect(
        &self,
        queue: &QueueConnect<'_>,
    ) -> Result<ConnectResponse, CommandFailure> {
        let command = Connect {
            record_format: Connect::RECORD_FORMAT,
            qid: queue.qid,
            sqsize: queue.depth,
            attributes: ConnectAttributes::DISABLE_SQ_FLOW_CONTROL,
            keep_alive_timeout_ms: queue.keep_alive.as_millis() as u32,
        };
        let data = ConnectData::new(
            queue.host.id,
            queue.controller_id,
            queue.subsystem,
            &queue.host.nqn,
        );
        let data = Views::from_iter([View::copy_of(&data.encode())]);
        let ask = Ask::fabrics(FabricsCommand::Connect(command), data);
        let reply = self.call(ask, Some(ADMIN_TIMEOUT)).await?;
        Ok(ConnectResponse::from_result(reply.dword()))
    }

    /// Reads a property.
    ///
    /// # Errors
    /// [`CommandFailure`].
    pub(crate) async fn property(&self, property: Property) -> Result<u64, CommandFailure> {
        let get = PropertyGet {
            size: property_size(property),
            offset: property.value(),
        };
        let ask = Ask::fabrics(FabricsCommand::PropertyGet(get), Views::new());
        Ok(self.call(ask, Some(ADMIN_TIMEOUT)).await?.result)
    }

    /// Sets a property.
    ///
    /// # Errors
    /// [`CommandFailure`].
    pub(crate) async fn set_property(
        &self,
        property: Property,
        value: u64,
    ) -> Result<(), CommandFailure> {
        let set = PropertySet {
            size: property_size(property),
            offset: property.value(),
            value,
        };
        let ask = Ask::fabrics(FabricsCommand::PropertySet(set), Views::new());
        self.call(ask, Some(ADMIN_TIMEOUT)).await.map(drop)
    }

    /// An Identify data structure.
    ///
    /// # Errors
    /// [`CommandFailure`].
    pub(crate) async fn identify(&self, identify: Identify) -> Result<Vec<u8>, CommandFailure> {
        let command = AdminCommand::Identify(identify);
        Ok(self.admin(command, IDENTIFY_BYTES).await?.data)
    }

    /// Part of a log page.
    ///
    /// # Errors
    /// [`CommandFailure`].
    pub(crate) async fn log_page(&self, get: GetLogPage) -> Result<Vec<u8>, CommandFailure> {
        let length = u32::try_from(get.length()).expect("logs are read in small parts");
        Ok(self
            .admin(AdminCommand::GetLogPage(get), length)
            .await?
            .data)
    }

    /// Sets a feature; completion dword 0.
    ///
    /// # Errors
    /// [`CommandFailure`].
    pub(crate) async fn set_feature(
        &self,
        feature: FeatureId,
        cdw11: u32,
    ) -> Result<u32, CommandFailure> {
        let command = AdminCommand::SetFeatures(SetFeatures::new(feature, cdw11));
        Ok(self.admin(command, 0).await?.dword())
    }

    /// A feature's current value.
    ///
    /// # Errors
    /// [`CommandFailure`].
    pub(crate) async fn feature(&self, feature: FeatureId) -> Result<u32, CommandFailure> {
        let command = AdminCommand::GetFeatures(GetFeatures::new(feature));
        Ok(self.admin(command, 0).await?.dword())
    }

    /// Keeps the association alive.
    ///
    /// # Errors
    /// [`CommandFailure`].
    pub(crate) async fn keep_alive(&self, timeout: Duration) -> Result<(), CommandFailure> {
        let ask = Ask::admin(AdminCommand::KeepAlive, 0);
        self.call(ask, Some(timeout)).await.map(drop)
    }

    /// Waits for the controller to have an event to tell.
    ///
    /// # Errors
    /// [`CommandFailure`].
    pub(crate) async fn event(&self) -> Result<AsynchronousEvent, CommandFailure> {
        let ask = Ask::admin(AdminCommand::AsynchronousEventRequest, 0);
        let reply = self.call(ask, None).await?;
        Ok(AsynchronousEvent::from_dword(reply.dword()))
    }

    /// Asks for the end of a command.
    ///
    /// # Errors
    /// [`CommandFailure`].
    pub(crate) async fn abort(&self, sqid: u16, cid: u16) -> Result<(), CommandFailure> {
        let command = AdminCommand::Abort(Abort { sqid, cid });
        self.admin(command, 0).await.map(drop)
    }

    /// Deletes the I/O queue that this connection is (NVMe Base 2.0c section 6.4).
    ///
    /// # Errors
    /// [`CommandFailure`].
    pub(crate) async fn disconnect(&self, timeout: Duration) -> Result<(), CommandFailure> {
        let command = FabricsCommand::Disconnect { record_format: 0 };
        let ask = Ask::fabrics(command, Views::new());
        self.call(ask, Some(timeout)).await.map(drop)
    }
}

fn property_size(property: Property) -> PropertySize {
    match property.size() {
        Some(8) => PropertySize::EightBytes,
        _ => PropertySize::FourBytes,
    }
}
