//! Writes PDU headers with their digests into the caller's buffer (RFC 7143 section 11.2). Data, its padding and its digest follow from
//! the caller's own memory, so that nothing is copied here.

use crate::pdu::{
    ADDITIONAL_HEADERS_SIZE_MAX, BASIC_HEADER_SIZE, BasicHeader, Header, offset, put_header,
};
use weir_digest::{DIGEST_LENGTH, Digest};

/// Most bytes that a header takes with its digest, where it has no Additional Header Segments.
pub const HEADER_SIZE_MAX: usize = BASIC_HEADER_SIZE + DIGEST_LENGTH;

/// Most bytes that a header takes with Additional Header Segments and digest.
pub const FULL_HEADER_SIZE_MAX: usize = HEADER_SIZE_MAX + ADDITIONAL_HEADERS_SIZE_MAX;

/// Most bytes after a PDU's data: padding and digest.
pub const TRAILER_SIZE_MAX: usize = 3 + DIGEST_LENGTH;

/// Bytes of padding after `data_length` bytes of data (section 11.2.1.6).
#[inline]
pub const fn padding_length(data_length: u32) -> usize {
    (data_length.wrapping_neg() & 3) as usize
}

/// Writes the headers of one direction of a connection, by what was negotiated.
///
/// [`Writer::header`] writes header and header digest to the start of `buffer` and returns how many bytes that is;
/// [`HEADER_SIZE_MAX`] is always enough. A PDU with data goes on with that data and with the [`Writer::trailer_length`] bytes that
/// [`Writer::trailer`] writes. The methods panic where the buffer is too short, or the data longer than
/// [`DATA_SEGMENT_SIZE_MAX`](crate::pdu::DATA_SEGMENT_SIZE_MAX).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Writer {
    /// Header digests are enabled.
    pub header_digest: bool,
    /// Data digests are enabled.
    pub data_digest: bool,
}

impl Writer {
    /// Writes a header without Additional Header Segments.
    #[inline]
    pub fn header<H: Header>(&self, buffer: &mut [u8], header: &H) -> usize {
        let basic = basic(buffer);
        *basic = [0; BASIC_HEADER_SIZE];
        put_header(header, basic);
        self.finish(buffer, BASIC_HEADER_SIZE)
    }

    /// Writes a header with Additional Header Segments; `additional` is all of them, padded as
    /// [`put_extended_cdb`](crate::pdu::put_extended_cdb) pads. [`FULL_HEADER_SIZE_MAX`] is always enough.
    ///
    /// Panics where they are no multiple of 4 bytes, or more than [`ADDITIONAL_HEADERS_SIZE_MAX`].
    pub fn header_with_additional<H: Header>(
        &self,
        buffer: &mut [u8],
        header: &H,
        additional: &[u8],
    ) -> usize {
        let length = additional.len();
        assert!(
            length.is_multiple_of(4) && length <= ADDITIONAL_HEADERS_SIZE_MAX,
            "{length} bytes of additional headers do not fit TotalAHSLength"
        );
        let basic = basic(buffer);
        *basic = [0; BASIC_HEADER_SIZE];
        put_header(header, basic);
        basic[offset::TOTAL_AHS_LENGTH] = (length / 4) as u8;
        let end = BASIC_HEADER_SIZE + length;
        buffer[BASIC_HEADER_SIZE..end].copy_from_slice(additional);
        self.finish(buffer, end)
    }

    /// Bytes after `data_length` bytes of data: padding, and the data digest if there is one.
    #[inline]
    pub const fn trailer_length(&self, data_length: u32) -> usize {
        let digest = if self.data_digest && data_length > 0 {
            DIGEST_LENGTH
        } else {
            0
        };
        padding_length(data_length) + digest
    }

    /// Writes what follows `data_length` bytes of data, and returns how many bytes that is: [`TRAILER_SIZE_MAX`] at most. `digest` is
    /// that of the data; where there are no data digests it may be any. The padding is part of what the digest covers.
    #[inline]
    pub fn trailer(&self, buffer: &mut [u8], data_length: u32, mut digest: Digest) -> usize {
        let padding = padding_length(data_length);
        buffer[..padding].fill(0);
        if !self.data_digest || data_length == 0 {
            return padding;
        }
        if padding > 0 {
            digest.update(&buffer[..padding]);
        }
        let end = padding + DIGEST_LENGTH;
        buffer[padding..end].copy_from_slice(&digest.to_bytes());
        end
    }

    /// Puts the digest after `end` bytes of header.
    #[inline]
    fn finish(&self, buffer: &mut [u8], end: usize) -> usize {
        if !self.header_digest {
            return end;
        }
        let digest = Digest::of(&buffer[..end]);
        buffer[end..end + DIGEST_LENGTH].copy_from_slice(&digest.to_bytes());
        end + DIGEST_LENGTH
    }
}

#[inline]
fn basic(buffer: &mut [u8]) -> &mut BasicHeader {
    buffer
        .first_chunk_mut()
        .expect("the buffer has room for a header")
}

#[cfg(test)]
mod tests;
