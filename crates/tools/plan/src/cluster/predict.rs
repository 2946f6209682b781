//! What the fitted network says: of the curves, of configurations that nobody measured, of what binds, and of what to measure next.

use super::fit::{self, Draw, Fit, FitError, Fits, draws, variance_after};
use super::measured::Measured;
use super::{Configuration, MeasuredCurve, Parameter, Premises, Values, links, network};
use crate::network::Station;
use crate::scalability;
use crate::sheet::{Cell, Chart, Quantity, Row, Section, Series, Sheet, Source};
use crate::units::{bit_rate_text, percent_text};

/// Numbers in flight of a drawn curve.
const DRAWN_POINTS: u32 = 40;
/// An explanation with an error at most this much larger than the best one's is told as another one.
const ALSO_LIKELY: f64 = 1.3;
/// Spare of a large design, as a part.
const LARGE_SPARE: f64 = 0.3;
/// An interval is from this part of the draws to all but this part.
const TAIL: f64 = 0.025;
/// Draws from which there is one on either side of the interval.
const SAMPLES_MIN: u32 = 40;
/// What is known of how far curves lie from the model, before any was left out: that it is as far as the readings lie from it, as if so many curves had shown it.
const CURVES_BEFORE: u32 = 2;
/// Times the errors of the readings.
const APART_BEFORE: f64 = 1.5;
/// Residuals of neighbouring points that go together by more than this many deviations of what chance does are no noise.
const TOGETHER_DEVIATIONS: f64 = 2.0;
/// How many times beyond what was measured something may be for a prediction.
const BEYOND_MAX: f64 = 2.0;
/// What is correlated by more than this (logarithms, either sign) is held to change together.
const TOGETHER: f64 = 0.95;
/// How many times what its links carry a curve may have: what is read off a chart is a little off.
const LINK_BEYOND_MAX: f64 = 1.03;
/// Nodes with OSDs that differ by less than this part have as many: one that is missing of many makes no other kind of node.
const DENSITY_SAME: f64 = 0.05;
/// The same where it is one of all: nodes that are few have no whole number of OSDs nearer than that.
const DENSITY_OF_ONE: f64 = 0.125;
/// Numbers that a suggested design may have.
const NODES_MAX: u32 = 48;
const GATEWAYS_MAX: u32 = 16;

/// Sections of the model's own figures, which a buyer does not need.
pub const INNER_SECTIONS: [&str; 5] = ["fit", "forms", "curves", "law", "binding"];

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
    /// Bytes a second that each machine's link carries each way in these designs, and where that is from; in configurations to predict it is a part of these.
    pub link: Option<(u64, Source)>,
    /// Names of curves that are left out of the fit and held against it.
    pub held_out: Vec<String>,
    /// Whether each curve is left out in turn as well.
    pub leave_out: bool,
    /// Draws that intervals are from: none, or 40 at least, of which one lies on either side.
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
    /// Links are said, and not how long requests are.
    #[error(
        "what a link carries hangs on how long requests are, which no curve says: give --request-bytes"
    )]
    NoLength,
    /// A curve has more than links carry.
    #[error(
        "curve '{curve}': with {rate:.0} requests a second of {bytes:.0} bytes a host's link carries {moved} one way, and it was measured with links of {link}: say those it had (--measured-link, or link= of --curve), or where gateways run and how many replicas there were (--separate-gateways, --replicas)"
    )]
    Link {
        /// The curve.
        curve: String,
        /// Its peak.
        rate: f64,
        /// Bytes of a request.
        bytes: f64,
        /// What that takes, in words.
        moved: String,
        /// What there is, in words.
        link: String,
    },
    /// A number is out of its range.
    #[error("{what}")]
    Range {
        /// What is wrong.
        what: &'static str,
    },
}

/// Something that configurations differ in: its name, its value, and the parameter that it bears on.
type Dimension<'a> = (&'static str, &'a dyn Fn(&Configuration) -> f64, Parameter);

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

/// A design for a rate, or why there is none.
struct Design {
    name: &'static str,
    of: Result<Configuration, String>,
}

