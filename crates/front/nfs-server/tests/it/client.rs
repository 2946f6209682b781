//! A small client of version 4.1 and 4.2.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use weir_nfs::attribute::{AttributeChanges, Bitmap, number};
use weir_nfs::record::Fragment;
use weir_nfs::rpc::{Call, Credential, NFS_PROGRAM, RPC_VERSION, Reply};
use weir_nfs::types::{ChannelAttributes, StateId};
use weir_nfs::{OperationNumber, Reader, SessionId, Status, Writer};

/// Operations of a COMPOUND.
#[derive(Default, Clone)]
pub(crate) struct Ops {
    writer: Writer,
    count: u32,
}

pub(crate) fn ops() -> Ops {
    Ops::default()
}

impl Ops {
    pub(crate) fn raw(mut self, number: u32, write: impl FnOnce(&mut Writer)) -> Self {
        self.writer.u32(number);
        write(&mut self.writer);
        self.count += 1;
        self
    }

    fn op(self, number: OperationNumber, write: impl FnOnce(&mut Writer)) -> Self {
        self.raw(number.value(), write)
    }

    pub(crate) fn root(self) -> Self {
        self.op(OperationNumber::Putrootfh, |_| {})
    }

    pub(crate) fn share(self) -> Self {
        self.root().lookup("exports").lookup("share")
    }

    pub(crate) fn put(self, handle: &[u8]) -> Self {
        self.op(OperationNumber::Putfh, |writer| writer.opaque(handle))
    }

    pub(crate) fn get(self) -> Self {
        self.op(OperationNumber::Getfh, |_| {})
    }

    pub(crate) fn save(self) -> Self {
        self.op(OperationNumber::Savefh, |_| {})
    }

    pub(crate) fn lookup(self, name: &str) -> Self {
        self.op(OperationNumber::Lookup, |writer| {
            writer.opaque(name.as_bytes())
        })
    }

    pub(crate) fn parent(self) -> Self {
        self.op(OperationNumber::Lookupp, |_| {})
    }

    pub(crate) fn attributes(self, numbers: &[u32]) -> Self {
        self.op(OperationNumber::Getattr, |writer| {
            Bitmap::of(numbers).write(writer)
        })
    }

    pub(crate) fn access(self, wanted: u32) -> Self {
        self.op(OperationNumber::Access, |writer| writer.u32(wanted))
    }

    pub(crate) fn set(self, stateid: &StateId, changes: &AttributeChanges) -> Self {
        self.op(OperationNumber::Setattr, |writer| {
            stateid.write(writer);
            changes.write(writer);
        })
    }

    pub(crate) fn make_directory(self, name: &str) -> Self {
        self.op(OperationNumber::Create, |writer| {
            writer.u32(2);
            writer.opaque(name.as_bytes());
            AttributeChanges::default().write(writer);
        })
    }

    pub(crate) fn remove(self, name: &str) -> Self {
        self.op(OperationNumber::Remove, |writer| {
            writer.opaque(name.as_bytes())
        })
    }

    pub(crate) fn rename(self, from: &str, to: &str) -> Self {
        self.op(OperationNumber::Rename, |writer| {
            writer.opaque(from.as_bytes());
            writer.opaque(to.as_bytes());
        })
    }

    pub(crate) fn list(self, cookie: u64, bytes: u32, numbers: &[u32]) -> Self {
        self.op(OperationNumber::Readdir, |writer| {
            writer.u64(cookie);
            writer.fixed(&[0; 8]);
            writer.u32(bytes);
            writer.u32(bytes);
            Bitmap::of(numbers).write(writer);
        })
    }

    /// Opens a file of a name; makes it where `make`.
    pub(crate) fn open(self, owner: &str, name: &str, access: u32, deny: u32, make: bool) -> Self {
        self.op(OperationNumber::Open, |writer| {
            for word in [0, access, deny] {
                writer.u32(word);
            }
            writer.u64(0);
            writer.opaque(owner.as_bytes());
            writer.u32(make.into());
            if make {
                writer.u32(0);
                AttributeChanges::default().write(writer);
            }
            writer.u32(0);
            writer.opaque(name.as_bytes());
        })
    }

    /// Opens the current file as it was before the server started.
    pub(crate) fn reopen(self, owner: &str, access: u32) -> Self {
        self.op(OperationNumber::Open, |writer| {
            for word in [0, access, 0] {
                writer.u32(word);
            }
            writer.u64(0);
            writer.opaque(owner.as_bytes());
            writer.u32(0);
            writer.u32(1);
            writer.u32(0);
        })
    }

    pub(crate) fn close(self, stateid: &StateId) -> Self {
        self.op(OperationNumber::Close, |writer| {
            writer.u32(0);
            stateid.write(writer);
        })
    }

