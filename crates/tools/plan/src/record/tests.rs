//! The rules of a recorder, against the published counts and properties that every plan has.

use crate::units::SECONDS_OF_DAY;
use proptest::prelude::*;

use super::*;
use crate::drive::FoundPass;
use crate::published;

const LINE: f64 = 12.5e9;

fn requirements() -> Requirements {
    Requirements {
        line: LINE,
        link: Link::Payload,
        packet_bytes: None,
        utilisation: Told::or(None, 1.0),
        margin: Told::or(None, 0.0),
        buffer: Told::or(None, 8.0 * 1024f64.powi(3)),
        retain: None,
        rated_writes: None,
        dwpd: Told::or(None, 1.0),
        warranty: Told::or(None, 5.0 * SECONDS_OF_YEAR),
        trim_ahead: Told::or(Some(0.0), 0.0),
    }
}

fn alone(drive: Drive) -> Design {
    Design { drive, count: None }
}

fn value(sheet: &Sheet, section: &str, row: &str, column: usize) -> f64 {
    sheet.cell(section, row, column).unwrap().value.unwrap()
}

#[test]
fn the_papers_first_four_counts_come_out_and_the_fifth_does_not() {
    let designs: Vec<Design> = published::drives_named("all")
        .unwrap()
        .into_iter()
        .map(alone)
        .collect();
    let sheet = plan(&requirements(), &designs).unwrap();
    let row = |name| {
        (0..5)
            .map(|at| value(&sheet, "drives", name, at) as u64)
            .collect::<Vec<_>>()
    };
    assert_eq!(row("drives"), [8, 6, 10, 6, 4]);
    assert_eq!(row("drives-data-sheet"), [4, 6, 7, 6, 4]);
    // What has the paper's 5 is a margin above 2.4%, with which the first needs 9.
    assert!((value(&sheet, "drives", "drives-margin", 4) - 0.024).abs() < 1e-12);
    assert!((value(&sheet, "drives", "drives-margin-next", 4) - 0.28).abs() < 1e-12);
    let wider = Requirements {
        margin: Told::or(Some(0.025), 0.0),
        ..requirements()
    };
    let sheet = plan(&wider, &designs).unwrap();
    assert_eq!(value(&sheet, "drives", "drives", 4), 5.0);
    assert_eq!(value(&sheet, "drives", "drives", 0), 9.0);
}

#[test]
fn twelve_drives_of_30_tb_hold_eight_hours_and_last_a_little_over_a_year_and_a_half() {
    let drive = Drive::steady("30 TB", 2e9, Some(30e12), Source::Given);
    let array = Design {
        drive,
        count: Some(12),
    };
    let sheet = plan(&requirements(), &[array]).unwrap();
    assert_eq!(value(&sheet, "ring", "held", 0), 28_800.0);
    let years = value(&sheet, "endurance", "years", 0);
    assert!((years - 1.667).abs() < 0.001, "{years}");
    assert_eq!(value(&sheet, "endurance", "overwrites", 0), 1826.25);
}

#[test]
fn what_is_kept_is_told_in_bytes_and_drives() {
    for (days, petabytes, drives) in [(7.0, 7.56e15, 252.0), (10.0, 10.8e15, 360.0)] {
        let wanted = Requirements {
            retain: Some(days * SECONDS_OF_DAY),
            ..requirements()
        };
        let drive = Drive::steady("30 TB", 2e9, Some(30e12), Source::Given);
        let sheet = plan(&wanted, &[alone(drive)]).unwrap();
        assert_eq!(value(&sheet, "ring", "retained", 0), petabytes);
        assert_eq!(value(&sheet, "ring", "drives-retention", 0), drives);
        assert_eq!(value(&sheet, "ring", "drives-total", 0), drives);
    }
}

