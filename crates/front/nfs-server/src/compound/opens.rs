//! Operations that open and close files, and lock ranges of them.

use std::sync::Arc;

use weir_files::{Creation, Found, Kind};
use weir_nfs::Status;
use weir_nfs::attribute::Bitmap;
use weir_nfs::operation::{Claim, HowCreated, Lock, LockRange, Open as Request};
use weir_nfs::types::{StateId, share};
use weir_reactor::File;

use super::attributes::{changes_of, is_exclusive};
use super::names::ChangeInfo;
use super::{Compound, Done};
use crate::actions::{Changed, changing};
use crate::handle::{FileKey, Target};
use crate::seen::check_name;
use crate::state::{Conflict, Locked, OpenRequest, Opened};

/// Locks are those of POSIX (OPEN4_RESULT_LOCKTYPE_POSIX).
const LOCKS_AS_POSIX: u32 = 4;
/// The client wants no delegation (OPEN4_SHARE_ACCESS_WANT_NO_DELEG, _CANCEL).
const WANTS_NONE: [u32; 2] = [0x400, 0x500];
/// Bits of what is wished that name a delegation.
const WANTS_KIND: u32 = 0xff00;
/// There is none (open_delegation_type4).
const DELEGATION_NONE: u32 = 0;
/// There is none, and why.
const DELEGATION_NONE_EXT: u32 = 3;
/// It was not wanted (why_no_delegation4).
const NOT_WANTED: u32 = 0;
/// The server has none.
const NO_RESOURCE: u32 = 2;

/// A file that is to be opened: found, or made.
struct Reached {
    found: Found,
    made: Option<Arc<File>>,
    info: ChangeInfo,
    /// Attributes that were set in making it.
    set: Bitmap,
    /// The length that it is to get, where it was there.
    size: Option<u64>,
}

