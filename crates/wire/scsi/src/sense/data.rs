//! Fixed and descriptor format of sense data (SPC-4 sections 4.5.2 and 4.5.3).

use super::{AdditionalSense, FieldPointer, KeySpecific, Sense, SenseError, SenseKey};
use crate::wire::{bit, flag, put, u16_at, u32_at, u64_at};
use core::ops::Deref;

/// Longest sense data that [`Sense::encode`] makes: a header and three descriptors.
pub const SENSE_LENGTH_MAX: usize = 40;

const FIXED_LENGTH: usize = 18;
const DESCRIPTORS_OFFSET: usize = 8;
const INFORMATION_TYPE: u8 = 0x00;
const COMMAND_SPECIFIC_TYPE: u8 = 0x01;
const KEY_SPECIFIC_TYPE: u8 = 0x02;

/// Format of sense data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SenseFormat {
    /// 70h and 71h.
    #[default]
    Fixed,
    /// 72h and 73h.
    Descriptor,
}

/// Encoded sense data, without an allocation. Dereferences to its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenseBytes {
    bytes: [u8; SENSE_LENGTH_MAX],
    length: u8,
}

impl Deref for SenseBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl SenseBytes {
    fn append(&mut self, bytes: &[u8]) {
        let start = usize::from(self.length);
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len() as u8;
    }
}

impl Sense {
    /// Sense data in a format.
    pub fn encode(&self, format: SenseFormat) -> SenseBytes {
        match format {
            SenseFormat::Fixed => self.encode_fixed(),
            SenseFormat::Descriptor => self.encode_descriptors(),
        }
    }

    fn encode_fixed(&self) -> SenseBytes {
        let mut bytes = [0; SENSE_LENGTH_MAX];
        bytes[0] = 0x70 | flag(self.deferred, 0);
        bytes[2] = self.key as u8;
        if let Some(information) = self.information.and_then(|value| u32::try_from(value).ok()) {
            bytes[0] |= 0x80;
            put(&mut bytes, 3, information.to_be_bytes());
        }
        bytes[7] = (FIXED_LENGTH - 8) as u8;
        let command_specific = self.command_specific.unwrap_or_default();
        let command_specific = u32::try_from(command_specific).unwrap_or_default();
        put(&mut bytes, 8, command_specific.to_be_bytes());
        bytes[12] = self.additional.code;
        bytes[13] = self.additional.qualifier;
        if let Some(specific) = self.specific {
            put(&mut bytes, 15, specific.encode());
        }
        SenseBytes {
            bytes,
            length: FIXED_LENGTH as u8,
        }
    }

    fn encode_descriptors(&self) -> SenseBytes {
        let mut data = SenseBytes {
            bytes: [0; SENSE_LENGTH_MAX],
            length: DESCRIPTORS_OFFSET as u8,
        };
        data.bytes[0] = 0x72 | flag(self.deferred, 0);
        data.bytes[1] = self.key as u8;
        data.bytes[2] = self.additional.code;
        data.bytes[3] = self.additional.qualifier;
        if let Some(information) = self.information {
            data.append(&[INFORMATION_TYPE, 0x0a, 0x80, 0]);
            data.append(&information.to_be_bytes());
        }
        if let Some(command_specific) = self.command_specific {
            data.append(&[COMMAND_SPECIFIC_TYPE, 0x0a, 0, 0]);
            data.append(&command_specific.to_be_bytes());
        }
        if let Some(specific) = self.specific {
            let [first, second, third] = specific.encode();
            data.append(&[KEY_SPECIFIC_TYPE, 0x06, 0, 0, first, second, third, 0]);
        }
        data.bytes[7] = data.length - DESCRIPTORS_OFFSET as u8;
        data
    }

    /// Reads sense data of either format. Fields beyond the bytes are taken for absent.
    ///
    /// # Errors
    /// The bytes end within the header, or have no known response code.
    pub fn parse(bytes: &[u8]) -> Result<Self, SenseError> {
        let first = bytes.first().ok_or(SenseError::TooShort(0))?;
        match first & 0x7f {
            0x70 | 0x71 => Self::parse_fixed(bytes),
            0x72 | 0x73 => Self::parse_descriptors(bytes),
            code => Err(SenseError::ResponseCode(code)),
        }
    }

