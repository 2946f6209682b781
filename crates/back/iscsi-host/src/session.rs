//! From an address to a session, and from sessions to an association: connect, log in, ask the unit.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use weir_initiator::options::host_and_port;
use weir_initiator::{CONNECT_TIMEOUT, Caller, CloseOnDrop, Remote, connect, resolve, within};
use weir_iscsi::login::{
    InitiatorChap, InitiatorLoginError, InitiatorSettings, LoggedIn, SessionType,
};
use weir_iscsi::negotiation::{DigestPolicy, Offer};
use weir_iscsi::pdu::{Cid, Isid, Itt, Tsih};
use weir_iscsi::{LoginStatus, Name, Serial};
use weir_reactor::Reactor;

use crate::asking::{Asking, CommandFailure, ProfileError};
use crate::nexus::{CHALLENGE_BYTES, Fault, Nexus, Settings};
use crate::options::{Options, PORT};
use crate::profile::{Profile, UnitError};
use crate::secrets::{SecretError, chap};

/// For how long a login may take.
pub(crate) const LOGIN_TIMEOUT: Duration = Duration::from_secs(15);
/// How often a target may send a login elsewhere.
const MOVES_MAX: u32 = 4;
/// MaxRecvDataSegmentLength: data is handed on as it comes, so that long PDUs cost nothing.
const RECEIVE_SEGMENT_BYTES: u32 = 1 << 20;
/// Qualifiers of ISIDs from here on are those of sessions by which associations are kept; below are those for I/O.
const KEEPERS: u16 = 0x8000;
/// Outstanding commands of a session by which an association is kept.
const KEEPER_SLOTS: u16 = 8;
/// Failure of a session to be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The target's name has no address.
    #[error("{host} cannot be resolved: {error}")]
    Resolve {
        /// The name.
        host: String,
        /// The system's error.
        error: String,
    },
    /// Nothing answers there.
    #[error("cannot connect: {0}; is the target running and listening there?")]
    Connect(String),
    /// This host may not use the target.
    #[error("{target} does not let {initiator} in: {error}; allow the initiator on the target")]
    Refused {
        /// The target.
        target: String,
        /// The initiator's name.
        initiator: Name,
        /// The refusal.
        error: InitiatorLoginError,
    },
    /// This host, or the target, did not prove who it is.
    #[error(
        "{target} and {initiator} do not agree on who they are: {error}; give user= and the secret that the target knows"
    )]
    NotAuthenticated {
        /// The target.
        target: String,
        /// The initiator's name.
        initiator: Name,
        /// The refusal.
        error: InitiatorLoginError,
    },
    /// There is no such target.
    #[error("there is no target {target} there; is the name right? discovery lists what there is")]
    NoTarget {
        /// The target.
        target: String,
    },
    /// The login failed otherwise.
    #[error("cannot log in to {target}: {error}")]
    Login {
        /// The target.
        target: String,
        /// The failure.
        error: String,
    },
    /// The target sends this host from one address to the next.
    #[error("{target} goes on sending this host elsewhere, at last to {address}")]
    Moved {
        /// The target.
        target: String,
        /// The last address.
        address: String,
    },
    /// The unit is reached by another portal group than before, where its commands in flight are not known.
    #[error("{target} answers from portal group {found}, and did from {first} before")]
    PortalGroup {
        /// The target.
        target: String,
        /// The first portal group.
        first: u16,
        /// The other one.
        found: u16,
    },
    /// The secret cannot be had.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// A command failed.
    #[error(transparent)]
    Command(#[from] CommandFailure),
    /// The unit cannot be a volume.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// An answer makes no sense.
    #[error("the target's {0} makes no sense")]
    Nonsense(&'static str),
}

impl From<ProfileError> for ConnectError {
    fn from(error: ProfileError) -> Self {
        match error {
            ProfileError::Unit(error) => error.into(),
            ProfileError::Command(failure) => failure.into(),
        }
    }
}

/// This host as one volume says to the target who it is.
pub struct Identity {
    pub(crate) name: Name,
    pub(crate) chap: Option<InitiatorChap>,
    /// The random part of its ISIDs.
    pub(crate) naming: [u8; 3],
    /// The portal group of the first session.
    pub(crate) portal_group: OnceLock<u16>,
}

/// The session by which an association is kept. It ends when this is dropped.
pub struct Keeper {
    pub(crate) asking: Asking,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.asking.caller.connection.close();
    }
}

