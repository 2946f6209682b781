//! What a medium carries, by the marks that partition tables, file systems and volume managers leave at fixed places, and what has
//! hold of it on this machine.
//!
//! A tool that is about to overwrite a volume asks [`contents_of`], which reads its first [`HEAD_BYTES`] and last [`TAIL_BYTES`], and
//! [`holders_of`]. No mark found does not mean that the volume is empty, only that nothing well known is on it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use weir_block::{Operation, ReadBuffers, Volume, VolumeError};
use weir_reactor::Reactor;

use crate::call::Caller;
use crate::{VolumeUrl, set};

/// Bytes at the start of a volume that are looked at.
pub const HEAD_BYTES: usize = (2 << 20) + 4096;
/// Bytes at the end of a volume that are looked at.
pub const TAIL_BYTES: usize = 768 << 10;

/// A thing, the places where its mark may be, in bytes from the start or before the end, and the mark.
type Mark = (&'static str, &'static [usize], &'static [u8]);

const PARTITION_TABLE: &str = "an MBR partition table";
const GPT: &str = "a GUID partition table";
const EXT: &str = "an ext2, ext3 or ext4 file system";
const MINIX: &str = "a Minix file system";
const MEMBER: &str = "a member of a set of Weir's";
const MD: &str = "a member of an MD RAID";
const ZFS: &str = "a member of a ZFS pool";
const DRBD: &str = "a DRBD device";
const SUN: &str = "a Sun disk label";

/// Sources: the on-disk format documents of each, and util-linux's libblkid, which looks at the same places. Marks of two bytes are
/// not here: what is random has one every so often, and more must fit.
const MARKS: &[Mark] = &[
    // Partition tables.
    (GPT, &[512, 4096], b"EFI PART"),
    ("an Apple partition map", &[512], b"PM\0\0"),
    ("a BSD disk label", &[512], &[0x57, 0x45, 0x56, 0x82]),
    ("an SGI disk label", &[0], &[0x0B, 0xE5, 0xA9, 0x41]),
    ("a Windows dynamic disk", &[3072], b"PRIVHEAD"),
    // File systems.
    ("an XFS file system", &[0], b"XFSB"),
    ("a Btrfs file system", &[65_600], b"_BHRfS_M"),
    ("an F2FS file system", &[1024], &[0x10, 0x20, 0xF5, 0xF2]),
    ("a ReiserFS file system", &[65_588, 8244], b"ReIsEr"),
    ("a Reiser4 file system", &[65_536], b"ReIsEr4"),
    ("a JFS file system", &[32_768], b"JFS1"),
    (
        "a NILFS2 file system",
        &[1024],
        &[2, 0, 0, 0, 0, 0, 0x34, 0x34],
    ),
    ("an OCFS2 file system", &[1024, 2048, 4096, 8192], b"OCFSV2"),
    ("a GFS2 file system", &[65_536], &[0x01, 0x16, 0x19, 0x70]),
    ("a UFS file system", &[9564], &0x0001_1954_u32.to_le_bytes()),
    (
        "a UFS file system",
        &[66_908],
        &0x1954_0119_u32.to_le_bytes(),
    ),
    ("an EROFS file system", &[1024], &[0xE2, 0xE1, 0xF5, 0xE0]),
    ("a SquashFS file system", &[0], b"hsqs"),
    ("a SquashFS file system", &[0], b"sqsh"),
    ("a CramFS file system", &[0], &[0x45, 0x3D, 0xCD, 0x28]),
    ("a CramFS file system", &[0], &[0x28, 0xCD, 0x3D, 0x45]),
    ("a romfs file system", &[0], b"-rom1fs-"),
    ("a zonefs file system", &[0], b"SFOZ"),
    ("an ISO 9660 file system", &[32_769], b"CD001"),
    ("a UDF file system", &[32_769], b"BEA01"),
    ("an NTFS file system", &[3], b"NTFS    "),
    ("an exFAT file system", &[3], b"EXFAT   "),
    ("a ReFS file system", &[3], b"ReFS\0\0\0\0"),
    ("a BitLocker volume", &[3], b"-FVE-FS-"),
    ("a FAT file system", &[54], b"FAT12   "),
    ("a FAT file system", &[54], b"FAT16   "),
    ("a FAT file system", &[82], b"FAT32   "),
    ("an HFS+ file system", &[1024], b"H+\0\x04"),
    ("an HFS+ file system", &[1024], b"HX\0\x05"),
    ("an APFS container", &[32], b"NXSB"),
    ("a VMFS volume", &[1 << 20], &[0x0D, 0xD0, 0x01, 0xC0]),
    ("a VMFS file system", &[2 << 20], &[0x5E, 0xF1, 0xAB, 0x2F]),
    ("a bcachefs file system", &[4120], &BCACHEFS_MAGIC),
    (
        "a bcache device or a bcachefs file system",
        &[4120],
        &BCACHE_MAGIC,
    ),
    // Swap areas, for pages of 4 to 64 KiB, and suspended systems in them.
    ("a swap area", &[4086], b"SWAPSPACE2"),
    ("a swap area", &[4086], b"SWAP-SPACE"),
    (
        "a swap area",
        &[8182, 16_374, 32_758, 65_526],
        b"SWAPSPACE2",
    ),
    ("a suspended system", &[4086], b"S1SUSPEND"),
    ("a suspended system", &[4086], b"S2SUSPEND"),
    ("a suspended system", &[4086], b"ULSUSPEND"),
    ("a suspended system", &[4086], b"LINHIB0001"),
    ("a recorder's ring", &[0, 64 << 10], b"WEIRRING"),
    // Volume managers, encryption, RAID.
    ("an LVM physical volume", &[0, 512, 1024, 1536], b"LABELONE"),
    ("an LVM physical volume", &[0], b"HM\x01\0"),
    ("an LVM physical volume", &[0], b"HM\x02\0"),
    ("an LVM snapshot store", &[0], b"SnAp"),
    ("a LUKS container", &[0], b"LUKS\xBA\xBE"),
    // LUKS2 keeps a second header, with a magic of its own.
    ("a LUKS container", &[16_384], b"SKUL\xBA\xBE"),
    ("a dm-verity device", &[0], b"verity\0\0"),
    ("a dm-integrity device", &[0], b"integrt\0"),
    ("a VDO device", &[0], b"dmvdo001"),
    ("a Stratis device", &[516, 4612], STRATIS_MAGIC),
    (MD, &[0, 4096], &MD_MAGIC),
    ("a Ceph OSD", &[0], b"bluestore block device"),
    ("an Oracle ASM disk", &[32], b"ORCLDISK"),
    // Files that hold a disk in a form of their own.
    ("a QCOW image", &[0], b"QFI\xFB"),
    ("a VMDK image", &[0], b"KDMV"),
    ("a VDI image", &[64], &[0x7F, 0x10, 0xDA, 0xBE]),
    ("a VHDX image", &[0], b"vhdxfile"),
    ("a VHD image", &[0], b"conectix"),
];

/// Where the magic of DRBD's metadata is, which are in the last 4 KiB (drbd_meta_data.h; the same in versions 8 and 9).
const DRBD_MAGIC_BEFORE_END: usize = 4096 - 60;

/// Their places are so many bytes before the end.
const TAIL_MARKS: &[Mark] = &[
    (
        "the backup of a GUID partition table",
        &[512, 4096],
        b"EFI PART",
    ),
    // DRBD_MD_MAGIC_08, _84_UNCLEAN and _09, big-endian.
    (DRBD, &[DRBD_MAGIC_BEFORE_END], &[0x83, 0x74, 0x02, 0x6B]),
    (DRBD, &[DRBD_MAGIC_BEFORE_END], &[0x83, 0x74, 0x02, 0x6C]),
    (DRBD, &[DRBD_MAGIC_BEFORE_END], &[0x83, 0x74, 0x02, 0x6D]),
    (
        "a member of an Intel RAID",
        &[1024],
        b"Intel Raid ISM Cfg Sig. ",
    ),
    // The anchor of SNIA's DDF, in either byte order.
    ("a member of a DDF RAID", &[512], &[0xDE, 0x11, 0xDE, 0x11]),
    ("a member of a DDF RAID", &[512], &[0x11, 0xDE, 0x11, 0xDE]),
    ("a FreeBSD GEOM device", &[512], b"GEOM::"),
    ("a VHD image", &[512], b"conectix"),
];

/// bcache and the first bcachefs share a magic (Linux, `include/uapi/linux/bcache.h`).
const BCACHE_MAGIC: [u8; 16] = [
    0xC6, 0x85, 0x73, 0xF6, 0x4E, 0x1A, 0x45, 0xCA, 0x82, 0x65, 0xF5, 0x7F, 0x48, 0xBA, 0x6D, 0x81,
];
/// The magic of later bcachefs (Linux, `fs/bcachefs/bcachefs_format.h`, `BCHFS_MAGIC`).
const BCACHEFS_MAGIC: [u8; 16] = [
    0xC6, 0x85, 0x73, 0xF6, 0x66, 0xCE, 0x90, 0xA9, 0xD9, 0x6A, 0x60, 0xCF, 0x80, 0x3D, 0xF7, 0xEF,
];
/// Stratis software design, section on the static header.
const STRATIS_MAGIC: &[u8] = b"!Stra0tis\x86\xFF\x02^\x41rh";
/// `MD_SB_MAGIC`, 0xa92b4efc, little-endian (Linux, `include/uapi/linux/raid/md_p.h`).
const MD_MAGIC: [u8; 4] = [0xFC, 0x4E, 0x2B, 0xA9];
/// The same in a superblock of version 0.90 that a big-endian machine wrote.
const MD_MAGIC_BIG_ENDIAN: [u8; 4] = [0xA9, 0x2B, 0x4E, 0xFC];
/// A superblock of version 0.90 is in the last whole unit of so many bytes, and not in the unit that is cut off.
const MD_RESERVED: u64 = 64 << 10;
/// A superblock of version 1.0 is at least so many bytes before the end, and aligned to half as many.
const MD_END: u64 = 8 << 10;
/// The uberblock magic of ZFS, 0x00bab10c, in either byte order.
const ZFS_MAGICS: [[u8; 8]; 2] = [0x00BA_B10C_u64.to_le_bytes(), 0x00BA_B10C_u64.to_be_bytes()];
/// Length of a ZFS label, and where its uberblocks begin. Two labels are at the start, two at the end, aligned to their length.
const ZFS_LABEL: u64 = 256 << 10;
const ZFS_UBERBLOCKS: u64 = 128 << 10;

/// The ends of a volume.
struct Ends<'bytes> {
    head: &'bytes [u8],
    tail: &'bytes [u8],
    /// Length of the volume.
    length: u64,
}

