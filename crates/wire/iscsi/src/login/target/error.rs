//! Reasons to refuse a login, each with its status (RFC 7143 section 11.13.5).

use crate::keys::TextError;
use crate::login::ChapError;
use crate::names::NameError;
use crate::negotiation::{Key, NegotiationError};
use crate::pdu::Stage;
use crate::status::LoginStatus;
use thiserror::Error;

/// A refusal by what is served here, not by the protocol.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// There is no such target here.
    #[error("there is no such target here")]
    NotFound,
    /// The target was removed.
    #[error("the target was removed")]
    Removed,
    /// The initiator may not use the target.
    #[error("the initiator may not use the target")]
    Forbidden,
    /// The target is somewhere else for now.
    #[error("the target moved to {address} for now")]
    MovedTemporarily {
        /// TargetAddress of where it is, as in `[2001:db8::1]:3260`.
        address: String,
    },
    /// The target is somewhere else for good.
    #[error("the target moved to {address}")]
    MovedPermanently {
        /// TargetAddress of where it is, as in `[2001:db8::1]:3260`.
        address: String,
    },
    /// The session has all of its connections.
    #[error("the session takes no other connection")]
    TooManyConnections,
    /// There is no session of this TSIH.
    #[error("there is no session of this TSIH")]
    SessionDoesNotExist,
    /// The connection cannot be in this session.
    #[error("the connection cannot be in this session")]
    CannotInclude,
    /// Sessions of this type are not served here.
    #[error("sessions of this type are not served here")]
    SessionTypeNotSupported,
    /// The target is not ready.
    #[error("the target is not ready")]
    Unavailable,
    /// There is no room for another session.
    #[error("there is no room for another session")]
    OutOfResources,
}

impl Refusal {
    /// The status of the Login Response.
    pub const fn status(&self) -> LoginStatus {
        match self {
            Self::NotFound => LoginStatus::NotFound,
            Self::Removed => LoginStatus::TargetRemoved,
            Self::Forbidden => LoginStatus::AuthorizationFailure,
            Self::MovedTemporarily { .. } => LoginStatus::MovedTemporarily,
            Self::MovedPermanently { .. } => LoginStatus::MovedPermanently,
            Self::TooManyConnections => LoginStatus::TooManyConnections,
            Self::SessionDoesNotExist => LoginStatus::SessionDoesNotExist,
            Self::CannotInclude => LoginStatus::CannotInclude,
            Self::SessionTypeNotSupported => LoginStatus::SessionTypeNotSupported,
            Self::Unavailable => LoginStatus::ServiceUnavailable,
            Self::OutOfResources => LoginStatus::OutOfResources,
        }
    }
}

/// Error of a login.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LoginError {
    /// The first request has no InitiatorName.
    #[error("InitiatorName is missing in the first request")]
    MissingInitiatorName,
    /// The first request has no TargetName, and is of a normal session.
    #[error("TargetName is missing in the first request")]
    MissingTargetName,
    /// InitiatorName or TargetName is no name.
    #[error("{key}: {error}")]
    Name {
        /// The key.
        key: Key,
        /// Error in its value.
        #[source]
        error: NameError,
    },
    /// SessionType is neither Normal nor Discovery.
    #[error("SessionType={value} is not supported")]
    UnsupportedSessionType {
        /// The value.
        value: String,
    },
    /// Version 0 is not among those that the initiator speaks.
    #[error("the initiator speaks iSCSI versions {minimum} to {maximum}, not 0")]
    UnsupportedVersion {
        /// Version-min.
        minimum: u8,
        /// Version-max.
        maximum: u8,
    },
    /// The initiator is refused by the rules of what is served.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The initiator must prove who it is, and skipped that or would not.
    #[error("the initiator must authenticate itself by CHAP, and did not offer to")]
    AuthenticationRequired,
    /// The initiator offers only methods that are not allowed.
    #[error("no method of AuthMethod={offered} is allowed; allowed is {allowed}")]
    NoMethod {
        /// Methods that the initiator offers.
        offered: String,
        /// Method that is allowed.
        allowed: &'static str,
    },
    /// CHAP failed.
    #[error(transparent)]
    Chap(#[from] ChapError),
    /// Text that is no text.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The negotiation failed.
    #[error(transparent)]
    Negotiation(#[from] NegotiationError),
    /// A request in another stage than the connection is in.
    #[error("a request of stage {current}, where the connection is in {expected}")]
    WrongStage {
        /// The connection's stage.
        expected: Stage,
        /// CSG.
        current: Stage,
    },
    /// A stage that does not follow.
    #[error("stage {next} does not follow {current}")]
    WrongTransition {
        /// CSG.
        current: Stage,
        /// NSG.
        next: Stage,
    },
    /// T and C both.
    #[error("a request whose text is not complete wants the next stage")]
    TransitInsideText,
    /// Text while this side's is not complete.
    #[error("a request has text, where the rest of the target's is awaited")]
    TextInsideText,
    /// A field is another than in the first request.
    #[error("{field} is another than in the first request")]
    FieldChanged {
        /// The field.
        field: &'static str,
    },
    /// More requests than a login has.
    #[error("more than {maximum} requests")]
    TooManyRequests {
        /// Requests that are taken.
        maximum: u32,
    },
}

impl LoginError {
    /// The status of the Login Response.
    pub const fn status(&self) -> LoginStatus {
        match self {
            Self::MissingInitiatorName | Self::MissingTargetName => LoginStatus::MissingParameter,
            Self::UnsupportedSessionType { .. } => LoginStatus::SessionTypeNotSupported,
            Self::UnsupportedVersion { .. } => LoginStatus::UnsupportedVersion,
            Self::Refused(refusal) => refusal.status(),
            Self::AuthenticationRequired | Self::NoMethod { .. } | Self::Chap(_) => {
                LoginStatus::AuthenticationFailure
            }
            Self::Name { .. } | Self::Text(_) | Self::Negotiation(_) => LoginStatus::InitiatorError,
            Self::WrongStage { .. }
            | Self::WrongTransition { .. }
            | Self::TransitInsideText
            | Self::TextInsideText
            | Self::FieldChanged { .. }
            | Self::TooManyRequests { .. } => LoginStatus::InvalidDuringLogin,
        }
    }

    /// The address that an initiator is sent to.
    pub(super) fn moved_to(&self) -> Option<&str> {
        match self {
            Self::Refused(
                Refusal::MovedTemporarily { address } | Refusal::MovedPermanently { address },
            ) => Some(address),
            _ => None,
        }
    }
}
