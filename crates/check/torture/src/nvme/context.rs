//! NVMe/TCP targets: what is found out about one, and connections to it.

use std::net::SocketAddr;
use std::time::Duration;

use weir_nvme::command::{AdminCommand, ConnectData};
use weir_nvme::identify::{Cns, IdentifyController, IdentifyNamespace};
use weir_nvme::property::{Capabilities, Property};
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::tcp::{DigestOptions, InitializeRequest};
use weir_nvme::{HostId, Nqn, ascii_text};

use crate::case::{Case, Failure, Needs};
use crate::connection::Manner;
use crate::context::{Host, Protocol, Where};
use crate::nvme::cases;
use crate::nvme::peer::Peer;
use crate::nvme::queue::{Controller, Queue, QueueOptions};

/// Bytes of a page as MDTS counts them where CAP.MPSMIN is 0.
const PAGE_BYTES: u64 = 4096;
/// Model number of a Weir that was given no other.
const MODEL: &str = "Weir";

/// Target of the suite, and the hosts that it is there.
#[derive(Debug, Clone)]
pub struct Target {
    /// Address at which it listens.
    pub address: SocketAddr,
    /// Another address at which it listens, for the same subsystem.
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

/// Facts that were found out about the target before the first case.
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

/// Surroundings of a case of this suite.
pub type Context = crate::context::Context<Nvme>;

/// NVMe/TCP.
pub struct Nvme;

impl Protocol for Nvme {
    type Target = Target;
    type Facts = Facts;

    const GROUPS: &'static [&'static str] = &cases::GROUPS;
    /// Its admin queue's and its I/O queue's.
    const WITNESS_CONNECTIONS: u64 = 2;

    fn cases() -> Vec<&'static Case<Context>> {
        cases::all()
    }

    fn find_out(target: &Target, manner: Manner, own: Option<bool>) -> Result<Facts, Failure> {
        find_out(target, manner, own)
    }

    fn serves(context: &Context) -> Result<(), Failure> {
        context.controller()?.admin.still_works(0, 0)
    }

    fn host(context: &Context, is_witness: bool, manner: Manner) -> Result<Box<dyn Host>, Failure> {
        let target = &context.target;
        let (nqn, id) = match is_witness {
            true => (target.witness_nqn.clone(), target.witness_id),
            false => (target.host_nqn.clone(), target.host_id),
        };
        let options = QueueOptions::new(target.subsystem.clone(), nqn, id);
        let controller = Controller::bring_up(target.address, &options, manner)?;
        let queue = controller.io(1)?;
        Ok(Box::new(OneQueue {
            controller,
            queue,
            nsid: target.nsid,
            block: context.facts.block_bytes,
        }))
    }
}

impl Where for Target {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn second(&self) -> Option<SocketAddr> {
        self.second
    }
}

impl crate::context::Facts for Facts {
    fn is_own(&self) -> bool {
        self.own
    }

    fn model(&self) -> &str {
        &self.model
    }

    fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn offers(&self) -> Needs {
        let both = [DigestOptions::HEADER, DigestOptions::DATA];
        match both.iter().all(|one| self.digests.contains(*one)) {
            true => Needs::DIGESTS,
            false => Needs::NOTHING,
        }
    }
}

/// A host with one I/O queue.
struct OneQueue {
    controller: Controller,
    queue: Queue,
    nsid: u32,
    block: u32,
}

impl Host for OneQueue {
    fn read(&mut self, lba: u64) -> Result<Vec<u8>, Failure> {
        self.queue.read(self.nsid, lba, 1, self.block)
    }

    fn write(&mut self, lba: u64, data: &[u8]) -> Result<(), Failure> {
        let blocks = data.len() as u32 / self.block;
        self.queue.write(self.nsid, lba, blocks, data)
    }

    fn keep_alive(&mut self) -> Result<(), Failure> {
        let sqe = AdminCommand::KeepAlive.sqe(0, SglDescriptor::NONE);
        let admin = &mut self.controller.admin;
        admin.succeed("Keep Alive", sqe, &[], 0).map(drop)
    }
}

impl Context {
    /// Options of the queues of this suite's host: no digests, 32 entries, no in-capsule data for I/O.
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
