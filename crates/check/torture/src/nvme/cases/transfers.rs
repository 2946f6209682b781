//! Groups 10 to 12: H2CData that nobody asked for, at other offsets and of other lengths than asked for, and commands that are
//! aborted while their data is awaited.

use weir_nvme::command::{Abort, AdminCommand, Blocks, FabricsCommand, NvmCommand};
use weir_nvme::property::{Configuration, ControllerStatus};
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::tcp::FatalErrorStatus::{
    DataTransferOutOfRange, InvalidPduHeaderField, LimitExceeded, PduSequenceError,
};
use weir_nvme::tcp::{H2cData, R2t};
use weir_nvme::{Cqe, Sqe, Status};

use crate::case::{Failure, check};
use crate::context::QUIET;
use crate::nvme::context::Context;
use crate::nvme::pdu::{at, put_u32};
use crate::nvme::peer::{Answer, Got};
use crate::nvme::queue::{Controller, Queue, enabled};

cases! {
    10 data_on_an_idle_io_queue [] "TCP 1.0c 3.6.2.8": "an H2CData on an I/O queue without commands" => "C2HTermReq, Invalid PDU Header Field, FEI 10, or PDU Sequence Error";
    10 data_on_an_admin_queue [] "TCP 1.0c 3.6.2.8": "an H2CData on an admin queue" => "C2HTermReq, Invalid PDU Header Field, FEI 10, or PDU Sequence Error; its I/O queues end";
    10 data_before_connect [] "TCP 1.0c 3.6.2.8": "an H2CData after ICResp, before Connect" => "C2HTermReq, Invalid PDU Header Field, FEI 10, or PDU Sequence Error";
    10 data_for_a_command_not_started [WRITES] "TCP 1.0c 3.6.2.8": "a Write and an H2CData with TTAG 0 in one segment, before any R2T" => "C2HTermReq, Invalid PDU Header Field, FEI 10, or PDU Sequence Error";
    10 data_for_a_read [] "TCP 1.0c 3.6.2.8": "a Read and an H2CData with its CID in one segment" => "C2HTermReq, Invalid PDU Header Field, FEI 10 or 8, or PDU Sequence Error";
    10 ttag_out_of_range [WRITES] "TCP 1.0c 3.6.2.8": "TTAG 65535 where another was given" => "C2HTermReq, Invalid PDU Header Field, FEI 10";
    10 ttag_never_given [WRITES] "TCP 1.0c 3.6.2.8": "the TTAG beside the one that was given" => "C2HTermReq, Invalid PDU Header Field, FEI 10";
    10 ttag_of_a_finished_command [WRITES] "TCP 1.0c 3.6.2.8": "the H2CData of a Write once more after its answer" => "C2HTermReq, Invalid PDU Header Field, FEI 10, or PDU Sequence Error";
    10 ttag_of_another_command [WRITES] "TCP 1.0c 3.6.2.8": "two Writes wait: the TTAG of one with the CID of the other" => "C2HTermReq, Invalid PDU Header Field, FEI 8 or 10";
    10 cccid_of_no_command [WRITES] "TCP 1.0c 3.6.2.8": "the right TTAG with CID 65534" => "C2HTermReq, Invalid PDU Header Field, FEI 8";
    10 cccid_and_ttag_swapped [WRITES] "TCP 1.0c 3.6.2.8": "CCCID and TTAG in each other's place" => "C2HTermReq, Invalid PDU Header Field, FEI 8 or 10";

    11 datao_ahead [WRITES] "TCP 1.0c 3.6.2.8": "DATAO 4 where 0 is next" => "C2HTermReq, Data Transfer Out of Range";
    11 datao_repeated [WRITES] "TCP 1.0c 3.6.2.8": "the first half of a Write's data twice" => "C2HTermReq, Data Transfer Out of Range";
    11 datao_backwards [WRITES] "TCP 1.0c 3.6.2.8": "the second half of a Write's data before the first" => "C2HTermReq, Data Transfer Out of Range";
    11 datao_behind_the_end [WRITES] "TCP 1.0c 3.6.2.8": "DATAO at the end of what the R2T asked for" => "C2HTermReq, Data Transfer Out of Range";
    11 datao_and_datal_past_2_32 [WRITES] "TCP 1.0c 3.6.2.8": "DATAO 2^32 - 512 with 4 KiB" => "C2HTermReq, Data Transfer Out of Range";
    11 datal_behind_the_end [WRITES] "TCP 1.0c 3.6.2.8": "more data than the R2T asked for" => "C2HTermReq, Data Transfer Out of Range";
    11 datal_0 [WRITES] "TCP 1.0c 3.6.2.8": "DATAL 0 in a PDU that has data" => "C2HTermReq, Invalid PDU Header Field, FEI 16 or 4";
    11 datal_below_plen [WRITES] "TCP 1.0c 3.6.2.8": "DATAL 4 less than the PDU has" => "C2HTermReq, Invalid PDU Header Field, FEI 4 or 16";
    11 datal_above_plen [WRITES] "TCP 1.0c 3.6.2.8": "DATAL 4 more than the PDU has" => "C2HTermReq, Invalid PDU Header Field, FEI 4 or 16";
    11 datal_max [WRITES] "TCP 1.0c 3.6.2.8": "DATAL 2^32 - 1 in a PDU of a block" => "C2HTermReq, Invalid PDU Header Field, FEI 4 or 16; or Data Transfer Limit Exceeded";
    11 datal_above_maxh2cdata [WRITES] "TCP 1.0c 3.6.2.8": "one H2CData 4 bytes longer than MAXH2CDATA" => "C2HTermReq, Data Transfer Limit Exceeded; or Out of Range, where no R2T asks for as much";
    11 last_missing [WRITES] "TCP 1.0c 3.6.2.8": "all data of an R2T, and no LAST_PDU" => "C2HTermReq, Invalid PDU Header Field, FEI 1, or PDU Sequence Error";
    11 last_early [WRITES] "TCP 1.0c 3.6.2.8": "LAST_PDU on the first half" => "C2HTermReq, Invalid PDU Header Field, FEI 1, or PDU Sequence Error";
    11 data_after_the_last [WRITES] "TCP 1.0c 3.6.2.8": "one H2CData more in the segment of the last" => "the answer or none, then C2HTermReq, Invalid PDU Header Field or PDU Sequence Error";
    11 data_in_blocks [WRITES] "TCP 1.0c 3.6.2.8": "a Write of 16 blocks in 16 H2CData PDUs, read back" => "success, and the data";

    12 abort_while_data_is_awaited [WRITES] "Base 2.0c 5.1": "Abort of a Write that waits for its data, which comes afterwards" => "Command Abort Requested; the data is dropped, and the queue goes on";
    12 abort_between_data [WRITES] "Base 2.0c 5.1": "Abort between two H2CData PDUs of a Write" => "one answer; the queue goes on";
    12 abort_inside_data [WRITES] "Base 2.0c 5.1": "Abort of a Write of 128 KiB inside an H2CData, whose rest comes afterwards" => "one answer; the queue goes on";
    12 abort_and_no_data [WRITES] "Base 2.0c 5.1": "Abort of a Write whose data never comes" => "Command Abort Requested; the queue goes on";
    12 aborts_in_a_row [WRITES] "Base 2.0c 5.1": "64 Writes aborted one after the other on a queue of 32, their data late" => "64 answers; the queue goes on";
    12 aborts_whose_data_never_comes [WRITES] "Base 2.0c 5.1": "64 Writes aborted one after the other on a queue of 32, their data never sent" => "one answer to each, and to later commands; the connection stays";
    12 heads_while_data_never_comes [WRITES] "Base 2.0c 3.3.2": "the same, looking at SQHD of each answer" => "SQHD is the next entry each time";
    12 data_awaited_for_long [WRITES] "TCP 1.0c 3.3.2": "a Write whose data comes late, while another command is answered" => "both succeed";
    12 data_as_soon_as_asked_for [WRITES] "TCP 1.0c 3.3.2": "200 Writes, each sent its data the moment that its R2T is there" => "200 successes: data may overtake the end of the R2T's send";
    12 disconnect_while_data_is_awaited [WRITES] "Base 2.0c 6.4": "Disconnect of an I/O queue whose Write waits for its data" => "its answer, and the end of the connection; the controller goes on";
    12 reset_while_data_is_awaited [WRITES] "Base 2.0c 3.7.2": "CC.EN to 0 while a Write waits for its data" => "the I/O queue ends, and CSTS.RDY falls";
}

