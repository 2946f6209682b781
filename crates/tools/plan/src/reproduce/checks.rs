//! Statements of an article, held against its figures: one rule for every check.

use std::borrow::Cow;

use crate::sheet::{Cell, Row, Section, Source};
use crate::units::percent_text;

/// A word that qualifies a number leaves it this part of room.
const ROOM: f64 = 0.1;
/// Error of reading a chart, as a part: 1% of a rate, and two digits of a short latency.
const READ: f64 = 0.03;

/// A word with which an article qualifies a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// No more and no less.
    Exactly,
    /// Above or below it.
    About,
    /// Above it by any amount.
    Over,
    /// Above it, and not by much.
    LittleOver,
    /// Below it, and not by much.
    Almost,
}

impl Word {
    /// The least and the most of a number that the word allows.
    fn range(self, number: f64) -> (f64, f64) {
        let (below, above) = (number * (1.0 - ROOM), number * (1.0 + ROOM));
        match self {
            Word::Exactly => (number, number),
            Word::About => (below, above),
            Word::Over => (number, f64::INFINITY),
            Word::LittleOver => (number, above),
            Word::Almost => (below, number),
        }
    }
}

/// Tells whether every figure lies in the range that the word allows, give or take what reading a chart costs.
pub(super) fn agree(word: Word, number: f64, figures: &[f64]) -> bool {
    let (least, most) = word.range(number);
    let allowed = least * (1.0 - READ)..=most * (1.0 + READ);
    figures.iter().all(|figure| allowed.contains(figure))
}

/// One check of a statement against figures.
pub(super) struct Check {
    /// The same in every report.
    pub(super) name: Cow<'static, str>,
    /// The article's own words in double quotes, or the matter in Weir's.
    pub(super) claim: String,
    /// Its figures.
    pub(super) figures: String,
    /// Verdict: they agree.
    pub(super) agrees: bool,
    /// The arithmetic behind them.
    pub(super) arithmetic: String,
}

/// All checks of an article.
pub(super) fn check_section(checks: Vec<Check>) -> Section {
    let rows = checks.into_iter().map(|of| {
        let verdict = if of.agrees { "agrees" } else { "disagrees" };
        Row::new(
            of.name,
            of.claim,
            "",
            vec![
                Cell::word(of.figures, Source::Derived),
                Cell {
                    value: Some(f64::from(u8::from(of.agrees))),
                    ..Cell::word(verdict, Source::Derived)
                },
            ],
        )
        .how(of.arithmetic)
    });
    Section {
        name: "checks".to_owned(),
        title: "What it says against its own figures".to_owned(),
        words: format!(
            "What stands in double quotes is the article's own, as translated; all other words are Weir's. One rule for every row: a number that the article names has {room} of room, above it where it says over or more, below it where it says almost, either way where it says about; linear is in proportion, about. Without an upper end is what is merely over. Each figure lies within that, give or take the {read} that reading a chart costs.",
            room = percent_text(ROOM),
            read = percent_text(READ),
        ),
        columns: vec!["its figures say".to_owned(), "verdict".to_owned()],
        rows: rows.collect(),
    }
}

/// Checks of an article of which no sentence is kept, and what they say together.
pub(super) fn own_section(checks: Vec<Check>) -> (String, Section) {
    let answer = own_answer(&checks);
    let section = Section {
        title: "Its own figures and statements against each other".to_owned(),
        words: "Each from what was published alone, and in Weir's words.".to_owned(),
        ..check_section(checks)
    };
    (answer, section)
}

fn own_answer(checks: &[Check]) -> String {
    let wrong = checks.iter().filter(|of| !of.agrees);
    let wrong: Vec<String> = wrong
        .map(|of| format!("{} ({})", of.claim, of.figures))
        .collect();
    match wrong.len() {
        0 => "By its own figures all things checked hold.".to_owned(),
        count => format!(
            "By its own figures {count} of {} things checked do not hold: {}.",
            checks.len(),
            wrong.join("; ")
        ),
    }
}

/// The statements that disagree, in a sentence.
pub(super) fn disagreements(section: &Section) -> String {
    let names: Vec<&str> = section
        .rows
        .iter()
        .filter(|row| row.cells.get(1).and_then(|of| of.value) == Some(0.0))
        .map(|row| row.label.as_str())
        .collect();
    match names.len() {
        0 => "What it says and its figures agree.".to_owned(),
        1 => format!(
            "One of its statements disagrees with its own figures: {}.",
            names[0]
        ),
        count => format!(
            "{count} of its statements disagree with its own figures: {}.",
            names.join("; ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_leaves_its_number_room_on_its_own_side() {
        for (word, inside, outside) in [
            (Word::Exactly, [0.98, 1.02], [0.96, 1.04]),
            (Word::About, [0.88, 1.12], [0.86, 1.14]),
            (Word::Over, [0.98, 9.0], [0.96, 0.0]),
            (Word::LittleOver, [0.98, 1.12], [0.96, 1.14]),
            (Word::Almost, [0.88, 1.02], [0.86, 1.04]),
        ] {
            assert!(agree(word, 1.0, &inside), "{word:?}");
            for figure in outside {
                assert!(!agree(word, 1.0, &[1.0, figure]), "{word:?} {figure}");
            }
        }
        assert!(!agree(Word::About, 1.0, &[f64::NAN]));
    }
}