#[test]
fn a_buffer_hides_a_short_window_and_not_a_long_one() {
    let windows = vec![
        Window {
            seconds: 1.0,
            rate: 0.5e9,
        },
        Window {
            seconds: 60.0,
            rate: 2e9,
        },
    ];
    let drive = Drive {
        windows,
        ..Drive::steady("d", 2e9, None, Source::Measured)
    };
    // Without a buffer the second of 0.5 GB/s takes 25; a buffer of a whole second of the line hides it.
    assert_eq!(needed(&drive, LINE, 0.0).unwrap().drives, 25);
    let hidden = needed(&drive, LINE, LINE).unwrap();
    assert_eq!(hidden.drives, 7, "(12.5 - 12.5 / 60) / 2 = 6.15");
    assert_eq!(hidden.binding.unwrap().seconds, 60.0);
}

#[test]
fn a_gap_that_no_drive_hides_is_said() {
    let drive = Drive {
        gap_seconds: 2.0,
        gap: GapKind::Measured,
        ..Drive::steady("d", 2e9, None, Source::Measured)
    };
    let sheet = plan(&requirements(), &[alone(drive)]).unwrap();
    let said = sheet
        .caveats
        .iter()
        .find(|of| of.contains("longest gap between completions, 2 s"))
        .unwrap();
    assert!(said.contains("a buffer of 25 GB does"), "{said}");
    assert_eq!(value(&sheet, "drives", "gap", 0), 2.0);
    assert_eq!(value(&sheet, "drives", "buffer-gap", 0), 25e9);
    let published = alone(Drive::steady("p", 2e9, None, Source::Published));
    let sheet = plan(&requirements(), &[published]).unwrap();
    assert!(sheet.cell("drives", "gap", 0).is_none(), "nobody said one");
}

#[test]
fn a_gap_that_the_buffer_does_not_bridge_is_in_the_answer() {
    let with = |gap, count| {
        let drive = Drive {
            gap_seconds: 2.0,
            gap,
            ..Drive::steady("d", 2e9, None, Source::Measured)
        };
        plan(&requirements(), &[Design { drive, count }]).unwrap()
    };
    let bridged =
        |sheet: &Sheet| (sheet.cell("drives", "gap-bridged", 0)).map(|of| of.text.clone());
    let lost = with(GapKind::Measured, None);
    assert_eq!(
        lost.answer,
        "d: no number of drives keeps up: its longest gap between completions, 2 s, takes a buffer of 25 GB, and there are 8.59 GB; but for that 7 would."
    );
    assert_eq!(bridged(&lost).unwrap(), "no");
    let lost = with(GapKind::Measured, Some(12));
    assert!(
        lost.answer.starts_with("d: 12 drives do not keep up"),
        "{}",
        lost.answer
    );
    // A slowest write is no gap: data may be lost, or not.
    let open = with(GapKind::SlowestWrite, Some(12));
    assert!(
        open.answer
            .starts_with("d: 12 drives keep up (7 would) as far as is known. Its slowest write, 2 s, takes a buffer of 25 GB"),
        "{}",
        open.answer
    );
    assert!(bridged(&open).unwrap().starts_with("unknown"));
    let wider = Requirements {
        buffer: Told::or(Some(25e9), 0.0),
        ..requirements()
    };
    let drive = Drive {
        gap_seconds: 2.0,
        gap: GapKind::Measured,
        ..Drive::steady("d", 2e9, None, Source::Measured)
    };
    let kept = plan(&wider, &[alone(drive)]).unwrap();
    assert_eq!(kept.answer, "d: 7 drives.");
    assert_eq!(bridged(&kept).unwrap(), "yes");
}

