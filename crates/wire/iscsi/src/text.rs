//! Text of the full feature phase: SendTargets, and the few keys that may be declared anew (RFC 7143 sections 6.2, 11.10 and 13).

use crate::keys::{NOT_UNDERSTOOD, Pairs, REJECT, TextError, TextWriter, parse_number};
use crate::names::NameError;
use crate::negotiation::{Key, Parameters, Rule};
use crate::send_targets::SendTargets;
use std::collections::BTreeSet;
use thiserror::Error;

/// A text that a target answers with Reject.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TextRequestError {
    /// It is no text.
    #[error(transparent)]
    Text(#[from] TextError),
    /// A key came twice.
    #[error("{key} came twice")]
    Twice {
        /// The key.
        key: String,
    },
    /// A value is out of range.
    #[error("{key}={value} is out of range")]
    OutOfRange {
        /// The key.
        key: Key,
        /// The value.
        value: String,
    },
    /// SendTargets asks for what is no name.
    #[error("SendTargets: {0}")]
    SendTargets(#[from] NameError),
}

/// Result of a text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TextAnswer {
    /// The targets that are asked for, which the caller answers.
    pub send_targets: Option<SendTargets>,
    /// Answers to other keys.
    pub answers: TextWriter,
}

/// Takes a complete text of the full feature phase. A declared MaxRecvDataSegmentLength goes into `parameters`, unless there is an error.
///
/// # Errors
/// The text is malformed: the target answers with Reject.
pub fn answer_text(
    text: &[u8],
    parameters: &mut Parameters,
) -> Result<TextAnswer, TextRequestError> {
    let mut answer = TextAnswer::default();
    let mut keys = BTreeSet::new();
    let mut declared = *parameters;
    for pair in Pairs::new(text) {
        let pair = pair?;
        if !keys.insert(pair.key) {
            let key = pair.key.to_owned();
            return Err(TextRequestError::Twice { key });
        }
        match Key::from_name(pair.key) {
            Some(Key::SendTargets) => answer.send_targets = Some(SendTargets::parse(pair.value)?),
            Some(Key::MaxRecvDataSegmentLength) => {
                declared.peer_max_recv_data_segment_length = length(pair.value)?;
            }
            // Declared, and of no consequence here.
            Some(key) if key.is_for_full_feature() => {}
            Some(key) => answer.answers.push(key.name(), REJECT),
            None => answer.answers.push(pair.key, NOT_UNDERSTOOD),
        }
    }
    *parameters = declared;
    Ok(answer)
}

fn length(value: &str) -> Result<u32, TextRequestError> {
    let key = Key::MaxRecvDataSegmentLength;
    let Rule::Declared(range) = key.rule() else {
        unreachable!("{key} is declared")
    };
    let number = parse_number(value).filter(|number| range.contains(number));
    let number = number.ok_or_else(|| TextRequestError::OutOfRange {
        key,
        value: value.to_owned(),
    })?;
    Ok(number as u32)
}

#[cfg(test)]
mod tests;
