//! Parsers of what comes over the network: PDUs, commands, structures, lists, names in fields.

use weir_nvme::command::{
    AdminCommand, ConnectData, CopyRange, DatasetManagementRange, FabricsCommand, NvmCommand,
    copy_ranges, dataset_management_ranges,
};
use weir_nvme::event::AsynchronousEvent;
use weir_nvme::identify::{
    CommandSetController, CommandSetNamespace, CommandSetVector, IDENTIFY_SIZE, IdentifyController,
    IdentifyNamespace, IndependentNamespace, NamespaceDescriptors, decode_namespace_list,
};
use weir_nvme::log::{
    DiscoveryLogEntry, DiscoveryLogHeader, ErrorInformation, FirmwareSlot, SmartHealth,
    decode_ana_log, decode_changed_namespaces, encode_ana_log,
};
use weir_nvme::reservation::{
    ReservationAcquire, ReservationRegister, ReservationRelease, ReservationReport,
    ReservationReportCommand,
};
use weir_nvme::tcp::{
    Alignment, CapsuleCommand, DigestOptions, Event, FramingError, HEADER_SIZE_MAX,
    InitializeRequest, InitializeResponse, Pdu, Reader, ReceiveParameters, Side, Wanted, Writer,
};
use weir_nvme::{Cqe, SglDescriptor, Sqe};

use crate::readers::{read_everyhow, stream_reader};

/// Data in capsules, and in data PDUs, of what the reader target reads, in bytes.
const MAXIMUM_DATA: u32 = 8192;

struct OneSide {
    reader: Reader,
    parameters: ReceiveParameters,
}

stream_reader!(OneSide, Event, FramingError, Wanted, |side, event| {
    if let Event::Pdu(Pdu::InitializeRequest(_) | Pdu::InitializeResponse(_)) = event {
        side.reader.establish(side.parameters);
    }
});

/// The PDU reader, either side, with any digests and alignment: what it reads does not depend on where the bytes are cut nor
/// on how its data is received, and every PDU is read again as it is written.
///
/// The first byte says side and digests, the second the alignment, the third is for the cuts.
pub fn pdu(data: &[u8]) {
    let Some(([flags, alignment, cuts], stream)) = data.split_first_chunk() else {
        return;
    };
    let side = match flags & 1 {
        0 => Side::Controller,
        _ => Side::Host,
    };
    let parameters = ReceiveParameters {
        header_digest: flags & 2 != 0,
        data_digest: flags & 4 != 0,
        alignment: Alignment::from_wire(alignment & 31).expect("32 values"),
        maximum_in_capsule: MAXIMUM_DATA,
        maximum_data: MAXIMUM_DATA,
    };
    // Few inputs find the 128 bytes of an ICReq by themselves.
    let mut bytes = match (flags & 8, side) {
        (0, Side::Controller) => InitializeRequest::new(DigestOptions::NONE)
            .encode()
            .to_vec(),
        (0, Side::Host) => InitializeResponse::new(DigestOptions::NONE, MAXIMUM_DATA)
            .encode()
            .to_vec(),
        _ => Vec::new(),
    };
    bytes.extend_from_slice(stream);
    let whole = read_everyhow(&bytes, *cuts, || OneSide {
        reader: Reader::new(side),
        parameters,
    });
    for event in &whole.events {
        if let Event::Pdu(pdu) = event {
            check_written(pdu, side, parameters);
        }
    }
}

/// Writes a PDU's header as it was read, and reads it again.
fn check_written(pdu: &Pdu, side: Side, parameters: ReceiveParameters) {
    let writer = Writer {
        header_digest: parameters.header_digest,
        data_digest: parameters.data_digest,
        alignment: parameters.alignment,
    };
    let mut buffer = [0; HEADER_SIZE_MAX];
    let length = match pdu {
        Pdu::CapsuleCommand(CapsuleCommand { sqe, data_length }) => {
            writer.capsule_command(&mut buffer, sqe, *data_length)
        }
        Pdu::CapsuleResponse(cqe) => writer.capsule_response(&mut buffer, cqe),
        Pdu::H2cData(data) => writer.h2c_data(&mut buffer, data),
        Pdu::C2hData(data) => writer.c2h_data(&mut buffer, data),
        Pdu::R2t(r2t) => writer.r2t(&mut buffer, r2t),
        Pdu::InitializeRequest(_) | Pdu::InitializeResponse(_) | Pdu::Termination(_) => return,
    };
    let mut reader = Reader::new(side);
    let hello = match side {
        Side::Controller => InitializeRequest::new(DigestOptions::NONE).encode(),
        Side::Host => InitializeResponse::new(DigestOptions::NONE, MAXIMUM_DATA).encode(),
    };
    let _ = reader.feed(&hello).expect("a good first PDU");
    reader.establish(parameters);
    let fed = reader.feed(&buffer[..length]).expect("a good PDU");
    assert_eq!(fed.event, Some(Event::Pdu(*pdu)));
}

