//! Logins, discovery, logouts, and peers that do not keep to the rules.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use weir_front::{ConnectionCounts, Limits};
use weir_iscsi::chap::{self, ChapAlgorithm};
use weir_iscsi::login::{InitiatorChap, InitiatorLoginError, InitiatorSettings, SessionType};
use weir_iscsi::negotiation::{DigestPolicy, Offer, Parameters};
use weir_iscsi::pdu::{
    AsyncEvent, BASIC_HEADER_SIZE, Cid, Isid, Itt, LoginRequest, LogoutReason, LogoutRequest,
    LogoutResponseCode, NopOut, Pdu, RejectReason, ScsiCommand, Snack, SnackType, Stage,
    TaskAttribute, TaskFunction, TaskResponse, TextRequest, Tsih, Ttt, encode,
};
use weir_iscsi::serial::Serial;
use weir_iscsi::status::LoginStatus;
use weir_iscsi_target::{
    Allowed, Authentication, Credentials, Iscsi, IscsiConfig, Portal, Snapshot, Target,
};
use weir_testing::world::{World, everywhere};

use crate::initiator::{
    INITIATOR, Initiator, TARGET, name, read, serve, served, settings, settings_with,
    settings_with_digests,
};

const OTHER: &str = "iqn.2026-01.org.example:other";
const USER: &str = "user";
const SECRET: &str = "a secret of sixteen";
const TARGET_USER: &str = "the target";
const TARGET_SECRET: &str = "another secret, as long";

fn simple() -> Snapshot {
    served(|_| {})
}

fn discovery() -> InitiatorSettings {
    InitiatorSettings {
        session: SessionType::Discovery,
        ..settings()
    }
}

fn of(initiator: &str) -> InitiatorSettings {
    InitiatorSettings {
        initiator: name(initiator),
        ..settings()
    }
}

/// The session of another ISID.
fn with_isid(qualifier: u16) -> InitiatorSettings {
    InitiatorSettings {
        isid: Isid::random([1, 2, 3], qualifier),
        ..settings()
    }
}

fn only(initiators: &[&str]) -> Allowed {
    let initiators: BTreeSet<_> = initiators.iter().map(|text| name(text)).collect();
    Allowed::List(initiators)
}

/// The status with which a login is refused.
async fn refused(world: &World, address: SocketAddr, settings: InitiatorSettings) -> LoginStatus {
    match Initiator::try_login(world, address, settings).await {
        Err(InitiatorLoginError::Refused(status)) => status,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was let in"),
    }
}

/// The session does what it is for.
async fn works(initiator: &mut Initiator) {
    assert_eq!(initiator.ping(b"are you there?").await, b"are you there?");
    // What becomes of it is not the question here.
    let _ = initiator.run(&read(0, 1)).await;
}

async fn is_over(initiator: &mut Initiator) {
    assert_eq!(initiator.receive().await, None, "the connection ends");
}

async fn all_gone(world: &World, iscsi: &Iscsi) {
    world
        .eventually("an end of all", async || {
            let stats = iscsi.stats();
            (stats.connections, stats.sessions) == (0, 0)
        })
        .await;
    assert_eq!(counts(iscsi, |counts| counts.panics), 0);
}

fn counts(iscsi: &Iscsi, of: fn(&ConnectionCounts) -> u64) -> u64 {
    iscsi.stats().reactors.iter().map(of).sum()
}

/// Sends text, and returns the pairs that answer it.
async fn text(initiator: &mut Initiator, text: &str) -> Vec<String> {
    let (mut text, mut ttt) = (text.as_bytes(), Ttt::RESERVED);
    let mut answer = Vec::new();
    loop {
        send_text(initiator, text, ttt, true).await;
        let (pdu, data) = initiator.receive().await.expect("an answer");
        let Pdu::TextResponse(response) = pdu else {
            panic!("{pdu:?} answers text");
        };
        initiator.answered(response.serials.stat_sn);
        let most = initiator.agreed.parameters.max_recv_data_segment_length;
        assert!(data.len() <= most as usize, "no more than was declared");
        answer.extend(data);
        assert_eq!(response.is_final, response.ttt == Ttt::RESERVED);
        if response.is_final {
            assert!(!response.continues);
            break;
        }
        (text, ttt) = (&[], response.ttt);
    }
    let answer = String::from_utf8(answer).expect("text");
    let pairs = answer.split_terminator('\0');
    pairs.map(str::to_owned).collect()
}

async fn send_text(initiator: &mut Initiator, text: &[u8], ttt: Ttt, is_final: bool) {
    let (cmd_sn, exp_stat_sn) = initiator.next_numbers();
    let request = TextRequest {
        immediate: false,
        is_final,
        continues: false,
        lun: 0,
        itt: Itt(0x7e57),
        ttt,
        cmd_sn,
        exp_stat_sn,
        data_length: text.len() as u32,
    };
    initiator.send(&request, text).await;
}

async fn log_out(initiator: &mut Initiator, reason: LogoutReason, cid: Cid) -> LogoutResponseCode {
    let (cmd_sn, exp_stat_sn) = initiator.next_numbers();
    let itt = Itt(0x10_90);
    let request = LogoutRequest {
        immediate: false,
        reason,
        itt,
        cid,
        cmd_sn,
        exp_stat_sn,
        data_length: 0,
    };
    initiator.send(&request, &[]).await;
    let (pdu, _) = initiator.receive().await.expect("an answer");
    let Pdu::LogoutResponse(response) = pdu else {
        panic!("{pdu:?} answers a logout");
    };
    assert_eq!(response.itt, itt);
    initiator.answered(response.serials.stat_sn);
    response.response
}

