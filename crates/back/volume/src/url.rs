//! How a volume is named: `scheme:PATH?key=value&...`, escaped as RFC 3986 says.
//!
//! The grammar is that of a URI without fragment. A component that may hold anything, such as a nested URL or an NQN, is
//! percent-encoded; what is decoded is UTF-8. This module knows no scheme: what a scheme's parameters mean is read from
//! [`Parameters`] by whoever opens it, and what nobody asked for is refused.

use std::cell::RefCell;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use strsim::levenshtein;
use weir_block::{BlockSize, size};

/// Characters that stand for themselves in a host name (not in brackets).
const HOST: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// Characters that stand for themselves in an address in brackets.
const ADDRESS: &AsciiSet = &HOST.remove(b':');
/// Characters that stand for themselves in the name or value of a parameter.
const QUERY: &AsciiSet = &ADDRESS.remove(b'/').remove(b'@').remove(b',');
/// Characters that stand for themselves in a path.
const PATH: &AsciiSet = &QUERY.remove(b'=').remove(b'+');

/// Why a URL, or a parameter of it, was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// There is no scheme at the start.
    #[error(
        "'{url}' does not start with a scheme, such as file: or mem:; a file is named as file:/path/to/it"
    )]
    NoScheme {
        /// The URL.
        url: String,
    },
    /// A percent sign starts no escape.
    #[error(
        "in '{text}' a '%' is not followed by two hexadecimal digits; a '%' itself is written as %25"
    )]
    Escape {
        /// The component.
        text: String,
    },
    /// What an escape stands for is not UTF-8.
    #[error("'{text}' does not decode to UTF-8")]
    NotUtf8 {
        /// The component.
        text: String,
    },
    /// There is a fragment.
    #[error(
        "'{url}' has a '#', which starts a fragment, and volumes have none; a '#' itself is written as %23"
    )]
    Fragment {
        /// The URL.
        url: String,
    },
    /// The part after `//` is not `HOST` or `HOST:PORT`.
    #[error(
        "'{text}' is not HOST or HOST:PORT: {reason}; an IPv6 address stands in brackets, as in [::1]:4420"
    )]
    Authority {
        /// The part.
        text: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// The scheme takes no host, or needs one.
    #[error("{scheme}: volumes have {allowed}, not '{value}'")]
    Place {
        /// The scheme.
        scheme: String,
        /// What was given as authority or path.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// A parameter's value is not one that it may have.
    #[error("{name}={value} is not allowed: {allowed}")]
    Value {
        /// The parameter.
        name: String,
        /// Its value.
        value: String,
        /// What is allowed.
        allowed: String,
    },
    /// A parameter that must be there is not.
    #[error("{scheme}: volumes need {name}=, {allowed}")]
    Missing {
        /// The scheme.
        scheme: String,
        /// The parameter.
        name: String,
        /// What it may be.
        allowed: String,
    },
    /// A parameter that may be given once is given more often.
    #[error("{name}= is given {count} times; it may be given once")]
    Repeated {
        /// The parameter.
        name: String,
        /// How often.
        count: usize,
    },
    /// The scheme has no such parameter.
    #[error("{scheme}: URLs have no parameter '{name}'{}", suggestion(.closest, .known))]
    Unknown {
        /// The scheme.
        scheme: String,
        /// The parameter.
        name: String,
        /// Its value. It is not printed, for it may be a secret.
        value: String,
        /// A parameter with a similar name.
        closest: Option<String>,
        /// All parameters of the scheme.
        known: Vec<String>,
    },
}

fn suggestion(closest: &Option<String>, known: &[String]) -> String {
    match closest {
        Some(closest) => format!("; did you mean {closest}=?"),
        None if known.is_empty() => "; they have none".to_owned(),
        None => format!("; they have {}", known.join(", ")),
    }
}

/// The host that a URL names, and the port if it does.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Authority {
    /// Host name or address; an IPv6 address is without brackets here.
    pub host: String,
    /// Port.
    pub port: Option<u16>,
}

/// The URL of a volume, taken apart and decoded. Displayed, it is encoded again, and reads back as the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct VolumeUrl {
    scheme: String,
    authority: Option<Authority>,
    path: String,
    parameters: Vec<(String, String)>,
}

impl VolumeUrl {
    /// A URL without authority and parameters.
    ///
    /// # Panics
    /// When `scheme` is not a scheme.
    #[must_use]
    pub fn new(scheme: &str, path: &str) -> Self {
        assert!(is_scheme(scheme), "'{scheme}' must be a scheme");
        VolumeUrl {
            scheme: scheme.to_ascii_lowercase(),
            authority: None,
            path: path.to_owned(),
            parameters: Vec::new(),
        }
    }

