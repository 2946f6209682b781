//! Tests of headers against bytes that were laid out by hand from the figures of RFC 7143 section 11, and of encoding against reading.

use super::*;
use crate::serial::Serial;
use crate::status::LoginStatus;
use proptest::prelude::*;

const LUN: u64 = 0x0001_0203_0405_0607;
const LUN_BYTES: [u8; 8] = [0, 1, 2, 3, 4, 5, 6, 7];
const SERIALS: ResponseSerials = ResponseSerials {
    stat_sn: Serial(0x2021_2223),
    exp_cmd_sn: Serial(0x2425_2627),
    max_cmd_sn: Serial(0x2829_2a2b),
};
const SERIAL_BYTES: [u8; 12] = [
    0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x2b,
];
const ITT: Itt = Itt(0x1011_1213);
const ITT_BYTES: [u8; 4] = [0x10, 0x11, 0x12, 0x13];

/// A header of pieces at their offsets; zero elsewhere.
fn laid_out(pieces: &[(usize, &[u8])]) -> BasicHeader {
    let mut bytes = [0; BASIC_HEADER_SIZE];
    for (offset, piece) in pieces {
        bytes[*offset..offset + piece.len()].copy_from_slice(piece);
    }
    bytes
}

/// The header is written as these pieces, and read back from them.
#[track_caller]
fn check(pdu: Pdu, pieces: &[(usize, &[u8])]) {
    let bytes = laid_out(pieces);
    assert_eq!(pdu.encode().expect("a known PDU"), bytes);
    assert_eq!(Pdu::read(&bytes), pdu);
    assert_eq!(pdu.opcode().value(), bytes[0] & Opcode::MASK);
}

#[test]
fn scsi_command_is_as_in_the_figure() {
    let cdb = [0x2a, 0, 0, 0, 0, 9, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0];
    let command = ScsiCommand {
        immediate: true,
        is_final: true,
        read: false,
        write: true,
        attribute: TaskAttribute::Simple,
        lun: LUN,
        itt: ITT,
        expected_data_length: 4096,
        cmd_sn: Serial(0x3031_3233),
        exp_stat_sn: Serial(0x3435_3637),
        cdb,
        additional: AdditionalSummary::default(),
        data_length: 0x01_0203,
    };
    check(
        Pdu::ScsiCommand(command),
        &[
            (0, &[0x41, 0xa1, 0, 0, 0, 1, 2, 3]),
            (8, &LUN_BYTES),
            (16, &ITT_BYTES),
            (20, &[0, 0, 0x10, 0]),
            (24, &[0x30, 0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37]),
            (32, &cdb),
        ],
    );
    let read = ScsiCommand {
        immediate: false,
        is_final: false,
        read: true,
        write: false,
        attribute: TaskAttribute::HeadOfQueue,
        ..command
    };
    assert_eq!(encode(&read)[..2], [0x01, 0x43]);
}

#[test]
fn scsi_response_is_as_in_the_figure() {
    let response = ScsiResponse {
        response: ResponseCode::TargetFailure,
        status: 2,
        itt: ITT,
        snack_tag: 0x0a0b_0c0d,
        serials: SERIALS,
        exp_data_sn: Serial(3),
        read_residual: Residual::Underflow(7),
        residual: Residual::Overflow(9),
        data_length: 20,
    };
    check(
        Pdu::ScsiResponse(response),
        &[
            (0, &[0x21, 0x8c, 1, 2, 0, 0, 0, 20]),
            (16, &ITT_BYTES),
            (20, &[0x0a, 0x0b, 0x0c, 0x0d]),
            (24, &SERIAL_BYTES),
            (36, &[0, 0, 0, 3, 0, 0, 0, 7, 0, 0, 0, 9]),
        ],
    );
    let other = ScsiResponse {
        read_residual: Residual::Overflow(1),
        residual: Residual::Underflow(1),
        ..response
    };
    assert_eq!(encode(&other)[1], 0x92);
}

