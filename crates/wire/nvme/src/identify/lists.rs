//! Identify data that is a list: active namespaces (CNS 02h), a namespace's identifiers (CNS 03h), I/O
//! command set combinations (CNS 1Ch).

use super::{COMMAND_SET_NVM, IDENTIFY_SIZE};
use crate::wire::{Field, get, put};
use thiserror::Error;

/// NSIDs in one namespace list (NVMe Base 2.0c section 5.17.2.2).
pub const NAMESPACE_LIST_ENTRIES: usize = IDENTIFY_SIZE / 4;

/// Writes the active namespaces above `after` (the command's NSID) as a namespace list: the lowest
/// 1024 in rising order, the rest of the list zero (NVMe Base 2.0c section 5.17.2.2). `active` must
/// rise.
pub fn encode_namespace_list(
    active: impl IntoIterator<Item = u32>,
    after: u32,
) -> [u8; IDENTIFY_SIZE] {
    let mut list = [0; IDENTIFY_SIZE];
    let mut previous = after;
    let wanted = active.into_iter().filter(|&nsid| nsid > after);
    for (entry, nsid) in list.chunks_exact_mut(4).zip(wanted) {
        assert!(nsid > previous, "namespaces are listed in rising order");
        previous = nsid;
        nsid.put(entry);
    }
    list
}

/// The NSIDs of a namespace list, up to its first zero.
pub fn decode_namespace_list(list: &[u8; IDENTIFY_SIZE]) -> impl Iterator<Item = u32> + '_ {
    list.chunks_exact(4)
        .map(u32::get)
        .take_while(|&nsid| nsid != 0)
}

/// Bytes of an entry of a UUID list; what stands in the place of the first is reserved.
const UUID_ENTRY: usize = 32;

/// The UUID index of `uuid` in a UUID list (CNS 17h), by which a command says whose vendor specific values it means. The list ends with a UUID of
/// zeroes; UUIDs are most significant byte first.
pub fn uuid_index(list: &[u8; IDENTIFY_SIZE], uuid: [u8; 16]) -> Option<u8> {
    let entries = list.chunks_exact(UUID_ENTRY).zip(0_u8..).skip(1);
    entries
        .map(|(entry, index)| (&entry[16..], index))
        .take_while(|(listed, _)| listed.iter().any(|&byte| byte != 0))
        .find(|(listed, _)| *listed == uuid)
        .map(|(_, index)| index)
}

/// Namespace Identifier Type (NIDT) and the length of its identifier (NVMe Base 2.0c section
/// 5.17.2.3).
mod descriptor {
    pub(super) const HEADER: usize = 4;
    pub(super) const EUI64: (u8, usize) = (1, 8);
    pub(super) const NGUID: (u8, usize) = (2, 16);
    pub(super) const UUID: (u8, usize) = (3, 16);
    pub(super) const COMMAND_SET: (u8, usize) = (4, 1);
}

/// Why a descriptor list cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DescriptorError {
    /// A known identifier has another length than its type says.
    #[error("namespace identifier of type {kind} is {length} bytes long, not {expected}")]
    Length {
        /// NIDT.
        kind: u8,
        /// NIDL.
        length: usize,
        /// What NIDL must be.
        expected: usize,
    },
    /// A descriptor runs past the end of the list.
    #[error("namespace identifier descriptor at byte {offset} runs past the end of the list")]
    PastEnd {
        /// Byte where the descriptor starts.
        offset: usize,
    },
}

/// A namespace's identifiers: the Namespace Identification Descriptor list, CNS 03h (NVMe Base 2.0c
/// section 5.17.2.3). Identifiers are most significant byte first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct NamespaceDescriptors {
    /// IEEE Extended Unique Identifier (NIDT 1h).
    pub eui64: Option<[u8; 8]>,
    /// Namespace Globally Unique Identifier (NIDT 2h).
    pub nguid: Option<[u8; 16]>,
    /// Namespace UUID (NIDT 3h).
    pub uuid: Option<[u8; 16]>,
    /// Command Set Identifier (NIDT 4h).
    pub command_set: Option<u8>,
}

impl NamespaceDescriptors {
    /// Descriptors of a namespace of the NVM command set, with those identifiers that are not zero.
    pub fn nvm(uuid: [u8; 16], nguid: [u8; 16], eui64: [u8; 8]) -> Self {
        Self {
            eui64: (eui64 != [0; 8]).then_some(eui64),
            nguid: (nguid != [0; 16]).then_some(nguid),
            uuid: (uuid != [0; 16]).then_some(uuid),
            command_set: Some(COMMAND_SET_NVM),
        }
    }

