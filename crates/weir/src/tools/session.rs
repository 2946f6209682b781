//! What every tool needs: the system, its reactors, and volumes by URL.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use anyhow::{Context, bail};
use weir_block::{Volume, VolumeEvent, Watcher};
use weir_iscsi_host::IscsiHost;
use weir_load::Stop;
use weir_nfs_host::{NfsHost, User};
use weir_nvme_host::{HostIdentity, NvmeHost};
use weir_rbd::RbdHost;
use weir_reactor::linux::{LinuxConfig, LinuxSystem};
use weir_reactor::{Reactor, ReactorConfig, ReactorId, ReactorThread, Remote, Spin, System};
use weir_volume::probe::{contents_of, holders_of};
use weir_volume::{Access, Gate, Registry, VolumeUrl};

use super::ReactorArguments;
use super::interrupt::end_on_interrupt;
use weir_lab::secret::without_in_text;

/// For how long a reactor that is to act on time waits awake: where it slept, how late it woke up would be in what is measured.
const AWAKE: Spin = Spin::For(Duration::from_millis(100));

/// Reactors that run for as long as the tool does.
pub(crate) struct Session {
    system: Arc<LinuxSystem>,
    reactors: Vec<ReactorThread>,
    registry: Registry,
    nvme: Arc<NvmeHost>,
    iscsi: Arc<IscsiHost>,
    nfs: Arc<NfsHost>,
    rbd: Arc<RbdHost>,
    made: Arc<MadeHosts>,
    /// Kept for as long as the volumes may be used.
    notes: Mutex<Vec<Arc<Notes>>>,
    pub(crate) stop: Stop,
}

/// Says on standard error why the flushes of a volume fail: what they fail with does not.
struct Notes {
    volume: String,
}

impl Watcher for Notes {
    fn notice(&self, event: VolumeEvent) {
        if event == VolumeEvent::CacheLost {
            eprintln!(
                "note: {}: writes that were acknowledged and not flushed may be lost, so every flush fails until the volume is opened again; \
                 a target that was lost but keeps what it acknowledged can be opened with flush_after_reconnect=trust",
                self.volume
            );
        }
    }
}

/// NVMe hosts that this process made up, by name and identifier.
#[derive(Default)]
struct MadeHosts(Mutex<BTreeSet<(String, String)>>);

impl MadeHosts {
    fn add(&self, host: &HostIdentity) {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        made.insert((host.nqn.to_string(), host.id.to_string()));
    }

    /// What was asked for, where a host that was made up is to open it.
    fn asked(&self, url: &VolumeUrl) -> VolumeUrl {
        let made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let parameters = url.parameters();
        let (names, ids) = (parameters.all("hostnqn"), parameters.all("hostid"));
        let is_made = |nqn: &str, id: &str| made.contains(&(nqn.to_owned(), id.to_owned()));
        match (&names[..], &ids[..]) {
            ([nqn], [id]) if is_made(nqn, id) => url.clone().without("hostnqn").without("hostid"),
            _ => url.clone(),
        }
    }
}

impl Session {
    /// Starts reactors for `queues` queues of each volume. From now on a first interrupt asks the tool to stop, and a second one kills it.
    pub(crate) fn start(arguments: &ReactorArguments, queues: u32) -> anyhow::Result<Self> {
        Self::start_spinning(arguments, queues, 1, Spin::Auto)
    }

    /// As `start`, for the queues of so many volumes together.
    pub(crate) fn start_for(
        arguments: &ReactorArguments,
        queues: u32,
        volumes: u32,
    ) -> anyhow::Result<Self> {
        Self::start_spinning(arguments, queues, volumes, Spin::Auto)
    }

    /// As `start_for`, with reactors that hardly sleep: for a tool that has to act on time.
    pub(crate) fn start_awake(
        arguments: &ReactorArguments,
        queues: u32,
        volumes: u32,
    ) -> anyhow::Result<Self> {
        Self::start_spinning(arguments, queues, volumes, AWAKE)
    }

    fn start_spinning(
        arguments: &ReactorArguments,
        queues: u32,
        volumes: u32,
        spin: Spin,
    ) -> anyhow::Result<Self> {
        let session = Self::start_unattended(arguments, queues, volumes, spin)?;
        end_on_interrupt(&session.stop)?;
        Ok(session)
    }

    /// Reactors for a coordinator elsewhere: signals are the caller's matter, and only volumes that `gate` lets pass are opened.
    pub(crate) fn start_gated(
        arguments: &ReactorArguments,
        queues: u32,
        volumes: u32,
        awake: bool,
        gate: Gate,
    ) -> anyhow::Result<Self> {
        let spin = match awake {
            true => AWAKE,
            false => Spin::Auto,
        };
        let mut session = Self::start_unattended(arguments, queues, volumes, spin)?;
        let made = Arc::clone(&session.made);
        // Who it acts as by itself is nobody's wish.
        let gate: Gate = Arc::new(move |url| gate(&made.asked(url)));
        session.registry = session.registry.gated(gate);
        Ok(session)
    }

