//! What a case is given: the target, what was found out about it, and connections to it.

use std::net::SocketAddr;
use std::time::Duration;

use weir_nvme::command::ConnectData;
use weir_nvme::identify::{Cns, IdentifyController, IdentifyNamespace};
use weir_nvme::property::{Capabilities, Property};
use weir_nvme::tcp::{DigestOptions, InitializeRequest};
use weir_nvme::{HostId, Nqn, ascii_text};

use crate::case::{Failure, Needs};
use crate::gateway::Gateway;
use crate::peer::{Manner, Peer};
use crate::queue::{Controller, Queue, QueueOptions};

/// Blocks at the end of the namespace that belong to the witness.
pub const WITNESS_BLOCKS: u64 = 16;
/// How long a case waits where nothing should come.
pub const QUIET: Duration = Duration::from_millis(150);
/// Bytes of a page as MDTS counts them where CAP.MPSMIN is 0.
const PAGE_BYTES: u64 = 4096;
/// Model number of a Weir that was given no other.
const MODEL: &str = "Weir";

/// Where the suite runs, and as whom.
#[derive(Debug, Clone)]
pub struct Target {
    /// Where it listens.
    pub address: SocketAddr,
    /// Where it listens as well, for the same subsystem.
    pub second: Option<SocketAddr>,
    /// The subsystem.
    pub subsystem: Nqn,
    /// The namespace.
    pub nsid: u32,
    /// The host that the cases are.
    pub host_nqn: Nqn,
    /// Its identifier.
    pub host_id: HostId,
    /// The host that the witness is; may be the same one.
    pub witness_nqn: Nqn,
    /// Its identifier.
    pub witness_id: HostId,
}

/// What was found out about the target before the first case.
#[derive(Debug, Clone)]
pub struct Facts {
    /// It is Weir, by its model number or because it was said.
    pub own: bool,
    /// Model number.
    pub model: String,
    /// ICResp's digests, of those asked for.
    pub digests: DigestOptions,
    /// ICResp's MAXH2CDATA, in bytes.
    pub maximum_h2c_data: u32,
    /// The longest transfer (MDTS) in bytes; none: no limit.
    pub transfer_bytes_max: Option<u64>,
    /// In-capsule data of an I/O command in bytes (IOCCSZ).
    pub in_capsule_bytes: u32,
    /// Entries of a queue at most (CAP.MQES + 1).
    pub queue_entries_max: u32,
    /// CAP.TO: how long CSTS.RDY may take.
    pub ready_time_max: Duration,
    /// Identify Controller.
    pub controller: Box<IdentifyController>,
    /// Identify Namespace.
    pub namespace: Box<IdentifyNamespace>,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Blocks of the namespace.
    pub blocks: u64,
}

impl Facts {
    /// Blocks from LBA 0 that cases may use; those behind are the witness's.
    pub fn case_blocks(&self) -> u64 {
        self.blocks - WITNESS_BLOCKS
    }
}

/// Limits that a gateway of ours was given so that cases can reach them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShortLimits {
    /// How long a connection may take until its Connect.
    pub handshake_time: Duration,
    /// Connections without a Connect at once.
    pub half_open_max: usize,
    /// How long a host may take to go on with what it began or was asked for; at twice that its connection has ended.
    pub progress_time: Duration,
}

/// What a case works with.
pub struct Context {
    /// Where the suite runs, and as whom.
    pub target: Target,
    /// What was found out about the target.
    pub facts: Facts,
    /// How answers are waited for and judged.
    pub manner: Manner,
    /// What the target and the caller give.
    pub given: Needs,
    /// Limits that cases can reach; with [`Needs::SHORT_LIMITS`].
    pub limits: Option<ShortLimits>,
    gateway: Option<Box<dyn Gateway>>,
}

impl Context {
    /// Finds out about a target. `given` is what the caller gives beyond it; `own`: whether it is Weir, where that is known.
    ///
    /// # Errors
    /// A well-behaved host cannot use it: nothing could be told from a case.
    pub fn new(
        target: Target,
        patience: Duration,
        mut given: Needs,
        own: Option<bool>,
        gateway: Option<Box<dyn Gateway>>,
    ) -> Result<Self, Failure> {
        // Whether it is Weir is not known yet; nothing is judged until then.
        let manner = Manner {
            patience,
            exact: false,
        };
        let facts = find_out(&target, manner, own)?;
        if facts.digests.contains(DigestOptions::HEADER)
            && facts.digests.contains(DigestOptions::DATA)
        {
            given = given.and(Needs::DIGESTS);
        }
        if target.second.is_some() {
            given = given.and(Needs::SECOND_LISTENER);
        }
        if gateway.is_some() {
            given = given.and(Needs::GATEWAY);
        }
        Ok(Self {
            manner: Manner {
                patience,
                exact: facts.own,
            },
            target,
            facts,
            given,
            limits: None,
            gateway,
        })
    }

    /// The gateway under our control.
    ///
    /// # Errors
    /// There is none; a case that needs it says [`Needs::GATEWAY`].
    pub fn gateway(&mut self) -> Result<&mut dyn Gateway, Failure> {
        match &mut self.gateway {
            Some(gateway) => Ok(gateway.as_mut()),
            None => Err(Failure::NotOffered("a gateway under our control".into())),
        }
    }

    /// Whether there is a gateway under our control.
    pub fn has_gateway(&self) -> bool {
        self.gateway.is_some()
    }