impl Compound<'_> {
    pub(super) async fn open(&mut self, request: Request<'_>) -> Done {
        let wants = request.access & share::WANTS;
        let access = request.access & !share::WANTS;
        if !(share::READ..=share::BOTH).contains(&access) || request.deny > share::BOTH {
            return Err(Status::Inval.into());
        }
        let is_reclaimed = request.claim == Claim::Previous;
        let (client, now) = (self.client(), self.seen.now());
        self.seen
            .shared()
            .state
            .may_open(client, is_reclaimed, now)?;
        let is_made = request.create.is_some();
        let reached = match request.claim {
            Claim::Null(name) => self.reach(name, request.create).await?,
            Claim::Previous | Claim::FileHandle if !is_made => self.reach_current().await?,
            Claim::Previous | Claim::FileHandle => return Err(Status::Inval.into()),
            Claim::Delegation => return Err(Status::Notsupp.into()),
        };
        let key = FileKey {
            export: self.file()?.export,
            id: reached.found.id,
        };
        match reached.found.attributes.kind {
            Kind::Regular => {}
            Kind::Directory => return Err(Status::Isdir.into()),
            Kind::Link => return Err(Status::Symlink.into()),
            _ => return Err(Status::WrongType.into()),
        }
        let writes = access & share::WRITE != 0;
        let export = match writes {
            true => self.seen.export_to_change(&key)?,
            false => self.seen.export(&key)?,
        };
        let state = &self.seen.context.shard.shared.own.state;
        let whose = (client, request.owner);
        state.check_share(whose, &key, access, request.deny, now)?;
        let (is_writable, file) = match reached.made {
            Some(file) => (true, Opened::File(file)),
            None => (writes, self.seen.open(key, writes).await?),
        };
        let stateid = state.open(
            OpenRequest {
                client,
                owner: request.owner,
                key,
                access,
                deny: request.deny,
                is_reclaimed,
                file,
                is_writable,
            },
            now,
        )?;
        let mut set = reached.set;
        if let Some(size) = reached.size {
            let changes = weir_files::Changes {
                size: Some(size),
                ..weir_files::Changes::default()
            };
            self.seen
                .on(export, move |files| files.set(&key.id, &changes))
                .await?;
            set.add(weir_nfs::attribute::number::SIZE);
        }
        self.set_current(Target::File(key));
        self.stateid = Some(stateid);
        let out = &mut self.out;
        stateid.write(out);
        reached.info.write(out);
        out.u32(LOCKS_AS_POSIX);
        set.write(out);
        match wants & WANTS_KIND {
            0 => out.u32(DELEGATION_NONE),
            wanted if WANTS_NONE.contains(&wanted) => {
                out.u32(DELEGATION_NONE_EXT);
                out.u32(NOT_WANTED);
            }
            _ => {
                out.u32(DELEGATION_NONE_EXT);
                out.u32(NO_RESOURCE);
                // Nor will it tell when it has one.
                out.bool(false);
            }
        }
        Ok(())
    }

    /// Finds or makes the file of a name in the current directory.
    async fn reach(&self, name: &[u8], create: Option<HowCreated>) -> Result<Reached, Status> {
        let directory = match self.current()? {
            Target::File(key) => key,
            Target::Place(_) => match create {
                Some(_) => return Err(Status::Rofs),
                None => return Err(Status::Isdir),
            },
        };
        let Some(create) = create else {
            check_name(name)?;
            let (export, name) = (self.seen.export(&directory)?, name.to_vec());
            let looked_up = self.seen.on(export, move |files| {
                changing(files, &directory, || files.lookup(&directory.id, &name))
            });
            let (found, changed) = looked_up.await?;
            return Ok(Reached {
                found,
                made: None,
                info: ChangeInfo::of(&changed),
                set: Bitmap::default(),
                size: None,
            });
        };
        let (creation, asked) = match create {
            HowCreated::Unchecked(asked) => (Creation::Unchecked, asked),
            HowCreated::Guarded(asked) => (Creation::Guarded, asked),
            HowCreated::Exclusive { verifier, changes } => (Creation::Exclusive(verifier), changes),
        };
        let (changes, bitmap) = changes_of(asked)?;
        if matches!(creation, Creation::Exclusive(_)) && !is_exclusive(&bitmap) {
            return Err(Status::Inval);
        }
        let made = self.seen.create(directory, name, creation, changes);
        let made = made.await?;
        let is_new = made.created.made.is_some();
        Ok(Reached {
            found: made.created.found,
            made: made.created.made,
            info: ChangeInfo::of(&made.changed),
            set: if is_new { bitmap } else { Bitmap::default() },
            size: made.size,
        })
    }

    /// Finds the current file.
    async fn reach_current(&self) -> Result<Reached, Status> {
        let key = self.regular()?;
        let export = self.seen.export(&key)?;
        let attributes = self.seen.on(export, move |files| files.attributes(&key.id));
        let attributes = attributes.await?;
        Ok(Reached {
            found: Found {
                id: key.id,
                attributes,
            },
            made: None,
            info: ChangeInfo::of(&Changed {
                before: attributes,
                after: attributes,
            }),
            set: Bitmap::default(),
            size: None,
        })
    }

    pub(super) fn downgrade(&mut self, stateid: &StateId, access: u32, deny: u32) -> Done {
        let (key, stateid) = (self.file()?, self.meant(stateid)?);
        let access = access & !share::WANTS;
        if !(share::READ..=share::BOTH).contains(&access) || deny > share::BOTH {
            return Err(Status::Inval.into());
        }
        let state = &self.seen.shared().state;
        let now = state.downgrade(self.client(), &stateid, &key, access, deny)?;
        self.stateid = Some(now);
        now.write(&mut self.out);
        Ok(())
    }

    pub(super) fn close(&mut self, stateid: &StateId) -> Done {
        let (key, stateid) = (self.file()?, self.meant(stateid)?);
        let state = &self.seen.shared().state;
        state.close(self.client(), &stateid, &key)?;
        self.seen.context.opens.borrow_mut().remove(&stateid.other);
        self.stateid = None;
        // Nobody may use it any more.
        StateId::INVALID.write(&mut self.out);
        Ok(())
    }

    fn write_conflict(&mut self, conflict: &Conflict) {
        let out = &mut self.out;
        out.u64(conflict.offset);
        out.u64(conflict.length);
        out.u32(if conflict.is_exclusive { 2 } else { 1 });
        out.u64(conflict.client);
        out.opaque(&conflict.owner);
    }

    pub(super) fn lock(&mut self, request: &Lock<'_>) -> Done {
        let key = self.regular()?;
        let mut request = request.clone();
        match &mut request.locker {
            weir_nfs::operation::Locker::New { open, .. } => *open = self.meant(open)?,
            weir_nfs::operation::Locker::Known { stateid } => *stateid = self.meant(stateid)?,
        }
        let (state, now) = (&self.seen.shared().state, self.seen.now());
        match state.lock_range(self.client(), &key, &request, now)? {
            Locked::Held(stateid) => {
                self.stateid = Some(stateid);
                stateid.write(&mut self.out);
                Ok(())
            }
            Locked::Denied(conflict) => {
                self.keeps_body = true;
                self.write_conflict(&conflict);
                Err(Status::Denied.into())
            }
        }
    }

    pub(super) fn test_lock(&mut self, range: &LockRange, owner: &[u8]) -> Done {
        let key = self.regular()?;
        let (state, now) = (&self.seen.shared().state, self.seen.now());
        match state.test_range(self.client(), &key, range, owner, now)? {
            None => Ok(()),
            Some(conflict) => {
                self.keeps_body = true;
                self.write_conflict(&conflict);
                Err(Status::Denied.into())
            }
        }
    }

    pub(super) fn unlock(&mut self, range: &LockRange, stateid: &StateId) -> Done {
        let (key, stateid) = (self.regular()?, self.meant(stateid)?);
        let state = &self.seen.shared().state;
        let now = state.unlock_range(self.client(), &key, &stateid, range)?;
        self.stateid = Some(now);
        now.write(&mut self.out);
        Ok(())
    }
}
