//! Tests of the login: each side against a script, both against each other, and every refusal by its status.

use super::*;
use crate::chap::{Credentials, Secret};
use crate::keys::parse_binary;
use crate::negotiation::Offer;
use crate::negotiation::tests::{check_agreement, offers};
use crate::pdu::{Itt, ResponseSerials};
use crate::status::LoginStatus;
use proptest::prelude::*;

const INITIATOR: &str = "iqn.1993-08.org.debian:01:host";
const TARGET: &str = "iqn.2026-01.org.example:disk1";
const ISID: Isid = Isid([0x80, 1, 2, 3, 0, 0]);
const ITT: Itt = Itt(7);
const CMD_SN: Serial = Serial(0xffff_fffe);
const STAT_SN: Serial = Serial(100);
const WINDOW: u32 = 64;

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn secret(text: &str) -> Secret {
    Secret::new(text.as_bytes()).expect("a secret")
}

fn credentials(name: &str, text: &str) -> Credentials {
    Credentials {
        name: name.into(),
        secret: secret(text),
    }
}

fn chap(target: bool, algorithms: &[ChapAlgorithm]) -> Authentication {
    Authentication::Chap(Box::new(ChapAuthentication {
        initiator: credentials("host1", "secret of the host"),
        target: target.then(|| credentials("disk1", "secret of the target")),
        algorithms: algorithms.to_vec(),
    }))
}

fn initiator_chap(target: bool) -> InitiatorChap {
    InitiatorChap {
        initiator: credentials("host1", "secret of the host"),
        target: target.then(|| credentials("disk1", "secret of the target")),
        algorithms: ChapAlgorithm::ALL.to_vec(),
    }
}

/// Admits as it is told, and draws numbers that only look random.
struct Surroundings {
    admission: Result<Admission, Refusal>,
    drawn: u8,
    /// Names and TSIH of what was claimed.
    claimed: Vec<(String, SessionType, Tsih)>,
}

impl Surroundings {
    fn new(authentication: Authentication, offer: Offer) -> Self {
        Self {
            admission: Ok(Admission {
                authentication,
                offer,
                portal_group: 1,
                target_alias: Some("disk one".into()),
            }),
            drawn: 0,
            claimed: vec![],
        }
    }

    fn open() -> Self {
        Self::new(Authentication::None, Offer::default())
    }

    fn refusing(refusal: Refusal) -> Self {
        Self {
            admission: Err(refusal),
            ..Self::open()
        }
    }
}

impl LoginEnvironment for Surroundings {
    fn admit(&mut self, claim: &Claim<'_>) -> Result<Admission, Refusal> {
        let name = claim.initiator.to_string();
        self.claimed.push((name, claim.session.clone(), claim.tsih));
        self.admission.clone()
    }

    fn random(&mut self, bytes: &mut [u8]) {
        draw(&mut self.drawn, bytes);
    }
}

fn draw(state: &mut u8, bytes: &mut [u8]) {
    for byte in bytes {
        *state = state.wrapping_mul(5).wrapping_add(3);
        *byte = *state;
    }
}

fn target() -> TargetLogin {
    TargetLogin::new(STAT_SN, WINDOW, LoginLimits::default())
}

fn settings(session: SessionType, chap: Option<InitiatorChap>, offer: Offer) -> InitiatorSettings {
    InitiatorSettings {
        initiator: name(INITIATOR),
        alias: Some("host".into()),
        session,
        isid: ISID,
        tsih: Tsih::NONE,
        cid: Cid(3),
        itt: ITT,
        cmd_sn: CMD_SN,
        chap,
        offer,
    }
}

fn normal() -> SessionType {
    SessionType::Normal(name(TARGET))
}

/// The end of a login of both sides.
#[derive(Debug)]
enum End {
    Both(Box<LoggedIn>, Box<LoggedIn>),
    TargetRefused(LoginError, InitiatorLoginError),
    InitiatorFailed(InitiatorLoginError),
}

/// Runs both sides against each other; returns how it ended, and how many requests it took.
fn run(initiator: &mut InitiatorLogin, surroundings: &mut Surroundings) -> (End, u32) {
    let mut target = target();
    let mut drawn = 99;
    let mut request = initiator.start();
    let mut requests = 1;
    loop {
        assert_eq!(request.header.data_length as usize, request.text.len());
        let step = target.receive(&request.header, &request.text, surroundings);
        let (response, logged_in, error) = match step {
            TargetStep::Respond(response) => (response, None, None),
            TargetStep::Complete(logged_in) => (target.accept(Tsih(9)), Some(logged_in), None),
            TargetStep::Refused { response, error } => (response, None, Some(error)),
        };
        assert_eq!(response.header.data_length as usize, response.text.len());
        let mut random = |bytes: &mut [u8]| draw(&mut drawn, bytes);
        match (
            initiator.receive(&response.header, &response.text, &mut random),
            logged_in,
            error,
        ) {
            (Ok(InitiatorStep::Send(next)), None, None) => request = next,
            (Ok(InitiatorStep::Complete(ours)), Some(theirs), None) => {
                return (End::Both(ours, theirs), requests);
            }
            (Err(ours), None, Some(theirs)) => return (End::TargetRefused(theirs, ours), requests),
            (Err(error), _, None) => return (End::InitiatorFailed(error), requests),
            other => panic!("the sides differ: {other:?}"),
        }
        requests += 1;
    }
}