/// This host under `options`: with its secrets, and ISIDs of its own.
pub(crate) async fn identity(
    reactor: &Reactor,
    options: &Options,
    name: &Name,
    beneath: Option<PathBuf>,
) -> Result<Identity, ConnectError> {
    let name = options.initiator.clone().unwrap_or_else(|| name.clone());
    let mut naming = [0; 3];
    reactor.system().random_bytes(&mut naming);
    let chap = match &options.chap.user {
        None => None,
        Some(_) => {
            let (asked, of) = (options.chap.clone(), name.clone());
            let read = reactor.offload(move || chap(&asked, &of, beneath.as_deref()));
            let missing = SecretError::File {
                path: "the file".to_owned(),
                error: "reading it failed".to_owned(),
            };
            read.await.ok_or(missing)??
        }
    };
    Ok(Identity {
        name,
        chap,
        naming,
        portal_group: OnceLock::new(),
    })
}

/// Settings of session `qualifier` of this host.
pub(crate) fn settings(
    reactor: &Reactor,
    options: &Options,
    host: &Identity,
    qualifier: u16,
    session: SessionType,
    slots: u16,
) -> Settings {
    let mut challenge = [0; CHALLENGE_BYTES];
    reactor.system().random_bytes(&mut challenge);
    let digest = |wanted| match wanted {
        true => DigestPolicy::Required,
        false => DigestPolicy::Allowed,
    };
    let offer = Offer {
        header_digest: digest(options.common.header_digest),
        data_digest: digest(options.common.data_digest),
        initial_r2t: options.initial_r2t,
        immediate_data: options.immediate_data,
        max_recv_data_segment_length: RECEIVE_SEGMENT_BYTES,
        max_burst_length: options.max_burst,
        first_burst_length: options.first_burst,
        max_outstanding_r2t: options.outstanding_r2t,
        ..Offer::default()
    };
    let login = InitiatorSettings {
        initiator: host.name.clone(),
        alias: None,
        session,
        isid: Isid::random(host.naming, qualifier),
        tsih: Tsih::NONE,
        cid: Cid(0),
        itt: Itt(0),
        cmd_sn: Serial(1),
        chap: host.chap.clone(),
        offer,
    };
    Settings {
        login,
        slots,
        challenge,
    }
}

/// Waits until the login of a connection is complete.
///
/// # Errors
/// It failed, or takes too long.
pub(crate) async fn logged_in(caller: &Caller<Nexus>) -> Result<LoggedIn, LoginFailure> {
    let found = || caller.connection.look(|nexus| nexus.logged_in().cloned());
    let waited = within(&caller.reactor, LOGIN_TIMEOUT, caller.calls.until(found)).await;
    match waited {
        None => Err(LoginFailure::Other(format!(
            "no answer in {} s",
            LOGIN_TIMEOUT.as_secs()
        ))),
        Some(Ok(logged_in)) => Ok(logged_in),
        Some(Err(reason)) => match caller.connection.look(nexus_fault) {
            Some(Fault::Login(error)) => Err(LoginFailure::Login(error)),
            Some(fault) => Err(LoginFailure::Other(fault.to_string())),
            None => Err(LoginFailure::Other(reason.to_string())),
        },
    }
}

fn nexus_fault(nexus: &Nexus) -> Option<Fault> {
    use weir_initiator::wire::Wire;
    nexus.fault().cloned()
}

/// Failure of a login.
#[derive(Debug)]
pub(crate) enum LoginFailure {
    /// The target's, or this side's.
    Login(InitiatorLoginError),
    /// Of the connection.
    Other(String),
}

impl LoginFailure {
    /// Returns whether it may pass soon.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            LoginFailure::Login(InitiatorLoginError::Refused(status)) => {
                status.class() == 3 || *status == LoginStatus::TooManyConnections
            }
            _ => false,
        }
    }

    /// The error that says what to do.
    fn explained(self, target: String, initiator: &Name) -> ConnectError {
        let initiator = initiator.clone();
        match self {
            LoginFailure::Other(error) => ConnectError::Login { target, error },
            LoginFailure::Login(error) => match error {
                InitiatorLoginError::Refused(
                    LoginStatus::NotFound | LoginStatus::TargetRemoved,
                ) => ConnectError::NoTarget { target },
                InitiatorLoginError::Refused(LoginStatus::AuthorizationFailure) => {
                    ConnectError::Refused {
                        target,
                        initiator,
                        error,
                    }
                }
                InitiatorLoginError::Refused(LoginStatus::AuthenticationFailure)
                | InitiatorLoginError::WrongMethod { .. }
                | InitiatorLoginError::TargetNotAuthenticated
                | InitiatorLoginError::Chap(_) => ConnectError::NotAuthenticated {
                    target,
                    initiator,
                    error,
                },
                error => ConnectError::Login {
                    target,
                    error: error.to_string(),
                },
            },
        }
    }
}

