//! The login phase of a connection, both sides, as state machines over whole PDUs (RFC 7143 sections 6.3 and 12).
//!
//! They do no I/O, read no clock and draw no random numbers. A target's is [`TargetLogin`], an initiator's [`InitiatorLogin`].

mod initiator;
mod target;

pub use initiator::{
    InitiatorChap, InitiatorLogin, InitiatorLoginError, InitiatorSettings, InitiatorStep,
};
pub use target::{
    Admission, Authentication, ChapAuthentication, Claim, LoginEnvironment, LoginError,
    LoginLimits, Refusal, TargetLogin, TargetStep,
};

use crate::chap::{Challenge, ChapAlgorithm};
use crate::keys::{Pairs, TextError, TextWriter, hexadecimal, parse_binary, parse_number};
use crate::names::Name;
use crate::negotiation::{Key, KeySet, NegotiationError, Parameters};
use crate::pdu::{Cid, Isid, LoginRequest, LoginResponse, Stage, Tsih};
use crate::serial::Serial;
use std::collections::BTreeSet;
use thiserror::Error;

/// The version of iSCSI that is spoken here (section 11.12.4).
pub const VERSION: u8 = 0;

/// A session's type, with what it is a session with (section 13.21).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SessionType {
    /// A session with one target.
    Normal(Name),
    /// A session in which only targets are asked for.
    Discovery,
}

/// A connection that logged in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedIn {
    /// InitiatorName.
    pub initiator: Name,
    /// InitiatorAlias, where there is one.
    pub initiator_alias: Option<String>,
    /// Session type, with the target.
    pub session: SessionType,
    /// Initiator Session ID.
    pub isid: Isid,
    /// Target Session Identifying Handle: of the target's outcome that of the request, 0 for a new session, whose handle the target
    /// then chooses.
    pub tsih: Tsih,
    /// Connection ID.
    pub cid: Cid,
    /// Values that were agreed.
    pub parameters: Parameters,
    /// CmdSN of the session's first command.
    pub cmd_sn: Serial,
    /// StatSN of the next response: a target sends it, an initiator expects it.
    pub stat_sn: Serial,
    /// MaxCmdSN of the last Login Response, for an initiator.
    pub max_cmd_sn: Serial,
    /// CHAP_N of the initiator, where it was authenticated.
    pub user: Option<String>,
}

/// A Login Request with its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The header.
    pub header: LoginRequest,
    /// The data segment.
    pub text: Vec<u8>,
}

/// A Login Response with its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The header.
    pub header: LoginResponse,
    /// The data segment.
    pub text: Vec<u8>,
}

/// CHAP keys that are wrong, or that do not prove what they should (section 12.1.3).
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ChapError {
    /// No algorithm that both sides have.
    #[error("no CHAP algorithm of CHAP_A={offered} is allowed; allowed are {allowed}")]
    NoAlgorithm {
        /// Algorithms that the peer offered or chose.
        offered: String,
        /// Algorithms that this side allows.
        allowed: String,
    },
    /// A key is missing.
    #[error("{0} is missing")]
    Missing(Key),
    /// A key's value is malformed.
    #[error("the value of {0} is malformed")]
    Malformed(Key),
    /// The name is not known, or the response is not that of the secret.
    #[error("CHAP name {name:?} or its response is wrong")]
    Wrong {
        /// CHAP_N.
        name: String,
    },
    /// Both directions have the same secret, so that neither proves anything.
    #[error("the secrets of initiator and target are the same; give the target another")]
    SameSecret,
    /// The peer sent this side's own challenge back.
    #[error("the peer sent this side's own challenge back")]
    Reflected,
    /// The initiator wants the target to prove itself, which has no secret for it.
    #[error("the initiator wants the target to authenticate itself, which has no secret for that")]
    NoTargetSecret,
}

/// Keys of one text, by their meaning: each once.
#[derive(Debug, Default)]
struct Text<'a> {
    known: Vec<(Key, &'a str)>,
    unknown: Vec<&'a str>,
}