    pub(crate) fn read(self, stateid: &StateId, offset: u64, count: u32) -> Self {
        self.op(OperationNumber::Read, |writer| {
            stateid.write(writer);
            writer.u64(offset);
            writer.u32(count);
        })
    }

    pub(crate) fn write(self, stateid: &StateId, offset: u64, stable: u32, data: &[u8]) -> Self {
        self.op(OperationNumber::Write, |writer| {
            stateid.write(writer);
            writer.u64(offset);
            writer.u32(stable);
            writer.opaque(data);
        })
    }

    pub(crate) fn commit(self) -> Self {
        self.op(OperationNumber::Commit, |writer| {
            writer.u64(0);
            writer.u32(0);
        })
    }

    pub(crate) fn allocate(self, stateid: &StateId, offset: u64, length: u64) -> Self {
        self.op(OperationNumber::Allocate, |writer| {
            write_range(writer, stateid, offset, length)
        })
    }

    pub(crate) fn deallocate(self, stateid: &StateId, offset: u64, length: u64) -> Self {
        self.op(OperationNumber::Deallocate, |writer| {
            write_range(writer, stateid, offset, length)
        })
    }

    /// Looks for data (0) or a hole (1).
    pub(crate) fn seek(self, stateid: &StateId, offset: u64, content: u32) -> Self {
        self.op(OperationNumber::Seek, |writer| {
            stateid.write(writer);
            writer.u64(offset);
            writer.u32(content);
        })
    }

    /// Copies a range of the saved file to the current one.
    pub(crate) fn copy(self, opens: (&StateId, &StateId), offsets: (u64, u64), count: u64) -> Self {
        self.op(OperationNumber::Copy, |writer| {
            write_two_ranges(writer, opens, offsets, count);
            writer.bool(true);
            writer.bool(true);
            writer.u32(0);
        })
    }

    pub(crate) fn clone_range(
        self,
        opens: (&StateId, &StateId),
        offsets: (u64, u64),
        count: u64,
    ) -> Self {
        self.op(OperationNumber::Clone, |writer| {
            write_two_ranges(writer, opens, offsets, count);
        })
    }

    /// Locks a range under an open.
    pub(crate) fn lock(
        self,
        open: &StateId,
        owner: &str,
        range: (u64, u64),
        is_exclusive: bool,
    ) -> Self {
        self.op(OperationNumber::Lock, |writer| {
            writer.u32(if is_exclusive { 2 } else { 1 });
            writer.bool(false);
            writer.u64(range.0);
            writer.u64(range.1);
            writer.bool(true);
            writer.u32(0);
            open.write(writer);
            writer.u32(0);
            writer.u64(0);
            writer.opaque(owner.as_bytes());
        })
    }

    pub(crate) fn unlock(self, stateid: &StateId, range: (u64, u64)) -> Self {
        self.op(OperationNumber::Locku, |writer| {
            writer.u32(1);
            writer.u32(0);
            stateid.write(writer);
            writer.u64(range.0);
            writer.u64(range.1);
        })
    }

    pub(crate) fn complete(self) -> Self {
        self.op(OperationNumber::ReclaimComplete, |writer| {
            writer.bool(false)
        })
    }

    pub(crate) fn sequence(
        self,
        session: &SessionId,
        sequence: u32,
        slot: u32,
        kept: bool,
    ) -> Self {
        let before = Ops::default().op(OperationNumber::Sequence, |writer| {
            writer.fixed(&session.0);
            writer.u32(sequence);
            writer.u32(slot);
            writer.u32(slot);
            writer.bool(kept);
        });
        let mut writer = before.writer;
        writer.raw(self.writer.bytes());
        Ops {
            writer,
            count: self.count + 1,
        }
    }
}

fn write_range(writer: &mut Writer, stateid: &StateId, offset: u64, length: u64) {
    stateid.write(writer);
    writer.u64(offset);
    writer.u64(length);
}

fn write_two_ranges(
    writer: &mut Writer,
    opens: (&StateId, &StateId),
    offsets: (u64, u64),
    count: u64,
) {
    opens.0.write(writer);
    opens.1.write(writer);
    for word in [offsets.0, offsets.1, count] {
        writer.u64(word);
    }
}

/// The results of a COMPOUND.
pub(crate) struct Results {
    bytes: Vec<u8>,
    /// The first byte behind the header.
    start: usize,
    pub(crate) status: Status,
    /// Number of results.
    pub(crate) count: u32,
}

impl Results {
    /// A reader behind the header of the first result.
    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader::new(&self.bytes[self.start..])
    }

    /// The bytes of the whole, from the status on.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[24..]
    }

    /// The same, where all went well, behind the result of SEQUENCE.
    pub(crate) fn ok(&self) -> Reader<'_> {
        assert_eq!(self.status, Status::Ok);
        let mut reader = self.reader();
        skip_sequence(&mut reader);
        reader
    }
}

