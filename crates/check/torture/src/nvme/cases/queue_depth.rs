//! Group 15: more commands than the queue holds. They wait or are refused; each is answered once.

use std::collections::BTreeSet;
use std::time::Duration;

use weir_nvme::command::{AdminCommand, Blocks, NvmCommand};
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::{Cqe, Sqe, Status};

use super::transfers::{pattern, write_capsule};
use crate::case::{Failure, check};
use crate::nvme::context::Context;
use crate::nvme::peer::Got;
use crate::nvme::queue::Queue;

cases! {
    15 reads_above_the_depth [] "Base 2.0c 3.3.1": "256 Reads at once on a queue of 32" => "each is answered once, with success or a retryable status";
    15 reads_at_the_success_flag [] "TCP 1.0c 3.3.2": "1000 Reads without SQ flow control, 32 at once, each tag reused at the success flag" => "each is answered once, with success";
    15 writes_above_the_depth [WRITES] "Base 2.0c 3.3.1": "64 Writes at once on a queue of 32, each waiting for its data" => "each is answered once, with success or a retryable status";
    15 large_writes_at_once [WRITES] "Base 2.0c 3.3.1": "31 Writes of 512 KiB at once, data sent in the order of R2Ts, which buffers may hold up" => "each is answered once, with success or a retryable status";
    15 keep_alives_above_the_depth [] "Base 2.0c 3.3.1": "256 Keep Alives at once on an admin queue of 32" => "each is answered once, with success or a retryable status";
    15 answers_not_read [] "Base 2.0c 3.3.1": "2048 Reads by a host that reads no answer until all are sent" => "each is answered once, with success or a retryable status";
    15 refusals_not_read [] "Base 2.0c 3.3.1": "4096 commands that are refused, by a host that reads no answer until all are sent" => "each is answered once, with Invalid Command Opcode";
    15 smallest_queue [] "Base 2.0c 6.3": "64 Reads at once on a queue of 2" => "each is answered once, with success or a retryable status";
}

/// Waits until each of these commands is answered once; data of Reads is dropped, R2Ts are answered from `data`.
fn each_answered(
    queue: &mut Queue,
    commands: &[Sqe],
    data: &[u8],
    allowed: impl Fn(&Cqe) -> bool,
) -> Result<(), Failure> {
    let mut waiting: BTreeSet<u16> = commands.iter().map(|sqe| sqe.cid).collect();
    assert_eq!(
        waiting.len(),
        commands.len(),
        "a case gives each its own CID"
    );
    while !waiting.is_empty() {
        match queue.receive() {
            Got::Data(header, _) if waiting.contains(&header.cid) => {
                if header.success {
                    waiting.remove(&header.cid);
                }
            }
            Got::R2t(r2t) if waiting.contains(&r2t.cid) => queue.send_data(&r2t, data)?,
            Got::Response(cqe) if allowed(&cqe) && waiting.remove(&cqe.cid) => {}
            Got::Nothing(waited) => {
                return Err(Failure::NoAnswer {
                    what: format!("{} commands", commands.len()),
                    expected: format!("{} answers more", waiting.len()),
                    waited,
                });
            }
            got => {
                let what = format!("{} commands", commands.len());
                return Err(Failure::differs(what, "one answer to each", got));
            }
        }
    }
    Ok(())
}

/// Success, or a status that has the host try again.
fn done_or_later(cqe: &Cqe) -> bool {
    cqe.status.is_success() || !cqe.status.do_not_retry()
}

fn reads(context: &Context, queue: &mut Queue, count: usize) -> (Vec<Sqe>, Vec<u8>) {
    let (nsid, block) = (context.target.nsid, context.facts.block_bytes);
    let mut bytes = Vec::new();
    let entries = (0..count)
        .map(|_| {
            let read = NvmCommand::Read(Blocks::new(0, 1)).sqe(0, nsid, SglDescriptor::NONE);
            let (sqe, capsule) = queue.prepare(read, &[], block);
            bytes.extend(capsule);
            sqe
        })
        .collect();
    (entries, bytes)
}

fn goes_on(context: &Context, queue: &mut Queue) -> Result<(), Failure> {
    queue.still_works(context.target.nsid, context.facts.block_bytes)
}

fn reads_above_the_depth(context: &mut Context) -> Result<(), Failure> {
    let (_controller, mut queue) = context.io()?;
    let (entries, bytes) = reads(context, &mut queue, 256);
    queue.send(&bytes)?;
    each_answered(&mut queue, &entries, &[], done_or_later)?;
    goes_on(context, &mut queue)
}

