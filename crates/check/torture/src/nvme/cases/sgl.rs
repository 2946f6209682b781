//! Groups 13 and 14: data in the capsule, SGL descriptors, and lengths that do not fit each other.

use weir_nvme::command::{AdminCommand, Blocks, ConnectData, FabricsCommand, Identify, NvmCommand};
use weir_nvme::identify::Cns;
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::sqe::DataTransfer;
use weir_nvme::tcp::FatalErrorStatus::{InvalidPduHeaderField, LimitExceeded};
use weir_nvme::{Sqe, Status};

use super::transfers::pattern;
use crate::case::{Failure, check};
use crate::nvme::context::Context;
use crate::nvme::pdu::at;
use crate::nvme::peer::{Answer, Got};
use crate::nvme::queue::{ADMIN_IN_CAPSULE_BYTES, Queue};

cases! {
    13 in_capsule_offset [] "Base 2.0c 4.1.2.1": "a Connect whose in-capsule SGL starts at offset 4" => "SGL Offset Invalid; a good Connect succeeds then";
    13 in_capsule_offset_max [] "Base 2.0c 4.1.2.1": "a Connect whose in-capsule SGL starts at offset 2^64 - 1" => "SGL Offset Invalid; a good Connect succeeds then";
    13 in_capsule_sgl_shorter [] "TCP 1.0c 3.3.2": "a Connect whose SGL says 4 bytes less than its capsule has" => "Data SGL Length Invalid, or C2HTermReq; a good Connect succeeds where it goes on";
    13 in_capsule_sgl_longer [] "TCP 1.0c 3.3.2": "a Connect whose SGL says 4 bytes more than its capsule has" => "Data SGL Length Invalid, or C2HTermReq";
    13 in_capsule_sgl_max [] "TCP 1.0c 3.3.2": "a Connect whose SGL says 2^32 - 1 bytes" => "Data SGL Length Invalid, or C2HTermReq";
    13 in_capsule_sgl_without_data [] "TCP 1.0c 3.3.2": "a Connect whose SGL says in-capsule data, and a capsule without any" => "Data SGL Length Invalid, or C2HTermReq";
    13 in_capsule_data_without_sgl [] "TCP 1.0c 3.3.2": "a Keep Alive with data in its capsule and no SGL" => "Data SGL Length Invalid, or success; the queue goes on";
    13 in_capsule_data_beside_a_transport_sgl [WRITES] "TCP 1.0c 3.3.2": "a Write with data in its capsule and a Transport SGL" => "Data SGL Length Invalid, or C2HTermReq";
    13 in_capsule_write [WRITES] "TCP 1.0c 3.3.2": "a Write with as much in-capsule data as is advertised, read back" => "success, and the data";
    13 in_capsule_write_above_the_limit [WRITES] "Base 2.0c 5.17.2.1": "a Write with a block more in-capsule data than is advertised" => "Data SGL Length Invalid, or C2HTermReq, Invalid PDU Header Field or Data Transfer Limit Exceeded";
    13 admin_capsule_of_8_kib [] "TCP 1.0c 3.3.2.1": "an admin command with 8 KiB of in-capsule data" => "its answer, whatever its status is; the queue goes on";
    13 fabrics_capsule_of_8_kib [] "TCP 1.0c 3.3.2.1": "a Connect with 8 KiB of in-capsule data" => "Data SGL Length Invalid or Invalid Field in Command; a good Connect succeeds then";
    13 admin_capsule_above_8_kib [] "TCP 1.0c 3.3.2.1": "an admin command with 8 KiB and 512 bytes in its capsule" => "Data SGL Length Invalid, or C2HTermReq, Invalid PDU Header Field or Data Transfer Limit Exceeded";
    13 in_capsule_sgl_on_a_read [] "TCP 1.0c 3.3.2": "a Read with an in-capsule SGL" => "SGL Descriptor Type Invalid or Invalid Field in Command";
    13 in_capsule_sgl_and_data_on_a_read [] "TCP 1.0c 3.3.2": "a Read with an in-capsule SGL, and the data" => "SGL Descriptor Type Invalid or Invalid Field in Command; the queue goes on";
    13 in_capsule_sgl_on_identify [] "TCP 1.0c 3.3.2": "an Identify with an in-capsule SGL" => "SGL Descriptor Type Invalid or Invalid Field in Command";
    13 refused_write_drains_its_data [WRITES] "TCP 1.0c 3.3.2": "a Write past the end with in-capsule data, and a Read in the same segment" => "LBA Out of Range, and the Read's data";
    13 refused_write_drains_its_data_in_pieces [WRITES] "TCP 1.0c 3.3.2": "the same in segments of 100 bytes" => "LBA Out of Range, and the Read's data";
    13 refused_namespace_drains_its_data [] "TCP 1.0c 3.3.2": "a Write with in-capsule data to a namespace that is not there, and a Read in the same segment" => "Invalid Namespace or Format, and the Read's data";
    13 unknown_opcode_drains_its_data [] "TCP 1.0c 3.3.2": "an unknown opcode with in-capsule data, and a Read in the same segment" => "Invalid Command Opcode, and the Read's data";

    14 read_sgl_of_endless_length [] "Base 2.0c 4.1.2": "a Read of a block whose SGL says 2^32 - 1 bytes" => "Data SGL Length Invalid or Invalid Field in Command, or success with a block; no memory of that size";
    14 write_sgl_of_endless_length [WRITES] "Base 2.0c 4.1.2": "a Write of a block whose SGL says 2^32 - 1 bytes" => "Data SGL Length Invalid or Invalid Field in Command, without an R2T; no memory of that size";
    14 identify_sgl_of_endless_length [] "Base 2.0c 4.1.2": "an Identify whose SGL says 2^32 - 1 bytes" => "its answer; no memory of that size";
    14 keyed_sgl [] "TCP 1.0c 3.3": "a Read with a Keyed SGL Data Block" => "SGL Descriptor Type Invalid or Invalid Field in Command";
    14 address_sgl [] "TCP 1.0c 3.3": "a Read with an SGL Data Block by address" => "SGL Descriptor Type Invalid or Invalid Field in Command";
    14 segment_sgl [] "TCP 1.0c 3.3": "a Read with an SGL Segment descriptor" => "Invalid SGL Segment Descriptor, SGL Descriptor Type Invalid or Invalid Field in Command";
    14 last_segment_sgl [] "TCP 1.0c 3.3": "a Read with an SGL Last Segment descriptor" => "Invalid SGL Segment Descriptor, SGL Descriptor Type Invalid or Invalid Field in Command";
    14 bit_bucket_sgl [] "TCP 1.0c 3.3": "a Read with an SGL Bit Bucket descriptor" => "SGL Descriptor Type Invalid or Invalid Field in Command";
    14 vendor_sgl [] "TCP 1.0c 3.3": "a Read with a vendor specific SGL descriptor" => "SGL Descriptor Type Invalid or Invalid Field in Command";
    14 reserved_sgl [] "TCP 1.0c 3.3": "a Read with an SGL descriptor of type 6h" => "SGL Descriptor Type Invalid or Invalid Field in Command";
    14 prp [] "Base 2.0c 3.3.3.1": "a Read whose PSDT says PRP" => "Invalid Field in Command";
    14 metadata_sgl [] "Base 2.0c 3.3.3.1": "a Read whose PSDT says an SGL for metadata" => "Invalid Field in Command";
    14 psdt_reserved [] "Base 2.0c 3.3.3.1": "a Read whose PSDT is 11b" => "Invalid Field in Command";
    14 read_above_mdts [] "Base 2.0c 5.17.2.1": "a Read of a block more than MDTS" => "Invalid Field in Command";
    14 write_above_mdts [WRITES] "Base 2.0c 5.17.2.1": "a Write of a block more than MDTS" => "Invalid Field in Command, without an R2T";
    14 read_of_65536_blocks [] "Base 2.0c 5.17.2.1": "a Read of 65536 blocks" => "Invalid Field in Command, or LBA Out of Range";
    14 read_sgl_shorter [] "Base 2.0c 4.1.2": "a Read of 2 blocks whose SGL is a block" => "Data SGL Length Invalid";
    14 read_sgl_one_byte_short [] "Base 2.0c 4.1.2": "a Read of a block whose SGL is a byte short" => "Data SGL Length Invalid";
    14 read_sgl_longer [] "Base 2.0c 4.1.2": "a Read of a block whose SGL is two" => "Data SGL Length Invalid, or success with a block where SGLS says so";
    14 read_without_sgl [] "Base 2.0c 4.1.2": "a Read of a block without an SGL" => "Data SGL Length Invalid or SGL Descriptor Type Invalid";
    14 read_sgl_of_length_0 [] "Base 2.0c 4.1.2": "a Read of a block whose Transport SGL is empty" => "Data SGL Length Invalid";
    14 write_sgl_shorter [WRITES] "Base 2.0c 4.1.2": "a Write of 2 blocks whose SGL is a block" => "Data SGL Length Invalid, without an R2T";
    14 write_sgl_longer [WRITES] "Base 2.0c 4.1.2": "a Write of a block whose SGL is two" => "Data SGL Length Invalid, without an R2T; or success where SGLS says so";
    14 write_sgl_one_byte_long [WRITES] "Base 2.0c 4.1.2": "a Write of a block whose SGL is a byte long" => "Data SGL Length Invalid, without an R2T";
    14 write_without_sgl [WRITES] "Base 2.0c 4.1.2": "a Write of a block without an SGL" => "Data SGL Length Invalid or SGL Descriptor Type Invalid";
}

