//! Volumes as files: a directory that has one for each, of the volume's size.
//!
//! Names and attributes are here; what is read and written goes by the connection's `desk`. A file is there before clients come and
//! stays as it is: it cannot be made, removed, renamed or cut here. Its time of change counts the changes of the volume by whatever
//! protocol, a nanosecond each, from about when the gateway opened it: clients see by it that others wrote.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use weir_block::{Geometry, Volume};
use weir_files::{
    Access, Attributes, Changes, Created, Creation, Entry, FileError, FileId, FileSystem, Found,
    Kind, Listing, Space, Special, Time,
};
use weir_front::Reservations;
use weir_reactor::File;

/// The kind of names of files here.
const KIND: i32 = 0;
/// The number of the directory; files have their own and [`FIRST`].
const ROOT: u64 = 1;
/// Cookies of "." and ".." are before this one.
const FIRST: u64 = 2;
/// Bytes of a name at most.
const NAME_BYTES_MAX: u32 = 255;
/// Bytes that a directory is said to have.
const DIRECTORY_BYTES: u64 = 4096;

/// A volume that is served as a file.
#[derive(Clone)]
pub struct VolumeFile {
    /// Its number, which its handles have in them: no other file of the server ever has it.
    pub number: u32,
    /// Its name in its directory.
    pub name: String,
    /// Its store. It checks its own bounds and splits what is too long, as the guard of weir-volume does.
    pub volume: Arc<dyn Volume>,
    /// The volume that its latencies are counted for.
    pub counted: Arc<dyn Volume>,
    /// Identity of the volume.
    pub identity: [u8; 16],
    /// Forbids clients to write.
    pub is_read_only: bool,
    /// The reservations of the volume, which bind clients: they never hold one.
    pub reservations: Option<Arc<Reservations>>,
    /// The count of the volume's changes.
    pub changes: Arc<weir_front::Changes>,
}

impl weir_front::Export for VolumeFile {
    fn number(&self) -> u32 {
        self.number
    }

    fn identity(&self) -> [u8; 16] {
        self.identity
    }

    fn volume(&self) -> &Arc<dyn Volume> {
        &self.volume
    }

    fn counted(&self) -> &Arc<dyn Volume> {
        &self.counted
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn reservations(&self) -> Option<&Arc<Reservations>> {
        self.reservations.as_ref()
    }
}

impl VolumeFile {
    fn id(&self) -> FileId {
        FileId::new(KIND, &self.number.to_be_bytes()).expect("it is short")
    }

    fn found(&self) -> Found {
        Found {
            id: self.id(),
            attributes: self.attributes(&self.volume.geometry()),
        }
    }

    /// Its attributes, where the volume is so.
    pub(crate) fn attributes(&self, geometry: &Geometry) -> Attributes {
        let changed = time(Duration::from_nanos(self.changes.value()));
        let is_read_only = self.is_read_only || geometry.read_only;
        Attributes {
            kind: Kind::Regular,
            number: FIRST + u64::from(self.number),
            mode: if is_read_only { 0o444 } else { 0o666 },
            links: 1,
            owner: 0,
            group: 0,
            size: geometry.length_bytes(),
            used: geometry.length_bytes(),
            device: (0, 0),
            accessed: changed,
            modified: changed,
            changed,
        }
    }
}

/// The number of the file that a name is of; none: it is of the directory.
pub(crate) fn number_of(id: &FileId) -> Option<u32> {
    id.bytes().try_into().ok().map(u32::from_be_bytes)
}

fn time(since: Duration) -> Time {
    Time {
        seconds: since.as_secs().cast_signed(),
        nanoseconds: since.subsec_nanos(),
    }
}

/// A directory of volumes. Nothing here blocks.
pub struct VolumeFiles {
    /// In the order of their numbers.
    files: Vec<VolumeFile>,
    /// Names and numbers of files whose volumes are not open.
    absent: BTreeMap<u32, String>,
    changed: Time,
}

impl VolumeFiles {
    /// A directory of these, as it is since then (since the beginning of 1970). Whoever asks for one of those that are `absent`, since
    /// their volumes are not open, is to ask again.
    #[must_use]
    pub fn new(mut files: Vec<VolumeFile>, absent: BTreeMap<u32, String>, since: Duration) -> Self {
        files.sort_by_key(|file| file.number);
        VolumeFiles {
            files,
            absent,
            changed: time(since),
        }
    }

    /// Its files, in the order of their numbers.
    pub(crate) fn files(&self) -> &[VolumeFile] {
        &self.files
    }

    /// The file of that number.
    pub(crate) fn file(&self, number: u32) -> Option<&VolumeFile> {
        let place = self.files.binary_search_by_key(&number, |file| file.number);
        place.ok().map(|place| &self.files[place])
    }

    /// Tells whether there is a file of that number whose volume is not open.
    pub(crate) fn is_absent(&self, number: u32) -> bool {
        self.absent.contains_key(&number)
    }

    /// The file of a name; none: it is the directory.
    fn known(&self, id: &FileId) -> Result<Option<&VolumeFile>, FileError> {
        match number_of(id) {
            Some(number) => match self.file(number) {
                Some(file) => Ok(Some(file)),
                None if self.is_absent(number) => Err(FileError::Absent),
                None => Err(FileError::Stale),
            },
            None if id.bytes().is_empty() => Ok(None),
            None => Err(FileError::Stale),
        }
    }

