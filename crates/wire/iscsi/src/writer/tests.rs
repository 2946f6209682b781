//! Tests of headers, digests and padding as bytes.

use super::*;
use crate::pdu::{DataIn, NopOut, ScsiCommand, encode, put_extended_cdb};

const DIGESTS: Writer = Writer {
    header_digest: true,
    data_digest: true,
};

fn data_in(data_length: u32) -> DataIn {
    DataIn {
        data_length,
        ..DataIn::read(&[0x25; 48])
    }
}

#[test]
fn a_header_stands_alone_or_before_its_digest() {
    let mut buffer = [0xee; HEADER_SIZE_MAX];
    let header = data_in(512);
    assert_eq!(Writer::default().header(&mut buffer, &header), 48);
    assert_eq!(buffer[..48], encode(&header));
    assert_eq!(buffer[48..], [0xee; 4]);
    assert_eq!(DIGESTS.header(&mut buffer, &header), 52);
    assert_eq!(buffer[..48], encode(&header));
    assert_eq!(buffer[48..], Digest::of(&encode(&header)).to_bytes());
}

/// The digests of the iSCSI CRC's examples (RFC 7143 appendix A), as far as they fit a header: 48 bytes of a SCSI READ(10).
#[test]
fn the_digest_is_that_of_the_specification() {
    let mut bytes = [0; 48];
    bytes[0] = 0x01;
    bytes[1] = 0xc0;
    bytes[16] = 0x14;
    bytes[22] = 0x04;
    bytes[27] = 0x14;
    bytes[31] = 0x18;
    bytes[32] = 0x28;
    bytes[40] = 0x02;
    let mut buffer = [0; HEADER_SIZE_MAX];
    DIGESTS.header(&mut buffer, &ScsiCommand::read(&bytes));
    assert_eq!(buffer[..48], bytes);
    assert_eq!(buffer[48..], [0x56, 0x3a, 0x96, 0xd9]);
}

#[test]
fn additional_headers_are_counted_and_covered() {
    let mut additional = [0; 32];
    let length = put_extended_cdb(&mut additional, &[7; 16]);
    let command = ScsiCommand::read(&[0x01; 48]);
    let mut buffer = [0xee; FULL_HEADER_SIZE_MAX];
    let end = DIGESTS.header_with_additional(&mut buffer, &command, &additional[..length]);
    assert_eq!((end, buffer[4]), (48 + 20 + 4, 5));
    assert_eq!(buffer[48..68], additional[..20]);
    assert_eq!(buffer[68..72], Digest::of(&buffer[..68]).to_bytes());
}

#[test]
fn the_trailer_pads_and_covers_the_padding() {
    let data = [1, 2, 3, 4, 5];
    let mut buffer = [0xee; TRAILER_SIZE_MAX];
    let digest = Digest::of(&data);
    let length = DIGESTS.trailer(&mut buffer, 5, digest);
    assert_eq!((length, DIGESTS.trailer_length(5)), (7, 7));
    assert_eq!(buffer[..3], [0; 3]);
    let padded = [1, 2, 3, 4, 5, 0, 0, 0];
    assert_eq!(buffer[3..], Digest::of(&padded).to_bytes());
    assert_eq!(Writer::default().trailer(&mut buffer, 5, digest), 3);
    for (data_length, plain, digests) in [(0, 0, 0), (1, 3, 7), (2, 2, 6), (3, 1, 5), (4, 0, 4)] {
        assert_eq!(Writer::default().trailer_length(data_length), plain);
        assert_eq!(DIGESTS.trailer_length(data_length), digests);
        assert_eq!(DIGESTS.trailer(&mut buffer, data_length, digest), digests);
    }
}

#[test]
#[should_panic(expected = "the buffer has room for a header")]
fn a_buffer_without_room_is_a_bug() {
    Writer::default().header(&mut [0; 47], &NopOut::read(&[0; 48]));
}

#[test]
#[should_panic(expected = "do not fit TotalAHSLength")]
fn additional_headers_without_padding_are_a_bug() {
    let mut buffer = [0; FULL_HEADER_SIZE_MAX];
    let command = ScsiCommand::read(&[0x01; 48]);
    Writer::default().header_with_additional(&mut buffer, &command, &[0; 5]);
}
