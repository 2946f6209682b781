//! From an address to an association: connect, enable, identify (NVMe Base 2.0c sections 3.1.2, 3.5 and 3.6).

use std::cell::Cell;
use std::net::SocketAddr;
use std::time::Duration;

use weir_nvme::Nqn;
use weir_nvme::command::{AUTHENTICATION_REQUIRED, ConnectData, Identify};
use weir_nvme::feature::{AsynchronousEventConfiguration, FeatureId, NumberOfQueues};
use weir_nvme::identify::{
    Cns, CommandSetController, ControllerAttributes, ControllerType, IdentifyController,
    IdentifyNamespace, NamespaceDescriptors, OptionalFabricsCommands,
};
use weir_nvme::property::{
    Capabilities, Configuration, ControllerStatus, Property, ShutdownNotification, ShutdownStatus,
};
use weir_reactor::Reactor;

use weir_initiator::{CONNECT_TIMEOUT, Ended, Next, Remote, connect, within};

use crate::admin::{ADMIN_DEPTH, Caller, CommandFailure, QueueConnect};
use crate::options::{HostIdentity, Options};
use crate::profile::{Identified, Identity, NLB_MAX, NamespaceError, Profile};
use crate::queue_pair::{QueuePair, Settings};

/// I/O queues that are asked for beyond those that are meant to be used, for users that open a queue more, or open the next one
/// before the last one is gone. They cost nothing while they are not connected.
const QUEUES_SPARE: u16 = 32;
/// How often CSTS is looked at while a change of CC takes effect.
const STATUS_POLL: Duration = Duration::from_millis(20);
/// For how long a controller may take to become ready that says nothing of it.
const READY_TIMEOUT_MIN: Duration = Duration::from_secs(5);
/// How often a controller that ends slowly is asked for its status, at least.
const END_POLL_MAX: Duration = Duration::from_secs(1);
/// For how long a reset or shutdown may take before it is not waited for.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// What is added to the time after which an old controller has surely ended: for the host's and the controller's clocks to
/// differ, for what is still in the network, and for a command that is being executed to end.
const QUIET_MARGIN: Duration = Duration::from_secs(1);

/// Why an association, or a discovery, was not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The host's name has no address.
    #[error("{host} cannot be resolved: {error}")]
    Resolve {
        /// The name.
        host: String,
        /// What the system says.
        error: String,
    },
    /// Nothing answers there.
    #[error("cannot connect: {0}; is the target running and listening there?")]
    Connect(String),
    /// The host was refused.
    #[error(
        "the target does not let host {host} into {subsystem}: {failure}; allow the host on the target"
    )]
    HostRefused {
        /// The host's NQN.
        host: Nqn,
        /// The subsystem's NQN.
        subsystem: Nqn,
        /// What it answered.
        failure: CommandFailure,
    },
    /// The subsystem is not there, or another parameter of Connect is refused.
    #[error(
        "the target refuses {subsystem}: {failure}; is the name right? discovery lists what there is"
    )]
    SubsystemRefused {
        /// The subsystem's NQN.
        subsystem: Nqn,
        /// What it answered.
        failure: CommandFailure,
    },
    /// Another command failed.
    #[error(transparent)]
    Command(#[from] CommandFailure),
    /// In-band authentication is asked for.
    #[error("the target asks for in-band authentication, which this initiator does not have")]
    AuthenticationRequired,
    /// The controller does not become ready.
    #[error("the controller did not become ready in {} ms", .0.as_millis())]
    NotReady(Duration),
    /// The controller reports a fatal status.
    #[error("the controller reports a fatal status (CSTS.CFS)")]
    Fatal,
    /// It is not a controller that serves blocks.
    #[error("{subsystem} has a {kind} there, not an I/O controller")]
    NotIo {
        /// The subsystem's NQN.
        subsystem: Nqn,
        /// What it has.
        kind: String,
    },
    /// An answer makes no sense.
    #[error("the controller's {0} makes no sense")]
    Nonsense(&'static str),
    /// The namespace cannot be a volume.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The controller has fewer I/O queues than are in use.
    #[error("the controller grants {granted} I/O queues, and {used} are in use")]
    Queues {
        /// How many it grants.
        granted: u16,
        /// How many it takes.
        used: u16,
    },
}

/// An admin queue. Its connection is closed when this is dropped.
pub struct Admin {
    pub(crate) caller: Caller,
    pub(crate) address: SocketAddr,
    pub(crate) controller_id: u16,
    pub(crate) capabilities: Capabilities,
    /// Identify Controller; none before it was asked.
    pub(crate) controller: Option<Box<IdentifyController>>,
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.caller.0.connection.close();
    }
}

