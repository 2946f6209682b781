//! SGL descriptors: the 16 bytes of a command that say where its data is (NVMe Base 2.0c section
//! 4.1.2).
//!
//! Over TCP data is either in the capsule (Data Block with an offset) or follows in data PDUs
//! (Transport SGL Data Block). The other descriptors are recognised so that they can be refused
//! with the right status.

use crate::status::Status;
use crate::wire::{Field, get, put};

/// SGL Descriptor Type, bits 7:4 of byte 15.
mod descriptor_type {
    pub(super) const DATA_BLOCK: u8 = 0x0;
    pub(super) const SEGMENT: u8 = 0x2;
    pub(super) const LAST_SEGMENT: u8 = 0x3;
    pub(super) const KEYED_DATA_BLOCK: u8 = 0x4;
    pub(super) const TRANSPORT_DATA_BLOCK: u8 = 0x5;
}

/// SGL Descriptor Sub Type, bits 3:0 of byte 15.
mod sub_type {
    pub(super) const ADDRESS: u8 = 0x0;
    pub(super) const OFFSET: u8 = 0x1;
    pub(super) const TRANSPORT_SPECIFIC: u8 = 0xa;
}

/// Largest length that a Keyed SGL Data Block descriptor can say: 24 bits.
pub const KEYED_LENGTH_MAX: u32 = 0x00ff_ffff;

/// One SGL descriptor. Reserved bytes of the types named here are ignored on the way in and zero
/// on the way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SglDescriptor {
    /// Type 0h, sub type 0h: `length` bytes at a memory address. All zeroes, as a command without
    /// data carries it, reads as this with length 0.
    DataBlock {
        /// Memory address.
        address: u64,
        /// Bytes.
        length: u32,
    },
    /// Type 0h, sub type 1h: `length` bytes in the capsule, `offset` bytes after the start of its
    /// data (ICDOFF is 0 for TCP).
    InCapsule {
        /// Bytes from the start of the in-capsule data.
        offset: u64,
        /// Bytes.
        length: u32,
    },
    /// Type 5h, sub type Ah: `length` bytes that the transport moves in data PDUs.
    Transport {
        /// Bytes.
        length: u32,
    },
    /// Type 4h: `length` bytes at a remote address under a key; RDMA only.
    Keyed {
        /// Remote address.
        address: u64,
        /// Bytes, at most [`KEYED_LENGTH_MAX`].
        length: u32,
        /// Remote key.
        key: u32,
        /// Sub type: 0h address, Fh invalidate the key.
        sub_type: u8,
    },
    /// Anything else, byte for byte: bit bucket, segment, last segment, vendor specific, reserved.
    Other([u8; SglDescriptor::SIZE]),
}

const _: () = assert!(SglDescriptor::SIZE == 16);

impl SglDescriptor {
    /// Bytes that a descriptor takes.
    pub const SIZE: usize = 16;

    /// What a command without data carries.
    pub const NONE: Self = Self::DataBlock {
        address: 0,
        length: 0,
    };

    /// Reads a descriptor; every 16 bytes are one.
    #[inline]
    pub fn decode(bytes: &[u8; Self::SIZE]) -> Self {
        let (kind, sub) = (bytes[15] >> 4, bytes[15] & 0xf);
        match (kind, sub) {
            (descriptor_type::DATA_BLOCK, sub_type::ADDRESS) => Self::DataBlock {
                address: get(bytes, 0),
                length: get(bytes, 8),
            },
            (descriptor_type::DATA_BLOCK, sub_type::OFFSET) => Self::InCapsule {
                offset: get(bytes, 0),
                length: get(bytes, 8),
            },
            (descriptor_type::TRANSPORT_DATA_BLOCK, sub_type::TRANSPORT_SPECIFIC) => {
                Self::Transport {
                    length: get(bytes, 8),
                }
            }
            (descriptor_type::KEYED_DATA_BLOCK, sub_type) => Self::Keyed {
                address: get(bytes, 0),
                length: get::<u32>(bytes, 8) & KEYED_LENGTH_MAX,
                key: get(bytes, 11),
                sub_type,
            },
            _ => Self::Other(*bytes),
        }
    }

    /// The descriptor's 16 bytes.
    ///
    /// Panics where a keyed descriptor's length or sub type does not fit its bits.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        match *self {
            Self::DataBlock { address, length } => {
                put(&mut bytes, 0, address);
                put(&mut bytes, 8, length);
            }
            Self::InCapsule { offset, length } => {
                put(&mut bytes, 0, offset);
                put(&mut bytes, 8, length);
                bytes[15] = descriptor_type::DATA_BLOCK << 4 | sub_type::OFFSET;
            }
            Self::Transport { length } => {
                put(&mut bytes, 8, length);
                bytes[15] =
                    descriptor_type::TRANSPORT_DATA_BLOCK << 4 | sub_type::TRANSPORT_SPECIFIC;
            }
            Self::Keyed {
                address,
                length,
                key,
                sub_type,
            } => {
                assert!(length <= KEYED_LENGTH_MAX, "a keyed length has 24 bits");
                assert!(sub_type <= 0xf, "a sub type has four bits");
                put(&mut bytes, 0, address);
                put(&mut bytes, 8, length);
                put(&mut bytes, 11, key);
                bytes[15] = descriptor_type::KEYED_DATA_BLOCK << 4 | sub_type;
            }
            Self::Other(raw) => bytes = raw,
        }
        bytes
    }

    /// Where a command's data is when it comes over TCP.
    ///
    /// # Errors
    /// The status that refuses a descriptor which TCP does not carry (NVMe/TCP Transport 1.0
    /// section 3.3): SGL Descriptor Type Invalid, or Invalid SGL Segment Descriptor for a segment;
    /// SGL Offset Invalid for in-capsule data that does not start at offset 0. A data block by
    /// address with length 0 is no data.
    pub fn tcp_data(&self) -> Result<Payload, Status> {
        match *self {
            Self::DataBlock { length: 0, .. } => Ok(Payload::None),
            Self::InCapsule { offset: 0, length } => Ok(Payload::InCapsule { length }),
            Self::InCapsule { .. } => Err(Status::SGL_OFFSET_INVALID),
            Self::Transport { length } => Ok(Payload::Transport { length }),
            Self::DataBlock { .. } | Self::Keyed { .. } => Err(Status::SGL_DESCRIPTOR_TYPE_INVALID),
            Self::Other(raw) => Err(match raw[15] >> 4 {
                descriptor_type::SEGMENT | descriptor_type::LAST_SEGMENT => {
                    Status::INVALID_SGL_SEGMENT_DESCRIPTOR
                }
                _ => Status::SGL_DESCRIPTOR_TYPE_INVALID,
            }),
        }
    }
}