/// Submission queue entries and the typed commands in them: what is read is written as it was, and read again the same.
pub fn commands(data: &[u8]) {
    let (entries, _) = data.as_chunks::<{ Sqe::SIZE }>();
    for bytes in entries.iter().take(16) {
        let sqe = Sqe::decode(bytes);
        assert_eq!(Sqe::decode(&sqe.encode()), sqe);
        if let Ok(data) = sqe.tcp_data() {
            assert_eq!(sqe.sgl.tcp_data(), Ok(data));
        }
        if let Ok(command) = NvmCommand::parse(&sqe) {
            let again = command.sqe(sqe.cid, sqe.nsid, sqe.sgl);
            assert_eq!(NvmCommand::parse(&again), Ok(command));
        }
        if let Ok(command) = AdminCommand::parse(&sqe) {
            let again = command.sqe(sqe.cid, sqe.sgl);
            assert_eq!(AdminCommand::parse(&again), Ok(command));
        }
        if let Ok(command) = FabricsCommand::parse(&sqe) {
            let again = command.sqe(sqe.cid, sqe.sgl);
            assert_eq!(FabricsCommand::parse(&again), Ok(command));
        }
        reservation(&sqe);
        let (entry, _) = bytes.split_first_chunk().expect("64 bytes");
        let cqe = Cqe::decode(entry);
        assert_eq!(Cqe::decode(&cqe.encode()), cqe);
        let sgl = SglDescriptor::decode(entry);
        assert_eq!(SglDescriptor::decode(&sgl.encode()), sgl);
        let dword = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let _ = AsynchronousEvent::from_dword(dword);
    }
    for is_extended in [false, true] {
        if let Ok(report) = ReservationReport::parse(data, is_extended) {
            let again = ReservationReport::parse(&report.encode(is_extended), is_extended);
            assert_eq!(again, Ok(report));
        }
    }
}

/// The entry as each of the reservation commands, whatever its opcode.
fn reservation(sqe: &Sqe) {
    let with = |cdw10| Sqe { cdw10, ..*sqe };
    if let Ok(register) = ReservationRegister::from_sqe(sqe) {
        let again = ReservationRegister::from_sqe(&with(register.to_cdw10()));
        assert_eq!(again, Ok(register));
    }
    if let Ok(acquire) = ReservationAcquire::from_sqe(sqe) {
        let again = ReservationAcquire::from_sqe(&with(acquire.to_cdw10()));
        assert_eq!(again, Ok(acquire));
    }
    if let Ok(release) = ReservationRelease::from_sqe(sqe) {
        let again = ReservationRelease::from_sqe(&with(release.to_cdw10()));
        assert_eq!(again, Ok(release));
    }
    let report = ReservationReportCommand::from_sqe(sqe);
    assert_eq!(report.to_dwords()[0], sqe.cdw10);
}

/// Lists of ranges that Dataset Management and Copy bring. The first two bytes say how many the command claims.
pub fn ranges(data: &[u8]) {
    let Some((count, list)) = data.split_first_chunk() else {
        return;
    };
    let count = u16::from_le_bytes(*count);
    match dataset_management_ranges(list, count) {
        Ok(ranges) => {
            let bytes: Vec<u8> = ranges.flat_map(|range| range.encode()).collect();
            let size = DatasetManagementRange::SIZE * usize::from(count);
            assert_eq!(bytes, list[..size]);
        }
        Err(error) => assert_eq!(error.actual, list.len()),
    }
    if let Ok(ranges) = copy_ranges(list, count) {
        let mut found = 0;
        for range in ranges {
            found += 1;
            assert!((1..=0x1_0000).contains(&range.blocks()));
            assert_eq!(CopyRange::decode(&range.encode()), range);
        }
        assert_eq!(found, count);
        assert!(list.len() >= CopyRange::SIZE * usize::from(count));
    }
}