fn run_with(
    session: SessionType,
    chap: Option<InitiatorChap>,
    surroundings: &mut Surroundings,
) -> (End, u32) {
    let mut login = InitiatorLogin::new(settings(session, chap, Offer::default()));
    run(&mut login, surroundings)
}

#[track_caller]
fn both(end: End) -> (LoggedIn, LoggedIn) {
    match end {
        End::Both(initiator, target) => (*initiator, *target),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_session_without_authentication() {
    let mut surroundings = Surroundings::open();
    let mut login = InitiatorLogin::new(settings(normal(), None, Offer::default()));
    let (end, requests) = run(&mut login, &mut surroundings);
    assert_eq!(requests, 2);
    assert_eq!(login.portal_group(), Some(1));
    let (initiator, target) = both(end);
    assert_eq!(
        surroundings.claimed,
        [(INITIATOR.to_owned(), normal(), Tsih::NONE)]
    );
    assert_eq!((initiator.tsih, target.tsih), (Tsih(9), Tsih::NONE));
    assert_eq!(target.initiator, name(INITIATOR));
    assert_eq!(target.initiator_alias.as_deref(), Some("host"));
    assert_eq!(target.session, normal());
    assert_eq!((target.isid, target.cid), (ISID, Cid(3)));
    assert_eq!(target.user, None);
    // Two responses had a StatSN; the commands begin with the login's CmdSN.
    assert_eq!(
        (target.stat_sn, initiator.stat_sn),
        (Serial(102), Serial(102))
    );
    assert_eq!((target.cmd_sn, target.max_cmd_sn), (CMD_SN, Serial(61)));
    assert_eq!(initiator.max_cmd_sn, target.max_cmd_sn);
    assert!(!target.parameters.initial_r2t && target.parameters.immediate_data);
}

#[test]
fn a_discovery_session() {
    let mut surroundings = Surroundings::open();
    let (initiator, target) = both(run_with(SessionType::Discovery, None, &mut surroundings).0);
    assert_eq!(target.session, SessionType::Discovery);
    assert_eq!(initiator.session, SessionType::Discovery);
    assert_eq!(surroundings.claimed[0].1, SessionType::Discovery);
}

#[test]
fn chap_of_one_way_and_of_both() {
    for algorithm in ChapAlgorithm::ALL {
        for mutual in [false, true] {
            let mut surroundings = Surroundings::new(chap(true, &[algorithm]), Offer::default());
            let ours = initiator_chap(mutual);
            let (end, requests) = run_with(normal(), Some(ours), &mut surroundings);
            let (initiator, target) = both(end);
            assert_eq!(target.user.as_deref(), Some("host1"));
            assert_eq!(initiator.user.as_deref(), Some("host1"));
            assert_eq!(requests, 4);
        }
    }
}

#[test]
fn an_initiator_that_can_but_need_not() {
    let mut surroundings = Surroundings::open();
    let (initiator, target) =
        both(run_with(normal(), Some(initiator_chap(false)), &mut surroundings).0);
    assert_eq!((initiator.user, target.user), (None, None));
}

/// Status, and what the target says of it.
#[track_caller]
fn refused(end: End) -> (LoginStatus, LoginError) {
    match end {
        End::TargetRefused(error, InitiatorLoginError::Refused(status)) => {
            assert_eq!(error.status(), status);
            (status, error)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn wrong_secrets_and_names_are_refused_alike() {
    let authentication = || chap(true, &ChapAlgorithm::ALL);
    for (name, text) in [
        ("host1", "another secret"),
        ("host2", "secret of the host"),
        ("", "x"),
    ] {
        let mut ours = initiator_chap(false);
        ours.initiator = credentials(name, text);
        let mut surroundings = Surroundings::new(authentication(), Offer::default());
        let (status, error) = refused(run_with(normal(), Some(ours), &mut surroundings).0);
        assert_eq!(status, LoginStatus::AuthenticationFailure);
        let name = name.to_owned();
        assert_eq!(error, LoginError::Chap(ChapError::Wrong { name }));
    }
}

#[test]
fn a_target_with_a_wrong_secret_is_not_believed() {
    let mut ours = initiator_chap(true);
    ours.target = Some(credentials("disk1", "another secret"));
    let mut surroundings = Surroundings::new(chap(true, &ChapAlgorithm::ALL), Offer::default());
    match run_with(normal(), Some(ours), &mut surroundings).0 {
        End::InitiatorFailed(InitiatorLoginError::Chap(ChapError::Wrong { name })) => {
            assert_eq!(name, "disk1");
        }
        other => panic!("{other:?}"),
    }
    // Nor is one that wants no proof at all.
    let mut surroundings = Surroundings::open();
    let (status, error) =
        refused(run_with(normal(), Some(initiator_chap(true)), &mut surroundings).0);
    assert_eq!(status, LoginStatus::AuthenticationFailure);
    assert!(matches!(error, LoginError::NoMethod { .. }), "{error}");
}

#[test]
fn authentication_that_cannot_be_is_refused() {
    let mut surroundings = Surroundings::new(chap(false, &ChapAlgorithm::ALL), Offer::default());
    let (status, error) = refused(run_with(normal(), None, &mut surroundings).0);
    assert_eq!(status, LoginStatus::AuthenticationFailure);
    assert!(matches!(error, LoginError::NoMethod { .. }), "{error}");

    let mut ours = initiator_chap(false);
    ours.algorithms = vec![ChapAlgorithm::Md5];
    let mut surroundings =
        Surroundings::new(chap(false, &[ChapAlgorithm::Sha256]), Offer::default());
    let (_, error) = refused(run_with(normal(), Some(ours), &mut surroundings).0);
    let (offered, allowed) = ("5".to_owned(), "7".to_owned());
    assert_eq!(
        error,
        LoginError::Chap(ChapError::NoAlgorithm { offered, allowed })
    );

    let mut surroundings = Surroundings::new(chap(false, &ChapAlgorithm::ALL), Offer::default());
    let (_, error) = refused(run_with(normal(), Some(initiator_chap(true)), &mut surroundings).0);
    assert_eq!(error, LoginError::Chap(ChapError::NoTargetSecret));
}

#[test]
fn one_secret_for_both_directions_is_refused() {
    let shared = || Some(credentials("disk1", "secret of the host"));
    let mut ours = initiator_chap(true);
    let Authentication::Chap(mut theirs) = chap(true, &ChapAlgorithm::ALL) else {
        unreachable!("CHAP is required")
    };
    theirs.target = shared();
    let theirs = Authentication::Chap(theirs);
    let mut surroundings = Surroundings::new(theirs, Offer::default());
    let (_, error) = refused(run_with(normal(), Some(ours.clone()), &mut surroundings).0);
    assert_eq!(error, LoginError::Chap(ChapError::SameSecret));
    ours.target = shared();
    match run_with(normal(), Some(ours), &mut surroundings).0 {
        End::InitiatorFailed(error) => assert_eq!(error, ChapError::SameSecret.into()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_served_refuses_by_its_status() {
    for (refusal, status) in [
        (Refusal::NotFound, LoginStatus::NotFound),
        (Refusal::Removed, LoginStatus::TargetRemoved),
        (Refusal::Forbidden, LoginStatus::AuthorizationFailure),
        (Refusal::TooManyConnections, LoginStatus::TooManyConnections),
        (
            Refusal::SessionDoesNotExist,
            LoginStatus::SessionDoesNotExist,
        ),
        (Refusal::CannotInclude, LoginStatus::CannotInclude),
        (
            Refusal::SessionTypeNotSupported,
            LoginStatus::SessionTypeNotSupported,
        ),
        (Refusal::Unavailable, LoginStatus::ServiceUnavailable),
        (Refusal::OutOfResources, LoginStatus::OutOfResources),
    ] {
        let mut surroundings = Surroundings::refusing(refusal.clone());
        let (said, error) = refused(run_with(normal(), None, &mut surroundings).0);
        assert_eq!((said, error), (status, LoginError::Refused(refusal)));
    }
}

#[test]
fn a_target_that_moved_says_where_to() {
    for (refusal, expected) in [
        (
            Refusal::MovedTemporarily {
                address: "[2001:db8::1]:3260".into(),
            },
            LoginStatus::MovedTemporarily,
        ),
        (
            Refusal::MovedPermanently {
                address: "[2001:db8::1]:3260".into(),
            },
            LoginStatus::MovedPermanently,
        ),
    ] {
        let mut surroundings = Surroundings::refusing(refusal);
        match run_with(normal(), None, &mut surroundings).0 {
            End::TargetRefused(_, InitiatorLoginError::Moved { status, address }) => {
                assert_eq!((status, &*address), (expected, "[2001:db8::1]:3260"));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A request by hand.
fn request(current: Stage, next: Option<Stage>, text: &str) -> (LoginRequest, Vec<u8>) {
    let header = LoginRequest {
        transit: next.is_some(),
        continues: false,
        current_stage: current,
        next_stage: next.unwrap_or(Stage::Security),
        version_max: 0,
        version_min: 0,
        isid: ISID,
        tsih: Tsih::NONE,
        itt: ITT,
        cid: Cid(3),
        cmd_sn: CMD_SN,
        exp_stat_sn: Serial(0),
        data_length: text.len() as u32,
    };
    (header, text.as_bytes().to_vec())
}

fn names() -> String {
    format!("InitiatorName={INITIATOR}\0SessionType=Normal\0TargetName={TARGET}\0")
}

fn respond(step: TargetStep) -> (LoginResponse, String) {
    match step {
        TargetStep::Respond(Response { header, text }) => {
            (header, String::from_utf8(text).expect("text"))
        }
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn refusal(step: TargetStep) -> (LoginStatus, LoginError) {
    match step {
        TargetStep::Refused { response, error } => {
            assert_eq!(response.header.status, error.status());
            assert!(!response.header.transit && !response.header.continues);
            (response.header.status, error)
        }
        other => panic!("{other:?}"),
    }
}

/// A login of open-iscsi, with its keys; the answers are those that it expects.
#[test]
fn a_linux_host_logs_in() {
    let mut target = target();
    let mut surroundings = Surroundings::new(
        Authentication::None,
        Offer {
            max_recv_data_segment_length: 262_144,
            ..Offer::default()
        },
    );
    let (header, text) = request(
        Stage::Security,
        Some(Stage::Operational),
        &format!(
            "{}InitiatorAlias=host\0AuthMethod=None\0",
            names()
                .replace("SessionType=Normal\0", "")
                .replace("TargetName", "SessionType=Normal\0TargetName")
        ),
    );
    let (header, text) = respond(target.receive(&header, &text, &mut surroundings));
    assert_eq!(
        text,
        "TargetPortalGroupTag=1\0TargetAlias=disk one\0AuthMethod=None\0"
    );
    assert_eq!(
        (header.transit, header.current_stage, header.next_stage),
        (true, Stage::Security, Stage::Operational)
    );
    assert_eq!(
        (header.isid, header.itt, header.tsih),
        (ISID, ITT, Tsih::NONE)
    );
    assert_eq!(
        header.serials,
        ResponseSerials {
            stat_sn: STAT_SN,
            exp_cmd_sn: CMD_SN,
            max_cmd_sn: CMD_SN.plus(63),
        }
    );
    let (header, text) = request(
        Stage::Operational,
        Some(Stage::FullFeature),
        "HeaderDigest=None\0DataDigest=None\0DefaultTime2Wait=2\0DefaultTime2Retain=0\0\
         IFMarker=No\0OFMarker=No\0ErrorRecoveryLevel=0\0InitialR2T=No\0ImmediateData=Yes\0\
         MaxBurstLength=16776192\0FirstBurstLength=262144\0MaxOutstandingR2T=1\0MaxConnections=1\0\
         DataPDUInOrder=Yes\0DataSequenceInOrder=Yes\0MaxRecvDataSegmentLength=262144\0",
    );
    let step = target.receive(&header, &text, &mut surroundings);
    let TargetStep::Complete(logged_in) = step else {
        panic!("{step:?}")
    };
    let Response { header, text } = target.accept(Tsih(5));
    assert_eq!(
        String::from_utf8(text).expect("text"),
        "HeaderDigest=None\0DataDigest=None\0DefaultTime2Wait=2\0DefaultTime2Retain=0\0\
         IFMarker=No\0OFMarker=No\0ErrorRecoveryLevel=0\0InitialR2T=No\0ImmediateData=Yes\0\
         MaxBurstLength=262144\0MaxOutstandingR2T=1\0MaxConnections=1\0\
         DataPDUInOrder=Yes\0DataSequenceInOrder=Yes\0FirstBurstLength=65536\0\
         MaxRecvDataSegmentLength=262144\0"
    );
    assert_eq!(
        (header.transit, header.next_stage),
        (true, Stage::FullFeature)
    );
    assert_eq!(
        (header.tsih, header.serials.stat_sn),
        (Tsih(5), Serial(101))
    );
    assert_eq!(logged_in.stat_sn, Serial(102));
    assert_eq!(
        logged_in.parameters.peer_max_recv_data_segment_length,
        262_144
    );
    let receive = logged_in.parameters.receive();
    assert_eq!(
        (receive.data_segment_max, receive.header_digest),
        (262_144, false)
    );
}

/// From the first request to the full feature phase.
#[test]
fn a_request_that_skips_everything_logs_in() {
    for current in [Stage::Security, Stage::Operational] {
        let (header, text) = request(current, Some(Stage::FullFeature), &names());
        let step = target().receive(&header, &text, &mut Surroundings::open());
        assert!(matches!(step, TargetStep::Complete(_)), "{step:?}");
    }
}

#[test]
fn the_caller_refuses_at_the_end() {
    let mut target = target();
    let (header, text) = request(Stage::Operational, Some(Stage::FullFeature), &names());
    let step = target.receive(&header, &text, &mut Surroundings::open());
    assert!(matches!(step, TargetStep::Complete(_)), "{step:?}");
    let response = target.refuse(Refusal::OutOfResources);
    assert_eq!(response.header.status, LoginStatus::OutOfResources);
    assert!(!response.header.transit && response.text.is_empty());
}

#[test]
fn authentication_is_not_skipped() {
    let closed = || Surroundings::new(chap(true, &ChapAlgorithm::ALL), Offer::default());
    for (current, next) in [
        (Stage::Operational, None),
        (Stage::Operational, Some(Stage::FullFeature)),
        (Stage::Security, Some(Stage::Operational)),
        (Stage::Security, Some(Stage::FullFeature)),
    ] {
        let (header, text) = request(current, next, &names());
        let step = target().receive(&header, &text, &mut closed());
        let (status, error) = refusal(step);
        assert_eq!(status, LoginStatus::AuthenticationFailure);
        assert_eq!(error, LoginError::AuthenticationRequired);
    }
    // Asking for the next stage in the middle of CHAP leads nowhere.
    let mut target = target();
    let mut surroundings = closed();
    for text in [
        format!("{}AuthMethod=CHAP,None\0", names()),
        "CHAP_A=5\0".to_owned(),
    ] {
        let (header, text) = request(Stage::Security, Some(Stage::FullFeature), &text);
        let (header, _) = respond(target.receive(&header, &text, &mut surroundings));
        assert!(!header.transit);
    }
    let (header, text) = request(Stage::Security, Some(Stage::FullFeature), "");
    let (_, error) = refusal(target.receive(&header, &text, &mut surroundings));
    assert_eq!(error, LoginError::Chap(ChapError::Missing(Key::ChapName)));
}

/// A target in the middle of CHAP by MD5, and its challenge.
fn challenged(surroundings: &mut Surroundings) -> (TargetLogin, Challenge) {
    let mut target = target();
    let text = format!("{}AuthMethod=CHAP\0", names());
    let (header, text) = request(Stage::Security, None, &text);
    let (_, text) = respond(target.receive(&header, &text, surroundings));
    assert!(text.ends_with("AuthMethod=CHAP\0"));
    let (header, text) = request(Stage::Security, None, "CHAP_A=5\0");
    let (_, text) = respond(target.receive(&header, &text, surroundings));
    let text = Text::parse(text.as_bytes()).expect("well formed");
    assert_eq!(text.get(Key::ChapAlgorithm), Some("5"));
    let challenge = read_challenge(&text, ChapAlgorithm::Md5).expect("a challenge");
    assert_eq!(challenge.bytes().len(), 16);
    (target, challenge)
}

fn chap_answer(challenge: &Challenge) -> String {
    let mut text = TextWriter::new();
    let response = challenge.response(&secret("secret of the host"));
    push_response(&mut text, "host1", &response);
    String::from_utf8(text.into_bytes()).expect("text")
}

#[test]
fn a_reflected_challenge_is_refused() {
    let mut surroundings = Surroundings::new(chap(true, &ChapAlgorithm::ALL), Offer::default());
    let (mut target, challenge) = challenged(&mut surroundings);
    let mut text = chap_answer(&challenge);
    text += &format!("CHAP_I=1\0CHAP_C={}\0", hexadecimal(challenge.bytes()));
    let (header, text) = request(Stage::Security, Some(Stage::Operational), &text);
    let (status, error) = refusal(target.receive(&header, &text, &mut surroundings));
    assert_eq!(status, LoginStatus::AuthenticationFailure);
    assert_eq!(error, LoginError::Chap(ChapError::Reflected));
}

#[test]
fn the_target_proves_itself_with_its_own_secret() {
    let mut surroundings = Surroundings::new(chap(true, &ChapAlgorithm::ALL), Offer::default());
    let (mut target, challenge) = challenged(&mut surroundings);
    let ours = Challenge::received(ChapAlgorithm::Md5, 255, vec![9; 1024]).expect("a challenge");
    let text =
        chap_answer(&challenge) + &format!("CHAP_I=255\0CHAP_C={}\0", hexadecimal(&[9; 1024]));
    let (header, text) = request(Stage::Security, Some(Stage::Operational), &text);
    let (header, text) = respond(target.receive(&header, &text, &mut surroundings));
    assert!(header.transit);
    let text = Text::parse(text.as_bytes()).expect("well formed");
    assert_eq!(text.get(Key::ChapName), Some("disk1"));
    let response = parse_binary(text.get(Key::ChapResponse).expect("a response"));
    let response = response.expect("a binary value");
    assert!(ours.is_answered_by(&response, &secret("secret of the target")));
}

#[test]
fn malformed_chap_keys_are_refused() {
    for (name, response, rest, error) in [
        (None, Some("0x00"), "", ChapError::Missing(Key::ChapName)),
        (
            Some("host1"),
            None,
            "",
            ChapError::Missing(Key::ChapResponse),
        ),
        (
            Some("host1"),
            Some("00"),
            "",
            ChapError::Malformed(Key::ChapResponse),
        ),
        (
            Some("host1"),
            Some(""),
            "CHAP_I=1\0",
            ChapError::Missing(Key::ChapChallenge),
        ),
        (
            Some("host1"),
            Some(""),
            "CHAP_C=0x00\0",
            ChapError::Missing(Key::ChapIdentifier),
        ),
        (
            Some("host1"),
            Some(""),
            "CHAP_I=256\0CHAP_C=0x00\0",
            ChapError::Malformed(Key::ChapIdentifier),
        ),
        (
            Some("host1"),
            Some(""),
            "CHAP_I=1\0CHAP_C=0x\0",
            ChapError::Malformed(Key::ChapChallenge),
        ),
    ] {
        let mut surroundings = Surroundings::new(chap(true, &ChapAlgorithm::ALL), Offer::default());
        let (mut target, challenge) = challenged(&mut surroundings);
        let right = hexadecimal(&challenge.response(&secret("secret of the host")));
        let mut text = TextWriter::new();
        if let Some(name) = name {
            text.push("CHAP_N", name);
        }
        if let Some(response) = response {
            text.push(
                "CHAP_R",
                if response.is_empty() {
                    &right
                } else {
                    response
                },
            );
        }
        let text = String::from_utf8(text.into_bytes()).expect("text") + rest;
        let (header, text) = request(Stage::Security, None, &text);
        let (status, said) = refusal(target.receive(&header, &text, &mut surroundings));
        assert_eq!(status, LoginStatus::AuthenticationFailure);
        assert_eq!(said, LoginError::Chap(error));
    }
}

#[test]
fn first_requests_that_lack_something_are_refused() {
    for (text, status, error) in [
        (
            format!("TargetName={TARGET}\0"),
            LoginStatus::MissingParameter,
            LoginError::MissingInitiatorName,
        ),
        (
            format!("InitiatorName={INITIATOR}\0"),
            LoginStatus::MissingParameter,
            LoginError::MissingTargetName,
        ),
        (
            format!("InitiatorName={INITIATOR}\0SessionType=Copy\0"),
            LoginStatus::SessionTypeNotSupported,
            LoginError::UnsupportedSessionType {
                value: "Copy".into(),
            },
        ),
        (
            "InitiatorName=host\0SessionType=Discovery\0".to_owned(),
            LoginStatus::InitiatorError,
            LoginError::Name {
                key: Key::InitiatorName,
                error: crate::names::NameError::UnknownFormat,
            },
        ),
        (
            format!("{}InitiatorName={INITIATOR}\0", names()),
            LoginStatus::InitiatorError,
            NegotiationError::Twice {
                key: "InitiatorName".into(),
            }
            .into(),
        ),
        (
            format!("{}X-a=1\0X-a=2\0", names()),
            LoginStatus::InitiatorError,
            NegotiationError::Twice { key: "X-a".into() }.into(),
        ),
        (
            names() + "AuthMethod",
            LoginStatus::InitiatorError,
            TextError::NotEnded.into(),
        ),
        (
            "x".repeat(16 * 1024 + 1),
            LoginStatus::InitiatorError,
            TextError::TooLong { maximum: 16 * 1024 }.into(),
        ),
    ] {
        let (header, text) = request(Stage::Security, None, &text);
        let step = target().receive(&header, &text, &mut Surroundings::open());
        assert_eq!(refusal(step), (status, error));
    }
}

#[test]
fn headers_that_cannot_be_are_refused() {
    let first = request(Stage::Security, Some(Stage::Operational), &names()).0;
    let (current, next) = (Stage::Operational, Stage::Security);
    for (change, error) in [
        (
            LoginRequest {
                version_min: 1,
                version_max: 2,
                ..first
            },
            LoginError::UnsupportedVersion {
                minimum: 1,
                maximum: 2,
            },
        ),
        (
            LoginRequest {
                current_stage: Stage::FullFeature,
                ..first
            },
            LoginError::WrongStage {
                expected: Stage::Security,
                current: Stage::FullFeature,
            },
        ),
        (
            LoginRequest {
                current_stage: Stage::Other(2),
                ..first
            },
            LoginError::WrongStage {
                expected: Stage::Security,
                current: Stage::Other(2),
            },
        ),
        (
            LoginRequest {
                next_stage: Stage::Other(2),
                ..first
            },
            LoginError::WrongTransition {
                current: Stage::Security,
                next: Stage::Other(2),
            },
        ),
        (
            LoginRequest {
                current_stage: current,
                next_stage: next,
                ..first
            },
            LoginError::WrongTransition { current, next },
        ),
        (
            LoginRequest {
                continues: true,
                ..first
            },
            LoginError::TransitInsideText,
        ),
    ] {
        let step = target().receive(&change, names().as_bytes(), &mut Surroundings::open());
        let (status, said) = refusal(step);
        assert_eq!(said, error);
        let expected = match error {
            LoginError::UnsupportedVersion { .. } => LoginStatus::UnsupportedVersion,
            _ => LoginStatus::InvalidDuringLogin,
        };
        assert_eq!(status, expected);
    }
}

#[test]
fn fields_stay_the_same_through_the_login() {
    let (first, text) = request(Stage::Security, Some(Stage::Operational), &names());
    let second = request(Stage::Operational, None, "").0;
    for (change, field) in [
        (
            LoginRequest {
                isid: Isid([0; 6]),
                ..second
            },
            "ISID",
        ),
        (
            LoginRequest {
                tsih: Tsih(1),
                ..second
            },
            "TSIH",
        ),
        (
            LoginRequest {
                cid: Cid(1),
                ..second
            },
            "CID",
        ),
        (
            LoginRequest {
                itt: Itt(1),
                ..second
            },
            "Initiator Task Tag",
        ),
        (
            LoginRequest {
                cmd_sn: Serial(1),
                ..second
            },
            "CmdSN",
        ),
    ] {
        let mut target = target();
        respond(target.receive(&first, &text, &mut Surroundings::open()));
        let step = target.receive(&change, b"", &mut Surroundings::open());
        assert_eq!(refusal(step).1, LoginError::FieldChanged { field });
    }
    // The stage is the one that was gone to.
    let mut target = target();
    respond(target.receive(&first, &text, &mut Surroundings::open()));
    let step = target.receive(&first, b"", &mut Surroundings::open());
    let (expected, current) = (Stage::Operational, Stage::Security);
    assert_eq!(
        refusal(step).1,
        LoginError::WrongStage { expected, current }
    );
}

#[test]
fn text_in_pieces_is_answered_when_it_is_whole() {
    let mut target = target();
    let mut surroundings = Surroundings::open();
    let text = names() + "AuthMethod=None\0";
    let (first, second) = text.split_at(40);
    let (mut header, text) = request(Stage::Security, None, first);
    header.continues = true;
    let (header, text) = respond(target.receive(&header, &text, &mut surroundings));
    assert_eq!(
        (header.transit, header.continues, &*text),
        (false, false, "")
    );
    assert!(surroundings.claimed.is_empty());
    let (header, text) = request(Stage::Security, Some(Stage::Operational), second);
    let (header, text) = respond(target.receive(&header, &text, &mut surroundings));
    assert!(header.transit && text.ends_with("AuthMethod=None\0"));
    assert_eq!(target.initiator(), Some(&name(INITIATOR)));
    assert_eq!(target.session(), Some(&normal()));
}

#[test]
fn a_long_answer_goes_in_pieces_that_the_initiator_asks_for() {
    let mut target = target();
    let mut surroundings = Surroundings::open();
    let unknown: String = (0..100).map(|number| format!("X-{number}=\0")).collect();
    let text = names() + "MaxRecvDataSegmentLength=512\0" + &unknown;
    let (header, text) = request(Stage::Operational, Some(Stage::FullFeature), &text);
    let mut step = target.receive(&header, &text, &mut surroundings);
    let mut whole = String::new();
    let (empty, nothing) = request(Stage::Operational, Some(Stage::FullFeature), "");
    let response = loop {
        match step {
            TargetStep::Respond(Response { header, text }) => {
                assert_eq!(
                    (header.transit, header.continues, text.len()),
                    (false, true, 512)
                );
                whole += std::str::from_utf8(&text).expect("text");
                step = target.receive(&empty, &nothing, &mut surroundings);
            }
            TargetStep::Complete(_) => break target.accept(Tsih(1)),
            other => panic!("{other:?}"),
        }
    };
    assert!(response.header.transit && !response.header.continues);
    whole += std::str::from_utf8(&response.text).expect("text");
    let answers = whole
        .split_terminator('\0')
        .filter(|pair| pair.ends_with("=NotUnderstood"));
    assert_eq!(answers.count(), 100);
}

#[test]
fn text_while_the_targets_is_not_complete_is_refused() {
    let mut target = target();
    let unknown: String = (0..100).map(|number| format!("X-{number}=\0")).collect();
    let text = names() + "MaxRecvDataSegmentLength=512\0" + &unknown;
    let (header, text) = request(Stage::Operational, None, &text);
    respond(target.receive(&header, &text, &mut Surroundings::open()));
    let (header, text) = request(Stage::Operational, None, "InitialR2T=No\0");
    let step = target.receive(&header, &text, &mut Surroundings::open());
    assert_eq!(refusal(step).1, LoginError::TextInsideText);
}

#[test]
fn a_login_without_end_is_ended() {
    let mut target = target();
    let mut surroundings = Surroundings::open();
    let (header, text) = request(Stage::Operational, None, &names());
    respond(target.receive(&header, &text, &mut surroundings));
    let (header, text) = request(Stage::Operational, None, "");
    for _ in 1..64 {
        respond(target.receive(&header, &text, &mut surroundings));
    }
    let step = target.receive(&header, &text, &mut surroundings);
    let (status, error) = refusal(step);
    assert_eq!(error, LoginError::TooManyRequests { maximum: 64 });
    assert_eq!(status, LoginStatus::InvalidDuringLogin);
}

#[test]
fn keys_out_of_place_are_rejected() {
    let mut target = target();
    let text = names() + "SendTargets=All\0AuthMethod=None\0MaxBurstLength=600\0";
    let (header, text) = request(Stage::Operational, None, &text);
    let (_, text) = respond(target.receive(&header, &text, &mut Surroundings::open()));
    assert_eq!(
        text,
        "TargetPortalGroupTag=1\0TargetAlias=disk one\0SendTargets=Reject\0AuthMethod=Reject\0MaxBurstLength=600\0"
    );
}

#[test]
fn a_target_that_must_propose_stays_in_the_stage() {
    let mut target = target();
    let offer = Offer {
        max_burst_length: 65536,
        ..Offer::default()
    };
    let mut surroundings = Surroundings::new(Authentication::None, offer);
    let (header, text) = request(Stage::Operational, Some(Stage::FullFeature), &names());
    let (header, text) = respond(target.receive(&header, &text, &mut surroundings));
    assert!(!header.transit && text.ends_with("MaxBurstLength=65536\0"));
    let (header, text) = request(
        Stage::Operational,
        Some(Stage::FullFeature),
        "MaxBurstLength=32768\0",
    );
    let step = target.receive(&header, &text, &mut surroundings);
    let TargetStep::Complete(logged_in) = step else {
        panic!("{step:?}")
    };
    assert_eq!(logged_in.parameters.max_burst_length, 32768);
    assert_eq!(logged_in.parameters.first_burst_length, 32768);
    assert_eq!(target.accept(Tsih(1)).text, b"");
}

#[test]
fn an_initiator_checks_what_it_is_sent() {
    let response = LoginResponse {
        transit: true,
        continues: false,
        current_stage: Stage::Security,
        next_stage: Stage::Operational,
        version_max: 0,
        version_active: 0,
        isid: ISID,
        tsih: Tsih::NONE,
        itt: ITT,
        serials: ResponseSerials::default(),
        status: LoginStatus::Success,
        data_length: 0,
    };
    let receive = |response: LoginResponse, text: &[u8], chap| {
        let mut login = InitiatorLogin::new(settings(normal(), chap, Offer::default()));
        login.start();
        login.receive(&response, text, &mut |_| {})
    };
    assert!(matches!(
        receive(response, b"", None),
        Ok(InitiatorStep::Send(_))
    ));
    for (change, field) in [
        (
            LoginResponse {
                isid: Isid([0; 6]),
                ..response
            },
            "ISID",
        ),
        (
            LoginResponse {
                itt: Itt(0),
                ..response
            },
            "Initiator Task Tag",
        ),
        (
            LoginResponse {
                current_stage: Stage::Operational,
                ..response
            },
            "CSG",
        ),
        (
            LoginResponse {
                continues: true,
                ..response
            },
            "T with C",
        ),
    ] {
        let error = receive(change, b"", None).expect_err(field);
        assert_eq!(error, InitiatorLoginError::WrongField { field });
    }
    let next = Stage::FullFeature;
    let further = LoginResponse {
        next_stage: next,
        ..response
    };
    assert_eq!(
        receive(further, b"", None).expect_err("too far"),
        InitiatorLoginError::WrongTransition { next }
    );
    let other = LoginResponse {
        version_active: 1,
        ..response
    };
    assert_eq!(
        receive(other, b"", None).expect_err("another version"),
        InitiatorLoginError::UnsupportedVersion { active: 1 }
    );
    let chosen = "CHAP".to_owned();
    assert_eq!(
        receive(response, b"AuthMethod=CHAP\0", None).expect_err("not offered"),
        InitiatorLoginError::WrongMethod { chosen }
    );
    let chosen = "None".to_owned();
    assert_eq!(
        receive(response, b"", Some(initiator_chap(true))).expect_err("not offered"),
        InitiatorLoginError::WrongMethod { chosen }
    );
}

/// A target that goes on to the next stage without its proof is not believed.
#[test]
fn an_initiator_waits_for_the_targets_proof() {
    let mut login = InitiatorLogin::new(settings(
        normal(),
        Some(initiator_chap(true)),
        Offer::default(),
    ));
    login.start();
    let mut response = LoginResponse {
        transit: false,
        continues: false,
        current_stage: Stage::Security,
        next_stage: Stage::Security,
        version_max: 0,
        version_active: 0,
        isid: ISID,
        tsih: Tsih::NONE,
        itt: ITT,
        serials: ResponseSerials::default(),
        status: LoginStatus::Success,
        data_length: 0,
    };
    for text in ["AuthMethod=CHAP\0", "CHAP_A=5\0CHAP_I=1\0CHAP_C=0x0102\0"] {
        let step = login.receive(&response, text.as_bytes(), &mut |_| {});
        assert!(matches!(step, Ok(InitiatorStep::Send(_))), "{step:?}");
        response.serials.stat_sn = response.serials.stat_sn.next();
    }
    response.transit = true;
    response.next_stage = Stage::Operational;
    let error = login
        .receive(&response, b"", &mut |_| {})
        .expect_err("no proof");
    assert_eq!(error, ChapError::Missing(Key::ChapName).into());
}

proptest! {
    /// Both sides log in and agree, whatever they offer, with and without CHAP.
    #[test]
    fn both_sides_agree(one in offers(), other in offers(), authenticate: bool, mutual: bool) {
        let authentication = if authenticate {
            chap(true, &ChapAlgorithm::ALL)
        } else {
            Authentication::None
        };
        let mut surroundings = Surroundings::new(authentication, other);
        let ours = authenticate.then(|| initiator_chap(mutual));
        let mut login = InitiatorLogin::new(settings(normal(), ours, one));
        match run(&mut login, &mut surroundings).0 {
            End::Both(initiator, target) => {
                check_agreement(&initiator.parameters, &target.parameters, [&one, &other]);
                prop_assert_eq!(target.user.is_some(), authenticate);
            }
            // One requires a digest that the other refuses.
            End::TargetRefused(LoginError::Negotiation(NegotiationError::DigestRequired { .. }), _)
            | End::InitiatorFailed(InitiatorLoginError::Negotiation(
                NegotiationError::DigestRequired { .. } | NegotiationError::WrongAnswer { .. },
            )) => {
                let agree = |one: crate::negotiation::DigestPolicy, other: crate::negotiation::DigestPolicy| {
                    [false, true].into_iter().any(|digest| one.takes(digest) && other.takes(digest))
                };
                let possible = agree(one.header_digest, other.header_digest)
                    && agree(one.data_digest, other.data_digest);
                prop_assert!(!possible);
            }
            end => prop_assert!(false, "{:?}", end),
        }
    }

    /// Any requests end in a response, a refusal or a login, and never in a panic.
    #[test]
    fn any_requests_are_answered(
        requests in proptest::collection::vec(
            (0_u8..4, 0_u8..4, any::<bool>(), any::<bool>(), text()),
            1..12,
        ),
        authenticate: bool,
    ) {
        let authentication = if authenticate {
            chap(true, &ChapAlgorithm::ALL)
        } else {
            Authentication::None
        };
        let mut surroundings = Surroundings::new(authentication, Offer::default());
        let mut target = target();
        for (current, next, transit, continues, text) in requests {
            let (mut header, text) = request(Stage::from_value(current), None, &text);
            header.next_stage = Stage::from_value(next);
            (header.transit, header.continues) = (transit, continues);
            match target.receive(&header, &text, &mut surroundings) {
                TargetStep::Respond(response) => prop_assert!(response.text.len() <= 8192),
                TargetStep::Complete(logged_in) => {
                    prop_assert!(!authenticate, "{:?}", logged_in);
                    target.accept(Tsih(1));
                    return Ok(());
                }
                TargetStep::Refused { error, .. } => {
                    prop_assert!(!error.status().is_success());
                    return Ok(());
                }
            }
        }
    }
}

/// Text of a login, right and wrong, without the secret.
fn text() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        Just("CHAP".to_owned()),
        Just("None".to_owned()),
        Just("CHAP,None".to_owned()),
        Just("5".to_owned()),
        Just("0x00112233445566778899aabbccddeeff".to_owned()),
        Just("host1".to_owned()),
        "[ -~]{0,12}",
    ];
    let pair =
        (0..Key::ALL.len(), value).prop_map(|(key, value)| format!("{}={value}\0", Key::ALL[key]));
    (any::<bool>(), proptest::collection::vec(pair, 0..5)).prop_map(|(named, pairs)| {
        let names = if named { names() } else { String::new() };
        names + &pairs.concat()
    })
}
