//! Logging: text or JSON lines on standard error, with a bound on how often a line may repeat.
//!
//! Each place in the program that logs has a bucket of [`BURST`] lines that refills with
//! [`PER_SECOND`] lines a second. What does not fit is left out and counted, and the counts are
//! logged every [`SUMMARY_PERIOD`]; so a host that fails over and over cannot fill a disk, and
//! nothing is left out silently.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt};

use crate::config::{LogConfig, LogFormat, LogLevel};

/// Lines that one place may log at once.
pub const BURST: u32 = 50;
/// Lines a second that one place may log in the long run.
pub const PER_SECOND: u32 = 10;
/// How often what was left out is summed up.
pub const SUMMARY_PERIOD: Duration = Duration::from_secs(10);
/// The variable that goes before the configured level.
pub const VARIABLE: &str = "WEIR_LOG";

static SUPPRESSED: AtomicU64 = AtomicU64::new(0);

/// Log lines left out since the start, in the whole process.
pub fn suppressed_total() -> u64 {
    SUPPRESSED.load(Ordering::Relaxed)
}

/// Why logging cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The variable is not a filter.
    #[error(
        "{VARIABLE}={value:?} is not a log filter: {reason}; write a level such as debug, or \
             parts with levels such as info,weir_gateway=debug"
    )]
    Filter {
        /// Its value.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Somebody else logs in this process.
    #[error("logging has begun already in this process")]
    Begun,
}

/// Begins logging as configured; `filter` is the value of [`VARIABLE`].
///
/// # Errors
/// The filter is wrong, or logging has begun already.
pub fn begin(config: &LogConfig, filter: Option<&str>) -> Result<Arc<RateLimit>, LogError> {
    let directives = filter.unwrap_or(match config.level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    });
    let filter = EnvFilter::try_new(directives).map_err(|error| LogError::Filter {
        value: directives.to_owned(),
        reason: error.to_string(),
    })?;
    let limit = Arc::new(RateLimit::default());
    let lines = fmt::layer().with_writer(std::io::stderr);
    let lines = match config.format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let subscriber = tracing_subscriber::registry()
        .with(lines)
        .with(Limiter(limit.clone()));
    subscriber
        .with(filter)
        .try_init()
        .map_err(|_| LogError::Begun)?;
    Ok(limit)
}

/// The buckets of all places that log.
#[derive(Default)]
pub struct RateLimit {
    buckets: Mutex<HashMap<Identifier, Bucket>>,
}

struct Bucket {
    place: &'static Metadata<'static>,
    lines: f64,
    filled: Instant,
    suppressed: u64,
}

impl RateLimit {
    /// Whether a line from this place may be logged at `now`; counts it if not.
    fn admits(&self, place: &'static Metadata<'static>, now: Instant) -> bool {
        let mut buckets = self
            .buckets
            .lock()
            .expect("nothing panics while it counts lines");
        let full = || Bucket {
            place,
            lines: BURST.into(),
            filled: now,
            suppressed: 0,
        };
        let bucket = buckets.entry(place.callsite()).or_insert_with(full);
        let elapsed = now.saturating_duration_since(bucket.filled).as_secs_f64();
        bucket.lines = (bucket.lines + elapsed * f64::from(PER_SECOND)).min(BURST.into());
        bucket.filled = now;
        if bucket.lines < 1.0 {
            bucket.suppressed += 1;
            SUPPRESSED.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        bucket.lines -= 1.0;
        true
    }

    /// What was left out since the last call: the place, and how many lines.
    pub fn take_suppressed(&self) -> Vec<(String, u64)> {
        let mut buckets = self
            .buckets
            .lock()
            .expect("nothing panics while it counts lines");
        let left_out = buckets.values_mut().filter(|bucket| bucket.suppressed > 0);
        let mut taken: Vec<_> = left_out
            .map(|bucket| {
                let place = match (bucket.place.file(), bucket.place.line()) {
                    (Some(file), Some(line)) => format!("{file}:{line}"),
                    _ => bucket.place.target().to_owned(),
                };
                (place, std::mem::take(&mut bucket.suppressed))
            })
            .collect();
        taken.sort();
        taken
    }

    /// Logs what was left out since the last time.
    pub fn sum_up(&self) {
        for (place, lines) in self.take_suppressed() {
            tracing::warn!(
                place,
                lines,
                "log lines were left out: too many from one place"
            );
        }
    }

    /// Logs what was left out, again and again. Does not return.
    pub async fn sum_up_forever(self: Arc<Self>) {
        loop {
            tokio::time::sleep(SUMMARY_PERIOD).await;
            self.sum_up();
        }
    }
}

struct Limiter(Arc<RateLimit>);

impl<S: Subscriber> Layer<S> for Limiter {
    fn event_enabled(&self, event: &Event<'_>, _context: Context<'_, S>) -> bool {
        let place = event.metadata();
        // The summary itself is few lines by its nature.
        place.target() == module_path!() || self.0.admits(place, Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_noisy_place_is_bounded_and_summed_up_and_others_are_not_touched() {
        let (limit, written) = (Arc::new(RateLimit::default()), Written::default());
        let writer = written.clone();
        let lines = fmt::layer()
            .with_writer(move || writer.clone())
            .with_ansi(false);
        let subscriber = tracing_subscriber::registry()
            .with(lines)
            .with(Limiter(limit.clone()));
        let before = suppressed_total();
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..10 * BURST {
                tracing::info!(target: "noise", "noisy");
            }
            tracing::info!(target: "noise", "quiet");
            limit.sum_up();
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let count = |what: &str| text.lines().filter(|line| line.contains(what)).count();
        let noisy = count("noisy");
        // The loop takes next to no time, in which next to nothing refills.
        assert!(
            (BURST as usize..10 * BURST as usize).contains(&noisy),
            "{noisy} lines"
        );
        assert_eq!((count("quiet"), count("left out")), (1, 1));
        let left_out = 10 * BURST as usize - noisy;
        assert!(text.contains(&format!("lines={left_out}")), "{text}");
        assert_eq!(suppressed_total() - before, left_out as u64);
    }

    #[test]
    fn a_bucket_refills_with_time() {
        let limit = RateLimit::default();
        let mut place = None;
        tracing::subscriber::with_default(tracing_subscriber::registry(), || {
            place = tracing::info_span!("a place").metadata();
        });
        let (place, start) = (place.unwrap(), Instant::now());
        let admitted = |at: Instant| (0..1000).filter(|_| limit.admits(place, at)).count();
        assert_eq!(admitted(start), BURST as usize);
        assert_eq!(admitted(start), 0);
        assert_eq!(
            admitted(start + Duration::from_secs(1)),
            PER_SECOND as usize
        );
        assert_eq!(admitted(start + Duration::from_secs(3600)), BURST as usize);
        assert_eq!(
            limit.take_suppressed()[0].1,
            4000 - 2 * u64::from(BURST) - u64::from(PER_SECOND)
        );
        assert!(limit.take_suppressed().is_empty());
    }

    #[test]
    fn a_wrong_filter_is_refused() {
        let error = begin(&LogConfig::default(), Some("a=b=c")).err().unwrap();
        assert!(error.to_string().contains("WEIR_LOG=\"a=b=c\""), "{error}");
    }
}
