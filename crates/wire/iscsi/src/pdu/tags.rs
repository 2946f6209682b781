//! Tags and identifiers of sessions, connections and tasks.

use crate::wire::{named_fields, open_enum};
use core::fmt;

/// Initiator Task Tag: an initiator's name for a task (RFC 7143 section 11.2.1.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Itt(pub u32);

impl Itt {
    /// No task.
    pub const RESERVED: Self = Self(0xffff_ffff);
}

/// Target Transfer Tag: a target's name for a transfer, which the initiator brings back (RFC 7143 section 11.7.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ttt(pub u32);

impl Ttt {
    /// No transfer.
    pub const RESERVED: Self = Self(0xffff_ffff);
}

/// Gives out Initiator Task Tags one after another, without the reserved one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IttSpace(u32);

impl IttSpace {
    /// Begins with `first`.
    pub const fn starting_at(first: Itt) -> Self {
        Self(first.0)
    }

    /// The next tag. An initiator with tasks that live for 2^32 others must skip theirs.
    pub const fn take(&mut self) -> Itt {
        let tag = Itt(self.0);
        self.0 = if self.0 == Itt::RESERVED.0 - 1 {
            0
        } else {
            self.0 + 1
        };
        tag
    }
}

/// Target Session Identifying Handle (RFC 7143 section 11.12.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tsih(pub u16);

impl Tsih {
    /// In a Login Request: a new session.
    pub const NONE: Self = Self(0);
}

/// Connection ID, which the initiator chooses (RFC 7143 section 11.12.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cid(pub u16);

/// Initiator Session ID (RFC 7143 section 11.12.5). Displayed as open-iscsi and the kernel write it, in twelve hexadecimal digits, after the
/// format that its two highest bits say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Isid(pub [u8; 6]);

/// The T field of an [`Isid`]: who gave out its naming part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IsidFormat {
    /// 00b: an IEEE OUI.
    Oui(u32),
    /// 01b: an IANA Enterprise Number.
    EnterpriseNumber(u32),
    /// 10b: random.
    Random(u32),
    /// 11b.
    Reserved,
}

impl Isid {
    /// An ISID of the random format: three random bytes and a qualifier.
    pub const fn random(naming: [u8; 3], qualifier: u16) -> Self {
        let [b, c, d] = naming;
        let [high, low] = qualifier.to_be_bytes();
        Self([0x80, b, c, d, high, low])
    }

    /// The format, with the value of its naming part.
    pub const fn format(self) -> IsidFormat {
        let [a, b, c, d, ..] = self.0;
        match a >> 6 {
            0 => IsidFormat::Oui(u32::from_be_bytes([0, a & 0x3f, b, c])),
            1 => IsidFormat::EnterpriseNumber(u32::from_be_bytes([0, b, c, d])),
            2 => IsidFormat::Random(u32::from_be_bytes([0, b, c, d])),
            _ => IsidFormat::Reserved,
        }
    }
}

impl fmt::Display for Isid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Display for IsidFormat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Oui(oui) => write!(formatter, "OUI {oui:06x}"),
            Self::EnterpriseNumber(number) => write!(formatter, "enterprise number {number}"),
            Self::Random(value) => write!(formatter, "random {value:06x}"),
            Self::Reserved => formatter.write_str("reserved"),
        }
    }
}

named_fields!(Itt, Ttt, Tsih, Cid, Isid);

macro_rules! display_tag {
    ($($tag:ident $format:literal),*) => {$(
        impl fmt::Display for $tag {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, $format, self.0)
            }
        }
    )*};
}
display_tag!(Itt "{:#x}", Ttt "{:#x}", Tsih "{}", Cid "{}");

open_enum! {
    /// A stage of a connection: CSG and NSG of the login PDUs (RFC 7143 section 11.12.3).
    pub enum Stage: u8 {
        /// SecurityNegotiation.
        Security = 0 => "SecurityNegotiation",
        /// LoginOperationalNegotiation.
        Operational = 1 => "LoginOperationalNegotiation",
        /// FullFeaturePhase.
        FullFeature = 3 => "FullFeaturePhase",
    }
}
