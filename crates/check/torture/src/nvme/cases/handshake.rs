//! Groups 1 and 2: what an ICReq may say, what may come first, and what may come twice.

use weir_nvme::Status;
use weir_nvme::command::{FabricsCommand, PropertyGet, PropertySize};
use weir_nvme::property::Property;
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::tcp::FatalErrorStatus::{
    InvalidPduHeaderField, LimitExceeded, PduSequenceError, UnsupportedParameter,
};
use weir_nvme::tcp::{DigestOptions, H2cData, InitializeRequest};

use crate::case::{Failure, check};
use crate::nvme::context::Context;
use crate::nvme::pdu::{at, flag, header, put_u16, put_u32, termination};
use crate::nvme::peer::{Answer, Got, Peer};
use crate::nvme::queue::Queue;

cases! {
    1 icreq_plen_127 [] "TCP 1.0c 3.6.2.2": "an ICReq whose PLEN is 127" => "C2HTermReq, Invalid PDU Header Field, FEI 4";
    1 icreq_plen_129 [] "TCP 1.0c 3.6.2.2": "an ICReq whose PLEN is 129, and 129 bytes" => "C2HTermReq, Invalid PDU Header Field, FEI 4";
    1 icreq_plen_0 [] "TCP 1.0c 3.6.2.2": "an ICReq whose PLEN is 0" => "C2HTermReq, Invalid PDU Header Field, FEI 4";
    1 icreq_plen_max [] "TCP 1.0c 3.6.2.2": "an ICReq whose PLEN is 2^32 - 1" => "C2HTermReq, Invalid PDU Header Field, FEI 4";
    1 icreq_hlen_127 [] "TCP 1.0c 3.6.2.2": "an ICReq whose HLEN is 127" => "C2HTermReq, Invalid PDU Header Field, FEI 2";
    1 icreq_hlen_129 [] "TCP 1.0c 3.6.2.2": "an ICReq whose HLEN is 129" => "C2HTermReq, Invalid PDU Header Field, FEI 2";
    1 icreq_hlen_0 [] "TCP 1.0c 3.6.2.2": "an ICReq whose HLEN is 0" => "C2HTermReq, Invalid PDU Header Field, FEI 2";
    1 icreq_hlen_255 [] "TCP 1.0c 3.6.2.2": "an ICReq whose HLEN is 255" => "C2HTermReq, Invalid PDU Header Field, FEI 2";
    1 icreq_pfv_1 [] "TCP 1.0c 3.6.2.2": "an ICReq whose PFV is 1" => "C2HTermReq, Unsupported Parameter, FEI 8";
    1 icreq_pfv_max [] "TCP 1.0c 3.6.2.2": "an ICReq whose PFV is 65535" => "C2HTermReq, Unsupported Parameter, FEI 8";
    1 icreq_hpda_32 [] "TCP 1.0c 3.6.2.2": "an ICReq whose HPDA is 32" => "C2HTermReq, Invalid PDU Header Field, FEI 10";
    1 icreq_hpda_255 [] "TCP 1.0c 3.6.2.2": "an ICReq whose HPDA is 255" => "C2HTermReq, Invalid PDU Header Field, FEI 10";
    1 icreq_unknown_digest_bits [] "TCP 1.0c 3.6.2.2": "an ICReq with every reserved bit of DGST" => "ICResp without them; or C2HTermReq, Invalid PDU Header Field or Unsupported Parameter";
    1 icreq_every_digest_bit [DIGESTS] "TCP 1.0c 3.6.2.2": "an ICReq whose DGST is FFh, and a command with both digests" => "ICResp with the two known digests, and the answer; or C2HTermReq as before";
    1 icreq_maxr2t_max [WRITES] "TCP 1.0c 3.6.2.2": "an ICReq whose MAXR2T is 2^32 - 1, and a write" => "ICResp, an R2T, success";
    1 icreq_reserved_bytes [] "TCP 1.0c 3.6.2.2": "an ICReq whose reserved bytes are FFh" => "ICResp: reserved fields are ignored";
    1 icreq_flags_and_pdo [] "TCP 1.0c 3.6.1": "an ICReq with every flag, and a PDO" => "ICResp: reserved fields are ignored";

    2 icreq_twice [] "TCP 1.0c 3.5": "a second ICReq after ICResp" => "C2HTermReq, PDU Sequence Error";
    2 icreq_twice_in_one_segment [] "TCP 1.0c 3.5": "two ICReqs in one segment" => "ICResp, then C2HTermReq, PDU Sequence Error";
    2 icreq_on_an_admin_queue [] "TCP 1.0c 3.5": "an ICReq on a connected admin queue" => "C2HTermReq, PDU Sequence Error; its controller ends";
    2 icreq_on_an_io_queue [] "TCP 1.0c 3.5": "an ICReq on a connected I/O queue" => "C2HTermReq, PDU Sequence Error";
    2 capsule_before_icreq [] "TCP 1.0c 3.5": "a CapsuleCmd first" => "C2HTermReq, PDU Sequence Error";
    2 h2c_data_before_icreq [] "TCP 1.0c 3.5": "an H2CData first" => "C2HTermReq, PDU Sequence Error";
    2 icresp_before_icreq [] "TCP 1.0c 3.6.1": "an ICResp from the host" => "C2HTermReq, Invalid PDU Header Field, FEI 0, or PDU Sequence Error";
    2 c2h_termination_before_icreq [] "TCP 1.0c 3.6.1": "a C2HTermReq from the host" => "C2HTermReq, Invalid PDU Header Field, FEI 0, or PDU Sequence Error; or the end of the connection";
    2 response_from_the_host [] "TCP 1.0c 3.6.1": "a CapsuleResp from the host after ICResp" => "C2HTermReq, Invalid PDU Header Field, FEI 0, or PDU Sequence Error";
    2 c2h_data_from_the_host [] "TCP 1.0c 3.6.1": "a C2HData from the host after ICResp" => "C2HTermReq, Invalid PDU Header Field, FEI 0, or PDU Sequence Error";
    2 r2t_from_the_host [] "TCP 1.0c 3.6.1": "an R2T from the host after ICResp" => "C2HTermReq, Invalid PDU Header Field, FEI 0, or PDU Sequence Error";
    2 pdu_type_8 [] "TCP 1.0c 3.6.1": "a PDU of type 08h" => "C2HTermReq, Invalid PDU Header Field, FEI 0";
    2 pdu_type_255 [] "TCP 1.0c 3.6.1": "a PDU of type FFh" => "C2HTermReq, Invalid PDU Header Field, FEI 0";
    2 pdu_type_unknown_on_an_io_queue [] "TCP 1.0c 3.6.1": "a PDU of type 0Ah on a connected I/O queue" => "C2HTermReq, Invalid PDU Header Field, FEI 0";
    2 icreq_longer_than_its_header [] "TCP 1.0c 3.6.2.2": "an ICReq whose PLEN is 4096, and 4096 bytes" => "C2HTermReq, Invalid PDU Header Field, FEI 4";
    2 capsule_longer_than_its_header [] "TCP 1.0c 3.6.2.6": "a Property Get whose PLEN is 1 MiB, without PDO, and 64 KiB of it" => "C2HTermReq, Invalid PDU Header Field, FEI 3 or 4";
    2 capsule_with_endless_data [] "TCP 1.0c 3.6.2.6": "a Property Get that announces 2^32 - 1 bytes of PDU" => "C2HTermReq, Invalid PDU Header Field, FEI 4, or Data Transfer Limit Exceeded";
    2 termination_longer_than_its_header [] "TCP 1.0c 3.6.2.4": "an H2CTermReq with 4 KiB of data" => "the end of the connection";
}