    /// The same with a host. A path that is not empty then starts with a slash.
    #[must_use]
    pub fn with_authority(mut self, host: &str, port: Option<u16>) -> Self {
        self.authority = Some(Authority {
            host: host.to_owned(),
            port,
        });
        if !self.path.is_empty() && !self.path.starts_with('/') {
            self.path.insert(0, '/');
        }
        self
    }

    /// The same with one more parameter.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.parameters.push((name.to_owned(), value.to_string()));
        self
    }

    /// The same without a parameter, however often it was there.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.parameters.retain(|(given, _)| given != name);
        self
    }

    /// The scheme, in lower case, without its colon.
    #[must_use]
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The host, where the URL has one.
    #[must_use]
    pub fn authority(&self) -> Option<&Authority> {
        self.authority.as_ref()
    }

    /// The path, decoded. With an authority it is empty or starts with a slash.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The values of parameters that are URLs themselves. Those of the volumes that it is made of are among them, if it is made of others; so
    /// may be what only looks like one.
    pub fn nested(&self) -> impl Iterator<Item = VolumeUrl> {
        let values = self.parameters.iter();
        values.filter_map(|(_, value)| value.parse().ok())
    }

    /// Reads the parameters. What is not asked for before [`Parameters::finish`] is unknown.
    #[must_use]
    pub fn parameters(&self) -> Parameters<'_> {
        Parameters {
            url: self,
            known: RefCell::default(),
        }
    }

    /// Refuses a URL with a host or a path.
    ///
    /// # Errors
    /// [`UrlError::Place`].
    pub fn expect_no_place(&self) -> Result<(), UrlError> {
        if self.authority.is_none() && self.path.is_empty() {
            return Ok(());
        }
        Err(self.place_error("neither host nor path"))
    }

    /// The error that says that host and path are not as the scheme has them.
    #[must_use]
    pub fn place_error(&self, allowed: &'static str) -> UrlError {
        UrlError::Place {
            scheme: self.scheme.clone(),
            value: self.place(),
            allowed,
        }
    }

    fn place(&self) -> String {
        let host = self
            .authority
            .as_ref()
            .map_or(String::new(), Authority::to_string);
        format!("{host}{}", utf8_percent_encode(&self.path, PATH))
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("//")?;
        if self.host.contains(':') {
            write!(formatter, "[{}]", utf8_percent_encode(&self.host, ADDRESS))?;
        } else {
            write!(formatter, "{}", utf8_percent_encode(&self.host, HOST))?;
        }
        match self.port {
            Some(port) => write!(formatter, ":{port}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for VolumeUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:", self.scheme)?;
        match &self.authority {
            Some(authority) => authority.fmt(formatter)?,
            // Two slashes would read as a host.
            None if self.path.starts_with("//") => formatter.write_str("//")?,
            None => {}
        }
        write!(formatter, "{}", utf8_percent_encode(&self.path, PATH))?;
        for (index, (name, value)) in self.parameters.iter().enumerate() {
            let separator = if index == 0 { '?' } else { '&' };
            let name = utf8_percent_encode(name, QUERY);
            let value = utf8_percent_encode(value, QUERY);
            write!(formatter, "{separator}{name}={value}")?;
        }
        Ok(())
    }
}

impl FromStr for VolumeUrl {
    type Err = UrlError;

    fn from_str(url: &str) -> Result<Self, UrlError> {
        let no_scheme = || UrlError::NoScheme {
            url: url.to_owned(),
        };
        let (scheme, rest) = url.split_once(':').ok_or_else(no_scheme)?;
        if !is_scheme(scheme) {
            return Err(no_scheme());
        }
        if rest.contains('#') {
            return Err(UrlError::Fragment {
                url: url.to_owned(),
            });
        }
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = parse_place(place)?;
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        Ok(VolumeUrl {
            scheme: scheme.to_ascii_lowercase(),
            authority,
            path: decode(path)?,
            parameters: pairs.map(parse_pair).collect::<Result<_, _>>()?,
        })
    }
}

/// RFC 3986, section 3.1.
fn is_scheme(text: &str) -> bool {
    let rest_allowed =
        |character: char| character.is_ascii_alphanumeric() || matches!(character, '+' | '-' | '.');
    text.starts_with(|character: char| character.is_ascii_alphabetic())
        && text.chars().all(rest_allowed)
}

