//! Names of iSCSI nodes: iqn., eui. and naa. (RFC 7143 section 4.2.7).

use core::fmt;
use std::str::FromStr;
use std::sync::Arc;
use thiserror::Error;

/// Most bytes of a name (section 4.2.7.1).
pub const NAME_LENGTH_MAX: usize = 223;

/// The name of an initiator or a target, in lower case, as names are compared (RFC 3722).
///
/// Characters are letters, digits, `-`, `.` and `:` of ASCII. RFC 3722 allows more of Unicode, which no host was seen to use, and forbids
/// `_`, which is taken here: hosts have it where their own name has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

/// A text that is no name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NameError {
    /// Longer than [`NAME_LENGTH_MAX`].
    #[error("an iSCSI name of {length} bytes; {NAME_LENGTH_MAX} are allowed")]
    TooLong {
        /// Bytes of the text.
        length: usize,
    },
    /// It begins with no known format.
    #[error("an iSCSI name begins with iqn., eui. or naa., as in iqn.2026-01.org.example:disk1")]
    UnknownFormat,
    /// A character that names do not have.
    #[error("an iSCSI name has ASCII letters, digits, '-', '.', ':' and '_'; not {character:?}")]
    Character {
        /// The first of them.
        character: char,
    },
    /// An iqn. name without its date.
    #[error("an iqn. name goes on with a year and a month, as in iqn.2026-01.org.example:disk1")]
    Date,
    /// An iqn. name without its naming authority.
    #[error(
        "an iqn. name has a reversed domain name after its date, as in iqn.2026-01.org.example:disk1"
    )]
    Authority,
    /// An eui. name without its 16 hexadecimal digits.
    #[error("an eui. name has 16 hexadecimal digits, as in eui.02004567a425678d")]
    Eui,
    /// A naa. name without its 16 or 32 hexadecimal digits.
    #[error("a naa. name has 16 or 32 hexadecimal digits, as in naa.52004567ba64678d")]
    Naa,
}

/// The format of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NameFormat {
    /// iSCSI Qualified Name (section 4.2.7.4).
    Iqn,
    /// IEEE EUI-64 (section 4.2.7.5).
    Eui,
    /// Network Address Authority (section 4.2.7.6).
    Naa,
}

impl Name {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The format.
    pub fn format(&self) -> NameFormat {
        match &self.0[..4] {
            "iqn." => NameFormat::Iqn,
            "eui." => NameFormat::Eui,
            _ => NameFormat::Naa,
        }
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let length = text.len();
        if length > NAME_LENGTH_MAX {
            return Err(NameError::TooLong { length });
        }
        let allowed = |character: &char| {
            character.is_ascii_alphanumeric() || matches!(character, '-' | '.' | ':' | '_')
        };
        if let Some(character) = text.chars().find(|character| !allowed(character)) {
            return Err(NameError::Character { character });
        }
        let name = text.to_ascii_lowercase();
        check_format(&name)?;
        Ok(Self(name.into()))
    }
}

fn check_format(name: &str) -> Result<(), NameError> {
    let (format, rest) = name.split_once('.').ok_or(NameError::UnknownFormat)?;
    let hexadecimal = rest.bytes().all(|byte| byte.is_ascii_hexdigit());
    match format {
        "iqn" => check_qualified(rest),
        "eui" if hexadecimal && rest.len() == 16 => Ok(()),
        "eui" => Err(NameError::Eui),
        "naa" if hexadecimal && matches!(rest.len(), 16 | 32) => Ok(()),
        "naa" => Err(NameError::Naa),
        _ => Err(NameError::UnknownFormat),
    }
}

/// Checks what comes after `iqn.`: a date, a dot, a naming authority, and perhaps a colon and any text.
fn check_qualified(rest: &str) -> Result<(), NameError> {
    let (date, rest) = rest.split_once('.').ok_or(NameError::Date)?;
    let (year, month) = date.split_once('-').ok_or(NameError::Date)?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let month_is_right = month.len() == 2 && matches!(month.parse(), Ok(1..=12_u8));
    if year.len() != 4 || !digits(year) || !month_is_right {
        return Err(NameError::Date);
    }
    let authority = rest.split(':').next().unwrap_or_default();
    if authority.is_empty() || authority.starts_with('.') {
        return Err(NameError::Authority);
    }
    Ok(())
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests;
