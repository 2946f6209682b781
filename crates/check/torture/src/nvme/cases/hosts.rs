//! What the cases of single commands share: Connects with any fields, commands that are to be refused, and the answers judged.

use weir_nvme::command::{
    AdminCommand, Blocks, Connect, ConnectData, ConnectParameter, FabricsCommand, NvmCommand,
    SetFeatures,
};
use weir_nvme::feature::{FeatureId, NumberOfQueues};
use weir_nvme::identify::OptionalFabricsCommands;
use weir_nvme::nqn::NQN_FIELD_SIZE;
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::{Cqe, HostId, Nqn, Sqe, Status};

use crate::case::{Failure, check};
use crate::nvme::context::Context;
use crate::nvme::peer::{Answer, Got, Peer};
use crate::nvme::queue::{Controller, Queue, QueueOptions};

/// A name as long as its field, without a NUL.
pub(super) const NO_NQN: [u8; NQN_FIELD_SIZE] = {
    let mut name = [b'a'; NQN_FIELD_SIZE];
    let start = b"nqn.2026-01.com.example:";
    let mut index = 0;
    while index < start.len() {
        name[index] = start[index];
        index += 1;
    }
    name
};

/// Refusals that many commands have in common, as Weir gives them.
pub(super) const INVALID_FIELD: Status = Status::INVALID_FIELD_IN_COMMAND.with_do_not_retry();
pub(super) const INVALID_LENGTH: Status = Status::DATA_SGL_LENGTH_INVALID.with_do_not_retry();
pub(super) const INVALID_NAMESPACE: Status =
    Status::INVALID_NAMESPACE_OR_FORMAT.with_do_not_retry();
pub(super) const INVALID_OPCODE: Status = Status::INVALID_COMMAND_OPCODE.with_do_not_retry();
pub(super) const SEQUENCE_ERROR: Status = Status::COMMAND_SEQUENCE_ERROR.with_do_not_retry();

/// A Connect to be sent as it is.
pub(super) struct Attempt {
    pub(super) connect: Connect,
    pub(super) data: ConnectData,
}

impl Attempt {
    /// A good one of an admin queue.
    pub(super) fn admin(context: &Context) -> Self {
        let options = context.options();
        Attempt {
            connect: options.connect(0),
            data: options.connect_data(ConnectData::ANY_CONTROLLER),
        }
    }

    /// A good one of an I/O queue.
    pub(super) fn io(context: &Context, controller: u16, qid: u16) -> Self {
        let options = context.options();
        Attempt {
            connect: options.connect(qid),
            data: options.connect_data(controller),
        }
    }

    pub(super) fn with_host_identifier(mut self, id: HostId) -> Self {
        self.data.host_id = id;
        self
    }

    pub(super) fn with_subsystem(mut self, name: &[u8]) -> Self {
        self.data.subsystem_nqn = field(name);
        self
    }

    pub(super) fn with_host(mut self, name: &[u8]) -> Self {
        self.data.host_nqn = field(name);
        self
    }

    /// The command, with its data in the capsule.
    pub(super) fn sqe(&self, cid: u16) -> Sqe {
        let sgl = SglDescriptor::InCapsule {
            offset: 0,
            length: ConnectData::SIZE as u32,
        };
        FabricsCommand::Connect(self.connect).sqe(cid, sgl)
    }

    pub(super) fn capsule(&self, peer: &Peer, cid: u16) -> Vec<u8> {
        peer.format.capsule(&self.sqe(cid), &self.data.encode())
    }

    /// The queue that a connection has become whose Connect was granted.
    pub(super) fn granted(&self, peer: Peer) -> Queue {
        let mut queue = Queue::over(peer);
        queue.qid = self.connect.qid;
        queue
    }
}

fn field(name: &[u8]) -> [u8; NQN_FIELD_SIZE] {
    let mut field = [0; NQN_FIELD_SIZE];
    field[..name.len()].copy_from_slice(name);
    field
}

