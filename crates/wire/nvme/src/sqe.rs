//! The submission queue entry: the 64 bytes that every command starts as (NVMe Base 2.0c section
//! 3.3.3.1).
//!
//! This is the common form. [`crate::command`] turns it into a typed command and back.

use crate::opcode::{DataDirection, FABRICS_OPCODE};
use crate::sgl::{Payload, SglDescriptor};
use crate::status::Status;
use crate::wire::{get, put};

/// Bits 1:0 of byte 1: whether the command is one of a fused pair (FUSE).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Fuse {
    /// 00b: a command on its own.
    #[default]
    Normal,
    /// 01b: the first of a fused pair.
    First,
    /// 10b: the second of a fused pair.
    Second,
    /// 11b: reserved.
    Reserved,
}

/// Bits 7:6 of byte 1: what the data pointer is (PSDT).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DataTransfer {
    /// 00b: PRP entries; not for Fabrics.
    Prp,
    /// 01b: SGLs, metadata in one contiguous buffer.
    #[default]
    Sgl,
    /// 10b: SGLs, metadata described by an SGL too.
    SglWithMetadataSgl,
    /// 11b: reserved.
    Reserved,
}

/// A submission queue entry. Fields that a command's own table names are in the command dwords.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Sqe {
    /// Opcode (OPC), byte 0; see [`crate::opcode`].
    pub opcode: u8,
    /// Fused operation (FUSE), byte 1 bits 1:0.
    pub fuse: Fuse,
    /// PRP or SGL for data transfer (PSDT), byte 1 bits 7:6.
    pub data_transfer: DataTransfer,
    /// Command identifier (CID), bytes 3:2.
    pub cid: u16,
    /// Namespace identifier (NSID), bytes 7:4; for a Fabrics command byte 4 is FCTYPE.
    pub nsid: u32,
    /// Command dword 2.
    pub cdw2: u32,
    /// Command dword 3.
    pub cdw3: u32,
    /// Metadata pointer (MPTR), bytes 23:16.
    pub metadata_pointer: u64,
    /// Data pointer (DPTR), bytes 39:24, as SGL entry 1.
    pub sgl: SglDescriptor,
    /// Command dword 10.
    pub cdw10: u32,
    /// Command dword 11.
    pub cdw11: u32,
    /// Command dword 12.
    pub cdw12: u32,
    /// Command dword 13.
    pub cdw13: u32,
    /// Command dword 14.
    pub cdw14: u32,
    /// Command dword 15.
    pub cdw15: u32,
}

impl Sqe {
    /// Bytes that an entry takes.
    pub const SIZE: usize = 64;

    /// Reads an entry; every 64 bytes are one. Bits 5:2 of byte 1 are reserved and ignored.
    #[inline]
    pub fn decode(bytes: &[u8; Self::SIZE]) -> Self {
        Self {
            opcode: bytes[0],
            fuse: match bytes[1] & 0b11 {
                0b00 => Fuse::Normal,
                0b01 => Fuse::First,
                0b10 => Fuse::Second,
                _ => Fuse::Reserved,
            },
            data_transfer: match bytes[1] >> 6 {
                0b00 => DataTransfer::Prp,
                0b01 => DataTransfer::Sgl,
                0b10 => DataTransfer::SglWithMetadataSgl,
                _ => DataTransfer::Reserved,
            },
            cid: get(bytes, 2),
            nsid: get(bytes, 4),
            cdw2: get(bytes, 8),
            cdw3: get(bytes, 12),
            metadata_pointer: get(bytes, 16),
            sgl: get(bytes, 24),
            cdw10: get(bytes, 40),
            cdw11: get(bytes, 44),
            cdw12: get(bytes, 48),
            cdw13: get(bytes, 52),
            cdw14: get(bytes, 56),
            cdw15: get(bytes, 60),
        }
    }

