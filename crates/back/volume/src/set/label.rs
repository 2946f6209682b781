//! The label of a member: which set it belongs to, and where in it.

use weir_block::size::Size;

use super::{KINDS, Kind, kind_of};

/// Bytes that a label begins with.
const MAGIC_BYTES: usize = 16;
/// The version of the layout.
const VERSION: u32 = 1;
/// Bytes of a label.
pub(crate) const LABEL_BYTES: usize = 4096;
/// Where a member's data begins, in bytes: the label's place, and room to keep chunks aligned to what media erase at once.
pub(crate) const DATA_OFFSET: u64 = 1 << 20;
/// Members of a set at most.
pub(crate) const MEMBERS_MAX: usize = 128;
/// Bytes that the checksum is of: all but itself.
const CHECKED: usize = LABEL_BYTES - 4;

/// The label of one member.
///
/// It occupies the first 4096 bytes of the member. Numbers are little-endian:
///
/// | bytes | field |
/// |---|---|
/// | 0..16 | magic: `Weir`, a space, the kind of set (`stripe`, `concat`), 0, CR, LF, 0x1A, LF |
/// | 16..20 | version of this layout: 1 |
/// | 20..24 | the member's index in the set, from 0 |
/// | 24..40 | UUID of the set |
/// | 40..44 | members of the set |
/// | 44..48 | bytes of a block |
/// | 48..56 | bytes of a chunk |
/// | 56..64 | bytes of data that the set uses of this member: a multiple of the chunk; of a stripe the same for all |
/// | 64..72 | where the data begins on the member, in bytes |
/// | 72..4092 | zero |
/// | 4092..4096 | CRC-32C of all bytes before |
///
/// Nothing but the label is written when a set is made, and the label never changes afterwards, so that a set cannot be in
/// part of one state and in part of another. Members are labelled from the last to the first, each durably before the
/// next: whatever interrupts that, a set exists if and only if member 0 carries its label, for then all the others do. A
/// set that was not finished is refused with the members it lacks, and making it anew finds its labels and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Label {
    /// The scheme of its kind.
    pub(crate) scheme: &'static str,
    pub(crate) set: [u8; 16],
    pub(crate) index: u32,
    pub(crate) members: u32,
    pub(crate) block_bytes: u32,
    pub(crate) chunk_bytes: u64,
    pub(crate) data_bytes: u64,
    pub(crate) data_offset: u64,
}

/// Why bytes are no label.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoLabel {
    #[error("it carries no label of a set")]
    Magic,
    #[error(
        "its {scheme} label is damaged: the checksum is {found:#010x} and should be {expected:#010x}"
    )]
    Checksum {
        scheme: &'static str,
        found: u32,
        expected: u32,
    },
    #[error("its {scheme} label has version {version}, and this program knows version {VERSION}")]
    Version { scheme: &'static str, version: u32 },
    #[error("its {scheme} label contradicts itself: {what}")]
    Contradiction { scheme: &'static str, what: String },
}

/// What the labels of a kind begin with.
pub(crate) fn magic(kind: &dyn Kind) -> [u8; MAGIC_BYTES] {
    let mut magic = *b"Weir ......\0\r\n\x1a\n";
    magic[5..11].copy_from_slice(kind.scheme().as_bytes());
    magic
}

/// The kind of set that a member of is known by these bytes, at its start.
pub(crate) fn kind_of_member(bytes: &[u8]) -> Option<&'static dyn Kind> {
    let mut kinds = KINDS.iter().copied();
    kinds.find(|kind| bytes.starts_with(&magic(*kind)))
}

impl Label {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(LABEL_BYTES);
        let kind = kind_of(self.scheme).expect("a label is of a kind that there is");
        bytes.extend(magic(kind));
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(self.index.to_le_bytes());
        bytes.extend(self.set);
        bytes.extend(self.members.to_le_bytes());
        bytes.extend(self.block_bytes.to_le_bytes());
        bytes.extend(self.chunk_bytes.to_le_bytes());
        bytes.extend(self.data_bytes.to_le_bytes());
        bytes.extend(self.data_offset.to_le_bytes());
        bytes.resize(CHECKED, 0);
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        assert_eq!(bytes.len(), LABEL_BYTES, "a label fills its place");
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, NoLabel> {
        if bytes.len() != LABEL_BYTES {
            return Err(NoLabel::Magic);
        }
        let scheme = kind_of_member(bytes).ok_or(NoLabel::Magic)?.scheme();
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let (found, expected) = (u32_at(CHECKED), crc32c::crc32c(&bytes[..CHECKED]));
        if found != expected {
            return Err(NoLabel::Checksum {
                scheme,
                found,
                expected,
            });
        }
        let version = u32_at(16);
        if version != VERSION {
            return Err(NoLabel::Version { scheme, version });
        }
        let label = Label {
            scheme,
            index: u32_at(20),
            set: bytes[24..40].try_into().expect("16 bytes"),
            members: u32_at(40),
            block_bytes: u32_at(44),
            chunk_bytes: u64_at(48),
            data_bytes: u64_at(56),
            data_offset: u64_at(64),
        };
        label.check()?;
        Ok(label)
    }