/// The next PDU is a Reject, which has the header of what is refused.
async fn rejected(initiator: &mut Initiator) -> (RejectReason, Vec<u8>) {
    let (pdu, data) = initiator.receive().await.expect("an answer");
    let Pdu::Reject(reject) = pdu else {
        panic!("{pdu:?} is no Reject");
    };
    initiator.answered(reject.serials.stat_sn);
    (reject.reason, data)
}

// -------------------------------------------------------------------- logins --

#[test]
fn an_initiator_logs_in_and_is_known() {
    everywhere(async |world: World| {
        let (iscsi, address) = serve(&world, IscsiConfig::default(), simple()).await;
        let mut initiator = Initiator::login(&world, address).await;
        works(&mut initiator).await;
        let connections = iscsi.connections().await;
        let [connection] = &connections[..] else {
            panic!("{connections:?}");
        };
        assert_eq!(connection.local, address);
        let session = connection.session.as_ref().expect("a session");
        assert_eq!(session.initiator, name(INITIATOR));
        assert_eq!(session.alias.as_deref(), Some("a test"));
        assert_eq!(session.isid, settings().isid);
        assert_eq!(session.target, Some(name(TARGET)));
        assert_eq!(session.tsih, initiator.agreed.tsih);
        assert_ne!(session.tsih, Tsih::NONE);
        assert_eq!(session.user, None);
        assert!(!session.header_digest && !session.data_digest);
        assert_eq!(iscsi.stats().sessions, 1);
        drop(initiator);
        all_gone(&world, &iscsi).await;
    });
}

#[test]
fn what_may_not_be_used_is_refused_with_its_status() {
    everywhere(async |world: World| {
        let snapshot = served(|target| target.allowed = only(&[INITIATOR]));
        let (iscsi, address) = serve(&world, IscsiConfig::default(), snapshot).await;
        let elsewhere = InitiatorSettings {
            session: SessionType::Normal(name("iqn.2026-01.org.example:nothing")),
            ..settings()
        };
        let status = refused(&world, address, elsewhere).await;
        assert_eq!(status, LoginStatus::NotFound);
        let status = refused(&world, address, of(OTHER)).await;
        assert_eq!(status, LoginStatus::AuthorizationFailure);
        let joining = InitiatorSettings {
            tsih: Tsih(77),
            ..settings()
        };
        let status = refused(&world, address, joining.clone()).await;
        assert_eq!(status, LoginStatus::SessionDoesNotExist);
        let mut initiator = Initiator::login(&world, address).await;
        let second = InitiatorSettings {
            tsih: initiator.agreed.tsih,
            cid: Cid(2),
            ..settings()
        };
        let status = refused(&world, address, second).await;
        assert_eq!(status, LoginStatus::TooManyConnections);
        works(&mut initiator).await;
        assert_eq!(counts(&iscsi, |counts| counts.refused), 4);
        drop(initiator);
        all_gone(&world, &iscsi).await;
        // None of them broke a rule.
        assert_eq!(counts(&iscsi, |counts| counts.terminated), 0);
    });
}

/// Sends the first request of a login with these keys, in the operational stage, and returns the answer's.
async fn answers(world: &World, address: SocketAddr, keys: &[&str]) -> BTreeSet<String> {
    let mut initiator = Initiator::connect(world, address).await;
    let names = [
        format!("InitiatorName={INITIATOR}"),
        format!("TargetName={TARGET}"),
        "SessionType=Normal".to_owned(),
    ];
    let names = names.iter().map(String::as_str);
    let text: String = names
        .chain(keys.iter().copied())
        .map(|key| format!("{key}\0"))
        .collect();
    let request = LoginRequest {
        transit: false,
        continues: false,
        current_stage: Stage::Operational,
        next_stage: Stage::Security,
        version_max: 0,
        version_min: 0,
        isid: settings().isid,
        tsih: Tsih::NONE,
        itt: Itt(1),
        cid: Cid(1),
        cmd_sn: Serial(1),
        exp_stat_sn: Serial(0),
        data_length: text.len() as u32,
    };
    initiator.send(&request, text.as_bytes()).await;
    let (pdu, data) = initiator.receive().await.expect("an answer");
    let Pdu::LoginResponse(response) = pdu else {
        panic!("{pdu:?} answers a login");
    };
    assert_eq!(response.status, LoginStatus::Success);
    let data = String::from_utf8(data).expect("text");
    data.split_terminator('\0').map(str::to_owned).collect()
}

#[test]
fn each_key_is_answered_with_what_the_target_can_do() {
    everywhere(async |world: World| {
        let snapshot = served(|target| target.alias = Some("disks of a test".to_owned()));
        let (iscsi, address) = serve(&world, IscsiConfig::default(), snapshot).await;
        let cases = [
            ("HeaderDigest=CRC32C,None", "HeaderDigest=CRC32C"),
            ("DataDigest=None,CRC32C", "DataDigest=None"),
            ("MaxConnections=8", "MaxConnections=1"),
            ("InitialR2T=No", "InitialR2T=No"),
            ("ImmediateData=Yes", "ImmediateData=Yes"),
            ("MaxBurstLength=16776192", "MaxBurstLength=1048576"),
            ("FirstBurstLength=262144", "FirstBurstLength=65536"),
            ("DefaultTime2Wait=2", "DefaultTime2Wait=2"),
            ("DefaultTime2Retain=20", "DefaultTime2Retain=0"),
            ("MaxOutstandingR2T=16", "MaxOutstandingR2T=4"),
            ("DataPDUInOrder=No", "DataPDUInOrder=Yes"),
            ("DataSequenceInOrder=No", "DataSequenceInOrder=Yes"),
            ("ErrorRecoveryLevel=2", "ErrorRecoveryLevel=0"),
            ("IFMarker=Yes", "IFMarker=No"),
            ("OFMarker=Yes", "OFMarker=No"),
            ("TaskReporting=FastAbort,RFC3720", "TaskReporting=RFC3720"),
            ("iSCSIProtocolLevel=2", "iSCSIProtocolLevel=1"),
            ("X-org.example.what=1", "X-org.example.what=NotUnderstood"),
        ];
        let keys: Vec<&str> = cases.iter().map(|(key, _)| *key).collect();
        let mut answers = answers(&world, address, &keys).await;
        for (key, answer) in cases {
            assert!(
                answers.remove(answer),
                "{key} is not answered {answer}: {answers:?}"
            );
        }
        let own = [
            "TargetPortalGroupTag=1",
            "TargetAlias=disks of a test",
            "MaxRecvDataSegmentLength=262144",
        ];
        assert_eq!(answers, own.map(str::to_owned).into());
        all_gone(&world, &iscsi).await;
    });
}

