//! How a block request becomes NVMe commands: which command, or which emulation, and in pieces of what length.
//!
//! Pure arithmetic over what the controller said of itself. Nothing is encoded or sent here.

use weir_block::{BlockSize, Operation, VolumeError};

/// The most blocks that NLB of a Read, Write, Compare, Verify or Write Zeroes can say (NVM Command Set 1.0 section 3.2).
pub(crate) const NLB_MAX: u32 = 1 << 16;

/// What the controller and namespace can do, in blocks of the namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Bytes in a block.
    pub(crate) block_size: BlockSize,
    /// The longest command that moves data (MDTS).
    pub(crate) transfer_blocks_max: u32,
    /// The longest Write Zeroes (WZSL); 0: not supported (ONCS).
    pub(crate) write_zeroes_blocks_max: u32,
    /// Whether Write Zeroes may deallocate (DLFEAT bit 3).
    pub(crate) write_zeroes_deallocates: bool,
    /// The longest Verify (VSL); 0: not supported (ONCS).
    pub(crate) verify_blocks_max: u32,
    /// The longest range of a Dataset Management command (DMRSL, DMSL); 0: not supported (ONCS).
    pub(crate) deallocate_blocks_max: u32,
    /// Whether Compare is supported (ONCS).
    pub(crate) compare: bool,
    /// The longest fused Compare and Write (FUSES, ACWU or NACWU, MDTS); 0: not supported.
    pub(crate) compare_write_blocks_max: u32,
}

/// How one piece of a request is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    /// A Read whose data is the request's.
    Read,
    /// A Write of the request's data.
    Write,
    /// A Write of zeroes, where Write Zeroes is not supported.
    WriteOfZeroes,
    /// A Write Zeroes.
    WriteZeroes,
    /// A Compare.
    Compare,
    /// A Read whose data is compared here, where Compare is not supported.
    ReadAndCompare,
    /// A fused pair of Compare and Write.
    CompareWrite,
    /// A Dataset Management that deallocates one range.
    Deallocate,
    /// A Verify.
    Verify,
    /// A Read whose data is dropped, where Verify is not supported.
    ReadAndDrop,
    /// A Flush.
    Flush,
}

impl Method {
    /// Whether an execution may change what the namespace holds.
    pub(crate) fn modifies(self) -> bool {
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

/// How a request is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    /// How each piece is.
    pub(crate) method: Method,
    /// First block.
    pub(crate) lba: u64,
    /// Blocks in all; 0 for a flush.
    pub(crate) blocks: u64,
    /// Blocks of a piece; the last one may be shorter.
    pub(crate) piece_blocks: u32,
}

/// One piece of a request: blocks from the start of the request, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Blocks before it in the request.
    pub(crate) offset: u64,
    /// Blocks in it; 0 for a flush.
    pub(crate) blocks: u32,
}

impl Plan {
    /// How `operation` is carried out under `limits` on a namespace of `blocks` blocks.
    ///
    /// # Errors
    /// What the request fails with before anything is sent: [`VolumeError::Invalid`], [`VolumeError::OutOfRange`],
    /// [`VolumeError::ReadOnly`], [`VolumeError::Unsupported`].
    pub(crate) fn new(
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

    /// How many pieces there are. At least one.
    pub(crate) fn pieces(&self) -> u64 {
        match self.piece_blocks {
            0 => 1,
            piece => self.blocks.div_ceil(piece.into()),
        }
    }

    /// Piece `index`, counted from 0.
    pub(crate) fn piece(&self, index: u64) -> Piece {
        let offset = index * u64::from(self.piece_blocks);
        let left = self.blocks - offset;
        Piece {
            offset,
            blocks: left.min(self.piece_blocks.into()) as u32,
        }
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
        verify_blocks_max: 50,
        deallocate_blocks_max: 1000,
        compare: true,
        compare_write_blocks_max: 2,
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
    fn what_the_controller_lacks_is_emulated_or_refused() {
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
