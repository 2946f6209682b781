//! ALLOCATE, DEALLOCATE, SEEK, COPY and CLONE (RFC 7862, section 15).

use std::rc::Rc;

use weir_nfs::Status;
use weir_nfs::operation::CopyRange;
use weir_nfs::types::{StateId, content, share, stable};
use weir_reactor::{AllocateMode, File, LocalFile, Sought};

use super::{Compound, Done, Target};
use crate::actions::status_of_io;
use crate::context::Data;

/// Bytes that one COPY copies at most: its client goes on from there. A disk takes a moment for them.
const COPY_BYTES_MAX: u64 = 16 << 20;

/// Checks that a range has an end that a file can have.
fn check_range(offset: u64, length: u64) -> Result<(), Status> {
    let end = offset.checked_add(length).map(i64::try_from);
    match end {
        Some(Ok(_)) => Ok(()),
        _ => Err(Status::Fbig),
    }
}

/// Copies all of a range, or as much as can be.
fn copy_range(from: (&File, u64), to: (&File, u64), bytes: u64) -> std::io::Result<u64> {
    let mut done = 0;
    while done < bytes {
        match from
            .0
            .copy_to(from.1 + done, to.0, to.1 + done, bytes - done)
        {
            Ok(0) => break,
            Ok(copied) => done += copied,
            // What was done is told, and the client meets the error when it goes on.
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

impl Compound<'_> {
    pub(super) async fn allocate(
        &mut self,
        is_given_back: bool,
        stateid: &StateId,
        offset: u64,
        length: u64,
    ) -> Done {
        let key = self.regular()?;
        self.seen.export_to_change(&key)?;
        let data = self.open_file(&key, stateid, share::WRITE).await?;
        if length == 0 {
            return Err(Status::Inval.into());
        }
        check_range(offset, length)?;
        let Data::File(file) = data else {
            // Room is never given to a volume by this.
            let mut blocks = self.seen.blocks(&key)?;
            return match is_given_back {
                true => Ok(blocks.clear(&self.seen, offset, length).await?),
                false => Err(Status::Notsupp.into()),
            };
        };
        let mode = match is_given_back {
            true => AllocateMode::PunchHole,
            false => AllocateMode::Reserve,
        };
        let reactor = self.seen.context.reactor();
        let done = file.allocate(reactor, offset, length, mode).await;
        done.map_err(status_of_io)?;
        Ok(self.seen.sync_all(&key, &file).await?)
    }

    pub(super) async fn seek(&mut self, stateid: &StateId, offset: u64, sought: u32) -> Done {
        let key = self.regular()?;
        self.seen.export(&key)?;
        let data = self.open_file(&key, stateid, share::READ).await?;
        let sought = match sought {
            content::DATA => Sought::Data,
            content::HOLE => Sought::Hole,
            _ => return Err(Status::UnionNotsupp.into()),
        };
        let Data::File(file) = data else {
            let length = self.seen.blocks(&key)?.attributes().size;
            if offset >= length {
                return Err(Status::Nxio.into());
            }
            // All of a volume is data.
            let is_data = matches!(sought, Sought::Data);
            self.out.bool(!is_data);
            self.out.u64(if is_data { offset } else { length });
            return Ok(());
        };
        let whole = file.shared();
        let find = move || {
            let length = whole.length().map_err(status_of_io)?;
            if offset >= length {
                return Err(Status::Nxio);
            }
            let found = whole.find(offset, sought).map_err(status_of_io)?;
            Ok((found.unwrap_or(length), length))
        };
        let found = self.seen.context.reactor().offload(find).await;
        let (place, length) = found.ok_or(Status::Serverfault)??;
        self.out.bool(place >= length);
        self.out.u64(place);
        Ok(())
    }

    /// The saved and the current file, open for reading and for writing.
    async fn two_open_files(
        &self,
        request: &CopyRange,
    ) -> Result<(Rc<LocalFile>, Rc<LocalFile>), Status> {
        let destination = self.regular()?;
        let source = match self.saved.as_ref().ok_or(Status::Nofilehandle)?.0 {
            Target::File(key) => key,
            Target::Place(_) => return Err(Status::Isdir),
        };
        if source.export != destination.export {
            return Err(Status::Xdev);
        }
        self.seen.export_to_change(&destination)?;
        check_range(request.source_offset, request.count)?;
        check_range(request.destination_offset, request.count)?;
        let from = self.open_file(&source, &request.source, share::READ);
        let from = from.await?;
        let to = self.open_file(&destination, &request.destination, share::WRITE);
        match (from, to.await?) {
            (Data::File(from), Data::File(to)) => Ok((from, to)),
            // Clients copy among volumes themselves.
            _ => Err(Status::Notsupp),
        }
    }

    pub(super) async fn copy(&mut self, request: &CopyRange) -> Done {
        if request.is_remote {
            return Err(Status::Notsupp.into());
        }
        let verifier = self.seen.shared().state.verifier();
        let (from, to) = self.two_open_files(request).await?;
        let length = from.length().map_err(status_of_io)?;
        let left = length.checked_sub(request.source_offset);
        let left = left.filter(|&left| request.count <= left);
        let left = left.ok_or(Status::Inval)?;
        let count = match request.count {
            0 => left,
            count => count,
        };
        let bytes = count.min(COPY_BYTES_MAX);
        let places = (request.source_offset, request.destination_offset);
        let (from, to) = (from.shared(), to.shared());
        let copy = move || copy_range((&from, places.0), (&to, places.1), bytes);
        let copied = self.seen.context.reactor().offload(copy).await;
        let copied = copied.ok_or(Status::Serverfault)?.map_err(status_of_io)?;
        // It has ended: there is no name by which a client could ask for it.
        self.out.u32(0);
        self.out.u64(copied);
        self.out.u32(stable::UNSTABLE);
        self.out.fixed(&verifier.to_be_bytes());
        // One byte after the other, and before the answer.
        self.out.bool(true);
        self.out.bool(true);
        Ok(())
    }

    pub(super) async fn clone_range(&mut self, request: &CopyRange) -> Done {
        let (from, to) = self.two_open_files(request).await?;
        let (source, destination) = (from.shared(), to.shared());
        let places = (request.source_offset, request.destination_offset);
        let count = request.count;
        let share = move || source.share_with(places.0, &destination, places.1, count);
        let shared = self.seen.context.reactor().offload(share).await;
        shared.ok_or(Status::Serverfault)?.map_err(status_of_io)?;
        let key = self.regular()?;
        Ok(self.seen.sync_all(&key, &to).await?)
    }
}
