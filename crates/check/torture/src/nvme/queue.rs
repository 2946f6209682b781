//! A peer that has become a queue of a controller: the well-behaved part of a case, in a line.

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use weir_nvme::command::{
    AdminCommand, Blocks, Connect, ConnectAttributes, ConnectData, ConnectResponse, FabricsCommand,
    Identify, NvmCommand, PropertyGet, PropertySet, PropertySize,
};
use weir_nvme::identify::Cns;
use weir_nvme::property::{Configuration, ControllerStatus, Property};
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::tcp::{DigestOptions, H2cData, InitializeRequest, R2t};
use weir_nvme::{Cqe, HostId, Nqn, Sqe, Status};

use crate::case::Failure;
use crate::connection::Manner;
use crate::nvme::peer::{Got, Peer};

/// In-capsule data that every admin and Fabrics command may bring (NVMe/TCP Transport 1.0c section 3.3.2.1), in bytes.
pub const ADMIN_IN_CAPSULE_BYTES: u32 = 8192;
/// A pause between two looks at a property that is waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// How a queue is made.
#[derive(Debug, Clone)]
pub struct QueueOptions {
    /// The subsystem.
    pub subsystem: Nqn,
    /// The host.
    pub host_nqn: Nqn,
    /// The host's identifier.
    pub host_id: HostId,
    /// Ask for header digests.
    pub header_digest: bool,
    /// Ask for data digests.
    pub data_digest: bool,
    /// HPDA.
    pub alignment: u8,
    /// Entries of the queue.
    pub entries: u16,
    /// Ask for no SQ flow control, so that reads may end with the success flag.
    pub flow_control_off: bool,
    /// KATO of the admin queue in milliseconds.
    pub keep_alive_ms: u32,
    /// CNTLID of the admin queue's Connect.
    pub controller_id: u16,
    /// Data of I/O commands up to so many bytes goes in the capsule.
    pub in_capsule_bytes: u32,
}

impl QueueOptions {
    /// A host of the usual kind.
    pub fn new(subsystem: Nqn, host_nqn: Nqn, host_id: HostId) -> Self {
        Self {
            subsystem,
            host_nqn,
            host_id,
            header_digest: false,
            data_digest: false,
            alignment: 0,
            entries: 32,
            flow_control_off: false,
            keep_alive_ms: 120_000,
            controller_id: ConnectData::ANY_CONTROLLER,
            in_capsule_bytes: 0,
        }
    }

    /// With both digests.
    #[must_use]
    pub fn with_digests(mut self) -> Self {
        self.header_digest = true;
        self.data_digest = true;
        self
    }

    /// ICReq.
    pub fn request(&self) -> InitializeRequest {
        let mut digests = DigestOptions::NONE;
        if self.header_digest {
            digests = digests | DigestOptions::HEADER;
        }
        if self.data_digest {
            digests = digests | DigestOptions::DATA;
        }
        InitializeRequest {
            alignment: self.alignment,
            ..InitializeRequest::new(digests)
        }
    }

    /// The Connect of queue `qid`.
    pub fn connect(&self, qid: u16) -> Connect {
        Connect {
            record_format: Connect::RECORD_FORMAT,
            qid,
            sqsize: self.entries - 1,
            attributes: if self.flow_control_off {
                ConnectAttributes::DISABLE_SQ_FLOW_CONTROL
            } else {
                ConnectAttributes::NONE
            },
            keep_alive_timeout_ms: if qid == 0 { self.keep_alive_ms } else { 0 },
        }
    }

    /// The data of a Connect to this controller.
    pub fn connect_data(&self, controller_id: u16) -> ConnectData {
        ConnectData::new(self.host_id, controller_id, &self.subsystem, &self.host_nqn)
    }
}

/// The configuration that enables a controller.
pub fn enabled() -> Configuration {
    Configuration::default()
        .with_entry_sizes(
            Configuration::SUBMISSION_ENTRY_SIZE,
            Configuration::COMPLETION_ENTRY_SIZE,
        )
        .with_enabled(true)
}

/// A connection with CIDs to give out, and whole commands.
pub struct Queue {
    peer: Peer,
    next_cid: u16,
    in_capsule_bytes: u32,
    /// QID.
    pub qid: u16,
}

impl Deref for Queue {
    type Target = Peer;
    fn deref(&self) -> &Peer {
        &self.peer
    }
}

impl DerefMut for Queue {
    fn deref_mut(&mut self) -> &mut Peer {
        &mut self.peer
    }
}