/// What is agreed between an offer and a configuration.
async fn agreed(world: &World, config: IscsiConfig, offer: Offer) -> Parameters {
    let (iscsi, address) = serve(world, config, simple()).await;
    let settings = InitiatorSettings {
        offer,
        ..settings()
    };
    let session = Initiator::try_login(world, address, settings).await;
    let mut session = session.expect("it logs in");
    works(&mut session).await;
    let parameters = session.agreed.parameters;
    drop(session);
    all_gone(world, &iscsi).await;
    parameters
}

#[test]
fn what_is_configured_bounds_what_is_agreed() {
    everywhere(async |world: World| {
        let small = IscsiConfig {
            receive_segment_bytes: 4096,
            first_burst_bytes: 8192,
            max_burst_bytes: 16_384,
            outstanding_r2t: 1,
            immediate_data: false,
            initial_r2t: true,
            ..IscsiConfig::default()
        };
        let offer = settings().offer;
        let parameters = agreed(&world, small, offer).await;
        assert_eq!(parameters.peer_max_recv_data_segment_length, 4096);
        assert_eq!(parameters.first_burst_length, 8192);
        assert_eq!(parameters.max_burst_length, 16_384);
        assert_eq!(parameters.max_outstanding_r2t, 1);
        assert!(!parameters.immediate_data && parameters.initial_r2t);
        assert_eq!(parameters.error_recovery_level, 0);
        assert_eq!(parameters.max_connections, 1);

        let parameters = agreed(&world, IscsiConfig::default(), offer).await;
        assert_eq!(parameters.peer_max_recv_data_segment_length, 262_144);
        assert_eq!(parameters.first_burst_length, 65_536);
        assert_eq!(parameters.max_burst_length, 262_144);
        assert_eq!(parameters.max_outstanding_r2t, 2);
        assert!(parameters.immediate_data && !parameters.initial_r2t);

        // A first burst is never longer than a burst.
        let narrow = Offer {
            max_burst_length: 4096,
            first_burst_length: 4096,
            max_recv_data_segment_length: 512,
            immediate_data: false,
            ..offer
        };
        let parameters = agreed(&world, IscsiConfig::default(), narrow).await;
        assert_eq!(parameters.first_burst_length, 4096);
        assert_eq!(parameters.max_burst_length, 4096);
        assert!(!parameters.immediate_data);
    });
}

// --------------------------------------------------------------------- CHAP --

fn credentials(user: &str, secret: &str) -> chap::Credentials {
    chap::Credentials {
        name: user.to_owned(),
        secret: chap::Secret::new(secret.as_bytes()).expect("a secret"),
    }
}

fn proof(user: &str, secret: &str, target: Option<(&str, &str)>) -> InitiatorSettings {
    settings_with(InitiatorChap {
        initiator: credentials(user, secret),
        target: target.map(|(user, secret)| credentials(user, secret)),
        algorithms: ChapAlgorithm::ALL.to_vec(),
    })
}

fn guarded(is_mutual: bool) -> Snapshot {
    let of = |user: &str, secret: &str| Credentials {
        user: user.to_owned(),
        secret: secret.to_owned(),
    };
    served(|target| {
        target.authentication = Authentication::Chap {
            initiator: of(USER, SECRET),
            target: is_mutual.then(|| of(TARGET_USER, TARGET_SECRET)),
        };
    })
}

#[test]
fn a_target_that_asks_for_proof_lets_in_who_gives_it() {
    everywhere(async |world: World| {
        let (iscsi, address) = serve(&world, IscsiConfig::default(), guarded(false)).await;
        for algorithm in ChapAlgorithm::ALL {
            let mut settings = proof(USER, SECRET, None);
            let chap = settings.chap.as_mut().expect("it was just set");
            chap.algorithms = vec![algorithm];
            let initiator = Initiator::try_login(&world, address, settings).await;
            let mut initiator = initiator.expect("it proves itself");
            works(&mut initiator).await;
            let connections = iscsi.connections().await;
            let session = connections.iter().find_map(|one| {
                let session = one.session.as_ref()?;
                (session.tsih == initiator.agreed.tsih).then_some(session)
            });
            assert_eq!(session.expect("its session").user.as_deref(), Some(USER));
        }
        let failure = LoginStatus::AuthenticationFailure;
        let wrong = [
            proof(USER, "a secret of nineteen", None),
            proof("nobody", SECRET, None),
            proof(USER, SECRET, Some((TARGET_USER, TARGET_SECRET))),
            settings(),
        ];
        for settings in wrong {
            assert_eq!(refused(&world, address, settings).await, failure);
        }
        all_gone(&world, &iscsi).await;
    });
}

