//! Group 8: commands whose fields make no sense.

use crate::case::{Failure, check};
use crate::iscsi::Context;
use crate::iscsi::context::service_in;
use crate::iscsi::pdu::{opcode, put_u32};
use crate::iscsi::peer::{CHECK_CONDITION, Got};
use crate::iscsi::session::{Ended, READ_16, Session, WRITE_16, transfer};

cases! {
    8 blocks_past_the_end [] "SBC-3 5.11": "a read of the block behind the last one" => "LOGICAL BLOCK ADDRESS OUT OF RANGE";
    8 blocks_across_the_end [] "SBC-3 5.11": "a read of two blocks from the last one on" => "LOGICAL BLOCK ADDRESS OUT OF RANGE";
    8 blocks_that_wrap [] "SBC-3 5.11": "a read of two blocks from LBA 2^64 - 1 on" => "LOGICAL BLOCK ADDRESS OUT OF RANGE";
    8 blocks_of_2_to_32 [] "SBC-3 5.11": "a read of 2^32 - 1 blocks" => "CHECK CONDITION";
    8 blocks_of_none [] "SBC-3 5.11": "a read of no blocks" => "GOOD";
    8 blocks_of_none_past_the_end [] "SBC-3 5.11": "a read of no blocks behind the end" => "LOGICAL BLOCK ADDRESS OUT OF RANGE, or GOOD";
    8 write_blocks_past_the_end [WRITES] "SBC-3 5.42": "a write of the block behind the last one" => "LOGICAL BLOCK ADDRESS OUT OF RANGE";
    8 read_with_protection_information [] "SBC-3 5.11": "a read that asks for protection information" => "INVALID FIELD IN CDB";
    8 opcodes_of_no_command [] "SPC-4 4.5": "commands of 30 opcodes that no disk has" => "INVALID COMMAND OPERATION CODE";
    8 service_action_of_none [] "SPC-4 4.5": "SERVICE ACTION IN (16) with action 1fh" => "INVALID FIELD IN CDB, or INVALID COMMAND OPERATION CODE";
    8 unit_that_is_not_there [] "SPC-4 4.5, 6.4.1": "TEST UNIT READY and INQUIRY of a logical unit that is not there" => "LOGICAL UNIT NOT SUPPORTED; peripheral qualifier 3";
    8 unit_numbers_of_all_kinds [] "SAM-5 4.7": "TEST UNIT READY of logical units whose numbers make no sense" => "LOGICAL UNIT NOT SUPPORTED";
    8 report_luns_is_cut [] "SPC-4 6.33": "REPORT LUNS with allocation lengths of 0 to 17" => "GOOD or INVALID FIELD IN CDB, and no more bytes";
    8 vital_page_that_is_not_there [] "SPC-4 6.4.1": "INQUIRY of page FFh" => "INVALID FIELD IN CDB";
    8 page_without_evpd [] "SPC-4 6.4.1": "INQUIRY with a page code and without EVPD" => "INVALID FIELD IN CDB";
    8 mode_page_that_is_not_there [] "SPC-4 6.14": "MODE SENSE of page 2ah" => "INVALID FIELD IN CDB";
    8 mode_select_of_garbage [] "SPC-4 6.8": "MODE SELECT with parameters that are none" => "CHECK CONDITION, and the same pages after it";
    8 unmap_lengths_that_lie [WRITES] "SBC-3 5.31": "UNMAP whose descriptor length is longer than its data" => "CHECK CONDITION, or GOOD without an effect behind the data";
    8 unmap_past_the_end [WRITES] "SBC-3 5.31": "UNMAP of blocks behind the end" => "LOGICAL BLOCK ADDRESS OUT OF RANGE";
    8 unmap_of_nothing [WRITES] "SBC-3 5.31": "UNMAP without descriptors" => "GOOD";
    8 write_same_past_the_end [WRITES] "SBC-3 5.48": "WRITE SAME (16) across the end" => "LOGICAL BLOCK ADDRESS OUT OF RANGE, or INVALID FIELD IN CDB";
    8 compare_and_write_of_256 [WRITES] "SBC-3 5.3": "COMPARE AND WRITE of 255 blocks" => "CHECK CONDITION, or GOOD";
    8 compare_and_write_of_other_data [WRITES] "SBC-3 5.3": "COMPARE AND WRITE of data that is not there" => "MISCOMPARE, with the offset; nothing is written";
    8 compare_and_write_cut_short [WRITES] "SBC-3 5.3, RFC 7143 11.4.5": "COMPARE AND WRITE with half of its data" => "CHECK CONDITION; nothing is written";
    8 copy_from_another_unit [WRITES] "SPC-4 6.3": "EXTENDED COPY from a unit that is named by an identifier nobody has" => "CHECK CONDITION, COPY ABORTED";
    8 copy_parameters_that_lie [WRITES] "SPC-4 6.3": "EXTENDED COPY whose lists are longer than its data" => "CHECK CONDITION";
    8 reservation_parameters_of_no_bytes [WRITES] "SPC-4 6.16": "PERSISTENT RESERVE OUT with a list of 4 bytes" => "CHECK CONDITION, PARAMETER LIST LENGTH ERROR";
    8 reservation_type_of_none [WRITES] "SPC-4 6.16": "PERSISTENT RESERVE OUT, RESERVE with type fh" => "CHECK CONDITION, or RESERVATION CONFLICT";
    8 made_up_commands [] "SPC-4 4.5": "500 CDBs that are made up, none of which writes" => "an end of each";
}