/// Bytes of the data of a Connect.
const CONNECT_BYTES: u32 = ConnectData::SIZE as u32;

/// Sends a Connect whose SGL and data were chosen, and then, where the connection goes on, a good one.
fn connect_with(
    context: &mut Context,
    sgl: SglDescriptor,
    bytes: usize,
    answers: &[Answer],
) -> Result<(), Failure> {
    let mut peer = context.initialized()?;
    let options = context.options();
    let mut data = options
        .connect_data(ConnectData::ANY_CONTROLLER)
        .encode()
        .to_vec();
    let good = FabricsCommand::Connect(options.connect(0)).sqe(
        6,
        SglDescriptor::InCapsule {
            offset: 0,
            length: CONNECT_BYTES,
        },
    );
    let good = peer.format.capsule(&good, &data);
    data.resize(bytes, 0);
    let sqe = FabricsCommand::Connect(options.connect(0)).sqe(5, sgl);
    let capsule = peer.format.capsule(&sqe, &data);
    peer.send(&capsule)?;
    if let Got::Response(_) = peer.expect("Connect", answers)? {
        peer.send(&good)?;
        peer.expect_status("Connect again", 6, Status::SUCCESS)?;
    }
    Ok(())
}

fn in_capsule(offset: u64, length: u32) -> SglDescriptor {
    SglDescriptor::InCapsule { offset, length }
}

