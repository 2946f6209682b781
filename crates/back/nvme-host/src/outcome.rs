//! What a completion's status means for a block request: the one table of this front end's other side.

use weir_block::VolumeError;
use weir_initiator::Verdict;
use weir_nvme::Status;

/// Statuses, in the order of the specification's tables, and what they mean. What is not listed is [`VolumeError::Medium`].
const TABLE: &[(Status, Verdict)] = {
    use Verdict::{Aborted, AbortedWithOther, Done, Failed, Retry};
    use VolumeError::{Busy, Invalid, Lost, Medium, NoSpace, OutOfRange, ReadOnly, Unsupported};
    &[
        (Status::SUCCESS, Done),
        (Status::INVALID_COMMAND_OPCODE, Failed(Unsupported)),
        (Status::INVALID_FIELD_IN_COMMAND, Failed(Invalid)),
        (Status::DATA_TRANSFER_ERROR, Retry(Medium)),
        (Status::ABORTED_POWER_LOSS, Retry(Lost)),
        (Status::INTERNAL_ERROR, Failed(Medium)),
        (Status::COMMAND_ABORT_REQUESTED, Aborted),
        (Status::ABORTED_SUBMISSION_QUEUE_DELETION, Retry(Lost)),
        (Status::ABORTED_FAILED_FUSED_COMMAND, AbortedWithOther),
        (Status::INVALID_NAMESPACE_OR_FORMAT, Failed(Lost)),
        (Status::DATA_SGL_LENGTH_INVALID, Failed(Invalid)),
        (Status::ATOMIC_WRITE_UNIT_EXCEEDED, Failed(Invalid)),
        (Status::OPERATION_DENIED, Failed(ReadOnly)),
        (Status::SANITIZE_IN_PROGRESS, Retry(Busy)),
        (Status::NAMESPACE_IS_WRITE_PROTECTED, Failed(ReadOnly)),
        (Status::COMMAND_INTERRUPTED, Retry(Busy)),
        (Status::TRANSIENT_TRANSPORT_ERROR, Retry(Medium)),
        (Status::LBA_OUT_OF_RANGE, Failed(OutOfRange)),
        (Status::CAPACITY_EXCEEDED, Failed(NoSpace)),
        (Status::NAMESPACE_NOT_READY, Retry(Busy)),
        (Status::RESERVATION_CONFLICT, Failed(ReadOnly)),
        (Status::FORMAT_IN_PROGRESS, Retry(Busy)),
        (Status::INVALID_PROTECTION_INFORMATION, Failed(Invalid)),
        (Status::ATTEMPTED_WRITE_TO_READ_ONLY_RANGE, Failed(ReadOnly)),
        (Status::COMMAND_SIZE_LIMIT_EXCEEDED, Failed(Invalid)),
        (
            Status::COMPARE_FAILURE,
            Failed(VolumeError::Miscompare { offset: 0 }),
        ),
        (Status::ACCESS_DENIED, Failed(ReadOnly)),
        (Status::INTERNAL_PATH_ERROR, Retry(Lost)),
        (Status::ASYMMETRIC_ACCESS_PERSISTENT_LOSS, Failed(Lost)),
        (Status::ASYMMETRIC_ACCESS_INACCESSIBLE, Retry(Lost)),
        (Status::ASYMMETRIC_ACCESS_TRANSITION, Retry(Busy)),
        (Status::CONTROLLER_PATHING_ERROR, Retry(Lost)),
        (Status::HOST_PATHING_ERROR, Retry(Lost)),
        (Status::COMMAND_ABORTED_BY_HOST, Aborted),
    ]
};

/// What `status` means. Do Not Retry turns a retry into its error.
pub(crate) fn judge(status: Status) -> Verdict {
    let entry = TABLE.iter().find(|(listed, _)| listed.is(status));
    match entry.map(|(_, verdict)| *verdict) {
        Some(Verdict::Retry(error)) if status.do_not_retry() => Verdict::Failed(error),
        Some(verdict) => verdict,
        None => Verdict::Failed(VolumeError::Medium),
    }
}

/// Returns whether a command that ended so may have been carried out, or a part of it.
pub(crate) fn may_have_been_done(status: Status) -> bool {
    [
        Status::COMMAND_INTERRUPTED,
        Status::DATA_TRANSFER_ERROR,
        Status::ABORTED_POWER_LOSS,
        Status::ABORTED_SUBMISSION_QUEUE_DELETION,
        Status::INTERNAL_PATH_ERROR,
        Status::CONTROLLER_PATHING_ERROR,
        Status::HOST_PATHING_ERROR,
    ]
    .iter()
    .any(|other| other.is(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_one_meaning() {
        for (index, (status, _)) in TABLE.iter().enumerate() {
            assert!(
                !TABLE[index + 1..]
                    .iter()
                    .any(|(other, _)| other.is(*status)),
                "{status}"
            );
        }
        for bits in 0..0x800 {
            let status = Status::from_bits(bits);
            assert_eq!(judge(status) == Verdict::Done, status.is_success());
        }
    }

    #[test]
    fn do_not_retry_is_heeded() {
        let status = Status::NAMESPACE_NOT_READY;
        assert_eq!(judge(status), Verdict::Retry(VolumeError::Busy));
        assert_eq!(
            judge(status.with_do_not_retry()),
            Verdict::Failed(VolumeError::Busy)
        );
        assert_eq!(
            judge(Status::new(7, 0x11)),
            Verdict::Failed(VolumeError::Medium)
        );
    }
}