const ILLEGAL_REQUEST: u8 = 5;
const OUT_OF_RANGE: u16 = 0x2100;
const INVALID_OPCODE: u16 = 0x2000;
const INVALID_FIELD: u16 = 0x2400;
const NO_UNIT: u16 = 0x2500;

/// A command ended with CHECK CONDITION and one of these additional sense codes, of which the first is Weir's own. None: any.
fn refused(
    session: &Session,
    what: &str,
    ended: &Ended,
    key: u8,
    codes: &[u16],
) -> Result<(), Failure> {
    let allowed = match session.peer.manner.exact {
        true => &codes[..codes.len().min(1)],
        false => codes,
    };
    let names: Vec<_> = allowed.iter().map(|code| format!("{code:04x}h")).collect();
    let expected = match names.len() {
        0 => "CHECK CONDITION".to_owned(),
        _ => format!("sense {key:x}h {}", names.join(" or ")),
    };
    let got = Got::Pdu(ended.reply.clone());
    let is_check = ended.reply.opcode() == opcode::RESPONSE
        && ended.reply.code() == 0
        && ended.reply.status() == CHECK_CONDITION;
    let fits = match ended.reply.sense() {
        Some((found, code)) => allowed.is_empty() || found == key && (allowed.contains(&code)),
        None => false,
    };
    check(is_check && fits, what, expected, got)
}

/// Runs a command that is refused for one of these reasons; the session goes on.
fn refuses(
    context: &mut Context,
    cdb: &[u8],
    reads: u32,
    writes: &[u8],
    codes: &[u16],
) -> Result<(), Failure> {
    let mut session = context.session()?;
    let ended = session.run(cdb, reads, writes)?;
    refused(&session, "such a command", &ended, ILLEGAL_REQUEST, codes)?;
    session.still_works()
}

fn blocks_past_the_end(context: &mut Context) -> Result<(), Failure> {
    let (blocks, block) = (context.facts.blocks, context.facts.block_bytes);
    refuses(
        context,
        &transfer(READ_16, blocks, 1),
        block,
        &[],
        &[OUT_OF_RANGE],
    )
}

fn blocks_across_the_end(context: &mut Context) -> Result<(), Failure> {
    let (blocks, block) = (context.facts.blocks, context.facts.block_bytes);
    let cdb = transfer(READ_16, blocks - 1, 2);
    refuses(context, &cdb, 2 * block, &[], &[OUT_OF_RANGE])
}

fn blocks_that_wrap(context: &mut Context) -> Result<(), Failure> {
    let block = context.facts.block_bytes;
    let cdb = transfer(READ_16, u64::MAX, 2);
    refuses(context, &cdb, 2 * block, &[], &[OUT_OF_RANGE])
}

fn blocks_of_2_to_32(context: &mut Context) -> Result<(), Failure> {
    refuses(context, &transfer(READ_16, 0, u32::MAX), 1 << 20, &[], &[])
}

fn blocks_of_none(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let ended = session.run(&transfer(READ_16, 0, 0), 0, &[])?;
    session.succeeded("a read of no blocks", ended)?;
    session.still_works()
}

