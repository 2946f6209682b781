//! Drawings: points and lines over two axes, and cells over two axes, as SVG that styles and scripts can reach.
//!
//! Everything drawn carries the values that it stands for in `data-` attributes, the axes among them, so that a drawing can be
//! read back. What is drawn is not decided here.

use maud::{Markup, html};

use super::scale::{Kind, Scale};

/// Size of a drawing in its own pixels; a page of the usual width shows it about as large.
pub(super) const WIDTH: f64 = 1072.0;
/// Left of the drawn area: the labels of its vertical axis.
pub(super) const LEFT: f64 = 74.0;
/// The right end of the drawn area.
pub(super) const RIGHT: f64 = WIDTH - 16.0;
/// Above the drawn area: the name of its vertical axis.
pub(super) const TOP: f64 = 26.0;
/// Below the drawn area: labels and name of its horizontal axis.
const BELOW: f64 = 46.0;
/// Room for the words of a mark.
const WORDS_WIDTH: f64 = 260.0;
/// Colours in the style sheet.
const COLOURS: usize = 8;

/// One axis.
pub(super) struct Axis {
    pub(super) name: &'static str,
    pub(super) scale: Scale,
    /// Writes a value of it beside it.
    pub(super) label: fn(f64) -> String,
}

/// A value in a drawing.
#[derive(Debug, Clone)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    /// In words.
    pub(super) label: String,
}

/// Values that belong together.
pub(super) struct Series {
    /// Its own name in this drawing, for scripts.
    pub(super) id: String,
    /// Its statistic, where the reader chooses one of several.
    pub(super) choice: Option<&'static str>,
    /// Whether it is hidden until it is chosen.
    pub(super) hidden: bool,
    /// Which colour it has.
    pub(super) colour: usize,
    /// Whether it stands beside another one, on which it may lie: it is dashed.
    pub(super) beside: bool,
    /// Runs of points that a line joins.
    pub(super) lines: Vec<Vec<Point>>,
    /// Radius of its points.
    pub(super) radius: f64,
}

/// A line across the drawing.
pub(super) struct Mark {
    /// Where on the horizontal axis.
    pub(super) at: f64,
    pub(super) text: String,
    /// What it marks, for scripts.
    pub(super) kind: &'static str,
    /// The series whose colour it has.
    pub(super) colour: Option<usize>,
    /// The line that its words stand in, from the top, so that those of neighbours do not cover each other.
    pub(super) row: usize,
}

/// Lines over two axes.
pub(super) struct Plot<'a> {
    /// Its kind, for scripts and styles.
    pub(super) kind: &'static str,
    /// In words, for those who do not see it.
    pub(super) described: String,
    pub(super) height: f64,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) series: &'a [Series],
    pub(super) marks: &'a [Mark],
}

/// The style class of a colour.
pub(super) fn colour(index: usize) -> String {
    format!("s{}", index % COLOURS)
}

/// The lower end of the drawn area.
pub(super) fn bottom(height: f64) -> f64 {
    height - BELOW
}