/// Where a command's data is, on TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Payload {
    /// The descriptor names no bytes.
    None,
    /// `length` bytes in the capsule; only towards the controller.
    InCapsule {
        /// Bytes.
        length: u32,
    },
    /// `length` bytes in H2CData or C2HData PDUs.
    Transport {
        /// Bytes.
        length: u32,
    },
}

impl Payload {
    /// Bytes that the descriptor names.
    pub const fn length(self) -> u32 {
        match self {
            Self::None => 0,
            Self::InCapsule { length } | Self::Transport { length } => length,
        }
    }
}

impl Default for SglDescriptor {
    fn default() -> Self {
        Self::NONE
    }
}

impl Field for SglDescriptor {
    const LENGTH: usize = Self::SIZE;
    #[inline]
    fn get(bytes: &[u8]) -> Self {
        let mut array = [0; Self::SIZE];
        array.copy_from_slice(bytes);
        Self::decode(&array)
    }
    #[inline]
    fn put(&self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.encode());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn descriptors_are_laid_out_as_the_specification_says() {
        let cases = [
            (
                SglDescriptor::DataBlock {
                    address: 0x0102_0304_0506_0708,
                    length: 0x1000,
                },
                [8, 7, 6, 5, 4, 3, 2, 1, 0x00, 0x10, 0, 0, 0, 0, 0, 0x00],
            ),
            (
                SglDescriptor::InCapsule {
                    offset: 0x10,
                    length: 0x2000,
                },
                [0x10, 0, 0, 0, 0, 0, 0, 0, 0x00, 0x20, 0, 0, 0, 0, 0, 0x01],
            ),
            (
                SglDescriptor::Transport {
                    length: 0x0010_0000,
                },
                [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0x5a],
            ),
            (
                SglDescriptor::Keyed {
                    address: 1,
                    length: 0x0003_0201,
                    key: 0xaabb_ccdd,
                    sub_type: 0xf,
                },
                [
                    1, 0, 0, 0, 0, 0, 0, 0, 0x01, 0x02, 0x03, 0xdd, 0xcc, 0xbb, 0xaa, 0x4f,
                ],
            ),
        ];
        for (descriptor, bytes) in cases {
            assert_eq!(descriptor.encode(), bytes);
            assert_eq!(SglDescriptor::decode(&bytes), descriptor);
        }
        assert_eq!(SglDescriptor::NONE.encode(), [0; 16]);
    }

    #[test]
    fn what_tcp_does_not_carry_is_refused_by_its_own_status() {
        let with_kind = |kind: u8| {
            let mut bytes = [0_u8; 16];
            bytes[8] = 1;
            bytes[15] = kind;
            SglDescriptor::decode(&bytes).tcp_data()
        };
        assert_eq!(with_kind(0x00), Err(Status::SGL_DESCRIPTOR_TYPE_INVALID));
        assert_eq!(with_kind(0x01), Ok(Payload::InCapsule { length: 1 }));
        assert_eq!(with_kind(0x0a), Err(Status::SGL_DESCRIPTOR_TYPE_INVALID));
        assert_eq!(with_kind(0x10), Err(Status::SGL_DESCRIPTOR_TYPE_INVALID));
        assert_eq!(with_kind(0x20), Err(Status::INVALID_SGL_SEGMENT_DESCRIPTOR));
        assert_eq!(with_kind(0x31), Err(Status::INVALID_SGL_SEGMENT_DESCRIPTOR));
        assert_eq!(with_kind(0x40), Err(Status::SGL_DESCRIPTOR_TYPE_INVALID));
        assert_eq!(with_kind(0x5a), Ok(Payload::Transport { length: 1 }));
        assert_eq!(with_kind(0x50), Err(Status::SGL_DESCRIPTOR_TYPE_INVALID));
        assert_eq!(with_kind(0xf0), Err(Status::SGL_DESCRIPTOR_TYPE_INVALID));
        assert_eq!(
            SglDescriptor::InCapsule {
                offset: 4,
                length: 8
            }
            .tcp_data(),
            Err(Status::SGL_OFFSET_INVALID)
        );
        assert_eq!(SglDescriptor::NONE.tcp_data(), Ok(Payload::None));
        let longest = SglDescriptor::Transport { length: u32::MAX };
        assert_eq!(longest.tcp_data().map(Payload::length), Ok(u32::MAX));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_descriptor_that_survives(bytes: [u8; 16]) {
            let descriptor = SglDescriptor::decode(&bytes);
            prop_assert_eq!(SglDescriptor::decode(&descriptor.encode()), descriptor);
        }
    }
}
