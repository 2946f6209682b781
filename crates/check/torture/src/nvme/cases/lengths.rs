//! Groups 5 and 6: alignment, padding and PDO; PLEN, HLEN and digest flags.

use weir_digest::Digest;
use weir_nvme::Status;
use weir_nvme::command::{ConnectData, FabricsCommand, PropertyGet, PropertySize};
use weir_nvme::property::Property;
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::tcp::FatalErrorStatus::{InvalidPduHeaderField, LimitExceeded};
use weir_nvme::tcp::{DigestOptions, H2cData, InitializeRequest};

use super::transfers::{begin_write, pattern};
use crate::case::{Failure, check};
use crate::nvme::context::Context;
use crate::nvme::pdu::{Format, at, flag, header, put_u32};
use crate::nvme::peer::{Answer, Peer};
use crate::nvme::queue::{Controller, Queue};

cases! {
    5 hpda_31 [] "TCP 1.0c 3.6.2.2": "HPDA 31, and a Read" => "C2HData whose PDO is a multiple of 128";
    5 hpda_31_with_digests [DIGESTS] "TCP 1.0c 3.6.2.2": "HPDA 31 with both digests, and a Read" => "C2HData whose PDO is a multiple of 128";
    5 hpda_2 [] "TCP 1.0c 3.6.2.2": "HPDA 2: 12 bytes, no power of two" => "C2HData whose PDO is a multiple of 12";
    5 padding_without_a_digest [] "TCP 1.0c 3.6.1": "a Connect with padding before its data, at PDO 252" => "a Connect that succeeds";
    5 padding_after_a_digest [DIGESTS] "TCP 1.0c 3.6.1": "the same behind a header digest" => "a Connect that succeeds";
    5 padding_is_not_looked_at [] "TCP 1.0c 3.6.1": "padding of FFh" => "a Connect that succeeds";
    5 pdo_misaligned [] "TCP 1.0c 3.6.1": "a Connect whose PDO is 74" => "C2HTermReq, Invalid PDU Header Field, FEI 3";
    5 pdo_below_hlen [] "TCP 1.0c 3.6.1": "a Connect whose PDO is 68" => "C2HTermReq, Invalid PDU Header Field, FEI 3";
    5 pdo_zero_with_data [] "TCP 1.0c 3.6.1": "a Connect with data whose PDO is 0" => "C2HTermReq, Invalid PDU Header Field, FEI 3";
    5 pdo_inside_the_digest [DIGESTS] "TCP 1.0c 3.6.1": "PDO 72 where the header digest is" => "C2HTermReq, Invalid PDU Header Field, FEI 3";
    5 pdo_at_the_end [] "TCP 1.0c 3.6.1": "PDO equal to PLEN: data of no bytes" => "C2HTermReq, Invalid PDU Header Field, FEI 3 or 4";
    5 pdo_behind_the_end [] "TCP 1.0c 3.6.1": "PDO above PLEN" => "C2HTermReq, Invalid PDU Header Field, FEI 3 or 4";
    5 pdo_without_data [] "TCP 1.0c 3.6.1": "a PDO in a capsule that has no data" => "the command's answer: PDO says nothing then";
    5 h2c_data_pdo_below_hlen [WRITES] "TCP 1.0c 3.6.2.8": "an H2CData whose PDO is 20" => "C2HTermReq, Invalid PDU Header Field, FEI 3";
    5 h2c_data_pdo_misaligned [WRITES] "TCP 1.0c 3.6.2.8": "an H2CData whose PDO is 26" => "C2HTermReq, Invalid PDU Header Field, FEI 3";
    5 h2c_data_padded [WRITES] "TCP 1.0c 3.6.2.8": "an H2CData with padding, at PDO 128, read back" => "success, and the data";

    6 capsule_plen_below_hlen [] "TCP 1.0c 3.6.2.6": "a CapsuleCmd whose PLEN is 71" => "C2HTermReq, Invalid PDU Header Field, FEI 4";
    6 capsule_plen_0 [] "TCP 1.0c 3.6.2.6": "a CapsuleCmd whose PLEN is 0" => "C2HTermReq, Invalid PDU Header Field, FEI 4";
    6 capsule_plen_8 [] "TCP 1.0c 3.6.2.6": "a CapsuleCmd whose PLEN is 8" => "C2HTermReq, Invalid PDU Header Field, FEI 4";
    6 capsule_plen_one_more [] "TCP 1.0c 3.6.2.6": "a CapsuleCmd whose PLEN is 73, without PDO" => "C2HTermReq, Invalid PDU Header Field, FEI 3 or 4";
    6 capsule_plen_without_its_digest [DIGESTS] "TCP 1.0c 3.6.2.6": "a CapsuleCmd with header digest whose PLEN is 72" => "C2HTermReq, Invalid PDU Header Field, FEI 4";
    6 capsule_plen_inside_its_digest [DIGESTS] "TCP 1.0c 3.6.2.6": "a CapsuleCmd with header digest whose PLEN is 74" => "C2HTermReq, Invalid PDU Header Field, FEI 4";
    6 data_digest_without_data [DIGESTS] "TCP 1.0c 3.6.2.6": "data of no bytes, and its digest" => "C2HTermReq, Invalid PDU Header Field, FEI 4";
    6 data_shorter_than_its_digest [DIGESTS] "TCP 1.0c 3.6.2.6": "3 bytes in all where data and digest should be" => "C2HTermReq, Invalid PDU Header Field, FEI 4";
    6 capsule_hlen_71 [] "TCP 1.0c 3.6.2.6": "a CapsuleCmd whose HLEN is 71" => "C2HTermReq, Invalid PDU Header Field, FEI 2";
    6 capsule_hlen_24 [] "TCP 1.0c 3.6.2.6": "a CapsuleCmd whose HLEN is 24" => "C2HTermReq, Invalid PDU Header Field, FEI 2";
    6 capsule_hlen_0 [] "TCP 1.0c 3.6.2.6": "a CapsuleCmd whose HLEN is 0" => "C2HTermReq, Invalid PDU Header Field, FEI 2";
    6 capsule_hlen_255 [] "TCP 1.0c 3.6.2.6": "a CapsuleCmd whose HLEN is 255" => "C2HTermReq, Invalid PDU Header Field, FEI 2";
    6 h2c_data_hlen_72 [] "TCP 1.0c 3.6.2.8": "an H2CData whose HLEN is 72" => "C2HTermReq, Invalid PDU Header Field, FEI 2";
    6 h2c_data_plen_24 [] "TCP 1.0c 3.6.2.8": "an H2CData without data" => "C2HTermReq, Invalid PDU Header Field, FEI 4 or 16";
    6 h2c_data_plen_max [] "TCP 1.0c 3.6.2.8": "an H2CData whose PLEN is 2^32 - 1, with the DATAL that fits" => "C2HTermReq, Data Transfer Limit Exceeded, or Invalid PDU Header Field";
    6 header_digest_flag_not_agreed [] "TCP 1.0c 3.6.1": "HDGSTF without header digests" => "C2HTermReq, Invalid PDU Header Field, FEI 1";
    6 header_digest_flag_missing [DIGESTS] "TCP 1.0c 3.6.1": "no HDGSTF with header digests" => "C2HTermReq, Invalid PDU Header Field, FEI 1";
    6 data_digest_flag_not_agreed [] "TCP 1.0c 3.6.1": "DDGSTF without data digests" => "C2HTermReq, Invalid PDU Header Field, FEI 1";
    6 data_digest_flag_missing [DIGESTS] "TCP 1.0c 3.6.1": "no DDGSTF with data digests" => "C2HTermReq, Invalid PDU Header Field, FEI 1";
    6 reserved_flags [] "TCP 1.0c 3.6.1": "a CapsuleCmd with every flag that it does not have" => "the command's answer: reserved flags are ignored";
}