impl Queue {
    /// A queue over a connection on which ICReq and ICResp were exchanged, before its Connect.
    pub fn over(peer: Peer) -> Self {
        Self {
            peer,
            next_cid: 0,
            in_capsule_bytes: 0,
            qid: 0,
        }
    }

    /// Connects, and exchanges ICReq and ICResp; digests that were asked for must be granted.
    ///
    /// # Errors
    /// It cannot be done, or digests are not offered.
    pub fn open(
        address: SocketAddr,
        options: &QueueOptions,
        manner: Manner,
    ) -> Result<Self, Failure> {
        let mut peer = Peer::connect(address, manner)?;
        let request = options.request();
        let response = peer.initialize(&request)?;
        if response.digests != request.digests {
            return Err(Failure::NotOffered(
                "the digests that were asked for".into(),
            ));
        }
        Ok(Self::over(peer))
    }

    /// The connection alone, to be closed or reset.
    pub fn into_peer(self) -> Peer {
        self.peer
    }

    /// A CID that no command in flight has.
    pub fn cid(&mut self) -> u16 {
        let cid = self.next_cid;
        // FFFFh names no command (NVMe Base 2.0c section 5.1).
        self.next_cid = (self.next_cid + 1) % u16::MAX;
        cid
    }

    /// MAXH2CDATA of ICResp.
    pub fn maximum_h2c_data(&self) -> u32 {
        self.peer
            .agreed
            .map_or(0, |response| response.maximum_h2c_data)
    }

    /// Sends the Connect and takes its answer, whatever it is.
    ///
    /// # Errors
    /// There is no answer.
    pub fn connect(&mut self, connect: &Connect, data: &ConnectData) -> Result<Cqe, Failure> {
        let sqe = FabricsCommand::Connect(*connect).sqe(0, SglDescriptor::NONE);
        let (cqe, _) = self.command(sqe, &data.encode(), 0)?;
        if cqe.status.is_success() {
            self.qid = connect.qid;
        }
        Ok(cqe)
    }

    /// Sets the CID and SGL of a command, and yields its capsule: `data` in it where that is short enough. Its CID is in the entry.
    pub fn prepare(&mut self, mut sqe: Sqe, data: &[u8], reads: u32) -> (Sqe, Vec<u8>) {
        sqe.cid = self.cid();
        let length = data.len() as u32;
        let in_capsule = length > 0 && self.goes_in_capsule(&sqe, length);
        sqe.sgl = match (length, reads) {
            (0, 0) => SglDescriptor::NONE,
            (0, length) => SglDescriptor::Transport { length },
            (length, _) if in_capsule => SglDescriptor::InCapsule { offset: 0, length },
            (length, _) => SglDescriptor::Transport { length },
        };
        let capsule = self
            .peer
            .format
            .capsule(&sqe, if in_capsule { data } else { &[] });
        (sqe, capsule)
    }

    fn goes_in_capsule(&self, sqe: &Sqe, length: u32) -> bool {
        let admin = self.qid == 0 || sqe.is_fabrics();
        let most = if admin {
            ADMIN_IN_CAPSULE_BYTES
        } else {
            self.in_capsule_bytes
        };
        length <= most
    }

    /// A whole command: `data` goes with it, or `reads` bytes come back. R2Ts are answered. No other command may be in flight.
    ///
    /// # Errors
    /// What came is no answer to this command.
    pub fn command(
        &mut self,
        sqe: Sqe,
        data: &[u8],
        reads: u32,
    ) -> Result<(Cqe, Vec<u8>), Failure> {
        let (sqe, capsule) = self.prepare(sqe, data, reads);
        self.peer.send(&capsule)?;
        self.answer(&sqe, data)
    }

    /// Waits for the answer to a command that was sent, and its data; R2Ts are answered from `data`.
    ///
    /// # Errors
    /// What came is no answer to this command.
    pub fn answer(&mut self, sqe: &Sqe, data: &[u8]) -> Result<(Cqe, Vec<u8>), Failure> {
        let what = format!("opcode {:#04x}, CID {}", sqe.opcode, sqe.cid);
        let mut read = Vec::new();
        loop {
            match self.peer.receive() {
                Got::Response(cqe) if cqe.cid == sqe.cid => return Ok((cqe, read)),
                Got::Data(header, bytes) if header.cid == sqe.cid => {
                    if header.offset as usize != read.len() {
                        let expected = format!("C2HData from {}", read.len());
                        let got = format!("from {}", header.offset);
                        return Err(Failure::differs(what, expected, got));
                    }
                    read.extend(bytes);
                    if header.success {
                        return Ok((Cqe::new(sqe.cid, 0, Status::SUCCESS), read));
                    }
                }
                Got::R2t(r2t) if r2t.cid == sqe.cid => self.send_data(&r2t, data)?,
                Got::Nothing(waited) => {
                    return Err(Failure::NoAnswer {
                        what,
                        expected: "an answer".into(),
                        waited,
                    });
                }
                got => return Err(Failure::differs(what, "its answer", got)),
            }
        }
    }