impl Ends<'_> {
    /// Whether there is `mark` at so many bytes from the start of the volume, if these were read.
    fn has(&self, offset: u64, mark: &[u8]) -> bool {
        let in_head = usize::try_from(offset).is_ok_and(|offset| has(self.head, offset, mark));
        let tail_start = self.length - self.tail.len() as u64;
        let in_tail = offset
            .checked_sub(tail_start)
            .is_some_and(|offset| has(self.tail, offset as usize, mark));
        in_head || in_tail
    }
}

/// What is on a volume of `length` bytes whose first and last bytes are `head` and `tail` (shorter than [`HEAD_BYTES`] and
/// [`TAIL_BYTES`] only where the volume is). `None`: nothing that is known.
///
/// # Panics
/// Where `tail` is longer than the volume.
#[must_use]
pub fn contents(head: &[u8], tail: &[u8], length: u64) -> Option<&'static str> {
    let ends = Ends { head, tail, length };
    set::label::kind_of_member(head)
        .map(|_| MEMBER)
        .or_else(|| marked(MARKS, |at, mark| has(head, at, mark)))
        .or_else(|| has_ext(head).then_some(EXT))
        .or_else(|| has_zfs_uberblock(&ends).then_some(ZFS))
        .or_else(|| has_md_superblock(&ends).then_some(MD))
        .or_else(|| marked(TAIL_MARKS, |end, mark| has_before_end(tail, end, mark)))
        .or_else(|| has_minix(head).then_some(MINIX))
        .or_else(|| has_sun_label(head).then_some(SUN))
        .or_else(|| has_partitions(head).then_some(PARTITION_TABLE))
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
    Ok(contents(&head, &tail, geometry.length_bytes()))
}

