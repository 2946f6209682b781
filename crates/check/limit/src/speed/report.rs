//! What runs amount to: bars with their verdicts, and the figures behind them.

use std::fmt;

use serde::Serialize;

use super::rows::{Bar, Bound, Compare, Measure, Row};
use super::run::Sample;
use super::statistics::Spread;

/// Of ten rounds, so many have to clear a bar. A median would let a contest that is won as often as it is lost pass by chance.
const CLEARED_OF_TEN: usize = 8;

/// What became of a bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Cleared.
    Ok,
    /// Not cleared.
    Short,
    /// Something that was needed did not run as it should.
    Failed,
    /// Something that is needed was not given.
    Skipped,
    /// What was taken for the limit is none.
    Void,
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Verdict::Ok => "ok",
            Verdict::Short => "short",
            Verdict::Failed => "failed",
            Verdict::Skipped => "skipped",
            Verdict::Void => "void",
        })
    }
}

/// A bar and its value.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    /// The bar's name.
    pub name: String,
    /// The median of the rounds' values, and their ends.
    pub value: Option<Spread>,
    /// What it is held against.
    pub bar: f64,
    /// Rounds whose value clears it, and all.
    pub cleared: Option<[usize; 2]>,
    /// What became of it.
    pub verdict: Verdict,
}

impl fmt::Display for Judged {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self
            .value
            .map_or("-".to_owned(), |value| short(value.median));
        write!(
            formatter,
            "{} {value} {} {}",
            self.name,
            short(self.bar),
            self.verdict
        )
    }
}

/// A contestant's runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ran {
    /// Its name.
    pub name: &'static str,
    /// Why it did not run.
    pub absent: Option<String>,
    /// Round by round.
    pub samples: Vec<Sample>,
}

impl Ran {
    /// The spread of a figure over the rounds.
    #[must_use]
    pub fn spread(&self, measure: Measure) -> Option<Spread> {
        Spread::of(
            self.samples
                .iter()
                .filter_map(|sample| sample.figure(measure)),
        )
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:", self.name)?;
        if let Some(why) = &self.absent {
            return write!(formatter, " not run, {why}");
        }
        let figures = [
            (Measure::Iops, " ", "IOPS"),
            (Measure::PerBusySecond, ", ", "per busy second"),
            (Measure::BusyShare, ", ", "of a processor busy"),
            (Measure::CountedShare, ", ", "as its reactors count it"),
            (Measure::Mean, ", ", "us mean"),
            (Measure::P99, ", ", "us p99"),
        ];
        for (measure, before, unit) in figures {
            if let Some(spread) = self.spread(measure) {
                write!(formatter, "{before}{}", short(spread.median))?;
                if spread.min < spread.max {
                    write!(
                        formatter,
                        " ({} to {})",
                        short(spread.min),
                        short(spread.max)
                    )?;
                }
                write!(formatter, " {unit}")?;
            }
        }
        // Where figures tell different stories these are the first to ask.
        let stolen = self.samples.iter().map(|sample| sample.stolen_share);
        let others = self.samples.iter().filter_map(|sample| sample.others_share);
        doubt(formatter, Spread::of(stolen), 0.01, "stolen")?;
        doubt(formatter, Spread::of(others), 0.03, "used by others")
    }
}

/// Says what part of the processor was at most not the contestant's, where that is above `most`.
fn doubt(
    formatter: &mut fmt::Formatter<'_>,
    share: Option<Spread>,
    most: f64,
    what: &str,
) -> fmt::Result {
    match share {
        Some(share) if share.max > most => {
            let percent = share.max * 100.0;
            write!(
                formatter,
                "; up to {percent:.1}% of the processor was {what}"
            )
        }
        _ => Ok(()),
    }
}