    /// The list's 4096 bytes.
    pub fn encode(&self) -> [u8; IDENTIFY_SIZE] {
        let mut list = [0; IDENTIFY_SIZE];
        let mut offset = 0;
        let mut append = |(kind, length): (u8, usize), identifier: &[u8]| {
            assert_eq!(identifier.len(), length);
            list[offset] = kind;
            list[offset + 1] = length as u8;
            let start = offset + descriptor::HEADER;
            list[start..start + length].copy_from_slice(identifier);
            offset = start + length;
        };
        if let Some(eui64) = &self.eui64 {
            append(descriptor::EUI64, eui64);
        }
        if let Some(nguid) = &self.nguid {
            append(descriptor::NGUID, nguid);
        }
        if let Some(uuid) = &self.uuid {
            append(descriptor::UUID, uuid);
        }
        if let Some(command_set) = self.command_set {
            append(descriptor::COMMAND_SET, &[command_set]);
        }
        list
    }

    /// Reads a list; descriptors of types that are not known are skipped, and of two of one type the
    /// later counts.
    ///
    /// # Errors
    /// A known identifier of the wrong length, or a descriptor past the end.
    pub fn decode(list: &[u8; IDENTIFY_SIZE]) -> Result<Self, DescriptorError> {
        let mut descriptors = Self::default();
        let mut offset = 0;
        // A length of zero ends the list.
        while offset + descriptor::HEADER <= list.len() && list[offset + 1] != 0 {
            let (kind, length) = (list[offset], usize::from(list[offset + 1]));
            let start = offset + descriptor::HEADER;
            let identifier = list
                .get(start..start + length)
                .ok_or(DescriptorError::PastEnd { offset })?;
            descriptors.keep(kind, identifier)?;
            offset = start + length;
        }
        Ok(descriptors)
    }

    fn keep(&mut self, kind: u8, identifier: &[u8]) -> Result<(), DescriptorError> {
        let check = |(_, expected): (u8, usize)| {
            let length = identifier.len();
            let error = DescriptorError::Length {
                kind,
                length,
                expected,
            };
            if length == expected {
                Ok(())
            } else {
                Err(error)
            }
        };
        if kind == descriptor::EUI64.0 {
            check(descriptor::EUI64)?;
            self.eui64 = Some(get(identifier, 0));
        } else if kind == descriptor::NGUID.0 {
            check(descriptor::NGUID)?;
            self.nguid = Some(get(identifier, 0));
        } else if kind == descriptor::UUID.0 {
            check(descriptor::UUID)?;
            self.uuid = Some(get(identifier, 0));
        } else if kind == descriptor::COMMAND_SET.0 {
            check(descriptor::COMMAND_SET)?;
            self.command_set = Some(identifier[0]);
        }
        Ok(())
    }
}

/// One I/O Command Set combination: bit N is command set N (NVMe Base 2.0c section 5.17.2.21).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CommandSetCombination(pub u64);

impl CommandSetCombination {
    /// The NVM command set alone.
    pub const NVM: Self = Self(1 << COMMAND_SET_NVM);
}

/// The I/O Command Set data structure, CNS 1Ch: up to 512 combinations (NVMe Base 2.0c section
/// 5.17.2.21).
pub struct CommandSetVector;

impl CommandSetVector {
    /// Combinations in the structure.
    pub const ENTRIES: usize = IDENTIFY_SIZE / 8;

    /// The structure's 4096 bytes.
    ///
    /// Panics where there are more than [`Self::ENTRIES`] combinations.
    pub fn encode(combinations: &[CommandSetCombination]) -> [u8; IDENTIFY_SIZE] {
        assert!(
            combinations.len() <= Self::ENTRIES,
            "there are at most 512 combinations"
        );
        let mut bytes = [0; IDENTIFY_SIZE];
        for (index, combination) in combinations.iter().enumerate() {
            put(&mut bytes, index * 8, combination.0);
        }
        bytes
    }

