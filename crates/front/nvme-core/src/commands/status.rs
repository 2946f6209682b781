//! The one table from what a volume says to what a host is told.

use weir_block::{OperationKind, VolumeError};
use weir_nvme::Status;

use crate::snapshot::AnaState;

/// The status that answers a command whose request on a volume failed.
///
/// Do Not Retry is set where the same command would fail again. What may pass by itself is left to the host's retries: a lost
/// volume, a full queue, a request that was cut off (after a fence: nothing of it can take effect any more).
pub(super) fn of_volume_error(error: VolumeError, kind: OperationKind) -> Status {
    let reads = matches!(
        kind,
        OperationKind::Read | OperationKind::Compare | OperationKind::Verify
    );
    match error {
        VolumeError::OutOfRange => Status::LBA_OUT_OF_RANGE.with_do_not_retry(),
        VolumeError::ReadOnly => Status::NAMESPACE_IS_WRITE_PROTECTED.with_do_not_retry(),
        VolumeError::Miscompare { .. } => Status::COMPARE_FAILURE.with_do_not_retry(),
        VolumeError::Unsupported | VolumeError::Invalid => {
            Status::INVALID_FIELD_IN_COMMAND.with_do_not_retry()
        }
        VolumeError::NoSpace => Status::CAPACITY_EXCEEDED.with_do_not_retry(),
        VolumeError::Medium if reads => Status::UNRECOVERED_READ_ERROR,
        VolumeError::Medium => Status::WRITE_FAULT,
        VolumeError::Lost => Status::NAMESPACE_NOT_READY,
        VolumeError::TimedOut | VolumeError::Busy => Status::COMMAND_INTERRUPTED,
        VolumeError::Cancelled => Status::COMMAND_ABORT_REQUESTED,
    }
}

/// The status that refuses I/O in an ANA state; none where it is served.
pub(super) fn of_ana_state(state: AnaState) -> Option<Status> {
    match state {
        AnaState::Optimized | AnaState::NonOptimized => None,
        AnaState::Inaccessible => Some(Status::ASYMMETRIC_ACCESS_INACCESSIBLE),
        AnaState::PersistentLoss => Some(Status::ASYMMETRIC_ACCESS_PERSISTENT_LOSS),
        AnaState::Change => Some(Status::ASYMMETRIC_ACCESS_TRANSITION),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_medium_error_depends_on_the_direction() {
        let status = |kind| of_volume_error(VolumeError::Medium, kind);
        assert_eq!(status(OperationKind::Read), Status::UNRECOVERED_READ_ERROR);
        assert_eq!(status(OperationKind::Write), Status::WRITE_FAULT);
        assert_eq!(status(OperationKind::Flush), Status::WRITE_FAULT);
    }

    #[test]
    fn what_may_pass_is_left_to_retries() {
        for error in [
            VolumeError::Lost,
            VolumeError::Busy,
            VolumeError::TimedOut,
            VolumeError::Medium,
        ] {
            assert!(!of_volume_error(error, OperationKind::Write).do_not_retry());
        }
        for error in [
            VolumeError::OutOfRange,
            VolumeError::ReadOnly,
            VolumeError::NoSpace,
        ] {
            assert!(of_volume_error(error, OperationKind::Write).do_not_retry());
        }
    }
}