/// Answers with these statuses, Weir's own first.
fn answers(cid: u16, statuses: &[Status]) -> Vec<Answer> {
    let answer = |status: &Status| Answer::Status(cid, *status);
    statuses.iter().map(answer).collect()
}

/// Waits for the answer to a command: one of `statuses`, Weir's own first.
pub(super) fn expect_any(
    peer: &mut Peer,
    what: &str,
    cid: u16,
    statuses: &[Status],
) -> Result<Cqe, Failure> {
    match peer.expect(what, &answers(cid, statuses))? {
        Got::Response(cqe) => Ok(cqe),
        other => unreachable!("{other} is no status"),
    }
}

/// Judges an answer that came: one of `statuses`, Weir's own first.
pub(super) fn judge(
    queue: &mut Queue,
    what: &str,
    cqe: Cqe,
    statuses: &[Status],
) -> Result<(), Failure> {
    let answers = answers(cqe.cid, statuses);
    queue.judge(what, &answers, Got::Response(cqe)).map(drop)
}

/// Sends a command that is to end with one of `statuses`, Weir's own first.
pub(super) fn refused(
    queue: &mut Queue,
    what: &str,
    sqe: Sqe,
    data: &[u8],
    reads: u32,
    statuses: &[Status],
) -> Result<Cqe, Failure> {
    let (cqe, read) = queue.command(sqe, data, reads)?;
    judge(queue, what, cqe, statuses)?;
    check(
        read.is_empty() || cqe.status.is_success(),
        what,
        "no data with a refusal",
        format!("{} bytes", read.len()),
    )?;
    Ok(cqe)
}

/// As [`refused`], for a command without data.
pub(super) fn refused_bare(
    queue: &mut Queue,
    what: &str,
    sqe: Sqe,
    statuses: &[Status],
) -> Result<Cqe, Failure> {
    refused(queue, what, sqe, &[], 0, statuses)
}

/// As [`refused`], for an admin command.
pub(super) fn admin_refused(
    queue: &mut Queue,
    what: &str,
    command: AdminCommand,
    reads: u32,
    statuses: &[Status],
) -> Result<Cqe, Failure> {
    let sqe = command.sqe(0, SglDescriptor::NONE);
    refused(queue, what, sqe, &[], reads, statuses)
}

/// Sends a Connect on a connection of its own: it ends with one of `statuses`, Weir's own first.
pub(super) fn connect_refused(
    context: &Context,
    what: &str,
    attempt: &Attempt,
    statuses: &[Status],
) -> Result<Cqe, Failure> {
    let mut peer = context.initialized()?;
    peer.send(&attempt.capsule(&peer, 1))?;
    expect_any(&mut peer, what, 1, statuses)
}

/// As [`connect_refused`]: Connect Invalid Parameters that names `parameter` (NVMe Base 2.0c section 6.3, IPO and IATTR); of others than
/// Weir, any parameter and any of `others`.
pub(super) fn connect_refused_by(
    context: &Context,
    what: &str,
    attempt: &Attempt,
    parameter: ConnectParameter,
    others: &[Status],
) -> Result<(), Failure> {
    let mut statuses = vec![Status::CONNECT_INVALID_PARAMETERS.with_do_not_retry()];
    statuses.extend(others);
    let cqe = connect_refused(context, what, attempt, &statuses)?;
    check(
        !context.manner.exact || cqe.dw0() == parameter.to_result(),
        format!("{what}: the parameter at fault"),
        format!("{parameter:?}"),
        format!("{:?}", ConnectParameter::from_result(cqe.dw0())),
    )
}

/// A discovery controller.
pub(super) fn discovery(context: &Context) -> Result<Controller, Failure> {
    context.controller_with(&QueueOptions {
        subsystem: Nqn::discovery(),
        ..context.options()
    })
}

