//! What each command does.

use weir_iscsi::pdu::{Residual, TaskAttribute};
use weir_iscsi_target::{Allowed, IscsiConfig, Lun};
use weir_scsi::capacity::Capacity;
use weir_scsi::cdb::opcode;
use weir_scsi::copy::{CopyList, CopySegment, CopyTarget, OperatingParameters};
use weir_scsi::inquiry::{Inquiry, Peripheral};
use weir_scsi::lun::{Lun as Address, ReportedLuns};
use weir_scsi::opcodes::SUPPORTED;
use weir_scsi::sense::{AdditionalSense, Sense, SenseKey, Status};
use weir_scsi::unmap::{UnmapDescriptor, encode as unmap_list};
use weir_testing::world::{World, everywhere, simulated};

use crate::initiator::{
    BLOCK, Command, INITIATOR, Initiator, hubs, memory, name, pattern, read, serve, serve_on,
    served, write,
};
use crate::reservations::reservations;

/// A command that asks for up to `bytes` of data.
fn ask(cdb: &[u8], bytes: u32) -> Command<'static> {
    Command {
        reads: bytes,
        ..Command::new(cdb)
    }
}

/// A command with a CDB of 16 bytes, a block address and a number of blocks, that brings data.
fn bring<'a>(first: &[u8], lba: u64, blocks: u32, data: &'a [u8]) -> Command<'a> {
    let mut command = Command::new(first);
    command.cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    command.cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    command.data = data;
    command
}

async fn logged_in(world: &World) -> Initiator {
    let (_iscsi, address) = serve(world, IscsiConfig::default(), served(|_| {})).await;
    std::mem::forget(_iscsi);
    Initiator::login(world, address).await
}

fn page(code: u8) -> Command<'static> {
    ask(&[opcode::INQUIRY, 1, code, 0x02, 0x00], 512)
}

#[test]
fn inquiry_says_what_there_is_and_what_is_not() {
    everywhere(|world| async move {
        let mut initiator = logged_in(&world).await;
        let data = initiator
            .run(&ask(&[opcode::INQUIRY, 0, 0, 0, 96], 96))
            .await;
        assert_eq!(data.residual, Residual::None);
        let inquiry = Inquiry::parse(&data.good()).expect("inquiry data");
        assert_eq!(inquiry.peripheral, Peripheral::BLOCK_DEVICE);
        assert!(inquiry.third_party_copy && inquiry.implicit_port_groups);
        assert_eq!(&inquiry.vendor, b"WEIR    ");
        // A LUN that is not there.
        let absent = Command {
            lun: u64::from_be_bytes(Address::Unit(9).encode()),
            ..ask(&[opcode::INQUIRY, 0, 0, 0, 36], 36)
        };
        let data = initiator.run(&absent).await.good();
        let inquiry = Inquiry::parse(&data).expect("inquiry data");
        assert_eq!(inquiry.peripheral, Peripheral::ABSENT);
        // Less than there is, and more than is wanted.
        let cut = initiator
            .run(&ask(&[opcode::INQUIRY, 0, 0, 0, 5], 255))
            .await;
        assert_eq!(cut.residual, Residual::Underflow(250));
        assert_eq!(cut.good().len(), 5);
        let cut = initiator
            .run(&ask(&[opcode::INQUIRY, 0, 0, 0, 36], 8))
            .await;
        assert_eq!(cut.residual, Residual::Overflow(28));
        assert_eq!(cut.good().len(), 8);
    });
}

#[test]
fn every_page_that_is_listed_is_there() {
    simulated(|world| async move {
        let mut initiator = logged_in(&world).await;
        let list = initiator.run(&page(0x00)).await.good();
        assert_eq!(
            list[4..],
            [0x00, 0x80, 0x83, 0x86, 0x87, 0x88, 0xb0, 0xb1, 0xb2]
        );
        for &code in &list[4..] {
            let data = initiator.run(&page(code)).await.good();
            assert_eq!(data[1], code);
            let length = usize::from(u16::from_be_bytes([data[2], data[3]]));
            assert_eq!(data.len(), 4 + length, "page {code:02x}h");
        }
        let sense = initiator.run(&page(0x84)).await.sense();
        assert_eq!(sense.additional, AdditionalSense::INVALID_FIELD_IN_CDB);
    });
}