#[test]
fn task_management_is_as_in_the_figures() {
    let request = TaskManagementRequest {
        immediate: true,
        function: TaskFunction::AbortTask,
        lun: LUN,
        itt: ITT,
        referenced: Itt(0x0a0b_0c0d),
        cmd_sn: Serial(1),
        exp_stat_sn: Serial(2),
        ref_cmd_sn: Serial(3),
        exp_data_sn: Serial(4),
        data_length: 0,
    };
    check(
        Pdu::TaskManagementRequest(request),
        &[
            (0, &[0x42, 0x81]),
            (8, &LUN_BYTES),
            (16, &ITT_BYTES),
            (20, &[0x0a, 0x0b, 0x0c, 0x0d]),
            (24, &[0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4]),
        ],
    );
    let response = TaskManagementResponse {
        response: TaskResponse::Rejected,
        itt: ITT,
        serials: SERIALS,
        data_length: 0,
    };
    check(
        Pdu::TaskManagementResponse(response),
        &[
            (0, &[0x22, 0x80, 255]),
            (16, &ITT_BYTES),
            (24, &SERIAL_BYTES),
        ],
    );
}

#[test]
fn data_pdus_are_as_in_the_figures() {
    let out = DataOut {
        is_final: true,
        lun: LUN,
        itt: ITT,
        ttt: Ttt(0x0a0b_0c0d),
        exp_stat_sn: Serial(2),
        data_sn: Serial(3),
        buffer_offset: 0x0001_0000,
        data_length: 512,
    };
    check(
        Pdu::DataOut(out),
        &[
            (0, &[0x05, 0x80, 0, 0, 0, 0, 2, 0]),
            (8, &LUN_BYTES),
            (16, &ITT_BYTES),
            (20, &[0x0a, 0x0b, 0x0c, 0x0d]),
            (28, &[0, 0, 0, 2]),
            (36, &[0, 0, 0, 3, 0, 1, 0, 0]),
        ],
    );
    let with_status = DataIn {
        is_final: true,
        acknowledge: false,
        status: Some(DataInStatus {
            status: 0,
            stat_sn: SERIALS.stat_sn,
            residual: Residual::Underflow(5),
        }),
        lun: 0,
        itt: ITT,
        ttt: Ttt::RESERVED,
        exp_cmd_sn: SERIALS.exp_cmd_sn,
        max_cmd_sn: SERIALS.max_cmd_sn,
        data_sn: Serial(3),
        buffer_offset: 0x0001_0000,
        data_length: 512,
    };
    check(
        Pdu::DataIn(with_status),
        &[
            (0, &[0x25, 0x83, 0, 0, 0, 0, 2, 0]),
            (16, &ITT_BYTES),
            (20, &[0xff; 4]),
            (24, &SERIAL_BYTES),
            (36, &[0, 0, 0, 3, 0, 1, 0, 0, 0, 0, 0, 5]),
        ],
    );
    let without = DataIn {
        is_final: false,
        acknowledge: true,
        status: None,
        ..with_status
    };
    let bytes = encode(&without);
    assert_eq!((bytes[1], &bytes[24..28]), (0x40, &[0; 4][..]));
}

#[test]
fn r2t_is_as_in_the_figure() {
    let r2t = R2t {
        lun: LUN,
        itt: ITT,
        ttt: Ttt(0x0a0b_0c0d),
        serials: SERIALS,
        r2t_sn: Serial(1),
        buffer_offset: 0x0001_0000,
        desired_length: 0x0002_0000,
        data_length: 0,
    };
    check(
        Pdu::R2t(r2t),
        &[
            (0, &[0x31, 0x80]),
            (8, &LUN_BYTES),
            (16, &ITT_BYTES),
            (20, &[0x0a, 0x0b, 0x0c, 0x0d]),
            (24, &SERIAL_BYTES),
            (36, &[0, 0, 0, 1, 0, 1, 0, 0, 0, 2, 0, 0]),
        ],
    );
}

#[test]
fn asynchronous_message_is_as_in_the_figure() {
    let message = AsyncMessage {
        lun: LUN,
        serials: SERIALS,
        event: AsyncEvent::LogoutRequest,
        vendor_code: 7,
        parameters: [0x0102, 0x0304, 0x0506],
        data_length: 0,
    };
    check(
        Pdu::AsyncMessage(message),
        &[
            (0, &[0x32, 0x80]),
            (8, &LUN_BYTES),
            (16, &[0xff; 4]),
            (24, &SERIAL_BYTES),
            (36, &[1, 7, 1, 2, 3, 4, 5, 6]),
        ],
    );
}