/// Bytes that tell where they belong.
pub(super) fn pattern(seed: u64, length: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length as usize + 8);
    while bytes.len() < length as usize {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(length as usize);
    bytes
}

/// The capsule of a Write whose data is to be asked for.
pub(super) fn write_capsule(
    context: &Context,
    queue: &mut Queue,
    lba: u64,
    blocks: u32,
) -> (Sqe, Vec<u8>) {
    let (nsid, block) = (context.target.nsid, context.facts.block_bytes);
    let write = NvmCommand::Write(Blocks::new(lba, blocks)).sqe(0, nsid, SglDescriptor::NONE);
    let (mut sqe, _) = queue.prepare(write, &[], 0);
    sqe.sgl = SglDescriptor::Transport {
        length: blocks * block,
    };
    let capsule = queue.format.capsule(&sqe, &[]);
    (sqe, capsule)
}

/// Sends a Write and takes the R2T for all of its data.
pub(super) fn begin_write(
    context: &Context,
    queue: &mut Queue,
    lba: u64,
    blocks: u32,
) -> Result<(Sqe, R2t), Failure> {
    let (sqe, capsule) = write_capsule(context, queue, lba, blocks);
    queue.send(&capsule)?;
    let r2t = queue.expect_r2t("Write", sqe.cid)?;
    let bytes = blocks * context.facts.block_bytes;
    if r2t.offset == 0 && r2t.length == bytes {
        return Ok((sqe, r2t));
    }
    // A controller may ask for data in parts; what is damaged here is the whole.
    Err(Failure::NotOffered(format!(
        "one R2T for all {bytes} bytes of a Write"
    )))
}