/// An ICReq without digests.
fn icreq() -> [u8; header::INITIALIZE] {
    InitializeRequest::new(DigestOptions::NONE).encode()
}

/// Sends an ICReq that was changed, and waits for its termination.
fn refused_icreq(
    context: &mut Context,
    change: impl FnOnce(&mut Vec<u8>),
    answer: Answer,
) -> Result<(), Failure> {
    let mut bytes = icreq().to_vec();
    change(&mut bytes);
    let mut peer = context.peer()?;
    peer.send(&bytes)?;
    peer.expect("ICReq", &[answer]).map(drop)
}

fn with_plen(context: &mut Context, plen: u32, length: usize) -> Result<(), Failure> {
    let change = |bytes: &mut Vec<u8>| {
        put_u32(bytes, at::LENGTH, plen);
        bytes.resize(length, 0);
    };
    let answer = Answer::Terminated(InvalidPduHeaderField, at::LENGTH as u32);
    refused_icreq(context, change, answer)
}

fn with_hlen(context: &mut Context, hlen: u8) -> Result<(), Failure> {
    let change = |bytes: &mut Vec<u8>| bytes[at::HEADER_LENGTH] = hlen;
    let answer = Answer::Terminated(InvalidPduHeaderField, at::HEADER_LENGTH as u32);
    refused_icreq(context, change, answer)
}

