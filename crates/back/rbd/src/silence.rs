//! Which images are opened again apart from others: what is decided of it, from what has ended their lives.
//!
//! An image may be open while some of it does not answer, as where one placement group that it has data in is silent. Each time that one of
//! its writes is not answered, its client is cut off, and with that all who share it. A first time may be a stall of the whole cluster.
//! After a second one soon afterwards the image shares clients with images of this kind alone.

use std::time::Duration;

use crate::threads;

/// For how many times `io_timeout` after the image was opened again one of its operations that is not answered counts as silence again.
const AGAIN_IO_TIMEOUTS: u32 = 10;

/// What is known of an image's silence.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    last: Last,
    apart: bool,
}

/// The last life that the image ended by itself, as an operation of its own was not answered.
#[derive(Debug, Default)]
enum Last {
    #[default]
    None,
    /// It is not opened again yet.
    Ended,
    /// It was opened again at this time, in ticks; none where the system does not tell.
    OpenedAgain(Option<u64>),
}

impl Silence {
    /// Whether the image belongs apart from others.
    pub(crate) fn is_apart(&self) -> bool {
        self.apart
    }

    /// A life has ended, because an operation of the image's own was not answered or because of another's. Whether that sets the image
    /// apart, which it was not before.
    pub(crate) fn ended(
        &mut self,
        unanswered: bool,
        now: Option<u64>,
        io_timeout: Duration,
    ) -> bool {
        let was_apart = self.apart;
        let is_recent = match self.last {
            Last::None => false,
            Last::Ended => true,
            Last::OpenedAgain(at) => at.zip(now).is_none_or(|(at, now)| {
                threads::time_of(now.saturating_sub(at)) <= io_timeout * AGAIN_IO_TIMEOUTS
            }),
        };
        if unanswered {
            self.apart |= is_recent;
            self.last = Last::Ended;
        } else {
            // It was quiet for long: whoever is silent now is another.
            self.apart &= is_recent;
        }
        self.apart && !was_apart
    }

    /// The image is open again.
    pub(crate) fn opened(&mut self, now: Option<u64>) {
        if matches!(self.last, Last::Ended) {
            self.last = Last::OpenedAgain(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IO_TIMEOUT: Duration = Duration::from_secs(30);
    /// The longest time that counts, in ticks.
    const SPAN: u64 = 300 * 100;

    #[test]
    fn a_second_silence_soon_after_the_first_sets_an_image_apart() {
        let mut silence = Silence::default();
        silence.ended(true, Some(1000), IO_TIMEOUT);
        assert!(!silence.is_apart(), "it may have been the whole cluster");
        // It took long to open it again, which says nothing.
        silence.opened(Some(90_000));
        // Another has its client cut off.
        silence.ended(false, Some(90_100), IO_TIMEOUT);
        silence.opened(Some(95_000));
        silence.ended(true, Some(90_000 + SPAN), IO_TIMEOUT);
        assert!(silence.is_apart());
        silence.opened(Some(200_000));
        // Another that is apart does.
        silence.ended(false, Some(200_000 + SPAN), IO_TIMEOUT);
        assert!(silence.is_apart());
        silence.opened(Some(300_000));
        silence.ended(true, Some(900_000), IO_TIMEOUT);
        assert!(silence.is_apart(), "others are not cut off for it anew");
    }

    #[test]
    fn an_image_that_was_quiet_for_long_is_none_that_is_silent() {
        let mut silence = Silence::default();
        silence.ended(true, Some(0), IO_TIMEOUT);
        silence.opened(Some(10));
        silence.ended(true, Some(11 + SPAN), IO_TIMEOUT);
        assert!(!silence.is_apart());
        silence.opened(Some(SPAN + 20));
        silence.ended(true, Some(SPAN + 30), IO_TIMEOUT);
        assert!(silence.is_apart());
        silence.opened(Some(SPAN + 40));
        silence.ended(false, Some(SPAN * 2 + 41), IO_TIMEOUT);
        assert!(
            !silence.is_apart(),
            "it comes back with those of its client"
        );
    }

    #[test]
    fn where_the_time_is_not_told_each_silence_counts() {
        let mut silence = Silence::default();
        silence.ended(false, None, IO_TIMEOUT);
        silence.opened(None);
        silence.ended(true, None, IO_TIMEOUT);
        assert!(!silence.is_apart());
        silence.opened(None);
        silence.ended(true, None, IO_TIMEOUT);
        assert!(silence.is_apart());
    }
}
