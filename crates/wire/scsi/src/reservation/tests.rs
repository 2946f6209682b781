//! Tests of reservation lists and data.

use proptest::prelude::*;

use super::*;
use crate::sense::{AdditionalSense, KeySpecific};

const ACTIONS: [ReserveOutAction; 9] = [
    ReserveOutAction::Register,
    ReserveOutAction::Reserve,
    ReserveOutAction::Release,
    ReserveOutAction::Clear,
    ReserveOutAction::Preempt,
    ReserveOutAction::PreemptAndAbort,
    ReserveOutAction::RegisterAndIgnoreExistingKey,
    ReserveOutAction::RegisterAndMove,
    ReserveOutAction::ReplaceLostReservation,
];

fn registers(action: ReserveOutAction) -> bool {
    action == ReserveOutAction::Register || action == ReserveOutAction::RegisterAndIgnoreExistingKey
}

fn port() -> TransportId {
    TransportId::IscsiPort {
        name: "iqn.2026-01.example:a".into(),
        isid: [0x80, 0x01, 0x02, 0x03, 0xab, 0x00],
    }
}

const PORT_BYTES: &[u8] = b"\x45\0\0\x28iqn.2026-01.example:a,i,0x80010203ab00\0\0";

fn moving() -> RegisterAndMoveList {
    RegisterAndMoveList {
        key: 0x0102_0304_0506_0708,
        action_key: 0x1112_1314_1516_1718,
        unregisters: true,
        persists: false,
        relative_port: 0x2122,
        transport: port(),
    }
}