/// What on this machine has hold of the medium of a volume, or of its members', in words: mounts, swap, devices that are made of it. Nothing of
/// what is not a file or device here, and nothing of other programs that only have it open.
///
/// # Errors
/// It cannot be told, which does not mean that nothing has hold of it.
pub async fn holders_of(reactor: &Reactor, url: &VolumeUrl) -> io::Result<Vec<String>> {
    let mut media = Vec::new();
    media_of(url, &mut media)?;
    let system = Arc::clone(reactor.system());
    let look = move || {
        let mut holders = Vec::new();
        for path in &media {
            holders.extend(system.holders_of_file(path)?);
        }
        Ok(holders)
    };
    let looked = reactor.offload(look).await;
    looked.unwrap_or_else(|| Err(io::Error::other("looking for what holds it ended early")))
}

/// The paths of the files and devices that a volume is made of.
fn media_of(url: &VolumeUrl, media: &mut Vec<PathBuf>) -> io::Result<()> {
    if url.scheme() == "file" {
        media.push(PathBuf::from(url.path()));
    }
    // Volumes that are made of others name these so: sets their members, a modelled drive what it is over.
    for name in ["member", "over"] {
        let below = url.parameters().urls(name).map_err(io::Error::other)?;
        below.iter().try_for_each(|url| media_of(url, media))?;
    }
    Ok(())
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

fn has_before_end(tail: &[u8], end: usize, mark: &[u8]) -> bool {
    let at = tail.len().checked_sub(end);
    at.is_some_and(|at| has(tail, at, mark))
}

/// A number of 2 or 4 bytes, little-endian; none where there are no such bytes.
fn number(bytes: &[u8], offset: usize, length: usize) -> Option<u32> {
    let bytes = bytes.get(offset..offset + length)?;
    let number = bytes.iter().rev();
    Some(number.fold(0, |number, &byte| number << 8 | u32::from(byte)))
}

/// The superblock at 1024 (Linux, `fs/ext4/ext4.h`): a magic of two bytes, a block size of 1 KiB to 64 KiB, and a revision that there is.
fn has_ext(head: &[u8]) -> bool {
    const LOG_BLOCK_SIZE: usize = 1024 + 0x18;
    const REVISION: usize = 1024 + 0x4C;
    has(head, 1024 + 0x38, &[0x53, 0xEF])
        && number(head, LOG_BLOCK_SIZE, 4).is_some_and(|log| log <= 6)
        && number(head, REVISION, 4).is_some_and(|revision| revision <= 1)
}

/// The superblock at 1024 (Linux, `include/uapi/linux/minix_fs.h`): magics of two bytes, and next to them a zone size, which is never
/// anything but that of a block, and in version 3 a block size.
fn has_minix(head: &[u8]) -> bool {
    const MAGICS: [u32; 4] = [0x137F, 0x138F, 0x2468, 0x2478];
    const MAGIC_3: u32 = 0x4D5A;
    let at = |offset: usize| number(head, 1024 + offset, 2);
    let early = at(16).is_some_and(|magic| MAGICS.contains(&magic))
        && at(10) == Some(0)
        && at(18).is_some_and(|state| state <= 3);
    let third = at(24) == Some(MAGIC_3)
        && at(12) == Some(0)
        && at(28).is_some_and(|size| size.is_power_of_two() && (1024..=4096).contains(&size));
    early || third
}

/// A ZFS label's uberblocks, 1 KiB apart, in any of the four.
fn has_zfs_uberblock(ends: &Ends<'_>) -> bool {
    let end = ends.length - ends.length % ZFS_LABEL;
    let labels = [0, 1].map(|label| label * ZFS_LABEL);
    let last = [2, 1].map(|label| end.saturating_sub(label * ZFS_LABEL));
    let mut slots = labels
        .into_iter()
        .chain(last)
        .flat_map(|label| (label + ZFS_UBERBLOCKS..label + ZFS_LABEL).step_by(1024));
    slots.any(|at| ZFS_MAGICS.iter().any(|magic| ends.has(at, magic)))
}

/// The superblock of version 0.90 or 1.0, which are near the end (Linux, `MD_NEW_SIZE_SECTORS`, `super_1_load`).
fn has_md_superblock(ends: &Ends<'_>) -> bool {
    let first = (ends.length - ends.length % MD_RESERVED).checked_sub(MD_RESERVED);
    let has_first =
        first.is_some_and(|at| ends.has(at, &MD_MAGIC) || ends.has(at, &MD_MAGIC_BIG_ENDIAN));
    let second = ends.length.checked_sub(MD_END);
    let second = second.map(|at| at - at % (MD_END / 2));
    has_first || second.is_some_and(|at| ends.has(at, &MD_MAGIC))
}

/// The first thing of which a mark is there.
fn marked(marks: &[Mark], is_there: impl Fn(usize, &[u8]) -> bool) -> Option<&'static str> {
    let mut marks = marks.iter();
    let found = marks.find(|(_, places, mark)| places.iter().any(|&at| is_there(at, mark)));
    found.map(|(what, ..)| *what)
}

