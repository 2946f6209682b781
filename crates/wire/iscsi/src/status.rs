//! Status-Class and Status-Detail of a Login Response (RFC 7143 section 11.13.5).

use crate::wire::open_enum;

open_enum! {
    /// Status-Class in the high byte, Status-Detail in the low one. Classes: 0 success, 1 redirection, 2 the initiator's fault, 3 the
    /// target's.
    pub enum LoginStatus: u16 {
        /// Success.
        Success = 0x0000 => "success",
        /// The target moved for now; TargetAddress says where to.
        MovedTemporarily = 0x0101 => "target moved temporarily",
        /// The target moved for good; TargetAddress says where to.
        MovedPermanently = 0x0102 => "target moved permanently",
        /// Initiator error without another name.
        InitiatorError = 0x0200 => "initiator error",
        /// The initiator could not be authenticated, or the target does not support what it offers.
        AuthenticationFailure = 0x0201 => "authentication failure",
        /// The initiator may not use the target.
        AuthorizationFailure = 0x0202 => "authorization failure",
        /// There is no such target here.
        NotFound = 0x0203 => "not found",
        /// The target was removed, and no new address is known.
        TargetRemoved = 0x0204 => "target removed",
        /// The range of versions is not supported.
        UnsupportedVersion = 0x0205 => "unsupported version",
        /// The session has all of its connections.
        TooManyConnections = 0x0206 => "too many connections",
        /// InitiatorName or TargetName is missing.
        MissingParameter = 0x0207 => "missing parameter",
        /// The connection cannot be in this session.
        CannotInclude = 0x0208 => "can't include in session",
        /// The session type is not supported.
        SessionTypeNotSupported = 0x0209 => "session type not supported",
        /// There is no session of this TSIH.
        SessionDoesNotExist = 0x020a => "session does not exist",
        /// The request's stage, or what it is, is wrong.
        InvalidDuringLogin = 0x020b => "invalid request during login",
        /// Target error without another name.
        TargetError = 0x0300 => "target error",
        /// The target is not ready.
        ServiceUnavailable = 0x0301 => "service unavailable",
        /// The target has no resources left.
        OutOfResources = 0x0302 => "out of resources",
    }
}

impl LoginStatus {
    /// Status-Class.
    pub const fn class(self) -> u8 {
        (self.value() >> 8) as u8
    }

    /// Status-Detail.
    pub const fn detail(self) -> u8 {
        self.value() as u8
    }

    /// Returns whether the login goes on.
    pub const fn is_success(self) -> bool {
        self.class() == 0
    }
}
