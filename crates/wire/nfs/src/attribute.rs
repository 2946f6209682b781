//! Attributes of files: their numbers, bitmaps of them, and changes of them (RFC 8881, section 5).

use crate::xdr::{Reader, Writer, XdrError};

/// Words of a bitmap that are kept: all attributes of version 4.2 have their bits there.
const WORDS: usize = 3;
/// Words of a bitmap that are read at most.
const WORDS_MAX: u32 = 16;
/// Bytes of attributes that a client sets at most.
const VALUES_MAX: u32 = 4096;
/// Bytes of the name of an owner at most.
const OWNER_BYTES_MAX: u32 = 1024;

/// Numbers of attributes.
pub mod number {
    #![expect(missing_docs, reason = "the names are those of RFC 8881, section 5")]
    pub const SUPPORTED_ATTRS: u32 = 0;
    pub const TYPE: u32 = 1;
    pub const FH_EXPIRE_TYPE: u32 = 2;
    pub const CHANGE: u32 = 3;
    pub const SIZE: u32 = 4;
    pub const LINK_SUPPORT: u32 = 5;
    pub const SYMLINK_SUPPORT: u32 = 6;
    pub const NAMED_ATTR: u32 = 7;
    pub const FSID: u32 = 8;
    pub const UNIQUE_HANDLES: u32 = 9;
    pub const LEASE_TIME: u32 = 10;
    pub const RDATTR_ERROR: u32 = 11;
    pub const ACLSUPPORT: u32 = 13;
    pub const CANSETTIME: u32 = 15;
    pub const CASE_INSENSITIVE: u32 = 16;
    pub const CASE_PRESERVING: u32 = 17;
    pub const CHOWN_RESTRICTED: u32 = 18;
    pub const FILEHANDLE: u32 = 19;
    pub const FILEID: u32 = 20;
    pub const FILES_AVAIL: u32 = 21;
    pub const FILES_FREE: u32 = 22;
    pub const FILES_TOTAL: u32 = 23;
    pub const HOMOGENEOUS: u32 = 26;
    pub const MAXFILESIZE: u32 = 27;
    pub const MAXLINK: u32 = 28;
    pub const MAXNAME: u32 = 29;
    pub const MAXREAD: u32 = 30;
    pub const MAXWRITE: u32 = 31;
    pub const MODE: u32 = 33;
    pub const NO_TRUNC: u32 = 34;
    pub const NUMLINKS: u32 = 35;
    pub const OWNER: u32 = 36;
    pub const OWNER_GROUP: u32 = 37;
    pub const RAWDEV: u32 = 41;
    pub const SPACE_AVAIL: u32 = 42;
    pub const SPACE_FREE: u32 = 43;
    pub const SPACE_TOTAL: u32 = 44;
    pub const SPACE_USED: u32 = 45;
    pub const TIME_ACCESS: u32 = 47;
    pub const TIME_ACCESS_SET: u32 = 48;
    pub const TIME_DELTA: u32 = 51;
    pub const TIME_METADATA: u32 = 52;
    pub const TIME_MODIFY: u32 = 53;
    pub const TIME_MODIFY_SET: u32 = 54;
    pub const MOUNTED_ON_FILEID: u32 = 55;
    pub const SUPPATTR_EXCLCREAT: u32 = 75;
    pub const CHANGE_ATTR_TYPE: u32 = 79;
}

/// A set of attributes (bitmap4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Bitmap {
    words: [u32; WORDS],
    /// It has attributes beyond those that are defined.
    has_others: bool,
}

impl Bitmap {
    /// The set of these.
    #[must_use]
    pub const fn of(numbers: &[u32]) -> Self {
        let mut words = [0; WORDS];
        let mut index = 0;
        while index < numbers.len() {
            let number = numbers[index];
            words[(number / 32) as usize] |= 1 << (number % 32);
            index += 1;
        }
        Bitmap {
            words,
            has_others: false,
        }
    }

    /// Tells whether it has an attribute.
    #[inline]
    #[must_use]
    pub const fn has(&self, number: u32) -> bool {
        self.words[(number / 32) as usize] & (1 << (number % 32)) != 0
    }

    /// Adds an attribute.
    pub fn add(&mut self, number: u32) {
        self.words[(number / 32) as usize] |= 1 << (number % 32);
    }

    /// Those that `other` has too.
    #[must_use]
    pub fn and(&self, other: &Bitmap) -> Bitmap {
        let mut words = self.words;
        for (word, other) in words.iter_mut().zip(other.words) {
            *word &= other;
        }
        Bitmap {
            words,
            has_others: false,
        }
    }

    /// Tells whether it has none that `other` has not.
    #[must_use]
    pub fn is_within(&self, other: &Bitmap) -> bool {
        !self.has_others && self.and(other).words == self.words
    }

