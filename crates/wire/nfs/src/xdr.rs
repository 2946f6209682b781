//! External data representation (RFC 4506): big-endian units of four bytes.

/// A reason for which bytes are not what they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum XdrError {
    /// The bytes end within a value.
    #[error("the data ends within a value")]
    Short,
    /// A length is beyond what its field may have.
    #[error("a length of {length} is beyond the {max} that are allowed there")]
    TooLong {
        /// The length.
        length: u32,
        /// The most that is allowed.
        max: u32,
    },
    /// A boolean is neither 0 nor 1, or a union's arm is not defined.
    #[error("{0} is no value that is defined there")]
    Undefined(u32),
}

/// Returns the number of bytes that `length` bytes take with their fill.
#[inline]
#[must_use]
pub const fn padded(length: usize) -> usize {
    length.next_multiple_of(4)
}

/// Reads values from the front of bytes.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    /// A reader from the first of `bytes` on.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, position: 0 }
    }

    /// Number of bytes that were read.
    #[inline]
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// Number of bytes that are left.
    #[inline]
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    #[inline]
    fn take(&mut self, length: usize) -> Result<&'a [u8], XdrError> {
        let rest = &self.bytes[self.position..];
        let taken = rest.get(..length).ok_or(XdrError::Short)?;
        self.position += length;
        Ok(taken)
    }

    /// Reads an unsigned integer.
    ///
    /// # Errors
    /// [`XdrError::Short`].
    #[inline]
    pub fn u32(&mut self) -> Result<u32, XdrError> {
        let bytes = self.take(4)?;
        Ok(u32::from_be_bytes(bytes.try_into().expect("four bytes")))
    }

    /// Reads an unsigned hyper integer.
    ///
    /// # Errors
    /// [`XdrError::Short`].
    #[inline]
    pub fn u64(&mut self) -> Result<u64, XdrError> {
        let bytes = self.take(8)?;
        Ok(u64::from_be_bytes(bytes.try_into().expect("eight bytes")))
    }

    /// Reads a hyper integer.
    ///
    /// # Errors
    /// [`XdrError::Short`].
    #[inline]
    pub fn i64(&mut self) -> Result<i64, XdrError> {
        self.u64().map(u64::cast_signed)
    }

    /// Reads a boolean.
    ///
    /// # Errors
    /// [`XdrError`].
    #[inline]
    pub fn bool(&mut self) -> Result<bool, XdrError> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(XdrError::Undefined(other)),
        }
    }

    /// Reads opaque data of a fixed length.
    ///
    /// # Errors
    /// [`XdrError::Short`].
    #[inline]
    pub fn fixed<const N: usize>(&mut self) -> Result<[u8; N], XdrError> {
        let bytes = self.take(padded(N))?;
        Ok(bytes[..N].try_into().expect("as many bytes"))
    }

    /// Reads opaque data, or a string, of at most `max` bytes. What fills it up is not looked at.
    ///
    /// # Errors
    /// [`XdrError`].
    #[inline]
    pub fn opaque(&mut self, max: u32) -> Result<&'a [u8], XdrError> {
        let length = self.count(max)?;
        let bytes = self.take(padded(length as usize))?;
        Ok(&bytes[..length as usize])
    }

    /// Reads the number of an array's elements, `max` at most.
    ///
    /// # Errors
    /// [`XdrError`].
    #[inline]
    pub fn count(&mut self, max: u32) -> Result<u32, XdrError> {
        match self.u32()? {
            length if length > max => Err(XdrError::TooLong { length, max }),
            length => Ok(length),
        }
    }
}

/// Writes values one behind the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Writer::default()
    }

    /// Nothing yet, with memory for so many bytes.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Writer {
            bytes: Vec::with_capacity(bytes),
        }
    }

    /// Number of bytes so far.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Tells whether nothing was written.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes that were written.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Takes what was written out.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Drops all from byte `length` on.
    pub fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
    }

    /// Writes an unsigned integer.
    #[inline]
    pub fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// Writes an unsigned integer over the one at byte `at`.
    ///
    /// # Panics
    /// When there are no four bytes.
    #[inline]
    pub fn u32_at(&mut self, at: usize, value: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }

    /// Writes an unsigned hyper integer.
    #[inline]
    pub fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// Writes a hyper integer.
    #[inline]
    pub fn i64(&mut self, value: i64) {
        self.u64(value.cast_unsigned());
    }

    /// Writes a boolean.
    #[inline]
    pub fn bool(&mut self, value: bool) {
        self.u32(value.into());
    }

    /// Writes bytes as they are.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Writes opaque data of a fixed length.
    #[inline]
    pub fn fixed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let fill = padded(bytes.len()) - bytes.len();
        self.bytes.extend_from_slice(&[0; 3][..fill]);
    }

    /// Writes opaque data or a string, with its length.
    #[inline]
    pub fn opaque(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.fixed(bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut writer = Writer::new();
        writer.u32(7);
        writer.u64(u64::MAX - 1);
        writer.i64(-2);
        writer.bool(true);
        writer.opaque(b"hello");
        writer.fixed(b"abc");
        assert_eq!(writer.len(), 4 + 8 + 8 + 4 + 4 + 8 + 4);
        let mut reader = Reader::new(writer.bytes());
        assert_eq!(reader.u32(), Ok(7));
        assert_eq!(reader.u64(), Ok(u64::MAX - 1));
        assert_eq!(reader.i64(), Ok(-2));
        assert_eq!(reader.bool(), Ok(true));
        assert_eq!(reader.opaque(5), Ok(&b"hello"[..]));
        assert_eq!(reader.fixed::<3>(), Ok(*b"abc"));
        assert_eq!(reader.remaining(), 0);
        assert_eq!(reader.u32(), Err(XdrError::Short));
    }

    #[test]
    fn lengths_are_bounded_before_anything_is_read() {
        let mut reader = Reader::new(&[0xff, 0xff, 0xff, 0xff, 1]);
        let refused = XdrError::TooLong {
            length: u32::MAX,
            max: 64,
        };
        assert_eq!(reader.opaque(64), Err(refused));
        let mut reader = Reader::new(&[0, 0, 0, 5, 1, 2, 3, 4, 5]);
        assert_eq!(
            reader.opaque(64),
            Err(XdrError::Short),
            "its fill is missing"
        );
        assert_eq!(
            Reader::new(&[0, 0, 0, 2]).bool(),
            Err(XdrError::Undefined(2))
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64), max in 0u32..80) {
            let mut reader = Reader::new(&bytes);
            if let Ok(opaque) = reader.opaque(max) {
                prop_assert!(opaque.len() <= max as usize);
                prop_assert_eq!(reader.position(), 4 + padded(opaque.len()));
            }
        }
    }
}
