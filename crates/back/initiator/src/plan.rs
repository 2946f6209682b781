//! How a block request becomes commands: which command, or which emulation, and in pieces of what length.
//!
//! Pure arithmetic over what the target said of itself. Nothing is encoded or sent here.

use weir_block::{BlockSize, Operation, VolumeError};

/// What the target can do, in blocks of the volume; 0 where it cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes in a block.
    pub block_size: BlockSize,
    /// The longest command that moves data.
    pub transfer_blocks_max: u32,
    /// The longest command that writes zeroes without data.
    pub write_zeroes_blocks_max: u32,
    /// Whether that command may deallocate.
    pub write_zeroes_deallocates: bool,
    /// Whether it comes without any data. Otherwise one block of zeroes goes with it.
    pub write_zeroes_without_data: bool,
    /// The longest command that verifies without data.
    pub verify_blocks_max: u32,
    /// The longest range of a command that deallocates.
    pub deallocate_blocks_max: u32,
    /// Whether there is a command that compares.
    pub compare: bool,
    /// The longest that is compared and written in one step.
    pub compare_write_blocks_max: u32,
    /// Whether a write can be made durable by itself. Where it cannot, a flush follows one that is to be.
    pub force_unit_access: bool,
    /// Whether zeroes that are written without data can be.
    pub write_zeroes_force_unit_access: bool,
}

impl Limits {
    /// Returns whether a piece is durable only with the flush that follows it.
    pub(crate) fn needs_flush(&self, operation: &Operation, method: Method) -> bool {
        let heeded = match method {
            Method::WriteZeroes => self.write_zeroes_force_unit_access,
            _ => self.force_unit_access,
        };
        method.modifies() && force_unit_access(operation) && !heeded
    }
}

/// Method of one piece of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// A read whose data is the request's.
    Read,
    /// A write of the request's data.
    Write,
    /// A write of zeroes, where they cannot be written without data.
    WriteOfZeroes,
    /// Zeroes, without data.
    WriteZeroes,
    /// A comparison at the target.
    Compare,
    /// A read whose data is compared here, where the target does not compare.
    ReadAndCompare,
    /// A comparison and a write in one step.
    CompareWrite,
    /// One range is deallocated.
    Deallocate,
    /// A check without data.
    Verify,
    /// A read whose data is dropped, where the target does not check without data.
    ReadAndDrop,
    /// A flush.
    Flush,
}

impl Method {
    /// Returns whether an execution may change what the volume holds.
    pub fn modifies(self) -> bool {
        matches!(
            self,
            Method::Write
                | Method::WriteOfZeroes
                | Method::WriteZeroes
                | Method::CompareWrite
                | Method::Deallocate
        )
    }
}

/// Course of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Method of each piece.
    pub method: Method,
    /// First block.
    pub lba: u64,
    /// Blocks in all; 0 for a flush.
    pub blocks: u64,
    /// Blocks of a piece; the last one may be shorter.
    pub piece_blocks: u32,
}

/// One piece of a request: blocks from the start of the request, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Blocks before it in the request.
    pub offset: u64,
    /// Blocks in it; 0 for a flush.
    pub blocks: u32,
}

impl Plan {
    /// The plan of `operation` under `limits` on a volume of `blocks` blocks.
    ///
    /// # Errors
    /// The error of the request before anything is sent: [`VolumeError::Invalid`], [`VolumeError::OutOfRange`],
    /// [`VolumeError::ReadOnly`], [`VolumeError::Unsupported`].
    pub fn new(
        operation: &Operation,
        limits: &Limits,
        blocks: u64,
        read_only: bool,
    ) -> Result<Plan, VolumeError> {
        let Some((lba, length)) = operation.range() else {
            return Ok(Plan {
                method: Method::Flush,
                lba: 0,
                blocks: 0,
                piece_blocks: 0,
            });
        };
        if length == 0 || !operation.buffers_fit(limits.block_size) {
            return Err(VolumeError::Invalid);
        }
        if lba.checked_add(length).is_none_or(|end| end > blocks) {
            return Err(VolumeError::OutOfRange);
        }
        if read_only && operation.modifies() {
            return Err(VolumeError::ReadOnly);
        }
        let (method, piece_blocks) = method_of(operation, limits)?;
        if method == Method::CompareWrite && length > u64::from(piece_blocks) {
            return Err(VolumeError::Invalid);
        }
        Ok(Plan {
            method,
            lba,
            blocks: length,
            piece_blocks,
        })
    }

