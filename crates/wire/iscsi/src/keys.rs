//! Text of login and text PDUs: `key=value` pairs, each ended by a zero byte (RFC 7143 sections 6.1 and 6.2).
//!
//! Takes text apart and puts it together; what the values mean is judged elsewhere.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt::Write;
use thiserror::Error;

/// Most bytes of a key's name (section 6.1).
pub const KEY_LENGTH_MAX: usize = 63;

/// Most bytes of a value, unless it is a large binary one (section 6.1).
pub const VALUE_LENGTH_MAX: usize = 255;

/// Most bytes of the keys' values that hold large binary numbers: CHAP_C, CHAP_R and those of SRP.
pub const BINARY_VALUE_LENGTH_MAX: usize = 8192;

/// Most bytes that a binary value stands for (section 12.1.4: a CHAP challenge or response has at most 1024).
pub const BINARY_LENGTH_MAX: usize = 1024;

/// The value that answers a key which the responder cannot agree on (section 6.2).
pub const REJECT: &str = "Reject";
/// The value that answers a key which has no meaning in this session (section 6.2).
pub const IRRELEVANT: &str = "Irrelevant";
/// The value that answers a key which is not known (section 6.2).
pub const NOT_UNDERSTOOD: &str = "NotUnderstood";

/// Text that is no list of pairs, or a value that is not what its key wants.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TextError {
    /// More text than is taken.
    #[error("text of more than {maximum} bytes")]
    TooLong {
        /// Bytes that are taken.
        maximum: usize,
    },
    /// The last pair has no zero byte at its end.
    #[error("the last key=value pair does not end with a zero byte")]
    NotEnded,
    /// Not UTF-8.
    #[error("text is not UTF-8")]
    NotUtf8,
    /// A pair without `=`.
    #[error("{0:?} is no key=value pair")]
    NoValue(String),
    /// A key's name that cannot be.
    #[error(
        "{0:?} is no key: a capital letter, then letters, digits and .-+@_, {KEY_LENGTH_MAX} at most"
    )]
    Key(String),
    /// A value that is too long.
    #[error("{key}: a value of {length} bytes, where {maximum} are allowed")]
    ValueTooLong {
        /// The key.
        key: String,
        /// Bytes of its value.
        length: usize,
        /// Bytes that are allowed.
        maximum: usize,
    },
}

/// One `key=value`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair<'a> {
    /// The key, with capital and small letters told apart.
    pub key: &'a str,
    /// The value.
    pub value: &'a str,
}

/// The pairs of a complete text, in their order. Empty pairs, as zero bytes at the end make them, are skipped.
#[derive(Debug, Clone)]
pub struct Pairs<'a> {
    rest: &'a [u8],
}

impl<'a> Pairs<'a> {
    /// The pairs of `text`.
    pub const fn new(text: &'a [u8]) -> Self {
        Self { rest: text }
    }

    fn parse(&mut self) -> Result<Pair<'a>, TextError> {
        let end = self.rest.iter().position(|&byte| byte == 0);
        let end = end.ok_or(TextError::NotEnded)?;
        let pair = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        let pair = core::str::from_utf8(pair).map_err(|_| TextError::NotUtf8)?;
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| TextError::NoValue(shortened(pair)))?;
        if !is_key(key) {
            return Err(TextError::Key(shortened(key)));
        }
        let maximum = value_length_max(key);
        if value.len() > maximum {
            return Err(TextError::ValueTooLong {
                key: key.to_owned(),
                length: value.len(),
                maximum,
            });
        }
        Ok(Pair { key, value })
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = Result<Pair<'a>, TextError>;

    fn next(&mut self) -> Option<Self::Item> {
        while let [0, rest @ ..] = self.rest {
            self.rest = rest;
        }
        if self.rest.is_empty() {
            return None;
        }
        let next = self.parse();
        if next.is_err() {
            self.rest = &[];
        }
        Some(next)
    }
}

/// The beginning of text from outside, for an error.
fn shortened(text: &str) -> String {
    text.chars().take(KEY_LENGTH_MAX + 1).collect()
}

/// Returns whether a text is a standard-label (section 6.1), or the name of an extension key such as `X-com.example.key`.
fn is_key(key: &str) -> bool {
    let allowed =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'+' | b'@' | b'_');
    key.len() <= KEY_LENGTH_MAX
        && key.starts_with(|first: char| first.is_ascii_uppercase() || first == 'i')
        && key.bytes().all(allowed)
}

fn value_length_max(key: &str) -> usize {
    if matches!(key, "CHAP_C" | "CHAP_R") || key.starts_with("SRP_") {
        BINARY_VALUE_LENGTH_MAX
    } else {
        VALUE_LENGTH_MAX
    }
}

/// Text that is sent, pair by pair.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TextWriter {
    bytes: Vec<u8>,
}

impl TextWriter {
    /// No text.
    pub const fn new() -> Self {
        Self { bytes: Vec::new() }
    }

    /// Adds a pair.
    pub fn push(&mut self, key: &str, value: impl core::fmt::Display) {
        let start = self.bytes.len();
        let pair = format!("{key}={value}");
        debug_assert!(!pair.contains('\0'), "a pair has no zero byte");
        self.bytes.extend_from_slice(pair.as_bytes());
        // Zero bytes within would begin pairs that are not meant.
        self.bytes[start..]
            .iter_mut()
            .filter(|byte| **byte == 0)
            .for_each(|byte| *byte = b'?');
        self.bytes.push(0);
    }

