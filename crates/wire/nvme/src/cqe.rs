//! The completion queue entry: the 16 bytes that answer a command (NVMe Base 2.0c section 3.3.3.2).

use crate::status::Status;
use crate::wire::{get, put};

/// A completion queue entry. On Fabrics bytes 7:0 belong to the command, SQID and the phase tag are
/// reserved, and SQHD is reserved where SQ flow control is off (NVMe Base 2.0c section 3.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Cqe {
    /// Command specific result: dword 0 in bits 31:0, dword 1 in bits 63:32.
    pub result: u64,
    /// Submission queue head pointer (SQHD).
    pub sqhd: u16,
    /// Submission queue identifier (SQID); 0 on Fabrics.
    pub sqid: u16,
    /// Command identifier (CID) of the command that this answers.
    pub cid: u16,
    /// Status field.
    pub status: Status,
    /// Phase tag (P); clear on Fabrics.
    pub phase: bool,
}

impl Cqe {
    /// Bytes that an entry takes.
    pub const SIZE: usize = 16;

    /// The answer to the command `cid` on Fabrics, with no result.
    pub const fn new(cid: u16, sqhd: u16, status: Status) -> Self {
        Self {
            result: 0,
            sqhd,
            sqid: 0,
            cid,
            status,
            phase: false,
        }
    }

    /// This answer with a result: dword 0 in bits 31:0, dword 1 in bits 63:32.
    #[must_use]
    pub const fn with_result(self, result: u64) -> Self {
        Self { result, ..self }
    }

    /// Completion dword 0.
    pub const fn dw0(&self) -> u32 {
        self.result as u32
    }

    /// Reads an entry; every 16 bytes are one.
    pub fn decode(bytes: &[u8; Self::SIZE]) -> Self {
        let status: u16 = get(bytes, 14);
        Self {
            result: get(bytes, 0),
            sqhd: get(bytes, 8),
            sqid: get(bytes, 10),
            cid: get(bytes, 12),
            status: Status::from_completion(status),
            phase: status & 1 == 1,
        }
    }

    /// The entry's 16 bytes.
    #[inline]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        put(&mut bytes, 0, self.result);
        put(&mut bytes, 8, self.sqhd);
        put(&mut bytes, 10, self.sqid);
        put(&mut bytes, 12, self.cid);
        put(&mut bytes, 14, self.status.to_completion(self.phase));
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_entry_is_laid_out_as_the_specification_says() {
        let cqe = Cqe {
            result: 0x8877_6655_4433_2211,
            sqhd: 0x0201,
            sqid: 0x0403,
            cid: 0x0605,
            status: Status::LBA_OUT_OF_RANGE.with_do_not_retry(),
            phase: true,
        };
        let bytes = [
            0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, // DW0, DW1
            0x01, 0x02, // SQHD
            0x03, 0x04, // SQID
            0x05, 0x06, // CID
            0x01, 0x81, // SC 80h shifted by the phase tag, DNR
        ];
        assert_eq!(cqe.encode(), bytes);
        assert_eq!(Cqe::decode(&bytes), cqe);
        assert_eq!(cqe.dw0(), 0x4433_2211);
        assert_eq!(
            Cqe::new(7, 3, Status::SUCCESS).with_result(9).encode(),
            [9, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 7, 0, 0, 0]
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_entry_that_survives_whole(bytes: [u8; 16]) {
            prop_assert_eq!(Cqe::decode(&bytes).encode(), bytes);
        }
    }
}
