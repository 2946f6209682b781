//! Values of the operational keys: what one side offers, and what both agreed on.

use super::Key;
use crate::keys::parse_list;
use crate::reader::ReceiveParameters;
use crate::writer::Writer;

/// The field of a key that is a number, in an offer or in parameters.
macro_rules! numbers {
    ($key:expr, $of:expr, $($reference:tt)+) => {
        match $key {
            Key::MaxConnections => $($reference)+ $of.max_connections,
            Key::MaxBurstLength => $($reference)+ $of.max_burst_length,
            Key::FirstBurstLength => $($reference)+ $of.first_burst_length,
            Key::DefaultTime2Wait => $($reference)+ $of.default_time_to_wait,
            Key::DefaultTime2Retain => $($reference)+ $of.default_time_to_retain,
            Key::MaxOutstandingR2T => $($reference)+ $of.max_outstanding_r2t,
            Key::ErrorRecoveryLevel => $($reference)+ $of.error_recovery_level,
            Key::ISCSIProtocolLevel => $($reference)+ $of.protocol_level,
            other => unreachable!("{other} is no number that is agreed on"),
        }
    };
}

/// The field of a key that is a boolean, in an offer or in parameters.
macro_rules! booleans {
    ($key:expr, $of:expr, $($reference:tt)+) => {
        match $key {
            Key::InitialR2T => $($reference)+ $of.initial_r2t,
            Key::ImmediateData => $($reference)+ $of.immediate_data,
            Key::DataPDUInOrder => $($reference)+ $of.data_pdu_in_order,
            Key::DataSequenceInOrder => $($reference)+ $of.data_sequence_in_order,
            other => unreachable!("{other} is no boolean"),
        }
    };
}

/// Policy of one side for a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DigestPolicy {
    /// None.
    Refused,
    /// None where the peer may do without, CRC32C where it insists. As responder: the peer's preference.
    #[default]
    Allowed,
    /// CRC32C where the peer can, None otherwise. As responder: the peer's preference.
    Preferred,
    /// CRC32C.
    Required,
}

impl DigestPolicy {
    /// The first of the peer's list that this policy takes: whether it is CRC32C. `None` where there is none.
    pub fn choose(self, list: &str) -> Option<bool> {
        parse_list(list).find_map(|name| match name {
            "CRC32C" => self.takes(true).then_some(true),
            "None" => self.takes(false).then_some(false),
            _ => None,
        })
    }

    /// Returns whether this policy takes CRC32C, where `digest` is set, or none.
    pub const fn takes(self, digest: bool) -> bool {
        match self {
            Self::Refused => !digest,
            Self::Allowed | Self::Preferred => true,
            Self::Required => digest,
        }
    }
}

/// Offer of one side in a negotiation: its wishes and its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// HeaderDigest.
    pub header_digest: DigestPolicy,
    /// DataDigest.
    pub data_digest: DigestPolicy,
    /// MaxConnections.
    pub max_connections: u32,
    /// InitialR2T: Yes where unsolicited Data-Out is not wanted.
    pub initial_r2t: bool,
    /// ImmediateData: Yes where it is taken.
    pub immediate_data: bool,
    /// MaxRecvDataSegmentLength of this side, in bytes.
    pub max_recv_data_segment_length: u32,
    /// MaxBurstLength in bytes.
    pub max_burst_length: u32,
    /// FirstBurstLength in bytes.
    pub first_burst_length: u32,
    /// DefaultTime2Wait in seconds.
    pub default_time_to_wait: u32,
    /// DefaultTime2Retain in seconds.
    pub default_time_to_retain: u32,
    /// MaxOutstandingR2T.
    pub max_outstanding_r2t: u32,
    /// DataPDUInOrder.
    pub data_pdu_in_order: bool,
    /// DataSequenceInOrder.
    pub data_sequence_in_order: bool,
    /// ErrorRecoveryLevel.
    pub error_recovery_level: u32,
    /// iSCSIProtocolLevel.
    pub protocol_level: u32,
}

impl Default for Offer {
    /// One connection, error recovery level 0, data in order, immediate data and unsolicited data taken, the RFC's default lengths.
    fn default() -> Self {
        let default = Parameters::default();
        Self {
            header_digest: DigestPolicy::Allowed,
            data_digest: DigestPolicy::Allowed,
            max_connections: default.max_connections,
            initial_r2t: false,
            immediate_data: true,
            max_recv_data_segment_length: default.max_recv_data_segment_length,
            max_burst_length: default.max_burst_length,
            first_burst_length: default.first_burst_length,
            default_time_to_wait: default.default_time_to_wait,
            default_time_to_retain: default.default_time_to_retain,
            max_outstanding_r2t: default.max_outstanding_r2t,
            data_pdu_in_order: default.data_pdu_in_order,
            data_sequence_in_order: default.data_sequence_in_order,
            error_recovery_level: default.error_recovery_level,
            protocol_level: default.protocol_level,
        }
    }
}

