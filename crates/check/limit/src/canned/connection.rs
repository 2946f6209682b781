//! One connection of the canned responder: received bytes in, answers out.
//!
//! Only headers are looked at; data of any kind is counted and dropped.

use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use weir_nvme::command::{Connect, ConnectAttributes, FabricsCommand};
use weir_nvme::opcode::NvmOpcode;
use weir_nvme::sgl::Payload;
use weir_nvme::tcp::{
    CommonHeader, DigestOptions, InitializeRequest, InitializeResponse, PduFlags, PduType, R2t,
};
use weir_nvme::{Cqe, Sqe, Status};

use super::admin::{
    self, BLOCK_BYTES, Controller, DATA_BYTES_MAX, IN_CAPSULE_BYTES_MAX, NAMESPACE_BYTES,
};
use super::outgoing::Outgoing;

/// SQHD in the answer to a Connect whose wish for no SQ flow control is granted (NVMe Base 2.0c section 6.3).
const FLOW_CONTROL_OFF: u16 = 0xffff;
/// The longest header that is looked at: ICReq.
const HEADER_BYTES_MAX: usize = InitializeRequest::SIZE;
/// Lengths of headers (NVMe/TCP Transport 1.0c section 3.6.2).
const COMMAND_HEADER: u8 = 72;
const DATA_HEADER: u8 = 24;

/// Whether a connection is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Open,
    Closed,
}

/// What is done when the data that is being dropped has all arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    Nothing,
    /// A command is answered.
    Answer(Cqe),
    /// A write has all its data.
    Written {
        cid: u16,
    },
}

/// What a connection is.
enum Role {
    /// No ICReq yet.
    New,
    /// No Connect yet.
    Initialized,
    Admin(Controller),
    Io,
}

pub(super) struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    role: Role,
    /// Start of a header whose rest has not arrived.
    partial: [u8; HEADER_BYTES_MAX],
    partial_length: usize,
    /// Bytes of data that are still to be dropped, and what follows then.
    dropping: usize,
    after: After,
    outgoing: Outgoing,
    queue_entries: u32,
    /// Commands that were taken, modulo the queue's entries: SQHD.
    head: u16,
    success_flag: bool,
    operations: u64,
}

fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.into())
}

impl Connection {
    pub(super) fn new(stream: TcpStream, peer: SocketAddr) -> Self {
        Connection {
            stream,
            peer,
            role: Role::New,
            partial: [0; HEADER_BYTES_MAX],
            partial_length: 0,
            dropping: 0,
            after: After::Nothing,
            outgoing: Outgoing::default(),
            queue_entries: 1,
            head: 0,
            success_flag: false,
            operations: 0,
        }
    }

    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub(super) fn is_io(&self) -> bool {
        matches!(self.role, Role::Io)
    }

    /// Reads and writes that were answered so far.
    pub(super) fn operations(&self) -> u64 {
        self.operations
    }

    /// Sends and receives until nothing more can be done.
    pub(super) fn turn(&mut self, buffer: &mut [u8]) -> io::Result<Turn> {
        loop {
            self.outgoing.send(&self.stream)?;
            // The peer is to take its answers before more is read: nothing grows here.
            if !self.outgoing.is_empty() {
                return Ok(Turn::Open);
            }
            let bytes = match (&self.stream).read(buffer) {
                Ok(0) => return Ok(Turn::Closed),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Turn::Open),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.take(&buffer[..bytes])?;
            self.outgoing.send(&self.stream)?;
            // A short receive found the socket empty, and more is a new edge.
            if bytes < buffer.len() && self.outgoing.is_empty() {
                return Ok(Turn::Open);
            }
        }
    }

