//! Group 7: digests that are wrong, on commands that would have succeeded and on such that would not.

use weir_nvme::Status;
use weir_nvme::command::{
    Abort, AdminCommand, Blocks, ConnectData, FabricsCommand, NvmCommand, PropertyGet, PropertySize,
};
use weir_nvme::property::Property;
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::tcp::FatalErrorStatus::{HeaderDigestError, InvalidPduHeaderField};
use weir_nvme::tcp::{DigestOptions, H2cData, InitializeRequest};

use super::transfers::{begin_write, large_write, pattern};
use crate::case::{Failure, check};
use crate::nvme::context::Context;
use crate::nvme::pdu::{at, get_u32, header};
use crate::nvme::peer::{Answer, Peer};
use crate::nvme::queue::{Controller, Queue};

cases! {
    7 header_digest_wrong [DIGESTS] "TCP 1.0c 3.3.1": "a CapsuleCmd with another header digest" => "C2HTermReq, Header Digest Error, FEI is the digest";
    7 header_digest_zero [DIGESTS] "TCP 1.0c 3.3.1": "a CapsuleCmd with header digest 0" => "C2HTermReq, Header Digest Error, FEI is the digest";
    7 header_damaged_in_the_entry [DIGESTS] "TCP 1.0c 3.3.1": "a CapsuleCmd with a bit of its CID flipped" => "C2HTermReq, Header Digest Error, FEI is the digest";
    7 header_damaged_in_plen [DIGESTS] "TCP 1.0c 3.3.1": "a CapsuleCmd with a bit of its PLEN flipped" => "C2HTermReq, Header Digest Error; or Invalid PDU Header Field, FEI 4 or 3";
    7 header_damaged_in_its_type [DIGESTS] "TCP 1.0c 3.3.1": "a CapsuleCmd with a bit of its type flipped" => "C2HTermReq, Invalid PDU Header Field, FEI 0; or Header Digest Error";
    7 header_digest_wrong_on_an_admin_queue [DIGESTS] "TCP 1.0c 3.3.1": "a wrong header digest on a connected admin queue" => "C2HTermReq, Header Digest Error; its controller ends";
    7 header_digest_wrong_on_data [WRITES, DIGESTS] "TCP 1.0c 3.3.1": "an H2CData with another header digest" => "C2HTermReq, Header Digest Error, FEI is the digest";
    7 data_digest_wrong_on_connect [DIGESTS] "TCP 1.0c 3.3.2": "a Connect with another data digest, then a good one" => "Transient Transport Error for its CID; the second succeeds";
    7 data_damaged_in_connect [DIGESTS] "TCP 1.0c 3.3.2": "a Connect with a bit of its data flipped, then a good one" => "Transient Transport Error for its CID; the second succeeds";
    7 data_digest_wrong_in_a_capsule [WRITES, DIGESTS] "TCP 1.0c 3.3.2": "a Write with in-capsule data and another data digest" => "Transient Transport Error for its CID; the block is as before; the queue goes on";
    7 data_digest_wrong_on_data [WRITES, DIGESTS] "TCP 1.0c 3.3.2": "an H2CData with another data digest, while a second Write waits for its own" => "Transient Transport Error for the first CID; the second succeeds";
    7 data_digest_wrong_on_one_of_two [WRITES, DIGESTS] "TCP 1.0c 3.3.2": "a Write in two H2CData PDUs, of which the first has another data digest" => "one answer: Transient Transport Error";
    7 data_digest_wrong_on_large_data [WRITES, DIGESTS] "TCP 1.0c 3.3.2": "a Write of 128 KiB whose last H2CData has a bit flipped in the middle" => "one answer: Transient Transport Error; the queue goes on";
    7 data_digest_wrong_on_a_refused_write [WRITES, DIGESTS] "TCP 1.0c 3.3.2": "a Write past the end, with in-capsule data and another data digest" => "one answer, LBA Out of Range or Transient Transport Error; the queue goes on";
    7 data_digest_wrong_on_an_unknown_opcode [DIGESTS] "TCP 1.0c 3.3.2": "a command of unknown opcode with in-capsule data and another data digest" => "one answer, Invalid Command Opcode or Transient Transport Error; the queue goes on";
    7 data_digest_wrong_after_abort [WRITES, DIGESTS] "TCP 1.0c 3.3.2": "an aborted Write whose data still comes, with another data digest" => "one answer, Command Abort Requested; the queue goes on";
    7 header_digests_alone [DIGESTS] "TCP 1.0c 3.3": "header digests without data digests: reads, and a wrong digest" => "good data; C2HTermReq, Header Digest Error";
    7 data_digests_alone [DIGESTS] "TCP 1.0c 3.3": "data digests without header digests: reads, and a wrong digest" => "good data; Transient Transport Error";
}