fn blocks_of_none_past_the_end(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let past = context.facts.blocks + 1;
    let ended = session.run(&transfer(READ_16, past, 0), 0, &[])?;
    if ended.reply.status() != 0 || session.peer.manner.exact {
        refused(
            &session,
            "no blocks",
            &ended,
            ILLEGAL_REQUEST,
            &[OUT_OF_RANGE],
        )?;
    }
    session.still_works()
}

fn write_blocks_past_the_end(context: &mut Context) -> Result<(), Failure> {
    let (blocks, block) = (context.facts.blocks, context.facts.block_bytes);
    let data = vec![0xee; block as usize];
    refuses(
        context,
        &transfer(WRITE_16, blocks, 1),
        0,
        &data,
        &[OUT_OF_RANGE],
    )
}

fn read_with_protection_information(context: &mut Context) -> Result<(), Failure> {
    let block = context.facts.block_bytes;
    let mut cdb = transfer(READ_16, 0, 1);
    cdb[1] = 1 << 5;
    refuses(context, &cdb, block, &[], &[INVALID_FIELD])
}

fn opcodes_of_no_command(context: &mut Context) -> Result<(), Failure> {
    // Of tapes, scanners, changers and old disks, reserved ones, and those of vendors.
    const OPCODES: [u8; 30] = [
        0x01, 0x02, 0x05, 0x06, 0x07, 0x09, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x13, 0x14,
        0x19, 0x1f, 0x20, 0x2c, 0x44, 0x51, 0x53, 0x5d, 0x6f, 0xb8, 0xc0, 0xcf, 0xe0, 0xf1, 0xff,
    ];
    let mut session = context.session()?;
    for operation in OPCODES {
        let mut cdb = [0; 16];
        cdb[0] = operation;
        let ended = session.run(&cdb, 0, &[])?;
        let what = format!("operation code {operation:02x}h");
        if ended.reply.status() != 0 || session.peer.manner.exact {
            refused(
                &session,
                &what,
                &ended,
                ILLEGAL_REQUEST,
                &[INVALID_OPCODE, INVALID_FIELD],
            )?;
        }
    }
    session.still_works()
}

fn service_action_of_none(context: &mut Context) -> Result<(), Failure> {
    let cdb = service_in(0x1f, 32);
    refuses(context, &cdb, 32, &[], &[INVALID_FIELD, INVALID_OPCODE])
}

fn unit_that_is_not_there(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let lun = session.login.lun;
    session.login.lun = if lun == 250 { 249 } else { 250 };
    let ended = session.run(&[0; 6], 0, &[])?;
    refused(
        &session,
        "TEST UNIT READY",
        &ended,
        ILLEGAL_REQUEST,
        &[NO_UNIT],
    )?;
    let ended = session.run(&[0x12, 0, 0, 0, 36, 0], 36, &[])?;
    let ended = session.succeeded("INQUIRY", ended)?;
    let first = ended.data.first().copied().unwrap_or_default();
    let holds = first >> 5 == 3 || !session.peer.manner.exact && first >> 5 != 0;
    check(holds, "its peripheral qualifier", "3", first >> 5)?;
    session.login.lun = lun;
    session.still_works()
}

fn unit_numbers_of_all_kinds(context: &mut Context) -> Result<(), Failure> {
    // Buses, levels, extended addressing, well-known units, and numbers with more behind them.
    const NUMBERS: [[u8; 8]; 6] = [
        [0x01, 0, 0, 0, 0, 0, 0, 0],
        [0x3f, 0xff, 0, 0, 0, 0, 0, 0],
        [0x80, 0, 0, 0, 0, 0, 0, 0],
        [0xff; 8],
        [0xd2, 0xff, 0xff, 0xff, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 1],
    ];
    let mut session = context.session()?;
    for number in NUMBERS {
        let command = session.command(&[0; 6], 0, 0).on(number);
        session.peer.send(&command)?;
        let ended = session.ended(command.itt(), &[])?;
        let what = format!("logical unit {number:02x?}");
        if ended.reply.status() != 0 || session.peer.manner.exact {
            refused(&session, &what, &ended, ILLEGAL_REQUEST, &[NO_UNIT])?;
        }
    }
    session.still_works()
}

