//! The rules of a PDU's lengths and flags, and how a connection ends that breaks them (NVMe/TCP
//! Transport 1.0c sections 3.5 and 3.6).
//!
//! Of several wrong fields the one nearest to the start of the header is named. Reserved flags,
//! and PDO of a PDU that has no data, are ignored: peers differ in them.

use crate::tcp::pdu::{
    Alignment, COMMAND_HEADER, CommonHeader, DATA_HEADER, FatalErrorStatus, INITIALIZE_HEADER,
    PduFlags, PduType, R2T_HEADER, RESPONSE_HEADER, TERMINATION_HEADER, TERMINATION_SIZE_MAX,
    offset,
};
use thiserror::Error;
use weir_digest::DIGEST_LENGTH;

/// Which end of the connection receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The controller: receives ICReq, H2CTermReq, CapsuleCmd and H2CData.
    Controller,
    /// The host: receives ICResp, C2HTermReq, CapsuleResp, C2HData and R2T.
    Host,
}

/// A fatal error, as a termination request tells it to the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
#[error("{status} (FES {:#04x}, FEI {information:#x})", status.value())]
pub struct Termination {
    /// Fatal Error Status (FES).
    pub status: FatalErrorStatus,
    /// Fatal Error Information (FEI), as the status defines it; else 0.
    pub information: u32,
}

impl Termination {
    /// Invalid PDU Header Field: the field that starts at this byte of the PDU.
    pub const fn invalid_field(byte: u32) -> Self {
        Self {
            status: FatalErrorStatus::InvalidPduHeaderField,
            information: byte,
        }
    }

    /// PDU Sequence Error: the PDU is not expected in this state.
    pub const fn sequence_error() -> Self {
        Self {
            status: FatalErrorStatus::PduSequenceError,
            information: 0,
        }
    }

    /// Header Digest Error, with the digest that was received.
    pub const fn header_digest_error(received: u32) -> Self {
        Self {
            status: FatalErrorStatus::HeaderDigestError,
            information: received,
        }
    }

    /// Data Transfer Out of Range: data outside what the command or R2T asked for.
    pub const fn out_of_range() -> Self {
        Self {
            status: FatalErrorStatus::DataTransferOutOfRange,
            information: 0,
        }
    }

    /// Data Transfer Limit Exceeded (towards the host) or R2T Limit Exceeded (towards the
    /// controller).
    pub const fn limit_exceeded() -> Self {
        Self {
            status: FatalErrorStatus::LimitExceeded,
            information: 0,
        }
    }

    /// Unsupported Parameter: the one that starts at this byte of the PDU.
    pub const fn unsupported_parameter(byte: u32) -> Self {
        Self {
            status: FatalErrorStatus::UnsupportedParameter,
            information: byte,
        }
    }
}

/// Why a connection is closed without a termination request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
pub enum CloseReason {
    /// A termination request is itself malformed; it is not answered by another.
    #[error("a termination request has header length {header_length} and PDU length {length}")]
    MalformedTermination {
        /// HLEN.
        header_length: u8,
        /// PLEN.
        length: u32,
    },
    /// Bytes after a termination request.
    #[error("the peer went on after its termination request")]
    AfterTermination,
}

/// How a connection must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
pub enum FramingError {
    /// Send a termination request with this, then close.
    #[error("the connection is terminated: {0}")]
    Terminate(#[from] Termination),
    /// Close.
    #[error("the connection is closed: {0}")]
    Close(#[from] CloseReason),
}

/// What was agreed, as far as it concerns the PDUs that one side receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReceiveParameters {
    /// Header digests are enabled.
    pub header_digest: bool,
    /// Data digests are enabled.
    pub data_digest: bool,
    /// Alignment of data in received PDUs: CPDA at the controller, HPDA at the host.
    pub alignment: Alignment,
    /// Most bytes of in-capsule data that are taken, at the controller.
    pub maximum_in_capsule: u32,
    /// Most bytes of data in a data PDU: MAXH2CDATA at the controller.
    pub maximum_data: u32,
}

impl ReceiveParameters {
    /// Before ICReq and ICResp: no digests, and no data.
    pub const INITIAL: Self = Self {
        header_digest: false,
        data_digest: false,
        alignment: Alignment::DWORD,
        maximum_in_capsule: 0,
        maximum_data: 0,
    };

