//! Version 3: from an address to the file, by MOUNT. There is nothing to open, and nothing to close.

use std::net::SocketAddr;
use std::time::Duration;

use weir_initiator::{CONNECT_TIMEOUT, Caller, CloseOnDrop, Remote, connect};
use weir_nfs::attribute::AttributeChanges;
use weir_nfs::rpc::NFS_PROGRAM;
use weir_nfs::types::{access, stable};
use weir_nfs::v3::{self, Attributes, Procedure};
use weir_nfs::{FileHandle, Reader, StateId, Status, Writer, XdrError, mount};
use weir_reactor::Reactor;

use crate::asking::{
    Asking, Begun, ConnectError, File, Identity, MODE, NOT_SERVED, TIMEOUT, Way, explain,
};
use crate::channel::{Called, Channel};
use crate::options::{Options, Version};
use crate::results::{Asked, Failure};

/// Requests at once of the connection that keeps watch.
const KEEPER_ROOM: u16 = 2;
/// GUARDED: the file must not be there.
const GUARDED: u32 = 1;
/// The program that tells ports, its version, its port, and its procedure (RFC 1833, section 3).
const PORTS: (u32, u32, u32) = (100_000, 2, 3);
const PORTS_PORT: u16 = 111;
/// TCP, as that program knows it.
const TCP: u32 = 6;

impl Asking {
    /// Calls a procedure, again as long as the server says that it is to be; what it yields.
    async fn procedure<T>(
        &self,
        procedure: Procedure,
        write: impl Fn(&mut Writer),
        read: impl Fn(&mut Reader<'_>) -> Result<T, XdrError>,
    ) -> Result<T, ConnectError> {
        let what = procedure.name().unwrap_or_default();
        let asked = Asked::Procedure(procedure);
        let numbers = (NFS_PROGRAM, v3::VERSION, procedure.value());
        self.patiently(async || {
            let bytes = self.call_once(what, called(numbers, &write), TIMEOUT);
            Ok(results(&bytes.await?, asked, &read))
        })
        .await
    }

    /// Asks whether the server lives.
    pub(crate) async fn is_alive(&self, timeout: Duration) -> Result<(), ConnectError> {
        let numbers = (NFS_PROGRAM, v3::VERSION, Procedure::Null.value());
        let answer = self.call_once("NULL", called(numbers, |_| {}), timeout);
        answer.await.map(drop)
    }

    pub(crate) async fn attributes_of_3(
        &self,
        file: &FileHandle,
    ) -> Result<Attributes, ConnectError> {
        let write = |writer: &mut Writer| writer.opaque(file.bytes());
        let procedure = Procedure::Getattr;
        self.procedure(procedure, write, Attributes::parse).await
    }

    pub(crate) async fn commit_of_3(&self, file: &FileHandle) -> Result<[u8; 8], ConnectError> {
        let write = |writer: &mut Writer| {
            writer.opaque(file.bytes());
            // The whole.
            writer.u64(0);
            writer.u32(0);
        };
        let read = |reader: &mut Reader<'_>| {
            v3::parse_change(reader)?;
            reader.fixed()
        };
        self.procedure(Procedure::Commit, write, read).await
    }