fn report_luns_is_cut(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    for length in 0..=17u32 {
        let mut cdb = [0; 12];
        cdb[0] = 0xa0;
        put_u32(&mut cdb, 6, length);
        let ended = session.run(&cdb, 64, &[])?;
        if ended.reply.status() != 0 {
            refused(
                &session,
                "REPORT LUNS",
                &ended,
                ILLEGAL_REQUEST,
                &[INVALID_FIELD],
            )?;
        }
        check(
            ended.data.len() <= length as usize,
            "REPORT LUNS",
            format!("at most {length} bytes"),
            ended.data.len(),
        )?;
    }
    session.still_works()
}

fn vital_page_that_is_not_there(context: &mut Context) -> Result<(), Failure> {
    refuses(
        context,
        &[0x12, 1, 0xff, 0, 255, 0],
        255,
        &[],
        &[INVALID_FIELD],
    )
}

fn page_without_evpd(context: &mut Context) -> Result<(), Failure> {
    refuses(
        context,
        &[0x12, 0, 0x83, 0, 255, 0],
        255,
        &[],
        &[INVALID_FIELD],
    )
}

fn mode_page_that_is_not_there(context: &mut Context) -> Result<(), Failure> {
    refuses(
        context,
        &[0x1a, 0, 0x2a, 0, 255, 0],
        255,
        &[],
        &[INVALID_FIELD],
    )
}

fn mode_select_of_garbage(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    let all = [0x1a, 0, 0x3f, 0, 255, 0];
    let before = session.run(&all, 255, &[])?;
    let before = session.succeeded("MODE SENSE", before)?;
    for (length, byte) in [(1usize, 0u8), (4, 0xff), (24, 0xff), (255, 0x5a)] {
        let cdb = [0x15, 0x10, 0, 0, length as u8, 0];
        let ended = session.run(&cdb, 0, &vec![byte; length])?;
        refused(&session, "MODE SELECT", &ended, ILLEGAL_REQUEST, &[])?;
    }
    let after = session.run(&all, 255, &[])?;
    let after = session.succeeded("MODE SENSE", after)?;
    check(
        before.data == after.data,
        "the mode pages",
        "as they were",
        "others",
    )
}

/// UNMAP of a list of this text; its header says lengths of its own.
fn unmap(
    session: &mut Session,
    lengths: [u16; 2],
    descriptors: &[(u64, u32)],
) -> Result<Ended, Failure> {
    let mut list = Vec::new();
    list.extend(lengths[0].to_be_bytes());
    list.extend(lengths[1].to_be_bytes());
    list.extend([0; 4]);
    for (lba, blocks) in descriptors {
        list.extend(lba.to_be_bytes());
        list.extend(blocks.to_be_bytes());
        list.extend([0; 4]);
    }
    let mut cdb = [0; 10];
    cdb[0] = 0x42;
    cdb[7..9].copy_from_slice(&(list.len() as u16).to_be_bytes());
    session.run(&cdb, 0, &list)
}

/// UNMAP that is offered.
fn unmapping(context: &Context) -> Result<Session, Failure> {
    let mut session = context.session()?;
    let ended = unmap(&mut session, [6, 0], &[])?;
    let is_known = ended.reply.sense() != Some((ILLEGAL_REQUEST, INVALID_OPCODE));
    match is_known {
        true => Ok(session),
        false => Err(Failure::NotOffered("UNMAP".into())),
    }
}

fn unmap_lengths_that_lie(context: &mut Context) -> Result<(), Failure> {
    let mut session = unmapping(context)?;
    let block = context.facts.block_bytes;
    let before = session.read(0, 8, block)?;
    for lengths in [[0xffff, 0xfff0], [22, 160], [6, 16], [0, 16], [22, 15]] {
        let ended = unmap(&mut session, lengths, &[])?;
        if ended.reply.status() != 0 {
            refused(&session, "UNMAP", &ended, ILLEGAL_REQUEST, &[])?;
        }
    }
    let after = session.read(0, 8, block)?;
    check(
        before == after,
        "the blocks",
        "what they held",
        "other data",
    )
}

fn unmap_past_the_end(context: &mut Context) -> Result<(), Failure> {
    let mut session = unmapping(context)?;
    let blocks = context.facts.blocks;
    for (lba, count) in [(blocks, 1), (blocks - 1, 2), (u64::MAX, 2), (0, u32::MAX)] {
        if lba == 0 && u64::from(count) <= blocks {
            continue;
        }
        let ended = unmap(&mut session, [22, 16], &[(lba, count)])?;
        let codes = [OUT_OF_RANGE, 0x2600];
        refused(&session, "UNMAP", &ended, ILLEGAL_REQUEST, &codes)?;
    }
    session.still_works()
}

