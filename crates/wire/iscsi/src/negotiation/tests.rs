//! Tests of each key's rule, and of two sides that agree whatever they offer.

use super::*;
use crate::keys::Pairs;
use proptest::prelude::*;

fn target(offer: Offer) -> Negotiator {
    Negotiator::new(Side::Target, offer)
}

/// The answer of a target with this offer to `key=value`, and its parameters then.
#[track_caller]
fn answer(offer: Offer, key: Key, value: &str) -> (String, Parameters) {
    let mut negotiator = target(offer);
    let mut answers = TextWriter::new();
    let taken = negotiator
        .receive(key, value, &mut answers)
        .expect("no failure");
    assert!(taken, "{key} is negotiated");
    let text = String::from_utf8(answers.into_bytes()).expect("text");
    let text = text.trim_end_matches('\0').to_owned();
    let value = text
        .strip_prefix(&format!("{key}="))
        .unwrap_or(&text)
        .to_owned();
    (value, *negotiator.parameters())
}

fn answered(key: Key, value: &str) -> String {
    answer(Offer::default(), key, value).0
}

#[test]
fn digests_are_the_first_of_the_list_that_is_taken() {
    let with = |header_digest, value| {
        let offer = Offer {
            header_digest,
            ..Offer::default()
        };
        let (answer, parameters) = answer(offer, Key::HeaderDigest, value);
        assert!(!parameters.data_digest);
        (answer, parameters.header_digest)
    };
    for (policy, value, expected, digest) in [
        (DigestPolicy::Allowed, "None,CRC32C", "None", false),
        (DigestPolicy::Allowed, "CRC32C,None", "CRC32C", true),
        (DigestPolicy::Allowed, "X-a,CRC32C", "CRC32C", true),
        (DigestPolicy::Refused, "CRC32C,None", "None", false),
        (DigestPolicy::Refused, "CRC32C", REJECT, false),
        (DigestPolicy::Required, "None,CRC32C", "CRC32C", true),
        (DigestPolicy::Required, "None", REJECT, false),
        (DigestPolicy::Allowed, "crc32c", REJECT, false),
    ] {
        assert_eq!(
            with(policy, value),
            (expected.to_owned(), digest),
            "{policy:?} {value}"
        );
    }
    assert!(
        answer(Offer::default(), Key::DataDigest, "CRC32C")
            .1
            .data_digest
    );
}

#[test]
fn booleans_are_and_or_or() {
    for (key, ours, theirs, expected) in [
        (Key::InitialR2T, false, "No", "No"),
        (Key::InitialR2T, false, "Yes", "Yes"),
        (Key::InitialR2T, true, "No", "Yes"),
        (Key::ImmediateData, true, "Yes", "Yes"),
        (Key::ImmediateData, true, "No", "No"),
        (Key::ImmediateData, false, "Yes", "No"),
        (Key::ImmediateData, true, "yes", REJECT),
    ] {
        let offer = Offer {
            initial_r2t: ours,
            immediate_data: ours,
            ..Offer::default()
        };
        let (answer, parameters) = answer(offer, key, theirs);
        assert_eq!(answer, expected, "{key}: {ours}, {theirs}");
        if expected != REJECT {
            assert_eq!(boolean(parameters.boolean(key)), expected);
        }
    }
    assert_eq!(answered(Key::DataPDUInOrder, "No"), "Yes");
    assert_eq!(answered(Key::DataSequenceInOrder, "Yes"), "Yes");
}

#[test]
fn numbers_are_the_smaller_or_the_larger() {
    for (key, theirs, expected) in [
        (Key::MaxConnections, "8", "1"),
        (Key::MaxConnections, "0", REJECT),
        (Key::MaxConnections, "65536", REJECT),
        (Key::MaxBurstLength, "16776192", "262144"),
        (Key::MaxBurstLength, "0x10000", "65536"),
        (Key::MaxBurstLength, "511", REJECT),
        (Key::MaxBurstLength, "16777216", REJECT),
        (Key::FirstBurstLength, "262144", "65536"),
        (Key::FirstBurstLength, "512", "512"),
        (Key::DefaultTime2Wait, "0", "2"),
        (Key::DefaultTime2Wait, "5", "5"),
        (Key::DefaultTime2Wait, "3601", REJECT),
        (Key::DefaultTime2Retain, "0", "0"),
        (Key::DefaultTime2Retain, "3600", "20"),
        (Key::MaxOutstandingR2T, "16", "1"),
        (Key::ErrorRecoveryLevel, "2", "0"),
        (Key::ErrorRecoveryLevel, "3", REJECT),
        (Key::ISCSIProtocolLevel, "2", "1"),
        (Key::ISCSIProtocolLevel, "0", "0"),
        (Key::ISCSIProtocolLevel, "32", REJECT),
    ] {
        let (answer, parameters) = answer(Offer::default(), key, theirs);
        assert_eq!(answer, expected, "{key}={theirs}");
        match expected {
            REJECT => assert_eq!(parameters, Parameters::default()),
            number => assert_eq!(parameters.number(key).to_string(), number),
        }
    }
}

