//! What is asked of a volume: which requests, of which size, where, and with what data. Not how many or when.
//!
//! A [`Workload`] is one or more streams, each with a share of all requests. It is checked twice: by itself
//! ([`Workload::check`]), and against the volume that it is to run on when a run begins. Workloads that are known by a name
//! are in [`NAMED`]. What a stream does next is drawn from a seed, without memory per request.

mod generator;
mod named;
mod text;
mod zipf;

pub use generator::{ApartError, check_apart, own_blocks};
pub use named::{NAMED, Named, named};
pub use text::{parse_sizes, sizes_text};

pub(crate) use generator::{Generator, Next, Part, check_volume, deallocates_parts};

/// Shares may miss 100 percent by so much, for they are written in decimals.
const SHARES_TOLERANCE: f64 = 0.01;
/// Streams of a workload.
pub const STREAMS_MAX: usize = 64;
/// Sizes of a stream.
pub const SIZES_MAX: usize = 64;
/// Hot areas of a stream.
pub const AREAS_MAX: usize = 64;
/// The largest exponent of Zipf's law. Beyond it nearly every request is for the first block.
pub const ZIPF_EXPONENT_MAX: f64 = 5.0;

/// The kinds of request that load is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// [`weir_block::Operation::Read`].
    Read,
    /// [`weir_block::Operation::Write`].
    Write,
    /// [`weir_block::Operation::Deallocate`].
    Deallocate,
    /// [`weir_block::Operation::Flush`].
    Flush,
}

impl Kind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Kind; 4] = [Kind::Read, Kind::Write, Kind::Deallocate, Kind::Flush];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Deallocate => "deallocate",
            Kind::Flush => "flush",
        }
    }
}

/// What load does to a volume.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Its name in [`NAMED`], where it is one of those.
    pub name: Option<&'static str>,
    /// What it is made of. Their shares make 100 percent.
    pub streams: Vec<Stream>,
    /// Only the first so many bytes of the volume (the working set); all of it when none.
    pub range_bytes: Option<u64>,
    /// How much of the data written is zeroes, in percent: what is left of it for a medium that compresses is the rest, which is random.
    pub compressible_percent: u8,
    /// Whether sizes that are no multiple of the volume's block are made the next multiple; refused otherwise. A run says where it was done.
    pub round_up: bool,
}

/// Requests of one sort.
#[derive(Debug, Clone, PartialEq)]
pub struct Stream {
    /// How many of 100 requests of the workload are of this stream.
    pub share_percent: f64,
    /// What they do.
    pub operations: Operations,
    /// How long they are. The shares make 100 percent.
    pub sizes: Vec<SizeShare>,
    /// Random requests begin at multiples of this many bytes; at multiples of their own size when none.
    pub align_bytes: Option<u64>,
    /// Where they go.
    pub access: Access,
    /// Only the first so many bytes of the working set; all of it when none.
    pub range_bytes: Option<u64>,
}

/// How many of 100 requests do what. They make 100 percent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Operations {
    /// Read.
    pub read_percent: f64,
    /// Write.
    pub write_percent: f64,
    /// Deallocate.
    pub deallocate_percent: f64,
    /// Flush. A flush has no size and no place.
    pub flush_percent: f64,
}

impl Operations {
    /// So many percent reads; the others are writes.
    #[must_use]
    pub fn read_write(read_percent: f64) -> Self {
        Operations {
            read_percent,
            write_percent: 100.0 - read_percent,
            deallocate_percent: 0.0,
            flush_percent: 0.0,
        }
    }

    /// The share of each kind, in the order of [`Kind::ALL`].
    #[must_use]
    pub fn percents(&self) -> [f64; 4] {
        [
            self.read_percent,
            self.write_percent,
            self.deallocate_percent,
            self.flush_percent,
        ]
    }
}

/// A size and how many of 100 requests have it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SizeShare {
    /// Bytes of a request.
    pub bytes: u64,
    /// Its share.
    pub percent: f64,
}