fn unmap_of_nothing(context: &mut Context) -> Result<(), Failure> {
    let mut session = unmapping(context)?;
    let ended = unmap(&mut session, [6, 0], &[])?;
    session.succeeded("UNMAP of nothing", ended)?;
    session.still_works()
}

fn write_same_past_the_end(context: &mut Context) -> Result<(), Failure> {
    let (blocks, block) = (context.facts.blocks, context.facts.block_bytes);
    let data = vec![0; block as usize];
    let cdb = transfer(0x93, blocks - 1, 2);
    refuses(
        context,
        &cdb,
        0,
        &data,
        &[OUT_OF_RANGE, INVALID_FIELD, INVALID_OPCODE],
    )
}

/// COMPARE AND WRITE of so many blocks from LBA 0 on.
fn compare_and_write(blocks: u8) -> [u8; 16] {
    let mut cdb = transfer(0x89, 0, 0);
    cdb[13] = blocks;
    cdb
}

fn compare_and_write_of_256(context: &mut Context) -> Result<(), Failure> {
    let block = context.facts.block_bytes;
    let mut session = context.session()?;
    let before = session.read(0, 255, block)?;
    let data = [&before[..], &before[..]].concat();
    let ended = session.run(&compare_and_write(255), 0, &data)?;
    if ended.reply.status() != 0 {
        refused(&session, "COMPARE AND WRITE", &ended, ILLEGAL_REQUEST, &[])?;
    }
    session.still_works()
}

fn compare_and_write_of_other_data(context: &mut Context) -> Result<(), Failure> {
    const MISCOMPARE: u8 = 0x0e;
    const AT: usize = 100;
    let block = context.facts.block_bytes;
    let mut session = context.session()?;
    let before = session.read(0, 1, block)?;
    let mut expected = before.clone();
    expected[AT] ^= 0xff;
    let data = [&expected[..], &vec![0xee; block as usize]].concat();
    let ended = session.run(&compare_and_write(1), 0, &data)?;
    if ended.reply.sense() == Some((ILLEGAL_REQUEST, INVALID_OPCODE)) {
        return Err(Failure::NotOffered("COMPARE AND WRITE".into()));
    }
    refused(&session, "COMPARE AND WRITE", &ended, MISCOMPARE, &[0x1d00])?;
    if session.peer.manner.exact {
        // VALID and INFORMATION of fixed sense data, behind its length.
        let sense = ended.reply.data.get(2..).unwrap_or_default();
        let offset = sense
            .get(3..7)
            .map(|four| four.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)));
        check(
            offset == Some(AT as u32),
            "the offset of the miscompare",
            AT.to_string(),
            format!("{offset:?}"),
        )?;
    }
    let after = session.read(0, 1, block)?;
    check(before == after, "the block", "what it held", "other data")
}

fn compare_and_write_cut_short(context: &mut Context) -> Result<(), Failure> {
    let block = context.facts.block_bytes;
    let mut session = context.session()?;
    let before = session.read(0, 1, block)?;
    let ended = session.run(&compare_and_write(1), 0, &before)?;
    refused(&session, "COMPARE AND WRITE", &ended, ILLEGAL_REQUEST, &[])?;
    let after = session.read(0, 1, block)?;
    check(before == after, "the block", "what it held", "other data")
}

/// EXTENDED COPY (LID1) with these parameters.
fn extended_copy(session: &mut Session, list: &[u8]) -> Result<Ended, Failure> {
    let mut cdb = [0; 16];
    cdb[0] = 0x83;
    put_u32(&mut cdb, 10, list.len() as u32);
    session.run(&cdb, 0, list)
}