#[test]
fn the_first_burst_is_no_longer_than_a_burst() {
    let offer = Offer {
        first_burst_length: 262_144,
        ..Offer::default()
    };
    let mut negotiator = target(offer);
    let mut answers = TextWriter::new();
    for (key, value) in [
        (Key::MaxBurstLength, "16384"),
        (Key::FirstBurstLength, "65536"),
    ] {
        negotiator
            .receive(key, value, &mut answers)
            .expect("no failure");
    }
    assert_eq!(
        answers.bytes(),
        b"MaxBurstLength=16384\0FirstBurstLength=16384\0"
    );
    // One was negotiated, the other is the default.
    let mut negotiator = target(offer);
    negotiator
        .receive(Key::MaxBurstLength, "16384", &mut answers)
        .expect("no failure");
    let parameters = negotiator.finish().expect("within the offer");
    assert_eq!(parameters.first_burst_length, 16384);
}

#[test]
fn a_declared_length_is_the_peers_and_has_no_answer() {
    let (answer, parameters) = answer(Offer::default(), Key::MaxRecvDataSegmentLength, "262144");
    assert_eq!(answer, "");
    assert_eq!(parameters.peer_max_recv_data_segment_length, 262_144);
    assert_eq!(parameters.max_recv_data_segment_length, 8192);
    let mut answers = TextWriter::new();
    let error =
        target(Offer::default()).receive(Key::MaxRecvDataSegmentLength, "100", &mut answers);
    let (key, value) = (Key::MaxRecvDataSegmentLength, "100".to_owned());
    assert_eq!(error, Err(NegotiationError::OutOfRange { key, value }));
}

#[test]
fn obsolete_and_later_keys_have_their_answers() {
    assert_eq!(answered(Key::IFMarker, "Yes"), "No");
    assert_eq!(answered(Key::OFMarker, "No"), "No");
    assert_eq!(answered(Key::IFMarkInt, "2048~8192"), REJECT);
    assert_eq!(answered(Key::OFMarkInt, "2048"), REJECT);
    assert_eq!(
        answered(Key::TaskReporting, "FastAbort,ResponseFence,RFC3720"),
        "RFC3720"
    );
    assert_eq!(answered(Key::TaskReporting, "FastAbort"), REJECT);
}

#[test]
fn keys_without_meaning_in_a_discovery_session_are_said_to_be_so() {
    for &key in Key::ALL {
        let mut negotiator = target(Offer::default());
        negotiator.set_discovery();
        let mut answers = TextWriter::new();
        let taken = negotiator.receive(key, "1", &mut answers);
        let irrelevant = format!("{key}={IRRELEVANT}\0");
        let is_irrelevant = taken == Ok(true) && answers.bytes() == irrelevant.as_bytes();
        assert_eq!(is_irrelevant, key.is_irrelevant_in_discovery(), "{key}");
    }
}

#[test]
fn keys_of_other_parts_are_the_callers() {
    for key in [
        Key::InitiatorName,
        Key::AuthMethod,
        Key::ChapResponse,
        Key::SendTargets,
    ] {
        let mut answers = TextWriter::new();
        let mut negotiator = target(Offer::default());
        assert_eq!(negotiator.receive(key, "x", &mut answers), Ok(false));
        assert_eq!(negotiator.receive(key, "x", &mut answers), Ok(false));
        assert_eq!(answers.bytes(), b"");
    }
}

#[test]
fn a_key_that_comes_twice_is_an_error() {
    let mut negotiator = target(Offer::default());
    let mut answers = TextWriter::new();
    let mut receive = || negotiator.receive(Key::InitialR2T, "No", &mut answers);
    assert_eq!(receive(), Ok(true));
    let key = "InitialR2T".to_owned();
    assert_eq!(receive(), Err(NegotiationError::Twice { key }));
}

