//! Which user the gateway is, where root started it and `user` is configured.
//!
//! The user is changed before anything is opened: the state, the control socket, listeners and volumes are all had as that user,
//! so that whatever works at start works again later, when a volume is retried or a listener is added. Nothing that a
//! gateway does needs more: its ports are above 1023, and io_uring is anybody's.

use std::ffi::CString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{self, Gid, Group, Uid, User};
use rustix::fs::{Access, access};

/// Mode of a directory that had to be made for the user.
const DIRECTORY_MODE: u32 = 0o755;

/// Why the gateway cannot be the user that it shall be.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegesError {
    /// There is no such user.
    #[error("there is no user {name:?}: make it (useradd --system {name}), or mend `user`")]
    NoUser {
        /// What is configured.
        name: String,
    },
    /// There is no such group.
    #[error("there is no group {name:?}: make it (groupadd --system {name}), or mend `group`")]
    NoGroup {
        /// What is configured.
        name: String,
    },
    /// The user is root itself.
    #[error("`user` is {name:?}, which is root: name another one, or leave it out")]
    Root {
        /// What is configured.
        name: String,
    },
    /// Only root can become another user.
    #[error(
        "`user` is {name:?}, and the gateway was started as another user than that one and root: start it as one of them, or leave \
         `user` out"
    )]
    NotRoot {
        /// What is configured.
        name: String,
    },
    /// It is the user already, and of another group than it shall be.
    #[error(
        "`group` is {group:?}, and the gateway was started as {name:?} with another group: start it with that one (Group= of the \
         service), as root, or leave `group` out"
    )]
    OtherGroup {
        /// The configured user, who it is.
        name: String,
        /// The configured group.
        group: String,
    },
    /// A file or directory of the gateway belongs to somebody else.
    #[error(
        "the user {name:?} may not use {}: it may be left from a run as another user; give it to the user (chown -R {name}: {}), or \
         name another place", path.display(), path.display()
    )]
    NotOurs {
        /// The user.
        name: String,
        /// The file or directory.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot {step}: {source}")]
    System {
        /// What was to be done.
        step: String,
        /// What the system said.
        source: io::Error,
    },
}

fn system(step: impl Into<String>) -> impl FnOnce(Errno) -> PrivilegesError {
    let step = step.into();
    move |error| PrivilegesError::System {
        step,
        source: error.into(),
    }
}

/// The file that is locked by who uses `file`.
fn lock_of(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

/// A user that a gateway can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    name: String,
    user: Uid,
    group: Gid,
    /// The group's name, where one is configured.
    group_name: Option<String>,
}

impl Identity {
    /// The user of this name; the group is its own unless another one is named.
    ///
    /// # Errors
    /// There is none, or it is root.
    pub fn find(name: &str, group: Option<&str>) -> Result<Self, PrivilegesError> {
        let found = User::from_name(name).map_err(system(format!("look the user {name:?} up")))?;
        let user = found.ok_or_else(|| PrivilegesError::NoUser {
            name: name.to_owned(),
        })?;
        if user.uid.is_root() {
            return Err(PrivilegesError::Root {
                name: name.to_owned(),
            });
        }
        let group_name = group.map(str::to_owned);
        let group = match group {
            None => user.gid,
            Some(group) => {
                let found = Group::from_name(group)
                    .map_err(system(format!("look the group {group:?} up")))?;
                let found = found.ok_or_else(|| PrivilegesError::NoGroup {
                    name: group.to_owned(),
                })?;
                found.gid
            }
        };
        Ok(Identity {
            name: name.to_owned(),
            user: user.uid,
            group,
            group_name,
        })
    }

    /// Makes this process, all of its threads, that user for good. The directories that files shall be in are made first where
    /// they are missing, and are the user's.
    ///
    /// # Errors
    /// The process is neither root nor that user already, or has that user and another group than is configured, or the system
    /// refuses, or what lies there already is not that user's.
    pub fn assume(&self, files: &[PathBuf]) -> Result<(), PrivilegesError> {
        let now = unistd::geteuid();
        let become_it = || system(format!("become the user {:?}", self.name));
        if now == self.user {
            self.check_group()?;
            nix::sys::prctl::set_no_new_privs().map_err(become_it())?;
            return self.check_places(files);
        }
        if !now.is_root() {
            return Err(PrivilegesError::NotRoot {
                name: self.name.clone(),
            });
        }
        for directory in files.iter().filter_map(|file| file.parent()) {
            self.make(directory)
                .map_err(|source| PrivilegesError::System {
                    step: format!(
                        "make the directory {} for {:?}",
                        directory.display(),
                        self.name
                    ),
                    source,
                })?;
        }
        let name = CString::new(self.name.as_str()).map_err(|_| PrivilegesError::NoUser {
            name: self.name.clone(),
        })?;
        // Groups first: a user that is not root may not change them.
        unistd::initgroups(&name, self.group).map_err(become_it())?;
        unistd::setresgid(self.group, self.group, self.group).map_err(become_it())?;
        unistd::setresuid(self.user, self.user, self.user).map_err(become_it())?;
        nix::sys::prctl::set_no_new_privs().map_err(become_it())?;
        assert!(
            unistd::setuid(Uid::from_raw(0)).is_err(),
            "who is not root cannot become root again"
        );
        self.check_places(files)
    }

