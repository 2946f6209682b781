//! Meaning of a command's status and sense data for a block request: the one table of the iSCSI target's other side.
//!
//! An error also says what was done: where [`VolumeError::had_no_effect`] is true, nothing of the command was; otherwise a part of it, or
//! all, may have been.

use weir_block::VolumeError;
use weir_scsi::sense::{AdditionalSense, Sense, SenseKey, Status};

/// Next step after a command that the target has answered. It has ended there in every case, so that a retry never meets an earlier
/// execution of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It was done.
    Done,
    /// It failed for good.
    Failed(VolumeError),
    /// It may succeed later; where it does not in time, this is its error.
    Retry(VolumeError),
    /// Nothing of it was done, as something has changed: the same command succeeds at once, and the unit is to be asked again what it is
    /// like.
    Attention,
    /// Nothing of it was done, as an earlier write failed that had been acknowledged: no flush may succeed any more. The command itself may
    /// be sent again at once.
    Deferred,
}

use Verdict::{Attention, Done, Failed, Retry};
use VolumeError::{
    Busy, Invalid, Lost, Medium, Miscompare, NoSpace, OutOfRange, ReadOnly, TimedOut, Unsupported,
};

/// Statuses but CHECK CONDITION (SAM-5 section 5.3.1). All others are [`VolumeError::Medium`].
const STATUSES: &[(Status, Verdict)] = &[
    (Status::Good, Done),
    (Status::ConditionMet, Done),
    // These come in place of an execution.
    (Status::Busy, Retry(Busy)),
    (Status::ReservationConflict, Failed(ReadOnly)),
    (Status::TaskSetFull, Retry(Busy)),
    (Status::AcaActive, Retry(Busy)),
    // Another initiator has ended it wherever it was.
    (Status::TaskAborted, Retry(TimedOut)),
];

/// Sense keys, by their value (SPC-4 table 48), where [`CODES`] has no word on the additional sense code.
const KEYS: [(SenseKey, Verdict); 16] = [
    // Nobody says that it succeeded.
    (SenseKey::NoSense, Retry(Medium)),
    (SenseKey::RecoveredError, Done),
    (SenseKey::NotReady, Retry(Lost)),
    (SenseKey::MediumError, Failed(Medium)),
    (SenseKey::HardwareError, Failed(Medium)),
    (SenseKey::IllegalRequest, Failed(Invalid)),
    (SenseKey::UnitAttention, Attention),
    (SenseKey::DataProtect, Failed(ReadOnly)),
    (SenseKey::BlankCheck, Failed(Medium)),
    (SenseKey::VendorSpecific, Failed(Medium)),
    (SenseKey::CopyAborted, Failed(Medium)),
    (SenseKey::AbortedCommand, Retry(Medium)),
    (SenseKey::Reserved, Failed(Medium)),
    (SenseKey::VolumeOverflow, Failed(NoSpace)),
    (SenseKey::Miscompare, Failed(Miscompare { offset: 0 })),
    (SenseKey::Completed, Done),
];

/// Additional sense codes that mean something else than their key alone.
const CODES: &[(SenseKey, AdditionalSense, Verdict)] = {
    use AdditionalSense as Code;
    use SenseKey::{AbortedCommand, DataProtect, HardwareError, IllegalRequest, NoSense, NotReady};
    &[
        (NoSense, Code::OPERATION_IN_PROGRESS, Retry(Busy)),
        (
            NotReady,
            Code::LOGICAL_UNIT_NOT_READY_INITIALIZING_COMMAND_REQUIRED,
            Failed(Lost),
        ),
        (
            NotReady,
            Code::LOGICAL_UNIT_NOT_READY_MANUAL_INTERVENTION_REQUIRED,
            Failed(Lost),
        ),
        (
            NotReady,
            Code::LOGICAL_UNIT_NOT_READY_OPERATION_IN_PROGRESS,
            Retry(Busy),
        ),
        (
            NotReady,
            Code::LOGICAL_UNIT_NOT_ACCESSIBLE_ASYMMETRIC_ACCESS_STATE_TRANSITION,
            Retry(Busy),
        ),
        (NotReady, Code::MEDIUM_NOT_PRESENT, Failed(Lost)),
        (
            NotReady,
            Code::LOGICAL_UNIT_NOT_READY_SPACE_ALLOCATION_IN_PROGRESS,
            Retry(Busy),
        ),
        (
            HardwareError,
            Code::LOGICAL_UNIT_COMMUNICATION_FAILURE,
            Retry(Medium),
        ),
        (
            HardwareError,
            Code::LOGICAL_UNIT_COMMUNICATION_TIME_OUT,
            Retry(Medium),
        ),
        (
            IllegalRequest,
            Code::INVALID_COMMAND_OPERATION_CODE,
            Failed(Unsupported),
        ),
        (
            IllegalRequest,
            Code::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE,
            Failed(OutOfRange),
        ),
        (
            IllegalRequest,
            Code::LOGICAL_UNIT_NOT_SUPPORTED,
            Failed(Lost),
        ),
        (IllegalRequest, Code::INSUFFICIENT_RESOURCES, Retry(Busy)),
        (
            DataProtect,
            Code::SPACE_ALLOCATION_FAILED_WRITE_PROTECT,
            Failed(NoSpace),
        ),
        (
            AbortedCommand,
            Code::LOGICAL_UNIT_COMMUNICATION_TIME_OUT,
            Retry(TimedOut),
        ),
        (
            AbortedCommand,
            Code::LOGICAL_BLOCK_GUARD_CHECK_FAILED,
            Failed(Medium),
        ),
    ]
};

