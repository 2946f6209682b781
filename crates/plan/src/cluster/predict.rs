//! What the fitted network says: of the curves, of configurations that nobody measured, of what binds, and of what to measure next.

use super::fit::{self, Fit, FitError, bootstrap, variance_after};
use super::{Configuration, MeasuredCurve, Parameter, Premises, Values, network};
use crate::scalability;
use crate::sheet::{Cell, Chart, Quantity, Row, Section, Series, Sheet, Source};
use crate::units::percent_text;

/// Numbers in flight of a drawn curve.
const DRAWN_POINTS: u32 = 40;
/// An explanation with an error at most this much larger than the best one's is told as another one.
const ALSO_LIKELY: f64 = 1.3;
/// Spare of a large design, as a part.
const LARGE_SPARE: f64 = 0.3;
/// Interval of the bootstrap: from this part of the samples to all but this part.
const TAIL: f64 = 0.025;
/// How many times beyond what was measured something may be for a prediction.
const BEYOND_MAX: f64 = 2.0;
/// What is correlated by more than this (logarithms, either sign) is held to change together.
const TOGETHER: f64 = 0.95;
/// Numbers that a suggested design may have.
const NODES_MAX: u32 = 48;
const GATEWAYS_MAX: u32 = 16;

/// What to plan.
#[derive(Debug, Clone)]
pub struct Request {
    /// What was measured.
    pub curves: Vec<MeasuredCurve>,
    /// What is taken to be so.
    pub premises: Premises,
    /// Mean seconds that a request may take.
    pub latency: f64,
    /// Configurations to predict.
    pub targets: Vec<Configuration>,
    /// Requests a second to find designs for.
    pub wanted: Option<f64>,
    /// Names of curves that are left out of the fit and held against it.
    pub held_out: Vec<String>,
    /// Whether each curve is left out in turn as well.
    pub leave_out: bool,
    /// Samples of the bootstrap.
    pub samples: u32,
    /// What their randomness starts from.
    pub seed: u64,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// There is no fit.
    #[error(transparent)]
    Fit(#[from] FitError),
    /// There is no such curve.
    #[error("there is no curve '{name}' to hold out; there are {there}")]
    NoCurve {
        /// The name.
        name: String,
        /// Those there are.
        there: String,
    },
    /// A number is out of its range.
    #[error("{what}")]
    Range {
        /// What is wrong.
        what: &'static str,
    },
}

/// Something that configurations differ in: its name, its value, and the parameter that it bears on.
type Dimension = (&'static str, fn(&Configuration) -> f64, Parameter);

/// What is predicted from: parameters, and what is taken to be so with them.
#[derive(Clone, Copy)]
struct View<'a> {
    values: &'a Values,
    premises: &'a Premises,
}

/// Another explanation of the curves: without a station, or with a premise that nobody measured or published taken otherwise.
struct Explanation {
    /// The same in every plan.
    name: String,
    /// In words.
    words: String,
    premises: Premises,
    fit: Fit,
}

impl Explanation {
    fn view(&self) -> View<'_> {
        View {
            values: &self.fit.values,
            premises: &self.premises,
        }
    }
}

/// The premises with each that is merely assumed taken otherwise.
fn other_premises(of: &Premises) -> Vec<(&'static str, String, Premises)> {
    let mut others = Vec::new();
    if of.sources.colocated == Source::Assumed {
        let colocated = !of.colocated;
        let words = match colocated {
            true => "with gateways on OSD nodes",
            false => "with gateways on nodes of their own",
        };
        let premises = Premises { colocated, ..*of };
        others.push(("colocated", words.to_owned(), premises));
    }
    if of.sources.replicas == Source::Assumed {
        let replicas = if of.replicas > 2.0 {
            of.replicas - 1.0
        } else {
            of.replicas + 1.0
        };
        let words = format!("with {} replicas", weir_report::words::trimmed(replicas, 0));
        others.push(("replicas", words, Premises { replicas, ..*of }));
    }
    if of.sources.read_part == Source::Assumed {
        let read_part = 1.0 - of.read_part;
        let words = format!("with {} of the requests reading", percent_text(read_part));
        others.push(("reads", words, Premises { read_part, ..*of }));
    }
    if of.sources.volumes == Source::Assumed {
        let volumes = of.volumes * 2.0;
        let words = format!("with {} volumes", weir_report::words::trimmed(volumes, 0));
        others.push(("volumes", words, Premises { volumes, ..*of }));
    }
    others
}

/// A fit with what may be made of it.
struct Known<'a> {
    fit: Fit,
    /// Other explanations that are nearly as good or better.
    others: Vec<Explanation>,
    samples: Vec<Values>,
    curves: &'a [MeasuredCurve],
    premises: &'a Premises,
    in_flight_max: f64,
    latency: f64,
}

