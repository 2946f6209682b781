//! Operations on handles, names and directories.

use weir_files::{Entry, FileError, FileSystem, Kind, Listing};
use weir_nfs::attribute::{Bitmap, number};
use weir_nfs::operation::{Create, Readdir};
use weir_nfs::{FileHandle, Status, Writer};

use super::attributes::{change_of, changes_of};
use super::{Compound, Done};
use crate::actions::Changed;
use crate::handle::{FileKey, Target};
use crate::seen::check_name;
use crate::served::{Export, Leads, Place};

/// Bytes of an entry beside its name and its attributes: whether it is there, its cookie, the name's length.
const ENTRY_BYTES: usize = 16;
/// Bytes of the attributes of an entry, about.
const ENTRY_ATTRIBUTES_BYTES: usize = 160;
/// Names and cookies of one answer at most, in bytes.
const NAMES_BYTES_MAX: usize = 32 << 10;
/// The first cookie that an entry of a place may have: 1 and 2 are never valid (RFC 8881, section 18.23).
const FIRST_COOKIE: u64 = 3;
/// AUTH_SYS, the one flavor that is served.
const AUTH_SYS: u32 = 1;

/// Change attributes of a directory before and after something was changed in it (change_info4).
#[derive(Clone, Copy)]
pub(super) struct ChangeInfo {
    before: u64,
    after: u64,
}

impl ChangeInfo {
    pub(super) fn of(changed: &Changed) -> Self {
        ChangeInfo {
            before: change_of(&changed.before),
            after: change_of(&changed.after),
        }
    }

    pub(super) fn write(&self, out: &mut Writer) {
        // Others may have changed something in between.
        out.bool(false);
        out.u64(self.before);
        out.u64(self.after);
    }
}