/// The command with CID 5 has an SGL of the wrong length; a connection may also end of it.
const WRONG_LENGTH: [Answer; 3] = [
    Answer::Status(5, Status::DATA_SGL_LENGTH_INVALID.with_do_not_retry()),
    Answer::Status(5, Status::INVALID_FIELD_IN_COMMAND),
    Answer::TerminatedFor(InvalidPduHeaderField),
];
const WRONG_OFFSET: [Answer; 2] = [
    Answer::Status(5, Status::SGL_OFFSET_INVALID.with_do_not_retry()),
    Answer::Status(5, Status::INVALID_FIELD_IN_COMMAND),
];

fn in_capsule_offset(context: &mut Context) -> Result<(), Failure> {
    connect_with(context, in_capsule(4, CONNECT_BYTES), 1024, &WRONG_OFFSET)
}

fn in_capsule_offset_max(context: &mut Context) -> Result<(), Failure> {
    let sgl = in_capsule(u64::MAX, CONNECT_BYTES);
    connect_with(context, sgl, 1024, &WRONG_OFFSET)
}

fn in_capsule_sgl_shorter(context: &mut Context) -> Result<(), Failure> {
    connect_with(context, in_capsule(0, 1020), 1024, &WRONG_LENGTH)
}

fn in_capsule_sgl_longer(context: &mut Context) -> Result<(), Failure> {
    connect_with(context, in_capsule(0, 1028), 1024, &WRONG_LENGTH)
}

fn in_capsule_sgl_max(context: &mut Context) -> Result<(), Failure> {
    connect_with(context, in_capsule(0, u32::MAX), 1024, &WRONG_LENGTH)
}

fn in_capsule_sgl_without_data(context: &mut Context) -> Result<(), Failure> {
    connect_with(context, in_capsule(0, CONNECT_BYTES), 0, &WRONG_LENGTH)
}

fn fabrics_capsule_of_8_kib(context: &mut Context) -> Result<(), Failure> {
    let sgl = in_capsule(0, ADMIN_IN_CAPSULE_BYTES);
    connect_with(context, sgl, ADMIN_IN_CAPSULE_BYTES as usize, &WRONG_LENGTH)
}

