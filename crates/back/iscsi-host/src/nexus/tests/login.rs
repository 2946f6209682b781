//! The login: with and without authentication, refused, moved.

use weir_initiator::wire::Wire;
use weir_iscsi::LoginStatus;
use weir_iscsi::chap::{ChapAlgorithm, Credentials, Secret};
use weir_iscsi::login::{
    Authentication, ChapAuthentication, ChapError, InitiatorChap, InitiatorLoginError, Refusal,
    SessionType,
};
use weir_iscsi::negotiation::{DigestPolicy, Offer};
use weir_iscsi::pdu::{Reject, RejectReason, Residual};

use super::super::{Fault, Settings};
use super::target::{CMD_SN, Door, GOOD, SLOTS, Target, out, settings};

fn credentials(name: &str, secret: &str) -> Credentials {
    Credentials {
        name: name.to_owned(),
        secret: Secret::new(secret.as_bytes()).expect("a secret"),
    }
}

fn asking(target: bool) -> Authentication {
    Authentication::Chap(Box::new(ChapAuthentication {
        initiator: credentials("host", "secret of the host"),
        target: target.then(|| credentials("disk", "secret of the disk")),
        algorithms: ChapAlgorithm::ALL.to_vec(),
    }))
}

fn settings_with(secret: &str, target: Option<&str>) -> Settings {
    let mut settings = settings();
    settings.login.chap = Some(InitiatorChap {
        initiator: credentials("host", secret),
        target: target.map(|secret| credentials("disk", secret)),
        algorithms: ChapAlgorithm::ALL.to_vec(),
    });
    settings
}

/// Logs in as `settings` and `authentication` say; the fault where it fails.
fn try_login(settings: Settings, authentication: Authentication) -> Result<Target, Fault> {
    let mut target = Target::connect(settings);
    target.log_in(Door::asking(authentication, Offer::default()), 32);
    match target.nexus.fault() {
        Some(_) => Err(target.assert_fault()),
        None => Ok(target),
    }
}

#[test]
fn a_login_runs_by_itself_and_then_there_is_room() {
    let mut target = Target::connect(settings());
    assert!(target.nexus.has_output());
    assert!(target.nexus.logged_in().is_none());
    assert!(!target.nexus.submit_nop(1), "not before the login");
    target.log_in(Door::open(Offer::default()), 32);
    assert_eq!(target.nexus.room(), usize::from(SLOTS));
    let logged_in = target.nexus.logged_in().expect("it is complete");
    assert_eq!(logged_in.cmd_sn, CMD_SN);
    assert_eq!(logged_in.user, None);
    assert!(!target.nexus.has_output());
}

#[test]
fn a_login_in_pieces_is_the_same() {
    let mut target = Target::connect(settings_with("secret of the host", None));
    target.cut = 1;
    target.log_in(Door::asking(asking(false), Offer::default()), 32);
    assert_eq!(target.nexus.fault(), None);
    assert_eq!(target.nexus.room(), usize::from(SLOTS));
}

#[test]
fn chap_proves_one_side_or_both() {
    let asked = settings_with("secret of the host", None);
    let Ok(one) = try_login(asked, asking(false)) else {
        panic!("it logs in")
    };
    let user = one.nexus.logged_in().unwrap().user.clone();
    assert_eq!(user.as_deref(), Some("host"));
    let asked = settings_with("secret of the host", Some("secret of the disk"));
    let Ok(both) = try_login(asked, asking(true)) else {
        panic!("it logs in")
    };
    assert_eq!(both.nexus.room(), usize::from(SLOTS));
}

#[test]
fn who_cannot_prove_it_is_told_apart() {
    let refused = |fault: Option<Fault>, status| {
        let error = InitiatorLoginError::Refused(status);
        assert_eq!(fault, Some(Fault::Login(error)));
    };
    let failed = LoginStatus::AuthenticationFailure;
    refused(
        try_login(settings_with("another secret", None), asking(false)).err(),
        failed,
    );
    refused(try_login(settings(), asking(false)).err(), failed);
    // A target that has another secret than this side knows.
    let wrong = settings_with("secret of the host", Some("not that of the disk"));
    let fault = try_login(wrong, asking(true)).err();
    assert!(
        matches!(
            &fault,
            Some(Fault::Login(InitiatorLoginError::Chap(
                ChapError::Wrong { .. }
            )))
        ),
        "{fault:?}"
    );
}

#[test]
fn a_refusal_and_a_redirection_are_told_apart() {
    let login = |refusal| {
        let mut target = Target::connect(settings());
        let admission = Err(refusal);
        target.log_in(Door { admission }, 32);
        target.assert_fault()
    };
    assert_eq!(
        login(Refusal::NotFound),
        Fault::Login(InitiatorLoginError::Refused(LoginStatus::NotFound))
    );
    let address = "192.0.2.7:3260".to_owned();
    assert_eq!(
        login(Refusal::MovedTemporarily {
            address: address.clone()
        }),
        Fault::Login(InitiatorLoginError::Moved {
            status: LoginStatus::MovedTemporarily,
            address
        })
    );
}

#[test]
fn a_rejected_login_ends_the_connection() {
    let mut target = Target::connect(settings());
    assert!(target.hear_login().is_some());
    let reject = Reject {
        reason: RejectReason::ProtocolError,
        serials: target.serials(),
        data_sn: Default::default(),
        data_length: 48,
    };
    target.say(&reject, &[0; 48]);
    assert_eq!(
        target.assert_fault(),
        Fault::Rejected(RejectReason::ProtocolError)
    );
}

#[test]
fn a_response_to_nothing_ends_the_connection() {
    let mut target = Target::connect(settings());
    // Before the request was sent.
    target.say(
        &weir_iscsi::pdu::LoginResponse {
            transit: false,
            continues: false,
            current_stage: weir_iscsi::pdu::Stage::Security,
            next_stage: weir_iscsi::pdu::Stage::Security,
            version_max: 0,
            version_active: 0,
            isid: settings().login.isid,
            tsih: weir_iscsi::Tsih(0),
            itt: settings().login.itt,
            serials: target.serials(),
            status: LoginStatus::Success,
            data_length: 0,
        },
        &[],
    );
    assert!(matches!(target.assert_fault(), Fault::Protocol(_)));
}

#[test]
fn a_session_of_discovery_takes_no_tasks() {
    let mut settings = settings();
    settings.login.session = SessionType::Discovery;
    let mut target = Target::with(settings, Offer::default());
    assert_eq!(target.nexus.room(), 0);
    assert!(target.nexus.submit_text(b"SendTargets=All\0", 1));
    assert_eq!(target.hear().len(), 1);
}

#[test]
fn digests_are_done_as_they_were_agreed() {
    for (header, data) in [(false, true), (true, false), (true, true)] {
        let policy = |on| {
            if on {
                DigestPolicy::Required
            } else {
                DigestPolicy::Refused
            }
        };
        let mut target = Target::new(Offer {
            header_digest: policy(header),
            data_digest: policy(data),
            ..Offer::default()
        });
        assert_eq!(
            (target.writer.header_digest, target.writer.data_digest),
            (header, data)
        );
        let (payload, written) = out(1001);
        let write = target.submit(payload, 1);
        let read = target.read(1001, 2);
        let heard = target.hear();
        assert_eq!(heard[0].1, written);
        target.say_good(write);
        target.say_last_data(read, (0, 0), &written, Residual::None);
        assert_eq!(target.seen.whole(2), written);
        assert_eq!(target.seen.take(), [(1, GOOD), (2, GOOD)]);
    }
}
