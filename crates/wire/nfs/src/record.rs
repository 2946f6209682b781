//! Record marking: how calls and replies follow one another on a stream (RFC 5531, section 11).

/// Bytes of a fragment's header.
pub const HEADER_BYTES: usize = 4;
const LAST: u32 = 1 << 31;

/// The header of a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// Bytes that follow.
    pub length: u32,
    /// Says that the record ends with it.
    pub is_last: bool,
}

impl Fragment {
    /// Reads a header.
    #[must_use]
    pub fn parse(bytes: [u8; HEADER_BYTES]) -> Self {
        let word = u32::from_be_bytes(bytes);
        Fragment {
            length: word & !LAST,
            is_last: word & LAST != 0,
        }
    }

    /// The header's bytes.
    ///
    /// # Panics
    /// When the length takes more than 31 bits.
    #[must_use]
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        assert!(self.length < LAST, "a fragment's length has 31 bits");
        let last = if self.is_last { LAST } else { 0 };
        (self.length | last).to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back() {
        for fragment in [(0, true), (1, false), (0x7fff_ffff, true)] {
            let fragment = Fragment {
                length: fragment.0,
                is_last: fragment.1,
            };
            assert_eq!(Fragment::parse(fragment.to_bytes()), fragment);
        }
    }
}