fn icreq_plen_127(context: &mut Context) -> Result<(), Failure> {
    with_plen(context, 127, 127)
}

fn icreq_plen_129(context: &mut Context) -> Result<(), Failure> {
    with_plen(context, 129, 129)
}

fn icreq_plen_0(context: &mut Context) -> Result<(), Failure> {
    with_plen(context, 0, header::INITIALIZE)
}

fn icreq_plen_max(context: &mut Context) -> Result<(), Failure> {
    with_plen(context, u32::MAX, header::INITIALIZE)
}

fn icreq_hlen_127(context: &mut Context) -> Result<(), Failure> {
    with_hlen(context, 127)
}

fn icreq_hlen_129(context: &mut Context) -> Result<(), Failure> {
    with_hlen(context, 129)
}

fn icreq_hlen_0(context: &mut Context) -> Result<(), Failure> {
    with_hlen(context, 0)
}

fn icreq_hlen_255(context: &mut Context) -> Result<(), Failure> {
    with_hlen(context, 255)
}

fn with_version(context: &mut Context, version: u16) -> Result<(), Failure> {
    let change = |bytes: &mut Vec<u8>| put_u16(bytes, at::FORMAT_VERSION, version);
    let answer = Answer::Terminated(UnsupportedParameter, at::FORMAT_VERSION as u32);
    refused_icreq(context, change, answer)
}

fn icreq_pfv_1(context: &mut Context) -> Result<(), Failure> {
    with_version(context, 1)
}

fn icreq_pfv_max(context: &mut Context) -> Result<(), Failure> {
    with_version(context, u16::MAX)
}

fn with_alignment(context: &mut Context, alignment: u8) -> Result<(), Failure> {
    let change = |bytes: &mut Vec<u8>| bytes[at::ALIGNMENT] = alignment;
    let answer = Answer::Terminated(InvalidPduHeaderField, at::ALIGNMENT as u32);
    refused_icreq(context, change, answer)
}

fn icreq_hpda_32(context: &mut Context) -> Result<(), Failure> {
    with_alignment(context, 32)
}

fn icreq_hpda_255(context: &mut Context) -> Result<(), Failure> {
    with_alignment(context, 255)
}

/// Sends an ICReq with these bits of DGST. None: it was refused as it may be.
fn with_digest_bits(context: &mut Context, bits: u8) -> Result<Option<Peer>, Failure> {
    let mut bytes = icreq();
    bytes[at::DIGESTS] = bits;
    let request = InitializeRequest::decode(&bytes);
    let mut peer = context.peer()?;
    peer.send(&bytes)?;
    if context.manner.exact {
        peer.await_initialized(&request)?;
        return Ok(Some(peer));
    }
    let got = match peer.receive() {
        Got::Initialized(response) => {
            let known = request.digests.known();
            check(
                known.contains(response.digests),
                "ICResp's DGST",
                "known digests that were asked for",
                format!("{:?}", response.digests),
            )?;
            return Ok(None);
        }
        got => got,
    };
    let allowed = [
        Answer::TerminatedFor(InvalidPduHeaderField),
        Answer::TerminatedFor(UnsupportedParameter),
    ];
    peer.judge("ICReq", &allowed, got).map(|_| None)
}

fn icreq_unknown_digest_bits(context: &mut Context) -> Result<(), Failure> {
    let Some(peer) = with_digest_bits(context, 0xfc)? else {
        return Ok(());
    };
    check(
        !peer.format.header_digest && !peer.format.data_digest,
        "ICResp's DGST",
        "no digest",
        format!("{:?}", peer.format),
    )
}

fn icreq_every_digest_bit(context: &mut Context) -> Result<(), Failure> {
    let Some(mut peer) = with_digest_bits(context, 0xff)? else {
        return Ok(());
    };
    check(
        peer.format.header_digest && peer.format.data_digest,
        "ICResp's DGST",
        "both digests",
        format!("{:?}", peer.format),
    )?;
    // A command before Connect is refused, with a header digest.
    let capsule = peer.format.capsule(&property_get(1), &[]);
    peer.send(&capsule)?;
    peer.expect_status(
        "Property Get before Connect",
        1,
        Status::COMMAND_SEQUENCE_ERROR.with_do_not_retry(),
    )
    .map(drop)
}