    /// The entry's 64 bytes.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[0] = self.opcode;
        bytes[1] = self.fuse as u8 | (self.data_transfer as u8) << 6;
        put(&mut bytes, 2, self.cid);
        put(&mut bytes, 4, self.nsid);
        put(&mut bytes, 8, self.cdw2);
        put(&mut bytes, 12, self.cdw3);
        put(&mut bytes, 16, self.metadata_pointer);
        put(&mut bytes, 24, self.sgl);
        put(&mut bytes, 40, self.cdw10);
        put(&mut bytes, 44, self.cdw11);
        put(&mut bytes, 48, self.cdw12);
        put(&mut bytes, 52, self.cdw13);
        put(&mut bytes, 56, self.cdw14);
        put(&mut bytes, 60, self.cdw15);
        bytes
    }

    /// Whether this is a Fabrics command, on whichever queue.
    pub const fn is_fabrics(&self) -> bool {
        self.opcode == FABRICS_OPCODE
    }

    /// Fabrics Command Type (FCTYPE), byte 4; means something only in a Fabrics command.
    pub const fn fabrics_type(&self) -> u8 {
        self.nsid as u8
    }

    /// Which way the command moves data, by its opcode or, for a Fabrics command, its FCTYPE.
    pub const fn data_direction(&self) -> DataDirection {
        DataDirection::of(if self.is_fabrics() {
            self.fabrics_type()
        } else {
            self.opcode
        })
    }

    /// Where the command's data is on TCP.
    ///
    /// # Errors
    /// The status to refuse it with: Invalid Field in Command where PSDT says PRP, a metadata SGL
    /// or the reserved value (Fabrics uses SGLs only, NVMe Base 2.0c section 3.3.3.1), else as
    /// [`SglDescriptor::tcp_data`]. In-capsule data of a command that moves none towards the
    /// controller is refused with SGL Descriptor Type Invalid.
    pub fn tcp_data(&self) -> Result<Payload, Status> {
        if self.data_transfer != DataTransfer::Sgl {
            return Err(Status::INVALID_FIELD_IN_COMMAND);
        }
        let data = self.sgl.tcp_data()?;
        let towards_controller = self.data_direction() == DataDirection::HostToController;
        if matches!(data, Payload::InCapsule { .. }) && !towards_controller {
            return Err(Status::SGL_DESCRIPTOR_TYPE_INVALID);
        }
        Ok(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A 4 KiB in-capsule write of 8 blocks at LBA 0x1122334455, written from the tables.
    fn write_bytes() -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[0] = 0x01; // OPC
        bytes[1] = 0x42; // PSDT 01b, FUSE 10b
        bytes[2..4].copy_from_slice(&[0x34, 0x12]); // CID
        bytes[4..8].copy_from_slice(&[0x01, 0, 0, 0]); // NSID
        bytes[8..12].copy_from_slice(&[0x02, 0, 0, 0]); // CDW2
        bytes[12..16].copy_from_slice(&[0x03, 0, 0, 0]); // CDW3
        bytes[16..24].copy_from_slice(&[0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]); // MPTR
        bytes[32..36].copy_from_slice(&[0x00, 0x10, 0, 0]); // SGL1 length
        bytes[39] = 0x01; // SGL1 data block, offset
        bytes[40..48].copy_from_slice(&[0x55, 0x44, 0x33, 0x22, 0x11, 0, 0, 0]); // CDW10-11
        bytes[48..52].copy_from_slice(&[0x07, 0, 0, 0x40]); // CDW12
        bytes[52..56].copy_from_slice(&[0x0d, 0, 0, 0]); // CDW13
        bytes[56..60].copy_from_slice(&[0x0e, 0, 0, 0]); // CDW14
        bytes[60..64].copy_from_slice(&[0x0f, 0, 0, 0]); // CDW15
        bytes
    }

    fn write() -> Sqe {
        Sqe {
            opcode: 0x01,
            fuse: Fuse::Second,
            data_transfer: DataTransfer::Sgl,
            cid: 0x1234,
            nsid: 1,
            cdw2: 2,
            cdw3: 3,
            metadata_pointer: 0x1122_3344_5566_7788,
            sgl: SglDescriptor::InCapsule {
                offset: 0,
                length: 4096,
            },
            cdw10: 0x2233_4455,
            cdw11: 0x11,
            cdw12: 0x4000_0007,
            cdw13: 13,
            cdw14: 14,
            cdw15: 15,
        }
    }

    #[test]
    fn an_entry_is_laid_out_as_the_specification_says() {
        assert_eq!(write().encode(), write_bytes());
        assert_eq!(Sqe::decode(&write_bytes()), write());
    }

    #[test]
    fn reserved_bits_of_the_flags_are_ignored() {
        let mut bytes = write_bytes();
        bytes[1] |= 0x3c;
        assert_eq!(Sqe::decode(&bytes), write());
        bytes[1] = 0xff;
        let sqe = Sqe::decode(&bytes);
        assert_eq!(
            (sqe.fuse, sqe.data_transfer),
            (Fuse::Reserved, DataTransfer::Reserved)
        );
    }

    #[test]
    fn data_is_found_or_refused() {
        assert_eq!(write().tcp_data(), Ok(Payload::InCapsule { length: 4096 }));
        let prp = Sqe {
            data_transfer: DataTransfer::Prp,
            ..write()
        };
        assert_eq!(prp.tcp_data(), Err(Status::INVALID_FIELD_IN_COMMAND));
        let read_in_capsule = Sqe {
            opcode: 0x02,
            ..write()
        };
        assert_eq!(
            read_in_capsule.tcp_data(),
            Err(Status::SGL_DESCRIPTOR_TYPE_INVALID)
        );
        let connect = Sqe {
            opcode: 0x7f,
            nsid: 0x01,
            ..write()
        };
        assert_eq!(connect.tcp_data(), Ok(Payload::InCapsule { length: 4096 }));
        let property_get = Sqe {
            opcode: 0x7f,
            nsid: 0x04,
            ..write()
        };
        assert_eq!(
            property_get.tcp_data(),
            Err(Status::SGL_DESCRIPTOR_TYPE_INVALID)
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_entry_that_survives(low: [u8; 32], high: [u8; 32]) {
            let mut bytes = [0; 64];
            bytes[..32].copy_from_slice(&low);
            bytes[32..].copy_from_slice(&high);
            let sqe = Sqe::decode(&bytes);
            let encoded = sqe.encode();
            prop_assert_eq!(Sqe::decode(&encoded), sqe);
            // Only reserved bits may differ: byte 1 bits 5:2, and those within the descriptor.
            prop_assert_eq!(encoded[1], bytes[1] & 0xc3);
            prop_assert_eq!(&encoded[2..24], &bytes[2..24]);
            prop_assert_eq!(&encoded[40..], &bytes[40..]);
        }
    }
}
