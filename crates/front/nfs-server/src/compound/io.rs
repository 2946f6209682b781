//! READ, WRITE and COMMIT.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use weir_files::FileError;
use weir_memory::{Segments, Views};
use weir_nfs::Status;
use weir_nfs::types::{StateId, share, stable};
use weir_nfs::xdr::padded;
use weir_reactor::LocalFile;

use super::{Compound, Done, Known, OPENS_KNOWN_MAX, status_of};
use crate::handle::FileKey;

/// Bytes of a reply to READ beside the data: its end, its length, the next results.
const READ_BYTES: usize = 64;

pub(super) fn status_of_io(error: std::io::Error) -> Status {
    status_of(FileError::from(error))
}

impl Compound<'_> {
    /// The current file, open for `access`. What a connection used before it knows without asking others.
    pub(super) async fn open_file(
        &self,
        key: &FileKey,
        stateid: &StateId,
        access: u32,
    ) -> Result<Rc<LocalFile>, Status> {
        let stateid = self.meant(stateid)?;
        if let Some(known) = self.context.opens.borrow().get(&stateid.other)
            && !known.open.is_ended()
            && known.seqid == known.open.seqid()
            && (stateid.seqid == 0 || stateid.seqid == known.seqid)
            && known.open.key == *key
            && known.open.client == self.client()
            && known.open.allows(access)
        {
            return Ok(Rc::clone(&known.file));
        }
        let state = &self.shared().state;
        let open = match state.for_io(self.client(), &stateid, key, access)? {
            Some(open) => open,
            None => {
                let (export, id) = (self.export(key)?, key.id);
                let writes = access == share::WRITE;
                let opened = self.on(export, move |files| files.open(&id, writes));
                return Ok(LocalFile::new(Box::pin(opened).await?));
            }
        };
        let (seqid, file) = (open.seqid(), LocalFile::new(open.file()));
        if self.context.opens.borrow().len() >= OPENS_KNOWN_MAX {
            self.context.forget_ended();
        }
        let mut opens = self.context.opens.borrow_mut();
        // The stateid of locks has a count of its own, and is asked for each time.
        if opens.len() < OPENS_KNOWN_MAX && stateid.other == open.id {
            let known = Known {
                open,
                seqid,
                file: Rc::clone(&file),
            };
            opens.insert(stateid.other, known);
        }
        Ok(file)
    }

    pub(super) async fn read(&mut self, stateid: &StateId, offset: u64, count: u32) -> Done {
        let file = {
            let key = self.regular()?;
            self.export(&key)?;
            self.open_file(&key, stateid, share::READ).await?
        };
        let room = self.bytes_max.saturating_sub(self.length() + READ_BYTES);
        let segment = self.segments.pop_front();
        let Some(mut segment) = segment.filter(|_| count > 0 && room > 0) else {
            // Nothing is asked for, or nothing more can be said.
            if count > 0 {
                return Err(Status::RepTooBig.into());
            }
            let length = file.length().map_err(status_of_io)?;
            self.out.bool(offset >= length);
            self.out.u32(0);
            return Ok(());
        };
        let wanted = segment.len().min(room).min(count as usize);
        segment.set_len(wanted);
        let mut into = Segments::new();
        into.push(segment);
        let end = offset.checked_add(wanted as u64);
        let Some(end) = end.filter(|&end| i64::try_from(end).is_ok()) else {
            // There is nothing that far.
            self.out.bool(true);
            self.out.u32(0);
            return Ok(());
        };
        let (result, into) = file.read(self.context.reactor(), offset, into).await;
        let count = result.map_err(status_of_io)?;
        let is_end = count < wanted || end >= file.length().map_err(status_of_io)?;
        self.answer_read(is_end, count, into);
        Ok(())
    }

    /// Writes the result of a READ of `count` bytes, which is not short of its end.
    fn answer_read(&mut self, is_end: bool, count: usize, into: Segments) {
        self.out.bool(is_end);
        self.out.u32(count as u32);
        let mut segment = into.into_iter().next().expect("it was given one");
        segment.set_len(count);
        if count > 0 {
            self.data.push((self.out.len(), segment.freeze()));
            let fill = padded(count) - count;
            // The bytes that fill up the data follow it.
            if fill > 0 {
                self.out.raw(&[0; 3][..fill]);
            }
        }
    }

    pub(super) async fn write(
        &mut self,
        stateid: &StateId,
        offset: u64,
        how: u32,
        data: Range<usize>,
    ) -> Done {
        let key = self.regular()?;
        let export = self.export_to_change(&key)?;
        let file = self.open_file(&key, stateid, share::WRITE).await?;
        let length = data.len() as u64;
        let end = offset.checked_add(length);
        if end.is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(Status::Fbig.into());
        }
        // What WRITE says of the verifier must be what it was before the data was taken.
        let verifier = self.shared().state.verifier();
        let mut count = 0;
        if length > 0 {
            let mut views = Views::new();
            views.push(self.record.slice(data));
            let is_durable = how == stable::DATA_SYNC;
            let written = file.write(self.context.reactor(), offset, views, is_durable);
            count = written.await.0.map_err(status_of_io)?;
            if count == 0 {
                return Err(Status::Io.into());
            }
        }
        if how == stable::FILE_SYNC {
            Box::pin(self.sync_all(&file, &export.path)).await?;
        }
        self.out.u32(count as u32);
        self.out.u32(how);
        self.out.fixed(&verifier.to_be_bytes());
        Ok(())
    }

    /// Puts a file on stable storage, with all that is known of it.
    pub(super) async fn sync_all(&self, file: &Rc<LocalFile>, export: &str) -> Result<(), Status> {
        let whole = file.shared();
        let synced = self
            .context
            .reactor()
            .offload(move || whole.sync_all())
            .await;
        match synced {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(self.lost_data(&error, export)),
            None => Err(Status::Serverfault),
        }
    }

    /// A sync failed: clients are to send again what they hold.
    fn lost_data(&self, error: &std::io::Error, export: &str) -> Status {
        let drawn = self.context.reactor().random();
        self.shared().state.lost_data(drawn);
        tracing::error!(export, %error, "a sync of an NFS export failed: clients are told to send again what was not committed");
        Status::Io
    }

    pub(super) async fn commit(&mut self) -> Done {
        let key = self.regular()?;
        let export = self.export(&key)?;
        let verifier = self.shared().state.verifier();
        let file = match self.shared().state.any_open(&key) {
            Some(open) => open.file(),
            None => {
                let writes = !export.is_read_only;
                self.on(export, move |files| files.open(&key.id, writes))
                    .await?
            }
        };
        let file = LocalFile::new(Arc::clone(&file));
        if let Err(error) = file.sync(self.context.reactor()).await {
            return Err(self.lost_data(&error, &export.path).into());
        }
        self.out.fixed(&verifier.to_be_bytes());
        Ok(())
    }
}