    /// Only root can give a process another group.
    fn check_group(&self) -> Result<(), PrivilegesError> {
        match &self.group_name {
            Some(group) if unistd::getegid() != self.group => Err(PrivilegesError::OtherGroup {
                name: self.name.clone(),
                group: group.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// Whether this process, which is the user now, may use the directories that files shall be in, and what is there of them.
    fn check_places(&self, files: &[PathBuf]) -> Result<(), PrivilegesError> {
        let read_write = Access::READ_OK | Access::WRITE_OK;
        for file in files {
            let (directory, lock) = (file.parent(), lock_of(file));
            let directory = directory.filter(|directory| !directory.as_os_str().is_empty());
            // A socket of an earlier run is replaced.
            let files = [file, &lock].into_iter().filter(|file| file.is_file());
            let places = directory.map(|directory| (directory, Access::WRITE_OK | Access::EXEC_OK));
            let places = places
                .into_iter()
                .chain(files.map(|file| (file.as_path(), read_write)));
            for (path, rights) in places {
                if access(path, rights) == Err(rustix::io::Errno::ACCESS) {
                    return Err(PrivilegesError::NotOurs {
                        name: self.name.clone(),
                        path: path.to_owned(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Makes a directory that is missing, for the user, and those above it so that the user can reach it.
    fn make(&self, directory: &Path) -> io::Result<()> {
        if directory.as_os_str().is_empty() || directory.exists() {
            return Ok(());
        }
        let missing: Vec<_> = directory
            .ancestors()
            .take_while(|above| !above.as_os_str().is_empty() && !above.exists())
            .collect();
        for above in missing.into_iter().rev() {
            fs::create_dir(above)?;
            // Whatever the umask of who starts it is.
            fs::set_permissions(above, Permissions::from_mode(DIRECTORY_MODE))?;
        }
        lchown(
            directory,
            Some(self.user.as_raw()),
            Some(self.group.as_raw()),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who this process is.
    fn oneself() -> Identity {
        Identity {
            name: "oneself".to_owned(),
            user: unistd::geteuid(),
            group: unistd::getegid(),
            group_name: None,
        }
    }

    #[test]
    fn each_directory_that_is_made_can_be_reached() {
        let folder = tempfile::tempdir().expect("a folder");
        let made = folder.path().join("one/two/three");
        oneself().make(&made).expect("it is made");
        // The umask of the tests takes nothing of this away that the gateway gives.
        for above in made.ancestors().take(3) {
            let mode = fs::metadata(above)
                .expect("it is there")
                .permissions()
                .mode();
            assert_eq!(mode & 0o7777, DIRECTORY_MODE, "{}", above.display());
        }
        oneself().make(&made).expect("it is there");
    }

    #[test]
    fn who_is_the_user_already_must_have_the_group() {
        let other = Identity {
            group: Gid::from_raw(unistd::getegid().as_raw() + 1),
            ..oneself()
        };
        assert!(other.check_group().is_ok(), "none is configured");
        let configured = |identity: Identity| Identity {
            group_name: Some("others".to_owned()),
            ..identity
        };
        assert!(configured(oneself()).check_group().is_ok());
        let error = configured(other).assume(&[]).expect_err("another group");
        assert!(
            error.to_string().contains("`group` is \"others\""),
            "{error}"
        );
    }

    #[test]
    fn a_user_is_found_or_it_is_said_what_is_wrong() {
        let nobody = Identity::find("nobody", None).expect("every system has it");
        assert!(!nobody.user.is_root());
        let with_group = Identity::find("nobody", Some("root")).expect("every system has it");
        assert_eq!(with_group.group, Gid::from_raw(0));
        for (user, group, said) in [
            ("root", None, "which is root"),
            ("no such user", None, "there is no user \"no such user\""),
            ("nobody", Some("no such group"), "there is no group"),
        ] {
            let error = Identity::find(user, group).expect_err("it is refused");
            assert!(error.to_string().contains(said), "{error}");
        }
    }
}
