//! Operations on handles, names and directories.

use weir_files::{Attributes, FileError, FileSystem, Kind, Listing, Special};
use weir_nfs::attribute::{Bitmap, number};
use weir_nfs::operation::{Create, Readdir};
use weir_nfs::types::file_type;
use weir_nfs::{FileHandle, Status, Writer};

use super::attributes::{change_of, changes_of};
use super::{Compound, Done};
use crate::handle::{FileKey, Target};
use crate::served::{Export, Leads, Place};

/// Bytes of one name at most.
const NAME_BYTES_MAX: usize = 255;
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

/// Checks a name that is to be one of a directory's.
pub(super) fn check_name(name: &[u8]) -> Result<(), Status> {
    match name {
        [] => Err(Status::Inval),
        b"." | b".." => Err(Status::Badname),
        _ if name.contains(&b'/') || name.contains(&0) => Err(Status::Badchar),
        _ if name.len() > NAME_BYTES_MAX => Err(Status::Nametoolong),
        _ => Ok(()),
    }
}

/// Change attributes of a directory before and after something was changed in it (change_info4).
#[derive(Clone, Copy)]
pub(super) struct ChangeInfo {
    before: u64,
    after: u64,
}

impl ChangeInfo {
    pub(super) fn of(before: &Attributes, after: &Attributes) -> Self {
        ChangeInfo {
            before: change_of(before),
            after: change_of(after),
        }
    }

    pub(super) fn write(&self, out: &mut Writer) {
        // Others may have changed something in between.
        out.bool(false);
        out.u64(self.before);
        out.u64(self.after);
    }
}

/// Changes something in a directory, and tells what that was like before and after.
pub(super) fn changing<T>(
    files: &dyn FileSystem,
    directory: &FileKey,
    change: impl FnOnce() -> Result<T, FileError>,
) -> Result<(T, ChangeInfo), FileError> {
    let before = files.attributes(&directory.id)?;
    if before.kind != Kind::Directory {
        return Err(FileError::NotDirectory);
    }
    let done = change()?;
    let after = files.attributes(&directory.id)?;
    Ok((done, ChangeInfo::of(&before, &after)))
}