    /// Tells whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.has_others && self.words == [0; WORDS]
    }

    /// The numbers that it has, in order.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        (0..WORDS as u32 * 32).filter(|&number| self.has(number))
    }

    /// Reads one.
    ///
    /// # Errors
    /// [`XdrError`].
    pub fn parse(reader: &mut Reader<'_>) -> Result<Self, XdrError> {
        let mut bitmap = Bitmap::default();
        for index in 0..reader.count(WORDS_MAX)? as usize {
            let word = reader.u32()?;
            match bitmap.words.get_mut(index) {
                Some(place) => *place = word,
                None => bitmap.has_others |= word != 0,
            }
        }
        Ok(bitmap)
    }

    /// Writes it, without words at its end that have no bit.
    pub fn write(&self, writer: &mut Writer) {
        let last = self.words.iter().rposition(|&word| word != 0);
        let words = last.map_or(0, |last| last + 1);
        writer.u32(words as u32);
        self.words[..words]
            .iter()
            .for_each(|&word| writer.u32(word));
    }
}

/// A time (nfstime4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Time {
    /// Seconds since the beginning of 1970.
    pub seconds: i64,
    /// Nanoseconds of the next second.
    pub nanoseconds: u32,
}

impl Time {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, XdrError> {
        Ok(Time {
            seconds: reader.i64()?,
            nanoseconds: reader.u32()?,
        })
    }

    /// Writes it.
    pub fn write(&self, writer: &mut Writer) {
        writer.i64(self.seconds);
        writer.u32(self.nanoseconds);
    }
}

/// Value that a time is set to (settime4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The server's time.
    Server,
    /// The client's.
    Client(Time),
}

impl SetTime {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, AttributeError> {
        match reader.u32()? {
            0 => Ok(SetTime::Server),
            1 => {
                let time = Time::parse(reader)?;
                if time.nanoseconds >= 1_000_000_000 {
                    return Err(AttributeError::Invalid);
                }
                Ok(SetTime::Client(time))
            }
            other => Err(XdrError::Undefined(other).into()),
        }
    }

    fn write(self, writer: &mut Writer) {
        match self {
            SetTime::Server => writer.u32(0),
            SetTime::Client(time) => {
                writer.u32(1);
                time.write(writer);
            }
        }
    }
}

/// A reason for which attributes cannot be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AttributeError {
    /// They are not what their bitmap says.
    #[error(transparent)]
    Xdr(#[from] XdrError),
    /// One is not supported.
    #[error("an attribute that is not supported")]
    NotSupported,
    /// One cannot be set, or not to that value.
    #[error("an attribute that cannot be set to that")]
    Invalid,
    /// The name of an owner is none.
    #[error("an owner that is none")]
    Owner,
}

/// The attributes that can be set.
pub const SETTABLE: Bitmap = Bitmap::of(&[
    number::SIZE,
    number::MODE,
    number::OWNER,
    number::OWNER_GROUP,
    number::TIME_ACCESS_SET,
    number::TIME_MODIFY_SET,
]);

/// Changes of a file's attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AttributeChanges {
    /// Its length in bytes.
    pub size: Option<u64>,
    /// Its permissions.
    pub mode: Option<u32>,
    /// Its owner, by number.
    pub owner: Option<u32>,
    /// Its group, by number.
    pub group: Option<u32>,
    /// Time of the last read.
    pub access_time: Option<SetTime>,
    /// Time of the last write.
    pub modify_time: Option<SetTime>,
}

impl AttributeChanges {
    /// The set of them.
    #[must_use]
    pub fn bitmap(&self) -> Bitmap {
        let mut bitmap = Bitmap::default();
        let all = [
            (number::SIZE, self.size.is_some()),
            (number::MODE, self.mode.is_some()),
            (number::OWNER, self.owner.is_some()),
            (number::OWNER_GROUP, self.group.is_some()),
            (number::TIME_ACCESS_SET, self.access_time.is_some()),
            (number::TIME_MODIFY_SET, self.modify_time.is_some()),
        ];
        for (number, is_there) in all {
            if is_there {
                bitmap.add(number);
            }
        }
        bitmap
    }

    /// Reads them (fattr4), of attributes of which `supported` are there.
    ///
    /// # Errors
    /// The outer one: they are not whole, and what follows cannot be read. The inner one: they cannot be set.
    pub fn parse(
        reader: &mut Reader<'_>,
        supported: &Bitmap,
    ) -> Result<Result<Self, AttributeError>, XdrError> {
        let bitmap = Bitmap::parse(reader)?;
        let mut values = Reader::new(reader.opaque(VALUES_MAX)?);
        if !bitmap.is_within(supported) {
            return Ok(Err(AttributeError::NotSupported));
        }
        if !bitmap.is_within(&SETTABLE) {
            return Ok(Err(AttributeError::Invalid));
        }
        Ok(Self::values(&bitmap, &mut values))
    }

