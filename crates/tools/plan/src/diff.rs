//! What differs between two plans.

use crate::sheet::{Cell, Row, Section, Sheet, Source};

/// A relative difference below this is rounding.
const SAME: f64 = 1e-9;

/// The figures that differ, side by side with the difference, as a plan of its own. Rows and sections are matched by their name; columns too in a section where both
/// plans have one of a name, and by their number otherwise.
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
        let columns = Columns::of(section, beside);
        let alone = columns.alone().into_iter();
        sheet.caveats.extend(
            alone.map(|(of, column)| {
                format!("only {} has {column} of '{}'", names[of], section.title)
            }),
        );
        let mut rows = Vec::new();
        for row in &section.rows {
            let Some(with) = beside.rows.iter().find(|of| of.name == row.name) else {
                sheet
                    .caveats
                    .push(format!("only {} has '{}'", names[0], row.label));
                continue;
            };
            for (at, (column, its)) in columns.pairs.iter().enumerate() {
                match (row.cells.get(*column), with.cells.get(*its)) {
                    (Some(cell), Some(beside)) if is_same(cell, beside) => same += 1,
                    (None, None) => (),
                    (cell, beside) => {
                        differ += 1;
                        rows.push(differing(row, at, &columns.title(at), cell, beside));
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

/// The columns of a section in both plans.
struct Columns {
    one: Vec<String>,
    other: Vec<String>,
    /// Those that belong together, by their numbers.
    pairs: Vec<(usize, usize)>,
}

impl Columns {
    fn of(one: &Section, other: &Section) -> Self {
        let (one, other) = (titles(one), titles(other));
        let is_shared = |name: &String| !name.is_empty() && other.contains(name);
        let pairs = if one.iter().any(is_shared) {
            // Of several of one name the first belongs to the first.
            let mut left: Vec<usize> = (0..other.len()).collect();
            let mut belongs = |name: &String| {
                let at = left.iter().position(|&of| &other[of] == name)?;
                Some(left.remove(at))
            };
            let pair = |(at, name)| Some((at, belongs(name)?));
            one.iter().enumerate().filter_map(pair).collect()
        } else {
            (0..one.len().min(other.len())).map(|at| (at, at)).collect()
        };
        Columns { one, other, pairs }
    }

    /// What a pair is of; both where they are called otherwise.
    fn title(&self, pair: usize) -> String {
        let (one, other) = self.pairs[pair];
        match (self.one[one].as_str(), self.other[other].as_str()) {
            (one, other) if one == other || other.is_empty() => one.to_owned(),
            ("", other) => other.to_owned(),
            (one, other) => format!("{one} beside {other}"),
        }
    }

    /// Columns that only one plan has: which of the two, and in words.
    fn alone(&self) -> Vec<(usize, String)> {
        let words = |name: &str, at: usize| match name {
            "" => format!("column {}", at + 1),
            name => format!("the column '{name}'"),
        };
        let has_none = |which: usize, titles: &[String], pairs: &[usize]| {
            let alone = titles.iter().enumerate();
            let alone = alone.filter(|(at, _)| !pairs.contains(at));
            alone
                .map(|(at, name)| (which, words(name, at)))
                .collect::<Vec<_>>()
        };
        let (ones, others): (Vec<usize>, Vec<usize>) = self.pairs.iter().copied().unzip();
        let mut alone = has_none(0, &self.one, &ones);
        alone.extend(has_none(1, &self.other, &others));
        alone
    }
}

/// What the columns are called, for each that any row has.
fn titles(section: &Section) -> Vec<String> {
    let mut titles = section.columns.clone();
    let most = section.rows.iter().map(|row| row.cells.len()).max();
    titles.resize(most.unwrap_or(0).max(titles.len()), String::new());
    titles
}

/// The same figure is another where it comes from elsewhere: what a model did is no measurement.
fn is_same(one: &Cell, other: &Cell) -> bool {
    one.source == other.source && is_equal(one, other) && is_as_sure(one, other)
}

fn is_equal(one: &Cell, other: &Cell) -> bool {
    match (one.value, other.value) {
        (Some(one), Some(other)) => is_near(one, other),
        _ => one.value == other.value && one.text == other.text,
    }
}

/// Whether both have one interval.
fn is_as_sure(one: &Cell, other: &Cell) -> bool {
    [(one.low, other.low), (one.high, other.high)]
        .into_iter()
        .all(|ends| match ends {
            (Some(one), Some(other)) => is_near(one, other),
            (one, other) => one == other,
        })
}

fn is_near(one: f64, other: f64) -> bool {
    (one - other).abs() <= SAME * one.abs().max(other.abs())
}

/// What differs, in the words and by the number of its pair of columns.
fn differing(
    row: &Row,
    pair: usize,
    column: &str,
    one: Option<&Cell>,
    other: Option<&Cell>,
) -> Row {
    let absent = || Cell::word("-", Source::Derived);
    let both = one.zip(other);
    let is_equal = both.is_some_and(|(one, other)| is_equal(one, other));
    let is_as_sure = both.is_some_and(|(one, other)| is_as_sure(one, other));
    let difference = match (one.and_then(|of| of.value), other.and_then(|of| of.value)) {
        _ if is_equal && is_as_sure => Cell::word("none, but from elsewhere", Source::Derived),
        _ if is_equal => Cell::word("none, but another interval", Source::Derived),
        (Some(one), Some(other)) if one != 0.0 => {
            let part = other / one - 1.0;
            Cell::new(part, format!("{:+.1}%", part * 100.0), Source::Derived)
        }
        _ => absent(),
    };
    let label = match column {
        "" => row.label.clone(),
        name => format!("{}, {name}", row.label),
    };
    let cells = vec![
        one.cloned().unwrap_or_else(absent),
        other.cloned().unwrap_or_else(absent),
        difference,
    ];
    Row::new(
        format!("{}-{pair}", row.name),
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

    /// A plan with a row of these columns.
    fn of_columns(columns: &[(&str, f64)]) -> Sheet {
        let mut sheet = sheet(1.0, false);
        let cell = |&(_, value): &(&str, f64)| Cell::new(value, value.to_string(), Source::Given);
        sheet.sections[0].columns = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
        sheet.sections[0].rows = vec![Row::new("r", "R", "", columns.iter().map(cell).collect())];
        sheet
    }

    #[test]
    fn columns_belong_together_by_their_names_and_by_their_numbers_where_no_name_is_shared() {
        let names = ["a", "b"];
        let fast_first = of_columns(&[("fast", 2.0), ("slow", 1.0)]);
        let slow_first = of_columns(&[("slow", 1.0), ("fast", 3.0)]);
        let found = diff(&fast_first, &slow_first, names);
        assert_eq!(found.answer, "1 figures differ, 1 are the same.");
        let row = &found.sections[0].rows[0];
        assert_eq!(
            (row.label.as_str(), row.cells[2].text.as_str()),
            ("R, fast", "+50.0%")
        );
        assert!(found.caveats.is_empty());
        // What has no namesake is held against nothing, and said.
        let another = of_columns(&[("slow", 1.0), ("new", 9.0)]);
        let found = diff(&fast_first, &another, names);
        assert_eq!(found.answer, "0 figures differ, 1 are the same.");
        assert_eq!(
            found.caveats,
            [
                "only a has the column 'fast' of 'S'",
                "only b has the column 'new' of 'S'"
            ]
        );
        // No name is shared: one drive against another.
        let found = diff(
            &of_columns(&[("old", 2.0)]),
            &of_columns(&[("new", 4.0), ("", 5.0)]),
            names,
        );
        assert_eq!(found.sections[0].rows[0].label, "R, old beside new");
        assert_eq!(found.caveats, ["only b has column 2 of 'S'"]);
        // Of two of one name each has its own.
        let twice = |second| of_columns(&[("d", 1.0), ("d", second)]);
        let found = diff(&twice(2.0), &twice(4.0), names);
        assert_eq!(found.answer, "1 figures differ, 1 are the same.");
        assert_eq!(found.cell("s", "r-1", 2).unwrap().text, "+100.0%");
    }

    #[test]
    fn a_figure_with_another_interval_is_another() {
        let with = |low, high| {
            let mut sheet = sheet(2.0, false);
            let cell = &mut sheet.sections[0].rows[1].cells[0];
            *cell = cell.clone().within(low, high);
            sheet
        };
        let found = diff(&with(1.0, 3.0), &with(1.5, 3.0), ["a", "b"]);
        assert_eq!(found.answer, "1 figures differ, 1 are the same.");
        let text = &found.cell("s", "other-0", 2).unwrap().text;
        assert_eq!(text, "none, but another interval");
        for other in [with(1.0, 2.5), sheet(2.0, false)] {
            let found = diff(&with(1.0, 3.0), &other, ["a", "b"]);
            assert_eq!(found.answer, "1 figures differ, 1 are the same.");
        }
        let found = diff(&with(1.0, 3.0), &with(1.0, 3.0), ["a", "b"]);
        assert_eq!(found.answer, "0 figures differ, 2 are the same.");
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
