//! Bytes as hexadecimal digits.

/// Two digits for each byte.
pub(crate) fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of such digits; none where a text is something else.
pub(crate) fn parse_digits(text: &str) -> Option<Vec<u8>> {
    let byte = |index| u8::from_str_radix(text.get(index..index + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(byte).collect()
}
