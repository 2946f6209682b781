//! A directory of the machine, on whatever file system it is.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RawDir, SeekFrom, Timespec, Timestamps};
use rustix::io::Errno;
use weir_reactor::linux::handles::{self, KernelName};
use weir_reactor::{File, System};

use crate::{
    Access, Attributes, Changes, Created, Creation, Entry, FileError, FileId, FileSystem, Found,
    Kind, Listing, SetTime, Space, Special, Time,
};

/// Bytes of the entries that are read from the kernel at once.
const LIST_BYTES: usize = 32 << 10;
/// Directories that one may be below the root at most, for its parent to be found.
const DEPTH_MAX: u32 = 4096;
/// Rights that are asked for (access(2)).
const R_OK: i32 = 4;
const W_OK: i32 = 2;
const X_OK: i32 = 1;
/// The bits of a mode that say as whom a file runs.
const SET_ID: u32 = 0o6000;

/// A directory of the machine. What is above it is not reached, and no other file system that is mounted below it.
pub struct Directory {
    system: Arc<dyn System>,
    path: PathBuf,
    /// Root of the directory when it was served first.
    expected: Option<FileId>,
    tree: RwLock<Option<Arc<Tree>>>,
    /// Held while modes change, so that none is put back that was changed meanwhile.
    modes: Mutex<()>,
}

/// The directory, open.
struct Tree {
    root: OwnedFd,
    id: FileId,
    mount: i32,
}

impl Directory {
    /// The directory at `path`. Where `expected` says what it was and it is another one now, or none, it is absent until it is that
    /// one again.
    #[must_use]
    pub fn new(system: Arc<dyn System>, path: &Path, expected: Option<FileId>) -> Self {
        Directory {
            system,
            path: path.to_owned(),
            expected,
            tree: RwLock::new(None),
            modes: Mutex::new(()),
        }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn modes(&self) -> MutexGuard<'_, ()> {
        self.modes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a regular file, and nothing else, for I/O.
    fn open_by(
        &self,
        file: &FileId,
        open: impl FnOnce(&Tree) -> Result<OwnedFd, FileError>,
    ) -> Result<Arc<File>, FileError> {
        let tree = self.tree()?;
        // A device that was put there is not opened, since that may do something already.
        match attributes_of(&tree.at(file, OFlags::PATH)?)?.kind {
            Kind::Regular => {}
            Kind::Directory => return Err(FileError::IsDirectory),
            Kind::Link => return Err(FileError::IsLink),
            _ => return Err(FileError::NotRegular),
        }
        Ok(Arc::clone(&self.system).adopt_file(open(&tree)?)?)
    }

    /// Opens a regular file for writing, as its owner may who opened it before its mode forbade that: the owner gives itself the right,
    /// for a moment.
    fn to_write(&self, tree: &Tree, file: &FileId) -> Result<OwnedFd, FileError> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK;
        match tree.at(file, flags) {
            Err(FileError::Access) => {}
            opened => return opened,
        }
        let _modes = self.modes();
        let readable = tree.to_change(file)?;
        let attributes = attributes_of(&readable)?;
        if attributes.owner != rustix::process::geteuid().as_raw() {
            return Err(FileError::Access);
        }
        let mode = Mode::from_raw_mode(attributes.mode);
        fs::fchmod(&readable, mode | Mode::WUSR)?;
        let opened = tree.at(file, flags);
        fs::fchmod(&readable, mode)?;
        opened
    }

    fn tree(&self) -> Result<Arc<Tree>, FileError> {
        let open = self.tree.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(tree) = &*open {
            return Ok(Arc::clone(tree));
        }
        drop(open);
        let tree = Arc::new(Tree::open(&self.path)?);
        if self.expected.is_some_and(|expected| expected != tree.id) {
            return Err(FileError::Absent);
        }
        let mut open = self.tree.write().unwrap_or_else(PoisonError::into_inner);
        Ok(Arc::clone(open.get_or_insert(tree)))
    }
}