    /// Answers an R2T from a command's data, in PDUs as long as the controller takes.
    ///
    /// # Errors
    /// The R2T asks for what is not there, or the target does not read.
    pub fn send_data(&mut self, r2t: &R2t, data: &[u8]) -> Result<(), Failure> {
        for pdu in self.data_pdus(r2t, data)? {
            self.peer.send(&pdu)?;
        }
        Ok(())
    }

    /// The H2CData PDUs that answer an R2T from a command's data, as long as the controller takes them.
    ///
    /// # Errors
    /// The R2T asks for what is not there.
    pub fn data_pdus(&self, r2t: &R2t, data: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        let end = r2t.offset as usize + r2t.length as usize;
        if r2t.length == 0 || end > data.len() {
            let got = format!("{} bytes at {}", r2t.length, r2t.offset);
            let expected = format!("an R2T within {} bytes", data.len());
            return Err(Failure::differs("R2T", expected, got));
        }
        let most = self.maximum_h2c_data().max(4096) as usize;
        let mut pdus = Vec::new();
        let mut from = r2t.offset as usize;
        while from < end {
            let length = most.min(end - from);
            let header = H2cData {
                cid: r2t.cid,
                transfer_tag: r2t.transfer_tag,
                offset: from as u32,
                length: length as u32,
                last: from + length == end,
            };
            let part = &data[from..from + length];
            pdus.push(self.peer.format.h2c_data(&header, part));
            from += length;
        }
        Ok(pdus)
    }

    /// As [`Queue::command`], where anything but success is a failure; the data and dword 0.
    ///
    /// # Errors
    /// It did not succeed.
    pub fn succeed(
        &mut self,
        what: &str,
        sqe: Sqe,
        data: &[u8],
        reads: u32,
    ) -> Result<(Vec<u8>, u32), Failure> {
        let (cqe, read) = self.command(sqe, data, reads)?;
        if cqe.status.is_success() {
            Ok((read, cqe.dw0()))
        } else {
            Err(Failure::differs(what, "success", cqe.status))
        }
    }

    /// An admin command.
    ///
    /// # Errors
    /// As [`Queue::command`].
    pub fn admin(
        &mut self,
        command: AdminCommand,
        data: &[u8],
        reads: u32,
    ) -> Result<(Cqe, Vec<u8>), Failure> {
        self.command(command.sqe(0, SglDescriptor::NONE), data, reads)
    }

    /// A command of the NVM command set.
    ///
    /// # Errors
    /// As [`Queue::command`].
    pub fn nvm(
        &mut self,
        command: NvmCommand,
        nsid: u32,
        data: &[u8],
        reads: u32,
    ) -> Result<(Cqe, Vec<u8>), Failure> {
        self.command(command.sqe(0, nsid, SglDescriptor::NONE), data, reads)
    }

    /// Reads blocks; anything but success is a failure.
    ///
    /// # Errors
    /// It did not succeed, or the data is not as long.
    pub fn read(
        &mut self,
        nsid: u32,
        lba: u64,
        blocks: u32,
        bytes: u32,
    ) -> Result<Vec<u8>, Failure> {
        let read = NvmCommand::Read(Blocks::new(lba, blocks));
        let sqe = read.sqe(0, nsid, SglDescriptor::NONE);
        let (data, _) = self.succeed("a read", sqe, &[], bytes)?;
        if data.len() == bytes as usize {
            Ok(data)
        } else {
            let expected = format!("{bytes} bytes");
            Err(Failure::differs("a read", expected, data.len()))
        }
    }

    /// Writes blocks; anything but success is a failure.
    ///
    /// # Errors
    /// It did not succeed.
    pub fn write(&mut self, nsid: u32, lba: u64, blocks: u32, data: &[u8]) -> Result<(), Failure> {
        let write = NvmCommand::Write(Blocks::new(lba, blocks));
        let sqe = write.sqe(0, nsid, SglDescriptor::NONE);
        self.succeed("a write", sqe, data, 0).map(drop)
    }

