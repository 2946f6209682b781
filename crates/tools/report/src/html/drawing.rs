//! What pages of other crates are made of: the same style, the same axes, and nothing that is fetched.

use maud::{Markup, html};

use super::page;
use super::plot::{Axis, LEFT, Plot, Point, RIGHT, Series, TOP, bottom, colour};
use super::scale::Scale;
use super::tables;

const HEIGHT: f64 = 420.0;
/// Radius of a point.
const RADIUS: f64 = 3.5;

/// Points that belong together, joined by a line in their order.
#[derive(Debug, Clone)]
pub struct Line {
    /// What it is called; unlike the others of the drawing.
    pub name: String,
    /// Whether it is dashed, as what stands beside something measured is.
    pub dashed: bool,
    /// Its values on both axes, and what is said under the pointer.
    pub points: Vec<(f64, f64, String)>,
}

/// An axis of a drawing.
#[derive(Debug, Clone, Copy)]
pub struct AxisOf {
    /// What is on it, with its unit.
    pub name: &'static str,
    /// Whether it is logarithmic; from zero if not.
    pub logarithmic: bool,
    /// Writes a value beside it.
    pub label: fn(f64) -> String,
}

/// One HTML page with the style and script of all pages.
#[must_use]
pub fn page(title: &str, subtitle: &str, body: &Markup) -> String {
    page::framed(title, subtitle, body).into_string()
}

/// A table with a name for each row; `heading` has one for each column.
#[must_use]
pub fn table(caption: &str, heading: &[&str], rows: &[Vec<String>]) -> Markup {
    let heading: Vec<_> = heading.iter().map(|&name| name.to_owned()).collect();
    tables::table(caption, &heading, rows)
}

/// Lines over two axes, with buttons that switch them off. `kind` names the drawing for scripts, `described` says it in words.
#[must_use]
pub fn lines(kind: &'static str, described: &str, x: AxisOf, y: AxisOf, lines: &[Line]) -> Markup {
    let all = || lines.iter().flat_map(|line| &line.points);
    let scale = |of: AxisOf, values: Vec<f64>, from: f64, to: f64| Axis {
        name: of.name,
        scale: if of.logarithmic {
            Scale::logarithmic(values, from, to)
        } else {
            Scale::from_zero(values, from, to)
        },
        label: of.label,
    };
    let series: Vec<Series> = lines
        .iter()
        .enumerate()
        .map(|(index, line)| Series {
            id: index.to_string(),
            choice: None,
            hidden: false,
            colour: index,
            beside: line.dashed,
            lines: vec![
                line.points
                    .iter()
                    .map(|(x, y, label)| Point {
                        x: *x,
                        y: *y,
                        label: label.clone(),
                    })
                    .collect(),
            ],
            radius: RADIUS,
        })
        .collect();
    let plot = Plot {
        kind,
        described: described.to_owned(),
        height: HEIGHT,
        x: scale(x, all().map(|point| point.0).collect(), LEFT, RIGHT),
        y: scale(y, all().map(|point| point.1).collect(), bottom(HEIGHT), TOP),
        series: &series,
        marks: &[],
    };
    html! {
        figure {
            figcaption { b { (described) } }
            div.controls {
                @for (index, line) in lines.iter().enumerate() {
                    button type="button" class=(format!("for-script {}", colour(index))) data-series=(index) aria-pressed="true" {
                        span.swatch {} (line.name)
                    }
                }
            }
            (plot.draw())
        }
    }
}
