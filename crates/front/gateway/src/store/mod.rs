//! Keeps the live state over restarts.
//!
//! [`Store`] is what the control plane needs of any keeper; [`FileStore`] keeps the state in a local
//! file. Whoever saves says which revision it believes to be stored, so that a store shared by
//! several gateways can refuse the slower of two.

mod disk;
mod file;
mod secrets;

use std::path::PathBuf;

pub use self::file::FileStore;
use crate::state::{State, StateError};

/// A keeper of the live state.
pub trait Store: Send {
    /// The stored state; none if nothing was ever saved.
    ///
    /// # Errors
    /// What is stored cannot be read or understood. Nothing is saved to a store that did not load.
    fn load(&mut self) -> Result<Option<State>, StoreError>;

    /// Stores `state` in place of the one of revision `expected` (none: of nothing). When this
    /// returns, the state survives the process and the machine.
    ///
    /// # Errors
    /// The state was not stored, or, with [`StoreError::Uncertain`], it is, and may not be for good.
    fn save(&mut self, state: &State, expected: Option<u64>) -> Result<(), StoreError>;

    /// Where the state is, in words for a person.
    fn place(&self) -> String;
}

/// Why a state was not loaded or saved.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The system refused a step.
    #[error("cannot {step} {}: {source}", path.display())]
    System {
        /// What was to be done.
        step: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The new state is in place, but the system does not promise that it stays there.
    #[error(
        "the state was written to {} but cannot be made durable: {source}; whether the change \
         survives a power failure is not known", path.display()
    )]
    Uncertain {
        /// The state file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Another gateway has the store.
    #[error(
        "{} is in use by another gateway{}: stop that one, or give this one a `state` of its own",
        path.display(), holder.map(|pid| format!(" (process {pid})")).unwrap_or_default()
    )]
    Locked {
        /// The state file.
        path: PathBuf,
        /// The other gateway's process, where the lock says so.
        holder: Option<u32>,
    },
    /// The stored state is damaged.
    #[error("{} is damaged and was left as it is: {reason}; {way_out}", path.display())]
    Damaged {
        /// The state file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// What the operator can do.
        way_out: String,
    },
    /// The stored state was written by a later version.
    #[error(
        "{} has format {format}, and this version of Weir knows formats up to {known}: use the \
         version that wrote it, or a later one", path.display()
    )]
    Newer {
        /// The state file.
        path: PathBuf,
        /// Its format.
        format: u32,
        /// The latest format that this version knows.
        known: u32,
    },
    /// The stored state is sound, and holds what this version does not know.
    #[error(
        "{} holds what this version of Weir does not know ({source}): use the version that wrote it, or \
         a later one", path.display()
    )]
    Unknown {
        /// The state file.
        path: PathBuf,
        /// The first of what is not known.
        source: serde_json::Error,
    },
    /// The stored state breaks a rule.
    #[error("{} holds a state that breaks a rule: {source}", path.display())]
    Invalid {
        /// The state file.
        path: PathBuf,
        /// The rule.
        source: StateError,
    },
    /// The secrets that the stored state names cannot be had.
    #[error(
        "{} names secrets that {} should hold, and {reason}: restore both files from one backup, or go back to \
         the state before the last change, whose file ends in .previous", state.display(), path.display()
    )]
    Secrets {
        /// The state file.
        state: PathBuf,
        /// The file of secrets.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Somebody else has saved in between.
    #[error("the stored state has revision {found:?} where {expected:?} was expected")]
    Conflict {
        /// The revision that the caller knows.
        expected: Option<u64>,
        /// The revision that is stored.
        found: Option<u64>,
    },
    /// Saving was tried without having loaded.
    #[error("the state must be loaded before it is saved")]
    NotLoaded,
}
