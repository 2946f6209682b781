//! From an address to a session with the file open: connect, introduce, settle what connections before left, open.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use weir_block::{BlockSize, DeallocatedRead, Geometry};
use weir_initiator::plan::Limits;
use weir_initiator::{
    CONNECT_TIMEOUT, Caller, Calls, CloseOnDrop, Connection, Profile, Remote, connect, resolve,
    within,
};
use weir_memory::Pool;
use weir_nfs::attribute::AttributeChanges;
use weir_nfs::rpc::{Credential, Groups, Reply, SysCredential};
use weir_nfs::types::{ChannelAttributes, file_type, stable};
use weir_nfs::{FileHandle, OperationNumber as Number, Reader, SessionId, StateId, Status, v3};
use weir_reactor::Reactor;

use crate::arguments::{Arguments, Which};
use crate::channel::{Answer, Called, Channel, Share};
use crate::options::{Options, Version};
use crate::results::{ATTRIBUTES, Attributes, Failure, Made, Results};
use crate::slots::{KEEPER_SLOTS, Slot, Table};
use crate::version3;

/// Says that a program or its version is not served there.
pub(crate) const NOT_SERVED: &str = "it does not serve that version there";
/// After how long a call about the session or the file is given up.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);
/// For how long a server is asked again that puts this client off: longer than its time of grace.
pub(crate) const DELAY_MAX: Duration = Duration::from_secs(150);
/// For how long the end of a session that came to nothing is waited for.
const FORGET_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause before it is asked again.
pub(crate) const DELAY: Duration = Duration::from_millis(100);
/// Slots that are asked for at most.
const SLOTS_MAX: u32 = 1024;
/// Bytes of a read or a write at most.
pub(crate) const TRANSFER_BYTES: u32 = 1 << 20;
/// Bytes of a call or a reply beside the data.
const HEAD_BYTES: u32 = 1024;
/// Mode of a file that is made.
pub(crate) const MODE: u32 = 0o600;
/// Words of a server on a client whose state is not what the client thinks: a state of it was revoked, or is to be reclaimed
/// (SEQ4_STATUS of RFC 8881, section 18.46).
const STATE_LOST: u32 = 0x0000_0008 | 0x0000_0010 | 0x0000_0020 | 0x0000_0100;

/// Failure of a file to be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The server's name has no address.
    #[error("{host} cannot be resolved: {error}")]
    Resolve {
        /// The name.
        host: String,
        /// The system's error.
        error: String,
    },
    /// Nothing answers there.
    #[error("cannot connect: {0}; is the server running and listening there?")]
    Connect(String),
    /// The server does not speak the version.
    #[error("the server does not speak NFS version {version}; try version={}", other_version(*.version))]
    Version {
        /// The version that was asked for.
        version: Version,
    },
    /// Nobody tells where MOUNT is.
    #[error(
        "the server does not say at which port its MOUNT is ({reason}); mountport= names it, and version=4.2 needs none"
    )]
    NoMount {
        /// The reason.
        reason: String,
    },
    /// The server takes no calls of this host.
    #[error("the server takes no calls of this host: {0}")]
    Refused(&'static str),
    /// A name on the way is not there.
    #[error("the server has no {path}: {status}; is it exported, and to this host?")]
    NoDirectory {
        /// The path up to the name.
        path: String,
        /// The server's answer.
        status: Status,
    },
    /// The file is not there.
    #[error(
        "there is no file {path} on the server; with size= it is made where it is opened for writing"
    )]
    NoFile {
        /// The path.
        path: String,
    },
    /// The file may not be used.
    #[error(
        "{path} cannot be opened for {} by user {uid}: {status}; uid= and gid= say who uses it{}",
        wish(*.read_only), port_hint(*.status)
    )]
    NotAllowed {
        /// The path.
        path: String,
        /// It was to be read only.
        read_only: bool,
        /// The user.
        uid: u32,
        /// The server's answer.
        status: Status,
    },
    /// It is no file.
    #[error("{path} is no regular file; name a file in the export")]
    NotAFile {
        /// The path.
        path: String,
    },
    /// The file has another size than was asked for.
    #[error(
        "{path} has {found} bytes and size={wanted} asks for {wanted}; leave size= out to take it as it is"
    )]
    OtherSize {
        /// The path.
        path: String,
        /// Bytes that it has.
        found: u64,
        /// Bytes that were asked for.
        wanted: u64,
    },
    /// Its size makes no blocks.
    #[error("{path} has {bytes} bytes, which is no multiple of the block size of {block_size}")]
    NoBlocks {
        /// The path.
        path: String,
        /// Bytes that it has.
        bytes: u64,
        /// Bytes of a block.
        block_size: u32,
    },
    /// There is another file now.
    #[error("{path} is another file than before")]
    OtherFile {
        /// The path.
        path: String,
    },
    /// The session has too few slots, or its calls are too short.
    #[error("the server grants {slots} slots and calls of {bytes} bytes, which is too little")]
    TooLittle {
        /// Slots.
        slots: u32,
        /// Bytes of a call or a reply.
        bytes: u32,
    },
    /// Reads and writes are shorter than a block.
    #[error("the server reads and writes {bytes} bytes at most, which is less than a block")]
    TooShort {
        /// Bytes of a read or a write.
        bytes: u32,
    },
    /// An operation failed.
    #[error(transparent)]
    Operation(#[from] Failure),
    /// There was no answer in time.
    #[error("{what}: no answer in {} ms", .timeout.as_millis())]
    TimedOut {
        /// The call.
        what: &'static str,
        /// The time.
        timeout: Duration,
    },
    /// The connection ended before the answer.
    #[error("{what}: the connection ended: {reason}")]
    Ended {
        /// The call.
        what: &'static str,
        /// The reason.
        reason: String,
    },
}