#[test]
fn logical_units_are_listed_without_a_first_one() {
    simulated(|world| async move {
        let snapshot = served(|target| {
            let lun = |number| Lun::new(number, memory(), [number as u8; 16]);
            let mut hidden = lun(6);
            hidden.visible_to = Allowed::List([name("iqn.2026-01.org.example:other")].into());
            target.luns = vec![lun(300), hidden, lun(5)];
        });
        let (_iscsi, address) = serve(&world, IscsiConfig::default(), snapshot).await;
        let mut initiator = Initiator::login(&world, address).await;
        let list = ask(&[opcode::REPORT_LUNS, 0, 0, 0, 0, 0, 0, 0, 2, 0], 512);
        let data = initiator.run(&list).await.good();
        let luns = ReportedLuns::parse(&data).expect("a list");
        let expected = [5, 300].map(|number| Address::Unit(number).encode());
        assert_eq!(luns.luns, expected);
        let mut read = read(0, 1);
        assert_eq!(
            initiator.run(&read).await.sense().additional,
            AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED
        );
        read.lun = u64::from_be_bytes(Address::Unit(300).encode());
        initiator.run(&read).await.good();
    });
}

#[test]
fn every_length_of_reads_and_writes_means_the_same_blocks() {
    everywhere(|world| async move {
        let mut initiator = logged_in(&world).await;
        let writes: [(&[u8], u64); 4] = [
            (&[opcode::WRITE_6, 0, 0, 3, 2], 3),
            (&[opcode::WRITE_10, 0, 0, 0, 0, 5, 0, 0, 2], 5),
            (&[opcode::WRITE_12, 8, 0, 0, 0, 7, 0, 0, 0, 2], 7),
            (
                &[opcode::WRITE_16, 8, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 2],
                9,
            ),
        ];
        for (seed, (cdb, lba)) in writes.into_iter().enumerate() {
            let data = pattern(2 * BLOCK, seed as u8);
            let command = Command {
                data: &data,
                ..Command::new(cdb)
            };
            let ended = initiator.run(&command).await;
            assert_eq!(ended.residual, Residual::None);
            ended.good();
            let mut cdb = cdb.to_vec();
            cdb[0] = match cdb[0] {
                opcode::WRITE_6 => opcode::READ_6,
                opcode::WRITE_10 => opcode::READ_10,
                opcode::WRITE_12 => opcode::READ_12,
                _ => opcode::READ_16,
            };
            let whole = initiator.run(&ask(&cdb, 2 * BLOCK as u32)).await.good();
            assert!(whole == data);
            assert!(initiator.run(&read(lba, 2)).await.good() == data);
        }
    });
}

#[test]
fn blocks_beyond_the_end_are_refused() {
    simulated(|world| async move {
        let mut initiator = logged_in(&world).await;
        let data = initiator
            .run(&ask(&[opcode::READ_CAPACITY_10], 8))
            .await
            .good();
        let short = Capacity::parse_10(&data).expect("a capacity");
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[13]) = (opcode::SERVICE_ACTION_IN_16, 0x10, 32);
        let data = initiator.run(&ask(&cdb, 32)).await.good();
        let long = Capacity::parse_16(&data).expect("a capacity");
        assert_eq!((short.last_lba, short.block_length), (1023, 4096));
        assert_eq!((long.last_lba, long.block_length), (1023, 4096));
        assert!(long.provisioning_managed && long.unmapped_reads_zeroes);
        let out = AdditionalSense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE;
        for (lba, blocks) in [(1024, 1), (1023, 2), (u64::MAX, 1)] {
            let sense = initiator.run(&read(lba, blocks)).await.sense();
            assert_eq!(sense.additional, out, "{lba} {blocks}");
        }
        let data = pattern(BLOCK, 1);
        assert_eq!(
            initiator.run(&write(1024, &data)).await.sense().additional,
            out
        );
        // No blocks are none too many, and more than a transfer may have are too many.
        initiator.run(&read(1024, 0)).await.good();
        let long = Command {
            reads: 4096,
            ..read(0, 1025)
        };
        let sense = initiator.run(&long).await.sense();
        assert_eq!(sense.additional, AdditionalSense::INVALID_FIELD_IN_CDB);
    });
}

