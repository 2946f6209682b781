//! UNMAP parameter list (SBC-3 section 5.28.2).

#[cfg(test)]
mod tests;

use crate::sense::Sense;
use crate::wire::{length_16, put, u16_at, u32_at, u64_at};
use thiserror::Error;

/// Bytes of the header of the list.
pub const UNMAP_HEADER_LENGTH: usize = 8;
/// Bytes of an unmap block descriptor.
pub const UNMAP_DESCRIPTOR_LENGTH: usize = 16;

/// Blocks that shall be unmapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UnmapDescriptor {
    /// UNMAP LOGICAL BLOCK ADDRESS.
    pub lba: u64,
    /// NUMBER OF LOGICAL BLOCKS; zero unmaps nothing.
    pub blocks: u32,
}

/// A list that ends within its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("an UNMAP parameter list of {0} bytes ends within its header")]
pub struct UnmapError(pub usize);

impl From<UnmapError> for Sense {
    fn from(_: UnmapError) -> Self {
        Self::parameter_list_length()
    }
}

/// UNMAP parameter list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnmapList<'a> {
    descriptors: &'a [u8],
}

impl<'a> UnmapList<'a> {
    /// Reads a list. No bytes are a list without descriptors. Descriptors end where the list, the
    /// UNMAP DATA LENGTH or the UNMAP BLOCK DESCRIPTOR DATA LENGTH does; one that is incomplete is
    /// ignored.
    ///
    /// # Errors
    /// The list ends within its header.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, UnmapError> {
        if bytes.is_empty() {
            return Ok(Self { descriptors: &[] });
        }
        let Some((header, descriptors)) = bytes.split_at_checked(UNMAP_HEADER_LENGTH) else {
            return Err(UnmapError(bytes.len()));
        };
        // UNMAP DATA LENGTH does not count itself, but the six bytes of the header behind it.
        let available = usize::from(u16_at(header, 0)).saturating_sub(UNMAP_HEADER_LENGTH - 2);
        let length = usize::from(u16_at(header, 2))
            .min(available)
            .min(descriptors.len());
        let whole = length - length % UNMAP_DESCRIPTOR_LENGTH;
        Ok(Self {
            descriptors: &descriptors[..whole],
        })
    }

    /// Number of descriptors.
    pub const fn len(&self) -> usize {
        self.descriptors.len() / UNMAP_DESCRIPTOR_LENGTH
    }

    /// Says that there is no descriptor.
    pub const fn is_empty(&self) -> bool {
        self.descriptors.is_empty()
    }

    /// Descriptors in their order.
    pub fn descriptors(&self) -> impl ExactSizeIterator<Item = UnmapDescriptor> + use<'a> {
        self.descriptors
            .chunks_exact(UNMAP_DESCRIPTOR_LENGTH)
            .map(|chunk| UnmapDescriptor {
                lba: u64_at(chunk, 0),
                blocks: u32_at(chunk, 8),
            })
    }
}

/// A list of descriptors, at most 4,095.
pub fn encode(descriptors: &[UnmapDescriptor]) -> Vec<u8> {
    let mut bytes = vec![0; UNMAP_HEADER_LENGTH + descriptors.len() * UNMAP_DESCRIPTOR_LENGTH];
    let length = bytes.len();
    put(&mut bytes, 0, length_16(length - 2));
    put(&mut bytes, 2, length_16(length - UNMAP_HEADER_LENGTH));
    let chunks = bytes[UNMAP_HEADER_LENGTH..].chunks_exact_mut(UNMAP_DESCRIPTOR_LENGTH);
    for (chunk, descriptor) in chunks.zip(descriptors) {
        put(chunk, 0, descriptor.lba.to_be_bytes());
        put(chunk, 8, descriptor.blocks.to_be_bytes());
    }
    bytes
}