#[test]
fn a_list_has_its_fields_where_the_standard_says() {
    let list = ReserveOutList {
        key: 0x0102_0304_0506_0708,
        action_key: 0x1112_1314_1516_1718,
        persists: true,
    };
    let mut expected = vec![1, 2, 3, 4, 5, 6, 7, 8];
    expected.extend([0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18]);
    expected.extend([0, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(list.encode()[..], expected);
    for action in ACTIONS {
        let persists = registers(action);
        let expected = ReserveOutList { persists, ..list };
        assert_eq!(ReserveOutList::parse(&list.encode(), action), Ok(expected));
    }
}

#[test]
fn a_list_of_another_length_is_refused() {
    for length in (0..24).chain(25..60) {
        let error = ReserveOutError::Length(length);
        let bytes = vec![0; length];
        let parsed = ReserveOutList::parse(&bytes, ReserveOutAction::Register);
        assert_eq!(parsed, Err(error));
        assert_eq!(Sense::from(error), Sense::parameter_list_length());
    }
}

#[test]
fn initiator_ports_and_all_target_ports_are_refused() {
    for action in ACTIONS {
        for (length, flags) in [(24, 0x08), (28, 0x08), (48, 0x0d)] {
            let mut bytes = vec![0; length];
            bytes[20] = flags;
            let parsed = ReserveOutList::parse(&bytes, action);
            assert_eq!(parsed, Err(ReserveOutError::SpecifiesInitiatorPorts));
        }
        let mut bytes = [0; 24];
        bytes[20] = 0x04;
        let refused = ReserveOutList::parse(&bytes, action) == Err(ReserveOutError::AllTargetPorts);
        assert_eq!(refused, registers(action), "{action}");
    }
    for (error, bit) in [
        (ReserveOutError::SpecifiesInitiatorPorts, 3),
        (ReserveOutError::AllTargetPorts, 2),
    ] {
        let sense = Sense::from(error);
        let additional = AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST;
        assert_eq!(sense.additional, additional);
        let field = KeySpecific::Field(FieldPointer::list_bit(20, bit));
        assert_eq!(sense.specific, Some(field));
    }
}

#[test]
fn a_list_that_moves_has_its_fields_where_the_standard_says() {
    let bytes = moving().encode();
    let mut expected = vec![1, 2, 3, 4, 5, 6, 7, 8];
    expected.extend([0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18]);
    expected.extend([0, 2, 0x21, 0x22, 0, 0, 0, 44]);
    expected.extend(PORT_BYTES);
    assert_eq!(bytes, expected);
    assert_eq!(RegisterAndMoveList::parse(&bytes), Ok(moving()));
}

#[test]
fn a_list_that_moves_is_refused_at_every_other_length() {
    let bytes = moving().encode();
    for length in 0..bytes.len() {
        let parsed = RegisterAndMoveList::parse(&bytes[..length]);
        assert_eq!(parsed, Err(ReserveOutError::Length(length)));
    }
    let longer = [&bytes[..], &[0; 4]].concat();
    let parsed = RegisterAndMoveList::parse(&longer);
    assert_eq!(parsed, Err(ReserveOutError::Length(longer.len())));
}

#[test]
fn a_reservation_moves_to_a_port_and_nothing_else() {
    let name = "iqn.2026-01.example:a".into();
    for transport in [
        TransportId::IscsiDevice { name },
        TransportId::NvmeHost([1; 8]),
        TransportId::NvmeHostExtended([1; 16]),
    ] {
        let list = RegisterAndMoveList {
            transport,
            ..moving()
        };
        let error = ReserveOutError::TransportId(TransportIdError::NoPort);
        assert_eq!(RegisterAndMoveList::parse(&list.encode()), Err(error));
        let sense = Sense::invalid_field(FieldPointer::list(24));
        assert_eq!(Sense::from(error), sense);
    }
}

#[test]
fn transport_ids_have_their_fields_where_the_standard_says() {
    assert_eq!(port().encode(), PORT_BYTES);
    let name = "iqn.2026-01.a:b".into();
    let device = TransportId::IscsiDevice { name };
    assert_eq!(device.encode(), b"\x05\0\0\x14iqn.2026-01.a:b\0\0\0\0\0");
    // A name that fills its words is followed by four NULs.
    let name = "iqn.2026-01.a:twenty".into();
    let device = TransportId::IscsiDevice { name };
    assert_eq!(device.encode(), b"\x05\0\0\x18iqn.2026-01.a:twenty\0\0\0\0");
    let host = TransportId::NvmeHost([1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(
        host.encode(),
        b"\x0f\x08\0\0NVMe\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\0\0\0\0\0"
    );
    let host = TransportId::NvmeHostExtended([9; 16]);
    assert_eq!(host.encode()[..9], *b"\x0f\x10\0\0NVMe\x09");
    assert_eq!(host.encode().len(), 24);
}

#[test]
fn an_isid_may_be_written_with_fewer_digits_and_capitals() {
    let mut bytes = *b"\x45\0\0\x14a,i,0x1AbC\0\0\0\0\0\0\0\0\0\0";
    let parsed = TransportId::parse(&bytes);
    let name = "a".into();
    let isid = [0, 0, 0, 0, 0x1a, 0xbc];
    assert_eq!(parsed, Ok(TransportId::IscsiPort { name, isid }));
    // What stands behind the NUL is not looked at.
    bytes[23] = b'!';
    assert_eq!(TransportId::parse(&bytes), parsed);
}

#[test]
fn transport_ids_that_are_none_are_refused() {
    use TransportIdError as E;
    let cases: [(&[u8], E); 13] = [
        (b"", E::Length(0)),
        (b"\x45", E::Length(1)),
        (b"\x45\0\0", E::Length(3)),
        (b"\x05\0\0\x10iqn.2026-01.a:b\0", E::Length(20)),
        (b"\x05\0\0\x14iqn.2026-01.a:b\0", E::Length(20)),
        (b"\x05\0\0\x15iqn.2026-01.a:b\0\0\0\0\0\0", E::Length(25)),
        (b"\x85\0\0\x14iqn.2026-01.a:b\0\0\0\0\0", E::Format(0x85)),
        (b"\x06\0\0\x14iqn.2026-01.a:b\0\0\0\0\0", E::Format(0x06)),
        (
            b"\x0f\x08\0\0Nvme\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\0\0\0\0\0",
            E::Format(0x0f),
        ),
        (
            b"\x0f\x09\0\0NVMe\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\0\0\0\0\0",
            E::Format(0x0f),
        ),
        (b"\x05\0\0\x14iqn.2026-01.a:twenty", E::Name),
        (b"\x45\0\0\x14,i,0x1\0\0\0\0\0\0\0\0\0\0\0\0\0\0", E::Name),
        (b"\x45\0\0\x14a,i,0x\0\0\0\0\0\0\0\0\0\0\0\0\0\0", E::Isid),
    ];
    for (bytes, error) in cases {
        assert_eq!(TransportId::parse(bytes), Err(error), "{bytes:?}");
    }
    for text in ["a", "a,i,0x1234567890abc", "a,i,0x+1", "a,i,1"] {
        let mut bytes = TransportId::IscsiDevice { name: text.into() }.encode();
        bytes[0] |= 0x40;
        assert_eq!(TransportId::parse(&bytes), Err(E::Isid), "{text}");
    }
    let name = "x".repeat(224).into();
    let long = TransportId::IscsiDevice { name }.encode();
    assert_eq!(TransportId::parse(&long), Err(E::Name));
}

#[test]
fn keys_and_the_reservation_have_their_fields_where_the_standard_says() {
    let keys = RegisteredKeys {
        generation: 0x0102_0304,
        keys: vec![5, 0x1112_1314_1516_1718],
    };
    let bytes = keys.encode();
    assert_eq!(
        bytes[..16],
        [1, 2, 3, 4, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 5]
    );
    assert_eq!(
        bytes[16..],
        [0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18]
    );
    let cut = RegisteredKeys::parse(&bytes[..23]).expect("a header");
    assert_eq!(cut.keys, [5]);
    let free = ReservationStatus {
        generation: 9,
        held: None,
    };
    assert_eq!(free.encode(), [0, 0, 0, 9, 0, 0, 0, 0]);
    let held = ReservationStatus {
        generation: 9,
        held: Some(HeldReservation { key: 7, kind: 8 }),
    };
    let mut expected = vec![0, 0, 0, 9, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 7];
    expected.extend([0, 0, 0, 0, 0, 8, 0, 0]);
    assert_eq!(held.encode(), expected);
    assert!(ReservationStatus::parse(&expected[..23]).is_err());
}

#[test]
fn capabilities_have_their_bits_where_the_standard_says() {
    let types = type_mask([1, 3, 5, 6, 7, 8]);
    let all = ReservationCapabilities {
        can_persist: true,
        persists: true,
        types: Some(types),
        ..ReservationCapabilities::default()
    };
    assert_eq!(all.encode(), [0, 8, 0x01, 0x81, 0xea, 0x01, 0, 0]);
    let other = ReservationCapabilities {
        compatible_handling: true,
        specifies_initiator_ports: true,
        all_target_ports: true,
        allow_commands: 5,
        ..ReservationCapabilities::default()
    };
    assert_eq!(other.encode(), [0, 8, 0x1c, 0x50, 0, 0, 0, 0]);
}

#[test]
fn full_status_has_its_fields_where_the_standard_says() {
    let holder = RegistrantStatus {
        key: 0x0102,
        holds: Some(5),
        relative_port: 0x0304,
        transport: port(),
    };
    let foreign = RegistrantStatus {
        key: 3,
        holds: None,
        relative_port: 0,
        transport: TransportId::NvmeHostExtended([9; 16]),
    };
    let status = FullStatus {
        generation: 6,
        registrants: vec![holder.clone(), foreign.clone()],
    };
    let bytes = status.encode();
    assert_eq!(bytes[..8], [0, 0, 0, 6, 0, 0, 0, 24 + 44 + 24 + 24]);
    assert_eq!(
        bytes[8..24],
        [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 1, 5, 0, 0]
    );
    assert_eq!(bytes[24..32], [0, 0, 3, 4, 0, 0, 0, 44]);
    assert_eq!(bytes[32..76], *PORT_BYTES);
    assert_eq!(bytes[88..90], [0, 0]);
    assert_eq!(bytes.len(), 8 + 24 + 44 + 24 + 24);
    let (generation, registrants) = FullStatus::parse(&bytes).expect("a header");
    assert_eq!(
        (generation, registrants),
        (6, vec![Ok(holder.clone()), Ok(foreign)])
    );
    let (_, cut) = FullStatus::parse(&bytes[..bytes.len() - 1]).expect("a header");
    assert_eq!(cut, [Ok(holder)]);
}

fn transport() -> impl Strategy<Value = TransportId> {
    let name = "[a-z][a-z0-9.:-]{0,222}";
    prop_oneof![
        (name, any::<[u8; 6]>()).prop_map(|(name, isid)| {
            let name = name.into();
            TransportId::IscsiPort { name, isid }
        }),
        name.prop_map(|name| TransportId::IscsiDevice { name: name.into() }),
        any::<[u8; 8]>().prop_map(TransportId::NvmeHost),
        any::<[u8; 16]>().prop_map(TransportId::NvmeHostExtended),
    ]
}

proptest! {
    #[test]
    fn transport_ids_come_back(transport in transport()) {
        let bytes = transport.encode();
        prop_assert!(bytes.len() >= 24 && bytes.len().is_multiple_of(4));
        prop_assert_eq!(TransportId::parse(&bytes), Ok(transport));
    }

    #[test]
    fn data_comes_back(
        generation: u32,
        keys: Vec<u64>,
        held in proptest::option::of((any::<u64>(), 0_u8..16)),
        flags: [bool; 5],
        allow_commands in 0_u8..8,
        types: Option<u16>,
        registrants in proptest::collection::vec(
            (any::<u64>(), proptest::option::of(0_u8..16), any::<u16>(), transport()),
            0..5,
        ),
    ) {
        let keys = RegisteredKeys { generation, keys };
        prop_assert_eq!(RegisteredKeys::parse(&keys.encode()), Ok(keys));
        let held = held.map(|(key, kind)| HeldReservation { key, kind });
        let status = ReservationStatus { generation, held };
        prop_assert_eq!(ReservationStatus::parse(&status.encode()), Ok(status));
        let [compatible_handling, specifies_initiator_ports, all_target_ports, can_persist, persists] = flags;
        let capabilities = ReservationCapabilities {
            compatible_handling,
            specifies_initiator_ports,
            all_target_ports,
            can_persist,
            persists,
            allow_commands,
            types,
        };
        prop_assert_eq!(ReservationCapabilities::parse(&capabilities.encode()), Ok(capabilities));
        let registrants: Vec<_> = registrants
            .into_iter()
            .map(|(key, holds, relative_port, transport)| RegistrantStatus { key, holds, relative_port, transport })
            .collect();
        let expected: Vec<_> = registrants.iter().cloned().map(Ok).collect();
        let status = FullStatus { generation, registrants };
        prop_assert_eq!(FullStatus::parse(&status.encode()), Ok((generation, expected)));
    }

    #[test]
    fn any_bytes_are_something_or_an_error(
        bytes in proptest::collection::vec(any::<u8>(), 0..120),
        start in proptest::sample::select(vec![0x05_u8, 0x45, 0x0f]),
    ) {
        let mut named = bytes.clone();
        if let Some(first) = named.first_mut() {
            *first = start;
        }
        for bytes in [&bytes, &named] {
            if let Ok(transport) = TransportId::parse(bytes) {
                prop_assert_eq!(TransportId::parse(&transport.encode()), Ok(transport));
            }
        }
        for action in ACTIONS {
            let parsed = ReserveOutList::parse(&bytes, action);
            prop_assert!(parsed.is_err() || bytes.len() == RESERVE_OUT_LENGTH);
        }
        let _ = RegisterAndMoveList::parse(&bytes);
        let _ = ReservationStatus::parse(&bytes);
        let _ = ReservationCapabilities::parse(&bytes);
        if let Ok(keys) = RegisteredKeys::parse(&bytes) {
            prop_assert!(keys.keys.len() * 8 <= bytes.len());
        }
        if let Ok((_, registrants)) = FullStatus::parse(&bytes) {
            prop_assert!(registrants.len() * 24 <= bytes.len());
        }
    }
}