fn other_version(version: Version) -> &'static str {
    match version {
        Version::V42 => "4.1, or 3",
        Version::V41 => "3",
        Version::V3 => "4.2",
    }
}

fn wish(read_only: bool) -> &'static str {
    match read_only {
        true => "reading",
        false => "reading and writing",
    }
}

fn port_hint(status: Status) -> &'static str {
    match status {
        Status::Perm => {
            ", and a server that wants ports below 1024 must allow others ('insecure' in exports(5))"
        }
        _ => "",
    }
}

/// This host as one volume says to the server who it is, and what it remembers from one association to the next.
pub struct Identity {
    pub(crate) machine: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The name of the client, which no other volume has.
    pub(crate) owner: Vec<u8>,
    pub(crate) read_only: bool,
    /// The server has revoked something that this client had.
    pub(crate) revoked: Arc<AtomicBool>,
    /// The block size of the volume, once it is known.
    pub(crate) block_size: OnceLock<BlockSize>,
    pub(crate) table: Arc<Table>,
    pub(crate) lasting: Mutex<Lasting>,
}

/// Knowledge that outlives an association.
#[derive(Default)]
pub(crate) struct Lasting {
    /// Distinguishes this run of the client from others: what others had ends.
    verifier: u64,
    session: Option<Session>,
    pub(crate) handle: Option<FileHandle>,
    /// The verifier of the writes of the last association that there were any of.
    before: Arc<OnceLock<[u8; 8]>>,
    /// The verifier of the writes of the present association, once it is known.
    present: Arc<OnceLock<[u8; 8]>>,
}

/// A session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) made: Made,
    pub(crate) client: u64,
}

impl Identity {
    pub(crate) fn credential(&self) -> Credential<'_> {
        Credential::Sys(SysCredential {
            machine: self.machine.as_bytes(),
            uid: self.uid,
            gid: self.gid,
            groups: Groups::default(),
        })
    }

    pub(crate) fn lasting(&self) -> MutexGuard<'_, Lasting> {
        self.lasting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lasting {
    /// Of a volume that was not open yet. `verifier` is random.
    pub(crate) fn new(verifier: [u8; 8]) -> Self {
        Lasting {
            verifier: u64::from_ne_bytes(verifier),
            ..Lasting::default()
        }
    }

    /// The verifier with which the writes before were answered; none where there were none.
    pub(crate) fn verifier_before(&self) -> Option<[u8; 8]> {
        self.before.get().copied()
    }

    fn next_verifier(&mut self) -> Arc<OnceLock<[u8; 8]>> {
        if self.present.get().is_some() {
            self.before = std::mem::take(&mut self.present);
        } else {
            self.present = Arc::default();
        }
        Arc::clone(&self.present)
    }
}

/// A file's identity: its file system and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileIdentity {
    fsid: (u64, u64),
    fileid: u64,
}

/// A file as it is reached.
pub(crate) type File = Remote<Options, Identity, FileIdentity>;

/// A connection that is asked one call at a time.
#[derive(Clone)]
pub(crate) struct Asking {
    pub(crate) caller: Caller<Channel>,
}

impl Asking {
    /// Asks for operations as they are, or under a SEQUENCE; the results from their status on.
    async fn ask(
        &self,
        what: &'static str,
        arguments: Arguments,
        has_slot: bool,
        timeout: Duration,
    ) -> Result<Result<Vec<u8>, Status>, ConnectError> {
        let submit = |channel: &mut Channel, user| match has_slot {
            true => {
                let taken = channel.ask(arguments, user);
                assert!(taken, "there is room");
            }
            false => channel.ask_without_slot(arguments, user),
        };
        self.submit(what, has_slot, timeout, submit).await
    }

