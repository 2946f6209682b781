//! What differs between two plans.

use crate::sheet::{Cell, Row, Section, Sheet, Source};

/// A relative difference below this is rounding.
const SAME: f64 = 1e-9;

/// The figures that differ, side by side with the difference, as a plan of its own. Columns are matched by their number, rows and sections by their name.
#[must_use]
pub fn diff(one: &Sheet, other: &Sheet, names: [&str; 2]) -> Sheet {
    let mut sheet = Sheet::new("diff", format!("{} against {}", names[1], names[0]));
    let mut same = 0u64;
    let mut differ = 0u64;
    for section in &one.sections {
        let Some(beside) = other.sections.iter().find(|of| of.name == section.name) else {
            sheet
                .caveats
                .push(format!("only {} has '{}'", names[0], section.title));
            continue;
        };
        let mut rows = Vec::new();
        for row in &section.rows {
            let Some(with) = beside.rows.iter().find(|of| of.name == row.name) else {
                sheet
                    .caveats
                    .push(format!("only {} has '{}'", names[0], row.label));
                continue;
            };
            for column in 0..row.cells.len().max(with.cells.len()) {
                match (row.cells.get(column), with.cells.get(column)) {
                    (Some(cell), Some(beside)) if is_same(cell, beside) => same += 1,
                    (None, None) => (),
                    (cell, beside) => {
                        differ += 1;
                        rows.push(differing(section, row, column, cell, beside));
                    }
                }
            }
        }
        let more = beside
            .rows
            .iter()
            .filter(|of| section.rows.iter().all(|row| row.name != of.name));
        sheet
            .caveats
            .extend(more.map(|row| format!("only {} has '{}'", names[1], row.label)));
        if !rows.is_empty() {
            sheet.sections.push(Section {
                name: section.name.clone(),
                title: section.title.clone(),
                words: String::new(),
                columns: vec![
                    names[0].to_owned(),
                    names[1].to_owned(),
                    "difference".to_owned(),
                ],
                rows,
            });
        }
    }
    let more = other
        .sections
        .iter()
        .filter(|of| one.sections.iter().all(|has| has.name != of.name));
    sheet
        .caveats
        .extend(more.map(|section| format!("only {} has '{}'", names[1], section.title)));
    if one.kind != other.kind {
        sheet.caveats.insert(
            0,
            format!(
                "one is a plan of kind {}, the other of kind {}",
                one.kind, other.kind
            ),
        );
    }
    sheet.answer = format!("{differ} figures differ, {same} are the same.");
    sheet
}

/// The same figure is another where it comes from elsewhere: what a model did is no measurement.
fn is_same(one: &Cell, other: &Cell) -> bool {
    one.source == other.source && is_equal(one, other)
}

fn is_equal(one: &Cell, other: &Cell) -> bool {
    match (one.value, other.value) {
        (Some(one), Some(other)) => (one - other).abs() <= SAME * one.abs().max(other.abs()),
        _ => one.value == other.value && one.text == other.text,
    }
}

fn differing(
    section: &Section,
    row: &Row,
    column: usize,
    one: Option<&Cell>,
    other: Option<&Cell>,
) -> Row {
    let absent = || Cell::word("-", Source::Derived);
    let is_elsewhere = one
        .zip(other)
        .is_some_and(|(one, other)| is_equal(one, other));
    let difference = match (one.and_then(|of| of.value), other.and_then(|of| of.value)) {
        _ if is_elsewhere => Cell::word("none, but from elsewhere", Source::Derived),
        (Some(one), Some(other)) if one != 0.0 => {
            let part = other / one - 1.0;
            Cell::new(part, format!("{:+.1}%", part * 100.0), Source::Derived)
        }
        _ => absent(),
    };
    let label = match section.columns.get(column).map(String::as_str) {
        None | Some("") => row.label.clone(),
        Some(name) => format!("{}, {name}", row.label),
    };
    let cells = vec![
        one.cloned().unwrap_or_else(absent),
        other.cloned().unwrap_or_else(absent),
        difference,
    ];
    Row::new(
        format!("{}-{column}", row.name),
        label,
        row.unit.clone(),
        cells,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet(value: f64, more: bool) -> Sheet {
        let mut sheet = Sheet::new("record", "a plan");
        let row = |name: &str, value| {
            Row::new(
                name,
                name,
                "",
                vec![Cell::new(value, value.to_string(), Source::Given)],
            )
        };
        let mut rows = vec![row("same", 1.0), row("other", value)];
        if more {
            rows.push(row("more", 3.0));
        }
        sheet.sections.push(Section {
            name: "s".to_owned(),
            title: "S".to_owned(),
            words: String::new(),
            columns: vec![String::new()],
            rows,
        });
        sheet
    }

    #[test]
    fn what_differs_is_shown_with_its_difference_and_what_is_the_same_is_counted() {
        let found = diff(&sheet(2.0, false), &sheet(3.0, true), ["a", "b"]);
        assert_eq!(found.answer, "1 figures differ, 1 are the same.");
        assert_eq!(found.sections[0].rows.len(), 1);
        assert_eq!(found.cell("s", "other-0", 2).unwrap().text, "+50.0%");
        assert_eq!(found.caveats, ["only b has 'more'"]);
        let none = diff(&sheet(2.0, true), &sheet(2.0, true), ["a", "b"]);
        assert!(none.sections.is_empty() && none.caveats.is_empty());
        let mut modelled = sheet(2.0, true);
        modelled.sections[0].rows[1].cells[0].source = Source::Modelled;
        let found = diff(&sheet(2.0, true), &modelled, ["a", "b"]);
        assert_eq!(found.answer, "1 figures differ, 2 are the same.");
        let cells = &found.sections[0].rows[0].cells;
        assert_eq!(
            cells.iter().map(|of| of.source.name()).collect::<Vec<_>>(),
            ["given", "modelled", "derived"]
        );
        assert_eq!(cells[2].text, "none, but from elsewhere");
    }

    #[test]
    fn a_plan_is_stored_and_read_again() {
        let stored = serde_json::to_string(&sheet(2.0, true)).unwrap();
        assert_eq!(Sheet::from_json(&stored).unwrap(), sheet(2.0, true));
        assert!(Sheet::from_json("{}").is_err());
        let later = stored.replace("weir-plan/1", "weir-plan/2");
        assert!(
            Sheet::from_json(&later)
                .unwrap_err()
                .to_string()
                .contains("weir-plan/2")
        );
    }
}