#[test]
fn residuals_are_exact() {
    everywhere(|world| async move {
        let mut initiator = logged_in(&world).await;
        let data = pattern(2 * BLOCK, 7);
        initiator.run(&write(0, &data)).await.good();
        // A read of more than the initiator expects, and of less.
        let fewer = Command {
            reads: BLOCK as u32 + 100,
            ..read(0, 2)
        };
        let ended = initiator.run(&fewer).await;
        assert_eq!(ended.residual, Residual::Overflow(BLOCK as u32 - 100));
        assert!(ended.good() == data[..BLOCK + 100]);
        let more = Command {
            reads: 3 * BLOCK as u32,
            ..read(0, 2)
        };
        let ended = initiator.run(&more).await;
        assert_eq!(ended.residual, Residual::Underflow(BLOCK as u32));
        assert!(ended.good() == data);
        // A write of fewer blocks than come, and of more: nothing of that is written.
        let other = pattern(2 * BLOCK, 8);
        let more = bring(&[opcode::WRITE_16], 0, 1, &other);
        let ended = initiator.run(&more).await;
        assert_eq!(ended.residual, Residual::Underflow(BLOCK as u32));
        ended.good();
        let fewer = bring(&[opcode::WRITE_16], 4, 3, &other);
        let ended = initiator.run(&fewer).await;
        assert_eq!(ended.residual, Residual::Overflow(BLOCK as u32));
        assert_eq!(ended.sense().key, SenseKey::IllegalRequest);
        let now = initiator.run(&read(0, 7)).await.good();
        assert!(now[..BLOCK] == other[..BLOCK]);
        assert!(now[BLOCK..2 * BLOCK] == data[BLOCK..]);
        assert!(now[4 * BLOCK..].iter().all(|&byte| byte == 0));
    });
}

#[test]
fn verifies_compare() {
    simulated(|world| async move {
        let mut initiator = logged_in(&world).await;
        let data = pattern(3 * BLOCK, 9);
        initiator
            .run(&bring(&[opcode::WRITE_AND_VERIFY_16, 2], 0, 3, &data))
            .await
            .good();
        initiator
            .run(&Command::new(&[opcode::VERIFY_10, 0, 0, 0, 0, 0, 0, 4, 0]))
            .await
            .good();
        initiator
            .run(&bring(&[opcode::VERIFY_16, 2], 0, 3, &data))
            .await
            .good();
        let mut other = data.clone();
        other[BLOCK + 17] ^= 1;
        let sense = initiator
            .run(&bring(&[opcode::VERIFY_16, 2], 0, 3, &other))
            .await
            .sense();
        let place = BLOCK as u64 + 17;
        assert_eq!(sense, Sense::miscompare(place));
        // One block against each of many.
        let block = pattern(BLOCK, 10);
        initiator
            .run(&bring(&[opcode::WRITE_SAME_16], 100, 300, &block))
            .await
            .good();
        initiator
            .run(&bring(&[opcode::VERIFY_16, 6], 100, 300, &block))
            .await
            .good();
        initiator.run(&write(350, &data)).await.good();
        let sense = initiator
            .run(&bring(&[opcode::VERIFY_16, 6], 100, 300, &block))
            .await
            .sense();
        assert_eq!(
            sense.additional,
            AdditionalSense::MISCOMPARE_DURING_VERIFY_OPERATION
        );
        let expected = 250 * BLOCK as u64 + first_difference(&data, &block);
        assert_eq!(sense.information, Some(expected));
    });
}

fn first_difference(one: &[u8], other: &[u8]) -> u64 {
    let differ = |(one, other): (&u8, &u8)| one != other;
    one.iter().zip(other).position(differ).expect("they differ") as u64
}

