//! Operations on attributes.

use weir_files::{Attributes, Changes, Kind, SetTime, Space, Time};
use weir_nfs::attribute::{self, AttributeChanges, AttributeError, Bitmap, number};
use weir_nfs::types::{StateId, access, file_type, share};
use weir_nfs::{FileHandle, Status, Writer};

use super::{Compound, Done};
use crate::handle::{FileKey, Target};
use crate::served::{Export, Place};

/// The attributes that are served.
pub(super) const SUPPORTED: Bitmap = Bitmap::of(&[
    number::SUPPORTED_ATTRS,
    number::TYPE,
    number::FH_EXPIRE_TYPE,
    number::CHANGE,
    number::SIZE,
    number::LINK_SUPPORT,
    number::SYMLINK_SUPPORT,
    number::NAMED_ATTR,
    number::FSID,
    number::UNIQUE_HANDLES,
    number::LEASE_TIME,
    number::RDATTR_ERROR,
    number::ACLSUPPORT,
    number::CANSETTIME,
    number::CASE_INSENSITIVE,
    number::CASE_PRESERVING,
    number::CHOWN_RESTRICTED,
    number::FILEHANDLE,
    number::FILEID,
    number::FILES_AVAIL,
    number::FILES_FREE,
    number::FILES_TOTAL,
    number::HOMOGENEOUS,
    number::MAXFILESIZE,
    number::MAXLINK,
    number::MAXNAME,
    number::MAXREAD,
    number::MAXWRITE,
    number::MODE,
    number::NO_TRUNC,
    number::NUMLINKS,
    number::OWNER,
    number::OWNER_GROUP,
    number::RAWDEV,
    number::SPACE_AVAIL,
    number::SPACE_FREE,
    number::SPACE_TOTAL,
    number::SPACE_USED,
    number::TIME_ACCESS,
    number::TIME_ACCESS_SET,
    number::TIME_DELTA,
    number::TIME_METADATA,
    number::TIME_MODIFY,
    number::TIME_MODIFY_SET,
    number::MOUNTED_ON_FILEID,
    number::SUPPATTR_EXCLCREAT,
    number::CHANGE_ATTR_TYPE,
]);

/// Those of minor version 2 alone.
const OF_MINOR_2: Bitmap = Bitmap::of(&[number::CHANGE_ATTR_TYPE]);

/// Those that are set, and never read.
const SET_ALONE: Bitmap = Bitmap::of(&[number::TIME_ACCESS_SET, number::TIME_MODIFY_SET]);

/// Those that tell of the whole file system's room.
const OF_SPACE: Bitmap = Bitmap::of(&[
    number::FILES_AVAIL,
    number::FILES_FREE,
    number::FILES_TOTAL,
    number::MAXNAME,
    number::SPACE_AVAIL,
    number::SPACE_FREE,
    number::SPACE_TOTAL,
]);

/// Those that can be set by the OPEN that makes a file exclusively: its times say by which call it was made.
const EXCLUSIVE: Bitmap = Bitmap::of(&[
    number::SIZE,
    number::MODE,
    number::OWNER,
    number::OWNER_GROUP,
]);

/// The longest file that Linux has.
pub(crate) const FILE_BYTES_MAX: u64 = i64::MAX as u64;
/// The change attribute is a time (change_attr_type4).
const CHANGES_AS_TIME: u32 = 3;
/// Bytes of a name at most in a place that leads to exports.
const PLACE_NAME_BYTES_MAX: u32 = 255;
/// Links that a file may have, as far as is known.
pub(crate) const LINKS_MAX: u32 = 32_000;

/// Facts that are told of a file.
pub(super) struct Facts {
    pub(super) attributes: Attributes,
    pub(super) handle: FileHandle,
    fsid: (u64, u64),
    /// The number of the directory on which what it is the root of is mounted; its own, for others.
    mounted_on: u64,
    pub(super) space: Space,
}

