//! The metrics page: Prometheus text, format version 0.0.4.
//!
//! Numbers are counted where they arise and gathered when they are asked for, so that there is no
//! registry: a [`Family`] is a snapshot of one metric with all its label sets.

use std::fmt::{self, Write};

/// The media type of the page.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What kind of metric a family is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by bucket, with their sum.
    Histogram,
}

/// A value of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// A whole number.
    Whole(u64),
    /// Any other number.
    Real(f64),
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Whole(value.into())
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(value) => write!(formatter, "{value}"),
            Self::Real(value) => write!(formatter, "{value}"),
        }
    }
}

/// One metric: its samples by label set.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    /// What follows the name, labels in braces, and the value.
    samples: Vec<(&'static str, String, Value)>,
}

impl Family {
    /// A metric without samples. A counter's name ends in `_total`; units are seconds and bytes.
    pub fn new(name: &'static str, kind: Kind, help: &'static str) -> Self {
        let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        debug_assert!(name.bytes().all(legal), "{name} is not a metric name");
        debug_assert_eq!(kind == Kind::Counter, name.ends_with("_total"), "{name}");
        Self {
            name,
            kind,
            help,
            samples: Vec::new(),
        }
    }

    /// Adds a sample with its labels.
    pub fn add<'a>(
        &mut self,
        labels: impl IntoIterator<Item = (&'static str, &'a str)>,
        value: impl Into<Value>,
    ) {
        self.samples.push(("", braced(labels), value.into()));
    }

    /// Adds a label set of a histogram: upper bounds with how many were no larger, how many there
    /// were in all, and their sum.
    pub fn add_histogram<'a>(
        &mut self,
        labels: impl IntoIterator<Item = (&'static str, &'a str)> + Clone,
        buckets: &[(f64, u64)],
        count: u64,
        sum: f64,
    ) {
        let bounds = buckets
            .iter()
            .map(|(bound, below)| (bound.to_string(), *below));
        for (bound, below) in bounds.chain([("+Inf".to_owned(), count)]) {
            let mut text = braced(labels.clone());
            let open = if text.is_empty() { "{" } else { "," };
            text.truncate(text.trim_end_matches('}').len());
            write!(text, "{open}le=\"{bound}\"}}").expect("writing to a string");
            self.samples.push(("_bucket", text, below.into()));
        }
        self.samples
            .push(("_sum", braced(labels.clone()), sum.into()));
        self.samples.push(("_count", braced(labels), count.into()));
    }

    /// A metric with one sample and no labels.
    pub fn single(
        name: &'static str,
        kind: Kind,
        help: &'static str,
        value: impl Into<Value>,
    ) -> Self {
        let mut family = Self::new(name, kind, help);
        family.add([], value);
        family
    }
}

/// Labels as the page has them.
fn braced<'a>(labels: impl IntoIterator<Item = (&'static str, &'a str)>) -> String {
    let mut text = String::new();
    for (name, value) in labels {
        text.push(if text.is_empty() { '{' } else { ',' });
        let value = value
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n");
        write!(text, "{name}=\"{value}\"").expect("writing to a string");
    }
    if !text.is_empty() {
        text.push('}');
    }
    text
}

impl fmt::Display for Family {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let help = self.help.replace('\\', "\\\\").replace('\n', "\\n");
        writeln!(formatter, "# HELP {} {help}", self.name)?;
        writeln!(formatter, "# TYPE {} {kind}", self.name)?;
        for (suffix, labels, value) in &self.samples {
            writeln!(formatter, "{}{suffix}{labels} {value}", self.name)?;
        }
        Ok(())
    }
}

/// The whole page. Families without samples are left out.
pub fn page<'a>(families: impl IntoIterator<Item = &'a Family>) -> String {
    let mut text = String::new();
    for family in families
        .into_iter()
        .filter(|family| !family.samples.is_empty())
    {
        write!(text, "{family}").expect("writing to a string");
    }
    text
}

#[cfg(test)]
mod tests {
    use weir_testing::exposition;

    use super::*;

    #[test]
    fn what_a_scrape_refuses_is_seen() {
        let (help, kind) = ("# HELP weir_x Help.\n", "# TYPE weir_x gauge\n");
        let head = format!("{help}{kind}");
        let scrape = |page: &str| exposition::scrape(page);
        let page =
            format!("{head}weir_x{{a=\"1\",b=\"}} 2\\\"\"}} 1\nweir_x{{a=\"1\"}} 2\nweir_x 3.5\n");
        assert_eq!(scrape(&page), Ok(()));
        for (page, why) in [
            (format!("{head}weir_x 1\nweir_x 2\n"), "two samples"),
            (
                format!("{head}weir_x{{a=\"1\",b=\"2\"}} 1\nweir_x{{b=\"2\",a=\"1\"}} 1\n"),
                "two samples",
            ),
            (format!("{head}weir_x{{a=\"1\",a=\"2\"}} 1\n"), "labels"),
            (format!("{head}weir_x{{a=\"1\" 1\n"), "without an end"),
            (
                format!("{head}weir_x 1\n{head}weir_x{{a=\"1\"}} 1\n"),
                "a second time",
            ),
            (format!("{head}weir_x_sum 1\n"), "not below its type"),
            (format!("{head}weir_x one\n"), "not a number"),
            (head.clone(), "no samples"),
        ] {
            let refusal = scrape(&page).expect_err(&page);
            assert!(refusal.contains(why), "{refusal}:\n{page}");
        }
    }

    #[test]
    fn a_histogram_is_cumulative_and_closed() {
        let mut latency = Family::new("weir_latency_seconds", Kind::Histogram, "Time.");
        latency.add_histogram([("volume", "a")], &[(0.5, 2), (1.0, 3)], 4, 6.25);
        assert_eq!(
            latency.to_string(),
            "# HELP weir_latency_seconds Time.\n\
             # TYPE weir_latency_seconds histogram\n\
             weir_latency_seconds_bucket{volume=\"a\",le=\"0.5\"} 2\n\
             weir_latency_seconds_bucket{volume=\"a\",le=\"1\"} 3\n\
             weir_latency_seconds_bucket{volume=\"a\",le=\"+Inf\"} 4\n\
             weir_latency_seconds_sum{volume=\"a\"} 6.25\n\
             weir_latency_seconds_count{volume=\"a\"} 4\n"
        );
    }

    #[test]
    fn the_page_is_prometheus_text() {
        let mut commands = Family::new(
            "weir_commands_total",
            Kind::Counter,
            "Commands \\ answered.",
        );
        commands.add([("subsystem", "a\"b\\c\nd"), ("opcode", "read")], 7_u64);
        commands.add([("subsystem", "e"), ("opcode", "write")], u64::MAX);
        let seconds = Family::single("weir_uptime_seconds", Kind::Gauge, "Time.", 1.5);
        let empty = Family::new("weir_nothing", Kind::Gauge, "Nothing.");
        assert_eq!(
            page([&commands, &empty, &seconds]),
            "# HELP weir_commands_total Commands \\\\ answered.\n\
             # TYPE weir_commands_total counter\n\
             weir_commands_total{subsystem=\"a\\\"b\\\\c\\nd\",opcode=\"read\"} 7\n\
             weir_commands_total{subsystem=\"e\",opcode=\"write\"} 18446744073709551615\n\
             # HELP weir_uptime_seconds Time.\n\
             # TYPE weir_uptime_seconds gauge\n\
             weir_uptime_seconds 1.5\n"
        );
    }
}
