//! Error values of NFS version 4 (RFC 8881, section 15; RFC 7862, section 11), and those of version 3 (RFC 1813, section 2.6).

use weir_open_enum::open_enum;

open_enum! {
    /// Outcome of an operation (nfsstat4).
    pub enum Status: u32 {
        /// It succeeded.
        Ok = 0 => "NFS4_OK",
        /// The caller does not own what it is about, or has not the privilege.
        Perm = 1 => "NFS4ERR_PERM",
        /// There is no such file.
        Noent = 2 => "NFS4ERR_NOENT",
        /// An I/O error.
        Io = 5 => "NFS4ERR_IO",
        /// There is no such device.
        Nxio = 6 => "NFS4ERR_NXIO",
        /// The caller has not the permission.
        Access = 13 => "NFS4ERR_ACCESS",
        /// The file exists.
        Exist = 17 => "NFS4ERR_EXIST",
        /// The files are of different file systems.
        Xdev = 18 => "NFS4ERR_XDEV",
        /// It is no directory.
        Notdir = 20 => "NFS4ERR_NOTDIR",
        /// It is a directory.
        Isdir = 21 => "NFS4ERR_ISDIR",
        /// An argument is not valid.
        Inval = 22 => "NFS4ERR_INVAL",
        /// The file would become too large.
        Fbig = 27 => "NFS4ERR_FBIG",
        /// The file system has no space left.
        Nospc = 28 => "NFS4ERR_NOSPC",
        /// The file system is read-only.
        Rofs = 30 => "NFS4ERR_ROFS",
        /// The file has too many links.
        Mlink = 31 => "NFS4ERR_MLINK",
        /// The name is too long.
        Nametoolong = 63 => "NFS4ERR_NAMETOOLONG",
        /// The directory is not empty.
        Notempty = 66 => "NFS4ERR_NOTEMPTY",
        /// The quota is used up.
        Dquot = 69 => "NFS4ERR_DQUOT",
        /// The file that the handle names is there no more.
        Stale = 70 => "NFS4ERR_STALE",
        /// The handle is not one of this server's.
        Badhandle = 10001 => "NFS4ERR_BADHANDLE",
        /// The file is another one than the client thought it was. In version 3 alone.
        NotSync = 10002 => "NFS3ERR_NOT_SYNC",
        /// The cookie of a READDIR is not valid.
        BadCookie = 10003 => "NFS4ERR_BAD_COOKIE",
        /// The operation is known, and not supported.
        Notsupp = 10004 => "NFS4ERR_NOTSUPP",
        /// Not one entry fits the answer.
        Toosmall = 10005 => "NFS4ERR_TOOSMALL",
        /// The server failed.
        Serverfault = 10006 => "NFS4ERR_SERVERFAULT",
        /// The type of file is not valid there.
        Badtype = 10007 => "NFS4ERR_BADTYPE",
        /// It takes long: the client is to try again.
        Delay = 10008 => "NFS4ERR_DELAY",
        /// The attributes are the same.
        Same = 10009 => "NFS4ERR_SAME",
        /// A lock is held that conflicts.
        Denied = 10010 => "NFS4ERR_DENIED",
        /// The lease expired.
        Expired = 10011 => "NFS4ERR_EXPIRED",
        /// The byte range is locked.
        Locked = 10012 => "NFS4ERR_LOCKED",
        /// The server waits for clients to reclaim what they had.
        Grace = 10013 => "NFS4ERR_GRACE",
        /// The file handle expired.
        Fhexpired = 10014 => "NFS4ERR_FHEXPIRED",
        /// A share reservation forbids it.
        ShareDenied = 10015 => "NFS4ERR_SHARE_DENIED",
        /// The caller's flavor of security is not the one that is asked for.
        Wrongsec = 10016 => "NFS4ERR_WRONGSEC",
        /// The client identifier is in use by another principal.
        ClidInuse = 10017 => "NFS4ERR_CLID_INUSE",
        /// There is no current file handle.
        Nofilehandle = 10020 => "NFS4ERR_NOFILEHANDLE",
        /// The minor version is not served.
        MinorVersMismatch = 10021 => "NFS4ERR_MINOR_VERS_MISMATCH",
        /// The client ID is not known.
        StaleClientid = 10022 => "NFS4ERR_STALE_CLIENTID",
        /// The stateid is of an earlier instance of the server.
        StaleStateid = 10023 => "NFS4ERR_STALE_STATEID",
        /// The stateid is older than the state.
        OldStateid = 10024 => "NFS4ERR_OLD_STATEID",
        /// The stateid is not valid.
        BadStateid = 10025 => "NFS4ERR_BAD_STATEID",
        /// The attributes are not the same.
        NotSame = 10027 => "NFS4ERR_NOT_SAME",
        /// The range of a lock cannot be.
        LockRange = 10028 => "NFS4ERR_LOCK_RANGE",
        /// It is a symbolic link.
        Symlink = 10029 => "NFS4ERR_SYMLINK",
        /// There is no saved file handle.
        Restorefh = 10030 => "NFS4ERR_RESTOREFH",
        /// An attribute is not supported.
        Attrnotsupp = 10032 => "NFS4ERR_ATTRNOTSUPP",
        /// There is no time of grace: nothing can be reclaimed.
        NoGrace = 10033 => "NFS4ERR_NO_GRACE",
        /// It cannot be reclaimed.
        ReclaimBad = 10034 => "NFS4ERR_RECLAIM_BAD",
        /// Another has something that conflicts with what is reclaimed.
        ReclaimConflict = 10035 => "NFS4ERR_RECLAIM_CONFLICT",
        /// The arguments are not what the operation takes.
        Badxdr = 10036 => "NFS4ERR_BADXDR",
        /// Locks are held.
        LocksHeld = 10037 => "NFS4ERR_LOCKS_HELD",
        /// The file is not open for that.
        Openmode = 10038 => "NFS4ERR_OPENMODE",
        /// The owner is not valid.
        Badowner = 10039 => "NFS4ERR_BADOWNER",
        /// The name has a character that it may not have.
        Badchar = 10040 => "NFS4ERR_BADCHAR",
        /// The name is none.
        Badname = 10041 => "NFS4ERR_BADNAME",
        /// The range is not supported.
        BadRange = 10042 => "NFS4ERR_BAD_RANGE",
        /// The operation is not known in this minor version.
        OpIllegal = 10044 => "NFS4ERR_OP_ILLEGAL",
        /// The locks would wait for one another.
        Deadlock = 10045 => "NFS4ERR_DEADLOCK",
        /// The file is open.
        FileOpen = 10046 => "NFS4ERR_FILE_OPEN",
        /// The state was revoked.
        AdminRevoked = 10047 => "NFS4ERR_ADMIN_REVOKED",
        /// The session is not known.
        Badsession = 10052 => "NFS4ERR_BADSESSION",
        /// There is no such slot.
        Badslot = 10053 => "NFS4ERR_BADSLOT",
        /// RECLAIM_COMPLETE was said before.
        CompleteAlready = 10054 => "NFS4ERR_COMPLETE_ALREADY",
        /// The connection is not bound to the session.
        ConnNotBoundToSession = 10055 => "NFS4ERR_CONN_NOT_BOUND_TO_SESSION",
        /// The sequence ID is not the next one.
        SeqMisordered = 10063 => "NFS4ERR_SEQ_MISORDERED",
        /// SEQUENCE is not the first operation.
        SequencePos = 10064 => "NFS4ERR_SEQUENCE_POS",
        /// The request is too large.
        ReqTooBig = 10065 => "NFS4ERR_REQ_TOO_BIG",
        /// The reply is too large.
        RepTooBig = 10066 => "NFS4ERR_REP_TOO_BIG",
        /// The reply is too large to be kept.
        RepTooBigToCache = 10067 => "NFS4ERR_REP_TOO_BIG_TO_CACHE",
        /// The reply was not kept.
        RetryUncachedRep = 10068 => "NFS4ERR_RETRY_UNCACHED_REP",
        /// There are more operations than the session allows.
        TooManyOps = 10070 => "NFS4ERR_TOO_MANY_OPS",
        /// The operation needs a session.
        OpNotInSession = 10071 => "NFS4ERR_OP_NOT_IN_SESSION",
        /// The client ID has state.
        ClientidBusy = 10074 => "NFS4ERR_CLIENTID_BUSY",
        /// A retry is another request.
        SeqFalseRetry = 10076 => "NFS4ERR_SEQ_FALSE_RETRY",
        /// The high slot is not valid.
        BadHighSlot = 10077 => "NFS4ERR_BAD_HIGH_SLOT",
        /// The session is being ended.
        Deadsession = 10078 => "NFS4ERR_DEADSESSION",
        /// The operation must stand alone.
        NotOnlyOp = 10081 => "NFS4ERR_NOT_ONLY_OP",
        /// It is of the wrong type.
        WrongType = 10083 => "NFS4ERR_WRONG_TYPE",
        /// The copy is not allowed.
        OffloadDenied = 10091 => "NFS4ERR_OFFLOAD_DENIED",
        /// The kind of data of a SEEK is not known.
        UnionNotsupp = 10090 => "NFS4ERR_UNION_NOTSUPP",
    }
}

impl Status {
    /// The one that says in version 3 what this one says in version 4.
    #[must_use]
    pub fn of_v3(self) -> Self {
        match self {
            Status::Symlink | Status::WrongType | Status::Badchar | Status::Badname => {
                Status::Inval
            }
            // Waiting does not help: a share reservation stays for as long as its owner likes.
            Status::Locked | Status::ShareDenied => Status::Access,
            Status::Grace => Status::Delay,
            Status::Attrnotsupp | Status::UnionNotsupp => Status::Notsupp,
            // Values below these are the same in both.
            other if other.value() <= Status::Delay.value() => other,
            _ => Status::Serverfault,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_3_has_values_of_its_own_alone() {
        for &status in Status::NAMED {
            let told = status.of_v3();
            assert!(told.value() <= Status::Delay.value(), "{status} as {told}");
            assert_eq!(told == Status::Ok, status == Status::Ok);
        }
    }
}