    /// A command that changes nothing and always succeeds on this queue: Keep Alive, or a read of one block.
    ///
    /// # Errors
    /// It did not succeed: the queue does not work any more.
    pub fn still_works(&mut self, nsid: u32, block_bytes: u32) -> Result<(), Failure> {
        if self.qid > 0 {
            return self.read(nsid, 0, 1, block_bytes).map(drop);
        }
        let sqe = AdminCommand::KeepAlive.sqe(0, SglDescriptor::NONE);
        self.succeed("Keep Alive", sqe, &[], 0).map(drop)
    }

    /// Reads a property.
    ///
    /// # Errors
    /// It did not succeed.
    pub fn property(&mut self, property: Property) -> Result<u64, Failure> {
        let size = match property.size() {
            Some(8) => PropertySize::EightBytes,
            _ => PropertySize::FourBytes,
        };
        let get = FabricsCommand::PropertyGet(PropertyGet {
            size,
            offset: property.value(),
        });
        let (cqe, _) = self.command(get.sqe(0, SglDescriptor::NONE), &[], 0)?;
        if cqe.status.is_success() {
            Ok(cqe.result)
        } else {
            Err(Failure::differs("Property Get", "success", cqe.status))
        }
    }

    /// Writes CC and takes the answer, whatever it is.
    ///
    /// # Errors
    /// There is no answer.
    pub fn configure(&mut self, configuration: Configuration) -> Result<Cqe, Failure> {
        let set = FabricsCommand::PropertySet(PropertySet {
            size: PropertySize::FourBytes,
            offset: Property::Configuration.value(),
            value: configuration.0.into(),
        });
        let (cqe, _) = self.command(set.sqe(0, SglDescriptor::NONE), &[], 0)?;
        Ok(cqe)
    }

