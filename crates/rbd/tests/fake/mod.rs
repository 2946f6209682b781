//! A fake cluster for one test, and reactors and hosts to use it with.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::ffi::{CString, c_char};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use weir_block::Volume;
use weir_rbd::{
    AutoLimits, Ceph, Credentials, Identity, Images, Libraries, RbdHost, SCHEME, WatchLimits,
};
use weir_volume::{Access, OpenError, Registry, VolumeUrl};

use crate::common::Harness;

/// The library that stands for both of Ceph's, which cargo has built beside this test.
pub(crate) fn fake() -> String {
    let test = std::env::current_exe().expect("a test is a file");
    let path = test.with_file_name("libweir_fake_librbd.so");
    assert!(path.is_file(), "{} was not built", path.display());
    path.to_str().expect("UTF-8").to_owned()
}

pub(crate) fn libraries() -> Libraries {
    Libraries {
        rados: fake(),
        rbd: fake(),
    }
}

/// A fake cluster that nobody else uses.
pub(crate) struct Cluster {
    name: CString,
    pub(crate) conf: PathBuf,
    _directory: tempfile::TempDir,
    library: libloading::Library,
}

type Command = unsafe extern "C" fn(*const c_char, *const c_char) -> i64;

impl Cluster {
    pub(crate) fn new() -> Self {
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
        }
    }

    /// With an image `rbd/image` of so many bytes.
    pub(crate) fn with_image(bytes: u64) -> Self {
        let cluster = Cluster::new();
        cluster.tell(&format!("image rbd/image {bytes}"));
        cluster
    }

    pub(crate) fn ask(&self, command: &str) -> i64 {
        let text = CString::new(command).unwrap();
        // SAFETY: the function has this type; both are strings that end.
        let answer = unsafe {
            let function = self.library.get::<Command>("fake_librbd_command").unwrap();
            function(self.name.as_ptr(), text.as_ptr())
        };
        assert!(answer >= 0, "{command}: {answer}");
        answer
    }

    pub(crate) fn tell(&self, command: &str) {
        self.ask(command);
    }

    pub(crate) fn url(&self, more: &str) -> String {
        format!("rbd:rbd/image?conf={}{more}", self.conf.display())
    }

    pub(crate) fn credentials(&self) -> Credentials {
        Credentials {
            conf: Some(self.conf.to_str().unwrap().to_owned()),
            ..Credentials::default()
        }
    }

    pub(crate) fn images(&self) -> Images {
        Images::connect(&Ceph::new(libraries()), &self.credentials(), "rbd", "").unwrap()
    }
}

pub(crate) fn host(id: &str) -> Arc<RbdHost> {
    host_with(id, AutoLimits::default())
}

pub(crate) fn host_with(id: &str, limits: AutoLimits) -> Arc<RbdHost> {
    host_with_limits(id, limits, WatchLimits::default())
}

pub(crate) fn host_with_limits(id: &str, auto: AutoLimits, watch: WatchLimits) -> Arc<RbdHost> {
    let identity = Identity {
        id: id.to_owned(),
        name: format!("gateway-{id}"),
    };
    RbdHost::with_limits(identity, libraries(), auto, watch)
}

pub(crate) fn try_open(
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

pub(crate) fn open(harness: &Harness, host: &Arc<RbdHost>, url: &str) -> Arc<dyn Volume> {
    try_open(harness, host, url, Access::READ_WRITE)
        .unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
