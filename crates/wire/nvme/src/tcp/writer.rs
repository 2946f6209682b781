//! Writes PDU headers with their digests and padding into the caller's buffer. Data and its digest
//! follow from the caller's own memory, so that nothing is copied here.

use crate::cqe::Cqe;
use crate::sqe::Sqe;
use crate::tcp::layout::{Side, Termination};
use crate::tcp::pdu::{
    Alignment, C2hData, COMMAND_HEADER, CommonHeader, DATA_HEADER, H2cData, PduFlags, PduType,
    R2T_HEADER, R2t, RESPONSE_HEADER, TERMINATION_DATA_MAX, TERMINATION_HEADER,
    TERMINATION_SIZE_MAX,
};
use crate::wire::put;
use weir_digest::{DIGEST_LENGTH, Digest};

/// Most bytes that a header takes with its digest and padding, at any alignment.
pub const HEADER_SIZE_MAX: usize = 144;

const _: () = {
    let mut wire = 0;
    while wire <= Alignment::WIRE_MAX {
        let Some(alignment) = Alignment::from_wire(wire) else {
            panic!("in range")
        };
        let plain = alignment.align(COMMAND_HEADER as u32);
        let digest = alignment.align(COMMAND_HEADER as u32 + DIGEST_LENGTH as u32);
        assert!(plain as usize <= HEADER_SIZE_MAX && digest as usize <= HEADER_SIZE_MAX);
        wire += 1;
    }
    assert!(HEADER_SIZE_MAX <= u8::MAX as usize, "PDO has eight bits");
};

/// Writes the headers of one direction of a connection, by what was negotiated.
///
/// Each method writes header, header digest and padding to the start of `buffer` and returns how
/// many bytes that is; [`HEADER_SIZE_MAX`] is always enough. A PDU with data goes on with that data
/// and, where [`Writer::data_digest`] says so, four bytes of its [`Digest`]. The methods panic where
/// the buffer is too short or PLEN would not fit its 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Writer {
    /// Header digests are enabled.
    pub header_digest: bool,
    /// Data digests are enabled.
    pub data_digest: bool,
    /// Alignment that the peer wants: HPDA from the controller, CPDA from the host.
    pub alignment: Alignment,
}

impl Writer {
    /// CapsuleCmd with `data_length` bytes of in-capsule data, 0 for none.
    pub fn capsule_command(&self, buffer: &mut [u8], sqe: &Sqe, data_length: u32) -> usize {
        put_entry(buffer, &sqe.encode());
        self.finish(
            buffer,
            PduType::CapsuleCommand,
            COMMAND_HEADER,
            PduFlags::NONE,
            data_length,
        )
    }

    /// CapsuleResp.
    #[inline]
    pub fn capsule_response(&self, buffer: &mut [u8], cqe: &Cqe) -> usize {
        put_entry(buffer, &cqe.encode());
        self.finish(
            buffer,
            PduType::CapsuleResponse,
            RESPONSE_HEADER,
            PduFlags::NONE,
            0,
        )
    }

    /// H2CData.
    #[inline]
    pub fn h2c_data(&self, buffer: &mut [u8], data: &H2cData) -> usize {
        let tags = (data.cid, data.transfer_tag);
        put_transfer(buffer, tags, data.offset, data.length);
        let flags = if data.last {
            PduFlags::LAST
        } else {
            PduFlags::NONE
        };
        self.finish(buffer, PduType::H2cData, DATA_HEADER, flags, data.length)
    }

    /// C2HData.
    ///
    /// Panics where it says success without being the last.
    #[inline]
    pub fn c2h_data(&self, buffer: &mut [u8], data: &C2hData) -> usize {
        assert!(
            data.last || !data.success,
            "SUCCESS is said with the last data only"
        );
        put_transfer(buffer, (data.cid, 0), data.offset, data.length);
        let last = if data.last {
            PduFlags::LAST
        } else {
            PduFlags::NONE
        };
        let success = if data.success {
            PduFlags::SUCCESS
        } else {
            PduFlags::NONE
        };
        self.finish(
            buffer,
            PduType::C2hData,
            DATA_HEADER,
            last | success,
            data.length,
        )
    }

    /// R2T.
    #[inline]
    pub fn r2t(&self, buffer: &mut [u8], r2t: &R2t) -> usize {
        put_transfer(buffer, (r2t.cid, r2t.transfer_tag), r2t.offset, r2t.length);
        self.finish(buffer, PduType::R2t, R2T_HEADER, PduFlags::NONE, 0)
    }

