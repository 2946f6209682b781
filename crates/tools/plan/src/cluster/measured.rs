//! Configurations that were measured, which are offered before any model.

use super::{Configuration, MeasuredCurve};
use crate::sheet::{Cell, Row, Section, Source};
use crate::units::percent_text;
use weir_report::words::{grouped, latency};

impl Configuration {
    /// Processors that its gateways take: a reactor is a thread that runs on one.
    #[must_use]
    pub fn processors(&self) -> u64 {
        u64::from(self.gateways) * u64::from(self.reactors)
    }

    /// Gateways and the processors that they take, in words.
    fn gateways_text(&self) -> String {
        format!(
            "{} gateways of {} reactors, {} processors for these",
            self.gateways,
            self.reactors,
            grouped(self.processors())
        )
    }
}

impl MeasuredCurve {
    /// The rate within a mean latency: as it is crossed, or the highest where every point is quicker; none where no point is.
    #[must_use]
    pub fn best_within(&self, seconds: f64) -> Option<f64> {
        let is_quick = self.readings.iter().all(|of| of.seconds() <= seconds);
        (self.rate_within(seconds)).or_else(|| is_quick.then(|| self.peak()))
    }

    fn source_text(&self) -> &'static str {
        match self.source {
            Source::Published => "measured (published)",
            Source::Given => "measured (as given)",
            Source::Modelled => "measured on a modelled drive",
            _ => "measured",
        }
    }
}

/// Measured curves, the slowest first, each with its rate within the latency; none of what was measured on other links than those that
/// are planned, of which it says nothing.
pub(super) struct Measured<'a> {
    all: Vec<(&'a MeasuredCurve, Option<f64>)>,
    seconds: f64,
    /// Bytes a second of the links that are planned, where that is said.
    link: Option<u64>,
}

impl<'a> Measured<'a> {
    pub(super) fn new(curves: &'a [MeasuredCurve], seconds: f64, link: Option<u64>) -> Self {
        let fits = |of: &MeasuredCurve| link.is_none() || of.configuration.link == link;
        let rate = |of: &MeasuredCurve| fits(of).then(|| of.best_within(seconds)).flatten();
        let mut all: Vec<_> = curves.iter().map(|of| (of, rate(of))).collect();
        all.sort_by(|one, other| {
            let rate = |of: &(&MeasuredCurve, Option<f64>)| of.1.unwrap_or(0.0);
            rate(one).total_cmp(&rate(other))
        });
        Measured { all, seconds, link }
    }

    /// Those that have a rate.
    fn offered(&self) -> impl DoubleEndedIterator<Item = (&'a MeasuredCurve, f64)> {
        self.all.iter().filter_map(|of| Some((of.0, of.1?)))
    }

    /// Configurations of so many nodes that were measured.
    pub(super) fn of_nodes(&self, nodes: u32) -> impl Iterator<Item = Configuration> {
        let all = self.offered().map(|(of, _)| of.configuration);
        all.filter(move |of| of.nodes == nodes)
    }

    /// Rate of this very configuration within the latency.
    pub(super) fn rate(&self, of: &Configuration) -> Option<f64> {
        let found = (self.offered().rev()).find(|(curve, _)| curve.configuration == *of);
        found.map(|(_, rate)| rate)
    }

    /// The fewest nodes, then processors, that were measured to do so much.
    pub(super) fn smallest(&self, wanted: f64) -> Option<(&'a MeasuredCurve, f64)> {
        let enough = self.offered().filter(|(_, rate)| *rate >= wanted);
        enough.min_by_key(|of| {
            let has = of.0.configuration;
            (has.nodes, has.osds, has.processors())
        })
    }

    /// One configuration in a sentence: what it does, of what it is made and what limits it.
    fn text(&self, curve: &MeasuredCurve, rate: f64, limits: &str) -> String {
        let of = curve.configuration;
        format!(
            "{} nodes{}: {}, {} at {}; {} OSDs, {}; {limits}",
            of.nodes,
            size_text(curve),
            curve.source_text(),
            thousands(rate),
            latency(self.seconds * 1e9),
            grouped(u64::from(of.osds)),
            of.gateways_text(),
        )
    }

    /// The answer to a rate that is wanted, where something measured does it.
    pub(super) fn answer(
        &self,
        wanted: f64,
        limits: &dyn Fn(&Configuration) -> String,
    ) -> Option<String> {
        let (curve, rate) = self.smallest(wanted)?;
        let above = format!(
            "{} above the {} that are wanted",
            percent_text(rate / wanted - 1.0),
            thousands(wanted)
        );
        let limits = format!("{above}; {}", limits(&curve.configuration));
        let mut text = self.text(curve, rate, &limits);
        if let Some((next, rate)) = self.offered().find(|of| of.1 > rate) {
            text += &format!(
                ". The next that was measured: {} nodes{}, {}",
                next.configuration.nodes,
                size_text(next),
                thousands(rate)
            );
        }
        Some(text + ".")
    }