impl<'a> Text<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, TextError> {
        let mut text = Self::default();
        for pair in Pairs::new(bytes) {
            let pair = pair?;
            match Key::from_name(pair.key) {
                Some(key) => text.known.push((key, pair.value)),
                None => text.unknown.push(pair.key),
            }
        }
        // FirstBurstLength is bounded by MaxBurstLength.
        text.known
            .sort_by_key(|(key, _)| *key == Key::FirstBurstLength);
        Ok(text)
    }

    fn get(&self, key: Key) -> Option<&'a str> {
        let found = self.known.iter().find(|(one, _)| *one == key);
        found.map(|(_, value)| *value)
    }
}

/// Keys that came during the login and are not the negotiator's, to find those that come again (section 6.3).
#[derive(Debug, Clone, Default)]
struct Received {
    known: KeySet,
    unknown: BTreeSet<String>,
}

impl Received {
    fn known(&mut self, key: Key) -> Result<(), NegotiationError> {
        // TargetAddress may come again.
        if self.known.insert(key) || key == Key::TargetAddress {
            return Ok(());
        }
        Err(NegotiationError::Twice {
            key: key.name().to_owned(),
        })
    }

    fn unknown(&mut self, key: &str) -> Result<(), NegotiationError> {
        if self.unknown.insert(key.to_owned()) {
            return Ok(());
        }
        Err(NegotiationError::Twice {
            key: key.to_owned(),
        })
    }
}

/// Adds CHAP_I and CHAP_C.
fn push_challenge(text: &mut TextWriter, challenge: &Challenge) {
    text.push(Key::ChapIdentifier.name(), challenge.identifier);
    text.push(Key::ChapChallenge.name(), hexadecimal(challenge.bytes()));
}

/// Adds CHAP_N and CHAP_R.
fn push_response(text: &mut TextWriter, name: &str, response: &[u8]) {
    text.push(Key::ChapName.name(), name);
    text.push(Key::ChapResponse.name(), hexadecimal(response));
}

/// Reads CHAP_I and CHAP_C.
fn read_challenge(text: &Text<'_>, algorithm: ChapAlgorithm) -> Result<Challenge, ChapError> {
    let identifier = required(text, Key::ChapIdentifier)?;
    let identifier = parse_number(identifier).and_then(|number| u8::try_from(number).ok());
    let identifier = identifier.ok_or(ChapError::Malformed(Key::ChapIdentifier))?;
    let bytes = parse_binary(required(text, Key::ChapChallenge)?);
    bytes
        .and_then(|bytes| Challenge::received(algorithm, identifier, bytes))
        .ok_or(ChapError::Malformed(Key::ChapChallenge))
}

/// Reads CHAP_N and CHAP_R.
fn read_response<'a>(text: &Text<'a>) -> Result<(&'a str, Vec<u8>), ChapError> {
    let name = required(text, Key::ChapName)?;
    let response = parse_binary(required(text, Key::ChapResponse)?);
    let response = response.ok_or(ChapError::Malformed(Key::ChapResponse))?;
    Ok((name, response))
}

fn required<'a>(text: &Text<'a>, key: Key) -> Result<&'a str, ChapError> {
    text.get(key).ok_or(ChapError::Missing(key))
}

/// Algorithms as a list of CHAP_A.
fn algorithm_list(algorithms: &[ChapAlgorithm]) -> String {
    let values = algorithms
        .iter()
        .map(|algorithm| algorithm.value().to_string());
    values.collect::<Vec<_>>().join(",")
}

/// Returns whether a connection may go from one stage to another (section 6.3).
const fn is_transition(current: Stage, next: Stage) -> bool {
    matches!(
        (current, next),
        (Stage::Security, Stage::Operational | Stage::FullFeature)
            | (Stage::Operational, Stage::FullFeature)
    )
}

#[cfg(test)]
mod tests;
