//! Meaning of an operation's status for a block request.

use weir_block::VolumeError;
use weir_initiator::{Judged, Verdict};
use weir_nfs::Status;

/// Says that the session or the open is to be made anew.
const SESSION_LOST: &str = "the server does not know the session or the open any more";

/// Judges a request that failed. Where nothing else is said, nothing of it was done.
pub(crate) fn judge(status: Status) -> Judged {
    use VolumeError::{Busy, Invalid, Lost, Medium, NoSpace, ReadOnly};
    let failed = |error| Judged::new(Verdict::Failed(error));
    let retry = Judged::new(Verdict::Retry(Busy));
    match status {
        Status::Delay | Status::Grace | Status::Locked => retry,
        Status::Nospc | Status::Dquot | Status::Fbig => failed(NoSpace),
        Status::Rofs | Status::Access | Status::Perm | Status::Openmode => failed(ReadOnly),
        Status::Inval | Status::ReqTooBig | Status::RepTooBig => failed(Invalid),
        Status::Stale | Status::Badhandle | Status::Fhexpired => Judged {
            attention: true,
            ..failed(Lost)
        },
        Status::Badsession
        | Status::Deadsession
        | Status::Badslot
        | Status::BadHighSlot
        | Status::ConnNotBoundToSession
        | Status::SeqMisordered
        | Status::SeqFalseRetry
        | Status::RetryUncachedRep
        | Status::StaleClientid
        | Status::Expired
        | Status::AdminRevoked
        | Status::BadStateid
        | Status::OldStateid
        | Status::StaleStateid => Judged {
            may_have_been_done: true,
            ends: Some(SESSION_LOST),
            ..retry
        },
        _ => failed(Medium),
    }
}