fn copy_from_another_unit(context: &mut Context) -> Result<(), Failure> {
    const COPY_ABORTED: u8 = 0x0a;
    let mut session = context.session()?;
    // One descriptor of a unit by its NAA identifier, and one segment: block 0 to block 1 of it.
    let mut list = vec![0; 16];
    list[3] = 32;
    list[11] = 28;
    let mut unit = vec![0; 32];
    unit[0] = 0xe4;
    // Binary, associated with the unit, NAA, 16 bytes.
    unit[4..8].copy_from_slice(&[1, 3, 0, 16]);
    unit[8..24].fill(0x6e);
    unit[29..32].copy_from_slice(&context.facts.block_bytes.to_be_bytes()[1..]);
    list.extend(unit);
    let mut segment = vec![0; 28];
    segment[0] = 0x02;
    segment[3] = 24;
    segment[11] = 1;
    segment[27] = 1;
    list.extend(segment);
    let ended = extended_copy(&mut session, &list)?;
    if ended.reply.sense() == Some((ILLEGAL_REQUEST, INVALID_OPCODE)) {
        return Err(Failure::NotOffered("EXTENDED COPY".into()));
    }
    match session.peer.manner.exact {
        true => refused(&session, "EXTENDED COPY", &ended, COPY_ABORTED, &[0x0d02])?,
        false => refused(&session, "EXTENDED COPY", &ended, COPY_ABORTED, &[])?,
    }
    session.still_works()
}

fn copy_parameters_that_lie(context: &mut Context) -> Result<(), Failure> {
    let mut session = context.session()?;
    for (at, value) in [(2, 0xff), (3, 31), (8, 0xff), (12, 0xff)] {
        let mut list = vec![0; 48];
        list[at] = value;
        let ended = extended_copy(&mut session, &list)?;
        refused(&session, "EXTENDED COPY", &ended, ILLEGAL_REQUEST, &[])?;
    }
    session.still_works()
}

/// PERSISTENT RESERVE OUT.
fn reserve_out(action: u8, kind: u8, length: u32) -> [u8; 10] {
    let mut cdb = [0; 10];
    (cdb[0], cdb[1], cdb[2]) = (0x5f, action, kind);
    put_u32(&mut cdb, 5, length);
    cdb
}

fn reservation_parameters_of_no_bytes(context: &mut Context) -> Result<(), Failure> {
    let codes = [0x1a00, INVALID_FIELD, INVALID_OPCODE];
    refuses(context, &reserve_out(0, 0, 4), 0, &[0; 4], &codes)
}

fn reservation_type_of_none(context: &mut Context) -> Result<(), Failure> {
    const CONFLICT: u8 = 0x18;
    let mut session = context.session()?;
    let ended = session.run(&reserve_out(1, 0x0f, 24), 0, &[0; 24])?;
    if ended.reply.status() != CONFLICT {
        refused(&session, "RESERVE", &ended, ILLEGAL_REQUEST, &[])?;
    }
    session.still_works()
}

fn made_up_commands(context: &mut Context) -> Result<(), Failure> {
    const COMMANDS: u64 = 500;
    // What reads, or has no data: INQUIRY, MODE SENSE, READ of all kinds, READ CAPACITY, SERVICE ACTION IN, MAINTENANCE IN,
    // PERSISTENT RESERVE IN, RECEIVE COPY RESULTS, REPORT LUNS, REQUEST SENSE, LOG SENSE, and what is none.
    const OPCODES: [u8; 20] = [
        0x00, 0x03, 0x08, 0x12, 0x1a, 0x25, 0x28, 0x34, 0x3c, 0x4d, 0x5a, 0x5e, 0x84, 0x88, 0x9e,
        0xa0, 0xa3, 0xa8, 0xab, 0x7f,
    ];
    let mut session = context.session()?;
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        // xorshift64: the same commands each time.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..COMMANDS {
        let mut cdb = [0; 16];
        cdb[..8].copy_from_slice(&next().to_be_bytes());
        cdb[8..].copy_from_slice(&next().to_be_bytes());
        if next().is_multiple_of(2) {
            // Most fields are 0 in practice.
            cdb[1..]
                .iter_mut()
                .for_each(|byte| *byte &= (next() >> 3) as u8 & 0x0f);
        }
        cdb[0] = OPCODES[(next() % OPCODES.len() as u64) as usize];
        let ended = session.run(&cdb, 4096, &[])?;
        check(
            ended.data.len() <= 4096 && [0, 0x02, 0x18].contains(&ended.reply.status()),
            format!("{cdb:02x?}"),
            "GOOD, CHECK CONDITION or RESERVATION CONFLICT",
            Got::Pdu(ended.reply),
        )?;
    }
    session.still_works()
}
