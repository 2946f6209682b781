//! PDUs as bytes: those that are sent, and what is kept of the data of responses.

use smallvec::SmallVec;
use weir_digest::{Digest, digest_of_parts};
use weir_iscsi::pdu::{BASIC_HEADER_SIZE, CommonHeader, Header, parse_sense};
use weir_iscsi::writer::{HEADER_SIZE_MAX, TRAILER_SIZE_MAX, Writer};
use weir_memory::{Gather, View};
use weir_scsi::Sense;

/// Bytes of a response's data that are kept: sense data has at most 252 (SPC-4 section 4.5), after its length.
const RESPONSE_DATA_MAX: usize = 254;

/// Adds a PDU: its header, its data, padding and digests.
#[inline]
pub(super) fn push<H: Header>(writer: &Writer, header: &H, data: &[View], gather: &mut Gather) {
    let mut bytes = [0; HEADER_SIZE_MAX];
    let written = writer.header(&mut bytes, header);
    gather.push_header(&bytes[..written]);
    let length = header.data_length();
    if length == 0 {
        return;
    }
    data.iter().for_each(|view| gather.push_view(view.clone()));
    let digest = if writer.data_digest {
        digest_of_parts(data.iter().map(|view| &**view))
    } else {
        Digest::new()
    };
    let mut trailer = [0; TRAILER_SIZE_MAX];
    let written = writer.trailer(&mut trailer, length, digest);
    if written > 0 {
        gather.push_header(&trailer[..written]);
    }
}

/// The first bytes of a response's data.
#[derive(Default)]
pub(super) struct ResponseData {
    bytes: SmallVec<[u8; RESPONSE_DATA_MAX]>,
}

impl ResponseData {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        let length = bytes.len().min(RESPONSE_DATA_MAX - self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..length]);
    }

    /// Sense data, where it can be read.
    pub(super) fn sense(&self) -> Option<Sense> {
        if self.bytes.is_empty() {
            return None;
        }
        let (sense, _) = parse_sense(&self.bytes)?;
        Sense::parse(sense).ok()
    }

    /// The header that a Reject is of.
    pub(super) fn header(&self) -> Option<CommonHeader> {
        let header = self.bytes.first_chunk::<BASIC_HEADER_SIZE>()?;
        Some(CommonHeader::read(header))
    }
}