fn parse_place(place: &str) -> Result<(Option<Authority>, &str), UrlError> {
    let Some(rest) = place.strip_prefix("//") else {
        return Ok((None, place));
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if authority.is_empty() {
        return Ok((None, path));
    }
    Ok((Some(parse_authority(authority)?), path))
}

fn parse_authority(text: &str) -> Result<Authority, UrlError> {
    let fail = |reason| UrlError::Authority {
        text: text.to_owned(),
        reason,
    };
    if text.contains('@') {
        return Err(fail("it names a user, and volumes know none"));
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest
                .split_once(']')
                .ok_or_else(|| fail("its bracket is not closed"))?;
            let port = match after {
                "" => None,
                after => Some(
                    after
                        .strip_prefix(':')
                        .ok_or_else(|| fail("something follows its bracket"))?,
                ),
            };
            if !host.contains(':') {
                return Err(fail("what is in its brackets is not an IPv6 address"));
            }
            (host, port)
        }
        None => match text.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err(fail("it has more than one colon"));
            }
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err(fail("its host is missing"));
    }
    let port = port
        .map(|port| {
            port.parse()
                .map_err(|_| fail("its port is not a number from 0 to 65535"))
        })
        .transpose()?;
    Ok(Authority {
        host: decode(host)?,
        port,
    })
}

fn parse_pair(pair: &str) -> Result<(String, String), UrlError> {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    Ok((decode(name)?, decode(value)?))
}

fn decode(text: &str) -> Result<String, UrlError> {
    let bytes = text.as_bytes();
    let escapes_are_whole = bytes.iter().enumerate().all(|(at, &byte)| {
        let is_hex = |offset| bytes.get(at + offset).is_some_and(u8::is_ascii_hexdigit);
        byte != b'%' || (is_hex(1) && is_hex(2))
    });
    if !escapes_are_whole {
        return Err(UrlError::Escape {
            text: text.to_owned(),
        });
    }
    match percent_decode_str(text).decode_utf8() {
        Ok(decoded) => Ok(decoded.into_owned()),
        Err(_) => Err(UrlError::NotUtf8 {
            text: text.to_owned(),
        }),
    }
}

/// The parameters of one URL, read by name. Every name that is asked for is known; [`Parameters::finish`] refuses the
/// others.
#[derive(Debug)]
pub struct Parameters<'url> {
    url: &'url VolumeUrl,
    known: RefCell<Vec<&'static str>>,
}