fn icreq_maxr2t_max(context: &mut Context) -> Result<(), Failure> {
    let options = context.options();
    let controller = context.controller()?;
    let mut peer = context.peer()?;
    peer.initialize(&InitializeRequest {
        maximum_r2t_zero_based: u32::MAX,
        ..InitializeRequest::new(DigestOptions::NONE)
    })?;
    let mut queue = Queue::over(peer);
    let data = options.connect_data(controller.id);
    let cqe = queue.connect(&options.connect(1), &data)?;
    check(cqe.status.is_success(), "Connect", "success", cqe.status)?;
    let (nsid, block) = (context.target.nsid, context.facts.block_bytes);
    queue.write(nsid, 0, 1, &vec![0x5a; block as usize])
}

fn accepted_icreq(
    context: &mut Context,
    change: impl FnOnce(&mut [u8; header::INITIALIZE]),
) -> Result<(), Failure> {
    let mut bytes = icreq();
    change(&mut bytes);
    let mut peer = context.peer()?;
    peer.send(&bytes)?;
    peer.await_initialized(&InitializeRequest::new(DigestOptions::NONE))
        .map(drop)
}

fn icreq_reserved_bytes(context: &mut Context) -> Result<(), Failure> {
    accepted_icreq(context, |bytes| bytes[16..].fill(0xff))
}

fn icreq_flags_and_pdo(context: &mut Context) -> Result<(), Failure> {
    accepted_icreq(context, |bytes| {
        bytes[at::FLAGS] = 0xff;
        bytes[at::DATA_OFFSET] = 0x7f;
    })
}

fn icreq_twice(context: &mut Context) -> Result<(), Failure> {
    let mut peer = context.initialized()?;
    peer.send(&icreq())?;
    peer.expect_termination("a second ICReq", PduSequenceError, 0)
}

fn icreq_twice_in_one_segment(context: &mut Context) -> Result<(), Failure> {
    let mut peer = context.peer()?;
    peer.send(&[icreq(), icreq()].concat())?;
    peer.await_initialized(&InitializeRequest::new(DigestOptions::NONE))?;
    peer.expect_termination("a second ICReq", PduSequenceError, 0)
}

fn icreq_on_an_admin_queue(context: &mut Context) -> Result<(), Failure> {
    let (mut controller, mut queue) = context.io()?;
    controller.admin.send(&icreq())?;
    controller
        .admin
        .expect_termination("an ICReq on an admin queue", PduSequenceError, 0)?;
    queue.expect_end("the I/O queue of a controller that ended")
}

fn icreq_on_an_io_queue(context: &mut Context) -> Result<(), Failure> {
    let (mut controller, mut queue) = context.io()?;
    queue.send(&icreq())?;
    queue.expect_termination("an ICReq on an I/O queue", PduSequenceError, 0)?;
    controller.admin.still_works(0, 0)
}

/// An entry that reads VS.
fn property_get(cid: u16) -> weir_nvme::Sqe {
    FabricsCommand::PropertyGet(PropertyGet {
        size: PropertySize::FourBytes,
        offset: Property::Version.value(),
    })
    .sqe(cid, SglDescriptor::NONE)
}

fn capsule_before_icreq(context: &mut Context) -> Result<(), Failure> {
    let mut peer = context.peer()?;
    let capsule = peer.format.capsule(&property_get(1), &[]);
    peer.send(&capsule)?;
    peer.expect_termination("CapsuleCmd", PduSequenceError, 0)
}

fn h2c_data_before_icreq(context: &mut Context) -> Result<(), Failure> {
    let mut peer = context.peer()?;
    let pdu = peer.format.h2c_data(&some_data(), &[0; 64]);
    peer.send(&pdu)?;
    peer.expect_termination("H2CData", PduSequenceError, 0)
}

fn some_data() -> H2cData {
    H2cData {
        cid: 1,
        transfer_tag: 0,
        offset: 0,
        length: 64,
        last: true,
    }
}

/// A header of a type that only a controller sends.
fn of_type(pdu_type: u8, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    bytes[at::TYPE] = pdu_type;
    bytes[at::HEADER_LENGTH] = length as u8;
    put_u32(&mut bytes, at::LENGTH, length as u32);
    bytes
}