    /// Bytes of a header digest, if there is one.
    const fn header_digest_length(&self) -> u32 {
        if self.header_digest {
            DIGEST_LENGTH as u32
        } else {
            0
        }
    }
}

/// The parts of a PDU in bytes, in the order of the wire. Their sum is PLEN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Header (HLEN); of a termination request with the header that it carries.
    pub header: u32,
    /// Header digest: 0 or 4.
    pub header_digest: u32,
    /// Padding.
    pub padding: u32,
    /// Data.
    pub data: u32,
    /// Data digest: 0 or 4.
    pub data_digest: u32,
}

/// What the type of a PDU says of its form.
#[derive(Clone, Copy)]
struct Form {
    header_length: u8,
    /// May a header digest follow?
    digests: bool,
    data: DataRule,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DataRule {
    Never,
    Optional,
    Always,
}

/// The form of the PDUs that a side receives; `None` for those that it does not.
fn form(side: Side, pdu_type: PduType) -> Option<Form> {
    let of = |header_length, digests, data| {
        Some(Form {
            header_length,
            digests,
            data,
        })
    };
    match (side, pdu_type) {
        (Side::Controller, PduType::InitializeRequest)
        | (Side::Host, PduType::InitializeResponse) => {
            of(INITIALIZE_HEADER, false, DataRule::Never)
        }
        (Side::Controller, PduType::H2cTermination) | (Side::Host, PduType::C2hTermination) => {
            of(TERMINATION_HEADER, false, DataRule::Always)
        }
        (Side::Controller, PduType::CapsuleCommand) => of(COMMAND_HEADER, true, DataRule::Optional),
        (Side::Controller, PduType::H2cData) | (Side::Host, PduType::C2hData) => {
            of(DATA_HEADER, true, DataRule::Always)
        }
        (Side::Host, PduType::CapsuleResponse) => of(RESPONSE_HEADER, true, DataRule::Never),
        (Side::Host, PduType::R2t) => of(R2T_HEADER, true, DataRule::Never),
        _ => None,
    }
}

impl Layout {
    /// Checks a common header and says what follows it. This looks at the eight bytes alone; fields
    /// behind them are checked by [`Reader`](super::Reader), as is the state of the connection.
    ///
    /// # Errors
    /// The termination that the specification names for the first wrong field: Invalid PDU Header
    /// Field with the field's byte.
    pub fn of(
        side: Side,
        common: &CommonHeader,
        parameters: &ReceiveParameters,
    ) -> Result<Self, FramingError> {
        let form = form(side, common.pdu_type).ok_or(Termination::invalid_field(offset::TYPE))?;
        if is_termination(common.pdu_type) {
            return Ok(Self::of_termination(common)?);
        }
        check_flags(&form, common, parameters)?;
        if common.header_length != form.header_length {
            return Err(Termination::invalid_field(offset::HEADER_LENGTH).into());
        }
        Ok(Self::of_lengths(&form, common, parameters)?)
    }

    /// Bytes of the header with its digest that can be received before all of [`Layout::of`]'s
    /// checks are passed: the type and HLEN are right, and PLEN reaches that far.
    pub(super) fn readable_header(
        side: Side,
        common: &CommonHeader,
        parameters: &ReceiveParameters,
    ) -> Option<u32> {
        let form = form(side, common.pdu_type)?;
        let digest = if form.digests {
            parameters.header_digest_length()
        } else {
            0
        };
        let length = u32::from(form.header_length) + digest;
        let readable = common.header_length == form.header_length && common.length >= length;
        readable.then_some(length)
    }

    /// A termination request is not answered by one, so that a malformed one only closes.
    fn of_termination(common: &CommonHeader) -> Result<Self, CloseReason> {
        let most = TERMINATION_SIZE_MAX as u32;
        let least = u32::from(TERMINATION_HEADER);
        let malformed = common.header_length != TERMINATION_HEADER
            || common.length <= least
            || common.length > most;
        if malformed {
            let CommonHeader {
                header_length,
                length,
                ..
            } = *common;
            return Err(CloseReason::MalformedTermination {
                header_length,
                length,
            });
        }
        Ok(Self {
            header: common.length,
            header_digest: 0,
            padding: 0,
            data: 0,
            data_digest: 0,
        })
    }

