//! Group 9: connections that break off in the middle, and hosts that speak another protocol.

use std::time::Duration;

use weir_nvme::command::{Blocks, ConnectData, FabricsCommand, NvmCommand};
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::tcp::FatalErrorStatus::InvalidPduHeaderField;
use weir_nvme::tcp::H2cData;

use super::transfers::{begin_write, large_write, pattern};
use crate::case::Failure;
use crate::nvme::context::Context;
use crate::nvme::pdu::{Format, at};
use crate::nvme::peer::{Answer, Got, Peer};
use crate::nvme::queue::Queue;

cases! {
    9 rst_inside_a_header [] "TCP 1.0c 3.5": "RST after 40 bytes of a CapsuleCmd on an I/O queue" => "the controller goes on, and the queue can be made again";
    9 rst_inside_connect_data [] "Base 2.0c 6.3": "RST inside the data of a Connect" => "nothing is left behind";
    9 rst_inside_data [WRITES] "TCP 1.0c 3.5": "RST inside an H2CData" => "the controller goes on, and the queue can be made again";
    9 rst_inside_large_data [WRITES] "TCP 1.0c 3.5": "RST inside an H2CData of a Write of 128 KiB, at 4 places" => "the controller goes on, and the queue can be made again";
    9 fin_inside_large_data [WRITES] "TCP 1.0c 3.5": "FIN inside an H2CData of a Write of 128 KiB" => "the end of the connection; the controller goes on";
    9 rst_while_data_is_awaited [WRITES] "TCP 1.0c 3.5": "RST where an H2CData should come, 8 Writes waiting" => "the controller goes on, and the queue can be made again";
    9 rst_with_reads_in_flight [] "TCP 1.0c 3.5": "RST with 16 Reads whose data was not read" => "the controller goes on, and the queue can be made again";
    9 rst_of_the_admin_queue [] "Base 2.0c 3.3": "RST of an admin queue" => "its I/O queues end";
    9 fin_inside_a_header [] "TCP 1.0c 3.5": "FIN after 40 bytes of a CapsuleCmd" => "the end of the connection";
    9 fin_inside_connect_data [] "Base 2.0c 6.3": "FIN inside the data of a Connect" => "the end of the connection";
    9 fin_inside_data [WRITES] "TCP 1.0c 3.5": "FIN inside an H2CData" => "the end of the connection; the controller goes on";
    9 fin_while_data_is_awaited [WRITES] "TCP 1.0c 3.5": "FIN where an H2CData should come" => "the end of the connection; the controller goes on";
    9 fin_behind_commands [] "TCP 1.0c 3.5": "8 Reads, and FIN" => "answers or none, and the end of the connection";
    9 fin_of_the_admin_queue [] "Base 2.0c 3.3": "FIN of an admin queue" => "the end of the connection, and of its I/O queues";
    9 client_hello_on_a_plain_port [] "TCP 1.0c 3.5": "a TLS 1.3 ClientHello" => "C2HTermReq, Invalid PDU Header Field, FEI 0, or the end of the connection";
    9 http_on_an_nvme_port [] "TCP 1.0c 3.5": "an HTTP request" => "C2HTermReq, Invalid PDU Header Field, FEI 0, or the end of the connection";
    9 iscsi_login_on_an_nvme_port [] "TCP 1.0c 3.5": "an iSCSI Login Request" => "C2HTermReq, Invalid PDU Header Field, FEI 0, or the end of the connection";
    9 zeroes [] "TCP 1.0c 3.5": "4 KiB of zeroes" => "C2HTermReq, Invalid PDU Header Field, or the end of the connection";
    9 ones [] "TCP 1.0c 3.5": "4 KiB of FFh" => "C2HTermReq, Invalid PDU Header Field, FEI 0, or the end of the connection";
    9 text_on_an_io_queue [] "TCP 1.0c 3.6.1": "text on a connected I/O queue" => "C2HTermReq, Invalid PDU Header Field, FEI 0; the controller goes on";
    9 plain_text_on_a_tls_port not applicable "the target has no TLS yet": "an ICReq on a port that wants TLS" => "the end of the connection";
    9 tls_alert_inside_a_transfer not applicable "the target has no TLS yet": "a fatal alert inside an H2CData" => "the end of the connection";
    9 tls_close_notify_inside_a_transfer not applicable "the target has no TLS yet": "close_notify inside an H2CData" => "the end of the connection";
    9 tls_rekey_inside_a_transfer not applicable "the target has no TLS yet": "KeyUpdate inside an H2CData" => "the transfer goes on under the new keys";
    9 tls_rekey_flood not applicable "the target has no TLS yet": "KeyUpdate again and again" => "the end of the connection at a named limit";
    9 tls_ticket_to_the_server not applicable "the target has no TLS yet": "a NewSessionTicket from the client" => "an unexpected_message alert";
}

/// A pause after which what was sent is known to have arrived, on loopback.
const STEP: Duration = Duration::from_millis(2);

