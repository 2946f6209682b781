//! What is asked of a volume, and what it answers.

use weir_memory::{Pool, Segments, View, Views, segments_len, slice_views, views_len};

use crate::{BlockSize, VolumeError};

/// Names a request to the one who submitted it: one of those in flight, or several deallocations to a guard. A volume returns it
/// unchanged and reads no meaning into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Token {
    /// Which of the users of a shared queue submitted it; see [`crate::Router`]. A guard knows its own by [`crate::GUARD_OWNER`].
    pub owner: u32,
    /// The user's slot.
    pub slot: u32,
    /// How often the slot was used before.
    pub generation: u32,
}

/// One thing to do.
#[derive(Debug)]
pub struct Request {
    /// Comes back in the completion.
    pub token: Token,
    /// What to do. Buffers move in.
    pub operation: Operation,
}

/// The answer to one request. There is exactly one.
#[derive(Debug)]
pub struct Completion {
    /// The request's.
    pub token: Token,
    /// Whether it was done.
    pub result: Result<(), VolumeError>,
    /// The request's operation with its buffers. Those of a read are [`ReadBuffers::Filled`] when it succeeded.
    pub operation: Operation,
}

/// Where the data of a read is.
#[derive(Debug)]
pub enum ReadBuffers {
    /// In a request: the volume lends memory of its own, or takes it from the reactor's pool.
    Lend,
    /// In a request: the volume reads into these. They are exactly as long as the range.
    Into(Segments),
    /// In a completion: the data.
    Filled(Views),
}

/// What a volume can be asked to do. `lba` is the first block; ranges are in blocks.
#[derive(Debug)]
pub enum Operation {
    /// Reads.
    Read {
        /// First block.
        lba: u64,
        /// Blocks.
        blocks: u32,
        /// Where to, and afterwards where the data is.
        buffers: ReadBuffers,
    },
    /// Writes.
    Write {
        /// First block.
        lba: u64,
        /// Blocks.
        blocks: u32,
        /// Exactly so many blocks of data.
        data: Views,
        /// Force unit access: durable before it completes.
        fua: bool,
    },
    /// Makes blocks read as zeroes.
    WriteZeroes {
        /// First block.
        lba: u64,
        /// Blocks.
        blocks: u64,
        /// Whether they may be deallocated, where deallocated blocks read as zeroes.
        deallocate: bool,
        /// Durable before it completes.
        fua: bool,
    },
    /// Compares the volume with data: [`VolumeError::Miscompare`] when it differs.
    Compare {
        /// First block.
        lba: u64,
        /// Blocks.
        blocks: u32,
        /// What should be there.
        data: Views,
    },
    /// Compares, and writes when nothing differs; atomic against every write.
    CompareWrite {
        /// First block.
        lba: u64,
        /// Blocks.
        blocks: u32,
        /// Twice so many blocks of data: what should be there, and then what to write.
        data: Views,
        /// Durable before it completes.
        fua: bool,
    },
    /// Says that blocks are no longer needed. A hint: what cannot be deallocated stays.
    Deallocate {
        /// First block.
        lba: u64,
        /// Blocks.
        blocks: u64,
    },
    /// Reads blocks from the medium without yielding them: an error when they cannot be read.
    Verify {
        /// First block.
        lba: u64,
        /// Blocks.
        blocks: u64,
    },
    /// Makes every write durable that completed before this was submitted.
    Flush,
}

/// The kinds of operation, for counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OperationKind {
    /// [`Operation::Read`].
    Read,
    /// [`Operation::Write`].
    Write,
    /// [`Operation::WriteZeroes`].
    WriteZeroes,
    /// [`Operation::Compare`].
    Compare,
    /// [`Operation::CompareWrite`].
    CompareWrite,
    /// [`Operation::Deallocate`].
    Deallocate,
    /// [`Operation::Verify`].
    Verify,
    /// [`Operation::Flush`].
    Flush,
}

impl OperationKind {
    /// Returns whether it changes what the volume holds.
    #[must_use]
    pub fn modifies(self) -> bool {
        match self {
            OperationKind::Write
            | OperationKind::WriteZeroes
            | OperationKind::CompareWrite
            | OperationKind::Deallocate => true,
            OperationKind::Read
            | OperationKind::Compare
            | OperationKind::Verify
            | OperationKind::Flush => false,
        }
    }
}

impl Operation {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> OperationKind {
        match self {
            Operation::Read { .. } => OperationKind::Read,
            Operation::Write { .. } => OperationKind::Write,
            Operation::WriteZeroes { .. } => OperationKind::WriteZeroes,
            Operation::Compare { .. } => OperationKind::Compare,
            Operation::CompareWrite { .. } => OperationKind::CompareWrite,
            Operation::Deallocate { .. } => OperationKind::Deallocate,
            Operation::Verify { .. } => OperationKind::Verify,
            Operation::Flush => OperationKind::Flush,
        }
    }

    /// First block and number of blocks; a flush has none.
    #[must_use]
    pub fn range(&self) -> Option<(u64, u64)> {
        match *self {
            Operation::Read { lba, blocks, .. }
            | Operation::Write { lba, blocks, .. }
            | Operation::Compare { lba, blocks, .. }
            | Operation::CompareWrite { lba, blocks, .. } => Some((lba, u64::from(blocks))),
            Operation::WriteZeroes { lba, blocks, .. }
            | Operation::Deallocate { lba, blocks }
            | Operation::Verify { lba, blocks } => Some((lba, blocks)),
            Operation::Flush => None,
        }
    }

    /// Returns whether it changes what the volume holds.
    #[must_use]
    pub fn modifies(&self) -> bool {
        self.kind().modifies()
    }

    /// Copies data that is not in `pool` out of the pool that it is in.
    pub fn copy_out(&mut self, pool: &Pool) {
        let (Operation::Write { data, .. }
        | Operation::Compare { data, .. }
        | Operation::CompareWrite { data, .. }) = self
        else {
            return;
        };
        for view in data.iter_mut().filter(|view| pool.is_of_another(view)) {
            *view = View::copy_of(view);
        }
    }

    /// Whether every buffer of it is as long as its range.
    #[must_use]
    pub fn buffers_fit(&self, block_size: BlockSize) -> bool {
        let bytes = |blocks: u32| (blocks as usize) << block_size.shift();
        match self {
            Operation::Read {
                blocks, buffers, ..
            } => match buffers {
                ReadBuffers::Lend => true,
                ReadBuffers::Into(segments) => segments_len(segments) == bytes(*blocks),
                ReadBuffers::Filled(_) => false,
            },
            Operation::Write { blocks, data, .. } | Operation::Compare { blocks, data, .. } => {
                views_len(data) == bytes(*blocks)
            }
            Operation::CompareWrite { blocks, data, .. } => views_len(data) == 2 * bytes(*blocks),
            Operation::WriteZeroes { .. }
            | Operation::Deallocate { .. }
            | Operation::Verify { .. }
            | Operation::Flush => true,
        }
    }
}

/// The data of a [`Operation::CompareWrite`]: what should be there, and what to write.
#[must_use]
pub fn compare_write_halves(data: &[View]) -> (Views, Views) {
    let half = views_len(data) / 2;
    (slice_views(data, 0, half), slice_views(data, half, half))
}