    /// Calls a procedure; what it yields.
    pub(crate) async fn call_once(
        &self,
        what: &'static str,
        called: Called,
        timeout: Duration,
    ) -> Result<Vec<u8>, ConnectError> {
        let submit = |channel: &mut Channel, user| channel.call(called, user);
        let answered = self.submit(what, false, timeout, submit).await?;
        Ok(answered.expect("a procedure fails in its results"))
    }

    async fn submit(
        &self,
        what: &'static str,
        has_slot: bool,
        timeout: Duration,
        submit: impl FnOnce(&mut Channel, u64),
    ) -> Result<Result<Vec<u8>, Status>, ConnectError> {
        let asked = async {
            match has_slot {
                true => self.caller.ask(0, submit).await,
                false => {
                    let at_once = |channel: &mut Channel, user| {
                        submit(channel, user);
                        true
                    };
                    self.caller.ask_at_once(0, at_once).await
                }
            }
        };
        let answer = within(&self.caller.reactor, timeout, asked).await;
        let answer = answer.ok_or(ConnectError::TimedOut { what, timeout })?;
        let (answer, _) = answer.map_err(|reason| ConnectError::Ended {
            what,
            reason: reason.to_string(),
        })?;
        match answer {
            Answer::Results(bytes) => Ok(Ok(bytes)),
            Answer::Failed(status) => Ok(Err(status)),
            Answer::Refused(reply) => Err(ConnectError::Refused(match reply {
                Reply::ProgramUnavailable | Reply::ProgramMismatch(..) => NOT_SERVED,
                Reply::BadCredential | Reply::TooWeak => "it wants other credentials than AUTH_SYS",
                _ => "it cannot answer",
            })),
            other => unreachable!("{other:?} answers nothing that was asked for by itself"),
        }
    }

    /// Asks for operations under a SEQUENCE, again as long as the server says that it is to be; their results.
    pub(crate) async fn call<T>(
        &self,
        what: &'static str,
        arguments: &Arguments,
        read: impl Fn(&mut Results<'_>) -> Result<T, Failure>,
    ) -> Result<T, ConnectError> {
        let reactor = &self.caller.reactor;
        let end = reactor.now() + DELAY_MAX;
        let mut was_put_off = false;
        loop {
            let asked = self.ask(what, arguments.clone(), true, TIMEOUT).await?;
            let result = match &asked {
                Err(status) => Err(Failure::Status {
                    operation: Number::Sequence.into(),
                    status: *status,
                }),
                Ok(bytes) => parse(bytes).and_then(|mut results| {
                    results.sequence()?;
                    read(&mut results)
                }),
            };
            match result {
                Ok(found) => return Ok(found),
                Err(failure) if is_delay(&failure) && reactor.now() < end => {
                    if !was_put_off && failure.status() == Some(Status::Grace) {
                        tracing::warn!(
                            "the server waits for the clients that it had before it started: this takes up to some minutes"
                        );
                    }
                    was_put_off = true;
                    reactor.sleep(DELAY).await;
                }
                Err(failure) => return Err(failure.into()),
            }
        }
    }

    /// Asks for an operation that stands alone, again as long as the server says that it is to be.
    pub(crate) async fn alone<T>(
        &self,
        what: &'static str,
        arguments: &Arguments,
        read: impl Fn(&mut Results<'_>) -> Result<T, Failure>,
    ) -> Result<T, ConnectError> {
        let reactor = &self.caller.reactor;
        let end = reactor.now() + DELAY_MAX;
        loop {
            let asked = self.ask(what, arguments.clone(), false, TIMEOUT).await?;
            let bytes = asked.expect("what has no slot fails in its results");
            match parse(&bytes).and_then(|mut results| read(&mut results)) {
                Ok(found) => return Ok(found),
                Err(failure) if is_delay(&failure) && reactor.now() < end => {
                    reactor.sleep(DELAY).await;
                }
                Err(failure) => return Err(failure.into()),
            }
        }
    }

    /// Renews the lease; the server's word on the client's state.
    async fn renew(&self, timeout: Duration) -> Result<u32, String> {
        let asked = self
            .ask("SEQUENCE", Arguments::default(), true, timeout)
            .await;
        let bytes = match asked.map_err(|error| error.to_string())? {
            Ok(bytes) => bytes,
            Err(Status::Delay) => return Ok(0),
            Err(status) => return Err(format!("SEQUENCE: {status}")),
        };
        let flags = parse(&bytes).and_then(|mut results| results.sequence());
        flags.map_err(|failure| failure.to_string())
    }
}

fn parse(bytes: &[u8]) -> Result<Results<'_>, Failure> {
    Results::parse(Reader::new(bytes)).map_err(|error| Failure::Nonsense {
        operation: Number::Sequence.into(),
        error,
    })
}

pub(crate) fn is_delay(failure: &Failure) -> bool {
    matches!(failure.status(), Some(Status::Delay | Status::Grace))
}

/// The connection by which an association is kept. It ends when this is dropped.
pub struct Keeper {
    pub(crate) asking: Asking,
    pub(crate) way: Way,
    pub(crate) file: (FileHandle, StateId),
    revoked: Arc<AtomicBool>,
}

/// Knowledge of a server by its version.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Way {
    /// Version 4: a session.
    Session(Session),
    /// Version 3: bytes of a read and of a write at most.
    V3 {
        read_bytes_max: u32,
        write_bytes_max: u32,
    },
}

