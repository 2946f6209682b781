//! CHAP: challenges, responses and secrets (RFC 1994, RFC 7143 section 12.1.3).
//!
//! Draws no random numbers: the caller gives those of a challenge. The exchange of keys is the login's.

use crate::keys::{BINARY_LENGTH_MAX, parse_list, parse_number};
use core::fmt;
use md5::Md5;
use sha1::Sha1;
use sha2::Sha256;
use sha3::Sha3_256;
use sha3::digest::Digest;
use subtle::ConstantTimeEq;
use thiserror::Error;

/// Most bytes that a secret may have here.
pub const SECRET_LENGTH_MAX: usize = 255;

/// Fewest bytes that a secret should have, unless IPsec protects the connection: 96 bits (section 12.1.3).
pub const SECRET_LENGTH_RECOMMENDED_MIN: usize = 12;

/// CHAP_A: a digest (section 12.1.3, and IANA's "PPP Authentication Algorithms").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChapAlgorithm {
    /// 5: MD5, which every implementation has.
    Md5,
    /// 6: SHA-1.
    Sha1,
    /// 7: SHA-256.
    Sha256,
    /// 8: SHA3-256.
    Sha3_256,
}

impl ChapAlgorithm {
    /// All of them, the strongest first.
    pub const ALL: [Self; 4] = [Self::Sha3_256, Self::Sha256, Self::Sha1, Self::Md5];

    /// The value of CHAP_A.
    pub const fn value(self) -> u8 {
        match self {
            Self::Md5 => 5,
            Self::Sha1 => 6,
            Self::Sha256 => 7,
            Self::Sha3_256 => 8,
        }
    }

    /// The algorithm of a value of CHAP_A.
    pub fn from_value(value: u64) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|algorithm| u64::from(algorithm.value()) == value)
    }

    /// Bytes of its digest, which is also how many a challenge has.
    pub const fn length(self) -> usize {
        match self {
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha256 | Self::Sha3_256 => 32,
        }
    }

    /// The first of a list of CHAP_A's values, which is in the initiator's order of preference, that is among `allowed`.
    pub fn choose(list: &str, allowed: &[Self]) -> Option<Self> {
        parse_list(list)
            .filter_map(|value| Self::from_value(parse_number(value)?))
            .find(|algorithm| allowed.contains(algorithm))
    }
}

impl fmt::Display for ChapAlgorithm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Md5 => "MD5",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA-256",
            Self::Sha3_256 => "SHA3-256",
        })
    }
}

/// A secret. It is not shown by `Debug`.
#[derive(Clone)]
pub struct Secret(Box<[u8]>);

/// A secret that cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "a CHAP secret has 1 to {SECRET_LENGTH_MAX} bytes, 12 or more to be safe; this has {length}"
)]
pub struct SecretLengthError {
    /// Bytes that were given.
    pub length: usize,
}

impl Secret {
    /// A secret of these bytes.
    ///
    /// # Errors
    /// There is none, or more than [`SECRET_LENGTH_MAX`].
    pub fn new(bytes: &[u8]) -> Result<Self, SecretLengthError> {
        let length = bytes.len();
        if (1..=SECRET_LENGTH_MAX).contains(&length) {
            Ok(Self(bytes.into()))
        } else {
            Err(SecretLengthError { length })
        }
    }

    /// Returns whether two secrets are the same: those of the two directions must not be (section 12.1.3).
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(..)")
    }
}

/// A name with its secret.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// CHAP_N.
    pub name: String,
    /// The secret.
    pub secret: Secret,
}

/// CHAP_I, CHAP_C and the algorithm: what one side asks of the other.
#[derive(Clone, PartialEq, Eq)]
pub struct Challenge {
    /// CHAP_A.
    pub algorithm: ChapAlgorithm,
    /// CHAP_I.
    pub identifier: u8,
    bytes: Vec<u8>,
}

impl fmt::Debug for Challenge {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Challenge")
            .field("algorithm", &self.algorithm)
            .field("identifier", &self.identifier)
            .finish_non_exhaustive()
    }
}

impl Challenge {
    /// A challenge as long as the algorithm's digest, of bytes that `random` fills.
    pub fn draw(algorithm: ChapAlgorithm, random: &mut dyn FnMut(&mut [u8])) -> Self {
        let mut bytes = vec![0; algorithm.length() + 1];
        random(&mut bytes);
        let identifier = bytes.pop().unwrap_or_default();
        Self {
            algorithm,
            identifier,
            bytes,
        }
    }

    /// A challenge that the peer sent; `None` where it has no bytes, or more than [`BINARY_LENGTH_MAX`].
    pub fn received(algorithm: ChapAlgorithm, identifier: u8, bytes: Vec<u8>) -> Option<Self> {
        let right = (1..=BINARY_LENGTH_MAX).contains(&bytes.len());
        right.then_some(Self {
            algorithm,
            identifier,
            bytes,
        })
    }

    /// CHAP_C.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// CHAP_R: the digest of identifier, secret and challenge (RFC 1994 section 4.1).
    pub fn response(&self, secret: &Secret) -> Vec<u8> {
        let parts = [&[self.identifier], &*secret.0, &self.bytes];
        match self.algorithm {
            ChapAlgorithm::Md5 => digest::<Md5>(parts),
            ChapAlgorithm::Sha1 => digest::<Sha1>(parts),
            ChapAlgorithm::Sha256 => digest::<Sha256>(parts),
            ChapAlgorithm::Sha3_256 => digest::<Sha3_256>(parts),
        }
    }

    /// Returns whether `response` is that of one who knows the secret. Takes as long for a wrong one.
    pub fn is_answered_by(&self, response: &[u8], secret: &Secret) -> bool {
        self.response(secret).ct_eq(response).into()
    }

    /// Returns whether `other` has the bytes of this challenge: a peer that sends them back has this side answer its own question
    /// (section 12.1.3).
    pub fn is_reflected_by(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

fn digest<D: Digest>(parts: [&[u8]; 3]) -> Vec<u8> {
    let mut digest = D::new();
    for part in parts {
        digest.update(part);
    }
    digest.finalize().to_vec()
}

/// Returns whether two names are the same, in a time that does not tell where they differ.
pub fn is_same_name(one: &str, other: &str) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}

#[cfg(test)]
mod tests;
