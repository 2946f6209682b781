//! What a medium carries, by the marks that partition tables, file systems and volume managers leave at fixed places.
//!
//! A tool that is about to overwrite a volume reads its first [`HEAD_BYTES`] and last [`TAIL_BYTES`] and asks [`contents`], or
//! has [`contents_of`] do both. No mark found does not mean that the volume is empty, only that nothing well known is on it.

use std::sync::Arc;

use weir_block::{Operation, ReadBuffers, Volume, VolumeError};
use weir_reactor::Reactor;

use crate::call::Caller;

/// Bytes at the start of a volume that are looked at.
pub const HEAD_BYTES: usize = 256 << 10;
/// Bytes at the end of a volume that are looked at.
pub const TAIL_BYTES: usize = 128 << 10;

/// A mark at a fixed place of the head.
struct Mark {
    what: &'static str,
    offset: usize,
    bytes: &'static [u8],
}

const fn mark(what: &'static str, offset: usize, bytes: &'static [u8]) -> Mark {
    Mark {
        what,
        offset,
        bytes,
    }
}

/// Sources: the on-disk format documents of each, and util-linux's libblkid, which looks at the same places.
const MARKS: &[Mark] = &[
    mark("a member of a Weir stripe", 0, &crate::stripe::label::MAGIC),
    mark("a GUID partition table", 512, b"EFI PART"),
    mark("a GUID partition table", 4096, b"EFI PART"),
    mark("an XFS file system", 0, b"XFSB"),
    mark("an ext2, ext3 or ext4 file system", 1080, &[0x53, 0xEF]),
    mark("a Btrfs file system", 65_600, b"_BHRfS_M"),
    mark("an F2FS file system", 1024, &[0x10, 0x20, 0xF5, 0xF2]),
    mark("a ReiserFS file system", 65_588, b"ReIsEr"),
    mark("a JFS file system", 32_768, b"JFS1"),
    mark("a SquashFS file system", 0, b"hsqs"),
    mark("an ISO 9660 file system", 32_769, b"CD001"),
    mark("an NTFS file system", 3, b"NTFS    "),
    mark("an exFAT file system", 3, b"EXFAT   "),
    mark("a FAT file system", 54, b"FAT12   "),
    mark("a FAT file system", 54, b"FAT16   "),
    mark("a FAT file system", 82, b"FAT32   "),
    mark("a bcachefs file system", 4120, &BCACHE_MAGIC),
    mark("a swap area", 4086, b"SWAPSPACE2"),
    mark("a swap area", 4086, b"SWAP-SPACE"),
    // Pages of 16 and 64 KiB.
    mark("a swap area", 16_374, b"SWAPSPACE2"),
    mark("a swap area", 65_526, b"SWAPSPACE2"),
    mark("an LVM physical volume", 0, b"LABELONE"),
    mark("an LVM physical volume", 512, b"LABELONE"),
    mark("an LVM physical volume", 1024, b"LABELONE"),
    mark("an LVM physical volume", 1536, b"LABELONE"),
    mark("a LUKS container", 0, b"LUKS\xBA\xBE"),
    // LUKS2 keeps a second header, with a magic of its own.
    mark("a LUKS container", 16_384, b"SKUL\xBA\xBE"),
    mark("a member of an MD RAID", 0, &MD_MAGIC),
    mark("a member of an MD RAID", 4096, &MD_MAGIC),
    mark("a Ceph OSD", 0, b"bluestore block device"),
];

/// bcache and bcachefs share a magic (Linux, `include/uapi/linux/bcache.h`).
const BCACHE_MAGIC: [u8; 16] = [
    0xC6, 0x85, 0x73, 0xF6, 0x4E, 0x1A, 0x45, 0xCA, 0x82, 0x65, 0xF5, 0x7F, 0x48, 0xBA, 0x6D, 0x81,
];
/// `MD_SB_MAGIC`, 0xa92b4efc, little-endian (Linux, `include/uapi/linux/raid/md_p.h`).
const MD_MAGIC: [u8; 4] = [0xFC, 0x4E, 0x2B, 0xA9];
/// The uberblock magic of ZFS, 0x00bab10c, in either byte order.
const ZFS_MAGICS: [[u8; 8]; 2] = [0x00BA_B10C_u64.to_le_bytes(), 0x00BA_B10C_u64.to_be_bytes()];

/// What is on a volume whose first and last bytes are `head` and `tail` (shorter than [`HEAD_BYTES`] and [`TAIL_BYTES`] only where
/// the volume is). `None`: nothing that is known.
#[must_use]
pub fn contents(head: &[u8], tail: &[u8]) -> Option<&'static str> {
    let marked = MARKS.iter().find(|mark| has(head, mark.offset, mark.bytes));
    marked
        .map(|mark| mark.what)
        .or_else(|| has_zfs_uberblock(head).then_some("a member of a ZFS pool"))
        .or_else(|| contents_of_tail(tail))
        .or_else(|| has_partitions(head).then_some("an MBR partition table"))
}