impl<'url> Parameters<'url> {
    /// Every value of a parameter that may be given several times.
    pub fn all(&self, name: &'static str) -> Vec<&'url str> {
        self.known.borrow_mut().push(name);
        let values = self.url.parameters.iter();
        values
            .filter(|(given, _)| given == name)
            .map(|(_, value)| value.as_str())
            .collect()
    }

    /// The value of a parameter that may be given once.
    ///
    /// # Errors
    /// [`UrlError::Repeated`].
    pub fn text(&self, name: &'static str) -> Result<Option<&'url str>, UrlError> {
        match *self.all(name) {
            [] => Ok(None),
            [value] => Ok(Some(value)),
            ref values => Err(UrlError::Repeated {
                name: name.to_owned(),
                count: values.len(),
            }),
        }
    }

    /// The URLs of volumes in a parameter that may be given several times.
    ///
    /// # Errors
    /// [`UrlError::Value`].
    pub fn urls(&self, name: &'static str) -> Result<Vec<VolumeUrl>, UrlError> {
        let parse = |value: &str| {
            let parsed = value.parse();
            parsed.map_err(|error: UrlError| value_error(name, value, error.to_string()))
        };
        self.all(name).into_iter().map(parse).collect()
    }

    /// A value made by `parse`, whose error says what is allowed.
    ///
    /// # Errors
    /// [`UrlError::Repeated`], [`UrlError::Value`].
    pub fn parsed<T>(
        &self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, UrlError> {
        let value = self.text(name)?;
        let parsed =
            value.map(|value| parse(value).map_err(|allowed| value_error(name, value, allowed)));
        parsed.transpose()
    }

    /// A size in bytes; see [`weir_block::size`].
    ///
    /// # Errors
    /// [`UrlError::Repeated`], [`UrlError::Value`].
    pub fn size(&self, name: &'static str) -> Result<Option<u64>, UrlError> {
        self.parsed(name, |value| {
            size::parse(value).map_err(|error| error.to_string())
        })
    }

    /// A whole number within a range.
    ///
    /// # Errors
    /// [`UrlError::Repeated`], [`UrlError::Value`].
    pub fn number(
        &self,
        name: &'static str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, UrlError> {
        self.parsed(name, |value| {
            let number = value.parse().ok();
            number
                .filter(|number| range.contains(number))
                .ok_or_else(|| format!("a whole number from {} to {}", range.start(), range.end()))
        })
    }

    /// A time of at most `longest`: a whole number with `us`, `ms` or `s`.
    ///
    /// # Errors
    /// [`UrlError::Repeated`], [`UrlError::Value`].
    pub fn duration(
        &self,
        name: &'static str,
        longest: Duration,
    ) -> Result<Option<Duration>, UrlError> {
        self.parsed(name, |value| {
            let duration = parse_duration(value);
            duration
                .filter(|&duration| duration <= longest)
                .ok_or_else(|| {
                    let longest = longest.as_secs();
                    format!("a whole number with us, ms or s, such as 5ms, up to {longest}s")
                })
        })
    }

    /// One of several words.
    ///
    /// # Errors
    /// [`UrlError::Repeated`], [`UrlError::Value`].
    pub fn choice<T: Copy>(
        &self,
        name: &'static str,
        choices: &[(&str, T)],
    ) -> Result<Option<T>, UrlError> {
        self.parsed(name, |value| {
            let found = choices.iter().find(|(word, _)| *word == value);
            found.map(|&(_, choice)| choice).ok_or_else(|| {
                let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
                format!("one of {}", words.join(", "))
            })
        })
    }

    /// Yes or no: `1`, `yes`, `true` or the bare name; `0`, `no`, `false`. No when it is not given.
    ///
    /// # Errors
    /// [`UrlError::Repeated`], [`UrlError::Value`].
    pub fn flag(&self, name: &'static str) -> Result<bool, UrlError> {
        Ok(self.flag_if_given(name)?.unwrap_or(false))
    }

    /// A [`Parameters::flag`] whose default is not no; `None` where it is not given.
    ///
    /// # Errors
    /// [`UrlError::Repeated`], [`UrlError::Value`].
    pub fn flag_if_given(&self, name: &'static str) -> Result<Option<bool>, UrlError> {
        const WORDS: [(&str, bool); 7] = [
            ("1", true),
            ("0", false),
            ("yes", true),
            ("no", false),
            ("true", true),
            ("false", false),
            ("", true),
        ];
        self.choice(name, &WORDS)
    }

    /// `block_size=`: 512 or 4096.
    ///
    /// # Errors
    /// [`UrlError::Repeated`], [`UrlError::Value`].
    pub fn block_size(&self) -> Result<Option<BlockSize>, UrlError> {
        let bytes = self.size("block_size")?;
        let known = bytes.map(|bytes| {
            let wrong = || value_error("block_size", &bytes.to_string(), "512 or 4096");
            BlockSize::from_bytes(bytes).ok_or_else(wrong)
        });
        known.transpose()
    }

    /// The value that a parameter must have.
    ///
    /// # Errors
    /// [`UrlError::Unknown`] where another name was written in its place, [`UrlError::Missing`] otherwise.
    pub fn required<T>(
        &self,
        name: &'static str,
        value: Option<T>,
        allowed: &str,
    ) -> Result<T, UrlError> {
        value.ok_or_else(|| {
            let known = self.known.borrow();
            let mut given = self.url.parameters.iter();
            let mistaken = given.find(|(given, _)| {
                !known.contains(&given.as_str()) && closest(given, &[name]).is_some()
            });
            match mistaken {
                Some((given, value)) => self.unknown(given, value, &known),
                None => UrlError::Missing {
                    scheme: self.url.scheme.clone(),
                    name: name.to_owned(),
                    allowed: allowed.to_owned(),
                },
            }
        })
    }

    fn unknown(&self, name: &str, value: &str, known: &[&'static str]) -> UrlError {
        UrlError::Unknown {
            scheme: self.url.scheme.clone(),
            name: name.to_owned(),
            value: value.to_owned(),
            closest: closest(name, known),
            known: known.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    /// Refuses what was not asked for. To be called after every parameter was read.
    ///
    /// # Errors
    /// [`UrlError::Unknown`].
    pub fn finish(self) -> Result<(), UrlError> {
        let known = self.known.borrow();
        let mut given = self.url.parameters.iter();
        match given.find(|(name, _)| !known.contains(&name.as_str())) {
            Some((name, value)) => Err(self.unknown(name, value, &known)),
            None => Ok(()),
        }
    }
}

/// A whole number with `us`, `ms` or `s`.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (value, unit) = text.split_at(digits);
    let microseconds = match unit {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        _ => return None,
    };
    let value: u64 = value.parse().ok()?;
    value.checked_mul(microseconds).map(Duration::from_micros)
}

/// The error for a parameter whose value is not allowed.
#[must_use]
pub fn value_error(name: &str, value: &str, allowed: impl Into<String>) -> UrlError {
    UrlError::Value {
        name: name.to_owned(),
        value: value.to_owned(),
        allowed: allowed.into(),
    }
}

/// The known name that differs least, if any is so near that it may have been meant.
pub(crate) fn closest(name: &str, known: &[&str]) -> Option<String> {
    let nearest = known.iter().min_by_key(|known| levenshtein(name, known))?;
    let near_enough = levenshtein(name, nearest) <= nearest.len().max(name.len()).div_ceil(3);
    near_enough.then(|| (*nearest).to_owned())
}

#[cfg(test)]
mod tests;
