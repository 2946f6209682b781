//! Places in texts that people wrote, as they count them.

/// The line of the byte at `at`, counted from 1. The end of the text, and what is past it, is on the last line: a
/// line break at the end begins no line.
#[must_use]
pub fn line_of(text: &str, at: usize) -> usize {
    let before = &text.as_bytes()[..at.min(text.len())];
    let breaks = before.iter().filter(|&&byte| byte == b'\n').count();
    (breaks + 1).min(text.lines().count().max(1))
}

#[cfg(test)]
mod tests {
    use super::line_of;

    #[test]
    fn a_byte_is_on_a_line_that_the_text_has() {
        let text = "one\ntwo\n";
        let lines: Vec<usize> = (0..=text.len() + 1).map(|at| line_of(text, at)).collect();
        assert_eq!(lines, [1, 1, 1, 1, 2, 2, 2, 2, 2, 2]);
        assert_eq!(line_of("", 0), 1);
        assert_eq!(line_of("one\n\nthree", 5), 3);
    }
}
