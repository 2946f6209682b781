//! One piece of a request as a CDB and its data.

use weir_block::Operation;
use weir_initiator::plan::{Method, Piece, force_unit_access};
use weir_initiator::wire::Payload;
use weir_memory::{View, Views, slice_views};
use weir_scsi::cdb::{self, ByteCheck, Cdb, Extent, WriteSame};
use weir_scsi::unmap::{self, UnmapDescriptor};

use crate::profile::Profile;

/// A piece of a request, with all that its command is made of.
pub(crate) struct Command<'request> {
    pub(crate) operation: &'request Operation,
    pub(crate) method: Method,
    /// The piece's first block.
    pub(crate) lba: u64,
    pub(crate) piece: Piece,
    pub(crate) profile: &'request Profile,
}

impl Command<'_> {
    /// The CDB, and the data that goes or comes with it.
    pub(crate) fn make(&self) -> (Cdb, Payload) {
        let extent = Extent {
            lba: self.lba,
            blocks: self.piece.blocks,
        };
        let (command, payload) = match self.method {
            Method::Read | Method::ReadAndCompare | Method::ReadAndDrop => (
                cdb::Command::Read { extent, fua: false },
                Payload::In(self.bytes() as u32),
            ),
            Method::Write => (self.write(extent), self.data(1)),
            Method::WriteOfZeroes => (self.write(extent), zeroes(self.bytes())),
            Method::WriteZeroes => self.write_same(extent),
            Method::Compare => {
                let check = ByteCheck::Data;
                (cdb::Command::Verify { extent, check }, self.data(1))
            }
            Method::CompareWrite => {
                let fua = self.fua();
                // What is compared and what is written, as the operation brings them.
                (cdb::Command::CompareAndWrite { extent, fua }, self.data(2))
            }
            Method::Deallocate => unmap_one(extent),
            Method::Verify => {
                let check = ByteCheck::Medium;
                (cdb::Command::Verify { extent, check }, Payload::None)
            }
            Method::Flush => (cdb::Command::SynchronizeCache { extent }, Payload::None),
        };
        (command.encode(), payload)
    }

    fn write(&self, extent: Extent) -> cdb::Command {
        let fua = self.fua();
        cdb::Command::Write { extent, fua }
    }

    fn fua(&self) -> bool {
        force_unit_access(self.operation) && self.profile.features.force_unit_access
    }

    /// Zeroes: without data where the unit takes none, else each block as one that is sent.
    fn write_same(&self, extent: Extent) -> (cdb::Command, Payload) {
        let deallocates = self.profile.limits.write_zeroes_deallocates;
        let no_data = self.profile.features.no_data_out;
        let command = cdb::Command::WriteSame(WriteSame {
            lba: extent.lba,
            blocks: extent.blocks,
            unmap: deallocates
                && matches!(
                    self.operation,
                    Operation::WriteZeroes {
                        deallocate: true,
                        ..
                    }
                ),
            no_data,
        });
        let payload = match no_data {
            true => Payload::None,
            false => zeroes(1 << self.shift()),
        };
        (command, payload)
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

    /// The block size as a power of two.
    fn shift(&self) -> u32 {
        self.profile.limits.block_size.shift()
    }

    fn bytes(&self) -> usize {
        (self.piece.blocks as usize) << self.shift()
    }

    /// The piece's part of the data, which is `times` the piece's length.
    fn data(&self, times: usize) -> Payload {
        let start = (self.piece.offset << self.shift()) as usize;
        Payload::Out(slice_views(self.brought(), start, times * self.bytes()))
    }
}

/// Tells whether a request that shall be durable has to be followed by a flush before it is answered. WRITE SAME has no FUA, and some units
/// with a volatile cache do not heed that of WRITE.
pub(crate) fn needs_flush(operation: &Operation, method: Method, profile: &Profile) -> bool {
    let heeded = profile.features.force_unit_access && method != Method::WriteZeroes;
    profile.geometry.volatile_cache && force_unit_access(operation) && !heeded
}

fn zeroes(bytes: usize) -> Payload {
    Payload::Out(View::zeroes(bytes).collect())
}

/// An UNMAP of one range.
fn unmap_one(extent: Extent) -> (cdb::Command, Payload) {
    let list = unmap::encode(&[UnmapDescriptor {
        lba: extent.lba,
        blocks: extent.blocks,
    }]);
    let list_length = list.len() as u32;
    let payload = Payload::Out(Views::from_iter([View::copy_of(&list)]));
    (cdb::Command::Unmap { list_length }, payload)
}

#[cfg(test)]
mod tests;
