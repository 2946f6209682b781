//! The security stage: the method, and CHAP's exchange (RFC 7143 sections 12.1 and 12.1.3).

use super::LoginError;
use crate::chap::{Challenge, ChapAlgorithm, Credentials, is_same_name};
use crate::keys::{TextWriter, parse_list};
use crate::login::{
    ChapError, Text, algorithm_list, push_challenge, push_response, read_challenge, read_response,
};
use crate::negotiation::Key;

/// Proof of identity that an initiator must give.
#[derive(Debug, Clone)]
pub enum Authentication {
    /// It need not.
    None,
    /// By CHAP.
    Chap(Box<ChapAuthentication>),
}

/// CHAP's settings for one initiator.
#[derive(Debug, Clone)]
pub struct ChapAuthentication {
    /// Name and secret of the initiator.
    pub initiator: Credentials,
    /// Name and secret by which the target proves itself to an initiator that asks for it. The secret must not be the initiator's.
    pub target: Option<Credentials>,
    /// Algorithms that are allowed. The initiator's preference decides.
    pub algorithms: Vec<ChapAlgorithm>,
}

/// The security stage's progress.
#[derive(Debug)]
pub(super) enum Security {
    /// It is not known what is required.
    Unknown,
    /// Nothing is required.
    Open,
    /// CHAP is required, and AuthMethod awaited.
    Method(Box<ChapAuthentication>),
    /// CHAP_A is awaited.
    Algorithm(Box<ChapAuthentication>),
    /// CHAP_N and CHAP_R are awaited.
    Response(Box<ChapAuthentication>, Challenge),
    /// The initiator proved that it is this.
    Proven(String),
}

impl Security {
    pub(super) fn new(authentication: Authentication) -> Self {
        match authentication {
            Authentication::None => Self::Open,
            Authentication::Chap(chap) => Self::Method(chap),
        }
    }

    /// Returns whether the stage may be left. What is required and was never offered is an error, not a reason to wait.
    pub(super) const fn is_done(&self) -> bool {
        !matches!(self, Self::Algorithm(_) | Self::Response(..))
    }

    /// Refuses an initiator that would go on without having proven who it is.
    pub(super) const fn check_open(&self) -> Result<(), LoginError> {
        match self {
            Self::Open | Self::Proven(_) => Ok(()),
            _ => Err(LoginError::AuthenticationRequired),
        }
    }

    /// CHAP_N of an initiator that proved it.
    pub(super) fn user(&self) -> Option<&str> {
        match self {
            Self::Proven(user) => Some(user),
            _ => None,
        }
    }

    /// Answers a text of the security stage.
    pub(super) fn answer(
        &mut self,
        text: &Text<'_>,
        random: &mut dyn FnMut(&mut [u8]),
        answers: &mut TextWriter,
    ) -> Result<(), LoginError> {
        let state = core::mem::replace(self, Self::Unknown);
        *self = match state {
            Self::Open => {
                answer_open(text, answers)?;
                Self::Open
            }
            Self::Method(chap) => answer_method(chap, text, answers)?,
            Self::Algorithm(chap) => answer_algorithm(chap, text, random, answers)?,
            Self::Response(chap, challenge) => {
                Self::Proven(answer_response(&chap, &challenge, text, answers)?)
            }
            state @ (Self::Unknown | Self::Proven(_)) => state,
        };
        Ok(())
    }
}

/// Says that no proof is needed, where the initiator asks.
fn answer_open(text: &Text<'_>, answers: &mut TextWriter) -> Result<(), LoginError> {
    let Some(offered) = text.get(Key::AuthMethod) else {
        return Ok(());
    };
    if !parse_list(offered).any(|method| method == "None") {
        return Err(LoginError::NoMethod {
            offered: offered.to_owned(),
            allowed: "None",
        });
    }
    answers.push(Key::AuthMethod.name(), "None");
    Ok(())
}

fn answer_method(
    chap: Box<ChapAuthentication>,
    text: &Text<'_>,
    answers: &mut TextWriter,
) -> Result<Security, LoginError> {
    let Some(offered) = text.get(Key::AuthMethod) else {
        return Ok(Security::Method(chap));
    };
    if !parse_list(offered).any(|method| method == "CHAP") {
        return Err(LoginError::NoMethod {
            offered: offered.to_owned(),
            allowed: "CHAP",
        });
    }
    answers.push(Key::AuthMethod.name(), "CHAP");
    Ok(Security::Algorithm(chap))
}

fn answer_algorithm(
    chap: Box<ChapAuthentication>,
    text: &Text<'_>,
    random: &mut dyn FnMut(&mut [u8]),
    answers: &mut TextWriter,
) -> Result<Security, LoginError> {
    let Some(offered) = text.get(Key::ChapAlgorithm) else {
        return Err(ChapError::Missing(Key::ChapAlgorithm).into());
    };
    let algorithm =
        ChapAlgorithm::choose(offered, &chap.algorithms).ok_or_else(|| ChapError::NoAlgorithm {
            offered: offered.to_owned(),
            allowed: algorithm_list(&chap.algorithms),
        })?;
    let challenge = Challenge::draw(algorithm, random);
    answers.push(Key::ChapAlgorithm.name(), algorithm.value());
    push_challenge(answers, &challenge);
    Ok(Security::Response(chap, challenge))
}

/// Judges the initiator's response, and answers its challenge where it has one. Returns its name.
fn answer_response(
    chap: &ChapAuthentication,
    challenge: &Challenge,
    text: &Text<'_>,
    answers: &mut TextWriter,
) -> Result<String, LoginError> {
    let (name, response) = read_response(text)?;
    // Both are judged, whichever is wrong.
    let right_name = is_same_name(name, &chap.initiator.name);
    let right = challenge.is_answered_by(&response, &chap.initiator.secret) & right_name;
    if !right {
        let name = name.to_owned();
        return Err(ChapError::Wrong { name }.into());
    }
    let asked = [Key::ChapIdentifier, Key::ChapChallenge];
    if asked.into_iter().any(|key| text.get(key).is_some()) {
        let theirs = read_challenge(text, challenge.algorithm)?;
        if challenge.is_reflected_by(&theirs) {
            return Err(ChapError::Reflected.into());
        }
        let target = chap.target.as_ref().ok_or(ChapError::NoTargetSecret)?;
        if target.secret.is_same(&chap.initiator.secret) {
            return Err(ChapError::SameSecret.into());
        }
        push_response(answers, &target.name, &theirs.response(&target.secret));
    }
    Ok(name.to_owned())
}
