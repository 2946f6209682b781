//! Quantities as people who size things write them. Data sheets and links count in powers of 1000: `GB` is a thousand million bytes here, and `GiB`
//! the binary unit. Bits and bytes are told apart by `b` and `B`.

/// A quantity that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is no {what}: {reason}")]
pub struct UnitError {
    text: String,
    what: &'static str,
    reason: String,
}

fn parts(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text
        .find(|of: char| !of.is_ascii_digit() && of != '.')
        .unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    number.is_finite().then_some((number, text[end..].trim()))
}

/// The factor of a prefix: `k`, `M`, `G`, `T`, `P` or with `i` the binary ones.
fn factor(prefix: &str) -> Option<f64> {
    const PREFIXES: [&str; 5] = ["K", "M", "G", "T", "P"];
    if prefix.is_empty() {
        return Some(1.0);
    }
    let (letter, base) = match prefix.strip_suffix('i') {
        Some(letter) => (letter, 1024f64),
        None => (prefix, 1000f64),
    };
    let upper = letter.to_ascii_uppercase();
    let power = PREFIXES.iter().position(|of| *of == upper)? + 1;
    Some(base.powi(power as i32))
}

/// Reads bytes per second: `100Gb/s` (bits), `12.5GB/s`, `1.6GiB/s`, `100Gbit/s`, `100Gbps`.
///
/// # Errors
/// What is wrong, and how it is written.
pub fn rate(text: &str) -> Result<f64, UnitError> {
    const HOW: &str = "write a number above 0 with Gb/s (bits) or GB/s (bytes), or with k, M or T for G, such as 100Gb/s or 1.6GB/s";
    let wrong = || UnitError {
        text: text.to_owned(),
        what: "rate",
        reason: HOW.to_owned(),
    };
    let (number, unit) = parts(text).ok_or_else(wrong)?;
    let (prefix, bits) = ["bit/s", "bps", "b/s"]
        .iter()
        .find_map(|end| unit.strip_suffix(end).map(|prefix| (prefix, true)))
        .or_else(|| unit.strip_suffix("B/s").map(|prefix| (prefix, false)))
        .ok_or_else(wrong)?;
    let bytes = number * factor(prefix).ok_or_else(wrong)? / if bits { 8.0 } else { 1.0 };
    if bytes > 0.0 { Ok(bytes) } else { Err(wrong()) }
}

/// Reads bytes: `30TB` (powers of 1000), `8GiB` (powers of 1024), or a bare number of bytes.
///
/// # Errors
/// What is wrong, and how it is written.
pub fn bytes(text: &str) -> Result<f64, UnitError> {
    const HOW: &str = "write a number with TB (powers of 1000) or TiB (powers of 1024), or with k, M, G or P for T, such as 30TB or 8GiB";
    let wrong = || UnitError {
        text: text.to_owned(),
        what: "size",
        reason: HOW.to_owned(),
    };
    let (number, unit) = parts(text).ok_or_else(wrong)?;
    if unit.is_empty() {
        return Ok(number);
    }
    let prefix = unit.strip_suffix('B').ok_or_else(wrong)?;
    Ok(number * factor(prefix).ok_or_else(wrong)?)
}

/// Reads a fraction: `20%` or `0.2`.
///
/// # Errors
/// What is wrong, and how it is written.
pub fn fraction(text: &str) -> Result<f64, UnitError> {
    let wrong = || UnitError {
        text: text.to_owned(),
        what: "part",
        reason: "write it in hundredths, such as 20%, or as a number, such as 0.2".to_owned(),
    };
    match parts(text).ok_or_else(wrong)? {
        (number, "%") => Ok(number / 100.0),
        (number, "") => Ok(number),
        _ => Err(wrong()),
    }
}

/// A number with three or four digits that matter.
fn short(value: f64) -> String {
    let decimals = match value.abs() {
        of if of >= 1000.0 => 0,
        of if of >= 100.0 => 1,
        of if of >= 1.0 => 2,
        _ => 3,
    };
    weir_report::words::trimmed(value, decimals)
}