/// Meaning of `status` with its sense data, for a command with `bytes` of data. The offset of a difference counts from the command's data;
/// it is 0 where the target does not say it, or says what cannot be.
pub(crate) fn judge(status: Status, sense: Option<&Sense>, bytes: u64) -> Verdict {
    if status != Status::CheckCondition {
        let listed = STATUSES.iter().find(|(listed, _)| *listed == status);
        return listed.map_or(Failed(Medium), |(_, verdict)| *verdict);
    }
    let Some(sense) = sense else {
        return Failed(Medium);
    };
    if sense.deferred {
        return deferred(sense.key);
    }
    match of_sense(sense.key, sense.additional) {
        Failed(Miscompare { .. }) => {
            let offset = sense.information.filter(|offset| *offset < bytes);
            Failed(Miscompare {
                offset: offset.unwrap_or(0),
            })
        }
        verdict => verdict,
    }
}

/// Meaning of an error that is one of an earlier command (SPC-4 section 4.5.5): the command that was answered with it was not done. It is
/// harmless where that of the earlier command would be.
fn deferred(key: SenseKey) -> Verdict {
    match key {
        SenseKey::NoSense | SenseKey::RecoveredError | SenseKey::Completed => Retry(Busy),
        SenseKey::UnitAttention => Attention,
        _ => Verdict::Deferred,
    }
}

fn of_sense(key: SenseKey, additional: AdditionalSense) -> Verdict {
    let listed = CODES
        .iter()
        .find(|(of, code, _)| (*of, *code) == (key, additional));
    listed.map_or(KEYS[key as usize].1, |(_, _, verdict)| *verdict)
}

#[cfg(test)]
mod tests {
    use weir_scsi::sense::SenseFormat;

    use super::*;

    fn check(key: SenseKey, additional: AdditionalSense) -> Verdict {
        judge(
            Status::CheckCondition,
            Some(&Sense::new(key, additional)),
            512,
        )
    }

    fn error(verdict: Verdict) -> Option<VolumeError> {
        match verdict {
            Failed(error) | Retry(error) => Some(error),
            Done | Attention | Verdict::Deferred => None,
        }
    }

    #[test]
    fn every_status_has_one_meaning() {
        for (index, (status, _)) in STATUSES.iter().enumerate() {
            let rest = &STATUSES[index + 1..];
            assert!(rest.iter().all(|(other, _)| other != status), "{status}");
            assert_ne!(*status, Status::CheckCondition);
        }
        for value in 0..=u8::MAX {
            let status = Status::from_value(value);
            let done = judge(status, None, 0) == Done;
            assert_eq!(done, matches!(status, Status::Good | Status::ConditionMet));
        }
        assert_eq!(judge(Status::CheckCondition, None, 0), Failed(Medium));
    }