/// Values that both sides agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    /// HeaderDigest is CRC32C.
    pub header_digest: bool,
    /// DataDigest is CRC32C.
    pub data_digest: bool,
    /// MaxConnections.
    pub max_connections: u32,
    /// InitialR2T: no unsolicited Data-Out, but immediate data if that is agreed.
    pub initial_r2t: bool,
    /// ImmediateData.
    pub immediate_data: bool,
    /// MaxRecvDataSegmentLength that this side declared, in bytes.
    pub max_recv_data_segment_length: u32,
    /// MaxRecvDataSegmentLength that the peer declared: most bytes of data in a PDU to it.
    pub peer_max_recv_data_segment_length: u32,
    /// MaxBurstLength in bytes: most of one R2T's data, or of a sequence of Data-In.
    pub max_burst_length: u32,
    /// FirstBurstLength in bytes: most of a command's unsolicited data, immediate data counted. Never above MaxBurstLength.
    pub first_burst_length: u32,
    /// DefaultTime2Wait in seconds.
    pub default_time_to_wait: u32,
    /// DefaultTime2Retain in seconds.
    pub default_time_to_retain: u32,
    /// MaxOutstandingR2T of a command.
    pub max_outstanding_r2t: u32,
    /// DataPDUInOrder.
    pub data_pdu_in_order: bool,
    /// DataSequenceInOrder.
    pub data_sequence_in_order: bool,
    /// ErrorRecoveryLevel.
    pub error_recovery_level: u32,
    /// iSCSIProtocolLevel.
    pub protocol_level: u32,
}

impl Default for Parameters {
    /// Those of a session in which nothing is negotiated (section 13, RFC 7144 section 3.1).
    fn default() -> Self {
        Self {
            header_digest: false,
            data_digest: false,
            max_connections: 1,
            initial_r2t: true,
            immediate_data: true,
            max_recv_data_segment_length: 8192,
            peer_max_recv_data_segment_length: 8192,
            max_burst_length: 262_144,
            first_burst_length: 65_536,
            default_time_to_wait: 2,
            default_time_to_retain: 20,
            max_outstanding_r2t: 1,
            data_pdu_in_order: true,
            data_sequence_in_order: true,
            error_recovery_level: 0,
            protocol_level: 1,
        }
    }
}

impl Parameters {
    /// Parameters for the reader of this side's connection.
    pub const fn receive(&self) -> ReceiveParameters {
        ReceiveParameters {
            header_digest: self.header_digest,
            data_digest: self.data_digest,
            data_segment_max: self.max_recv_data_segment_length,
        }
    }

    /// The writer of this side's connection.
    pub const fn writer(&self) -> Writer {
        Writer {
            header_digest: self.header_digest,
            data_digest: self.data_digest,
        }
    }

    pub(super) fn set_digest(&mut self, key: Key, value: bool) {
        match key {
            Key::HeaderDigest => self.header_digest = value,
            Key::DataDigest => self.data_digest = value,
            _ => unreachable!("{key} is no digest"),
        }
    }

    pub(super) fn digest(&self, key: Key) -> bool {
        match key {
            Key::HeaderDigest => self.header_digest,
            Key::DataDigest => self.data_digest,
            _ => unreachable!("{key} is no digest"),
        }
    }

    pub(super) fn set_number(&mut self, key: Key, value: u32) {
        *numbers!(key, self, &mut) = value;
    }

    pub(super) fn number(&self, key: Key) -> u32 {
        *numbers!(key, self, &)
    }

    pub(super) fn set_boolean(&mut self, key: Key, value: bool) {
        *booleans!(key, self, &mut) = value;
    }

    pub(super) fn boolean(&self, key: Key) -> bool {
        *booleans!(key, self, &)
    }
}

impl Offer {
    pub(super) fn digest(&self, key: Key) -> DigestPolicy {
        match key {
            Key::HeaderDigest => self.header_digest,
            Key::DataDigest => self.data_digest,
            _ => unreachable!("{key} is no digest"),
        }
    }

    pub(super) fn number(&self, key: Key) -> u32 {
        *numbers!(key, self, &)
    }

    pub(super) fn boolean(&self, key: Key) -> bool {
        *booleans!(key, self, &)
    }
}
