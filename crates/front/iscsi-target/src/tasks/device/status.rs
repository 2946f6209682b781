//! The one table from what a volume says to what an initiator is told.

use weir_block::{Operation, OperationKind, VolumeError};
use weir_scsi::sense::{AdditionalSense, Sense, SenseKey, Status};

use crate::tasks::task::Outcome;

/// The outcome of a command whose request on a volume failed.
///
/// What may pass by itself is told so that initiators try again: a lost volume is not ready, a full queue is busy, and a request that
/// was cut off (after a fence: nothing of it can take effect any more) is an aborted command.
pub(super) fn of_volume_error(error: VolumeError, operation: &Operation) -> Outcome {
    let reads = matches!(
        operation.kind(),
        OperationKind::Read | OperationKind::Compare | OperationKind::Verify
    );
    let lba = operation.range().map_or(0, |(lba, _)| lba);
    Outcome::check(match error {
        VolumeError::OutOfRange => Sense::lba_out_of_range(),
        VolumeError::ReadOnly => Sense::write_protected(),
        VolumeError::Miscompare { offset } => Sense::miscompare(offset),
        VolumeError::Unsupported | VolumeError::Invalid => {
            Sense::illegal_request(AdditionalSense::INVALID_FIELD_IN_CDB)
        }
        VolumeError::NoSpace => Sense::new(
            SenseKey::DataProtect,
            AdditionalSense::SPACE_ALLOCATION_FAILED_WRITE_PROTECT,
        ),
        VolumeError::Medium if reads => Sense::read_error(lba),
        VolumeError::Medium => Sense::write_error(lba),
        VolumeError::Lost => Sense::becoming_ready(),
        VolumeError::TimedOut | VolumeError::Cancelled => {
            Sense::aborted_command(AdditionalSense::LOGICAL_UNIT_COMMUNICATION_TIME_OUT)
        }
        VolumeError::Busy => return Outcome::status(Status::Busy),
    })
}

#[cfg(test)]
mod tests {
    use weir_block::ReadBuffers;

    use super::*;

    fn key(error: VolumeError, operation: &Operation) -> Option<SenseKey> {
        of_volume_error(error, operation)
            .sense
            .map(|sense| sense.key)
    }

    #[test]
    fn a_failed_medium_is_told_with_the_block() {
        let read = Operation::Read {
            lba: 77,
            blocks: 1,
            buffers: ReadBuffers::Lend,
        };
        let sense = of_volume_error(VolumeError::Medium, &read).sense;
        let sense = sense.expect("it failed");
        assert_eq!(sense.additional, AdditionalSense::UNRECOVERED_READ_ERROR);
        assert_eq!(sense.information, Some(77));
        let sense = of_volume_error(VolumeError::Medium, &Operation::Flush).sense;
        let sense = sense.expect("it failed");
        assert_eq!(sense.additional, AdditionalSense::WRITE_ERROR);
    }

    #[test]
    fn what_may_pass_is_left_to_retries() {
        let flush = Operation::Flush;
        assert_eq!(key(VolumeError::Lost, &flush), Some(SenseKey::NotReady));
        assert_eq!(
            key(VolumeError::TimedOut, &flush),
            Some(SenseKey::AbortedCommand)
        );
        let busy = of_volume_error(VolumeError::Busy, &flush);
        assert_eq!((busy.status, busy.sense), (Status::Busy, None));
    }

    #[test]
    fn what_would_fail_again_is_told_for_good() {
        let flush = Operation::Flush;
        for error in [VolumeError::OutOfRange, VolumeError::Invalid] {
            assert_eq!(key(error, &flush), Some(SenseKey::IllegalRequest));
        }
        for error in [VolumeError::ReadOnly, VolumeError::NoSpace] {
            assert_eq!(key(error, &flush), Some(SenseKey::DataProtect));
        }
        let sense = of_volume_error(VolumeError::Miscompare { offset: 5 }, &flush).sense;
        assert_eq!(sense.and_then(|sense| sense.information), Some(5));
    }
}
