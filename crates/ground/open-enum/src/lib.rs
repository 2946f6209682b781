//! Enumerations of a specification's values that keep those which they do not know, so that nothing is lost between parsing and writing.

#![forbid(unsafe_code)]

/// Defines an enumeration: for each variant its value on the wire, and its name in the specification.
///
/// ```
/// weir_open_enum::open_enum! {
///     /// A colour.
///     pub enum Colour: u8 {
///         /// Red.
///         Red = 1 => "red",
///     }
/// }
/// assert_eq!(Colour::from_value(1), Colour::Red);
/// assert_eq!(Colour::from_value(7).value(), 7);
/// assert_eq!(Colour::Red.to_string(), "red");
/// assert_eq!(Colour::Other(7).to_string(), "0x7");
/// ```
#[macro_export]
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