#[test]
fn text_is_as_in_the_figures() {
    let request = TextRequest {
        immediate: false,
        is_final: false,
        continues: true,
        lun: LUN,
        itt: ITT,
        ttt: Ttt::RESERVED,
        cmd_sn: Serial(1),
        exp_stat_sn: Serial(2),
        data_length: 17,
    };
    check(
        Pdu::TextRequest(request),
        &[
            (0, &[0x04, 0x40, 0, 0, 0, 0, 0, 17]),
            (8, &LUN_BYTES),
            (16, &ITT_BYTES),
            (20, &[0xff; 4]),
            (24, &[0, 0, 0, 1, 0, 0, 0, 2]),
        ],
    );
    let response = TextResponse {
        is_final: true,
        continues: false,
        lun: LUN,
        itt: ITT,
        ttt: Ttt(0x0a0b_0c0d),
        serials: SERIALS,
        data_length: 17,
    };
    check(
        Pdu::TextResponse(response),
        &[
            (0, &[0x24, 0x80, 0, 0, 0, 0, 0, 17]),
            (8, &LUN_BYTES),
            (16, &ITT_BYTES),
            (20, &[0x0a, 0x0b, 0x0c, 0x0d]),
            (24, &SERIAL_BYTES),
        ],
    );
}

#[test]
fn login_is_as_in_the_figures() {
    let isid = Isid([0x80, 1, 2, 3, 4, 5]);
    let request = LoginRequest {
        transit: true,
        continues: false,
        current_stage: Stage::Operational,
        next_stage: Stage::FullFeature,
        version_max: 1,
        version_min: 0,
        isid,
        tsih: Tsih(0x0607),
        itt: ITT,
        cid: Cid(0x0809),
        cmd_sn: Serial(1),
        exp_stat_sn: Serial(2),
        data_length: 300,
    };
    check(
        Pdu::LoginRequest(request),
        &[
            (0, &[0x43, 0x87, 1, 0, 0, 0, 1, 44]),
            (8, &[0x80, 1, 2, 3, 4, 5, 6, 7]),
            (16, &ITT_BYTES),
            (20, &[8, 9]),
            (24, &[0, 0, 0, 1, 0, 0, 0, 2]),
        ],
    );
    let response = LoginResponse {
        transit: false,
        continues: true,
        current_stage: Stage::Security,
        next_stage: Stage::Operational,
        version_max: 1,
        version_active: 0,
        isid,
        tsih: Tsih(0x0607),
        itt: ITT,
        serials: SERIALS,
        status: LoginStatus::SessionDoesNotExist,
        data_length: 300,
    };
    check(
        Pdu::LoginResponse(response),
        &[
            (0, &[0x23, 0x41, 1, 0, 0, 0, 1, 44]),
            (8, &[0x80, 1, 2, 3, 4, 5, 6, 7]),
            (16, &ITT_BYTES),
            (24, &SERIAL_BYTES),
            (36, &[2, 0x0a]),
        ],
    );
    assert_eq!((response.status.class(), response.status.detail()), (2, 10));
}

#[test]
fn logout_is_as_in_the_figures() {
    let request = LogoutRequest {
        immediate: true,
        reason: LogoutReason::CloseConnection,
        itt: ITT,
        cid: Cid(0x0809),
        cmd_sn: Serial(1),
        exp_stat_sn: Serial(2),
        data_length: 0,
    };
    check(
        Pdu::LogoutRequest(request),
        &[
            (0, &[0x46, 0x81]),
            (16, &ITT_BYTES),
            (20, &[8, 9]),
            (24, &[0, 0, 0, 1, 0, 0, 0, 2]),
        ],
    );
    let response = LogoutResponse {
        response: LogoutResponseCode::CidNotFound,
        itt: ITT,
        serials: SERIALS,
        time_to_wait: 2,
        time_to_retain: 0x0102,
        data_length: 0,
    };
    check(
        Pdu::LogoutResponse(response),
        &[
            (0, &[0x26, 0x80, 1]),
            (16, &ITT_BYTES),
            (24, &SERIAL_BYTES),
            (40, &[0, 2, 1, 2]),
        ],
    );
}

#[test]
fn snack_and_reject_are_as_in_the_figures() {
    let snack = Snack {
        snack_type: SnackType::DataAck,
        lun: LUN,
        itt: ITT,
        ttt: Ttt(0x0a0b_0c0d),
        exp_stat_sn: Serial(2),
        begin: Serial(3),
        length: 4,
        data_length: 0,
    };
    check(
        Pdu::Snack(snack),
        &[
            (0, &[0x10, 0x82]),
            (8, &LUN_BYTES),
            (16, &ITT_BYTES),
            (20, &[0x0a, 0x0b, 0x0c, 0x0d]),
            (28, &[0, 0, 0, 2]),
            (40, &[0, 0, 0, 3, 0, 0, 0, 4]),
        ],
    );
    let reject = Reject {
        reason: RejectReason::InvalidPduField,
        serials: SERIALS,
        data_sn: Serial(6),
        data_length: 48,
    };
    check(
        Pdu::Reject(reject),
        &[
            (0, &[0x3f, 0x80, 9, 0, 0, 0, 0, 48]),
            (16, &[0xff; 4]),
            (24, &SERIAL_BYTES),
            (36, &[0, 0, 0, 6]),
        ],
    );
}

