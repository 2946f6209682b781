//! CRC32C, the header and data digest of NVMe/TCP (NVMe/TCP Transport 1.0c section 3.3) and of iSCSI (RFC 7143 section 13.1).
//! Knows neither protocol's PDUs.
//!
//! The `crc-fast` crate picks the machine's instructions where they exist (x86-64 CRC32 together with carry-less multiplication,
//! with AVX-512 in one instruction for several lanes; arm64 likewise) and a portable table otherwise, so that every machine
//! gets the same value.

#![forbid(unsafe_code)]

use crc_fast::CrcAlgorithm;

/// Bytes that a digest takes on the wire, little-endian.
pub const DIGEST_LENGTH: usize = 4;

/// A CRC32C that is computed over bytes as they arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Digest(u32);

impl Digest {
    /// The digest of no bytes.
    #[inline]
    pub const fn new() -> Self {
        Self(0)
    }

    /// The digest of `bytes` alone.
    pub fn of(bytes: &[u8]) -> Self {
        Self(crc_fast::crc32_iscsi(bytes))
    }

    /// Goes on with `bytes`, which follow those given before.
    pub fn update(&mut self, bytes: &[u8]) {
        if self.0 == 0 {
            // Nothing yet, or what goes on in the same way.
            *self = Digest::of(bytes);
            return;
        }
        // Between pieces the register is the complement of the digest so far.
        let register = u64::from(!self.0);
        let mut rest = crc_fast::Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, register);
        rest.update(bytes);
        self.0 = rest.finalize() as u32;
    }

    /// The value so far.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The four bytes that go on the wire.
    #[inline]
    pub const fn to_bytes(self) -> [u8; DIGEST_LENGTH] {
        self.0.to_le_bytes()
    }
}

/// The verdict of a data digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataDigest {
    /// Data digests are not enabled.
    Absent,
    /// The data is what was sent.
    Matches,
    /// The data was damaged on its way.
    Differs {
        /// Digest that was received.
        received: u32,
        /// Digest of the data that was received.
        computed: u32,
    },
}

impl DataDigest {
    /// Judges data with this digest by the one that came with it.
    #[inline]
    pub fn judge(computed: Digest, received: [u8; DIGEST_LENGTH]) -> Self {
        let (received, computed) = (u32::from_le_bytes(received), computed.value());
        if received == computed {
            DataDigest::Matches
        } else {
            DataDigest::Differs { received, computed }
        }
    }

    /// Returns whether the data may be used.
    #[inline]
    pub const fn is_good(self) -> bool {
        !matches!(self, Self::Differs { .. })
    }
}

/// The data digest of a gather list.
#[inline]
pub fn digest_of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Digest {
    let mut digest = Digest::new();
    for part in parts {
        digest.update(part);
    }
    digest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// CRC32C bit by bit, reflected, polynomial 1EDC6F41h: the definition.
    fn slow_crc32c(bytes: &[u8]) -> u32 {
        let mut crc = !0_u32;
        for &byte in bytes {
            crc ^= u32::from(byte);
            for _ in 0..8 {
                crc = if crc & 1 == 1 {
                    crc >> 1 ^ 0x82f6_3b78
                } else {
                    crc >> 1
                };
            }
        }
        !crc
    }

    #[test]
    fn known_values() {
        // RFC 3720 appendix B.4.
        assert_eq!(Digest::of(&[0; 32]).to_bytes(), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(Digest::of(&[0xff; 32]).to_bytes(), [0x43, 0xab, 0xa8, 0x62]);
        let rising: Vec<u8> = (0..32).collect();
        assert_eq!(Digest::of(&rising).to_bytes(), [0x4e, 0x79, 0xdd, 0x46]);
        assert_eq!(Digest::of(b"123456789").value(), 0xe306_9283);
        assert_eq!(Digest::new().value(), 0);
    }

    proptest! {
        #[test]
        fn any_split_gives_the_definition(
            bytes in proptest::collection::vec(any::<u8>(), 0..2000),
            cuts in proptest::collection::vec(0_usize..2000, 0..8),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let parts = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]);
            prop_assert_eq!(digest_of_parts(parts).value(), slow_crc32c(&bytes));
        }
    }
}