    fn parse_fixed(bytes: &[u8]) -> Result<Self, SenseError> {
        if bytes.len() < 8 {
            return Err(SenseError::TooShort(bytes.len()));
        }
        // ADDITIONAL SENSE LENGTH says where the data ends.
        let end = bytes.len().min(8 + usize::from(bytes[7]));
        let mut whole = [0; FIXED_LENGTH];
        let length = end.min(FIXED_LENGTH);
        whole[..length].copy_from_slice(&bytes[..length]);
        let key = SenseKey::from_low_bits(whole[2]);
        let command_specific = u32_at(&whole, 8);
        Ok(Self {
            key,
            additional: AdditionalSense {
                code: whole[12],
                qualifier: whole[13],
            },
            information: bit(whole[0], 7).then(|| u64::from(u32_at(&whole, 3))),
            command_specific: (command_specific != 0).then(|| u64::from(command_specific)),
            specific: KeySpecific::parse(key, [whole[15], whole[16], whole[17]]),
            deferred: bit(whole[0], 0),
        })
    }

    fn parse_descriptors(bytes: &[u8]) -> Result<Self, SenseError> {
        if bytes.len() < DESCRIPTORS_OFFSET {
            return Err(SenseError::TooShort(bytes.len()));
        }
        let additional = AdditionalSense {
            code: bytes[2],
            qualifier: bytes[3],
        };
        let mut sense = Self::new(SenseKey::from_low_bits(bytes[1]), additional);
        sense.deferred = bit(bytes[0], 0);
        let end = bytes.len().min(DESCRIPTORS_OFFSET + usize::from(bytes[7]));
        let mut rest = &bytes[DESCRIPTORS_OFFSET..end];
        while let [kind, length, ..] = *rest {
            let Some((descriptor, after)) = rest.split_at_checked(2 + usize::from(length)) else {
                break;
            };
            sense.take_descriptor(kind, descriptor);
            rest = after;
        }
        Ok(sense)
    }

    fn take_descriptor(&mut self, kind: u8, descriptor: &[u8]) {
        match kind {
            INFORMATION_TYPE if descriptor.len() >= 12 && bit(descriptor[2], 7) => {
                self.information = Some(u64_at(descriptor, 4));
            }
            COMMAND_SPECIFIC_TYPE if descriptor.len() >= 12 => {
                self.command_specific = Some(u64_at(descriptor, 4));
            }
            KEY_SPECIFIC_TYPE if descriptor.len() >= 7 => {
                let bytes = [descriptor[4], descriptor[5], descriptor[6]];
                self.specific = KeySpecific::parse(self.key, bytes);
            }
            _ => {}
        }
    }
}

const SKSV: u8 = 0x80;

impl KeySpecific {
    fn encode(self) -> [u8; 3] {
        let of_place = |flag_bit: u8, byte: u16, bit: Option<u8>| {
            let pointer = bit.map_or(0, |bit| 0x08 | bit & 0x07);
            let [high, low] = byte.to_be_bytes();
            [SKSV | flag_bit | pointer, high, low]
        };
        match self {
            Self::Field(field) => of_place(flag(field.in_cdb, 6), field.byte, field.bit),
            Self::Segment {
                in_segment,
                byte,
                bit,
            } => of_place(flag(in_segment, 5), byte, bit),
            Self::Progress(value) | Self::Retries(value) => {
                let [high, low] = value.to_be_bytes();
                [SKSV, high, low]
            }
            Self::Overflow(overflow) => [SKSV | flag(overflow, 0), 0, 0],
        }
    }

    fn parse(key: SenseKey, bytes: [u8; 3]) -> Option<Self> {
        if !bit(bytes[0], 7) {
            return None;
        }
        let value = u16_at(&bytes, 1);
        let place = bit(bytes[0], 3).then_some(bytes[0] & 0x07);
        match key {
            SenseKey::IllegalRequest => Some(Self::Field(FieldPointer {
                in_cdb: bit(bytes[0], 6),
                byte: value,
                bit: place,
            })),
            SenseKey::NoSense | SenseKey::NotReady => Some(Self::Progress(value)),
            SenseKey::CopyAborted => Some(Self::Segment {
                in_segment: bit(bytes[0], 5),
                byte: value,
                bit: place,
            }),
            SenseKey::RecoveredError | SenseKey::MediumError | SenseKey::HardwareError => {
                Some(Self::Retries(value))
            }
            SenseKey::UnitAttention => Some(Self::Overflow(bit(bytes[0], 0))),
            _ => None,
        }
    }
}
