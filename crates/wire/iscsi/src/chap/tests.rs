//! Tests of responses against values that another implementation computed, and of secrets that are not shown.

use super::*;
use crate::keys::hexadecimal;

const SECRET: &[u8] = b"a secret of 20 bytes";

fn secret(bytes: &[u8]) -> Secret {
    Secret::new(bytes).expect("a secret")
}

/// A challenge of 01h, 02h, and so on.
fn challenge(algorithm: ChapAlgorithm) -> Challenge {
    let bytes = (1..=algorithm.length() as u8).collect();
    Challenge::received(algorithm, 0x2a, bytes).expect("a challenge")
}

/// Python's hashlib, over 2Ah, the secret and the challenge.
#[test]
fn responses_are_those_of_another_implementation() {
    for (algorithm, response) in [
        (ChapAlgorithm::Md5, "0xb6a019ccba02314791644d97255910f5"),
        (
            ChapAlgorithm::Sha1,
            "0xa61715dfcc3bfe398ce0203820d5592a9d20f02a",
        ),
        (
            ChapAlgorithm::Sha256,
            "0x7dca385c1e5ea677ae09ab08c6b61329a880c09982950e26509ad5242f3c7b34",
        ),
        (
            ChapAlgorithm::Sha3_256,
            "0x0b0eb58b5d59b07aa6256dd90e6c7bbe5b119f330a955835aa721a65809589f9",
        ),
    ] {
        let challenge = challenge(algorithm);
        let computed = challenge.response(&secret(SECRET));
        assert_eq!(hexadecimal(&computed), response, "{algorithm}");
        assert_eq!(computed.len(), algorithm.length());
        assert!(challenge.is_answered_by(&computed, &secret(SECRET)));
        assert!(!challenge.is_answered_by(&computed, &secret(b"another secret")));
        assert!(!challenge.is_answered_by(&computed[1..], &secret(SECRET)));
        assert!(!challenge.is_answered_by(&[], &secret(SECRET)));
    }
}

#[test]
fn the_initiators_preference_decides_among_what_is_allowed() {
    let choose = ChapAlgorithm::choose;
    assert_eq!(choose("5,7", &ChapAlgorithm::ALL), Some(ChapAlgorithm::Md5));
    assert_eq!(
        choose("7,5", &ChapAlgorithm::ALL),
        Some(ChapAlgorithm::Sha256)
    );
    assert_eq!(
        choose("5,8", &[ChapAlgorithm::Sha3_256]),
        Some(ChapAlgorithm::Sha3_256)
    );
    assert_eq!(
        choose("0x5", &[ChapAlgorithm::Md5]),
        Some(ChapAlgorithm::Md5)
    );
    assert_eq!(choose("5", &[ChapAlgorithm::Sha256]), None);
    assert_eq!(choose("9,261,x,", &ChapAlgorithm::ALL), None);
    for algorithm in ChapAlgorithm::ALL {
        let value = u64::from(algorithm.value());
        assert_eq!(ChapAlgorithm::from_value(value), Some(algorithm));
    }
}

#[test]
fn a_challenge_is_as_long_as_the_digest() {
    let mut draw = |bytes: &mut [u8]| {
        for (place, byte) in bytes.iter_mut().enumerate() {
            *byte = place as u8;
        }
    };
    for algorithm in ChapAlgorithm::ALL {
        let challenge = Challenge::draw(algorithm, &mut draw);
        let length = algorithm.length();
        assert_eq!(challenge.bytes().len(), length);
        assert_eq!(usize::from(challenge.identifier), length);
    }
    let received = |length| Challenge::received(ChapAlgorithm::Md5, 0, vec![0; length]);
    assert!(received(0).is_none() && received(1025).is_none());
    assert!(received(1).is_some() && received(1024).is_some());
}

#[test]
fn a_reflection_is_seen_whatever_its_identifier() {
    let ours = challenge(ChapAlgorithm::Md5);
    let theirs = Challenge::received(ChapAlgorithm::Md5, 7, ours.bytes().to_vec());
    assert!(ours.is_reflected_by(&theirs.expect("a challenge")));
    let other = Challenge::received(ChapAlgorithm::Md5, 7, vec![9; 16]);
    assert!(!ours.is_reflected_by(&other.expect("a challenge")));
}

#[test]
fn secrets_have_a_length_and_are_not_shown() {
    assert_eq!(
        Secret::new(b"").expect_err("none"),
        SecretLengthError { length: 0 }
    );
    assert!(Secret::new(&[1; 255]).is_ok());
    assert!(Secret::new(&[1; 256]).is_err());
    assert!(secret(SECRET).is_same(&secret(SECRET)));
    assert!(!secret(SECRET).is_same(&secret(b"another")));
    let credentials = Credentials {
        name: "host1".into(),
        secret: secret(SECRET),
    };
    let shown = format!("{credentials:?} {:?}", challenge(ChapAlgorithm::Md5));
    assert!(shown.contains("host1") && !shown.contains("secret of") && !shown.contains("97, 32"));
    assert!(is_same_name("a", "a") && !is_same_name("a", "ab"));
}