    /// Bytes after `data_length` bytes of data: those of the data digest, if there is one.
    pub const fn data_digest_length(&self, data_length: u32) -> usize {
        if self.data_digest && data_length > 0 {
            DIGEST_LENGTH
        } else {
            0
        }
    }

    /// Puts the common header before the fields, and digest and padding after them.
    #[inline]
    fn finish(
        &self,
        buffer: &mut [u8],
        pdu_type: PduType,
        header_length: u8,
        mut flags: PduFlags,
        data_length: u32,
    ) -> usize {
        let header = usize::from(header_length);
        let mut end = header;
        if self.header_digest {
            flags = flags | PduFlags::HEADER_DIGEST;
            end += DIGEST_LENGTH;
        }
        let (mut data_offset, mut length) = (0, Some(end as u32));
        if data_length > 0 {
            let mut digest_length = 0;
            if self.data_digest {
                flags = flags | PduFlags::DATA_DIGEST;
                digest_length = DIGEST_LENGTH as u32;
            }
            // Every header is in dwords.
            if self.alignment != Alignment::DWORD {
                end = self.pad(buffer, end);
            }
            data_offset = end as u8;
            length = (end as u32 + digest_length).checked_add(data_length);
        }
        let common = CommonHeader {
            pdu_type,
            flags,
            header_length,
            data_offset,
            length: length.expect("a PDU's length fits PLEN"),
        };
        put(buffer, 0, common);
        if self.header_digest {
            let digest = Digest::of(&buffer[..header]);
            buffer[header..header + DIGEST_LENGTH].copy_from_slice(&digest.to_bytes());
        }
        end
    }

    /// Pads a header up to where data may begin; returns where that is.
    #[inline(never)]
    fn pad(&self, buffer: &mut [u8], end: usize) -> usize {
        let aligned = self.alignment.align(end as u32) as usize;
        buffer[end..aligned].fill(0);
        aligned
    }
}

/// A queue entry after the common header.
#[inline]
fn put_entry(buffer: &mut [u8], entry: &[u8]) {
    buffer[CommonHeader::SIZE..CommonHeader::SIZE + entry.len()].copy_from_slice(entry);
}

/// The fields that H2CData, C2HData and R2T share: tags, offset, length, four reserved bytes.
#[inline]
fn put_transfer(buffer: &mut [u8], (cid, tag): (u16, u16), offset: u32, length: u32) {
    put(buffer, 8, cid);
    put(buffer, 10, tag);
    put(buffer, 12, offset);
    put(buffer, 16, length);
    put(buffer, 20, 0_u32);
}