/// A Write of 128 KiB, or as much as the target takes, that waits for its data, and the PDUs that bring it: more than is
/// received with their headers.
pub(super) fn large_write(
    context: &Context,
    queue: &mut Queue,
) -> Result<(Sqe, Vec<Vec<u8>>), Failure> {
    const BYTES: u64 = 128 << 10;
    let most = context.facts.transfer_bytes_max.unwrap_or(BYTES);
    let blocks = context.blocks_of(most.min(BYTES) as u32);
    let (sqe, r2t) = begin_write(context, queue, 0, blocks)?;
    let data = pattern(7, blocks * context.facts.block_bytes);
    let pdus = queue.data_pdus(&r2t, &data)?;
    Ok((sqe, pdus))
}

/// A Write of `blocks` blocks at LBA 1 that waits for its data.
struct Awaiting {
    controller: Controller,
    queue: Queue,
    header: H2cData,
    data: Vec<u8>,
}

impl Awaiting {
    fn new(context: &Context, blocks: u32) -> Result<Self, Failure> {
        let (controller, mut queue) = context.io()?;
        let (sqe, r2t) = begin_write(context, &mut queue, 1, blocks)?;
        let length = blocks * context.facts.block_bytes;
        let header = H2cData {
            cid: sqe.cid,
            transfer_tag: r2t.transfer_tag,
            offset: 0,
            length,
            last: true,
        };
        Ok(Self {
            controller,
            queue,
            header,
            data: pattern(1, length),
        })
    }

    /// The H2CData that `header` says, with as much data.
    fn pdu(&self, header: &H2cData) -> Vec<u8> {
        let data = &self.data[..(header.length as usize).min(self.data.len())];
        self.queue.format.h2c_data(header, data)
    }

    /// Sends an H2CData and waits for its termination; the controller goes on.
    fn refused(mut self, header: &H2cData, answers: &[Answer]) -> Result<(), Failure> {
        let pdu = self.pdu(header);
        self.queue.send(&pdu)?;
        self.queue.expect("H2CData", answers)?;
        self.controller.admin.still_works(0, 0)
    }
}

const WRONG_TTAG: Answer = Answer::Terminated(InvalidPduHeaderField, at::TRANSFER_TAG as u32);
const WRONG_CCCID: Answer = Answer::Terminated(InvalidPduHeaderField, at::COMMAND_ID as u32);
const OUT_OF_SEQUENCE: Answer = Answer::TerminatedFor(PduSequenceError);
const UNASKED: [Answer; 2] = [WRONG_TTAG, OUT_OF_SEQUENCE];

fn unasked() -> H2cData {
    H2cData {
        cid: 0,
        transfer_tag: 0,
        offset: 0,
        length: 512,
        last: true,
    }
}

fn data_on_an_idle_io_queue(context: &mut Context) -> Result<(), Failure> {
    let (mut controller, mut queue) = context.io()?;
    let pdu = queue.format.h2c_data(&unasked(), &[1; 512]);
    queue.send(&pdu)?;
    queue.expect("H2CData", &UNASKED)?;
    controller.admin.still_works(0, 0)
}