#[test]
fn a_target_proves_itself_to_who_asks_for_it() {
    everywhere(async |world: World| {
        let (iscsi, address) = serve(&world, IscsiConfig::default(), guarded(true)).await;
        let both = proof(USER, SECRET, Some((TARGET_USER, TARGET_SECRET)));
        let initiator = Initiator::try_login(&world, address, both).await;
        let mut initiator = initiator.expect("both prove themselves");
        works(&mut initiator).await;
        drop(initiator);
        let one = proof(USER, SECRET, None);
        let initiator = Initiator::try_login(&world, address, one).await;
        works(&mut initiator.expect("it does not ask")).await;
        let mistaken = [
            proof(USER, SECRET, Some((TARGET_USER, "not the target's secret"))),
            proof(USER, SECRET, Some(("not the target", TARGET_SECRET))),
        ];
        for settings in mistaken {
            let error = Initiator::try_login(&world, address, settings).await;
            let error = error.err().expect("it does not trust the target");
            assert!(matches!(error, InitiatorLoginError::Chap(_)), "{error}");
        }
        let wrong = proof(
            USER,
            "no secret of ours",
            Some((TARGET_USER, TARGET_SECRET)),
        );
        let status = refused(&world, address, wrong).await;
        assert_eq!(status, LoginStatus::AuthenticationFailure);
        all_gone(&world, &iscsi).await;
    });
}

#[test]
fn no_secret_is_shown() {
    let shown = format!("{:?}", guarded(true));
    assert!(shown.contains(USER) && shown.contains(TARGET_USER));
    assert!(
        !shown.contains(SECRET) && !shown.contains(TARGET_SECRET),
        "{shown}"
    );
    let settings = proof(USER, SECRET, Some((TARGET_USER, TARGET_SECRET)));
    let shown = format!("{settings:?}");
    assert!(
        !shown.contains(SECRET) && !shown.contains(TARGET_SECRET),
        "{shown}"
    );
}

// ---------------------------------------------------------------- discovery --

#[test]
fn discovery_tells_an_initiator_of_its_targets_and_of_no_other() {
    everywhere(async |world: World| {
        let target = |text: &str, allowed: Allowed| {
            let mut target = Target::new(name(text));
            target.allowed = allowed;
            target
        };
        let (own, others) = (
            "iqn.2026-01.org.example:own",
            "iqn.2026-01.org.example:others",
        );
        let mut snapshot = simple();
        snapshot.targets.extend([
            target(own, only(&[INITIATOR])),
            target(others, only(&[OTHER])),
        ]);
        snapshot.portals = vec![
            Portal {
                address: "0.0.0.0:3261".parse().expect("an address"),
                advertise: None,
            },
            Portal {
                address: "192.0.2.1:3262".parse().expect("an address"),
                advertise: Some("storage.example.org:3263".to_owned()),
            },
        ];
        let (iscsi, address) = serve(&world, IscsiConfig::default(), snapshot).await;
        let session = Initiator::try_login(&world, address, discovery()).await;
        let mut session = session.expect("it may ask");
        let places = [
            format!("TargetAddress={}:3261,1", address.ip()),
            "TargetAddress=storage.example.org:3263,1".to_owned(),
            format!("TargetAddress={address},1"),
        ];
        let with_places = |targets: &[&str]| -> Vec<String> {
            let records = |target: &&str| {
                std::iter::once(format!("TargetName={target}")).chain(places.clone())
            };
            targets.iter().flat_map(records).collect()
        };
        let all = text(&mut session, "SendTargets=All\0").await;
        assert_eq!(all, with_places(&[TARGET, own]));
        let one = text(&mut session, &format!("SendTargets={own}\0")).await;
        assert_eq!(one, with_places(&[own]));
        let none = text(&mut session, &format!("SendTargets={others}\0")).await;
        assert_eq!(none, [""; 0]);
        let nonsense = text(&mut session, "SendTargets=what?\0X-org.example=1\0").await;
        assert_eq!(
            nonsense,
            ["SendTargets=Reject", "X-org.example=NotUnderstood"]
        );
        let closed = log_out(&mut session, LogoutReason::CloseSession, Cid(0)).await;
        assert_eq!(closed, LogoutResponseCode::Closed);
        is_over(&mut session).await;
        all_gone(&world, &iscsi).await;
    });
}

#[test]
fn many_targets_come_in_as_many_pieces_as_the_initiator_asks_for() {
    everywhere(async |world: World| {
        let mut snapshot = simple();
        let names: Vec<String> = (0..100)
            .map(|number| format!("{TARGET}.{number}"))
            .collect();
        let targets = names.iter().map(|text| Target::new(name(text)));
        snapshot.targets.extend(targets);
        let (iscsi, address) = serve(&world, IscsiConfig::default(), snapshot).await;
        let mut settings = discovery();
        settings.offer.max_recv_data_segment_length = 512;
        let session = Initiator::try_login(&world, address, settings).await;
        let mut session = session.expect("it may ask");
        let all = text(&mut session, "SendTargets=All\0").await;
        let told = all
            .iter()
            .filter_map(|pair| pair.strip_prefix("TargetName="));
        let told: Vec<&str> = told.collect();
        assert_eq!(told.len(), 101);
        assert!(told[1..].iter().eq(names.iter()));
        assert_eq!(all.len(), 202, "each has an address");
        drop(session);
        all_gone(&world, &iscsi).await;
    });
}

#[test]
fn a_discovery_session_is_for_text_alone() {
    everywhere(async |world: World| {
        let (iscsi, address) = serve(&world, IscsiConfig::default(), simple()).await;
        let session = Initiator::try_login(&world, address, discovery()).await;
        let mut session = session.expect("it may ask");
        let connections = iscsi.connections().await;
        let info = connections[0].session.clone().expect("a session");
        assert_eq!((info.target, info.tsih), (None, Tsih::NONE));
        assert_eq!(iscsi.stats().sessions, 0);
        let functions = [
            TaskFunction::AbortTask,
            TaskFunction::LogicalUnitReset,
            TaskFunction::TargetWarmReset,
        ];
        for function in functions {
            session.manage(function, 0, Itt(5)).await;
            let (reason, _) = rejected(&mut session).await;
            assert_eq!(reason, RejectReason::CommandNotSupported);
        }
        session.begin_command(&read(0, 1)).await;
        let (reason, _) = rejected(&mut session).await;
        assert_eq!(reason, RejectReason::CommandNotSupported);
        let all = text(&mut session, "SendTargets=All\0").await;
        assert_eq!(all.len(), 2);
        assert_eq!(session.ping(b"").await, b"");
        drop(session);
        all_gone(&world, &iscsi).await;
    });
}