impl Plot<'_> {
    pub(super) fn draw(&self) -> Markup {
        html! {
            div.drawing {
                svg role="img" data-plot=(self.kind) class=(self.kind) viewBox=(format!("0 0 {WIDTH} {}", self.height))
                    aria-label=(self.described) {
                    (axes(&self.x, &self.y, self.height))
                    @for mark in self.marks { (self.mark(mark)) }
                    @for series in self.series { (self.series(series)) }
                }
            }
        }
    }

    fn series(&self, series: &Series) -> Markup {
        let mut class = colour(series.colour);
        if series.beside {
            class.push_str(" beside");
        }
        html! {
            g class=(class) data-series=(series.id) data-choice=[series.choice] hidden[series.hidden] {
                @for line in &series.lines {
                    @if line.len() > 1 { path class="curve" d=(self.path(line)) {} }
                }
                @for point in series.lines.iter().flatten() {
                    circle class="point" cx=(pixel(self.x.scale.at(point.x))) cy=(pixel(self.y.scale.at(point.y)))
                        r=(series.radius) data-x=(point.x) data-y=(point.y) data-label=(point.label) {}
                }
            }
        }
    }

    fn path(&self, line: &[Point]) -> String {
        let mut path = String::with_capacity(line.len() * 14);
        for (index, point) in line.iter().enumerate() {
            path.push(if index == 0 { 'M' } else { 'L' });
            path.push_str(&pixel(self.x.scale.at(point.x)));
            path.push(' ');
            path.push_str(&pixel(self.y.scale.at(point.y)));
        }
        path
    }

    fn mark(&self, mark: &Mark) -> Markup {
        let x = self.x.scale.at(mark.at);
        let y = TOP + 14.0 + 16.0 * mark.row as f64;
        // Where the words would leave the drawing they stand on the other side of their line.
        let (anchor, words) = match x > RIGHT - WORDS_WIDTH {
            true => ("end", x - 6.0),
            false => ("start", x + 6.0),
        };
        html! {
            g data-mark=(mark.kind) data-value=(mark.at) class=[mark.colour.map(colour)] {
                line class="mark" x1=(pixel(x)) y1=(TOP) x2=(pixel(x)) y2=(bottom(self.height)) {}
                text class="mark-text" x=(pixel(words)) y=(y) text-anchor=(anchor) { (mark.text) }
            }
        }
    }
}

/// A rectangle of a heat map.
pub(super) struct Cell {
    /// Values on the horizontal axis.
    pub(super) x: (f64, f64),
    /// Values on the vertical axis.
    pub(super) y: (f64, f64),
    pub(super) count: u64,
    pub(super) label: String,
}

/// Cells over two axes: the more lies in one, the stronger its colour, by the logarithm.
pub(super) struct HeatMap<'a> {
    pub(super) described: String,
    pub(super) height: f64,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) cells: &'a [Cell],
}

/// The weakest colour of a cell that holds something.
const OPACITY_LEAST: f64 = 0.10;

impl HeatMap<'_> {
    pub(super) fn draw(&self) -> Markup {
        let most = self.cells.iter().map(|cell| cell.count).max().unwrap_or(1);
        html! {
            div.drawing {
                svg role="img" data-plot="heat" class="heat" viewBox=(format!("0 0 {WIDTH} {}", self.height))
                    aria-label=(self.described) {
                    (axes(&self.x, &self.y, self.height))
                    @for cell in self.cells { (self.cell(cell, most)) }
                }
            }
        }
    }

    fn cell(&self, cell: &Cell, most: u64) -> Markup {
        let (left, right) = (self.x.scale.at(cell.x.0), self.x.scale.at(cell.x.1));
        let (low, high) = (self.y.scale.at(cell.y.0), self.y.scale.at(cell.y.1));
        let strength = (cell.count as f64).ln_1p() / (most as f64).ln_1p();
        let opacity = OPACITY_LEAST + (1.0 - OPACITY_LEAST) * strength;
        html! {
            rect class="cell" x=(pixel(left)) y=(pixel(high)) width=(pixel((right - left).max(0.5)))
                height=(pixel((low - high).max(0.5))) fill-opacity=(format!("{opacity:.3}"))
                data-from=(cell.x.0) data-to=(cell.x.1) data-low=(cell.y.0) data-high=(cell.y.1) data-count=(cell.count)
                data-label=(cell.label) {}
        }
    }
}

/// A difference with what it may be.
pub(super) struct Range {
    pub(super) name: String,
    pub(super) low: f64,
    pub(super) middle: f64,
    pub(super) high: f64,
    pub(super) class: &'static str,
    pub(super) label: String,
}

/// Ranges one below the other over one axis, on which zero is marked.
pub(super) struct Ranges<'a> {
    pub(super) described: String,
    pub(super) axis_name: &'static str,
    pub(super) label: fn(f64) -> String,
    pub(super) ranges: &'a [Range],
}

/// Left of ranges: their names.
const NAMES: f64 = 300.0;
/// Differences that are drawn, in percent.
const RANGE_LEAST: f64 = -100.0;
const RANGE_MOST: f64 = 200.0;
/// Height of a range with its surroundings.
const ROW: f64 = 30.0;

