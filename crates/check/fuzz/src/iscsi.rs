//! iSCSI: streams of PDUs, and logins of either side against a peer that says anything.

use weir_digest::Digest;
use weir_iscsi::chap::{ChapAlgorithm, Credentials, Secret};
use weir_iscsi::login::{
    Admission, Authentication, ChapAuthentication, Claim, InitiatorChap, InitiatorLogin,
    InitiatorSettings, InitiatorStep, LoggedIn, LoginEnvironment, LoginLimits, Refusal,
    SessionType, TargetLogin, TargetStep,
};
use weir_iscsi::negotiation::{Offer, Parameters};
use weir_iscsi::pdu::{
    DataIn, DataOut, LoginRequest, LoginResponse, NopIn, R2t, ScsiCommand, ScsiResponse, Stage,
    TextRequest, put_bidirectional_read_length,
};
use weir_iscsi::reader::{Event, FramingError, Reader, ReceiveParameters, Wanted};
use weir_iscsi::text::answer_text;
use weir_iscsi::writer::{FULL_HEADER_SIZE_MAX, TRAILER_SIZE_MAX, Writer};
use weir_iscsi::{Cid, Isid, Itt, Name, Pdu, Serial, Side, Tsih};

use crate::readers::{read_everyhow, stream_reader};

/// Data in a PDU of the full feature phase, in bytes.
const MAXIMUM_DATA: u32 = 8192;

/// Side and digests by the bits of a byte, and the login's end.
const INITIATOR: u8 = 1;
const HEADER_DIGEST: u8 = 2;
const DATA_DIGEST: u8 = 4;
const LOGIN: u8 = 8;

fn parameters(flags: u8) -> ReceiveParameters {
    ReceiveParameters {
        header_digest: flags & HEADER_DIGEST != 0,
        data_digest: flags & DATA_DIGEST != 0,
        data_segment_max: MAXIMUM_DATA,
    }
}

struct OneSide {
    reader: Reader,
}

stream_reader!(OneSide, Event, FramingError, Wanted, |_side, _event| {});

fn reader(flags: u8) -> OneSide {
    let side = match flags & INITIATOR {
        0 => Side::Target,
        _ => Side::Initiator,
    };
    let mut reader = Reader::new(side);
    if flags & LOGIN == 0 {
        reader.establish(parameters(flags));
    }
    OneSide { reader }
}

/// The PDU reader, either side, with any digests, in and after the login: what it reads does not depend on where the bytes are cut nor
/// on how its data is received, and every PDU is read again as it is written.
///
/// The first byte says side, digests and phase, the second is for the cuts.
pub fn iscsi_pdu(data: &[u8]) {
    let Some(([flags, cuts], bytes)) = data.split_first_chunk() else {
        return;
    };
    let whole = read_everyhow(bytes, *cuts, || reader(*flags));
    for event in &whole.events {
        if let Event::Pdu(pdu) = event {
            check_written(pdu);
        }
    }
    // Text comes in data.
    let mut agreed = Parameters::default();
    if answer_text(&whole.data, &mut agreed).is_ok() {
        assert!(agreed.peer_max_recv_data_segment_length >= 512);
    }
}