fn data_on_an_admin_queue(context: &mut Context) -> Result<(), Failure> {
    let (mut controller, mut queue) = context.io()?;
    let pdu = queue.format.h2c_data(&unasked(), &[1; 512]);
    controller.admin.send(&pdu)?;
    controller.admin.expect("H2CData", &UNASKED)?;
    queue.expect_end("the I/O queue of a controller that ended")
}

fn data_before_connect(context: &mut Context) -> Result<(), Failure> {
    let mut peer = context.initialized()?;
    let pdu = peer.format.h2c_data(&unasked(), &[1; 512]);
    peer.send(&pdu)?;
    peer.expect("H2CData", &UNASKED).map(drop)
}

fn data_for_a_command_not_started(context: &mut Context) -> Result<(), Failure> {
    let (mut controller, mut queue) = context.io()?;
    let block = context.facts.block_bytes;
    let (sqe, mut bytes) = write_capsule(context, &mut queue, 1, 1);
    let header = H2cData {
        cid: sqe.cid,
        length: block,
        ..unasked()
    };
    bytes.extend(queue.format.h2c_data(&header, &pattern(1, block)));
    queue.send(&bytes)?;
    // The R2T may have left before the data was looked at.
    let mut got = queue.receive();
    if matches!(&got, Got::R2t(_)) {
        got = queue.receive();
    }
    queue.judge("H2CData before its R2T", &UNASKED, got)?;
    controller.admin.still_works(0, 0)
}

fn data_for_a_read(context: &mut Context) -> Result<(), Failure> {
    let (mut controller, mut queue) = context.io()?;
    let (nsid, block) = (context.target.nsid, context.facts.block_bytes);
    let read = NvmCommand::Read(Blocks::new(0, 1)).sqe(0, nsid, SglDescriptor::NONE);
    let (sqe, mut bytes) = queue.prepare(read, &[], block);
    let header = H2cData {
        cid: sqe.cid,
        length: block,
        ..unasked()
    };
    bytes.extend(queue.format.h2c_data(&header, &pattern(1, block)));
    queue.send(&bytes)?;
    let mut got = queue.receive();
    while matches!(&got, Got::Data(..) | Got::Response(_)) {
        got = queue.receive();
    }
    let answers = [WRONG_TTAG, WRONG_CCCID, OUT_OF_SEQUENCE];
    queue.judge("H2CData for a Read", &answers, got)?;
    controller.admin.still_works(0, 0)
}

fn with_ttag(context: &mut Context, change: impl FnOnce(u16) -> u16) -> Result<(), Failure> {
    let awaiting = Awaiting::new(context, 1)?;
    let header = H2cData {
        transfer_tag: change(awaiting.header.transfer_tag),
        ..awaiting.header
    };
    awaiting.refused(&header, &[WRONG_TTAG])
}

fn ttag_out_of_range(context: &mut Context) -> Result<(), Failure> {
    with_ttag(context, |_| u16::MAX)
}

fn ttag_never_given(context: &mut Context) -> Result<(), Failure> {
    with_ttag(context, |given| given ^ 1)
}

fn ttag_of_a_finished_command(context: &mut Context) -> Result<(), Failure> {
    let mut awaiting = Awaiting::new(context, 1)?;
    let header = awaiting.header;
    let pdu = awaiting.pdu(&header);
    awaiting.queue.send(&pdu)?;
    awaiting
        .queue
        .expect_status("Write", header.cid, Status::SUCCESS)?;
    awaiting.refused(&header, &UNASKED)
}

fn ttag_of_another_command(context: &mut Context) -> Result<(), Failure> {
    let mut awaiting = Awaiting::new(context, 1)?;
    let (other, _) = begin_write(context, &mut awaiting.queue, 2, 1)?;
    let header = H2cData {
        cid: other.cid,
        ..awaiting.header
    };
    awaiting.refused(&header, &[WRONG_CCCID, WRONG_TTAG])
}

fn cccid_of_no_command(context: &mut Context) -> Result<(), Failure> {
    let awaiting = Awaiting::new(context, 1)?;
    let header = H2cData {
        cid: 65534,
        ..awaiting.header
    };
    awaiting.refused(&header, &[WRONG_CCCID])
}

