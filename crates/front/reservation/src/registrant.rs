//! Registrants: those who can register a key.

use weir_nvme::feature::HostIdentifier;

/// An I_T nexus of iSCSI: the initiator port and the target port of a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Nexus {
    /// Name of the initiator.
    pub initiator: Box<str>,
    /// ISID of the session.
    pub isid: [u8; 6],
    /// Name of the target.
    pub target: Box<str>,
    /// Target portal group tag, which with the name is the target port.
    pub portal_group: u16,
}

/// One who can register a key. A machine that comes on both protocols is two.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Registrant {
    /// An I_T nexus of SCSI.
    Nexus(Nexus),
    /// A host of NVMe, by the Host Identifier of its admin queue. Zeroes name no host.
    Host(HostIdentifier),
}

impl Registrant {
    /// One who never registers: clients of NFS, whose protocol has no reservations.
    pub const NOBODY: Self = Self::Host(HostIdentifier::Short([0; 8]));

    /// Says that a host gave no identifier, and so cannot hold anything.
    pub fn is_nameless(&self) -> bool {
        match self {
            Self::Nexus(_) => false,
            Self::Host(HostIdentifier::Short(bytes)) => *bytes == [0; 8],
            Self::Host(HostIdentifier::Extended(host)) => host.is_zero(),
        }
    }
}