    #[test]
    fn every_key_and_code_has_one_meaning() {
        for (key, (listed, _)) in SenseKey::ALL.into_iter().zip(KEYS) {
            assert_eq!(key, listed);
        }
        for (index, (key, code, verdict)) in CODES.iter().enumerate() {
            let is_same =
                |other: &(SenseKey, AdditionalSense, Verdict)| (other.0, other.1) == (*key, *code);
            assert!(!CODES[index + 1..].iter().any(is_same), "{key:?} {code}");
            assert_ne!(*verdict, KEYS[*key as usize].1, "{key:?} {code}");
        }
        for key in SenseKey::ALL {
            for additional in AdditionalSense::NAMED {
                let is_done = matches!(key, SenseKey::RecoveredError | SenseKey::Completed);
                assert_eq!(check(key, *additional) == Done, is_done, "{key:?}");
                let is_attention = key == SenseKey::UnitAttention;
                assert_eq!(check(key, *additional) == Attention, is_attention);
            }
        }
    }

    /// Errors that a command ends with before anything of it is done, and those that it may end with on the way.
    #[test]
    fn an_error_says_whether_something_was_done() {
        use AdditionalSense as Code;
        use SenseKey::{
            AbortedCommand, DataProtect, HardwareError, IllegalRequest, MediumError, NotReady,
        };
        let nothing_done = |verdict| error(verdict).is_none_or(VolumeError::had_no_effect);
        for status in [
            Status::Busy,
            Status::TaskSetFull,
            Status::ReservationConflict,
            Status::AcaActive,
        ] {
            assert!(nothing_done(judge(status, None, 0)), "{status}");
        }
        assert!(!nothing_done(judge(Status::TaskAborted, None, 0)));
        for additional in Code::NAMED {
            for key in [NotReady, IllegalRequest] {
                assert!(nothing_done(check(key, *additional)), "{additional}");
            }
            for key in [MediumError, HardwareError, AbortedCommand] {
                assert!(!nothing_done(check(key, *additional)), "{additional}");
            }
        }
        assert!(nothing_done(check(DataProtect, Code::WRITE_PROTECTED)));
        let full = Code::SPACE_ALLOCATION_FAILED_WRITE_PROTECT;
        assert!(!nothing_done(check(DataProtect, full)));
    }

    #[test]
    fn the_targets_answers_mean_what_they_were_made_of() {
        let of = |sense: Sense| {
            let read = Sense::parse(&sense.encode(SenseFormat::Fixed)).expect("sense data");
            judge(Status::CheckCondition, Some(&read), 512)
        };
        assert_eq!(of(Sense::lba_out_of_range()), Failed(OutOfRange));
        assert_eq!(of(Sense::write_protected()), Failed(ReadOnly));
        assert_eq!(of(Sense::invalid_operation_code()), Failed(Unsupported));
        assert_eq!(of(Sense::unit_not_supported()), Failed(Lost));
        assert_eq!(of(Sense::read_error(7)), Failed(Medium));
        assert_eq!(of(Sense::write_error(7)), Failed(Medium));
        assert_eq!(of(Sense::becoming_ready()), Retry(Lost));
        assert_eq!(of(Sense::manual_intervention()), Failed(Lost));
        assert_eq!(of(Sense::internal_failure()), Failed(Medium));
        let code = AdditionalSense::LOGICAL_UNIT_COMMUNICATION_TIME_OUT;
        assert_eq!(of(Sense::aborted_command(code)), Retry(TimedOut));
        let code = AdditionalSense::CAPACITY_DATA_HAS_CHANGED;
        assert_eq!(of(Sense::unit_attention(code)), Attention);
    }

    #[test]
    fn a_difference_is_where_the_target_says_if_it_can_be_there() {
        for (information, expected) in [(Some(5), 5), (Some(511), 511), (Some(512), 0), (None, 0)] {
            let sense = Sense {
                information,
                ..Sense::miscompare(0)
            };
            let verdict = judge(Status::CheckCondition, Some(&sense), 512);
            assert_eq!(verdict, Failed(Miscompare { offset: expected }));
        }
    }

    #[test]
    fn an_error_of_an_earlier_command_is_not_this_ones() {
        for key in SenseKey::ALL {
            let sense = Sense {
                deferred: true,
                ..Sense::new(key, AdditionalSense::WRITE_ERROR)
            };
            let expected = match key {
                SenseKey::NoSense | SenseKey::RecoveredError | SenseKey::Completed => Retry(Busy),
                SenseKey::UnitAttention => Attention,
                _ => Verdict::Deferred,
            };
            let verdict = judge(Status::CheckCondition, Some(&sense), 512);
            assert_eq!(verdict, expected, "{key:?}");
        }
    }
}