impl Tree {
    fn open(path: &Path) -> Result<Self, FileError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = match fs::open(path, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Err(FileError::Absent),
            opened => opened?,
        };
        let (id, mount) = name_of(&root)?;
        let tree = Tree { root, id, mount };
        // It takes a right to open files by their names: that it is missing is to be seen at once.
        tree.at(&id, OFlags::PATH)?;
        Ok(tree)
    }

    /// Opens a file.
    fn at(&self, id: &FileId, flags: OFlags) -> Result<OwnedFd, FileError> {
        let name = KernelName::new(id.kind, id.bytes()).ok_or(FileError::Stale)?;
        Ok(name.open(self.root.as_fd(), flags | OFlags::NOFOLLOW)?)
    }

    /// Opens a directory to work in.
    fn directory(&self, id: &FileId) -> Result<OwnedFd, FileError> {
        self.at(id, OFlags::PATH | OFlags::DIRECTORY)
    }

    /// Opens a file that is there to change what it is: a regular file or a directory.
    fn to_change(&self, id: &FileId) -> Result<OwnedFd, FileError> {
        self.at(id, OFlags::RDONLY | OFlags::NONBLOCK)
    }

    /// Looks at a file that was just reached.
    fn found(&self, file: &OwnedFd) -> Result<Found, FileError> {
        let (id, mount) = name_of(file)?;
        if mount != self.mount {
            return Err(FileError::Access);
        }
        Ok(Found {
            id,
            attributes: attributes_of(file)?,
        })
    }

    fn lookup(&self, directory: &OwnedFd, name: &[u8]) -> Result<(OwnedFd, Found), FileError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::openat(directory, name, flags, Mode::empty())?;
        let found = self.found(&file)?;
        Ok((file, found))
    }

    /// Tells whether the directory `id` is the root or below it.
    fn has(&self, directory: &OwnedFd) -> Result<bool, FileError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let (mut above, mut here) = (None::<OwnedFd>, name_of(directory)?);
        for _ in 0..DEPTH_MAX {
            if here == (self.id, self.mount) {
                return Ok(true);
            }
            let next = fs::openat(
                above.as_ref().unwrap_or(directory),
                "..",
                flags,
                Mode::empty(),
            )?;
            let there = name_of(&next)?;
            if there == here || there.1 != self.mount {
                return Ok(false);
            }
            (above, here) = (Some(next), there);
        }
        Ok(false)
    }

    /// Puts the entries of a directory on stable storage.
    fn sync_directory(&self, id: &FileId) -> Result<(), FileError> {
        Ok(fs::fsync(self.at(id, OFlags::RDONLY | OFlags::DIRECTORY)?)?)
    }
}

fn name_of(file: &OwnedFd) -> Result<(FileId, i32), FileError> {
    let (name, mount) = KernelName::of(file.as_fd())?;
    let id = FileId::new(name.kind, name.bytes()).ok_or(FileError::NotSupported)?;
    Ok((id, mount))
}

fn attributes_of(file: &OwnedFd) -> Result<Attributes, FileError> {
    Ok(Attributes::from(&fs::fstat(file)?))
}

/// The mode that a file of this process's user may be given by others: no program runs as that user because somebody else wishes it.
fn permitted(mode: u32, kind: Kind) -> Result<Mode, FileError> {
    if kind != Kind::Directory && mode & SET_ID != 0 {
        return Err(FileError::NotPermitted);
    }
    Ok(Mode::from_raw_mode(mode & 0o7777))
}

/// Changes the attributes of a file that is open, but for its length. Its owner stays who it is.
fn change(file: &OwnedFd, now: &Attributes, changes: &Changes) -> Result<(), FileError> {
    let is_given_away = |wanted: Option<u32>, owner| wanted.is_some_and(|wanted| wanted != owner);
    if is_given_away(changes.owner, now.owner) || is_given_away(changes.group, now.group) {
        return Err(FileError::NotPermitted);
    }
    if let Some(mode) = changes.mode {
        fs::fchmod(file, permitted(mode, now.kind)?)?;
    }
    let times = (changes.accessed, changes.modified);
    if times != (None, None) {
        let times = Timestamps {
            last_access: timespec(times.0),
            last_modification: timespec(times.1),
        };
        fs::utimensat(file, "", &times, AtFlags::EMPTY_PATH)?;
    }
    Ok(())
}

