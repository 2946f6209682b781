//! What `bench/instructions` counts: the host's side of a queue pair at work, and nothing else. Each test does commands of one
//! kind, as an initiator under load does them; run under callgrind with two numbers of commands, the difference is what one
//! costs.
//!
//! There is no socket, and data goes nowhere. As tests they see to it that the commands succeed.

use std::cell::Cell;

use weir_digest::Digest;
use weir_memory::{Gather, View, Views};
use weir_nvme::command::{Blocks, NvmCommand};
use weir_nvme::tcp::{
    Alignment, C2hData, DigestOptions, HEADER_SIZE_MAX, InitializeResponse, R2t, Writer,
};
use weir_nvme::{Cqe, SglDescriptor, Sqe, Status};

use weir_initiator::wire::{Commands, Payload};

use super::{Answer, QueuePair, Settings};

/// Commands that leave with one send, and whose answers come with one receive.
const TOGETHER: u16 = 8;
const BLOCK_BYTES: u32 = 512;
const SHORT: u32 = 4096;
const LONG: u32 = 128 << 10;
/// Commands to do unless the environment says so.
const COMMANDS: usize = 64;
/// So many slots that a CID is a slot and nothing else: canned answers fit every round.
const SLOTS: u16 = u16::MAX;

/// How many commands to do.
fn commands() -> usize {
    let told = std::env::var("WEIR_COMMANDS").ok();
    told.map_or(COMMANDS, |count| count.parse().expect("a number"))
}

/// Counts what came.
#[derive(Default)]
struct Counted {
    answers: Cell<usize>,
    bytes: Cell<usize>,
}

impl Commands<Answer> for Counted {
    fn data(&self, _user: u64, _offset: u32, bytes: &[u8]) {
        self.bytes.set(self.bytes.get() + bytes.len());
    }

    fn answer(&self, _user: u64, answer: Answer) {
        let Answer::Cqe(cqe) = answer else {
            panic!("data came whole")
        };
        assert_eq!(cqe.status, Status::SUCCESS);
        self.answers.set(self.answers.get() + 1);
    }
}

/// A queue pair that is connected.
struct Pure {
    pair: QueuePair,
    counted: Counted,
    out: Gather,
    data: Views,
}

impl Pure {
    fn new(digests: bool, data: u32) -> Self {
        let mut pure = Pure {
            pair: QueuePair::new(Settings {
                header_digest: digests,
                data_digest: digests,
                alignment: Alignment::DWORD,
                slots: SLOTS,
                in_capsule_bytes: SHORT,
            }),
            counted: Counted::default(),
            out: Gather::new(),
            data: Views::from_iter([View::copy_of(&vec![0x5a; data as usize])]),
        };
        pure.send();
        let flags = DigestOptions(if digests { 3 } else { 0 });
        pure.receive(&InitializeResponse::new(flags, LONG).encode());
        assert_eq!(pure.pair.fault(), None);
        pure
    }

    fn submit(&mut self, write: bool, length: u32) {
        let blocks = Blocks::new(0, length / BLOCK_BYTES);
        let (command, payload) = match write {
            true => (NvmCommand::Write(blocks), Payload::Out(self.data.clone())),
            false => (NvmCommand::Read(blocks), Payload::In(length)),
        };
        let sqe: Sqe = command.sqe(0, 1, SglDescriptor::NONE);
        self.pair.submit(sqe, payload, 7);
    }

    /// A send that ends at once; how many bytes were sent.
    fn send(&mut self) -> usize {
        while self.pair.has_output() {
            self.pair.transmit(&mut self.out);
        }
        let length = self.out.len();
        self.out.clear();
        length
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.pair.receive(bytes, &self.counted);
    }
}

fn controller(digests: bool) -> Writer {
    Writer {
        header_digest: digests,
        data_digest: digests,
        alignment: Alignment::DWORD,
    }
}

fn header(write: impl FnOnce(&mut [u8]) -> usize) -> Vec<u8> {
    let mut buffer = [0; HEADER_SIZE_MAX];
    let length = write(&mut buffer);
    buffer[..length].to_vec()
}

fn response(writer: &Writer, cid: u16) -> Vec<u8> {
    let cqe = Cqe::new(cid, 0, Status::SUCCESS);
    header(|buffer| writer.capsule_response(buffer, &cqe))
}

/// Data of a read, which says success.
fn read_data(writer: &Writer, cid: u16) -> Vec<u8> {
    let data = C2hData {
        cid,
        offset: 0,
        length: SHORT,
        last: true,
        success: true,
    };
    let mut bytes = header(|buffer| writer.c2h_data(buffer, &data));
    let data = vec![0x5a; SHORT as usize];
    bytes.extend_from_slice(&data);
    if writer.data_digest {
        bytes.extend(Digest::of(&data).to_bytes());
    }
    bytes
}

/// Short commands, several at once.
fn short(write: bool, digests: bool) {
    let writer = controller(digests);
    let answers = (0..TOGETHER).map(|cid| match write {
        true => response(&writer, cid),
        false => read_data(&writer, cid),
    });
    let answers = answers.collect::<Vec<_>>().concat();
    let capsule = match (write, digests) {
        (false, false) => 72,
        (false, true) => 76,
        (true, false) => 72 + SHORT as usize,
        (true, true) => 76 + SHORT as usize + 4,
    };
    let mut pure = Pure::new(digests, SHORT);
    for _ in 0..commands() / usize::from(TOGETHER) {
        for _ in 0..TOGETHER {
            pure.submit(write, SHORT);
        }
        assert_eq!(pure.send(), usize::from(TOGETHER) * capsule);
        pure.receive(&answers);
    }
    assert_eq!(pure.counted.answers.get(), commands());
    let bytes = if write { 0 } else { SHORT as usize };
    assert_eq!(pure.counted.bytes.get(), commands() * bytes);
}

/// Long writes, one after the other.
fn long(digests: bool) {
    let writer = controller(digests);
    let r2t = R2t {
        cid: 0,
        transfer_tag: 5,
        offset: 0,
        length: LONG,
    };
    let r2t = header(|buffer| writer.r2t(buffer, &r2t));
    let response = response(&writer, 0);
    let (capsule, pdu) = match digests {
        false => (72, 24 + LONG as usize),
        true => (76, 28 + LONG as usize + 4),
    };
    let mut pure = Pure::new(digests, LONG);
    for _ in 0..commands() {
        pure.submit(true, LONG);
        assert_eq!(pure.send(), capsule);
        pure.receive(&r2t);
        assert_eq!(pure.send(), pdu);
        pure.receive(&response);
    }
    assert_eq!(pure.counted.answers.get(), commands());
}

#[test]
fn read() {
    short(false, false);
}

#[test]
fn read_digests() {
    short(false, true);
}

#[test]
fn write() {
    short(true, false);
}

#[test]
fn write_digests() {
    short(true, true);
}

#[test]
fn r2t_write() {
    long(false);
}

#[test]
fn r2t_write_digests() {
    long(true);
}
