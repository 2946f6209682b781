//! What a drive said of itself, in words: the rows of a table.

use weir_drive::document::{Drive, Health};

use crate::words;

/// One thing that a drive may say, in words.
type Told<'a> = &'a dyn Fn(&Health) -> Option<String>;

const UNKNOWN: &str = "unknown";

/// What of a drive's health is told: what it is, how it was before, how it was afterwards. What it does not say is unknown; the counters of heat and the warnings are left out of a drive
/// that says none of them.
#[must_use]
pub fn rows(drive: &Drive) -> Vec<[String; 3]> {
    let pair = |of: Told| {
        let told = |health: &Option<Health>| health.as_ref().and_then(of);
        (told(&drive.health_before), told(&drive.health_after))
    };
    let always = |name: &str, of: Told| {
        let (before, after) = pair(of);
        [
            name.to_owned(),
            before.unwrap_or(UNKNOWN.to_owned()),
            after.unwrap_or(UNKNOWN.to_owned()),
        ]
    };
    let mut rows = vec![
        grown("written by hosts", drive, |of| of.data_units_written_bytes),
        grown("written to the medium", drive, |of| of.media_bytes_written),
        always("endurance used", &|of| of.percentage_used.map(percent)),
        always("temperature", &|of| of.temperature_kelvin.map(celsius)),
    ];
    let where_told: [(&str, Told); 5] = [
        ("held back by heat for", &|of| {
            of.thermal_throttle_nanoseconds
                .map(|nanoseconds| words::seconds((nanoseconds as f64 / 1e9).round()))
        }),
        ("times that began", &|of| {
            of.thermal_throttle_transitions.map(words::grouped)
        }),
        ("above its warning temperature for", &|of| {
            of.warning_temperature_minutes.map(minutes)
        }),
        ("above its critical temperature for", &|of| {
            of.critical_temperature_minutes.map(minutes)
        }),
        ("warns of", &|of| {
            of.critical_warning.map(|_| match &of.warnings()[..] {
                [] => "nothing".to_owned(),
                warnings => warnings.join("; "),
            })
        }),
    ];
    for (name, of) in where_told {
        if pair(of) != (None, None) {
            rows.push(always(name, of));
        }
    }
    let factor = drive.write_amplification;
    rows.push([
        "write amplification".to_owned(),
        String::new(),
        factor.map_or(UNKNOWN.to_owned(), |factor| words::trimmed(factor, 3)),
    ]);
    rows
}

/// A count of bytes, and by how much it grew: next to what a drive was written in its life that is little.
fn grown(name: &str, drive: &Drive, of: fn(&Health) -> Option<u64>) -> [String; 3] {
    let before = drive.health_before.as_ref().and_then(of);
    let after = drive.health_after.as_ref().and_then(of);
    let more = before
        .zip(after)
        .and_then(|(before, after)| after.checked_sub(before));
    let told = |count: Option<u64>| count.map_or(UNKNOWN.to_owned(), bytes);
    let after = match more {
        Some(more) => format!("{}, {} more", told(after), bytes(more)),
        None => told(after),
    };
    [name.to_owned(), told(before), after]
}

fn bytes(bytes: u64) -> String {
    words::decimal_bytes(bytes as f64)
}

fn percent(percent: f64) -> String {
    format!("{}%", words::trimmed(percent, 3))
}

fn celsius(kelvin: f64) -> String {
    format!("{:.0} °C", kelvin - 273.15)
}

fn minutes(minutes: u64) -> String {
    format!("{} min", words::grouped(minutes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_drive_does_not_say_is_unknown_and_what_only_some_say_is_left_out() {
        let names = |drive: &Drive| -> Vec<String> {
            rows(drive).into_iter().map(|[name, ..]| name).collect()
        };
        let silent = Drive::default();
        assert_eq!(
            names(&silent),
            [
                "written by hosts",
                "written to the medium",
                "endurance used",
                "temperature",
                "write amplification"
            ]
        );
        let unknown = |row: &[String; 3]| row[2] == UNKNOWN;
        assert!(rows(&silent).iter().all(unknown));
        let before = Health {
            data_units_written_bytes: Some(2_000_000_000),
            temperature_kelvin: Some(313.15),
            thermal_throttle_nanoseconds: Some(90_000_000_000),
            thermal_throttle_transitions: Some(1234),
            warning_temperature_minutes: Some(7),
            critical_temperature_minutes: Some(0),
            critical_warning: Some(0),
            ..Health::default()
        };
        let drive = Drive {
            health_before: Some(before),
            health_after: Some(Health {
                data_units_written_bytes: Some(2_500_000_000),
                critical_warning: Some(0b110),
                ..before
            }),
            write_amplification: Some(1.25),
            ..Drive::default()
        };
        let row = |name: &str| {
            let row = rows(&drive).into_iter().find(|row| row[0] == name);
            row.map(|[_, before, after]| (before, after)).expect(name)
        };
        let same = |text: &str| (text.to_owned(), text.to_owned());
        let hosts = ("2 GB".to_owned(), "2.5 GB, 500 MB more".to_owned());
        assert_eq!(row("written by hosts"), hosts);
        assert_eq!(row("written to the medium"), same(UNKNOWN));
        assert_eq!(row("temperature"), same("40 °C"));
        assert_eq!(row("held back by heat for"), same("90 s"));
        assert_eq!(row("times that began"), same("1,234"));
        assert_eq!(row("above its warning temperature for"), same("7 min"));
        assert_eq!(row("above its critical temperature for"), same("0 min"));
        let (before, after) = row("warns of");
        assert_eq!(before, "nothing");
        assert_eq!(
            after,
            "its temperature is beyond a threshold; its reliability is degraded"
        );
        assert_eq!(row("write amplification").1, "1.25");
    }
}