/// The bytes as a structure of `N`, filled with zeroes.
fn filled<const N: usize>(data: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    let length = data.len().min(N);
    bytes[..length].copy_from_slice(&data[..length]);
    bytes
}

macro_rules! survives {
    ($structure:ty, $data:expr) => {{
        let read = <$structure>::decode(&filled($data));
        assert_eq!(<$structure>::decode(&read.encode()), read);
        let _ = <$structure>::parse($data);
        read
    }};
}

/// A Connect's data, and the structures that an initiator is told: by Identify, in log pages, in discovery.
///
/// The first byte says which.
pub fn structures(data: &[u8]) {
    let Some((which, data)) = data.split_first() else {
        return;
    };
    match which % 15 {
        0 => {
            let connect = survives!(ConnectData, data);
            if let Ok(name) = connect.subsystem() {
                assert_eq!(weir_nvme::Nqn::new(name.as_str()), Ok(name));
            }
            let _ = connect.host();
        }
        1 => {
            let controller = survives!(IdentifyController, data);
            for page_size in [0, 4, u8::MAX] {
                let _ = controller.maximum_transfer_bytes(page_size);
            }
        }
        2 => {
            let namespace = survives!(IdentifyNamespace, data);
            let _ = namespace.format().block_size();
        }
        3 => drop(survives!(CommandSetController, data)),
        4 => drop(survives!(CommandSetNamespace, data)),
        5 => drop(survives!(IndependentNamespace, data)),
        6 => {
            if let Ok(descriptors) = NamespaceDescriptors::decode(&filled(data)) {
                let again = NamespaceDescriptors::decode(&descriptors.encode());
                assert_eq!(again, Ok(descriptors));
            }
        }
        7 => {
            let list: [u8; IDENTIFY_SIZE] = filled(data);
            assert!(decode_namespace_list(&list).all(|nsid| nsid != 0));
            let _ = CommandSetVector::decode(&list).count();
            let _ = decode_changed_namespaces(&list).map(Iterator::count);
        }
        8 => check_ana(data),
        9 => drop(survives!(DiscoveryLogHeader, data)),
        10 => {
            let entry = survives!(DiscoveryLogEntry, data);
            let _ = (
                entry.address_text(),
                entry.service_text(),
                entry.subsystem(),
            );
        }
        11 => drop(
            survives!(ErrorInformation, data)
                .status()
                .name(weir_nvme::status::CommandSet::Nvm),
        ),
        12 => drop(survives!(SmartHealth, data)),
        13 => drop(survives!(FirmwareSlot, data)),
        _ => profile(data),
    }
}

fn check_ana(data: &[u8]) {
    if let Ok((changes, mut groups)) = decode_ana_log(data) {
        // What is listed out of order can be read, and is never written.
        groups.sort_by_key(|group| group.id);
        groups.dedup_by_key(|group| group.id);
        let page = encode_ana_log(changes, &groups, false);
        assert_eq!(decode_ana_log(&page), Ok((changes, groups)));
    }
}

/// What an initiator makes of a namespace that a target describes.
fn profile(data: &[u8]) {
    let Some((capabilities, data)) = data.split_first_chunk::<8>() else {
        return;
    };
    let part = |index: usize| {
        let start = (index * 512).min(data.len());
        let end = (start + 512).min(data.len());
        filled::<IDENTIFY_SIZE>(&data[start..end])
    };
    let geometry = weir_nvme_host::geometry_of(
        u64::from_le_bytes(*capabilities),
        [&part(0), &part(1), &part(2), &part(3)],
    );
    if let Some(geometry) = geometry {
        assert!(geometry.blocks > 0 && geometry.transfer_blocks_max > 0);
        assert!(geometry.atomic_blocks > 0 && geometry.atomic_blocks_power_fail > 0);
        let _ = geometry.length_bytes();
    }
}
