//! Tests of pairs, of their values' forms, and of text in several PDUs.

use super::*;
use proptest::prelude::*;

fn pairs(text: &[u8]) -> Result<Vec<(&str, &str)>, TextError> {
    Pairs::new(text)
        .map(|pair| pair.map(|pair| (pair.key, pair.value)))
        .collect()
}

#[test]
fn pairs_are_taken_apart() {
    let text = b"InitiatorName=iqn.2001-04.com.example\0SessionType=Discovery\0X-com.example=a=b\0iSCSIProtocolLevel=1\0SendTargets=\0";
    let expected = [
        ("InitiatorName", "iqn.2001-04.com.example"),
        ("SessionType", "Discovery"),
        ("X-com.example", "a=b"),
        ("iSCSIProtocolLevel", "1"),
        ("SendTargets", ""),
    ];
    assert_eq!(pairs(text).expect("pairs"), expected);
    assert_eq!(pairs(b"").expect("no pairs"), []);
    assert_eq!(
        pairs(b"A=1\0\0\0B=2\0\0").expect("pairs"),
        [("A", "1"), ("B", "2")]
    );
}

#[test]
fn text_that_is_no_list_of_pairs_is_an_error() {
    assert_eq!(pairs(b"A=1\0B=2"), Err(TextError::NotEnded));
    assert_eq!(pairs(b"A\0"), Err(TextError::NoValue("A".into())));
    assert_eq!(pairs(b"A=\xff\0"), Err(TextError::NotUtf8));
    for key in ["", "a", "1", "A b", "A/b", &"A".repeat(64)] {
        let text = format!("{key}=1\0");
        assert_eq!(
            pairs(text.as_bytes()),
            Err(TextError::Key(key.into())),
            "{key:?}"
        );
    }
    let text = |key: &str, length: usize| format!("{key}={}\0", "x".repeat(length)).into_bytes();
    assert!(pairs(&text(&"A".repeat(63), 255)).is_ok());
    let (key, length, maximum) = ("A".to_owned(), 256, 255);
    assert_eq!(
        pairs(&text("A", 256)),
        Err(TextError::ValueTooLong {
            key,
            length,
            maximum
        })
    );
    assert!(pairs(&text("CHAP_C", 8192)).is_ok());
    let (key, length, maximum) = ("CHAP_C".to_owned(), 8193, 8192);
    assert_eq!(
        pairs(&text("CHAP_C", 8193)),
        Err(TextError::ValueTooLong {
            key,
            length,
            maximum
        })
    );
}

#[test]
fn a_writer_ends_each_pair_and_lets_none_be_made_up() {
    let mut text = TextWriter::new();
    text.push("MaxConnections", 1);
    text.push("TargetAlias", "a=b");
    assert_eq!(text.bytes(), b"MaxConnections=1\0TargetAlias=a=b\0");
    text.push("TargetAlias", "a\0HeaderDigest=None");
    assert!(
        text.into_bytes()
            .ends_with(b"\0TargetAlias=a?HeaderDigest=None\0")
    );
}

#[test]
fn numbers_are_decimal_or_hexadecimal() {
    for (text, number) in [
        ("0", Some(0)),
        ("0262144", Some(262_144)),
        ("0x40000", Some(262_144)),
        ("0XfF", Some(255)),
        ("18446744073709551615", Some(u64::MAX)),
        ("18446744073709551616", None),
        ("", None),
        ("0x", None),
        ("-1", None),
        ("+1", None),
        ("0x+1", None),
        (" 1", None),
        ("ff", None),
    ] {
        assert_eq!(parse_number(text), number, "{text:?}");
    }
    assert_eq!(parse_range("512~0x400"), Some(512..=1024));
    assert_eq!(parse_range("2~1"), None);
    assert_eq!(parse_range("2"), None);
    assert_eq!(
        [
            parse_boolean("Yes"),
            parse_boolean("No"),
            parse_boolean("yes")
        ],
        [Some(true), Some(false), None]
    );
    assert_eq!(
        parse_list("CRC32C,None,,X").collect::<Vec<_>>(),
        ["CRC32C", "None", "X"]
    );
}