fn cccid_and_ttag_swapped(context: &mut Context) -> Result<(), Failure> {
    let mut awaiting = Awaiting::new(context, 1)?;
    // Equal numbers are no swap: this CID is far from any tag of a queue of 32.
    for _ in 0..1000 {
        awaiting.queue.cid();
    }
    let (sqe, r2t) = begin_write(context, &mut awaiting.queue, 2, 1)?;
    awaiting.header.cid = sqe.cid;
    awaiting.header.transfer_tag = r2t.transfer_tag;
    if sqe.cid == r2t.transfer_tag {
        return Err(Failure::NotOffered("a TTAG that is not the CID".into()));
    }
    let header = H2cData {
        cid: awaiting.header.transfer_tag,
        transfer_tag: awaiting.header.cid,
        ..awaiting.header
    };
    let answers = [WRONG_TTAG, WRONG_CCCID];
    let exact = awaiting.queue.manner.exact;
    // Which of the two is wrong first depends on the numbers.
    awaiting.queue.manner.exact = false;
    let pdu = awaiting.pdu(&header);
    awaiting.queue.send(&pdu)?;
    awaiting.queue.expect("H2CData", &answers)?;
    awaiting.queue.manner.exact = exact;
    awaiting.controller.admin.still_works(0, 0)
}

const OUT_OF_RANGE: [Answer; 1] = [Answer::Terminated(DataTransferOutOfRange, 0)];

fn datao_ahead(context: &mut Context) -> Result<(), Failure> {
    let awaiting = Awaiting::new(context, 2)?;
    let header = H2cData {
        offset: 4,
        length: context.facts.block_bytes,
        last: false,
        ..awaiting.header
    };
    awaiting.refused(&header, &OUT_OF_RANGE)
}

/// The first half of two blocks.
fn first_half(context: &Context, awaiting: &Awaiting) -> H2cData {
    H2cData {
        length: context.facts.block_bytes,
        last: false,
        ..awaiting.header
    }
}

fn datao_repeated(context: &mut Context) -> Result<(), Failure> {
    let mut awaiting = Awaiting::new(context, 2)?;
    let half = first_half(context, &awaiting);
    let pdu = awaiting.pdu(&half);
    awaiting.queue.send(&pdu)?;
    awaiting.refused(&half, &OUT_OF_RANGE)
}

fn datao_backwards(context: &mut Context) -> Result<(), Failure> {
    let awaiting = Awaiting::new(context, 2)?;
    let half = context.facts.block_bytes;
    let header = H2cData {
        offset: half,
        length: half,
        ..awaiting.header
    };
    awaiting.refused(&header, &OUT_OF_RANGE)
}

fn datao_behind_the_end(context: &mut Context) -> Result<(), Failure> {
    let awaiting = Awaiting::new(context, 1)?;
    let header = H2cData {
        offset: context.facts.block_bytes,
        ..awaiting.header
    };
    awaiting.refused(&header, &OUT_OF_RANGE)
}

fn datao_and_datal_past_2_32(context: &mut Context) -> Result<(), Failure> {
    let awaiting = Awaiting::new(context, context.blocks_of(4096))?;
    let header = H2cData {
        offset: u32::MAX - 511,
        ..awaiting.header
    };
    awaiting.refused(&header, &OUT_OF_RANGE)
}

fn datal_behind_the_end(context: &mut Context) -> Result<(), Failure> {
    let mut awaiting = Awaiting::new(context, 1)?;
    let length = context.facts.block_bytes + 4;
    awaiting.data = pattern(1, length);
    let header = H2cData {
        length,
        ..awaiting.header
    };
    awaiting.refused(&header, &OUT_OF_RANGE)
}

/// A whole H2CData whose DATAL was changed; PLEN stays.
fn with_datal(
    context: &mut Context,
    change: impl FnOnce(u32) -> u32,
    answers: &[Answer],
) -> Result<(), Failure> {
    let mut awaiting = Awaiting::new(context, 1)?;
    let header = awaiting.header;
    let mut pdu = awaiting.pdu(&header);
    put_u32(&mut pdu, at::DATA_LENGTH, change(header.length));
    awaiting.queue.send(&pdu)?;
    awaiting.queue.expect("H2CData", answers)?;
    awaiting.controller.admin.still_works(0, 0)
}

const WRONG_LENGTHS: [Answer; 3] = [
    Answer::Terminated(InvalidPduHeaderField, at::LENGTH as u32),
    Answer::Terminated(InvalidPduHeaderField, at::DATA_LENGTH as u32),
    Answer::TerminatedFor(LimitExceeded),
];

fn datal_0(context: &mut Context) -> Result<(), Failure> {
    let [plen, datal, _] = WRONG_LENGTHS;
    with_datal(context, |_| 0, &[datal, plen])
}

