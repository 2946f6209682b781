//! READ, WRITE and COMMIT.

use std::ops::Range;

use weir_memory::{Segments, View};
use weir_nfs::Status;
use weir_nfs::types::{StateId, share};
use weir_nfs::xdr::padded;

use super::{Compound, Done};
use crate::actions::{can_have, filled, status_of_io};
use crate::context::{Data, Known, OPENS_KNOWN_MAX};
use crate::handle::FileKey;

/// Bytes of a reply to READ beside the data: its end, its length, the next results.
const READ_BYTES: usize = 64;

impl Compound<'_> {
    /// The current file, open for `access`. What a connection used before it knows without asking others.
    pub(super) async fn open_file(
        &self,
        key: &FileKey,
        stateid: &StateId,
        access: u32,
    ) -> Result<Data, Status> {
        let stateid = self.meant(stateid)?;
        if let Some(known) = self.seen.context.opens.borrow().get(&stateid.other)
            && !known.open.is_ended()
            && known.seqid == known.open.seqid()
            && (stateid.seqid == 0 || stateid.seqid == known.seqid)
            && known.open.key == *key
            && known.open.client == self.client()
            && known.open.allows(access)
        {
            return Ok(known.data.clone());
        }
        let state = &self.seen.shared().state;
        let now = self.seen.now();
        let Some(open) = state.for_io(self.client(), &stateid, key, access, now)? else {
            return self.seen.opened(key, access == share::WRITE).await;
        };
        let (seqid, data) = (open.seqid(), Data::from(open.file()));
        if self.seen.context.opens.borrow().len() >= OPENS_KNOWN_MAX {
            self.seen.context.forget_ended();
        }
        let mut opens = self.seen.context.opens.borrow_mut();
        // The stateid of locks has a count of its own, and is asked for each time.
        if opens.len() < OPENS_KNOWN_MAX && stateid.other == open.id {
            let known = Known {
                open,
                seqid,
                data: data.clone(),
            };
            opens.insert(stateid.other, known);
        }
        Ok(data)
    }

    pub(super) async fn read(&mut self, stateid: &StateId, offset: u64, count: u32) -> Done {
        let data = {
            let key = self.regular()?;
            self.seen.export(&key)?;
            self.open_file(&key, stateid, share::READ).await?
        };
        let Data::File(file) = data else {
            return Box::pin(self.read_volume(offset, count)).await;
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
        if !can_have(offset, wanted) {
            // There is nothing that far.
            self.out.bool(true);
            self.out.u32(0);
            return Ok(());
        }
        let mut into = Segments::new();
        into.push(segment);
        let read = file.read(self.seen.reactor(), offset, into).await;
        let segment = filled(read)?;
        let end = offset + wanted as u64;
        let is_end = segment.len() < wanted || end >= file.length().map_err(status_of_io)?;
        self.answer_read(is_end, [segment.freeze()]);
        Ok(())
    }

    async fn read_volume(&mut self, offset: u64, count: u32) -> Done {
        let room = self.bytes_max.saturating_sub(self.length() + READ_BYTES);
        // The volume lends memory, or takes as much itself.
        let segment = self.segments.pop_front();
        let wanted = segment.map_or(0, |segment| segment.len().min(room).min(count as usize));
        if wanted == 0 && count > 0 {
            return Err(Status::RepTooBig.into());
        }
        let mut blocks = self.seen.blocks(&self.regular()?)?;
        let read = blocks.read(&self.seen, offset, wanted).await?;
        self.seen.context.answered(blocks.course);
        self.answer_read(read.is_end, read.data);
        Ok(())
    }

    fn answer_read(&mut self, is_end: bool, data: impl IntoIterator<Item = View>) {
        self.out.bool(is_end);
        let count_at = self.out.len();
        self.out.u32(0);
        let (at, mut count) = (self.out.len(), 0);
        for view in data.into_iter().filter(|view| !view.is_empty()) {
            count += view.len();
            self.data.push((at, view));
        }
        if let Ok(key) = self.regular() {
            self.seen.count(&key, |counters| {
                counters.reads.add(1);
                counters.bytes_read.add(count as u64);
            });
        }
        self.out.u32_at(count_at, count as u32);
        if count > 0 {
            // The bytes that fill up the data follow it.
            self.out.raw(&[0; 3][..padded(count) - count]);
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
        self.seen.export_to_change(&key)?;
        let file = self.open_file(&key, stateid, share::WRITE).await?;
        let data = self.record.slice(data);
        let written = self.seen.write(&key, &file, offset, how, data);
        let (count, verifier) = written.await?;
        self.out.u32(count);
        self.out.u32(how);
        self.out.fixed(&verifier.to_be_bytes());
        Ok(())
    }

    pub(super) async fn commit(&mut self) -> Done {
        let verifier = self.seen.commit(&self.regular()?).await?;
        self.out.fixed(&verifier.to_be_bytes());
        Ok(())
    }
}