fn initialized(context: &Context, digests: DigestOptions) -> Result<Peer, Failure> {
    let mut peer = context.peer()?;
    let response = peer.initialize(&InitializeRequest::new(digests))?;
    if response.digests == digests {
        Ok(peer)
    } else {
        Err(Failure::NotOffered("digests".into()))
    }
}

fn both(context: &Context) -> Result<Peer, Failure> {
    initialized(context, DigestOptions::HEADER | DigestOptions::DATA)
}

fn property_get(peer: &Peer) -> Vec<u8> {
    let get = FabricsCommand::PropertyGet(PropertyGet {
        size: PropertySize::FourBytes,
        offset: Property::Version.value(),
    });
    peer.format.capsule(&get.sqe(1, SglDescriptor::NONE), &[])
}

/// The header digest that a PDU carries.
fn digest_of(pdu: &[u8]) -> u32 {
    get_u32(pdu, usize::from(pdu[at::HEADER_LENGTH]))
}

/// Sends a PDU whose header digest is not its header's.
fn damaged(peer: &mut Peer, pdu: &[u8]) -> Result<(), Failure> {
    peer.send(pdu)?;
    peer.expect_termination("a damaged header", HeaderDigestError, digest_of(pdu))
}

fn header_digest_wrong(context: &mut Context) -> Result<(), Failure> {
    let mut peer = both(context)?;
    let mut capsule = property_get(&peer);
    capsule[header::COMMAND] ^= 1;
    damaged(&mut peer, &capsule)
}

fn header_digest_zero(context: &mut Context) -> Result<(), Failure> {
    let mut peer = both(context)?;
    let mut capsule = property_get(&peer);
    capsule[header::COMMAND..].fill(0);
    damaged(&mut peer, &capsule)
}

fn header_damaged_in_the_entry(context: &mut Context) -> Result<(), Failure> {
    let mut peer = both(context)?;
    let mut capsule = property_get(&peer);
    capsule[at::ENTRY + 2] ^= 0x10;
    damaged(&mut peer, &capsule)
}

fn header_damaged_in_plen(context: &mut Context) -> Result<(), Failure> {
    let mut peer = both(context)?;
    let mut capsule = property_get(&peer);
    let digest = digest_of(&capsule);
    capsule[at::LENGTH] ^= 0x80;
    peer.send(&capsule)?;
    let answers = [
        Answer::Terminated(HeaderDigestError, digest),
        Answer::Terminated(InvalidPduHeaderField, at::LENGTH as u32),
        Answer::Terminated(InvalidPduHeaderField, at::DATA_OFFSET as u32),
    ];
    peer.expect("a damaged header", &answers).map(drop)
}

fn header_damaged_in_its_type(context: &mut Context) -> Result<(), Failure> {
    let mut peer = both(context)?;
    let mut capsule = property_get(&peer);
    capsule[at::TYPE] ^= 0x80;
    peer.send(&capsule)?;
    let answers = [
        Answer::Terminated(InvalidPduHeaderField, at::TYPE as u32),
        Answer::TerminatedFor(HeaderDigestError),
    ];
    peer.expect("a damaged header", &answers).map(drop)
}

fn with_digests(context: &Context) -> Result<(Controller, Queue), Failure> {
    let mut options = context.options().with_digests();
    options.in_capsule_bytes = context.facts.in_capsule_bytes;
    context.io_with(&options)
}

fn header_digest_wrong_on_an_admin_queue(context: &mut Context) -> Result<(), Failure> {
    let (mut controller, mut queue) = with_digests(context)?;
    let mut capsule = property_get(&controller.admin);
    capsule[header::COMMAND] ^= 1;
    damaged(&mut controller.admin, &capsule)?;
    queue.expect_end("the I/O queue of a controller that ended")
}

fn header_digest_wrong_on_data(context: &mut Context) -> Result<(), Failure> {
    let (_controller, mut queue) = with_digests(context)?;
    let (_, mut pdu) = awaited(context, &mut queue, 2)?;
    pdu[header::DATA] ^= 1;
    damaged(&mut queue, &pdu)
}

/// A Write of one block at `lba` that waits for its data, and the H2CData that brings it.
fn awaited(context: &Context, queue: &mut Queue, lba: u64) -> Result<(u16, Vec<u8>), Failure> {
    let block = context.facts.block_bytes;
    let (sqe, r2t) = begin_write(context, queue, lba, 1)?;
    let header = H2cData {
        cid: sqe.cid,
        transfer_tag: r2t.transfer_tag,
        offset: 0,
        length: block,
        last: true,
    };
    let pdu = queue.format.h2c_data(&header, &pattern(lba, block));
    Ok((sqe.cid, pdu))
}