/// By which word a controller is told to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WayOut {
    Reset,
    Shutdown,
}

impl WayOut {
    /// Whether the controller says that it has.
    fn is_done(self, status: ControllerStatus) -> bool {
        match self {
            WayOut::Reset => !status.ready(),
            WayOut::Shutdown => status.shutdown() == ShutdownStatus::Complete,
        }
    }
}

/// The addresses of `host`.
///
/// # Errors
/// [`ConnectError::Resolve`].
pub(crate) async fn resolve(
    reactor: &Reactor,
    host: &str,
    port: u16,
) -> Result<Vec<SocketAddr>, ConnectError> {
    let found = weir_initiator::resolve(reactor, host, port).await;
    found.map_err(|error| ConnectError::Resolve {
        host: host.to_owned(),
        error,
    })
}

impl Admin {
    /// Connects an admin queue and enables its controller.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub(crate) async fn open(
        reactor: &Reactor,
        options: &Options,
        identity: &HostIdentity,
        keep_alive: Duration,
    ) -> Result<Admin, ConnectError> {
        let addresses = resolve(reactor, &options.host, options.port).await?;
        let stream = connect(
            reactor,
            &addresses,
            &options.common.socket_options(),
            CONNECT_TIMEOUT,
        )
        .await
        .map_err(|error| ConnectError::Connect(error.to_string()))?;
        let address = stream.peer_address();
        let pair = QueuePair::new(Settings::admin(options, ADMIN_DEPTH));
        let mut admin = Admin {
            caller: Caller(weir_initiator::Caller::start(reactor, stream, pair)),
            address,
            controller_id: 0,
            capabilities: Capabilities(0),
            controller: None,
        };
        let queue = QueueConnect {
            qid: 0,
            depth: ADMIN_DEPTH - 1,
            keep_alive,
            controller_id: ConnectData::ANY_CONTROLLER,
            subsystem: &options.subsystem,
            host: identity,
        };
        let response = admin.caller.connect(&queue).await;
        let response = response.map_err(|failure| refusal(options, identity, failure))?;
        if response.authentication & AUTHENTICATION_REQUIRED != 0 {
            return Err(ConnectError::AuthenticationRequired);
        }
        admin.controller_id = response.controller_id;
        admin.capabilities = admin.enable().await?;
        Ok(admin)
    }

    /// Sets CC.EN and waits for CSTS.RDY, for as long as CAP.TO says.
    async fn enable(&self) -> Result<Capabilities, ConnectError> {
        let capabilities = Capabilities(self.caller.property(Property::Capabilities).await?);
        let sets = capabilities.command_sets();
        let command_set = match sets & Capabilities::COMMAND_SETS_NVM != 0 {
            true => Configuration::COMMAND_SET_NVM,
            false if sets & Capabilities::COMMAND_SETS_SELECTABLE != 0 => {
                Configuration::COMMAND_SET_ALL
            }
            false => Configuration::COMMAND_SET_NVM,
        };
        let configuration = Configuration(0)
            .with_command_set(command_set)
            .with_memory_page_size(capabilities.memory_page_size_minimum())
            .with_entry_sizes(
                Configuration::SUBMISSION_ENTRY_SIZE,
                Configuration::COMPLETION_ENTRY_SIZE,
            )
            .with_enabled(true);
        self.caller
            .set_property(Property::Configuration, configuration.0.into())
            .await?;
        let stated = Duration::from_millis(500) * u32::from(capabilities.timeout_500ms());
        let timeout = stated.max(READY_TIMEOUT_MIN);
        match self.await_status(timeout, ControllerStatus::ready).await? {
            Some(_) => Ok(capabilities),
            None => Err(ConnectError::NotReady(timeout)),
        }
    }

    /// Reads CSTS until it is as wanted; none when that takes too long.
    async fn await_status(
        &self,
        timeout: Duration,
        wanted: impl Fn(ControllerStatus) -> bool,
    ) -> Result<Option<ControllerStatus>, ConnectError> {
        let deadline = self.caller.0.reactor.now() + timeout;
        loop {
            let status = self.caller.property(Property::Status).await?;
            let status = ControllerStatus(status as u32);
            if wanted(status) {
                return Ok(Some(status));
            }
            if status.fatal() {
                return Err(ConnectError::Fatal);
            }
            if self.caller.0.reactor.now() >= deadline {
                return Ok(None);
            }
            self.caller.0.reactor.sleep(STATUS_POLL).await;
        }
    }

    /// Resets the controller. Once it says that it has, it has deleted its I/O queues, and no command of theirs can be executed
    /// any more (NVMe Base 2.0c section 3.7.2).
    pub(crate) async fn reset(&self) -> Ended<WayOut> {
        let disabled = Configuration(0).with_entry_sizes(
            Configuration::SUBMISSION_ENTRY_SIZE,
            Configuration::COMPLETION_ENTRY_SIZE,
        );
        self.end(disabled, WayOut::Reset).await
    }

    /// Shuts the controller down as an orderly host does (NVMe Base 2.0c section 3.6.2).
    pub(crate) async fn shut_down(&self) -> Ended<WayOut> {
        let normal = Configuration(0)
            .with_entry_sizes(
                Configuration::SUBMISSION_ENTRY_SIZE,
                Configuration::COMPLETION_ENTRY_SIZE,
            )
            .with_enabled(true)
            .with_shutdown(ShutdownNotification::Normal);
        self.end(normal, WayOut::Shutdown).await
    }

    async fn end(&self, configuration: Configuration, way: WayOut) -> Ended<WayOut> {
        let heard = Cell::new(false);
        let work = async {
            let set = self
                .caller
                .set_property(Property::Configuration, configuration.0.into());
            set.await.ok()?;
            let done = |status| {
                heard.set(true);
                way.is_done(status)
            };
            self.await_status(END_TIMEOUT, done).await.ok()?
        };
        let ended = within(&self.caller.0.reactor, END_TIMEOUT, work).await;
        match ended.flatten() {
            Some(_) => Ended::Surely,
            None if heard.get() => Ended::NotYet(way),
            None => Ended::Unheard,
        }
    }

    /// Tells whether the controller still answers, within `timeout`.
    pub(crate) async fn answers(&self, timeout: Duration) -> bool {
        let status = self.caller.property(Property::Status);
        let answer = within(&self.caller.0.reactor, timeout, status).await;
        matches!(answer, Some(Ok(_)))
    }

    /// Goes on asking a controller that has not ended for as long as it answers, and keeps it alive meanwhile. True when it says
    /// that it has ended.
    pub(crate) async fn outlive(&self, way: WayOut, keep_alive: Duration) -> bool {
        let reactor = &self.caller.0.reactor;
        let pause = (keep_alive / 4).clamp(STATUS_POLL, END_POLL_MAX);
        loop {
            reactor.sleep(pause).await;
            let status = self.caller.property(Property::Status);
            let Some(Ok(status)) = within(reactor, keep_alive, status).await else {
                return false;
            };
            let status = ControllerStatus(status as u32);
            if way.is_done(status) || status.fatal() {
                return way.is_done(status);
            }
            // Whatever it says of it, it is there; where it is not, the next question tells.
            let _ = self.caller.keep_alive(keep_alive).await;
        }
    }

    /// Identify Controller.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub(crate) async fn identify_controller(&self) -> Result<IdentifyController, ConnectError> {
        let data = self
            .caller
            .identify(Identify::new(Cns::Controller, 0))
            .await?;
        IdentifyController::parse(&data).map_err(|_| ConnectError::Nonsense("Identify Controller"))
    }

    /// The namespace as it is now.
    ///
    /// # Errors
    /// [`ConnectError::Namespace`] when it is gone or cannot be a volume, and others.
    pub(crate) async fn profile(&self, nsid: u32) -> Result<Profile, ConnectError> {
        let Some(controller) = &self.controller else {
            unreachable!("the controller is identified before its namespaces");
        };
        let namespace = match self
            .caller
            .identify(Identify::new(Cns::Namespace, nsid))
            .await
        {
            Ok(data) => data,
            Err(CommandFailure::Status { status, .. })
                if status.is(weir_nvme::Status::INVALID_NAMESPACE_OR_FORMAT)
                    || status.is(weir_nvme::Status::INVALID_FIELD_IN_COMMAND) =>
            {
                return Err(NamespaceError::Absent { nsid }.into());
            }
            Err(failure) => return Err(failure.into()),
        };
        let namespace = IdentifyNamespace::parse(&namespace)
            .map_err(|_| ConnectError::Nonsense("Identify Namespace"))?;
        let command_set = match self
            .caller
            .identify(Identify::new(Cns::CommandSetController, 0))
            .await
        {
            Ok(data) => CommandSetController::parse(&data).ok(),
            // A controller before NVMe 2.0 does not have it.
            Err(CommandFailure::Status { .. }) => None,
            Err(failure) => return Err(failure.into()),
        };
        let descriptors = match self
            .caller
            .identify(Identify::new(Cns::NamespaceDescriptors, nsid))
            .await
        {
            Ok(data) => descriptors(&data),
            // It went since the first Identify. Without its identifiers it would be taken for another one for ever after.
            Err(CommandFailure::Status { status, .. })
                if status.is(weir_nvme::Status::INVALID_NAMESPACE_OR_FORMAT) =>
            {
                return Err(NamespaceError::Absent { nsid }.into());
            }
            // Mandatory only since NVMe 1.3.
            Err(CommandFailure::Status { .. }) => NamespaceDescriptors::default(),
            Err(failure) => return Err(failure.into()),
        };
        let identified = Identified {
            nsid,
            capabilities: self.capabilities,
            controller,
            command_set: command_set.as_ref(),
            namespace: &namespace,
            descriptors,
        };
        Ok(identified.profile()?)
    }
}

