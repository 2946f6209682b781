//! Numbers as people read them, on pages and at terminals. Units are written as command lines take them: `us`.

/// A number with commas between thousands.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Things per second: with commas, and decimals only where there are few.
#[must_use]
pub fn per_second(count: f64) -> String {
    match count {
        count if !count.is_finite() => "-".to_owned(),
        count if count >= 100.0 => grouped(count.round() as u64),
        count => trimmed(count, 1),
    }
}

/// Between what a difference is, in percent. What is many times as much is not known to the hundredth of a percent, nor is it of use.
#[must_use]
pub fn between(low: f64, high: f64) -> String {
    const MOST: f64 = 1000.0;
    let high = match high > MOST {
        true => format!("more than +{MOST:.0}%"),
        false => format!("{high:+.2}%"),
    };
    format!("{low:+.2}% to {high}")
}

/// Bytes per second.
#[must_use]
pub fn rate(bytes_per_second: f64) -> String {
    const MIB: f64 = 1024.0 * 1024.0;
    let mib = bytes_per_second / MIB;
    if mib >= 10_240.0 {
        format!("{:.2} GiB/s", mib / 1024.0)
    } else {
        format!("{mib:.1} MiB/s")
    }
}

/// Bytes per second in powers of ten, as drives and links are sold: `1.60 GB/s`.
#[must_use]
pub fn decimal_rate(bytes_per_second: f64) -> String {
    match bytes_per_second {
        rate if !rate.is_finite() => "-".to_owned(),
        0.0 => "0 B/s".to_owned(),
        rate if rate >= 1e8 => format!("{:.2} GB/s", rate / 1e9),
        rate => format!("{:.2} MB/s", rate / 1e6),
    }
}

/// Bytes in powers of ten, as drives are sold: `1 TB`.
#[must_use]
pub fn decimal_bytes(bytes: f64) -> String {
    match bytes {
        bytes if bytes < 1e3 => format!("{} B", trimmed(bytes, 0)),
        bytes if bytes < 1e6 => format!("{} kB", trimmed(bytes / 1e3, 1)),
        bytes if bytes < 1e9 => format!("{} MB", trimmed(bytes / 1e6, 1)),
        bytes if bytes < 1e12 => format!("{} GB", trimmed(bytes / 1e9, 1)),
        bytes => format!("{} TB", trimmed(bytes / 1e12, 2)),
    }
}

/// A latency in the unit that suits it.
#[must_use]
pub fn latency(nanoseconds: f64) -> String {
    match nanoseconds {
        ns if !ns.is_finite() => "-".to_owned(),
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e4 => format!("{:.2} us", ns / 1e3),
        ns if ns < 1e6 => format!("{:.1} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

/// A latency beside an axis, where it is a round number.
#[must_use]
pub fn round_latency(nanoseconds: f64) -> String {
    match nanoseconds {
        ns if ns < 1e3 => format!("{} ns", trimmed(ns, 1)),
        ns if ns < 1e6 => format!("{} us", trimmed(ns / 1e3, 1)),
        ns if ns < 1e9 => format!("{} ms", trimmed(ns / 1e6, 1)),
        ns => format!("{} s", trimmed(ns / 1e9, 1)),
    }
}

/// A count beside an axis, where it is a round number: `800`, `20k`, `1.5M`.
#[must_use]
pub fn round_count(count: f64) -> String {
    match count {
        count if count < 1e4 => trimmed(count, 2),
        count if count < 1e6 => format!("{}k", trimmed(count / 1e3, 1)),
        count => format!("{}M", trimmed(count / 1e6, 2)),
    }
}

/// A time in seconds: `850 ms`, `12.5 s`, `3 min 20 s`.
#[must_use]
pub fn seconds(seconds: f64) -> String {
    match seconds {
        0.0 => "0 s".to_owned(),
        s if s < 1.0 => format!("{} ms", trimmed(s * 1e3, 1)),
        s if s < 120.0 => format!("{} s", trimmed(s, 2)),
        s => {
            let whole = s.round() as u64;
            match (whole / 3600, whole / 60 % 60, whole % 60) {
                (0, minutes, 0) => format!("{minutes} min"),
                (0, minutes, rest) => format!("{minutes} min {rest} s"),
                (hours, minutes, _) => format!("{hours} h {minutes} min"),
            }
        }
    }
}

/// With at most so many decimals, and no zeros at their end.
#[must_use]
pub fn trimmed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    if !text.contains('.') {
        return text;
    }
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0" } else { text }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_many_times_as_much_is_only_said_to_be() {
        assert_eq!(between(-1.5, 2.0), "-1.50% to +2.00%");
        assert_eq!(between(-100.0, 1e11), "-100.00% to more than +1000%");
    }

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1000), "1,000");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(per_second(12.34), "12.3");
        assert_eq!(per_second(99_999.6), "100,000");
    }

    #[test]
    fn what_is_sold_in_powers_of_ten_is_told_in_them() {
        assert_eq!(decimal_rate(0.0), "0 B/s");
        assert_eq!(decimal_rate(1.6e9), "1.60 GB/s");
        assert_eq!(decimal_rate(52_300_000.0), "52.30 MB/s");
        assert_eq!(decimal_bytes(0.0), "0 B");
        assert_eq!(decimal_bytes(1500.0), "1.5 kB");
        assert_eq!(decimal_bytes(41.96e9), "42 GB");
        assert_eq!(decimal_bytes(3.84e12), "3.84 TB");
    }

    #[test]
    fn latencies_have_the_unit_that_suits_them() {
        assert_eq!(latency(750.0), "750 ns");
        assert_eq!(latency(1_500.0), "1.50 us");
        assert_eq!(latency(123_456.0), "123.5 us");
        assert_eq!(latency(12_345_678.0), "12.35 ms");
        assert_eq!(latency(2e9), "2.00 s");
        assert_eq!(round_latency(2e5), "200 us");
        assert_eq!(round_latency(5e9), "5 s");
    }

    #[test]
    fn round_numbers_are_short() {
        assert_eq!(round_count(0.0), "0");
        assert_eq!(round_count(2500.0), "2500");
        assert_eq!(round_count(20_000.0), "20k");
        assert_eq!(round_count(1_250_000.0), "1.25M");
        assert_eq!(seconds(0.0), "0 s");
        assert_eq!(seconds(0.85), "850 ms");
        assert_eq!(seconds(12.5), "12.5 s");
        assert_eq!(seconds(200.0), "3 min 20 s");
        assert_eq!(seconds(7260.0), "2 h 1 min");
        assert_eq!(trimmed(-0.001, 2), "0");
    }
}