#[test]
fn an_array_that_does_not_keep_what_is_to_be_kept_is_said_to() {
    let week = Requirements {
        retain: Some(7.0 * SECONDS_OF_DAY),
        trim_ahead: Told::or(None, 60.0),
        ..requirements()
    };
    let given = |name, capacity| Drive::steady(name, 2e9, capacity, Source::Given);
    let of = |drive, count| plan(&week, &[Design { drive, count }]).unwrap();
    let kept = |sheet: &Sheet| (sheet.cell("ring", "kept", 0)).map(|of| of.text.clone());
    let twelve = of(given("d", Some(30e12)), Some(12));
    assert!(
        twelve
            .answer
            .contains("do not keep the 7 days that are to be kept, which take 253 drives"),
        "{}",
        twelve.answer
    );
    assert_eq!(kept(&twelve).unwrap(), "no");
    let (mixed, count) =
        Drive::striped(&[(given("d", Some(30e12)), 6), (given("e", Some(40e12)), 6)]);
    let mixed = of(mixed, Some(count));
    assert!(mixed.answer.contains("take 253 drives"), "{}", mixed.answer);
    let enough = of(given("d", Some(30e12)), None);
    assert!(!enough.answer.contains("do not keep"), "{}", enough.answer);
    assert_eq!(kept(&enough).unwrap(), "yes");
    let unknown = of(given("d", None), Some(12));
    assert!(unknown.answer.contains("--capacity"), "{}", unknown.answer);
    assert_eq!(kept(&unknown).unwrap(), "unknown");
}

#[test]
fn a_spare_that_does_not_fit_is_part_of_the_count() {
    let wanted = Requirements {
        trim_ahead: Told::or(None, 60.0),
        ..requirements()
    };
    let of = |count| {
        let drive = Drive::steady("d", LINE, Some(500e9), Source::Given);
        plan(&wanted, &[Design { drive, count }]).unwrap()
    };
    // 60 s of the line are 750 GB.
    let least = of(None);
    assert_eq!(value(&least, "drives", "drives", 0), 1.0);
    assert_eq!(value(&least, "ring", "drives-total", 0), 2.0);
    assert_eq!(value(&least, "ring", "held", 0), 20.0);
    assert!(
        least
            .answer
            .starts_with("d: 2 drives for the spare, 1 to keep up"),
        "{}",
        least.answer
    );
    let told = of(Some(1));
    assert!(
        told.answer
            .contains("They hold nothing: the spare of 750 GB does not fit on them, and takes 2."),
        "{}",
        told.answer
    );
    let text = &told.cell("ring", "held", 0).unwrap().text;
    assert!(text.contains("does not fit"), "{text}");
    // Exactly the spare would leave no ring.
    let exact = Requirements {
        trim_ahead: Told::or(Some(80.0), 0.0),
        ..requirements()
    };
    let drive = Drive::steady("d", LINE, Some(500e9), Source::Given);
    let sheet = plan(&exact, &[alone(drive)]).unwrap();
    assert_eq!(value(&sheet, "ring", "drives-total", 0), 3.0);
    let drive = Drive::steady("d", LINE, Some(1e6), Source::Given);
    let said = plan(&exact, &[alone(drive)]).unwrap_err().to_string();
    assert!(said.contains("--trim-ahead"), "{said}");
}

#[test]
fn windows_that_nobody_measured_and_the_buffer_does_not_hide_are_said() {
    let pass = |name: &str, shortest: f64| {
        format!(
            r#"{{"pass":"{name}","worst_windows":[{{"seconds":{shortest},"bytes_per_second":2e9}},{{"seconds":60,"bytes_per_second":2e9}}]}}"#
        )
    };
    // The overwrite took long, and its samples are longer.
    let text = format!(
        r#"{{"weir":"drive","version":1,"drives":[{{"name":"d","capacity_bytes":1e12,"passes":[{},{}]}}]}}"#,
        pass("fill", 0.1),
        pass("overwrite", 1.0)
    );
    let read = || {
        let drives = crate::drive::read(&text, crate::drive::WhenFull::Overwrite);
        drives.unwrap().remove(0)
    };
    let said = |line: f64, buffer: f64, designs: &[Design]| {
        let wanted = Requirements {
            line,
            buffer: Told::or(Some(buffer), 0.0),
            ..requirements()
        };
        let sheet = plan(&wanted, designs).unwrap();
        let mut caveats = sheet.caveats.into_iter();
        caveats.find(|of| of.contains("is not seen"))
    };
    let gib = 1024f64.powi(3);
    let caveat = said(25e9, 8.0 * gib, &[alone(read())]).unwrap();
    for part in [
        "within 1 s was not measured",
        "hides 0.344 s",
        "--buffer 25GB",
    ] {
        assert!(caveat.contains(part), "no {part} in {caveat}");
    }
    assert_eq!(said(25e9, 25e9, &[alone(read())]), None);
    // A member whose shortest window is longer is not seen where the others are.
    let fine = Drive {
        windows: read().windows,
        ..Drive::steady("fine", 2e9, Some(1e12), Source::Measured)
    };
    let (drive, count) = Drive::striped(&[(fine, 8), (read(), 8)]);
    let array = Design {
        drive,
        count: Some(count),
    };
    assert!(said(25e9, 8.0 * gib, &[array]).is_some());
    // A rate that is told holds for ever, and in every window.
    let told = Drive::steady("t", 2e9, None, Source::Given);
    assert_eq!(said(25e9, 0.0, &[alone(told)]), None);
}

