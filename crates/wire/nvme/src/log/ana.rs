//! Asymmetric Namespace Access, page 0Ch (NVMe Base 2.0c section 5.16.1.13).

use crate::wire::{get, open_enum, put};
use thiserror::Error;

/// Bytes of the page's header.
pub const ANA_HEADER_SIZE: usize = 16;
/// Bytes of a group descriptor, its namespaces not counted.
pub const ANA_DESCRIPTOR_SIZE: usize = 32;
/// Bytes of one NSID.
const NSID_SIZE: usize = 4;

open_enum! {
    /// Asymmetric Namespace Access State, bits 3:0 of byte 16 of a descriptor.
    pub enum AnaState: u8 {
        /// 01h.
        Optimized = 0x01 => "ANA Optimized state",
        /// 02h.
        NonOptimized = 0x02 => "ANA Non-Optimized state",
        /// 03h.
        Inaccessible = 0x03 => "ANA Inaccessible state",
        /// 04h.
        PersistentLoss = 0x04 => "ANA Persistent Loss state",
        /// 0Fh.
        Change = 0x0f => "ANA Change state",
    }
}

/// One ANA group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AnaGroup {
    /// ANA Group ID, from 1.
    pub id: u32,
    /// Change Count of the group; 0 is not reported.
    pub change_count: u64,
    /// State of this controller's access to the group's namespaces.
    pub state: AnaState,
    /// The group's namespaces, rising; left out where the host asked for groups only.
    pub namespaces: Vec<u32>,
}

/// The page for these groups, which must rise by ID; with `groups_only` (RGO, bit 0 of LSP) no
/// namespaces are listed.
pub fn encode_ana_log(change_count: u64, groups: &[AnaGroup], groups_only: bool) -> Vec<u8> {
    assert!(
        groups.is_sorted_by(|one, next| one.id < next.id),
        "groups are listed by rising ID"
    );
    let count = u16::try_from(groups.len()).expect("the number of ANA groups has 16 bits");
    let mut page = vec![0; ANA_HEADER_SIZE];
    put(&mut page, 0, change_count);
    put(&mut page, 8, count);
    for group in groups {
        append_group(&mut page, group, groups_only);
    }
    page
}

fn append_group(page: &mut Vec<u8>, group: &AnaGroup, groups_only: bool) {
    let namespaces = if groups_only {
        &[]
    } else {
        &group.namespaces[..]
    };
    let mut descriptor = [0; ANA_DESCRIPTOR_SIZE];
    put(&mut descriptor, 0, group.id);
    put(&mut descriptor, 4, namespaces.len() as u32);
    put(&mut descriptor, 8, group.change_count);
    put(&mut descriptor, 16, group.state.value() & 0xf);
    page.extend(descriptor);
    for nsid in namespaces {
        page.extend(nsid.to_le_bytes());
    }
}

/// Why an ANA log page cannot be read: it says more than the bytes that were given hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the ANA log page ends at byte {length} within the part that starts at byte {offset}")]
pub struct AnaLogError {
    /// Byte where the part starts.
    pub offset: usize,
    /// Bytes of the page that were given.
    pub length: usize,
}

/// The change count and the groups of a page.
///
/// # Errors
/// The bytes end within the header, a descriptor or its list of namespaces.
pub fn decode_ana_log(page: &[u8]) -> Result<(u64, Vec<AnaGroup>), AnaLogError> {
    let part = |offset: usize, length: usize| {
        let end = offset.saturating_add(length);
        page.get(offset..end).ok_or(AnaLogError {
            offset,
            length: page.len(),
        })
    };
    let header = part(0, ANA_HEADER_SIZE)?;
    let count: u16 = get(header, 8);
    let mut offset = ANA_HEADER_SIZE;
    let mut groups = Vec::new();
    for _ in 0..count {
        let descriptor = part(offset, ANA_DESCRIPTOR_SIZE)?;
        let namespaces = get::<u32>(descriptor, 4) as usize;
        // The list is taken from the page before anything is allocated for it.
        let list = part(
            offset + ANA_DESCRIPTOR_SIZE,
            namespaces.saturating_mul(NSID_SIZE),
        )?;
        groups.push(AnaGroup {
            id: get(descriptor, 0),
            change_count: get(descriptor, 8),
            state: AnaState::from_value(get::<u8>(descriptor, 16) & 0xf),
            namespaces: list
                .chunks_exact(NSID_SIZE)
                .map(|nsid| get(nsid, 0))
                .collect(),
        });
        offset += ANA_DESCRIPTOR_SIZE + list.len();
    }
    Ok((get(header, 0), groups))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn groups() -> Vec<AnaGroup> {
        vec![
            AnaGroup {
                id: 1,
                change_count: 0x0102,
                state: AnaState::Optimized,
                namespaces: vec![1, 0x0203],
            },
            AnaGroup {
                id: 7,
                change_count: 0,
                state: AnaState::Change,
                namespaces: vec![],
            },
        ]
    }

    #[test]
    fn the_page_is_laid_out_as_the_specification_says() {
        let mut expected = vec![9, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];
        expected.extend([1, 0, 0, 0, 2, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 1]);
        expected.extend([0; 15]);
        expected.extend([1, 0, 0, 0, 3, 2, 0, 0]);
        expected.extend([7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xf]);
        expected.extend([0; 15]);
        let page = encode_ana_log(9, &groups(), false);
        assert_eq!(page, expected);
        assert_eq!(decode_ana_log(&page), Ok((9, groups())));
    }

    #[test]
    fn groups_only_lists_no_namespaces() {
        let page = encode_ana_log(9, &groups(), true);
        assert_eq!(page.len(), ANA_HEADER_SIZE + 2 * ANA_DESCRIPTOR_SIZE);
        let (_, read) = decode_ana_log(&page).expect("whole");
        assert!(read.iter().all(|group| group.namespaces.is_empty()));
    }

    #[test]
    fn a_cut_page_is_refused_at_every_length() {
        let page = encode_ana_log(9, &groups(), false);
        for length in 0..page.len() {
            assert!(decode_ana_log(&page[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn a_count_beyond_the_page_allocates_nothing() {
        let mut page = encode_ana_log(9, &groups(), false);
        page[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(
            decode_ana_log(&page),
            Err(AnaLogError {
                offset: 48,
                length: page.len()
            })
        );
    }

    proptest! {
        #[test]
        fn any_bytes_read_without_a_panic(page in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok((_, groups)) = decode_ana_log(&page) {
                let listed: usize = groups.iter().map(|group| group.namespaces.len()).sum();
                let length = ANA_HEADER_SIZE + groups.len() * ANA_DESCRIPTOR_SIZE + listed * NSID_SIZE;
                prop_assert!(length <= page.len());
            }
        }

        #[test]
        fn pages_survive(
            change_count: u64,
            groups in proptest::collection::btree_map(
                any::<u32>(),
                (any::<u64>(), 0_u8..16, proptest::collection::vec(any::<u32>(), 0..5)),
                0..5,
            ),
        ) {
            let groups: Vec<AnaGroup> = groups
                .into_iter()
                .map(|(id, (change_count, state, namespaces))| AnaGroup {
                    id, change_count, state: AnaState::from_value(state), namespaces,
                })
                .collect();
            let page = encode_ana_log(change_count, &groups, false);
            prop_assert_eq!(decode_ana_log(&page), Ok((change_count, groups)));
        }
    }
}
