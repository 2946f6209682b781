//! iSCSI targets: what is found out about one, and connections to it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::case::{Case, Failure, Needs};
use crate::connection::Manner;
use crate::context::{Host, Protocol, Where};
use crate::iscsi::cases;
use crate::iscsi::peer::Peer;
use crate::iscsi::session::{Login, Session};

/// Vendor of a Weir.
const VENDOR: &str = "WEIR";

/// Target of the suite, and the hosts that it is there.
#[derive(Debug, Clone)]
pub struct Target {
    /// Address at which it listens.
    pub address: SocketAddr,
    /// Another address at which it listens, for the same target.
    pub second: Option<SocketAddr>,
    /// Its name.
    pub name: String,
    /// The logical unit.
    pub lun: u16,
    /// The initiator that the cases are.
    pub initiator: String,
    /// The initiator that the witness is; may be the same one.
    pub witness: String,
}

/// Facts that were found out about the target before the first case.
#[derive(Debug, Clone)]
pub struct Facts {
    /// It is Weir, by its vendor or because it was said.
    pub own: bool,
    /// Vendor and product.
    pub model: String,
    /// It grants both digests.
    pub digests: bool,
    /// Data may go with a command.
    pub immediate_data: bool,
    /// Data beside that has to wait until it is asked for.
    pub initial_r2t: bool,
    /// Unsolicited data of one command at most, in bytes.
    pub first_burst: u32,
    /// The longest data segment that it takes, in bytes.
    pub receive_segment: u32,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Blocks of the logical unit.
    pub blocks: u64,
}

/// Surroundings of a case of this suite.
pub type Context = crate::context::Context<Iscsi>;

/// iSCSI.
pub struct Iscsi;

impl Protocol for Iscsi {
    type Target = Target;
    type Facts = Facts;

    const GROUPS: &'static [&'static str] = &cases::GROUPS;
    const WITNESS_CONNECTIONS: u64 = 1;

    fn cases() -> Vec<&'static Case<Context>> {
        cases::all()
    }

    fn find_out(target: &Target, manner: Manner, own: Option<bool>) -> Result<Facts, Failure> {
        let login = login_of(target, &target.initiator);
        let login = login.with_digests().with("InitialR2T", "No");
        let mut session = Session::open(target.address, &login, manner)?;
        let ended = session.run(&[0x12, 0, 0, 0, 36, 0], 36, &[])?;
        let inquiry = session.succeeded("INQUIRY", ended)?.data;
        let ended = session.run(&service_in(0x10, 32), 32, &[])?;
        let capacity = session.succeeded("READ CAPACITY (16)", ended)?.data;
        let (Some(names), Some(last), Some(block)) = (
            inquiry.get(8..32),
            capacity.first_chunk::<8>(),
            capacity.get(8..12).and_then(|four| four.first_chunk::<4>()),
        ) else {
            let why = "INQUIRY or READ CAPACITY (16) has too little data";
            return Err(Failure::preparation("the logical unit", why));
        };
        let model = String::from_utf8_lossy(names);
        let model: Vec<_> = model.split_whitespace().collect();
        Ok(Facts {
            own: own.unwrap_or(model.first() == Some(&VENDOR)),
            model: model.join(" "),
            digests: session.peer.format.header_digest && session.peer.format.data_digest,
            immediate_data: !session.is("ImmediateData", "No"),
            initial_r2t: !session.is("InitialR2T", "No"),
            first_burst: session.number("FirstBurstLength", 65536),
            receive_segment: session.number("MaxRecvDataSegmentLength", 8192),
            block_bytes: u32::from_be_bytes(*block),
            blocks: u64::from_be_bytes(*last).saturating_add(1),
        })
    }

    fn serves(context: &Context) -> Result<(), Failure> {
        context.session()?.still_works()
    }

    fn host(context: &Context, is_witness: bool, manner: Manner) -> Result<Box<dyn Host>, Failure> {
        let target = &context.target;
        let name = match is_witness {
            true => &target.witness,
            false => &target.initiator,
        };
        let session = Session::open(target.address, &login_of(target, name), manner)?;
        Ok(Box::new(OneSession {
            session,
            block: context.facts.block_bytes,
        }))
    }
}

/// A SERVICE ACTION IN (16) that reads so many bytes.
pub fn service_in(action: u8, bytes: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (0x9e, action);
    cdb[10..14].copy_from_slice(&bytes.to_be_bytes());
    cdb
}

/// A login as this initiator, as a session of its own.
fn login_of(target: &Target, initiator: &str) -> Login {
    static SESSIONS: AtomicU16 = AtomicU16::new(1);
    let [high, low] = SESSIONS.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    // A random ISID (RFC 7143, section 11.12.5) whose number no other process counts on.
    let process = std::process::id().to_be_bytes();
    let isid = [0x80, process[1], process[2], process[3], high, low];
    Login::new(initiator, Some(&target.name), isid, target.lun)
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
        match self.digests {
            true => Needs::DIGESTS,
            false => Needs::NOTHING,
        }
    }
}

/// A host with one session.
struct OneSession {
    session: Session,
    block: u32,
}

impl Host for OneSession {
    fn read(&mut self, lba: u64) -> Result<Vec<u8>, Failure> {
        again(|| self.session.read(lba, 1, self.block))
    }

    fn write(&mut self, lba: u64, data: &[u8]) -> Result<(), Failure> {
        again(|| self.session.write(lba, self.block, data))
    }

    fn keep_alive(&mut self) -> Result<(), Failure> {
        self.session.ping(b"")
    }
}

/// Does it again where the target had something to say first, as hosts do: a case may reset the logical unit.
fn again<T>(mut once: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
    match once() {
        Err(Failure::Differs { got, .. }) if got.starts_with("sense 6h") => once(),
        done => done,
    }
}

impl Context {
    /// Login of this suite's initiator, each time as a session of its own.
    pub fn login(&self) -> Login {
        login_of(&self.target, &self.target.initiator)
    }

    /// A login for discovery.
    pub fn discovery(&self) -> Login {
        let login = self.login();
        Login::new(&login.initiator, None, login.isid, 0)
    }

    /// A connection on which nothing was said.
    ///
    /// # Errors
    /// The target does not take it.
    pub fn peer(&self) -> Result<Peer, Failure> {
        Peer::connect(self.target.address, self.manner)
    }

    /// A session.
    ///
    /// # Errors
    /// The target does not let it in.
    pub fn session(&self) -> Result<Session, Failure> {
        self.session_with(&self.login())
    }

    /// A session, made as this login says.
    ///
    /// # Errors
    /// The target does not let it in.
    pub fn session_with(&self, login: &Login) -> Result<Session, Failure> {
        Session::open(self.target.address, login, self.manner)
    }
}