impl Keeper {
    /// Asks whether the server lives, and renews the lease where there is one.
    ///
    /// # Errors
    /// There was no answer, or the server has revoked something.
    pub(crate) async fn renew(&self, timeout: Duration) -> Result<(), String> {
        let flags = match self.way {
            Way::Session(_) => self.asking.renew(timeout).await? & STATE_LOST,
            Way::V3 { .. } => {
                let alive = self.asking.is_alive(timeout).await;
                return alive.map_err(|error| error.to_string());
            }
        };
        match flags {
            0 => Ok(()),
            flags => {
                self.revoked.store(true, Ordering::Relaxed);
                Err(format!(
                    "the server has revoked what this client had (flags {flags:#x})"
                ))
            }
        }
    }

    /// Puts what was written on stable storage; the verifier.
    pub(crate) async fn commit(&self) -> Result<[u8; 8], ConnectError> {
        if let Way::V3 { .. } = self.way {
            return self.asking.commit_of_3(&self.file.0).await;
        }
        let commit = Arguments::default().put(&self.file.0).commit();
        let committed = self.asking.call("COMMIT", &commit, |results| {
            results.next(Number::Putfh)?;
            results.next(Number::Commit)?;
            results.read(Number::Commit, Reader::fixed::<8>)
        });
        committed.await
    }

    /// Writes on stable storage, as much as the server takes; the number of bytes.
    pub(crate) async fn write_durably(
        &self,
        offset: u64,
        data: &[u8],
    ) -> Result<usize, ConnectError> {
        let (handle, stateid) = &self.file;
        let (count, how) = match self.way {
            Way::V3 { .. } => {
                let written = self.asking.write_of_3(handle, offset, data);
                written.await?
            }
            Way::Session(_) => {
                let arguments = Arguments::default().put(handle);
                let arguments = arguments.write(stateid, offset, stable::FILE_SYNC, data);
                let written = self.asking.call("WRITE", &arguments, |results| {
                    results.next(Number::Putfh)?;
                    results.next(Number::Write)?;
                    results.read(Number::Write, |reader| Ok((reader.u32()?, reader.u32()?)))
                });
                written.await?
            }
        };
        match count as usize {
            count if (1..=data.len()).contains(&count) && how == stable::FILE_SYNC => Ok(count),
            _ => Err(Failure::Missing(Number::Write.into()).into()),
        }
    }

    /// Attributes of the file.
    async fn attributes(&self) -> Result<Attributes, ConnectError> {
        if let Way::V3 { .. } = self.way {
            let attributes = self.asking.attributes_of_3(&self.file.0).await?;
            return Ok(self.way.attributes(&attributes));
        }
        let arguments = Arguments::default()
            .put(&self.file.0)
            .attributes(&ATTRIBUTES);
        let found = self.asking.call("GETATTR", &arguments, |results| {
            results.next(Number::Putfh)?;
            results.attributes()
        });
        found.await
    }
}

impl Way {
    /// Bytes of a read or a write at most.
    fn transfer_bytes(&self) -> u32 {
        match self {
            Way::Session(session) => session.transfer_bytes(),
            Way::V3 {
                read_bytes_max,
                write_bytes_max,
            } => TRANSFER_BYTES.min(*read_bytes_max).min(*write_bytes_max),
        }
    }

    /// Attributes of version 3 with what else is known.
    pub(crate) fn attributes(&self, attributes: &v3::Attributes) -> Attributes {
        Attributes {
            kind: attributes.kind,
            size: attributes.size,
            fsid: (attributes.fsid, 0),
            fileid: attributes.number,
            ..Attributes::default()
        }
    }
}

impl Session {
    fn transfer_bytes(&self) -> u32 {
        let made = &self.made;
        made.request_bytes_max.min(made.reply_bytes_max) - HEAD_BYTES
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.asking.caller.connection.close();
    }
}

