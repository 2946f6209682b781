//! Volumes: opened by URL on a reactor, guarded, watched, resized, fenced and closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use weir_block::{ResizeError, Volume, VolumeEvent, Watcher};
use weir_reactor::oneshot;
use weir_volume::{Access, Guard, GuardConfig, OpenError, VolumeUrl};

use super::ReactorEngine;
use crate::engine::{EngineError, Opening, ReservationReport, VolumeReport};
use crate::kinds::images_below;
use crate::name::VolumeName;

/// Longest time that closing waits for what is in flight, before and after cutting it off. Where cutting it off would cut others off,
/// what is in flight has its time-out first, usually 30 seconds.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(60);
/// Longest time that closing waits for the last user of a volume to let go of it.
const RELEASE_TIME_MAX: Duration = Duration::from_secs(5);
/// How often closing looks whether the last user has let go.
const RELEASE_POLL: Duration = Duration::from_millis(2);
/// The notice of a volume whose unflushed writes may be gone.
const CACHE_LOST: &str = "writes that were acknowledged and not flushed may be lost, as the log says: every flush fails until the volume \
     is opened again (remove it and add it, or restart the gateway)";

/// A volume that is open.
pub(super) struct Open {
    pub(super) guard: Arc<Guard>,
    medium: Arc<Medium>,
    notices: Vec<String>,
}

/// Latest news of the volume's medium.
#[derive(Default)]
struct Medium {
    /// It cannot be reached.
    lost: AtomicBool,
    /// Writes that were not flushed may be gone.
    cache_lost: AtomicBool,
}

impl Watcher for Medium {
    fn notice(&self, event: VolumeEvent) {
        match event {
            VolumeEvent::Lost => self.lost.store(true, Ordering::Relaxed),
            VolumeEvent::Restored => self.lost.store(false, Ordering::Relaxed),
            VolumeEvent::CacheLost => self.cache_lost.store(true, Ordering::Relaxed),
            VolumeEvent::Resized | VolumeEvent::Unfenced | VolumeEvent::Fenced => {}
        }
    }
}

impl Open {
    fn new(volume: Arc<dyn Volume>, notices: Vec<String>) -> Self {
        let guard = Guard::new(volume, GuardConfig::default());
        let guard = guard.expect("a guard that changes nothing fits every volume");
        let medium: Arc<Medium> = Arc::default();
        let watcher: Arc<dyn Watcher> = medium.clone();
        guard.watch(Arc::downgrade(&watcher));
        Self {
            guard,
            medium,
            notices,
        }
    }

    pub(super) fn report(&self, reservations: Option<ReservationReport>) -> VolumeReport {
        let geometry = self.guard.geometry();
        let mut notices = self.notices.clone();
        if self.medium.cache_lost.load(Ordering::Relaxed) {
            notices.push(CACHE_LOST.to_owned());
        }
        VolumeReport {
            size_bytes: geometry.length_bytes(),
            block_size: geometry.block_size.bytes(),
            read_only: geometry.read_only,
            volatile_cache: geometry.volatile_cache,
            lost: self.medium.lost.load(Ordering::Relaxed),
            notices,
            reservations,
        }
    }
}

impl ReactorEngine {
    pub(super) async fn open(
        &self,
        name: &VolumeName,
        url: &str,
        opening: Opening,
    ) -> Result<(), EngineError> {
        let fail = |reason: String| EngineError::OpenVolume {
            name: name.clone(),
            reason,
            in_use: false,
        };
        let url: VolumeUrl = url.parse().map_err(|error| fail(format!("{error}")))?;
        // Others may be opened at the same time: what is said of them is not about this volume.
        let registry = match opening {
            Opening::Create => self.registry.with_own_notices(),
            Opening::Existing => self.registry.for_existing().with_own_notices(),
        };
        let opener = registry.clone();
        let opened = self.next_reactor().call(move |reactor| async move {
            opener.open(&reactor, &url, Access::READ_WRITE).await
        });
        let opened: Result<Arc<dyn Volume>, OpenError> =
            opened.await.map_err(|stopped| fail(stopped.to_string()))?;
        let volume = opened.map_err(|error| EngineError::OpenVolume {
            name: name.clone(),
            reason: error.to_string(),
            in_use: error.in_use(),
        })?;
        let notices = registry.take_notices();
        let notices = notices.into_iter().map(|notice| notice.text).collect();
        self.books()
            .volumes
            .insert(name.clone(), Open::new(volume, notices));
        Ok(())
    }

    /// Opens the images below a volume again that were given up, all at the same time: one that does not answer keeps no other.
    pub(super) async fn reopen(&self, name: &VolumeName, url: &str) -> Result<(), EngineError> {
        let fail = |reason: String| EngineError::OpenVolume {
            name: name.clone(),
            reason,
            in_use: false,
        };
        let url: VolumeUrl = url.parse().map_err(|error| fail(format!("{error}")))?;
        let open = |image: VolumeUrl| {
            let (rbd, image) = (self.rbd.clone(), image.to_string());
            async move { rbd.open_gone(&image).await }
        };
        let errors = all_at_once(images_below(&url).into_iter().map(open)).await;
        if errors.is_empty() {
            return Ok(());
        }
        let reasons: Vec<_> = errors.iter().map(ToString::to_string).collect();
        Err(fail(reasons.join("; ")))
    }