#[test]
fn a_normal_session_may_ask_for_its_own_target() {
    everywhere(async |world: World| {
        let mut snapshot = simple();
        snapshot.targets.push(Target::new(name(OTHER)));
        let (iscsi, address) = serve(&world, IscsiConfig::default(), snapshot).await;
        let mut session = Initiator::login(&world, address).await;
        let own = [
            format!("TargetName={TARGET}"),
            format!("TargetAddress={address},1"),
        ];
        assert_eq!(text(&mut session, "SendTargets=\0").await, own);
        let by_name = format!("SendTargets={TARGET}\0");
        assert_eq!(text(&mut session, &by_name).await, own);
        let refused = ["SendTargets=Reject"];
        assert_eq!(text(&mut session, "SendTargets=All\0").await, refused);
        let other = format!("SendTargets={OTHER}\0");
        assert_eq!(text(&mut session, &other).await, refused);
        works(&mut session).await;
        drop(session);
        all_gone(&world, &iscsi).await;
    });
}

#[test]
fn text_goes_on_until_the_initiator_has_said_all() {
    everywhere(async |world: World| {
        let (iscsi, address) = serve(&world, IscsiConfig::default(), simple()).await;
        let mut session = Initiator::login(&world, address).await;
        send_text(&mut session, b"SendTargets=\0", Ttt::RESERVED, false).await;
        let (pdu, data) = session.receive().await.expect("an answer");
        let Pdu::TextResponse(response) = pdu else {
            panic!("{pdu:?} answers text");
        };
        session.answered(response.serials.stat_sn);
        assert!(data.starts_with(b"TargetName="));
        assert!(!response.is_final, "the initiator has more to say");
        assert_ne!(response.ttt, Ttt::RESERVED);
        send_text(&mut session, b"X-org.example=1\0", response.ttt, true).await;
        let (pdu, data) = session.receive().await.expect("an answer");
        let Pdu::TextResponse(response) = pdu else {
            panic!("{pdu:?} answers text");
        };
        session.answered(response.serials.stat_sn);
        assert_eq!(data, b"X-org.example=NotUnderstood\0");
        assert!(response.is_final);
        send_text(&mut session, b"", Ttt(12_345), true).await;
        let (reason, _) = rejected(&mut session).await;
        assert_eq!(reason, RejectReason::InvalidPduField);
        works(&mut session).await;
        drop(session);
        all_gone(&world, &iscsi).await;
    });
}

// ----------------------------------------------------------- ends of sessions --

#[test]
fn a_logout_is_answered_and_ends_the_session() {
    everywhere(async |world: World| {
        let (iscsi, address) = serve(&world, IscsiConfig::default(), simple()).await;
        for reason in [LogoutReason::CloseSession, LogoutReason::CloseConnection] {
            let mut session = Initiator::login(&world, address).await;
            works(&mut session).await;
            let code = log_out(&mut session, LogoutReason::RemoveForRecovery, Cid(1)).await;
            assert_eq!(code, LogoutResponseCode::RecoveryNotSupported);
            let code = log_out(&mut session, LogoutReason::CloseConnection, Cid(9)).await;
            assert_eq!(code, LogoutResponseCode::CidNotFound);
            works(&mut session).await;
            let code = log_out(&mut session, reason, Cid(1)).await;
            assert_eq!(code, LogoutResponseCode::Closed);
            is_over(&mut session).await;
        }
        all_gone(&world, &iscsi).await;
    });
}

/// Sends a write whose data is announced, and does not come.
async fn announce_data(session: &mut Initiator) -> Itt {
    let (cmd_sn, exp_stat_sn) = session.next_numbers();
    let itt = Itt(0xda7a);
    let mut cdb = [0; 16];
    (cdb[0], cdb[13]) = (0x8a, 1);
    let command = ScsiCommand {
        immediate: false,
        is_final: false,
        read: false,
        write: true,
        attribute: TaskAttribute::Simple,
        lun: 0,
        itt,
        expected_data_length: 4096,
        cmd_sn,
        exp_stat_sn,
        cdb,
        additional: Default::default(),
        data_length: 0,
    };
    session.send(&command, &[]).await;
    itt
}

#[test]
fn a_logout_does_not_wait_for_data_that_does_not_come() {
    everywhere(async |world: World| {
        let (iscsi, address) = serve(&world, IscsiConfig::default(), simple()).await;
        let mut session = Initiator::login(&world, address).await;
        works(&mut session).await;
        announce_data(&mut session).await;
        let code = log_out(&mut session, LogoutReason::CloseSession, Cid(1)).await;
        assert_eq!(code, LogoutResponseCode::Closed);
        is_over(&mut session).await;
        all_gone(&world, &iscsi).await;
    });
}

#[test]
fn an_abort_does_not_wait_for_data_that_does_not_come() {
    everywhere(async |world: World| {
        let (iscsi, address) = serve(&world, IscsiConfig::default(), simple()).await;
        let mut session = Initiator::login(&world, address).await;
        works(&mut session).await;
        let task = announce_data(&mut session).await;
        // Initiators send no more data for it once they have asked for this.
        let itt = session.manage(TaskFunction::AbortTask, 0, task).await;
        let response = session.managed(itt).await;
        assert_eq!(response, TaskResponse::Complete);
        // And where it was on its way, it goes nowhere.
        session.send_data(task, Ttt::RESERVED, 0, &[1; 4096]).await;
        works(&mut session).await;
        drop(session);
        all_gone(&world, &iscsi).await;
    });
}