    /// All of the text.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// All of the text.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Text that comes in several PDUs, the C bit set in all but the last (section 6.2), up to a bound.
#[derive(Debug, Clone)]
pub struct TextBuffer {
    bytes: Vec<u8>,
    maximum: usize,
    complete: bool,
}

impl TextBuffer {
    /// Most bytes that a bound may be.
    pub const MAXIMUM_MAX: usize = 64 * 1024;

    /// A buffer of at most `maximum` bytes of text. Panics where that is above [`TextBuffer::MAXIMUM_MAX`].
    pub const fn new(maximum: usize) -> Self {
        assert!(maximum <= Self::MAXIMUM_MAX, "the bound is too large");
        Self {
            bytes: Vec::new(),
            maximum,
            complete: false,
        }
    }

    /// Adds one PDU's text. Returns all of the text where the PDU does not say that more follows; the next call begins anew.
    ///
    /// # Errors
    /// It is more than the bound.
    pub fn add(&mut self, text: &[u8], continues: bool) -> Result<Option<&[u8]>, TextError> {
        if core::mem::take(&mut self.complete) {
            self.bytes.clear();
        }
        if text.len() > self.maximum - self.bytes.len() {
            return Err(TextError::TooLong {
                maximum: self.maximum,
            });
        }
        self.bytes.extend_from_slice(text);
        self.complete = !continues;
        Ok(self.complete.then_some(&self.bytes))
    }

    /// Returns whether text came that is not complete.
    pub const fn is_inside_text(&self) -> bool {
        !self.complete && !self.bytes.is_empty()
    }
}

/// Text that is sent in as many PDUs as the peer's MaxRecvDataSegmentLength makes of it (section 6.2).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OutgoingText {
    bytes: Vec<u8>,
    sent: usize,
}

impl OutgoingText {
    /// Nothing to send.
    pub const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            sent: 0,
        }
    }

    /// Adds text after that which is not sent yet.
    pub fn add(&mut self, text: &[u8]) {
        if self.is_empty() {
            self.bytes.clear();
            self.sent = 0;
        }
        self.bytes.extend_from_slice(text);
    }

    /// Returns whether all was sent.
    pub const fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    /// Bytes that are not sent yet.
    pub const fn rest(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// The next PDU's text, of at most `maximum` bytes; where [`OutgoingText::is_empty`] is false afterwards its C bit is set.
    pub fn take(&mut self, maximum: usize) -> &[u8] {
        let start = self.sent;
        self.sent = self.bytes.len().min(start + maximum);
        &self.bytes[start..self.sent]
    }
}

/// A number, decimal or hexadecimal after `0x` (section 6.1).
pub fn parse_number(value: &str) -> Option<u64> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match value
        .strip_prefix("0x")
        .or_else(|| value.strip_prefix("0X"))
    {
        Some(hexadecimal) if digits(hexadecimal) => u64::from_str_radix(hexadecimal, 16).ok(),
        None if digits(value) => value.parse().ok(),
        _ => None,
    }
}

/// A range of numbers, `first~last` (section 6.1).
pub fn parse_range(value: &str) -> Option<core::ops::RangeInclusive<u64>> {
    let (first, last) = value.split_once('~')?;
    let range = parse_number(first)?..=parse_number(last)?;
    (!range.is_empty()).then_some(range)
}

/// `Yes` or `No`.
pub fn parse_boolean(value: &str) -> Option<bool> {
    match value {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

/// `Yes` or `No`.
pub const fn boolean(value: bool) -> &'static str {
    if value { "Yes" } else { "No" }
}

/// The values of a list, in order of preference.
pub fn parse_list(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').filter(|one| !one.is_empty())
}

/// Bytes of a binary value: hexadecimal after `0x`, or base64 after `0b` (section 6.1); `None` where it is neither, empty, or more than
/// [`BINARY_LENGTH_MAX`] bytes.
pub fn parse_binary(value: &str) -> Option<Vec<u8>> {
    let (prefix, digits) = value.split_at_checked(2)?;
    let bytes = match prefix {
        "0x" | "0X" => parse_hexadecimal(digits.as_bytes())?,
        "0b" | "0B" => STANDARD.decode(digits).ok()?,
        _ => return None,
    };
    (1..=BINARY_LENGTH_MAX)
        .contains(&bytes.len())
        .then_some(bytes)
}

fn parse_hexadecimal(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    // An odd first digit stands alone.
    let (first, rest) = digits.split_at(digits.len() % 2);
    let first = first.iter().map(|&byte| digit(byte));
    let rest = rest.as_chunks().0.iter();
    let rest = rest.map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?));
    first.chain(rest).collect()
}

/// A binary value in hexadecimal.
pub fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 + 2 * bytes.len());
    text.push_str("0x");
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// A binary value in base64.
pub fn base64_binary(bytes: &[u8]) -> String {
    format!("0b{}", STANDARD.encode(bytes))
}

#[cfg(test)]
mod tests;