    /// Says that nothing measured does so much, and how much the most is.
    pub(super) fn none_does(&self, wanted: f64) -> String {
        let at = latency(self.seconds * 1e9);
        let wanted = thousands(wanted);
        match self.offered().last() {
            Some((most, rate)) => format!(
                "Nothing that was measured does {wanted} at {at}: the most is {}, of {} nodes{}.",
                thousands(rate),
                most.configuration.nodes,
                size_text(most)
            ),
            None if self.link.is_some() => "Nothing was measured with such links.".to_owned(),
            None => format!("Nothing that was measured answers within {at}."),
        }
    }

    /// All of it, in a sentence.
    pub(super) fn summary(&self) -> String {
        let each = self.all.iter().map(|(curve, rate)| {
            let does = rate.map_or_else(|| "nothing".to_owned(), thousands);
            format!("{}{} {does}", curve.name, size_text(curve))
        });
        format!(
            "Measured at {}: {}.",
            latency(self.seconds * 1e9),
            each.collect::<Vec<_>>().join(", ")
        )
    }

    /// All of it, beside each other.
    pub(super) fn section(&self, wanted: Option<f64>) -> Section {
        type Figure<'a> = &'a dyn Fn(&MeasuredCurve) -> Cell;
        let each = |name: &str, label: &str, unit: &str, cell: Figure<'_>| {
            let cells = self.all.iter().map(|(of, _)| cell(of));
            Row::new(name, label, unit, cells.collect())
        };
        let count = |of: u64, source| Cell::count(of, source);
        let mut rows = Vec::new();
        if self.all.iter().any(|(of, _)| of.size.is_some()) {
            rows.push(each("size", "Size", "", &|of| {
                Cell::word(of.size.clone().unwrap_or("-".to_owned()), of.source)
            }));
        }
        rows.push(each("nodes", "Nodes", "", &|of| {
            count(of.configuration.nodes.into(), of.source)
        }));
        rows.push(each("osds", "OSDs", "", &|of| {
            count(of.configuration.osds.into(), of.source)
        }));
        rows.push(each("gateways", "Gateways", "", &|of| {
            count(of.configuration.gateways.into(), of.source)
        }));
        rows.push(each("reactors", "Reactors of each", "", &|of| {
            count(of.configuration.reactors.into(), of.source)
        }));
        rows.push(each("bdevs", "bdevs_per_cluster", "", &|of| {
            count(of.configuration.bdevs_per_cluster.into(), of.source)
        }));
        rows.push(
            each("processors", "Processors for reactors", "", &|of| {
                count(of.configuration.processors(), Source::Derived)
            })
            .how("gateways times reactors: a reactor is a thread; OSDs and librbd take more, which no curve says"),
        );
        let within = self.all.iter().map(|(of, rate)| {
            rate.map_or_else(
                || Cell::word("none", of.source),
                |rate| Cell::new(rate, format!("{} IOPS", thousands(rate)), Source::Derived),
            )
        });
        rows.push(
            Row::new(
                "within",
                format!("Rate at {}", latency(self.seconds * 1e9)),
                "requests/s",
                within.collect(),
            )
            .how(match self.link {
                None => "read between two measured points",
                Some(_) => "read between two measured points; none where the links were others than those that are planned",
            }),
        );
        rows.push(each("peak", "Highest rate", "requests/s", &|of| {
            let peak = of.peak();
            Cell::new(peak, format!("{} IOPS", thousands(peak)), of.source)
        }));
        if let Some(wanted) = wanted {
            let enough = self.all.iter().map(|(_, rate)| {
                let is_enough = *rate >= Some(wanted);
                let word = if is_enough { "yes" } else { "no" };
                Cell::new(f64::from(u8::from(is_enough)), word, Source::Derived)
            });
            let label = format!("Does {}", thousands(wanted));
            rows.push(Row::new("enough", label, "", enough.collect()));
        }
        Section {
            name: "measured".to_owned(),
            title: "What was measured".to_owned(),
            words: String::new(),
            columns: self.all.iter().map(|(of, _)| of.name.clone()).collect(),
            rows,
        }
    }
}

fn size_text(of: &MeasuredCurve) -> String {
    (of.size.as_ref()).map_or_else(String::new, |size| format!(" ({size})"))
}

/// `677k`; what is less than a thousand to the last one.
fn thousands(rate: f64) -> String {
    if rate < 1e3 {
        return format!("{rate:.0}");
    }
    format!("{}k", grouped((rate / 1e3).round() as u64))
}
