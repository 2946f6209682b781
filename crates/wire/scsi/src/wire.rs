//! Big-endian fields at byte offsets, and text of fixed length.

use thiserror::Error;

/// Fewer bytes than the structure takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{structure} takes {expected} bytes, but {actual} were given")]
pub struct TooShort {
    /// Name of the structure.
    pub structure: &'static str,
    /// Bytes that the structure takes at least.
    pub expected: usize,
    /// Bytes that were given.
    pub actual: usize,
}

/// Refuses bytes that are shorter than a structure.
pub(crate) fn at_least(
    structure: &'static str,
    bytes: &[u8],
    expected: usize,
) -> Result<(), TooShort> {
    if bytes.len() >= expected {
        return Ok(());
    }
    Err(TooShort {
        structure,
        expected,
        actual: bytes.len(),
    })
}

/// The `N` bytes at a byte offset. Panics where the bytes do not reach that far: callers hold arrays
/// or have checked the length.
#[inline]
pub(crate) fn array_at<const N: usize>(bytes: &[u8], offset: usize) -> &[u8; N] {
    bytes[offset..]
        .first_chunk()
        .expect("callers have checked the length")
}

/// Reads two bytes; panics as [`array_at`] does.
#[inline]
pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_be_bytes(*array_at(bytes, offset))
}

/// Reads three bytes; panics as [`array_at`] does.
#[inline]
pub(crate) fn u24_at(bytes: &[u8], offset: usize) -> u32 {
    let [high, middle, low] = *array_at(bytes, offset);
    u32::from_be_bytes([0, high, middle, low])
}

/// Reads four bytes; panics as [`array_at`] does.
#[inline]
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_be_bytes(*array_at(bytes, offset))
}

/// Reads eight bytes; panics as [`array_at`] does.
#[inline]
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_be_bytes(*array_at(bytes, offset))
}

/// Writes bytes at an offset; panics where they do not fit.
#[inline]
pub(crate) fn put<const N: usize>(bytes: &mut [u8], offset: usize, value: [u8; N]) {
    bytes[offset..offset + N].copy_from_slice(&value);
}

/// A flag as the bit at a position of a byte.
#[inline]
pub(crate) const fn flag(set: bool, position: u8) -> u8 {
    (set as u8) << position
}

/// Reads one bit of a byte.
#[inline]
pub(crate) const fn bit(byte: u8, position: u8) -> bool {
    byte & (1 << position) != 0
}

/// Length as a field of two bytes; what is longer than the field can say is cut by the caller.
pub(crate) fn length_16(length: usize) -> [u8; 2] {
    u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes()
}

/// Length as a field of four bytes.
pub(crate) fn length_32(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes()
}

/// Cuts data to a command's ALLOCATION LENGTH (SPC-4 section 4.2.5.6). The lengths within the data
/// stay those of all that is available.
pub fn truncate(data: &mut Vec<u8>, allocation_length: u32) {
    data.truncate(usize::try_from(allocation_length).unwrap_or(usize::MAX));
}

/// Copies ASCII text into a field, left-aligned and filled with spaces (SPC-4 section 4.3.1). Bytes
/// outside printable ASCII become `?`; text that is too long is cut.
pub fn text_field<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [b' '; N];
    for (byte, character) in field.iter_mut().zip(text.chars()) {
        *byte = if matches!(character, ' '..='~') {
            character as u8
        } else {
            b'?'
        };
    }
    field
}