fn read(context: &Context, queue: &mut Queue, blocks: u32) -> Vec<u8> {
    let (nsid, block) = (context.target.nsid, context.facts.block_bytes);
    let sqe = NvmCommand::Read(Blocks::new(0, blocks)).sqe(0, nsid, SglDescriptor::NONE);
    queue.prepare(sqe, &[], blocks * block).1
}

/// After an I/O queue was reset its controller works, and so does a new queue of the same QID, once the old one is gone.
fn goes_on(
    context: &mut Context,
    controller: &mut crate::nvme::queue::Controller,
) -> Result<(), Failure> {
    controller.admin.still_works(0, 0)?;
    let options = controller.options.clone();
    let (nsid, block) = (context.target.nsid, context.facts.block_bytes);
    let address = context.target.address;
    context.eventually("a queue made again", |_| {
        let (mut queue, cqe) = controller.try_io(address, 1, &options)?;
        if cqe.status.is_success() {
            queue.still_works(nsid, block)?;
        }
        Ok(cqe.status.is_success())
    })
}

fn rst_inside_a_header(context: &mut Context) -> Result<(), Failure> {
    let (mut controller, mut queue) = context.io()?;
    let capsule = read(context, &mut queue, 1);
    queue.send(&capsule[..40])?;
    std::thread::sleep(STEP);
    queue.into_peer().reset();
    goes_on(context, &mut controller)
}

/// The Connect of an admin queue.
fn connect(context: &Context) -> Vec<u8> {
    let options = context.options();
    let data = options.connect_data(ConnectData::ANY_CONTROLLER).encode();
    let sgl = SglDescriptor::InCapsule {
        offset: 0,
        length: data.len() as u32,
    };
    let sqe = FabricsCommand::Connect(options.connect(0)).sqe(0, sgl);
    Format::PLAIN.capsule(&sqe, &data)
}

fn rst_inside_connect_data(context: &mut Context) -> Result<(), Failure> {
    for cut in [72, 73, 400, 1095] {
        let mut peer = context.initialized()?;
        peer.send(&connect(context)[..cut])?;
        std::thread::sleep(STEP);
        peer.reset();
    }
    Ok(())
}

/// Half of the H2CData of a Write of one block.
fn half_data(context: &Context, queue: &mut Queue) -> Result<Vec<u8>, Failure> {
    let (sqe, r2t) = begin_write(context, queue, 1, 1)?;
    let block = context.facts.block_bytes;
    let header = H2cData {
        cid: sqe.cid,
        transfer_tag: r2t.transfer_tag,
        offset: 0,
        length: block,
        last: true,
    };
    let mut pdu = queue.format.h2c_data(&header, &pattern(1, block));
    pdu.truncate(pdu.len() / 2);
    Ok(pdu)
}

fn rst_inside_data(context: &mut Context) -> Result<(), Failure> {
    let (mut controller, mut queue) = context.io()?;
    let half = half_data(context, &mut queue)?;
    queue.send(&half)?;
    std::thread::sleep(STEP);
    queue.into_peer().reset();
    goes_on(context, &mut controller)
}

fn rst_inside_large_data(context: &mut Context) -> Result<(), Failure> {
    for place in [1, 100, 1000, 1023] {
        let (mut controller, mut queue) = context.io()?;
        let (_, pdus) = large_write(context, &mut queue)?;
        let bytes = pdus.concat();
        queue.send(&bytes[..bytes.len() * place / 1024])?;
        std::thread::sleep(STEP);
        queue.into_peer().reset();
        goes_on(context, &mut controller)?;
    }
    Ok(())
}

fn fin_inside_large_data(context: &mut Context) -> Result<(), Failure> {
    let (mut controller, mut queue) = context.io()?;
    let (_, pdus) = large_write(context, &mut queue)?;
    let bytes = pdus.concat();
    queue.send(&bytes[..bytes.len() / 2])?;
    queue.finish_sending();
    queue.expect_end("FIN")?;
    controller.admin.still_works(0, 0)
}

fn rst_while_data_is_awaited(context: &mut Context) -> Result<(), Failure> {
    let (mut controller, mut queue) = context.io()?;
    for lba in 0..8 {
        begin_write(context, &mut queue, lba, 1)?;
    }
    queue.into_peer().reset();
    goes_on(context, &mut controller)
}

fn rst_with_reads_in_flight(context: &mut Context) -> Result<(), Failure> {
    let (mut controller, mut queue) = context.io()?;
    let most = context.facts.transfer_bytes_max.unwrap_or(64 << 10);
    let blocks = context.blocks_of(most.min(256 << 10) as u32);
    let blocks = blocks.min(context.case_blocks() as u32);
    let mut bytes = Vec::new();
    for _ in 0..16 {
        bytes.extend(read(context, &mut queue, blocks));
    }
    queue.send(&bytes)?;
    std::thread::sleep(STEP);
    queue.into_peer().reset();
    goes_on(context, &mut controller)
}

