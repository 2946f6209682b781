//! Surroundings of a case: the target, what was found out about it, how answers are judged, and the gateway behind it.

use std::net::SocketAddr;
use std::time::Duration;

use crate::case::{Case, Failure, Needs};
use crate::connection::{Connection, Manner};
use crate::gateway::Gateway;

/// Blocks at the end of the namespace or logical unit that belong to the witness.
pub const WITNESS_BLOCKS: u64 = 16;
/// How long a case waits where nothing should come.
pub const QUIET: Duration = Duration::from_millis(150);

/// A protocol that targets speak: its cases, and hosts that behave well.
pub trait Protocol: Sized + 'static {
    /// Target of the suite, and the hosts that it is there.
    type Target: Where;
    /// Facts that were found out about the target before the first case.
    type Facts: Facts;

    /// Names of the groups of cases, from 1 on.
    const GROUPS: &'static [&'static str];
    /// Connections of one witness.
    const WITNESS_CONNECTIONS: u64;

    /// Every case, by group.
    fn cases() -> Vec<&'static Case<Context<Self>>>;

    /// Finds out about a target. `own`: whether it is Weir, where that is known.
    ///
    /// # Errors
    /// A well-behaved host cannot use it: nothing could be told from a case.
    fn find_out(
        target: &Self::Target,
        manner: Manner,
        own: Option<bool>,
    ) -> Result<Self::Facts, Failure>;

    /// Tries whether a fresh connection is served.
    ///
    /// # Errors
    /// It is not.
    fn serves(context: &Context<Self>) -> Result<(), Failure>;

    /// A well-behaved host: the witness, where it is to watch.
    ///
    /// # Errors
    /// It cannot connect.
    fn host(
        context: &Context<Self>,
        is_witness: bool,
        manner: Manner,
    ) -> Result<Box<dyn Host>, Failure>;
}

/// Place at which a suite runs.
pub trait Where {
    /// Address at which the target listens.
    fn address(&self) -> SocketAddr;

    /// Another address at which the same is served.
    fn second(&self) -> Option<SocketAddr>;
}

/// Facts about a target, whatever it speaks.
pub trait Facts {
    /// It is Weir.
    fn is_own(&self) -> bool;

    /// Name that it gives itself.
    fn model(&self) -> &str;

    /// Bytes of a block.
    fn block_bytes(&self) -> u32;

    /// Blocks of the namespace or logical unit.
    fn blocks(&self) -> u64;

    /// Needs of cases that it meets.
    fn offers(&self) -> Needs;
}

/// A well-behaved host, one command at a time.
pub trait Host: Send {
    /// Reads a block.
    ///
    /// # Errors
    /// The command failed, or its answer did not come.
    fn read(&mut self, lba: u64) -> Result<Vec<u8>, Failure>;

    /// Writes whole blocks.
    ///
    /// # Errors
    /// The command failed, or its answer did not come.
    fn write(&mut self, lba: u64, data: &[u8]) -> Result<(), Failure>;

    /// Says that it is still there; called every few seconds.
    ///
    /// # Errors
    /// It is not heard.
    fn keep_alive(&mut self) -> Result<(), Failure>;
}

/// Limits that a gateway of ours was given so that cases can reach them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShortLimits {
    /// Time that a connection may take until its Connect, or the end of its login.
    pub handshake_time: Duration,
    /// Connections at once that have not come so far.
    pub half_open_max: usize,
    /// How long a host may take to go on with what it began or was asked for; at twice that its connection has ended.
    pub progress_time: Duration,
}

/// What a case works with.
pub struct Context<P: Protocol> {
    /// Target of the suite, and the hosts that it is there.
    pub target: P::Target,
    /// What was found out about the target.
    pub facts: P::Facts,
    /// How answers are waited for and judged.
    pub manner: Manner,
    /// What the target and the caller give.
    pub given: Needs,
    /// Limits that cases can reach; with [`Needs::SHORT_LIMITS`].
    pub limits: Option<ShortLimits>,
    gateway: Option<Box<dyn Gateway>>,
}

impl<P: Protocol> Context<P> {
    /// Finds out about a target. `given` is what the caller gives beyond it; `own`: whether it is Weir, where that is known.
    ///
    /// # Errors
    /// A well-behaved host cannot use it: nothing could be told from a case.
    pub fn new(
        target: P::Target,
        patience: Duration,
        given: Needs,
        own: Option<bool>,
        gateway: Option<Box<dyn Gateway>>,
    ) -> Result<Self, Failure> {
        // Whether it is Weir is not known yet; nothing is judged until then.
        let manner = Manner {
            patience,
            exact: false,
        };
        let facts = P::find_out(&target, manner, own)?;
        if facts.block_bytes() == 0 || facts.blocks() <= 2 * WITNESS_BLOCKS {
            let (blocks, bytes) = (facts.blocks(), facts.block_bytes());
            let why = format!("it has {blocks} blocks of {bytes} bytes");
            return Err(Failure::preparation("what the target serves", why));
        }
        let mut given = given.and(facts.offers());
        if target.second().is_some() {
            given = given.and(Needs::SECOND_LISTENER);
        }
        if gateway.is_some() {
            given = given.and(Needs::GATEWAY);
        }
        Ok(Self {
            manner: Manner {
                patience,
                exact: facts.is_own(),
            },
            target,
            facts,
            given,
            limits: None,
            gateway,
        })
    }

    /// Tells whether the target takes connections.
    pub fn listens(&self) -> bool {
        Connection::new(self.target.address()).is_ok()
    }

    /// Blocks from LBA 0 that cases may use; those behind are the witness's.
    pub fn case_blocks(&self) -> u64 {
        self.facts.blocks() - WITNESS_BLOCKS
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
        (bytes / self.facts.block_bytes()).max(1)
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
