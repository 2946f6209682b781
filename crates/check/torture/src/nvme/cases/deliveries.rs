//! Groups 3 and 4: how bytes come, when they stop coming, and connections that close while they begin.

use std::time::{Duration, Instant};

use weir_nvme::command::{Blocks, ConnectData, FabricsCommand, NvmCommand};
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::tcp::FatalErrorStatus::PduSequenceError;
use weir_nvme::tcp::{DigestOptions, InitializeRequest};
use weir_nvme::{Sqe, Status};

use super::transfers::{begin_write, large_write, pattern};
use crate::case::{Failure, check};
use crate::nvme::context::Context;
use crate::nvme::pdu::{Format, header};
use crate::nvme::peer::{Answer, Got, Peer};
use crate::nvme::queue::{Controller, Queue};

cases! {
    3 handshake_byte_by_byte [] "TCP 1.0c 3.1": "ICReq and Connect, each byte in a segment of its own" => "ICResp, and a Connect that succeeds";
    3 handshake_in_pieces_of_7 [] "TCP 1.0c 3.1": "ICReq and Connect in segments of 7 bytes" => "ICResp, and a Connect that succeeds";
    3 read_byte_by_byte [] "TCP 1.0c 3.1": "a Read, each byte in a segment of its own" => "its data and success";
    3 write_byte_by_byte [WRITES] "TCP 1.0c 3.1": "a Write of one block, its H2CData byte by byte, read back" => "success, and the data";
    3 write_byte_by_byte_with_digests [WRITES, DIGESTS] "TCP 1.0c 3.1": "the same with header and data digests" => "success, and the data";
    3 large_write_in_odd_pieces [WRITES, DIGESTS] "TCP 1.0c 3.1": "a Write of 256 KiB with both digests in segments of 8191 bytes, read back" => "success, and the data";
    3 reads_split_at_every_byte [] "TCP 1.0c 3.1": "two Reads in two segments, cut at every byte in turn" => "two answers each time";
    3 many_reads_in_one_segment [] "TCP 1.0c 3.1": "16 Reads in one segment" => "16 answers";
    3 connect_with_icreq [] "TCP 1.0c 3.5": "ICReq and Connect in one segment, before ICResp" => "ICResp, and a Connect that succeeds; or C2HTermReq, PDU Sequence Error";
    3 silence_after_7_bytes [SHORT_LIMITS] "TCP 1.0c 3.5": "7 bytes of an ICReq, then nothing" => "the end of the connection at the handshake limit";
    3 silence_from_the_start [SHORT_LIMITS] "TCP 1.0c 3.5": "a connection on which nothing is said" => "the end of the connection at the handshake limit";
    3 silence_after_icreq [SHORT_LIMITS] "TCP 1.0c 3.5": "ICReq, then nothing" => "ICResp, and the end of the connection at the handshake limit";
    3 silence_inside_connect [SHORT_LIMITS] "TCP 1.0c 3.5": "a Connect without the last byte of its data, then nothing" => "the end of the connection at the handshake limit";
    3 silence_inside_a_capsule [SHORT_LIMITS] "named limit": "40 bytes of a Read on an I/O queue, then nothing" => "the end of the connection at the progress limit; the controller goes on";
    3 silence_inside_data [SHORT_LIMITS, WRITES] "named limit": "half an H2CData of a Write of 128 KiB, then nothing" => "the end of the connection at the progress limit; the controller goes on";
    3 silence_where_data_is_awaited [SHORT_LIMITS, WRITES] "named limit": "a Write whose R2T is not answered" => "the end of the connection at the progress limit; the controller goes on";
    3 answers_are_never_read [SHORT_LIMITS, GATEWAY] "named limit": "Reads of 16 MiB in all, none of which is taken" => "the end of the connection at the progress limit; the controller goes on";
    3 trickle [SHORT_LIMITS] "TCP 1.0c 3.5": "one byte of an ICReq every 50 ms" => "the end of the connection at the handshake limit: bytes do not prolong it";
    3 half_open_connections [SHORT_LIMITS, GATEWAY] "named limit": "more silent connections than may be half open" => "no more than that are taken; who waits is served when they have ended";

    4 icreq_then_fin [] "TCP 1.0c 3.5": "ICReq, and FIN at once" => "ICResp or nothing, and the end of the connection";
    4 icreq_then_rst [] "TCP 1.0c 3.5": "ICReq, and RST at once, 50 times" => "nothing is left behind";
    4 half_icreq_then_fin [] "TCP 1.0c 3.5": "half an ICReq, and FIN" => "the end of the connection";
    4 half_icreq_then_rst [] "TCP 1.0c 3.5": "half an ICReq, and RST, 50 times" => "nothing is left behind";
    4 connection_then_rst [] "TCP 1.0c 3.5": "RST on a connection on which nothing was said, 50 times" => "nothing is left behind";
    4 connect_then_fin [] "Base 2.0c 6.3": "ICReq, Connect, and FIN at once" => "the answers or nothing, and the end of the connection";
    4 connect_then_rst [] "Base 2.0c 6.3": "ICReq, Connect, and RST at once, 30 times" => "nothing is left behind";
    4 bad_icreq_then_rst [] "TCP 1.0c 3.5": "an ICReq that is refused, and RST at once, 50 times" => "nothing is left behind";
    4 many_at_once [] "TCP 1.0c 3.5": "8 hosts at once, each of which sends ICReq, Connect or half of either, and RST, 25 times" => "nothing is left behind";
    4 io_connect_then_rst [] "Base 2.0c 6.3": "Connect of an I/O queue, and RST at once, 20 times on one controller" => "the controller goes on, and the queue can be made again";
}