impl Ranges<'_> {
    pub(super) fn draw(&self) -> Markup {
        let height = TOP + BELOW + ROW * self.ranges.len() as f64;
        // What is not known within this makes no other range invisible: its line ends at the edge.
        let values = self
            .ranges
            .iter()
            .flat_map(|range| [range.low, range.middle, range.high])
            .map(|value| value.clamp(RANGE_LEAST, RANGE_MOST));
        let scale = Scale::around_zero(values, NAMES, RIGHT - 16.0);
        let end = bottom(height);
        html! {
            div.drawing {
                svg role="img" data-plot="differences" class="differences" viewBox=(format!("0 0 {WIDTH} {height}"))
                    aria-label=(self.described) {
                    g.axis data-axis="x" data-kind="linear" data-low=(scale.low()) data-high=(scale.high())
                        data-from=(NAMES) data-to=(RIGHT - 16.0) {
                        @for tick in scale.ticks() {
                            @let x = pixel(scale.at(tick.value));
                            line class="grid" x1=(x) y1=(TOP) x2=(x) y2=(end) {}
                            text x=(x) y=(end + 18.0) text-anchor="middle" { ((self.label)(tick.value)) }
                        }
                        text class="axis-name" x=(pixel((NAMES + RIGHT) / 2.0)) y=(end + 38.0) text-anchor="middle" { (self.axis_name) }
                    }
                    line class="mark" x1=(pixel(scale.at(0.0))) y1=(TOP - 8.0) x2=(pixel(scale.at(0.0))) y2=(end) {}
                    @for (index, range) in self.ranges.iter().enumerate() {
                        @let y = TOP + ROW * (index as f64 + 0.5);
                        g class=(range.class) data-difference=(range.name) data-low=(range.low) data-middle=(range.middle) data-high=(range.high) {
                            text class="mark-text" x=(NAMES - 14.0) y=(y + 4.0) text-anchor="end" { (range.name) }
                            line class="range" x1=(pixel(scale.at(range.low))) y1=(y) x2=(pixel(scale.at(range.high))) y2=(y) {}
                            circle class="point" cx=(pixel(scale.at(range.middle))) cy=(y) r="6" data-x=(range.middle) data-label=(range.label) {}
                        }
                    }
                }
            }
        }
    }
}

fn axes(x: &Axis, y: &Axis, height: f64) -> Markup {
    let end = bottom(height);
    html! {
        g.axis data-axis="y" data-kind=(kind(&y.scale)) data-low=(y.scale.low()) data-high=(y.scale.high())
            data-from=(end) data-to=(TOP) {
            @for tick in y.scale.ticks() {
                @let at = pixel(y.scale.at(tick.value));
                line class=(if tick.labelled { "grid" } else { "grid minor" }) x1=(LEFT) y1=(at) x2=(RIGHT) y2=(at) {}
                @if tick.labelled {
                    text x=(LEFT - 8.0) y=(at) dy="4" text-anchor="end" { ((y.label)(tick.value)) }
                }
            }
            text class="axis-name" x="0" y="12" { (y.name) }
        }
        g.axis data-axis="x" data-kind=(kind(&x.scale)) data-low=(x.scale.low()) data-high=(x.scale.high())
            data-from=(LEFT) data-to=(RIGHT) {
            @for tick in x.scale.ticks() {
                @let at = pixel(x.scale.at(tick.value));
                line class=(if tick.labelled { "grid" } else { "grid minor" }) x1=(at) y1=(TOP) x2=(at) y2=(end) {}
                @if tick.labelled {
                    text x=(at) y=(end + 18.0) text-anchor="middle" { ((x.label)(tick.value)) }
                }
            }
            text class="axis-name" x=(pixel((LEFT + RIGHT) / 2.0)) y=(end + 38.0) text-anchor="middle" { (x.name) }
        }
        line class="frame" x1=(LEFT) y1=(end) x2=(RIGHT) y2=(end) {}
    }
}

fn kind(scale: &Scale) -> &'static str {
    match scale.kind() {
        Kind::Linear => "linear",
        Kind::Logarithmic => "logarithmic",
    }
}

/// A place in pixels, as short as it can be said.
fn pixel(value: f64) -> String {
    crate::words::trimmed(value, 2)
}
