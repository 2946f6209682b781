//! Tests of commands: their CDBs are read as a target reads them.

use weir_block::{BlockSize, ReadBuffers};
use weir_initiator::plan::{Limits, Plan};
use weir_memory::{Segment, copy_views, views_len};
use weir_scsi::unmap::UnmapList;

use super::*;

fn limits() -> Limits {
    Limits {
        block_size: BlockSize::B512,
        transfer_blocks_max: 8,
        write_zeroes_blocks_max: 100,
        write_zeroes_deallocates: true,
        write_zeroes_without_data: true,
        verify_blocks_max: 50,
        deallocate_blocks_max: 500,
        compare: true,
        compare_write_blocks_max: 4,
        force_unit_access: true,
        write_zeroes_force_unit_access: false,
    }
}

/// The command of piece `index`, as a target reads it, and its data.
fn made(operation: &Operation, limits: &Limits, index: u64) -> (cdb::Command, Payload) {
    let plan = Plan::new(operation, limits, 1000, false).expect("it can be done");
    let piece = plan.piece(index);
    let command = Command {
        operation,
        method: plan.method,
        lba: plan.lba + piece.offset,
        piece,
        limits,
    };
    let (cdb, payload) = make(&command);
    let parsed = cdb::Command::parse(&cdb).expect("it is a command");
    (parsed, payload)
}

/// Blocks of data, each filled with its number.
fn data(blocks: u8) -> Views {
    let mut bytes = Vec::new();
    for block in 0..blocks {
        bytes.extend([block; 512]);
    }
    Views::from_iter([Segment::copy_of(&bytes).freeze()])
}

/// The numbers of the blocks that are sent.
fn sent(payload: Payload) -> Vec<u8> {
    let Payload::Out(views) = payload else {
        panic!("{payload:?} sends nothing");
    };
    let mut bytes = vec![0xff; views_len(&views)];
    copy_views(&views, &mut bytes);
    let blocks = bytes.chunks(512);
    for block in blocks.clone() {
        assert!(block.len() == 512 && block.iter().all(|byte| *byte == block[0]));
    }
    blocks.map(|block| block[0]).collect()
}

fn extent(lba: u64, blocks: u32) -> Extent {
    Extent { lba, blocks }
}

fn write_zeroes(deallocate: bool, fua: bool) -> Operation {
    Operation::WriteZeroes {
        lba: 5,
        blocks: 10,
        deallocate,
        fua,
    }
}

#[test]
fn pieces_of_reads_say_what_comes() {
    let read = Operation::Read {
        lba: 100,
        blocks: 10,
        buffers: ReadBuffers::Lend,
    };
    for (index, extent) in [extent(100, 8), extent(108, 2)].into_iter().enumerate() {
        let (command, payload) = made(&read, &limits(), index as u64);
        assert_eq!(command, cdb::Command::Read { extent, fua: false });
        assert!(matches!(payload, Payload::In(bytes) if bytes == extent.blocks * 512));
    }
}

#[test]
fn pieces_of_writes_send_their_part() {
    for fua in [false, true] {
        let write = Operation::Write {
            lba: 100,
            blocks: 10,
            data: data(10),
            fua,
        };
        let (command, payload) = made(&write, &limits(), 1);
        let extent = extent(108, 2);
        assert_eq!(command, cdb::Command::Write { extent, fua });
        assert_eq!(sent(payload), [8, 9]);
    }
}

#[test]
fn zeroes_are_written_with_as_little_data_as_the_unit_takes() {
    let same = |unmap, no_data| {
        cdb::Command::WriteSame(WriteSame {
            lba: 5,
            blocks: 10,
            unmap,
            no_data,
        })
    };
    let mut limits = limits();
    let (command, payload) = made(&write_zeroes(true, false), &limits, 0);
    assert_eq!(command, same(true, true));
    assert!(matches!(payload, Payload::None));
    limits.write_zeroes_without_data = false;
    let (command, payload) = made(&write_zeroes(false, false), &limits, 0);
    assert_eq!(command, same(false, false));
    assert_eq!(sent(payload), [0]);
    limits.write_zeroes_deallocates = false;
    let (command, _) = made(&write_zeroes(true, false), &limits, 0);
    assert_eq!(command, same(false, false));
    limits.write_zeroes_blocks_max = 0;
    let (command, payload) = made(&write_zeroes(true, true), &limits, 1);
    let extent = extent(13, 2);
    assert_eq!(command, cdb::Command::Write { extent, fua: true });
    assert_eq!(sent(payload), [0, 0]);
}

#[test]
fn comparisons_send_what_they_compare_with() {
    let compare = Operation::Compare {
        lba: 100,
        blocks: 10,
        data: data(10),
    };
    let mut limits = limits();
    let (command, payload) = made(&compare, &limits, 1);
    let check = ByteCheck::Data;
    let extent_of_second = extent(108, 2);
    assert_eq!(
        command,
        cdb::Command::Verify {
            extent: extent_of_second,
            check
        }
    );
    assert_eq!(sent(payload), [8, 9]);
    limits.compare = false;
    let (command, _) = made(&compare, &limits, 0);
    let extent = extent(100, 8);
    assert_eq!(command, cdb::Command::Read { extent, fua: false });
}

#[test]
fn compare_and_write_sends_both_in_order() {
    let compare_write = Operation::CompareWrite {
        lba: 7,
        blocks: 2,
        data: data(4),
        fua: true,
    };
    let (command, payload) = made(&compare_write, &limits(), 0);
    let extent = extent(7, 2);
    assert_eq!(command, cdb::Command::CompareAndWrite { extent, fua: true });
    assert_eq!(sent(payload), [0, 1, 2, 3]);
}

#[test]
fn ranges_are_unmapped_one_at_a_time() {
    let deallocate = Operation::Deallocate {
        lba: 10,
        blocks: 700,
    };
    let (command, payload) = made(&deallocate, &limits(), 1);
    assert_eq!(command, cdb::Command::Unmap { list_length: 24 });
    let Payload::Out(list) = payload else {
        panic!("a list is sent");
    };
    let mut bytes = [0; 24];
    copy_views(&list, &mut bytes);
    let descriptors: Vec<_> = UnmapList::parse(&bytes)
        .expect("a list")
        .descriptors()
        .collect();
    let (lba, blocks) = (510, 200);
    assert_eq!(descriptors, [UnmapDescriptor { lba, blocks }]);
}

#[test]
fn verifies_and_flushes_move_no_data() {
    let verify = Operation::Verify { lba: 3, blocks: 60 };
    let mut limits = limits();
    let (command, payload) = made(&verify, &limits, 1);
    let (extent_of_second, check) = (extent(53, 10), ByteCheck::Medium);
    assert_eq!(
        command,
        cdb::Command::Verify {
            extent: extent_of_second,
            check
        }
    );
    assert!(matches!(payload, Payload::None));
    limits.verify_blocks_max = 0;
    let (_, payload) = made(&verify, &limits, 0);
    assert!(matches!(payload, Payload::In(4096)));
    let (command, payload) = made(&Operation::Flush, &limits, 0);
    let extent = extent(0, 0);
    assert_eq!(command, cdb::Command::SynchronizeCache { extent });
    assert!(matches!(payload, Payload::None));
}

#[test]
fn what_fua_does_not_do_a_flush_does() {
    let write = |fua| Operation::Write {
        lba: 0,
        blocks: 1,
        data: data(1),
        fua,
    };
    let mut limits = limits();
    limits.force_unit_access = false;
    let (command, _) = made(&write(true), &limits, 0);
    assert!(matches!(command, cdb::Command::Write { fua: false, .. }));
}
