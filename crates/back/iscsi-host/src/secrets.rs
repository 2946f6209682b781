//! CHAP secrets: from files or from the environment, never from a URL, which is shown and logged.

use std::io::Read;
use std::path::{Path, PathBuf};

use weir_iscsi::Name;
use weir_iscsi::chap::{ChapAlgorithm, Credentials, Secret, SecretLengthError};
use weir_iscsi::login::InitiatorChap;

use crate::options::ChapOptions;

/// The variable of this host's secret.
pub const SECRET_VARIABLE: &str = "WEIR_CHAP_SECRET";
/// The variable of the target's secret.
pub const MUTUAL_SECRET_VARIABLE: &str = "WEIR_CHAP_MUTUAL_SECRET";

/// Most bytes that are read of a file with a secret: more than any secret has, and its line's end.
const FILE_BYTES_MAX: u64 = 4096;

/// Failure to have a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// None was given.
    #[error("no secret was given: use {parameter}=FILE in the URL, or set {variable}")]
    Missing {
        /// The parameter.
        parameter: &'static str,
        /// The variable.
        variable: &'static str,
    },
    /// The file cannot be read.
    #[error("cannot read the secret in {path}: {error}")]
    File {
        /// The file.
        path: String,
        /// The reason.
        error: String,
    },
    /// It cannot be a secret.
    #[error("the secret of {parameter}= cannot be: {error}")]
    Length {
        /// The parameter.
        parameter: &'static str,
        /// The reason.
        #[source]
        error: SecretLengthError,
    },
    /// Both sides have the same.
    #[error(
        "the secrets of this host and of the target are the same, so that neither proves anything"
    )]
    Same,
}

/// CHAP as a URL asks for it, where it does. It reads files: it is for a thread that may block. Files must lie beneath a folder, where
/// there is one.
///
/// # Errors
/// [`SecretError`].
pub(crate) fn chap(
    options: &ChapOptions,
    initiator: &Name,
    beneath: Option<&Path>,
) -> Result<Option<InitiatorChap>, SecretError> {
    let Some(user) = &options.user else {
        return Ok(None);
    };
    let credentials = |name: &String, parameter, file: &Option<PathBuf>, variable| {
        let text = text(parameter, file.as_deref(), variable, beneath)?;
        let secret = Secret::new(text.as_bytes());
        let secret = secret.map_err(|error| SecretError::Length { parameter, error })?;
        Ok(Credentials {
            name: name.clone(),
            secret,
        })
    };
    let initiator = credentials(user, "secret_file", &options.secret_file, SECRET_VARIABLE)
        .inspect_err(|error| tracing::debug!(%initiator, %error, "no secret"))?;
    let file = &options.mutual_secret_file;
    let target = options
        .mutual_user
        .as_ref()
        .map(|user| credentials(user, "mutual_secret_file", file, MUTUAL_SECRET_VARIABLE))
        .transpose()?;
    if target
        .as_ref()
        .is_some_and(|target| target.secret.is_same(&initiator.secret))
    {
        return Err(SecretError::Same);
    }
    Ok(Some(InitiatorChap {
        initiator,
        target,
        algorithms: ChapAlgorithm::ALL.to_vec(),
    }))
}

/// The first line of a file, or a variable of the environment.
fn text(
    parameter: &'static str,
    file: Option<&Path>,
    variable: &'static str,
    beneath: Option<&Path>,
) -> Result<String, SecretError> {
    let missing = SecretError::Missing {
        parameter,
        variable,
    };
    let Some(path) = file else {
        return std::env::var(variable).map_err(|_| missing);
    };
    let fail = |error: &dyn std::fmt::Display| SecretError::File {
        path: path.display().to_string(),
        error: error.to_string(),
    };
    let found = path.canonicalize().map_err(|error| fail(&error))?;
    if beneath.is_some_and(|folder| !found.starts_with(folder)) {
        return Err(fail(&"it does not lie where files of volumes may"));
    }
    let mut text = String::new();
    let file = std::fs::File::open(found).map_err(|error| fail(&error))?;
    let read = file.take(FILE_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| fail(&error))?;
    match text.lines().next().filter(|line| !line.is_empty()) {
        Some(line) => Ok(line.to_owned()),
        None => Err(fail(&"its first line is empty")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> Name {
        "iqn.2026-01.org.example:host".parse().expect("a name")
    }

    fn options(folder: &Path) -> ChapOptions {
        std::fs::write(folder.join("a"), "the-first-secret\nmore\n").expect("it is written");
        std::fs::write(folder.join("b"), "the-other-secret").expect("it is written");
        ChapOptions {
            user: Some("alice".to_owned()),
            secret_file: Some(folder.join("a")),
            mutual_user: Some("gw".to_owned()),
            mutual_secret_file: Some(folder.join("b")),
        }
    }

    #[test]
    fn secrets_are_first_lines_of_files_that_may_be_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = options(folder.path());
        let both = chap(&options, &name(), None).expect("they are there");
        let both = both.expect("they are asked for");
        assert_eq!(both.initiator.name, "alice");
        let first = Secret::new(b"the-first-secret").expect("a secret");
        assert!(both.initiator.secret.is_same(&first));
        assert_eq!(both.target.expect("a target").name, "gw");
        let real = folder.path().canonicalize().expect("it is there");
        assert!(chap(&options, &name(), Some(&real)).is_ok());
        let elsewhere = chap(&options, &name(), Some(Path::new("/nowhere")));
        assert!(matches!(elsewhere, Err(SecretError::File { .. })));
        assert!(matches!(
            chap(&ChapOptions::default(), &name(), None),
            Ok(None)
        ));
    }

    #[test]
    fn secrets_that_are_missing_or_the_same_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let same = ChapOptions {
            mutual_secret_file: Some(folder.path().join("a")),
            ..options(folder.path())
        };
        assert_eq!(chap(&same, &name(), None).err(), Some(SecretError::Same));
        let absent = ChapOptions {
            secret_file: Some(folder.path().join("c")),
            ..options(folder.path())
        };
        let error = chap(&absent, &name(), None).expect_err("there is no file");
        assert!(error.to_string().contains("/c"), "{error}");
        std::fs::write(folder.path().join("c"), "\n").expect("it is written");
        assert!(chap(&absent, &name(), None).is_err());
    }
}