/// The plan.
///
/// # Errors
/// [`ClusterError`].
pub fn plan(request: &Request) -> Result<Sheet, ClusterError> {
    if !(request.latency > 0.0 && request.latency.is_finite()) {
        return Err(ClusterError::Range {
            what: "the latency is above 0",
        });
    }
    let there = || {
        let names = request.curves.iter().map(|of| of.name.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    if let Some(name) =
        (request.held_out.iter()).find(|name| request.curves.iter().all(|of| of.name != **name))
    {
        return Err(ClusterError::NoCurve {
            name: name.clone(),
            there: there(),
        });
    }
    let (held, curves): (Vec<MeasuredCurve>, Vec<MeasuredCurve>) =
        (request.curves.iter().cloned()).partition(|curve| request.held_out.contains(&curve.name));
    fit::check(&request.curves)?;
    let known = Known::new(request, &curves)?;
    let mut sheet = Sheet::new("cluster", "A cluster of gateways");
    sheet.sections.push(known.fit_section());
    sheet.sections.push(known.curves_section());
    sheet.sections.extend(known.law_section());
    let all: Vec<(String, Configuration)> = curves
        .iter()
        .chain(&held)
        .map(|of| (of.name.clone(), of.configuration))
        .chain(request.targets.iter().map(|of| (of.text(), *of)))
        .collect();
    sheet.sections.push(known.binding_section(&all));
    if !held.is_empty() {
        sheet.sections.push(known.held_section(
            "held-out",
            "Curves that the fit has not seen",
            &held,
        ));
    }
    if !request.targets.is_empty() {
        sheet
            .sections
            .push(known.target_section(&request.targets, request.wanted));
        sheet.sections.push(known.failure_section(&request.targets));
    }
    // What is asked for comes first, then what is held against the fit.
    let mut skipped: Vec<String> = Vec::new();
    let aims = (request.targets.iter().copied()).chain(held.iter().map(|of| of.configuration));
    for aim in aims {
        match known.next_section(&aim) {
            Ok(mut section) => {
                section.words.push_str(&skipped.join(""));
                sheet.sections.push(section);
                skipped.clear();
                break;
            }
            Err(why) => skipped.push(format!(" Not for {}: {why}.", aim.text())),
        }
    }
    if !skipped.is_empty() {
        sheet.caveats.push(format!(
            "What to measure next is not said.{}",
            skipped.join("")
        ));
    }
    if let Some(wanted) = request.wanted {
        sheet.sections.push(known.sizes_section(wanted));
    }
    if request.leave_out {
        sheet.sections.push(left_out_section(request));
    }
    sheet
        .charts
        .push(known.chart(&curves, &held, &request.targets));
    sheet.answer = known.answer(&request.targets, &held);
    sheet.caveats.extend(known.caveats());
    Ok(sheet)
}

fn iops(value: f64, source: Source) -> Cell {
    Cell::new(value, format!("{} IOPS", rounded(value)), source)
}

/// To three digits, with commas.
fn rounded(value: f64) -> String {
    if !(value > 0.0 && value.is_finite()) {
        return "0".to_owned();
    }
    let unit = 10f64.powi((value.log10().floor() as i32 - 2).max(0));
    weir_report::words::grouped(((value / unit).round() * unit) as u64)
}

fn part(value: f64, source: Source) -> Cell {
    Cell::new(value, format!("{:+.1}%", value * 100.0), source)
}

impl<'a> Known<'a> {
    fn new(request: &'a Request, curves: &'a [MeasuredCurve]) -> Result<Self, ClusterError> {
        let premises = &request.premises;
        let found = fit::fit(curves, premises, &[])?;
        let stations = found
            .found
            .iter()
            .map(|(parameter, _)| *parameter)
            .filter(|of| !matches!(of, Parameter::Delay | Parameter::HostQueues));
        let without = stations.map(|station| {
            let words = format!("without '{}'", station.words());
            let name = format!("without-{}", station.name());
            (name, words, *premises, vec![station])
        });
        let otherwise = other_premises(premises)
            .into_iter()
            .map(|(name, words, premises)| (format!("other-{name}"), words, premises, Vec::new()));
        let others = without
            .chain(otherwise)
            .filter_map(|(name, words, premises, without)| {
                let fit = fit::fit(curves, &premises, &without).ok()?;
                (fit.error <= ALSO_LIKELY * found.error).then_some(Explanation {
                    name,
                    words,
                    premises,
                    fit,
                })
            })
            // A premise that bears on nothing that the curves show explains nothing otherwise.
            .filter(|other| {
                other.fit.values != found.values
                    || other.premises.storage_work() != premises.storage_work()
            })
            .collect();
        let samples = bootstrap(curves, premises, request.samples, request.seed);
        Ok(Known {
            fit: found,
            others,
            samples,
            curves,
            premises,
            in_flight_max: curves
                .iter()
                .map(MeasuredCurve::in_flight_max)
                .fold(1.0, f64::max),
            latency: request.latency,
        })
    }

    fn view(&self) -> View<'_> {
        View {
            values: &self.fit.values,
            premises: self.premises,
        }
    }

    fn peak(&self, view: View<'_>, of: &Configuration, in_flight: f64) -> f64 {
        network(view.values, of, view.premises).rate(in_flight)
    }

    /// 0 where a single request takes longer than it may.
    fn within(&self, view: View<'_>, of: &Configuration, in_flight: f64) -> f64 {
        let network = network(view.values, of, view.premises);
        network.rate_within(self.latency, in_flight).unwrap_or(0.0)
    }

    /// The lowest and the highest of what samples of the bootstrap say, but for [`TAIL`] on either side, and of what each other explanation says; none without
    /// samples.
    fn bounds(&self, quantity: &dyn Fn(View<'_>) -> f64) -> Option<(f64, f64)> {
        let mut drawn: Vec<f64> = (self.samples.iter())
            .map(|values| {
                quantity(View {
                    values,
                    premises: self.premises,
                })
            })
            .collect();
        drawn.sort_by(f64::total_cmp);
        if drawn.is_empty() {
            return None;
        }
        let at = |part: f64| drawn[((drawn.len() - 1) as f64 * part).round() as usize];
        let value = quantity(self.view());
        let others = self.others.iter().map(|other| quantity(other.view()));
        let all = others.chain([value, at(TAIL), at(1.0 - TAIL)]);
        Some(all.fold((f64::INFINITY, 0.0), |(low, high), of| {
            (low.min(of), high.max(of))
        }))
    }

    /// A figure with its interval.
    fn interval(&self, quantity: impl Fn(View<'_>) -> f64) -> Cell {
        let value = quantity(self.view());
        let Some((low, high)) = self.bounds(&quantity) else {
            return iops(value, Source::Fitted);
        };
        let text = format!(
            "{} IOPS, {} to {}",
            rounded(value),
            rounded(low),
            rounded(high)
        );
        Cell::new(value, text, Source::Fitted).within(low, high)
    }

    /// The rate within the latency with its interval; in words where a single request takes longer, and where requests in flight limit it and not the latency.
    fn interval_within(&self, of: &Configuration, in_flight: f64) -> Cell {
        let network = network(&self.fit.values, of, self.premises);
        let alone = network.latency(1.0);
        if alone > self.latency {
            return Cell::word(
                format!(
                    "none: a single request takes {} alone",
                    weir_report::words::latency(alone * 1e9)
                ),
                Source::Fitted,
            );
        }
        let mut cell = self.interval(|view| self.within(view, of, in_flight));
        if network.latency(in_flight) < self.latency {
            cell.text += &format!(
                "; limited by {} in flight, not by the latency: measure deeper",
                weir_report::words::grouped(in_flight as u64)
            );
        }
        cell
    }

    /// Whether what was measured lies in the interval of what was predicted.
    fn inside(&self, measured: Option<f64>, quantity: &dyn Fn(View<'_>) -> f64) -> Cell {
        match (measured, self.bounds(quantity)) {
            (Some(measured), Some((low, high))) => {
                let inside = low <= measured && measured <= high;
                let word = if inside { "yes" } else { "no" };
                Cell::new(f64::from(u8::from(inside)), word, Source::Derived)
            }
            _ => Cell::word("-", Source::Derived),
        }
    }

    /// Why nothing can be said of a configuration; none where something can.
    fn refusal(&self, of: &Configuration) -> Option<String> {
        let dimensions: [Dimension; 5] = [
            ("gateways", |of| f64::from(of.gateways), Parameter::Host),
            ("reactors", |of| f64::from(of.reactors), Parameter::Reactor),
            (
                "bdevs_per_cluster",
                |of| f64::from(of.bdevs_per_cluster),
                Parameter::Context,
            ),
            ("nodes", |of| f64::from(of.nodes), Parameter::Host),
            (
                "OSDs of a node",
                |of| f64::from(of.osds) / f64::from(of.nodes),
                Parameter::Storage,
            ),
        ];
        let number = |value: f64| weir_report::words::trimmed(value, 2);
        let measured = || self.curves.iter().map(|curve| &curve.configuration);
        for (name, value, station) in dimensions {
            let wanted = value(of);
            if measured().any(|has| value(has) == wanted) {
                continue;
            }
            let least = measured().map(value).fold(f64::INFINITY, f64::min);
            let most = measured().map(value).fold(0.0, f64::max);
            if least == most {
                return Some(format!("no curve has other {name} than {}", number(least)));
            }
            if wanted > most * BEYOND_MAX || wanted < least / BEYOND_MAX {
                return Some(format!(
                    "{name} of {} are more than {BEYOND_MAX} times beyond the {} to {} that were measured",
                    number(wanted),
                    number(least),
                    number(most)
                ));
            }
            // Above all that was measured, a station that never showed will not bind; below it may.
            let found = self
                .fit
                .found
                .iter()
                .any(|(parameter, _)| *parameter == station);
            if !found && wanted < least && station != Parameter::Context {
                return Some(format!(
                    "the curves do not show what {name} cost, and none has as few as {}",
                    number(wanted)
                ));
            }
        }
        // What changes together in all curves is known together alone.
        for (at, (name, value, _)) in dimensions.iter().enumerate() {
            for (other_name, other, _) in &dimensions[at + 1..] {
                let pair = |of: &Configuration| (value(of), other(of));
                let logarithms = |of: fn(&Configuration) -> f64| {
                    measured().map(|of2| of(of2).ln()).collect::<Vec<_>>()
                };
                let together = correlation(&logarithms(*value), &logarithms(*other))
                    .is_some_and(|of| of.abs() > TOGETHER);
                // Both moved on along what was measured would be one step, but not which of them did what.
                if together && !measured().any(|has| pair(has) == pair(of)) {
                    return Some(format!(
                        "{name} and {other_name} change together in the curves, and none has {} with {}",
                        number(value(of)),
                        number(other(of))
                    ));
                }
            }
        }
        None
    }

    fn fit_section(&self) -> Section {
        let mut rows: Vec<Row> = Parameter::ALL
            .into_iter()
            .map(|parameter| {
                let value = self.fit.values.get(parameter);
                let found = self.fit.found.iter().find(|(of, _)| *of == parameter);
                let (unit, shown) = match parameter {
                    Parameter::HostQueues => ("", weir_report::words::trimmed(value, 1)),
                    _ => ("seconds", weir_report::words::latency(value * 1e9)),
                };
                let cell = match found {
                    Some((_, deviation)) => {
                        let text =
                            format!("{shown}, within {}", percent_text(deviation.exp() - 1.0));
                        Cell::new(value, text, Source::Fitted)
                            .within(value * (-deviation).exp(), value * deviation.exp())
                    }
                    None if parameter == Parameter::HostQueues
                        && self.fit.values.get(Parameter::Host) > 0.0 =>
                    {
                        Cell::new(value, shown, Source::Assumed)
                    }
                    None => Cell::word("not shown by the curves", Source::Fitted),
                };
                Row::new(parameter.name(), parameter.words(), unit, vec![cell])
            })
            .collect();
        let derived = |name: &str, label: &str, value: f64, text: String| {
            Row::new(
                name,
                label,
                "",
                vec![Cell::new(value, text, Source::Derived)],
            )
        };
        rows.push(derived(
            "error",
            "Error of the fit",
            self.fit.error,
            percent_text(self.fit.error),
        ));
        rows.push(derived(
            "readings",
            "Readings",
            self.fit.readings as f64,
            self.fit.readings.to_string(),
        ));
        rows.push(derived("condition", "Condition", self.fit.condition, format!("{:.0}", self.fit.condition)).how(
            "largest eigenvalue of the normal matrix of the parameters' logarithms by its smallest; without a limit where the readings do not show them all",
        ));
        let premises = self.premises;
        let sources = premises.sources;
        let premise = |name: &str, label: &str, value: f64, text: String, source: Source| {
            Row::new(name, label, "", vec![Cell::new(value, text, source)])
        };
        let number = |value: f64| weir_report::words::trimmed(value, 2);
        let colocated = if premises.colocated {
            "gateways on OSD nodes"
        } else {
            "gateways on nodes of their own"
        };
        rows.push(premise(
            "colocated",
            "Where gateways run",
            f64::from(u8::from(premises.colocated)),
            colocated.to_owned(),
            sources.colocated,
        ));
        rows.push(premise(
            "replicas",
            "Replicas",
            premises.replicas,
            number(premises.replicas),
            sources.replicas,
        ));
        rows.push(premise(
            "reads",
            "Requests that read",
            premises.read_part,
            percent_text(premises.read_part),
            sources.read_part,
        ));
        rows.push(premise(
            "volumes",
            "Volumes",
            premises.volumes,
            number(premises.volumes),
            sources.volumes,
        ));
        rows.push(
            derived("storage-work", "What OSD nodes send for a request", premises.storage_work(), number(premises.storage_work()))
                .how("reads once, writes to all replicas but the first; a gateway sends each request once"),
        );
        Section {
            name: "fit".to_owned(),
            title: "What the curves show".to_owned(),
            words: format!(
                "Least squares on the logarithms of the rates of {} points; a parameter less sure than a factor of {:.1} (one standard deviation) is dropped.",
                self.fit.readings,
                fit::DEVIATION_MAX.exp()
            ),
            columns: vec![String::new()],
            rows,
        }
    }

    fn curves_section(&self) -> Section {
        let each = |name: &str, label: &str, unit: &str, cell: &dyn Fn(&MeasuredCurve) -> Cell| {
            Row::new(name, label, unit, self.curves.iter().map(cell).collect())
        };
        let peak =
            |of: &MeasuredCurve| self.peak(self.view(), &of.configuration, of.in_flight_max());
        let within =
            |of: &MeasuredCurve| self.within(self.view(), &of.configuration, of.in_flight_max());
        Section {
            name: "curves".to_owned(),
            title: "The curves it was fitted to".to_owned(),
            words: String::new(),
            columns: self.curves.iter().map(|of| of.name.clone()).collect(),
            rows: vec![
                each("peak", "Highest rate", "requests/s", &|of| {
                    iops(of.peak(), of.source)
                }),
                each("peak-fitted", "Fitted", "requests/s", &|of| {
                    iops(peak(of), Source::Fitted)
                }),
                each("peak-error", "Off by", "fraction", &|of| {
                    part(peak(of) / of.peak() - 1.0, Source::Derived)
                }),
                each("within", &self.within_label(), "requests/s", &|of| {
                    self.measured_within(of)
                }),
                each("within-fitted", "Fitted", "requests/s", &|of| {
                    iops(within(of), Source::Fitted)
                }),
                each("within-error", "Off by", "fraction", &|of| {
                    off(within(of), of.rate_within(self.latency))
                }),
            ],
        }
    }

    fn within_label(&self) -> String {
        format!(
            "Rate at {}",
            weir_report::words::latency(self.latency * 1e9)
        )
    }

    fn measured_within(&self, of: &MeasuredCurve) -> Cell {
        of.rate_within(self.latency).map_or_else(
            || Cell::word("not crossed", of.source),
            |rate| iops(rate, of.source),
        )
    }

    /// The scalability law of the peaks by nodes, where there are two numbers of nodes: of each the best peak.
    fn law_section(&self) -> Option<Section> {
        let mut counts: Vec<u32> = self
            .curves
            .iter()
            .map(|of| of.configuration.nodes)
            .collect();
        counts.sort_unstable();
        counts.dedup();
        let least = f64::from(*counts.first()?);
        let peaks: Vec<scalability::Peak> = counts
            .iter()
            .map(|&nodes| {
                let of = self
                    .curves
                    .iter()
                    .filter(|of| of.configuration.nodes == nodes);
                (
                    f64::from(nodes) / least,
                    of.map(MeasuredCurve::peak).fold(0.0, f64::max),
                )
            })
            .collect();
        let title = "Peaks alone, by the universal scalability law".to_owned();
        let law = match scalability::fit(&peaks) {
            Ok(law) if law.freedom > 0 => law,
            refused => {
                let why = match refused {
                    Ok(_) => "it would only pass through these peaks; measure curves with more numbers of nodes".to_owned(),
                    Err(error) => error.to_string(),
                };
                return Some(Section {
                    name: "law".to_owned(),
                    title,
                    words: String::new(),
                    columns: vec![String::new()],
                    rows: vec![Row::new(
                        "refused",
                        "Refused",
                        "",
                        vec![Cell::word(why, Source::Derived)],
                    )],
                });
            }
        };
        let one = |name: &str, label: &str, value: f64, text: String| {
            Row::new(
                name,
                label,
                "",
                vec![Cell::new(value, text, Source::Fitted)],
            )
        };
        let mut rows = vec![
            one(
                "contention",
                "Contention",
                law.contention,
                weir_report::words::trimmed(law.contention, 4),
            ),
            match law.with_coherency {
                true => one(
                    "coherency",
                    "Coherency",
                    law.coherency,
                    weir_report::words::trimmed(law.coherency, 5),
                ),
                false => Row::new(
                    "coherency",
                    "Coherency",
                    "",
                    vec![Cell::word(
                        "not shown by fewer than four counts; taken as 0",
                        Source::Assumed,
                    )],
                ),
            },
            one(
                "freedom",
                "Points to spare",
                law.freedom as f64,
                law.freedom.to_string(),
            ),
        ];
        for more in 1..=2u32 {
            let nodes = counts.last()? + more * counts.first()?;
            let rate = law.at(f64::from(nodes) / least);
            rows.push(Row::new(
                format!("nodes-{nodes}"),
                format!("Peak of {nodes} nodes"),
                "requests/s",
                vec![iops(rate, Source::Fitted)],
            ));
        }
        if let Some(best) = law.best() {
            let nodes = best * least;
            rows.push(one(
                "best",
                "Nodes beyond which more do less",
                nodes,
                weir_report::words::trimmed(nodes, 1),
            ));
        }
        Some(Section {
            name: "law".to_owned(),
            title,
            words: format!(
                "Of the best peak at {} nodes; it knows no reactors, bdevs or latency, and stands here to be compared with.",
                counts
                    .iter()
                    .map(u32::to_string)
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
            columns: vec![String::new()],
            rows,
        })
    }

    fn binding_section(&self, all: &[(String, Configuration)]) -> Section {
        let each = |name: &str, label: &str, unit: &str, cell: &dyn Fn(&Configuration) -> Cell| {
            Row::new(
                name,
                label,
                unit,
                all.iter().map(|(_, of)| cell(of)).collect(),
            )
        };
        let ordered = |of: &Configuration| {
            let mut stations = network(&self.fit.values, of, self.premises).stations;
            stations.sort_by(|one, other| one.capacity().total_cmp(&other.capacity()));
            stations
        };
        Section {
            name: "binding".to_owned(),
            title: "What binds".to_owned(),
            words: "The station with the lowest capacity binds; the next one binds when that is relieved.".to_owned(),
            columns: all.iter().map(|(name, _)| name.clone()).collect(),
            rows: vec![
                each("binds", "Binds", "", &|of| ordered(of).first().map_or_else(
                    || Cell::word("nothing", Source::Fitted), |of| Cell::word(of.name, Source::Fitted))),
                each("capacity", "Its capacity", "requests/s", &|of| ordered(of).first().map_or_else(
                    || Cell::word("-", Source::Fitted), |of| iops(of.capacity(), Source::Fitted))),
                each("next", "Next", "", &|of| ordered(of).get(1).map_or_else(
                    || Cell::word("nothing known", Source::Fitted), |of| Cell::word(of.name, Source::Fitted))),
                each("next-capacity", "Its capacity", "requests/s", &|of| ordered(of).get(1).map_or_else(
                    || Cell::word("-", Source::Fitted), |of| iops(of.capacity(), Source::Fitted))),
                each("how-far", "How much further that is", "fraction", &|of| match ordered(of).as_slice() {
                    [first, second, ..] => part(second.capacity() / first.capacity() - 1.0, Source::Derived),
                    _ => Cell::word("-", Source::Derived),
                }),
            ],
        }
    }

    fn held_section(&self, name: &str, title: &str, held: &[MeasuredCurve]) -> Section {
        let each = |name: &str, label: &str, unit: &str, cell: &dyn Fn(&MeasuredCurve) -> Cell| {
            Row::new(name, label, unit, held.iter().map(cell).collect())
        };
        let peak = |view: View<'_>, of: &MeasuredCurve| {
            self.peak(view, &of.configuration, of.in_flight_max())
        };
        let within = |view: View<'_>, of: &MeasuredCurve| {
            self.within(view, &of.configuration, of.in_flight_max())
        };
        let mut section = Section {
            name: name.to_owned(),
            title: title.to_owned(),
            words: String::new(),
            columns: held.iter().map(|of| of.name.clone()).collect(),
            rows: vec![
                each("peak", "Highest rate", "requests/s", &|of| {
                    iops(of.peak(), of.source)
                }),
                each("peak-predicted", "Predicted", "requests/s", &|of| {
                    self.interval(|view| peak(view, of))
                }),
                each("peak-error", "Off by", "fraction", &|of| {
                    part(peak(self.view(), of) / of.peak() - 1.0, Source::Derived)
                }),
                each("peak-inside", "Measured lies inside", "", &|of| {
                    self.inside(Some(of.peak()), &|view| peak(view, of))
                }),
                each("within", &self.within_label(), "requests/s", &|of| {
                    self.measured_within(of)
                }),
                each("within-predicted", "Predicted", "requests/s", &|of| {
                    self.interval_within(&of.configuration, of.in_flight_max())
                }),
                each("within-error", "Off by", "fraction", &|of| {
                    off(within(self.view(), of), of.rate_within(self.latency))
                }),
                each("within-inside", "Measured lies inside", "", &|of| {
                    self.inside(of.rate_within(self.latency), &|view| within(view, of))
                }),
                each("refused", "Would be refused as a target", "", &|of| {
                    Cell::word(
                        self.refusal(&of.configuration)
                            .unwrap_or_else(|| "no".to_owned()),
                        Source::Derived,
                    )
                }),
            ],
        };
        if !name.is_empty() {
            for other in &self.others {
                let how = self.how_likely(other);
                let row = each(
                    &format!("peak-{}", other.name),
                    &format!("Highest rate off by, {}", other.words),
                    "fraction",
                    &|of| part(peak(other.view(), of) / of.peak() - 1.0, Source::Derived),
                );
                section.rows.push(row.how(how.clone()));
                let row = each(
                    &format!("within-{}", other.name),
                    &format!("{} off by, {}", self.within_label(), other.words),
                    "fraction",
                    &|of| off(within(other.view(), of), of.rate_within(self.latency)),
                );
                section.rows.push(row.how(how));
            }
        }
        section
    }

    fn how_likely(&self, other: &Explanation) -> String {
        format!(
            "this explanation fits nearly as well or better: {} off against {}",
            percent_text(other.fit.error),
            percent_text(self.fit.error)
        )
    }

    fn target_section(&self, targets: &[Configuration], wanted: Option<f64>) -> Section {
        let each = |name: &str, label: &str, unit: &str, cell: &dyn Fn(&Configuration) -> Cell| {
            let cells = targets.iter().map(|of| match self.refusal(of) {
                Some(why) => Cell::word(format!("refused: {why}"), Source::Derived),
                None => cell(of),
            });
            Row::new(name, label, unit, cells.collect())
        };
        let most = self.in_flight_max;
        let mut rows = vec![
            each("within", &self.within_label(), "requests/s", &|of| {
                self.interval_within(of, most)
            }),
            each("peak", "Highest rate", "requests/s", &|of| {
                self.interval(|view| self.peak(view, of, most))
            })
            .how(format!(
                "with {} requests in flight, the most that was measured",
                weir_report::words::grouped(most as u64)
            )),
        ];
        if let Some(wanted) = wanted {
            rows.push(each("headroom", "Headroom", "fraction", &|of| {
                let rate = self.within(self.view(), of, most);
                part(rate / wanted - 1.0, Source::Derived)
            }));
        }
        for other in &self.others {
            let how = self.how_likely(other);
            let row = each(
                &format!("within-{}", other.name),
                &format!("{}, {}", self.within_label(), other.words),
                "requests/s",
                &|of| iops(self.within(other.view(), of, most), Source::Fitted),
            );
            rows.push(row.how(how.clone()));
            let row = each(
                &format!("peak-{}", other.name),
                &format!("Highest rate, {}", other.words),
                "requests/s",
                &|of| iops(self.peak(other.view(), of, most), Source::Fitted),
            );
            rows.push(row.how(how));
        }
        Section {
            name: "targets".to_owned(),
            title: "What nobody measured".to_owned(),
            words: "Intervals hold 95 of 100 samples of the bootstrap (what other points of the same curves would give, were the model right) and what each other explanation says.".to_owned(),
            columns: targets.iter().map(Configuration::text).collect(),
            rows,
        }
    }

    fn failure_section(&self, targets: &[Configuration]) -> Section {
        let each =
            |name: &str, label: &str, lost: &dyn Fn(&Configuration) -> Option<Configuration>| {
                let cells = targets.iter().map(|of| match (self.refusal(of), lost(of)) {
                    (Some(_), _) => Cell::word("refused", Source::Derived),
                    (None, None) => Cell::word("none left", Source::Derived),
                    (None, Some(of)) => match self.refusal(&of) {
                        Some(why) => Cell::word(format!("refused: {why}"), Source::Derived),
                        None => self.interval_within(&of, self.in_flight_max),
                    },
                });
                Row::new(name, label, "requests/s", cells.collect())
            };
        Section {
            name: "failures".to_owned(),
            title: format!("{} with less", self.within_label()),
            words: "A node that is lost takes its OSDs with it, and its gateway where gateways run on OSD nodes.".to_owned(),
            columns: targets.iter().map(Configuration::text).collect(),
            rows: vec![
                each("gateway", "One gateway fewer", &without_gateway),
                each("node", "One node fewer", &|of| without_node(of, self.premises.colocated)),
            ],
        }
    }

    /// The measurement after which the aim would be known best, of those that the hardware of the curves allows.
    fn next_section(&self, aim: &Configuration) -> Result<Section, String> {
        if let Some(why) = self.refusal(aim) {
            return Err(format!("{why}, which is what to measure"));
        }
        if self.within(self.view(), aim, self.in_flight_max) == 0.0 {
            return Err("no rate is within the latency".to_owned());
        }
        let unknown = || "the deviation of the answer cannot be computed".to_owned();
        let quantity = |values: &Values| {
            let view = View {
                values,
                premises: self.premises,
            };
            self.within(view, aim, self.in_flight_max).max(1.0)
        };
        let now = variance_after(&self.fit, self.premises, None, &quantity)
            .ok_or_else(unknown)?
            .sqrt();
        let in_flight: Vec<f64> = std::iter::successors(Some(32.0f64), |of| Some(of * 2.0))
            .take_while(|of| *of <= self.in_flight_max)
            .collect();
        let mut candidates: Vec<(Configuration, f64, f64)> = Vec::new();
        for has in self.curves {
            for reactors in [
                has.configuration.reactors,
                has.configuration.reactors.saturating_mul(2),
                4,
                16,
            ] {
                for bdevs_per_cluster in [has.configuration.bdevs_per_cluster, 1, 32] {
                    let of = Configuration {
                        reactors,
                        bdevs_per_cluster,
                        ..has.configuration
                    };
                    if candidates.iter().any(|(seen, _, _)| *seen == of) {
                        continue;
                    }
                    let after = variance_after(
                        &self.fit,
                        self.premises,
                        Some((&of, &in_flight)),
                        &quantity,
                    )
                    .ok_or_else(unknown)?
                    .sqrt();
                    let apart = self.others.iter().map(|other| {
                        let rate = |view: View<'_>| self.peak(view, &of, self.in_flight_max);
                        (rate(other.view()) / rate(self.view())).ln().abs()
                    });
                    candidates.push((of, after, apart.fold(0.0, f64::max)));
                }
            }
        }
        let narrowest = candidates
            .iter()
            .min_by(|one, other| one.1.total_cmp(&other.1))
            .ok_or_else(unknown)?;
        let separating = candidates
            .iter()
            .max_by(|one, other| one.2.total_cmp(&other.2))
            .ok_or_else(unknown)?;
        // What the explanations differ by at the aim, beside what each leaves open.
        let open = self.others.iter().map(|other| {
            (self.within(other.view(), aim, self.in_flight_max).max(1.0)
                / quantity(&self.fit.values))
            .ln()
            .abs()
        });
        let open = open.fold(0.0, f64::max);
        let (chosen, why) = if open > 2.0 * now && separating.2 > 0.0 {
            (
                separating,
                "it tells explanations apart that fit nearly as well and differ more at the aim than the interval is wide",
            )
        } else {
            (narrowest, "after it the interval is the narrowest")
        };
        let word = |name: &str, label: &str, text: String| {
            Row::new(name, label, "", vec![Cell::word(text, Source::Derived)])
        };
        let figure = |name: &str, label: &str, value: f64| {
            Row::new(
                name,
                label,
                "fraction",
                vec![Cell::new(value, percent_text(value), Source::Derived)],
            )
        };
        Ok(Section {
            name: "next".to_owned(),
            title: "What to measure next".to_owned(),
            words: format!(
                "Of {} curves that the same hardware allows (other reactors and bdevs on the nodes that were measured), for {} of {}.",
                candidates.len(),
                self.within_label().to_lowercase(),
                aim.text()
            ),
            columns: vec![String::new()],
            rows: vec![
                word("measure", "Measure", chosen.0.text()).how(why),
                figure("deviation-now", "Standard deviation now", now),
                figure("deviation-after", "After that curve", chosen.1),
                figure("apart", "Explanations differ there by", chosen.2),
                figure("open", "Explanations differ at the aim by", open),
            ],
        })
    }

    /// Designs for a rate: S keeps it with everything up, M with one node lost, L as M with room to grow.
    fn sizes_section(&self, wanted: f64) -> Section {
        let base = (self.curves.iter().max_by_key(|of| of.configuration.nodes))
            .map(|of| of.configuration)
            .expect("a fit has curves");
        let osds = base.osds / base.nodes;
        let most = self.in_flight_max;
        // The least that is likely, and not the middle; none of what is refused.
        let keeps = |of: &Configuration| -> Result<f64, String> {
            match self.refusal(of) {
                Some(why) => Err(format!("{why}; measure a curve of {}", of.text())),
                None => {
                    let within = |view: View<'_>| self.within(view, of, most);
                    Ok(self
                        .bounds(&within)
                        .map_or_else(|| within(self.view()), |of| of.0))
                }
            }
        };
        let lost = |of: &Configuration| -> Result<f64, String> {
            keeps(of)?;
            let node =
                without_node(of, self.premises.colocated).map_or(Ok(0.0), |of| keeps(&of))?;
            let gateway = without_gateway(of).map_or(Ok(0.0), |of| keeps(&of))?;
            Ok(node.min(gateway))
        };
        let mut kinds: Vec<(u32, u32)> = (self.curves.iter())
            .map(|of| {
                (
                    of.configuration.reactors,
                    of.configuration.bdevs_per_cluster,
                )
            })
            .collect();
        kinds.sort_unstable();
        kinds.dedup();
        let least_nodes = self
            .curves
            .iter()
            .map(|of| of.configuration.nodes)
            .min()
            .unwrap_or(1);
        let smallest = |wanted: f64, rate: &dyn Fn(&Configuration) -> Result<f64, String>| {
            let mut why = None;
            let mut any = false;
            for nodes in least_nodes..=NODES_MAX {
                for gateways in 1..=GATEWAYS_MAX.min(nodes) {
                    for &(reactors, bdevs_per_cluster) in &kinds {
                        let of = Configuration {
                            gateways,
                            reactors,
                            nodes,
                            osds: osds.saturating_mul(nodes),
                            bdevs_per_cluster,
                        };
                        match rate(&of) {
                            Ok(rate) if rate >= wanted => return Ok(of),
                            Ok(_) => any = true,
                            // Of all refusals the one of a design that itself may be planned says most.
                            Err(error) if why.is_none() && self.refusal(&of).is_none() => {
                                why = Some(error);
                            }
                            Err(_) => {}
                        }
                    }
                }
            }
            Err(match why {
                Some(why) if !any => format!("refused: {why}"),
                _ => "none of the designs that the curves allow a word of".to_owned(),
            })
        };
        let designs = [
            ("S", smallest(wanted, &keeps)),
            ("M", smallest(wanted, &lost)),
            ("L", smallest(wanted * (1.0 + LARGE_SPARE), &lost)),
        ];
        let each = |name: &str, label: &str, unit: &str, cell: &dyn Fn(&Configuration) -> Cell| {
            let cells = designs.iter().map(|(_, of)| {
                of.as_ref()
                    .map_or_else(|why| Cell::word(why.clone(), Source::Derived), cell)
            });
            Row::new(name, label, unit, cells.collect())
        };
        let count = |value: u32| Cell::count(u64::from(value), Source::Derived);
        Section {
            name: "sizes".to_owned(),
            title: format!(
                "For {} at {}",
                iops(wanted, Source::Given).text,
                weir_report::words::latency(self.latency * 1e9)
            ),
            words: format!(
                "The fewest nodes, then gateways, then reactors, by the lower end of the interval. S: with everything up. M: with one node or gateway lost. L: as M, with {} to grow. {osds} OSDs in a node as in the largest curve; reactors and bdevs_per_cluster as curves have them together. What is refused as a target is no design.",
                percent_text(LARGE_SPARE),
            ),
            columns: designs.iter().map(|(name, _)| (*name).to_owned()).collect(),
            rows: vec![
                each("nodes", "Nodes", "", &|of| count(of.nodes)),
                each("osds", "OSDs", "", &|of| count(of.osds)),
                each("gateways", "Gateways", "", &|of| count(of.gateways)),
                each("reactors", "Reactors of each", "", &|of| count(of.reactors)),
                each("bdevs", "bdevs_per_cluster", "", &|of| {
                    count(of.bdevs_per_cluster)
                }),
                each("within", &self.within_label(), "requests/s", &|of| {
                    self.interval_within(of, most)
                }),
                each("headroom", "Headroom of the lower end", "fraction", &|of| {
                    keeps(of).map_or_else(
                        |why| Cell::word(why, Source::Derived),
                        |rate| part(rate / wanted - 1.0, Source::Derived),
                    )
                }),
                each(
                    "lost",
                    "With one node or gateway lost",
                    "requests/s",
                    &|of| {
                        lost(of).map_or_else(
                            |why| Cell::word(format!("refused: {why}"), Source::Derived),
                            |rate| iops(rate, Source::Fitted),
                        )
                    },
                ),
                each("measured-range", "Within what was measured", "", &|of| {
                    let nodes_most = self
                        .curves
                        .iter()
                        .map(|of| of.configuration.nodes)
                        .max()
                        .unwrap_or(0);
                    let gateways = self
                        .curves
                        .iter()
                        .any(|has| has.configuration.gateways == of.gateways);
                    Cell::word(
                        match (of.nodes <= nodes_most, gateways) {
                            (true, true) => "yes",
                            (false, true) => "no: more nodes",
                            (true, false) => "no: another number of gateways",
                            (false, false) => "no: more nodes, and another number of gateways",
                        },
                        Source::Derived,
                    )
                }),
            ],
        }
    }

    fn chart(
        &self,
        curves: &[MeasuredCurve],
        held: &[MeasuredCurve],
        targets: &[Configuration],
    ) -> Chart {
        let mut series = Vec::new();
        let line = |name: String, of: &Configuration, from: f64| {
            let network = network(&self.fit.values, of, self.premises);
            let step = (self.in_flight_max / from).powf(1.0 / f64::from(DRAWN_POINTS));
            let points = (0..=DRAWN_POINTS).map(|at| {
                let in_flight = from * step.powi(at as i32);
                [network.rate(in_flight), network.latency(in_flight) * 1e9]
            });
            Series {
                name,
                source: Source::Fitted,
                points: points.collect(),
            }
        };
        for curve in curves.iter().chain(held) {
            series.push(Series {
                name: curve.name.clone(),
                source: curve.source,
                points: curve
                    .readings
                    .iter()
                    .map(|of| [of.rate, of.latency.unwrap_or(of.in_flight / of.rate) * 1e9])
                    .collect(),
            });
            let said = if held.iter().any(|of| of.name == curve.name) {
                "predicted"
            } else {
                "fitted"
            };
            series.push(line(
                format!("{}, {said}", curve.name),
                &curve.configuration,
                curve.readings[0].in_flight,
            ));
        }
        for of in targets.iter().filter(|of| self.refusal(of).is_none()) {
            series.push(line(of.text(), of, 32f64.min(self.in_flight_max)));
        }
        Chart {
            title: "Mean latency against requests a second".to_owned(),
            x: Quantity::RequestsPerSecond,
            y: Quantity::LatencyNanoseconds,
            series,
        }
    }

    fn answer(&self, targets: &[Configuration], held: &[MeasuredCurve]) -> String {
        let mut said: Vec<String> = held
            .iter()
            .map(|of| {
                let peak = self.peak(self.view(), &of.configuration, of.in_flight_max());
                format!(
                    "{}: a peak of {} predicted, {} measured ({:+.1}%).",
                    of.name,
                    rounded(peak),
                    rounded(of.peak()),
                    (peak / of.peak() - 1.0) * 100.0
                )
            })
            .collect();
        said.extend(targets.iter().map(|of| match self.refusal(of) {
            Some(why) => format!("{}: refused, {why}.", of.text()),
            None => {
                let binds = network(&self.fit.values, of, self.premises)
                    .stations
                    .into_iter()
                    .min_by(|one, other| one.capacity().total_cmp(&other.capacity()))
                    .map_or("nothing", |of| of.name);
                format!(
                    "{}: {} at {}; {binds} bind.",
                    of.text(),
                    self.interval_within(of, self.in_flight_max).text,
                    weir_report::words::latency(self.latency * 1e9)
                )
            }
        }));
        said.join(" ")
    }

    fn caveats(&self) -> Vec<String> {
        let mut caveats = vec![
            "Intervals are of the points and of the other explanations that are named; what the model leaves out is in none of them: see how curves that were left out come out.".to_owned(),
        ];
        let logarithms = |of: fn(&Configuration) -> u32| -> Vec<f64> {
            self.curves
                .iter()
                .map(|curve| f64::from(of(&curve.configuration)).ln())
                .collect()
        };
        let together = correlation(
            &logarithms(|of| of.reactors),
            &logarithms(|of| of.bdevs_per_cluster),
        );
        if together.is_some_and(|of| of.abs() > TOGETHER) {
            caveats.push(
                "reactors and bdevs_per_cluster change together in these curves, so that they do not show which of them did what; the fit gives it to what fits better.".to_owned(),
            );
        }
        let ratio = |of: &MeasuredCurve| {
            f64::from(of.configuration.osds) / f64::from(of.configuration.nodes)
        };
        let first = self.curves.first().map(ratio);
        if self.curves.iter().all(|of| Some(ratio(of)) == first) {
            caveats.push("every curve has as many OSDs in a node: whether storage goes by OSDs or by nodes is not shown.".to_owned());
        }
        for other in &self.others {
            caveats.push(format!("{}: {}", other.words, self.how_likely(other)));
        }
        caveats
    }
}

fn off(predicted: f64, measured: Option<f64>) -> Cell {
    measured.map_or_else(
        || Cell::word("-", Source::Derived),
        |measured| part(predicted / measured - 1.0, Source::Derived),
    )
}

fn correlation(one: &[f64], other: &[f64]) -> Option<f64> {
    let count = one.len() as f64;
    let mean = |of: &[f64]| of.iter().sum::<f64>() / count;
    let (first, second) = (mean(one), mean(other));
    let (mut both, mut squares, mut others) = (0.0, 0.0, 0.0);
    for (a, b) in one.iter().zip(other) {
        both += (a - first) * (b - second);
        squares += (a - first).powi(2);
        others += (b - second).powi(2);
    }
    (squares > 0.0 && others > 0.0).then(|| both / (squares * others).sqrt())
}

fn without_gateway(of: &Configuration) -> Option<Configuration> {
    (of.gateways > 1).then(|| Configuration {
        gateways: of.gateways - 1,
        ..*of
    })
}

fn without_node(of: &Configuration, colocated: bool) -> Option<Configuration> {
    if of.nodes < 2 || (colocated && of.gateways < 2) {
        return None;
    }
    Some(Configuration {
        nodes: of.nodes - 1,
        osds: of.osds - of.osds / of.nodes,
        gateways: of.gateways - u32::from(colocated),
        ..*of
    })
}

/// Each curve predicted from the others, good or bad.
fn left_out_section(request: &Request) -> Section {
    let names = [
        "peak",
        "peak-predicted",
        "peak-error",
        "peak-inside",
        "within",
        "within-predicted",
        "within-error",
        "within-inside",
        "refused",
    ];
    let mut rows: Vec<Row> = Vec::new();
    for out in &request.curves {
        let rest: Vec<MeasuredCurve> = request
            .curves
            .iter()
            .filter(|of| of.name != out.name)
            .cloned()
            .collect();
        // The fit alone is asked for: intervals of each would cost as much again.
        let alone = Request {
            samples: 0,
            ..request.clone()
        };
        match Known::new(&alone, &rest) {
            Ok(known) => {
                let section = known.held_section("", "", std::slice::from_ref(out));
                if rows.is_empty() {
                    rows = section
                        .rows
                        .iter()
                        .map(|row| Row {
                            cells: Vec::new(),
                            ..row.clone()
                        })
                        .collect();
                }
                for (row, with) in rows.iter_mut().zip(section.rows) {
                    row.cells.extend(with.cells);
                }
            }
            Err(error) => {
                if rows.is_empty() {
                    rows = names
                        .iter()
                        .map(|name| Row::new(*name, *name, "", Vec::new()))
                        .collect();
                }
                for row in &mut rows {
                    row.cells
                        .push(Cell::word(format!("{error}"), Source::Derived));
                }
            }
        }
    }
    Section {
        name: "left-out".to_owned(),
        title: "Each curve predicted from the others".to_owned(),
        words: "The same model, fitted to all curves but one, against that one.".to_owned(),
        columns: request.curves.iter().map(|of| of.name.clone()).collect(),
        rows,
    }
}