impl Compound<'_> {
    pub(super) fn put_root(&mut self) -> Done {
        let root = self.seen.shared().key.place("");
        self.set_current(Target::Place(root));
        Ok(())
    }

    pub(super) fn put(&mut self, handle: Option<&FileHandle>) -> Done {
        let target = self.seen.target(handle)?;
        self.set_current(target);
        Ok(())
    }

    pub(super) fn get_handle(&mut self) -> Done {
        let handle = self.seen.shared().key.handle(&self.current()?);
        self.out.opaque(handle.bytes());
        Ok(())
    }

    pub(super) fn save(&mut self) -> Done {
        self.saved = Some(Box::new((self.current()?, self.stateid)));
        Ok(())
    }

    pub(super) fn restore(&mut self) -> Done {
        let (saved, stateid) = **self.saved.as_ref().ok_or(Status::Restorefh)?;
        self.current = Some(saved);
        self.stateid = stateid;
        Ok(())
    }

    /// The number of the current place.
    pub(super) fn place(&self) -> Result<usize, Status> {
        self.seen.place_of(&self.current()?)
    }

    /// The file of a name in the current directory.
    async fn target_of_name(&self, name: &[u8]) -> Result<Target, Status> {
        match self.current()? {
            Target::Place(_) => {
                check_name(name)?;
                let place = self.place()?;
                let place = self.seen.snapshot.place(place).ok_or(Status::Stale)?;
                let leads = std::str::from_utf8(name).ok();
                let leads = leads.and_then(|name| place.children.get(name)).copied();
                let seen = leads.filter(|&leads| self.seen.is_seen(leads));
                match seen.ok_or(Status::Noent)? {
                    Leads::Place(number) => self.seen.target_of_place(number),
                    Leads::Export(number) => self.seen.root_of(number).await.map(Target::File),
                }
            }
            Target::File(key) => {
                let id = self.seen.look_up(&key, name).await?.id;
                Ok(Target::File(FileKey { id, ..key }))
            }
        }
    }

    pub(super) async fn lookup(&mut self, name: &[u8]) -> Done {
        let target = self.target_of_name(name).await?;
        self.set_current(target);
        Ok(())
    }

    pub(super) async fn lookup_parent(&mut self) -> Done {
        let target = match self.current()? {
            Target::Place(_) => match self.place()? {
                0 => return Err(Status::Noent.into()),
                number => {
                    let place = self.seen.snapshot.place(number).ok_or(Status::Stale)?;
                    self.seen.target_of_place(place.parent)?
                }
            },
            Target::File(key) => match self.seen.parent_of(&key).await? {
                None => self
                    .seen
                    .target_of_place(self.seen.snapshot.place_of(key.export))?,
                Some(parent) => Target::File(FileKey {
                    id: parent.id,
                    ..key
                }),
            },
        };
        self.set_current(target);
        Ok(())
    }

    fn write_security(&mut self) {
        self.current = None;
        self.stateid = None;
        self.out.u32(1);
        self.out.u32(AUTH_SYS);
    }

    pub(super) async fn secinfo(&mut self, name: &[u8]) -> Done {
        self.target_of_name(name).await?;
        self.write_security();
        Ok(())
    }

    pub(super) async fn secinfo_no_name(&mut self, style: u32) -> Done {
        match style {
            0 => {
                self.current()?;
            }
            1 => self.lookup_parent().await?,
            _ => return Err(Status::Badxdr.into()),
        }
        self.write_security();
        Ok(())
    }

    pub(super) async fn read_link(&mut self) -> Done {
        let key = self.file().map_err(|_| Status::Inval)?;
        let export = self.seen.export(&key)?;
        let link = self
            .seen
            .on(export, move |files| match files.attributes(&key.id)?.kind {
                Kind::Link => files.read_link(&key.id),
                _ => Err(FileError::Invalid),
            });
        let link = link.await.map_err(|status| match status {
            Status::Inval => Status::WrongType,
            status => status,
        })?;
        self.out.opaque(&link);
        Ok(())
    }

    pub(super) async fn read_directory(&mut self, request: &Readdir) -> Done {
        if matches!(request.cookie, 1 | 2) {
            return Err(Status::BadCookie.into());
        }
        if request.wanted.has(number::TIME_ACCESS_SET)
            || request.wanted.has(number::TIME_MODIFY_SET)
        {
            return Err(Status::Inval.into());
        }
        let room = self.bytes_max.saturating_sub(self.length());
        let bytes_max = room.min(request.bytes_max as usize);
        let mut out = Writer::new();
        out.fixed(&[0; 8]);
        match self.current()? {
            Target::Place(_) => {
                let place = self.place()?;
                let place = self.seen.snapshot.place(place).ok_or(Status::Stale)?;
                self.list_place(place, request, bytes_max, &mut out).await?;
            }
            Target::File(key) => self.list_file(&key, request, bytes_max, &mut out).await?,
        }
        self.out.fixed(out.bytes());
        Ok(())
    }

    async fn list_file(
        &self,
        key: &FileKey,
        request: &Readdir,
        bytes_max: usize,
        out: &mut Writer,
    ) -> Result<(), Status> {
        let export = self.seen.export(key)?;
        let with_files = !request.wanted.is_empty();
        let per_entry = ENTRY_BYTES
            + if with_files {
                ENTRY_ATTRIBUTES_BYTES
            } else {
                0
            };
        // A name and its cookie are about two dozen bytes.
        let entries = bytes_max / per_entry + 1;
        let names = (entries * 24).min(NAMES_BYTES_MAX);
        let names = match request.directory_bytes_max as usize {
            0 => names,
            wished => names.min(wished.max(512)),
        };
        let (id, cookie) = (key.id, request.cookie);
        let list = move |files: &dyn FileSystem| -> Result<Listing, FileError> {
            match files.attributes(&id)?.kind {
                Kind::Directory => files.list(&id, cookie, names, with_files),
                _ => Err(FileError::NotDirectory),
            }
        };
        let listing = self.seen.on(export, list).await?;
        let mut is_end = listing.is_end;
        // A client of this version makes up the two itself (RFC 8881, section 18.23).
        let is_itself = |entry: &&Entry| matches!(&entry.name[..], b"." | b"..");
        let entries = listing.entries.iter().filter(|entry| !is_itself(entry));
        for (index, entry) in entries.enumerate() {
            let start = out.len();
            out.bool(true);
            out.u64(entry.cookie);
            out.opaque(&entry.name);
            match &entry.found {
                None => write_no_attributes(out),
                Some(found) => {
                    let key = FileKey {
                        id: found.id,
                        ..*key
                    };
                    let facts = self.facts(export, &key, found.attributes, false);
                    self.write_attributes(&request.wanted, &facts, out);
                }
            }
            if !fits(out, bytes_max) {
                if index == 0 {
                    return Err(Status::Toosmall);
                }
                out.truncate(start);
                is_end = false;
                break;
            }
        }
        if !fits(out, bytes_max) {
            return Err(Status::Toosmall);
        }
        out.bool(false);
        out.bool(is_end);
        Ok(())
    }

    async fn list_place(
        &self,
        place: &Place,
        request: &Readdir,
        bytes_max: usize,
        out: &mut Writer,
    ) -> Result<(), Status> {
        let first = request.cookie.saturating_sub(FIRST_COOKIE - 1) as usize;
        let mut is_end = true;
        let children = place.children.iter().enumerate().skip(first);
        let seen = children.filter(|(_, (_, leads))| self.seen.is_seen(**leads));
        let mut is_first = true;
        for (index, (name, leads)) in seen {
            let start = out.len();
            out.bool(true);
            out.u64(index as u64 + FIRST_COOKIE);
            out.opaque(name.as_bytes());
            match leads {
                Leads::Place(number) => {
                    let place = self.seen.snapshot.place(*number).ok_or(Status::Stale)?;
                    let facts = self.facts_of_place(*number, place);
                    self.write_attributes(&request.wanted, &facts, out);
                }
                Leads::Export(number) => {
                    let export = self.seen.snapshot.export(*number).ok_or(Status::Stale)?;
                    self.write_root(export, request, out).await;
                }
            }
            if !fits(out, bytes_max) {
                if is_first {
                    return Err(Status::Toosmall);
                }
                out.truncate(start);
                is_end = false;
                break;
            }
            is_first = false;
        }
        out.bool(false);
        out.bool(is_end);
        Ok(())
    }

    /// Writes the attributes of an export's root; where it is absent, that.
    async fn write_root(&self, export: &Export, request: &Readdir, out: &mut Writer) {
        match self.seen.on(export, |files| files.root()).await {
            Ok(root) => {
                let key = FileKey {
                    export: export.number,
                    id: root.id,
                };
                let facts = self.facts(export, &key, root.attributes, true);
                self.write_attributes(&request.wanted, &facts, out);
            }
            Err(status) if request.wanted.has(number::RDATTR_ERROR) => {
                Bitmap::of(&[number::RDATTR_ERROR]).write(out);
                out.u32(4);
                out.u32(status.value());
            }
            Err(_) => write_no_attributes(out),
        }
    }

    pub(super) async fn create(&mut self, request: Create<'_>) -> Done {
        let directory = self.file()?;
        let (changes, bitmap) = changes_of(request.changes)?;
        let (name, kind) = (request.name, request.kind);
        let made = self.seen.make(directory, name, kind, request.link, changes);
        let (found, changed) = made.await?;
        ChangeInfo::of(&changed).write(&mut self.out);
        bitmap.write(&mut self.out);
        self.set_current(Target::File(FileKey {
            id: found.id,
            ..directory
        }));
        Ok(())
    }

    /// The saved file, and the current directory.
    fn two_files(&self) -> Result<(FileKey, FileKey), Status> {
        let current = self.file()?;
        match self.saved.as_ref().ok_or(Status::Nofilehandle)?.0 {
            Target::File(saved) => Ok((saved, current)),
            Target::Place(_) => Err(Status::Xdev),
        }
    }

    pub(super) async fn link(&mut self, name: &[u8]) -> Done {
        let (file, directory) = self.two_files()?;
        let changed = self.seen.link(file, directory, name).await?;
        ChangeInfo::of(&changed).write(&mut self.out);
        Ok(())
    }

    pub(super) async fn remove(&mut self, name: &[u8]) -> Done {
        let changed = self.seen.remove(self.file()?, name, None).await?;
        ChangeInfo::of(&changed).write(&mut self.out);
        Ok(())
    }

    pub(super) async fn rename(&mut self, from: &[u8], to: &[u8]) -> Done {
        let (source, target) = self.two_files()?;
        let renamed = self.seen.rename((source, from), (target, to));
        let (of_source, of_target) = renamed.await?;
        ChangeInfo::of(&of_source).write(&mut self.out);
        ChangeInfo::of(&of_target).write(&mut self.out);
        Ok(())
    }
}

/// Writes that no attributes are there.
fn write_no_attributes(out: &mut Writer) {
    Bitmap::default().write(out);
    out.u32(0);
}

/// Tells whether entries so far, and what ends them, fit.
fn fits(out: &Writer, bytes_max: usize) -> bool {
    out.len() + 8 <= bytes_max
}
