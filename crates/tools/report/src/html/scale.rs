//! Axes: where a value lies, and which values are written beside the axis. Does not draw.

/// About so many labels on an axis that is not logarithmic.
const LABELS: f64 = 6.0;
/// From so many decades on, a logarithmic axis has a label per decade; below it has those at 2 and 5 as well.
const DECADES_WIDE: f64 = 3.0;

/// How values are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Linear,
    Logarithmic,
}

/// Values from `low` to `high` on the pixels from `from` to `to` (which may be the smaller one: SVG's y grows downwards).
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    kind: Kind,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

/// A place on an axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Tick {
    pub(super) value: f64,
    /// Whether its value is written beside it.
    pub(super) labelled: bool,
}

impl Scale {
    /// From zero to a round number at or above the greatest of the values.
    pub(super) fn from_zero(values: impl IntoIterator<Item = f64>, from: f64, to: f64) -> Self {
        let greatest = finite(values).fold(0.0, f64::max);
        let high = if greatest > 0.0 { greatest } else { 1.0 };
        let step = round_step(high);
        Scale {
            kind: Kind::Linear,
            low: 0.0,
            high: (high / step).ceil() * step,
            from,
            to,
        }
    }

    /// From the least to the greatest of the values, with zero among them, and round numbers at both ends.
    pub(super) fn around_zero(values: impl IntoIterator<Item = f64>, from: f64, to: f64) -> Self {
        let (low, high) = finite(values).fold((0.0, 0.0), |(low, high): (f64, f64), value| {
            (low.min(value), high.max(value))
        });
        let span = if high > low { high - low } else { 1.0 };
        let step = round_step(span);
        Scale {
            kind: Kind::Linear,
            low: (low / step).floor() * step,
            high: ((high / step).ceil() * step).max((low / step).floor() * step + step),
            from,
            to,
        }
    }

    /// Just from `low` to `high`.
    pub(super) fn exactly(low: f64, high: f64, from: f64, to: f64) -> Self {
        let high = if high > low { high } else { low + 1.0 };
        Scale {
            kind: Kind::Linear,
            low,
            high,
            from,
            to,
        }
    }

    /// Logarithmic, from a round number (1, 2 or 5 times a power of ten) at or below the least of the values that are above
    /// zero to one at or above the greatest.
    pub(super) fn logarithmic(values: impl IntoIterator<Item = f64>, from: f64, to: f64) -> Self {
        let (low, high) = finite(values)
            .filter(|value| *value > 0.0)
            .fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), value| {
                (low.min(value), high.max(value))
            });
        let (low, high) = if high > 0.0 { (low, high) } else { (1.0, 10.0) };
        let (low, mut high) = (round_down(low), round_up(high));
        if high <= low {
            high = round_up(low * 1.5);
        }
        Scale {
            kind: Kind::Logarithmic,
            low,
            high,
            from,
            to,
        }
    }

    pub(super) fn low(&self) -> f64 {
        self.low
    }

    pub(super) fn high(&self) -> f64 {
        self.high
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// The pixel of a value. What lies outside is at the end.
    pub(super) fn at(&self, value: f64) -> f64 {
        let part = match self.kind {
            Kind::Linear => (value - self.low) / (self.high - self.low),
            Kind::Logarithmic => {
                (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
            }
        };
        self.from + part.clamp(0.0, 1.0) * (self.to - self.from)
    }

    pub(super) fn ticks(&self) -> Vec<Tick> {
        match self.kind {
            Kind::Linear => self.linear_ticks(),
            Kind::Logarithmic => self.logarithmic_ticks(),
        }
    }

    fn linear_ticks(&self) -> Vec<Tick> {
        let step = round_step(self.high - self.low);
        let first = (self.low / step - 1e-9).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last)
            .map(|index| Tick {
                value: index as f64 * step,
                labelled: true,
            })
            .collect()
    }

    fn logarithmic_ticks(&self) -> Vec<Tick> {
        let wide = (self.high / self.low).log10() >= DECADES_WIDE;
        let first = self.low.log10().floor() as i32;
        let last = self.high.log10().ceil() as i32;
        let inside = |value: &f64| *value >= self.low * 0.999 && *value <= self.high * 1.001;
        (first..=last)
            .flat_map(|exponent| (1..10).map(move |digit| (exponent, digit)))
            .map(|(exponent, digit)| Tick {
                value: f64::from(digit) * 10f64.powi(exponent),
                labelled: digit == 1 || (!wide && (digit == 2 || digit == 5)),
            })
            .filter(|tick| inside(&tick.value))
            .collect()
    }
}

