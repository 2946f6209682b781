//! Texts for people without the secrets of the URLs in them.

use weir_lab::secret;

/// A text in which what URLs have for a secret is replaced. It goes word by word, for URLs have no blanks in them.
pub(crate) fn without_secrets(text: &str) -> String {
    let words = text.split_inclusive(char::is_whitespace);
    words
        .map(|word| {
            let end = word.trim_end().len();
            let (word, blank) = word.split_at(end);
            secret::without_in(word) + blank
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_secrets_are_replaced() {
        for (text, expected) in [
            ("nothing  here\n", "nothing  here\n"),
            (
                "cannot open a?psk=x&y=1: the token is 3",
                "cannot open a?psk=***&y=1: the token is 3",
            ),
            (
                "member 1 of x://u:w@h/n?a=1 is\n  as b?secret=z",
                "member 1 of x://u:***@h/n?a=1 is\n  as b?secret=***",
            ),
        ] {
            assert_eq!(without_secrets(text), expected);
        }
    }
}
