//! URLs read back as what was written, and every wrong one is refused with the part that is wrong.

use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> VolumeUrl {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn the_documented_forms_are_read() {
    let url = parse("file:/path/to/img?size=10G&block_size=4096&direct=auto");
    assert_eq!((url.scheme(), url.path()), ("file", "/path/to/img"));
    let parameters = url.parameters();
    assert_eq!(parameters.size("size"), Ok(Some(10 << 30)));
    assert_eq!(parameters.block_size(), Ok(Some(BlockSize::B4096)));
    assert_eq!(parameters.choice("direct", &[("auto", 1)]), Ok(Some(1)));
    assert_eq!(parameters.finish(), Ok(()));

    let url = parse("nvme+tcp://[fe80::1%25eth0]:4420/nqn.2014-08.org.nvmexpress:uuid:1?nsid=1");
    let authority = url.authority().unwrap();
    assert_eq!(
        (authority.host.as_str(), authority.port),
        ("fe80::1%eth0", Some(4420))
    );
    assert_eq!(url.path(), "/nqn.2014-08.org.nvmexpress:uuid:1");
    assert_eq!(url.parameters().number("nsid", 1..=10), Ok(Some(1)));

    assert_eq!(parse("file:///a b").path(), "/a b");
    assert_eq!(parse("file:relative").path(), "relative");
    assert_eq!(parse("MEM:?size=1").scheme(), "mem");
}

#[test]
fn nested_urls_are_values_like_any_other() {
    let member = VolumeUrl::new("file", "/srv/a?b&c=100%#").with("size", "1G");
    let stripe = VolumeUrl::new("stripe", "")
        .with("chunk", "128k")
        .with("member", &member)
        .with("member", "mem:?size=64M&block_size=512");
    let text = stripe.to_string();
    assert_eq!(text.matches('?').count(), 1, "{text}");
    let read = parse(&text);
    assert_eq!(read, stripe);
    let members = read.parameters().all("member");
    assert_eq!(parse(members[0]), member);
    assert_eq!(
        parse(members[1]).parameters().size("size"),
        Ok(Some(64 << 20))
    );
}

#[test]
fn what_is_wrong_is_named() {
    for (text, expected) in [
        ("/dev/sda", "scheme"),
        ("1file:/a", "scheme"),
        ("file:/a#b", "%23"),
        ("file:/100%", "%25"),
        ("file:/a%f", "%25"),
        ("file:/a?size=%zz", "%25"),
        ("file:/%ff", "UTF-8"),
        ("nvme+tcp://user@host/nqn", "user"),
        ("nvme+tcp://::1/nqn", "colon"),
        ("nvme+tcp://[::1/nqn", "bracket"),
        ("nvme+tcp://[::1]x/nqn", "bracket"),
        ("nvme+tcp://[host]/nqn", "IPv6"),
        ("nvme+tcp://:4420/nqn", "host"),
        ("nvme+tcp://host:65536/nqn", "65535"),
    ] {
        let error = text.parse::<VolumeUrl>().unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn parameters_are_checked_and_named() {
    let url = parse("file:/a?sise=1G&block_size=513&queues=x&direct=maybe&direct=1&flag&zzz=1");
    let message = |error: UrlError| error.to_string();
    let parameters = url.parameters();
    assert_eq!(parameters.size("size"), Ok(None));
    assert_eq!(parameters.flag("flag"), Ok(true));
    assert_eq!(parameters.flag("create"), Ok(false));
    let error = message(parameters.block_size().unwrap_err());
    assert_eq!(error, "block_size=513 is not allowed: 512 or 4096");
    let error = message(parameters.number("queues", 1..=64).unwrap_err());
    assert_eq!(
        error,
        "queues=x is not allowed: a whole number from 1 to 64"
    );
    let error = message(parameters.choice("direct", &[("auto", 1)]).unwrap_err());
    assert_eq!(error, "direct= is given 2 times; it may be given once");
    let error = message(parameters.finish().unwrap_err());
    assert!(
        error.contains("'sise'") && error.contains("size="),
        "{error}"
    );

    let url = parse("mem:?zzz=1");
    let parameters = url.parameters();
    let size = parameters.size("size").unwrap();
    let error = message(parameters.required("size", size, "as in 64M").unwrap_err());
    assert_eq!(error, "mem: volumes need size=, as in 64M");
    let error = message(parameters.finish().unwrap_err());
    assert!(error.contains("they have size"), "{error}");
    let error = message(parse("mem://host/a%3Fb").expect_no_place().unwrap_err());
    assert!(error.contains("'//host/a%3Fb'"), "{error}");
}

fn authority() -> impl Strategy<Value = Option<Authority>> {
    let host = prop_oneof![
        "[a-z][a-z0-9.-]{0,20}",
        "[0-9a-f]{1,4}::[0-9a-f]{1,4}(%[a-z]{3})?"
    ];
    let authority = (host, any::<Option<u16>>()).prop_map(|(host, port)| Authority { host, port });
    prop::option::of(authority)
}

fn url() -> impl Strategy<Value = VolumeUrl> {
    let parameters = prop::collection::vec((".{1,8}", ".{0,40}"), 0..5);
    ("[a-z][a-z0-9+.-]{0,8}", authority(), ".{0,40}", parameters).prop_map(
        |(scheme, authority, path, parameters)| {
            let mut url = VolumeUrl::new(&scheme, &path);
            if let Some(authority) = authority {
                url = url.with_authority(&authority.host, authority.port);
            }
            url.parameters = parameters;
            url
        },
    )
}

proptest! {
    /// Whatever the parts are, the URL reads back as the same, also when it is nested twice.
    #[test]
    fn a_url_reads_back_as_itself(url in url()) {
        prop_assert_eq!(&parse(&url.to_string()), &url);
        let outer = VolumeUrl::new("stripe", "").with("member", &url);
        let outermost = VolumeUrl::new("stripe", "").with("member", &outer);
        let read = parse(&outermost.to_string());
        prop_assert_eq!(read.nested().collect::<Vec<_>>(), vec![outer]);
        let inner = parse(read.parameters().all("member")[0]);
        prop_assert_eq!(parse(inner.parameters().all("member")[0]), url);
    }

    /// Nothing makes the parser panic, and what it accepts it can write and read again.
    #[test]
    fn any_text_is_read_or_refused(text in "[a-z:/?&=%#\\[\\]@0-9A-F]{0,40}") {
        if let Ok(url) = text.parse::<VolumeUrl>() {
            prop_assert_eq!(parse(&url.to_string()), url);
        }
    }
}

/// The page that users read says the truth: its examples parse, and the nested one means what it says.
#[test]
fn the_examples_of_the_documentation_are_urls() {
    let page = include_str!("../../../../../docs/volumes.md");
    let nested = page
        .lines()
        .find(|line| line.trim_start().starts_with("stripe:?member=file:"))
        .expect("the page has a nested example");
    let stripe = parse(nested.trim());
    let members = stripe.parameters().all("member");
    let first = parse(members[0]);
    assert_eq!((members.len(), first.path()), (2, "/srv/a"));
    assert_eq!(first.parameters().size("size"), Ok(Some(10 << 30)));
    assert_eq!(first.parameters().text("direct"), Ok(Some("never")));
    let examples: Vec<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(code, _)| code)
        .filter(|code| code.contains(":?") || code.contains(":/"))
        .collect();
    assert_eq!(examples.len(), 8);
    examples
        .into_iter()
        .for_each(|example| drop(parse(example)));
}
