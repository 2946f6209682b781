//! One piece of a request as a submission queue entry and its data.

use weir_block::Operation;
use weir_memory::{Segment, View, Views};
use weir_nvme::command::{
    Blocks, DatasetManagement, DatasetManagementRange, NvmCommand, Verify, WriteZeroes,
};
use weir_nvme::sqe::Fuse;
use weir_nvme::{SglDescriptor, Sqe};

use weir_initiator::Command;
use weir_initiator::plan::{Method, force_unit_access};
use weir_initiator::wire::Payload;

/// A command, or a fused pair of them.
pub(crate) enum Made {
    One(Sqe, Payload),
    Fused((Sqe, Payload), (Sqe, Payload)),
}

/// A piece of a request on one namespace.
pub(crate) struct NamespaceCommand<'request> {
    pub(crate) command: &'request Command<'request>,
    pub(crate) nsid: u32,
}

impl NamespaceCommand<'_> {
    /// The entries. CID and SGL are set when they are submitted.
    pub(crate) fn make(&self) -> Made {
        let blocks = || Blocks::new(self.command.lba, self.command.piece.blocks);
        let written = || Blocks {
            force_unit_access: force_unit_access(self.command.operation),
            ..blocks()
        };
        let (command, payload) = match self.command.method {
            Method::Read | Method::ReadAndCompare | Method::ReadAndDrop => (
                NvmCommand::Read(blocks()),
                Payload::In(self.command.bytes() as u32),
            ),
            Method::Write => (
                NvmCommand::Write(written()),
                self.command.data(0, self.command.bytes()),
            ),
            Method::WriteOfZeroes => (
                NvmCommand::Write(written()),
                Payload::Out(View::zeroes(self.command.bytes()).collect()),
            ),
            Method::WriteZeroes => (NvmCommand::WriteZeroes(self.zeroes()), Payload::None),
            Method::Compare => (
                NvmCommand::Compare(blocks()),
                self.command.data(0, self.command.bytes()),
            ),
            Method::CompareWrite => return self.fused(),
            Method::Deallocate => (NvmCommand::DatasetManagement(DEALLOCATE), self.range()),
            Method::Verify => (
                NvmCommand::Verify(Verify {
                    lba: self.command.lba,
                    blocks: self.command.piece.blocks,
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
        let blocks = Blocks::new(self.command.lba, self.command.piece.blocks);
        let mut compare = self.sqe(&NvmCommand::Compare(blocks));
        let mut write = self.sqe(&NvmCommand::Write(Blocks {
            force_unit_access: force_unit_access(self.command.operation),
            ..blocks
        }));
        compare.fuse = Fuse::First;
        write.fuse = Fuse::Second;
        Made::Fused(
            (compare, self.command.data(0, self.command.bytes())),
            (
                write,
                self.command
                    .data(self.command.bytes(), self.command.bytes()),
            ),
        )
    }

    fn zeroes(&self) -> WriteZeroes {
        let deallocate = match self.command.operation {
            Operation::WriteZeroes { deallocate, .. } => {
                *deallocate && self.command.limits.write_zeroes_deallocates
            }
            _ => false,
        };
        WriteZeroes {
            lba: self.command.lba,
            blocks: self.command.piece.blocks,
            force_unit_access: force_unit_access(self.command.operation),
            deallocate,
            ..WriteZeroes::default()
        }
    }

    fn range(&self) -> Payload {
        let range = DatasetManagementRange {
            context_attributes: 0,
            blocks: self.command.piece.blocks,
            lba: self.command.lba,
        };
        Payload::Out(Views::from_iter([
            Segment::copy_of(&range.encode()).freeze()
        ]))
    }
}

const DEALLOCATE: DatasetManagement = DatasetManagement {
    ranges: 1,
    deallocate: true,
    integral_write: false,
    integral_read: false,
};
