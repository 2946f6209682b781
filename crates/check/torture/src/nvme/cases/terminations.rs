//! Group 8: termination requests of the host, good and bad, in every state of a connection.

use weir_nvme::command::{Blocks, NvmCommand};
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::tcp::FatalErrorStatus::InvalidPduHeaderField;
use weir_nvme::tcp::{DigestOptions, H2cData, InitializeRequest};

use super::transfers::{begin_write, pattern};
use crate::case::Failure;
use crate::nvme::context::Context;
use crate::nvme::pdu::{at, header, put_u32, termination};
use crate::nvme::peer::{Answer, Got, Peer};

cases! {
    8 termination_before_icreq [] "TCP 1.0c 3.5": "an H2CTermReq first" => "the end of the connection";
    8 termination_after_icreq [] "TCP 1.0c 3.5": "an H2CTermReq after ICResp" => "the end of the connection";
    8 termination_with_digests [DIGESTS] "TCP 1.0c 3.6.2.4": "an H2CTermReq where digests were agreed: it has none" => "the end of the connection";
    8 termination_of_an_admin_queue [] "TCP 1.0c 3.5": "an H2CTermReq on an admin queue" => "the end of the connection, and of the controller's I/O queues";
    8 termination_of_an_io_queue [] "TCP 1.0c 3.5": "an H2CTermReq on an I/O queue" => "the end of the connection; the controller goes on";
    8 termination_while_data_is_awaited [WRITES] "TCP 1.0c 3.5": "an H2CTermReq in place of the H2CData of a Write" => "the end of the connection; the controller goes on";
    8 termination_between_data [WRITES] "TCP 1.0c 3.5": "an H2CTermReq between two H2CData PDUs of a Write" => "the end of the connection; the controller goes on";
    8 termination_behind_commands [] "TCP 1.0c 3.5": "8 Reads and an H2CTermReq in one segment" => "answers or none, and the end of the connection";
    8 termination_without_data [] "TCP 1.0c 3.6.2.4": "an H2CTermReq whose PLEN is 24" => "the end of the connection";
    8 termination_shorter_than_its_header [] "TCP 1.0c 3.6.2.4": "an H2CTermReq whose PLEN is 8" => "the end of the connection";
    8 termination_of_length_0 [] "TCP 1.0c 3.6.2.4": "an H2CTermReq whose PLEN is 0" => "the end of the connection";
    8 termination_of_152_bytes [] "TCP 1.0c 3.6.2.4": "an H2CTermReq of 152 bytes, the most there is" => "the end of the connection";
    8 termination_of_153_bytes [] "TCP 1.0c 3.6.2.4": "an H2CTermReq of 153 bytes" => "the end of the connection";
    8 termination_of_endless_length [] "TCP 1.0c 3.6.2.4": "an H2CTermReq whose PLEN is 2^32 - 1" => "the end of the connection";
    8 termination_hlen_23 [] "TCP 1.0c 3.6.2.4": "an H2CTermReq whose HLEN is 23" => "the end of the connection, or C2HTermReq, Invalid PDU Header Field, FEI 2";
    8 termination_hlen_128 [] "TCP 1.0c 3.6.2.4": "an H2CTermReq whose HLEN is 128" => "the end of the connection, or C2HTermReq, Invalid PDU Header Field, FEI 2";
    8 termination_fes_0 [] "TCP 1.0c 3.6.2.4": "an H2CTermReq whose FES is 0" => "the end of the connection";
    8 termination_fes_7 [] "TCP 1.0c 3.6.2.4": "an H2CTermReq whose FES is 7" => "the end of the connection";
    8 termination_fes_max [] "TCP 1.0c 3.6.2.4": "an H2CTermReq whose FES is 65535 and FEI 2^32 - 1" => "the end of the connection";
    8 termination_twice [] "TCP 1.0c 3.5": "two H2CTermReqs in one segment" => "the end of the connection";
    8 bytes_after_a_termination [] "TCP 1.0c 3.5": "64 KiB after an H2CTermReq" => "the end of the connection, and no answer";
    8 termination_cut_off [] "TCP 1.0c 3.5": "half an H2CTermReq, and FIN" => "the end of the connection";
}

/// An ordinary request: Invalid PDU Header Field, of a header.
fn ordinary() -> Vec<u8> {
    termination(1, 4, &[0x05; header::RESPONSE])
}

fn ended(peer: &mut Peer, bytes: &[u8]) -> Result<(), Failure> {
    peer.send(bytes)?;
    peer.expect_end("H2CTermReq")
}

fn termination_before_icreq(context: &mut Context) -> Result<(), Failure> {
    ended(&mut context.peer()?, &ordinary())
}

fn termination_after_icreq(context: &mut Context) -> Result<(), Failure> {
    ended(&mut context.initialized()?, &ordinary())
}

fn termination_with_digests(context: &mut Context) -> Result<(), Failure> {
    let mut peer = context.peer()?;
    peer.initialize(&InitializeRequest::new(
        DigestOptions::HEADER | DigestOptions::DATA,
    ))?;
    ended(&mut peer, &ordinary())
}