#[test]
fn a_target_proposes_where_a_default_is_beyond_it() {
    let offer = Offer {
        immediate_data: false,
        max_burst_length: 131_072,
        data_digest: DigestPolicy::Required,
        default_time_to_wait: 5,
        max_recv_data_segment_length: 65536,
        ..Offer::default()
    };
    let mut negotiator = target(offer);
    let mut text = TextWriter::new();
    negotiator.propose(&mut text);
    assert_eq!(
        text.bytes(),
        b"DataDigest=CRC32C\0ImmediateData=No\0MaxBurstLength=131072\0\
          DefaultTime2Wait=5\0MaxRecvDataSegmentLength=65536\0"
    );
    // A second time there is nothing left to say.
    let mut again = TextWriter::new();
    negotiator.propose(&mut again);
    assert_eq!(again.bytes(), b"");
    assert!(!negotiator.is_settled());
    let mut answers = TextWriter::new();
    for (key, value) in [
        (Key::DataDigest, "CRC32C"),
        (Key::MaxBurstLength, "65536"),
        (Key::DefaultTime2Wait, "7"),
    ] {
        negotiator
            .receive(key, value, &mut answers)
            .expect("a right answer");
    }
    // The answer to ImmediateData=No is optional.
    assert!(negotiator.is_settled());
    assert_eq!(answers.bytes(), b"");
    let parameters = negotiator.finish().expect("within the offer");
    assert!(parameters.data_digest && !parameters.immediate_data);
    assert_eq!(parameters.max_burst_length, 65536);
    assert_eq!(parameters.default_time_to_wait, 7);
}

#[test]
fn answers_that_a_proposal_does_not_allow_are_errors() {
    let offer = Offer {
        data_digest: DigestPolicy::Required,
        initial_r2t: true,
        immediate_data: false,
        ..Offer::default()
    };
    for (key, value) in [
        (Key::DataDigest, "None"),
        (Key::HeaderDigest, "None,CRC32C"),
        (Key::MaxBurstLength, "262145"),
        (Key::MaxBurstLength, "0"),
        (Key::DefaultTime2Wait, "1"),
        (Key::InitialR2T, "No"),
        (Key::ImmediateData, "Yes"),
        (Key::ImmediateData, "x"),
    ] {
        let mut negotiator = Negotiator::new(Side::Initiator, offer);
        let mut text = TextWriter::new();
        negotiator.propose(&mut text);
        let error = negotiator.receive(key, value, &mut text).expect_err(value);
        let expected =
            matches!(&error, NegotiationError::WrongAnswer { key: of, .. } if *of == key);
        assert!(expected, "{key}={value}: {error}");
    }
}

#[test]
fn what_is_beyond_the_offer_at_the_end_is_an_error() {
    let finish = |offer, rejected: Key| {
        let mut negotiator = Negotiator::new(Side::Initiator, offer);
        let mut text = TextWriter::new();
        negotiator.propose(&mut text);
        negotiator
            .receive(rejected, REJECT, &mut text)
            .expect("the value stays");
        negotiator.finish()
    };
    let offer = Offer {
        header_digest: DigestPolicy::Required,
        ..Offer::default()
    };
    let key = Key::HeaderDigest;
    assert_eq!(
        finish(offer, key),
        Err(NegotiationError::DigestRequired { key })
    );
    let offer = Offer {
        max_burst_length: 512,
        ..Offer::default()
    };
    let error = finish(offer, Key::MaxBurstLength).expect_err("beyond the offer");
    assert_eq!(
        error.to_string(),
        "MaxBurstLength=262144 holds, which is beyond this side's 512"
    );
}

#[test]
fn keys_have_their_names() {
    for &key in Key::ALL {
        assert_eq!(Key::from_name(key.name()), Some(key));
    }
    assert_eq!(Key::from_name("maxburstlength"), None);
    let mut set = KeySet::EMPTY;
    assert!(set.insert(Key::ChapResponse) && !set.insert(Key::ChapResponse));
    assert!(set.contains(Key::ChapResponse) && !set.contains(Key::HeaderDigest));
    set.remove(Key::ChapResponse);
    assert!(set.is_empty());
}

/// Offers of every kind.
pub(crate) fn offers() -> impl Strategy<Value = Offer> {
    let digest = || {
        prop_oneof![
            Just(DigestPolicy::Refused),
            Just(DigestPolicy::Allowed),
            Just(DigestPolicy::Preferred),
            Just(DigestPolicy::Required),
        ]
    };
    let lengths = || 512_u32..1 << 24;
    (
        (digest(), digest(), any::<[bool; 4]>()),
        (lengths(), lengths(), lengths()),
        (
            0_u32..=3600,
            0_u32..=3600,
            1_u32..=65535,
            1_u32..=65535,
            0_u32..=2,
        ),
    )
        .prop_map(|(modes, lengths, counts)| Offer {
            header_digest: modes.0,
            data_digest: modes.1,
            max_connections: counts.3,
            initial_r2t: modes.2[0],
            immediate_data: modes.2[1],
            max_recv_data_segment_length: lengths.0,
            max_burst_length: lengths.1,
            first_burst_length: lengths.2,
            default_time_to_wait: counts.0,
            default_time_to_retain: counts.1,
            max_outstanding_r2t: counts.2,
            data_pdu_in_order: modes.2[2],
            data_sequence_in_order: modes.2[3],
            error_recovery_level: counts.4,
            protocol_level: 1,
        })
}

