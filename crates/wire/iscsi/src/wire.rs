//! Big-endian fields at stated byte offsets. Judges no value: the modules that know a field's meaning do.

/// Bytes of a Basic Header Segment (section 11.2.1).
pub const BASIC_HEADER_SIZE: usize = 48;

/// A Basic Header Segment's bytes.
pub type BasicHeader = [u8; BASIC_HEADER_SIZE];

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
        impl $crate::wire::Field for $name {
            #[inline]
            fn get(bytes: &$crate::wire::BasicHeader, offset: usize) -> Self {
                Self($crate::wire::Field::get(bytes, offset))
            }

            #[inline]
            fn put(&self, bytes: &mut $crate::wire::BasicHeader, offset: usize) {
                $crate::wire::Field::put(&self.0, bytes, offset);
            }
        }
    )*};
}
pub(crate) use named_fields;

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
            fn get(bytes: &$crate::wire::BasicHeader, offset: usize) -> Self {
                Self::from_value($crate::wire::Field::get(bytes, offset))
            }

            #[inline]
            fn put(&self, bytes: &mut $crate::wire::BasicHeader, offset: usize) {
                $crate::wire::Field::put(&self.value(), bytes, offset);
            }
        }
    };
}
pub(crate) use open_enum;