fn timespec(wanted: Option<SetTime>) -> Timespec {
    let (tv_sec, tv_nsec) = match wanted {
        None => (0, fs::UTIME_OMIT),
        Some(SetTime::Now) => (0, fs::UTIME_NOW),
        Some(SetTime::To(time)) => (time.seconds, time.nanoseconds.into()),
    };
    Timespec { tv_sec, tv_nsec }
}

/// The times that say by which call a file was made: seconds alone, which every file system keeps.
fn exclusive_times(verifier: [u8; 8]) -> (Time, Time) {
    let [a, b, c, d, e, f, g, h] = verifier;
    let seconds = |bytes| Time {
        seconds: i64::from(u32::from_be_bytes(bytes) & 0x7fff_ffff),
        nanoseconds: 0,
    };
    (seconds([a, b, c, d]), seconds([e, f, g, h]))
}

impl FileSystem for Directory {
    fn root(&self) -> Result<Found, FileError> {
        let tree = self.tree()?;
        Ok(Found {
            id: tree.id,
            attributes: attributes_of(&tree.root)?,
        })
    }

    fn attributes(&self, file: &FileId) -> Result<Attributes, FileError> {
        attributes_of(&self.tree()?.at(file, OFlags::PATH)?)
    }

    fn access(&self, file: &FileId) -> Result<Access, FileError> {
        let file = self.tree()?.at(file, OFlags::PATH)?;
        let may = |mode| Ok::<bool, FileError>(handles::may(file.as_fd(), mode)?);
        Ok(Access {
            read: may(R_OK)?,
            write: may(W_OK)?,
            execute: may(X_OK)?,
        })
    }

    fn lookup(&self, directory: &FileId, name: &[u8]) -> Result<Found, FileError> {
        let tree = self.tree()?;
        let directory = tree.directory(directory)?;
        Ok(tree.lookup(&directory, name)?.1)
    }

    fn parent(&self, directory: &FileId) -> Result<Found, FileError> {
        let tree = self.tree()?;
        if *directory == tree.id {
            return Err(FileError::NotFound);
        }
        let directory = tree.directory(directory)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = fs::openat(&directory, "..", flags, Mode::empty())?;
        // It may have been moved out of what is served.
        if !tree.has(&parent)? {
            return Err(FileError::Access);
        }
        tree.found(&parent)
    }

    fn list(
        &self,
        directory: &FileId,
        cookie: u64,
        bytes: usize,
        with_files: bool,
    ) -> Result<Listing, FileError> {
        let tree = self.tree()?;
        let directory = tree.at(directory, OFlags::RDONLY | OFlags::DIRECTORY)?;
        if cookie != 0 {
            fs::seek(&directory, SeekFrom::Start(cookie))?;
        }
        let mut buffer = vec![MaybeUninit::uninit(); LIST_BYTES];
        let mut entries = RawDir::new(&directory, &mut buffer);
        let (mut listing, mut taken) = (Listing::default(), 0);
        while taken < bytes {
            let Some(entry) = entries.next() else {
                listing.is_end = true;
                break;
            };
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            let is_itself = matches!(name, b"." | b"..");
            let looks = with_files && !is_itself;
            let found = match looks.then(|| tree.lookup(&directory, name)) {
                None => None,
                Some(Ok((_, found))) => Some(found),
                // It was removed meanwhile, or is another file system's.
                Some(Err(FileError::NotFound | FileError::Access)) => continue,
                Some(Err(error)) => return Err(error),
            };
            if !is_itself {
                taken += name.len() + size_of::<u64>();
            }
            listing.entries.push(Entry {
                name: name.to_vec(),
                number: entry.ino(),
                cookie: entry.next_entry_cookie(),
                found,
            });
        }
        Ok(listing)
    }

    fn read_link(&self, link: &FileId) -> Result<Vec<u8>, FileError> {
        let link = self.tree()?.at(link, OFlags::PATH)?;
        if attributes_of(&link)?.kind != Kind::Link {
            return Err(FileError::Invalid);
        }
        Ok(fs::readlinkat(&link, "", Vec::new())?.into_bytes())
    }

    fn open(&self, file: &FileId, write: bool) -> Result<Arc<File>, FileError> {
        let access = if write { OFlags::RDWR } else { OFlags::RDONLY };
        self.open_by(file, |tree| tree.at(file, access | OFlags::NONBLOCK))
    }

