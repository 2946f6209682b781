//! Text from elsewhere, as it may be printed.

/// Letters of a text from elsewhere that are kept.
const TEXT_MAX: usize = 2000;

/// Text from elsewhere: short, in one line, and without what a terminal might obey or show in another order.
pub(crate) fn plain(text: &str) -> String {
    let letter = |letter: char| match letter {
        '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => ' ',
        letter if letter.is_control() => ' ',
        letter => letter,
    };
    text.chars().map(letter).take(TEXT_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_from_elsewhere_are_plain() {
        assert_eq!(plain("a\u{1b}[31mb\r\n\u{9b}c\u{202e}d"), "a [31mb   c d");
        assert_eq!(plain(&"x".repeat(5000)).len(), TEXT_MAX);
    }
}