    fn of_lengths(
        form: &Form,
        common: &CommonHeader,
        parameters: &ReceiveParameters,
    ) -> Result<Self, Termination> {
        let bad_length = Err(Termination::invalid_field(offset::LENGTH));
        let header = u32::from(form.header_length);
        let header_digest = if form.digests {
            parameters.header_digest_length()
        } else {
            0
        };
        let bare = Self {
            header,
            header_digest,
            padding: 0,
            data: 0,
            data_digest: 0,
        };
        let after_header = header + header_digest;
        if common.length <= after_header {
            // No data; PDO says nothing then.
            let fits = common.length == after_header && form.data != DataRule::Always;
            return if fits { Ok(bare) } else { bad_length };
        }
        if form.data == DataRule::Never {
            return bad_length;
        }
        let data_offset = u32::from(common.data_offset);
        let aligned = data_offset.is_multiple_of(parameters.alignment.bytes());
        if data_offset < after_header || !aligned {
            return Err(Termination::invalid_field(offset::DATA_OFFSET));
        }
        let data_digest = if parameters.data_digest {
            DIGEST_LENGTH as u32
        } else {
            0
        };
        match common.length.checked_sub(data_offset + data_digest) {
            Some(data) if data > 0 => {
                let padding = data_offset - after_header;
                Ok(Self {
                    padding,
                    data,
                    data_digest,
                    ..bare
                })
            }
            _ => bad_length,
        }
    }

