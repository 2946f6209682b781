//! A plan as one HTML page, which needs nothing else.

use maud::{Markup, html};
use weir_report::drawing::{self, AxisOf, Line};
use weir_report::words;

use crate::sheet::{Cell, Chart, Quantity, Row, Section, Sheet, Source};
use crate::units;

/// The page.
#[must_use]
pub fn page(sheet: &Sheet) -> String {
    let body = html! {
        @if !sheet.answer.is_empty() { section { p.verdict { (sheet.answer) } } }
        @if !sheet.caveats.is_empty() {
            section.caveats {
                h2 { "What to know before reading the numbers" }
                ul { @for caveat in &sheet.caveats { li { (caveat) } } }
            }
        }
        @for chart in &sheet.charts { section { (drawn(chart)) } }
        @for section in &sheet.sections { (rows(section)) }
        section.plain {
            h2 { "How it was made" }
            pre { (sheet.command.join(" ")) }
            p.quiet.small {
                "Each figure says where it comes from: measured, modelled (a model of a drive), given, published, fitted, assumed, or derived from the others. Drawn by Weir "
                (sheet.version) "; this page needs no network and no other file."
            }
        }
    };
    let subtitle = format!("Plan of Weir {}", sheet.version);
    drawing::page(&sheet.title, &subtitle, &body)
}

fn rows(section: &Section) -> Markup {
    html! {
        section id=(section.name) {
            h2 { (section.title) }
            @if !section.words.is_empty() { p.quiet { (section.words) } }
            div.wide {
                table {
                    @if section.columns.iter().any(|column| !column.is_empty()) {
                        thead { tr { th {} @for column in &section.columns { th { (column) } } } }
                    }
                    tbody { @for row in &section.rows { (one(row)) } }
                }
            }
            @let explained: Vec<&Row> = section.rows.iter().filter(|row| !row.how.is_empty()).collect();
            @if !explained.is_empty() {
                details open[explained.len() <= 4] {
                    summary { "Rules and arithmetic" }
                    dl { @for row in explained { dt { (row.label) } dd { (row.how) } } }
                }
            }
        }
    }
}

/// Whether it is a sentence, and not a figure.
fn is_words(cell: &Cell) -> bool {
    const FIGURE_MAX: usize = 24;
    cell.text.chars().count() > FIGURE_MAX
}

fn one(row: &Row) -> Markup {
    html! {
        tr data-row=(row.name) {
            th { (row.label) }
            @for cell in &row.cells {
                td class=[is_words(cell).then_some("words")] data-value=[cell.value] data-source=(cell.source.name()) {
                    (cell.text) " " span.quiet.small { (cell.source.name()) }
                }
            }
        }
    }
}

fn axis(of: Quantity) -> AxisOf {
    let (name, logarithmic, label): (_, _, fn(f64) -> String) = match of {
        Quantity::RequestsPerSecond => ("requests per second", false, words::round_count),
        Quantity::LatencyNanoseconds => ("mean latency", true, words::round_latency),
        Quantity::WindowSeconds => ("window", true, words::seconds),
        Quantity::BytesPerSecond => ("lowest mean rate", false, units::rate_text),
    };
    AxisOf {
        name,
        logarithmic,
        label,
    }
}

fn drawn(chart: &Chart) -> Markup {
    let (x, y) = (axis(chart.x), axis(chart.y));
    let series = chart.series.iter().map(|series| Line {
        name: format!("{} ({})", series.name, series.source.name()),
        dashed: matches!(series.source, Source::Fitted | Source::Derived),
        points: series
            .points
            .iter()
            .map(|[at, value]| {
                let label = format!(
                    "{}\n{}: {}\n{}: {}",
                    series.name,
                    x.name,
                    (x.label)(*at),
                    y.name,
                    (y.label)(*value)
                );
                (*at, *value, label)
            })
            .collect(),
    });
    drawing::lines("plan", &chart.title, x, y, &series.collect::<Vec<_>>())
}
