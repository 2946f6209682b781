//! Tests of profiles, on answers that a target's side of SCSI encodes.

use proptest::prelude::*;
use weir_scsi::cdb::{ModeSense, PageControl, Reporting, opcode};
use weir_scsi::inquiry::Peripheral;
use weir_scsi::mode::{self, Mode};
use weir_scsi::opcodes::supported_operation_codes;
use weir_scsi::vpd::Port;

use super::*;

const LUN: u16 = 7;

/// A unit, as its target describes it.
struct Unit {
    inquiry: Vec<u8>,
    capacity: Capacity,
    serial: Vec<u8>,
    identification: Vec<u8>,
    block_limits: BlockLimits,
    provisioning: Provisioning,
    mode: Mode,
    write_same: Vec<u8>,
    verify: Vec<u8>,
}

fn inquiry(peripheral: Peripheral) -> Vec<u8> {
    let inquiry = Inquiry::block_device(*b"WEIR    ", *b"VOLUME          ", *b"0.1 ");
    let inquiry = Inquiry {
        peripheral,
        ..inquiry
    };
    inquiry.encode().to_vec()
}

fn supported(opcode: u8) -> Vec<u8> {
    supported_operation_codes(Reporting::Opcode(opcode), false).expect("an answer")
}

fn identification(serial: &str, naa: u8) -> Vec<u8> {
    let port = Port {
        target: "iqn.2026-01.org.example:disks",
        portal_group: 1,
        relative: 1,
        port_group: 1,
    };
    vpd::device_identification(*b"WEIR    ", serial, &vpd::naa([naa; 16]), &port)
}

fn unit() -> Unit {
    Unit {
        inquiry: inquiry(Peripheral::BLOCK_DEVICE),
        capacity: Capacity {
            last_lba: 999,
            block_length: 512,
            physical_block_exponent: 3,
            provisioning_managed: true,
            unmapped_reads_zeroes: true,
            ..Capacity::default()
        },
        serial: vpd::serial_number("0123"),
        identification: identification("0123", 9),
        block_limits: BlockLimits {
            compare_and_write_max: 16,
            granularity: 16,
            transfer_max: 256,
            unmap_max: 4096,
            unmap_descriptors_max: 1,
            unmap_granularity: 8,
            write_same_max: 1024,
            ..BlockLimits::default()
        },
        provisioning: Provisioning {
            unmap: true,
            write_same: true,
            reads_zeroes: true,
            thin: true,
        },
        mode: Mode {
            write_protected: false,
            write_cache: true,
            blocks: 1000,
            block_length: 512,
        },
        write_same: supported(opcode::WRITE_SAME_16),
        verify: supported(opcode::VERIFY_16),
    }
}