#[test]
fn what_was_measured_is_told_and_whether_it_counts() {
    let pass = |name: &str, mean, counts, trim_ahead_bytes| FoundPass {
        name: name.to_owned(),
        mean: Some(mean),
        counts,
        trim_ahead_bytes,
    };
    let found = Found {
        drive: "d".to_owned(),
        source: Source::Modelled,
        started: "2026-01-31T12:00:00Z".to_owned(),
        passes: vec![
            pass("fill", 3e9, true, None),
            pass("overwrite", 1e9, false, None),
            pass(TRIMMED, 2.5e9, true, Some(20e9)),
        ],
        endurance_used_percent: Some(12.5),
        temperature_kelvin: None,
        write_amplification: Some(1.25),
    };
    let drive = Drive {
        found: vec![found],
        ..Drive::steady("d", 2.5e9, Some(1e12), Source::Modelled)
    };
    // Five drives, each of which has a fifth of what the line brings in 4 seconds ahead: 10 GB.
    let wanted = |seconds| Requirements {
        trim_ahead: Told::or(Some(seconds), 0.0),
        ..requirements()
    };
    let sheet = plan(&wanted(4.0), &[alone(drive.clone())]).unwrap();
    assert_eq!(value(&sheet, "drives", "drives", 0), 5.0);
    assert_eq!(
        value(&sheet, "measured", "mean-overwrite-trimmed", 0),
        2.5e9
    );
    assert_eq!(value(&sheet, "measured", "trim-ahead-measured", 0), 20e9);
    assert_eq!(value(&sheet, "measured", "trim-ahead-planned", 0), 10e9);
    assert_eq!(value(&sheet, "measured", "endurance-used", 0), 0.125);
    let text = |row| sheet.cell("measured", row, 0).unwrap().text.as_str();
    assert_eq!(text("when"), "2026-01-31T12:00:00Z");
    assert_eq!(text("mean-overwrite"), "1 GB/s, does not count");
    assert_eq!(text("temperature"), "unknown");
    let source = sheet.cell("measured", "mean-fill", 0).unwrap().source;
    assert_eq!(source, Source::Modelled);
    // Less ahead than was measured is said, with what would be as much.
    let said = |sheet: &Sheet| {
        let mut caveats = sheet.caveats.iter();
        caveats.find(|of| of.contains("TRIM ahead")).cloned()
    };
    assert!(
        said(&sheet).unwrap().contains("--trim-ahead 8s"),
        "{:?}",
        said(&sheet)
    );
    assert_eq!(said(&plan(&wanted(8.0), &[alone(drive)]).unwrap()), None);
    let told = Drive::steady("d", 2.5e9, None, Source::Given);
    let sheet = plan(&requirements(), &[alone(told)]).unwrap();
    assert!(
        sheet.cell("measured", "when", 0).is_none(),
        "nobody measured it"
    );
}

#[test]
fn packets_are_stored_with_their_headers_and_padding() {
    assert_eq!(stored_bytes(64), 96);
    assert_eq!(stored_bytes(65), 100);
    let packets = Requirements {
        packet_bytes: Some(64),
        ..requirements()
    };
    assert_eq!(packets.stored(), LINE * 96.0 / 64.0);
    let wire = Requirements {
        link: Link::Ethernet,
        ..packets
    };
    assert_eq!(wire.stored(), LINE * 96.0 / 88.0);
}