fn descriptors(data: &[u8]) -> NamespaceDescriptors {
    let list = data.try_into().expect("Identify data is 4096 bytes");
    NamespaceDescriptors::decode(list).unwrap_or_else(|error| {
        tracing::warn!(%error, "the namespace's identifiers are not understood");
        NamespaceDescriptors::default()
    })
}

fn refusal(options: &Options, identity: &HostIdentity, failure: CommandFailure) -> ConnectError {
    let subsystem = options.subsystem.clone();
    match failure.status() {
        Some(status) if status.is(weir_nvme::Status::CONNECT_INVALID_HOST) => {
            ConnectError::HostRefused {
                host: identity.nqn.clone(),
                subsystem,
                failure,
            }
        }
        Some(_) => ConnectError::SubsystemRefused { subsystem, failure },
        None => failure.into(),
    }
}

/// A namespace as it is reached.
pub(crate) type Namespace = Remote<Options, HostIdentity, Identity>;

/// What an association has of NVMe's own.
#[derive(Debug, Clone)]
pub struct Details {
    /// CNTLID.
    pub(crate) controller_id: u16,
    /// The longest data that may go with an I/O command in its capsule (IOCCSZ).
    pub(crate) in_capsule_bytes: u32,
    /// Outstanding commands per I/O queue.
    pub(crate) depth: u16,
    /// Whether Disconnect deletes an I/O queue (OFCS).
    pub(crate) disconnect: bool,
    /// CRDT1 to CRDT3.
    pub(crate) retry_delays: [Duration; 3],
}

