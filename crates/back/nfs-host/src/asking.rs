//! Calls to a server one at a time, what may come of them, and what this host remembers of the server.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use weir_block::BlockSize;
use weir_initiator::{Caller, Remote, within};
use weir_nfs::rpc::{Credential, Groups, Reply, SysCredential};
use weir_nfs::{FileHandle, OperationNumber as Number, Reader, StateId, Status, v3};

use crate::arguments::Arguments;
use crate::channel::{Answer, Called, Channel};
use crate::options::{Options, Version};
use crate::results::{Attributes, Failure, Made, Results};
use crate::slots::Table;

/// Says that a program or its version is not served there.
pub(crate) const NOT_SERVED: &str = "it does not serve that version there";
/// After how long a call about the session or the file is given up.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);
/// For how long a server is asked again that puts this client off: longer than its time of grace.
const DELAY_MAX: Duration = Duration::from_secs(150);
/// The pause before it is asked again.
const DELAY: Duration = Duration::from_millis(100);
/// Bytes of a read or a write at most.
pub(crate) const TRANSFER_BYTES: u32 = 1 << 20;
/// Bytes of a call or a reply beside the data.
pub(crate) const HEAD_BYTES: u32 = 1024;
/// Mode of a file that is made.
pub(crate) const MODE: u32 = 0o600;

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
        "{path} cannot be opened for {} by user {uid}: {status}{}",
        wish(*.read_only), right_hint(*.status)
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

fn right_hint(status: Status) -> &'static str {
    match status {
        Status::Perm => {
            "; uid= and gid= say who uses it, and a server that wants ports below 1024 must allow others ('insecure' in exports(5))"
        }
        Status::Rofs => "; the export or the file is read-only",
        _ => "; uid= and gid= say who uses it",
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
    pub(crate) verifier: u64,
    pub(crate) session: Option<Session>,
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

    pub(crate) fn next_verifier(&mut self) -> Arc<OnceLock<[u8; 8]>> {
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
    pub(crate) fsid: (u64, u64),
    pub(crate) fileid: u64,
}

/// A file as it is reached.
pub(crate) type File = Remote<Options, Identity, FileIdentity>;

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

/// A file that was opened.
pub(crate) struct Begun {
    pub(crate) way: Way,
    pub(crate) file: (FileHandle, StateId),
    pub(crate) attributes: Attributes,
}

impl Way {
    /// Bytes of a read or a write at most.
    pub(crate) fn transfer_bytes(&self) -> u32 {
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
    pub(crate) fn transfer_bytes(&self) -> u32 {
        let made = &self.made;
        made.request_bytes_max.min(made.reply_bytes_max) - HEAD_BYTES
    }
}

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
        self.patiently(async || {
            let asked = self.ask(what, arguments.clone(), true, TIMEOUT).await?;
            Ok(match &asked {
                Err(status) => Err(Failure::Status {
                    operation: Number::Sequence.into(),
                    status: *status,
                }),
                Ok(bytes) => parse(bytes).and_then(|mut results| {
                    results.sequence()?;
                    read(&mut results)
                }),
            })
        })
        .await
    }

    /// Asks for an operation that stands alone, again as long as the server says that it is to be.
    pub(crate) async fn alone<T>(
        &self,
        what: &'static str,
        arguments: &Arguments,
        read: impl Fn(&mut Results<'_>) -> Result<T, Failure>,
    ) -> Result<T, ConnectError> {
        self.patiently(async || {
            let asked = self.ask(what, arguments.clone(), false, TIMEOUT).await?;
            let bytes = asked.expect("what has no slot fails in its results");
            Ok(parse(&bytes).and_then(|mut results| read(&mut results)))
        })
        .await
    }

    /// Asks again as long as the server says that it is to be.
    pub(crate) async fn patiently<T>(
        &self,
        ask: impl AsyncFn() -> Result<Result<T, Failure>, ConnectError>,
    ) -> Result<T, ConnectError> {
        let reactor = &self.caller.reactor;
        let end = reactor.now() + DELAY_MAX;
        let mut was_put_off = false;
        loop {
            let failure = match ask().await? {
                Ok(found) => return Ok(found),
                Err(failure) => failure,
            };
            let status = failure.status();
            if !matches!(status, Some(Status::Delay | Status::Grace)) || reactor.now() >= end {
                return Err(failure.into());
            }
            if !was_put_off && status == Some(Status::Grace) {
                tracing::warn!(
                    "the server waits for the clients that it had before it started: this takes up to some minutes"
                );
            }
            was_put_off = true;
            reactor.sleep(DELAY).await;
        }
    }

    /// Renews the lease; the server's word on the client's state.
    pub(crate) async fn renew(&self, timeout: Duration) -> Result<u32, String> {
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