#[test]
fn an_array_that_was_told_is_judged() {
    let slow = Drive::steady("slow", 1.3e9, Some(1e12), Source::Given);
    let fast = Drive::steady("fast", 3.2e9, Some(2e12), Source::Given);
    let (drive, count) = Drive::striped(&[(slow, 2), (fast, 4)]);
    let array = Design {
        drive,
        count: Some(count),
    };
    let sheet = plan(&requirements(), &[array]).unwrap();
    assert!(
        sheet.answer.contains("6 drives do not keep up, 10 would"),
        "{}",
        sheet.answer
    );
}

#[test]
fn numbers_without_sense_are_refused() {
    let drive = || vec![alone(Drive::steady("d", 1e9, None, Source::Given))];
    let wrong = |change: fn(&mut Requirements)| {
        let mut wanted = requirements();
        change(&mut wanted);
        plan(&wanted, &drive()).unwrap_err().to_string()
    };
    assert!(wrong(|of| of.utilisation.value = 0.0).contains("--utilisation"));
    assert!(wrong(|of| of.margin.value = -0.1).contains("--margin"));
    assert!(wrong(|of| of.dwpd.value = 0.0).contains("--dwpd"));
    assert!(wrong(|of| of.packet_bytes = Some(0)).contains("--packet-bytes"));
    assert!(plan(&requirements(), &[]).is_err());
    let stopped = Drive::steady("stopped", 0.0, None, Source::Given);
    let said = plan(&requirements(), &[alone(stopped)])
        .unwrap_err()
        .to_string();
    assert!(said.contains("stopped"), "{said}");
}

fn any_drive() -> impl Strategy<Value = Drive> {
    let window = (0.1f64..5000.0, 1e8f64..5e9);
    (proptest::collection::vec(window, 1..6), 1e11f64..1e14).prop_map(|(windows, capacity)| {
        let mut windows: Vec<Window> = windows
            .into_iter()
            .map(|(seconds, rate)| Window { seconds, rate })
            .collect();
        windows.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
        Drive {
            windows,
            ..Drive::steady("any", 1e9, Some(capacity), Source::Measured)
        }
    })
}

proptest! {
    #[test]
    fn more_rate_never_needs_fewer_drives_and_more_buffer_never_more(
        drive in any_drive(), rate in 1e8f64..5e10, more in 1.0f64..3.0, buffer in 0.0f64..1e11, larger in 1.0f64..3.0,
    ) {
        let at = |rate, buffer| needed(&drive, rate, buffer).unwrap().drives;
        prop_assert!(at(rate * more, buffer) >= at(rate, buffer));
        prop_assert!(at(rate, buffer * larger) <= at(rate, buffer));
    }

    #[test]
    fn the_count_keeps_up_in_every_window_and_one_less_does_not(
        drive in any_drive(), rate in 1e8f64..5e10, buffer in 0.0f64..1e11,
    ) {
        let count = needed(&drive, rate, buffer).unwrap().drives;
        let short = |drives: u64| drive.windows.iter().any(|window| {
            (rate - drives as f64 * window.rate) * window.seconds > buffer * (1.0 + 1e-6) + 1.0
        });
        prop_assert!(!short(count));
        let least = |drives: u64| drive.windows.iter().all(|window| {
            (rate - drives as f64 * window.rate) * window.seconds <= buffer
        });
        prop_assert!(count == 1 || !least(count - 1));
    }

    #[test]
    fn exactly_the_margins_for_a_count_give_it(rate in 1e8f64..5e9, drives in 1u64..200, part in 0.01f64..0.99) {
        let (above, to) = margins_for(drives, rate, LINE);
        let margin = above + part * (to - above);
        let steady = Drive::steady("d", rate, None, Source::Given);
        prop_assert_eq!(needed(&steady, LINE * (1.0 + margin), 0.0).unwrap().drives, drives);
    }
}