    fn values(bitmap: &Bitmap, reader: &mut Reader<'_>) -> Result<Self, AttributeError> {
        let mut changes = AttributeChanges::default();
        for number in bitmap.numbers() {
            match number {
                number::SIZE => changes.size = Some(reader.u64()?),
                number::MODE => {
                    let mode = reader.u32()?;
                    if mode > 0o7777 {
                        return Err(AttributeError::Invalid);
                    }
                    changes.mode = Some(mode);
                }
                number::OWNER => changes.owner = Some(identity(reader)?),
                number::OWNER_GROUP => changes.group = Some(identity(reader)?),
                number::TIME_ACCESS_SET => changes.access_time = Some(SetTime::parse(reader)?),
                number::TIME_MODIFY_SET => changes.modify_time = Some(SetTime::parse(reader)?),
                _ => return Err(AttributeError::Invalid),
            }
        }
        match reader.remaining() {
            0 => Ok(changes),
            _ => Err(AttributeError::Xdr(XdrError::Undefined(0))),
        }
    }

    /// Writes them (fattr4).
    pub fn write(&self, writer: &mut Writer) {
        self.bitmap().write(writer);
        let mut values = Writer::new();
        if let Some(size) = self.size {
            values.u64(size);
        }
        if let Some(mode) = self.mode {
            values.u32(mode);
        }
        for id in [self.owner, self.group].into_iter().flatten() {
            values.opaque(id.to_string().as_bytes());
        }
        for time in [self.access_time, self.modify_time].into_iter().flatten() {
            time.write(&mut values);
        }
        writer.opaque(values.bytes());
    }
}

/// Reads an owner: a number in digits, as AUTH_SYS has it (RFC 8881, section 5.9). No names are translated.
fn identity(reader: &mut Reader<'_>) -> Result<u32, AttributeError> {
    let text = reader.opaque(OWNER_BYTES_MAX)?;
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).ok().filter(|_| is_number);
    let number = text.and_then(|text| text.parse().ok());
    number.ok_or(AttributeError::Owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn supported() -> Bitmap {
        let mut supported = SETTABLE;
        supported.add(number::TYPE);
        supported
    }

    fn read(changes: &Writer) -> Result<Result<AttributeChanges, AttributeError>, XdrError> {
        AttributeChanges::parse(&mut Reader::new(changes.bytes()), &supported())
    }

    #[test]
    fn changes_come_back() {
        let changes = AttributeChanges {
            size: Some(1 << 40),
            mode: Some(0o644),
            owner: Some(0),
            group: Some(1000),
            access_time: Some(SetTime::Server),
            modify_time: Some(SetTime::Client(Time {
                seconds: -5,
                nanoseconds: 999_999_999,
            })),
        };
        for changes in [changes, AttributeChanges::default()] {
            let mut writer = Writer::new();
            changes.write(&mut writer);
            assert_eq!(read(&writer), Ok(Ok(changes)));
        }
    }

    #[test]
    fn what_cannot_be_set_is_told_apart() {
        let cases: [(&[u32], &[u8], AttributeError); 6] = [
            (&[number::TYPE], &[0, 0, 0, 1], AttributeError::Invalid),
            (&[number::FILEID], &[0; 8], AttributeError::NotSupported),
            (&[number::MODE], &[0, 0, 0x20, 0], AttributeError::Invalid),
            (&[number::OWNER], b"\0\0\0\x04root", AttributeError::Owner),
            (
                &[number::SIZE],
                &[0; 4],
                AttributeError::Xdr(XdrError::Short),
            ),
            (&[], &[0; 4], AttributeError::Xdr(XdrError::Undefined(0))),
        ];
        for (numbers, values, refused) in cases {
            let mut writer = Writer::new();
            Bitmap::of(numbers).write(&mut writer);
            writer.opaque(values);
            assert_eq!(read(&writer), Ok(Err(refused)), "{numbers:?}");
        }
    }

    #[test]
    fn attributes_that_nobody_knows_are_not_supported() {
        let mut writer = Writer::new();
        for word in [4, 0, 0, 0, 1, 0] {
            writer.u32(word);
        }
        assert_eq!(read(&writer), Ok(Err(AttributeError::NotSupported)));
        let bitmap = Bitmap::parse(&mut Reader::new(writer.bytes()));
        assert_eq!(bitmap.map(|bitmap| bitmap.is_empty()), Ok(false));
    }

    #[test]
    fn bitmaps_are_sets() {
        let set = Bitmap::of(&[number::TYPE, number::MODE, number::CHANGE_ATTR_TYPE]);
        assert_eq!(set.numbers().collect::<Vec<_>>(), [1, 33, 79]);
        let both = set.and(&Bitmap::of(&[number::MODE, number::OWNER]));
        assert_eq!(both, Bitmap::of(&[number::MODE]));
        assert!(both.is_within(&set) && !set.is_within(&both));
        let mut writer = Writer::new();
        both.write(&mut writer);
        assert_eq!(writer.len(), 12, "without the last word");
        let parsed = Bitmap::parse(&mut Reader::new(writer.bytes()));
        assert_eq!(parsed, Ok(both));
    }
}
