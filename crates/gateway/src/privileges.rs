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

/// A user that a gateway can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    name: String,
    user: Uid,
    group: Gid,
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
        })
    }

    /// Makes this process, all of its threads, that user for good. The directories that files shall be in are made first where
    /// they are missing, and are the user's.
    ///
    /// # Errors
    /// The process is neither root nor that user already, or the system refuses.
    pub fn assume(&self, files: &[PathBuf]) -> Result<(), PrivilegesError> {
        let now = unistd::geteuid();
        if now == self.user {
            return Ok(());
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
        let become_it = || system(format!("become the user {:?}", self.name));
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
        Ok(())
    }

    /// Makes a directory that is missing, for the user.
    fn make(&self, directory: &Path) -> io::Result<()> {
        if directory.as_os_str().is_empty() || directory.exists() {
            return Ok(());
        }
        fs::create_dir_all(directory)?;
        fs::set_permissions(directory, Permissions::from_mode(DIRECTORY_MODE))?;
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
