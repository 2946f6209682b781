//! Tests of names: those of RFC 7143's examples and of hosts, and what is no name.

use super::*;
use proptest::prelude::*;

#[test]
fn names_of_every_format_are_taken() {
    for (text, format) in [
        ("iqn.2001-04.com.example", NameFormat::Iqn),
        (
            "iqn.2001-04.com.example:storage.disk2.sys1.xyz",
            NameFormat::Iqn,
        ),
        ("iqn.1993-08.org.debian:01:5e3ddc3e9b", NameFormat::Iqn),
        ("iqn.1998-01.com.vmware:esx_01-4ab7", NameFormat::Iqn),
        ("iqn.2001-04.com.example:", NameFormat::Iqn),
        ("eui.02004567a425678d", NameFormat::Eui),
        ("naa.52004567ba64678d", NameFormat::Naa),
        ("naa.62004567ba64678d0123456789abcdef", NameFormat::Naa),
    ] {
        let name: Name = text
            .parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!((name.as_str(), name.format()), (text, format));
        assert_eq!(name.to_string(), text);
    }
}

#[test]
fn names_are_compared_in_lower_case() {
    let name: Name = "IQN.1991-05.com.Microsoft:WIN-Host"
        .parse()
        .expect("a name");
    assert_eq!(name.as_str(), "iqn.1991-05.com.microsoft:win-host");
    let eui: Name = "EUI.02004567A425678D".parse().expect("a name");
    assert_eq!(eui, "eui.02004567a425678d".parse().expect("a name"));
}

#[test]
fn other_texts_are_told_what_they_lack() {
    let error = |text: &str| text.parse::<Name>().expect_err(text);
    for text in ["", "iqn", "disk1", "nqn.2014-08.org.nvmexpress:x", "."] {
        assert_eq!(error(text), NameError::UnknownFormat, "{text}");
    }
    for text in [
        "iqn.",
        "iqn.2001",
        "iqn.2001-04",
        "iqn.2001-13.com",
        "iqn.2001-00.com",
        "iqn.01-04.com",
        "iqn.2001-4.com",
        "iqn.200a-04.com",
        "iqn.com.example",
    ] {
        assert_eq!(error(text), NameError::Date, "{text}");
    }
    for text in ["iqn.2001-04.", "iqn.2001-04.:disk", "iqn.2001-04..com"] {
        assert_eq!(error(text), NameError::Authority, "{text}");
    }
    for text in ["eui.", "eui.02004567a425678", "eui.02004567a425678g"] {
        assert_eq!(error(text), NameError::Eui, "{text}");
    }
    assert_eq!(error("naa.52004567ba64678"), NameError::Naa);
    let character = ' ';
    assert_eq!(
        error("iqn.2001-04.com.example:a b"),
        NameError::Character { character }
    );
    let character = 'ä';
    assert_eq!(
        error("iqn.2001-04.com.exämple"),
        NameError::Character { character }
    );
    let long = format!("iqn.2001-04.com.example:{}", "x".repeat(200));
    assert_eq!(error(&long), NameError::TooLong { length: 224 });
    assert!(long[1..].parse::<Name>().is_err());
    assert!(long[..223].parse::<Name>().is_ok());
}

proptest! {
    #[test]
    fn any_text_is_judged(text: String) {
        if let Ok(name) = text.parse::<Name>() {
            prop_assert_eq!(name.as_str(), text.to_ascii_lowercase());
            prop_assert_eq!(name.as_str().parse(), Ok(name.clone()));
        }
    }
}