fn termination_of_an_admin_queue(context: &mut Context) -> Result<(), Failure> {
    let (mut controller, mut queue) = context.io()?;
    ended(&mut controller.admin, &ordinary())?;
    queue.expect_end("the I/O queue of a controller that ended")
}

fn termination_of_an_io_queue(context: &mut Context) -> Result<(), Failure> {
    let (mut controller, mut queue) = context.io()?;
    ended(&mut queue, &ordinary())?;
    controller.admin.still_works(0, 0)
}

fn termination_while_data_is_awaited(context: &mut Context) -> Result<(), Failure> {
    let (mut controller, mut queue) = context.io()?;
    begin_write(context, &mut queue, 1, 1)?;
    ended(&mut queue, &ordinary())?;
    controller.admin.still_works(0, 0)
}

fn termination_between_data(context: &mut Context) -> Result<(), Failure> {
    let (mut controller, mut queue) = context.io()?;
    let (sqe, r2t) = begin_write(context, &mut queue, 1, 2)?;
    let block = context.facts.block_bytes;
    let header = H2cData {
        cid: sqe.cid,
        transfer_tag: r2t.transfer_tag,
        offset: 0,
        length: block,
        last: false,
    };
    let pdu = queue.format.h2c_data(&header, &pattern(1, block));
    queue.send(&pdu)?;
    ended(&mut queue, &ordinary())?;
    controller.admin.still_works(0, 0)
}

fn termination_behind_commands(context: &mut Context) -> Result<(), Failure> {
    let (_controller, mut queue) = context.io()?;
    let (nsid, block) = (context.target.nsid, context.facts.block_bytes);
    let mut bytes = Vec::new();
    for _ in 0..8 {
        let read = NvmCommand::Read(Blocks::new(0, 1)).sqe(0, nsid, SglDescriptor::NONE);
        bytes.extend(queue.prepare(read, &[], block).1);
    }
    bytes.extend(ordinary());
    queue.send(&bytes)?;
    loop {
        match queue.receive() {
            Got::Data(..) | Got::Response(_) => {}
            got => return queue.judge("H2CTermReq", &[Answer::End], got).map(drop),
        }
    }
}

/// A request with this PLEN, and as many bytes as it had.
fn of_length(context: &mut Context, length: u32) -> Result<(), Failure> {
    let mut bytes = ordinary();
    put_u32(&mut bytes, at::LENGTH, length);
    bytes.truncate((length as usize).max(header::TERMINATION));
    ended(&mut context.initialized()?, &bytes)
}

fn termination_without_data(context: &mut Context) -> Result<(), Failure> {
    of_length(context, 24)
}

fn termination_shorter_than_its_header(context: &mut Context) -> Result<(), Failure> {
    of_length(context, 8)
}

fn termination_of_length_0(context: &mut Context) -> Result<(), Failure> {
    of_length(context, 0)
}

fn termination_of_152_bytes(context: &mut Context) -> Result<(), Failure> {
    ended(&mut context.initialized()?, &termination(2, 0, &[4; 128]))
}

fn termination_of_153_bytes(context: &mut Context) -> Result<(), Failure> {
    ended(&mut context.initialized()?, &termination(2, 0, &[4; 129]))
}

fn termination_of_endless_length(context: &mut Context) -> Result<(), Failure> {
    of_length(context, u32::MAX)
}

fn of_header_length(context: &mut Context, length: u8) -> Result<(), Failure> {
    let mut bytes = ordinary();
    bytes[at::HEADER_LENGTH] = length;
    let mut peer = context.initialized()?;
    peer.send(&bytes)?;
    let answers = [
        Answer::End,
        Answer::Terminated(InvalidPduHeaderField, at::HEADER_LENGTH as u32),
    ];
    peer.expect("H2CTermReq", &answers).map(drop)
}

fn termination_hlen_23(context: &mut Context) -> Result<(), Failure> {
    of_header_length(context, 23)
}

fn termination_hlen_128(context: &mut Context) -> Result<(), Failure> {
    of_header_length(context, 128)
}

fn of_status(context: &mut Context, status: u16, information: u32) -> Result<(), Failure> {
    let bytes = termination(status, information, &[0x07; header::DATA]);
    ended(&mut context.initialized()?, &bytes)
}

fn termination_fes_0(context: &mut Context) -> Result<(), Failure> {
    of_status(context, 0, 0)
}

fn termination_fes_7(context: &mut Context) -> Result<(), Failure> {
    of_status(context, 7, 0)
}

fn termination_fes_max(context: &mut Context) -> Result<(), Failure> {
    of_status(context, u16::MAX, u32::MAX)
}

fn termination_twice(context: &mut Context) -> Result<(), Failure> {
    let bytes = [ordinary(), ordinary()].concat();
    ended(&mut context.initialized()?, &bytes)
}

fn bytes_after_a_termination(context: &mut Context) -> Result<(), Failure> {
    let mut bytes = ordinary();
    bytes.resize(64 << 10, 0x04);
    ended(&mut context.initialized()?, &bytes)
}

fn termination_cut_off(context: &mut Context) -> Result<(), Failure> {
    let mut peer = context.initialized()?;
    let bytes = ordinary();
    peer.send(&bytes[..bytes.len() / 2])?;
    peer.finish_sending();
    peer.expect_end("half an H2CTermReq and FIN")
}