    /// Bytes of the whole PDU.
    pub const fn length(&self) -> u32 {
        self.header + self.header_digest + self.padding + self.data + self.data_digest
    }
}

pub(super) fn is_termination(pdu_type: PduType) -> bool {
    matches!(pdu_type, PduType::H2cTermination | PduType::C2hTermination)
}

/// The digest flags must say what was negotiated; SUCCESS comes only with LAST_PDU. A PDU without
/// data may leave out DDGSTF.
fn check_flags(
    form: &Form,
    common: &CommonHeader,
    parameters: &ReceiveParameters,
) -> Result<(), Termination> {
    if !form.digests {
        return Ok(());
    }
    let has = |flag| common.flags.contains(flag);
    let header_digest = has(PduFlags::HEADER_DIGEST) == parameters.header_digest;
    let after_header = u32::from(form.header_length) + parameters.header_digest_length();
    let with_data = form.data != DataRule::Never && common.length > after_header;
    let data_digest = match (has(PduFlags::DATA_DIGEST), parameters.data_digest) {
        (flag, negotiated) if with_data => flag == negotiated,
        (true, false) => form.data == DataRule::Never,
        _ => true,
    };
    let success =
        common.pdu_type != PduType::C2hData || !has(PduFlags::SUCCESS) || has(PduFlags::LAST);
    if header_digest && data_digest && success {
        Ok(())
    } else {
        Err(Termination::invalid_field(offset::FLAGS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLAIN: ReceiveParameters = ReceiveParameters {
        header_digest: false,
        data_digest: false,
        alignment: Alignment::DWORD,
        maximum_in_capsule: 8192,
        maximum_data: 131_072,
    };
    const DIGESTS: ReceiveParameters = ReceiveParameters {
        header_digest: true,
        data_digest: true,
        ..PLAIN
    };

    fn layout(
        side: Side,
        (kind, flags, header_length, data_offset, length): (u8, u8, u8, u8, u32),
        parameters: &ReceiveParameters,
    ) -> Result<[u32; 5], FramingError> {
        let common = CommonHeader {
            pdu_type: PduType::from_value(kind),
            flags: PduFlags(flags),
            header_length,
            data_offset,
            length,
        };
        let layout = Layout::of(side, &common, parameters)?;
        assert_eq!(layout.length(), length);
        Ok([
            layout.header,
            layout.header_digest,
            layout.padding,
            layout.data,
            layout.data_digest,
        ])
    }

    fn invalid(byte: u32) -> Result<[u32; 5], FramingError> {
        Err(FramingError::Terminate(Termination::invalid_field(byte)))
    }

    use Side::{Controller, Host};

    #[test]
    fn well_formed_pdus_have_their_lengths() {
        let aligned = |wire| ReceiveParameters {
            alignment: Alignment::from_wire(wire).expect("in range"),
            ..DIGESTS
        };
        for (side, header, parameters, expected) in [
            (
                Controller,
                (0x00, 0, 128, 0, 128),
                &PLAIN,
                [128, 0, 0, 0, 0],
            ),
            (Host, (0x01, 0, 128, 0, 128), &PLAIN, [128, 0, 0, 0, 0]),
            (Controller, (0x02, 0, 24, 0, 96), &DIGESTS, [96, 0, 0, 0, 0]),
            (Host, (0x03, 0, 24, 0, 152), &DIGESTS, [152, 0, 0, 0, 0]),
            (Controller, (0x04, 0, 72, 0, 72), &PLAIN, [72, 0, 0, 0, 0]),
            (
                Controller,
                (0x04, 0, 72, 72, 72 + 4096),
                &PLAIN,
                [72, 0, 0, 4096, 0],
            ),
            (Controller, (0x04, 1, 72, 0, 76), &DIGESTS, [72, 4, 0, 0, 0]),
            (Controller, (0x04, 3, 72, 0, 76), &DIGESTS, [72, 4, 0, 0, 0]),
            (
                Controller,
                (0x04, 3, 72, 76, 76 + 512 + 4),
                &DIGESTS,
                [72, 4, 0, 512, 4],
            ),
            (
                Controller,
                (0x04, 3, 72, 80, 80 + 1 + 4),
                &aligned(4),
                [72, 4, 4, 1, 4],
            ),
            (
                Controller,
                (0x06, 4, 24, 24, 24 + 8),
                &PLAIN,
                [24, 0, 0, 8, 0],
            ),
            (
                Controller,
                (0x06, 7, 24, 128, 128 + 8 + 4),
                &aligned(31),
                [24, 4, 100, 8, 4],
            ),
            (Host, (0x05, 1, 24, 0, 28), &DIGESTS, [24, 4, 0, 0, 0]),
            (
                Host,
                (0x07, 0xc, 24, 24, 24 + 512),
                &PLAIN,
                [24, 0, 0, 512, 0],
            ),
            (
                Host,
                (0x07, 3, 24, 28, 28 + 512 + 4),
                &DIGESTS,
                [24, 4, 0, 512, 4],
            ),
            (Host, (0x09, 0, 24, 0, 24), &PLAIN, [24, 0, 0, 0, 0]),
            // More padding than is needed, and the longest PDU there can be.
            (
                Controller,
                (0x06, 0, 24, 252, 252 + 4),
                &PLAIN,
                [24, 0, 228, 4, 0],
            ),
            (
                Controller,
                (0x04, 0, 72, 72, u32::MAX),
                &PLAIN,
                [72, 0, 0, u32::MAX - 72, 0],
            ),
        ] {
            assert_eq!(
                layout(side, header, parameters),
                Ok(expected),
                "{header:x?}"
            );
        }
    }

    #[test]
    fn padding_is_needed_without_a_header_digest_too() {
        let parameters = ReceiveParameters {
            alignment: Alignment::from_wire(15).expect("in range"),
            ..PLAIN
        };
        assert_eq!(
            layout(Controller, (6, 0, 24, 24, 32), &parameters),
            invalid(3)
        );
        assert_eq!(
            layout(Controller, (6, 0, 24, 64, 72), &parameters),
            Ok([24, 0, 40, 8, 0])
        );
    }

    #[test]
    fn the_first_wrong_field_is_named() {
        for (side, header, parameters, byte) in [
            // Types of the other direction, and unknown ones.
            (Controller, (0x01, 0xff, 0, 0, 0), &PLAIN, 0),
            (Controller, (0x05, 0, 24, 0, 24), &PLAIN, 0),
            (Controller, (0x09, 0, 24, 0, 24), &PLAIN, 0),
            (Controller, (0x08, 0, 24, 0, 24), &PLAIN, 0),
            (Controller, (0xff, 0, 24, 0, 24), &PLAIN, 0),
            (Host, (0x04, 0, 72, 0, 72), &PLAIN, 0),
            (Host, (0x02, 0, 24, 0, 96), &PLAIN, 0),
            // Digest flags against what was negotiated.
            (Controller, (0x04, 1, 0, 0, 76), &PLAIN, 1),
            (Controller, (0x04, 2, 72, 72, 80), &PLAIN, 1),
            (Controller, (0x04, 2, 72, 0, 72), &PLAIN, 1),
            (Controller, (0x04, 0, 72, 0, 76), &DIGESTS, 1),
            (Controller, (0x04, 1, 72, 76, 96), &DIGESTS, 1),
            (Controller, (0x06, 1, 24, 28, 64), &DIGESTS, 1),
            (Host, (0x05, 0, 24, 0, 28), &DIGESTS, 1),
            (Host, (0x07, 8, 24, 24, 64), &PLAIN, 1),
            // Header lengths.
            (Controller, (0x00, 0, 127, 0, 128), &PLAIN, 2),
            (Controller, (0x04, 0, 71, 0, 72), &PLAIN, 2),
            (Controller, (0x04, 0, 0, 0, 0), &PLAIN, 2),
            (Controller, (0x06, 0, 255, 24, 64), &PLAIN, 2),
            // Data offsets.
            (Controller, (0x04, 0, 72, 0, 80), &PLAIN, 3),
            (Controller, (0x04, 0, 72, 68, 80), &PLAIN, 3),
            (Controller, (0x04, 0, 72, 74, 80), &PLAIN, 3),
            (Controller, (0x04, 3, 72, 72, 96), &DIGESTS, 3),
            // PDU lengths.
            (Controller, (0x00, 0, 128, 0, 129), &PLAIN, 4),
            (Controller, (0x00, 0, 128, 0, 127), &PLAIN, 4),
            (Controller, (0x04, 0, 72, 0, 71), &PLAIN, 4),
            (Controller, (0x04, 0, 72, 76, 74), &PLAIN, 4),
            (Controller, (0x04, 0, 72, 76, 76), &PLAIN, 4),
            (Controller, (0x04, 1, 72, 0, 72), &DIGESTS, 4),
            (Controller, (0x04, 3, 72, 76, 78), &DIGESTS, 4),
            (Controller, (0x04, 3, 72, 76, 80), &DIGESTS, 4),
            (Controller, (0x06, 0, 24, 0, 24), &PLAIN, 4),
            (Host, (0x05, 0, 24, 0, 25), &PLAIN, 4),
            (Host, (0x09, 0, 24, 0, 32), &PLAIN, 4),
        ] {
            assert_eq!(
                layout(side, header, parameters),
                invalid(byte),
                "{header:x?}"
            );
        }
    }

    #[test]
    fn a_malformed_termination_only_closes() {
        for (header_length, length) in [(24, 24), (24, 153), (24, 0), (24, u32::MAX), (25, 96)] {
            assert_eq!(
                layout(Controller, (0x02, 0, header_length, 0, length), &PLAIN),
                Err(CloseReason::MalformedTermination {
                    header_length,
                    length
                }
                .into())
            );
        }
    }

    #[test]
    fn errors_say_what_the_peer_will_be_told() {
        assert_eq!(
            FramingError::from(Termination::invalid_field(3)).to_string(),
            "the connection is terminated: Invalid PDU Header Field (FES 0x01, FEI 0x3)"
        );
    }

    proptest! {
        /// No header panics or underflows; what is accepted adds up and is aligned.
        #[test]
        fn any_header_is_judged(
            kind in prop_oneof![0_u8..10, any::<u8>()],
            flags in prop_oneof![0_u8..16, any::<u8>()],
            header_length in prop_oneof![Just(24_u8), Just(72), Just(128), any::<u8>()],
            data_offset: u8,
            length in prop_oneof![0_u32..300, any::<u32>()],
            host: bool, header_digest: bool, data_digest: bool, alignment in 0_u8..32,
        ) {
            let side = if host { Host } else { Controller };
            let alignment = Alignment::from_wire(alignment).expect("in range");
            let parameters = ReceiveParameters { header_digest, data_digest, alignment, ..PLAIN };
            let common = CommonHeader {
                pdu_type: PduType::from_value(kind), flags: PduFlags(flags),
                header_length, data_offset, length,
            };
            let readable = Layout::readable_header(side, &common, &parameters);
            if let Ok(layout) = Layout::of(side, &common, &parameters) {
                prop_assert_eq!(layout.length(), length);
                prop_assert!(readable.is_some());
                let before_data = layout.header + layout.header_digest + layout.padding;
                prop_assert!(layout.data == 0 || before_data.is_multiple_of(alignment.bytes()));
                prop_assert!(layout.data > 0 || layout.data_digest == 0 && layout.padding == 0);
            }
        }
    }
}
