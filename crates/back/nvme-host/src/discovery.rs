//! What subsystems a target has for this host (NVMe Base 2.0c section 3.1.2.3 and section 5.16.1.23).

use std::time::Duration;

use weir_nvme::Nqn;
use weir_nvme::command::GetLogPage;
use weir_nvme::log::{
    AddressFamily, DiscoveryLogEntry, DiscoveryLogHeader, LogId, SubsystemType, TransportType,
};
use weir_reactor::Reactor;

use crate::association::{Admin, ConnectError};
use crate::options::{DISCOVERY_PORT, HostIdentity, Options, PORT};

/// Entries read with one command.
const ENTRIES_PER_READ: u64 = 16;
/// The most entries that are read; a target that says that it has more makes no sense.
pub const ENTRIES_MAX: u64 = 65_536;
/// How often the log is read anew because it changed meanwhile.
const READS_MAX: u32 = 8;

/// Where a subsystem is, as a discovery controller says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoveryEntry {
    /// TRTYPE.
    pub transport: TransportType,
    /// ADRFAM.
    pub family: AddressFamily,
    /// SUBTYPE: an NVM subsystem, or another discovery subsystem to ask.
    pub kind: SubsystemType,
    /// PORTID.
    pub port_id: u16,
    /// SUBNQN.
    pub subsystem: Nqn,
    /// TRADDR.
    pub address: String,
    /// TRSVCID: for TCP the port.
    pub service: String,
}

impl DiscoveryEntry {
    /// The URL of the volume that is namespace `nsid` of this subsystem; none where it is not reached over TCP.
    #[must_use]
    pub fn url(&self, nsid: u32) -> Option<String> {
        let nvm = self.kind == SubsystemType::Nvm;
        (self.transport == TransportType::Tcp && nvm).then(|| {
            let (address, service, subsystem) = (&self.address, &self.service, &self.subsystem);
            match address.contains(':') {
                true => format!("nvme+tcp://[{address}]:{service}/{subsystem}?nsid={nsid}"),
                false => format!("nvme+tcp://{address}:{service}/{subsystem}?nsid={nsid}"),
            }
        })
    }
}

/// Asks the discovery controller at `host` what there is for the host `identity`. Without a port the discovery port
/// ([`DISCOVERY_PORT`]) is tried first, then that of I/O controllers ([`PORT`]), where a target may answer discovery too.
///
/// # Errors
/// [`ConnectError`] of the last port tried.
pub async fn discover(
    reactor: &Reactor,
    host: &str,
    port: Option<u16>,
    identity: &HostIdentity,
) -> Result<Vec<DiscoveryEntry>, ConnectError> {
    let ports = match &port {
        Some(port) => std::slice::from_ref(port),
        None => &[DISCOVERY_PORT, PORT][..],
    };
    let mut last = None;
    for &port in ports {
        match discover_at(reactor, host, port, identity).await {
            Ok(entries) => return Ok(entries),
            Err(error @ ConnectError::Resolve { .. }) => return Err(error),
            Err(error) => last = Some(error),
        }
    }
    Err(last.expect("there is a port to try"))
}

async fn discover_at(
    reactor: &Reactor,
    host: &str,
    port: u16,
    identity: &HostIdentity,
) -> Result<Vec<DiscoveryEntry>, ConnectError> {
    let options = Options::new(host, port, Nqn::discovery());
    // A discovery controller that is asked once needs no keep-alive (NVMe Base 2.0c section 3.1.2.3.3).
    let admin = Admin::open(reactor, &options, identity, Duration::ZERO).await?;
    let mut entries = None;
    for _ in 0..READS_MAX {
        entries = read_log(&admin).await?;
        if entries.is_some() {
            break;
        }
    }
    admin.shut_down().await;
    entries.ok_or(ConnectError::Nonsense(
        "discovery log, which changes faster than it can be read,",
    ))
}

/// Reads the log in pieces; none when it changed in between.
async fn read_log(admin: &Admin) -> Result<Option<Vec<DiscoveryEntry>>, ConnectError> {
    let header = read_header(admin).await?;
    if header.record_format != 0 || header.records > ENTRIES_MAX {
        return Err(ConnectError::Nonsense("discovery log"));
    }
    let mut entries = Vec::new();
    let mut next = 0;
    while next < header.records {
        let count = (header.records - next).min(ENTRIES_PER_READ);
        let size = DiscoveryLogEntry::SIZE as u64;
        let offset = DiscoveryLogHeader::SIZE as u64 + next * size;
        let get = GetLogPage::new(LogId::Discovery, offset, count * size);
        let data = admin.caller.log_page(get).await?;
        entries.extend(data.chunks_exact(DiscoveryLogEntry::SIZE).filter_map(entry));
        next += count;
    }
    let after = read_header(admin).await?;
    Ok((after.generation == header.generation).then_some(entries))
}

async fn read_header(admin: &Admin) -> Result<DiscoveryLogHeader, ConnectError> {
    let length = DiscoveryLogHeader::SIZE as u64;
    let get = GetLogPage::new(LogId::Discovery, 0, length);
    let data = admin.caller.log_page(get).await?;
    DiscoveryLogHeader::parse(&data).map_err(|_| ConnectError::Nonsense("discovery log"))
}

/// An entry; one without a valid name is left out, with a word in the log.
fn entry(bytes: &[u8]) -> Option<DiscoveryEntry> {
    let entry = DiscoveryLogEntry::parse(bytes).ok()?;
    let subsystem = entry
        .subsystem()
        .inspect_err(|error| tracing::warn!(%error, "a discovery entry is left out"))
        .ok()?;
    Some(DiscoveryEntry {
        transport: entry.transport_type,
        family: entry.address_family,
        kind: entry.subsystem_type,
        port_id: entry.port_id,
        subsystem,
        address: entry.address_text(),
        service: entry.service_text(),
    })
}