/// A connection by which an association is kept, and what was learnt over it.
pub(crate) struct Kept {
    pub(crate) keeper: Keeper,
    pub(crate) address: SocketAddr,
    pub(crate) profile: Profile<FileIdentity>,
    /// None in version 3.
    pub(crate) lease: Option<Duration>,
    pub(crate) verifier: Arc<OnceLock<[u8; 8]>>,
}

/// Opens the connection by which an association is kept, takes the session up or makes one, and opens the file.
///
/// # Errors
/// [`ConnectError`].
pub(crate) async fn keep(reactor: &Reactor, remote: &File) -> Result<Kept, ConnectError> {
    let Remote { options, host, .. } = remote;
    let addresses = resolve(reactor, &options.host, options.port).await;
    let addresses = addresses.map_err(|error| ConnectError::Resolve {
        host: options.host.clone(),
        error,
    })?;
    let socket = options.common.socket_options();
    let stream = connect(reactor, &addresses, &socket, CONNECT_TIMEOUT).await;
    let stream = stream.map_err(|error| ConnectError::Connect(error.to_string()))?;
    let address = stream.peer_address();
    let calls = Rc::<Calls<Channel>>::default();
    let channel = Channel::new(&host.credential(), options.version.minor());
    let asking = Asking {
        caller: Caller {
            reactor: reactor.clone(),
            connection: Connection::start(reactor, stream, channel, calls.clone()),
            calls,
        },
    };
    let guard = CloseOnDrop::new(&asking.caller.connection);
    let found = match options.version {
        Version::V3 => version3::begin(&asking, remote, address).await,
        Version::V41 | Version::V42 => begin(&asking, remote).await,
    };
    let found = found.and_then(|begun| {
        let profile = profile(options, host, &begun.way, &begun.attributes)?;
        match remote.recognise(&profile) {
            true => Ok((begun, profile)),
            false => Err(ConnectError::OtherFile {
                path: options.path_text(),
            }),
        }
    });
    let (begun, profile) = match found {
        Ok(found) => found,
        Err(error) => {
            forget(&asking, host).await;
            guard.disarm();
            // Its slots are put back before anybody else takes them.
            asking.caller.connection.close();
            asking.caller.calls.end().await;
            return Err(error);
        }
    };
    guard.disarm();
    host.lasting().handle = Some(begun.file.0);
    let lease = |seconds: u32| Duration::from_secs(seconds.clamp(4, 3600).into());
    Ok(Kept {
        keeper: Keeper {
            asking,
            way: begun.way,
            file: begun.file,
            revoked: Arc::clone(&host.revoked),
        },
        address,
        profile,
        lease: match begun.way {
            Way::Session(_) => Some(lease(begun.attributes.lease_seconds)),
            Way::V3 { .. } => None,
        },
        verifier: host.lasting().next_verifier(),
    })
}

/// Ends the session of a file that was never open, as far as the server answers.
async fn forget(asking: &Asking, host: &Identity) {
    let session = {
        let mut lasting = host.lasting();
        match lasting.handle {
            None => lasting.session.take(),
            Some(_) => None,
        }
    };
    if let Some(session) = session {
        let ended = within(
            &asking.caller.reactor,
            FORGET_TIMEOUT,
            end_client(asking, &session),
        );
        tracing::debug!(result = ?ended.await, "ended the session");
    }
}

/// Ends a session and its client.
pub(crate) async fn end_client(asking: &Asking, session: &Session) -> Result<(), ConnectError> {
    end_session(asking, session.made.id).await?;
    let arguments = Arguments::default().destroy_client(session.client);
    asking
        .alone("DESTROY_CLIENTID", &arguments, |results| {
            results.next(Number::DestroyClientid)
        })
        .await
}

/// A file that was opened.
pub(crate) struct Begun {
    pub(crate) way: Way,
    pub(crate) file: (FileHandle, StateId),
    pub(crate) attributes: Attributes,
}

async fn begin(asking: &Asking, remote: &File) -> Result<Begun, ConnectError> {
    let Remote { options, host, .. } = remote;
    let before = host.lasting().session;
    let mut is_new = match before {
        Some(session) => !take_up(asking, host, &session).await?,
        None => true,
    };
    if host.revoked.swap(false, Ordering::Relaxed) {
        // Another run of the client has none of what was revoked.
        let mut lasting = host.lasting();
        lasting.verifier = lasting.verifier.wrapping_add(1);
        is_new = true;
    }
    let session = match before {
        Some(session) if !is_new => session,
        _ => make_session(asking, options, host).await?,
    };
    let share = share(host, &session, 0..KEEPER_SLOTS);
    asking
        .caller
        .connection
        .with(|channel| channel.take_share(share));
    let (file, attributes) = open(asking, options, host, &session, is_new).await?;
    Ok(Begun {
        way: Way::Session(session),
        file,
        attributes,
    })
}