#[test]
fn compare_and_write_does_both_or_nothing() {
    everywhere(|world| async move {
        let mut initiator = logged_in(&world).await;
        let (old, new) = (vec![0; BLOCK], pattern(BLOCK, 11));
        let both = [&old[..], &new[..]].concat();
        let mut command = Command::new(&[opcode::COMPARE_AND_WRITE]);
        (command.cdb[9], command.cdb[13], command.data) = (6, 1, &both);
        initiator.run(&command).await.good();
        assert!(initiator.run(&read(6, 1)).await.good() == new);
        let sense = initiator.run(&command).await.sense();
        let place = first_difference(&old, &new);
        assert_eq!(sense, Sense::miscompare(place));
        assert!(initiator.run(&read(6, 1)).await.good() == new);
    });
}

#[test]
fn write_same_and_unmap_reach_all_their_blocks() {
    simulated(|world| async move {
        let mut initiator = logged_in(&world).await;
        let block = pattern(BLOCK, 12);
        initiator
            .run(&bring(&[opcode::WRITE_SAME_16], 10, 200, &block))
            .await
            .good();
        let data = initiator.run(&read(9, 202)).await.good();
        assert!(data[..BLOCK].iter().all(|&byte| byte == 0));
        assert!(
            data[BLOCK..201 * BLOCK]
                .chunks(BLOCK)
                .all(|one| one == block)
        );
        assert!(data[201 * BLOCK..].iter().all(|&byte| byte == 0));
        // Zeroes that come (UNMAP), and zeroes that do not (NDOB).
        let zeroes = vec![0; BLOCK];
        initiator
            .run(&bring(&[opcode::WRITE_SAME_16, 8], 10, 50, &zeroes))
            .await
            .good();
        initiator
            .run(&bring(&[opcode::WRITE_SAME_16, 1], 60, 50, &[]))
            .await
            .good();
        let ranges = [(110, 20), (140, 10), (160, 0)];
        let ranges = ranges.map(|(lba, blocks)| UnmapDescriptor { lba, blocks });
        let list = unmap_list(&ranges);
        let mut unmap = Command::new(&[opcode::UNMAP]);
        (unmap.cdb[8], unmap.data) = (list.len() as u8, &list);
        initiator.run(&unmap).await.good();
        let data = initiator.run(&read(10, 200)).await.good();
        for (index, one) in data.chunks(BLOCK).enumerate() {
            let is_zero = matches!(index, 0..120 | 130..140);
            assert!(
                one == if is_zero { &zeroes } else { &block },
                "block {index}"
            );
        }
        // No blocks, too many, and a range beyond the end, of which nothing is done.
        for blocks in [0, u32::MAX] {
            let sense = initiator
                .run(&bring(&[opcode::WRITE_SAME_16], 0, blocks, &block))
                .await
                .sense();
            assert_eq!(sense.additional, AdditionalSense::INVALID_FIELD_IN_CDB);
        }
        let ranges = [(150, 1), (1024, 1)].map(|(lba, blocks)| UnmapDescriptor { lba, blocks });
        let list = unmap_list(&ranges);
        (unmap.cdb[8], unmap.data) = (list.len() as u8, &list);
        let sense = initiator.run(&unmap).await.sense();
        assert_eq!(
            sense.additional,
            AdditionalSense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE
        );
        assert!(initiator.run(&read(150, 1)).await.good() == block);
        // More ranges than an UNMAP may have.
        let list = unmap_list(&[UnmapDescriptor { lba: 0, blocks: 1 }; 257]);
        (unmap.cdb[7], unmap.cdb[8]) = ((list.len() >> 8) as u8, list.len() as u8);
        unmap.data = &list;
        let sense = initiator.run(&unmap).await.sense();
        let expected = AdditionalSense::PARAMETER_LIST_LENGTH_ERROR;
        assert_eq!(sense.additional, expected);
        assert!(initiator.run(&read(150, 1)).await.good() == block);
    });
}

pub(crate) fn designated(serial: u8) -> [u8; 16] {
    weir_scsi::vpd::naa([serial; 16])
}

pub(crate) fn target(designator: &[u8; 16]) -> CopyTarget<'_> {
    CopyTarget {
        code_set: 1,
        designator_type: 3,
        association: 0,
        designator,
        block_length: BLOCK as u32,
    }
}