/// Which blocks are asked for. Its text form is that of the command line: see [`Access::from_str`](std::str::FromStr).
#[derive(Debug, Clone, PartialEq)]
pub enum Access {
    /// Any, each as likely as another.
    Random,
    /// One after the other, each queue in a part of the working set of its own, from the start again at its end.
    Sequential,
    /// As sequential, but so many of 100 requests go to a random place of the queue's part, and the next ones on from there.
    Mixed {
        /// 0 to 100.
        random_percent: f64,
    },
    /// As sequential, but each request begins so many bytes behind the beginning of the last one; at the end of its part a queue
    /// begins again, one request further on than last time.
    Strided {
        /// At least the size of a request.
        stride_bytes: u64,
    },
    /// Zipf's law: the place of rank k is as likely as 1 / k^exponent. Ranks are spread over the working set at random.
    Zipf {
        /// Above 0, at most [`ZIPF_EXPONENT_MAX`].
        exponent: f64,
    },
    /// Self-similar (Pareto): the share h of the places gets the share 1 - h of the requests, of which again the share h of those
    /// places gets the share 1 - h. Ranks are spread over the working set at random.
    Pareto {
        /// h: above 0, below 0.5. 0.2 is "80 to 20".
        share: f64,
    },
    /// Areas side by side from the start of the working set, each with its own share of the requests. Requests and spaces both
    /// make 100 percent.
    Hot {
        /// The areas.
        areas: Vec<HotArea>,
    },
}

/// An area with its own share of requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HotArea {
    /// How many of 100 requests go there.
    pub requests_percent: f64,
    /// How much of the working set it is, in percent.
    pub space_percent: f64,
}

/// What is wrong with a workload, whatever the volume.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    /// Nobody knows it by this name.
    #[error("there is no workload '{name}'; there are {}", named::names())]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// None or too many of something.
    #[error("a {of} has {count} {what}; 1 to {max} are allowed")]
    Count {
        /// Of what.
        of: &'static str,
        /// What.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        max: usize,
    },
    /// A number outside its bounds.
    #[error("{what} is {value}; {allowed} is allowed")]
    Number {
        /// Which.
        what: &'static str,
        /// What it is.
        value: f64,
        /// What it may be.
        allowed: &'static str,
    },
    /// Shares that do not make a whole.
    #[error("{what} make {sum} percent together; they must make 100")]
    Shares {
        /// Which.
        what: &'static str,
        /// What they make.
        sum: f64,
    },
    /// A number of bytes that makes no sense.
    #[error("{what} is {bytes} bytes; {allowed} is allowed")]
    Bytes {
        /// Which.
        what: &'static str,
        /// What it is.
        bytes: u64,
        /// What it may be.
        allowed: &'static str,
    },
    /// A text that is none of the forms.
    #[error("'{text}' is no {what}; {allowed} are allowed")]
    Text {
        /// What was written.
        text: String,
        /// What it should have been.
        what: &'static str,
        /// The forms.
        allowed: &'static str,
    },
}

impl Workload {
    /// Requests of one size that read and write.
    #[must_use]
    pub fn simple(request_bytes: u64, read_percent: u8, access: Access) -> Self {
        Workload::of(Stream {
            share_percent: 100.0,
            operations: Operations::read_write(f64::from(read_percent)),
            sizes: vec![SizeShare {
                bytes: request_bytes,
                percent: 100.0,
            }],
            align_bytes: None,
            access,
            range_bytes: None,
        })
    }

    /// One stream and nothing else.
    #[must_use]
    pub fn of(stream: Stream) -> Self {
        Workload {
            name: None,
            streams: vec![stream],
            range_bytes: None,
            compressible_percent: 0,
            round_up: false,
        }
    }

    /// Whether it does this at all.
    #[must_use]
    pub fn does(&self, kind: Kind) -> bool {
        let percent = |stream: &Stream| stream.operations.percents()[kind as usize];
        self.streams
            .iter()
            .any(|stream| stream.share_percent > 0.0 && percent(stream) > 0.0)
    }

    /// Whether it changes what the volume holds.
    #[must_use]
    pub fn modifies(&self) -> bool {
        self.does(Kind::Write) || self.does(Kind::Deallocate)
    }

    /// How many of 100 requests are of this kind.
    #[must_use]
    pub fn percent(&self, kind: Kind) -> f64 {
        self.streams
            .iter()
            .map(|of| of.share_percent * of.operations.percents()[kind as usize] / 100.0)
            .sum()
    }

    /// The one size of all requests, where they have one.
    #[must_use]
    pub fn one_size(&self) -> Option<u64> {
        let first = self.streams.first()?.sizes.first()?.bytes;
        let mut sizes = self.streams.iter().flat_map(|stream| &stream.sizes);
        sizes.all(|size| size.bytes == first).then_some(first)
    }