const WRONG_TYPE: [Answer; 2] = [
    Answer::Terminated(InvalidPduHeaderField, at::TYPE as u32),
    Answer::TerminatedFor(PduSequenceError),
];

fn icresp_before_icreq(context: &mut Context) -> Result<(), Failure> {
    let mut peer = context.peer()?;
    peer.send(&of_type(0x01, header::INITIALIZE))?;
    peer.expect("ICResp", &WRONG_TYPE).map(drop)
}

fn c2h_termination_before_icreq(context: &mut Context) -> Result<(), Failure> {
    let mut peer = context.peer()?;
    let mut bytes = termination(2, 0, &[0; 8]);
    bytes[at::TYPE] = 0x03;
    peer.send(&bytes)?;
    let [first, second] = WRONG_TYPE;
    peer.expect("C2HTermReq", &[first, second, Answer::End])
        .map(drop)
}

fn from_the_host(context: &mut Context, pdu_type: u8) -> Result<(), Failure> {
    let mut peer = context.initialized()?;
    let mut bytes = of_type(pdu_type, header::RESPONSE);
    if pdu_type == 0x07 {
        bytes[at::FLAGS] = flag::LAST;
        bytes[at::DATA_OFFSET] = header::DATA as u8;
        put_u32(&mut bytes, at::LENGTH, header::DATA as u32 + 4);
        put_u32(&mut bytes, at::DATA_LENGTH, 4);
        bytes.extend([0; 4]);
    }
    peer.send(&bytes)?;
    peer.expect("a controller's PDU", &WRONG_TYPE).map(drop)
}

fn response_from_the_host(context: &mut Context) -> Result<(), Failure> {
    from_the_host(context, 0x05)
}

fn c2h_data_from_the_host(context: &mut Context) -> Result<(), Failure> {
    from_the_host(context, 0x07)
}

fn r2t_from_the_host(context: &mut Context) -> Result<(), Failure> {
    from_the_host(context, 0x09)
}

fn unknown_type(peer: &mut Peer, pdu_type: u8) -> Result<(), Failure> {
    peer.send(&of_type(pdu_type, header::DATA))?;
    peer.expect_termination("an unknown PDU", InvalidPduHeaderField, at::TYPE as u32)
}

fn pdu_type_8(context: &mut Context) -> Result<(), Failure> {
    unknown_type(&mut context.initialized()?, 0x08)
}

fn pdu_type_255(context: &mut Context) -> Result<(), Failure> {
    unknown_type(&mut context.peer()?, 0xff)
}

fn pdu_type_unknown_on_an_io_queue(context: &mut Context) -> Result<(), Failure> {
    let (_controller, mut queue) = context.io()?;
    unknown_type(&mut queue, 0x0a)
}

fn icreq_longer_than_its_header(context: &mut Context) -> Result<(), Failure> {
    with_plen(context, 4096, 4096)
}

fn capsule_longer_than_its_header(context: &mut Context) -> Result<(), Failure> {
    let mut peer = context.initialized()?;
    let mut bytes = peer.format.capsule(&property_get(1), &[]);
    put_u32(&mut bytes, at::LENGTH, 1 << 20);
    bytes.resize(64 << 10, 0xee);
    peer.send(&bytes)?;
    let answers = [
        Answer::Terminated(InvalidPduHeaderField, at::DATA_OFFSET as u32),
        Answer::Terminated(InvalidPduHeaderField, at::LENGTH as u32),
    ];
    peer.expect("CapsuleCmd", &answers).map(drop)
}

fn capsule_with_endless_data(context: &mut Context) -> Result<(), Failure> {
    let mut peer = context.initialized()?;
    let mut bytes = peer.format.capsule(&property_get(1), &[]);
    put_u32(&mut bytes, at::LENGTH, u32::MAX);
    bytes[at::DATA_OFFSET] = header::COMMAND as u8;
    peer.send(&bytes)?;
    let answers = [
        Answer::Terminated(InvalidPduHeaderField, at::LENGTH as u32),
        Answer::TerminatedFor(LimitExceeded),
    ];
    peer.expect("CapsuleCmd", &answers).map(drop)
}

fn termination_longer_than_its_header(context: &mut Context) -> Result<(), Failure> {
    let mut peer = context.initialized()?;
    peer.send(&termination(1, 0, &[0; 4096]))?;
    peer.expect_end("H2CTermReq")
}