#[test]
fn a_login_with_the_same_isid_takes_the_sessions_place() {
    everywhere(async |world: World| {
        let (iscsi, address) = serve(&world, IscsiConfig::default(), simple()).await;
        let mut old = Initiator::login(&world, address).await;
        works(&mut old).await;
        let mut new = Initiator::login(&world, address).await;
        is_over(&mut old).await;
        works(&mut new).await;
        assert_eq!(iscsi.stats().sessions, 1);
        assert_ne!(new.agreed.tsih, old.agreed.tsih);
        // Over and over, at once: one of them is left.
        let mut last = Vec::new();
        for _ in 0..4 {
            last.push(Initiator::login(&world, address).await);
        }
        works(&mut last.pop().expect("there are four")).await;
        for session in &mut last {
            is_over(session).await;
        }
        all_gone(&world, &iscsi).await;
    });
}

#[test]
fn one_initiator_may_have_several_sessions_but_not_more_than_configured() {
    everywhere(async |world: World| {
        let config = IscsiConfig {
            sessions_per_initiator_max: 2,
            sessions_max: 3,
            ..IscsiConfig::default()
        };
        let (iscsi, address) = serve(&world, config, simple()).await;
        let mut sessions = Vec::new();
        for qualifier in 1..=2 {
            let session = Initiator::try_login(&world, address, with_isid(qualifier)).await;
            sessions.push(session.expect("it may have two"));
        }
        assert_ne!(sessions[0].agreed.tsih, sessions[1].agreed.tsih);
        let reactors: BTreeSet<usize> = iscsi
            .connections()
            .await
            .iter()
            .map(|one| one.reactor)
            .collect();
        assert_eq!(reactors.len(), 2, "they are spread");
        let status = refused(&world, address, with_isid(3)).await;
        assert_eq!(status, LoginStatus::OutOfResources);
        let other = Initiator::try_login(&world, address, of(OTHER)).await;
        sessions.push(other.expect("there is room for one"));
        let status = refused(&world, address, of("iqn.2026-01.org.example:third")).await;
        assert_eq!(status, LoginStatus::OutOfResources);
        for session in &mut sessions {
            works(session).await;
        }
        assert_eq!(counts(&iscsi, |counts| counts.over_sessions), 2);
        sessions.remove(0);
        let mut again = Err(LoginStatus::OutOfResources);
        world
            .eventually("a place that is free again", async || {
                let session = Initiator::try_login(&world, address, with_isid(3)).await;
                again = session.map_err(|_| LoginStatus::OutOfResources);
                again.is_ok()
            })
            .await;
        works(again.as_mut().expect("it is in")).await;
        drop((sessions, again));
        all_gone(&world, &iscsi).await;
    });
}

#[test]
fn who_loses_its_right_loses_its_session() {
    everywhere(async |world: World| {
        let (iscsi, address) = serve(&world, IscsiConfig::default(), simple()).await;
        let mut session = Initiator::login(&world, address).await;
        let other = Initiator::try_login(&world, address, of(OTHER)).await;
        let mut other = other.expect("all may use it");
        let snapshot = served(|target| target.allowed = only(&[OTHER]));
        iscsi.apply(snapshot).await.expect("it serves");
        is_over(&mut session).await;
        works(&mut other).await;
        iscsi.apply(Snapshot::default()).await.expect("it serves");
        is_over(&mut other).await;
        all_gone(&world, &iscsi).await;
    });
}

#[test]
fn an_initiator_is_asked_to_log_out_at_a_shutdown() {
    everywhere(async |world: World| {
        let (iscsi, address) = serve(&world, IscsiConfig::default(), simple()).await;
        let mut session = Initiator::login(&world, address).await;
        let front = iscsi.clone();
        let shutdown = async move { front.shutdown(Duration::from_secs(600)).await };
        let shutdown = world.reactor.spawn(shutdown);
        let (pdu, _) = session.receive().await.expect("a message");
        let Pdu::AsyncMessage(message) = pdu else {
            panic!("{pdu:?} is no message");
        };
        session.answered(message.serials.stat_sn);
        assert_eq!(message.event, AsyncEvent::LogoutRequest);
        is_over(&mut session).await;
        shutdown.await;
    });
}

// ------------------------------------------------------------ those who are not there --

#[test]
fn who_is_silent_is_asked_and_then_put_out() {
    everywhere(async |world: World| {
        let config = IscsiConfig {
            nop_interval: Duration::from_millis(200),
            ..IscsiConfig::default()
        };
        let (iscsi, address) = serve(&world, config, simple()).await;
        let mut session = Initiator::login(&world, address).await;
        for _ in 0..3 {
            let (pdu, _) = session.receive().await.expect("a ping");
            let Pdu::NopIn(ping) = pdu else {
                panic!("{pdu:?} is no ping");
            };
            assert_eq!(ping.itt, Itt::RESERVED);
            assert_ne!(ping.ttt, Ttt::RESERVED);
            let answer = NopOut {
                immediate: true,
                lun: ping.lun,
                itt: Itt::RESERVED,
                ttt: ping.ttt,
                cmd_sn: ping.serials.exp_cmd_sn,
                exp_stat_sn: ping.serials.stat_sn,
                data_length: 0,
            };
            session.send(&answer, &[]).await;
        }
        // It has gone silent: no more than one ping comes.
        if session.receive().await.is_some() {
            is_over(&mut session).await;
        }
        all_gone(&world, &iscsi).await;
        assert_eq!(counts(&iscsi, |counts| counts.keep_alive_expiries), 1);
    });
}