/// The share of a session that a connection with these slots has.
pub(crate) fn share(host: &Identity, session: &Session, slots: std::ops::Range<u32>) -> Share {
    Share {
        table: Arc::clone(&host.table),
        session: session.made.id,
        highest: session.made.slots - 1,
        slots,
    }
}

/// Takes a session up again, and settles what its connections left behind. False where the server does not know it any more.
async fn take_up(
    asking: &Asking,
    host: &Identity,
    session: &Session,
) -> Result<bool, ConnectError> {
    use Status::{Badsession, Deadsession, StaleClientid};
    if let Err(error) = bind(asking, session.made.id).await {
        let ConnectError::Operation(failure) = &error else {
            return Err(error);
        };
        return match failure.status() {
            Some(Badsession | Deadsession | StaleClientid) => Ok(false),
            // It may be there, and then what it has under way must end with it.
            Some(_) => end_session(asking, session.made.id).await.map(|()| false),
            None => Err(error),
        };
    }
    let slots = host.table.get(session.made.id, 0, session.made.slots);
    for (number, slot) in (0..).zip(slots) {
        if slot.is_uncertain && !settle(asking, host, session, number, slot).await? {
            end_session(asking, session.made.id).await?;
            return Ok(false);
        }
    }
    Ok(true)
}

/// Ends a session, and with it all that it had under way.
async fn end_session(asking: &Asking, session: SessionId) -> Result<(), ConnectError> {
    let arguments = Arguments::default().destroy_session(session);
    asking
        .alone("DESTROY_SESSION", &arguments, |results| {
            results.next(Number::DestroySession)
        })
        .await
}

/// Binds the connection to a session.
pub(crate) async fn bind(asking: &Asking, session: SessionId) -> Result<(), ConnectError> {
    let arguments = Arguments::default().bind(session);
    asking
        .alone("BIND_CONN_TO_SESSION", &arguments, |results| {
            results.next(Number::BindConnToSession)
        })
        .await
}

/// Sends a request with the sequence ID of one that was not answered. Where that one came, it has ended when this is answered; where it
/// did not, it is none any more. False where the slot cannot be used.
async fn settle(
    asking: &Asking,
    host: &Identity,
    session: &Session,
    number: u32,
    mut slot: Slot,
) -> Result<bool, ConnectError> {
    let made = &session.made;
    let arguments = Arguments::default().sequence(made.id, slot.sequence, number, made.slots - 1);
    let settled = asking.alone("SEQUENCE", &arguments, |results| {
        results.sequence().map(drop)
    });
    let status = match settled.await {
        Ok(()) => Status::Ok,
        Err(ConnectError::Operation(failure)) => match failure.status() {
            Some(status) => status,
            None => return Err(failure.into()),
        },
        Err(error) => return Err(error),
    };
    match status {
        Status::Ok | Status::SeqFalseRetry | Status::RetryUncachedRep => {
            slot.advance();
            host.table.put(made.id, number, &[slot]);
            Ok(true)
        }
        Status::Delay => Err(Failure::Status {
            operation: Number::Sequence.into(),
            status,
        }
        .into()),
        _ => Ok(false),
    }
}

async fn make_session(
    asking: &Asking,
    options: &Options,
    host: &Identity,
) -> Result<Session, ConnectError> {
    let verifier = host.lasting().verifier.to_be_bytes();
    let introduced = Arguments::default().exchange_id(verifier, &host.owner);
    let client = asking.alone("EXCHANGE_ID", &introduced, |results| results.client());
    let (client, sequence) = client.await.map_err(|error| match &error {
        ConnectError::Operation(failure) if failure.status() == Some(Status::MinorVersMismatch) => {
            ConnectError::Version {
                version: options.version,
            }
        }
        ConnectError::Refused(NOT_SERVED) => ConnectError::Version {
            version: options.version,
        },
        _ => error,
    })?;
    let fore = ChannelAttributes {
        header_pad: 0,
        request_bytes_max: TRANSFER_BYTES + HEAD_BYTES,
        reply_bytes_max: TRANSFER_BYTES + HEAD_BYTES,
        kept_reply_bytes_max: HEAD_BYTES,
        operations_max: 64,
        slots: SLOTS_MAX,
    };
    let back = ChannelAttributes {
        request_bytes_max: 4096,
        reply_bytes_max: 4096,
        operations_max: 2,
        slots: 1,
        ..fore
    };
    let arguments = Arguments::default().create_session(client, sequence, &fore, &back);
    let made = asking
        .alone("CREATE_SESSION", &arguments, |results| results.session())
        .await?;
    let bytes = made.request_bytes_max.min(made.reply_bytes_max);
    if made.slots <= KEEPER_SLOTS || bytes < 8 * HEAD_BYTES {
        let slots = made.slots;
        return Err(ConnectError::TooLittle { slots, bytes });
    }
    let session = Session { made, client };
    host.table.begin(made.id, made.slots);
    host.lasting().session = Some(session);
    Ok(session)
}