/// A pause that lets bytes leave in a segment of their own, on loopback.
const STEP: Duration = Duration::from_micros(200);

fn icreq() -> [u8; header::INITIALIZE] {
    InitializeRequest::new(DigestOptions::NONE).encode()
}

/// The Connect of an admin queue with CID 0, as a capsule without digests.
fn connect_capsule(context: &Context) -> Vec<u8> {
    let options = context.options();
    let data = options.connect_data(ConnectData::ANY_CONTROLLER).encode();
    let sgl = SglDescriptor::InCapsule {
        offset: 0,
        length: data.len() as u32,
    };
    let sqe = FabricsCommand::Connect(options.connect(0)).sqe(0, sgl);
    Format::PLAIN.capsule(&sqe, &data)
}

/// Where the machine has so much else to do that the pieces do not go out within the gateway's limit for a handshake, nothing is told of
/// the pieces: they are sent again.
fn handshake_in_pieces(context: &mut Context, piece: usize) -> Result<(), Failure> {
    const TRIES: u32 = 5;
    let limit = context.limits.map(|limits| limits.handshake_time);
    let mut tries = 1;
    loop {
        let mut sending = Duration::ZERO;
        let done = handshake_once_in_pieces(context, piece, &mut sending);
        // How long the answers took is no excuse.
        let is_told = done.is_ok() || limit.is_none_or(|limit| sending < limit);
        if is_told || tries == TRIES {
            return done;
        }
        tries += 1;
    }
}

/// How long it took to send the pieces is added to `sending`, whether they were taken or not.
fn handshake_once_in_pieces(
    context: &mut Context,
    piece: usize,
    sending: &mut Duration,
) -> Result<(), Failure> {
    let mut send = |peer: &mut Peer, bytes: &[u8]| {
        let began = Instant::now();
        let sent = peer.send_in_pieces(bytes, piece, STEP);
        *sending += began.elapsed();
        sent
    };
    let mut peer = context.peer()?;
    send(&mut peer, &icreq())?;
    peer.await_initialized(&InitializeRequest::new(DigestOptions::NONE))?;
    send(&mut peer, &connect_capsule(context))?;
    peer.expect_status("Connect", 0, Status::SUCCESS).map(drop)
}

fn handshake_byte_by_byte(context: &mut Context) -> Result<(), Failure> {
    handshake_in_pieces(context, 1)
}

fn handshake_in_pieces_of_7(context: &mut Context) -> Result<(), Failure> {
    handshake_in_pieces(context, 7)
}

/// The capsule of a Read of block 0.
fn read(context: &Context, queue: &mut Queue) -> (Sqe, Vec<u8>) {
    let sqe = NvmCommand::Read(Blocks::new(0, 1)).sqe(0, context.target.nsid, SglDescriptor::NONE);
    queue.prepare(sqe, &[], context.facts.block_bytes)
}

/// Waits for the good answer to a Read.
fn read_answered(context: &Context, queue: &mut Queue, sqe: &Sqe) -> Result<(), Failure> {
    let (cqe, data) = queue.answer(sqe, &[])?;
    check(cqe.status.is_success(), "Read", "success", cqe.status)?;
    let block = context.facts.block_bytes as usize;
    check(
        data.len() == block,
        "Read",
        format!("{block} bytes"),
        data.len(),
    )
}