#[test]
fn nops_are_as_in_the_figures() {
    let out = NopOut {
        immediate: true,
        lun: LUN,
        itt: Itt::RESERVED,
        ttt: Ttt(0x0a0b_0c0d),
        cmd_sn: Serial(1),
        exp_stat_sn: Serial(2),
        data_length: 3,
    };
    check(
        Pdu::NopOut(out),
        &[
            (0, &[0x40, 0x80, 0, 0, 0, 0, 0, 3]),
            (8, &LUN_BYTES),
            (16, &[0xff; 4]),
            (20, &[0x0a, 0x0b, 0x0c, 0x0d]),
            (24, &[0, 0, 0, 1, 0, 0, 0, 2]),
        ],
    );
    let nop_in = NopIn {
        lun: LUN,
        itt: ITT,
        ttt: Ttt::RESERVED,
        serials: SERIALS,
        data_length: 3,
    };
    check(
        Pdu::NopIn(nop_in),
        &[
            (0, &[0x20, 0x80, 0, 0, 0, 0, 0, 3]),
            (8, &LUN_BYTES),
            (16, &ITT_BYTES),
            (20, &[0xff; 4]),
            (24, &SERIAL_BYTES),
        ],
    );
}

#[test]
fn an_unknown_opcode_keeps_its_common_fields() {
    let bytes = laid_out(&[(0, &[0x5c, 0xff, 0, 0, 0, 0, 0, 5]), (16, &ITT_BYTES)]);
    let unknown = UnknownPdu {
        opcode: Opcode::Other(0x1c),
        immediate: true,
        itt: ITT,
        data_length: 5,
    };
    let pdu = Pdu::read(&bytes);
    assert_eq!(pdu, Pdu::Unknown(unknown));
    assert_eq!((pdu.data_length(), pdu.encode()), (5, None));
}

#[test]
#[should_panic(expected = "does not fit DataSegmentLength")]
fn a_data_segment_that_is_too_long_is_a_bug() {
    let data = DataOut::read(&[0; 48]);
    encode(&DataOut {
        data_length: 1 << 24,
        ..data
    });
}

#[test]
fn residuals_are_counted() {
    assert_eq!(Residual::of(512, 512), Residual::None);
    assert_eq!(Residual::of(512, 500), Residual::Underflow(12));
    assert_eq!(Residual::of(512, 1024), Residual::Overflow(512));
    assert_eq!(Residual::of(1, u64::MAX), Residual::Overflow(u32::MAX));
}

#[test]
fn sense_data_is_found_after_its_length() {
    assert_eq!(sense_prefix(18), [0, 18]);
    assert_eq!(parse_sense(&[0, 2, 7, 8, 9]), Some((&[7, 8][..], &[9][..])));
    assert_eq!(parse_sense(&[]), Some((&[][..], &[][..])));
    assert_eq!(parse_sense(&[0]), None);
    assert_eq!(parse_sense(&[0, 3, 7, 8]), None);
}

#[test]
fn an_isid_shows_its_format() {
    let isid = Isid([0x00, 0x02, 0x3d, 0x01, 0x00, 0x02]);
    assert_eq!(isid.to_string(), "00023d010002");
    assert_eq!(isid.format(), IsidFormat::Oui(0x00_023d));
    let isid = Isid([0x40, 0x00, 0x01, 0x37, 0x00, 0x00]);
    assert_eq!(isid.format(), IsidFormat::EnterpriseNumber(0x137));
    assert_eq!(isid.format().to_string(), "enterprise number 311");
    let isid = Isid::random([1, 2, 3], 0x0405);
    assert_eq!(isid.0, [0x80, 1, 2, 3, 4, 5]);
    assert_eq!(isid.format(), IsidFormat::Random(0x01_0203));
    assert_eq!(Isid([0xc0; 6]).format(), IsidFormat::Reserved);
}

