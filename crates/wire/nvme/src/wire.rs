//! How a specification's table becomes a Rust type: little-endian fields at stated byte offsets,
//! open enumerations and flag words.
//!
//! The macros here only move bytes. They judge no value: that is done where a field's meaning is
//! known. Offsets, sizes and overlaps are checked at compile time.

use thiserror::Error;

/// A buffer was not as long as the structure that it should hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{structure} takes {expected} bytes, but {actual} were given")]
pub struct WrongLength {
    /// The structure's name.
    pub structure: &'static str,
    /// Bytes that the structure takes.
    pub expected: usize,
    /// Bytes that were given.
    pub actual: usize,
}

/// A value with a fixed little-endian form, as it occurs inside a larger structure.
pub(crate) trait Field: Sized {
    const LENGTH: usize;
    /// Reads the value from exactly `LENGTH` bytes.
    fn get(bytes: &[u8]) -> Self;
    /// Writes the value to exactly `LENGTH` bytes.
    fn put(&self, bytes: &mut [u8]);
    /// Sets the bytes that carry information, of exactly `LENGTH` bytes, to FFh.
    #[cfg(test)]
    fn mask(mask: &mut [u8]) {
        mask.fill(0xff);
    }
}

macro_rules! integer_field {
    ($($integer:ty),*) => {$(
        impl Field for $integer {
            const LENGTH: usize = size_of::<$integer>();
            #[inline]
            fn get(bytes: &[u8]) -> Self {
                let mut array = [0; size_of::<$integer>()];
                array.copy_from_slice(bytes);
                <$integer>::from_le_bytes(array)
            }
            #[inline]
            fn put(&self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}
integer_field!(u8, u16, u32, u64, u128);

impl<T: Field + Copy + Default, const N: usize> Field for [T; N] {
    const LENGTH: usize = T::LENGTH * N;
    fn get(bytes: &[u8]) -> Self {
        let mut values = [T::default(); N];
        for (value, chunk) in values.iter_mut().zip(bytes.chunks_exact(T::LENGTH)) {
            *value = T::get(chunk);
        }
        values
    }
    fn put(&self, bytes: &mut [u8]) {
        for (value, chunk) in self.iter().zip(bytes.chunks_exact_mut(T::LENGTH)) {
            value.put(chunk);
        }
    }
    #[cfg(test)]
    fn mask(mask: &mut [u8]) {
        mask.chunks_exact_mut(T::LENGTH).for_each(T::mask);
    }
}

/// Reads a value at a byte offset. Panics where the bytes do not reach that far: callers hold
/// arrays or have checked the length.
#[inline]
pub(crate) fn get<T: Field>(bytes: &[u8], offset: usize) -> T {
    T::get(&bytes[offset..offset + T::LENGTH])
}

/// Writes a value at a byte offset; panics as [`get`] does.
#[inline]
pub(crate) fn put<T: Field>(bytes: &mut [u8], offset: usize, value: T) {
    value.put(&mut bytes[offset..offset + T::LENGTH]);
}

/// The `N` bytes at a byte offset; panics as [`get`] does.
#[inline]
pub(crate) fn array_at<const N: usize>(bytes: &[u8], offset: usize) -> &[u8; N] {
    bytes[offset..]
        .first_chunk()
        .expect("callers have checked the length")
}

/// Bits `high..=low` of a dword.
#[inline]
pub(crate) const fn bits(word: u32, high: u32, low: u32) -> u32 {
    debug_assert!(high >= low && high < 32);
    (word >> low) & (u32::MAX >> (31 - (high - low)))
}

/// One bit of a dword.
#[inline]
pub(crate) const fn bit(word: u32, position: u32) -> bool {
    word & (1 << position) != 0
}

/// Copies ASCII text into a field, filling the rest with spaces, as Identify's ASCII strings are
/// (NVMe Base 2.0c section 1.4). Bytes outside printable ASCII become `?`; text that is too long
/// is cut.
pub fn ascii<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [b' '; N];
    for (byte, character) in field.iter_mut().zip(text.chars()) {
        *byte = if matches!(character, ' '..='~') {
            character as u8
        } else {
            b'?'
        };
    }
    field
}

/// Reads a space-padded ASCII field: trailing spaces and NULs are dropped, bytes outside printable
/// ASCII become `?`.
pub fn ascii_text(field: &[u8]) -> String {
    let length = field
        .iter()
        .rposition(|&byte| byte != b' ' && byte != 0)
        .map_or(0, |last| last + 1);
    field[..length]
        .iter()
        .map(|&byte| {
            if matches!(byte, b' '..=b'~') {
                char::from(byte)
            } else {
                '?'
            }
        })
        .collect()
}

/// Defines a structure of fixed size: `offset => name: type` in rising order.
macro_rules! wire_struct {
    (
        $(#[$meta:meta])*
        pub struct $name:ident[$size:expr] {
            $( $(#[$field_meta:meta])* $offset:literal => $field:ident: $type:ty, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name {
            $( $(#[$field_meta])* pub $field: $type, )*
        }

        impl $name {
            /// Bytes that the structure takes on the wire.
            pub const SIZE: usize = $size;

            /// The structure's bytes; what no field covers is zero.
            pub fn encode(&self) -> [u8; $size] {
                let mut bytes = [0; $size];
                self.put_fields(&mut bytes);
                bytes
            }

            /// Writes the structure's [`SIZE`](Self::SIZE) bytes; what no field covers is zeroed.
            ///
            /// # Errors
            /// The buffer is not exactly that long.
            pub fn encode_into(&self, bytes: &mut [u8]) -> Result<(), $crate::wire::WrongLength> {
                Self::check_length(bytes.len())?;
                bytes.fill(0);
                self.put_fields(bytes);
                Ok(())
            }

            /// Reads the structure; reserved bytes are ignored.
            pub fn decode(bytes: &[u8; $size]) -> Self {
                Self::get_fields(bytes)
            }

            /// Reads the structure from a slice of exactly its size.
            ///
            /// # Errors
            /// The slice is not exactly [`SIZE`](Self::SIZE) bytes long.
            pub fn parse(bytes: &[u8]) -> Result<Self, $crate::wire::WrongLength> {
                Self::check_length(bytes.len())?;
                Ok(Self::get_fields(bytes))
            }

            fn check_length(actual: usize) -> Result<(), $crate::wire::WrongLength> {
                if actual == $size {
                    return Ok(());
                }
                Err($crate::wire::WrongLength { structure: stringify!($name), expected: $size, actual })
            }

            #[inline]
            fn get_fields(bytes: &[u8]) -> Self {
                Self { $( $field: $crate::wire::get(bytes, $offset), )* }
            }

            #[inline]
            fn put_fields(&self, bytes: &mut [u8]) {
                $( $crate::wire::put(bytes, $offset, self.$field); )*
            }
        }

        impl Default for $name {
            /// Every field zero, which the specification reads as absent, unsupported or not reported.
            fn default() -> Self {
                Self::decode(&[0; $size])
            }
        }

        impl $crate::wire::Field for $name {
            const LENGTH: usize = $size;
            #[inline]
            fn get(bytes: &[u8]) -> Self {
                Self::get_fields(bytes)
            }
            #[inline]
            fn put(&self, bytes: &mut [u8]) {
                bytes.fill(0);
                self.put_fields(bytes);
            }
            #[cfg(test)]
            fn mask(mask: &mut [u8]) {
                $( <$type as $crate::wire::Field>::mask(
                    &mut mask[$offset..$offset + <$type as $crate::wire::Field>::LENGTH],
                ); )*
            }
        }

        // Fields rise, do not overlap and end within the structure.
        #[allow(unused_assignments)]
        const _: () = {
            let mut end = 0_usize;
            $(
                assert!($offset >= end, "a field overlaps the one before it");
                end = $offset + <$type as $crate::wire::Field>::LENGTH;
            )*
            assert!(end <= $size, "a field ends outside the structure");
        };

        #[cfg(test)]
        impl $crate::wire::check::Structure for $name {
            fn decode(bytes: &[u8]) -> Self {
                Self::parse(bytes).expect("a slice of the structure's size")
            }
            fn encode(&self) -> Vec<u8> {
                $name::encode(self).to_vec()
            }
        }
    };
}
pub(crate) use wire_struct;

/// Defines an enumeration that keeps the values which it does not know, as a field of structures.
macro_rules! open_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident: $integer:ident { $( $variants:tt )* }
    ) => {
        weir_open_enum::open_enum! {
            $(#[$meta])*
            pub enum $name: $integer { $( $variants )* }
        }

        impl From<$integer> for $name {
            fn from(value: $integer) -> Self {
                Self::from_value(value)
            }
        }

        impl From<$name> for $integer {
            fn from(value: $name) -> Self {
                value.value()
            }
        }

        impl $crate::wire::Field for $name {
            const LENGTH: usize = size_of::<$integer>();
            #[inline]
            fn get(bytes: &[u8]) -> Self {
                Self::from_value(<$integer as $crate::wire::Field>::get(bytes))
            }
            #[inline]
            fn put(&self, bytes: &mut [u8]) {
                self.value().put(bytes);
            }
        }
    };
}
pub(crate) use open_enum;

/// Defines a word of independent bits.
macro_rules! flags {
    (
        $(#[$meta:meta])*
        pub struct $name:ident: $integer:ty {
            $( $(#[$flag_meta:meta])* $flag:ident = $value:expr, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(pub $integer);

        impl $name {
            $( $(#[$flag_meta])* pub const $flag: Self = Self($value); )*

            /// No bit set.
            pub const NONE: Self = Self(0);

            /// Whether every bit of `other` is set here.
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// These bits and those of `other`.
            #[must_use]
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// These bits without those of `other`.
            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }
        }

        impl core::ops::BitOr for $name {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                self.with(other)
            }
        }

        impl $crate::wire::Field for $name {
            const LENGTH: usize = size_of::<$integer>();
            #[inline]
            fn get(bytes: &[u8]) -> Self {
                Self(<$integer as $crate::wire::Field>::get(bytes))
            }
            #[inline]
            fn put(&self, bytes: &mut [u8]) {
                self.0.put(bytes);
            }
        }
    };
}
pub(crate) use flags;

/// What every fixed structure is tested for.
#[cfg(test)]
pub(crate) mod check {
    use super::Field;
    use core::fmt::Debug;
    use proptest::test_runner::TestRunner;

    pub(crate) trait Structure: Debug + PartialEq + Field {
        fn decode(bytes: &[u8]) -> Self;
        fn encode(&self) -> Vec<u8>;
    }

    /// Any bytes decode without a panic; encoding gives back the bytes of every field and zeroes
    /// elsewhere; decoding that gives the same value. Proptest prints the failing input, shrunk.
    pub(crate) fn round_trip<S: Structure>() {
        let bytes = proptest::collection::vec(proptest::num::u8::ANY, S::LENGTH);
        let mut mask = vec![0; S::LENGTH];
        S::mask(&mut mask);
        TestRunner::default()
            .run(&bytes, |bytes| {
                let value = S::decode(&bytes);
                let expected: Vec<u8> = bytes
                    .iter()
                    .zip(&mask)
                    .map(|(byte, mask)| byte & mask)
                    .collect();
                let encoded = value.encode();
                proptest::prop_assert_eq!(&S::decode(&encoded), &value);
                proptest::prop_assert_eq!(encoded, expected);
                Ok(())
            })
            .expect("round trip");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_counted_from_the_least_significant() {
        assert_eq!(bits(0x1234_5678, 31, 0), 0x1234_5678);
        assert_eq!(bits(0x1234_5678, 15, 8), 0x56);
        assert_eq!(bits(0x8000_0000, 31, 31), 1);
        assert!(bit(0x8000_0000, 31));
        assert!(!bit(0x8000_0000, 30));
    }

    #[test]
    fn ascii_is_padded_with_spaces_and_trimmed_again() {
        assert_eq!(&ascii::<8>("Weir"), b"Weir    ");
        assert_eq!(&ascii::<4>("too long"), b"too ");
        assert_eq!(&ascii::<4>("ä\n"), b"??  ");
        assert_eq!(ascii_text(b"Weir 1  "), "Weir 1");
        assert_eq!(ascii_text(b"Weir\0\0\0"), "Weir");
        assert_eq!(ascii_text(b"        "), "");
        assert_eq!(ascii_text(b"a\xffb"), "a?b");
    }
}
