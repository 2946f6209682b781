//! One piece of a request as a CDB and its data.

use weir_block::Operation;
use weir_initiator::Command;
use weir_initiator::plan::{Method, force_unit_access};
use weir_initiator::wire::Payload;
use weir_memory::{View, Views};
use weir_scsi::cdb::{self, ByteCheck, Cdb, Extent, WriteSame};
use weir_scsi::unmap::{self, UnmapDescriptor};

/// The CDB of a piece of a request, and the data that goes or comes with it.
pub(crate) fn make(command: &Command<'_>) -> (Cdb, Payload) {
    let extent = Extent {
        lba: command.lba,
        blocks: command.piece.blocks,
    };
    let (made, payload) = match command.method {
        Method::Read | Method::ReadAndCompare | Method::ReadAndDrop => (
            cdb::Command::Read { extent, fua: false },
            Payload::In(command.bytes() as u32),
        ),
        Method::Write => (write(command, extent), command.data(0, command.bytes())),
        Method::WriteOfZeroes => (write(command, extent), zeroes(command.bytes())),
        Method::WriteZeroes => write_same(command, extent),
        Method::Compare => {
            let check = ByteCheck::Data;
            (
                cdb::Command::Verify { extent, check },
                command.data(0, command.bytes()),
            )
        }
        Method::CompareWrite => {
            let fua = is_forced(command);
            // What is compared and what is written, as the operation brings them.
            (
                cdb::Command::CompareAndWrite { extent, fua },
                command.data(0, 2 * command.bytes()),
            )
        }
        Method::Deallocate => unmap_one(extent),
        Method::Verify => {
            let check = ByteCheck::Medium;
            (cdb::Command::Verify { extent, check }, Payload::None)
        }
        Method::Flush => (cdb::Command::SynchronizeCache { extent }, Payload::None),
    };
    (made.encode(), payload)
}

fn write(command: &Command<'_>, extent: Extent) -> cdb::Command {
    let fua = is_forced(command);
    cdb::Command::Write { extent, fua }
}

fn is_forced(command: &Command<'_>) -> bool {
    force_unit_access(command.operation) && command.limits.force_unit_access
}

/// Zeroes: without data where the unit takes none, else each block as one that is sent.
fn write_same(command: &Command<'_>, extent: Extent) -> (cdb::Command, Payload) {
    let no_data = command.limits.write_zeroes_without_data;
    let may_deallocate = matches!(
        command.operation,
        Operation::WriteZeroes {
            deallocate: true,
            ..
        }
    );
    let same = cdb::Command::WriteSame(WriteSame {
        lba: extent.lba,
        blocks: extent.blocks,
        unmap: may_deallocate && command.limits.write_zeroes_deallocates,
        no_data,
    });
    let payload = match no_data {
        true => Payload::None,
        false => zeroes(1 << command.shift()),
    };
    (same, payload)
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