fn read_byte_by_byte(context: &mut Context) -> Result<(), Failure> {
    let (_controller, mut queue) = context.io()?;
    let (sqe, capsule) = read(context, &mut queue);
    queue.send_in_pieces(&capsule, 1, STEP)?;
    read_answered(context, &mut queue, &sqe)
}

fn write_in_bytes(context: &mut Context, digests: bool) -> Result<(), Failure> {
    let mut options = context.options();
    if digests {
        options = options.with_digests();
    }
    let (_controller, mut queue) = context.io_with(&options)?;
    let (nsid, block) = (context.target.nsid, context.facts.block_bytes);
    let data: Vec<u8> = (0..block).map(|index| (index * 7 + 1) as u8).collect();
    let sqe = NvmCommand::Write(Blocks::new(1, 1)).sqe(0, nsid, SglDescriptor::NONE);
    let (sqe, capsule) = queue.prepare(sqe, &data, 0);
    queue.send_in_pieces(&capsule, 1, STEP)?;
    let r2t = queue.expect_r2t("Write", sqe.cid)?;
    let header = weir_nvme::tcp::H2cData {
        cid: sqe.cid,
        transfer_tag: r2t.transfer_tag,
        offset: 0,
        length: block,
        last: true,
    };
    let pdu = queue.format.h2c_data(&header, &data);
    queue.send_in_pieces(&pdu, 1, Duration::ZERO)?;
    queue.expect_status("Write", sqe.cid, Status::SUCCESS)?;
    let back = queue.read(nsid, 1, 1, block)?;
    check(back == data, "Read", "what was written", "other data")
}

fn write_byte_by_byte(context: &mut Context) -> Result<(), Failure> {
    write_in_bytes(context, false)
}

fn write_byte_by_byte_with_digests(context: &mut Context) -> Result<(), Failure> {
    write_in_bytes(context, true)
}

fn large_write_in_odd_pieces(context: &mut Context) -> Result<(), Failure> {
    const BYTES: u32 = 256 << 10;
    const PIECE: usize = 8191;
    let most = context.facts.transfer_bytes_max.unwrap_or(u64::MAX);
    let bytes = BYTES.min(u32::try_from(most).unwrap_or(BYTES));
    let blocks = context.blocks_of(bytes);
    let (_controller, mut queue) = context.io_with(&context.options().with_digests())?;
    let (sqe, r2t) = begin_write(context, &mut queue, 0, blocks)?;
    let data = pattern(7, blocks * context.facts.block_bytes);
    let parts = queue.data_pdus(&r2t, &data)?.concat();
    queue.send_in_pieces(&parts, PIECE, Duration::ZERO)?;
    queue.expect_status("Write", sqe.cid, Status::SUCCESS)?;
    let back = queue.read(context.target.nsid, 0, blocks, data.len() as u32)?;
    check(back == data, "Read", "what was written", "other data")
}

fn reads_split_at_every_byte(context: &mut Context) -> Result<(), Failure> {
    let (_controller, mut queue) = context.io()?;
    for cut in 1..2 * header::COMMAND {
        let (first, one) = read(context, &mut queue);
        let (second, two) = read(context, &mut queue);
        let both = [one, two].concat();
        queue.send(&both[..cut])?;
        std::thread::sleep(STEP);
        queue.send(&both[cut..])?;
        both_answered(&mut queue, &first, &second)?;
    }
    Ok(())
}

/// Two Reads are answered, in either order; their data is not looked at.
fn both_answered(queue: &mut Queue, first: &Sqe, second: &Sqe) -> Result<(), Failure> {
    let mut waiting = vec![first.cid, second.cid];
    while !waiting.is_empty() {
        match queue.receive() {
            Got::Data(data, _) if waiting.contains(&data.cid) => {}
            Got::Response(cqe) if waiting.contains(&cqe.cid) && cqe.status.is_success() => {
                waiting.retain(|cid| *cid != cqe.cid);
            }
            got => return Err(Failure::differs("two Reads", "their answers", got)),
        }
    }
    Ok(())
}

