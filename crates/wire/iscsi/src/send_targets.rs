//! The answer to SendTargets: the targets and where they are (RFC 7143 section 13.3 and appendix C).

use crate::names::{Name, NameError};
use core::fmt;
use std::net::SocketAddr;

/// The value of SendTargets: which targets are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendTargets {
    /// `All`: all that the initiator may see; in a discovery session only.
    All,
    /// One target.
    Target(Name),
    /// Empty: the session's own target.
    Session,
}

impl SendTargets {
    /// Reads the value of the key.
    ///
    /// # Errors
    /// It is neither All nor empty nor a name.
    pub fn parse(value: &str) -> Result<Self, NameError> {
        match value {
            "All" => Ok(Self::All),
            "" => Ok(Self::Session),
            name => name.parse().map(Self::Target),
        }
    }
}

/// TargetAddress: a portal and its group (section 13.8). An IPv6 address is shown in brackets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TargetAddress {
    /// Address and port.
    pub portal: SocketAddr,
    /// TargetPortalGroupTag.
    pub group: u16,
}

impl fmt::Display for TargetAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{},{}", self.portal, self.group)
    }
}

/// The pairs of an answer, with their zero bytes: of each target its name, then its addresses. A target without an address may be reached
/// at the one where the initiator asked.
pub fn target_records<'a, A>(
    targets: impl IntoIterator<Item = (&'a Name, A)>,
) -> impl Iterator<Item = String>
where
    A: IntoIterator<Item = TargetAddress>,
{
    targets.into_iter().flat_map(|(name, addresses)| {
        let name = format!("TargetName={name}\0");
        let addresses = addresses.into_iter();
        let addresses = addresses.map(|address| format!("TargetAddress={address}\0"));
        core::iter::once(name).chain(addresses)
    })
}

/// Cuts pairs into the text of PDUs; a pair may be cut.
#[derive(Debug)]
pub struct PairCutter<I: Iterator<Item = String>> {
    pairs: core::iter::Peekable<I>,
    /// A pair that was begun, and how much of it was taken.
    begun: Option<(String, usize)>,
}

impl<I: Iterator<Item = String>> PairCutter<I> {
    /// Cuts these pairs, each with its zero byte.
    pub fn new(pairs: impl IntoIterator<Item = String, IntoIter = I>) -> Self {
        Self {
            pairs: pairs.into_iter().peekable(),
            begun: None,
        }
    }

    /// Puts the next PDU's text into `text`, up to `maximum` bytes in all. Returns whether more follows, which is the C bit.
    pub fn fill(&mut self, text: &mut Vec<u8>, maximum: usize) -> bool {
        while text.len() < maximum {
            let Some((pair, taken)) = self.begun.take().or_else(|| Some((self.pairs.next()?, 0)))
            else {
                return false;
            };
            let end = pair.len().min(taken + maximum - text.len());
            text.extend_from_slice(&pair.as_bytes()[taken..end]);
            if end < pair.len() {
                self.begun = Some((pair, end));
            }
        }
        self.begun.is_some() || self.pairs.peek().is_some()
    }
}

#[cfg(test)]
mod tests;
