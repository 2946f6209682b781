//! File handles: which file a client means, and that it had this handle from us.
//!
//! Version, number of the export, kind and bytes of the file's name there, and a keyed checksum (SipHash-2-4) of all that: 64 bytes at
//! most. A handle that was made up is not one of ours, and one that is from another export says so.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use weir_files::FileId;
use weir_nfs::FileHandle;

/// The first byte of a handle: how the others are to be understood.
const VERSION: u8 = 1;
/// Bytes before the file's name.
const HEAD_BYTES: usize = 8;
/// Bytes of the checksum.
const SUM_BYTES: usize = 8;
/// The export number of places that lead to exports.
const PLACES: u32 = 0;

/// Key of the checksums of handles. Whoever has it can make handles.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HandleKey(pub [u8; 16]);

impl std::fmt::Debug for HandleKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("HandleKey(..)")
    }
}

/// Target of a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    /// A directory that leads to exports, by a number that its path has.
    Place(u64),
    /// A file of an export.
    File(FileKey),
}

/// A file of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileKey {
    /// The export's number.
    pub(crate) export: u32,
    /// Its name there.
    pub(crate) id: FileId,
}

impl HandleKey {
    /// Checksum of bytes that nobody else can make.
    pub(crate) fn sum(&self, bytes: &[u8]) -> [u8; SUM_BYTES] {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(bytes);
        hasher.finish().to_le_bytes()
    }

    /// The number of the place at a path.
    pub(crate) fn place(&self, path: &str) -> u64 {
        u64::from_le_bytes(self.sum(path.as_bytes()))
    }

    /// The handle of a target.
    pub(crate) fn handle(&self, target: &Target) -> FileHandle {
        let number;
        let (export, kind, name) = match target {
            Target::Place(place) => {
                number = place.to_be_bytes();
                (PLACES, 0, &number[..])
            }
            Target::File(key) => (key.export, key.id.kind(), key.id.bytes()),
        };
        let mut bytes = [0; HEAD_BYTES + FileId::BYTES_MAX + SUM_BYTES];
        let end = HEAD_BYTES + name.len();
        bytes[0] = VERSION;
        bytes[1..4].copy_from_slice(&kind.to_be_bytes()[1..]);
        bytes[4..8].copy_from_slice(&export.to_be_bytes());
        bytes[HEAD_BYTES..end].copy_from_slice(name);
        let sum = self.sum(&bytes[..end]);
        bytes[end..end + SUM_BYTES].copy_from_slice(&sum);
        FileHandle::new(&bytes[..end + SUM_BYTES]).expect("it has some bytes and not too many")
    }

    /// Reads what a handle names; none: it is not one of ours.
    pub(crate) fn target(&self, handle: &FileHandle) -> Option<Target> {
        let bytes = handle.bytes();
        let end = bytes.len().checked_sub(SUM_BYTES)?;
        let (named, sum) = bytes.split_at(end);
        if named.len() < HEAD_BYTES || named[0] != VERSION || self.sum(named) != *sum {
            return None;
        }
        let kind = i32::from_be_bytes([0, named[1], named[2], named[3]]);
        let export = u32::from_be_bytes(named[4..8].try_into().expect("four bytes"));
        let name = &named[HEAD_BYTES..];
        if export == PLACES {
            return name
                .try_into()
                .ok()
                .map(u64::from_be_bytes)
                .map(Target::Place);
        }
        let id = FileId::new(kind, name)?;
        Some(Target::File(FileKey { export, id }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: HandleKey = HandleKey(*b"sixteen bytes...");

    #[test]
    fn handles_come_back_and_nobody_makes_them_up() {
        let file = FileKey {
            export: 7,
            id: FileId::new(0x81, b"a name of the kernel").expect("it fits"),
        };
        for target in [Target::File(file), Target::Place(KEY.place("/exports"))] {
            let handle = KEY.handle(&target);
            assert!(handle.bytes().len() <= 64);
            assert_eq!(KEY.target(&handle), Some(target));
            for bit in 0..handle.bytes().len() * 8 {
                let mut bytes = handle.bytes().to_vec();
                bytes[bit / 8] ^= 1 << (bit % 8);
                let forged = FileHandle::new(&bytes).expect("it has some bytes");
                assert_eq!(KEY.target(&forged), None, "bit {bit}");
            }
            for length in 1..handle.bytes().len() {
                let cut = FileHandle::new(&handle.bytes()[..length]).expect("it has some bytes");
                assert_eq!(KEY.target(&cut), None, "{length} bytes");
            }
        }
        let other = HandleKey(*b"another key.....");
        assert_eq!(other.target(&KEY.handle(&Target::File(file))), None);
    }

    #[test]
    fn the_longest_name_fits() {
        let file = FileKey {
            export: u32::MAX,
            id: FileId::new(0xff_ffff, &[0xff; FileId::BYTES_MAX]).expect("it fits"),
        };
        let handle = KEY.handle(&Target::File(file));
        assert_eq!(handle.bytes().len(), 64);
        assert_eq!(KEY.target(&handle), Some(Target::File(file)));
    }
}
