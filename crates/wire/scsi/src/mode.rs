//! Mode parameters (SPC-4 section 7.5, SBC-3 section 6.5).
//!
//! None can be changed: what initiators may wish otherwise is a property of the volume. A MODE SELECT that leaves all as it is is good.

#[cfg(test)]
mod tests;

use thiserror::Error;

use crate::cdb::{ModeSense, PageControl};
use crate::sense::{AdditionalSense, FieldPointer, Sense};
use crate::wire::{TooShort, at_least, bit, flag, length_16, put, u16_at};

/// PAGE CODE of all pages, and SUBPAGE CODE of all subpages.
const ALL_PAGES: u8 = 0x3f;
const ALL_SUBPAGES: u8 = 0xff;

const ERROR_RECOVERY: u8 = 0x01;
/// PAGE CODE of the caching mode page (SBC-3 section 6.5.5).
pub const CACHING: u8 = 0x08;
const CONTROL: u8 = 0x0a;
const INFORMATIONAL_EXCEPTIONS: u8 = 0x1c;

const SHORT_HEADER_LENGTH: usize = 4;
const LONG_HEADER_LENGTH: usize = 8;
const SHORT_DESCRIPTOR_LENGTH: usize = 8;
const LONG_DESCRIPTOR_LENGTH: usize = 16;

/// Mode parameters of a block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mode {
    /// WP: nothing may be written. The control mode page says it too (SWP).
    pub write_protected: bool,
    /// WCE: what was written may be in a volatile cache.
    pub write_cache: bool,
    /// NUMBER OF LOGICAL BLOCKS of the block descriptor.
    pub blocks: u64,
    /// LOGICAL BLOCK LENGTH of the block descriptor, in bytes.
    pub block_length: u32,
}

/// Mode parameters as an initiator reads them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SensedMode {
    /// WP: nothing may be written.
    pub write_protected: bool,
    /// DPOFUA: FUA is heeded.
    pub force_unit_access: bool,
    /// WCE: what was written may be in a volatile cache; `None` where the caching page is not there.
    pub write_cache: Option<bool>,
}

impl SensedMode {
    /// Reads mode parameter data (MODE SENSE) of a block device. Pages that are cut are left out.
    ///
    /// # Errors
    /// The data ends within its header.
    pub fn parse(data: &[u8], is_long: bool) -> Result<Self, TooShort> {
        let (header_length, specific, descriptor_length) = if is_long {
            at_least("mode parameter data", data, LONG_HEADER_LENGTH)?;
            (LONG_HEADER_LENGTH, data[3], u16_at(data, 6).into())
        } else {
            at_least("mode parameter data", data, SHORT_HEADER_LENGTH)?;
            (SHORT_HEADER_LENGTH, data[2], usize::from(data[3]))
        };
        // MODE DATA LENGTH does not count itself.
        let end = match is_long {
            true => 2 + usize::from(u16_at(data, 0)),
            false => 1 + usize::from(data[0]),
        };
        let available = &data[..end.min(data.len())];
        let pages = available.get(header_length + descriptor_length..);
        Ok(Self {
            write_protected: bit(specific, 7),
            force_unit_access: bit(specific, 4),
            write_cache: write_cache(pages.unwrap_or_default()),
        })
    }
}

/// WCE of the caching page, where that is among `pages`.
fn write_cache(mut pages: &[u8]) -> Option<bool> {
    loop {
        // SPF: a subpage, whose header is longer.
        let (head_length, length) = match *pages {
            [code, _, high, low, ..] if bit(code, 6) => (4, u16::from_be_bytes([high, low]).into()),
            [_, length, ..] => (2, usize::from(length)),
            _ => return None,
        };
        let page = pages.get(..head_length + length)?;
        // PS says nothing here.
        if page[0] & 0x7f == CACHING {
            return page.get(2).map(|&flags| bit(flags, 2));
        }
        pages = &pages[page.len()..];
    }
}

/// A MODE SELECT that cannot be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ModeError {
    /// The list ends within a header, a descriptor or a page.
    #[error("a mode parameter list of {0} bytes ends too early")]
    Length(usize),
    /// A field would be changed, or is not known.
    #[error("byte {0} of the mode parameter list begins what cannot be set")]
    Field(usize),
}

impl From<ModeError> for Sense {
    fn from(error: ModeError) -> Self {
        match error {
            ModeError::Length(_) => Self::parameter_list_length(),
            ModeError::Field(byte) => {
                let byte = u16::try_from(byte).unwrap_or(u16::MAX);
                Self::invalid_field(FieldPointer::list(byte))
            }
        }
    }
}

