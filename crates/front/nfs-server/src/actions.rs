//! Things that are done to files, whatever the version of the call: names are changed, data is read and written.

use std::rc::Rc;

use weir_files::{
    Attributes, Changes, Created, Creation, FileError, FileSystem, Found, Kind, Special,
};
use weir_memory::{Segment, Segments, View, Views};
use weir_nfs::Status;
use weir_nfs::types::{file_type, stable};
use weir_reactor::LocalFile;

use crate::context::Data;
use crate::handle::FileKey;
use crate::seen::{Seen, check_name, status_of};

pub(crate) fn status_of_io(error: std::io::Error) -> Status {
    status_of(FileError::from(error))
}

/// Attributes of a directory before and after something was changed in it.
pub(crate) struct Changed {
    pub(crate) before: Attributes,
    pub(crate) after: Attributes,
}

/// A file that was made, or was there.
pub(crate) struct Made {
    pub(crate) created: Created,
    /// Length that it is to get, where it was there.
    pub(crate) size: Option<u64>,
    pub(crate) changed: Changed,
}

/// Changes something in a directory, and tells what that was like before and after.
pub(crate) fn changing<T>(
    files: &dyn FileSystem,
    directory: &FileKey,
    change: impl FnOnce() -> Result<T, FileError>,
) -> Result<(T, Changed), FileError> {
    let before = files.attributes(&directory.id)?;
    if before.kind != Kind::Directory {
        return Err(FileError::NotDirectory);
    }
    let done = change()?;
    let after = files.attributes(&directory.id)?;
    Ok((done, Changed { before, after }))
}

/// Tells whether a file can have so many bytes there.
pub(crate) fn can_have(offset: u64, bytes: usize) -> bool {
    let end = offset.checked_add(bytes as u64);
    end.is_some_and(|end| i64::try_from(end).is_ok())
}

/// The buffer that was read into, with what was read.
pub(crate) fn filled(read: (std::io::Result<usize>, Segments)) -> Result<Segment, Status> {
    let count = read.0.map_err(status_of_io)?;
    let mut segment = read.1.into_iter().next().expect("it was given one");
    segment.set_len(count);
    Ok(segment)
}

impl Seen {
    /// Makes a regular file. One that is there keeps its length until it is known that it may be changed.
    pub(crate) async fn create(
        &self,
        directory: FileKey,
        name: &[u8],
        creation: Creation,
        changes: Changes,
    ) -> Result<Made, Status> {
        check_name(name)?;
        let (export, name) = (self.export_to_change(&directory)?, name.to_vec());
        let made = self.on(export, move |files| {
            let existing = match creation {
                Creation::Unchecked => files.lookup(&directory.id, &name),
                _ => Err(FileError::NotFound),
            };
            changing(files, &directory, || match existing {
                Ok(found) => Ok((Created { found, made: None }, changes.size)),
                Err(FileError::NotFound) => {
                    let made = files.create(&directory.id, &name, creation, &changes)?;
                    Ok((made, None))
                }
                Err(error) => Err(error),
            })
        });
        let ((created, size), changed) = made.await?;
        Ok(Made {
            created,
            size,
            changed,
        })
    }

    /// Makes a file that is not regular: of a kind (nfs_ftype4), and with the text `link` where that is a symbolic link.
    pub(crate) async fn make(
        &self,
        directory: FileKey,
        name: &[u8],
        kind: u32,
        link: &[u8],
        changes: Changes,
    ) -> Result<(Found, Changed), Status> {
        let export = self.export_to_change(&directory)?;
        check_name(name)?;
        if changes.size.is_some() {
            return Err(Status::Inval);
        }
        match kind {
            file_type::DIRECTORY | file_type::LINK | file_type::PIPE | file_type::SOCKET => {}
            // Whoever serves as one user makes no devices for others.
            file_type::BLOCK | file_type::CHARACTER => return Err(Status::Perm),
            _ => return Err(Status::Badtype),
        }
        if kind == file_type::LINK && (link.is_empty() || link.contains(&0)) {
            return Err(Status::Inval);
        }
        let (link, name) = (link.to_vec(), name.to_vec());
        let made = self.on(export, move |files| {
            let special = match kind {
                file_type::DIRECTORY => Special::Directory,
                file_type::LINK => Special::Link(&link),
                file_type::PIPE => Special::Pipe,
                _ => Special::Socket,
            };
            changing(files, &directory, || {
                files.make(&directory.id, &name, special, &changes)
            })
        });
        made.await
    }

    /// Gives a file one more name.
    pub(crate) async fn link(
        &self,
        file: FileKey,
        directory: FileKey,
        name: &[u8],
    ) -> Result<Changed, Status> {
        if file.export != directory.export {
            return Err(Status::Xdev);
        }
        let export = self.export_to_change(&directory)?;
        check_name(name)?;
        let name = name.to_vec();
        let linked = self.on(export, move |files| {
            if files.attributes(&file.id)?.kind == Kind::Directory {
                return Err(FileError::IsDirectory);
            }
            changing(files, &directory, || {
                files.link(&file.id, &directory.id, &name)
            })
        });
        Ok(linked.await?.1)
    }