/// Writes the termination request that `sender` ends the connection with: C2HTermReq from the
/// controller, H2CTermReq from the host. `header` is that of the PDU at fault, cut to 128 bytes, with
/// at least one byte; [`Reader::header`](super::Reader::header) has it. Returns the PDU's length.
///
/// Panics where `header` is empty: the PDU must carry what it complains about.
pub fn encode_termination(
    sender: Side,
    termination: &Termination,
    header: &[u8],
    buffer: &mut [u8; TERMINATION_SIZE_MAX],
) -> usize {
    assert!(
        !header.is_empty(),
        "a termination request carries the header at fault"
    );
    let header = &header[..header.len().min(TERMINATION_DATA_MAX)];
    let start = usize::from(TERMINATION_HEADER);
    let length = start + header.len();
    buffer.fill(0);
    let common = CommonHeader {
        pdu_type: match sender {
            Side::Controller => PduType::C2hTermination,
            Side::Host => PduType::H2cTermination,
        },
        header_length: TERMINATION_HEADER,
        length: length as u32,
        ..CommonHeader::default()
    };
    put(buffer, 0, common);
    put(buffer, 8, termination.status);
    put(buffer, 10, termination.information);
    buffer[start..length].copy_from_slice(header);
    length
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sgl::SglDescriptor;
    use crate::status::Status;

    const PLAIN: Writer = Writer {
        header_digest: false,
        data_digest: false,
        alignment: Alignment::DWORD,
    };

    fn digests(wire: u8) -> Writer {
        let alignment = Alignment::from_wire(wire).expect("in range");
        Writer {
            header_digest: true,
            data_digest: true,
            alignment,
        }
    }

    /// What a method writes, over a buffer full of old bytes.
    fn written(write: impl FnOnce(&mut [u8]) -> usize) -> Vec<u8> {
        let mut buffer = vec![0xee; HEADER_SIZE_MAX];
        let length = write(&mut buffer);
        buffer.truncate(length);
        buffer
    }

    #[test]
    fn capsules_are_laid_out_as_the_specification_says() {
        let sqe = Sqe {
            opcode: 1,
            cid: 0x0102,
            sgl: SglDescriptor::NONE,
            ..Sqe::default()
        };
        let bytes = written(|buffer| PLAIN.capsule_command(buffer, &sqe, 0));
        assert_eq!(bytes[..8], [4, 0, 72, 0, 72, 0, 0, 0]);
        assert_eq!(bytes[8..], sqe.encode());
        let bytes = written(|buffer| PLAIN.capsule_command(buffer, &sqe, 4096));
        assert_eq!(bytes[..8], [4, 0, 72, 72, 0x48, 0x10, 0, 0]);

        let cqe = Cqe::new(0x0304, 7, Status::SUCCESS);
        let bytes = written(|buffer| PLAIN.capsule_response(buffer, &cqe));
        assert_eq!(bytes[..8], [5, 0, 24, 0, 24, 0, 0, 0]);
        assert_eq!(bytes[8..], cqe.encode());
    }

    #[test]
    fn data_pdus_are_laid_out_as_the_specification_says() {
        let data = H2cData {
            cid: 0x0102,
            transfer_tag: 0x0304,
            offset: 0x0506_0708,
            length: 16,
            last: true,
        };
        assert_eq!(
            written(|buffer| PLAIN.h2c_data(buffer, &data)),
            [
                6, 4, 24, 24, 40, 0, 0, 0, 0x02, 0x01, 0x04, 0x03, 8, 7, 6, 5, 16, 0, 0, 0, 0, 0,
                0, 0
            ]
        );
        let data = C2hData {
            cid: 0x0102,
            offset: 3,
            length: 16,
            last: true,
            success: true,
        };
        assert_eq!(
            written(|buffer| PLAIN.c2h_data(buffer, &data)),
            [
                7, 12, 24, 24, 40, 0, 0, 0, 0x02, 0x01, 0, 0, 3, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0
            ]
        );
        let r2t = R2t {
            cid: 0x0102,
            transfer_tag: 0x0304,
            offset: 5,
            length: 0x0002_0000,
        };
        assert_eq!(
            written(|buffer| PLAIN.r2t(buffer, &r2t)),
            [
                9, 0, 24, 0, 24, 0, 0, 0, 0x02, 0x01, 0x04, 0x03, 5, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0,
                0
            ]
        );
    }

    #[test]
    fn digests_and_padding_follow_the_header() {
        let data = C2hData {
            cid: 1,
            offset: 0,
            length: 512,
            last: false,
            success: false,
        };
        // HPDA 4: twenty bytes.
        let bytes = written(|buffer| digests(4).c2h_data(buffer, &data));
        assert_eq!(bytes.len(), 40);
        assert_eq!(bytes[..8], [7, 3, 24, 40, 0x2c, 0x02, 0, 0]);
        assert_eq!(bytes[24..28], crc32c::crc32c(&bytes[..24]).to_le_bytes());
        assert_eq!(bytes[28..], [0; 12]);
        assert_eq!(digests(4).data_digest_length(512), 4);
        // Without data there is no padding, no data digest and no offset.
        let bytes = written(|buffer| digests(31).capsule_command(buffer, &Sqe::default(), 0));
        assert_eq!(bytes[..8], [4, 1, 72, 0, 76, 0, 0, 0]);
        assert_eq!(bytes.len(), 76);
        // The widest header: 76 bytes at an alignment of 72.
        let bytes = written(|buffer| digests(17).capsule_command(buffer, &Sqe::default(), 1));
        assert_eq!((bytes.len(), bytes[3]), (HEADER_SIZE_MAX, 144));
    }

    #[test]
    fn terminations_are_laid_out_as_the_specification_says() {
        let mut buffer = [0xee; 152];
        let termination = Termination::invalid_field(0x0102_0304);
        let length = encode_termination(Side::Controller, &termination, &[7, 8, 9], &mut buffer);
        assert_eq!(
            buffer[..length],
            [
                3, 0, 24, 0, 27, 0, 0, 0, 1, 0, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 8, 9
            ]
        );
        let long = [5; 200];
        let length = encode_termination(
            Side::Host,
            &Termination::sequence_error(),
            &long,
            &mut buffer,
        );
        assert_eq!(length, 152);
        assert_eq!(buffer[..10], [2, 0, 24, 0, 152, 0, 0, 0, 2, 0]);
    }

    #[test]
    #[should_panic(expected = "fits PLEN")]
    fn a_length_beyond_plen_is_a_bug() {
        let mut buffer = [0; HEADER_SIZE_MAX];
        PLAIN.capsule_command(&mut buffer, &Sqe::default(), u32::MAX - 71);
    }
}
