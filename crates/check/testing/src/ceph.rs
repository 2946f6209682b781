//! A fake cluster for one test, and reactors and hosts to use it with.

use std::ffi::{CString, c_char};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weir_block::Volume;
use weir_rbd::{
    AutoLimits, Ceph, Credentials, Identity, Images, Libraries, RbdHost, SCHEME, WatchLimits,
};
use weir_volume::{Access, OpenError, Registry, VolumeUrl};

use crate::harness::Harness;

/// The library that stands for both of Ceph's, which cargo has built beside this test.
pub fn fake() -> String {
    let test = std::env::current_exe().expect("a test is a file");
    let path = test.with_file_name("libweir_fake_librbd.so");
    assert!(path.is_file(), "{} was not built", path.display());
    path.to_str().expect("UTF-8").to_owned()
}

pub fn libraries() -> Libraries {
    Libraries {
        rados: fake(),
        rbd: fake(),
    }
}

/// Tests of this process that connect clients.
#[derive(Default)]
struct Connecting {
    tests: u64,
    alone: bool,
}

static CONNECTING: Mutex<Connecting> = Mutex::new(Connecting {
    tests: 0,
    alone: false,
});
static CONNECTING_CHANGED: Condvar = Condvar::new();

fn connecting() -> MutexGuard<'static, Connecting> {
    CONNECTING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A test that connects clients, while it lives.
pub struct Connects(());

/// Notes a test that connects clients; waits while another one is alone. Each client has threads, and a test that tells a client's own
/// from others must be the only one that connects. One test may have several.
#[must_use]
pub fn connects() -> Connects {
    let waited = CONNECTING_CHANGED.wait_while(connecting(), |state| state.alone);
    waited.unwrap_or_else(PoisonError::into_inner).tests += 1;
    Connects(())
}

impl Drop for Connects {
    fn drop(&mut self) {
        connecting().tests -= 1;
        CONNECTING_CHANGED.notify_all();
    }
}

/// The only test that connects clients, while it lives.
pub struct ConnectsAlone(());

/// Waits until no other test connects clients.
#[must_use]
pub fn connects_alone() -> ConnectsAlone {
    let others = |state: &mut Connecting| state.alone || state.tests > 0;
    let waited = CONNECTING_CHANGED.wait_while(connecting(), others);
    waited.unwrap_or_else(PoisonError::into_inner).alone = true;
    ConnectsAlone(())
}

impl Drop for ConnectsAlone {
    fn drop(&mut self) {
        connecting().alone = false;
        CONNECTING_CHANGED.notify_all();
    }
}

/// A fake cluster that nobody else uses.
pub struct Cluster {
    name: CString,
    pub conf: PathBuf,
    _directory: tempfile::TempDir,
    library: libloading::Library,
    _connects: Connects,
}

type Command = unsafe extern "C" fn(*const c_char, *const c_char) -> i64;

impl Cluster {
    #[expect(clippy::new_without_default, reason = "each is another cluster")]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("test-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let directory = tempfile::tempdir().unwrap();
        let conf = directory.path().join("ceph.conf");
        std::fs::write(&conf, format!("[global]\nmon host = {name}\n")).unwrap();
        Cluster {
            name: CString::new(name).unwrap(),
            conf,
            _directory: directory,
            // SAFETY: it is ours, and does nothing when it is loaded.
            library: unsafe { libloading::Library::new(fake()) }.unwrap(),
            _connects: connects(),
        }
    }

    /// With an image `rbd/image` of so many bytes.
    pub fn with_image(bytes: u64) -> Self {
        let cluster = Cluster::new();
        cluster.tell(&format!("image rbd/image {bytes}"));
        cluster
    }

    pub fn ask(&self, command: &str) -> i64 {
        let text = CString::new(command).unwrap();
        // SAFETY: the function has this type; both are strings that end.
        let answer = unsafe {
            let function = self.library.get::<Command>("fake_librbd_command").unwrap();
            function(self.name.as_ptr(), text.as_ptr())
        };
        assert!(answer >= 0, "{command}: {answer}");
        answer
    }

    pub fn tell(&self, command: &str) {
        self.ask(command);
    }

    pub fn url(&self, more: &str) -> String {
        format!("rbd:rbd/image?conf={}{more}", self.conf.display())
    }

    pub fn credentials(&self) -> Credentials {
        Credentials {
            conf: Some(self.conf.to_str().unwrap().to_owned()),
            ..Credentials::default()
        }
    }

    pub fn images(&self) -> Images {
        Images::connect(&Ceph::new(libraries()), &self.credentials(), "rbd", "").unwrap()
    }
}

pub fn host(id: &str) -> Arc<RbdHost> {
    host_with(id, AutoLimits::default())
}

pub fn host_with(id: &str, limits: AutoLimits) -> Arc<RbdHost> {
    host_with_limits(id, limits, WatchLimits::default())
}

pub fn host_with_limits(id: &str, auto: AutoLimits, watch: WatchLimits) -> Arc<RbdHost> {
    let identity = Identity {
        id: id.to_owned(),
        name: format!("gateway-{id}"),
    };
    RbdHost::with_limits(identity, libraries(), auto, watch)
}

pub fn try_open(
    harness: &Harness,
    host: &Arc<RbdHost>,
    url: &str,
    access: Access,
) -> Result<Arc<dyn Volume>, OpenError> {
    let mut registry = Registry::new();
    registry.register(SCHEME, host.factory());
    let url: VolumeUrl = url.parse().unwrap();
    harness.run(0, move |reactor| async move {
        registry.open(&reactor, &url, access).await
    })
}

pub fn open(harness: &Harness, host: &Arc<RbdHost>, url: &str) -> Arc<dyn Volume> {
    try_open(harness, host, url, Access::READ_WRITE)
        .unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// Repeats a test until it counts: until no time-out of the tested code expired only because the process or its machine stood still.
/// `attempt` says whether it counts.
pub fn undisturbed(mut attempt: impl FnMut() -> bool) {
    const ATTEMPTS: u32 = 20;
    let counts = (0..ATTEMPTS).any(|_| attempt());
    assert!(counts, "{ATTEMPTS} attempts in a row were disturbed");
}

/// Waits until something is so. The limit only ends a test that hangs.
pub fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(300);
    while !is() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
