//! The answer of every plan: sections of rows, each figure with where it comes from. Stored as one JSON object, `weir-plan/1`.
//!
//! Whatever shows a plan (a terminal, a page, a difference of two) works from this alone.

use serde::{Deserialize, Serialize};

/// What a stored plan of this version begins with.
pub const SCHEMA: &str = "weir-plan/1";

/// Where a figure comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A measurement of Weir's that was given to the plan, of a device.
    Measured,
    /// What a modelled drive did (`ssd:`): measured, but on no device.
    Modelled,
    /// Told on the command line.
    Given,
    /// Somebody published it.
    Published,
    /// Estimated from measured, modelled or published values.
    Fitted,
    /// Nobody measured it: a default, or a property of the model.
    Assumed,
    /// Arithmetic on figures of the plan.
    Derived,
}

impl Source {
    /// In a word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Source::Measured => "measured",
            Source::Modelled => "modelled",
            Source::Given => "given",
            Source::Published => "published",
            Source::Fitted => "fitted",
            Source::Assumed => "assumed",
            Source::Derived => "derived",
        }
    }
}

/// One figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The number in the row's unit; none where there is only a word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// The lower end of what it may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// The upper end of what it may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// As a person reads it.
    pub text: String,
    /// Where it comes from.
    pub source: Source,
}

impl Cell {
    /// A figure.
    pub fn new(value: f64, text: impl Into<String>, source: Source) -> Self {
        Cell {
            value: value.is_finite().then_some(value),
            low: None,
            high: None,
            text: text.into(),
            source,
        }
    }

    /// A whole number.
    #[must_use]
    pub fn count(value: u64, source: Source) -> Self {
        Cell::new(value as f64, weir_report::words::grouped(value), source)
    }

    /// A word where there is no number.
    pub fn word(text: impl Into<String>, source: Source) -> Self {
        Cell {
            value: None,
            low: None,
            high: None,
            text: text.into(),
            source,
        }
    }

    /// The same with what it may be.
    #[must_use]
    pub fn within(mut self, low: f64, high: f64) -> Self {
        self.low = Some(low).filter(|of| of.is_finite());
        self.high = Some(high).filter(|of| of.is_finite());
        self
    }
}

/// One thing in every column of its section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The same for the same matter in every plan.
    pub name: String,
    /// In words.
    pub label: String,
    /// The unit of the values.
    pub unit: String,
    /// A figure for each column.
    pub cells: Vec<Cell>,
    /// The rule, or the arithmetic; may be empty.
    #[serde(default)]
    pub how: String,
}

impl Row {
    /// A row; its rule is empty.
    pub fn new(
        name: impl Into<String>,
        label: impl Into<String>,
        unit: impl Into<String>,
        cells: Vec<Cell>,
    ) -> Self {
        Row {
            name: name.into(),
            label: label.into(),
            unit: unit.into(),
            cells,
            how: String::new(),
        }
    }

    /// The same with its rule.
    #[must_use]
    pub fn how(mut self, how: impl Into<String>) -> Self {
        self.how = how.into();
        self
    }
}

/// Rows that belong together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Section {
    /// The same for the same matter in every plan.
    pub name: String,
    /// In words.
    pub title: String,
    /// What to know before reading it; may be empty.
    #[serde(default)]
    pub words: String,
    /// What the columns are of.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<Row>,
}

/// Points of a drawing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// What it is called.
    pub name: String,
    /// Where it comes from.
    pub source: Source,
    /// Values on both axes.
    pub points: Vec<[f64; 2]>,
}

/// What an axis of a drawing shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Requests a second.
    RequestsPerSecond,
    /// Mean latency, nanoseconds.
    LatencyNanoseconds,
    /// The length of a window, seconds.
    WindowSeconds,
    /// Bytes per second.
    BytesPerSecond,
}

/// A drawing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    /// In words.
    pub title: String,
    /// The horizontal axis.
    pub x: Quantity,
    /// The vertical axis.
    pub y: Quantity,
    /// What is drawn.
    pub series: Vec<Series>,
}

/// A plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sheet {
    /// [`SCHEMA`].
    pub schema: String,
    /// `record`, `cluster` or `reproduce`.
    pub kind: String,
    /// In words.
    pub title: String,
    /// The answer in a sentence.
    pub answer: String,
    /// The command with its arguments; secrets are replaced.
    pub command: Vec<String>,
    /// Weir's version.
    pub version: String,
    /// What it says.
    pub sections: Vec<Section>,
    /// Drawings.
    #[serde(default)]
    pub charts: Vec<Chart>,
    /// What a reader of the numbers must know.
    #[serde(default)]
    pub caveats: Vec<String>,
}

/// Why a text is no plan.
#[derive(Debug, thiserror::Error)]
pub enum SheetError {
    /// It is no JSON, or none of this form.
    #[error(
        "this is no stored plan of Weir: what `weir plan ... --json` and `weir reproduce ... --json` print is ({0})"
    )]
    Form(#[from] serde_json::Error),
    /// It is of another version, or something else.
    #[error("its form is '{0}', and this Weir reads {SCHEMA}")]
    Schema(String),
}

impl Sheet {
    /// An empty plan.
    pub fn new(kind: &str, title: impl Into<String>) -> Self {
        Sheet {
            schema: SCHEMA.to_owned(),
            kind: kind.to_owned(),
            title: title.into(),
            answer: String::new(),
            command: Vec::new(),
            version: String::new(),
            sections: Vec::new(),
            charts: Vec::new(),
            caveats: Vec::new(),
        }
    }

    /// Reads a stored plan.
    ///
    /// # Errors
    /// [`SheetError`].
    pub fn from_json(text: &str) -> Result<Self, SheetError> {
        let value: serde_json::Value = serde_json::from_str(text)?;
        if let Some(schema) = value.get("schema").and_then(serde_json::Value::as_str)
            && schema != SCHEMA
        {
            return Err(SheetError::Schema(schema.to_owned()));
        }
        Ok(serde_json::from_value(value)?)
    }

    /// Says what a reader must know, once.
    pub fn tell(&mut self, caveats: impl IntoIterator<Item = String>) {
        for caveat in caveats {
            if !self.caveats.contains(&caveat) {
                self.caveats.push(caveat);
            }
        }
    }

    /// The figure of a row, by the names of its section and itself and the number of its column.
    #[must_use]
    pub fn cell(&self, section: &str, row: &str, column: usize) -> Option<&Cell> {
        let section = self.sections.iter().find(|of| of.name == section)?;
        let row = section.rows.iter().find(|of| of.name == row)?;
        row.cells.get(column)
    }
}