/// An admin command that takes no data, with an SGL and data; what answers it.
fn keep_alive_with(
    context: &mut Context,
    sgl: SglDescriptor,
    bytes: usize,
    answers: impl FnOnce(u16) -> Vec<Answer>,
) -> Result<(), Failure> {
    let mut controller = context.controller()?;
    let admin = &mut controller.admin;
    let (mut sqe, _) = admin.prepare(AdminCommand::KeepAlive.sqe(0, SglDescriptor::NONE), &[], 0);
    sqe.sgl = sgl;
    let capsule = admin.format.capsule(&sqe, &vec![0x33; bytes]);
    admin.send(&capsule)?;
    if let Got::Response(_) = admin.expect("Keep Alive with data", &answers(sqe.cid))? {
        admin.still_works(0, 0)?;
    }
    Ok(())
}

fn in_capsule_data_without_sgl(context: &mut Context) -> Result<(), Failure> {
    keep_alive_with(context, SglDescriptor::NONE, 512, |cid| {
        vec![
            Answer::Status(cid, Status::DATA_SGL_LENGTH_INVALID.with_do_not_retry()),
            Answer::Answered(cid),
        ]
    })
}

/// Set Features takes data; which feature is asked for exists nowhere, so that nothing changes.
fn set_nothing_with(
    context: &mut Context,
    bytes: u32,
    answers: impl FnOnce(u16) -> Vec<Answer>,
) -> Result<(), Failure> {
    const SET_FEATURES: u8 = 0x09;
    const RESERVED_FEATURE: u32 = 0x77;
    let mut controller = context.controller()?;
    let admin = &mut controller.admin;
    let sqe = Sqe {
        opcode: SET_FEATURES,
        cdw10: RESERVED_FEATURE,
        ..Sqe::default()
    };
    let (mut sqe, _) = admin.prepare(sqe, &[], 0);
    sqe.sgl = in_capsule(0, bytes);
    let capsule = admin.format.capsule(&sqe, &vec![0x33; bytes as usize]);
    admin.send(&capsule)?;
    if let Got::Response(_) = admin.expect("Set Features", &answers(sqe.cid))? {
        admin.still_works(0, 0)?;
    }
    Ok(())
}

fn admin_capsule_of_8_kib(context: &mut Context) -> Result<(), Failure> {
    set_nothing_with(context, ADMIN_IN_CAPSULE_BYTES, |cid| {
        vec![
            Answer::Status(cid, Status::INVALID_FIELD_IN_COMMAND.with_do_not_retry()),
            Answer::Answered(cid),
        ]
    })
}

fn admin_capsule_above_8_kib(context: &mut Context) -> Result<(), Failure> {
    let bytes = ADMIN_IN_CAPSULE_BYTES + 512;
    let longest = context.facts.in_capsule_bytes.max(ADMIN_IN_CAPSULE_BYTES);
    set_nothing_with(context, bytes, |cid| {
        let mut answers = vec![
            Answer::Status(cid, Status::DATA_SGL_LENGTH_INVALID.with_do_not_retry()),
            Answer::Terminated(InvalidPduHeaderField, at::LENGTH as u32),
            Answer::TerminatedFor(LimitExceeded),
        ];
        if bytes > longest {
            // Longer than any capsule: the PDU itself is wrong, whatever the command says.
            answers.swap(0, 1);
        }
        answers
    })
}

/// A Write of as many blocks as `bytes` has, with all of them in the capsule.
fn capsule_write(context: &Context, queue: &mut Queue, data: &[u8]) -> (Sqe, Vec<u8>) {
    let blocks = data.len() as u32 / context.facts.block_bytes;
    let write = NvmCommand::Write(Blocks::new(0, blocks));
    let write = write.sqe(0, context.target.nsid, SglDescriptor::NONE);
    let (mut sqe, _) = queue.prepare(write, &[], 0);
    sqe.sgl = in_capsule(0, data.len() as u32);
    let capsule = queue.format.capsule(&sqe, data);
    (sqe, capsule)
}

/// The longest in-capsule data of whole blocks.
fn in_capsule_blocks(context: &Context) -> Result<u32, Failure> {
    let blocks = context.facts.in_capsule_bytes / context.facts.block_bytes;
    if blocks == 0 {
        return Err(Failure::NotOffered("in-capsule data of a block".into()));
    }
    Ok(blocks)
}