    /// Removes a name: of any file, or of one that is, or is not, a directory.
    pub(crate) async fn remove(
        &self,
        directory: FileKey,
        name: &[u8],
        of_directory: Option<bool>,
    ) -> Result<Changed, Status> {
        let export = self.export_to_change(&directory)?;
        check_name(name)?;
        let name = name.to_vec();
        let removed = self.on(export, move |files| {
            changing(files, &directory, || {
                if let Some(wanted) = of_directory {
                    let found = files.lookup(&directory.id, &name)?;
                    match (found.attributes.kind == Kind::Directory, wanted) {
                        (true, false) => return Err(FileError::IsDirectory),
                        (false, true) => return Err(FileError::NotDirectory),
                        _ => {}
                    }
                }
                files.remove(&directory.id, &name)
            })
        });
        Ok(removed.await?.1)
    }

    /// Gives a file another name; what the two directories were like before and after.
    pub(crate) async fn rename(
        &self,
        from: (FileKey, &[u8]),
        to: (FileKey, &[u8]),
    ) -> Result<(Changed, Changed), Status> {
        let (source, target) = (from.0, to.0);
        if source.export != target.export {
            return Err(Status::Xdev);
        }
        let export = self.export_to_change(&target)?;
        check_name(from.1)?;
        check_name(to.1)?;
        let (from, to) = (from.1.to_vec(), to.1.to_vec());
        let renamed = self.on(export, move |files| {
            changing(files, &source, || {
                let renamed = changing(files, &target, || {
                    files.rename((&source.id, &from), (&target.id, &to))
                });
                Ok(renamed?.1)
            })
        });
        let (of_target, of_source) = renamed.await?;
        Ok((of_source, of_target))
    }

    /// Writes data with this demand on it (stable_how4); the number of bytes, and the verifier.
    pub(crate) async fn write(
        &self,
        key: &FileKey,
        to: &Data,
        offset: u64,
        how: u32,
        data: View,
    ) -> Result<(u32, u64), Status> {
        let bytes = data.len() as u64;
        let written = match to {
            Data::File(file) => self.write_file(key, file, offset, how, data).await,
            Data::Volume => Box::pin(self.write_blocks(key, offset, how, data)).await,
        };
        self.count(key, |counters| match written {
            Ok(_) => {
                counters.writes.add(1);
                counters.bytes_written.add(bytes);
            }
            Err(_) => counters.failed_commands.add(1),
        });
        written
    }

    async fn write_file(
        &self,
        key: &FileKey,
        file: &Rc<LocalFile>,
        offset: u64,
        how: u32,
        data: View,
    ) -> Result<(u32, u64), Status> {
        if !can_have(offset, data.len()) {
            return Err(Status::Fbig);
        }
        // What WRITE says of the verifier must be what it was before the data was taken.
        let verifier = self.shared().state.verifier();
        let mut count = 0;
        if !data.is_empty() {
            let mut views = Views::new();
            views.push(data);
            let is_durable = how == stable::DATA_SYNC;
            let written = file.write(self.reactor(), offset, views, is_durable);
            count = written.await.0.map_err(status_of_io)?;
            if count == 0 {
                return Err(Status::Io);
            }
        }
        if how == stable::FILE_SYNC {
            Box::pin(self.sync_all(key, file)).await?;
        }
        Ok((count as u32, verifier))
    }

    /// Puts a file on stable storage, with all that is known of it.
    pub(crate) async fn sync_all(&self, key: &FileKey, file: &Rc<LocalFile>) -> Result<(), Status> {
        let whole = file.shared();
        let synced = self.reactor().offload(move || whole.sync_all()).await;
        match synced {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(self.lost_data(key, &error)),
            None => Err(Status::Serverfault),
        }
    }

    /// A sync failed: clients are to send again what they hold.
    pub(crate) fn lost_data(&self, key: &FileKey, error: &dyn std::fmt::Display) -> Status {
        let drawn = self.reactor().random();
        self.shared().state.lost_data(drawn);
        let export = self
            .snapshot
            .export(key.export)
            .map(|export| &export.path[..]);
        tracing::error!(export, %error, "a sync of an NFS export failed: clients are told to send again what was not committed");
        Status::Io
    }

    /// Puts what was written to a regular file on stable storage; the verifier.
    pub(crate) async fn commit(&self, key: &FileKey) -> Result<u64, Status> {
        let export = self.export(key)?;
        self.count(key, |counters| counters.other_commands.add(1));
        let verifier = self.shared().state.verifier();
        let data = match self.shared().state.any_open(key) {
            Some(open) => Data::from(open.file()),
            None => self.opened(key, !export.is_read_only).await?,
        };
        let Data::File(file) = data else {
            return Box::pin(self.commit_blocks(key)).await;
        };
        if let Err(error) = file.sync(self.reactor()).await {
            return Err(self.lost_data(key, &error));
        }
        Ok(verifier)
    }
}