/// A Connect capsule, as the format says, with CID 0.
fn connect(context: &Context, format: &Format) -> Vec<u8> {
    let options = context.options();
    let data = options.connect_data(ConnectData::ANY_CONTROLLER).encode();
    let sgl = SglDescriptor::InCapsule {
        offset: 0,
        length: data.len() as u32,
    };
    let sqe = FabricsCommand::Connect(options.connect(0)).sqe(0, sgl);
    format.capsule(&sqe, &data)
}

/// Property Get of VS with CID 1: refused before Connect, so that its answer tells that it was read.
fn property_get(format: &Format) -> Vec<u8> {
    let get = FabricsCommand::PropertyGet(PropertyGet {
        size: PropertySize::FourBytes,
        offset: Property::Version.value(),
    });
    format.capsule(&get.sqe(1, SglDescriptor::NONE), &[])
}

fn answered(peer: &mut Peer) -> Result<(), Failure> {
    let refused = Status::COMMAND_SEQUENCE_ERROR.with_do_not_retry();
    peer.expect_status("Property Get before Connect", 1, refused)
        .map(drop)
}

/// A connection with both digests.
fn with_digests(context: &Context) -> Result<Peer, Failure> {
    let mut peer = context.peer()?;
    peer.initialize(&InitializeRequest::new(
        DigestOptions::HEADER | DigestOptions::DATA,
    ))?;
    if peer.format.header_digest && peer.format.data_digest {
        Ok(peer)
    } else {
        Err(Failure::NotOffered("digests".into()))
    }
}