fn in_capsule_write(context: &mut Context) -> Result<(), Failure> {
    let bytes = in_capsule_blocks(context)? * context.facts.block_bytes;
    let (_controller, mut queue) = context.io()?;
    let data = pattern(13, bytes);
    let (sqe, capsule) = capsule_write(context, &mut queue, &data);
    queue.send(&capsule)?;
    queue.expect_status("Write", sqe.cid, Status::SUCCESS)?;
    let blocks = bytes / context.facts.block_bytes;
    let back = queue.read(context.target.nsid, 0, blocks, bytes)?;
    check(back == data, "Read", "what was written", "other data")
}

fn in_capsule_write_above_the_limit(context: &mut Context) -> Result<(), Failure> {
    let block = context.facts.block_bytes;
    let bytes = context.facts.in_capsule_bytes / block * block + block;
    let (mut controller, mut queue) = context.io()?;
    let data = pattern(13, bytes);
    let (sqe, capsule) = capsule_write(context, &mut queue, &data);
    queue.send(&capsule)?;
    let status = Status::DATA_SGL_LENGTH_INVALID.with_do_not_retry();
    let mut answers = [
        Answer::Status(sqe.cid, status),
        Answer::Terminated(InvalidPduHeaderField, at::LENGTH as u32),
        Answer::TerminatedFor(LimitExceeded),
    ];
    if bytes > ADMIN_IN_CAPSULE_BYTES {
        // Longer than any capsule: the PDU itself is wrong, whatever the command says.
        answers.swap(0, 1);
    }
    queue.expect("Write", &answers)?;
    controller.admin.still_works(0, 0)
}

fn in_capsule_data_beside_a_transport_sgl(context: &mut Context) -> Result<(), Failure> {
    let (_controller, mut queue) = context.io()?;
    let block = context.facts.block_bytes;
    in_capsule_blocks(context)?;
    let data = pattern(13, block);
    let (mut sqe, _) = capsule_write(context, &mut queue, &data);
    sqe.sgl = SglDescriptor::Transport { length: block };
    let capsule = queue.format.capsule(&sqe, &data);
    queue.send(&capsule)?;
    let status = Status::DATA_SGL_LENGTH_INVALID.with_do_not_retry();
    let answers = [
        Answer::Status(sqe.cid, status),
        Answer::Status(sqe.cid, Status::INVALID_FIELD_IN_COMMAND),
        Answer::TerminatedFor(InvalidPduHeaderField),
    ];
    if let Got::Response(_) = queue.expect("Write", &answers)? {
        queue.still_works(context.target.nsid, block)?;
    }
    Ok(())
}

/// Entry of a Read of `blocks` blocks at LBA 0.
fn read(context: &Context, queue: &mut Queue, blocks: u32) -> Sqe {
    let read = NvmCommand::Read(Blocks::new(0, blocks));
    let sqe = read.sqe(0, context.target.nsid, SglDescriptor::NONE);
    queue.prepare(sqe, &[], 0).0
}

/// Sends a capsule and expects one of these statuses; success brings data first, which is taken. The queue goes on.
fn refused(
    context: &Context,
    queue: &mut Queue,
    what: &str,
    (sqe, data): (&Sqe, &[u8]),
    statuses: &[Status],
) -> Result<(), Failure> {
    let capsule = queue.format.capsule(sqe, data);
    queue.send(&capsule)?;
    let answers: Vec<_> = statuses
        .iter()
        .map(|status| Answer::Status(sqe.cid, *status))
        .collect();
    let mut got = queue.receive();
    if statuses.contains(&Status::SUCCESS) && !queue.manner.exact {
        while matches!(&got, Got::Data(data, _) if data.cid == sqe.cid) {
            got = queue.receive();
        }
    }
    queue.judge(what, &answers, got)?;
    queue.still_works(context.target.nsid, context.facts.block_bytes)
}

const WRONG_TYPE: [Status; 2] = [
    Status::SGL_DESCRIPTOR_TYPE_INVALID.with_do_not_retry(),
    Status::INVALID_FIELD_IN_COMMAND,
];
const WRONG_SEGMENT: [Status; 3] = [
    Status::INVALID_SGL_SEGMENT_DESCRIPTOR.with_do_not_retry(),
    Status::SGL_DESCRIPTOR_TYPE_INVALID,
    Status::INVALID_FIELD_IN_COMMAND,
];
const INVALID_FIELD: [Status; 1] = [Status::INVALID_FIELD_IN_COMMAND.with_do_not_retry()];
const INVALID_LENGTH: [Status; 1] = [Status::DATA_SGL_LENGTH_INVALID.with_do_not_retry()];

