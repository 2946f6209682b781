//! A file system of one directory with one file, on the disk of a simulated host.

use std::path::Path;
use std::sync::{Arc, Mutex};

use weir_files::{
    Access, Attributes, Changes, Created, Creation, FileError, FileId, FileSystem, Found, Kind,
    Listing, Space, Special, Time,
};
use weir_reactor::{File, OpenOptions, System, UseDirect};

/// Name of the file.
pub(crate) const NAME: &str = "disk.img";

/// The file system.
pub(crate) struct OneFile {
    system: Arc<dyn System>,
    path: &'static str,
    file: Mutex<Option<Arc<File>>>,
}

fn id(number: u8) -> FileId {
    FileId::new(1, &[number]).expect("it fits")
}

fn attributes(number: u8, size: u64) -> Attributes {
    Attributes {
        kind: match number {
            0 => Kind::Directory,
            _ => Kind::Regular,
        },
        number: u64::from(number) + 2,
        mode: 0o600,
        links: 1,
        owner: 0,
        group: 0,
        size,
        used: size,
        device: (0, 0),
        accessed: Time::default(),
        modified: Time::default(),
        changed: Time::default(),
    }
}

impl OneFile {
    /// The file at `path`, where it is there.
    pub(crate) fn new(system: &Arc<dyn System>, path: &'static str) -> Arc<Self> {
        let files = OneFile {
            system: Arc::clone(system),
            path,
            file: Mutex::default(),
        };
        files.open_file(None);
        Arc::new(files)
    }

    fn open_file(&self, create: Option<u64>) -> Option<Arc<File>> {
        let mut file = self.file.lock().unwrap();
        if file.is_none() {
            let options = OpenOptions {
                write: true,
                direct: UseDirect::Never,
                create,
                ..OpenOptions::default()
            };
            let opened = Arc::clone(&self.system).open_file(Path::new(self.path), &options);
            *file = opened.ok().map(|(file, _)| file);
        }
        file.clone()
    }

    fn the_file(&self) -> Result<Arc<File>, FileError> {
        self.file.lock().unwrap().clone().ok_or(FileError::NotFound)
    }
}

impl FileSystem for OneFile {
    fn root(&self) -> Result<Found, FileError> {
        Ok(Found {
            id: id(0),
            attributes: attributes(0, 4096),
        })
    }

    fn attributes(&self, file: &FileId) -> Result<Attributes, FileError> {
        if *file == id(0) {
            return Ok(attributes(0, 4096));
        }
        let length = self.the_file()?.length();
        Ok(attributes(1, length.map_err(FileError::from)?))
    }

    fn access(&self, _: &FileId) -> Result<Access, FileError> {
        Ok(Access {
            read: true,
            write: true,
            execute: true,
        })
    }

    fn lookup(&self, directory: &FileId, name: &[u8]) -> Result<Found, FileError> {
        if *directory != id(0) || name != NAME.as_bytes() {
            return Err(FileError::NotFound);
        }
        Ok(Found {
            id: id(1),
            attributes: self.attributes(&id(1))?,
        })
    }

    fn parent(&self, _: &FileId) -> Result<Found, FileError> {
        Err(FileError::NotFound)
    }

    fn list(&self, _: &FileId, _: u64, _: usize, _: bool) -> Result<Listing, FileError> {
        Err(FileError::Invalid)
    }

    fn read_link(&self, _: &FileId) -> Result<Vec<u8>, FileError> {
        Err(FileError::Invalid)
    }

    fn open(&self, file: &FileId, _: bool) -> Result<Arc<File>, FileError> {
        match *file == id(1) {
            true => self.the_file(),
            false => Err(FileError::IsDirectory),
        }
    }

    fn create(
        &self,
        _: &FileId,
        name: &[u8],
        creation: Creation,
        changes: &Changes,
    ) -> Result<Created, FileError> {
        if name != NAME.as_bytes() {
            return Err(FileError::NoSpace);
        }
        if creation == Creation::Guarded && self.the_file().is_ok() {
            return Err(FileError::Exists);
        }
        let made = self.open_file(Some(changes.size.unwrap_or(0)));
        Ok(Created {
            found: self.lookup(&id(0), name)?,
            made,
        })
    }

    fn make(&self, _: &FileId, _: &[u8], _: Special<'_>, _: &Changes) -> Result<Found, FileError> {
        Err(FileError::NoSpace)
    }

    fn link(&self, _: &FileId, _: &FileId, _: &[u8]) -> Result<(), FileError> {
        Err(FileError::NoSpace)
    }

    fn remove(&self, _: &FileId, _: &[u8]) -> Result<(), FileError> {
        Err(FileError::Access)
    }

    fn rename(&self, _: (&FileId, &[u8]), _: (&FileId, &[u8])) -> Result<(), FileError> {
        Err(FileError::Access)
    }

    fn set(&self, _: &FileId, _: &Changes) -> Result<(), FileError> {
        Ok(())
    }

    fn space(&self) -> Result<Space, FileError> {
        Ok(Space::default())
    }
}
