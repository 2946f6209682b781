//! Common ground of volumes without a medium: the parameters of their URLs, and their speed where it has a limit.
//!
//! The limit is that of one device in front of which the requests of every reactor queue.
//! A request begins when the one before it has had its share of a second, and ends so long after that. A stall is a time in which the
//! device stands still: what would begin or end in it does so later, by as much as there was left of it. Nothing is random, and time
//! is the reactors' own: simulated, it is the same every time.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weir_block::size::Size;
use weir_block::{BlockSize, DeallocatedRead, Geometry, VolumeError};
use weir_reactor::{Instant, Reactor};

use crate::lane::Next;
use crate::support::{TRANSFER_BYTES_MAX, blocks_of_size};
use crate::url::{Parameters, value_error};
use crate::{Access, UrlError, VolumeUrl};

/// Requests a second at most that can be asked for.
const RATE_MAX: u64 = 1_000_000;
/// The longest that every request can be made to take.
const DELAY_MAX: Duration = Duration::from_secs(60);
/// The longest stall, and the latest.
const STALL_MAX: Duration = Duration::from_secs(3600);
const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// Size, blocks and limit that the URL of a volume without a medium asks for.
pub(crate) struct Wanted {
    pub(crate) block_size: BlockSize,
    pub(crate) blocks: u64,
    pub(crate) pace: Option<Arc<Pace>>,
}

impl Wanted {
    /// Reads `size=`, `block_size=` and the parameters of [`Pace::of`]. Blocks have 4096 bytes unless told. `example` is a size.
    ///
    /// # Errors
    /// [`UrlError`].
    pub(crate) fn of(url: &VolumeUrl, example: &str, size_max: u64) -> Result<Self, UrlError> {
        url.expect_no_place()?;
        let parameters = url.parameters();
        let size = parameters.size("size")?;
        let block_size = parameters.block_size()?.unwrap_or(BlockSize::B4096);
        let allowed = format!("its size, such as {example}");
        let size = parameters.required("size", size, &allowed)?;
        let pace = Pace::of(&parameters)?;
        parameters.finish()?;
        if size > size_max {
            let allowed = format!("at most {}", Size(size_max));
            return Err(value_error("size", &size.to_string(), allowed));
        }
        Ok(Wanted {
            block_size,
            blocks: blocks_of_size(size, block_size)?,
            pace,
        })
    }

    /// A geometry of such a volume, which does everything at once and to as many blocks as a transfer has.
    pub(crate) fn geometry(&self, access: Access) -> Geometry {
        let transfer_blocks_max = TRANSFER_BYTES_MAX >> self.block_size.shift();
        Geometry {
            generation: 0,
            block_size: self.block_size,
            blocks: self.blocks,
            transfer_blocks_max,
            transfer_blocks_optimal: 1,
            memory_alignment: 1,
            deallocate_blocks: 1,
            deallocated_read: DeallocatedRead::Zeroes,
            volatile_cache: false,
            read_only: access.read_only,
            atomic_blocks: transfer_blocks_max,
            atomic_blocks_power_fail: transfer_blocks_max,
            compare_write_blocks: transfer_blocks_max,
        }
    }
}

/// The limit, shared by the queues of a volume.
pub(crate) struct Pace {
    /// From the beginning of one request to that of the next, in nanoseconds.
    interval_ns: u64,
    /// How long each takes once it had its turn.
    delay: Duration,
    stall: Option<Stall>,
    /// When the first request came, in nanoseconds of the reactors' clock; [`NEVER`] before.
    first: AtomicU64,
    /// When the next one may begin, in nanoseconds of the reactors' clock.
    next_start: AtomicU64,
}

const NEVER: u64 = u64::MAX;

/// A time in which the device stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stall {
    length: Duration,
    /// When it begins, from the first request on.
    after: Duration,
}

impl Stall {
    /// `LENGTH@AFTER`.
    fn parse(text: &str) -> Option<Self> {
        let (length, after) = text.split_once('@')?;
        let time = |text| crate::url::parse_duration(text).filter(|&time| time <= STALL_MAX);
        let stall = Stall {
            length: time(length)?,
            after: time(after)?,
        };
        (!stall.length.is_zero()).then_some(stall)
    }
}

impl Pace {
    /// What `rate=`, `delay=` and `stall=` say; none where none is given.
    ///
    /// # Errors
    /// [`UrlError`].
    pub(crate) fn of(parameters: &Parameters<'_>) -> Result<Option<Arc<Self>>, UrlError> {
        let rate = parameters.number("rate", 1..=RATE_MAX)?;
        let delay = parameters.duration("delay", DELAY_MAX)?;
        let allowed = "how long, @, and how long after the first request, such as 1s@5s; each a whole number with us, ms or s, up to 3600s";
        let stall = parameters.parsed("stall", |text| {
            Stall::parse(text).ok_or_else(|| allowed.to_owned())
        })?;
        if rate.is_none() && delay.is_none() && stall.is_none() {
            return Ok(None);
        }
        Ok(Some(Arc::new(Pace {
            interval_ns: rate.map_or(0, |rate| NANOSECONDS_PER_SECOND / rate),
            delay: delay.unwrap_or_default(),
            stall,
            first: AtomicU64::new(NEVER),
            next_start: AtomicU64::new(0),
        })))
    }

