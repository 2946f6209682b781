//! Plain text for people: aligned columns, and names with values.

use std::fmt::Write;

/// Columns under a heading, two spaces apart; the last one is as wide as it is.
pub(crate) fn table<const N: usize>(heading: [&str; N], rows: &[[String; N]]) -> String {
    let width = |text: &str| text.chars().count();
    let mut widths = heading.map(width);
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            widths[column] = widths[column].max(width(cell));
        }
    }
    let mut text = String::new();
    let mut line = |cells: [&str; N]| {
        let mut line = String::new();
        for (column, cell) in cells.iter().enumerate() {
            let pad = widths[column] - width(cell) + 2;
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', pad));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    };
    line(heading);
    for row in rows {
        line(std::array::from_fn(|column| row[column].as_str()));
    }
    text
}

/// Names and values, one a line, the values aligned; a value of several lines stays aligned.
pub(crate) fn values(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 2;
    let mut text = String::new();
    for (name, value) in pairs {
        let mut lines = value.lines();
        let first = lines.next().unwrap_or("-");
        writeln!(text, "{name:width$}{first}").expect("writing to a string");
        for line in lines {
            writeln!(text, "{:width$}{line}", "").expect("writing to a string");
        }
    }
    text
}

/// "yes" or "no".
pub(crate) fn yes(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}

/// The text of a value, or a dash where there is none.
pub(crate) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Values one below the other, or a dash where there is none.
pub(crate) fn lines<T: ToString>(values: impl IntoIterator<Item = T>) -> String {
    let values: Vec<_> = values.into_iter().map(|value| value.to_string()).collect();
    if values.is_empty() {
        "-".to_owned()
    } else {
        values.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_by_characters() {
        let rows = [
            ["ä".to_owned(), "1".to_owned()],
            ["long".to_owned(), "22".to_owned()],
        ];
        assert_eq!(table(["A", "B"], &rows), "A     B\nä     1\nlong  22\n");
        assert_eq!(table(["A", "B"], &[]), "A  B\n");
    }

    #[test]
    fn values_are_aligned() {
        let pairs = [("a", "1\n2".to_owned()), ("long", String::new())];
        assert_eq!(values(&pairs), "a     1\n      2\nlong  -\n");
    }
}
