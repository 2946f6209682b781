//! SCSI: commands, sense data and parameter data, as targets and initiators get them.

use weir_scsi::cdb::{Command, opcode};
use weir_scsi::copy::{CopyBounds, CopyList, CopySegment, CopyTarget, OperatingParameters};
use weir_scsi::inquiry::Inquiry;
use weir_scsi::lun::{Lun, ReportedLuns, report_luns};
use weir_scsi::mode::Mode;
use weir_scsi::opcodes::SUPPORTED;
use weir_scsi::ports::parse_groups;
use weir_scsi::reservation::{
    FullStatus, RegisterAndMoveList, RegisteredKeys, RegistrantStatus, ReservationCapabilities,
    ReservationStatus, ReserveOutAction, ReserveOutList, TransportId,
};
use weir_scsi::sense::{FieldPointer, Sense, SenseFormat};
use weir_scsi::task::TaskFunctions;
use weir_scsi::unmap::{UnmapDescriptor, UnmapList, encode as unmap_list};
use weir_scsi::vpd::{self, BlockLimits, Port, Provisioning};

const BOUNDS: CopyBounds = CopyBounds {
    targets: 16,
    segments: 64,
};
const MODE: Mode = Mode {
    write_protected: false,
    write_cache: true,
    blocks: 1 << 40,
    block_length: 512,
};

/// Everything that is read of SCSI: nothing panics, what is read is written so that it is read the same again, and a command that is
/// taken is one that is listed.
pub fn scsi(data: &[u8]) {
    if let Some(cdb) = data.first_chunk() {
        command(cdb);
    }
    if let Some(bytes) = data.first_chunk()
        && let Ok(lun) = Lun::parse(bytes)
    {
        assert_eq!(Lun::parse(&lun.encode()), Ok(lun));
    }
    if let Ok(sense) = Sense::parse(data) {
        let again = Sense::parse(&sense.encode(SenseFormat::Descriptor));
        assert_eq!(again, Ok(sense));
    }
    if let Ok(list) = UnmapList::parse(data) {
        let ranges: Vec<_> = list.descriptors().collect();
        let bytes = unmap_list(&ranges);
        let again = UnmapList::parse(&bytes).expect("it was written");
        assert!(again.descriptors().eq(ranges));
    }
    if let Ok(list) = CopyList::parse(data, BOUNDS) {
        let bytes = list.encode();
        assert_eq!(CopyList::parse(&bytes, BOUNDS), Ok(list));
    }
    for is_long in [false, true] {
        let _ = MODE.select(data, is_long);
        let _ = parse_groups(data, is_long);
    }
    reservations(data);
    answers(data);
}

fn reservations(data: &[u8]) {
    if let Ok(transport) = TransportId::parse(data) {
        assert_eq!(TransportId::parse(&transport.encode()), Ok(transport));
    }
    if let Ok(list) = ReserveOutList::parse(data, ReserveOutAction::Register) {
        let again = ReserveOutList::parse(&list.encode(), ReserveOutAction::Register);
        assert_eq!(again, Ok(list));
    }
    if let Ok(list) = RegisterAndMoveList::parse(data) {
        assert_eq!(RegisterAndMoveList::parse(&list.encode()), Ok(list));
    }
    let _ = RegisteredKeys::parse(data);
    let _ = ReservationStatus::parse(data);
    let _ = ReservationCapabilities::parse(data);
    let _ = FullStatus::parse(data);
}

fn command(cdb: &[u8; 16]) {
    if let Ok(command) = Command::parse(cdb) {
        let is_it = |one: &&weir_scsi::opcodes::Supported| {
            one.opcode == cdb[0]
                && one
                    .service_action
                    .is_none_or(|action| action == cdb[1] & 0x1f)
        };
        let listed = SUPPORTED.iter().find(is_it);
        let listed = listed.unwrap_or_else(|| panic!("{command:?} is not listed"));
        // What is behind its end says nothing.
        let mut other = *cdb;
        other[listed.length()..].fill(0x5a);
        assert_eq!(Command::parse(&other), Ok(command));
    }
}

/// What initiators read.
fn answers(data: &[u8]) {
    if let Ok(inquiry) = Inquiry::parse(data) {
        assert_eq!(Inquiry::parse(&inquiry.encode()), Ok(inquiry));
    }
    if let Ok(luns) = ReportedLuns::parse(data) {
        assert!(luns.luns.len() * 8 <= data.len());
    }
    if let Ok(parameters) = OperatingParameters::parse(data) {
        assert_eq!(
            OperatingParameters::parse(&parameters.encode()),
            Ok(parameters)
        );
    }
    let _ = TaskFunctions::parse(data);
    let Ok((_, page)) = vpd::parse_page(data) else {
        return;
    };
    let length: usize = vpd::designators(page)
        .iter()
        .map(|one| 4 + one.value.len())
        .sum();
    assert!(length <= page.len());
    if let Ok(limits) = BlockLimits::parse(page) {
        let bytes = limits.encode();
        let (_, page) = vpd::parse_page(&bytes).expect("it was written");
        assert_eq!(BlockLimits::parse(page), Ok(limits));
    }
    if let Ok(provisioning) = Provisioning::parse(page) {
        let bytes = provisioning.encode();
        let (_, page) = vpd::parse_page(&bytes).expect("it was written");
        assert_eq!(Provisioning::parse(page), Ok(provisioning));
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let identity = vpd::naa([7; 16]);
    let target = CopyTarget {
        code_set: vpd::CODE_SET_BINARY,
        designator_type: vpd::DESIGNATOR_NAA,
        association: 0,
        designator: &identity,
        block_length: 512,
    };
    let segment = CopySegment {
        source: 0,
        destination: 1,
        blocks: 8,
        counts_destination: false,
        source_lba: 1,
        destination_lba: 2,
    };
    let copy = CopyList {
        targets: vec![target, target],
        segments: vec![segment],
    };
    let port = Port {
        target: "iqn.2026-01.org.example:disks",
        portal_group: 1,
        relative: 1,
        port_group: 1,
    };
    let transport = TransportId::IscsiPort {
        name: "iqn.2026-01.org.example:host".into(),
        isid: [0x80, 0, 0, 0, 0, 1],
    };
    let moving = RegisterAndMoveList {
        key: 1,
        action_key: 2,
        unregisters: true,
        persists: false,
        relative_port: 1,
        transport: transport.clone(),
    };
    let status = FullStatus {
        generation: 1,
        registrants: vec![RegistrantStatus {
            key: 1,
            holds: Some(5),
            relative_port: 1,
            transport: transport.clone(),
        }],
    };
    let ranges = [UnmapDescriptor { lba: 1, blocks: 2 }];
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[13]) = (opcode::WRITE_SAME_16, 8, 1);
    vec![
        cdb.to_vec(),
        Sense::read_error(7).encode(SenseFormat::Fixed).to_vec(),
        Sense::invalid_field(FieldPointer::cdb_bit(1, 4))
            .encode(SenseFormat::Descriptor)
            .to_vec(),
        unmap_list(&ranges),
        copy.encode(),
        transport.encode(),
        moving.encode(),
        status.encode(),
        report_luns(&[Lun::Unit(0), Lun::Unit(300)]),
        Inquiry::block_device(*b"WEIR    ", [b' '; 16], *b"0.1 ")
            .encode()
            .to_vec(),
        vpd::device_identification(*b"WEIR    ", "07", &identity, &port),
        BlockLimits::default().encode(),
        Provisioning::default().encode(),
    ]
}