/// Writes a PDU's header as it was read, and reads it again.
fn check_written(pdu: &Pdu) {
    let Some(bytes) = pdu.encode() else {
        return;
    };
    let mut again = Pdu::read(&bytes);
    if let (Pdu::ScsiCommand(again), Pdu::ScsiCommand(command)) = (&mut again, pdu) {
        again.additional = command.additional;
        let _ = command.additional.refuse();
    }
    assert_eq!(&again, pdu);
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn credentials(name: &str, secret: &str) -> Credentials {
    Credentials {
        name: name.to_owned(),
        secret: Secret::new(secret.as_bytes()).expect("a secret"),
    }
}

const AUTHENTICATE: u8 = 2;
const MUTUAL: u8 = 4;
const DISCOVERY: u8 = 8;
const SMALL: u8 = 16;

fn offer(flags: u8) -> Offer {
    let mut offer = Offer::default();
    if flags & SMALL != 0 {
        // So that a target must propose.
        offer.max_burst_length = 1024;
        offer.first_burst_length = 512;
        offer.immediate_data = false;
    }
    offer
}

struct Surroundings {
    flags: u8,
    drawn: u8,
}

impl LoginEnvironment for Surroundings {
    fn admit(&mut self, claim: &Claim<'_>) -> Result<Admission, Refusal> {
        if claim.tsih != Tsih::NONE {
            return Err(Refusal::SessionDoesNotExist);
        }
        let authentication = if self.flags & AUTHENTICATE == 0 {
            Authentication::None
        } else {
            let mutual = self.flags & MUTUAL != 0;
            Authentication::Chap(Box::new(ChapAuthentication {
                initiator: credentials("host", "not to be guessed"),
                target: mutual.then(|| credentials("disk", "nor is this")),
                algorithms: ChapAlgorithm::ALL.to_vec(),
            }))
        };
        Ok(Admission {
            authentication,
            offer: offer(self.flags),
            portal_group: 1,
            target_alias: None,
        })
    }

    fn random(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.drawn = self.drawn.wrapping_mul(5).wrapping_add(3);
            *byte = self.drawn;
        }
    }
}

/// A step of a login: the bits of byte 1 of a header, and a text.
fn next_step<'a>(program: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&[flags, high, low], rest) = program.split_first_chunk()?;
    let length = usize::from(u16::from_be_bytes([high, low])).min(rest.len());
    let (text, rest) = rest.split_at(length);
    *program = rest;
    Some((flags, text))
}

/// A login, either side: nothing panics, every request is answered or refused, none gets in without the secret, and what is agreed
/// is within what was offered.
///
/// The first byte says side, authentication and session; steps follow.
pub fn iscsi_login(data: &[u8]) {
    let Some((&flags, program)) = data.split_first() else {
        return;
    };
    match flags & INITIATOR {
        0 => target_login(flags, program),
        _ => initiator_login(flags, program),
    }
}

fn check_agreed(logged_in: &LoggedIn, flags: u8) {
    let (agreed, offer) = (&logged_in.parameters, offer(flags));
    assert!(agreed.first_burst_length <= agreed.max_burst_length);
    assert!(agreed.peer_max_recv_data_segment_length >= 512);
    assert!(agreed.error_recovery_level <= offer.error_recovery_level);
    if logged_in.session != SessionType::Discovery {
        assert!((512..=offer.max_burst_length).contains(&agreed.max_burst_length));
        assert!(offer.immediate_data || !agreed.immediate_data);
        assert_eq!(agreed.max_outstanding_r2t, 1);
    }
}

fn target_login(flags: u8, mut program: &[u8]) {
    let mut surroundings = Surroundings { flags, drawn: 1 };
    let mut target = TargetLogin::new(Serial(1), 16, LoginLimits::default());
    let mut stat_sn = Serial(1);
    while let Some((bits, text)) = next_step(&mut program) {
        let request = LoginRequest {
            current_stage: Stage::from_value(bits >> 2 & 3),
            next_stage: Stage::from_value(bits & 3),
            transit: bits & 0x80 != 0,
            continues: bits & 0x40 != 0,
            data_length: text.len() as u32,
            ..LoginRequest::read(&[0; 48])
        };
        let response = match target.receive(&request, text, &mut surroundings) {
            TargetStep::Respond(response) => response,
            TargetStep::Complete(logged_in) => {
                assert_eq!(flags & AUTHENTICATE, 0, "nobody knows the secret");
                check_agreed(&logged_in, flags);
                let response = target.accept(Tsih(1));
                assert!(response.header.transit && !response.header.continues);
                return;
            }
            TargetStep::Refused { response, error } => {
                assert!(!error.status().is_success() && !error.to_string().is_empty());
                assert_eq!(response.header.status, error.status());
                return;
            }
        };
        assert!(response.text.len() <= MAXIMUM_DATA as usize);
        assert_eq!(response.header.serials.stat_sn, stat_sn);
        assert!(!response.header.transit || response.header.next_stage == Stage::Operational);
        stat_sn = stat_sn.next();
    }
}