#[test]
fn blocks_are_copied_among_units_that_the_initiator_sees() {
    everywhere(|world| async move {
        let snapshot = served(|target| {
            let lun = |number: u16| Lun::new(number, memory(), [number as u8; 16]);
            let mut hidden = lun(2);
            hidden.visible_to = Allowed::List([name("iqn.2026-01.org.example:other")].into());
            target.luns = vec![lun(0), lun(1), hidden];
            target.allowed = Allowed::List([name(INITIATOR)].into());
        });
        let (_iscsi, address) = serve(&world, IscsiConfig::default(), snapshot).await;
        let mut initiator = Initiator::login(&world, address).await;
        let data = pattern(700 * BLOCK, 13);
        initiator.run(&write(10, &data)).await.good();
        let segment = CopySegment {
            source: 0,
            destination: 1,
            blocks: 600,
            counts_destination: false,
            source_lba: 20,
            destination_lba: 300,
        };
        let back = CopySegment {
            source: 1,
            destination: 0,
            blocks: 2,
            source_lba: 301,
            destination_lba: 0,
            ..segment
        };
        let (first, second, hidden) = (designated(0), designated(1), designated(2));
        let mut list = CopyList {
            targets: vec![target(&first), target(&second)],
            segments: vec![segment, back],
        };
        let bytes = list.encode();
        let copy = |data: &[u8]| {
            let mut command = Command::new(&[opcode::THIRD_PARTY_COPY_OUT]);
            command.cdb[13] = data.len() as u8;
            command
        };
        let mut command = copy(&bytes);
        command.data = &bytes;
        initiator.run(&command).await.good();
        let other = Command {
            lun: u64::from_be_bytes(Address::Unit(1).encode()),
            ..read(300, 600)
        };
        assert!(initiator.run(&other).await.good() == data[10 * BLOCK..610 * BLOCK]);
        assert!(initiator.run(&read(0, 2)).await.good() == data[11 * BLOCK..13 * BLOCK]);
        // A unit that it does not see is not there, in whatever way it is told.
        list.targets[1] = target(&hidden);
        let bytes = list.encode();
        let mut command = copy(&bytes);
        command.data = &bytes;
        let sense = initiator.run(&command).await.sense();
        assert_eq!(sense.key, SenseKey::CopyAborted);
        assert_eq!(
            sense.additional,
            AdditionalSense::COPY_TARGET_DEVICE_NOT_REACHABLE
        );
        // No list copies nothing.
        initiator
            .run(&Command::new(&[opcode::THIRD_PARTY_COPY_OUT]))
            .await
            .good();
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[13]) = (opcode::THIRD_PARTY_COPY_IN, 3, 64);
        let data = initiator.run(&ask(&cdb, 64)).await.good();
        let parameters = OperatingParameters::parse(&data).expect("parameters");
        assert!(parameters.segment_length_max >= 1 << 20);
    });
}

#[test]
fn what_is_read_only_is_not_written_by_any_command() {
    simulated(|world| async move {
        let snapshot = served(|target| target.luns[0].read_only = true);
        let (_iscsi, address) = serve(&world, IscsiConfig::default(), snapshot).await;
        let mut initiator = Initiator::login(&world, address).await;
        let data = pattern(2 * BLOCK, 14);
        let list = unmap_list(&[UnmapDescriptor { lba: 0, blocks: 1 }]);
        let mut unmap = Command::new(&[opcode::UNMAP]);
        (unmap.cdb[8], unmap.data) = (list.len() as u8, &list);
        let mut compare = Command::new(&[opcode::COMPARE_AND_WRITE]);
        (compare.cdb[13], compare.data) = (1, &data);
        for command in [
            bring(&[opcode::WRITE_16], 0, 2, &data),
            bring(&[opcode::WRITE_AND_VERIFY_16], 0, 2, &data),
            bring(&[opcode::WRITE_SAME_16], 0, 2, &data[..BLOCK]),
            bring(&[opcode::WRITE_SAME_16, 1], 0, 2, &[]),
            compare,
            unmap,
        ] {
            let sense = initiator.run(&command).await.sense();
            assert_eq!(sense, Sense::write_protected(), "{:x?}", command.cdb);
        }
        assert!(
            initiator
                .run(&read(0, 2))
                .await
                .good()
                .iter()
                .all(|&byte| byte == 0)
        );
        let mode = initiator
            .run(&ask(&[opcode::MODE_SENSE_6, 0, 0x3f, 0, 255], 255))
            .await
            .good();
        assert_eq!(mode[2] & 0x80, 0x80, "WP");
    });
}

