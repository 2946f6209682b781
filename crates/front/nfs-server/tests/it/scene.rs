//! A server of a directory of its own.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weir_files::{Directory, FileError, FileSystem};
use weir_front::{HubLimits, Hubs, ListenAt};
use weir_nfs_server::{Allowed, Export, HandleKey, Keeper, Nfs, NfsConfig, Persistent, Source};
use weir_reactor::SocketOptions;
use weir_testing::harness::Harness;

/// Names of clients that were kept.
#[derive(Default, Clone)]
pub(crate) struct Names(pub(crate) Arc<Mutex<BTreeSet<Vec<u8>>>>);

impl Keeper for Names {
    fn keep(&self, clients: &BTreeSet<Vec<u8>>) -> io::Result<()> {
        *self.0.lock().unwrap() = clients.clone();
        Ok(())
    }
}

pub(crate) struct Scene {
    _folder: tempfile::TempDir,
    pub(crate) path: PathBuf,
    pub(crate) harness: Harness,
    pub(crate) hubs: Hubs,
    pub(crate) nfs: Nfs,
    pub(crate) address: SocketAddr,
    pub(crate) names: Names,
    exports: Vec<Export>,
}

pub(crate) fn config() -> NfsConfig {
    NfsConfig {
        lease: Duration::from_secs(3600),
        ..NfsConfig::default()
    }
}

fn directory(harness: &Harness, path: &Path) -> Directory {
    Directory::new(Arc::clone(&harness.system), path, None)
}

/// An export of a directory.
pub(crate) fn export(harness: &Harness, path: &Path, number: u32, name: &str) -> Export {
    Export {
        number,
        path: name.into(),
        source: Source::Files(Arc::new(directory(harness, path))),
        fsid: (7, number.into()),
        is_read_only: false,
        allowed: Allowed::Any,
    }
}

/// A server on two reactors; none where the process may not serve directories.
pub(crate) fn scene() -> Option<Scene> {
    scene_with(config(), |_| {})
}

pub(crate) fn scene_with(config: NfsConfig, change: impl FnOnce(&mut Export)) -> Option<Scene> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("served");
    std::fs::create_dir(&path).unwrap();
    let harness = Harness::real(2);
    if let Err(error) = directory(&harness, &path).root() {
        assert_eq!(
            error,
            FileError::NotPermitted,
            "the only reason to have no root"
        );
        eprintln!("skipped: the process has no CAP_DAC_READ_SEARCH");
        return None;
    }
    let mut export = export(&harness, &path, 1, "exports/share");
    change(&mut export);
    Some(serving(folder, harness, config, |_| export))
}

/// A server of an export on two reactors.
pub(crate) fn scene_of(export: impl FnOnce(&Hubs) -> Export) -> Scene {
    let folder = tempfile::tempdir().unwrap();
    serving(folder, Harness::real(2), config(), export)
}

fn serving(
    folder: tempfile::TempDir,
    harness: Harness,
    config: NfsConfig,
    export: impl FnOnce(&Hubs) -> Export,
) -> Scene {
    let remotes = harness.run_all(|_, reactor| async move { reactor.remote() });
    let hubs = Hubs::new(&remotes, &HubLimits::default()).unwrap();
    let names = Names::default();
    let exports = vec![export(&hubs)];
    let (nfs, address) = start(&harness, &hubs, config, &names, &exports);
    Scene {
        path: folder.path().join("served"),
        _folder: folder,
        harness,
        hubs,
        nfs,
        address,
        names,
        exports,
    }
}

fn start(
    harness: &Harness,
    hubs: &Hubs,
    config: NfsConfig,
    names: &Names,
    exports: &[Export],
) -> (Nfs, SocketAddr) {
    let persistent = Persistent {
        key: HandleKey(*b"the key of tests"),
        name: b"a server".to_vec(),
        reclaiming: names.0.lock().unwrap().clone(),
        keeper: Arc::new(names.clone()),
    };
    let (hubs, exports) = (hubs.clone(), exports.to_vec());
    harness.run(0, move |_| async move {
        let nfs = Nfs::on(&hubs, config, persistent).await.unwrap();
        nfs.apply(exports).await.unwrap();
        let listener = ListenAt {
            address: "127.0.0.1:0".parse().unwrap(),
            options: SocketOptions::default(),
            port: (),
            inherited: None,
        };
        let address = nfs.add_listener(listener).await.unwrap();
        (nfs, address)
    })
}

impl Scene {
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Serves something else from now on.
    pub(crate) fn apply(&mut self, exports: Vec<Export>) {
        self.exports.clone_from(&exports);
        let nfs = self.nfs.clone();
        self.harness
            .run(0, move |_| async move { nfs.apply(exports).await })
            .unwrap();
    }

    /// Starts the server anew, with what it has kept.
    pub(crate) fn restart(&mut self, config: NfsConfig) {
        let nfs = self.nfs.clone();
        self.harness.run(
            0,
            move |_| async move { nfs.shutdown(Duration::ZERO).await },
        );
        let started = start(
            &self.harness,
            &self.hubs,
            config,
            &self.names,
            &self.exports,
        );
        (self.nfs, self.address) = started;
    }
}