    /// Writes on stable storage: the number of bytes, and how they were written.
    pub(crate) async fn write_of_3(
        &self,
        file: &FileHandle,
        offset: u64,
        data: &[u8],
    ) -> Result<(u32, u32), ConnectError> {
        let write = |writer: &mut Writer| {
            writer.opaque(file.bytes());
            writer.u64(offset);
            writer.u32(data.len() as u32);
            writer.u32(stable::FILE_SYNC);
            writer.opaque(data);
        };
        let read = |reader: &mut Reader<'_>| {
            v3::parse_change(reader)?;
            Ok((reader.u32()?, reader.u32()?))
        };
        self.procedure(Procedure::Write, write, read).await
    }

    async fn set_size(&self, file: &FileHandle, size: u64) -> Result<Attributes, ConnectError> {
        let changes = AttributeChanges {
            size: Some(size),
            ..AttributeChanges::default()
        };
        let write = |writer: &mut Writer| {
            writer.opaque(file.bytes());
            v3::write_changes(&changes, writer);
            writer.bool(false);
        };
        let set = self.procedure(Procedure::Setattr, write, v3::parse_change);
        match set.await? {
            Some(attributes) => Ok(attributes),
            None => self.attributes_of_3(file).await,
        }
    }

    /// Finds a file by its name in a directory.
    async fn look_up(
        &self,
        directory: &FileHandle,
        name: &str,
    ) -> Result<(FileHandle, Attributes), ConnectError> {
        let write = |writer: &mut Writer| write_place(writer, directory, name);
        let read =
            |reader: &mut Reader<'_>| Ok((parse_handle(reader)?, Attributes::parse_told(reader)?));
        let (file, told) = self.procedure(Procedure::Lookup, write, read).await?;
        match told {
            Some(attributes) => Ok((file, attributes)),
            None => Ok((file, self.attributes_of_3(&file).await?)),
        }
    }

    /// Makes a file that is not there.
    async fn create(
        &self,
        directory: &FileHandle,
        name: &str,
        size: u64,
    ) -> Result<(FileHandle, Attributes), ConnectError> {
        let changes = AttributeChanges {
            size: Some(size),
            mode: Some(MODE),
            ..AttributeChanges::default()
        };
        let write = |writer: &mut Writer| {
            write_place(writer, directory, name);
            writer.u32(GUARDED);
            v3::write_changes(&changes, writer);
        };
        // It need not say which file it made.
        let made = self.procedure(Procedure::Create, write, |_| Ok(()));
        made.await?;
        let (file, mut attributes) = self.look_up(directory, name).await?;
        if attributes.size != size {
            attributes = self.set_size(&file, size).await?;
        }
        Ok((file, attributes))
    }

    /// The rights that this user has to a file, of those that are asked for.
    async fn rights(&self, file: &FileHandle, wanted: u32) -> Result<u32, ConnectError> {
        let write = |writer: &mut Writer| {
            writer.opaque(file.bytes());
            writer.u32(wanted);
        };
        let read = |reader: &mut Reader<'_>| {
            Attributes::parse_told(reader)?;
            reader.u32()
        };
        self.procedure(Procedure::Access, write, read).await
    }

    /// Bytes of a read and of a write at most.
    async fn transfers(&self, file: &FileHandle) -> Result<Way, ConnectError> {
        let write = |writer: &mut Writer| writer.opaque(file.bytes());
        let read = |reader: &mut Reader<'_>| {
            Attributes::parse_told(reader)?;
            let (read_bytes_max, _best, _multiple) = (reader.u32()?, reader.u32()?, reader.u32()?);
            Ok(Way::V3 {
                read_bytes_max,
                write_bytes_max: reader.u32()?,
            })
        };
        self.procedure(Procedure::Fsinfo, write, read).await
    }
}

fn called(numbers: (u32, u32, u32), write: impl Fn(&mut Writer)) -> Called {
    let mut writer = Writer::new();
    write(&mut writer);
    Called {
        numbers,
        arguments: writer.into_bytes(),
    }
}