    /// Runs a `weir` command on the gateway that must succeed; what it prints.
    ///
    /// # Errors
    /// There is no gateway, or the command failed.
    pub fn weir(&mut self, arguments: &[&str]) -> Result<String, Failure> {
        let what = format!("weir {}", arguments.join(" "));
        self.gateway()?
            .weir(arguments)
            .map_err(|why| Failure::preparation(what, why))
    }

    /// How the queues of this suite's host are made: no digests, 32 entries, no in-capsule data for I/O.
    pub fn options(&self) -> QueueOptions {
        let target = &self.target;
        QueueOptions::new(
            target.subsystem.clone(),
            target.host_nqn.clone(),
            target.host_id,
        )
    }

    /// A connection on which nothing was said.
    ///
    /// # Errors
    /// The target does not take it.
    pub fn peer(&self) -> Result<Peer, Failure> {
        Peer::connect(self.target.address, self.manner)
    }

    /// A connection on which ICReq and ICResp were exchanged, without digests.
    ///
    /// # Errors
    /// The target does not answer.
    pub fn initialized(&self) -> Result<Peer, Failure> {
        let mut peer = self.peer()?;
        peer.initialize(&InitializeRequest::new(DigestOptions::NONE))?;
        Ok(peer)
    }

    /// A controller that is ready, with its admin queue.
    ///
    /// # Errors
    /// It cannot be brought up.
    pub fn controller(&self) -> Result<Controller, Failure> {
        self.controller_with(&self.options())
    }

    /// A controller that is ready, made as these options say.
    ///
    /// # Errors
    /// It cannot be brought up.
    pub fn controller_with(&self, options: &QueueOptions) -> Result<Controller, Failure> {
        Controller::bring_up(self.target.address, options, self.manner)
    }

    /// A controller that is ready, and one I/O queue of it.
    ///
    /// # Errors
    /// They cannot be brought up.
    pub fn io(&self) -> Result<(Controller, Queue), Failure> {
        self.io_with(&self.options())
    }

    /// As [`Context::io`], made as these options say.
    ///
    /// # Errors
    /// They cannot be brought up.
    pub fn io_with(&self, options: &QueueOptions) -> Result<(Controller, Queue), Failure> {
        let controller = self.controller_with(options)?;
        let queue = controller.io(1)?;
        Ok((controller, queue))
    }

    /// The limits that cases can reach.
    ///
    /// # Errors
    /// There are none; a case that needs them says [`Needs::SHORT_LIMITS`].
    pub fn short_limits(&self) -> Result<ShortLimits, Failure> {
        self.limits
            .ok_or_else(|| Failure::NotOffered("short limits".into()))
    }

    /// Blocks that are `bytes` long, at least one.
    pub fn blocks_of(&self, bytes: u32) -> u32 {
        (bytes / self.facts.block_bytes).max(1)
    }

    /// Waits until `holds`, looking now and then, for as long as patience lasts.
    ///
    /// # Errors
    /// It does not come true, or looking failed.
    pub fn eventually(
        &mut self,
        what: &str,
        mut holds: impl FnMut(&mut Self) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        const LOOKS: u32 = 250;
        let pause = self.manner.patience / LOOKS;
        for _ in 0..LOOKS {
            if holds(self)? {
                return Ok(());
            }
            std::thread::sleep(pause);
        }
        Err(Failure::NoAnswer {
            what: what.into(),
            expected: "that it comes true".into(),
            waited: self.manner.patience,
        })
    }
}

fn find_out(target: &Target, manner: Manner, own: Option<bool>) -> Result<Facts, Failure> {
    let digests = Peer::connect(target.address, manner)?
        .initialize(&InitializeRequest::new(
            DigestOptions::HEADER | DigestOptions::DATA,
        ))?
        .digests;
    let mut options = QueueOptions::new(
        target.subsystem.clone(),
        target.host_nqn.clone(),
        target.host_id,
    );
    options.controller_id = ConnectData::ANY_CONTROLLER;
    let mut controller = Controller::bring_up(target.address, &options, manner)?;
    let admin = &mut controller.admin;
    let maximum_h2c_data = admin.maximum_h2c_data();
    let capabilities = Capabilities(admin.property(Property::Capabilities)?);
    let identified = IdentifyController::decode(&admin.identify(Cns::Controller, 0)?);
    let namespace = IdentifyNamespace::decode(&admin.identify(Cns::Namespace, target.nsid)?);
    let block_bytes = namespace.format().block_size().unwrap_or(0);
    if block_bytes == 0 || namespace.size <= 2 * WITNESS_BLOCKS {
        let what = format!("namespace {}", target.nsid);
        let why = format!("it has {} blocks of {block_bytes} bytes", namespace.size);
        return Err(Failure::preparation(what, why));
    }
    let model = ascii_text(&identified.model_number);
    let page = PAGE_BYTES << capabilities.memory_page_size_minimum();
    let exponent = identified.maximum_data_transfer_size;
    Ok(Facts {
        own: own.unwrap_or(model == MODEL),
        model,
        digests,
        maximum_h2c_data,
        transfer_bytes_max: (exponent > 0)
            .then(|| page.checked_shl(exponent.into()))
            .flatten(),
        in_capsule_bytes: identified.in_capsule_data_bytes() as u32,
        queue_entries_max: capabilities.maximum_queue_entries(),
        ready_time_max: Duration::from_millis(500) * u32::from(capabilities.timeout_500ms()),
        controller: Box::new(identified),
        namespace: Box::new(namespace),
        block_bytes: block_bytes as u32,
        blocks: namespace.size,
    })
}
