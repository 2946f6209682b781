//! The token that coordinator and agents share, from a file that nobody else can read.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ring::digest;
use subtle::ConstantTimeEq;

/// Letters that a token has at least: what cannot be guessed in the time that there is.
pub const LETTERS_MIN: usize = 16;
/// Letters that a token has at most.
pub const LETTERS_MAX: usize = 1024;
/// Permissions that others must not have.
const OTHERS: u32 = 0o077;

/// What proves that a coordinator may use an agent. It is never shown.
#[derive(Clone)]
pub struct Token(String);

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("the token file {path} cannot be read: {source}; make one with: (umask 077; openssl rand -hex 32 > {path})", path = .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others can read it.
    #[error("{path} can be read or changed by others than its owner (mode {mode:04o}); say chmod 600 {path}", path = .path.display())]
    Permissions {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Somebody else's.
    #[error("{path} belongs to user {owner}, and not to who runs this, nor to root", path = .path.display())]
    Owner {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// No token.
    #[error("{path} holds no token: it must be one line of {LETTERS_MIN} to {LETTERS_MAX} letters without blanks", path = .path.display())]
    Form {
        /// The file.
        path: PathBuf,
    },
}

impl Token {
    /// Reads a token from the one line of a file.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn from_file(path: &Path) -> Result<Self, TokenError> {
        let unreadable = |source| TokenError::Read {
            path: path.to_owned(),
            source,
        };
        let file = File::open(path).map_err(unreadable)?;
        check_private(path, &file)?;
        let mut text = String::new();
        let read = file.take(LETTERS_MAX as u64 + 2).read_to_string(&mut text);
        read.map_err(unreadable)?;
        Token::new(&text).ok_or_else(|| TokenError::Form {
            path: path.to_owned(),
        })
    }

    /// A token from its text, where it is one.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim_end_matches(['\n', '\r']);
        let good = (LETTERS_MIN..=LETTERS_MAX).contains(&text.len())
            && text.chars().all(|letter| letter.is_ascii_graphic());
        good.then(|| Token(text.to_owned()))
    }

    /// Whether `shown` is this token. How long that takes does not depend on where the two differ.
    #[must_use]
    pub fn is(&self, shown: &str) -> bool {
        let digest = |text: &str| digest::digest(&digest::SHA256, text.as_bytes());
        let (own, shown) = (digest(&self.0), digest(shown));
        own.as_ref().ct_eq(shown.as_ref()).into()
    }

    /// To be sent, and nothing else.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(***)")
    }
}

/// Refuses a file with a secret that others have access to.
pub(crate) fn check_private(path: &Path, file: &File) -> Result<(), TokenError> {
    let read = |source| TokenError::Read {
        path: path.to_owned(),
        source,
    };
    let about = file.metadata().map_err(read)?;
    let mode = about.mode() & 0o7777;
    if mode & OTHERS != 0 {
        return Err(TokenError::Permissions {
            path: path.to_owned(),
            mode,
        });
    }
    let own = rustix::process::geteuid().as_raw();
    if about.uid() != own && about.uid() != 0 {
        return Err(TokenError::Owner {
            path: path.to_owned(),
            owner: about.uid(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_is_itself_and_nothing_else() {
        let token = Token::new("0123456789abcdef\n").expect("it is long enough");
        assert!(token.is("0123456789abcdef"));
        for other in [
            "",
            "0123456789abcde",
            "0123456789abcdef0",
            "0123456789abcdeF",
        ] {
            assert!(!token.is(other), "{other}");
        }
        assert_eq!(format!("{token:?}"), "Token(***)");
        for wrong in ["", "short", "0123456789 abcdef", "0123456789\nabcdef00"] {
            assert!(Token::new(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = folder.path().join("token");
        let missing = Token::from_file(&path).unwrap_err();
        assert!(missing.to_string().contains("openssl rand"), "{missing}");
        fs::write(&path, "0123456789abcdef\n").unwrap();
        for mode in [0o644, 0o640, 0o602, 0o610] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = Token::from_file(&path).unwrap_err();
            assert!(error.to_string().contains("chmod 600"), "{error}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(Token::from_file(&path).unwrap().is("0123456789abcdef"));
        fs::write(&path, "a".repeat(LETTERS_MAX + 1)).unwrap();
        assert!(matches!(
            Token::from_file(&path),
            Err(TokenError::Form { .. })
        ));
    }
}