    fn take(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.dropping > 0 {
                let dropped = self.dropping.min(bytes.len());
                bytes = &bytes[dropped..];
                self.dropping -= dropped;
                if self.dropping == 0 {
                    self.finish();
                }
            } else if self.partial_length == 0
                && let Some(length) = header_length(bytes)?
                && length <= bytes.len()
            {
                self.pdu(&bytes[..length])?;
                bytes = &bytes[length..];
            } else {
                bytes = self.complete(bytes)?;
            }
        }
        Ok(())
    }

    /// Adds to a header of which only part has arrived; what is left of `bytes`.
    fn complete<'a>(&mut self, bytes: &'a [u8]) -> io::Result<&'a [u8]> {
        let have = self.partial_length;
        let wanted = header_length(&self.partial[..have])?.unwrap_or(CommonHeader::SIZE);
        let added = (wanted - have).min(bytes.len());
        self.partial[have..have + added].copy_from_slice(&bytes[..added]);
        self.partial_length = have + added;
        let header = self.partial;
        if header_length(&header[..self.partial_length])? == Some(self.partial_length) {
            let length = std::mem::take(&mut self.partial_length);
            self.pdu(&header[..length])?;
        }
        Ok(&bytes[added..])
    }

    /// A whole header.
    fn pdu(&mut self, header: &[u8]) -> io::Result<()> {
        let common = common(header);
        let data = (common.length as usize)
            .checked_sub(header.len())
            .filter(|length| *length <= DATA_BYTES_MAX as usize)
            .ok_or_else(|| wrong(format!("a PDU with a length of {} bytes", common.length)))?;
        self.after = After::Nothing;
        match (common.pdu_type, &self.role) {
            (PduType::InitializeRequest, Role::New) => self.initialize(header)?,
            (PduType::CapsuleCommand, Role::Initialized) => self.connect(&entry(header), data)?,
            (PduType::CapsuleCommand, Role::Admin(_)) => self.admin(&entry(header), data)?,
            (PduType::CapsuleCommand, Role::Io) => self.io(&entry(header), data)?,
            (PduType::H2cData, Role::Io) if common.flags.contains(PduFlags::LAST) => {
                let cid = u16::from_le_bytes([header[8], header[9]]);
                self.after = After::Written { cid };
            }
            (PduType::H2cData, Role::Io) => {}
            (PduType::H2cTermination, _) => return Err(wrong("the host ended the connection")),
            (other, _) => return Err(wrong(format!("a PDU of type {other:?} out of its place"))),
        }
        self.dropping = data;
        if data == 0 {
            self.finish();
        }
        Ok(())
    }

    /// All data of a PDU has arrived.
    fn finish(&mut self) {
        match std::mem::replace(&mut self.after, After::Nothing) {
            After::Nothing => {}
            After::Answer(cqe) => self.outgoing.response(&cqe),
            After::Written { cid } => {
                self.operations += 1;
                let cqe = Cqe::new(cid, self.head, Status::SUCCESS);
                self.outgoing.response(&cqe);
            }
        }
    }

    fn initialize(&mut self, header: &[u8]) -> io::Result<()> {
        let header: &[u8; InitializeRequest::SIZE] = header
            .try_into()
            .map_err(|_| wrong("an ICReq of a wrong length"))?;
        let request = InitializeRequest::decode(header);
        if request.alignment != 0 {
            return Err(wrong(
                "the host wants its data aligned; this responder cannot",
            ));
        }
        // No digests: a host that insists on them says so.
        let response = InitializeResponse::new(DigestOptions::NONE, DATA_BYTES_MAX);
        self.outgoing.append(&response.encode());
        self.role = Role::Initialized;
        Ok(())
    }

    fn connect(&mut self, sqe: &Sqe, data: usize) -> io::Result<()> {
        let Ok(FabricsCommand::Connect(connect)) = FabricsCommand::parse(sqe) else {
            return Err(wrong("a command before Connect"));
        };
        if data == 0 {
            return Err(wrong("a Connect without its data in the capsule"));
        }
        self.queue_entries = connect.queue_entries();
        self.success_flag = flow_control_off(&connect);
        let head = if self.success_flag {
            FLOW_CONTROL_OFF
        } else {
            self.next_head()
        };
        self.role = match connect.qid {
            0 => Role::Admin(Controller::default()),
            _ => Role::Io,
        };
        let cqe = Cqe::new(sqe.cid, head, Status::SUCCESS);
        self.after = After::Answer(cqe.with_result(u64::from(admin::CONTROLLER_ID)));
        Ok(())
    }

    fn admin(&mut self, sqe: &Sqe, data: usize) -> io::Result<()> {
        let head = self.next_head();
        let Role::Admin(controller) = &mut self.role else {
            return Err(wrong("an admin command on an I/O queue"));
        };
        match controller.command(sqe) {
            admin::Answer::Never => {}
            admin::Answer::Data(bytes) => {
                let room = match sqe.tcp_data() {
                    Ok(Payload::Transport { length }) => length as usize,
                    _ => 0,
                };
                if room < bytes.len() {
                    let status = Status::DATA_SGL_LENGTH_INVALID.with_do_not_retry();
                    self.after = After::Answer(Cqe::new(sqe.cid, head, status));
                } else {
                    self.outgoing.data(sqe.cid, &bytes);
                    self.after = After::Answer(Cqe::new(sqe.cid, head, Status::SUCCESS));
                }
            }
            admin::Answer::Status(status) => {
                self.after = After::Answer(Cqe::new(sqe.cid, head, status));
            }
            admin::Answer::Result(result) => {
                let cqe = Cqe::new(sqe.cid, head, Status::SUCCESS).with_result(result);
                self.after = After::Answer(cqe);
            }
        }
        if data > 0 && self.after == After::Nothing {
            return Err(wrong("data with a command that has none"));
        }
        Ok(())
    }

    fn io(&mut self, sqe: &Sqe, data: usize) -> io::Result<()> {
        let head = self.next_head();
        match NvmOpcode::from_value(sqe.opcode) {
            NvmOpcode::Read => self.read(sqe, head),
            NvmOpcode::Write => self.write(sqe, head, data),
            NvmOpcode::Flush => {
                self.after = After::Answer(Cqe::new(sqe.cid, head, Status::SUCCESS));
            }
            _ => {
                let status = Status::INVALID_COMMAND_OPCODE.with_do_not_retry();
                self.after = After::Answer(Cqe::new(sqe.cid, head, status));
            }
        }
        Ok(())
    }

    fn read(&mut self, sqe: &Sqe, head: u16) {
        let length = match extent(sqe) {
            Ok(length) => length,
            Err(status) => {
                self.after = After::Answer(Cqe::new(sqe.cid, head, status.with_do_not_retry()));
                return;
            }
        };
        self.operations += 1;
        self.outgoing.zeroes(sqe.cid, length, self.success_flag);
        if !self.success_flag {
            self.after = After::Answer(Cqe::new(sqe.cid, head, Status::SUCCESS));
        }
    }

    fn write(&mut self, sqe: &Sqe, head: u16, data: usize) {
        match (extent(sqe), sqe.tcp_data()) {
            (Err(status), _) | (_, Err(status)) => {
                self.after = After::Answer(Cqe::new(sqe.cid, head, status.with_do_not_retry()));
            }
            (Ok(length), Ok(Payload::Transport { .. })) if data == 0 => {
                self.outgoing.ready_to_transfer(&R2t {
                    cid: sqe.cid,
                    transfer_tag: sqe.cid,
                    offset: 0,
                    length,
                });
            }
            (Ok(length), Ok(Payload::InCapsule { .. }))
                if data == length as usize && length <= IN_CAPSULE_BYTES_MAX =>
            {
                self.after = After::Written { cid: sqe.cid };
            }
            _ => {
                let status = Status::DATA_SGL_LENGTH_INVALID.with_do_not_retry();
                self.after = After::Answer(Cqe::new(sqe.cid, head, status));
            }
        }
    }

    /// SQHD once one more command is taken.
    fn next_head(&mut self) -> u16 {
        self.head = ((u32::from(self.head) + 1) % self.queue_entries) as u16;
        self.head
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn flow_control_off(connect: &Connect) -> bool {
    let off = ConnectAttributes::DISABLE_SQ_FLOW_CONTROL;
    connect.qid != 0 && connect.attributes.contains(off)
}

fn common(header: &[u8]) -> CommonHeader {
    let (first, _) = header
        .split_first_chunk()
        .expect("a header is longer than what all begin with");
    CommonHeader::decode(first)
}

fn entry(header: &[u8]) -> Sqe {
    let (sqe, _) = header[CommonHeader::SIZE..]
        .split_first_chunk()
        .expect("the header's length was checked against its type");
    Sqe::decode(sqe)
}

/// How long the header that `bytes` start with is; none while that cannot be known.
fn header_length(bytes: &[u8]) -> io::Result<Option<usize>> {
    if bytes.len() < CommonHeader::SIZE {
        return Ok(None);
    }
    let common = common(bytes);
    let length = common.header_length;
    let fits = match common.pdu_type {
        PduType::CapsuleCommand => length == COMMAND_HEADER,
        PduType::H2cData => length == DATA_HEADER,
        PduType::InitializeRequest => usize::from(length) == InitializeRequest::SIZE,
        PduType::H2cTermination => length == DATA_HEADER,
        _ => false,
    };
    // Without digests and alignment, data follows its header at once.
    let at_once = common.data_offset == 0 || common.data_offset == length;
    if fits && at_once {
        Ok(Some(usize::from(length)))
    } else {
        Err(wrong(format!(
            "a PDU of type {:?} with a header of {length} bytes and data at {}",
            common.pdu_type, common.data_offset
        )))
    }
}

/// Bytes that a Read or Write moves.
fn extent(sqe: &Sqe) -> Result<u32, Status> {
    let lba = u64::from(sqe.cdw11) << 32 | u64::from(sqe.cdw10);
    let blocks = u64::from(sqe.cdw12 & 0xffff) + 1;
    if lba.saturating_add(blocks) > NAMESPACE_BYTES / u64::from(BLOCK_BYTES) {
        return Err(Status::LBA_OUT_OF_RANGE);
    }
    match blocks * u64::from(BLOCK_BYTES) {
        length if length <= u64::from(DATA_BYTES_MAX) => Ok(length as u32),
        _ => Err(Status::INVALID_FIELD_IN_COMMAND),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use weir_nvme::SglDescriptor;
    use weir_nvme::command::{Blocks, NvmCommand};
    use weir_nvme::tcp::{H2cData, Writer};

    fn io_connection() -> Connection {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let peer = stream.peer_addr().unwrap();
        let mut connection = Connection::new(stream, peer);
        connection.role = Role::Io;
        connection.queue_entries = 128;
        connection
    }

    fn capsule(command: &NvmCommand, cid: u16, sgl: SglDescriptor, data: u32) -> Vec<u8> {
        let mut bytes = vec![0; 144];
        let length =
            Writer::default().capsule_command(&mut bytes, &command.sqe(cid, NSID, sgl), data);
        bytes.truncate(length);
        bytes.resize(length + data as usize, 7);
        bytes
    }

    use super::super::NSID;

    fn load() -> Vec<u8> {
        let blocks = Blocks::new(8, 8);
        let mut bytes = Vec::new();
        for cid in 0..20 {
            let length = 8 * BLOCK_BYTES;
            bytes.extend(capsule(
                &NvmCommand::Read(blocks),
                cid,
                SglDescriptor::Transport { length },
                0,
            ));
            let inside = SglDescriptor::InCapsule { offset: 0, length };
            bytes.extend(capsule(
                &NvmCommand::Write(blocks),
                100 + cid,
                inside,
                length,
            ));
            let outside = SglDescriptor::Transport { length };
            bytes.extend(capsule(&NvmCommand::Write(blocks), 200 + cid, outside, 0));
            for (offset, last) in [(0, false), (length / 2, true)] {
                let data = H2cData {
                    cid: 200 + cid,
                    transfer_tag: 200 + cid,
                    offset,
                    length: length / 2,
                    last,
                };
                let mut header = [0; 144];
                let header_length = Writer::default().h2c_data(&mut header, &data);
                bytes.extend_from_slice(&header[..header_length]);
                bytes.resize(bytes.len() + length as usize / 2, 7);
            }
        }
        bytes
    }

    #[test]
    fn commands_are_counted_in_whatever_pieces_they_come() {
        let bytes = load();
        for piece in [1, 7, 71, 72, 73, 1000, 4168, bytes.len()] {
            let mut connection = io_connection();
            for part in bytes.chunks(piece) {
                connection.take(part).unwrap();
            }
            assert_eq!(connection.operations(), 60, "pieces of {piece}");
            assert_eq!((connection.dropping, connection.partial_length), (0, 0));
        }
    }

    #[test]
    fn what_is_beyond_the_namespace_is_refused_and_not_counted() {
        let mut connection = io_connection();
        let last = NAMESPACE_BYTES / u64::from(BLOCK_BYTES) - 1;
        let length = 2 * BLOCK_BYTES;
        let command = NvmCommand::Read(Blocks::new(last, 2));
        let bytes = capsule(&command, 1, SglDescriptor::Transport { length }, 0);
        connection.take(&bytes).unwrap();
        assert_eq!(connection.operations(), 0);
        assert!(!connection.outgoing.is_empty());
    }

    #[test]
    fn what_is_no_pdu_ends_the_connection() {
        for bytes in [[0xff; 72], [0; 72]] {
            assert!(io_connection().take(&bytes).is_err());
        }
        let mut long = capsule(&NvmCommand::Flush, 1, SglDescriptor::NONE, 0);
        long[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(io_connection().take(&long).is_err());
        let mut short = capsule(&NvmCommand::Flush, 1, SglDescriptor::NONE, 0);
        short[4..8].copy_from_slice(&8_u32.to_le_bytes());
        assert!(io_connection().take(&short).is_err());
    }
}