/// Fits with what may be made of them.
struct Known<'a> {
    fits: Fits,
    /// Other explanations that are nearly as good or better.
    others: Vec<Explanation>,
    draws: Vec<Option<Draw>>,
    /// How far a curve lies from the model, as a part: one deviation.
    apart: f64,
    /// Curves that were left out for that, of which something could be said.
    left_out: u32,
    curves: &'a [MeasuredCurve],
    premises: &'a Premises,
    in_flight_max: f64,
    latency: f64,
    link: Option<(u64, Source)>,
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
    if (1..SAMPLES_MIN).contains(&request.samples) {
        return Err(ClusterError::Range {
            what: "an interval takes 40 samples or more (--samples; 0: no intervals)",
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
    check_links(request)?;
    let known = Known::new(request, &curves)?;
    let measured = Measured::new(&curves, request.latency, request.link.map(|(link, _)| link));
    let designs = (request.wanted).map(|wanted| known.designs(wanted, &measured));
    let mut sheet = Sheet::new("cluster", "A cluster of gateways");
    sheet.sections.push(measured.section(request.wanted));
    sheet.sections.push(known.fit_section());
    sheet.sections.push(known.forms_section());
    sheet.sections.push(known.curves_section());
    sheet.sections.extend(known.law_section());
    let all: Vec<(String, Configuration)> = curves
        .iter()
        .chain(&held)
        .map(|of| (of.name.clone(), of.configuration))
        .chain(request.targets.iter().map(|of| (of.text(), *of)))
        .collect();
    sheet.sections.push(known.binding_section(&all));
    sheet
        .sections
        .extend(known.links_section(&curves, &held, &request.targets));
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
        sheet
            .sections
            .push(known.failure_section(&request.targets, request.wanted));
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
    if let (Some(wanted), Some(designs)) = (request.wanted, &designs) {
        let section = known.sizes_section(wanted, designs, &measured);
        sheet.sections.push(section);
    }
    if request.leave_out {
        sheet.sections.push(left_out_section(request));
    }
    sheet
        .charts
        .push(known.chart(&curves, &held, &request.targets));
    let first = match (request.wanted, &designs) {
        (Some(wanted), Some(designs)) => known.wanted_answer(wanted, &designs[0].of, &measured),
        _ => measured.summary(),
    };
    let rest = known.answer(&request.targets, &held);
    sheet.answer = format!("{first} {rest}").trim_end().to_owned();
    sheet.caveats.extend(known.caveats(&request.targets));
    let of_curves = request.curves.iter().flat_map(MeasuredCurve::caveats);
    sheet.caveats.extend(of_curves);
    Ok(sheet)
}

/// That how long requests are is known where links are, and that no curve has more than its links carry: no model could fit it.
fn check_links(request: &Request) -> Result<(), ClusterError> {
    let measured = request.curves.iter().map(|of| of.configuration.link);
    let planned = request.targets.iter().map(|of| of.link);
    let designs = request.link.map(|(link, _)| link);
    let mut all = measured.chain(planned).chain([designs]);
    let Some(bytes) = request.premises.request_bytes else {
        return match all.any(|of| of.is_some()) {
            true => Err(ClusterError::NoLength),
            false => Ok(()),
        };
    };
    if all.any(|of| of == Some(0)) || !(bytes > 0.0 && bytes.is_finite()) {
        return Err(ClusterError::Range {
            what: "what a link carries and the bytes of a request are above 0",
        });
    }
    for curve in &request.curves {
        let (rate, of) = (curve.peak(), &curve.configuration);
        let capacity = links::capacity(of, &request.premises);
        if let Some(link) = of.link.map(|of| of as f64)
            && rate > capacity * LINK_BEYOND_MAX
        {
            return Err(ClusterError::Link {
                curve: curve.name.clone(),
                rate,
                bytes,
                moved: bit_rate_text(link * rate / capacity),
                link: bit_rate_text(link),
            });
        }
    }
    Ok(())
}

/// Stations with the one that binds first; of links that a machine has the direction that does.
fn by_capacity(mut stations: Vec<Station>) -> Vec<Station> {
    stations.sort_by(|one, other| one.capacity().total_cmp(&other.capacity()));
    let mut seen = Vec::new();
    stations.retain(|of| {
        let is_new = !seen.contains(&of.name);
        seen.push(of.name);
        is_new
    });
    stations
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
        let fits = fit::fits(curves, premises, None)?;
        let best = fits.best();
        let without = best.form.stations.iter().filter_map(|&station| {
            Some(Explanation {
                name: format!("without-{}", station.name()),
                words: format!("without '{}'", station.words()),
                premises: *premises,
                fit: fits.without(station)?.clone(),
            })
        });
        let otherwise =
            other_premises(premises)
                .into_iter()
                .filter_map(|(name, words, premises)| {
                    let found = fit::fits(curves, &premises, Some(&fits)).ok()?;
                    Some(Explanation {
                        name: format!("other-{name}"),
                        words,
                        premises,
                        fit: found.best().clone(),
                    })
                });
        let others: Vec<Explanation> = without
            .chain(otherwise)
            .filter(|other| other.fit.error <= ALSO_LIKELY * best.error)
            // A premise that bears on nothing that the curves show explains nothing otherwise.
            .filter(|other| {
                other.fit.values != best.values
                    || other.premises.storage_work() != premises.storage_work()
            })
            .collect();
        let mut known = Known {
            others,
            draws: Vec::new(),
            apart: 0.0,
            left_out: 0,
            curves,
            premises,
            in_flight_max: curves
                .iter()
                .map(MeasuredCurve::in_flight_max)
                .fold(1.0, f64::max),
            latency: request.latency,
            link: request.link,
            fits,
        };
        if request.samples > 0 {
            known.learn_apart();
            let freedom = CURVES_BEFORE + known.left_out;
            known.draws = draws(
                &known.fits,
                premises,
                request.samples,
                freedom,
                request.seed,
            );
        }
        Ok(known)
    }

    /// How far a curve lies from the model: each is left out in turn, and counts where the others allow a word of it.
    fn learn_apart(&mut self) {
        let before = (APART_BEFORE * self.fits.best().deviation()).powi(2);
        let mut squares = f64::from(CURVES_BEFORE) * before;
        for out in self.curves {
            let rest: Vec<MeasuredCurve> = (self.curves.iter())
                .filter(|of| of.name != out.name)
                .cloned()
                .collect();
            let Ok(fits) = fit::fits(&rest, self.premises, Some(&self.fits)) else {
                continue;
            };
            let without = Known {
                fits,
                others: Vec::new(),
                draws: Vec::new(),
                apart: 0.0,
                left_out: 0,
                curves: &rest,
                premises: self.premises,
                in_flight_max: self.in_flight_max,
                latency: self.latency,
                link: self.link,
            };
            if without.refusal(&out.configuration).is_some() {
                continue;
            }
            let deep = out.in_flight_max();
            let peak = without.mean(&|view| without.peak(view, &out.configuration, deep));
            let within = without.mean(&|view| without.within(view, &out.configuration, deep));
            let errors = [
                Some(peak / out.peak()),
                out.rate_within(self.latency).map(|of| within / of),
            ];
            let errors = errors.into_iter().flatten().filter(|of| *of > 0.0);
            squares += errors.map(|of| of.ln().powi(2)).fold(0.0, f64::max);
            self.left_out += 1;
        }
        self.apart = (squares / f64::from(CURVES_BEFORE + self.left_out)).sqrt();
    }

    /// The likeliest form's.
    fn view(&self) -> View<'_> {
        View {
            values: &self.fits.best().values,
            premises: self.premises,
        }
    }

    /// What the forms say together: the geometric mean by their weights; 0 where the likeliest says so.
    fn mean(&self, quantity: &dyn Fn(View<'_>) -> f64) -> f64 {
        if quantity(self.view()) <= 0.0 {
            return 0.0;
        }
        let (mut sum, mut weights) = (0.0, 0.0);
        for of in self.fits.weighed() {
            let value = quantity(View {
                values: &of.values,
                premises: self.premises,
            });
            if value > 0.0 {
                sum += of.weight * value.ln();
                weights += of.weight;
            }
        }
        (sum / weights).exp()
    }

    fn peak(&self, view: View<'_>, of: &Configuration, in_flight: f64) -> f64 {
        network(view.values, of, view.premises).rate(in_flight)
    }

    /// 0 where a single request takes longer than it may.
    fn within(&self, view: View<'_>, of: &Configuration, in_flight: f64) -> f64 {
        let network = network(view.values, of, view.premises);
        network.rate_within(self.latency, in_flight).unwrap_or(0.0)
    }

    /// Draws of which something can be made.
    fn usable(&self) -> usize {
        self.draws.iter().flatten().count()
    }

    /// The lowest and the highest of what draws say, but for [`TAIL`] on either side, and of what each other explanation says; none without draws.
    fn bounds(&self, of: &Configuration, quantity: &dyn Fn(View<'_>) -> f64) -> Option<(f64, f64)> {
        if self.usable() < SAMPLES_MIN as usize {
            return None;
        }
        // What links carry is known: no curve of its own has more.
        let most = links::capacity(of, self.premises);
        let mut drawn: Vec<f64> = (self.draws.iter().flatten())
            .map(|draw| {
                let said = quantity(View {
                    values: &draw.values,
                    premises: self.premises,
                });
                (said * (self.apart * draw.apart).exp()).min(most)
            })
            .collect();
        drawn.sort_by(f64::total_cmp);
        let at = |part: f64| drawn[((drawn.len() - 1) as f64 * part).round() as usize];
        let value = self.mean(quantity);
        let others = self.others.iter().map(|other| quantity(other.view()));
        let all = others.chain([value, at(TAIL), at(1.0 - TAIL)]);
        Some(all.fold((f64::INFINITY, 0.0), |(low, high), of| {
            (low.min(of), high.max(of))
        }))
    }

    /// A figure with its interval.
    fn interval(&self, of: &Configuration, quantity: impl Fn(View<'_>) -> f64) -> Cell {
        let value = self.mean(&quantity);
        let Some((low, high)) = self.bounds(of, &quantity) else {
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
        let network = network(self.view().values, of, self.premises);
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
        let mut cell = self.interval(of, |view| self.within(view, of, in_flight));
        if network.latency(in_flight) < self.latency {
            cell.text += &format!(
                "; limited by {} in flight, not by the latency: measure deeper",
                weir_report::words::grouped(in_flight as u64)
            );
        }
        cell
    }

    /// The least rate within the latency that is likely; the middle without draws.
    fn lower_within(&self, of: &Configuration) -> f64 {
        let within = |view: View<'_>| self.within(view, of, self.in_flight_max);
        let bounds = self.bounds(of, &within);
        bounds.map_or_else(|| self.mean(&within), |of| of.0)
    }

    /// Whether what was measured lies in the interval of what was predicted.
    fn inside(
        &self,
        of: &Configuration,
        measured: Option<f64>,
        quantity: &dyn Fn(View<'_>) -> f64,
    ) -> Cell {
        match (measured, self.bounds(of, quantity)) {
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
        let number = |value: f64| weir_report::words::trimmed(value, 2);
        let measured = || self.curves.iter().map(|curve| &curve.configuration);
        // Of what is the same as in a curve, what the first such curve has.
        let like = |of: &Configuration| measured().find(|has| is_as_dense(of, density(has)));
        let osds_of_a_node = |of: &Configuration| {
            let exactly = measured().find(|has| density(has) == density(of));
            // It is of the kind that the curve is of that is like it, which others may be like as well.
            let curve = exactly.or_else(|| like(of));
            curve.and_then(like).map_or(density(of), density)
        };
        let dimensions: [Dimension<'_>; 5] = [
            ("gateways", &|of| f64::from(of.gateways), Parameter::Host),
            ("reactors", &|of| f64::from(of.reactors), Parameter::Reactor),
            (
                "bdevs_per_cluster",
                &|of| f64::from(of.bdevs_per_cluster),
                Parameter::Context,
            ),
            ("nodes", &|of| f64::from(of.nodes), Parameter::Host),
            ("OSDs of a node", &osds_of_a_node, Parameter::Storage),
        ];
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
            let found = self.fits.weight_of(station) > 0.0;
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
                let logarithms = |of: &dyn Fn(&Configuration) -> f64| {
                    measured().map(|has| of(has).ln()).collect::<Vec<_>>()
                };
                let together = correlation(&logarithms(value), &logarithms(other))
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
        let best = self.fits.best();
        let mut rows: Vec<Row> = Parameter::ALL
            .into_iter()
            .map(|parameter| {
                let value = best.values.get(parameter);
                let found = best.found.iter().find(|(of, _)| *of == parameter);
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
                    None => Cell::word(self.why_not(parameter), Source::Fitted),
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
            best.error,
            percent_text(best.error),
        ));
        rows.push(derived(
            "readings",
            "Readings",
            best.readings as f64,
            best.readings.to_string(),
        ));
        rows.push(derived("condition", "Condition", best.condition, format!("{:.0}", best.condition)).how(
            "largest eigenvalue of the normal matrix of the parameters' logarithms by its smallest; without a limit where the readings do not show them all",
        ));
        rows.push(self.lack_of_fit());
        if !self.draws.is_empty() {
            rows.push(
                derived("apart", "A curve's own deviation", self.apart, percent_text(self.apart)).how(format!(
                    "of the {} curves left out in turn of which the others allow a word, and of the readings' own error as if {CURVES_BEFORE} curves had shown it; part of every interval",
                    self.left_out
                )),
            );
            rows.push(derived(
                "draws",
                "Draws that intervals are from",
                self.usable() as f64,
                format!("{} of {}", self.usable(), self.draws.len()),
            ));
        }
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
        if let Some(bytes) = premises.request_bytes {
            rows.push(
                premise(
                    "request-bytes",
                    "A request's length",
                    bytes,
                    format!("{} bytes", weir_report::words::trimmed(bytes, 1)),
                    sources.request_bytes,
                )
                .how("in the mean; links alone hang on it"),
            );
        }
        rows.push(
            derived("storage-work", "What OSD nodes send for a request", premises.storage_work(), number(premises.storage_work()))
                .how("reads once, writes to all replicas but the first; a gateway sends each request once"),
        );
        Section {
            name: "fit".to_owned(),
            title: "What the curves show".to_owned(),
            words: format!(
                "Least squares on the logarithms of the rates of {} points: of the form that is likeliest. A form with a parameter less sure than a factor of {:.1} (one standard deviation) is none; where that is the delay alone, the form has none.",
                best.readings,
                fit::DEVIATION_MAX.exp()
            ),
            columns: vec![String::new()],
            rows,
        }
    }

    /// Why the likeliest form has no such parameter.
    fn why_not(&self, parameter: Parameter) -> String {
        let has = |of: &fit::Form| of.parameters().contains(&parameter);
        let weight: f64 = (self.fits.weighed())
            .filter(|of| has(&of.form))
            .map(|of| of.weight)
            .sum();
        if weight > 0.0 {
            return format!(
                "not in the likeliest form; in others, {} together",
                percent_text(weight)
            );
        }
        // What every form has at first was tried.
        if parameter == Parameter::Delay {
            return "none: not shown by the curves".to_owned();
        }
        if !self.fits.tried.iter().any(|of| has(&of.form)) {
            return "not tried: too few points".to_owned();
        }
        "not shown by the curves".to_owned()
    }

    /// Whether the errors of neighbouring points go together, which those of readings do not.
    fn lack_of_fit(&self) -> Row {
        let residuals = &self.fits.best().residuals;
        let (mut products, mut pairs, mut at) = (0.0, 0usize, 0);
        for curve in self.curves {
            let of = &residuals[at..at + curve.readings.len()];
            products += of.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>();
            pairs += of.len() - 1;
            at += of.len();
        }
        let square = residuals.iter().map(|of| of * of).sum::<f64>() / residuals.len() as f64;
        let cell = if pairs == 0 || square == 0.0 {
            Cell::word("-", Source::Derived)
        } else {
            let together = products / pairs as f64 / square;
            let text = if together * (pairs as f64).sqrt() > TOGETHER_DEVIATIONS {
                "yes: the model misses something"
            } else {
                "none shown"
            };
            let text = format!("{text} (correlation {together:+.2})");
            Cell::new(together, text, Source::Derived)
        };
        Row::new("lack-of-fit", "Errors of neighbouring points go together", "", vec![cell]).how(format!(
            "the correlation of the errors of neighbouring points of a curve, held against {TOGETHER_DEVIATIONS} deviations of what chance does"
        ))
    }

    /// The forms that are averaged, and how many were tried.
    fn forms_section(&self) -> Section {
        let weighed: Vec<&Fit> = self.fits.weighed().collect();
        let least = self.fits.best().criterion;
        let rows = weighed.iter().enumerate().map(|(at, of)| {
            let above = of.criterion - least;
            Row::new(
                format!("form-{}", at + 1),
                of.form.text(),
                "",
                vec![
                    Cell::new(of.weight, percent_text(of.weight), Source::Derived),
                    Cell::new(of.error, percent_text(of.error), Source::Derived),
                    Cell::new(above, format!("{above:+.1}"), Source::Derived),
                ],
            )
        });
        let shown = self.fits.tried.iter().filter(|of| of.shown).count();
        let without_delay = (self.fits.tried.iter())
            .filter(|of| of.shown && !of.form.delay)
            .count();
        Section {
            name: "forms".to_owned(),
            title: "Which forms of the model are likely".to_owned(),
            words: format!(
                "{} forms were tried, {} of them have all their parameters shown by the curves{}, and {} have a weight of {} or more by Akaike's criterion (AICc): what is predicted is their geometric mean. {} were not tried for want of points.",
                self.fits.tried.len(),
                shown,
                match without_delay {
                    0 => String::new(),
                    some => format!(" ({some} without a delay, which is not shown)"),
                },
                weighed.len(),
                percent_text(fit::WEIGHT_MIN),
                match self.fits.not_tried.len() {
                    0 => "None".to_owned(),
                    some => some.to_string(),
                },
            ) + &self.also_likely(),
            columns: ["weight", "error", "AICc above the least"]
                .map(str::to_owned)
                .to_vec(),
            rows: rows.collect(),
        }
    }

    /// Other explanations that fit nearly as well, each as a sentence.
    fn also_likely(&self) -> String {
        let others = self.others.iter();
        let sentence =
            |other: &Explanation| format!(" {}: {}.", other.words, self.how_likely(other));
        others.map(sentence).collect()
    }

    fn curves_section(&self) -> Section {
        let each = |name: &str, label: &str, unit: &str, cell: &dyn Fn(&MeasuredCurve) -> Cell| {
            Row::new(name, label, unit, self.curves.iter().map(cell).collect())
        };
        let peak = |of: &MeasuredCurve| {
            self.mean(&|view| self.peak(view, &of.configuration, of.in_flight_max()))
        };
        let within = |of: &MeasuredCurve| {
            self.mean(&|view| self.within(view, &of.configuration, of.in_flight_max()))
        };
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
            // Read between two points.
            |rate| iops(rate, Source::Derived),
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
            by_capacity(network(self.view().values, of, self.premises).stations)
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

    /// What each machine sends and receives: none where it is not known how long requests are.
    fn links_section(
        &self,
        curves: &[MeasuredCurve],
        held: &[MeasuredCurve],
        targets: &[Configuration],
    ) -> Option<Section> {
        let bytes = self.premises.request_bytes?;
        let measured = curves.iter().chain(held).map(|of| {
            let source = Source::Given;
            (of.name.clone(), of.configuration, Some(of.peak()), source)
        });
        let planned = targets.iter().map(|of| {
            let peak = || self.mean(&|view| self.peak(view, of, self.in_flight_max));
            let rate = self.refusal(of).is_none().then(peak);
            let is_usual = |(link, _): &(u64, Source)| of.link == Some(*link);
            let source = self.link.filter(is_usual).map_or(Source::Given, |of| of.1);
            (of.text(), *of, rate, source)
        });
        let all: Vec<_> = measured.chain(planned).collect();
        type Moved<'a> = &'a dyn Fn(&Configuration) -> Option<f64>;
        let moved = |name: &str, label: &str, lengths: Moved<'_>| {
            let cells = all.iter().map(|(_, of, rate, _)| match rate {
                None => Cell::word("refused", Source::Derived),
                Some(rate) => lengths(of).map_or_else(
                    || Cell::word("-", Source::Derived),
                    |lengths| {
                        let moved = lengths * bytes * rate;
                        Cell::new(moved, bit_rate_text(moved), Source::Derived)
                    },
                ),
            });
            Row::new(name, label, "bytes/s", cells.collect())
        };
        let (reads, writes) = (self.premises.read_part, 1.0 - self.premises.read_part);
        let gateways = |of: &Configuration| f64::from(of.gateways);
        let kind = |of: &Configuration, at: usize| {
            let of = *links::traffic(of, self.premises).get(at)?;
            Some((of.sent / of.machines, of.received / of.machines))
        };
        let machines = match self.premises.colocated {
            true => ["A node with a gateway", "A node without"],
            false => ["A gateway's host", "A host of OSDs"],
        };
        let link = all.iter().map(|(_, of, _, source)| match of.link {
            Some(link) => Cell::new(link as f64, bit_rate_text(link as f64), *source),
            None => Cell::word("not said", Source::Assumed),
        });
        let used = all.iter().map(|(_, of, rate, _)| match rate {
            Some(rate) if of.link.is_some() => {
                let used = rate / links::capacity(of, self.premises);
                Cell::new(used, percent_text(used), Source::Derived)
            }
            _ => Cell::word("-", Source::Derived),
        });
        Some(Section {
            name: "links".to_owned(),
            title: "What links carry at the highest rate".to_owned(),
            words: "Bytes of requests alone, without headers; each way. Reads go from OSDs to a gateway and on to its NVMe hosts, writes the other way and between OSDs to all replicas but the first; between a gateway and OSDs of its own node nothing is carried. All of it goes over one link.".to_owned(),
            columns: all.iter().map(|(name, ..)| name.clone()).collect(),
            rows: vec![
                moved("gateway-sends", "A gateway to its NVMe hosts", &|of| Some(reads / gateways(of))),
                moved("gateway-receives", "A gateway from its NVMe hosts", &|of| Some(writes / gateways(of))),
                moved("first-sends", &format!("{} sends", machines[0]), &|of| Some(kind(of, 0)?.0)),
                moved("first-receives", &format!("{} receives", machines[0]), &|of| Some(kind(of, 0)?.1)),
                moved("second-sends", &format!("{} sends", machines[1]), &|of| Some(kind(of, 1)?.0)),
                moved("second-receives", &format!("{} receives", machines[1]), &|of| Some(kind(of, 1)?.1)),
                Row::new("link", "A link carries each way", "bytes/s", link.collect()),
                Row::new("used", "Of which is used at most", "fraction", used.collect()),
            ],
        })
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
                    self.interval(&of.configuration, |view| peak(view, of))
                }),
                each("peak-error", "Off by", "fraction", &|of| {
                    part(
                        self.mean(&|view| peak(view, of)) / of.peak() - 1.0,
                        Source::Derived,
                    )
                }),
                each("peak-inside", "Measured lies inside", "", &|of| {
                    self.inside(&of.configuration, Some(of.peak()), &|view| peak(view, of))
                }),
                each("within", &self.within_label(), "requests/s", &|of| {
                    self.measured_within(of)
                }),
                each("within-predicted", "Predicted", "requests/s", &|of| {
                    self.interval_within(&of.configuration, of.in_flight_max())
                }),
                each("within-error", "Off by", "fraction", &|of| {
                    off(
                        self.mean(&|view| within(view, of)),
                        of.rate_within(self.latency),
                    )
                }),
                each("within-inside", "Measured lies inside", "", &|of| {
                    self.inside(&of.configuration, of.rate_within(self.latency), &|view| {
                        within(view, of)
                    })
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
            percent_text(self.fits.best().error)
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
                self.interval(of, |view| self.peak(view, of, most))
            })
            .how(format!(
                "with {} requests in flight, the most that was measured",
                weir_report::words::grouped(most as u64)
            )),
        ];
        if let Some(wanted) = wanted {
            rows.push(each("headroom", "Headroom", "fraction", &|of| {
                let rate = self.mean(&|view| self.within(view, of, most));
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
            words: "Intervals hold 95 of 100 draws of what the readings leave open (the form, its parameters, and how far a curve of its own lies from the model) and what each other explanation says.".to_owned(),
            columns: targets.iter().map(Configuration::text).collect(),
            rows,
        }
    }

    fn failure_section(&self, targets: &[Configuration], wanted: Option<f64>) -> Section {
        let colocated = self.premises.colocated;
        let with = |of: &Configuration| without_node(of, colocated);
        let bare = |of: &Configuration| without_bare_node(of, colocated);
        let node = match colocated {
            true => "One node with a gateway fewer",
            false => "One node fewer",
        };
        type Lost<'a> = &'a dyn Fn(&Configuration) -> Option<Configuration>;
        let losses: [(&str, &str, &str, Lost<'_>); 3] = [
            (
                "gateway",
                "One gateway fewer",
                "none left",
                &without_gateway,
            ),
            ("node", node, "none left", &with),
            (
                "bare-node",
                "One node without a gateway fewer",
                "every node has a gateway",
                &bare,
            ),
        ];
        let mut rows = Vec::new();
        for (name, label, none, lost) in losses {
            // On nodes of their own gateways are on none that has OSDs.
            if name == "bare-node" && !colocated {
                continue;
            }
            let each = |cell: &dyn Fn(&Configuration) -> Cell| {
                let cells = targets.iter().map(|of| match (self.refusal(of), lost(of)) {
                    (Some(_), _) => Cell::word("refused", Source::Derived),
                    (None, None) => Cell::word(none, Source::Derived),
                    (None, Some(of)) => match self.refusal(&of) {
                        Some(why) => Cell::word(
                            format!("refused: {why}; measure a curve of {}", of.text()),
                            Source::Derived,
                        ),
                        None => cell(&of),
                    },
                });
                cells.collect()
            };
            let rates = each(&|of| self.interval_within(of, self.in_flight_max));
            rows.push(Row::new(name, label, "requests/s", rates));
            let Some(wanted) = wanted else { continue };
            let spare = each(&|of| {
                let spare = self.lower_within(of) / wanted - 1.0;
                let word = if spare < 0.0 { "short" } else { "enough" };
                let text = format!("{word}: {:+.1}%", spare * 100.0);
                Cell::new(spare, text, Source::Derived)
            });
            let row = Row::new(
                format!("{name}-headroom"),
                "Headroom then",
                "fraction",
                spare,
            );
            rows.push(row.how("of the lower end of the interval, above what is wanted"));
        }
        Section {
            name: "failures".to_owned(),
            title: format!("{} with less", self.within_label()),
            words: "A node that is lost takes its OSDs with it, and its gateway where it has one."
                .to_owned(),
            columns: targets.iter().map(Configuration::text).collect(),
            rows,
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
        let now = variance_after(self.fits.best(), self.premises, None, &quantity)
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
                        self.fits.best(),
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
                / quantity(self.view().values))
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

    /// Designs for a rate: one keeps it with everything up, one with a node or a gateway lost, and one as that with room to grow.
    fn designs(&self, wanted: f64, measured: &Measured<'_>) -> [Design; 3] {
        let base = (self.curves.iter().max_by_key(|of| of.configuration.nodes))
            .map(|of| of.configuration)
            .expect("a fit has curves");
        let keeps = |of: &Configuration| self.keeps(of, measured);
        let lost = |of: &Configuration| self.keeps_with_less(of, measured);
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
            let (mut lost_why, mut why, mut first_why) = (None, None, None);
            let mut any = false;
            let has_curve = |gateways| {
                let mut curves = self.curves.iter();
                curves.any(|of| of.configuration.gateways == gateways)
            };
            for nodes in least_nodes..=NODES_MAX {
                // What was measured goes before what is like it and was not.
                let enough = |of: &Configuration| rate(of).is_ok_and(|rate| rate >= wanted);
                if let Some(of) = measured.of_nodes(nodes).find(enough) {
                    return Ok(of);
                }
                for gateways in 1..=GATEWAYS_MAX.min(nodes) {
                    for &(reactors, bdevs_per_cluster) in &kinds {
                        let of = Configuration {
                            gateways,
                            reactors,
                            nodes,
                            osds: osds_on(nodes, &base),
                            bdevs_per_cluster,
                            link: self.link.map(|(link, _)| link),
                        };
                        match rate(&of) {
                            Ok(rate) if rate >= wanted => return Ok(of),
                            Ok(_) => any = true,
                            // Of all refusals the one of a design that itself may be planned says most, then that of one with gateways as they were measured.
                            Err(error) => {
                                if lost_why.is_none() && self.refusal(&of).is_none() {
                                    lost_why = Some(error.clone());
                                }
                                if why.is_none() && has_curve(gateways) {
                                    why = Some(error.clone());
                                }
                                first_why.get_or_insert(error);
                            }
                        }
                    }
                }
            }
            let none = "none of the designs that the curves allow a word of";
            Err(match lost_why.or(why).or(first_why) {
                Some(why) if !any => format!("refused: {why}"),
                Some(why) => format!("{none}; another is refused: {why}"),
                None => none.to_owned(),
            })
        };
        let design = |name, of| Design { name, of };
        [
            design("everything up", smallest(wanted, &keeps)),
            design("one lost", smallest(wanted, &lost)),
            design(
                "one lost, and room to grow",
                smallest(wanted * (1.0 + LARGE_SPARE), &lost),
            ),
        ]
    }

    /// Rate of a configuration as it was measured; else the least that is likely, and not the middle; none of what is refused.
    fn keeps(&self, of: &Configuration, measured: &Measured<'_>) -> Result<f64, String> {
        if let Some(rate) = measured.rate(of) {
            return Ok(rate);
        }
        match self.refusal(of) {
            Some(why) => Err(format!("{why}; measure a curve of {}", of.text())),
            None => Ok(self.lower_within(of)),
        }
    }

    /// The same of what is left when a node or a gateway is lost.
    fn keeps_with_less(&self, of: &Configuration, measured: &Measured<'_>) -> Result<f64, String> {
        self.keeps(of, measured)?;
        let rest = |of: Option<Configuration>| of.map_or(Ok(0.0), |of| self.keeps(&of, measured));
        let node = rest(without_node(of, self.premises.colocated))?;
        Ok(node.min(rest(without_gateway(of))?))
    }

    /// Station that binds, and the one that would next.
    fn limits(&self, of: &Configuration) -> String {
        let stations = by_capacity(network(self.view().values, of, self.premises).stations);
        match stations.as_slice() {
            [] => "nothing limits it that the model knows".to_owned(),
            [first] => format!("the limit is {}, by the model", first.name),
            [first, next, ..] => format!(
                "the limit is {}, next {}, by the model",
                first.name, next.name
            ),
        }
    }

    /// The answer to a rate that is wanted: by what was measured, and by the model where that has fewer nodes or nothing measured does it.
    fn wanted_answer(
        &self,
        wanted: f64,
        design: &Result<Configuration, String>,
        measured: &Measured<'_>,
    ) -> String {
        let modelled = |of: &Configuration| {
            format!(
                "{} nodes, {} OSDs, {} gateways of {} reactors, {} processors for these: {} at {}",
                of.nodes,
                of.osds,
                of.gateways,
                of.reactors,
                of.processors(),
                self.interval_within(of, self.in_flight_max).text,
                weir_report::words::latency(self.latency * 1e9)
            )
        };
        let by_measure = measured.answer(wanted, &|of| self.limits(of));
        match (by_measure, design) {
            (Some(text), Ok(of)) if measured.rate(of).is_none() => {
                format!("{text} By the model alone fewer may do: {}.", modelled(of))
            }
            (Some(text), _) => text,
            (None, Ok(of)) => format!(
                "{} By the model: {}; {}.",
                measured.none_does(wanted),
                modelled(of),
                self.limits(of)
            ),
            (None, Err(why)) => format!("{} By the model: {why}.", measured.none_does(wanted)),
        }
    }

    fn sizes_section(
        &self,
        wanted: f64,
        designs: &[Design; 3],
        measured: &Measured<'_>,
    ) -> Section {
        let base = (self.curves.iter().max_by_key(|of| of.configuration.nodes))
            .map(|of| of.configuration)
            .expect("a fit has curves");
        let most = self.in_flight_max;
        let keeps = |of: &Configuration| self.keeps(of, measured);
        let lost = |of: &Configuration| self.keeps_with_less(of, measured);
        let each = |name: &str, label: &str, unit: &str, cell: &dyn Fn(&Configuration) -> Cell| {
            // Why there is none is said once.
            let none = |why: &String| {
                let text = if name == "nodes" { why.as_str() } else { "-" };
                Cell::word(text, Source::Derived)
            };
            let cells = (designs.iter()).map(|design| design.of.as_ref().map_or_else(none, cell));
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
                "The fewest nodes, then gateways, then reactors, by what was measured of such a one, else by the lower end of the interval: with everything up; with one node or gateway lost; and as that, with {} to grow. {} OSDs in a node as in the largest curve; reactors and bdevs_per_cluster as curves have them together. What is refused as a target is no design.",
                percent_text(LARGE_SPARE),
                weir_report::words::trimmed(density(&base), 2),
            ),
            columns: designs.iter().map(|of| of.name.to_owned()).collect(),
            rows: vec![
                each("nodes", "Nodes", "", &|of| count(of.nodes)),
                each("osds", "OSDs", "", &|of| count(of.osds)),
                each("gateways", "Gateways", "", &|of| count(of.gateways)),
                each("reactors", "Reactors of each", "", &|of| count(of.reactors)),
                each("bdevs", "bdevs_per_cluster", "", &|of| {
                    count(of.bdevs_per_cluster)
                }),
                each("processors", "Processors for reactors", "", &|of| {
                    Cell::count(of.processors(), Source::Derived)
                }),
                each(
                    "within",
                    &self.within_label(),
                    "requests/s",
                    &|of| match measured.rate(of) {
                        Some(rate) => iops(rate, Source::Derived),
                        None => self.interval_within(of, most),
                    },
                ),
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
                each(
                    "link-takes",
                    "A link carries at that rate",
                    "bytes/s",
                    &|of| {
                        let Some(bytes) = self.premises.request_bytes else {
                            return Cell::word("not known", Source::Derived);
                        };
                        let one = |of: links::Traffic| of.sent.max(of.received) / of.machines;
                        let kinds = links::traffic(of, self.premises).into_iter();
                        let most_lengths = kinds.map(one).fold(0.0, f64::max);
                        let rate = self.mean(&|view| self.within(view, of, most));
                        let moved = most_lengths * bytes * rate;
                        Cell::new(moved, bit_rate_text(moved), Source::Derived)
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
            let step = (self.in_flight_max / from).powf(1.0 / f64::from(DRAWN_POINTS));
            let points = (0..=DRAWN_POINTS).map(|at| {
                let in_flight = from * step.powi(at as i32);
                let rate = self.mean(&|view| self.peak(view, of, in_flight));
                [rate, in_flight / rate * 1e9]
            });
            Series {
                name,
                source: Source::Fitted,
                points: points.collect(),
            }
        };
        for curve in curves.iter().chain(held) {
            series.push(curve.series());
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
                let deep = of.in_flight_max();
                let peak = self.mean(&|view| self.peak(view, &of.configuration, deep));
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
                let binds = network(self.view().values, of, self.premises)
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

    fn caveat_of_links(&self, targets: &[Configuration]) -> Option<&'static str> {
        if self.premises.request_bytes.is_none() {
            return Some(
                "How long requests are is not known, or reads and writes are not of one length (--request-bytes): what links carry is not told, and none binds.",
            );
        }
        let planned = self.link.is_some() || targets.iter().any(|of| of.link.is_some());
        let measured = (self.curves.iter()).all(|of| of.configuration.link.is_some());
        match (planned, measured) {
            (false, _) => Some(
                "No links of what is planned are said (--link), so that none of them binds: what each takes is in what links carry.",
            ),
            (true, false) => Some(
                "The links of what was measured are not said (--measured-link): their time is in what was fitted, and that of the planned ones is added to it, so that latencies are told too long by what the measured ones took.",
            ),
            (true, true) => None,
        }
    }

    fn caveats(&self, targets: &[Configuration]) -> Vec<String> {
        let mut caveats = vec![format!(
            "Intervals are of the forms of the model, their parameters and how far curves lie from it ({} curves could be left out for that), and of the other explanations that are named; what no form has is in none of them: see how curves that were left out come out.",
            self.left_out
        )];
        if self.usable() < self.draws.len() {
            caveats.push(format!(
                "{} of {} draws could not be used{}.",
                self.draws.len() - self.usable(),
                self.draws.len(),
                if self.usable() < SAMPLES_MIN as usize {
                    ": there are no intervals"
                } else {
                    ""
                }
            ));
        }
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
        let first = self.curves.first().map(|of| density(&of.configuration));
        let is_as_first =
            |of: &MeasuredCurve| first.is_some_and(|has| is_as_dense(&of.configuration, has));
        if self.curves.iter().all(is_as_first) {
            caveats.push("every curve has as many OSDs in a node: whether storage goes by OSDs or by nodes is not shown.".to_owned());
        }
        caveats.extend(self.caveat_of_links(targets).map(str::to_owned));
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

/// OSDs of a node.
fn density(of: &Configuration) -> f64 {
    f64::from(of.osds) / f64::from(of.nodes)
}

/// Whether nodes have as many OSDs as in another configuration: to within [`DENSITY_SAME`], or but for one OSD of all that is at most
/// [`DENSITY_OF_ONE`].
fn is_as_dense(of: &Configuration, density: f64) -> bool {
    let (osds, wanted) = (f64::from(of.osds), density * f64::from(of.nodes));
    let differs = (osds - wanted).abs() / wanted;
    differs <= DENSITY_SAME || ((osds - wanted).abs() <= 1.0 && differs <= DENSITY_OF_ONE)
}

/// As many OSDs in a node, on so many nodes; less than one more is none.
fn osds_on(nodes: u32, as_in: &Configuration) -> u32 {
    let osds = u64::from(as_in.osds) * u64::from(nodes) / u64::from(as_in.nodes.max(1));
    u32::try_from(osds).unwrap_or(u32::MAX).max(1)
}

/// Where gateways run on OSD nodes and do not take all of them.
fn without_bare_node(of: &Configuration, colocated: bool) -> Option<Configuration> {
    (colocated && of.nodes > of.gateways).then(|| Configuration {
        nodes: of.nodes - 1,
        osds: osds_on(of.nodes - 1, of),
        ..*of
    })
}

fn without_node(of: &Configuration, colocated: bool) -> Option<Configuration> {
    if of.nodes < 2 || (colocated && of.gateways < 2) {
        return None;
    }
    Some(Configuration {
        nodes: of.nodes - 1,
        osds: osds_on(of.nodes - 1, of),
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
        match Known::new(request, &rest) {
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
