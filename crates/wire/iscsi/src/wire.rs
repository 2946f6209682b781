//! Big-endian fields at stated byte offsets. Judges no value: the modules that know a field's meaning do.

use crate::pdu::{BasicHeader, Cid, Isid, Itt, Tsih, Ttt};
use crate::serial::Serial;

/// The 16-bit field at `offset`.
#[inline]
pub(crate) fn get_u16(bytes: &[u8], offset: usize) -> u16 {
    u16::from_be_bytes(array_at(bytes, offset))
}

/// The 24-bit field at `offset`.
#[inline]
pub(crate) fn get_u24(bytes: &[u8], offset: usize) -> u32 {
    let [high, middle, low] = array_at(bytes, offset);
    u32::from_be_bytes([0, high, middle, low])
}

/// The 32-bit field at `offset`.
#[inline]
pub(crate) fn get_u32(bytes: &[u8], offset: usize) -> u32 {
    u32::from_be_bytes(array_at(bytes, offset))
}

/// The 64-bit field at `offset`.
#[inline]
pub(crate) fn get_u64(bytes: &[u8], offset: usize) -> u64 {
    u64::from_be_bytes(array_at(bytes, offset))
}

/// The `N` bytes at `offset`. Panics where the bytes do not reach that far: callers hold whole headers.
#[inline]
pub(crate) fn array_at<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    *bytes[offset..]
        .first_chunk()
        .expect("callers hold whole headers")
}

/// Writes `field` at `offset`; panics as [`array_at`] does.
#[inline]
pub(crate) fn put(bytes: &mut [u8], offset: usize, field: &[u8]) {
    bytes[offset..offset + field.len()].copy_from_slice(field);
}

/// A field of a header: bytes from an offset on.
pub(crate) trait Field {
    /// Reads it.
    fn get(bytes: &BasicHeader, offset: usize) -> Self;
    /// Writes it.
    fn put(&self, bytes: &mut BasicHeader, offset: usize);
}

/// A field of a header that is a part of a byte.
pub(crate) trait Bits {
    /// Reads it, moved to the lowest bits.
    fn from_bits(bits: u8) -> Self;
    /// Its value, in the lowest bits.
    fn bits(&self) -> u8;
}

impl Bits for bool {
    #[inline]
    fn from_bits(bits: u8) -> Self {
        bits != 0
    }

    #[inline]
    fn bits(&self) -> u8 {
        u8::from(*self)
    }
}

/// Reads the bits of `mask`, of the byte at `offset`.
#[inline]
pub(crate) fn get_bits<T: Bits>(bytes: &BasicHeader, offset: usize, mask: u8) -> T {
    T::from_bits((bytes[offset] & mask) >> mask.trailing_zeros())
}

/// Adds to the bits of `mask`, of the byte at `offset`.
#[inline]
pub(crate) fn put_bits<T: Bits>(value: &T, bytes: &mut BasicHeader, offset: usize, mask: u8) {
    bytes[offset] |= value.bits() << mask.trailing_zeros() & mask;
}

macro_rules! integer_fields {
    ($($integer:ty),*) => {$(
        impl Field for $integer {
            #[inline]
            fn get(bytes: &BasicHeader, offset: usize) -> Self {
                Self::from_be_bytes(array_at(bytes, offset))
            }

            #[inline]
            fn put(&self, bytes: &mut BasicHeader, offset: usize) {
                put(bytes, offset, &self.to_be_bytes());
            }
        }
    )*};
}
integer_fields!(u8, u16, u32, u64);

/// Fields that are another one under a name of their own.
macro_rules! named_fields {
    ($($name:ident),*) => {$(
        impl Field for $name {
            #[inline]
            fn get(bytes: &BasicHeader, offset: usize) -> Self {
                Self(Field::get(bytes, offset))
            }

            #[inline]
            fn put(&self, bytes: &mut BasicHeader, offset: usize) {
                self.0.put(bytes, offset);
            }
        }
    )*};
}
named_fields!(Serial, Itt, Ttt, Tsih, Cid, Isid);

impl Field for [u8; 6] {
    fn get(bytes: &BasicHeader, offset: usize) -> Self {
        array_at(bytes, offset)
    }