/// The field at this byte is wrong.
fn wrong(field: usize) -> Answer {
    Answer::Terminated(InvalidPduHeaderField, field as u32)
}

/// PDO is wrong, or PLEN, of which either can be said.
const WRONG_PDO_OR_PLEN: [Answer; 2] = [
    Answer::Terminated(InvalidPduHeaderField, at::DATA_OFFSET as u32),
    Answer::Terminated(InvalidPduHeaderField, at::LENGTH as u32),
];
const WRONG_PLEN_OR_PDO: [Answer; 2] = [WRONG_PDO_OR_PLEN[1], WRONG_PDO_OR_PLEN[0]];

fn read_aligned(context: &mut Context, alignment: u8, digests: bool) -> Result<(), Failure> {
    let mut options = context.options();
    if digests {
        options = options.with_digests();
    }
    options.alignment = alignment;
    let (_controller, mut queue) = context.io_with(&options)?;
    let (nsid, block) = (context.target.nsid, context.facts.block_bytes);
    // Every PDU is checked when it is taken apart.
    for blocks in [1, 2, 8] {
        queue.read(nsid, 0, blocks, blocks * block)?;
    }
    Ok(())
}

fn hpda_31(context: &mut Context) -> Result<(), Failure> {
    read_aligned(context, 31, false)
}

fn hpda_31_with_digests(context: &mut Context) -> Result<(), Failure> {
    read_aligned(context, 31, true)
}

fn hpda_2(context: &mut Context) -> Result<(), Failure> {
    read_aligned(context, 2, false)
}

/// Moves the data of a PDU to `offset` behind padding of `filler`.
fn padded(format: &Format, pdu: &[u8], offset: usize, filler: u8) -> Vec<u8> {
    let start = usize::from(pdu[at::DATA_OFFSET]);
    let before = format.after_header(usize::from(pdu[at::HEADER_LENGTH]));
    let mut moved = pdu[..before].to_vec();
    moved.resize(offset, filler);
    moved.extend_from_slice(&pdu[start..]);
    let length = moved.len() as u32;
    put_u32(&mut moved, at::LENGTH, length);
    moved[at::DATA_OFFSET] = offset as u8;
    format.sign(&mut moved);
    moved
}

/// The largest offset that PDO can say and CPDA allows.
fn farthest(format: &Format) -> usize {
    255 / format.controller_alignment * format.controller_alignment
}

fn connect_padded(context: &mut Context, mut peer: Peer, filler: u8) -> Result<(), Failure> {
    let capsule = connect(context, &peer.format);
    let capsule = padded(&peer.format, &capsule, farthest(&peer.format), filler);
    peer.send(&capsule)?;
    peer.expect_status("Connect", 0, Status::SUCCESS).map(drop)
}

fn padding_without_a_digest(context: &mut Context) -> Result<(), Failure> {
    let peer = context.initialized()?;
    connect_padded(context, peer, 0)
}

fn padding_after_a_digest(context: &mut Context) -> Result<(), Failure> {
    let peer = with_digests(context)?;
    connect_padded(context, peer, 0)
}