    /// The longest request.
    #[must_use]
    pub fn bytes_max(&self) -> u64 {
        let sizes = self.streams.iter().flat_map(|stream| &stream.sizes);
        sizes.map(|size| size.bytes).max().unwrap_or(0)
    }

    /// Whether it makes sense, whatever the volume.
    ///
    /// # Errors
    /// [`WorkloadError`]: the first thing that is wrong.
    pub fn check(&self) -> Result<(), WorkloadError> {
        count("workload", "streams", self.streams.len(), STREAMS_MAX)?;
        percent(
            "the compressible share of data",
            f64::from(self.compressible_percent),
        )?;
        shares(
            "the shares of the streams",
            self.streams.iter().map(|stream| stream.share_percent),
        )?;
        range("the working set", self.range_bytes)?;
        self.streams.iter().try_for_each(Stream::check)
    }
}

impl Stream {
    fn check(&self) -> Result<(), WorkloadError> {
        shares(
            "the shares of reads, writes, deallocations and flushes",
            self.operations.percents().into_iter(),
        )?;
        count("stream", "sizes", self.sizes.len(), SIZES_MAX)?;
        shares(
            "the shares of the sizes",
            self.sizes.iter().map(|size| size.percent),
        )?;
        for size in &self.sizes {
            bytes("the size of a request", size.bytes, "1 or more")?;
        }
        if let Some(align) = self.align_bytes {
            bytes("the alignment of requests", align, "1 or more")?;
        }
        range("the range of a stream", self.range_bytes)?;
        self.access.check()?;
        let longest = self.sizes.iter().map(|size| size.bytes).max();
        match self.access {
            Access::Strided { stride_bytes } if Some(stride_bytes) < longest => {
                Err(WorkloadError::Bytes {
                    what: "the stride",
                    bytes: stride_bytes,
                    allowed: "the size of the longest request or more",
                })
            }
            _ => Ok(()),
        }
    }
}

impl Access {
    /// Whether its numbers are within their bounds.
    ///
    /// # Errors
    /// [`WorkloadError`].
    pub fn check(&self) -> Result<(), WorkloadError> {
        match self {
            Access::Random | Access::Sequential => Ok(()),
            Access::Mixed { random_percent } => {
                percent("the random share of requests", *random_percent)
            }
            Access::Strided { stride_bytes } => bytes("the stride", *stride_bytes, "1 or more"),
            Access::Zipf { exponent } => number(
                "the exponent of Zipf's law",
                *exponent,
                *exponent > 0.0 && *exponent <= ZIPF_EXPONENT_MAX,
                "above 0, at most 5",
            ),
            Access::Pareto { share } => number(
                "the share of a Pareto distribution",
                *share,
                *share > 0.0 && *share < 0.5,
                "above 0 and below 0.5, such as 0.2 for 80 to 20,",
            ),
            Access::Hot { areas } => check_areas(areas),
        }
    }
}

fn check_areas(areas: &[HotArea]) -> Result<(), WorkloadError> {
    count("hot access", "areas", areas.len(), AREAS_MAX)?;
    shares(
        "the requests of the hot areas",
        areas.iter().map(|area| area.requests_percent),
    )?;
    shares(
        "the spaces of the hot areas",
        areas.iter().map(|area| area.space_percent),
    )?;
    match areas.iter().find(|area| area.space_percent <= 0.0) {
        None => Ok(()),
        Some(area) => Err(WorkloadError::Number {
            what: "the space of a hot area",
            value: area.space_percent,
            allowed: "above 0 percent",
        }),
    }
}

fn count(
    of: &'static str,
    what: &'static str,
    count: usize,
    max: usize,
) -> Result<(), WorkloadError> {
    if (1..=max).contains(&count) {
        return Ok(());
    }
    Err(WorkloadError::Count {
        of,
        what,
        count,
        max,
    })
}

fn number(
    what: &'static str,
    value: f64,
    good: bool,
    allowed: &'static str,
) -> Result<(), WorkloadError> {
    if good {
        return Ok(());
    }
    Err(WorkloadError::Number {
        what,
        value,
        allowed,
    })
}

fn percent(what: &'static str, value: f64) -> Result<(), WorkloadError> {
    number(
        what,
        value,
        (0.0..=100.0).contains(&value),
        "0 to 100 percent",
    )
}

fn bytes(what: &'static str, bytes: u64, allowed: &'static str) -> Result<(), WorkloadError> {
    if bytes > 0 {
        return Ok(());
    }
    Err(WorkloadError::Bytes {
        what,
        bytes,
        allowed,
    })
}