#[test]
fn a_login_must_end_in_time() {
    everywhere(async |world: World| {
        let config = IscsiConfig {
            connections: Limits {
                handshake_timeout: Duration::from_millis(500),
                ..Limits::default()
            },
            ..IscsiConfig::default()
        };
        let (iscsi, address) = serve(&world, config, simple()).await;
        let mut silent = Initiator::connect(&world, address).await;
        let mut slow = Initiator::connect(&world, address).await;
        slow.send_bytes(&[0x43, 0x87, 0]).await;
        is_over(&mut silent).await;
        is_over(&mut slow).await;
        all_gone(&world, &iscsi).await;
        assert_eq!(counts(&iscsi, |counts| counts.handshake_timeouts), 2);
    });
}

#[test]
fn no_more_connections_than_configured_are_let_in() {
    everywhere(async |world: World| {
        let config = IscsiConfig {
            connections: Limits {
                max_connections: 2,
                ..Limits::default()
            },
            ..IscsiConfig::default()
        };
        let (iscsi, address) = serve(&world, config, simple()).await;
        let mut one = Initiator::login(&world, address).await;
        let two = Initiator::try_login(&world, address, discovery()).await;
        let two = two.expect("there may be two");
        let mut third = Initiator::connect(&world, address).await;
        is_over(&mut third).await;
        assert_eq!(counts(&iscsi, |counts| counts.over_connections), 1);
        works(&mut one).await;
        drop((one, two));
        all_gone(&world, &iscsi).await;
    });
}

// ------------------------------------------------------------------- hostile peers --

fn nop(session: &mut Initiator, length: u32) -> NopOut {
    let exp_stat_sn = Serial(0);
    NopOut {
        immediate: true,
        lun: 0,
        itt: Itt(0x9099),
        ttt: Ttt::RESERVED,
        cmd_sn: session.agreed.cmd_sn,
        exp_stat_sn,
        data_length: length,
    }
}

#[test]
fn what_makes_no_sense_ends_the_session_with_a_reject() {
    everywhere(async |world: World| {
        let (iscsi, address) = serve(&world, IscsiConfig::default(), simple()).await;
        let mut ended = 0;
        let mut broken = async |bytes: &[u8]| {
            let mut session = Initiator::login(&world, address).await;
            works(&mut session).await;
            session.send_bytes(bytes).await;
            let (reason, header) = rejected(&mut session).await;
            assert_eq!(reason, RejectReason::ProtocolError);
            assert_eq!(header, bytes[..BASIC_HEADER_SIZE]);
            is_over(&mut session).await;
            ended += 1;
        };
        let mut session = Initiator::login(&world, address).await;
        let most = session.agreed.parameters.peer_max_recv_data_segment_length;
        let nop = nop(&mut session, 0);
        drop(session);
        let with_length = |length: u32| {
            encode(&NopOut {
                data_length: length,
                ..nop
            })
        };
        // More data than it takes.
        broken(&with_length(most + 1)).await;
        broken(&with_length((1 << 24) - 1)).await;
        // Additional headers where there are none.
        let mut additional = with_length(0);
        additional[4] = 2;
        broken(&additional).await;
        // A PDU that goes the other way, and one of a login.
        let mut response = with_length(0);
        response[0] = 0x20;
        broken(&response).await;
        let mut login = with_length(0);
        login[0] = 0x43;
        broken(&login).await;
        all_gone(&world, &iscsi).await;
        assert_eq!(counts(&iscsi, |counts| counts.terminated), ended);
    });
}

#[test]
fn a_login_that_makes_no_sense_ends_the_connection() {
    everywhere(async |world: World| {
        let (iscsi, address) = serve(&world, IscsiConfig::default(), simple()).await;
        for bytes in [[0xff; 512], [0; 512], [0x43; 512]] {
            let mut peer = Initiator::connect(&world, address).await;
            peer.send_bytes(&bytes).await;
            while peer.receive().await.is_some() {}
        }
        let mut peer = Initiator::connect(&world, address).await;
        peer.send_bytes(b"GET / HTTP/1.1\r\nHost: example.org\r\nAccept: */*\r\n\r\n")
            .await;
        is_over(&mut peer).await;
        all_gone(&world, &iscsi).await;
    });
}

#[test]
fn what_is_not_known_is_rejected_and_the_session_goes_on() {
    everywhere(async |world: World| {
        let (iscsi, address) = serve(&world, IscsiConfig::default(), simple()).await;
        let mut session = Initiator::login(&world, address).await;
        works(&mut session).await;
        let mut unknown = encode(&nop(&mut session, 0));
        for opcode in [0x5c, 0x47, 0x1f] {
            unknown[0] = opcode;
            session.send_bytes(&unknown).await;
            let (reason, header) = rejected(&mut session).await;
            assert_eq!(reason, RejectReason::CommandNotSupported);
            assert_eq!(header, unknown);
        }
        // With additional headers and data, which are skipped.
        (unknown[4], unknown[7]) = (1, 6);
        let mut whole = unknown.to_vec();
        whole.extend([1; 4 + 8]);
        session.send_bytes(&whole).await;
        let (reason, _) = rejected(&mut session).await;
        assert_eq!(reason, RejectReason::CommandNotSupported);
        let snack = Snack {
            snack_type: SnackType::Status,
            lun: 0,
            itt: Itt::RESERVED,
            ttt: Ttt::RESERVED,
            exp_stat_sn: Serial(0),
            begin: Serial(0),
            length: 0,
            data_length: 0,
        };
        session.send(&snack, &[]).await;
        let (reason, _) = rejected(&mut session).await;
        assert_eq!(reason, RejectReason::SnackReject);
        works(&mut session).await;
        drop(session);
        all_gone(&world, &iscsi).await;
    });
}