/// What is on a volume, by reading where marks are. It needs a queue of depth 1 for a moment.
///
/// # Errors
/// What opening a queue, or reading, failed with.
pub async fn contents_of(
    reactor: &Reactor,
    volume: &Arc<dyn Volume>,
) -> Result<Option<&'static str>, VolumeError> {
    let geometry = volume.geometry();
    let in_blocks = |bytes: usize| (bytes >> geometry.block_size.shift()) as u64;
    let head = in_blocks(HEAD_BYTES).min(geometry.blocks);
    let tail = in_blocks(TAIL_BYTES).min(geometry.blocks);
    let caller = Caller::open(volume, reactor)?;
    let transfer = u64::from(geometry.transfer_blocks_max);
    let head = read(&caller, 0..head, transfer).await?;
    let tail = read(&caller, geometry.blocks - tail..geometry.blocks, transfer).await?;
    Ok(contents(&head, &tail))
}

/// Reads blocks, in as many transfers as it takes.
async fn read(
    caller: &Caller,
    blocks: std::ops::Range<u64>,
    transfer: u64,
) -> Result<Vec<u8>, VolumeError> {
    let mut bytes = Vec::new();
    let mut next = blocks.start;
    while next < blocks.end {
        let length = (blocks.end - next).min(transfer);
        let read = Operation::Read {
            lba: next,
            blocks: u32::try_from(length).expect("a transfer is bounded"),
            buffers: ReadBuffers::Lend,
        };
        bytes.extend_from_slice(&caller.read(read).await?);
        next += length;
    }
    Ok(bytes)
}

fn has(bytes: &[u8], offset: usize, mark: &[u8]) -> bool {
    bytes
        .get(offset..offset + mark.len())
        .is_some_and(|found| found == mark)
}

/// A ZFS label's uberblocks lie from 128 KiB on, 1 KiB apart.
fn has_zfs_uberblock(head: &[u8]) -> bool {
    let slots = (128 << 10..head.len()).step_by(1024);
    slots
        .into_iter()
        .any(|at| ZFS_MAGICS.iter().any(|magic| has(head, at, magic)))
}

/// The backup header of a GUID partition table is the last block; an MD superblock of version 1.0 or 0.90 is 4 KiB aligned.
fn contents_of_tail(tail: &[u8]) -> Option<&'static str> {
    for block in [512, 4096] {
        if tail.len() >= block && has(tail, tail.len() - block, b"EFI PART") {
            return Some("the backup of a GUID partition table");
        }
    }
    let mut superblocks = (0..tail.len()).step_by(4096);
    superblocks
        .any(|at| has(tail, at, &MD_MAGIC))
        .then_some("a member of an MD RAID")
}

/// The signature alone is found in every boot sector; a table also has an entry with a type, and no entry with a strange status.
fn has_partitions(head: &[u8]) -> bool {
    const TABLE: usize = 446;
    const ENTRY_LEN: usize = 16;
    if !has(head, 510, &[0x55, 0xAA]) {
        return false;
    }
    let entries = head[TABLE..510].chunks_exact(ENTRY_LEN);
    let plausible = entries.clone().all(|entry| matches!(entry[0], 0x00 | 0x80));
    plausible && entries.into_iter().any(|entry| entry[4] != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blank() -> (Vec<u8>, Vec<u8>) {
        (vec![0; HEAD_BYTES], vec![0; TAIL_BYTES])
    }

    #[test]
    fn an_empty_or_short_volume_carries_nothing() {
        let (head, tail) = blank();
        assert_eq!(contents(&head, &tail), None);
        assert_eq!(contents(&[], &[]), None);
        assert_eq!(contents(&[0; 512], &[0; 512]), None);
    }

    #[test]
    fn every_mark_is_found_where_it_is_and_not_next_to_it() {
        for mark in MARKS {
            let (mut head, tail) = blank();
            head[mark.offset..mark.offset + mark.bytes.len()].copy_from_slice(mark.bytes);
            assert_eq!(contents(&head, &tail), Some(mark.what));
            head.insert(0, 0);
            head.truncate(HEAD_BYTES);
            assert_eq!(
                contents(&head, &tail),
                None,
                "{} moved by a byte",
                mark.what
            );
        }
    }

    #[test]
    fn a_backup_partition_table_is_found_with_the_head_wiped() {
        for block in [512, 4096] {
            let (head, mut tail) = blank();
            let at = TAIL_BYTES - block;
            tail[at..at + 8].copy_from_slice(b"EFI PART");
            assert_eq!(
                contents(&head, &tail),
                Some("the backup of a GUID partition table")
            );
        }
    }

    #[test]
    fn a_boot_signature_without_partitions_is_no_table() {
        let (mut head, tail) = blank();
        head[510..512].copy_from_slice(&[0x55, 0xAA]);
        assert_eq!(contents(&head, &tail), None);
        head[446 + 16 + 4] = 0x83;
        assert_eq!(contents(&head, &tail), Some("an MBR partition table"));
        head[446] = 0x37;
        assert_eq!(contents(&head, &tail), None);
    }

    #[test]
    fn zfs_is_found_in_either_byte_order() {
        for magic in ZFS_MAGICS {
            let (mut head, tail) = blank();
            head[132 << 10..(132 << 10) + 8].copy_from_slice(&magic);
            assert_eq!(contents(&head, &tail), Some("a member of a ZFS pool"));
        }
    }
}
