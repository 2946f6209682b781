//! Operational keys and what two sides agree on them (RFC 7143 sections 6.2 and 13, RFC 7144 section 3).
//!
//! A [`Negotiator`] serves either side: it answers what the peer proposes, proposes what this side needs, and judges the answers. It
//! knows no PDU and no stage; those are the login's.

mod key;
mod parameters;

pub use key::{Key, KeySet, Rule};
pub use parameters::{DigestPolicy, Offer, Parameters};

use crate::keys::{
    IRRELEVANT, NOT_UNDERSTOOD, REJECT, TextWriter, boolean, parse_boolean, parse_list,
    parse_number,
};
use crate::pdu::Side;
use thiserror::Error;

/// A negotiation that failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NegotiationError {
    /// A key came twice.
    #[error("{key} came twice")]
    Twice {
        /// The key's name.
        key: String,
    },
    /// An answer that the proposal does not allow.
    #[error("{key}={value} is no answer to {proposed}")]
    WrongAnswer {
        /// The key.
        key: Key,
        /// The answer.
        value: String,
        /// The proposal.
        proposed: String,
    },
    /// A declared value that cannot be.
    #[error("{key}={value} is out of range")]
    OutOfRange {
        /// The key.
        key: Key,
        /// Its value.
        value: String,
    },
    /// A digest that this side requires is not agreed.
    #[error("{key}=CRC32C is required, and the peer does not have it")]
    DigestRequired {
        /// HeaderDigest or DataDigest.
        key: Key,
    },
    /// The value that holds, as nothing else is agreed, is beyond what this side takes.
    #[error("{key}={value} holds, which is beyond this side's {limit}")]
    Unfit {
        /// The key.
        key: Key,
        /// The value that holds.
        value: String,
        /// Offer of this side.
        limit: String,
    },
}

/// One side of an operational negotiation.
#[derive(Debug, Clone)]
pub struct Negotiator {
    side: Side,
    offer: Offer,
    /// Keys that have no meaning in a discovery session are answered so.
    discovery: bool,
    parameters: Parameters,
    /// Keys that the peer sent.
    received: KeySet,
    /// Keys that this side proposed.
    proposed: KeySet,
    /// Those of them whose answer must come.
    awaited: KeySet,
}

impl Negotiator {
    /// A negotiation in which every value is its default.
    pub fn new(side: Side, offer: Offer) -> Self {
        let parameters = Parameters::default();
        Self {
            side,
            offer,
            discovery: false,
            parameters,
            received: KeySet::EMPTY,
            proposed: KeySet::EMPTY,
            awaited: KeySet::EMPTY,
        }
    }

    /// Says that the session is one of discovery.
    pub const fn set_discovery(&mut self) {
        self.discovery = true;
    }

    /// Changes what this side wants, before it proposed or answered anything.
    pub fn set_offer(&mut self, offer: Offer) {
        self.offer = offer;
    }

    /// Values agreed so far; the defaults where nothing is.
    pub const fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Returns whether every proposal that needs an answer has one.
    pub const fn is_settled(&self) -> bool {
        self.awaited.is_empty()
    }

    /// Takes a key from the peer. An answer to it goes into `answers`. Returns whether the key is of the operational negotiation; another
    /// is the caller's.
    ///
    /// # Errors
    /// The negotiation failed, and the login with it.
    pub fn receive(
        &mut self,
        key: Key,
        value: &str,
        answers: &mut TextWriter,
    ) -> Result<bool, NegotiationError> {
        if matches!(key.rule(), Rule::Elsewhere) {
            return Ok(false);
        }
        if !self.received.insert(key) {
            return Err(NegotiationError::Twice {
                key: key.name().to_owned(),
            });
        }
        if self.proposed.contains(key) {
            self.awaited.remove(key);
            self.judge_answer(key, value)?;
        } else if !matches!(value, REJECT | IRRELEVANT | NOT_UNDERSTOOD) {
            self.judge_proposal(key, value, answers)?;
        }
        Ok(true)
    }

    /// Proposes, once, what this side needs: an initiator all of its keys, a target those whose default is beyond what it takes. Its
    /// MaxRecvDataSegmentLength is declared, too.
    pub fn propose(&mut self, text: &mut TextWriter) {
        for &key in Key::ALL {
            let wanted = match self.side {
                Side::Initiator => true,
                Side::Target => !self.is_fit(key, &self.parameters),
            };
            let fresh = !self.received.contains(key) && !self.proposed.contains(key);
            if wanted && fresh && !self.is_irrelevant(key) {
                self.propose_key(key, text);
            }
        }
        self.declare(text);
    }