fn padding_is_not_looked_at(context: &mut Context) -> Result<(), Failure> {
    let peer = context.initialized()?;
    connect_padded(context, peer, 0xff)
}

/// Sends a Connect that was changed, and waits for its termination.
fn refused_connect(
    context: &mut Context,
    mut peer: Peer,
    change: impl FnOnce(&mut Vec<u8>),
    answers: &[Answer],
) -> Result<(), Failure> {
    let mut capsule = connect(context, &peer.format);
    change(&mut capsule);
    if usize::from(capsule[at::HEADER_LENGTH]) == header::COMMAND {
        peer.format.sign(&mut capsule);
    }
    peer.send(&capsule)?;
    peer.expect("Connect", answers).map(drop)
}

fn with_pdo(context: &mut Context, offset: u8) -> Result<(), Failure> {
    let peer = context.initialized()?;
    let change = |capsule: &mut Vec<u8>| capsule[at::DATA_OFFSET] = offset;
    refused_connect(context, peer, change, &[wrong(at::DATA_OFFSET)])
}

fn pdo_misaligned(context: &mut Context) -> Result<(), Failure> {
    with_pdo(context, 74)
}

fn pdo_below_hlen(context: &mut Context) -> Result<(), Failure> {
    with_pdo(context, 68)
}

fn pdo_zero_with_data(context: &mut Context) -> Result<(), Failure> {
    with_pdo(context, 0)
}

fn pdo_inside_the_digest(context: &mut Context) -> Result<(), Failure> {
    let peer = with_digests(context)?;
    let change = |capsule: &mut Vec<u8>| capsule[at::DATA_OFFSET] = header::COMMAND as u8;
    refused_connect(context, peer, change, &[wrong(at::DATA_OFFSET)])
}

fn pdo_at_the_end(context: &mut Context) -> Result<(), Failure> {
    let peer = context.initialized()?;
    let change = |capsule: &mut Vec<u8>| {
        capsule.truncate(header::COMMAND + 4);
        capsule[at::DATA_OFFSET] = header::COMMAND as u8 + 4;
        put_u32(capsule, at::LENGTH, header::COMMAND as u32 + 4);
    };
    refused_connect(context, peer, change, &WRONG_PLEN_OR_PDO)
}

fn pdo_behind_the_end(context: &mut Context) -> Result<(), Failure> {
    let peer = context.initialized()?;
    let change = |capsule: &mut Vec<u8>| {
        capsule.truncate(header::COMMAND + 8);
        capsule[at::DATA_OFFSET] = 252;
        put_u32(capsule, at::LENGTH, header::COMMAND as u32 + 8);
    };
    refused_connect(context, peer, change, &WRONG_PLEN_OR_PDO)
}

fn pdo_without_data(context: &mut Context) -> Result<(), Failure> {
    let mut peer = context.initialized()?;
    let mut capsule = property_get(&peer.format);
    capsule[at::DATA_OFFSET] = 77;
    peer.send(&capsule)?;
    answered(&mut peer)
}

/// An I/O queue whose Write of block 1 waits for its data.
struct Awaited {
    _controller: Controller,
    queue: Queue,
    cid: u16,
    /// The PDU that brings the data, to be changed.
    pdu: Vec<u8>,
    data: Vec<u8>,
}

fn awaited_data(context: &mut Context) -> Result<Awaited, Failure> {
    let (controller, mut queue) = context.io()?;
    let block = context.facts.block_bytes;
    let (sqe, r2t) = begin_write(context, &mut queue, 1, 1)?;
    let header = H2cData {
        cid: sqe.cid,
        transfer_tag: r2t.transfer_tag,
        offset: 0,
        length: block,
        last: true,
    };
    let data = pattern(3, block);
    let pdu = queue.format.h2c_data(&header, &data);
    Ok(Awaited {
        _controller: controller,
        queue,
        cid: sqe.cid,
        pdu,
        data,
    })
}

fn h2c_data_with_pdo(context: &mut Context, offset: u8) -> Result<(), Failure> {
    let mut awaited = awaited_data(context)?;
    awaited.pdu[at::DATA_OFFSET] = offset;
    awaited.queue.send(&awaited.pdu)?;
    let answers = [wrong(at::DATA_OFFSET)];
    awaited.queue.expect("H2CData", &answers).map(drop)
}