/// Asks for so many I/O queues; how many were granted.
pub(super) fn set_queues(admin: &mut Queue, count: u32) -> Result<u16, Failure> {
    let asked = NumberOfQueues {
        submission: count,
        completion: count,
    };
    let set = SetFeatures::new(FeatureId::NumberOfQueues, asked.to_dword());
    let sqe = AdminCommand::SetFeatures(set).sqe(0, SglDescriptor::NONE);
    let (_, dword) = admin.succeed("Number of Queues", sqe, &[], 0)?;
    let granted = NumberOfQueues::from_dword(dword);
    Ok(granted.submission.min(granted.completion) as u16)
}

/// Of others than Weir, Disconnect is an option (OFCS bit 0, NVMe Base 2.0c section 5.17.2.1).
pub(super) fn has_disconnect(context: &Context) -> Result<(), Failure> {
    let offered = context.facts.controller.optional_fabrics_commands;
    if offered.contains(OptionalFabricsCommands::DISCONNECT) || context.manner.exact {
        Ok(())
    } else {
        Err(Failure::NotOffered("Disconnect".into()))
    }
}

/// The entry of a command of the NVM command set.
pub(super) fn nvm(command: NvmCommand, nsid: u32) -> Sqe {
    command.sqe(0, nsid, SglDescriptor::NONE)
}

/// The entry of a write.
pub(super) fn write_sqe(nsid: u32, lba: u64, blocks: u32) -> Sqe {
    nvm(NvmCommand::Write(Blocks::new(lba, blocks)), nsid)
}

/// The entry of a read.
pub(super) fn read_sqe(nsid: u32, lba: u64, blocks: u32) -> Sqe {
    nvm(NvmCommand::Read(Blocks::new(lba, blocks)), nsid)
}

/// A block that is told from others by `seed`.
pub(super) fn block_of(context: &Context, seed: u8) -> Vec<u8> {
    let length = context.facts.block_bytes as usize;
    (0..length)
        .map(|index| seed ^ (index % 251) as u8)
        .collect()
}

/// A controller with an I/O queue, and what is asked of its namespace.
pub(super) struct Disk {
    pub(super) controller: Controller,
    pub(super) io: Queue,
    pub(super) nsid: u32,
    pub(super) block_bytes: u32,
}

impl Disk {
    /// One whose I/O queue answers reads with entries of their own.
    pub(super) fn new(context: &Context) -> Result<Self, Failure> {
        let (controller, io) = context.io()?;
        Ok(Disk {
            controller,
            io,
            nsid: context.target.nsid,
            block_bytes: context.facts.block_bytes,
        })
    }

    pub(super) fn read(&mut self, lba: u64, blocks: u32) -> Result<Vec<u8>, Failure> {
        self.io
            .read(self.nsid, lba, blocks, blocks * self.block_bytes)
    }

    pub(super) fn write(&mut self, lba: u64, data: &[u8]) -> Result<(), Failure> {
        let blocks = data.len() as u32 / self.block_bytes;
        self.io.write(self.nsid, lba, blocks, data)
    }

    /// Sends a command of the NVM command set that is to end with one of `statuses`, Weir's own first.
    pub(super) fn refuses(
        &mut self,
        what: &str,
        command: NvmCommand,
        data: &[u8],
        reads: u32,
        statuses: &[Status],
    ) -> Result<Cqe, Failure> {
        refused(
            &mut self.io,
            what,
            nvm(command, self.nsid),
            data,
            reads,
            statuses,
        )
    }

    /// The blocks from `lba` are still `data`.
    pub(super) fn holds(&mut self, what: &str, lba: u64, data: &[u8]) -> Result<(), Failure> {
        let blocks = data.len() as u32 / self.block_bytes;
        let now = self.read(lba, blocks)?;
        let differs = now.iter().zip(data).position(|(now, then)| now != then);
        match differs {
            None => Ok(()),
            Some(at) => Err(Failure::differs(
                format!("{what}: {blocks} blocks from {lba}"),
                "what was written",
                format!("another byte at {at}"),
            )),
        }
    }

    pub(super) fn still_works(&mut self) -> Result<(), Failure> {
        self.io.still_works(self.nsid, self.block_bytes)
    }
}