/// An admin queue, and what was learnt over it.
pub(crate) struct Enabled {
    pub(crate) admin: Admin,
    pub(crate) profile: Profile,
    /// I/O queues that the controller has for this host.
    pub(crate) queues: u16,
    pub(crate) details: Details,
    /// Keep Alive Timeout as the controller has it.
    pub(crate) keep_alive: Duration,
    /// Whether I/O keeps the association alive too (TBKAS).
    pub(crate) traffic_based: bool,
    /// So long after the last connection was closed, the controller has surely ended the association by itself.
    pub(crate) quiet: Duration,
}

/// Connects an admin queue, and asks what there is to know.
///
/// # Errors
/// [`ConnectError`].
pub(crate) async fn enable(
    reactor: &Reactor,
    remote: &Namespace,
    next: Next,
) -> Result<Enabled, ConnectError> {
    let Remote {
        options,
        host: identity,
        ..
    } = remote;
    let mut admin = Admin::open(reactor, options, identity, options.common.keep_alive).await?;
    let controller = Box::new(admin.identify_controller().await?);
    check_controller(options, &controller)?;
    let asked = remote.queues_wanted.saturating_add(QUEUES_SPARE);
    let queues = grant_queues(&admin.caller, asked).await?;
    let used = next.queues_used;
    if queues < used {
        return Err(ConnectError::Queues {
            granted: queues,
            used,
        });
    }
    configure_events(&admin.caller, &controller).await?;
    let keep_alive = keep_alive(&admin.caller, options.common.keep_alive, &controller).await?;
    let traffic_based = controller
        .attributes
        .contains(ControllerAttributes::TRAFFIC_BASED_KEEP_ALIVE);
    let details = Details {
        controller_id: admin.controller_id,
        in_capsule_bytes: in_capsule_bytes(&controller),
        depth: u32::from(options.common.depth)
            .min(admin.capabilities.maximum_queue_entries() - 1)
            .max(1) as u16,
        disconnect: controller
            .optional_fabrics_commands
            .contains(OptionalFabricsCommands::DISCONNECT),
        retry_delays: [
            controller.command_retry_delay_1,
            controller.command_retry_delay_2,
            controller.command_retry_delay_3,
        ]
        .map(|delay| Duration::from_millis(100) * u32::from(delay)),
    };
    admin.controller = Some(controller);
    let profile = admin.profile(options.nsid).await?;
    recognise(remote, &profile)?;
    Ok(Enabled {
        admin,
        profile,
        queues,
        details,
        keep_alive,
        traffic_based,
        quiet: quiet_time(keep_alive, traffic_based),
    })
}