impl Compound<'_> {
    pub(super) fn put_root(&mut self) -> Done {
        let root = self.shared().key.place("");
        self.set_current(Target::Place(root));
        Ok(())
    }

    pub(super) fn put(&mut self, handle: Option<&FileHandle>) -> Done {
        let target = handle.and_then(|handle| self.shared().key.target(handle));
        let target = target.ok_or(Status::Badhandle)?;
        match &target {
            Target::Place(_) => {
                self.place_of(&target)?;
            }
            Target::File(key) => {
                self.export(key)?;
            }
        }
        self.set_current(target);
        Ok(())
    }

    pub(super) fn get_handle(&mut self) -> Done {
        let handle = self.shared().key.handle(&self.current()?);
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

    fn place_of(&self, target: &Target) -> Result<usize, Status> {
        let Target::Place(wanted) = target else {
            return Err(Status::Notdir);
        };
        let key = &self.shared().key;
        let mut places = self.snapshot.places();
        let found = places.find(|(_, place)| key.place(&place.path) == *wanted);
        found.map(|(number, _)| number).ok_or(Status::Stale)
    }

    /// The number of the current place.
    pub(super) fn place(&self) -> Result<usize, Status> {
        self.place_of(&self.current()?)
    }

    fn target_of_place(&self, number: usize) -> Result<Target, Status> {
        let place = self.snapshot.place(number).ok_or(Status::Stale)?;
        Ok(Target::Place(self.shared().key.place(&place.path)))
    }

    /// The root of an export.
    async fn root_of(&self, number: u32) -> Result<Target, Status> {
        let export = self.snapshot.export(number).ok_or(Status::Stale)?;
        let root = self.on(export, |files| files.root()).await?;
        Ok(Target::File(FileKey {
            export: number,
            id: root.id,
        }))
    }

    /// The file of a name in the current directory.
    async fn target_of_name(&self, name: &[u8]) -> Result<Target, Status> {
        check_name(name)?;
        match self.current()? {
            Target::Place(_) => {
                let place = self.place()?;
                let place = self.snapshot.place(place).ok_or(Status::Stale)?;
                let leads = std::str::from_utf8(name).ok();
                let leads = leads.and_then(|name| place.children.get(name)).copied();
                let seen = leads.filter(|&leads| self.snapshot.is_seen(leads, self.context.peer));
                match seen.ok_or(Status::Noent)? {
                    Leads::Place(number) => self.target_of_place(number),
                    Leads::Export(number) => self.root_of(number).await,
                }
            }
            Target::File(key) => {
                let (export, name) = (self.export(&key)?, name.to_vec());
                let found = self.on(export, move |files| match files.lookup(&key.id, &name) {
                    // A symbolic link is told from other files that are no directories.
                    Err(FileError::NotDirectory | FileError::IsLink) => {
                        match files.attributes(&key.id)?.kind {
                            Kind::Link => Err(FileError::IsLink),
                            _ => Err(FileError::NotDirectory),
                        }
                    }
                    found => found,
                });
                let id = found.await?.id;
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
                    let place = self.snapshot.place(number).ok_or(Status::Stale)?;
                    self.target_of_place(place.parent)?
                }
            },
            Target::File(key) => {
                let export = self.export(&key)?;
                let parent = self.on(export, move |files| {
                    if files.root()?.id == key.id {
                        return Ok(None);
                    }
                    match files.attributes(&key.id)?.kind {
                        Kind::Directory => files.parent(&key.id).map(Some),
                        _ => Err(FileError::NotDirectory),
                    }
                });
                match parent.await? {
                    None => self.target_of_place(self.snapshot.place_of(key.export))?,
                    Some(parent) => Target::File(FileKey {
                        id: parent.id,
                        ..key
                    }),
                }
            }
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
        let export = self.export(&key)?;
        let link = self.on(export, move |files| match files.attributes(&key.id)?.kind {
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
                let place = self.snapshot.place(place).ok_or(Status::Stale)?;
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
        let export = self.export(key)?;
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
        let listing = self.on(export, list).await?;
        let mut is_end = listing.is_end;
        for (index, entry) in listing.entries.iter().enumerate() {
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
        let seen =
            children.filter(|(_, (_, leads))| self.snapshot.is_seen(**leads, self.context.peer));
        let mut is_first = true;
        for (index, (name, leads)) in seen {
            let start = out.len();
            out.bool(true);
            out.u64(index as u64 + FIRST_COOKIE);
            out.opaque(name.as_bytes());
            match leads {
                Leads::Place(number) => {
                    let place = self.snapshot.place(*number).ok_or(Status::Stale)?;
                    let facts = self.facts_of_place(*number, place);
                    self.write_attributes(&request.wanted, &facts, out);
                }
                Leads::Export(number) => {
                    let export = self.snapshot.export(*number).ok_or(Status::Stale)?;
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
        match self.on(export, |files| files.root()).await {
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
        let export = self.export_to_change(&directory)?;
        check_name(request.name)?;
        let (changes, bitmap) = changes_of(request.changes)?;
        if changes.size.is_some() {
            return Err(Status::Inval.into());
        }
        match request.kind {
            file_type::DIRECTORY | file_type::LINK | file_type::PIPE | file_type::SOCKET => {}
            // Whoever serves as one user makes no devices for others.
            file_type::BLOCK | file_type::CHARACTER => return Err(Status::Perm.into()),
            _ => return Err(Status::Badtype.into()),
        }
        if request.kind == file_type::LINK && (request.link.is_empty() || request.link.contains(&0))
        {
            return Err(Status::Inval.into());
        }
        let (kind, link, name) = (request.kind, request.link.to_vec(), request.name.to_vec());
        let made = self.on(export, move |files| {
            let special = match kind {
                file_type::DIRECTORY => Special::Directory,
                file_type::LINK => Special::Link(&link),
                file_type::PIPE => Special::Pipe,
                _ => Special::Socket,
            };
            changing(files, &directory, || {
                files.make(&directory.id, &name, special, &changes)
            })
        });
        let (found, info) = made.await?;
        info.write(&mut self.out);
        bitmap.write(&mut self.out);
        self.set_current(Target::File(FileKey {
            id: found.id,
            ..directory
        }));
        Ok(())
    }

    /// The saved file and the current directory, both of one export that may be changed.
    fn two_files(&self) -> Result<(FileKey, FileKey, &Export), Status> {
        let current = self.file()?;
        let saved = match self.saved.as_ref().ok_or(Status::Nofilehandle)?.0 {
            Target::File(key) => key,
            Target::Place(_) => return Err(Status::Xdev),
        };
        if saved.export != current.export {
            return Err(Status::Xdev);
        }
        let export = self.export_to_change(&current)?;
        Ok((saved, current, export))
    }

    pub(super) async fn link(&mut self, name: &[u8]) -> Done {
        let (file, directory, export) = self.two_files()?;
        check_name(name)?;
        let name = name.to_vec();
        let linked = self.on(export, move |files| {
            if files.attributes(&file.id)?.kind == Kind::Directory {
                return Err(FileError::IsDirectory);
            }
            changing(files, &directory, || {
                files.link(&file.id, &directory.id, &name)
            })
        });
        linked.await?.1.write(&mut self.out);
        Ok(())
    }

    pub(super) async fn remove(&mut self, name: &[u8]) -> Done {
        let directory = self.file()?;
        let export = self.export_to_change(&directory)?;
        check_name(name)?;
        let name = name.to_vec();
        let removed = self.on(export, move |files| {
            changing(files, &directory, || files.remove(&directory.id, &name))
        });
        removed.await?.1.write(&mut self.out);
        Ok(())
    }

    pub(super) async fn rename(&mut self, from: &[u8], to: &[u8]) -> Done {
        let (source, target, export) = self.two_files()?;
        check_name(from)?;
        check_name(to)?;
        let (from, to) = (from.to_vec(), to.to_vec());
        let renamed = self.on(export, move |files| {
            changing(files, &source, || {
                let renamed = changing(files, &target, || {
                    files.rename((&source.id, &from), (&target.id, &to))
                });
                Ok(renamed?.1)
            })
        });
        let (of_target, of_source) = renamed.await?;
        of_source.write(&mut self.out);
        of_target.write(&mut self.out);
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
