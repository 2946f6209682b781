//! Why a request failed. Front ends translate this into their protocol's status in one table each.

/// Why a request failed. Unless a variant says otherwise the request had no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum VolumeError {
    /// The range is not within the volume.
    #[error("the range is not within the volume")]
    OutOfRange,
    /// The volume is read-only.
    #[error("the volume is read-only")]
    ReadOnly,
    /// A comparison found a difference; nothing was written.
    #[error("the data differs at byte {offset} of the request")]
    Miscompare {
        /// The first byte that differs, counted from the start of the request's data.
        offset: u64,
    },
    /// The volume does not do this.
    #[error("the volume does not support this operation")]
    Unsupported,
    /// The request breaks a rule of the volume's geometry: data of the wrong length, too long a transfer, no blocks.
    #[error("the request does not fit the volume's geometry")]
    Invalid,
    /// The medium is full. A write may have been done in part.
    #[error("the medium behind the volume is full")]
    NoSpace,
    /// The medium failed to read or write. A write may have been done in part.
    #[error("the medium failed")]
    Medium,
    /// The volume is gone, or its medium is, for now or for good.
    #[error("the volume is gone")]
    Lost,
    /// The request did not end in time, and a fence made sure that it can have no effect any more; it may have had one.
    #[error("the request timed out")]
    TimedOut,
    /// The request was cancelled before it had an effect.
    #[error("the request was cancelled")]
    Cancelled,
    /// No buffer, no slot, no connection for now: the same request may succeed later.
    #[error("the volume is out of resources for now")]
    Busy,
}

impl VolumeError {
    /// Returns whether a request that ended with this surely had no effect.
    #[must_use]
    pub fn had_no_effect(self) -> bool {
        !matches!(
            self,
            VolumeError::NoSpace | VolumeError::Medium | VolumeError::TimedOut
        )
    }

    /// What a request ends with of which one part failed with this, and another was done or may have been: no error that says
    /// that it had no effect.
    #[must_use]
    pub fn after_a_part(self) -> Self {
        match self {
            VolumeError::Medium | VolumeError::NoSpace => self,
            _ => VolumeError::TimedOut,
        }
    }

    /// What an error of the system means for a request.
    #[must_use]
    pub fn from_io(error: &std::io::Error) -> Self {
        use std::io::ErrorKind;
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                VolumeError::NoSpace
            }
            ErrorKind::Unsupported => VolumeError::Unsupported,
            ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => VolumeError::ReadOnly,
            ErrorKind::NotFound => VolumeError::Lost,
            ErrorKind::OutOfMemory | ErrorKind::WouldBlock => VolumeError::Busy,
            _ => VolumeError::from_errno(error.raw_os_error()),
        }
    }

    /// Numbers that [`std::io::ErrorKind`] has no name for (errno values that Linux uses on every architecture).
    fn from_errno(errno: Option<i32>) -> Self {
        const ENXIO: i32 = 6;
        const ENODEV: i32 = 19;
        const EOPNOTSUPP: i32 = 95;
        const ECANCELED: i32 = 125;
        match errno {
            Some(ENXIO | ENODEV) => VolumeError::Lost,
            Some(EOPNOTSUPP) => VolumeError::Unsupported,
            Some(ECANCELED) => VolumeError::Cancelled,
            _ => VolumeError::Medium,
        }
    }
}
