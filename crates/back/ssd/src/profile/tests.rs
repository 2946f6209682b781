//! Profiles are read as they are written, and refused with the line and what is allowed.

use super::*;

const SMALL: &str = r#"
name = "small"
description = "as little as a profile can say"
capacity = { value = "64MiB", source = "assumed" }
interface_rate = { value = "3GB/s", source = "assumed" }
direct_rate = { value = "1GB/s", source = "assumed" }
read_rate = { value = "2GB/s", source = "assumed" }
write_latency = { value = "20us", source = "assumed" }
read_latency = { value = "80us", source = "assumed" }
idle_celsius = { value = 40, source = "assumed" }
rise_kelvin = { value = 20.5, source = "assumed" }
thermal_time = { value = "2min", source = "assumed" }
rated_writes = { value = "1TB", source = "published", note = "nobody" }
"#;

#[test]
fn every_built_in_profile_is_one() {
    assert_eq!(Profile::builtins().len(), 9);
    for name in Profile::builtins() {
        let profile = Profile::builtin(name).unwrap();
        assert_eq!(profile.name, *name);
        assert!(!profile.truth().throttles, "{name}");
        assert!(profile.parameters.len() > 15, "{name}");
        let smaller = profile.scaled(256 << 20).unwrap();
        assert_eq!(smaller.capacity_bytes, 256 << 20);
    }
    assert_eq!(Profile::builtin("970-evo-plus"), None);
}

#[test]
fn what_is_not_said_has_a_default() {
    let profile = Profile::parse(SMALL, "small.toml").unwrap();
    assert_eq!(profile.capacity_bytes, 64 << 20);
    assert_eq!(profile.media, Media::Flash);
    assert_eq!(profile.program_bytes_per_second, 1e9);
    assert_eq!(profile.cache, None);
    assert_eq!(profile.noise, 0.0);
    assert!(!profile.volatile_cache);
    assert_eq!(profile.heat.rise_kelvin, 20.5);
    let last = profile
        .parameters
        .iter()
        .find(|one| one.name == "rated_writes");
    let expected = Parameter {
        name: "rated_writes",
        value: "1TB".to_owned(),
        source: Source::Published,
        note: "nobody".to_owned(),
    };
    assert_eq!(last, Some(&expected));
    let truth = profile.truth();
    assert_eq!(truth.fill.len(), 1);
    assert_eq!(truth.fill[0].name, "direct");
    assert!((truth.fill[0].rate_bytes_per_s - 1e9).abs() < 1.0);
    assert_eq!(truth.overwrite[0].name, "overwrite");
}

/// The error for the small profile with one more line, or with one line in place of another.
fn refused(line: &str, instead_of: Option<&str>) -> ProfileError {
    let text = match instead_of {
        None => format!("{SMALL}{line}\n"),
        Some(before) => {
            assert!(SMALL.contains(before), "{before}");
            SMALL.replace(before, line)
        }
    };
    Profile::parse(&text, "small.toml").expect_err(line)
}

#[test]
fn what_is_wrong_is_named_with_its_line_and_what_is_allowed() {
    let assumed =
        |key: &str, value: &str| format!("{key} = {{ value = {value}, source = \"assumed\" }}");
    let cases = [
        (assumed("nose", "0.1"), "no key 'nose'", "it has name, "),
        (
            "noise = 0.1".to_owned(),
            "noise is a bare value",
            "source = ",
        ),
        (
            "noise = { value = 0.1 }".to_owned(),
            "where it is from",
            "assumed",
        ),
        (
            "noise = { value = 0.1, source = \"guessed\" }".to_owned(),
            "where it is from",
            "assumed",
        ),
        (
            "noise = { value = 0.1, source = \"fitted\" }".to_owned(),
            "by whom",
            "note",
        ),
        (
            "noise = { value = 0.1, source = \"assumed\", notes = \"\" }".to_owned(),
            "'notes'",
            "note",
        ),
        (
            "noise = { source = \"assumed\" }".to_owned(),
            "no value",
            "value",
        ),
        (assumed("noise", "0.7"), "noise is 0.7", "from 0 to 0.5"),
        (assumed("noise", "\"0.1\""), "noise is 0.1", "a number"),
        (assumed("spare", "-1"), "spare is -1", "from 0 to 4"),
        (
            assumed("superblock", "\"1KB\""),
            "superblock is 1KB",
            "16MiB",
        ),
        (
            assumed("erase_rate", "\"1GB\""),
            "erase_rate is 1GB",
            "1.6GB/s",
        ),
        (assumed("idle_delay", "\"1h\""), "idle_delay is 1h", "20us"),
        (
            assumed("bits_per_cell", "2.5"),
            "bits_per_cell is 2.5",
            "1 to 5",
        ),
        (
            assumed("media", "\"tape\""),
            "media is tape",
            "\"in-place\"",
        ),
        (
            assumed("volatile_cache", "\"yes\""),
            "volatile_cache",
            "true or false",
        ),
        (
            assumed("program_rate", "\"0.5GB/s\""),
            "program_rate is less",
            "at least",
        ),
        (
            assumed("cache_static", "\"1MB\""),
            "cache_rate is missing",
            "has it",
        ),
        (
            assumed("cache_rate", "\"1GB/s\""),
            "there is no cache",
            "leave it out",
        ),
        (
            assumed("background_every", "\"1MB\""),
            "background",
            "background_length",
        ),
        (assumed("stall_mean", "\"1ms\""), "stalls", "stall_every"),
        (assumed("throttle_celsius", "60"), "heat", "needed together"),
        (
            assumed("throttle_hysteresis_kelvin", "4"),
            "heat",
            "needed together",
        ),
        (
            assumed("throttle_rate", "\"1GB/s\""),
            "heat",
            "needed together",
        ),
        ("noise = ".to_owned(), "not TOML", "value"),
    ];
    for (line, what, allowed) in cases {
        let error = refused(&line, None);
        assert!(error.what.contains(what), "{line}: {error}");
        assert!(error.allowed.contains(allowed), "{line}: {error}");
        let expected = format!("small.toml, line {}: ", SMALL.lines().count() + 1);
        let at_the_end = error.what.contains("missing");
        assert!(
            at_the_end || error.to_string().starts_with(&expected),
            "{error}"
        );
    }
    // A text that is not ended reaches the end of the file, where no line begins.
    let error = refused("note = \"\"\"", None);
    assert!(error.what.contains("not TOML"), "{error}");
    assert_eq!(error.line, SMALL.lines().count() + 1, "{error}");
    let capacity = r#"capacity = { value = "64MiB", source = "assumed" }"#;
    for (line, what) in [
        ("", "capacity is missing"),
        (
            r#"capacity = { value = "1MiB", source = "assumed" }"#,
            "capacity is 1MiB",
        ),
        (
            r#"capacity = { value = "20MB", source = "assumed" }"#,
            "capacity is 20000000 bytes",
        ),
    ] {
        let error = refused(line, Some(capacity));
        assert!(error.what.contains(what), "{error}");
        assert!(line.is_empty() || error.line == 4, "{error}");
    }
}