/// Damages the data digest at the end of a PDU.
fn damage_end(pdu: &mut [u8]) {
    *pdu.last_mut().expect("a PDU has bytes") ^= 1;
}

fn damaged_connect(context: &mut Context, damage: impl FnOnce(&mut [u8])) -> Result<(), Failure> {
    let mut peer = both(context)?;
    let options = context.options();
    let data = options.connect_data(ConnectData::ANY_CONTROLLER).encode();
    let sgl = SglDescriptor::InCapsule {
        offset: 0,
        length: data.len() as u32,
    };
    let connect = |cid| FabricsCommand::Connect(options.connect(0)).sqe(cid, sgl);
    let mut capsule = peer.format.capsule(&connect(5), &data);
    damage(&mut capsule);
    peer.send(&capsule)?;
    peer.expect_status("Connect", 5, Status::TRANSIENT_TRANSPORT_ERROR)?;
    let capsule = peer.format.capsule(&connect(6), &data);
    peer.send(&capsule)?;
    peer.expect_status("Connect again", 6, Status::SUCCESS)
        .map(drop)
}

fn data_digest_wrong_on_connect(context: &mut Context) -> Result<(), Failure> {
    damaged_connect(context, damage_end)
}

fn data_damaged_in_connect(context: &mut Context) -> Result<(), Failure> {
    damaged_connect(context, |capsule| capsule[200] ^= 4)
}

fn goes_on(context: &Context, queue: &mut Queue) -> Result<(), Failure> {
    queue.still_works(context.target.nsid, context.facts.block_bytes)
}

fn data_digest_wrong_in_a_capsule(context: &mut Context) -> Result<(), Failure> {
    let (_controller, mut queue) = with_digests(context)?;
    let (nsid, block) = (context.target.nsid, context.facts.block_bytes);
    if context.facts.in_capsule_bytes < block {
        return Err(Failure::NotOffered("in-capsule data of a block".into()));
    }
    let before = pattern(1, block);
    queue.write(nsid, 4, 1, &before)?;
    let write = NvmCommand::Write(Blocks::new(4, 1)).sqe(0, nsid, SglDescriptor::NONE);
    let (sqe, mut capsule) = queue.prepare(write, &pattern(2, block), 0);
    damage_end(&mut capsule);
    queue.send(&capsule)?;
    queue.expect_status("Write", sqe.cid, Status::TRANSIENT_TRANSPORT_ERROR)?;
    let back = queue.read(nsid, 4, 1, block)?;
    check(back == before, "Read", "the block as before", "other data")
}

fn data_digest_wrong_on_data(context: &mut Context) -> Result<(), Failure> {
    let (_controller, mut queue) = with_digests(context)?;
    let (first, mut bad) = awaited(context, &mut queue, 5)?;
    let (second, good) = awaited(context, &mut queue, 6)?;
    damage_end(&mut bad);
    queue.send(&bad)?;
    queue.expect_status("Write", first, Status::TRANSIENT_TRANSPORT_ERROR)?;
    queue.send(&good)?;
    queue.expect_status("Write", second, Status::SUCCESS)?;
    let (nsid, block) = (context.target.nsid, context.facts.block_bytes);
    let back = queue.read(nsid, 6, 1, block)?;
    check(
        back == pattern(6, block),
        "Read",
        "what the second Write wrote",
        "other data",
    )
}

fn data_digest_wrong_on_one_of_two(context: &mut Context) -> Result<(), Failure> {
    let (_controller, mut queue) = with_digests(context)?;
    let block = context.facts.block_bytes;
    let (sqe, r2t) = begin_write(context, &mut queue, 8, 2)?;
    let data = pattern(8, 2 * block);
    for part in 0..2 {
        let header = H2cData {
            cid: sqe.cid,
            transfer_tag: r2t.transfer_tag,
            offset: part * block,
            length: block,
            last: part == 1,
        };
        let from = (part * block) as usize;
        let mut pdu = queue
            .format
            .h2c_data(&header, &data[from..from + block as usize]);
        if part == 0 {
            damage_end(&mut pdu);
        }
        queue.send(&pdu)?;
    }
    queue.expect_status("Write", sqe.cid, Status::TRANSIENT_TRANSPORT_ERROR)?;
    goes_on(context, &mut queue)
}

fn data_digest_wrong_on_large_data(context: &mut Context) -> Result<(), Failure> {
    let (_controller, mut queue) = with_digests(context)?;
    let (sqe, mut pdus) = large_write(context, &mut queue)?;
    let last = pdus.last_mut().expect("an R2T asks for data");
    let middle = last.len() / 2;
    last[middle] ^= 0x20;
    for pdu in pdus {
        queue.send(&pdu)?;
    }
    queue.expect_status("Write", sqe.cid, Status::TRANSIENT_TRANSPORT_ERROR)?;
    goes_on(context, &mut queue)
}

