//! The keys by name, each with the rule by which two sides agree on it (RFC 7143 sections 12 and 13).

use core::fmt;
use core::ops::RangeInclusive;

/// Rule by which two sides agree on a key's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// A list of digests, of which the responder takes the first that it can (section 13.1).
    Digest,
    /// A boolean that is Yes where both say so.
    And,
    /// A boolean that is Yes where one says so.
    Or,
    /// The smaller number.
    Minimum(RangeInclusive<u64>),
    /// The larger number.
    Maximum(RangeInclusive<u64>),
    /// Each side declares its own number; there is no answer.
    Declared(RangeInclusive<u64>),
    /// A list, of which only what RFC 3720 did is taken (section 13.23).
    TaskReporting,
    /// Obsolete markers, answered with No (section 13.25).
    Marker,
    /// The obsolete markers' distance, answered with Reject (section 13.25).
    MarkerInterval,
    /// Not of the operational negotiation: names, the session's type, security.
    Elsewhere,
}

macro_rules! keys {
    ($( $(#[$meta:meta])* $key:ident = $name:literal, $rule:expr; )*) => {
        /// A key that has a meaning here.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Key {
            $( $(#[$meta])* $key, )*
        }

        impl Key {
            /// Every key. MaxBurstLength is before FirstBurstLength, whose bound it is.
            pub const ALL: &[Self] = &[$( Self::$key ),*];

            /// The key's name in text.
            pub const fn name(self) -> &'static str {
                match self {
                    $( Self::$key => $name, )*
                }
            }

            /// The rule by which its value is agreed.
            pub const fn rule(self) -> Rule {
                match self {
                    $( Self::$key => $rule, )*
                }
            }

            /// The key of a name; `None` for one that is not known.
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $( $name => Some(Self::$key), )*
                    _ => None,
                }
            }
        }
    };
}

/// Numbers of the lengths of data (sections 13.12 to 13.14).
const LENGTHS: RangeInclusive<u64> = 512..=(1 << 24) - 1;
/// Seconds (sections 13.15 and 13.16).
const SECONDS: RangeInclusive<u64> = 0..=3600;
/// Counts of connections and R2Ts (sections 13.2 and 13.17).
const COUNTS: RangeInclusive<u64> = 1..=65535;

keys! {
    /// Section 13.1.
    HeaderDigest = "HeaderDigest", Rule::Digest;
    /// Section 13.1.
    DataDigest = "DataDigest", Rule::Digest;
    /// Section 13.2.
    MaxConnections = "MaxConnections", Rule::Minimum(COUNTS);
    /// Section 13.3.
    SendTargets = "SendTargets", Rule::Elsewhere;
    /// Section 13.4.
    TargetName = "TargetName", Rule::Elsewhere;
    /// Section 13.5.
    InitiatorName = "InitiatorName", Rule::Elsewhere;
    /// Section 13.6.
    TargetAlias = "TargetAlias", Rule::Elsewhere;
    /// Section 13.7.
    InitiatorAlias = "InitiatorAlias", Rule::Elsewhere;
    /// Section 13.8.
    TargetAddress = "TargetAddress", Rule::Elsewhere;
    /// Section 13.9.
    TargetPortalGroupTag = "TargetPortalGroupTag", Rule::Elsewhere;
    /// Section 13.10.
    InitialR2T = "InitialR2T", Rule::Or;
    /// Section 13.11.
    ImmediateData = "ImmediateData", Rule::And;
    /// Section 13.12.
    MaxRecvDataSegmentLength = "MaxRecvDataSegmentLength", Rule::Declared(LENGTHS);
    /// Section 13.13.
    MaxBurstLength = "MaxBurstLength", Rule::Minimum(LENGTHS);
    /// Section 13.14.
    FirstBurstLength = "FirstBurstLength", Rule::Minimum(LENGTHS);
    /// Section 13.15.
    DefaultTime2Wait = "DefaultTime2Wait", Rule::Maximum(SECONDS);
    /// Section 13.16.
    DefaultTime2Retain = "DefaultTime2Retain", Rule::Minimum(SECONDS);
    /// Section 13.17.
    MaxOutstandingR2T = "MaxOutstandingR2T", Rule::Minimum(COUNTS);
    /// Section 13.18.
    DataPDUInOrder = "DataPDUInOrder", Rule::Or;
    /// Section 13.19.
    DataSequenceInOrder = "DataSequenceInOrder", Rule::Or;
    /// Section 13.20.
    ErrorRecoveryLevel = "ErrorRecoveryLevel", Rule::Minimum(0..=2);
    /// Section 13.21.
    SessionType = "SessionType", Rule::Elsewhere;
    /// Section 13.23.
    TaskReporting = "TaskReporting", Rule::TaskReporting;
    /// Section 13.24, RFC 7144 section 3.1.
    ISCSIProtocolLevel = "iSCSIProtocolLevel", Rule::Minimum(0..=31);
    /// Section 13.25.
    OFMarker = "OFMarker", Rule::Marker;
    /// Section 13.25.
    IFMarker = "IFMarker", Rule::Marker;
    /// Section 13.25.
    OFMarkInt = "OFMarkInt", Rule::MarkerInterval;
    /// Section 13.25.
    IFMarkInt = "IFMarkInt", Rule::MarkerInterval;
    /// Section 12.1.
    AuthMethod = "AuthMethod", Rule::Elsewhere;
    /// Algorithms, section 12.1.3.
    ChapAlgorithm = "CHAP_A", Rule::Elsewhere;
    /// Identifier, section 12.1.3.
    ChapIdentifier = "CHAP_I", Rule::Elsewhere;
    /// Challenge, section 12.1.3.
    ChapChallenge = "CHAP_C", Rule::Elsewhere;
    /// Name, section 12.1.3.
    ChapName = "CHAP_N", Rule::Elsewhere;
    /// Response, section 12.1.3.
    ChapResponse = "CHAP_R", Rule::Elsewhere;
}

impl Key {
    /// Returns whether the key has no meaning in a discovery session (section 13: "Irrelevant when: SessionType=Discovery").
    pub const fn is_irrelevant_in_discovery(self) -> bool {
        matches!(
            self,
            Self::MaxConnections
                | Self::InitialR2T
                | Self::ImmediateData
                | Self::MaxBurstLength
                | Self::FirstBurstLength
                | Self::MaxOutstandingR2T
                | Self::DataPDUInOrder
                | Self::DataSequenceInOrder
                | Self::TaskReporting
        )
    }

    /// Returns whether the key may be sent after the login, in a Text Request (section 13: "Use: ALL" and "FFPO").
    pub const fn is_for_full_feature(self) -> bool {
        matches!(
            self,
            Self::SendTargets
                | Self::MaxRecvDataSegmentLength
                | Self::InitiatorAlias
                | Self::TargetAlias
                | Self::TargetName
                | Self::TargetAddress
        )
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A set of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeySet(u64);

const _: () = assert!(Key::ALL.len() <= u64::BITS as usize, "a bit for each key");

impl KeySet {
    /// No key.
    pub const EMPTY: Self = Self(0);

    /// Adds a key; returns whether it was not there.
    pub const fn insert(&mut self, key: Key) -> bool {
        let fresh = !self.contains(key);
        self.0 |= 1 << key as u32;
        fresh
    }

    /// Takes a key out.
    pub const fn remove(&mut self, key: Key) {
        self.0 &= !(1 << key as u32);
    }

    /// Returns whether a key is in the set.
    pub const fn contains(self, key: Key) -> bool {
        self.0 & 1 << key as u32 != 0
    }

    /// Returns whether the set has no key.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}