/// The magic is two bytes; the sum of all words of the sector, without carry, is 0.
fn has_sun_label(head: &[u8]) -> bool {
    const MAGIC: usize = 508;
    has(head, MAGIC, &[0xDA, 0xBE])
        && head[..512]
            .chunks_exact(2)
            .fold([0, 0], |sum, word| [sum[0] ^ word[0], sum[1] ^ word[1]])
            == [0, 0]
}

/// The signature alone is found in every boot sector; a table also has an entry with a type and no entry with a strange status, or
/// it has neither an entry nor boot code: then partitions were to follow.
fn has_partitions(head: &[u8]) -> bool {
    const CODE_END: usize = 440;
    const TABLE: usize = 446;
    const ENTRY_LEN: usize = 16;
    if !has(head, 510, &[0x55, 0xAA]) {
        return false;
    }
    let entries = head[TABLE..510].chunks_exact(ENTRY_LEN);
    let plausible = entries.clone().all(|entry| matches!(entry[0], 0x00 | 0x80));
    let has_entry = entries.into_iter().any(|entry| entry[4] != 0);
    let is_empty = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0);
    let is_new = is_empty(&head[..CODE_END]) && is_empty(&head[TABLE..510]);
    plausible && has_entry || is_new
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: u64 = 1 << 30;

    fn blank() -> (Vec<u8>, Vec<u8>) {
        (vec![0; HEAD_BYTES], vec![0; TAIL_BYTES])
    }

    fn put(bytes: &mut [u8], at: usize, mark: &[u8]) {
        bytes[at..at + mark.len()].copy_from_slice(mark);
    }

    fn each(marks: &'static [Mark]) -> impl Iterator<Item = (&'static str, usize, &'static [u8])> {
        let places = |&(what, places, mark): &'static Mark| {
            let places: &'static [usize] = places;
            places.iter().map(move |&place| (what, place, mark))
        };
        marks.iter().flat_map(places)
    }

    #[test]
    fn an_empty_or_short_volume_carries_nothing() {
        let (head, tail) = blank();
        assert_eq!(contents(&head, &tail, LENGTH), None);
        assert_eq!(contents(&[], &[], 0), None);
        assert_eq!(contents(&[0; 512], &[0; 512], 512), None);
        assert_eq!(contents(&[0; 4096], &[0; 4096], 4096), None);
    }

    #[test]
    fn every_mark_is_found_where_it_is_and_not_next_to_it() {
        for (what, place, mark) in each(MARKS) {
            let (mut head, tail) = blank();
            put(&mut head, place, mark);
            assert_eq!(contents(&head, &tail, LENGTH), Some(what));
            head.insert(0, 0);
            head.truncate(HEAD_BYTES);
            let moved = contents(&head, &tail, LENGTH);
            assert_eq!(moved, None, "{what} moved by a byte");
        }
        for (what, place, mark) in each(TAIL_MARKS) {
            let (head, mut tail) = blank();
            put(&mut tail, TAIL_BYTES - place, mark);
            assert_eq!(contents(&head, &tail, LENGTH), Some(what));
            tail.remove(0);
            tail.push(0);
            let moved = contents(&head, &tail, LENGTH);
            assert_eq!(moved, None, "{what} moved by a byte");
        }
    }

    #[test]
    fn random_bytes_carry_nothing() {
        let mut word = 7_u64;
        let mut random = || {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (word >> 56) as u8
        };
        for _ in 0..8 {
            let head: Vec<_> = (0..HEAD_BYTES).map(|_| random()).collect();
            let tail: Vec<_> = (0..TAIL_BYTES).map(|_| random()).collect();
            assert_eq!(contents(&head, &tail, LENGTH), None);
        }
    }

    #[test]
    fn an_ext_superblock_makes_sense() {
        let (mut head, tail) = blank();
        put(&mut head, 1080, &[0x53, 0xEF]);
        assert_eq!(contents(&head, &tail, LENGTH), Some(EXT));
        head[1048] = 7;
        assert_eq!(contents(&head, &tail, LENGTH), None, "blocks of 128 KiB");
        head[1048] = 2;
        head[1100] = 2;
        assert_eq!(
            contents(&head, &tail, LENGTH),
            None,
            "a revision of no kernel"
        );
    }

    #[test]
    fn a_boot_signature_alone_is_no_partition_table() {
        let (mut head, tail) = blank();
        put(&mut head, 510, &[0x55, 0xAA]);
        assert_eq!(
            contents(&head, &tail, LENGTH),
            Some(PARTITION_TABLE),
            "a new one"
        );
        head[0] = 0xEB;
        assert_eq!(contents(&head, &tail, LENGTH), None, "a boot sector");
        head[446 + 16 + 4] = 0x83;
        assert_eq!(contents(&head, &tail, LENGTH), Some(PARTITION_TABLE));
        head[0] = 0;
        assert_eq!(
            contents(&head, &tail, LENGTH),
            Some(PARTITION_TABLE),
            "no boot code"
        );
        head[446] = 0x37;
        assert_eq!(contents(&head, &tail, LENGTH), None);
    }

    #[test]
    fn a_sun_label_has_its_checksum() {
        let (mut head, tail) = blank();
        put(&mut head, 508, &[0xDA, 0xBE, 0xDA, 0xBE]);
        assert_eq!(contents(&head, &tail, LENGTH), Some(SUN));
        head[444] = 1;
        assert_eq!(contents(&head, &tail, LENGTH), None);
    }

    #[test]
    fn zfs_is_found_in_any_of_its_labels_and_in_either_byte_order() {
        for length in [LENGTH, LENGTH + 4096, LENGTH + (255 << 10)] {
            let end = length - length % ZFS_LABEL;
            for label in [0, ZFS_LABEL, end - 2 * ZFS_LABEL, end - ZFS_LABEL] {
                for magic in ZFS_MAGICS {
                    let (mut head, mut tail) = blank();
                    let at = label + ZFS_UBERBLOCKS + 4096;
                    match at.checked_sub(length - TAIL_BYTES as u64) {
                        Some(in_tail) => put(&mut tail, in_tail as usize, &magic),
                        None => put(&mut head, at as usize, &magic),
                    }
                    assert_eq!(contents(&head, &tail, length), Some(ZFS), "{label}");
                }
            }
        }
    }

    #[test]
    fn md_superblocks_at_the_end_are_found_whatever_the_length() {
        for odd in [0, 512, 4096, 65_024, 65_536 + 512] {
            let length = LENGTH + odd;
            // Versions 0.90 and 1.0.
            let first = (length & !0xFFFF) - 0x1_0000;
            let second = ((length / 512 - 16) & !7) * 512;
            for (at, magic) in [
                (first, MD_MAGIC),
                (first, MD_MAGIC_BIG_ENDIAN),
                (second, MD_MAGIC),
            ] {
                let (head, mut tail) = blank();
                let at = (at - (length - TAIL_BYTES as u64)) as usize;
                put(&mut tail, at, &magic);
                assert_eq!(contents(&head, &tail, length), Some(MD), "length {length}");
                tail.insert(0, 0);
                tail.pop();
                assert_eq!(contents(&head, &tail, length), None);
            }
        }
    }

    #[test]
    fn the_media_of_volumes_of_volumes_are_those_of_their_members() {
        let url = "stripe:?member=file:/a&member=stripe:%3Fmember=file:/b&member=mem:%3Fsize=1M";
        let mut media = Vec::new();
        let read = media_of(&url.parse().expect("it is well formed"), &mut media);
        read.expect("members are well formed");
        assert_eq!(media, [PathBuf::from("/a"), PathBuf::from("/b")]);
        let url = "ssd:/profile.toml?over=stripe:%3Fmember=file:/c".parse();
        media.clear();
        media_of(&url.expect("it is well formed"), &mut media).expect("so is what is below");
        assert_eq!(media, [PathBuf::from("/c")]);
        // What cannot be named is not passed over.
        let url = "stripe:?member=file:/a&member=nothing".parse();
        assert!(media_of(&url.expect("it is well formed"), &mut media).is_err());
    }
}
