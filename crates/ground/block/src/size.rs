//! Sizes as people write them: `4096`, `16k`, `1.5GiB`. Units are binary, as in the tools that storage people use.

use std::fmt;

/// A size that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is not a size: {reason}; write a number of bytes, or one with k, M, G, T or P (powers of 1024), such as 16k or 1.5GiB"
)]
pub struct SizeError {
    /// What was to be read.
    pub text: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// Reads a size in bytes.
///
/// # Errors
/// [`SizeError`] says what is wrong.
pub fn parse(text: &str) -> Result<u64, SizeError> {
    let fail = |reason| SizeError {
        text: text.to_owned(),
        reason,
    };
    let trimmed = text.trim();
    let digits_end = trimmed
        .find(|character: char| !character.is_ascii_digit() && character != '.')
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits_end);
    let shift = unit_shift(unit.trim()).ok_or_else(|| fail("its unit is not known"))?;
    if number.is_empty() {
        return Err(fail("it does not start with a number"));
    }
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || whole.is_empty() {
        return Err(fail("its number is not well formed"));
    }
    let too_large = || fail("it is too large");
    let whole: u64 = whole.parse().map_err(|_| too_large())?;
    let whole = whole.checked_mul(1 << shift).ok_or_else(too_large)?;
    let fraction = fraction_bytes(fraction, shift)
        .ok_or_else(|| fail("its fraction is not a whole number of bytes"))?;
    whole.checked_add(fraction).ok_or_else(too_large)
}

/// The bytes of a decimal fraction of a unit; none when they are not whole or the fraction is longer than need be.
fn fraction_bytes(digits: &str, shift: u32) -> Option<u64> {
    let digits = digits.trim_end_matches('0');
    if digits.is_empty() {
        return Some(0);
    }
    let numerator: u128 = digits.parse().ok()?;
    let denominator = 10u128.checked_pow(u32::try_from(digits.len()).ok()?)?;
    let scaled = numerator.checked_mul(1 << shift)?;
    (scaled % denominator == 0).then_some((scaled / denominator) as u64)
}

fn unit_shift(unit: &str) -> Option<u32> {
    let unit = unit.to_ascii_lowercase();
    let prefix = unit
        .strip_suffix("ib")
        .or_else(|| unit.strip_suffix('b'))
        .unwrap_or(&unit);
    match prefix {
        "" if unit != "ib" => Some(0),
        "k" => Some(10),
        "m" => Some(20),
        "g" => Some(30),
        "t" => Some(40),
        "p" => Some(50),
        _ => None,
    }
}

/// A size as a person reads it: in the largest unit of which it is a whole number, or else with two decimals.
#[derive(Debug, Clone, Copy)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
        let largest = (63 - (self.0 | 1).leading_zeros()) / 10;
        let unit = (largest as usize).min(UNITS.len() - 1);
        let one = 1u64 << (10 * unit);
        let text = if self.0.is_multiple_of(one) {
            format!("{} {}", self.0 / one, UNITS[unit])
        } else {
            format!("{:.2} {}", self.0 as f64 / one as f64, UNITS[unit])
        };
        formatter.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_every_spelling() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("512B", 512),
            ("16k", 16384),
            ("16K", 16384),
            ("16KiB", 16384),
            ("16 kb", 16384),
            ("1.5G", 3 << 29),
            ("0.5k", 512),
            ("1T", 1 << 40),
            ("3P", 3 << 50),
            ("1.0", 1),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in [
            "",
            "k",
            "10X",
            "-1",
            "1.2.3",
            ".5k",
            "1ib",
            "0.1",
            "99999999999P",
            "1.3k",
            "1e3",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_shown_in_whole_units_where_they_can_be() {
        let shown = |bytes| Size(bytes).to_string();
        assert_eq!(shown(0), "0 B");
        assert_eq!(shown(16384), "16 KiB");
        assert_eq!(shown(1 << 40), "1 TiB");
        assert_eq!(shown(1536), "1.50 KiB");
    }
}