    fn open_as_owner(&self, file: &FileId) -> Result<Arc<File>, FileError> {
        self.open_by(file, |tree| self.to_write(tree, file))
    }

    fn create(
        &self,
        directory: &FileId,
        name: &[u8],
        creation: Creation,
        changes: &Changes,
    ) -> Result<Created, FileError> {
        let tree = self.tree()?;
        let parent = tree.directory(directory)?;
        let mode = permitted(changes.mode.unwrap_or(0o600), Kind::Regular)?;
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Nobody else may open it before it is what it shall be.
        match fs::openat(&parent, name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => {
                let mut changes = Changes {
                    mode: Some(mode.bits()),
                    ..*changes
                };
                if let Creation::Exclusive(verifier) = creation {
                    let (first, second) = exclusive_times(verifier);
                    changes.accessed = Some(SetTime::To(first));
                    changes.modified = Some(SetTime::To(second));
                }
                let made = self.make_new(&tree, &file, &changes);
                if made.is_err() {
                    let _ = fs::unlinkat(&parent, name, AtFlags::empty());
                }
                let found = made?;
                tree.sync_directory(directory)?;
                Ok(Created {
                    found,
                    made: Some(Arc::clone(&self.system).adopt_file(file)?),
                })
            }
            Err(Errno::EXIST) => self.take_existing(&tree, &parent, name, creation, changes),
            Err(error) => Err(error.into()),
        }
    }

    fn make(
        &self,
        directory: &FileId,
        name: &[u8],
        special: Special<'_>,
        changes: &Changes,
    ) -> Result<Found, FileError> {
        let tree = self.tree()?;
        let parent = tree.directory(directory)?;
        let wanted = changes.mode.unwrap_or(0o700);
        match special {
            Special::Directory => {
                let mode = permitted(wanted, Kind::Directory)?;
                fs::mkdirat(&parent, name, Mode::RWXU)?;
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let made = fs::openat(&parent, name, flags, Mode::empty())?;
                let changes = Changes {
                    mode: Some(mode.bits()),
                    size: None,
                    ..*changes
                };
                change(&made, &attributes_of(&made)?, &changes)?;
                fs::fsync(&made)?;
            }
            Special::Link(text) => fs::symlinkat(text, &parent, name)?,
            Special::Pipe => {
                let mode = permitted(wanted, Kind::Pipe)?;
                fs::mknodat(&parent, name, FileType::Fifo, mode, 0)?;
            }
            Special::Socket => {
                let mode = permitted(wanted, Kind::Socket)?;
                fs::mknodat(&parent, name, FileType::Socket, mode, 0)?;
            }
        }
        tree.sync_directory(directory)?;
        Ok(tree.lookup(&parent, name)?.1)
    }

    fn link(&self, file: &FileId, directory: &FileId, name: &[u8]) -> Result<(), FileError> {
        let tree = self.tree()?;
        let parent = tree.directory(directory)?;
        let file = tree.at(file, OFlags::PATH)?;
        fs::linkat(&file, "", &parent, name, AtFlags::EMPTY_PATH)?;
        tree.sync_directory(directory)
    }

    fn remove(&self, directory: &FileId, name: &[u8]) -> Result<(), FileError> {
        let tree = self.tree()?;
        let parent = tree.directory(directory)?;
        // What is another file system's is not removed either.
        let (_, found) = tree.lookup(&parent, name)?;
        let flags = match found.attributes.kind {
            Kind::Directory => AtFlags::REMOVEDIR,
            _ => AtFlags::empty(),
        };
        match fs::unlinkat(&parent, name, flags) {
            // Some file systems say so of a directory that has entries.
            Err(Errno::EXIST) => return Err(FileError::NotEmpty),
            removed => removed?,
        }
        tree.sync_directory(directory)
    }

    fn rename(&self, from: (&FileId, &[u8]), to: (&FileId, &[u8])) -> Result<(), FileError> {
        let tree = self.tree()?;
        let (source, target) = (tree.directory(from.0)?, tree.directory(to.0)?);
        fs::renameat(&source, from.1, &target, to.1)?;
        tree.sync_directory(to.0)?;
        if from.0 != to.0 {
            tree.sync_directory(from.0)?;
        }
        Ok(())
    }