#[test]
fn drives_last_as_long_as_they_are_rated_for() {
    let drive = |rated| Drive {
        rated_writes: rated,
        ..Drive::steady("d", 1.6e9, Some(1e12), Source::Modelled)
    };
    let rated = drive(Some((600e12, Source::Modelled)));
    let lasts = |requirements: &Requirements, drive: Drive| {
        let sheet = plan(requirements, &[alone(drive)]).unwrap();
        (value(&sheet, "endurance", "years", 0) * 365.25, sheet)
    };
    // 8 x 600 TB / 12.5 GB/s.
    let (days, sheet) = lasts(&requirements(), rated.clone());
    assert!((days - 4.44).abs() < 0.01, "{days}");
    assert!(sheet.answer.contains("last 4.44 days"), "{}", sheet.answer);
    assert_eq!(
        sheet.cell("endurance", "rated", 0).unwrap().source,
        Source::Modelled
    );
    assert_eq!(value(&sheet, "endurance", "overwrites", 0), 600.0);
    let (days, _) = lasts(&requirements(), drive(None));
    assert!(
        (days - 13.53).abs() < 0.01,
        "by drive writes per day: {days}"
    );
    let told = Requirements {
        dwpd: Told::or(Some(1.0), 1.0),
        ..requirements()
    };
    let (days, _) = lasts(&told, rated.clone());
    assert!((days - 13.53).abs() < 0.01, "as told: {days}");
    let told = Requirements {
        rated_writes: Some(1200e12),
        ..requirements()
    };
    let (days, _) = lasts(&told, rated.clone());
    assert!((days - 8.89).abs() < 0.01, "as told: {days}");
    // An array is worn out when its first member is.
    let (array, _) = Drive::striped(&[(rated.clone(), 4), (drive(Some((1e15, Source::Given))), 4)]);
    assert_eq!(array.rated_writes, Some((600e12, Source::Modelled)));
    let (array, _) = Drive::striped(&[(rated, 4), (drive(None), 4)]);
    assert_eq!(array.rated_writes, None);
}

#[test]
fn fewer_drives_with_a_larger_buffer_rest_on_how_long_dips_are() {
    let of = |name: &str| {
        let drive = crate::published::drives_named(name).unwrap().remove(0);
        plan(&requirements(), &[alone(drive)]).unwrap()
    };
    let sheet = of("1725b");
    assert!(
        sheet.answer.starts_with(
            "1725b: 10 drives, or 8 and 256 GiB of buffer (if a dip lasts 102.6 s, as is assumed)"
        ),
        "{}",
        sheet.answer
    );
    let said = sheet.caveats.iter().any(|of| of.contains("are assumed"));
    assert!(said, "{:?}", sheet.caveats);
    for name in ["970-evo-plus", "970-pro", "optane", "p5510"] {
        let sheet = of(name);
        assert!(!sheet.answer.contains("buffer"), "{}", sheet.answer);
    }
}

#[test]
fn fewer_drives_with_a_larger_buffer_follow_from_measured_windows() {
    let window = |seconds, rate| Window { seconds, rate };
    let drive = |source| Drive {
        windows: vec![window(100.0, 1.3e9), window(f64::INFINITY, 1.6e9)],
        ..Drive::steady("d", 1.6e9, Some(1e12), source)
    };
    // In 100 s 8 drives lack 210 GB, which are 196 GiB; the buffer of the plan makes it 10 without.
    let sheet = plan(&requirements(), &[alone(drive(Source::Measured))]).unwrap();
    assert!(
        sheet
            .answer
            .starts_with("d: 10 drives, or 8 and 256 GiB of buffer; 10 hold"),
        "{}",
        sheet.answer
    );
    let sheet = plan(&requirements(), &[alone(drive(Source::Modelled))]).unwrap();
    assert!(
        sheet.answer.contains("the model's, as is assumed"),
        "{}",
        sheet.answer
    );
    let large = Requirements {
        buffer: Told::or(Some(256.0 * 1024f64.powi(3)), 0.0),
        ..requirements()
    };
    let sheet = plan(&large, &[alone(drive(Source::Measured))]).unwrap();
    assert!(
        sheet.answer.starts_with("d: 8 drives, which hold"),
        "{}",
        sheet.answer
    );
}
