//! What `bench/instructions` counts: framing and command core at work, and nothing else. Each test does commands of one kind,
//! as a connection under load does them; run under callgrind with two numbers of commands, the difference is what one costs.
//!
//! There is no socket, no volume and no copy but those of the target. As tests they see to it that the commands succeed.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use weir_block::{Completion, Operation, ReadBuffers, Request};
use weir_digest::Digest;
use weir_memory::{Gather, Pool, View};
use weir_nvme::command::{Blocks, NvmCommand};
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::tcp::{
    Alignment, DigestOptions, H2cData, HEADER_SIZE_MAX, InitializeRequest, Writer,
};
use weir_reactor::Instant;

use super::tests::{BLOCK_BYTES, Requests, attached};
use super::{Framing, Received};
use crate::config::TargetConfig;
use weir_front::IoCounters;
use weir_front::Latency;
use weir_nvme_core::Namespaces;
use weir_nvme_core::{Env, QueueKind, QueuePair};

/// Commands that come with one receive, and leave with one send.
const TOGETHER: u16 = 8;
const SHORT: u32 = 4096;
const LONG: u32 = 128 << 10;
/// Bytes of a long write's data that come with its header.
const WITH_HEADER: usize = 8192;
/// Commands to do unless the environment says so.
const COMMANDS: usize = 64;

/// How many commands to do.
fn commands() -> usize {
    let told = std::env::var("WEIR_COMMANDS").ok();
    told.map_or(COMMANDS, |count| count.parse().expect("a number"))
}

/// One I/O queue that is connected.
struct Pure {
    framing: Framing,
    queue: QueuePair,
    namespaces: Namespaces,
    pool: Pool,
    requests: Requests,
    counters: IoCounters,
    latency: Latency,
    config: TargetConfig,
    out: Gather,
    now: Instant,
    data: View,
}

impl Pure {
    fn new(digests: bool) -> Self {
        let (pool, config) = (Pool::new(16 << 20), TargetConfig::default());
        let requests: Requests = Rc::new(RefCell::new(VecDeque::new()));
        let attached = attached(&pool, true, usize::MAX, &requests);
        let mut pure = Pure {
            framing: Framing::new(&config),
            queue: QueuePair::new(0),
            namespaces: Namespaces::new(vec![Rc::new(attached)]),
            requests,
            counters: IoCounters::default(),
            latency: Latency::default(),
            out: Gather::new(),
            now: Instant::default(),
            data: View::copy_of(&[0x5a; SHORT as usize]),
            pool,
            config,
        };
        let options = if digests {
            DigestOptions::HEADER | DigestOptions::DATA
        } else {
            DigestOptions::NONE
        };
        pure.turn(&View::copy_of(&InitializeRequest::new(options).encode()));
        pure.send();
        let reserve = pure.pool.segment(SHORT as usize).ok();
        let entries = u32::from(TOGETHER) * 2;
        pure.queue
            .connected(QueueKind::Io, 1, entries, false, reserve);
        pure.framing.set_success_flag(true);
        pure
    }

    /// One turn of the reactor's loop, but for the send: takes what was received, and has the volume do it.
    fn turn(&mut self, input: &View) {
        let mut input = input.clone();
        self.now = self.now + Duration::from_micros(10);
        self.queue.commands().set_now(self.now);
        let env = Env {
            registrant: None,
            namespaces: &self.namespaces,
            pool: &self.pool,
            transfer_bytes_max: self.config.mdts_bytes,
            in_capsule_bytes: self.config.in_capsule_bytes,
            admin_in_capsule_bytes: crate::config::ADMIN_IN_CAPSULE_BYTES,
            retry_delay: false,
            counters: &self.counters,
            admin: None,
        };
        let progress = self
            .framing
            .receive(&mut input, &mut self.queue, &env, &mut self.out);
        assert_eq!(progress.expect("good PDUs"), Received::Hungry);
        self.queue.commands().pump();
        loop {
            let request = self.requests.borrow_mut().pop_front();
            let Some(request) = request else { break };
            let completion = done(request, &self.data);
            self.queue.completed(completion, &env);
        }
        self.queue.commands().pump();
        self.framing
            .write(&mut self.queue, &self.pool, &mut self.out);
    }

    /// A send that ends at once; how many bytes were sent.
    fn send(&mut self) -> usize {
        self.framing.send_began(&mut self.queue);
        self.queue.commands().send_began();
        self.framing.send_ended();
        let (sent, mut runs) = self.queue.commands().send_ended();
        runs.drain(|run| self.latency.record(run, self.now));
        self.queue.commands().keep_runs(runs);
        self.queue.room().give_back(sent);
        let length = self.out.len();
        self.out.clear();
        length
    }

    /// TTAG of the R2T that is to be sent (NVMe/TCP Transport 1.0c, section 3.6.2.10). One command at a time has the same always.
    fn transfer_tag(&self) -> u16 {
        let r2t = self.out.slices().next().expect("an R2T");
        u16::from_le_bytes([r2t[10], r2t[11]])
    }

    /// Receives the rest of the PDU's data as the kernel does: into its place.
    fn receive_directly(&mut self) {
        while let Some(direct) = self.framing.direct(&mut self.queue) {
            let (segment, from, back) = direct.split();
            let count = segment.len() - from;
            self.framing
                .received_directly(segment, &back, count, &mut self.queue);
        }
    }
}

