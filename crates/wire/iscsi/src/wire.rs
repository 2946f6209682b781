//! Big-endian fields at stated byte offsets, and open enumerations. Judges no value: the modules that know a field's meaning do.

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

/// Defines an enumeration that keeps the values which it does not know.
macro_rules! open_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident: $integer:ty {
            $( $(#[$variant_meta:meta])* $variant:ident = $value:literal => $text:literal, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $( $(#[$variant_meta])* $variant, )*
            /// A value that is reserved, vendor specific or not known here.
            Other($integer),
        }

        impl $name {
            /// Every value that has a name.
            pub const NAMED: &[Self] = &[$( Self::$variant ),*];

            /// The value's name in the specification; `None` where it has none here.
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $( Self::$variant => Some($text), )*
                    Self::Other(_) => None,
                }
            }

            /// The value on the wire.
            #[inline]
            pub const fn value(self) -> $integer {
                match self {
                    $( Self::$variant => $value, )*
                    Self::Other(value) => value,
                }
            }

            /// The meaning of a value from the wire.
            #[inline]
            pub const fn from_value(value: $integer) -> Self {
                match value {
                    $( $value => Self::$variant, )*
                    value => Self::Other(value),
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => formatter.write_str(name),
                    None => write!(formatter, "{:#x}", self.value()),
                }
            }
        }
    };
}
pub(crate) use open_enum;