/// A number with four digits that matter, without an exponent.
fn short(number: f64) -> String {
    let digits = match number.abs() {
        size if size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        _ => 3,
    };
    let text = format!("{number:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Everything that is known of a row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RowReport {
    /// The row's name.
    pub name: String,
    /// Why it did not run to its end.
    pub failure: Option<String>,
    /// Who ran.
    pub contestants: Vec<Ran>,
    /// What came of it.
    pub bars: Vec<Judged>,
}

impl RowReport {
    /// Judges a row by its runs.
    #[must_use]
    pub fn judge(row: &Row, contestants: Vec<Ran>, failure: Option<String>) -> Self {
        let verdict = |bar: &Bar| {
            let values = values(bar, &contestants).filter(|values| !values.is_empty());
            let cleared = values.as_ref().map(|values| {
                let cleared = values.iter().filter(|&&value| bar.bound.holds(value));
                [cleared.count(), values.len()]
            });
            let value = values.and_then(Spread::of);
            let is_void = matches!(bar.bound, Bound::OfLimit(_))
                && value.is_some_and(|value| value.median > 1.0);
            Judged {
                name: bar.name.clone(),
                value,
                bar: bar.bound.bar(),
                cleared,
                verdict: match cleared {
                    _ if failure.is_some() => Verdict::Failed,
                    None => Verdict::Skipped,
                    Some(_) if is_void => Verdict::Void,
                    Some([cleared, all]) if cleared * 10 >= all * CLEARED_OF_TEN => Verdict::Ok,
                    Some(_) => Verdict::Short,
                },
            }
        };
        RowReport {
            name: row.name.clone(),
            bars: row.bars.iter().map(verdict).collect(),
            failure,
            contestants,
        }
    }
}

/// A bar's values, round by round; none where one of its figures is not known in some round.
fn values(bar: &Bar, contestants: &[Ran]) -> Option<Vec<f64>> {
    let figures = |index: usize| -> Option<Vec<f64>> {
        let samples = &contestants[index].samples;
        samples
            .iter()
            .map(|sample| sample.figure(bar.measure))
            .collect()
    };
    let pairs = |one, other| Some(figures(one)?.into_iter().zip(figures(other)?));
    Some(match bar.compare {
        Compare::Alone(one) => figures(one)?,
        Compare::Ratio(one, other) => pairs(one, other)?.map(|(one, other)| one / other).collect(),
        Compare::Difference(one, other) => {
            pairs(one, other)?.map(|(one, other)| one - other).collect()
        }
    })
}

/// How many bars became what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Count {
    /// Cleared.
    pub ok: usize,
    /// Not cleared.
    pub short: usize,
    /// Not measured as they should be.
    pub failed: usize,
    /// Not measured for want of something.
    pub skipped: usize,
    /// Held against a limit that is none.
    pub void: usize,
}