    fn check_directory(&self, id: &FileId) -> Result<(), FileError> {
        match self.known(id)? {
            None => Ok(()),
            Some(_) => Err(FileError::NotDirectory),
        }
    }

    fn directory(&self) -> Attributes {
        Attributes {
            kind: Kind::Directory,
            number: ROOT,
            mode: 0o555,
            links: 2,
            owner: 0,
            group: 0,
            size: DIRECTORY_BYTES,
            used: 0,
            device: (0, 0),
            accessed: self.changed,
            modified: self.changed,
            changed: self.changed,
        }
    }
}

impl FileSystem for VolumeFiles {
    fn root(&self) -> Result<Found, FileError> {
        Ok(Found {
            id: FileId::new(KIND, &[]).expect("it is short"),
            attributes: self.directory(),
        })
    }

    fn attributes(&self, file: &FileId) -> Result<Attributes, FileError> {
        Ok(match self.known(file)? {
            Some(file) => file.found().attributes,
            None => self.directory(),
        })
    }

    fn access(&self, file: &FileId) -> Result<Access, FileError> {
        let file = self.known(file)?;
        Ok(Access {
            read: true,
            write: file.is_some_and(|file| !file.is_read_only && !file.volume.geometry().read_only),
            execute: file.is_none(),
        })
    }

    fn lookup(&self, directory: &FileId, name: &[u8]) -> Result<Found, FileError> {
        self.check_directory(directory)?;
        let mut files = self.files.iter();
        let found = files.find(|file| file.name.as_bytes() == name);
        match found {
            Some(found) => Ok(found.found()),
            None if self.absent.values().any(|one| one.as_bytes() == name) => {
                Err(FileError::Absent)
            }
            None => Err(FileError::NotFound),
        }
    }

    fn parent(&self, directory: &FileId) -> Result<Found, FileError> {
        self.check_directory(directory)?;
        Err(FileError::NotFound)
    }

    fn list(
        &self,
        directory: &FileId,
        cookie: u64,
        bytes: usize,
        with_files: bool,
    ) -> Result<Listing, FileError> {
        self.check_directory(directory)?;
        let mut listing = Listing::default();
        for (name, place) in [(&b"."[..], 1), (b"..", FIRST)] {
            if cookie < place {
                listing.entries.push(Entry {
                    name: name.to_vec(),
                    number: ROOT,
                    cookie: place,
                    found: None,
                });
            }
        }
        let mut taken = 0;
        for file in &self.files {
            // Numbers of files begin at 1.
            let place = FIRST + u64::from(file.number);
            if place <= cookie {
                continue;
            }
            if taken > 0 && taken + file.name.len() > bytes {
                return Ok(listing);
            }
            taken += file.name.len();
            listing.entries.push(Entry {
                name: file.name.clone().into_bytes(),
                number: place,
                cookie: place,
                found: with_files.then(|| file.found()),
            });
        }
        listing.is_end = true;
        Ok(listing)
    }

    fn read_link(&self, link: &FileId) -> Result<Vec<u8>, FileError> {
        self.known(link)?;
        Err(FileError::Invalid)
    }

    /// It has no file of the machine.
    fn open(&self, file: &FileId, _: bool) -> Result<Arc<File>, FileError> {
        self.known(file)?;
        Err(FileError::NotSupported)
    }

    fn create(
        &self,
        directory: &FileId,
        name: &[u8],
        _: Creation,
        _: &Changes,
    ) -> Result<Created, FileError> {
        match self.lookup(directory, name) {
            Ok(_) => Err(FileError::Exists),
            Err(FileError::NotFound) => Err(FileError::NotPermitted),
            Err(error) => Err(error),
        }
    }

    fn make(
        &self,
        directory: &FileId,
        name: &[u8],
        _: Special<'_>,
        changes: &Changes,
    ) -> Result<Found, FileError> {
        let made = self.create(directory, name, Creation::Guarded, changes)?;
        Ok(made.found)
    }

    fn link(&self, _: &FileId, directory: &FileId, _: &[u8]) -> Result<(), FileError> {
        self.check_directory(directory)?;
        Err(FileError::NotPermitted)
    }

    fn remove(&self, directory: &FileId, name: &[u8]) -> Result<(), FileError> {
        self.lookup(directory, name)?;
        Err(FileError::NotPermitted)
    }

    fn rename(&self, from: (&FileId, &[u8]), to: (&FileId, &[u8])) -> Result<(), FileError> {
        self.check_directory(to.0)?;
        self.remove(from.0, from.1)
    }

    /// Nothing but the size can be set, and that to what it is.
    fn set(&self, file: &FileId, changes: &Changes) -> Result<(), FileError> {
        let size = self.attributes(file)?.size;
        let is_so = Changes {
            size: changes.size.filter(|&asked| asked == size),
            ..Changes::default()
        };
        match *changes == is_so && self.known(file)?.is_some() {
            true => Ok(()),
            false => Err(FileError::NotPermitted),
        }
    }

    fn space(&self) -> Result<Space, FileError> {
        let sizes = self.files.iter();
        let sizes = sizes.map(|file| file.volume.geometry().length_bytes());
        Ok(Space {
            bytes: sizes.sum(),
            files: self.files.len() as u64,
            name_bytes_max: NAME_BYTES_MAX,
            ..Space::default()
        })
    }
}