    pub(super) async fn close(&self, name: &VolumeName) -> Result<(), EngineError> {
        let Some(open) = self.books().volumes.remove(name) else {
            return Ok(());
        };
        let fail = |reason: &str| {
            let reason = reason.to_owned();
            EngineError::CloseVolume {
                name: name.clone(),
                reason,
            }
        };
        // Nothing new comes in; then what hangs in the medium is cut off.
        open.guard.retire(Box::new(|_| {}));
        let (sender, fenced) = oneshot();
        open.guard
            .fence(Box::new(move |result| sender.send(result)));
        match tokio::time::timeout(CLOSE_TIME_MAX, fenced).await {
            Ok(Some(Ok(()))) => {}
            Ok(Some(Err(error))) => return Err(fail(&error.to_string())),
            Ok(None) => return Err(fail("its reactor has stopped")),
            Err(_) => return Err(fail("its medium does not end what it has begun")),
        }
        let medium = Arc::downgrade(open.guard.inner());
        drop(open);
        let released = async {
            while medium.strong_count() > 0 {
                tokio::time::sleep(RELEASE_POLL).await;
            }
        };
        let released = tokio::time::timeout(RELEASE_TIME_MAX, released).await;
        released.map_err(|_| fail("it is still held by a connection"))
    }

    pub(super) async fn resize(
        &self,
        name: &VolumeName,
        url: &str,
        size_bytes: u64,
        force: bool,
    ) -> Result<String, EngineError> {
        let guard = self
            .books()
            .volumes
            .get(name)
            .map(|open| open.guard.clone());
        let guard = guard.ok_or_else(|| EngineError::VolumeNotOpen { name: name.clone() })?;
        let fail = |reason: String| EngineError::ResizeVolume {
            name: name.clone(),
            reason,
        };
        let block_bytes = u64::from(guard.geometry().block_size.bytes());
        if size_bytes == 0 || !size_bytes.is_multiple_of(block_bytes) {
            let reason = format!(
                "{size_bytes} bytes is not a whole number of its {block_bytes}-byte blocks, at \
                 least one"
            );
            return Err(fail(reason));
        }
        let blocks = size_bytes / block_bytes;
        let resized = self
            .next_reactor()
            .call(move |reactor| async move { guard.resize(&reactor, blocks, force).await });
        let resized = resized.await.map_err(|stopped| fail(stopped.to_string()))?;
        resized.map_err(|error| match error {
            ResizeError::WouldShrink {
                from_bytes,
                to_bytes,
            } => EngineError::WouldShrink {
                name: name.clone(),
                from_bytes,
                to_bytes,
            },
            other => fail(other.to_string()),
        })?;
        Ok(with_size(url, size_bytes))
    }
}

/// Does all of this at the same time, each to its end. Yields the errors.
async fn all_at_once<E: Send + 'static>(
    work: impl Iterator<Item = impl Future<Output = Result<(), E>> + Send + 'static>,
) -> Vec<E> {
    let done: JoinSet<_> = work.collect();
    done.join_all()
        .await
        .into_iter()
        .filter_map(Result::err)
        .collect()
}

/// The URL with another value of its own `size=`; the same URL where it has none. A nested URL is
/// escaped, so that its parameters are not mistaken for this one's.
fn with_size(url: &str, size_bytes: u64) -> String {
    let Some((place, query)) = url.split_once('?') else {
        return url.to_owned();
    };
    let replace = |pair: &str| match pair.split_once('=') {
        Some(("size", _)) => format!("size={size_bytes}"),
        _ => pair.to_owned(),
    };
    let query: Vec<_> = query.split('&').map(replace).collect();
    format!("{place}?{}", query.join("&"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{all_at_once, with_size};

    #[test]
    fn one_that_does_not_answer_keeps_no_other_from_its_end() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let (sender, mut second) = tokio::sync::oneshot::channel();
            let answer = |sender: Option<tokio::sync::oneshot::Sender<()>>| async move {
                match sender {
                    Some(sender) => sender.send(()).map_err(|()| "nobody waits"),
                    None => std::future::pending().await,
                }
            };
            let work = [None, Some(sender)].into_iter().map(answer);
            let all = tokio::time::timeout(Duration::from_secs(40), all_at_once(work));
            all.await.expect_err("the first does not answer");
            assert_eq!(second.try_recv(), Ok(()));
        });
    }

    #[test]
    fn a_url_is_given_its_new_size() {
        let cases = [
            ("mem:?size=1M", "mem:?size=4096"),
            (
                "file:/a?block_size=512&size=1M&direct=auto",
                "file:/a?block_size=512&size=4096&direct=auto",
            ),
            ("file:/a", "file:/a"),
            (
                "x:?member=file%3A/a%3Fsize%3D1M",
                "x:?member=file%3A/a%3Fsize%3D1M",
            ),
        ];
        for (before, after) in cases {
            assert_eq!(with_size(before, 4096), after);
        }
    }
}