impl Count {
    /// Of all bars of all rows.
    #[must_use]
    pub fn of(rows: &[RowReport]) -> Self {
        let mut count = Count::default();
        for bar in rows.iter().flat_map(|row| &row.bars) {
            *match bar.verdict {
                Verdict::Ok => &mut count.ok,
                Verdict::Short => &mut count.short,
                Verdict::Failed => &mut count.failed,
                Verdict::Skipped => &mut count.skipped,
                Verdict::Void => &mut count.void,
            } += 1;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::speed::rows::{Protocol, rows};

    fn sample(iops: f64, busy_share: Option<f64>) -> Sample {
        Sample {
            iops,
            busy_share,
            counted_share: None,
            mean_us: None,
            p99_us: None,
            stolen_share: 0.0,
            others_share: None,
        }
    }

    fn ran(samples: Vec<Sample>) -> Ran {
        Ran {
            name: "any",
            absent: None,
            samples,
        }
    }

    fn row() -> Row {
        rows(Protocol::Nvme)
            .into_iter()
            .find(|row| row.name == "null-4k-read-d128-q1")
            .unwrap()
    }

    #[test]
    fn a_value_is_the_median_of_the_rounds_ratios() {
        let weir = ran(vec![
            sample(500.0, Some(0.625)),
            sample(900.0, Some(1.0)),
            sample(300.0, Some(0.5)),
        ]);
        let peer = ran(vec![
            sample(400.0, Some(1.0)),
            sample(450.0, Some(1.0)),
            sample(400.0, Some(1.0)),
        ]);
        let limit = ran(vec![
            sample(1000.0, Some(1.0)),
            sample(1800.0, Some(1.0)),
            sample(500.0, Some(0.5)),
        ]);
        let report = RowReport::judge(&row(), vec![weir, peer, limit], None);
        let [busy, iops, of_limit] = report.bars.as_slice() else {
            panic!("{report:?}");
        };
        // 800/400, 900/450, 600/400; 500/400, 900/450, 300/400; 800/1000, 900/1800, 600/1000.
        assert_eq!(busy.value, Spread::of([2.0, 2.0, 1.5]));
        assert_eq!(iops.value, Spread::of([1.25, 2.0, 0.75]));
        assert_eq!(of_limit.value, Spread::of([0.8, 0.5, 0.6]));
        let verdicts = [busy.verdict, iops.verdict, of_limit.verdict];
        // The median is more than is asked for, but only two rounds of three had as much.
        assert_eq!(verdicts, [Verdict::Ok, Verdict::Short, Verdict::Short]);
        assert_eq!(iops.cleared, Some([2, 3]));
        assert_eq!(
            busy.to_string(),
            "null-4k-read-d128-q1-per-busy-second 2 1.3 ok"
        );
    }

    #[test]
    fn what_is_short_absent_or_failed_is_told_apart() {
        let weir = ran(vec![sample(100.0, Some(1.0))]);
        let limit = ran(vec![sample(1000.0, Some(1.0))]);
        let absent = Ran {
            absent: Some("there is none".to_owned()),
            ..ran(Vec::new())
        };
        let contestants = vec![weir.clone(), absent.clone(), limit.clone()];
        let report = RowReport::judge(&row(), contestants.clone(), None);
        let verdicts: Vec<_> = report.bars.iter().map(|bar| bar.verdict).collect();
        assert_eq!(
            verdicts,
            [Verdict::Skipped, Verdict::Skipped, Verdict::Short]
        );
        assert_eq!(
            report.bars[0].to_string(),
            "null-4k-read-d128-q1-per-busy-second - 1.3 skipped"
        );
        // A peer whose busy time is not known has its plain figure all the same.
        let unknown = ran(vec![sample(80.0, None)]);
        let report = RowReport::judge(&row(), vec![weir, unknown, limit], None);
        let verdicts: Vec<_> = report.bars.iter().map(|bar| bar.verdict).collect();
        assert_eq!(verdicts, [Verdict::Skipped, Verdict::Ok, Verdict::Short]);
        let failed = RowReport::judge(&row(), contestants, Some("it broke".to_owned()));
        let count = Count::of(&[report, failed]);
        let expected = Count {
            ok: 1,
            short: 1,
            failed: 3,
            skipped: 1,
            void: 0,
        };
        assert_eq!(count, expected);
    }

    #[test]
    fn what_is_above_its_limit_proves_nothing() {
        let verdict = |rates: [f64; 3]| {
            let weir = ran(rates.map(|rate| sample(rate, Some(1.0))).to_vec());
            let others = ran(vec![sample(1000.0, Some(1.0)); 3]);
            let report = RowReport::judge(&row(), vec![weir, others.clone(), others], None);
            report.bars[2].verdict
        };
        assert_eq!(verdict([700.0, 800.0, 1000.0]), Verdict::Ok);
        assert_eq!(verdict([1001.0, 800.0, 1100.0]), Verdict::Void);
        // One of three rounds is above it: the others are too few.
        assert_eq!(verdict([700.0, 800.0, 1001.0]), Verdict::Short);
    }

    #[test]
    fn numbers_are_short_and_plain() {
        let texts = [0.0, 1.3, 0.65, 1.0, 12.345, 123.45, 1_234_567.8, -0.5].map(short);
        assert_eq!(
            texts,
            ["0", "1.3", "0.65", "1", "12.35", "123.5", "1234568", "-0.5"]
        );
        assert_eq!(
            [short(1000.0), short(100.0), short(600.0)],
            ["1000", "100", "600"]
        );
    }
}