fn h2c_data_pdo_below_hlen(context: &mut Context) -> Result<(), Failure> {
    h2c_data_with_pdo(context, 20)
}

fn h2c_data_pdo_misaligned(context: &mut Context) -> Result<(), Failure> {
    h2c_data_with_pdo(context, 26)
}

fn h2c_data_padded(context: &mut Context) -> Result<(), Failure> {
    let mut awaited = awaited_data(context)?;
    let queue = &mut awaited.queue;
    let pdu = padded(&queue.format, &awaited.pdu, 128, 0xff);
    queue.send(&pdu)?;
    queue.expect_status("Write", awaited.cid, Status::SUCCESS)?;
    let (nsid, block) = (context.target.nsid, context.facts.block_bytes);
    let back = queue.read(nsid, 1, 1, block)?;
    check(
        back == awaited.data,
        "Read",
        "what was written",
        "other data",
    )
}

/// Sends a capsule without data that was changed, and waits for its termination.
fn refused_capsule(
    mut peer: Peer,
    change: impl FnOnce(&mut Vec<u8>),
    answers: &[Answer],
) -> Result<(), Failure> {
    let mut capsule = property_get(&peer.format);
    change(&mut capsule);
    if usize::from(capsule[at::HEADER_LENGTH]) == header::COMMAND {
        peer.format.sign(&mut capsule);
    }
    peer.send(&capsule)?;
    peer.expect("CapsuleCmd", answers).map(drop)
}

fn capsule_with_plen(context: &mut Context, length: u32) -> Result<(), Failure> {
    let change = |capsule: &mut Vec<u8>| put_u32(capsule, at::LENGTH, length);
    refused_capsule(context.initialized()?, change, &[wrong(at::LENGTH)])
}

fn capsule_plen_below_hlen(context: &mut Context) -> Result<(), Failure> {
    capsule_with_plen(context, 71)
}

fn capsule_plen_0(context: &mut Context) -> Result<(), Failure> {
    capsule_with_plen(context, 0)
}

fn capsule_plen_8(context: &mut Context) -> Result<(), Failure> {
    capsule_with_plen(context, 8)
}

fn capsule_plen_one_more(context: &mut Context) -> Result<(), Failure> {
    let change = |capsule: &mut Vec<u8>| {
        put_u32(capsule, at::LENGTH, 73);
        capsule.push(0);
    };
    refused_capsule(context.initialized()?, change, &WRONG_PDO_OR_PLEN)
}

fn digest_capsule_with_plen(context: &mut Context, length: u32) -> Result<(), Failure> {
    let change = |capsule: &mut Vec<u8>| put_u32(capsule, at::LENGTH, length);
    refused_capsule(with_digests(context)?, change, &[wrong(at::LENGTH)])
}

fn capsule_plen_without_its_digest(context: &mut Context) -> Result<(), Failure> {
    digest_capsule_with_plen(context, 72)
}

fn capsule_plen_inside_its_digest(context: &mut Context) -> Result<(), Failure> {
    digest_capsule_with_plen(context, 74)
}

/// A capsule with digests whose data and data digest are `bytes` together.
fn data_and_digest_of(context: &mut Context, bytes: usize) -> Result<(), Failure> {
    let peer = with_digests(context)?;
    let change = |capsule: &mut Vec<u8>| {
        let start = usize::from(capsule[at::DATA_OFFSET]);
        capsule.truncate(start);
        capsule.extend(Digest::of(&[]).to_bytes().iter().cycle().take(bytes));
        put_u32(capsule, at::LENGTH, (start + bytes) as u32);
    };
    refused_connect(context, peer, change, &[wrong(at::LENGTH)])
}

fn data_digest_without_data(context: &mut Context) -> Result<(), Failure> {
    data_and_digest_of(context, 4)
}

fn data_shorter_than_its_digest(context: &mut Context) -> Result<(), Failure> {
    data_and_digest_of(context, 3)
}