#[test]
fn tags_skip_the_reserved_one() {
    let mut space = IttSpace::default();
    assert_eq!([space.take(), space.take()], [Itt(0), Itt(1)]);
    let mut space = IttSpace::starting_at(Itt(0xffff_fffe));
    assert_eq!([space.take(), space.take()], [Itt(0xffff_fffe), Itt(0)]);
}

#[test]
fn additional_headers_are_read_and_refused_by_name() {
    let mut bytes = [0xee; 64];
    let cdb = put_extended_cdb(&mut bytes, &[9; 17]);
    assert_eq!(cdb, 24);
    assert_eq!(bytes[..4], [0, 18, 1, 0]);
    assert_eq!(bytes[4..24], [[9; 17].as_slice(), &[0; 3]].concat());
    let length = put_bidirectional_read_length(&mut bytes[cdb..], 0x0102_0304);
    assert_eq!(bytes[cdb..cdb + length], [0, 5, 2, 0, 1, 2, 3, 4]);
    let bytes = &bytes[..cdb + length];
    let headers: Vec<_> = AdditionalHeaders::new(bytes).collect();
    let expected = [
        Ok(AdditionalHeader::ExtendedCdb(&[9; 17])),
        Ok(AdditionalHeader::BidirectionalReadLength(0x0102_0304)),
    ];
    assert_eq!(headers, expected);
    let summary = AdditionalSummary::read(bytes).expect("well formed");
    assert_eq!(summary.extended_cdb_length, 17);
    assert_eq!(summary.bidirectional_read_length, Some(0x0102_0304));
    let refused = UnsupportedAdditional::ExtendedCdb { length: 33 };
    assert_eq!(summary.refuse(), Err(refused));
    let bidirectional = AdditionalSummary::read(&bytes[cdb..]).expect("well formed");
    assert_eq!(
        bidirectional.refuse(),
        Err(UnsupportedAdditional::Bidirectional)
    );
    let unknown = AdditionalSummary::read(&[0, 1, 0x3f, 0]).expect("well formed");
    let ahs_type = 0x3f;
    assert_eq!(
        unknown.refuse(),
        Err(UnsupportedAdditional::Unknown { ahs_type })
    );
    assert_eq!(AdditionalSummary::default().refuse(), Ok(()));
}

#[test]
fn additional_headers_that_cannot_be_are_errors() {
    let error = |bytes: &[u8]| AdditionalSummary::read(bytes).expect_err("malformed");
    let (length, left) = (12, 8);
    assert_eq!(
        error(&[0, 6, 2, 0, 0, 0, 0, 0]),
        AdditionalError::TooLong { length, left }
    );
    let ahs_type = 2;
    let length = 4;
    assert_eq!(
        error(&[0, 4, 2, 0, 0, 0, 0, 0]),
        AdditionalError::WrongLength { ahs_type, length }
    );
    let twice = [0, 5, 2, 0, 0, 0, 0, 1].repeat(2);
    assert_eq!(error(&twice), AdditionalError::Twice { ahs_type });
    let (ahs_type, length) = (1, 0);
    assert_eq!(
        error(&[0, 0, 1, 0]),
        AdditionalError::WrongLength { ahs_type, length }
    );
}

proptest! {
    /// Any bytes are read without a panic; what is written of them is read as the same.
    #[test]
    fn encoding_agrees_with_reading(
        mut bytes in proptest::array::uniform32(any::<u8>()).prop_flat_map(|first| {
            proptest::array::uniform16(any::<u8>()).prop_map(move |second| {
                let mut bytes = [0; BASIC_HEADER_SIZE];
                bytes[..32].copy_from_slice(&first);
                bytes[32..].copy_from_slice(&second);
                bytes
            })
        }),
        opcode in 0..Opcode::NAMED.len(),
    ) {
        bytes[0] = bytes[0] & !Opcode::MASK | Opcode::NAMED[opcode].value();
        let pdu = Pdu::read(&bytes);
        let encoded = pdu.encode().expect("a known PDU");
        prop_assert_eq!(Pdu::read(&encoded), pdu);
        prop_assert_eq!(pdu.data_length(), CommonHeader::read(&bytes).data_length);
    }

    /// Any bytes end the iterator, and no header is longer than they are.
    #[test]
    fn any_additional_headers_end(bytes in proptest::collection::vec(any::<u8>(), 0..1020)) {
        let count = AdditionalHeaders::new(&bytes).count();
        prop_assert!(count <= bytes.len().div_ceil(4));
        let _ = AdditionalSummary::read(&bytes);
    }
}