/// A Read of a block with this SGL.
fn read_with(
    context: &mut Context,
    blocks: u32,
    sgl: SglDescriptor,
    statuses: &[Status],
) -> Result<(), Failure> {
    let (_controller, mut queue) = context.io()?;
    let sqe = Sqe {
        sgl,
        ..read(context, &mut queue, blocks)
    };
    refused(context, &mut queue, "Read", (&sqe, &[]), statuses)
}

fn in_capsule_sgl_on_a_read(context: &mut Context) -> Result<(), Failure> {
    let sgl = in_capsule(0, context.facts.block_bytes);
    read_with(context, 1, sgl, &WRONG_TYPE)
}

fn in_capsule_sgl_and_data_on_a_read(context: &mut Context) -> Result<(), Failure> {
    in_capsule_blocks(context)?;
    let (_controller, mut queue) = context.io()?;
    let block = context.facts.block_bytes;
    let sqe = Sqe {
        sgl: in_capsule(0, block),
        ..read(context, &mut queue, 1)
    };
    let data = pattern(13, block);
    refused(context, &mut queue, "Read", (&sqe, &data), &WRONG_TYPE)
}

fn in_capsule_sgl_on_identify(context: &mut Context) -> Result<(), Failure> {
    let mut controller = context.controller()?;
    let admin = &mut controller.admin;
    let identify = AdminCommand::Identify(Identify::new(Cns::Controller, 0));
    let (mut sqe, _) = admin.prepare(identify.sqe(0, SglDescriptor::NONE), &[], 0);
    sqe.sgl = in_capsule(0, 4096);
    refused(context, admin, "Identify", (&sqe, &[]), &WRONG_TYPE)
}

/// A refused command with in-capsule data of a block, and a Read, in one go: both are answered.
fn drains(
    context: &mut Context,
    piece: usize,
    change: impl FnOnce(&mut Sqe, &Context),
    status: Status,
) -> Result<(), Failure> {
    in_capsule_blocks(context)?;
    let (_controller, mut queue) = context.io()?;
    let block = context.facts.block_bytes;
    let data = pattern(13, block);
    let (mut sqe, _) = capsule_write(context, &mut queue, &data);
    change(&mut sqe, context);
    let mut bytes = queue.format.capsule(&sqe, &data);
    let next = Sqe {
        sgl: SglDescriptor::Transport { length: block },
        ..read(context, &mut queue, 1)
    };
    bytes.extend(queue.format.capsule(&next, &[]));
    let pause = std::time::Duration::from_micros(200);
    queue.send_in_pieces(&bytes, piece, pause)?;
    queue.expect_status("a refused command", sqe.cid, status.with_do_not_retry())?;
    let (cqe, back) = queue.answer(&next, &[])?;
    check(cqe.status.is_success(), "Read", "success", cqe.status)?;
    check(
        back.len() == block as usize,
        "Read",
        format!("{block} bytes"),
        back.len(),
    )
}

fn past_the_end(sqe: &mut Sqe, context: &Context) {
    sqe.cdw10 = context.facts.blocks as u32;
    sqe.cdw11 = (context.facts.blocks >> 32) as u32;
}

fn refused_write_drains_its_data(context: &mut Context) -> Result<(), Failure> {
    drains(context, usize::MAX, past_the_end, Status::LBA_OUT_OF_RANGE)
}

fn refused_write_drains_its_data_in_pieces(context: &mut Context) -> Result<(), Failure> {
    drains(context, 100, past_the_end, Status::LBA_OUT_OF_RANGE)
}

fn refused_namespace_drains_its_data(context: &mut Context) -> Result<(), Failure> {
    let elsewhere = |sqe: &mut Sqe, _: &Context| sqe.nsid = 0xffff_fffd;
    let status = Status::INVALID_NAMESPACE_OR_FORMAT;
    drains(context, usize::MAX, elsewhere, status)
}

fn unknown_opcode_drains_its_data(context: &mut Context) -> Result<(), Failure> {
    // Bits 1:0 say that data goes to the controller.
    let unknown = |sqe: &mut Sqe, _: &Context| sqe.opcode = 0x71;
    drains(context, usize::MAX, unknown, Status::INVALID_COMMAND_OPCODE)
}

fn transport(length: u32) -> SglDescriptor {
    SglDescriptor::Transport { length }
}

fn read_sgl_of_endless_length(context: &mut Context) -> Result<(), Failure> {
    let [status] = INVALID_LENGTH;
    let statuses = [status, Status::INVALID_FIELD_IN_COMMAND, Status::SUCCESS];
    read_with(context, 1, transport(u32::MAX), &statuses)
}