/// A command with in-capsule data that is refused, with a wrong data digest; `status` is what refuses it.
fn refused_and_damaged(
    context: &mut Context,
    change: impl FnOnce(&mut weir_nvme::Sqe, u64),
    status: Status,
) -> Result<(), Failure> {
    let (_controller, mut queue) = with_digests(context)?;
    let (nsid, block) = (context.target.nsid, context.facts.block_bytes);
    if context.facts.in_capsule_bytes < block {
        return Err(Failure::NotOffered("in-capsule data of a block".into()));
    }
    let mut sqe = NvmCommand::Write(Blocks::new(0, 1)).sqe(0, nsid, SglDescriptor::NONE);
    change(&mut sqe, context.facts.blocks);
    let (sqe, mut capsule) = queue.prepare(sqe, &pattern(9, block), 0);
    damage_end(&mut capsule);
    queue.send(&capsule)?;
    let answers = [
        Answer::Status(sqe.cid, status.with_do_not_retry()),
        Answer::Status(sqe.cid, Status::TRANSIENT_TRANSPORT_ERROR),
    ];
    queue.expect("a refused command", &answers)?;
    // A second answer to it would come before the read's.
    goes_on(context, &mut queue)
}

fn data_digest_wrong_on_a_refused_write(context: &mut Context) -> Result<(), Failure> {
    let past_the_end = |sqe: &mut weir_nvme::Sqe, blocks: u64| {
        sqe.cdw10 = blocks as u32;
        sqe.cdw11 = (blocks >> 32) as u32;
    };
    refused_and_damaged(context, past_the_end, Status::LBA_OUT_OF_RANGE)
}

fn data_digest_wrong_on_an_unknown_opcode(context: &mut Context) -> Result<(), Failure> {
    // Bits 1:0 say that data goes to the controller.
    let unknown = |sqe: &mut weir_nvme::Sqe, _| sqe.opcode = 0x71;
    refused_and_damaged(context, unknown, Status::INVALID_COMMAND_OPCODE)
}

fn data_digest_wrong_after_abort(context: &mut Context) -> Result<(), Failure> {
    let (mut controller, mut queue) = with_digests(context)?;
    let (cid, mut pdu) = awaited(context, &mut queue, 10)?;
    let abort = AdminCommand::Abort(Abort { sqid: 1, cid });
    let (cqe, _) = controller.admin.admin(abort, &[], 0)?;
    check(cqe.status.is_success(), "Abort", "success", cqe.status)?;
    damage_end(&mut pdu);
    if cqe.dw0() & 1 == 0 {
        queue.expect_status("Write", cid, Status::COMMAND_ABORT_REQUESTED)?;
        queue.send(&pdu)?;
    } else {
        // It was not aborted, as it may be; the digest fails it.
        check(!context.manner.exact, "Abort", "aborted", "not aborted")?;
        queue.send(&pdu)?;
        queue.expect_status("Write", cid, Status::TRANSIENT_TRANSPORT_ERROR)?;
    }
    goes_on(context, &mut queue)
}

fn header_digests_alone(context: &mut Context) -> Result<(), Failure> {
    let mut options = context.options();
    options.header_digest = true;
    let (_controller, mut queue) = context.io_with(&options)?;
    goes_on(context, &mut queue)?;
    let mut capsule = property_get(&queue);
    capsule[header::COMMAND] ^= 0x80;
    damaged(&mut queue, &capsule)
}

fn data_digests_alone(context: &mut Context) -> Result<(), Failure> {
    let mut options = context.options();
    options.data_digest = true;
    let (mut controller, mut queue) = context.io_with(&options)?;
    goes_on(context, &mut queue)?;
    // A command of the admin queue that takes in-capsule data and changes nothing: it is damaged.
    let sqe = AdminCommand::KeepAlive.sqe(0, SglDescriptor::NONE);
    let admin = &mut controller.admin;
    let (mut sqe, _) = admin.prepare(sqe, &[], 0);
    sqe.opcode = 0x09;
    sqe.cdw10 = 0x16;
    sqe.sgl = SglDescriptor::InCapsule {
        offset: 0,
        length: 512,
    };
    let mut capsule = admin.format.capsule(&sqe, &[0; 512]);
    damage_end(&mut capsule);
    admin.send(&capsule)?;
    admin.expect(
        "Set Features with a wrong data digest",
        &[
            Answer::Status(sqe.cid, Status::TRANSIENT_TRANSPORT_ERROR),
            Answer::Status(sqe.cid, Status::INVALID_FIELD_IN_COMMAND),
        ],
    )?;
    admin.still_works(0, 0)
}