    fn put(&self, bytes: &mut BasicHeader, offset: usize) {
        put(bytes, offset, self);
    }
}

impl Field for [u16; 3] {
    fn get(bytes: &BasicHeader, offset: usize) -> Self {
        [0, 2, 4].map(|more| get_u16(bytes, offset + more))
    }

    fn put(&self, bytes: &mut BasicHeader, offset: usize) {
        for (index, value) in self.iter().enumerate() {
            value.put(bytes, offset + 2 * index);
        }
    }
}

/// Defines an enumeration that keeps the values which it does not know, as a field of headers: whole, or a part of a byte.
macro_rules! open_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident: u8 { $( $variants:tt )* }
    ) => {
        $crate::wire::open_enum! {
            @field
            $(#[$meta])*
            pub enum $name: u8 { $( $variants )* }
        }

        impl $crate::wire::Bits for $name {
            #[inline]
            fn from_bits(bits: u8) -> Self {
                Self::from_value(bits)
            }

            #[inline]
            fn bits(&self) -> u8 {
                self.value()
            }
        }
    };
    (
        $(#[$meta:meta])*
        pub enum $name:ident: $integer:ident { $( $variants:tt )* }
    ) => {
        $crate::wire::open_enum! {
            @field
            $(#[$meta])*
            pub enum $name: $integer { $( $variants )* }
        }
    };
    (
        @field
        $(#[$meta:meta])*
        pub enum $name:ident: $integer:ident { $( $variants:tt )* }
    ) => {
        weir_open_enum::open_enum! {
            $(#[$meta])*
            pub enum $name: $integer { $( $variants )* }
        }

        impl $crate::wire::Field for $name {
            #[inline]
            fn get(bytes: &$crate::pdu::BasicHeader, offset: usize) -> Self {
                Self::from_value($crate::wire::Field::get(bytes, offset))
            }

            #[inline]
            fn put(&self, bytes: &mut $crate::pdu::BasicHeader, offset: usize) {
                self.value().put(bytes, offset);
            }
        }
    };
}
pub(crate) use open_enum;

/// Defines a header that is nothing but its fields: each with its offset, and with its bits where it is a part of a byte. `with` sets what
/// is the same in all of them.
macro_rules! header {
    (
        $(#[$meta:meta])*
        pub struct $name:ident $(, with |$bytes:ident| $fixed:expr,)? {
            $( $(#[$field_meta:meta])* $field:ident: $type:ty [$offset:expr $(, $mask:expr)?], )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name {
            $( $(#[$field_meta])* pub $field: $type, )*
            /// Bytes of the data segment, without padding.
            pub data_length: u32,
        }

        impl $name {
            /// Reads a header.
            #[inline]
            pub fn read(bytes: &$crate::pdu::BasicHeader) -> Self {
                Self {
                    $( $field: $crate::wire::header!(@get bytes, $offset $(, $mask)?), )*
                    data_length: $crate::pdu::CommonHeader::read(bytes).data_length,
                }
            }
        }

        impl $crate::pdu::sealed::Sealed for $name {}
        impl $crate::pdu::Header for $name {
            const OPCODE: $crate::pdu::Opcode = $crate::pdu::Opcode::$name;

            #[inline]
            fn put(&self, bytes: &mut $crate::pdu::BasicHeader) {
                $( let $bytes = &mut *bytes; $fixed; )?
                $( $crate::wire::header!(@put self.$field, bytes, $offset $(, $mask)?); )*
            }

            #[inline]
            fn data_length(&self) -> u32 {
                self.data_length
            }
        }
    };
    (@get $bytes:expr, $offset:expr) => { $crate::wire::Field::get($bytes, $offset) };
    (@get $bytes:expr, $offset:expr, $mask:expr) => { $crate::wire::get_bits($bytes, $offset, $mask) };
    (@put $value:expr, $bytes:expr, $offset:expr) => { $crate::wire::Field::put(&$value, $bytes, $offset) };
    (@put $value:expr, $bytes:expr, $offset:expr, $mask:expr) => {
        $crate::wire::put_bits(&$value, $bytes, $offset, $mask)
    };
}
pub(crate) use header;