fn datal_below_plen(context: &mut Context) -> Result<(), Failure> {
    with_datal(context, |length| length - 4, &WRONG_LENGTHS[..2])
}

fn datal_above_plen(context: &mut Context) -> Result<(), Failure> {
    with_datal(context, |length| length + 4, &WRONG_LENGTHS[..2])
}

fn datal_max(context: &mut Context) -> Result<(), Failure> {
    with_datal(context, |_| u32::MAX, &WRONG_LENGTHS)
}

fn datal_above_maxh2cdata(context: &mut Context) -> Result<(), Failure> {
    let limit = context.facts.maximum_h2c_data;
    let most = context.facts.transfer_bytes_max.unwrap_or(u64::MAX);
    // MAXH2CDATA may be as much as one command transfers.
    let bytes = u64::from(limit.saturating_mul(2)).min(most);
    let blocks = context.blocks_of(bytes.min(u64::from(u32::MAX)) as u32);
    if limit > 4 << 20 || u64::from(blocks) + 1 > context.case_blocks() {
        return Err(Failure::NotOffered("a Write as long as MAXH2CDATA".into()));
    }
    let mut awaiting = Awaiting::new(context, blocks)?;
    let header = H2cData {
        length: limit + 4,
        last: false,
        ..awaiting.header
    };
    awaiting.data = pattern(1, header.length);
    let answers = [
        Answer::Terminated(LimitExceeded, 0),
        Answer::Terminated(DataTransferOutOfRange, 0),
    ];
    awaiting.refused(&header, &answers)
}

const WRONG_LAST: [Answer; 2] = [
    Answer::Terminated(InvalidPduHeaderField, at::FLAGS as u32),
    OUT_OF_SEQUENCE,
];

fn last_missing(context: &mut Context) -> Result<(), Failure> {
    let awaiting = Awaiting::new(context, 1)?;
    let header = H2cData {
        last: false,
        ..awaiting.header
    };
    awaiting.refused(&header, &WRONG_LAST)
}

fn last_early(context: &mut Context) -> Result<(), Failure> {
    let awaiting = Awaiting::new(context, 2)?;
    let header = H2cData {
        last: true,
        ..first_half(context, &awaiting)
    };
    awaiting.refused(&header, &WRONG_LAST)
}

fn data_after_the_last(context: &mut Context) -> Result<(), Failure> {
    let mut awaiting = Awaiting::new(context, 1)?;
    let header = awaiting.header;
    let pdu = awaiting.pdu(&header);
    awaiting.queue.send(&[pdu.clone(), pdu].concat())?;
    let queue = &mut awaiting.queue;
    let mut got = queue.receive();
    if matches!(&got, Got::Response(cqe) if cqe.cid == header.cid) {
        got = queue.receive();
    }
    queue.judge("one H2CData too many", &UNASKED, got)?;
    awaiting.controller.admin.still_works(0, 0)
}

fn data_in_blocks(context: &mut Context) -> Result<(), Failure> {
    const BLOCKS: u32 = 16;
    let mut awaiting = Awaiting::new(context, BLOCKS)?;
    let block = context.facts.block_bytes;
    for index in 0..BLOCKS {
        let offset = index * block;
        let header = H2cData {
            offset,
            length: block,
            last: index + 1 == BLOCKS,
            ..awaiting.header
        };
        let data = &awaiting.data[offset as usize..][..block as usize];
        let pdu = awaiting.queue.format.h2c_data(&header, data);
        awaiting.queue.send(&pdu)?;
    }
    let cid = awaiting.header.cid;
    awaiting
        .queue
        .expect_status("Write", cid, Status::SUCCESS)?;
    let nsid = context.target.nsid;
    let back = awaiting.queue.read(nsid, 1, BLOCKS, BLOCKS * block)?;
    check(
        back == awaiting.data,
        "Read",
        "what was written",
        "other data",
    )
}

/// Asks for the Abort of a command of queue 1; whether it was aborted. Weir must abort one whose data it awaits.
fn abort(context: &Context, controller: &mut Controller, cid: u16) -> Result<bool, Failure> {
    let abort = AdminCommand::Abort(Abort { sqid: 1, cid });
    let (cqe, _) = controller.admin.admin(abort, &[], 0)?;
    check(cqe.status.is_success(), "Abort", "success", cqe.status)?;
    let aborted = cqe.dw0() & 1 == 0;
    check(
        aborted || !context.manner.exact,
        "Abort",
        "aborted",
        "not aborted",
    )?;
    Ok(aborted)
}