fn identify_sgl_of_endless_length(context: &mut Context) -> Result<(), Failure> {
    let mut controller = context.controller()?;
    let admin = &mut controller.admin;
    let identify = AdminCommand::Identify(Identify::new(Cns::Controller, 0));
    let (mut sqe, _) = admin.prepare(identify.sqe(0, SglDescriptor::NONE), &[], 0);
    sqe.sgl = transport(u32::MAX);
    let capsule = admin.format.capsule(&sqe, &[]);
    admin.send(&capsule)?;
    let (cqe, data) = admin.answer(&sqe, &[])?;
    check(
        !cqe.status.is_success() || data.len() == 4096,
        "Identify",
        "4096 bytes or a refusal",
        data.len(),
    )?;
    admin.still_works(0, 0)
}

fn keyed_sgl(context: &mut Context) -> Result<(), Failure> {
    let sgl = SglDescriptor::Keyed {
        address: 0x1000,
        length: context.facts.block_bytes,
        key: 7,
        sub_type: 0,
    };
    read_with(context, 1, sgl, &WRONG_TYPE)
}

fn address_sgl(context: &mut Context) -> Result<(), Failure> {
    let sgl = SglDescriptor::DataBlock {
        address: 0x1000,
        length: context.facts.block_bytes,
    };
    read_with(context, 1, sgl, &WRONG_TYPE)
}

/// A descriptor of any type and sub type, with the length of a block.
fn sgl_of_type(context: &Context, kind: u8) -> SglDescriptor {
    let mut bytes = [0; SglDescriptor::SIZE];
    bytes[8..12].copy_from_slice(&context.facts.block_bytes.to_le_bytes());
    bytes[15] = kind;
    SglDescriptor::Other(bytes)
}

fn segment_sgl(context: &mut Context) -> Result<(), Failure> {
    let sgl = sgl_of_type(context, 0x20);
    read_with(context, 1, sgl, &WRONG_SEGMENT)
}

fn last_segment_sgl(context: &mut Context) -> Result<(), Failure> {
    let sgl = sgl_of_type(context, 0x31);
    read_with(context, 1, sgl, &WRONG_SEGMENT)
}

fn bit_bucket_sgl(context: &mut Context) -> Result<(), Failure> {
    let sgl = sgl_of_type(context, 0x10);
    read_with(context, 1, sgl, &WRONG_TYPE)
}

fn vendor_sgl(context: &mut Context) -> Result<(), Failure> {
    let sgl = sgl_of_type(context, 0xf0);
    read_with(context, 1, sgl, &WRONG_TYPE)
}

fn reserved_sgl(context: &mut Context) -> Result<(), Failure> {
    let sgl = sgl_of_type(context, 0x6a);
    read_with(context, 1, sgl, &WRONG_TYPE)
}

fn read_with_psdt(context: &mut Context, data_transfer: DataTransfer) -> Result<(), Failure> {
    let (_controller, mut queue) = context.io()?;
    let sqe = Sqe {
        sgl: transport(context.facts.block_bytes),
        data_transfer,
        ..read(context, &mut queue, 1)
    };
    refused(context, &mut queue, "Read", (&sqe, &[]), &INVALID_FIELD)
}

fn prp(context: &mut Context) -> Result<(), Failure> {
    read_with_psdt(context, DataTransfer::Prp)
}

fn metadata_sgl(context: &mut Context) -> Result<(), Failure> {
    read_with_psdt(context, DataTransfer::SglWithMetadataSgl)
}

fn psdt_reserved(context: &mut Context) -> Result<(), Failure> {
    read_with_psdt(context, DataTransfer::Reserved)
}

/// A block more than MDTS.
fn too_many_blocks(context: &Context) -> Result<u32, Failure> {
    const BLOCKS_MAX: u64 = 65536;
    let block = u64::from(context.facts.block_bytes);
    let too_many = context
        .facts
        .transfer_bytes_max
        .map(|most| most / block + 1)
        .filter(|blocks| *blocks <= BLOCKS_MAX);
    match too_many {
        Some(blocks) => Ok(blocks as u32),
        None => Err(Failure::NotOffered("a limit on transfers".into())),
    }
}

fn read_above_mdts(context: &mut Context) -> Result<(), Failure> {
    let blocks = too_many_blocks(context)?;
    let sgl = transport(blocks * context.facts.block_bytes);
    read_with(context, blocks, sgl, &INVALID_FIELD)
}