/// Both sides have the same, as each sees it, and it is what the rules say.
pub(crate) fn check_agreement(initiator: &Parameters, target: &Parameters, offers: [&Offer; 2]) {
    let mut seen_from_target = *initiator;
    seen_from_target.max_recv_data_segment_length = initiator.peer_max_recv_data_segment_length;
    seen_from_target.peer_max_recv_data_segment_length = initiator.max_recv_data_segment_length;
    assert_eq!(&seen_from_target, target);
    let [one, other] = offers;
    assert_eq!(target.initial_r2t, one.initial_r2t || other.initial_r2t);
    assert_eq!(
        target.immediate_data,
        one.immediate_data && other.immediate_data
    );
    assert_eq!(
        target.max_burst_length,
        one.max_burst_length.min(other.max_burst_length)
    );
    let first = one.first_burst_length.min(other.first_burst_length);
    assert_eq!(
        target.first_burst_length,
        first.min(target.max_burst_length)
    );
    let wait = one.default_time_to_wait.max(other.default_time_to_wait);
    assert_eq!(target.default_time_to_wait, wait);
    let level = one.error_recovery_level.min(other.error_recovery_level);
    assert_eq!(target.error_recovery_level, level);
    assert_eq!(
        target.data_pdu_in_order,
        one.data_pdu_in_order || other.data_pdu_in_order
    );
    for offer in offers {
        assert!(offer.header_digest.takes(target.header_digest));
        assert!(offer.data_digest.takes(target.data_digest));
    }
}

fn receive_all(negotiator: &mut Negotiator, text: &[u8]) -> Result<TextWriter, NegotiationError> {
    let mut answers = TextWriter::new();
    for pair in Pairs::new(text) {
        let pair = pair.expect("well formed");
        let key = Key::from_name(pair.key).expect("a known key");
        negotiator.receive(key, pair.value, &mut answers)?;
    }
    Ok(answers)
}

proptest! {
    /// Two sides agree, whichever proposes first, unless one requires a digest that the other refuses.
    #[test]
    fn two_sides_agree(one in offers(), other in offers(), both_propose: bool) {
        let mut initiator = Negotiator::new(Side::Initiator, one);
        let mut target = Negotiator::new(Side::Target, other);
        let mut text = TextWriter::new();
        if both_propose {
            initiator.propose(&mut text);
        }
        // Where the initiator proposes nothing, the target proposes what it must, and the initiator the rest.
        let mut answers = receive_all(&mut target, text.bytes()).expect("proposals");
        target.propose(&mut answers);
        let mut text = receive_all(&mut initiator, answers.bytes()).expect("answers");
        initiator.propose(&mut text);
        let answers = receive_all(&mut target, text.bytes()).expect("answers");
        let text = receive_all(&mut initiator, answers.bytes()).expect("answers");
        prop_assert_eq!(text.bytes(), b"");
        prop_assert!(initiator.is_settled() && target.is_settled());
        let possible = [(one.header_digest, other.header_digest), (one.data_digest, other.data_digest)]
            .into_iter()
            .all(|(one, other)| [false, true].into_iter().any(|digest| one.takes(digest) && other.takes(digest)));
        match (initiator.finish(), target.finish()) {
            (Ok(initiator), Ok(target)) => check_agreement(&initiator, &target, [&one, &other]),
            (Err(NegotiationError::DigestRequired { .. }), _) | (_, Err(NegotiationError::DigestRequired { .. })) => {
                prop_assert!(!possible);
            }
            failed => prop_assert!(false, "{:?}", failed),
        }
    }

    /// Any value of any key is answered or refused.
    #[test]
    fn any_value_is_judged(key in 0..Key::ALL.len(), value in "[ -~]{0,40}", proposed: bool) {
        let mut negotiator = Negotiator::new(Side::Initiator, Offer::default());
        let mut text = TextWriter::new();
        if proposed {
            negotiator.propose(&mut text);
        }
        let _ = negotiator.receive(Key::ALL[key], &value, &mut text);
        let parameters = negotiator.parameters();
        prop_assert!(parameters.max_burst_length >= 512);
        prop_assert!(parameters.peer_max_recv_data_segment_length >= 512);
    }
}