fn many_reads_in_one_segment(context: &mut Context) -> Result<(), Failure> {
    const READS: usize = 16;
    let (_controller, mut queue) = context.io()?;
    let reads: Vec<_> = (0..READS).map(|_| read(context, &mut queue)).collect();
    let bytes: Vec<u8> = reads.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
    queue.send(&bytes)?;
    let mut waiting: Vec<u16> = reads.iter().map(|(sqe, _)| sqe.cid).collect();
    while !waiting.is_empty() {
        match queue.receive() {
            Got::Data(data, _) if waiting.contains(&data.cid) => {}
            Got::Response(cqe) if waiting.contains(&cqe.cid) && cqe.status.is_success() => {
                waiting.retain(|cid| *cid != cqe.cid);
            }
            got => return Err(Failure::differs("16 Reads", "their answers", got)),
        }
    }
    Ok(())
}

fn connect_with_icreq(context: &mut Context) -> Result<(), Failure> {
    let mut peer = context.peer()?;
    let bytes = [&icreq()[..], &connect_capsule(context)].concat();
    peer.send(&bytes)?;
    peer.await_initialized(&InitializeRequest::new(DigestOptions::NONE))?;
    let answers = [
        Answer::Status(0, Status::SUCCESS),
        Answer::TerminatedFor(PduSequenceError),
    ];
    peer.expect("Connect", &answers).map(drop)
}

/// The connection ends at the handshake limit: not long before it, and not long after.
fn ends_at_the_limit(context: &Context, peer: &mut Peer, began: Instant) -> Result<(), Failure> {
    let limit = context.short_limits()?.handshake_time;
    peer.manner.patience = limit + context.manner.patience;
    peer.expect_end("silence")?;
    let took = began.elapsed();
    check(
        took >= limit / 2,
        "silence",
        format!("the end after {limit:?}"),
        format!("after {took:?}"),
    )
}

fn silence_after_7_bytes(context: &mut Context) -> Result<(), Failure> {
    let mut peer = context.peer()?;
    let began = Instant::now();
    peer.send(&icreq()[..7])?;
    ends_at_the_limit(context, &mut peer, began)
}

fn silence_from_the_start(context: &mut Context) -> Result<(), Failure> {
    let began = Instant::now();
    let mut peer = context.peer()?;
    ends_at_the_limit(context, &mut peer, began)
}

fn silence_after_icreq(context: &mut Context) -> Result<(), Failure> {
    let began = Instant::now();
    let mut peer = context.initialized()?;
    ends_at_the_limit(context, &mut peer, began)
}

fn silence_inside_connect(context: &mut Context) -> Result<(), Failure> {
    let began = Instant::now();
    let mut peer = context.initialized()?;
    let capsule = connect_capsule(context);
    peer.send(&capsule[..capsule.len() - 1])?;
    ends_at_the_limit(context, &mut peer, began)
}

/// The connection ends at the progress limit or at twice that, and the controller goes on.
fn ends_without_progress(
    context: &Context,
    controller: &mut Controller,
    queue: &mut Queue,
) -> Result<(), Failure> {
    let limit = context.short_limits()?.progress_time;
    let began = Instant::now();
    queue.manner.patience = 2 * limit + context.manner.patience;
    queue.expect_end("silence")?;
    let took = began.elapsed();
    check(
        took >= limit / 2,
        "silence",
        format!("the end after {limit:?}"),
        format!("after {took:?}"),
    )?;
    controller.admin.still_works(0, 0)
}

fn silence_inside_a_capsule(context: &mut Context) -> Result<(), Failure> {
    let (mut controller, mut queue) = context.io()?;
    let (_, capsule) = read(context, &mut queue);
    queue.send(&capsule[..40])?;
    ends_without_progress(context, &mut controller, &mut queue)
}

fn silence_inside_data(context: &mut Context) -> Result<(), Failure> {
    let (mut controller, mut queue) = context.io()?;
    let (_, pdus) = large_write(context, &mut queue)?;
    let bytes = pdus.concat();
    queue.send(&bytes[..bytes.len() / 2])?;
    ends_without_progress(context, &mut controller, &mut queue)
}

fn silence_where_data_is_awaited(context: &mut Context) -> Result<(), Failure> {
    let (mut controller, mut queue) = context.io()?;
    begin_write(context, &mut queue, 0, 1)?;
    ends_without_progress(context, &mut controller, &mut queue)
}