fn reads_at_the_success_flag(context: &mut Context) -> Result<(), Failure> {
    let mut options = context.options();
    options.flow_control_off = true;
    let (_controller, mut queue) = context.io_with(&options)?;
    let (nsid, block) = (context.target.nsid, context.facts.block_bytes);
    let depth = u32::from(options.entries);
    let (first, bytes) = reads(context, &mut queue, depth as usize);
    queue.send(&bytes)?;
    let mut left = 1000 - depth;
    let mut waiting: BTreeSet<u16> = first.iter().map(|sqe| sqe.cid).collect();
    while !waiting.is_empty() {
        let cid = match queue.receive() {
            Got::Data(header, _) if waiting.contains(&header.cid) => {
                if !header.success {
                    continue;
                }
                header.cid
            }
            Got::Response(cqe) if waiting.contains(&cqe.cid) && cqe.status.is_success() => cqe.cid,
            got => return Err(Failure::differs("Reads", "their answers", got)),
        };
        if left == 0 {
            waiting.remove(&cid);
            continue;
        }
        // The same tag again, at once.
        left -= 1;
        let mut sqe = NvmCommand::Read(Blocks::new(0, 1)).sqe(cid, nsid, SglDescriptor::NONE);
        sqe.sgl = SglDescriptor::Transport { length: block };
        let capsule = queue.format.capsule(&sqe, &[]);
        queue.send(&capsule)?;
    }
    goes_on(context, &mut queue)
}

fn writes_above_the_depth(context: &mut Context) -> Result<(), Failure> {
    let (_controller, mut queue) = context.io()?;
    let block = context.facts.block_bytes;
    let mut bytes = Vec::new();
    let entries: Vec<_> = (0..64)
        .map(|lba| {
            let (sqe, capsule) = write_capsule(context, &mut queue, lba % 16, 1);
            bytes.extend(capsule);
            sqe
        })
        .collect();
    queue.send(&bytes)?;
    each_answered(&mut queue, &entries, &pattern(15, block), done_or_later)?;
    goes_on(context, &mut queue)
}

fn large_writes_at_once(context: &mut Context) -> Result<(), Failure> {
    const BYTES: u64 = 512 << 10;
    const WRITES: u32 = 31;
    let most = context.facts.transfer_bytes_max.unwrap_or(BYTES);
    let blocks = context.blocks_of(most.min(BYTES) as u32);
    let (_controller, mut queue) = context.io()?;
    let mut bytes = Vec::new();
    let entries: Vec<_> = (0..WRITES)
        .map(|_| {
            let (sqe, capsule) = write_capsule(context, &mut queue, 0, blocks);
            bytes.extend(capsule);
            sqe
        })
        .collect();
    queue.send(&bytes)?;
    let data = pattern(15, blocks * context.facts.block_bytes);
    each_answered(&mut queue, &entries, &data, done_or_later)?;
    goes_on(context, &mut queue)
}

fn keep_alives_above_the_depth(context: &mut Context) -> Result<(), Failure> {
    let mut controller = context.controller()?;
    let admin = &mut controller.admin;
    let mut bytes = Vec::new();
    let entries: Vec<_> = (0..256)
        .map(|_| {
            let sqe = AdminCommand::KeepAlive.sqe(0, SglDescriptor::NONE);
            let (sqe, capsule) = admin.prepare(sqe, &[], 0);
            bytes.extend(capsule);
            sqe
        })
        .collect();
    admin.send(&bytes)?;
    each_answered(admin, &entries, &[], done_or_later)?;
    admin.still_works(0, 0)
}

/// Sends all of `bytes` from a thread of its own, and begins to read only a while after that began.
fn send_unread(
    queue: &mut Queue,
    bytes: Vec<u8>,
    answered: impl FnOnce(&mut Queue) -> Result<(), Failure>,
) -> Result<(), Failure> {
    use std::io::Write;
    const UNREAD: Duration = Duration::from_millis(300);
    let mut stream = queue
        .stream()
        .try_clone()
        .map_err(|error| Failure::preparation("a second handle of the socket", error))?;
    let sender = std::thread::spawn(move || stream.write_all(&bytes));
    std::thread::sleep(UNREAD);
    let done = answered(queue);
    let sent = sender.join().expect("sending does not panic");
    done?;
    check(
        sent.is_ok(),
        "sending",
        "a target that reads",
        format!("{sent:?}"),
    )
}

fn answers_not_read(context: &mut Context) -> Result<(), Failure> {
    let (_controller, mut queue) = context.io()?;
    let (entries, bytes) = reads(context, &mut queue, 2048);
    send_unread(&mut queue, bytes, |queue| {
        each_answered(queue, &entries, &[], done_or_later)
    })?;
    goes_on(context, &mut queue)
}

fn refusals_not_read(context: &mut Context) -> Result<(), Failure> {
    let (_controller, mut queue) = context.io()?;
    let mut bytes = Vec::new();
    let entries: Vec<_> = (0..4096)
        .map(|_| {
            let unknown = Sqe {
                // Bits 1:0 say that there is no data.
                opcode: 0x70,
                nsid: context.target.nsid,
                ..Sqe::default()
            };
            let (sqe, capsule) = queue.prepare(unknown, &[], 0);
            bytes.extend(capsule);
            sqe
        })
        .collect();
    send_unread(&mut queue, bytes, |queue| {
        each_answered(queue, &entries, &[], |cqe| {
            cqe.status.is(Status::INVALID_COMMAND_OPCODE)
        })
    })?;
    goes_on(context, &mut queue)
}

fn smallest_queue(context: &mut Context) -> Result<(), Failure> {
    let controller = context.controller()?;
    let mut options = context.options();
    options.entries = 2;
    let mut queue = controller.io_with(1, &options)?;
    let (entries, bytes) = reads(context, &mut queue, 64);
    queue.send(&bytes)?;
    each_answered(&mut queue, &entries, &[], done_or_later)?;
    goes_on(context, &mut queue)
}