#[test]
fn numbers_outside_the_window_are_ignored_and_a_gap_ends_the_session() {
    everywhere(async |world: World| {
        let (iscsi, address) = serve(&world, IscsiConfig::default(), simple()).await;
        let mut session = Initiator::login(&world, address).await;
        works(&mut session).await;
        let (next, _) = session.next_numbers();
        let window = session.max_cmd_sn.since(next);
        assert!(window > 0, "the window is open");
        let numbered = |number: Serial| NopOut {
            immediate: false,
            lun: 0,
            itt: Itt(0x9099),
            ttt: Ttt::RESERVED,
            cmd_sn: number,
            exp_stat_sn: Serial(0),
            data_length: 0,
        };
        let outside = [
            next.minus(1),
            next.minus(1000),
            session.max_cmd_sn.plus(100),
        ];
        for number in outside {
            session.send(&numbered(number), &[]).await;
            // Nothing answers it.
            assert_eq!(session.ping(b"next").await, b"next");
        }
        session.send(&numbered(next), &[]).await;
        let (pdu, _) = session.receive().await.expect("an answer");
        let Pdu::NopIn(answer) = pdu else {
            panic!("{pdu:?} answers a ping");
        };
        session.answered(answer.serials.stat_sn);
        assert_eq!(answer.serials.exp_cmd_sn, next.next());
        session.send(&numbered(next.plus(2)), &[]).await;
        let (reason, _) = rejected(&mut session).await;
        assert_eq!(reason, RejectReason::ProtocolError);
        is_over(&mut session).await;
        all_gone(&world, &iscsi).await;
    });
}

#[test]
fn a_ping_is_answered_while_the_window_is_closed() {
    everywhere(async |world: World| {
        let config = IscsiConfig {
            commands_max: 1,
            ..IscsiConfig::default()
        };
        let (iscsi, address) = serve(&world, config, simple()).await;
        let mut session = Initiator::login(&world, address).await;
        let task = announce_data(&mut session).await;
        let ping = nop(&mut session, 0);
        for _ in 0..3 {
            session.send(&ping, &[]).await;
            let (pdu, _) = session.receive().await.expect("an answer");
            let Pdu::NopIn(answer) = pdu else {
                panic!("{pdu:?} answers a ping");
            };
            session.answered(answer.serials.stat_sn);
            let serials = answer.serials;
            assert_eq!(
                serials.max_cmd_sn.next(),
                serials.exp_cmd_sn,
                "it is closed"
            );
        }
        session.send_data(task, Ttt::RESERVED, 0, &[1; 4096]).await;
        let _ = session.finish(task, &[]).await;
        works(&mut session).await;
        drop(session);
        all_gone(&world, &iscsi).await;
    });
}

// --------------------------------------------------------------------------- digests --

#[test]
fn headers_and_data_have_digests_where_that_is_agreed() {
    everywhere(async |world: World| {
        let (iscsi, address) = serve(&world, IscsiConfig::default(), simple()).await;
        let policies = [DigestPolicy::Refused, DigestPolicy::Required];
        for header_digest in policies {
            for data_digest in policies {
                let mut settings = settings();
                settings.offer.header_digest = header_digest;
                settings.offer.data_digest = data_digest;
                let session = Initiator::try_login(&world, address, settings).await;
                let mut session = session.expect("it logs in");
                let parameters = session.agreed.parameters;
                assert_eq!(
                    parameters.header_digest,
                    header_digest == DigestPolicy::Required
                );
                assert_eq!(
                    parameters.data_digest,
                    data_digest == DigestPolicy::Required
                );
                works(&mut session).await;
                for length in [1, 2, 3, 4, 5000] {
                    let data = crate::initiator::pattern(length, length as u8);
                    assert_eq!(session.ping(&data).await, data);
                }
                assert_eq!(text(&mut session, "SendTargets=\0").await.len(), 2);
            }
        }
        all_gone(&world, &iscsi).await;
        assert_eq!(counts(&iscsi, |counts| counts.data_digest_errors), 0);
    });
}

#[test]
fn damage_is_noticed() {
    everywhere(async |world: World| {
        let (iscsi, address) = serve(&world, IscsiConfig::default(), simple()).await;
        let session = Initiator::try_login(&world, address, settings_with_digests()).await;
        let mut session = session.expect("it logs in");
        works(&mut session).await;
        let header = encode(&nop(&mut session, 8));
        let mut whole = header.to_vec();
        whole.extend(weir_digest::Digest::of(&header).value().to_le_bytes());
        let header_end = whole.len();
        whole.extend([7; 8]);
        whole.extend(weir_digest::Digest::of(&[7; 8]).value().to_le_bytes());
        session.send_bytes(&whole).await;
        let (pdu, data) = session.receive().await.expect("an answer");
        let Pdu::NopIn(answer) = pdu else {
            panic!("{pdu:?} answers a ping");
        };
        session.answered(answer.serials.stat_sn);
        assert_eq!(data, [7; 8]);
        // Damaged data is this PDU's loss alone.
        let mut damaged = whole.clone();
        damaged[header_end + 3] ^= 1;
        session.send_bytes(&damaged).await;
        let (reason, rejected_header) = rejected(&mut session).await;
        assert_eq!(reason, RejectReason::DataDigestError);
        assert_eq!(rejected_header, header);
        works(&mut session).await;
        assert_eq!(counts(&iscsi, |counts| counts.data_digest_errors), 1);
        // A damaged header may be of any PDU: nothing that follows makes sense.
        let mut damaged = whole.clone();
        damaged[30] ^= 1;
        session.send_bytes(&damaged).await;
        while session.receive().await.is_some() {}
        all_gone(&world, &iscsi).await;
    });
}