impl std::fmt::Display for LoginFailure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LoginFailure::Login(error) => error.fmt(formatter),
            LoginFailure::Other(reason) => formatter.write_str(reason),
        }
    }
}

/// Opens a session, and follows the target where it sends this host elsewhere.
///
/// # Errors
/// [`ConnectError`].
pub(crate) async fn open(
    reactor: &Reactor,
    options: &Options,
    settings: &Settings,
) -> Result<(Caller<Nexus>, SocketAddr), ConnectError> {
    let target = || match &settings.login.session {
        SessionType::Normal(target) => target.to_string(),
        SessionType::Discovery => options.host.clone(),
    };
    let (mut host, mut port) = (options.host.clone(), options.port);
    for _ in 0..=MOVES_MAX {
        let addresses = resolve(reactor, &host, port).await;
        let addresses = addresses.map_err(|error| ConnectError::Resolve {
            host: host.clone(),
            error,
        })?;
        let socket = options.common.socket_options();
        let stream = connect(reactor, &addresses, &socket, CONNECT_TIMEOUT).await;
        let stream = stream.map_err(|error| ConnectError::Connect(error.to_string()))?;
        let address = stream.peer_address();
        let caller = Caller::start(reactor, stream, Nexus::new(settings.clone()));
        let guard = CloseOnDrop::new(&caller.connection);
        let logged_in = logged_in(&caller).await;
        guard.disarm();
        let failure = match logged_in {
            Ok(_) => return Ok((caller, address)),
            Err(failure) => failure,
        };
        caller.connection.close();
        let LoginFailure::Login(InitiatorLoginError::Moved { address, .. }) = &failure else {
            return Err(failure.explained(target(), &settings.login.initiator));
        };
        // TargetAddress may end with a comma and a portal group.
        let place = address.split(',').next().unwrap_or_default();
        let moved = || ConnectError::Moved {
            target: target(),
            address: address.clone(),
        };
        let (name, number) = host_and_port(place).map_err(|_| moved())?;
        (host, port) = (name.to_owned(), number.unwrap_or(PORT));
    }
    Err(ConnectError::Moved {
        target: target(),
        address: format!("{host}:{port}"),
    })
}

/// A logical unit as it is reached.
pub(crate) type Unit = Remote<Options, Identity, crate::profile::Identity>;

/// A session by which an association is kept, and what was learnt over it.
pub(crate) struct Kept {
    pub(crate) keeper: Keeper,
    pub(crate) address: SocketAddr,
    pub(crate) profile: Profile,
}

/// Opens the session by which an association is kept, and asks what there is to know.
///
/// # Errors
/// [`ConnectError`].
pub(crate) async fn keep(
    reactor: &Reactor,
    remote: &Unit,
    generation: u64,
) -> Result<Kept, ConnectError> {
    let Remote { options, host, .. } = remote;
    // The last one may still be asked.
    let qualifier = KEEPERS | generation as u16 & !KEEPERS;
    let session = SessionType::Normal(options.target.clone());
    let settings = settings(reactor, options, host, qualifier, session, KEEPER_SLOTS);
    let (caller, address) = open(reactor, options, &settings).await?;
    let lun = options.lun;
    let keeper = Keeper {
        asking: Asking::new(caller, lun),
    };
    check_group(&keeper.asking.caller, options, host)?;
    let profile = keeper.asking.profile().await?;
    recognise(remote, &profile)?;
    Ok(Kept {
        keeper,
        address,
        profile,
    })
}

/// Refuses a session with another portal group than the first: there it would not be the same I_T nexus, and would end nothing of the
/// last one's.
pub(crate) fn check_group(
    caller: &Caller<Nexus>,
    options: &Options,
    host: &Identity,
) -> Result<(), ConnectError> {
    let Some(found) = caller.connection.look(Nexus::portal_group) else {
        return Ok(());
    };
    let first = *host.portal_group.get_or_init(|| found);
    match first == found {
        true => Ok(()),
        false => Err(ConnectError::PortalGroup {
            target: options.target.to_string(),
            first,
            found,
        }),
    }
}

/// Refuses a unit that is another one than the first that was seen.
pub(crate) fn recognise(remote: &Unit, profile: &Profile) -> Result<(), UnitError> {
    match remote.recognise(profile) {
        true => Ok(()),
        false => Err(UnitError::Other {
            lun: remote.options.lun,
        }),
    }
}