    fn set(&self, file: &FileId, changes: &Changes) -> Result<(), FileError> {
        let tree = self.tree()?;
        let now = attributes_of(&tree.at(file, OFlags::PATH)?)?;
        match now.kind {
            Kind::Regular => {
                let file = match changes.size {
                    Some(_) => self.to_write(&tree, file)?,
                    None => tree.to_change(file)?,
                };
                if let Some(size) = changes.size {
                    fs::ftruncate(&file, size)?;
                }
                let modes = changes.mode.map(|_| self.modes());
                change(&file, &now, changes)?;
                drop(modes);
                Ok(fs::fsync(&file)?)
            }
            Kind::Directory if changes.size.is_some() => Err(FileError::IsDirectory),
            _ if changes.size.is_some() => Err(FileError::Invalid),
            Kind::Directory => {
                let file = tree.to_change(file)?;
                change(&file, &now, changes)?;
                Ok(fs::fsync(&file)?)
            }
            Kind::Link | Kind::Socket | Kind::Pipe if changes.mode.is_none() => {
                change(&tree.at(file, OFlags::PATH)?, &now, changes)?;
                Ok(fs::syncfs(&tree.root)?)
            }
            _ => Err(FileError::NotSupported),
        }
    }

    fn space(&self) -> Result<Space, FileError> {
        let stat = fs::fstatvfs(&self.tree()?.root)?;
        Ok(Space {
            bytes: stat.f_blocks * stat.f_frsize,
            bytes_free: stat.f_bfree * stat.f_frsize,
            bytes_available: stat.f_bavail * stat.f_frsize,
            files: stat.f_files,
            files_free: stat.f_ffree,
            files_available: stat.f_favail,
            name_bytes_max: stat.f_namemax as u32,
        })
    }
}

impl Directory {
    /// Gives a file that was just made its attributes.
    fn make_new(&self, tree: &Tree, file: &OwnedFd, changes: &Changes) -> Result<Found, FileError> {
        let now = tree.found(file)?.attributes;
        if let Some(size) = changes.size.filter(|&size| size > 0) {
            fs::ftruncate(file, size)?;
        }
        change(file, &now, changes)?;
        fs::fsync(file)?;
        tree.found(file)
    }