fn answers_are_never_read(context: &mut Context) -> Result<(), Failure> {
    const READS: usize = 30;
    const BYTES: u64 = 16 << 20;
    let limit = context.short_limits()?.progress_time;
    let (mut controller, mut queue) = context.io()?;
    let (nsid, block) = (context.target.nsid, context.facts.block_bytes);
    let most = context.facts.transfer_bytes_max.unwrap_or(BYTES);
    let blocks = context.blocks_of(most.min(BYTES / READS as u64) as u32);
    let mut bytes = Vec::new();
    for _ in 0..READS {
        let sqe = NvmCommand::Read(Blocks::new(0, blocks)).sqe(0, nsid, SglDescriptor::NONE);
        bytes.extend(queue.prepare(sqe, &[], blocks * block).1);
    }
    queue.send(&bytes)?;
    // The admin queue of the same controller is asked, and nothing else: the connection itself tells nothing unless it is read.
    let queue_is_there = |gateway: &mut dyn crate::gateway::Gateway| {
        let now = gateway.resources();
        let now = now.map_err(|why| Failure::preparation("the gateway's resources", why))?;
        Ok(now.connections)
    };
    let before = queue_is_there(context.gateway()?)?;
    let began = Instant::now();
    while queue_is_there(context.gateway()?)? == before {
        controller.admin.still_works(0, 0)?;
        std::thread::sleep(limit / 10);
        let late = began.elapsed() > 2 * limit + context.manner.patience;
        check(!late, "a host that does not read", "the end", "none")?;
    }
    let took = began.elapsed();
    check(
        took >= limit / 2,
        "a host that does not read",
        format!("the end after {limit:?}"),
        format!("after {took:?}"),
    )?;
    controller.admin.still_works(0, 0)
}

fn trickle(context: &mut Context) -> Result<(), Failure> {
    const PAUSE: Duration = Duration::from_millis(50);
    let limit = context.short_limits()?.handshake_time;
    let began = Instant::now();
    let mut peer = context.peer()?;
    for byte in &icreq()[..header::INITIALIZE - 1] {
        peer.send(&[*byte])?;
        match peer.receive_within(PAUSE) {
            Got::Nothing(_) => {}
            Got::Closed | Got::Reset => {
                let took = began.elapsed();
                return check(
                    took >= limit / 2,
                    "a trickle",
                    format!("the end after {limit:?}"),
                    format!("after {took:?}"),
                );
            }
            got => return Err(Failure::differs("a trickle", "the end", got)),
        }
        let late = limit + context.manner.patience;
        check(
            began.elapsed() < late,
            "a trickle",
            format!("the end after {limit:?}"),
            "none",
        )?;
    }
    ends_at_the_limit(context, &mut peer, began)
}

fn half_open_connections(context: &mut Context) -> Result<(), Failure> {
    let limits = context.short_limits()?;
    let silent = (0..limits.half_open_max + 4)
        .map(|_| context.peer())
        .collect::<Result<Vec<_>, _>>()?;
    let half_open = context
        .gateway()?
        .resources()
        .map_err(|why| Failure::preparation("the gateway's resources", why))?
        .half_open;
    check(
        half_open <= limits.half_open_max as u64,
        "half-open connections",
        format!("at most {}", limits.half_open_max),
        half_open,
    )?;
    // Behind them in the backlog; served once they have had their time.
    let patience = limits.handshake_time * 3 + context.manner.patience;
    let mut waiting = context.peer()?;
    waiting.manner.patience = patience;
    waiting.initialize(&InitializeRequest::new(DigestOptions::NONE))?;
    waiting.send(&connect_capsule(context))?;
    waiting.expect_status("Connect", 0, Status::SUCCESS)?;
    drop(silent);
    Ok(())
}

/// Whatever of `allowed` comes, the connection ends then.
fn ends_after(peer: &mut Peer, what: &str, allowed: impl Fn(&Got) -> bool) -> Result<(), Failure> {
    loop {
        match peer.receive() {
            Got::Closed | Got::Reset => return Ok(()),
            Got::Nothing(waited) => {
                return Err(Failure::NoAnswer {
                    what: what.into(),
                    expected: "the end of the connection".into(),
                    waited,
                });
            }
            got if allowed(&got) => {}
            got => return Err(Failure::differs(what, "the end of the connection", got)),
        }
    }
}

fn icreq_then_fin(context: &mut Context) -> Result<(), Failure> {
    let mut peer = context.peer()?;
    peer.send(&icreq())?;
    peer.finish_sending();
    ends_after(&mut peer, "ICReq and FIN", |got| {
        matches!(got, Got::Initialized(_))
    })
}