    /// Declares MaxRecvDataSegmentLength, once.
    pub fn declare(&mut self, text: &mut TextWriter) {
        let key = Key::MaxRecvDataSegmentLength;
        if self.parameters.max_recv_data_segment_length != self.offer.max_recv_data_segment_length {
            let length = self.offer.max_recv_data_segment_length;
            self.parameters.max_recv_data_segment_length = length;
            text.push(key.name(), length);
        }
    }

    /// Values that both sides agreed on, at the end.
    ///
    /// # Errors
    /// A value that holds is not within what this side offers.
    pub fn finish(&self) -> Result<Parameters, NegotiationError> {
        let mut parameters = self.parameters;
        // Where one was negotiated and the other is the default.
        let burst = parameters.max_burst_length;
        parameters.first_burst_length = parameters.first_burst_length.min(burst);
        for &key in Key::ALL {
            if !self.is_irrelevant(key) && !self.is_fit(key, &parameters) {
                return Err(self.unfit(key, &parameters));
            }
        }
        Ok(parameters)
    }

    /// Returns whether a key's value is within what this side offers.
    fn is_fit(&self, key: Key, parameters: &Parameters) -> bool {
        let offer = &self.offer;
        match key.rule() {
            Rule::Digest => offer.digest(key).takes(parameters.digest(key)),
            Rule::Minimum(_) => parameters.number(key) <= offer.number(key),
            Rule::Maximum(_) => parameters.number(key) >= offer.number(key),
            Rule::And => offer.boolean(key) || !parameters.boolean(key),
            Rule::Or => !offer.boolean(key) || parameters.boolean(key),
            _ => true,
        }
    }

    fn unfit(&self, key: Key, parameters: &Parameters) -> NegotiationError {
        let value = match key.rule() {
            Rule::Digest => return NegotiationError::DigestRequired { key },
            Rule::And | Rule::Or => boolean(parameters.boolean(key)).to_owned(),
            _ => parameters.number(key).to_string(),
        };
        let limit = self.proposal(key);
        NegotiationError::Unfit { key, value, limit }
    }

    /// Returns whether a key has no meaning in this session (section 13: "Irrelevant when").
    const fn is_irrelevant(&self, key: Key) -> bool {
        self.discovery && key.is_irrelevant_in_discovery()
    }

    fn propose_key(&mut self, key: Key, text: &mut TextWriter) {
        let value = match key.rule() {
            Rule::Digest => match self.offer.digest(key) {
                DigestPolicy::Refused => "None".to_owned(),
                DigestPolicy::Allowed => "None,CRC32C".to_owned(),
                DigestPolicy::Preferred => "CRC32C,None".to_owned(),
                DigestPolicy::Required => "CRC32C".to_owned(),
            },
            Rule::Minimum(_) | Rule::Maximum(_) => self.offer.number(key).to_string(),
            Rule::And | Rule::Or => boolean(self.offer.boolean(key)).to_owned(),
            // Only the default would be proposed.
            Rule::TaskReporting | Rule::Marker | Rule::MarkerInterval => return,
            Rule::Declared(_) | Rule::Elsewhere => return,
        };
        text.push(key.name(), value);
        self.proposed.insert(key);
        if !self.settle_boolean(key) {
            self.awaited.insert(key);
        }
    }

    /// Settles a boolean whose proposal decides it, so that an answer is optional (section 6.2.2). Returns whether it is so.
    fn settle_boolean(&mut self, key: Key) -> bool {
        let decides = match key.rule() {
            Rule::And => false,
            Rule::Or => true,
            _ => return false,
        };
        if self.offer.boolean(key) != decides {
            return false;
        }
        self.parameters.set_boolean(key, decides);
        true
    }

