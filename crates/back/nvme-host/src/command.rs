//! One piece of a request as a submission queue entry and its data.

use weir_block::Operation;
use weir_memory::{Segment, View, Views, slice_views, views_len};
use weir_nvme::command::{
    Blocks, DatasetManagement, DatasetManagementRange, NvmCommand, Verify, WriteZeroes,
};
use weir_nvme::sqe::Fuse;
use weir_nvme::{SglDescriptor, Sqe};

use crate::plan::{Method, Piece};
use crate::queue_pair::Payload;

/// What a command is made of.
pub(crate) struct Command<'request> {
    pub(crate) operation: &'request Operation,
    pub(crate) method: Method,
    /// The piece's first block.
    pub(crate) lba: u64,
    pub(crate) piece: Piece,
    /// The block size as a power of two.
    pub(crate) shift: u32,
    /// Whether Write Zeroes may deallocate.
    pub(crate) deallocates: bool,
    pub(crate) nsid: u32,
}

/// A command, or a fused pair of them.
pub(crate) enum Made {
    One(Sqe, Payload),
    Fused((Sqe, Payload), (Sqe, Payload)),
}

impl Command<'_> {
    /// The entries. CID and SGL are set when they are submitted.
    pub(crate) fn make(&self) -> Made {
        let blocks = || Blocks::new(self.lba, self.piece.blocks);
        let written = || Blocks {
            force_unit_access: force_unit_access(self.operation),
            ..blocks()
        };
        let (command, payload) = match self.method {
            Method::Read | Method::ReadAndCompare | Method::ReadAndDrop => {
                (NvmCommand::Read(blocks()), Payload::In(self.bytes() as u32))
            }
            Method::Write => (NvmCommand::Write(written()), self.data(0)),
            Method::WriteOfZeroes => (
                NvmCommand::Write(written()),
                Payload::Out(View::zeroes(self.bytes()).collect()),
            ),
            Method::WriteZeroes => (NvmCommand::WriteZeroes(self.zeroes()), Payload::None),
            Method::Compare => (NvmCommand::Compare(blocks()), self.data(0)),
            Method::CompareWrite => return self.fused(),
            Method::Deallocate => (NvmCommand::DatasetManagement(DEALLOCATE), self.range()),
            Method::Verify => (
                NvmCommand::Verify(Verify {
                    lba: self.lba,
                    blocks: self.piece.blocks,
                    ..Verify::default()
                }),
                Payload::None,
            ),
            Method::Flush => (NvmCommand::Flush, Payload::None),
        };
        Made::One(self.sqe(&command), payload)
    }

    fn sqe(&self, command: &NvmCommand) -> Sqe {
        command.sqe(0, self.nsid, SglDescriptor::NONE)
    }

    fn fused(&self) -> Made {
        let blocks = Blocks::new(self.lba, self.piece.blocks);
        let mut compare = self.sqe(&NvmCommand::Compare(blocks));
        let mut write = self.sqe(&NvmCommand::Write(Blocks {
            force_unit_access: force_unit_access(self.operation),
            ..blocks
        }));
        compare.fuse = Fuse::First;
        write.fuse = Fuse::Second;
        Made::Fused(
            (compare, self.data(0)),
            (write, self.data(views_len(self.brought()) / 2)),
        )
    }

    fn zeroes(&self) -> WriteZeroes {
        let deallocate = match self.operation {
            Operation::WriteZeroes { deallocate, .. } => *deallocate && self.deallocates,
            _ => false,
        };
        WriteZeroes {
            lba: self.lba,
            blocks: self.piece.blocks,
            force_unit_access: force_unit_access(self.operation),
            deallocate,
            ..WriteZeroes::default()
        }
    }

    fn range(&self) -> Payload {
        let range = DatasetManagementRange {
            context_attributes: 0,
            blocks: self.piece.blocks,
            lba: self.lba,
        };
        Payload::Out(Views::from_iter([
            Segment::copy_of(&range.encode()).freeze()
        ]))
    }

    /// All data that the operation brings.
    fn brought(&self) -> &[View] {
        match self.operation {
            Operation::Write { data, .. }
            | Operation::Compare { data, .. }
            | Operation::CompareWrite { data, .. } => data,
            _ => &[],
        }
    }

    fn bytes(&self) -> usize {
        (self.piece.blocks as usize) << self.shift
    }

    /// The piece's part of the data that starts `from` bytes from the beginning of all that the operation brings.
    fn data(&self, from: usize) -> Payload {
        let start = from + (self.piece.offset << self.shift) as usize;
        Payload::Out(slice_views(self.brought(), start, self.bytes()))
    }
}

/// Tells whether an operation writes durably (FUA).
pub(crate) fn force_unit_access(operation: &Operation) -> bool {
    match operation {
        Operation::Write { fua, .. }
        | Operation::WriteZeroes { fua, .. }
        | Operation::CompareWrite { fua, .. } => *fua,
        _ => false,
    }
}

const DEALLOCATE: DatasetManagement = DatasetManagement {
    ranges: 1,
    deallocate: true,
    integral_write: false,
    integral_read: false,
};