fn read_of_65536_blocks(context: &mut Context) -> Result<(), Failure> {
    let bytes = context.facts.block_bytes.checked_mul(65536);
    let sgl = transport(bytes.unwrap_or(u32::MAX));
    let [status] = INVALID_FIELD;
    let statuses = [
        status,
        Status::LBA_OUT_OF_RANGE,
        Status::DATA_SGL_LENGTH_INVALID,
        Status::SUCCESS,
    ];
    read_with(context, 65536, sgl, &statuses)
}

fn read_sgl_shorter(context: &mut Context) -> Result<(), Failure> {
    let sgl = transport(context.facts.block_bytes);
    read_with(context, 2, sgl, &INVALID_LENGTH)
}

fn read_sgl_one_byte_short(context: &mut Context) -> Result<(), Failure> {
    let sgl = transport(context.facts.block_bytes - 1);
    read_with(context, 1, sgl, &INVALID_LENGTH)
}

/// What answers an SGL that is longer than the data: a controller whose SGLS says so takes it.
fn longer_than_data(context: &Context) -> Vec<Status> {
    use weir_nvme::identify::SglSupport;
    let mut statuses = INVALID_LENGTH.to_vec();
    let supported = context.facts.controller.sgl_support;
    if supported.contains(SglSupport::LONGER_THAN_DATA) {
        statuses.push(Status::SUCCESS);
    }
    statuses
}

fn read_sgl_longer(context: &mut Context) -> Result<(), Failure> {
    let sgl = transport(2 * context.facts.block_bytes);
    let statuses = longer_than_data(context);
    read_with(context, 1, sgl, &statuses)
}

const NO_DATA: [Status; 2] = [
    Status::DATA_SGL_LENGTH_INVALID.with_do_not_retry(),
    Status::SGL_DESCRIPTOR_TYPE_INVALID,
];

fn read_without_sgl(context: &mut Context) -> Result<(), Failure> {
    read_with(context, 1, SglDescriptor::NONE, &NO_DATA)
}

fn read_sgl_of_length_0(context: &mut Context) -> Result<(), Failure> {
    read_with(context, 1, transport(0), &INVALID_LENGTH)
}

/// A Write with this SGL and no data; an R2T in place of the answer is a failure.
fn write_with(
    context: &mut Context,
    blocks: u32,
    sgl: SglDescriptor,
    statuses: &[Status],
) -> Result<(), Failure> {
    let (_controller, mut queue) = context.io()?;
    let write = NvmCommand::Write(Blocks::new(0, blocks));
    let sqe = write.sqe(0, context.target.nsid, SglDescriptor::NONE);
    let (sqe, _) = queue.prepare(sqe, &[], 0);
    let sqe = Sqe { sgl, ..sqe };
    refused(context, &mut queue, "Write", (&sqe, &[]), statuses)
}

fn write_sgl_of_endless_length(context: &mut Context) -> Result<(), Failure> {
    let [status] = INVALID_LENGTH;
    let statuses = [status, Status::INVALID_FIELD_IN_COMMAND];
    write_with(context, 1, transport(u32::MAX), &statuses)
}

fn write_above_mdts(context: &mut Context) -> Result<(), Failure> {
    let blocks = too_many_blocks(context)?;
    let sgl = transport(blocks * context.facts.block_bytes);
    write_with(context, blocks, sgl, &INVALID_FIELD)
}

fn write_sgl_shorter(context: &mut Context) -> Result<(), Failure> {
    let sgl = transport(context.facts.block_bytes);
    write_with(context, 2, sgl, &INVALID_LENGTH)
}

fn write_sgl_longer(context: &mut Context) -> Result<(), Failure> {
    use weir_nvme::identify::SglSupport;
    let supported = context.facts.controller.sgl_support;
    if supported.contains(SglSupport::LONGER_THAN_DATA) {
        return Err(Failure::NotOffered("a refusal: its SGLS allows it".into()));
    }
    let sgl = transport(2 * context.facts.block_bytes);
    write_with(context, 1, sgl, &INVALID_LENGTH)
}

fn write_sgl_one_byte_long(context: &mut Context) -> Result<(), Failure> {
    let sgl = transport(context.facts.block_bytes + 1);
    write_with(context, 1, sgl, &INVALID_LENGTH)
}

fn write_without_sgl(context: &mut Context) -> Result<(), Failure> {
    write_with(context, 1, SglDescriptor::NONE, &NO_DATA)
}