#[test]
fn binary_values_are_hexadecimal_or_base64() {
    assert_eq!(parse_binary("0x00fF10"), Some(vec![0, 0xff, 0x10]));
    assert_eq!(parse_binary("0Xabc"), Some(vec![0x0a, 0xbc]));
    assert_eq!(parse_binary("0bAP8Q"), Some(vec![0, 0xff, 0x10]));
    assert_eq!(parse_binary("0BAP8="), Some(vec![0, 0xff]));
    for text in ["", "0x", "0b", "0xgg", "0b*", "00ff", "0xä", "ä", "0bAP8"] {
        assert_eq!(parse_binary(text), None, "{text:?}");
    }
    assert_eq!(hexadecimal(&[0, 0xff, 0x10]), "0x00ff10");
    assert_eq!(base64_binary(&[0, 0xff, 0x10]), "0bAP8Q");
    assert_eq!(parse_binary(&hexadecimal(&[7; 1024])), Some(vec![7; 1024]));
    assert_eq!(parse_binary(&hexadecimal(&[7; 1025])), None);
}

#[test]
fn text_in_several_pdus_is_put_together_up_to_a_bound() {
    let mut buffer = TextBuffer::new(8);
    assert_eq!(buffer.add(b"A=1", true), Ok(None));
    assert!(buffer.is_inside_text());
    assert_eq!(buffer.add(b"2\0", false), Ok(Some(&b"A=12\0"[..])));
    assert!(!buffer.is_inside_text());
    // Another text begins anew.
    assert_eq!(buffer.add(b"B=345\0", true), Ok(None));
    assert_eq!(
        buffer.add(b"789", false),
        Err(TextError::TooLong { maximum: 8 })
    );
    assert_eq!(buffer.add(b"78", false), Ok(Some(&b"B=345\x0078"[..])));
    assert_eq!(buffer.add(b"", false), Ok(Some(&b""[..])));
}

#[test]
#[should_panic(expected = "the bound is too large")]
fn a_bound_has_a_bound() {
    TextBuffer::new(TextBuffer::MAXIMUM_MAX + 1);
}

#[test]
fn text_is_sent_in_pieces() {
    let mut text = OutgoingText::new();
    assert!(text.is_empty());
    text.add(b"12345");
    assert_eq!(text.take(3), b"123");
    text.add(b"67");
    assert_eq!((text.rest(), text.is_empty()), (4, false));
    assert_eq!(text.take(9), b"4567");
    assert!(text.is_empty());
    text.add(b"8");
    assert_eq!(text.take(9), b"8");
}

proptest! {
    #[test]
    fn any_bytes_are_judged(text in proptest::collection::vec(any::<u8>(), 0..300)) {
        let ended = text.last() == Some(&0) || text.is_empty();
        prop_assert!(ended || pairs(&text).is_err());
    }

    #[test]
    fn what_is_written_is_read(
        sent in proptest::collection::vec(("[A-Z][A-Za-z0-9.+@_-]{0,62}", "[^\0]{0,60}"), 0..8),
    ) {
        let mut writer = TextWriter::new();
        for (key, value) in &sent {
            writer.push(key, value);
        }
        let read = pairs(writer.bytes()).expect("well formed");
        let sent: Vec<_> = sent.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        prop_assert_eq!(read, sent);
    }

    #[test]
    fn binary_values_are_read_as_written(bytes in proptest::collection::vec(any::<u8>(), 1..1024)) {
        prop_assert_eq!(parse_binary(&hexadecimal(&bytes)), Some(bytes.clone()));
        prop_assert_eq!(parse_binary(&base64_binary(&bytes)), Some(bytes));
    }
}