fn goes_on(context: &Context, queue: &mut Queue) -> Result<(), Failure> {
    queue.still_works(context.target.nsid, context.facts.block_bytes)
}

fn abort_while_data_is_awaited(context: &mut Context) -> Result<(), Failure> {
    let mut awaiting = Awaiting::new(context, 1)?;
    let header = awaiting.header;
    let aborted = abort(context, &mut awaiting.controller, header.cid)?;
    let pdu = awaiting.pdu(&header);
    if aborted {
        awaiting
            .queue
            .expect_status("Write", header.cid, Status::COMMAND_ABORT_REQUESTED)?;
        awaiting.queue.send(&pdu)?;
    } else {
        awaiting.queue.send(&pdu)?;
        awaiting
            .queue
            .expect("Write", &[Answer::Answered(header.cid)])?;
    }
    goes_on(context, &mut awaiting.queue)
}

fn abort_between_data(context: &mut Context) -> Result<(), Failure> {
    let mut awaiting = Awaiting::new(context, 2)?;
    let half = first_half(context, &awaiting);
    let pdu = awaiting.pdu(&half);
    awaiting.queue.send(&pdu)?;
    let aborted = abort(context, &mut awaiting.controller, half.cid)?;
    if aborted {
        awaiting
            .queue
            .expect_status("Write", half.cid, Status::COMMAND_ABORT_REQUESTED)?;
    }
    let rest = H2cData {
        offset: half.length,
        last: true,
        ..half
    };
    let pdu = awaiting.pdu(&rest);
    awaiting.queue.send(&pdu)?;
    if !aborted {
        awaiting
            .queue
            .expect("Write", &[Answer::Answered(half.cid)])?;
    }
    goes_on(context, &mut awaiting.queue)
}

fn abort_inside_data(context: &mut Context) -> Result<(), Failure> {
    let (mut controller, mut queue) = context.io()?;
    let (sqe, pdus) = large_write(context, &mut queue)?;
    let bytes = pdus.concat();
    let (first, rest) = bytes.split_at(bytes.len() / 3);
    queue.send(first)?;
    std::thread::sleep(QUIET);
    let aborted = abort(context, &mut controller, sqe.cid)?;
    if aborted {
        queue.expect_status("Write", sqe.cid, Status::COMMAND_ABORT_REQUESTED)?;
    }
    queue.send(rest)?;
    if !aborted {
        queue.expect("Write", &[Answer::Answered(sqe.cid)])?;
    }
    goes_on(context, &mut queue)
}

fn abort_and_no_data(context: &mut Context) -> Result<(), Failure> {
    let mut awaiting = Awaiting::new(context, 1)?;
    let cid = awaiting.header.cid;
    if !abort(context, &mut awaiting.controller, cid)? {
        return Err(Failure::NotOffered("Abort of a Write".into()));
    }
    awaiting
        .queue
        .expect_status("Write", cid, Status::COMMAND_ABORT_REQUESTED)?;
    goes_on(context, &mut awaiting.queue)?;
    awaiting.queue.expect_silence("an aborted Write", QUIET)
}

fn aborts_in_a_row(context: &mut Context) -> Result<(), Failure> {
    let (mut controller, mut queue) = context.io()?;
    let block = context.facts.block_bytes;
    for round in 0..64 {
        let (sqe, r2t) = begin_write(context, &mut queue, round % 8, 1)?;
        let aborted = abort(context, &mut controller, sqe.cid)?;
        if aborted {
            queue.expect_status("Write", sqe.cid, Status::COMMAND_ABORT_REQUESTED)?;
        }
        queue.send_data(&r2t, &pattern(round, block))?;
        if !aborted {
            queue.expect("Write", &[Answer::Answered(sqe.cid)])?;
        }
    }
    goes_on(context, &mut queue)
}