/// Sends bytes on a fresh connection and resets it, some times over; a moment's pause each second time.
fn send_and_reset(context: &mut Context, bytes: &[u8], times: u32) -> Result<(), Failure> {
    for round in 0..times {
        let mut peer = context.peer()?;
        peer.send(bytes)?;
        if round % 2 == 1 {
            std::thread::sleep(STEP * (round % 8));
        }
        peer.reset();
    }
    Ok(())
}

fn icreq_then_rst(context: &mut Context) -> Result<(), Failure> {
    send_and_reset(context, &icreq(), 50)
}

fn half_icreq_then_fin(context: &mut Context) -> Result<(), Failure> {
    let mut peer = context.peer()?;
    peer.send(&icreq()[..64])?;
    peer.finish_sending();
    ends_after(&mut peer, "half an ICReq and FIN", |_| false)
}

fn half_icreq_then_rst(context: &mut Context) -> Result<(), Failure> {
    send_and_reset(context, &icreq()[..64], 50)
}

fn connection_then_rst(context: &mut Context) -> Result<(), Failure> {
    send_and_reset(context, &[], 50)
}

fn connect_then_fin(context: &mut Context) -> Result<(), Failure> {
    let mut peer = context.initialized()?;
    peer.send(&connect_capsule(context))?;
    peer.finish_sending();
    ends_after(&mut peer, "Connect and FIN", |got| {
        matches!(got, Got::Response(_))
    })
}

fn connect_then_rst(context: &mut Context) -> Result<(), Failure> {
    let capsule = connect_capsule(context);
    for round in 0..30 {
        let mut peer = context.initialized()?;
        peer.send(&capsule)?;
        std::thread::sleep(STEP * (round % 5));
        peer.reset();
    }
    Ok(())
}

fn bad_icreq_then_rst(context: &mut Context) -> Result<(), Failure> {
    let mut bytes = icreq();
    bytes[crate::nvme::pdu::at::FORMAT_VERSION] = 1;
    send_and_reset(context, &bytes, 50)
}

fn many_at_once(context: &mut Context) -> Result<(), Failure> {
    const HOSTS: usize = 8;
    const ROUNDS: usize = 25;
    let (icreq, connect) = (icreq(), connect_capsule(context));
    let whole = [&icreq[..], &connect].concat();
    let lengths = [64, icreq.len(), icreq.len() + 500, whole.len()];
    let (context, whole) = (&*context, &whole);
    std::thread::scope(|scope| {
        let hosts: Vec<_> = (0..HOSTS)
            .map(|host| {
                let (address, manner) = (context.target.address, context.manner);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let mut peer = Peer::connect(address, manner)?;
                        peer.send(&whole[..lengths[(host + round) % lengths.len()]])?;
                        if round % 3 == 0 {
                            std::thread::sleep(STEP);
                        }
                        peer.reset();
                    }
                    Ok(())
                })
            })
            .collect();
        hosts
            .into_iter()
            .try_for_each(|host| host.join().expect("a host does not panic"))
    })
}

fn io_connect_then_rst(context: &mut Context) -> Result<(), Failure> {
    let mut controller = context.controller()?;
    let options = context.options();
    let data = options.connect_data(controller.id).encode();
    let sgl = SglDescriptor::InCapsule {
        offset: 0,
        length: data.len() as u32,
    };
    let sqe = FabricsCommand::Connect(options.connect(1)).sqe(0, sgl);
    let capsule = Format::PLAIN.capsule(&sqe, &data);
    for round in 0..20 {
        let mut peer = context.initialized()?;
        peer.send(&capsule)?;
        std::thread::sleep(STEP * (round % 5));
        peer.reset();
    }
    // Until the target has seen the last reset, the queue is in use.
    let began = Instant::now();
    loop {
        let (mut queue, cqe) = controller.try_io(context.target.address, 1, &options)?;
        if cqe.status.is_success() {
            queue.still_works(context.target.nsid, context.facts.block_bytes)?;
            return controller.admin.still_works(0, 0);
        }
        let in_use = cqe.status.is(Status::INVALID_QUEUE_IDENTIFIER)
            || cqe.status.is(Status::CONNECT_CONTROLLER_BUSY);
        let patient = began.elapsed() < context.manner.patience;
        check(in_use && patient, "Connect again", "success", cqe.status)?;
    }
}