impl Unit {
    /// The profile of its answers, some of which `change` takes away or replaces.
    fn profile(&self, change: impl FnOnce(&mut Answers<'_>)) -> Result<Profile, UnitError> {
        let asked = ModeSense {
            is_long: true,
            no_descriptor: true,
            long_lba: false,
            control: PageControl::Current,
            page: mode::CACHING,
            subpage: 0,
            allocation_length: 255,
        };
        let mode = self.mode.sense(&asked).expect("a page");
        let capacity = self.capacity.encode_16();
        let block_limits = self.block_limits.encode();
        let provisioning = self.provisioning.encode();
        let mut answers = Answers {
            lun: LUN,
            inquiry: &self.inquiry,
            capacity: &capacity,
            serial: Some(&self.serial),
            identification: Some(&self.identification),
            block_limits: Some(&block_limits),
            provisioning: Some(&provisioning),
            mode: Some(&mode),
            write_same: Some(&self.write_same),
            verify: Some(&self.verify),
        };
        change(&mut answers);
        answers.profile()
    }

    fn whole(&self) -> Profile {
        self.profile(|_| {}).expect("a disk")
    }
}

#[test]
fn geometry_and_limits_follow_the_answers() {
    let profile = unit().whole();
    let geometry = Geometry {
        generation: 0,
        block_size: BlockSize::B512,
        blocks: 1000,
        transfer_blocks_max: 256,
        transfer_blocks_optimal: 16,
        memory_alignment: 1,
        deallocate_blocks: 8,
        deallocated_read: DeallocatedRead::Zeroes,
        volatile_cache: true,
        read_only: false,
        atomic_blocks: 1,
        atomic_blocks_power_fail: 1,
        compare_write_blocks: 16,
    };
    assert_eq!(profile.geometry, geometry);
    let limits = Limits {
        block_size: BlockSize::B512,
        transfer_blocks_max: 256,
        write_zeroes_blocks_max: 1024,
        write_zeroes_deallocates: true,
        write_zeroes_without_data: true,
        verify_blocks_max: 256,
        deallocate_blocks_max: 4096,
        compare: true,
        compare_write_blocks_max: 16,
        force_unit_access: true,
        write_zeroes_force_unit_access: false,
    };
    assert_eq!(profile.limits, limits);
}

#[test]
fn what_nobody_said_is_taken_for_what_is_safe() {
    let profile = unit()
        .profile(|answers| {
            *answers = Answers {
                serial: None,
                identification: None,
                block_limits: None,
                provisioning: None,
                mode: None,
                write_same: None,
                verify: None,
                ..*answers
            };
        })
        .expect("a disk");
    let limits = Limits {
        block_size: BlockSize::B512,
        transfer_blocks_max: (Pool::LONGEST / 512) as u32,
        write_zeroes_blocks_max: 0,
        write_zeroes_deallocates: false,
        verify_blocks_max: 0,
        deallocate_blocks_max: 0,
        compare: false,
        compare_write_blocks_max: 0,
        write_zeroes_without_data: false,
        force_unit_access: false,
        write_zeroes_force_unit_access: false,
    };
    assert_eq!(profile.limits, limits);
    assert!(profile.geometry.volatile_cache && !profile.geometry.read_only);
    assert_eq!(profile.geometry.transfer_blocks_optimal, 8);
    assert_eq!(profile.geometry.deallocate_blocks, 0);
    assert_eq!(profile.identity, Identity::Unknown);
    assert!(!profile.limits.force_unit_access && !profile.limits.write_zeroes_without_data);
}

#[test]
fn commands_that_are_not_said_to_be_supported_are_taken_from_their_limits() {
    let silent = |answers: &mut Answers<'_>| (answers.write_same, answers.verify) = (None, None);
    let unit = unit();
    let profile = unit.profile(silent).expect("a disk");
    assert_eq!(profile.limits.write_zeroes_blocks_max, 1024);
    assert!(!profile.limits.write_zeroes_without_data && !profile.limits.compare);
    // WRITE SAME unmaps, so that it is there, and has no limit of its own.
    let unlimited = Unit {
        block_limits: BlockLimits {
            write_same_max: 0,
            ..unit.block_limits
        },
        ..unit
    };
    let profile = unlimited.profile(silent).expect("a disk");
    assert_eq!(profile.limits.write_zeroes_blocks_max, 256);
    let neither = Unit {
        provisioning: Provisioning::default(),
        ..unlimited
    };
    let profile = neither.profile(silent).expect("a disk");
    assert_eq!(profile.limits.write_zeroes_blocks_max, 0);
    // FORMAT UNIT is not supported, and the answers are those of WRITE SAME and VERIFY here.
    let refused = Unit {
        write_same: supported(0x04),
        verify: supported(0x04),
        ..self::unit()
    };
    let limits = refused.whole().limits;
    assert_eq!(
        (limits.write_zeroes_blocks_max, limits.verify_blocks_max),
        (0, 0)
    );
    assert!(!limits.compare);
}

#[test]
fn a_verify_that_ignores_byte_check_does_not_compare() {
    let mut unit = unit();
    // CDB USAGE DATA begins with its operation code.
    unit.verify[5] &= !0x06;
    let limits = unit.whole().limits;
    assert!(!limits.compare);
    assert_eq!(limits.verify_blocks_max, 256);
}

#[test]
fn no_limit_is_bounded() {
    let mut unit = unit();
    unit.block_limits = BlockLimits {
        transfer_max: 0,
        compare_and_write_max: u8::MAX,
        unmap_max: u32::MAX,
        unmap_descriptors_max: u32::MAX,
        unmap_granularity: 0,
        write_same_max: u64::MAX,
        ..BlockLimits::default()
    };
    let profile = unit.whole();
    assert_eq!(
        profile.limits.transfer_blocks_max as usize * 512,
        Pool::LONGEST
    );
    assert_eq!(profile.limits.write_zeroes_blocks_max, 1 << 21);
    assert_eq!(profile.limits.deallocate_blocks_max, 1 << 21);
    assert_eq!(profile.geometry.deallocate_blocks, 1);
    assert_eq!(profile.limits.compare_write_blocks_max, 255);
}

#[test]
fn a_page_of_an_older_standard_says_what_it_has() {
    let profile = unit().profile(|answers| {
        answers.block_limits = answers.block_limits.map(|page| &page[..16]);
    });
    let limits = profile.expect("a disk").limits;
    assert_eq!(limits.transfer_blocks_max, 256);
    assert_eq!(limits.deallocate_blocks_max, 0);
    assert!(limits.write_zeroes_blocks_max > 0);
}

#[test]
fn nothing_is_unmapped_where_the_unit_does_not_manage_it() {
    let mut unit = unit();
    unit.provisioning.reads_zeroes = false;
    let profile = unit.whole();
    assert_eq!(profile.geometry.deallocated_read, DeallocatedRead::Unknown);
    assert!(!profile.limits.write_zeroes_deallocates);
    unit.provisioning.unmap = false;
    assert_eq!(unit.whole().geometry.deallocate_blocks, 0);
    unit.provisioning.unmap = true;
    unit.capacity.provisioning_managed = false;
    assert_eq!(unit.whole().limits.deallocate_blocks_max, 0);
}

#[test]
fn mode_parameters_say_how_writes_are_kept() {
    let mut unit = unit();
    unit.mode.write_cache = false;
    unit.mode.write_protected = true;
    let geometry = unit.whole().geometry;
    assert!(!geometry.volatile_cache && geometry.read_only);
}

#[test]
fn the_best_identifier_is_the_identity() {
    let designator = |designator_type, value: &[u8]| {
        let mut bytes = vec![2, designator_type, 0, value.len() as u8];
        bytes.extend(value);
        bytes
    };
    let name = designator(8, b"iqn.2026-01.org.example:disk,L,0x1\0");
    let vendor = designator(1, b"WEIR    0123");
    // Those of ports are not the unit's.
    let port = designator(0x10 | 3, &[6; 16]);
    let (short, long) = (designator(3, &[5; 8]), designator(3, &[6; 16]));
    let identity =
        |designators: &[&[u8]], serial| Identity::new(Some(&designators.concat()), serial);
    assert_eq!(
        identity(&[&vendor, &port, &short, &name, &long], Some(b"0123")),
        Identity::Designator(3, vec![6; 16])
    );
    assert_eq!(
        identity(&[&vendor, &port], Some(b"0123")),
        Identity::Designator(1, b"WEIR    0123".to_vec())
    );
    let serial = Identity::Serial(b"0123".to_vec());
    assert_eq!(identity(&[&port], Some(b" 0123  ")), serial);
    assert_eq!(identity(&[], Some(b"    ")), Identity::Unknown);
}

#[test]
fn pages_are_asked_for_where_they_are_listed() {
    let listed = vpd::supported_pages(&[page::SUPPORTED_PAGES, page::BLOCK_LIMITS]);
    assert!(lists_page(&listed, page::BLOCK_LIMITS));
    assert!(!lists_page(&listed, page::PROVISIONING));
    // The data of another page lists nothing.
    assert!(!lists_page(&vpd::serial_number("0"), b'0'));
    let unit = unit();
    let profile = unit.profile(|answers| answers.block_limits = answers.provisioning);
    assert_eq!(profile.expect("a disk").limits.deallocate_blocks_max, 0);
}

#[test]
fn what_is_no_volume_is_refused() {
    let lun = LUN;
    let peripheral = |peripheral| Unit {
        inquiry: inquiry(peripheral),
        ..unit()
    };
    let refused = |unit: &Unit| unit.profile(|_| {}).expect_err("it is no volume");
    assert_eq!(
        refused(&peripheral(Peripheral::ABSENT)),
        UnitError::Absent { lun }
    );
    assert_eq!(
        refused(&peripheral(Peripheral::WELL_KNOWN)),
        UnitError::NotADisk {
            lun,
            device_type: DeviceType::WellKnown
        }
    );
    let capacity = |capacity| Unit { capacity, ..unit() };
    let with = |block_length, last_lba, has_protection| {
        capacity(Capacity {
            last_lba,
            block_length,
            has_protection,
            ..Capacity::default()
        })
    };
    assert_eq!(
        refused(&with(520, 9, false)),
        UnitError::BlockSize { lun, bytes: 520 }
    );
    assert_eq!(refused(&with(512, 9, true)), UnitError::Protection { lun });
    for (block_length, last_lba) in [(512, (1 << 55) - 1), (4096, 1 << 52), (512, u64::MAX)] {
        assert_eq!(
            refused(&with(block_length, last_lba, false)),
            UnitError::Size { lun, last_lba }
        );
    }
    let longest = with(4096, (1 << 52) - 2, false).whole();
    assert_eq!(longest.geometry.blocks, (1 << 52) - 1);
    let cut = unit().profile(|answers| answers.capacity = &answers.capacity[..31]);
    assert!(matches!(cut, Err(UnitError::Answer { .. })));
}

proptest! {
    #[test]
    fn any_answers_are_a_volume_or_an_error(
        mut answers in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..100), 9),
        is_disk: bool,
    ) {
        if is_disk {
            // What follows is read only of a disk with blocks of a size that is taken.
            answers[0] = inquiry(Peripheral::BLOCK_DEVICE);
            answers[1] = unit().capacity.encode_16().to_vec();
            for (answer, code) in answers[2..6].iter_mut().zip([0x80, 0x83, 0xb0, 0xb2]) {
                answer.resize(100, 0);
                answer[..4].copy_from_slice(&[0, code, 0, 96]);
            }
        }
        let answers: Vec<&[u8]> = answers.iter().map(Vec::as_slice).collect();
        let geometry = geometry_of(answers.try_into().expect("nine answers"));
        prop_assert!(geometry.is_some() || !is_disk);
        if let Some(geometry) = geometry {
            prop_assert!(geometry.transfer_blocks_max > 0 && geometry.transfer_blocks_optimal > 0);
        }
    }
}