/// Refuses a namespace that is another one than the first that was seen.
pub(crate) fn recognise(remote: &Namespace, profile: &Profile) -> Result<(), NamespaceError> {
    match remote.recognise(profile) {
        true => Ok(()),
        false => Err(NamespaceError::Other {
            nsid: remote.options.nsid,
        }),
    }
}

/// So long after the host closed its last connection, the controller's keep-alive timer has expired, and it has ended the
/// association with every command of it. With traffic-based keep-alive a timer that saw traffic runs once more.
fn quiet_time(keep_alive: Duration, traffic_based: bool) -> Duration {
    keep_alive * (1 + u32::from(traffic_based)) + QUIET_MARGIN
}

fn check_controller(
    options: &Options,
    controller: &IdentifyController,
) -> Result<(), ConnectError> {
    // Controllers before NVMe 1.4 do not report their type.
    let kind = controller.controller_type;
    if !matches!(kind, ControllerType::Io | ControllerType::NotReported) {
        return Err(ConnectError::NotIo {
            subsystem: options.subsystem.clone(),
            kind: kind.to_string(),
        });
    }
    Ok(())
}

/// In-capsule data of I/O commands; none where it would not start right after the command.
fn in_capsule_bytes(controller: &IdentifyController) -> u32 {
    /// No capsule is longer than the longest transfer.
    const MAX: u64 = (NLB_MAX as u64) << 12;
    match controller.in_capsule_data_offset {
        0 => controller.in_capsule_data_bytes().min(MAX) as u32,
        _ => 0,
    }
}

async fn grant_queues(caller: &Caller, wanted: u16) -> Result<u16, ConnectError> {
    let request = NumberOfQueues {
        submission: wanted.into(),
        completion: wanted.into(),
    };
    let granted = caller
        .set_feature(FeatureId::NumberOfQueues, request.to_dword())
        .await?;
    let granted = NumberOfQueues::from_dword(granted);
    let queues = granted.submission.min(granted.completion);
    Ok(queues.min(wanted.into()) as u16)
}

/// Asks for notices of what concerns the volume, as far as the controller has them.
async fn configure_events(
    caller: &Caller,
    controller: &IdentifyController,
) -> Result<(), ConnectError> {
    let wanted = AsynchronousEventConfiguration::NAMESPACE_ATTRIBUTE
        .with(AsynchronousEventConfiguration::ANA_CHANGE);
    let offered = wanted.0 & controller.asynchronous_events.0;
    match caller
        .set_feature(FeatureId::AsynchronousEventConfiguration, offered)
        .await
    {
        Ok(_) => Ok(()),
        Err(failure @ CommandFailure::Status { .. }) => {
            tracing::warn!(%failure, "no events: a resize is seen at the next connect");
            Ok(())
        }
        Err(failure) => Err(failure.into()),
    }
}