fn finite(values: impl IntoIterator<Item = f64>) -> impl Iterator<Item = f64> {
    values.into_iter().filter(|value| value.is_finite())
}

/// A step of 1, 2 or 5 times a power of ten that gives about [`LABELS`] labels over `span`.
fn round_step(span: f64) -> f64 {
    let rough = span / LABELS;
    let power = 10f64.powf(rough.log10().floor());
    let digit = rough / power;
    let digit = match digit {
        digit if digit < 1.5 => 1.0,
        digit if digit < 3.5 => 2.0,
        digit if digit < 7.5 => 5.0,
        _ => 10.0,
    };
    digit * power
}

fn round_down(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    [5.0, 2.0, 1.0]
        .into_iter()
        .map(|digit| digit * power)
        .find(|candidate| *candidate <= value * 1.000_001)
        .unwrap_or(power)
}

fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|digit| digit * power)
        .find(|candidate| *candidate >= value * 0.999_999)
        .unwrap_or(power * 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: &Scale) -> Vec<f64> {
        let ticks = scale.ticks();
        let labelled = ticks.iter().filter(|tick| tick.labelled);
        labelled.map(|tick| tick.value).collect()
    }

    #[test]
    fn an_axis_from_zero_ends_at_a_round_number() {
        let scale = Scale::from_zero([3.0, 97.0, f64::NAN], 0.0, 100.0);
        assert_eq!((scale.low(), scale.high()), (0.0, 100.0));
        assert_eq!(labels(&scale), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(scale.at(50.0), 50.0);
    }

    #[test]
    fn an_axis_of_nothing_is_an_axis_all_the_same() {
        for scale in [
            Scale::from_zero([], 0.0, 10.0),
            Scale::around_zero([], 0.0, 10.0),
            Scale::logarithmic([], 0.0, 10.0),
            Scale::logarithmic([0.0], 0.0, 10.0),
            Scale::exactly(5.0, 5.0, 0.0, 10.0),
        ] {
            assert!(scale.high() > scale.low(), "{scale:?}");
            assert!(labels(&scale).len() >= 2, "{scale:?}");
        }
    }

    #[test]
    fn zero_is_on_an_axis_of_differences() {
        let scale = Scale::around_zero([-3.1, -1.0], 0.0, 40.0);
        assert_eq!((scale.low(), scale.high()), (-3.5, 0.0));
        assert_eq!(scale.at(0.0), 40.0);
    }

    #[test]
    fn a_logarithmic_axis_gives_each_decade_the_same_room() {
        let scale = Scale::logarithmic([11_000.0, 0.0, 90_000_000.0], 300.0, 0.0);
        assert_eq!((scale.low(), scale.high()), (1e4, 1e8));
        assert_eq!(labels(&scale), [1e4, 1e5, 1e6, 1e7, 1e8]);
        let at = |value| scale.at(value).round();
        let decades: Vec<f64> = labels(&scale).into_iter().map(at).collect();
        assert_eq!(decades, [300.0, 225.0, 150.0, 75.0, 0.0]);
        assert_eq!(scale.at(0.0), 300.0);
        assert_eq!(scale.at(1e12), 0.0);
    }

    #[test]
    fn a_short_logarithmic_axis_is_labelled_within_its_decades() {
        let scale = Scale::logarithmic([70.0, 130.0], 0.0, 100.0);
        assert_eq!(labels(&scale), [50.0, 100.0, 200.0]);
    }
}
