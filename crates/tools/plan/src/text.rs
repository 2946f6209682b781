//! A plan as a person reads it at a terminal.

use std::fmt::Write as _;

use crate::sheet::{Cell, Sheet};

/// Columns that fit beside each other; more stand below each other.
const COLUMNS_MAX: usize = 7;

fn figure(cell: &Cell) -> String {
    format!("{} ({})", cell.text, cell.source.name())
}

/// The whole plan, with a newline at its end.
#[must_use]
pub fn text(sheet: &Sheet) -> String {
    text_without(sheet, &[])
}

/// The plan without sections of these names, and with the option that shows them.
#[must_use]
pub fn text_without(sheet: &Sheet, inner: &[&str]) -> String {
    let mut text = String::new();
    let mut line = |of: &str| {
        text.push_str(of);
        text.push('\n');
    };
    line(&sheet.title);
    if !sheet.answer.is_empty() {
        line(&sheet.answer);
    }
    let is_inner = |name: &str| inner.contains(&name);
    let (hidden, shown): (Vec<_>, Vec<_>) =
        (sheet.sections.iter()).partition(|of| is_inner(&of.name));
    for section in shown {
        line("");
        line(&section.title);
        if !section.words.is_empty() {
            line(&format!("  {}", section.words));
        }
        let all: Vec<usize> = (0..section.columns.len()).collect();
        for columns in all.chunks(COLUMNS_MAX) {
            let mut rows = Vec::new();
            if section.columns.iter().any(|column| !column.is_empty()) {
                let heads = columns.iter().map(|&at| section.columns[at].clone());
                rows.push(std::iter::once(String::new()).chain(heads).collect());
            }
            for row in &section.rows {
                let cells = columns
                    .iter()
                    .map(|&at| row.cells.get(at).map_or(String::new(), figure));
                rows.push(
                    std::iter::once(row.label.clone())
                        .chain(cells)
                        .collect::<Vec<_>>(),
                );
            }
            for of in table(&rows) {
                line(&format!("  {of}"));
            }
        }
        for row in section.rows.iter().filter(|row| !row.how.is_empty()) {
            line(&format!("  {}: {}", row.label, row.how));
        }
    }
    if !hidden.is_empty() {
        line("");
        line("--explain shows the model, what was fitted, and what binds.");
    }
    if !sheet.caveats.is_empty() {
        line("");
        line("What to know");
        for caveat in &sheet.caveats {
            line(&format!("  {caveat}"));
        }
    }
    text
}

/// Aligned to the left.
fn table(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    rows.iter()
        .map(|row| {
            let mut text = String::new();
            for (cell, &width) in row.iter().zip(&widths) {
                let _ = write!(text, "{cell:<width$}  ");
            }
            text.truncate(text.trim_end().len());
            text
        })
        .collect()
}