/// The change attribute: the time of the last change in nanoseconds.
pub(super) fn change_of(attributes: &Attributes) -> u64 {
    let time = attributes.changed;
    let nanoseconds = time.seconds.wrapping_mul(1_000_000_000);
    nanoseconds
        .wrapping_add(time.nanoseconds.into())
        .cast_unsigned()
}

pub(crate) fn type_of(kind: Kind) -> u32 {
    match kind {
        Kind::Regular => file_type::REGULAR,
        Kind::Directory => file_type::DIRECTORY,
        Kind::Block => file_type::BLOCK,
        Kind::Character => file_type::CHARACTER,
        Kind::Link => file_type::LINK,
        Kind::Socket => file_type::SOCKET,
        Kind::Pipe => file_type::PIPE,
    }
}

fn write_time(time: Time, out: &mut Writer) {
    attribute::Time {
        seconds: time.seconds,
        nanoseconds: time.nanoseconds,
    }
    .write(out);
}

/// Status of attributes that cannot be set.
pub(super) fn status_of(error: AttributeError) -> Status {
    match error {
        AttributeError::Xdr(_) => Status::Badxdr,
        AttributeError::NotSupported => Status::Attrnotsupp,
        AttributeError::Invalid => Status::Inval,
        AttributeError::Owner => Status::Badowner,
    }
}

/// The changes that a client asks for.
pub(crate) fn changes_of(
    asked: Result<AttributeChanges, AttributeError>,
) -> Result<(Changes, Bitmap), Status> {
    let asked = asked.map_err(status_of)?;
    let set = |time| match time {
        attribute::SetTime::Server => SetTime::Now,
        attribute::SetTime::Client(time) => SetTime::To(Time {
            seconds: time.seconds,
            nanoseconds: time.nanoseconds,
        }),
    };
    if asked.size.is_some_and(|size| size > FILE_BYTES_MAX) {
        return Err(Status::Fbig);
    }
    let changes = Changes {
        size: asked.size,
        mode: asked.mode,
        owner: asked.owner,
        group: asked.group,
        accessed: asked.access_time.map(set),
        modified: asked.modify_time.map(set),
    };
    Ok((changes, asked.bitmap()))
}

/// The attributes that a client may set in making a file exclusively.
pub(super) fn is_exclusive(bitmap: &Bitmap) -> bool {
    bitmap.is_within(&EXCLUSIVE)
}

