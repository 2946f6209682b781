//! Access and sizes as they are written on a command line and in a job file.

use std::fmt;
use std::str::FromStr;

use weir_block::size::{self, Size};

use super::{Access, HotArea, SizeShare, WorkloadError};

/// What an access may be written as.
const ACCESS_FORMS: &str = "random, sequential, random:PERCENT (the rest sequential), stride:SIZE, zipf:EXPONENT, pareto:SHARE, hot:REQUESTS/SPACE,... in percent";
/// What sizes may be written as.
const SIZES_FORMS: &str = "SIZE and SIZE:PERCENT,... such as 4k:70,64k:30";

impl FromStr for Access {
    type Err = WorkloadError;

    /// `random`, `sequential`, `random:30` (percent, the rest sequential), `stride:64k`, `zipf:1.1`, `pareto:0.2`,
    /// `hot:50/5,30/15,20/80` (percent of the requests and of the space).
    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        let wrong = || WorkloadError::Text {
            text: text.to_owned(),
            what: "access",
            allowed: ACCESS_FORMS,
        };
        let number = |of: &str| of.trim().parse::<f64>().map_err(|_| wrong());
        let (form, value) = match text.split_once(':') {
            None => (text, None),
            Some((form, value)) => (form, Some(value)),
        };
        let access = match (form, value) {
            ("random", None) => Access::Random,
            ("sequential", None) => Access::Sequential,
            ("random", Some(value)) => Access::Mixed {
                random_percent: number(value)?,
            },
            ("stride", Some(value)) => Access::Strided {
                stride_bytes: size::parse(value).map_err(|_| wrong())?,
            },
            ("zipf", Some(value)) => Access::Zipf {
                exponent: number(value)?,
            },
            ("pareto", Some(value)) => Access::Pareto {
                share: number(value)?,
            },
            ("hot", Some(value)) => Access::Hot {
                areas: value
                    .split(',')
                    .map(|area| {
                        let (requests, space) = area.split_once('/').ok_or_else(wrong)?;
                        Ok(HotArea {
                            requests_percent: number(requests)?,
                            space_percent: number(space)?,
                        })
                    })
                    .collect::<Result<_, _>>()?,
            },
            _ => return Err(wrong()),
        };
        access.check()?;
        Ok(access)
    }
}

impl fmt::Display for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Access::Random => formatter.write_str("random"),
            Access::Sequential => formatter.write_str("sequential"),
            Access::Mixed { random_percent } => write!(formatter, "random:{random_percent}"),
            Access::Strided { stride_bytes } => {
                write!(formatter, "stride:{}", plain(*stride_bytes))
            }
            Access::Zipf { exponent } => write!(formatter, "zipf:{exponent}"),
            Access::Pareto { share } => write!(formatter, "pareto:{share}"),
            Access::Hot { areas } => {
                formatter.write_str("hot:")?;
                for (index, area) in areas.iter().enumerate() {
                    let comma = if index > 0 { "," } else { "" };
                    let HotArea {
                        requests_percent,
                        space_percent,
                    } = area;
                    write!(formatter, "{comma}{requests_percent}/{space_percent}")?;
                }
                Ok(())
            }
        }
    }
}

/// A size that is read as it was.
fn plain(bytes: u64) -> String {
    let text = Size(bytes).to_string().replace(' ', "");
    match size::parse(&text) {
        Ok(read) if read == bytes => text,
        _ => bytes.to_string(),
    }
}

/// Reads sizes with their shares: `4k`, or `4k:70,64k:30`. That the shares make 100 percent is checked with the workload.
///
/// # Errors
/// [`WorkloadError::Text`].
pub fn parse_sizes(text: &str) -> Result<Vec<SizeShare>, WorkloadError> {
    let wrong = || WorkloadError::Text {
        text: text.to_owned(),
        what: "mix of sizes",
        allowed: SIZES_FORMS,
    };
    let one = |of: &str| {
        let (bytes, percent) = match of.split_once(':') {
            Some((bytes, percent)) => (bytes, percent.trim().parse().map_err(|_| wrong())?),
            None if text.contains(',') => return Err(wrong()),
            None => (of, 100.0),
        };
        Ok(SizeShare {
            bytes: size::parse(bytes).map_err(|_| wrong())?,
            percent,
        })
    };
    text.split(',').map(one).collect()
}

/// Sizes as [`parse_sizes`] reads them.
#[must_use]
pub fn sizes_text(sizes: &[SizeShare]) -> String {
    match sizes {
        [one] => plain(one.bytes),
        sizes => {
            let each = |of: &SizeShare| format!("{}:{}", plain(of.bytes), of.percent);
            sizes.iter().map(each).collect::<Vec<_>>().join(",")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for text in [
            "random",
            "sequential",
            "random:0.1",
            "zipf:1.1",
            "pareto:0.2",
            "hot:50/5,30/15,20/80",
        ] {
            let access: Access = text.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(access.to_string(), text);
        }
        let strided = Access::Strided {
            stride_bytes: 64 << 10,
        };
        assert_eq!("stride:64k".parse(), Ok(strided.clone()));
        assert_eq!(strided.to_string().parse(), Ok(strided));
        for text in ["512:4,1536:6,4k:90", "64k", "4k:100"] {
            let sizes = parse_sizes(text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(parse_sizes(&sizes_text(&sizes)), Ok(sizes), "{text}");
        }
        assert_eq!(
            parse_sizes("4k:70,64k:30").map(|sizes| sizes[1]),
            Ok(SizeShare {
                bytes: 64 << 10,
                percent: 30.0
            })
        );
    }

    #[test]
    fn what_is_no_access_and_no_mix_is_told_with_the_forms() {
        for text in [
            "",
            "Random",
            "zipf",
            "zipf:",
            "zipf:much",
            "stride:4z",
            "hot:50",
            "hot:",
            "hot:50/5,",
            "sequential:4k",
        ] {
            let error = text.parse::<Access>().expect_err(text).to_string();
            assert!(error.contains("zipf:EXPONENT"), "{text}: {error}");
        }
        let error = "zipf:9".parse::<Access>().expect_err("too steep");
        assert!(matches!(error, WorkloadError::Number { value: 9.0, .. }));
        for text in ["", "4k,64k", "4k:70,64k", "4k:x", "70%", "4k:70;64k:30"] {
            let error = parse_sizes(text).expect_err(text).to_string();
            assert!(error.contains("4k:70,64k:30"), "{text}: {error}");
        }
    }
}