/// Writes one after the other on a queue of 32 that are aborted while their data is awaited, which never comes; each answer is looked at
/// with the number of its Write.
fn abort_and_send_nothing(
    context: &mut Context,
    look: impl Fn(u16, &Cqe) -> Result<(), Failure>,
) -> Result<(Controller, Queue), Failure> {
    let (mut controller, mut queue) = context.io()?;
    for round in 0..64 {
        let (sqe, capsule) = write_capsule(context, &mut queue, round % 8, 1);
        queue.send(&capsule)?;
        let mut got = queue.receive();
        if matches!(&got, Got::R2t(r2t) if r2t.cid == sqe.cid) {
            if !abort(context, &mut controller, sqe.cid)? {
                return Err(Failure::NotOffered("Abort of a Write".into()));
            }
            got = queue.receive();
        }
        // Once every slot waits for data that never comes, a Write may be refused in place of the R2T.
        let statuses = [Status::COMMAND_ABORT_REQUESTED, Status::COMMAND_INTERRUPTED];
        match &got {
            Got::Response(cqe)
                if cqe.cid == sqe.cid && statuses.iter().any(|status| status.is(cqe.status)) =>
            {
                look(round as u16, cqe)?;
            }
            got => {
                let expected = "Command Abort Requested, or Command Interrupted";
                return Err(Failure::differs("Write", expected, got));
            }
        }
    }
    Ok((controller, queue))
}

fn aborts_whose_data_never_comes(context: &mut Context) -> Result<(), Failure> {
    let (mut controller, mut queue) = abort_and_send_nothing(context, |_, _| Ok(()))?;
    let (nsid, block) = (context.target.nsid, context.facts.block_bytes);
    let read = NvmCommand::Read(Blocks::new(0, 1));
    let (cqe, _) = queue.nvm(read, nsid, &[], block)?;
    let later = cqe.status.is_success() || cqe.status.is(Status::COMMAND_INTERRUPTED);
    let expected = "success, or Command Interrupted";
    check(later, "Read", expected, cqe.status)?;
    controller.admin.still_works(0, 0)
}

fn heads_while_data_never_comes(context: &mut Context) -> Result<(), Failure> {
    let entries = context.options().entries;
    let exact = context.manner.exact;
    abort_and_send_nothing(context, |round, cqe| {
        // The Connect was the first, and this is the only command in the queue.
        let head = (round + 2) % entries;
        let expected = format!("SQHD {head}");
        check(cqe.sqhd == head, "Write", expected, cqe.sqhd)?;
        // Weir has an entry in the Error Information log for every refusal.
        let more = cqe.status.more() || !exact;
        check(more, "Write", "More in its status", cqe.status)
    })
    .map(drop)
}

fn data_awaited_for_long(context: &mut Context) -> Result<(), Failure> {
    let mut awaiting = Awaiting::new(context, 1)?;
    for _ in 0..4 {
        goes_on(context, &mut awaiting.queue)?;
        std::thread::sleep(QUIET);
    }
    let header = awaiting.header;
    let pdu = awaiting.pdu(&header);
    awaiting.queue.send(&pdu)?;
    awaiting
        .queue
        .expect_status("Write", header.cid, Status::SUCCESS)
        .map(drop)
}

fn data_as_soon_as_asked_for(context: &mut Context) -> Result<(), Failure> {
    let (_controller, mut queue) = context.io()?;
    let (nsid, block) = (context.target.nsid, context.facts.block_bytes);
    for round in 0..200_u64 {
        // The queue answers R2Ts by itself, at once.
        queue.write(nsid, round % 16, 1, &pattern(round, block))?;
    }
    let back = queue.read(nsid, 199 % 16, 1, block)?;
    check(
        back == pattern(199, block),
        "Read",
        "what was written last",
        "other data",
    )
}

fn disconnect_while_data_is_awaited(context: &mut Context) -> Result<(), Failure> {
    let mut awaiting = Awaiting::new(context, 1)?;
    let queue = &mut awaiting.queue;
    let disconnect = FabricsCommand::Disconnect { record_format: 0 };
    let (sqe, capsule) = queue.prepare(disconnect.sqe(0, SglDescriptor::NONE), &[], 0);
    queue.send(&capsule)?;
    queue.expect_status("Disconnect", sqe.cid, Status::SUCCESS)?;
    queue.expect_end("Disconnect")?;
    awaiting.controller.admin.still_works(0, 0)
}

fn reset_while_data_is_awaited(context: &mut Context) -> Result<(), Failure> {
    let mut awaiting = Awaiting::new(context, 1)?;
    let admin = &mut awaiting.controller.admin;
    let disabled: Configuration = enabled().with_enabled(false);
    let cqe = admin.configure(disabled)?;
    check(cqe.status.is_success(), "CC.EN", "success", cqe.status)?;
    awaiting
        .queue
        .expect_end("the I/O queue of a controller that was reset")?;
    awaiting
        .controller
        .admin
        .await_status("RDY clear", |status: ControllerStatus| !status.ready())
        .map(drop)
}
