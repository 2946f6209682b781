//! Tests of URLs and names.

use std::time::Duration;

use super::*;

const TARGET: &str = "iqn.2026-01.org.example:disks";

fn parse(url: &str) -> Result<Options, String> {
    let url: VolumeUrl = url.parse().map_err(|error: UrlError| error.to_string())?;
    Options::from_url(&url).map_err(|error| error.to_string())
}

#[test]
fn defaults_and_every_parameter() {
    let target: Name = TARGET.parse().expect("a name");
    let options = parse(&format!("iscsi://10.0.0.1/{TARGET}/0")).unwrap();
    assert_eq!(options, Options::new("10.0.0.1", 3260, target, 0));
    let options = parse(&format!(
        "iscsi://[fd00::1]:3261/{TARGET}/300?user=alice&secret_file=/run/a&mutual_user=gw&mutual_secret_file=/run/b\
         &initiator=iqn.2026-01.org.example:me&sessions=4&depth=32&hdgst=1&ddgst=yes&immediate_data=no&initial_r2t\
         &first_burst=64k&max_burst=512k&outstanding_r2t=8&kato=15&io_timeout=1m"
    ))
    .unwrap();
    assert_eq!((options.host.as_str(), options.port), ("fd00::1", 3261));
    assert_eq!((options.lun, options.sessions), (300, Some(4)));
    assert_eq!(options.chap.user.as_deref(), Some("alice"));
    assert_eq!(options.chap.secret_file, Some("/run/a".into()));
    assert_eq!(options.chap.mutual_user.as_deref(), Some("gw"));
    assert_eq!(options.chap.mutual_secret_file, Some("/run/b".into()));
    let initiator = options.initiator.expect("a name");
    assert_eq!(initiator.as_str(), "iqn.2026-01.org.example:me");
    assert!(!options.immediate_data && options.initial_r2t);
    assert_eq!(
        (options.first_burst, options.max_burst),
        (64 << 10, 512 << 10)
    );
    assert_eq!(options.outstanding_r2t, 8);
    let common = &options.common;
    assert!(common.header_digest && common.data_digest);
    assert_eq!(common.depth, 32);
    assert_eq!(common.keep_alive, Duration::from_secs(15));
    assert_eq!(common.io_timeout, Duration::from_secs(60));
}

#[test]
fn a_first_burst_is_no_longer_than_a_burst() {
    let options = parse(&format!("iscsi://h/{TARGET}/0?max_burst=16k")).unwrap();
    assert_eq!(
        (options.first_burst, options.max_burst),
        (16 << 10, 16 << 10)
    );
}

#[test]
fn wrong_values_are_refused_by_name() {
    for (name, value) in [
        ("user", ""),
        ("sessions", "0"),
        ("sessions", "1025"),
        ("depth", "1025"),
        ("initiator", "me"),
        ("first_burst", "1"),
        ("max_burst", "16M"),
        ("outstanding_r2t", "0"),
        ("immediate_data", "perhaps"),
        ("secret_file", "/run/a"),
        ("mutual_user", "gw"),
        ("mutual_secret_file", "/run/b"),
    ] {
        let error = parse(&format!("iscsi://h/{TARGET}/0?{name}={value}")).unwrap_err();
        assert!(error.contains(name) && error.contains(value), "{error}");
    }
    let error = parse(&format!("iscsi://h/{TARGET}/0?sesions=1")).unwrap_err();
    assert!(
        error.contains("sesions") && error.contains("sessions"),
        "{error}"
    );
}

#[test]
fn wrong_places_are_refused() {
    for place in [
        "iscsi:",
        "iscsi://h",
        "iscsi://h/",
        "iscsi://h/iqn.2026-01.org.example:disks",
        "iscsi://h/iqn.2026-01.org.example:disks/",
        "iscsi://h/iqn.2026-01.org.example:disks/16384",
        "iscsi://h/iqn.2026-01.org.example:disks/x",
        "iscsi://h/disks/0",
    ] {
        assert!(parse(place).is_err(), "{place}");
    }
}

#[test]
fn a_machine_says_its_name() {
    let text = "## comment\n InitiatorName=iqn.1993-08.org.debian:01:AB \n";
    let name = initiator_name(Some(text), [0; 16]).expect("a name");
    assert_eq!(name.as_str(), "iqn.1993-08.org.debian:01:ab");
    for text in [None, Some(""), Some("InitiatorName=\n")] {
        let name = initiator_name(text, [0xff; 16]).expect("a name");
        assert_eq!(
            name.as_str(),
            "iqn.2026-01.invalid.weir:ffffffffffffffffffffffffffffffff"
        );
    }
    let error = initiator_name(Some("InitiatorName=me"), [0; 16]).unwrap_err();
    assert!(error.to_string().contains("'me'"), "{error}");
}
