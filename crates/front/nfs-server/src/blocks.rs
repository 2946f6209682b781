//! Bytes of files that are volumes: read, written and made durable in the volume's blocks.

use std::rc::Rc;

use smallvec::smallvec;
use weir_block::{Landing, Operation, ReadBuffers, VolumeError};
use weir_files::Attributes;
use weir_front::{Attached, CommandKind, Course};
use weir_memory::{Segment, View, Views, slice_views, views_len};
use weir_nfs::Status;
use weir_nfs::types::stable;

use crate::desk::Refused;
use crate::handle::FileKey;
use crate::seen::Seen;
use crate::served::Source;
use crate::volumes::{VolumeFile, number_of};

/// Times that a part of a block is written again where somebody else wrote to the same block meanwhile.
const TRIES: usize = 64;

/// A volume that a call uses.
pub(crate) struct Blocks {
    file: Rc<Attached<VolumeFile>>,
    /// The course of the last request, from when the call came.
    pub(crate) course: Course,
}

/// Data that was read.
pub(crate) struct Read {
    pub(crate) data: Views,
    pub(crate) is_end: bool,
}

/// A range of bytes in the blocks of a volume.
struct Parts {
    /// A part of one block: the block, the first byte in it, the bytes.
    head: Option<(u64, usize, usize)>,
    /// Whole blocks: the first, and how many.
    whole: (u64, u64),
    tail: Option<(u64, usize, usize)>,
}

impl Parts {
    fn of(offset: u64, length: u64, block: u64) -> Self {
        let end = offset + length;
        let (first, last) = (offset.next_multiple_of(block), end - end % block);
        let part = |from: u64, to: u64| {
            let bytes = (to - from) as usize;
            (from < to).then_some((from / block, (from % block) as usize, bytes))
        };
        match first <= last {
            true => Parts {
                head: part(offset, first),
                whole: (first / block, (last - first) / block),
                tail: part(last, end),
            },
            // It begins and ends in one block.
            false => Parts {
                head: part(offset, end),
                whole: (0, 0),
                tail: None,
            },
        }
    }
}

impl Blocks {
    fn block_bytes(&self) -> u64 {
        self.file.geometry.get().block_size.bytes().into()
    }

    fn length(&self) -> u64 {
        self.file.geometry.get().length_bytes()
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.file.is_read_only()
    }

    pub(crate) fn attributes(&self) -> Attributes {
        self.file.export.attributes(&self.file.geometry.get())
    }

    async fn ask(
        &mut self,
        seen: &Seen,
        kind: CommandKind,
        operation: Operation,
    ) -> Result<Operation, Refused> {
        let desk = &seen.context.desk;
        let (done, course) = desk.ask(&self.file, kind, operation, seen.came).await;
        self.course = course;
        done
    }

    /// Reads what there is from `offset` on, `count` bytes at most.
    pub(crate) async fn read(
        &mut self,
        seen: &Seen,
        offset: u64,
        count: usize,
    ) -> Result<Read, Status> {
        let length = self.length();
        let count = length.saturating_sub(offset).min(count as u64);
        if count == 0 {
            return Ok(Read {
                data: Views::new(),
                is_end: offset >= length,
            });
        }
        let (block, end) = (self.block_bytes(), offset + count);
        let first = offset / block;
        let read = Operation::Read {
            lba: first,
            blocks: (end.div_ceil(block) - first) as u32,
            buffers: ReadBuffers::Lend,
        };
        let data = filled(self.ask(seen, CommandKind::Read, read).await?);
        Ok(Read {
            data: slice_views(&data, (offset % block) as usize, count as usize),
            is_end: end >= length,
        })
    }

    /// Writes all of `data`, which is durable then where `fua` says so.
    pub(crate) async fn write(
        &mut self,
        seen: &Seen,
        offset: u64,
        data: View,
        fua: bool,
    ) -> Result<(), Status> {
        let end = offset.checked_add(data.len() as u64);
        if end.is_none_or(|end| end > self.length()) {
            return Err(Status::Nospc);
        }
        let block = self.block_bytes();
        let parts = Parts::of(offset, data.len() as u64, block);
        let mut left = data;
        if let Some((lba, at, bytes)) = parts.head {
            let part = left.split_to(bytes);
            self.write_part(seen, lba, at, &part, fua).await?;
        }
        let (lba, blocks) = parts.whole;
        if blocks > 0 {
            let whole = left.split_to((blocks * block) as usize);
            let write = Operation::Write {
                lba,
                blocks: blocks as u32,
                data: self.landed(lba, blocks as u32, whole)?,
                fua,
            };
            self.ask(seen, CommandKind::Write, write).await?;
        }
        if let Some((lba, at, bytes)) = parts.tail {
            let part = left.split_to(bytes);
            self.write_part(seen, lba, at, &part, fua).await?;
        }
        Ok(())
    }

    /// The data of a write, where the volume wants it.
    fn landed(&self, lba: u64, blocks: u32, data: View) -> Result<Views, Status> {
        let queue = &self.file.queue;
        queue.ready().map_err(Refused::By)?;
        Ok(match queue.landing(lba, blocks) {
            Landing::Anywhere => smallvec![data],
            Landing::Ready(segments) => {
                let mut left = &data[..];
                let fill = |mut segment: Segment| {
                    let (own, others) = left.split_at(segment.len());
                    segment.copy_from_slice(own);
                    left = others;
                    segment.freeze()
                };
                segments.into_iter().map(fill).collect()
            }
            // Whoever has data already does not wait for buffers.
            Landing::Wait => smallvec![Segment::copy_of(&data).freeze()],
        })
    }

