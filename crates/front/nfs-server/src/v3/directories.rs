//! READDIR and READDIRPLUS.

use weir_files::{Entry, FileError, Kind};
use weir_nfs::Status;
use weir_nfs::v3::{ATTRIBUTES_BYTES, HANDLE_BYTES_MAX};
use weir_nfs::xdr::padded;

use super::Procedures;
use crate::handle::FileKey;

/// Bytes of an entry beside its name: whether it is there, its number, the name's length, its cookie.
const ENTRY_BYTES: usize = 4 + 8 + 4 + 8;
/// Bytes of an entry's attributes and handle at most.
const FILE_BYTES: usize = 4 + ATTRIBUTES_BYTES + 4 + 4 + HANDLE_BYTES_MAX;
/// Bytes beside entries: the status, attributes of the directory, the verifier, what ends the list.
const LIST_BYTES: usize = 4 + 4 + ATTRIBUTES_BYTES + 8 + 8;
/// Names and cookies of one answer at most, in bytes.
const NAMES_BYTES_MAX: usize = 32 << 10;
/// Bytes of names that are read for any answer: those that do not fit were read for nothing.
const NAMES_BYTES_MIN: usize = 512;
/// Bytes of a name and its cookie, about.
const NAME_BYTES: usize = 24;

impl Procedures<'_> {
    /// Lists a directory from a cookie on; with the files of the names where `names_bytes_max` says how many bytes of these there may be.
    pub(super) async fn list(
        &mut self,
        key: &FileKey,
        cookie: u64,
        names_bytes_max: Option<u32>,
        bytes_max: u32,
    ) -> Result<(), Status> {
        let with_files = names_bytes_max.is_some();
        let config = &self.seen.shared().config;
        let bytes_max = bytes_max.min(config.transfer_bytes_max) as usize;
        let room = bytes_max.checked_sub(LIST_BYTES).ok_or(Status::Toosmall)?;
        let per_entry = match with_files {
            true => ENTRY_BYTES + FILE_BYTES,
            false => ENTRY_BYTES,
        };
        let wanted = (room / per_entry + 1) * NAME_BYTES;
        let wanted = match names_bytes_max {
            Some(most) => wanted.min(most as usize),
            None => wanted,
        };
        let wanted = wanted.clamp(NAMES_BYTES_MIN, NAMES_BYTES_MAX);
        let (export, id) = (self.seen.export(key)?, key.id);
        let listed = self.seen.on(export, move |files| {
            let attributes = files.attributes(&id)?;
            match attributes.kind {
                Kind::Directory => Ok((attributes, files.list(&id, cookie, wanted, with_files)?)),
                _ => Err(FileError::NotDirectory),
            }
        });
        let (attributes, listing) = listed.await?;
        self.tell(key, Some(&attributes));
        // Cookies stay valid.
        self.out.u64(0);
        let start = self.out.len();
        let mut is_end = listing.is_end;
        let mut is_first = true;
        for entry in &listing.entries {
            let length = ENTRY_BYTES + padded(entry.name.len());
            let length = length + if with_files { FILE_BYTES } else { 0 };
            if self.out.len() - start + length > room {
                if is_first {
                    return Err(Status::Toosmall);
                }
                is_end = false;
                break;
            }
            self.write_entry(key, entry, with_files);
            is_first = false;
        }
        self.out.bool(false);
        self.out.bool(is_end);
        Ok(())
    }

    fn write_entry(&mut self, directory: &FileKey, entry: &Entry, with_files: bool) {
        self.out.bool(true);
        self.out.u64(entry.number);
        self.out.opaque(&entry.name);
        self.out.u64(entry.cookie);
        if !with_files {
            return;
        }
        let key = entry.found.map(|found| FileKey {
            id: found.id,
            ..*directory
        });
        let attributes = entry.found.map(|found| found.attributes);
        self.tell(key.as_ref().unwrap_or(directory), attributes.as_ref());
        self.out.bool(key.is_some());
        if let Some(key) = key {
            self.out.opaque(self.handle(&key).bytes());
        }
    }
}