    fn check(&self) -> Result<(), NoLabel> {
        let contradiction = |what: String| {
            Err(NoLabel::Contradiction {
                scheme: self.scheme,
                what,
            })
        };
        if self.members == 0 || self.members as usize > MEMBERS_MAX || self.index >= self.members {
            return contradiction(format!("member {} of {}", self.index, self.members));
        }
        let block = u64::from(self.block_bytes);
        let known_block = weir_block::BlockSize::from_bytes(block).is_some();
        if !known_block || self.chunk_bytes == 0 || !self.chunk_bytes.is_multiple_of(block) {
            return contradiction(format!(
                "chunks of {} bytes in blocks of {block}",
                self.chunk_bytes
            ));
        }
        if self.data_bytes == 0
            || !self.data_bytes.is_multiple_of(self.chunk_bytes)
            || !self.data_offset.is_multiple_of(block)
            || self.data_offset < LABEL_BYTES as u64
            || self.data_bytes.checked_add(self.data_offset).is_none()
        {
            return contradiction(format!(
                "{} bytes of data from byte {}, in chunks of {}",
                self.data_bytes, self.data_offset, self.chunk_bytes
            ));
        }
        Ok(())
    }

    /// Whether the other label is one of the same set.
    pub(crate) fn is_same_set(&self, other: &Label) -> bool {
        let is_even = kind_of(self.scheme).is_some_and(Kind::is_even);
        Label {
            index: other.index,
            data_bytes: match is_even {
                true => self.data_bytes,
                false => other.data_bytes,
            },
            ..*self
        } == *other
    }

    /// The set in words.
    pub(crate) fn set_name(&self) -> String {
        let hex: Vec<_> = self.set.iter().map(|byte| format!("{byte:02x}")).collect();
        let chunks = match kind_of(self.scheme).is_some_and(Kind::is_even) {
            true => format!(" with chunks of {}", Size(self.chunk_bytes)),
            false => String::new(),
        };
        let (scheme, members) = (self.scheme, self.members);
        format!("the {scheme} {} of {members} members{chunks}", hex.concat())
    }
}

/// Reads the label in these bytes and writes it again; none where they hold none. For fuzzing.
#[doc(hidden)]
#[must_use]
pub fn read_label(bytes: &[u8]) -> Option<Vec<u8>> {
    let label = Label::decode(bytes).ok()?;
    let _ = label.set_name();
    Some(label.encode())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABEL: Label = Label {
        scheme: "stripe",
        set: *b"0123456789abcdef",
        index: 1,
        members: 3,
        block_bytes: 4096,
        chunk_bytes: 131_072,
        data_bytes: 1 << 30,
        data_offset: DATA_OFFSET,
    };

    #[test]
    fn a_label_is_these_bytes() {
        let bytes = LABEL.encode();
        assert_eq!(&bytes[..20], b"Weir stripe\0\r\n\x1a\n\x01\0\0\0");
        assert_eq!(&bytes[20..40], b"\x01\0\0\x000123456789abcdef");
        assert_eq!(&bytes[40..48], &[3, 0, 0, 0, 0, 0x10, 0, 0]);
        assert_eq!(&bytes[48..56], &[0, 0, 2, 0, 0, 0, 0, 0]);
        assert_eq!(&bytes[56..64], &[0, 0, 0, 0x40, 0, 0, 0, 0]);
        assert_eq!(&bytes[64..72], &[0, 0, 0x10, 0, 0, 0, 0, 0]);
        assert!(bytes[72..CHECKED].iter().all(|&byte| byte == 0));
        assert_eq!(Label::decode(&bytes), Ok(LABEL));
    }

    #[test]
    fn damage_is_seen_wherever_it_is() {
        let bytes = LABEL.encode();
        for at in 0..LABEL_BYTES {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            assert!(Label::decode(&damaged).is_err(), "byte {at}");
        }
        assert_eq!(Label::decode(&[0; LABEL_BYTES]), Err(NoLabel::Magic));
    }

    #[test]
    fn contradictions_are_refused() {
        let wrong = [
            Label { index: 3, ..LABEL },
            Label {
                members: 0,
                ..LABEL
            },
            Label {
                members: 1000,
                ..LABEL
            },
            Label {
                block_bytes: 1000,
                ..LABEL
            },
            Label {
                chunk_bytes: 5000,
                ..LABEL
            },
            Label {
                chunk_bytes: 0,
                ..LABEL
            },
            Label {
                data_bytes: 4096,
                ..LABEL
            },
            Label {
                data_offset: 0,
                ..LABEL
            },
            Label {
                data_bytes: u64::MAX - 131_071,
                ..LABEL
            },
        ];
        for label in wrong {
            let decoded = Label::decode(&label.encode());
            assert!(
                matches!(decoded, Err(NoLabel::Contradiction { .. })),
                "{label:?}"
            );
        }
    }
}