#[test]
fn what_cannot_be_together_is_refused() {
    let cache = |text: &str| {
        let lines: Vec<_> = text
            .lines()
            .map(|line| {
                let (key, value) = line.split_once('=').unwrap();
                format!("{key}= {{ value = {value}, source = \"assumed\" }}")
            })
            .collect();
        refused(&lines.join("\n"), None)
    };
    let rest = "cache_rate = \"2GB/s\"\ncache_when_full = \"direct\"";
    let error = cache(&format!("cache_dynamic = \"8MB\"\n{rest}"));
    assert!(error.what.contains("cells of several bits"), "{error}");
    let error = cache(&format!(
        "bits_per_cell = 3\ncache_dynamic = \"30MB\"\n{rest}"
    ));
    assert!(error.what.contains("more than the whole drive"), "{error}");
    let often =
        "background_every = \"600kB\"\nbackground_length = \"1kB\"\nbackground_rate = \"1GB/s\"";
    let error = cache(often);
    assert!(error.what.contains("too often"), "{error}");
    let error = cache("stall_every = \"10us\"\nstall_mean = \"1us\"");
    assert!(error.allowed.contains("at least 1ms"), "{error}");
    let warm = "throttle_celsius = 50\nthrottle_hysteresis_kelvin = 10\nthrottle_rate = \"1GB/s\"";
    let error = cache(warm);
    assert!(error.allowed.contains("can cool"), "{error}");
    let error = cache(&format!("cache_static = \"40MB\"\n{rest}"));
    assert!(error.what.contains("half of the drive"), "{error}");
    let error = cache(&format!(
        "media = \"in-place\"\ncache_static = \"8MB\"\n{rest}"
    ));
    assert!(error.what.contains("written in place"), "{error}");
    for ignored in [
        "spare = 0.1",
        "superblock = \"1MiB\"",
        "bits_per_cell = 2",
        "program_rate = \"2GB/s\"",
        "idle_delay = \"2s\"",
    ] {
        let error = cache(&format!("media = \"in-place\"\n{ignored}"));
        assert!(error.what.contains("written in place"), "{error}");
        let key = ignored.split(' ').next().unwrap();
        assert!(error.what.starts_with(key), "{error}");
    }
}

#[test]
fn a_drive_of_another_size_is_the_same_in_proportion() {
    let profile = Profile::builtin("970-evo-plus-1tb").unwrap();
    let half = profile.scaled(profile.capacity_bytes / 2).unwrap();
    let (cache, whole) = (half.cache.unwrap(), profile.cache.unwrap());
    assert!(cache.dynamic_bytes.abs_diff(whole.dynamic_bytes / 2) < 1_000_000);
    assert_eq!(cache.bytes_per_second, whole.bytes_per_second);
    assert!(
        half.rated_write_bytes
            .abs_diff(profile.rated_write_bytes / 2)
            < 1_000_000_000
    );
    for bytes in [0, 4096, (16 << 20) + 1, (1 << 50) + 4096] {
        assert_eq!(profile.scaled(bytes), Err(SizeError { bytes }));
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(256))]

    /// Whatever a file holds, it is a profile that can be modelled, or refused with a line of it.
    #[test]
    fn a_damaged_profile_is_read_or_refused(
        which in 0..BUILTIN_TEXTS.len(),
        at in 0.0..1.0f64,
        removed in 0..40usize,
        added in "[ -~\\n]{0,12}",
    ) {
        let text = BUILTIN_TEXTS[which];
        let mut damaged: Vec<u8> = text.bytes().collect();
        let at = (at * text.len() as f64) as usize;
        damaged.splice(at..(at + removed).min(text.len()), added.bytes());
        let damaged = String::from_utf8(damaged).unwrap();
        match Profile::parse(&damaged, "damaged.toml") {
            Ok(profile) => {
                let truth = profile.truth();
                proptest::prop_assert!(truth.fill[0].begins_at_bytes == 0);
                let small = profile.scaled(CAPACITY_BYTES_MIN).unwrap();
                let mut model = crate::Model::new(&small, 1);
                model.write(0, 0, CAPACITY_BYTES_MIN);
            }
            Err(error) => {
                let lines = damaged.lines().count().max(1);
                proptest::prop_assert!((1..=lines).contains(&error.line), "{error}");
            }
        }
    }
}