    /// Writes a part of a block. What others write to the block meanwhile stays.
    async fn write_part(
        &mut self,
        seen: &Seen,
        lba: u64,
        at: usize,
        part: &[u8],
        fua: bool,
    ) -> Result<(), Status> {
        for _ in 0..TRIES {
            let read = Operation::Read {
                lba,
                blocks: 1,
                buffers: ReadBuffers::Lend,
            };
            let data = filled(self.ask(seen, CommandKind::Read, read).await?);
            let mut before = Segment::heap(views_len(&data));
            weir_memory::copy_views(&data, &mut before);
            let mut after = Segment::copy_of(&before);
            after[at..at + part.len()].copy_from_slice(part);
            let write = Operation::CompareWrite {
                lba,
                blocks: 1,
                data: smallvec![before.freeze(), after.freeze()],
                fua,
            };
            match self.ask(seen, CommandKind::Write, write).await {
                Err(Refused::By(VolumeError::Miscompare { .. })) => {}
                done => return Ok(done.map(drop)?),
            }
        }
        Err(Status::Delay)
    }

    /// Makes a range read as zeroes, durably.
    pub(crate) async fn clear(
        &mut self,
        seen: &Seen,
        offset: u64,
        length: u64,
    ) -> Result<(), Status> {
        let length = self.length().saturating_sub(offset).min(length);
        if length == 0 {
            return Ok(());
        }
        let block = self.block_bytes();
        let parts = Parts::of(offset, length, block);
        let zeroes = vec![0; block as usize];
        for (lba, at, bytes) in [parts.head, parts.tail].into_iter().flatten() {
            self.write_part(seen, lba, at, &zeroes[..bytes], true)
                .await?;
        }
        let (lba, blocks) = parts.whole;
        if blocks > 0 {
            let zeroes = Operation::WriteZeroes {
                lba,
                blocks,
                deallocate: true,
                fua: true,
            };
            self.ask(seen, CommandKind::Other, zeroes).await?;
        }
        Ok(())
    }

    async fn flush(&mut self, seen: &Seen) -> Result<(), Refused> {
        let flush = self.ask(seen, CommandKind::Other, Operation::Flush);
        flush.await.map(drop)
    }
}

/// The data of a read that ended well.
fn filled(read: Operation) -> Views {
    match read {
        Operation::Read {
            buffers: ReadBuffers::Filled(data),
            ..
        } => data,
        other => unreachable!("{other:?} is no read that ended well"),
    }
}

impl Seen {
    /// Status of a file that has no volume.
    fn without(&self, key: &FileKey, number: u32) -> Status {
        let export = self.snapshot.export(key.export);
        match export.map(|export| &export.source) {
            Some(Source::Volumes(volumes)) if volumes.is_absent(number) => Status::Delay,
            _ => Status::Stale,
        }
    }

    /// The volume that a file is.
    pub(crate) fn blocks(&self, key: &FileKey) -> Result<Blocks, Status> {
        let number = number_of(&key.id).ok_or(Status::Isdir)?;
        let exports = self.context.exports.borrow();
        let Some(file) = exports.files.get(&number) else {
            return Err(self.without(key, number));
        };
        Ok(Blocks {
            file: Rc::clone(file),
            course: Course::default(),
        })
    }

    /// Writes data to a volume with this demand on it (stable_how4).
    pub(crate) async fn write_blocks(
        &self,
        key: &FileKey,
        offset: u64,
        how: u32,
        data: View,
    ) -> Result<(u32, u64), Status> {
        let verifier = self.shared().state.verifier();
        let (mut blocks, count) = (self.blocks(key)?, data.len());
        if count > 0 {
            let written = blocks.write(self, offset, data, how != stable::UNSTABLE);
            written.await?;
            self.context.answered(blocks.course);
        }
        Ok((count as u32, verifier))
    }

    /// Puts what was written to a volume on stable storage; the verifier.
    pub(crate) async fn commit_blocks(&self, key: &FileKey) -> Result<u64, Status> {
        let (mut blocks, verifier) = (self.blocks(key)?, self.shared().state.verifier());
        match blocks.flush(self).await {
            Ok(()) => {
                self.context.answered(blocks.course);
                Ok(verifier)
            }
            // Nothing was asked for, or it may yet be done.
            Err(refused) if Status::from(refused) != Status::Io => Err(refused.into()),
            Err(refused) => Err(self.lost_data(key, &refused)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_their_parts() {
        let parts = |offset, length| {
            let parts = Parts::of(offset, length, 512);
            (parts.head, parts.whole, parts.tail)
        };
        assert_eq!(parts(0, 1024), (None, (0, 2), None));
        assert_eq!(parts(512, 512), (None, (1, 1), None));
        assert_eq!(parts(3, 5), (Some((0, 3, 5)), (0, 0), None));
        assert_eq!(
            parts(500, 24),
            (Some((0, 500, 12)), (1, 0), Some((1, 0, 12)))
        );
        assert_eq!(parts(3, 509), (Some((0, 3, 509)), (1, 0), None));
        assert_eq!(parts(1024, 5), (None, (2, 0), Some((2, 0, 5))));
        let (head, whole, tail) = parts(1, 2000);
        assert_eq!(
            (head, whole, tail),
            (Some((0, 1, 511)), (1, 2), Some((3, 0, 465)))
        );
    }
}
