//! Values as a profile writes them: `"42GB"`, `"1.6GB/s"`, `"20us"`.

/// A decimal number and the unit behind it.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text
        .find(|character: char| !character.is_ascii_digit() && character != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    // What `parse` takes besides, such as `inf`, has no digit at its start.
    let starts_and_ends_well = number.starts_with(|first: char| first.is_ascii_digit())
        && number.ends_with(|last: char| last.is_ascii_digit());
    let number = starts_and_ends_well.then_some(number)?.parse().ok()?;
    Some((number, unit.trim()))
}

/// Bytes, with a unit that is a power of 1000 (as data sheets have it) or of 1024: `512`, `42GB`, `16MiB`.
pub(crate) fn bytes(text: &str) -> Option<f64> {
    let (number, unit) = split(text)?;
    let factor = match unit {
        "" | "B" => 1.0,
        "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "TB" => 1e12,
        "PB" => 1e15,
        "KiB" => (1u64 << 10) as f64,
        "MiB" => (1u64 << 20) as f64,
        "GiB" => (1u64 << 30) as f64,
        "TiB" => (1u64 << 40) as f64,
        _ => return None,
    };
    Some(number * factor)
}

/// Bytes a second: `1.6GB/s`.
pub(crate) fn rate(text: &str) -> Option<f64> {
    bytes(text.trim().strip_suffix("/s")?)
}

/// Nanoseconds: `20us`, `1.5s`.
pub(crate) fn nanoseconds(text: &str) -> Option<f64> {
    let (number, unit) = split(text)?;
    let factor = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" => 60e9,
        _ => return None,
    };
    Some(number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_with_their_units() {
        assert_eq!(bytes("42GB"), Some(42e9));
        assert_eq!(bytes("16 MiB"), Some(16_777_216.0));
        assert_eq!(bytes("512"), Some(512.0));
        assert_eq!(rate("1.6GB/s"), Some(1.6e9));
        assert_eq!(nanoseconds("20us"), Some(20e3));
        assert_eq!(nanoseconds("1.5 s"), Some(1.5e9));
        assert_eq!(nanoseconds("2min"), Some(120e9));
    }

    #[test]
    fn what_is_no_value_is_none() {
        for text in [
            "", "GB", "4gb", "-1GB", "1e3", ".5GB", "5.GB", "inf", "1..2GB",
        ] {
            assert_eq!(bytes(text), None, "{text}");
        }
        assert_eq!(rate("1GB"), None);
        assert_eq!(nanoseconds("5"), None);
        assert_eq!(nanoseconds("5h"), None);
    }
}