/// The volume has done it. What it lends is the same for every block.
fn done(request: Request, data: &View) -> Completion {
    let operation = match request.operation {
        Operation::Read { lba, blocks, .. } => Operation::Read {
            lba,
            blocks,
            buffers: ReadBuffers::Filled([data.clone()].into_iter().collect()),
        },
        other => other,
    };
    Completion {
        token: request.token,
        result: Ok(()),
        operation,
    }
}

fn host(digests: bool) -> Writer {
    Writer {
        header_digest: digests,
        data_digest: digests,
        alignment: Alignment::DWORD,
    }
}

fn data_of(length: usize) -> Vec<u8> {
    vec![0x5a; length]
}

/// The capsule of one command, with data where it is an in-capsule write.
fn capsule(writer: &Writer, cid: u16, write: bool, length: u32, sgl: SglDescriptor) -> Vec<u8> {
    let blocks = Blocks::new(u64::from(cid) * 8, length / BLOCK_BYTES);
    let command = match write {
        true => NvmCommand::Write(blocks),
        false => NvmCommand::Read(blocks),
    };
    let in_capsule = match sgl {
        SglDescriptor::InCapsule { length, .. } => length,
        _ => 0,
    };
    let mut buffer = [0; HEADER_SIZE_MAX];
    let header = writer.capsule_command(&mut buffer, &command.sqe(cid, 1, sgl), in_capsule);
    let mut bytes = buffer[..header].to_vec();
    add_data(writer, &data_of(in_capsule as usize), &mut bytes);
    bytes
}

fn add_data(writer: &Writer, data: &[u8], bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(data);
    if writer.data_digest_length(data.len() as u32) > 0 {
        bytes.extend(Digest::of(data).to_bytes());
    }
}

fn reads(digests: bool) {
    let writer = host(digests);
    let sgl = SglDescriptor::Transport { length: SHORT };
    let capsules = (0..TOGETHER).map(|cid| capsule(&writer, cid, false, SHORT, sgl));
    let input = View::copy_of(&capsules.collect::<Vec<_>>().concat());
    let sent = usize::from(TOGETHER) * (SHORT as usize + if digests { 32 } else { 24 });
    let mut pure = Pure::new(digests);
    for _ in 0..commands() / usize::from(TOGETHER) {
        pure.turn(&input);
        assert_eq!(pure.send(), sent);
    }
    assert_eq!(pure.counters.reads.get() as usize, commands());
}

fn writes_in_capsules(digests: bool) {
    let writer = host(digests);
    let (offset, length) = (0, SHORT);
    let sgl = SglDescriptor::InCapsule { offset, length };
    let capsules = (0..TOGETHER).map(|cid| capsule(&writer, cid, true, SHORT, sgl));
    let input = View::copy_of(&capsules.collect::<Vec<_>>().concat());
    let sent = usize::from(TOGETHER) * if digests { 28 } else { 24 };
    let mut pure = Pure::new(digests);
    for _ in 0..commands() / usize::from(TOGETHER) {
        pure.turn(&input);
        assert_eq!(pure.send(), sent);
    }
    assert_eq!(pure.counters.writes.get() as usize, commands());
}

/// The H2CData that an R2T with this tag asks for: its header and the data that comes with it, and what comes behind.
fn transfer(writer: &Writer, transfer_tag: u16) -> (View, View) {
    let header = H2cData {
        cid: 0,
        transfer_tag,
        offset: 0,
        length: LONG,
        last: true,
    };
    let mut buffer = [0; HEADER_SIZE_MAX];
    let header = writer.h2c_data(&mut buffer, &header);
    let data = data_of(LONG as usize);
    let mut bytes = buffer[..header].to_vec();
    bytes.extend_from_slice(&data[..WITH_HEADER]);
    let digest = match writer.data_digest {
        true => &Digest::of(&data).to_bytes()[..],
        false => &[],
    };
    (View::copy_of(&bytes), View::copy_of(digest))
}

fn writes_after_r2t(digests: bool) {
    let writer = host(digests);
    let sgl = SglDescriptor::Transport { length: LONG };
    let command = View::copy_of(&capsule(&writer, 0, true, LONG, sgl));
    let mut pure = Pure::new(digests);
    assert!(pure.config.mdts_bytes >= LONG, "one PDU is enough");
    // What is received directly is there from the start: one command at a time has the same buffer always.
    let mut buffer = pure.pool.segment(LONG as usize).expect("there is room");
    buffer.fill(0x5a);
    drop(buffer);
    let small = if digests { 28 } else { 24 };
    let mut pdu = None;
    for _ in 0..commands() {
        pure.turn(&command);
        let (first, last) = pdu.get_or_insert_with(|| transfer(&writer, pure.transfer_tag()));
        assert_eq!(pure.send(), small, "an R2T");
        pure.turn(first);
        pure.receive_directly();
        pure.turn(last);
        assert_eq!(pure.send(), small, "an answer");
    }
    assert_eq!(pure.counters.writes.get() as usize, commands());
}

#[test]
fn read() {
    reads(false);
}

#[test]
fn read_digests() {
    reads(true);
}

#[test]
fn write() {
    writes_in_capsules(false);
}

#[test]
fn write_digests() {
    writes_in_capsules(true);
}

#[test]
fn r2t_write() {
    writes_after_r2t(false);
}

#[test]
fn r2t_write_digests() {
    writes_after_r2t(true);
}