    /// Waits until CSTS is as wanted.
    ///
    /// # Errors
    /// It does not become so.
    pub fn await_status(
        &mut self,
        what: &str,
        wanted: impl Fn(ControllerStatus) -> bool,
    ) -> Result<ControllerStatus, Failure> {
        let began = Instant::now();
        loop {
            let status = ControllerStatus(self.property(Property::Status)? as u32);
            if wanted(status) {
                return Ok(status);
            }
            if began.elapsed() > self.manner.patience {
                let got = format!("CSTS {:#x}", status.0);
                return Err(Failure::differs("CSTS", what, got));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Identify with a buffer of 4096 bytes.
    ///
    /// # Errors
    /// It did not succeed.
    pub fn identify(&mut self, cns: Cns, nsid: u32) -> Result<[u8; 4096], Failure> {
        let identify = AdminCommand::Identify(Identify::new(cns, nsid));
        let sqe = identify.sqe(0, SglDescriptor::NONE);
        let (data, _) = self.succeed("Identify", sqe, &[], 4096)?;
        let length = data.len();
        data.try_into()
            .map_err(|_| Failure::differs("Identify", "4096 bytes", length))
    }
}

/// A controller: its admin queue, and what its I/O queues need.
pub struct Controller {
    /// The admin queue.
    pub admin: Queue,
    /// CNTLID.
    pub id: u16,
    /// How its queues are made.
    pub options: QueueOptions,
    address: SocketAddr,
    manner: Manner,
}

impl Controller {
    /// A controller that is ready.
    ///
    /// # Errors
    /// It cannot be brought up.
    pub fn bring_up(
        address: SocketAddr,
        options: &QueueOptions,
        manner: Manner,
    ) -> Result<Self, Failure> {
        let mut controller = Self::connected(address, options, manner)?;
        let cqe = controller.admin.configure(enabled())?;
        if !cqe.status.is_success() {
            return Err(Failure::preparation("CC.EN", cqe.status));
        }
        controller
            .admin
            .await_status("CSTS.RDY", ControllerStatus::ready)?;
        Ok(controller)
    }

    /// A controller whose admin queue is connected, before CC.EN.
    ///
    /// # Errors
    /// It cannot be connected.
    pub fn connected(
        address: SocketAddr,
        options: &QueueOptions,
        manner: Manner,
    ) -> Result<Self, Failure> {
        let mut admin = Queue::open(address, options, manner)?;
        let data = options.connect_data(options.controller_id);
        let cqe = admin.connect(&options.connect(0), &data)?;
        if !cqe.status.is_success() {
            return Err(Failure::preparation(
                "Connect of an admin queue",
                cqe.status,
            ));
        }
        Ok(Self {
            admin,
            id: ConnectResponse::from_result(cqe.dw0()).controller_id,
            options: options.clone(),
            address,
            manner,
        })
    }

    /// An I/O queue, made as the controller's options say.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn io(&self, qid: u16) -> Result<Queue, Failure> {
        self.io_with(qid, &self.options)
    }

    /// An I/O queue, made as these options say.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn io_with(&self, qid: u16, options: &QueueOptions) -> Result<Queue, Failure> {
        let (mut queue, cqe) = self.try_io(self.address, qid, options)?;
        if !cqe.status.is_success() {
            let what = format!("Connect of I/O queue {qid}");
            return Err(Failure::preparation(what, cqe.status));
        }
        queue.in_capsule_bytes = options.in_capsule_bytes;
        Ok(queue)
    }

    /// An I/O queue whose predecessor may be closing: as long as the target has not seen its end, the QID is in use.
    ///
    /// # Errors
    /// It is refused for another reason, or for too long.
    pub fn io_again(&self, qid: u16, options: &QueueOptions) -> Result<Queue, Failure> {
        let until = Instant::now() + self.manner.patience;
        loop {
            let (mut queue, cqe) = self.try_io(self.address, qid, options)?;
            let closes = cqe.status.is(Status::INVALID_QUEUE_IDENTIFIER)
                || cqe.status.is(Status::COMMAND_SEQUENCE_ERROR);
            if cqe.status.is_success() {
                queue.in_capsule_bytes = options.in_capsule_bytes;
                return Ok(queue);
            }
            if !closes || Instant::now() >= until {
                let what = format!("Connect of I/O queue {qid}");
                return Err(Failure::preparation(what, cqe.status));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The Connect of an I/O queue at any address of the subsystem, and its answer.
    ///
    /// # Errors
    /// There is no answer.
    pub fn try_io(
        &self,
        address: SocketAddr,
        qid: u16,
        options: &QueueOptions,
    ) -> Result<(Queue, Cqe), Failure> {
        let mut queue = Queue::open(address, options, self.manner)?;
        let data = options.connect_data(self.id);
        let cqe = queue.connect(&options.connect(qid), &data)?;
        Ok((queue, cqe))
    }
}

/// Sends commands in one segment, each with its data and how many bytes it reads; their answers, in the order of the commands.
pub fn together(queue: &mut Queue, commands: &[(Sqe, &[u8], u32)]) -> Result<Vec<Cqe>, Failure> {
    let mut bytes = Vec::new();
    let mut sent = Vec::new();
    for (sqe, data, reads) in commands {
        let (sqe, capsule) = queue.prepare(*sqe, data, *reads);
        bytes.extend(capsule);
        sent.push((sqe.cid, *data));
    }
    queue.peer.send(&bytes)?;
    answers_to(queue, &sent)
}

/// Waits for the answers to commands in flight, by CID, and answers their R2Ts from their data; in the order of the commands.
pub fn answers_to(queue: &mut Queue, sent: &[(u16, &[u8])]) -> Result<Vec<Cqe>, Failure> {
    let mut answers: Vec<Option<Cqe>> = vec![None; sent.len()];
    let place = |cid: u16| sent.iter().position(|(other, _)| *other == cid);
    while answers.iter().any(Option::is_none) {
        let got = queue.peer.receive();
        let cqe = match &got {
            Got::Response(cqe) => Some(*cqe),
            Got::Data(data, _) if data.success => Some(Cqe::new(data.cid, 0, Status::SUCCESS)),
            Got::Data(data, _) if place(data.cid).is_some() => None,
            Got::R2t(r2t) => {
                let Some(place) = place(r2t.cid) else {
                    return Err(Failure::differs("R2T", "one for a command in flight", got));
                };
                queue.send_data(r2t, sent[place].1)?;
                None
            }
            _ => {
                let expected = format!("the answers to {} commands", sent.len());
                return Err(Failure::differs("commands in flight", expected, got));
            }
        };
        let Some(cqe) = cqe else { continue };
        match place(cqe.cid) {
            Some(place) if answers[place].is_none() => answers[place] = Some(cqe),
            _ => {
                let expected = "one answer to each command in flight";
                return Err(Failure::differs("commands in flight", expected, got));
            }
        }
    }
    Ok(answers.into_iter().flatten().collect())
}