    /// A file is to be made that is there.
    fn take_existing(
        &self,
        tree: &Tree,
        parent: &OwnedFd,
        name: &[u8],
        creation: Creation,
        changes: &Changes,
    ) -> Result<Created, FileError> {
        let (_, mut found) = tree.lookup(parent, name)?;
        let attributes = &found.attributes;
        match creation {
            Creation::Guarded => return Err(FileError::Exists),
            Creation::Exclusive(verifier) => {
                let is_ours = attributes.kind == Kind::Regular
                    && exclusive_times(verifier) == (attributes.accessed, attributes.modified);
                if !is_ours {
                    return Err(FileError::Exists);
                }
            }
            Creation::Unchecked => {
                if let Some(size) = changes.size.filter(|_| attributes.kind == Kind::Regular) {
                    let only_size = Changes {
                        size: Some(size),
                        ..Changes::default()
                    };
                    self.set(&found.id, &only_size)?;
                    found.attributes = self.attributes(&found.id)?;
                }
            }
        }
        Ok(Created { found, made: None })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use weir_reactor::linux::{LinuxConfig, LinuxSystem};

    use super::*;

    struct Scene {
        folder: tempfile::TempDir,
        files: Directory,
        root: FileId,
    }

    /// A directory that is served; none where the process may not open files by their names.
    fn scene() -> Option<Scene> {
        let folder = tempfile::tempdir().expect("a folder");
        let system = LinuxSystem::new(LinuxConfig::default()).expect("io_uring works");
        let served = folder.path().join("served");
        std::fs::create_dir(&served).expect("it is made");
        let files = Directory::new(system, &served, None);
        match files.root() {
            Ok(root) => Some(Scene {
                folder,
                root: root.id,
                files,
            }),
            Err(error) => {
                assert_eq!(
                    error,
                    FileError::NotPermitted,
                    "the only reason to have no root"
                );
                eprintln!("skipped: the process has no CAP_DAC_READ_SEARCH");
                None
            }
        }
    }

    impl Scene {
        fn path(&self, name: &str) -> PathBuf {
            self.files.path().join(name)
        }

        fn create(&self, name: &str, creation: Creation) -> Result<Created, FileError> {
            let changes = Changes {
                mode: Some(0o640),
                ..Changes::default()
            };
            self.files
                .create(&self.root, name.as_bytes(), creation, &changes)
        }
    }

    #[test]
    fn files_are_made_as_they_are_asked_for() {
        let Some(scene) = scene() else { return };
        let made = scene.create("one", Creation::Guarded).expect("it is made");
        assert!(made.made.is_some());
        let metadata = std::fs::metadata(scene.path("one")).expect("it is there");
        assert_eq!(metadata.permissions().mode() & 0o7777, 0o640);
        assert_eq!(made.found.attributes.number, metadata.ino());
        let again = scene.create("one", Creation::Guarded);
        assert_eq!(again.err(), Some(FileError::Exists));
        let again = scene
            .create("one", Creation::Unchecked)
            .expect("it is there");
        assert!(again.made.is_none() && again.found.id == made.found.id);
        let sets_id = Changes {
            mode: Some(0o4755),
            ..Changes::default()
        };
        assert_eq!(
            scene.files.set(&made.found.id, &sets_id),
            Err(FileError::NotPermitted)
        );
    }

    #[test]
    fn rights_are_the_processes_own() {
        let Some(scene) = scene() else { return };
        let made = scene.create("one", Creation::Guarded).expect("it is made");
        let access = |id: &FileId| scene.files.access(id).expect("it is told");
        let file = access(&made.found.id);
        assert_eq!((file.read, file.write, file.execute), (true, true, false));
        let root = access(&scene.root);
        assert_eq!((root.read, root.write, root.execute), (true, true, true));
    }

    #[test]
    fn an_exclusive_file_is_known_by_its_call() {
        let Some(scene) = scene() else { return };
        let call = Creation::Exclusive(*b"verifier");
        let made = scene.create("one", call).expect("it is made");
        let again = scene.create("one", call).expect("the same call");
        assert!(made.made.is_some() && again.made.is_none());
        assert_eq!(made.found.id, again.found.id);
        let other = scene.create("one", Creation::Exclusive(*b"another!"));
        assert_eq!(other.err(), Some(FileError::Exists));
    }

    #[test]
    fn names_are_looked_up_and_links_not_followed() {
        let Some(scene) = scene() else { return };
        symlink("/etc", scene.path("link")).expect("it is made");
        let link = scene
            .files
            .lookup(&scene.root, b"link")
            .expect("it is there");
        assert_eq!(link.attributes.kind, Kind::Link);
        assert_eq!(scene.files.read_link(&link.id), Ok(b"/etc".to_vec()));
        let through = scene.files.lookup(&link.id, b"passwd");
        assert!(
            matches!(through, Err(FileError::NotDirectory | FileError::IsLink)),
            "{through:?}"
        );
        assert_eq!(
            scene.files.open(&link.id, false).err(),
            Some(FileError::IsLink)
        );
        let none = scene.files.lookup(&scene.root, b"none");
        assert_eq!(none, Err(FileError::NotFound));
    }

    #[test]
    fn nothing_above_the_directory_is_reached() {
        let Some(scene) = scene() else { return };
        assert_eq!(scene.files.parent(&scene.root), Err(FileError::NotFound));
        std::fs::create_dir_all(scene.path("a/b")).expect("they are made");
        let a = scene.files.lookup(&scene.root, b"a").expect("it is there");
        let b = scene.files.lookup(&a.id, b"b").expect("it is there");
        assert_eq!(scene.files.parent(&b.id).map(|found| found.id), Ok(a.id));
        assert_eq!(
            scene.files.parent(&a.id).map(|found| found.id),
            Ok(scene.root)
        );
        let outside = scene.folder.path().join("outside");
        std::fs::rename(scene.path("a"), &outside).expect("it is moved");
        assert_eq!(scene.files.parent(&a.id), Err(FileError::Access));
        assert_eq!(scene.files.parent(&b.id), Err(FileError::Access));
    }

    #[test]
    fn a_directory_is_listed_in_pieces() {
        let Some(scene) = scene() else { return };
        let mut names: Vec<String> = (0..300).map(|number| format!("file{number}")).collect();
        for name in &names {
            std::fs::write(scene.path(name), name).expect("it is written");
        }
        let (mut cookie, mut listed, mut calls) = (0, Vec::new(), 0);
        loop {
            let listing = scene
                .files
                .list(&scene.root, cookie, 500, true)
                .expect("it is listed");
            calls += 1;
            for entry in listing.entries {
                cookie = entry.cookie;
                let name = String::from_utf8(entry.name).expect("it is text");
                match entry.found {
                    Some(found) => {
                        assert_eq!(found.attributes.size, name.len() as u64);
                        assert_eq!(found.attributes.number, entry.number);
                    }
                    None => assert!(matches!(&name[..], "." | ".."), "{name} was asked for"),
                }
                listed.push(name);
            }
            if listing.is_end {
                break;
            }
        }
        assert!(calls > 5, "in {calls} pieces");
        listed.sort();
        names.extend([".".to_owned(), "..".to_owned()]);
        names.sort();
        assert_eq!(listed, names);
    }

    #[test]
    fn names_change_and_go() {
        let Some(scene) = scene() else { return };
        let (files, root) = (&scene.files, &scene.root);
        let one = scene
            .create("one", Creation::Guarded)
            .expect("it is made")
            .found
            .id;
        files.link(&one, root, b"two").expect("it is linked");
        assert_eq!(files.attributes(&one).map(|found| found.links), Ok(2));
        let folder = files
            .make(root, b"folder", Special::Directory, &Changes::default())
            .expect("it is made");
        files
            .rename((root, b"one"), (&folder.id, b"moved"))
            .expect("it is renamed");
        assert_eq!(files.lookup(root, b"one"), Err(FileError::NotFound));
        assert_eq!(
            files.lookup(&folder.id, b"moved").map(|found| found.id),
            Ok(one)
        );
        assert_eq!(files.remove(root, b"folder"), Err(FileError::NotEmpty));
        files.remove(&folder.id, b"moved").expect("it is removed");
        files.remove(root, b"folder").expect("it is removed");
        files.remove(root, b"two").expect("it is removed");
        assert_eq!(files.attributes(&one).err(), Some(FileError::Stale));
    }

    #[test]
    fn attributes_are_set() {
        let Some(scene) = scene() else { return };
        let one = scene
            .create("one", Creation::Guarded)
            .expect("it is made")
            .found
            .id;
        let then = Time {
            seconds: 1_000_000,
            nanoseconds: 5_000_000,
        };
        let changes = Changes {
            size: Some(12345),
            mode: Some(0o600),
            accessed: Some(SetTime::To(then)),
            modified: Some(SetTime::To(then)),
            ..Changes::default()
        };
        scene.files.set(&one, &changes).expect("they are set");
        let now = scene.files.attributes(&one).expect("it is there");
        assert_eq!((now.size, now.mode), (12345, 0o600));
        assert_eq!((now.accessed, now.modified), (then, then));
        let given_away = Changes {
            owner: Some(now.owner + 1),
            ..Changes::default()
        };
        assert_eq!(
            scene.files.set(&one, &given_away),
            Err(FileError::NotPermitted)
        );
        let kept = Changes {
            owner: Some(now.owner),
            ..Changes::default()
        };
        assert_eq!(scene.files.set(&one, &kept), Ok(()));
    }

    #[test]
    fn another_directory_in_its_place_is_absent() {
        let Some(scene) = scene() else { return };
        let system = LinuxSystem::new(LinuxConfig::default()).expect("io_uring works");
        let path = scene.files.path().to_owned();
        std::fs::rename(&path, scene.folder.path().join("moved")).expect("it is moved");
        let again = Directory::new(system, &path, Some(scene.root));
        assert_eq!(again.root(), Err(FileError::Absent));
        std::fs::create_dir(&path).expect("it is made");
        assert_eq!(again.root(), Err(FileError::Absent));
        std::fs::remove_dir(&path).expect("it is removed");
        std::fs::rename(scene.folder.path().join("moved"), &path).expect("it is moved");
        assert_eq!(again.root().map(|found| found.id), Ok(scene.root));
    }
}