/// The Keep Alive Timeout that the controller has: it may round up what Connect asked for.
async fn keep_alive(
    caller: &Caller,
    asked: Duration,
    controller: &IdentifyController,
) -> Result<Duration, ConnectError> {
    let unit = Duration::from_millis(100) * u32::from(controller.keep_alive_granularity.max(1));
    let units = asked.as_millis().div_ceil(unit.as_millis());
    let rounded = unit * u32::try_from(units).unwrap_or(u32::MAX);
    match caller.feature(FeatureId::KeepAliveTimer).await {
        Ok(milliseconds) => Ok(rounded.max(Duration::from_millis(milliseconds.into()))),
        Err(CommandFailure::Status { .. }) => Ok(rounded),
        Err(failure) => Err(failure.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use weir_nvme::Nqn;
    use weir_reactor::linux::{LinuxConfig, LinuxSystem};
    use weir_reactor::{LocalFuture, ReactorConfig, SocketOptions, SocketReport, System};

    use weir_initiator::options::CommonOptions;

    use super::*;

    /// What the kernel says of a connection that was made with `options`, and of one made with none.
    fn reports(options: Options) -> Result<(SocketReport, SocketReport), String> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let system: Arc<dyn System> =
            LinuxSystem::new(LinuxConfig::default()).expect("the kernel has io_uring");
        let main = Box::new(|_: Reactor| -> LocalFuture<()> { Box::pin(std::future::pending()) });
        let thread = system.start_reactor(ReactorConfig::default(), main);
        let thread = thread.expect("a reactor starts");
        let asked = thread.remote.call_blocking(move |reactor| async move {
            let mut both = Vec::new();
            for options in [options.common.socket_options(), SocketOptions::default()] {
                let timeout = Duration::from_secs(300);
                let addresses = [address];
                let connected = connect(&reactor, &addresses, &options, timeout).await;
                let stream = connected.map_err(|error| error.to_string())?;
                both.push(stream.report().map_err(|error| error.to_string())?);
            }
            Ok((both.remove(0), both.remove(0)))
        });
        thread.remote.stop();
        thread.join();
        asked.expect("the reactor runs")
    }

    fn options() -> Options {
        Options::new(
            "h",
            4420,
            Nqn::new("nqn.2024-01.com.example:disk").expect("an NQN"),
        )
    }

    #[test]
    fn connections_have_the_options_that_were_asked_for() {
        let asked = Options {
            common: CommonOptions {
                send_buffer: Some(96 << 10),
                receive_buffer: Some(128 << 10),
                congestion_control: Some("reno".to_owned()),
                dscp: Some(46),
                ..options().common
            },
            ..options()
        };
        let (report, plain) = reports(asked).expect("every kernel has reno");
        // Linux reports twice what was set.
        assert_eq!(
            (report.send_buffer, report.receive_buffer),
            (192 << 10, 256 << 10)
        );
        assert_eq!(
            (report.congestion_control.as_str(), report.dscp),
            ("reno", 46)
        );
        assert_eq!(plain.dscp, 0);
        assert_ne!(plain.receive_buffer, report.receive_buffer);
        let (unasked, plain) = reports(options()).expect("nothing is asked for");
        assert_eq!(
            (unasked.send_buffer, unasked.receive_buffer, unasked.dscp),
            (plain.send_buffer, plain.receive_buffer, plain.dscp)
        );
        assert_eq!(unasked.congestion_control, plain.congestion_control);
    }

    #[test]
    fn what_the_kernel_does_not_have_is_named_with_what_it_has() {
        let error = reports(Options {
            common: CommonOptions {
                congestion_control: Some("nonesuch".to_owned()),
                ..options().common
            },
            ..options()
        })
        .expect_err("there is no such algorithm");
        assert!(
            error.contains("\"nonesuch\"") && error.contains("reno"),
            "{error}"
        );
    }
}