fn initiator_login(flags: u8, mut program: &[u8]) {
    let session = if flags & DISCOVERY == 0 {
        SessionType::Normal(name("iqn.2026-01.org.example:disk"))
    } else {
        SessionType::Discovery
    };
    let chap = (flags & AUTHENTICATE != 0).then(|| InitiatorChap {
        initiator: credentials("host", "not to be guessed"),
        target: (flags & MUTUAL != 0).then(|| credentials("disk", "nor is this")),
        algorithms: ChapAlgorithm::ALL.to_vec(),
    });
    let mut login = InitiatorLogin::new(InitiatorSettings {
        initiator: name("iqn.2026-01.org.example:host"),
        alias: None,
        session,
        isid: Isid([0; 6]),
        tsih: Tsih::NONE,
        cid: Cid(0),
        itt: Itt(0),
        cmd_sn: Serial(1),
        chap,
        offer: offer(flags),
    });
    login.start();
    let mut stat_sn = Serial(7);
    while let Some((bits, text)) = next_step(&mut program) {
        let mut response = LoginResponse {
            current_stage: Stage::from_value(bits >> 2 & 3),
            next_stage: Stage::from_value(bits & 3),
            transit: bits & 0x80 != 0,
            continues: bits & 0x40 != 0,
            tsih: Tsih(u16::from(bits >> 4 & 1)),
            data_length: text.len() as u32,
            ..LoginResponse::read(&[0; 48])
        };
        response.serials.stat_sn = stat_sn;
        stat_sn = stat_sn.next();
        match login.receive(&response, text, &mut |bytes| bytes.fill(0x5a)) {
            Ok(InitiatorStep::Send(request)) => {
                assert!(request.text.len() <= MAXIMUM_DATA as usize);
                assert!(!(request.header.transit && request.header.continues));
            }
            Ok(InitiatorStep::Complete(logged_in)) => {
                let mutual = AUTHENTICATE | MUTUAL;
                assert_ne!(flags & mutual, mutual, "nobody knows the secret");
                check_agreed(&logged_in, flags);
                return;
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                return;
            }
        }
    }
}

/// Writes a PDU with this data.
fn write(stream: &mut Vec<u8>, writer: &Writer, header: &[u8], data: &[u8]) {
    stream.extend(header);
    stream.extend(data);
    let mut trailer = [0; TRAILER_SIZE_MAX];
    let length = writer.trailer(&mut trailer, data.len() as u32, Digest::of(data));
    stream.extend(&trailer[..length]);
}

/// Streams of PDUs for both sides, with each choice of digests.
pub(crate) fn pdu_seeds() -> Vec<Vec<u8>> {
    let mut inputs = Vec::new();
    let blank = [0; 48];
    for digests in [0, HEADER_DIGEST, DATA_DIGEST, HEADER_DIGEST | DATA_DIGEST] {
        let writer = Writer {
            header_digest: digests & HEADER_DIGEST != 0,
            data_digest: digests & DATA_DIGEST != 0,
        };
        let mut buffer = [0; FULL_HEADER_SIZE_MAX];
        let data = [0x5a; 30];
        let data_length = 30;
        let mut stream = vec![digests, 3];
        let command = ScsiCommand {
            data_length,
            ..ScsiCommand::read(&blank)
        };
        let mut additional = [0; 8];
        put_bidirectional_read_length(&mut additional, 512);
        let length = writer.header_with_additional(&mut buffer, &command, &additional);
        write(&mut stream, &writer, &buffer[..length], &data);
        let out = DataOut {
            data_length,
            ..DataOut::read(&blank)
        };
        let length = writer.header(&mut buffer, &out);
        write(&mut stream, &writer, &buffer[..length], &data);
        let text = b"SendTargets=All\0X-a=1\0MaxRecvDataSegmentLength=512\0";
        let request = TextRequest {
            data_length: text.len() as u32,
            ..TextRequest::read(&blank)
        };
        let length = writer.header(&mut buffer, &request);
        write(&mut stream, &writer, &buffer[..length], text);
        inputs.push(stream);
        let mut stream = vec![digests | INITIATOR, 3];
        let data_in = DataIn {
            data_length,
            ..DataIn::read(&blank)
        };
        let length = writer.header(&mut buffer, &data_in);
        write(&mut stream, &writer, &buffer[..length], &data);
        for length in [
            writer.header(&mut buffer, &ScsiResponse::read(&blank)),
            writer.header(&mut buffer, &R2t::read(&blank)),
            writer.header(&mut buffer, &NopIn::read(&blank)),
        ] {
            write(&mut stream, &writer, &buffer[..length], &[]);
        }
        inputs.push(stream);
    }
    inputs.push([&[LOGIN, 0][..], &[0x43], &[0; 47]].concat());
    inputs.push([&[LOGIN | INITIATOR, 0][..], &[0x23], &[0; 47]].concat());
    inputs
}