fn capsule_with_hlen(context: &mut Context, length: u8) -> Result<(), Failure> {
    let change = |capsule: &mut Vec<u8>| capsule[at::HEADER_LENGTH] = length;
    refused_capsule(context.initialized()?, change, &[wrong(at::HEADER_LENGTH)])
}

fn capsule_hlen_71(context: &mut Context) -> Result<(), Failure> {
    capsule_with_hlen(context, 71)
}

fn capsule_hlen_24(context: &mut Context) -> Result<(), Failure> {
    capsule_with_hlen(context, 24)
}

fn capsule_hlen_0(context: &mut Context) -> Result<(), Failure> {
    capsule_with_hlen(context, 0)
}

fn capsule_hlen_255(context: &mut Context) -> Result<(), Failure> {
    capsule_with_hlen(context, 255)
}

/// An H2CData that nobody asked for, changed; its form is judged first.
fn malformed_data(
    context: &mut Context,
    change: impl FnOnce(&mut Vec<u8>),
    answers: &[Answer],
) -> Result<(), Failure> {
    let (_controller, mut queue) = context.io()?;
    let header = H2cData {
        cid: 0,
        transfer_tag: 0,
        offset: 0,
        length: 512,
        last: true,
    };
    let mut pdu = queue.format.h2c_data(&header, &[0; 512]);
    change(&mut pdu);
    queue.send(&pdu)?;
    queue.expect("H2CData", answers).map(drop)
}

fn h2c_data_hlen_72(context: &mut Context) -> Result<(), Failure> {
    let change = |pdu: &mut Vec<u8>| pdu[at::HEADER_LENGTH] = 72;
    malformed_data(context, change, &[wrong(at::HEADER_LENGTH)])
}

fn h2c_data_plen_24(context: &mut Context) -> Result<(), Failure> {
    let change = |pdu: &mut Vec<u8>| {
        pdu.truncate(header::DATA);
        put_u32(pdu, at::LENGTH, header::DATA as u32);
    };
    let answers = [wrong(at::LENGTH), wrong(at::DATA_LENGTH)];
    malformed_data(context, change, &answers)
}

fn h2c_data_plen_max(context: &mut Context) -> Result<(), Failure> {
    let change = |pdu: &mut Vec<u8>| {
        put_u32(pdu, at::LENGTH, u32::MAX);
        put_u32(pdu, at::DATA_LENGTH, u32::MAX - header::DATA as u32);
    };
    let answers = [
        Answer::TerminatedFor(LimitExceeded),
        Answer::TerminatedFor(InvalidPduHeaderField),
    ];
    malformed_data(context, change, &answers)
}

fn header_digest_flag_not_agreed(context: &mut Context) -> Result<(), Failure> {
    let change = |capsule: &mut Vec<u8>| capsule[at::FLAGS] |= flag::HEADER_DIGEST;
    refused_capsule(context.initialized()?, change, &[wrong(at::FLAGS)])
}

fn header_digest_flag_missing(context: &mut Context) -> Result<(), Failure> {
    let change = |capsule: &mut Vec<u8>| capsule[at::FLAGS] &= !flag::HEADER_DIGEST;
    refused_capsule(with_digests(context)?, change, &[wrong(at::FLAGS)])
}

fn data_digest_flag_not_agreed(context: &mut Context) -> Result<(), Failure> {
    let peer = context.initialized()?;
    let change = |capsule: &mut Vec<u8>| capsule[at::FLAGS] |= flag::DATA_DIGEST;
    refused_connect(context, peer, change, &[wrong(at::FLAGS)])
}

fn data_digest_flag_missing(context: &mut Context) -> Result<(), Failure> {
    let peer = with_digests(context)?;
    let change = |capsule: &mut Vec<u8>| capsule[at::FLAGS] &= !flag::DATA_DIGEST;
    refused_connect(context, peer, change, &[wrong(at::FLAGS)])
}

fn reserved_flags(context: &mut Context) -> Result<(), Failure> {
    let mut peer = context.initialized()?;
    let mut capsule = property_get(&peer.format);
    capsule[at::FLAGS] |= 0xf0 | flag::LAST | flag::SUCCESS;
    peer.send(&capsule)?;
    answered(&mut peer)
}
