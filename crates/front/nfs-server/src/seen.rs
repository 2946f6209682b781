//! Exports as one call sees them: as they were when it came, from where its client is.

use std::rc::Rc;
use std::sync::Arc;

use weir_files::{Attributes, FileError, FileSystem, Found, Kind};
use weir_front::IoCounters;
use weir_nfs::types::access;
use weir_nfs::{FileHandle, Status};
use weir_reactor::{Instant, LocalFile, Reactor};
use weir_reservation::Access;

use crate::context::{Context, Data, Here};
use crate::desk::is_allowed;
use crate::handle::{FileKey, Target};
use crate::protocol::NfsShared;
use crate::served::{Export, Leads, Snapshot, Source};
use crate::state::Opened;
use crate::volumes::number_of;

/// Bytes of one name at most.
const NAME_BYTES_MAX: usize = 255;

/// Checks a name that is to be one of a directory's.
pub(crate) fn check_name(name: &[u8]) -> Result<(), Status> {
    match name {
        [] => Err(Status::Inval),
        b"." | b".." => Err(Status::Badname),
        _ if name.contains(&b'/') || name.contains(&0) => Err(Status::Badchar),
        _ if name.len() > NAME_BYTES_MAX => Err(Status::Nametoolong),
        _ => Ok(()),
    }
}

/// Exports as one call sees them.
pub(crate) struct Seen {
    pub(crate) context: Rc<Context>,
    pub(crate) snapshot: Rc<Here<Snapshot>>,
    /// When the call came.
    pub(crate) came: Instant,
}

impl Seen {
    pub(crate) fn new(context: &Rc<Context>) -> Self {
        Seen {
            context: Rc::clone(context),
            snapshot: Rc::clone(&context.snapshot.borrow()),
            came: context.reactor().now(),
        }
    }

    pub(crate) fn reactor(&self) -> &Reactor {
        self.context.reactor()
    }

    pub(crate) fn now(&self) -> Instant {
        self.reactor().now()
    }

    pub(crate) fn shared(&self) -> &NfsShared {
        self.context.shared()
    }

    /// The export that a file is of.
    pub(crate) fn export(&self, key: &FileKey) -> Result<&Export, Status> {
        let export = self.snapshot.export(key.export).ok_or(Status::Stale)?;
        match export.allowed.has(self.context.peer.ip()) {
            true => Ok(export),
            false => Err(Status::Access),
        }
    }

    /// The same, where something is to be changed.
    pub(crate) fn export_to_change(&self, key: &FileKey) -> Result<&Export, Status> {
        let export = self.export(key)?;
        match export.is_read_only {
            true => Err(Status::Rofs),
            false => Ok(export),
        }
    }

    /// Has a file system do something that may block.
    pub(crate) async fn on<T: Send + 'static>(
        &self,
        export: &Export,
        work: impl FnOnce(&dyn FileSystem) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, Status> {
        let files = match &export.source {
            Source::Files(files) => Arc::clone(files),
            // Nothing of these blocks.
            Source::Volumes(volumes) => return work(&**volumes).map_err(status_of),
        };
        let done = self.reactor().offload(move || work(&*files)).await;
        done.ok_or(Status::Serverfault)?.map_err(status_of)
    }

    /// The target of a handle; that of a file, where its export may be used from where the client is.
    pub(crate) fn target(&self, handle: Option<&FileHandle>) -> Result<Target, Status> {
        let target = handle.and_then(|handle| self.shared().key.target(handle));
        let target = target.ok_or(Status::Badhandle)?;
        match &target {
            Target::Place(_) => {
                self.place_of(&target)?;
            }
            Target::File(key) => {
                self.export(key)?;
            }
        }
        Ok(target)
    }

    /// The number of a place.
    pub(crate) fn place_of(&self, target: &Target) -> Result<usize, Status> {
        let Target::Place(wanted) = target else {
            return Err(Status::Notdir);
        };
        let key = &self.shared().key;
        let mut places = self.snapshot.places();
        let found = places.find(|(_, place)| key.place(&place.path) == *wanted);
        found.map(|(number, _)| number).ok_or(Status::Stale)
    }

    pub(crate) fn target_of_place(&self, number: usize) -> Result<Target, Status> {
        let place = self.snapshot.place(number).ok_or(Status::Stale)?;
        Ok(Target::Place(self.shared().key.place(&place.path)))
    }

    /// Tells whether the client sees anything through a name.
    pub(crate) fn is_seen(&self, leads: Leads) -> bool {
        self.snapshot.is_seen(leads, self.context.peer.ip())
    }

    /// The root of an export.
    pub(crate) async fn root_of(&self, number: u32) -> Result<FileKey, Status> {
        let export = self.snapshot.export(number).ok_or(Status::Stale)?;
        let root = self.on(export, |files| files.root()).await?;
        Ok(FileKey {
            export: number,
            id: root.id,
        })
    }

