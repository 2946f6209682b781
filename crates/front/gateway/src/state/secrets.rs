//! Secrets: kept apart from all else of the state, and shown nowhere.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::StateError;
use crate::name::IscsiName;

/// A secret of CHAP. Neither its Debug nor its JSON form tells it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Fewest bytes of a secret: 96 bits (RFC 7143, 12.1.3).
    pub const LENGTH_MIN: usize = weir_iscsi::chap::SECRET_LENGTH_RECOMMENDED_MIN;
    /// Most bytes of a secret.
    pub const LENGTH_MAX: usize = weir_iscsi::chap::SECRET_LENGTH_MAX;

    /// A secret, as it came in `field`.
    ///
    /// # Errors
    /// It is too short or too long, or holds control characters. The error does not repeat it.
    pub fn new(field: &'static str, text: String) -> Result<Self, StateError> {
        if !(Self::LENGTH_MIN..=Self::LENGTH_MAX).contains(&text.len()) {
            return Err(StateError::invalid(field, "must have 12 to 255 bytes"));
        }
        if text.chars().any(char::is_control) {
            let problem = "must not hold control characters, such as the end of a line";
            return Err(StateError::invalid(field, problem));
        }
        Ok(Self(text))
    }

    /// The secret itself, for the proof and for the file of secrets.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// In place of a secret.
const HIDDEN: &str = "(hidden)";

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(HIDDEN)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HIDDEN)
    }
}

/// The secrets of CHAP at a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChapSecrets {
    /// What initiators prove themselves with.
    pub initiator: Secret,
    /// What the target proves itself with, where it does.
    pub target: Option<Secret>,
}

/// All secrets of a state. In the state's JSON stands their generation only; the store keeps them in a file of that generation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Secrets {
    /// The revision of the state in which they were last changed; none while there are none.
    pub generation: Option<u64>,
    /// Those of CHAP, by target.
    pub chap: BTreeMap<IscsiName, ChapSecrets>,
}

impl Secrets {
    /// Tells whether there are none.
    pub fn is_empty(&self) -> bool {
        self.chap.is_empty()
    }

    /// Takes over the generation of `before`, or is the one of `revision` where they are others.
    pub(super) fn count_change_since(&mut self, before: &Self, revision: u64) {
        if self.chap != before.chap {
            self.set_generation(revision);
        }
    }

    /// Makes them those of the state of `revision`.
    pub fn set_generation(&mut self, revision: u64) {
        self.generation = (!self.is_empty()).then_some(revision);
    }
}

impl Serialize for Secrets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.generation.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Secrets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self {
            generation: Some(u64::deserialize(deserializer)?),
            chap: BTreeMap::new(),
        })
    }
}