    fn start_unattended(
        arguments: &ReactorArguments,
        queues: u32,
        volumes: u32,
        spin: Spin,
    ) -> anyhow::Result<Self> {
        let system = LinuxSystem::new(LinuxConfig::default())?;
        let processors = system.processors().len();
        let count = arguments
            .reactors
            .map_or(processors.min(queues as usize), |asked| asked as usize)
            .max(1);
        if count > processors {
            bail!(
                "{count} reactors were asked for, but the process may run on {processors} processors only; ask for at most {processors}"
            );
        }
        let reactors = (0..count)
            .map(|index| start_reactor(&system, index, spin))
            .collect::<Result<_, _>>()?;
        let queues =
            u16::try_from(queues.div_ceil(volumes)).context("there are at most 65535 queues")?;
        let nvme = crate::volumes::nvme_host(&*system, queues.max(count as u16))?;
        let iscsi = crate::volumes::iscsi_host(&*system, queues.max(count as u16))?;
        let nfs = NfsHost::new(User::of_this_process(), queues.max(count as u16));
        let rbd = crate::volumes::rbd_host(&*system);
        let registry = weir_gateway::kinds::registry(&nvme, &iscsi, &nfs, &rbd);
        Ok(Session {
            system,
            reactors,
            registry,
            nvme,
            iscsi,
            nfs,
            rbd,
            made: Arc::default(),
            notes: Mutex::default(),
            stop: Stop::new(),
        })
    }

    /// Who this machine is to NVMe targets.
    pub(crate) fn identity(&self) -> &HostIdentity {
        self.nvme.identity()
    }

    /// Name of this machine to iSCSI targets.
    pub(crate) fn initiator(&self) -> &weir_iscsi::Name {
        self.iscsi.name()
    }

    /// This machine as an NFS client.
    pub(crate) fn nfs(&self) -> Arc<NfsHost> {
        Arc::clone(&self.nfs)
    }

    /// A host that nobody has seen before.
    pub(crate) fn another_host(&self) -> HostIdentity {
        let mut bytes = [0; 16];
        self.system.random_bytes(&mut bytes);
        let host = HostIdentity::from_random(bytes);
        self.made.add(&host);
        host
    }

    pub(crate) fn remotes(&self) -> Vec<Remote> {
        self.reactors
            .iter()
            .map(|reactor| reactor.remote.clone())
            .collect()
    }

    /// Opens a volume, and says on standard error what should be known about it.
    pub(crate) fn open(&self, url: &VolumeUrl, access: Access) -> anyhow::Result<Arc<dyn Volume>> {
        let (registry, url) = (self.registry.clone(), url.clone());
        let volume = self.control().call_blocking(move |reactor| async move {
            registry.open(&reactor, &url, access).await
        })??;
        for notice in self.registry.take_notices() {
            eprintln!("note: {}", without_in_text(&notice.to_string()));
        }
        let notes = Arc::new(Notes {
            volume: without_in_text(&volume.name()),
        });
        let watcher: Weak<Notes> = Arc::downgrade(&notes);
        volume.watch(watcher);
        let mut kept = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push(notes);
        drop(kept);
        Ok(volume)
    }

    /// Refuses a volume that carries something, or that something on this machine has hold of, unless its loss was agreed to.
    pub(crate) fn check_overwritable(
        &self,
        volume: &Arc<dyn Volume>,
        url: &VolumeUrl,
        destroy_data: bool,
    ) -> anyhow::Result<()> {
        if destroy_data {
            return Ok(());
        }
        match self.what_is_on(volume, url)? {
            None => Ok(()),
            Some(what) => bail!(
                "{} {what}, and would be overwritten; if that is meant, say --destroy-data '{}'",
                volume.name(),
                without_in_text(&url.to_string())
            ),
        }
    }

    /// Refuses what something on this machine has hold of.
    pub(crate) fn check_not_held(
        &self,
        volume: &Arc<dyn Volume>,
        url: &VolumeUrl,
    ) -> anyhow::Result<()> {
        let url = url.clone();
        let holders = self.run(move |reactor| async move { holders_of(&reactor, &url).await })?;
        let holders = holders.with_context(|| {
            format!(
                "cannot tell whether something has hold of {}; someone who may see all mounts and loop devices (root) can",
                volume.name()
            )
        })?;
        match holders.is_empty() {
            true => Ok(()),
            false => anyhow::bail!("{} is {}", volume.name(), holders.join("; ")),
        }
    }

    /// What a volume carries, or what on this machine has hold of it, as what is said of the volume: `carries an ext4 file system`. None where there is
    /// nothing that is known.
    pub(crate) fn what_is_on(
        &self,
        volume: &Arc<dyn Volume>,
        url: &VolumeUrl,
    ) -> anyhow::Result<Option<String>> {
        let (looked_at, place) = (Arc::clone(volume), url.clone());
        let (holders, found) = self.run(move |reactor| async move {
            let holders = holders_of(&reactor, &place).await;
            (holders, contents_of(&reactor, &looked_at).await)
        })?;
        let holders = holders.with_context(|| {
            format!(
                "cannot tell whether something has hold of {}; to overwrite it all the same, say --destroy-data '{}'",
                volume.name(),
                without_in_text(&url.to_string())
            )
        })?;
        if !holders.is_empty() {
            return Ok(Some(format!("is {}", holders.join("; "))));
        }
        let found = found.with_context(|| format!("cannot read what {} carries", volume.name()))?;
        Ok(found.map(|what| format!("carries {what}")))
    }