/// Logins of both sides, by the bits of byte 1 of each header and its text.
pub(crate) fn login_seeds() -> Vec<Vec<u8>> {
    const NAMES: &str =
        "InitiatorName=iqn.2026-01.org.example:host\0TargetName=iqn.2026-01.org.example:disk\0";
    const OPERATIONAL: &str = "HeaderDigest=CRC32C,None\0InitialR2T=No\0ImmediateData=Yes\0MaxBurstLength=16776192\0FirstBurstLength=0x10000\0DefaultTime2Wait=2\0ErrorRecoveryLevel=0\0IFMarker=No\0TaskReporting=RFC3720\0MaxRecvDataSegmentLength=8192\0X-a=1\0";
    let logins: [(u8, Vec<(u8, String)>); 8] = [
        (
            0,
            vec![
                (0x81, format!("{NAMES}AuthMethod=None\0")),
                (0x87, OPERATIONAL.to_owned()),
            ],
        ),
        (
            SMALL,
            vec![
                (0x87, format!("{NAMES}{OPERATIONAL}")),
                (0x87, String::new()),
            ],
        ),
        (
            SMALL,
            vec![
                (0x87, NAMES.to_owned()),
                (
                    0x87,
                    "MaxBurstLength=1024\0FirstBurstLength=512\0".to_owned(),
                ),
            ],
        ),
        (
            0,
            vec![
                (0x44, NAMES[..30].to_owned()),
                (0x87, NAMES[30..].to_owned()),
            ],
        ),
        (
            AUTHENTICATE | MUTUAL,
            vec![
                (0x00, format!("{NAMES}AuthMethod=CHAP,None\0")),
                (0x00, "CHAP_A=7,5\0".to_owned()),
                (
                    0x81,
                    "CHAP_N=host\0CHAP_R=0b0000\0CHAP_I=1\0CHAP_C=0x01\0".to_owned(),
                ),
            ],
        ),
        (
            INITIATOR,
            vec![
                (0x81, "TargetPortalGroupTag=1\0AuthMethod=None\0".to_owned()),
                (
                    0x97,
                    OPERATIONAL
                        .replace("CRC32C,", "")
                        .replace("16776192", "65536"),
                ),
            ],
        ),
        (
            INITIATOR | DISCOVERY,
            vec![
                (0x81, "AuthMethod=None\0".to_owned()),
                (0x97, "HeaderDigest=None\0".to_owned()),
            ],
        ),
        (
            INITIATOR | AUTHENTICATE | MUTUAL,
            vec![
                (0x00, "AuthMethod=CHAP\0".to_owned()),
                (0x00, "CHAP_A=5\0CHAP_I=1\0CHAP_C=0x0102\0".to_owned()),
                (0x81, "CHAP_N=disk\0CHAP_R=0x00\0".to_owned()),
            ],
        ),
    ];
    let program = |(flags, steps): (u8, Vec<(u8, String)>)| {
        let mut input = vec![flags];
        for (bits, text) in steps {
            input.push(bits);
            input.extend((text.len() as u16).to_be_bytes());
            input.extend(text.as_bytes());
        }
        input
    };
    logins.into_iter().map(program).collect()
}