impl Compound<'_> {
    fn supported(&self) -> Bitmap {
        match self.minor {
            1 => {
                let mut supported = Bitmap::default();
                let of_minor_1 = SUPPORTED.numbers().filter(|&one| !OF_MINOR_2.has(one));
                of_minor_1.for_each(|one| supported.add(one));
                supported
            }
            _ => SUPPORTED,
        }
    }

    /// Facts of a file of an export.
    pub(super) fn facts(
        &self,
        export: &Export,
        key: &FileKey,
        attributes: Attributes,
        is_root: bool,
    ) -> Facts {
        let shared = self.seen.shared();
        let mounted_on = match is_root {
            true => self.seen.snapshot.place_of(export.number) as u64 + 1,
            false => attributes.number,
        };
        Facts {
            attributes,
            handle: shared.key.handle(&Target::File(*key)),
            fsid: export.fsid,
            mounted_on,
            space: Space::default(),
        }
    }

    /// Facts of a place that leads to exports.
    pub(super) fn facts_of_place(&self, number: usize, place: &Place) -> Facts {
        let shared = self.seen.shared();
        let changed = Time {
            seconds: 0,
            nanoseconds: 0,
        };
        let attributes = Attributes {
            kind: Kind::Directory,
            number: number as u64 + 1,
            mode: 0o555,
            links: 2,
            owner: 0,
            group: 0,
            size: 4096,
            used: 0,
            device: (0, 0),
            accessed: changed,
            modified: changed,
            changed: Time {
                seconds: self.seen.snapshot.generation().cast_signed(),
                nanoseconds: 0,
            },
        };
        let target = Target::Place(shared.key.place(&place.path));
        Facts {
            handle: shared.key.handle(&target),
            mounted_on: attributes.number,
            attributes,
            fsid: (0, 0),
            space: Space {
                name_bytes_max: PLACE_NAME_BYTES_MAX,
                ..Space::default()
            },
        }
    }

    /// Facts of the current file; its file system's room where `wanted` asks for it.
    pub(super) async fn facts_of_current(&self, wanted: &Bitmap) -> Result<Facts, Status> {
        let key = match self.current()? {
            Target::Place(_) => {
                let number = self.place()?;
                let place = self.seen.snapshot.place(number).ok_or(Status::Stale)?;
                return Ok(self.facts_of_place(number, place));
            }
            Target::File(key) => key,
        };
        let export = self.seen.export(&key)?;
        let with_space = !wanted.and(&OF_SPACE).is_empty();
        let (attributes, is_root, space) = self
            .seen
            .on(export, move |files| {
                let attributes = files.attributes(&key.id)?;
                let is_root = attributes.kind == Kind::Directory && files.root()?.id == key.id;
                let space = match with_space {
                    true => files.space()?,
                    false => Space::default(),
                };
                Ok((attributes, is_root, space))
            })
            .await?;
        let mut facts = self.facts(export, &key, attributes, is_root);
        facts.space = space;
        Ok(facts)
    }

    /// Writes attributes (fattr4).
    pub(super) fn write_attributes(&self, wanted: &Bitmap, facts: &Facts, out: &mut Writer) {
        let written = wanted.and(&self.supported());
        written.write(out);
        let length_at = out.len();
        out.u32(0);
        for number in written.numbers() {
            self.write_attribute(number, facts, out);
        }
        let length = out.len() - length_at - 4;
        out.u32_at(length_at, length as u32);
    }

    fn write_attribute(&self, which: u32, facts: &Facts, out: &mut Writer) {
        let (attributes, space) = (&facts.attributes, &facts.space);
        let config = &self.seen.shared().config;
        match which {
            number::SUPPORTED_ATTRS => self.supported().write(out),
            number::TYPE => out.u32(type_of(attributes.kind)),
            // Handles stay valid.
            number::FH_EXPIRE_TYPE => out.u32(0),
            number::CHANGE => out.u64(change_of(attributes)),
            number::SIZE => out.u64(attributes.size),
            number::LINK_SUPPORT
            | number::SYMLINK_SUPPORT
            | number::UNIQUE_HANDLES
            | number::CANSETTIME
            | number::CASE_PRESERVING
            | number::CHOWN_RESTRICTED
            | number::HOMOGENEOUS
            | number::NO_TRUNC => out.bool(true),
            number::NAMED_ATTR | number::CASE_INSENSITIVE => out.bool(false),
            number::FSID => {
                out.u64(facts.fsid.0);
                out.u64(facts.fsid.1);
            }
            number::LEASE_TIME => out.u32(config.lease.as_secs() as u32),
            number::RDATTR_ERROR => out.u32(Status::Ok.value()),
            number::ACLSUPPORT => out.u32(0),
            number::FILEHANDLE => out.opaque(facts.handle.bytes()),
            number::FILEID => out.u64(attributes.number),
            number::FILES_AVAIL => out.u64(space.files_available),
            number::FILES_FREE => out.u64(space.files_free),
            number::FILES_TOTAL => out.u64(space.files),
            number::MAXFILESIZE => out.u64(FILE_BYTES_MAX),
            number::MAXLINK => out.u32(LINKS_MAX),
            number::MAXNAME => out.u32(space.name_bytes_max),
            number::MAXREAD | number::MAXWRITE => out.u64(config.transfer_bytes_max.into()),
            number::MODE => out.u32(attributes.mode),
            number::NUMLINKS => out.u32(attributes.links),
            number::OWNER => out.opaque(attributes.owner.to_string().as_bytes()),
            number::OWNER_GROUP => out.opaque(attributes.group.to_string().as_bytes()),
            number::RAWDEV => {
                out.u32(attributes.device.0);
                out.u32(attributes.device.1);
            }
            number::SPACE_AVAIL => out.u64(space.bytes_available),
            number::SPACE_FREE => out.u64(space.bytes_free),
            number::SPACE_TOTAL => out.u64(space.bytes),
            number::SPACE_USED => out.u64(attributes.used),
            number::TIME_ACCESS => write_time(attributes.accessed, out),
            number::TIME_DELTA => write_time(
                Time {
                    seconds: 0,
                    nanoseconds: 1,
                },
                out,
            ),
            number::TIME_METADATA => write_time(attributes.changed, out),
            number::TIME_MODIFY => write_time(attributes.modified, out),
            number::MOUNTED_ON_FILEID => out.u64(facts.mounted_on),
            number::SUPPATTR_EXCLCREAT => EXCLUSIVE.write(out),
            number::CHANGE_ATTR_TYPE => out.u32(CHANGES_AS_TIME),
            other => unreachable!("attribute {other} is not among those that are served"),
        }
    }

    pub(super) async fn get_attributes(&mut self, wanted: &Bitmap) -> Done {
        if !wanted.and(&SET_ALONE).is_empty() {
            return Err(Status::Inval.into());
        }
        let facts = self.facts_of_current(wanted).await?;
        let mut out = std::mem::take(&mut self.out);
        self.write_attributes(wanted, &facts, &mut out);
        self.out = out;
        Ok(())
    }

    pub(super) async fn set_attributes(
        &mut self,
        stateid: &StateId,
        asked: Result<AttributeChanges, AttributeError>,
    ) -> Done {
        // Whatever comes of it, the answer says what was set.
        self.keeps_body = true;
        let start = self.out.len();
        Bitmap::default().write(&mut self.out);
        let (changes, bitmap) = changes_of(asked)?;
        let key = self.file()?;
        let export = self.seen.export_to_change(&key)?;
        if changes.size.is_some() {
            let stateid = self.meant(stateid)?;
            let state = &self.seen.shared().state;
            let now = self.seen.now();
            state.for_io(self.client(), &stateid, &key, share::WRITE, now)?;
        }
        if !bitmap.is_empty() {
            self.seen
                .on(export, move |files| files.set(&key.id, &changes))
                .await?;
        }
        self.out.truncate(start);
        bitmap.write(&mut self.out);
        Ok(())
    }

    pub(super) async fn verify(
        &mut self,
        is_negated: bool,
        wanted: &Bitmap,
        values: &[u8],
    ) -> Done {
        if !wanted.is_within(&self.supported()) {
            return Err(Status::Attrnotsupp.into());
        }
        if !wanted.and(&SET_ALONE).is_empty() || wanted.has(number::RDATTR_ERROR) {
            return Err(Status::Inval.into());
        }
        let facts = self.facts_of_current(wanted).await?;
        let mut own = Writer::new();
        for number in wanted.numbers() {
            self.write_attribute(number, &facts, &mut own);
        }
        match (own.bytes() == values, is_negated) {
            (true, false) | (false, true) => Ok(()),
            (true, true) => Err(Status::Same.into()),
            (false, false) => Err(Status::NotSame.into()),
        }
    }

    pub(super) async fn access(&mut self, asked: u32) -> Done {
        let (supported, granted) = match self.current()? {
            Target::Place(_) => {
                self.place()?;
                (access::ALL, access::READ | access::LOOKUP)
            }
            Target::File(key) => {
                let (supported, granted, _) = self.seen.rights(&key).await?;
                (supported, granted)
            }
        };
        self.out.u32(asked & supported);
        self.out.u32(asked & granted);
        Ok(())
    }
}