    /// Runs a tool on the control reactor.
    pub(crate) fn run<T, F>(
        &self,
        tool: impl FnOnce(Reactor) -> F + Send + 'static,
    ) -> anyhow::Result<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        self.control()
            .call_blocking(tool)
            .context("the tool's reactor stopped early")
    }

    fn control(&self) -> &Remote {
        &self.reactors[0].remote
    }
}

impl Drop for Session {
    /// Disconnects from what is remote, and stops the reactors.
    fn drop(&mut self) {
        let (nvme, iscsi) = (Arc::clone(&self.nvme), Arc::clone(&self.iscsi));
        let (nfs, rbd) = (Arc::clone(&self.nfs), Arc::clone(&self.rbd));
        // A reactor that stopped early has disconnected nothing and can do so no more.
        let _ = self.control().call_blocking(move |_| async move {
            nvme.close_all().await;
            iscsi.close_all().await;
            nfs.close_all().await;
            rbd.close_all().await;
        });
        for reactor in self.reactors.drain(..) {
            reactor.remote.stop();
            reactor.join();
        }
    }
}

fn start_reactor(
    system: &Arc<LinuxSystem>,
    index: usize,
    spin: Spin,
) -> anyhow::Result<ReactorThread> {
    let config = ReactorConfig {
        id: ReactorId(index as u32),
        name: format!("weir-tool-{index}"),
        spin,
        ..ReactorConfig::default()
    };
    let main = Box::new(|_| -> weir_reactor::LocalFuture<()> { Box::pin(std::future::pending()) });
    Arc::clone(system)
        .start_reactor(config, main)
        .with_context(|| format!("reactor {index} cannot be started"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use weir_agent::allow::Allowed;

    use super::*;

    /// Whoever may write in a folder that an agent opens files of can change it between the look and the opening.
    #[test]
    fn a_link_that_comes_after_the_look_leads_out_of_no_folder() {
        let place = tempfile::tempdir().unwrap();
        let (folder, outside) = (place.path().join("folder"), place.path().join("outside"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::create_dir(&outside).unwrap();
        for path in [folder.join("image"), outside.join("image")] {
            std::fs::write(path, [0; 4096]).unwrap();
        }
        let rule = format!("file:{}/", folder.display());
        let allowed = Allowed::new(vec![rule.parse().unwrap()]);
        let (moved, target) = (folder.clone(), outside.clone());
        for name in ["image", "new"] {
            let (allowed, moved, target) = (allowed.clone(), moved.clone(), target.clone());
            let gate: Gate = Arc::new(move |url| {
                let granted = allowed.check(url);
                let path = moved.join(name);
                let _ = std::fs::remove_file(&path);
                symlink(target.join(name), path).unwrap();
                granted
            });
            let arguments = ReactorArguments::of(Some(1));
            let session = Session::start_gated(&arguments, 1, 1, false, gate).unwrap();
            let url = VolumeUrl::new("file", &folder.join(name).display().to_string());
            let opened = session.open(&url.with("size", 4096), Access::READ_WRITE);
            let error = opened.err().map(|error| format!("{error:#}"));
            assert!(
                error.is_some_and(|error| error.contains("leads out of")),
                "{name}"
            );
        }
        assert!(!outside.join("new").exists());
    }

    /// Only what this process made up itself stands for what was asked for: nobody gets past what an agent allows by a name of their own.
    #[test]
    fn only_a_host_that_was_made_up_here_is_taken_for_none() {
        let hosts = MadeHosts::default();
        let [made, other] = [1, 2].map(|byte| HostIdentity::from_random([byte; 16]));
        let target = "nvme+tcp://127.0.0.1/nqn.2025-01.org.example:a?nsid=1";
        let plain: VolumeUrl = target.parse().unwrap();
        let named = |nqn: &HostIdentity, id: &HostIdentity| {
            let url = plain.clone().with("hostnqn", &nqn.nqn);
            url.with("hostid", id.id)
        };
        let own = named(&made, &made);
        assert_eq!(hosts.asked(&own), own, "it was not made yet");
        hosts.add(&made);
        assert_eq!(hosts.asked(&own), plain);
        assert_eq!(hosts.asked(&plain), plain);
        let twice = own.clone().with("hostnqn", &other.nqn);
        let half = plain.clone().with("hostnqn", &made.nqn);
        for url in [
            named(&other, &other),
            named(&made, &other),
            named(&other, &made),
            twice,
            half,
        ] {
            assert_eq!(hosts.asked(&url), url);
        }
    }
}