/// Reads the header of a result that went well.
pub(crate) fn result(reader: &mut Reader<'_>, number: OperationNumber) {
    assert_eq!(OperationNumber::from_value(reader.u32().unwrap()), number);
    assert_eq!(Status::from_value(reader.u32().unwrap()), Status::Ok);
}

fn skip_sequence(reader: &mut Reader<'_>) {
    result(reader, OperationNumber::Sequence);
    reader.fixed::<16>().unwrap();
    for _ in 0..5 {
        reader.u32().unwrap();
    }
}

/// Skips results of operations that yield nothing.
pub(crate) fn skip(reader: &mut Reader<'_>, numbers: &[OperationNumber]) {
    numbers.iter().for_each(|&number| result(reader, number));
}

/// Skips the results of [`Ops::share`].
pub(crate) fn skip_share(reader: &mut Reader<'_>) {
    use OperationNumber as Number;
    skip(reader, &[Number::Putrootfh, Number::Lookup, Number::Lookup]);
}

/// Reads what GETFH yields.
pub(crate) fn handle(reader: &mut Reader<'_>) -> Vec<u8> {
    result(reader, OperationNumber::Getfh);
    reader.opaque(128).unwrap().to_vec()
}

/// Reads what OPEN yields.
pub(crate) fn opened(reader: &mut Reader<'_>) -> StateId {
    result(reader, OperationNumber::Open);
    let stateid = StateId::parse(reader).unwrap();
    reader.fixed::<20>().unwrap();
    reader.u32().unwrap();
    Bitmap::parse(reader).unwrap();
    assert_eq!(reader.u32(), Ok(0), "no delegation");
    stateid
}

/// Reads what READ yields.
pub(crate) fn data(reader: &mut Reader<'_>) -> (bool, Vec<u8>) {
    result(reader, OperationNumber::Read);
    let is_end = reader.bool().unwrap();
    (is_end, reader.opaque(2 << 20).unwrap().to_vec())
}

/// Reads what WRITE yields: bytes, how they were written, and the verifier.
pub(crate) fn written(reader: &mut Reader<'_>) -> (u32, u32, [u8; 8]) {
    result(reader, OperationNumber::Write);
    let (count, stable) = (reader.u32().unwrap(), reader.u32().unwrap());
    (count, stable, reader.fixed().unwrap())
}

/// A connection.
pub(crate) struct Connection {
    stream: TcpStream,
    xid: u32,
}