    /// The file of a name in a directory of an export.
    pub(crate) async fn look_up(&self, directory: &FileKey, name: &[u8]) -> Result<Found, Status> {
        check_name(name)?;
        let (export, name, id) = (self.export(directory)?, name.to_vec(), directory.id);
        let found = self.on(export, move |files| match files.lookup(&id, &name) {
            // A symbolic link is told from other files that are no directories.
            Err(FileError::NotDirectory | FileError::IsLink) => match files.attributes(&id)?.kind {
                Kind::Link => Err(FileError::IsLink),
                _ => Err(FileError::NotDirectory),
            },
            found => found,
        });
        found.await
    }

    /// The directory that one is in; none where it is the root of its export.
    pub(crate) async fn parent_of(&self, directory: &FileKey) -> Result<Option<Found>, Status> {
        let (export, id) = (self.export(directory)?, directory.id);
        let parent = self.on(export, move |files| {
            if files.root()?.id == id {
                return Ok(None);
            }
            match files.attributes(&id)?.kind {
                Kind::Directory => files.parent(&id).map(Some),
                _ => Err(FileError::NotDirectory),
            }
        });
        parent.await
    }

    /// The rights that there are to a file, and those of them that the client has (`access`); bits that mean nothing for the file, as
    /// those of extended attributes, are not among them.
    pub(crate) async fn rights(&self, key: &FileKey) -> Result<(u32, u32, Attributes), Status> {
        let (export, id) = (self.export(key)?, key.id);
        let (may, attributes) = self
            .on(export, move |files| {
                let attributes = files.attributes(&id)?;
                Ok((files.access(&id)?, attributes))
            })
            .await?;
        let supported = match attributes.kind {
            Kind::Directory => access::ALL & !access::EXECUTE,
            _ => access::ALL & !(access::LOOKUP | access::DELETE),
        };
        let mut granted = 0;
        if may.read {
            granted |= access::READ;
        }
        if may.write && !export.is_read_only {
            granted |= access::MODIFY | access::EXTEND | access::DELETE;
        }
        if may.execute {
            granted |= access::LOOKUP | access::EXECUTE;
        }
        if let Source::Volumes(volumes) = &export.source
            && let Some(file) = number_of(&key.id).and_then(|number| volumes.file(number))
        {
            if !is_allowed(file, Access::Read) {
                granted = 0;
            } else if !is_allowed(file, Access::Write) {
                granted &= access::READ;
            }
        }
        Ok((supported, supported & granted, attributes))
    }

    /// A regular file, open for those who have no open of their own. The connection keeps it for a while.
    pub(crate) async fn opened(&self, key: &FileKey, writes: bool) -> Result<Data, Status> {
        let now = self.now();
        if let Some(file) = self.context.files.borrow_mut().get(key, writes, now) {
            return Ok(Data::File(file));
        }
        let (export, id) = (self.export(key)?, key.id);
        if matches!(export.source, Source::Volumes(_)) {
            return Ok(Data::Volume);
        }
        let opened = self.on(export, move |files| match writes {
            true => files.open_as_owner(&id),
            false => files.open(&id, false),
        });
        let file = LocalFile::new(Box::pin(opened).await?);
        let known = Rc::clone(&file);
        let mut files = self.context.files.borrow_mut();
        files.keep(*key, known, writes, now);
        Ok(Data::File(file))
    }

    /// Opens a regular file for a client.
    pub(crate) async fn open(&self, key: FileKey, writes: bool) -> Result<Opened, Status> {
        let export = self.export(&key)?;
        match &export.source {
            Source::Volumes(_) => match self.blocks(&key)?.is_read_only() && writes {
                true => Err(Status::Rofs),
                false => Ok(Opened::Volume),
            },
            Source::Files(_) => {
                let opened = self.on(export, move |files| files.open(&key.id, writes));
                Ok(Opened::File(opened.await?))
            }
        }
    }

    /// Counts what was done with an export.
    pub(crate) fn count(&self, key: &FileKey, count: impl FnOnce(&IoCounters)) {
        let exports = self.context.exports.borrow();
        if let Some(counters) = exports.counters(key.export, self.context.shard.index) {
            count(counters);
        }
    }
}

/// Status that a client is told of an error of a file system.
pub(crate) fn status_of(error: FileError) -> Status {
    match error {
        FileError::Absent | FileError::Busy => Status::Delay,
        FileError::NotFound => Status::Noent,
        FileError::Exists => Status::Exist,
        FileError::Stale => Status::Stale,
        FileError::Access => Status::Access,
        FileError::NotPermitted => Status::Perm,
        FileError::NotDirectory => Status::Notdir,
        FileError::IsDirectory => Status::Isdir,
        FileError::IsLink => Status::Symlink,
        FileError::NotRegular => Status::WrongType,
        FileError::NotEmpty => Status::Notempty,
        FileError::Invalid => Status::Inval,
        FileError::NameTooLong => Status::Nametoolong,
        FileError::TooLarge => Status::Fbig,
        FileError::NoSpace => Status::Nospc,
        FileError::Quota => Status::Dquot,
        FileError::ReadOnly => Status::Rofs,
        FileError::TooManyLinks => Status::Mlink,
        FileError::CrossesFileSystems => Status::Xdev,
        FileError::NotSupported => Status::Notsupp,
        FileError::Io(_) => Status::Io,
    }
}