    /// Says when a request ends that was just done with `result`: at once, or when the device's limit says.
    #[inline]
    pub(crate) fn next(
        pace: Option<&Arc<Self>>,
        reactor: &Reactor,
        result: Result<(), VolumeError>,
    ) -> Next<Infallible> {
        match pace {
            None => Next::Done(result),
            // The turn may have begun long ago where the machine stood still since: a request would come back early.
            Some(pace) => Next::Due(pace.end_of_next(reactor.precise_now()), result),
        }
    }

    /// When a request ends that is submitted `now`, behind all that were submitted before.
    fn end_of_next(&self, now: Instant) -> Instant {
        let stall = self.stall_at(now);
        let interval = Duration::from_nanos(self.interval_ns);
        let begins = |next: u64| {
            let free = Instant::from_nanos(next.max(now.as_nanos()));
            match stall {
                Some((from, until)) if free >= from && free < until => until,
                _ => free,
            }
        };
        // A share that the stall interrupts goes on after it.
        let goes_on = |begun: Instant, ends: Instant| match stall {
            Some((from, until)) if begun < from && ends > from => ends + (until - from),
            _ => ends,
        };
        let turn_ends = |begun: Instant| goes_on(begun, begun + interval);
        let after = |next: u64| Some(turn_ends(begins(next)).as_nanos());
        let before = self
            .next_start
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, after)
            .unwrap_or_else(|_| unreachable!("there is always a next"));
        let begun = begins(before);
        goes_on(begun, begun + interval + self.delay)
    }

    /// From when until when the device stands still, now that a request comes.
    fn stall_at(&self, now: Instant) -> Option<(Instant, Instant)> {
        let stall = self.stall?;
        let known = self.first.load(Ordering::Relaxed);
        let first = match known {
            NEVER => {
                let now = now.as_nanos();
                let set = Ordering::Relaxed;
                self.first
                    .compare_exchange(NEVER, now, set, set)
                    .map_or_else(|other| other, |_| now)
            }
            known => known,
        };
        let from = Instant::from_nanos(first) + stall.after;
        Some((from, from + stall.length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(interval_ms: u64, delay_ms: u64, stall: Option<&str>) -> Pace {
        Pace {
            interval_ns: interval_ms * 1_000_000,
            delay: Duration::from_millis(delay_ms),
            stall: stall.map(|text| Stall::parse(text).expect("it is a stall")),
            first: AtomicU64::new(NEVER),
            next_start: AtomicU64::new(0),
        }
    }

    fn at(milliseconds: u64) -> Instant {
        Instant::from_nanos(milliseconds * 1_000_000)
    }

    #[test]
    fn requests_have_their_turn_one_after_the_other() {
        let pace = pace(10, 5, None);
        for turn in 1..4 {
            assert_eq!(pace.end_of_next(at(100)), at(100 + 10 * turn + 5));
        }
        assert_eq!(pace.end_of_next(at(500)), at(515));
    }

    #[test]
    fn the_device_stands_still_for_the_stall_and_goes_on_where_it_was() {
        // From 150 to 250: a hundred milliseconds, fifty after the first request.
        let pace = pace(10, 5, Some("100ms@50ms"));
        let ends: Vec<_> = (0..7).map(|_| pace.end_of_next(at(100))).collect();
        let expected = [115, 125, 135, 145, 255, 265, 275];
        assert_eq!(ends, expected.map(at), "the fifth is interrupted by it");
        assert_eq!(pace.end_of_next(at(400)), at(415), "there is only one");

        let pace = self::pace(0, 20, Some("100ms@50ms"));
        for (submitted, ends) in [(100, 120), (140, 260), (150, 270), (249, 270), (250, 270)] {
            assert_eq!(pace.end_of_next(at(submitted)), at(ends), "{submitted}");
        }
        let mut ends: Vec<_> = (251..400).map(|now| pace.end_of_next(at(now))).collect();
        let in_order = ends.clone();
        ends.sort_unstable();
        assert_eq!(ends, in_order);
    }

    #[test]
    fn what_is_no_stall_is_none() {
        for text in [
            "", "1s", "@", "1s@", "@1s", "0s@1s", "1@1s", "1s@1", "1s@1s@1s", "3601s@0s",
        ] {
            assert_eq!(Stall::parse(text), None, "{text}");
        }
        assert!(Stall::parse("1us@0s").is_some());
    }
}