/// Opens the file: the one that was open before, if any.
async fn open(
    asking: &Asking,
    options: &Options,
    host: &Identity,
    session: &Session,
    is_new: bool,
) -> Result<((FileHandle, StateId), Attributes), ConnectError> {
    let handle = host.lasting().handle;
    let (client, read_only) = (session.client, host.read_only);
    let explain = |failure| explain(failure, options, host);
    let again = |handle: &FileHandle, which| {
        let put = Arguments::default().put(handle);
        put.open(client, read_only, which, None)
            .get()
            .attributes(&ATTRIBUTES)
    };
    let mut reclaimed = None;
    if let (true, Some(handle)) = (is_new, handle) {
        let arguments = again(&handle, Which::Previous);
        reclaimed = asking.call("OPEN", &arguments, opened_of_handle).await.ok();
    }
    if is_new {
        let arguments = Arguments::default().reclaim_complete();
        let complete = |results: &mut Results<'_>| results.next(Number::ReclaimComplete);
        match asking.call("RECLAIM_COMPLETE", &arguments, complete).await {
            Err(ConnectError::Operation(failure))
                if failure.status() == Some(Status::CompleteAlready) => {}
            other => other?,
        }
    }
    if let Some(found) = reclaimed {
        return Ok(found);
    }
    if let Some(handle) = handle {
        let arguments = again(&handle, Which::Current);
        let found = asking.call("OPEN", &arguments, opened_of_handle).await;
        return found.map_err(explain);
    }
    open_by_name(asking, options, host, session).await
}

async fn open_by_name(
    asking: &Asking,
    options: &Options,
    host: &Identity,
    session: &Session,
) -> Result<((FileHandle, StateId), Attributes), ConnectError> {
    let (name, directories) = options.path.split_last().expect("a path has a name");
    // One after the other, so that an error can say which of them is not there.
    let to_directory = |count: usize| {
        let root = Arguments::default().root();
        let names = directories[..count].iter();
        names.fold(root, |arguments, name| arguments.lookup(name.as_bytes()))
    };
    for count in 1..=directories.len() {
        let found = asking
            .call("LOOKUP", &to_directory(count), |results| to(results, count))
            .await;
        found.map_err(|error| match &error {
            ConnectError::Operation(failure) => match failure.status() {
                Some(status) => ConnectError::NoDirectory {
                    path: format!("/{}", directories[..count].join("/")),
                    status,
                },
                None => error,
            },
            _ => error,
        })?;
    }
    let explain = |error| explain(error, options, host);
    let (client, read_only) = (session.client, host.read_only);
    let count = directories.len();
    let which = Which::Named(name.as_bytes());
    let by_name = |create: Option<&AttributeChanges>| {
        let opened = to_directory(count).open(client, read_only, which, create);
        opened.get().attributes(&ATTRIBUTES)
    };
    let opened = |results: &mut Results<'_>| {
        to(results, count)?;
        opened(results)
    };
    let found = asking.call("OPEN", &by_name(None), opened).await;
    let is_missing = |error: &ConnectError| {
        let ConnectError::Operation(failure) = error else {
            return false;
        };
        failure.status() == Some(Status::Noent)
    };
    match (found, options.size) {
        (Err(error), Some(size)) if is_missing(&error) && !read_only => {
            let changes = AttributeChanges {
                size: Some(size),
                mode: Some(MODE),
                ..AttributeChanges::default()
            };
            let made = asking.call("OPEN", &by_name(Some(&changes)), opened).await;
            let (file, mut attributes) = made.map_err(explain)?;
            if attributes.size != size {
                attributes = set_size(asking, &file, size).await?;
            }
            tracing::info!(path = options.path_text(), size, "made the file");
            Ok((file, attributes))
        }
        (found, _) => found.map_err(explain),
    }
}

/// Sets the size of a file that the server made without heeding it.
async fn set_size(
    asking: &Asking,
    file: &(FileHandle, StateId),
    size: u64,
) -> Result<Attributes, ConnectError> {
    let changes = AttributeChanges {
        size: Some(size),
        ..AttributeChanges::default()
    };
    let arguments = Arguments::default().put(&file.0).change(&file.1, &changes);
    let arguments = arguments.attributes(&ATTRIBUTES);
    asking
        .call("SETATTR", &arguments, |results| {
            results.next(Number::Putfh)?;
            results.next(Number::Setattr)?;
            results.read(Number::Setattr, weir_nfs::Bitmap::parse)?;
            results.attributes()
        })
        .await
}