    /// Number of pieces: at least one.
    pub fn pieces(&self) -> u64 {
        match self.piece_blocks {
            0 => 1,
            piece => self.blocks.div_ceil(piece.into()),
        }
    }

    /// Piece `index`, counted from 0.
    pub fn piece(&self, index: u64) -> Piece {
        let offset = index * u64::from(self.piece_blocks);
        let left = self.blocks - offset;
        Piece {
            offset,
            blocks: left.min(self.piece_blocks.into()) as u32,
        }
    }
}

/// Returns whether an operation writes durably (FUA).
pub fn force_unit_access(operation: &Operation) -> bool {
    match operation {
        Operation::Write { fua, .. }
        | Operation::WriteZeroes { fua, .. }
        | Operation::CompareWrite { fua, .. } => *fua,
        _ => false,
    }
}

fn method_of(operation: &Operation, limits: &Limits) -> Result<(Method, u32), VolumeError> {
    let transfer = limits.transfer_blocks_max;
    Ok(match operation {
        Operation::Read { .. } => (Method::Read, transfer),
        Operation::Write { .. } => (Method::Write, transfer),
        Operation::WriteZeroes { .. } if limits.write_zeroes_blocks_max > 0 => {
            (Method::WriteZeroes, limits.write_zeroes_blocks_max)
        }
        Operation::WriteZeroes { .. } => (Method::WriteOfZeroes, transfer),
        Operation::Compare { .. } if limits.compare => (Method::Compare, transfer),
        Operation::Compare { .. } => (Method::ReadAndCompare, transfer),
        Operation::CompareWrite { .. } if limits.compare_write_blocks_max > 0 => {
            (Method::CompareWrite, limits.compare_write_blocks_max)
        }
        Operation::Deallocate { .. } if limits.deallocate_blocks_max > 0 => {
            (Method::Deallocate, limits.deallocate_blocks_max)
        }
        Operation::CompareWrite { .. } | Operation::Deallocate { .. } => {
            return Err(VolumeError::Unsupported);
        }
        Operation::Verify { .. } if limits.verify_blocks_max > 0 => {
            (Method::Verify, limits.verify_blocks_max)
        }
        Operation::Verify { .. } => (Method::ReadAndDrop, transfer),
        Operation::Flush => (Method::Flush, 0),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weir_block::ReadBuffers;
    use weir_memory::View;

    use super::*;

    const FULL: Limits = Limits {
        block_size: BlockSize::B512,
        transfer_blocks_max: 8,
        write_zeroes_blocks_max: 100,
        write_zeroes_deallocates: true,
        write_zeroes_without_data: true,
        verify_blocks_max: 50,
        deallocate_blocks_max: 1000,
        compare: true,
        compare_write_blocks_max: 2,
        force_unit_access: true,
        write_zeroes_force_unit_access: true,
    };
    const BARE: Limits = Limits {
        write_zeroes_blocks_max: 0,
        verify_blocks_max: 0,
        deallocate_blocks_max: 0,
        compare: false,
        compare_write_blocks_max: 0,
        ..FULL
    };

    fn read(lba: u64, blocks: u32) -> Operation {
        Operation::Read {
            lba,
            blocks,
            buffers: ReadBuffers::Lend,
        }
    }

    fn compare_write(blocks: u32) -> Operation {
        Operation::CompareWrite {
            lba: 0,
            blocks,
            data: View::zeroes(2 * blocks as usize * 512).collect(),
            fua: false,
        }
    }

    fn method(operation: &Operation, limits: &Limits) -> Result<Method, VolumeError> {
        Plan::new(operation, limits, 1000, false).map(|plan| plan.method)
    }

    #[test]
    fn what_the_target_lacks_is_emulated_or_refused() {
        let zeroes = Operation::WriteZeroes {
            lba: 0,
            blocks: 10,
            deallocate: false,
            fua: false,
        };
        let verify = Operation::Verify { lba: 0, blocks: 9 };
        let deallocate = Operation::Deallocate { lba: 0, blocks: 9 };
        let compare = Operation::Compare {
            lba: 0,
            blocks: 1,
            data: View::zeroes(512).collect(),
        };
        assert_eq!(method(&zeroes, &FULL), Ok(Method::WriteZeroes));
        assert_eq!(method(&zeroes, &BARE), Ok(Method::WriteOfZeroes));
        assert_eq!(method(&verify, &FULL), Ok(Method::Verify));
        assert_eq!(method(&verify, &BARE), Ok(Method::ReadAndDrop));
        assert_eq!(method(&deallocate, &FULL), Ok(Method::Deallocate));
        assert_eq!(method(&deallocate, &BARE), Err(VolumeError::Unsupported));
        assert_eq!(method(&compare, &FULL), Ok(Method::Compare));
        assert_eq!(method(&compare, &BARE), Ok(Method::ReadAndCompare));
        assert_eq!(method(&compare_write(2), &FULL), Ok(Method::CompareWrite));
        assert_eq!(method(&compare_write(3), &FULL), Err(VolumeError::Invalid));
        assert_eq!(
            method(&compare_write(1), &BARE),
            Err(VolumeError::Unsupported)
        );
    }

    #[test]
    fn what_cannot_be_done_is_refused_whole() {
        let plan = |operation, read_only| Plan::new(&operation, &FULL, 100, read_only);
        assert!(plan(read(92, 8), true).is_ok());
        assert_eq!(plan(read(93, 8), false), Err(VolumeError::OutOfRange));
        assert_eq!(plan(read(u64::MAX, 1), false), Err(VolumeError::OutOfRange));
        assert_eq!(plan(read(0, 0), false), Err(VolumeError::Invalid));
        let short = Operation::Write {
            lba: 0,
            blocks: 2,
            data: View::zeroes(512).collect(),
            fua: false,
        };
        assert_eq!(plan(short, false), Err(VolumeError::Invalid));
        assert_eq!(plan(compare_write(1), true), Err(VolumeError::ReadOnly));
    }

    #[test]
    fn a_flush_follows_what_is_not_durable_by_itself() {
        let write = |fua| Operation::Write {
            lba: 0,
            blocks: 1,
            data: View::zeroes(512).collect(),
            fua,
        };
        let zeroes = Operation::WriteZeroes {
            lba: 0,
            blocks: 1,
            deallocate: false,
            fua: true,
        };
        let without = Limits {
            force_unit_access: false,
            ..FULL
        };
        let data_only = Limits {
            write_zeroes_force_unit_access: false,
            ..FULL
        };
        assert!(!FULL.needs_flush(&write(true), Method::Write));
        assert!(without.needs_flush(&write(true), Method::Write));
        assert!(!without.needs_flush(&write(false), Method::Write));
        assert!(data_only.needs_flush(&zeroes, Method::WriteZeroes));
        assert!(!data_only.needs_flush(&zeroes, Method::WriteOfZeroes));
        // The flush is not followed by another.
        assert!(!without.needs_flush(&write(true), Method::Flush));
    }

    proptest! {
        #[test]
        fn pieces_cover_a_request_once_and_in_order(blocks in 1u32..100, longest in 1u32..40) {
            let limits = Limits { transfer_blocks_max: longest, ..FULL };
            let plan = Plan::new(&read(5, blocks), &limits, 1000, false).unwrap();
            let mut end = 0;
            for index in 0..plan.pieces() {
                let piece = plan.piece(index);
                prop_assert_eq!(piece.offset, end);
                prop_assert!(piece.blocks > 0 && piece.blocks <= longest);
                end += u64::from(piece.blocks);
            }
            prop_assert_eq!(end, u64::from(blocks));
        }
    }
}