/// Reads a status and what follows it.
fn results<T>(
    bytes: &[u8],
    operation: Asked,
    read: impl Fn(&mut Reader<'_>) -> Result<T, XdrError>,
) -> Result<T, Failure> {
    let mut reader = Reader::new(bytes);
    let nonsense = |error| Failure::Nonsense { operation, error };
    match Status::from_value(reader.u32().map_err(nonsense)?) {
        Status::Ok => read(&mut reader).map_err(nonsense),
        status => Err(Failure::Status { operation, status }),
    }
}

fn write_place(writer: &mut Writer, directory: &FileHandle, name: &str) {
    writer.opaque(directory.bytes());
    writer.opaque(name.as_bytes());
}

fn parse_handle(reader: &mut Reader<'_>) -> Result<FileHandle, XdrError> {
    v3::handle(reader)?.ok_or(XdrError::Undefined(0))
}

/// Finds the file: the one that was used before, if any.
pub(crate) async fn begin(
    asking: &Asking,
    remote: &File,
    address: SocketAddr,
) -> Result<Begun, ConnectError> {
    let Remote { options, host, .. } = remote;
    let connection = &asking.caller.connection;
    connection.with(|channel| channel.make_room(KEEPER_ROOM));
    let handle = host.lasting().handle;
    let explain = |error| explain(error, options, host);
    let (file, attributes) = match handle {
        Some(handle) => {
            let attributes = asking.attributes_of_3(&handle).await;
            (handle, attributes.map_err(explain)?)
        }
        None => by_name(asking, options, host, address).await?,
    };
    let wanted = match host.read_only {
        true => access::READ,
        false => access::READ | access::MODIFY,
    };
    if asking.rights(&file, wanted).await? & wanted != wanted {
        return Err(ConnectError::NotAllowed {
            path: options.path_text(),
            read_only: host.read_only,
            uid: host.uid,
            status: Status::Access,
        });
    }
    let way = asking.transfers(&file).await?;
    Ok(Begun {
        attributes: way.attributes(&attributes),
        way,
        file: (file, StateId::ANONYMOUS),
    })
}

async fn by_name(
    asking: &Asking,
    options: &Options,
    host: &Identity,
    address: SocketAddr,
) -> Result<(FileHandle, Attributes), ConnectError> {
    asking
        .is_alive(TIMEOUT)
        .await
        .map_err(|error| match error {
            ConnectError::Refused(NOT_SERVED) => ConnectError::Version {
                version: Version::V3,
            },
            error => error,
        })?;
    let directory = mount(asking, options, host, address).await?;
    let name = options.path.last().expect("a path has a name");
    let explain = |error| explain(error, options, host);
    let found = asking.look_up(&directory, name).await;
    let is_missing = matches!(
        &found,
        Err(ConnectError::Operation(failure)) if failure.status() == Some(Status::Noent)
    );
    match options.size.filter(|_| is_missing && !host.read_only) {
        Some(size) => {
            let made = asking.create(&directory, name, size).await;
            tracing::info!(path = options.path_text(), size, "made the file");
            made.map_err(explain)
        }
        None => found.map_err(explain),
    }
}

/// Asks MOUNT for the directory that the file is in.
async fn mount(
    asking: &Asking,
    options: &Options,
    host: &Identity,
    address: SocketAddr,
) -> Result<FileHandle, ConnectError> {
    let directories = &options.path[..options.path.len() - 1];
    let path = format!("/{}", directories.join("/"));
    let numbers = (
        mount::PROGRAM,
        mount::VERSION,
        mount::Procedure::Mnt.value(),
    );
    let mnt = called(numbers, |writer| writer.opaque(path.as_bytes()));
    let reactor = &asking.caller.reactor;
    let at = |port| SocketAddr::new(address.ip(), port);
    let bytes = match options.mount_port {
        Some(port) if port != address.port() => ask_at(reactor, host, at(port), "MNT", mnt).await,
        // Many a server has MOUNT at the port of NFS.
        _ => match asking.call_once("MNT", mnt.clone(), TIMEOUT).await {
            Err(ConnectError::Refused(NOT_SERVED)) if options.mount_port.is_none() => {
                let port = port_of_mount(reactor, host, at(PORTS_PORT)).await?;
                ask_at(reactor, host, at(port), "MNT", mnt).await
            }
            answered => answered,
        },
    };
    let asked = Asked::Mount(mount::Procedure::Mnt);
    results(&bytes?, asked, parse_handle).map_err(|failure| match failure.status() {
        Some(status) => ConnectError::NoDirectory { path, status },
        None => failure.into(),
    })
}

/// Asks the server's rpcbind for the port of MOUNT.
async fn port_of_mount(
    reactor: &Reactor,
    host: &Identity,
    address: SocketAddr,
) -> Result<u16, ConnectError> {
    let get_port = called(PORTS, |writer| {
        for word in [mount::PROGRAM, mount::VERSION, TCP, 0] {
            writer.u32(word);
        }
    });
    let told = ask_at(reactor, host, address, "GETPORT", get_port).await;
    let missing = |reason: String| ConnectError::NoMount { reason };
    let told = told.map_err(|error| missing(format!("rpcbind at {address}: {error}")))?;
    let port = Reader::new(&told).u32().unwrap_or_default();
    match u16::try_from(port) {
        Ok(port @ 1..) => Ok(port),
        _ => Err(missing("its rpcbind knows of no MOUNT".to_owned())),
    }
}

/// Asks one thing over a connection of its own.
async fn ask_at(
    reactor: &Reactor,
    host: &Identity,
    address: SocketAddr,
    what: &'static str,
    called: Called,
) -> Result<Vec<u8>, ConnectError> {
    let socket = weir_reactor::SocketOptions::default();
    let stream = connect(reactor, &[address], &socket, CONNECT_TIMEOUT).await;
    let stream = stream.map_err(|error| ConnectError::Connect(error.to_string()))?;
    let channel = Channel::new(&host.credential(), None);
    let asking = Asking {
        caller: Caller::start(reactor, stream, channel),
    };
    let _guard = CloseOnDrop::new(&asking.caller.connection);
    asking.call_once(what, called, TIMEOUT).await
}