/// Reads the results of a way from the root through `count` directories.
fn to(results: &mut Results<'_>, count: usize) -> Result<(), Failure> {
    results.next(Number::Putrootfh)?;
    (0..count).try_for_each(|_| results.next(Number::Lookup))
}

fn opened(results: &mut Results<'_>) -> Result<((FileHandle, StateId), Attributes), Failure> {
    let stateid = results.open()?;
    let handle = results.handle()?;
    let attributes = results.attributes()?;
    // The newest of the open, whatever else is opened by the same owner.
    let stateid = StateId {
        seqid: 0,
        ..stateid
    };
    Ok(((handle, stateid), attributes))
}

fn opened_of_handle(
    results: &mut Results<'_>,
) -> Result<((FileHandle, StateId), Attributes), Failure> {
    results.next(Number::Putfh)?;
    opened(results)
}

/// The error of an OPEN that says what to do.
pub(crate) fn explain(error: ConnectError, options: &Options, host: &Identity) -> ConnectError {
    let ConnectError::Operation(failure) = &error else {
        return error;
    };
    let path = options.path_text();
    match failure.status() {
        Some(Status::Noent | Status::Stale) => ConnectError::NoFile { path },
        Some(Status::Isdir | Status::Symlink | Status::Inval | Status::WrongType) => {
            ConnectError::NotAFile { path }
        }
        Some(status @ (Status::Access | Status::Perm | Status::Rofs)) => ConnectError::NotAllowed {
            path,
            read_only: host.read_only,
            uid: host.uid,
            status,
        },
        _ => error,
    }
}

/// Asks for the file as it is now; none where it is gone.
pub(crate) async fn look(
    keeper: &Keeper,
    remote: &File,
) -> Result<Option<Profile<FileIdentity>>, ConnectError> {
    let Remote { options, host, .. } = remote;
    let attributes = match keeper.attributes().await {
        Ok(attributes) => attributes,
        Err(ConnectError::Operation(failure)) if failure.status() == Some(Status::Stale) => {
            tracing::warn!(path = options.path_text(), "the file is gone");
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let options = Options {
        size: None,
        ..options.clone()
    };
    Ok(Some(profile(&options, host, &keeper.way, &attributes)?))
}

/// The file as a volume.
fn profile(
    options: &Options,
    host: &Identity,
    way: &Way,
    attributes: &Attributes,
) -> Result<Profile<FileIdentity>, ConnectError> {
    let path = || options.path_text();
    if attributes.kind != file_type::REGULAR {
        return Err(ConnectError::NotAFile { path: path() });
    }
    let found = attributes.size;
    if let Some(wanted) = options.size.filter(|&size| size != found) {
        return Err(ConnectError::OtherSize {
            path: path(),
            found,
            wanted,
        });
    }
    let fitting = match found.is_multiple_of(4096) {
        true => BlockSize::B4096,
        false => BlockSize::B512,
    };
    let wanted = || options.block_size.unwrap_or(fitting);
    let block_size = *host.block_size.get_or_init(wanted);
    let bytes = block_size.bytes();
    if found == 0 || !found.is_multiple_of(u64::from(bytes)) {
        return Err(ConnectError::NoBlocks {
            path: path(),
            bytes: found,
            block_size: bytes,
        });
    }
    let all = way.transfer_bytes();
    let most = |said: Option<u64>| said.unwrap_or(u64::MAX).min(all.into()) as u32;
    let transfer = most(attributes.read_bytes_max).min(most(attributes.write_bytes_max));
    let transfer = transfer.min(Pool::LONGEST as u32) / bytes;
    if transfer == 0 {
        return Err(ConnectError::TooShort {
            bytes: all.min(most(attributes.read_bytes_max)),
        });
    }
    let geometry = Geometry {
        generation: 0,
        block_size,
        blocks: found / u64::from(bytes),
        transfer_blocks_max: transfer,
        transfer_blocks_optimal: (4096 / bytes).max(1),
        memory_alignment: 1,
        deallocate_blocks: 0,
        deallocated_read: DeallocatedRead::Unknown,
        volatile_cache: true,
        read_only: host.read_only,
        atomic_blocks: 1,
        atomic_blocks_power_fail: 1,
        compare_write_blocks: 0,
    };
    let limits = Limits {
        block_size,
        transfer_blocks_max: transfer,
        write_zeroes_blocks_max: 0,
        write_zeroes_deallocates: false,
        write_zeroes_without_data: false,
        verify_blocks_max: 0,
        deallocate_blocks_max: 0,
        compare: false,
        compare_write_blocks_max: 0,
        force_unit_access: true,
        write_zeroes_force_unit_access: false,
    };
    Ok(Profile {
        identity: FileIdentity {
            fsid: attributes.fsid,
            fileid: attributes.fileid,
        },
        geometry,
        limits,
    })
}