fn rst_of_the_admin_queue(context: &mut Context) -> Result<(), Failure> {
    let (controller, mut queue) = context.io()?;
    controller.admin.into_peer().reset();
    queue.expect_end("the I/O queue of a controller that ended")
}

fn fin_inside_a_header(context: &mut Context) -> Result<(), Failure> {
    let (_controller, mut queue) = context.io()?;
    let capsule = read(context, &mut queue, 1);
    queue.send(&capsule[..40])?;
    queue.finish_sending();
    queue.expect_end("FIN")
}

fn fin_inside_connect_data(context: &mut Context) -> Result<(), Failure> {
    let mut peer = context.initialized()?;
    peer.send(&connect(context)[..600])?;
    peer.finish_sending();
    peer.expect_end("FIN")
}

fn fin_inside_data(context: &mut Context) -> Result<(), Failure> {
    let (mut controller, mut queue) = context.io()?;
    let half = half_data(context, &mut queue)?;
    queue.send(&half)?;
    queue.finish_sending();
    queue.expect_end("FIN")?;
    controller.admin.still_works(0, 0)
}

fn fin_while_data_is_awaited(context: &mut Context) -> Result<(), Failure> {
    let (mut controller, mut queue) = context.io()?;
    begin_write(context, &mut queue, 1, 1)?;
    queue.finish_sending();
    queue.expect_end("FIN")?;
    controller.admin.still_works(0, 0)
}

fn fin_behind_commands(context: &mut Context) -> Result<(), Failure> {
    let (_controller, mut queue) = context.io()?;
    let mut bytes = Vec::new();
    for _ in 0..8 {
        bytes.extend(read(context, &mut queue, 1));
    }
    queue.send(&bytes)?;
    queue.finish_sending();
    loop {
        match queue.receive() {
            Got::Data(..) | Got::Response(_) => {}
            got => return queue.judge("FIN", &[Answer::End], got).map(drop),
        }
    }
}

fn fin_of_the_admin_queue(context: &mut Context) -> Result<(), Failure> {
    let (mut controller, mut queue) = context.io()?;
    controller.admin.finish_sending();
    controller.admin.expect_end("FIN")?;
    queue.expect_end("the I/O queue of a controller that ended")
}

/// Bytes that are no ICReq, by their first.
fn no_nvme(peer: &mut Peer, bytes: &[u8]) -> Result<(), Failure> {
    peer.send(bytes)?;
    let answers = [
        Answer::Terminated(InvalidPduHeaderField, at::TYPE as u32),
        Answer::End,
    ];
    peer.expect("another protocol", &answers).map(drop)
}

/// A TLS record with a ClientHello that offers TLS 1.3 and one cipher suite (RFC 8446 section 4.1.2).
fn client_hello() -> Vec<u8> {
    // legacy_version, random, session id, cipher suites, compression methods.
    let mut hello = vec![3, 3];
    hello.extend([0x42; 32]);
    hello.extend([0, 0, 2, 0x13, 0x01, 1, 0]);
    // Extensions: supported_versions with TLS 1.3.
    hello.extend([0, 7, 0, 43, 0, 3, 2, 3, 4]);
    let mut message = vec![1, 0, 0, hello.len() as u8];
    message.extend(hello);
    let mut record = vec![0x16, 3, 1, 0, message.len() as u8];
    record.extend(message);
    record
}

fn client_hello_on_a_plain_port(context: &mut Context) -> Result<(), Failure> {
    no_nvme(&mut context.peer()?, &client_hello())
}

fn http_on_an_nvme_port(context: &mut Context) -> Result<(), Failure> {
    let request = b"GET / HTTP/1.1\r\nHost: storage\r\nUser-Agent: browser\r\n\r\n";
    no_nvme(&mut context.peer()?, request)
}

fn iscsi_login_on_an_nvme_port(context: &mut Context) -> Result<(), Failure> {
    let mut login = vec![0; 48];
    login[0] = 0x43;
    login[1] = 0x87;
    login.extend(b"InitiatorName=iqn.2026-01.org.example:host\0\0\0");
    no_nvme(&mut context.peer()?, &login)
}

fn zeroes(context: &mut Context) -> Result<(), Failure> {
    let mut peer = context.peer()?;
    peer.send(&[0; 4096])?;
    let answers = [
        Answer::Terminated(InvalidPduHeaderField, at::HEADER_LENGTH as u32),
        Answer::TerminatedFor(InvalidPduHeaderField),
        Answer::End,
    ];
    peer.expect("zeroes", &answers).map(drop)
}

fn ones(context: &mut Context) -> Result<(), Failure> {
    no_nvme(&mut context.peer()?, &[0xff; 4096])
}

fn text_on_an_io_queue(context: &mut Context) -> Result<(), Failure> {
    let (mut controller, mut queue) = context.io()?;
    queue.send(b"how are you, target? this is plain text and no PDU.\r\n\r\n")?;
    queue.expect_termination("text", InvalidPduHeaderField, at::TYPE as u32)?;
    controller.admin.still_works(0, 0)
}