fn range(what: &'static str, of: Option<u64>) -> Result<(), WorkloadError> {
    of.map_or(Ok(()), |of| bytes(what, of, "1 or more"))
}

fn shares(what: &'static str, of: impl Iterator<Item = f64>) -> Result<(), WorkloadError> {
    let mut sum = 0.0;
    for share in of {
        percent(what, share)?;
        sum += share;
    }
    if (sum - 100.0).abs() <= SHARES_TOLERANCE {
        return Ok(());
    }
    Err(WorkloadError::Shares { what, sum })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(change: impl FnOnce(&mut Workload)) -> String {
        let mut workload = Workload::simple(4096, 70, Access::Random);
        workload.check().expect("what is changed is sound before");
        change(&mut workload);
        workload
            .check()
            .expect_err("it is wrong afterwards")
            .to_string()
    }

    #[test]
    fn what_is_wrong_is_named_with_what_is_allowed() {
        let access = |access: Access| said(|of| of.streams[0].access = access);
        let cases = [
            (
                said(|of| of.streams.clear()),
                "0 streams; 1 to 64 are allowed",
            ),
            (
                said(|of| of.compressible_percent = 101),
                "is 101; 0 to 100 percent is allowed",
            ),
            (
                said(|of| of.range_bytes = Some(0)),
                "the working set is 0 bytes; 1 or more is allowed",
            ),
            (
                said(|of| of.streams[0].share_percent = 99.0),
                "the shares of the streams make 99 percent together; they must make 100",
            ),
            (
                said(|of| of.streams[0].operations.flush_percent = 5.0),
                "flushes make 105 percent",
            ),
            (
                said(|of| of.streams[0].operations.read_percent = -1.0),
                "is -1; 0 to 100",
            ),
            (
                said(|of| of.streams[0].operations.read_percent = f64::NAN),
                "is NaN; 0 to 100",
            ),
            (
                said(|of| of.streams[0].sizes.clear()),
                "a stream has 0 sizes",
            ),
            (
                said(|of| of.streams[0].sizes[0].bytes = 0),
                "the size of a request is 0 bytes",
            ),
            (
                said(|of| of.streams[0].sizes[0].percent = 60.0),
                "the shares of the sizes make 60 percent",
            ),
            (
                said(|of| of.streams[0].align_bytes = Some(0)),
                "the alignment of requests is 0 bytes",
            ),
            (
                said(|of| of.streams[0].range_bytes = Some(0)),
                "the range of a stream is 0 bytes",
            ),
            (
                access(Access::Mixed {
                    random_percent: 100.5,
                }),
                "the random share of requests is 100.5",
            ),
            (
                access(Access::Strided { stride_bytes: 4095 }),
                "the stride is 4095 bytes; the size of the longest request or more",
            ),
            (
                access(Access::Zipf { exponent: 0.0 }),
                "is 0; above 0, at most 5 is allowed",
            ),
            (
                access(Access::Zipf {
                    exponent: f64::INFINITY,
                }),
                "is inf; above 0",
            ),
            (
                access(Access::Pareto { share: 0.5 }),
                "is 0.5; above 0 and below 0.5",
            ),
            (access(Access::Hot { areas: vec![] }), "0 areas"),
            (
                access(Access::Hot {
                    areas: vec![HotArea {
                        requests_percent: 100.0,
                        space_percent: 50.0,
                    }],
                }),
                "the spaces of the hot areas make 50 percent",
            ),
        ];
        for (said, contains) in cases {
            assert!(said.contains(contains), "{said:?} lacks {contains:?}");
        }
    }

    #[test]
    fn a_workload_knows_what_it_does() {
        let reads = Workload::simple(4096, 100, Access::Random);
        assert!(reads.does(Kind::Read) && !reads.does(Kind::Write) && !reads.modifies());
        let mixed = Workload::simple(8192, 30, Access::Sequential);
        assert!(mixed.modifies() && !mixed.does(Kind::Flush));
        assert_eq!(mixed.percent(Kind::Write), 70.0);
        assert_eq!((mixed.one_size(), mixed.bytes_max()), (Some(8192), 8192));
        let oracle = named("oracle").expect("it is known").workload();
        assert_eq!((oracle.one_size(), oracle.bytes_max()), (None, 64 << 10));
        assert!((oracle.percent(Kind::Read) - 79.21).abs() < 1e-9);
    }
}
