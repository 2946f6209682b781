//! Removes secrets from what is stored: command lines and volume URLs.
//!
//! It goes by names: what a parameter or option called `secret`, `password`, `token`, `psk` or the like stands for is replaced, also in a
//! URL that is escaped inside another one. A secret in another place (a file name, an NQN) is not recognised.

/// What stands in place of a secret.
pub const REPLACEMENT: &str = "***";

/// What the name of a secret contains.
const NAMES: [&str; 5] = ["secret", "password", "passphrase", "token", "psk"];

/// A command line without its secrets.
#[must_use]
pub fn without(arguments: &[String]) -> Vec<String> {
    let mut result = Vec::with_capacity(arguments.len());
    let mut value_is_secret = false;
    for argument in arguments {
        if value_is_secret {
            result.push(REPLACEMENT.to_owned());
            value_is_secret = false;
        } else {
            result.push(without_in(argument));
            value_is_secret =
                argument.starts_with("--") && !argument.contains('=') && names_secret(argument);
        }
    }
    result
}

/// A URL, or one argument, without its secrets.
#[must_use]
pub fn without_in(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(assignment) = next_assignment(rest) {
        result.push_str(&rest[..assignment.value]);
        let value = &rest[assignment.value..];
        let end = value.find(assignment.ends).unwrap_or(value.len());
        if assignment.secret && end > 0 {
            result.push_str(REPLACEMENT);
            rest = &value[end..];
        } else {
            rest = value;
        }
    }
    result.push_str(rest);
    without_password(&result)
}

/// A sentence, such as an error, in which URLs may stand, without their secrets. What ends with one, a colon perhaps, goes with it.
#[must_use]
pub fn without_in_text(text: &str) -> String {
    let words = text.split_inclusive(char::is_whitespace);
    words
        .map(|word| {
            let bare = word.trim_end();
            without_in(bare) + &word[bare.len()..]
        })
        .collect()
}

/// `name=` in a text, at any depth of escaping.
struct Assignment {
    /// Where the value begins.
    value: usize,
    /// What ends the value.
    ends: &'static str,
    secret: bool,
}

fn next_assignment(text: &str) -> Option<Assignment> {
    /// How `=` and `&` are written in a URL, in one that is escaped in another, and once more.
    const LEVELS: [[&str; 2]; 4] = [
        ["=", "&"],
        ["%3D", "%26"],
        ["%253D", "%2526"],
        ["%25253D", "%252526"],
    ];
    let found = LEVELS.iter().filter_map(|&[equals, ends]| {
        let at = find_escape(text, equals)?;
        Some((at, at + equals.len(), ends))
    });
    let (at, value, ends) = found.min_by_key(|found| found.0)?;
    let before = &text[..at];
    let start = before.rfind(['?', '&', '%']).map_or(0, |at| at + 1);
    Some(Assignment {
        value,
        ends,
        secret: names_secret(&before[start..]),
    })
}

/// Escapes may be written in small letters too.
fn find_escape(text: &str, escape: &str) -> Option<usize> {
    text.as_bytes()
        .windows(escape.len())
        .position(|window| window.eq_ignore_ascii_case(escape.as_bytes()))
}

fn names_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    NAMES.iter().any(|secret| name.contains(secret))
}

/// `scheme://user:password@host` without the password.
fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let authority = rest.split(['/', '?']).next().unwrap_or(rest);
    let Some((user, _)) = authority.rsplit_once('@') else {
        return text.to_owned();
    };
    let Some((name, _)) = user.split_once(':') else {
        return text.to_owned();
    };
    format!("{scheme}://{name}:{REPLACEMENT}{}", &rest[user.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_replaced_and_nothing_else() {
        for (text, expected) in [
            ("file:/data/token.img", "file:/data/token.img"),
            ("mem:?size=1G", "mem:?size=1G"),
            (
                "nvme+tcp://h/nqn.a?nsid=1&dhchap_secret=DHHC-1:00:abc=:&queues=2",
                "nvme+tcp://h/nqn.a?nsid=1&dhchap_secret=***&queues=2",
            ),
            ("nvme+tcp://h/n?tls_psk=x", "nvme+tcp://h/n?tls_psk=***"),
            (
                "stripe:?member=nvme%2Btcp%3A%2F%2Fh%2Fn%3Fsecret%3Dabc%26nsid%3d1&chunk=64k",
                "stripe:?member=nvme%2Btcp%3A%2F%2Fh%2Fn%3Fsecret%3D***%26nsid%3d1&chunk=64k",
            ),
            (
                "stripe:?member=stripe%3A%3Fmember%3Dx%253Fpassword%253Dabc%2526y%253D1",
                "stripe:?member=stripe%3A%3Fmember%3Dx%253Fpassword%253D***%2526y%253D1",
            ),
            ("iscsi://user:word@host/iqn", "iscsi://user:***@host/iqn"),
            ("iscsi://user@host/iqn", "iscsi://user@host/iqn"),
            ("--token=abc", "--token=***"),
            ("", ""),
        ] {
            assert_eq!(without_in(text), expected);
            assert_eq!(without_in(expected), expected, "a second time");
        }
    }

    #[test]
    fn secrets_in_a_sentence_are_replaced_and_the_rest_is_kept() {
        for (text, expected) in [
            ("lba 3, 8 blocks", "lba 3, 8 blocks"),
            ("nothing  here\n", "nothing  here\n"),
            (
                "cannot reach nvme+tcp://h/n?secret=abc: refused;\ttwice, iscsi://u:word@h/i too\n",
                "cannot reach nvme+tcp://h/n?secret=*** refused;\ttwice, iscsi://u:***@h/i too\n",
            ),
            (
                "cannot open a?psk=x&y=1: the token is 3",
                "cannot open a?psk=***&y=1: the token is 3",
            ),
            (
                "member 1 of x://u:w@h/n?a=1 is\n  as b?secret=z",
                "member 1 of x://u:***@h/n?a=1 is\n  as b?secret=***",
            ),
        ] {
            assert_eq!(without_in_text(text), expected);
        }
    }

    #[test]
    fn the_value_after_a_secret_option_is_replaced() {
        let arguments = ["weir", "bench", "--token", "abc", "mem:?size=1G"].map(str::to_owned);
        assert_eq!(
            without(&arguments),
            ["weir", "bench", "--token", "***", "mem:?size=1G"]
        );
    }
}