impl Connection {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Connection { stream, xid: 100 }
    }

    pub(crate) fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Sends a call with these arguments, and yields its number.
    pub(crate) fn send_call(
        &mut self,
        numbers: (u32, u32, u32),
        arguments: &[u8],
    ) -> std::io::Result<u32> {
        self.xid += 1;
        self.send_again(numbers, arguments)
    }

    /// Sends a call with the number of the last one.
    pub(crate) fn send_again(
        &mut self,
        numbers: (u32, u32, u32),
        arguments: &[u8],
    ) -> std::io::Result<u32> {
        let call = Call {
            xid: self.xid,
            rpc_version: RPC_VERSION,
            program: numbers.0,
            version: numbers.1,
            procedure: numbers.2,
            credential: Credential::None,
        };
        let mut writer = Writer::new();
        call.write(&mut writer);
        writer.raw(arguments);
        let header = Fragment {
            length: writer.len() as u32,
            is_last: true,
        };
        let record = [&header.to_bytes()[..], writer.bytes()].concat();
        self.stream.write_all(&record)?;
        Ok(self.xid)
    }

    /// Receives a reply.
    pub(crate) fn receive(&mut self) -> std::io::Result<Vec<u8>> {
        let mut header = [0; 4];
        self.stream.read_exact(&mut header)?;
        let fragment = Fragment::parse(header);
        assert!(fragment.is_last, "replies are of one fragment");
        let mut bytes = vec![0; fragment.length as usize];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn send(&mut self, minor: u32, ops: &Ops) -> u32 {
        let mut arguments = Writer::new();
        arguments.opaque(b"tag");
        arguments.u32(minor);
        arguments.u32(ops.count);
        arguments.raw(ops.writer.bytes());
        let numbers = (NFS_PROGRAM, 4, 1);
        self.send_call(numbers, arguments.bytes()).unwrap()
    }

    pub(crate) fn results(&mut self) -> (u32, Results) {
        let bytes = self.receive().unwrap();
        let mut reader = Reader::new(&bytes);
        let (xid, reply) = Reply::parse(&mut reader).unwrap();
        assert_eq!(reply, Reply::Success);
        let status = Status::from_value(reader.u32().unwrap());
        assert_eq!(reader.opaque(10), Ok(&b"tag"[..]));
        let count = reader.u32().unwrap();
        let start = reader.position();
        let results = Results {
            bytes,
            start,
            status,
            count,
        };
        (xid, results)
    }

    pub(crate) fn call(&mut self, minor: u32, ops: &Ops) -> Results {
        let xid = self.send(minor, ops);
        let (answered, results) = self.results();
        assert_eq!(answered, xid);
        results
    }

    /// Introduces a client: its number, the number of its next CREATE_SESSION, and flags.
    pub(crate) fn introduce(&mut self, name: &str, verifier: u64) -> (u64, u32, u32) {
        let ops = ops().op(OperationNumber::ExchangeId, |writer| {
            writer.u64(verifier);
            writer.opaque(name.as_bytes());
            for word in [0, 0, 0] {
                writer.u32(word);
            }
        });
        let results = self.call(2, &ops);
        assert_eq!(results.status, Status::Ok);
        let mut reader = results.reader();
        result(&mut reader, OperationNumber::ExchangeId);
        (
            reader.u64().unwrap(),
            reader.u32().unwrap(),
            reader.u32().unwrap(),
        )
    }

    /// Makes a session.
    pub(crate) fn create_session(
        &mut self,
        client: u64,
        sequence: u32,
        slots: u32,
    ) -> Result<(SessionId, ChannelAttributes), Status> {
        self.create_session_of(client, sequence, slots, 1 << 21)
    }

    /// The same, whose replies have so many bytes at most.
    pub(crate) fn create_session_of(
        &mut self,
        client: u64,
        sequence: u32,
        slots: u32,
        reply_bytes_max: u32,
    ) -> Result<(SessionId, ChannelAttributes), Status> {
        let channel = ChannelAttributes {
            header_pad: 0,
            request_bytes_max: 1 << 21,
            reply_bytes_max,
            kept_reply_bytes_max: 4096,
            operations_max: 16,
            slots,
        };
        let ops = ops().op(OperationNumber::CreateSession, |writer| {
            writer.u64(client);
            writer.u32(sequence);
            writer.u32(0);
            channel.write(writer);
            channel.write(writer);
            writer.u32(0);
            writer.u32(0);
        });
        let results = self.call(2, &ops);
        if results.status != Status::Ok {
            return Err(results.status);
        }
        let mut reader = results.reader();
        result(&mut reader, OperationNumber::CreateSession);
        let session = SessionId(reader.fixed().unwrap());
        reader.u32().unwrap();
        reader.u32().unwrap();
        Ok((session, ChannelAttributes::parse(&mut reader).unwrap()))
    }
}

/// A client with a session and one connection.
pub(crate) struct Client {
    pub(crate) connection: Connection,
    pub(crate) id: u64,
    pub(crate) session: SessionId,
    pub(crate) sequence: u32,
}

impl Client {
    pub(crate) fn new(address: SocketAddr, name: &str) -> Self {
        let mut client = Client::without_completion(address, name, 1);
        client.call(ops().complete()).ok();
        client
    }

    /// The same before it has said that it reclaims nothing.
    pub(crate) fn without_completion(address: SocketAddr, name: &str, verifier: u64) -> Self {
        let mut connection = Connection::new(address);
        let (id, sequence, _) = connection.introduce(name, verifier);
        let (session, _) = connection.create_session(id, sequence, 64).unwrap();
        Client {
            connection,
            id,
            session,
            sequence: 0,
        }
    }

    pub(crate) fn call(&mut self, ops: Ops) -> Results {
        self.sequence += 1;
        let ops = ops.sequence(&self.session, self.sequence, 0, false);
        self.connection.call(2, &ops)
    }

    pub(crate) fn status(&mut self, ops: Ops) -> Status {
        self.call(ops).status
    }

    /// Opens a file of the share, made where it is not there.
    pub(crate) fn open(&mut self, owner: &str, name: &str, access: u32) -> (StateId, Vec<u8>) {
        let results = self.call(ops().share().open(owner, name, access, 0, true).get());
        let mut reader = results.ok();
        skip_share(&mut reader);
        (opened(&mut reader), handle(&mut reader))
    }
}

/// Reads the attributes of one GETATTR that asks for type and size.
pub(crate) fn type_and_size(reader: &mut Reader<'_>) -> (u32, u64) {
    result(reader, OperationNumber::Getattr);
    let bitmap = Bitmap::parse(reader).unwrap();
    assert_eq!(bitmap, Bitmap::of(&[number::TYPE, number::SIZE]));
    assert_eq!(reader.u32(), Ok(12));
    (reader.u32().unwrap(), reader.u64().unwrap())
}