fn scaled(value: f64, unit: &str) -> String {
    const PREFIXES: [&str; 6] = ["", "k", "M", "G", "T", "P"];
    let mut value = value;
    let mut prefix = 0;
    while value.abs() >= 1000.0 && prefix + 1 < PREFIXES.len() {
        value /= 1000.0;
        prefix += 1;
    }
    format!("{} {}{unit}", short(value), PREFIXES[prefix])
}

/// Bytes per second in words, powers of 1000.
#[must_use]
pub fn rate_text(bytes_per_second: f64) -> String {
    scaled(bytes_per_second, "B/s")
}

/// Bytes per second in words, as bits per second in powers of 1000, as links have it.
#[must_use]
pub fn bit_rate_text(bytes_per_second: f64) -> String {
    scaled(bytes_per_second * 8.0, "b/s")
}

/// Bytes in words, powers of 1000.
#[must_use]
pub fn bytes_text(bytes: f64) -> String {
    scaled(bytes, "B")
}

/// A time in words, up to years.
#[must_use]
pub fn time_text(seconds: f64) -> String {
    match seconds {
        of if of >= SECONDS_OF_YEAR => format!("{} years", short(of / SECONDS_OF_YEAR)),
        of if of >= 2.0 * SECONDS_OF_DAY => format!("{} days", short(of / SECONDS_OF_DAY)),
        of if of >= 7200.0 => format!("{} hours", short(of / 3600.0)),
        of if of >= 120.0 => format!("{} min", short(of / 60.0)),
        of if of >= 0.1 => format!("{} s", short(of)),
        of => format!("{} ms", short(of * 1e3)),
    }
}

/// A part in hundredths, in words.
#[must_use]
pub fn percent_text(fraction: f64) -> String {
    format!("{}%", weir_report::words::trimmed(fraction * 100.0, 1))
}

/// Seconds of a day.
pub const SECONDS_OF_DAY: f64 = 86_400.0;
/// Days of a year: those of the Julian calendar, so that five years are 1,826.25 days.
pub const DAYS_OF_YEAR: f64 = 365.25;
/// Seconds of a year.
pub const SECONDS_OF_YEAR: f64 = SECONDS_OF_DAY * DAYS_OF_YEAR;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_and_bytes_are_told_apart() {
        assert_eq!(rate("100Gb/s"), Ok(12.5e9));
        assert_eq!(rate("100 Gbit/s"), Ok(12.5e9));
        assert_eq!(rate("200Gbps"), Ok(25e9));
        assert_eq!(rate("12.5GB/s"), Ok(12.5e9));
        assert_eq!(rate("1MiB/s"), Ok(1_048_576.0));
        assert_eq!(bytes("30TB"), Ok(30e12));
        assert_eq!(bytes("8GiB"), Ok(8.0 * 1_073_741_824.0));
        assert_eq!(bytes("4096"), Ok(4096.0));
        assert_eq!(fraction("20%"), Ok(0.2));
        assert_eq!(fraction("0.2"), Ok(0.2));
    }

    #[test]
    fn what_is_no_quantity_is_refused_with_the_way_to_write_it() {
        for text in [
            "",
            "100",
            "100G",
            "0Gb/s",
            "-1GB/s",
            "1XB/s",
            "GB/s",
            "1.2.3GB/s",
        ] {
            assert!(rate(text).is_err(), "{text}");
        }
        for text in ["", "30T", "TB", "-1TB", "1QB"] {
            assert!(bytes(text).is_err(), "{text}");
        }
        assert!(rate("100G").unwrap_err().to_string().contains("100Gb/s"));
        assert!(fraction("half").is_err());
    }

    #[test]
    fn quantities_are_written_in_the_unit_that_suits_them() {
        assert_eq!(rate_text(12.5e9), "12.5 GB/s");
        assert_eq!(bit_rate_text(12.5e9), "100 Gb/s");
        assert_eq!(bytes_text(7.56e15), "7.56 PB");
        assert_eq!(time_text(28_800.0), "8 hours");
        assert_eq!(time_text(1.5 * SECONDS_OF_YEAR), "1.5 years");
        assert_eq!(percent_text(0.024), "2.4%");
    }
}