    fn judge_proposal(
        &mut self,
        key: Key,
        value: &str,
        answers: &mut TextWriter,
    ) -> Result<(), NegotiationError> {
        if self.is_irrelevant(key) {
            answers.push(key.name(), IRRELEVANT);
            return Ok(());
        }
        if let Rule::Declared(range) = key.rule() {
            let number = parse_number(value).filter(|number| range.contains(number));
            let number = number.ok_or_else(|| NegotiationError::OutOfRange {
                key,
                value: value.to_owned(),
            })?;
            self.parameters.peer_max_recv_data_segment_length = number as u32;
            return Ok(());
        }
        match self.agree(key, value) {
            Some(answer) => answers.push(key.name(), answer),
            None => answers.push(key.name(), REJECT),
        }
        Ok(())
    }

    /// Agrees to a proposal and returns the answer; `None` where it cannot be agreed to, and the value stays.
    fn agree(&mut self, key: Key, value: &str) -> Option<String> {
        match key.rule() {
            Rule::Digest => {
                let digest = self.offer.digest(key).choose(value)?;
                self.parameters.set_digest(key, digest);
                Some(digest_name(digest).to_owned())
            }
            Rule::And | Rule::Or => {
                let (theirs, ours) = (parse_boolean(value)?, self.offer.boolean(key));
                let agreed = match key.rule() {
                    Rule::And => theirs && ours,
                    _ => theirs || ours,
                };
                self.parameters.set_boolean(key, agreed);
                Some(boolean(agreed).to_owned())
            }
            Rule::Minimum(range) | Rule::Maximum(range) => {
                let theirs = parse_number(value).filter(|number| range.contains(number))? as u32;
                let agreed = self.agree_number(key, theirs);
                self.parameters.set_number(key, agreed);
                Some(agreed.to_string())
            }
            Rule::TaskReporting => parse_list(value)
                .find(|way| *way == "RFC3720")
                .map(str::to_owned),
            Rule::Marker => Some(boolean(false).to_owned()),
            Rule::MarkerInterval | Rule::Declared(_) | Rule::Elsewhere => None,
        }
    }

    fn agree_number(&self, key: Key, theirs: u32) -> u32 {
        let ours = self.offer.number(key);
        match key {
            // It must not be above MaxBurstLength, which came before.
            Key::FirstBurstLength => ours.min(theirs).min(self.parameters.max_burst_length),
            _ if matches!(key.rule(), Rule::Maximum(_)) => ours.max(theirs),
            _ => ours.min(theirs),
        }
    }

    fn judge_answer(&mut self, key: Key, value: &str) -> Result<(), NegotiationError> {
        if matches!(value, REJECT | IRRELEVANT | NOT_UNDERSTOOD) {
            // The value stays; `finish` says where it cannot.
            return Ok(());
        }
        self.take_answer(key, value)
            .ok_or_else(|| NegotiationError::WrongAnswer {
                key,
                value: value.to_owned(),
                proposed: self.proposal(key),
            })
    }

    /// Takes an answer that the proposal allows; `None` for another.
    fn take_answer(&mut self, key: Key, value: &str) -> Option<()> {
        match key.rule() {
            Rule::Digest => {
                let digest = self.offer.digest(key).choose(value)?;
                // An answer is one value.
                if value != digest_name(digest) {
                    return None;
                }
                self.parameters.set_digest(key, digest);
            }
            Rule::And | Rule::Or => {
                let (theirs, ours) = (parse_boolean(value)?, self.offer.boolean(key));
                let possible = match key.rule() {
                    Rule::And => ours || !theirs,
                    _ => !ours || theirs,
                };
                if !possible {
                    return None;
                }
                self.parameters.set_boolean(key, theirs);
            }
            Rule::Minimum(range) | Rule::Maximum(range) => {
                let theirs = parse_number(value).filter(|number| range.contains(number))? as u32;
                let ours = self.offer.number(key);
                let possible = match key.rule() {
                    Rule::Maximum(_) => theirs >= ours,
                    _ => theirs <= ours,
                };
                if !possible {
                    return None;
                }
                self.parameters.set_number(key, theirs);
            }
            _ => {}
        }
        Some(())
    }

    /// The value that was proposed, for an error.
    fn proposal(&self, key: Key) -> String {
        match key.rule() {
            Rule::Digest => format!("{:?}", self.offer.digest(key)),
            Rule::And | Rule::Or => boolean(self.offer.boolean(key)).to_owned(),
            _ => self.offer.number(key).to_string(),
        }
    }
}

const fn digest_name(digest: bool) -> &'static str {
    if digest { "CRC32C" } else { "None" }
}

#[cfg(test)]
pub(crate) mod tests;