impl Mode {
    /// Pages in their order, each with its header.
    fn pages(&self) -> [Vec<u8>; 4] {
        let page = |code: u8, length: usize| {
            let mut bytes = vec![0; length];
            (bytes[0], bytes[1]) = (code, length as u8 - 2);
            bytes
        };
        let recovery = page(ERROR_RECOVERY, 12);
        let mut caching = page(CACHING, 20);
        // WCE; and what is prefetched is no matter of hosts (DRA).
        caching[2] = flag(self.write_cache, 2);
        caching[12] = flag(true, 5);
        let mut control = page(CONTROL, 12);
        // TST 001b: each I_T nexus has a task set of its own. D_SENSE is zero: sense data is in fixed format.
        control[2] = 0b001 << 5;
        // QUEUE ALGORITHM MODIFIER 1h: commands may be reordered, as they are without an ordered one.
        control[3] = 0x1 << 4;
        control[4] = flag(self.write_protected, 3);
        // BUSY TIMEOUT PERIOD: no limit.
        put(&mut control, 8, u16::MAX.to_be_bytes());
        [
            recovery,
            caching,
            control,
            page(INFORMATIONAL_EXCEPTIONS, 12),
        ]
    }

    /// Pages that are asked for, one after the other.
    fn asked(&self, asked: &ModeSense) -> Result<Vec<u8>, Sense> {
        match asked.control {
            PageControl::Saved => {
                return Err(Sense::illegal_request(
                    AdditionalSense::SAVING_PARAMETERS_NOT_SUPPORTED,
                ));
            }
            PageControl::Current | PageControl::Changeable | PageControl::Default => {}
        }
        // No page has a subpage but its own, which is 00h.
        if !matches!(asked.subpage, 0 | ALL_SUBPAGES) {
            return Err(Sense::invalid_field(FieldPointer::cdb(3)));
        }
        let mut data = Vec::new();
        for mut page in self.pages() {
            if asked.page == ALL_PAGES || asked.page == page[0] {
                if asked.control == PageControl::Changeable {
                    page[2..].fill(0);
                }
                data.extend(page);
            }
        }
        match data.is_empty() {
            true => Err(Sense::invalid_field(FieldPointer::cdb_bit(2, 5))),
            false => Ok(data),
        }
    }

    /// A block descriptor (SBC-3 section 6.5.2); numbers that its fields have no room for are all ones.
    fn descriptor(&self, long: bool) -> Vec<u8> {
        if long {
            let mut bytes = vec![0; LONG_DESCRIPTOR_LENGTH];
            put(&mut bytes, 0, self.blocks.to_be_bytes());
            put(&mut bytes, 12, self.block_length.to_be_bytes());
            return bytes;
        }
        let mut bytes = vec![0; SHORT_DESCRIPTOR_LENGTH];
        let blocks = u32::try_from(self.blocks).unwrap_or(u32::MAX);
        put(&mut bytes, 4, self.block_length.to_be_bytes());
        put(&mut bytes, 0, blocks.to_be_bytes());
        bytes
    }

    /// Mode parameter data, which the caller cuts to the ALLOCATION LENGTH.
    ///
    /// # Errors
    /// A page or subpage that is not there, or saved values.
    pub fn sense(&self, asked: &ModeSense) -> Result<Vec<u8>, Sense> {
        let pages = self.asked(asked)?;
        let descriptor = match asked.no_descriptor {
            true => Vec::new(),
            false => self.descriptor(asked.long_lba),
        };
        // WP and DPOFUA.
        let specific = flag(self.write_protected, 7) | flag(true, 4);
        let rest = descriptor.len() + pages.len();
        let mut data = match asked.is_long {
            true => {
                let mut header = vec![0; LONG_HEADER_LENGTH];
                put(&mut header, 0, length_16(LONG_HEADER_LENGTH - 2 + rest));
                header[3] = specific;
                header[4] = flag(asked.long_lba, 0);
                put(&mut header, 6, length_16(descriptor.len()));
                header
            }
            false => {
                let length = (SHORT_HEADER_LENGTH - 1 + rest) as u8;
                vec![length, 0, specific, descriptor.len() as u8]
            }
        };
        data.extend(descriptor);
        data.extend(pages);
        Ok(data)
    }

    /// Reads a mode parameter list (MODE SELECT), all of whose values are to be those that there are.
    ///
    /// # Errors
    /// The list is cut, or would change something.
    pub fn select(&self, list: &[u8], is_long: bool) -> Result<(), ModeError> {
        if list.is_empty() {
            return Ok(());
        }
        let cut = ModeError::Length(list.len());
        let header_length = match is_long {
            true => LONG_HEADER_LENGTH,
            false => SHORT_HEADER_LENGTH,
        };
        let header = list.get(..header_length).ok_or(cut)?;
        let (descriptor_length, long_lba) = match is_long {
            true => (usize::from(u16_at(header, 6)), header[4] & 1 != 0),
            false => (usize::from(header[3]), false),
        };
        let mut at = header_length + descriptor_length;
        let descriptor = list.get(header_length..at).ok_or(cut)?;
        if descriptor_length > 0 && descriptor != self.descriptor(long_lba) {
            return Err(ModeError::Field(header_length));
        }
        let pages = self.pages();
        while at < list.len() {
            let head = list.get(at..at + 2).ok_or(cut)?;
            // PS is reserved here.
            let page = pages.iter().find(|page| page[0] == head[0] & 0x7f);
            let page = page.ok_or(ModeError::Field(at))?;
            let given = list.get(at..at + page.len()).ok_or(cut)?;
            if let Some(differs) = (1..page.len()).find(|&byte| given[byte] != page[byte]) {
                return Err(ModeError::Field(at + differs));
            }
            at += page.len();
        }
        Ok(())
    }
}