#[test]
fn what_changed_is_told_once_before_anything_else() {
    everywhere(|world| async move {
        let (iscsi, address) = serve(&world, IscsiConfig::default(), served(|_| {})).await;
        let mut initiator = Initiator::login(&world, address).await;
        initiator.run(&read(0, 1)).await.good();
        let more = served(|target| {
            target.luns[0] = Lun::new(0, memory(), [7; 16]);
            target.luns.push(Lun::new(1, memory(), [8; 16]));
        });
        iscsi.apply(more).await.expect("it serves");
        // These are answered all the same, and take nothing away.
        initiator
            .run(&ask(&[opcode::INQUIRY, 0, 0, 0, 36], 36))
            .await
            .good();
        let sense = initiator.run(&read(0, 1)).await.sense();
        let changed = AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED;
        assert_eq!(sense, Sense::unit_attention(changed));
        initiator.run(&read(0, 1)).await.good();
        // The same waits at the other one: REQUEST SENSE takes it.
        let other = u64::from_be_bytes(Address::Unit(1).encode());
        let mut request = ask(&[opcode::REQUEST_SENSE, 0, 0, 0, 252], 252);
        request.lun = other;
        let data = initiator.run(&request).await.good();
        let sense = Sense::parse(&data).expect("sense data");
        assert_eq!(sense, Sense::unit_attention(changed));
        request.cdb[1] = 1;
        let data = initiator.run(&request).await.good();
        assert_eq!(data[0], 0x72, "in descriptor format");
        assert_eq!(Sense::parse(&data), Ok(Sense::none()));
    });
}

#[test]
fn every_command_that_is_listed_is_there() {
    simulated(|world| async move {
        let hubs = hubs(&world);
        let snapshot = served(|target| target.luns[0].reservations = reservations(&hubs));
        let (_iscsi, address) = serve_on(&world, &hubs, IscsiConfig::default(), snapshot).await;
        let mut initiator = Initiator::login(&world, address).await;
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[8]) = (opcode::MAINTENANCE_IN, 0x0c, 8);
        let data = initiator.run(&ask(&cdb, 2048)).await.good();
        assert_eq!((data.len() - 4) / 8, SUPPORTED.len());
        for supported in SUPPORTED {
            let mut command = ask(&[supported.opcode], 512);
            command.cdb[1] = supported.service_action.unwrap_or_default();
            let ended = initiator.run(&command).await;
            let additional = ended.sense.map(|sense| sense.additional);
            let unknown = Some(AdditionalSense::INVALID_COMMAND_OPERATION_CODE);
            assert_ne!(additional, unknown, "{supported:?}");
        }
        // FORMAT UNIT.
        let sense = initiator.run(&Command::new(&[0x04])).await.sense();
        assert_eq!(sense, Sense::invalid_operation_code());
        let aca = Command {
            attribute: TaskAttribute::Aca,
            ..read(0, 1)
        };
        assert_eq!(initiator.run(&aca).await.status, Status::CheckCondition);
    });
}

#[test]
fn a_disk_that_one_host_stops_goes_on_for_others() {
    simulated(|world| async move {
        let mut initiator = logged_in(&world).await;
        initiator
            .run(&Command::new(&[opcode::TEST_UNIT_READY]))
            .await
            .good();
        initiator
            .run(&Command::new(&[opcode::START_STOP_UNIT]))
            .await
            .good();
        initiator
            .run(&Command::new(&[opcode::TEST_UNIT_READY]))
            .await
            .good();
        initiator
            .run(&Command::new(&[opcode::SYNCHRONIZE_CACHE_10]))
            .await
            .good();
        let eject = Command::new(&[opcode::START_STOP_UNIT, 0, 0, 0, 2]);
        assert_eq!(
            initiator.run(&eject).await.sense().key,
            SenseKey::IllegalRequest
        );
    });
}