    /// The combinations of a structure, up to its first empty one.
    pub fn decode(bytes: &[u8; IDENTIFY_SIZE]) -> impl Iterator<Item = CommandSetCombination> + '_ {
        let combinations = bytes
            .chunks_exact(8)
            .map(|chunk| CommandSetCombination(u64::get(chunk)));
        combinations.take_while(|combination| combination.0 != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_namespace_list_starts_after_the_commands_nsid() {
        let list = encode_namespace_list([1, 2, 0x0304], 1);
        assert_eq!(list[..12], [2, 0, 0, 0, 4, 3, 0, 0, 0, 0, 0, 0]);
        assert!(decode_namespace_list(&list).eq([2, 0x0304]));
        assert!(decode_namespace_list(&encode_namespace_list(1..=5000, 0)).eq(1..=1024));
        assert!(decode_namespace_list(&encode_namespace_list([], 0)).eq([]));
    }

    #[test]
    fn a_uuid_is_found_by_its_place_in_the_list() {
        let mut list = [0; IDENTIFY_SIZE];
        // What is reserved is no entry, whatever it holds; an entry's header tells who associated it.
        list[16..32].copy_from_slice(b"reserved-as-such");
        list[32] = 2;
        list[48..64].copy_from_slice(b"uuid-of-vendor-1");
        list[80..96].copy_from_slice(b"uuid-of-vendor-2");
        list[144..160].copy_from_slice(b"behind-the-list!");
        assert_eq!(uuid_index(&list, *b"uuid-of-vendor-1"), Some(1));
        assert_eq!(uuid_index(&list, *b"uuid-of-vendor-2"), Some(2));
        for none in [b"reserved-as-such", b"behind-the-list!", &[0; 16]] {
            assert_eq!(uuid_index(&list, *none), None);
        }
        for entry in list.chunks_exact_mut(32).skip(1) {
            entry[16..].fill(1);
        }
        list[4080..].copy_from_slice(b"uuid-of-vendor-2");
        assert_eq!(uuid_index(&list, *b"uuid-of-vendor-2"), Some(127));
    }

    #[test]
    fn descriptors_are_laid_out_as_the_specification_says() {
        let descriptors =
            NamespaceDescriptors::nvm(*b"uuiduuiduuiduuid", *b"nguidnguidnguid!", *b"eui64eui");
        let bytes = descriptors.encode();
        let mut expected = Vec::new();
        expected.extend([1, 8, 0, 0]);
        expected.extend(b"eui64eui");
        expected.extend([2, 16, 0, 0]);
        expected.extend(b"nguidnguidnguid!");
        expected.extend([3, 16, 0, 0]);
        expected.extend(b"uuiduuiduuiduuid");
        expected.extend([4, 1, 0, 0, 0]);
        assert_eq!(bytes[..expected.len()], expected);
        assert!(bytes[expected.len()..].iter().all(|&byte| byte == 0));
        assert_eq!(NamespaceDescriptors::decode(&bytes), Ok(descriptors));
        let absent = NamespaceDescriptors::nvm([0; 16], [0; 16], [0; 8]);
        assert_eq!(absent.encode()[..8], [4, 1, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn bad_descriptors_are_refused_and_unknown_ones_skipped() {
        let mut list = [0; 4096];
        list[..5].copy_from_slice(&[3, 15, 0, 0, 1]);
        assert_eq!(
            NamespaceDescriptors::decode(&list),
            Err(DescriptorError::Length {
                kind: 3,
                length: 15,
                expected: 16
            })
        );
        let mut list = [0; 4096];
        list[..2].copy_from_slice(&[9, 2]);
        list[6..11].copy_from_slice(&[4, 1, 0, 0, 2]);
        assert_eq!(
            NamespaceDescriptors::decode(&list).map(|found| found.command_set),
            Ok(Some(2))
        );
        // Descriptors of 255 bytes: sixteen end at 4144, past the list.
        let mut list = [0; 4096];
        for start in (0..4096).step_by(259) {
            list[start] = 9;
            list[start + 1] = 255;
        }
        assert_eq!(
            NamespaceDescriptors::decode(&list),
            Err(DescriptorError::PastEnd { offset: 3885 })
        );
    }

    #[test]
    fn the_command_set_vector_is_laid_out_as_the_specification_says() {
        let vector = [CommandSetCombination::NVM, CommandSetCombination(0x0102)];
        let bytes = CommandSetVector::encode(&vector);
        assert_eq!(
            bytes[..24],
            [
                1, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
            ]
        );
        assert!(CommandSetVector::decode(&bytes).eq(vector));
    }

    proptest! {
        #[test]
        fn any_list_reads_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 4096)) {
            let list: [u8; 4096] = bytes.try_into().expect("4096 bytes");
            if let Ok(descriptors) = NamespaceDescriptors::decode(&list) {
                prop_assert_eq!(NamespaceDescriptors::decode(&descriptors.encode()), Ok(descriptors));
            }
            prop_assert!(decode_namespace_list(&list).count() <= NAMESPACE_LIST_ENTRIES);
            prop_assert!(CommandSetVector::decode(&list).count() <= CommandSetVector::ENTRIES);
        }

        #[test]
        fn descriptors_survive(
            eui64: Option<[u8; 8]>, nguid: Option<[u8; 16]>, uuid: Option<[u8; 16]>,
            command_set: Option<u8>,
        ) {
            let descriptors = NamespaceDescriptors { eui64, nguid, uuid, command_set };
            prop_assert_eq!(NamespaceDescriptors::decode(&descriptors.encode()), Ok(descriptors));
        }
    }
}
