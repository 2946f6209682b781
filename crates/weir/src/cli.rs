//! What can be written on the command line.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand};
use uuid::Uuid;
use weir_gateway::name::{
    AddressRange, Advertised, Eui64, ExportPath, HostName, IscsiName, ListenerAddress, Model,
    NameError, Nguid, Nqn, Serial, VolumeName,
};
use weir_gateway::state::{ControllerIds, ProtocolName, SocketOptions};
use weir_rbd::ImageName;

use crate::tools::{
    AgentArguments, BenchArguments, CompareArguments, CopyArguments, CurveArguments,
    DiscoverArguments, DriveArguments, PlanArguments, RecordArguments, ReportArguments,
    ReproduceArguments, TortureArguments, VerifyArguments,
};

/// Serves block volumes over NVMe/TCP and iSCSI, and measures them.
#[derive(Debug, Parser)]
#[command(
    name = "weir",
    version,
    about = "Serves block volumes over NVMe/TCP and iSCSI, and measures them",
    arg_required_else_help = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// The gateway's control socket [default: where a gateway of this user or the system has it]
    #[arg(long, global = true, env = "WEIR_SOCKET", value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Print the answer or report as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the gateway
    Serve(Serve),
    /// Show the gateway as a whole and what needs attention
    Status,
    /// What is served: files, devices, memory
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// Images in the pools of Ceph clusters: made, listed, resized, put into the trash, snapshots and clones
    Image(ImageCommandArguments),
    /// How it is served: NVMe subsystems, and which hosts may connect
    #[command(subcommand)]
    Subsystem(SubsystemCommand),
    /// Volumes as namespaces of a subsystem
    #[command(subcommand)]
    Namespace(NamespaceCommand),
    /// How it is served: iSCSI targets, and which hosts may log in
    #[command(subcommand)]
    Target(TargetCommand),
    /// Volumes as logical units of a target
    #[command(subcommand)]
    Lun(LunCommand),
    /// Directories as NFS exports, and the clients that may use them
    #[command(subcommand)]
    Export(ExportCommand),
    /// The volumes that NFS serves as files
    #[command(subcommand)]
    File(FileCommand),
    /// The hosts that may be allowed
    #[command(subcommand)]
    Host(HostCommand),
    /// Where hosts can connect
    #[command(subcommand)]
    Listener(ListenerCommand),
    /// The connections of this moment
    #[command(subcommand)]
    Connection(ConnectionCommand),
    /// The iSCSI sessions of this moment
    #[command(subcommand)]
    Session(SessionCommand),
    /// Where the time of hosts' commands went: on the wire, in queues, in the volume
    Latency(LatencyArguments),
    /// The threads that serve
    #[command(subcommand)]
    Reactor(ReactorCommand),
    /// Ask a target what it offers this host, and where: NVMe subsystems, or iSCSI targets
    Discover(DiscoverArguments),
    /// Drive a volume with load and measure it
    Bench(BenchArguments),
    /// Measure a volume under more and more load, and find where it bends
    Curve(CurveArguments),
    /// Measure volumes side by side in rounds of drawn order, and tell differences from chance
    Compare(CompareArguments),
    /// Qualify drives: fill each, write it again, and find what it sustains
    Drive(DriveArguments),
    /// Make load on this machine for `weir bench --agent` on another one
    Agent(AgentArguments),
    /// Record packets or bytes onto a ring of volumes, and read them back by time
    Record(Box<RecordArguments>),
    /// Copy one volume onto another
    Copy(CopyArguments),
    /// Write stamped blocks to a volume, read them back, and name the first wrong one
    Verify(VerifyArguments),
    /// Draw stored results together as one HTML page, or write them for other tools
    Report(ReportArguments),
    /// Size from what was measured: drives for a line rate, clusters of gateways for a load
    Plan(PlanArguments),
    /// Run a published test here, or predict it, and see it beside its published figures
    Reproduce(ReproduceArguments),
    /// Send an NVMe/TCP target what breaks targets, and compare its answers with the specifications
    Torture(TortureArguments),
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The configuration [default: every default; see docs/weir.toml]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Say whether the configuration is right, and start nothing
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum VolumeCommand {
    /// List the volumes
    List,
    /// Show a volume
    Show {
        /// Its name
        name: VolumeName,
    },
    /// Add a volume; a file that is not there is made
    Add {
        /// Its name
        name: VolumeName,
        /// What it is, such as 'file:/srv/images?size=10G'
        url: String,
    },
    /// Remove a volume that is neither a namespace nor a LUN; its data stays
    Remove {
        /// Its name
        name: VolumeName,
    },
    /// Change a volume's size; connected hosts are told
    Resize {
        /// Its name
        name: VolumeName,
        /// The new size, such as 20G
        #[arg(value_parser = parse_size)]
        size: u64,
        /// Destroy what lies behind a smaller end
        #[arg(long)]
        force: bool,
    },
    /// Try again to open a volume that failed to open, or is lost
    Retry {
        /// Its name
        name: VolumeName,
    },
    /// End every registration and reservation of a volume, of hosts that are gone for good
    ClearReservations {
        /// Its name
        name: VolumeName,
    },
}

/// The images of a cluster, as the gateway reaches it.
#[derive(Debug, Args)]
pub(crate) struct ImageCommandArguments {
    #[command(flatten)]
    pub(crate) cluster: ClusterArguments,
    #[command(subcommand)]
    pub(crate) command: ImageCommand,
}

/// Which cluster, and as whom. Files are those of the gateway's machine.
#[derive(Debug, Args)]
pub(crate) struct ClusterArguments {
    /// The cluster's configuration file [default: the one that Ceph's tools read]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) conf: Option<PathBuf>,
    /// The client's name at the cluster, without 'client.' [default: admin]
    #[arg(long, global = true)]
    pub(crate) id: Option<String>,
    /// The file with the client's key [default: where the configuration says]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) keyring: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// List the images of a pool
    List {
        /// The pool, POOL or POOL/NAMESPACE
        pool: PoolPlace,
    },
    /// Show an image: its size, who has its lock, its snapshots
    Show {
        /// The image, POOL/IMAGE or POOL/NAMESPACE/IMAGE
        image: ImagePlace,
    },
    /// Make an image
    Create {
        /// The image, POOL/IMAGE or POOL/NAMESPACE/IMAGE
        image: ImagePlace,
        /// Its size, such as 100G
        #[arg(long, value_parser = parse_size)]
        size: u64,
        /// The size of its objects, a power of two [default: the cluster's, 4M]
        #[arg(long, value_parser = parse_size)]
        object_size: Option<u64>,
        /// A pool for its data [default: the pool that it is in]
        #[arg(long, value_name = "POOL")]
        data_pool: Option<String>,
    },
    /// Change an image's size; hosts of a volume that is made of it are told
    Resize {
        /// The image, POOL/IMAGE or POOL/NAMESPACE/IMAGE
        image: ImagePlace,
        /// The new size, such as 200G
        #[arg(value_parser = parse_size)]
        size: u64,
        /// Destroy what lies behind a smaller end
        #[arg(long)]
        force: bool,
    },
    /// Move an image that no volume is made of to the pool's trash
    Delete {
        /// The image, POOL/IMAGE or POOL/NAMESPACE/IMAGE
        image: ImagePlace,
    },
    /// List the trash of a pool
    Trash {
        /// The pool, POOL or POOL/NAMESPACE
        pool: PoolPlace,
    },
    /// Take an image out of the trash
    Restore {
        /// The pool, POOL or POOL/NAMESPACE
        pool: PoolPlace,
        /// What the trash knows it by
        id: String,
        /// What it is to be called, a name that is free
        name: String,
    },
    /// Make a writable image of a snapshot, which it needs from then on
    Clone {
        /// The snapshot, POOL/IMAGE@SNAPSHOT
        #[arg(value_parser = parse_snapshot)]
        snapshot: (ImagePlace, String),
        /// The new image, POOL/IMAGE or POOL/NAMESPACE/IMAGE
        to: ImagePlace,
    },
    /// What an image held at some time, to read or to clone
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotCommand {
    /// List the snapshots of an image
    List {
        /// The image, POOL/IMAGE or POOL/NAMESPACE/IMAGE
        image: ImagePlace,
    },
    /// Make a snapshot: what was acknowledged by then is in it
    Create {
        /// The snapshot, POOL/IMAGE@SNAPSHOT
        #[arg(value_parser = parse_snapshot)]
        snapshot: (ImagePlace, String),
    },
    /// Delete a snapshot that no volume is made of
    Delete {
        /// The snapshot, POOL/IMAGE@SNAPSHOT
        #[arg(value_parser = parse_snapshot)]
        snapshot: (ImagePlace, String),
    },
}

/// A pool, or a namespace in one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PoolPlace {
    pub(crate) pool: String,
    /// Empty for that without a name.
    pub(crate) namespace: String,
}

impl std::fmt::Display for PoolPlace {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.pool)?;
        match &*self.namespace {
            "" => Ok(()),
            namespace => write!(formatter, "/{namespace}"),
        }
    }
}

impl std::str::FromStr for PoolPlace {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (pool, namespace) = text.split_once('/').unwrap_or((text, ""));
        if pool.is_empty() || text.ends_with('/') || namespace.contains('/') {
            return Err("write POOL or POOL/NAMESPACE");
        }
        Ok(PoolPlace {
            pool: pool.to_owned(),
            namespace: namespace.to_owned(),
        })
    }
}

/// An image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImagePlace {
    pub(crate) pool: String,
    /// Empty for that without a name.
    pub(crate) namespace: String,
    pub(crate) image: String,
}

impl ImagePlace {
    /// Where it is.
    pub(crate) fn place(&self) -> PoolPlace {
        PoolPlace {
            pool: self.pool.clone(),
            namespace: self.namespace.clone(),
        }
    }
}

impl std::fmt::Display for ImagePlace {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.place(), self.image)
    }
}

impl std::str::FromStr for ImagePlace {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match ImageName::parse(text) {
            Some(ImageName {
                pool,
                namespace,
                image,
                snapshot: None,
            }) => Ok(ImagePlace {
                pool,
                namespace,
                image,
            }),
            _ => Err("write POOL/IMAGE or POOL/NAMESPACE/IMAGE"),
        }
    }
}

fn parse_snapshot(text: &str) -> Result<(ImagePlace, String), &'static str> {
    match ImageName::parse(text) {
        Some(ImageName {
            pool,
            namespace,
            image,
            snapshot: Some(snapshot),
        }) => {
            let image = ImagePlace {
                pool,
                namespace,
                image,
            };
            Ok((image, snapshot))
        }
        _ => Err("write POOL/IMAGE@SNAPSHOT or POOL/NAMESPACE/IMAGE@SNAPSHOT"),
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum SubsystemCommand {
    /// List the subsystems
    List,
    /// Show a subsystem
    Show {
        /// Its NQN
        nqn: Nqn,
    },
    /// Add a subsystem
    Add {
        /// Its NQN, such as nqn.2026-01.com.example:storage
        nqn: Nqn,
        /// Its serial number [default: generated]
        #[arg(long)]
        serial: Option<Serial>,
        /// Its model number [default: Weir]
        #[arg(long)]
        model: Option<Model>,
        /// Let any host connect
        #[arg(long)]
        allow_any_host: bool,
        /// The controller IDs to give out [default: 1-65519]
        #[arg(long, value_name = "MIN-MAX", value_parser = parse_controller_ids)]
        controller_ids: Option<ControllerIds>,
    },
    /// Remove a subsystem; the volumes of its namespaces stay
    Remove {
        /// Its NQN
        nqn: Nqn,
        /// Remove its namespaces with it
        #[arg(long)]
        force: bool,
    },
    /// Allow a registered host to connect
    AllowHost {
        /// The subsystem's NQN
        nqn: Nqn,
        /// The host's name, its NQN unless it was given another one
        host: HostName,
    },
    /// Take an allowance back; the host's controllers here are ended
    DisallowHost {
        /// The subsystem's NQN
        nqn: Nqn,
        /// The host's name, its NQN unless it was given another one
        host: HostName,
    },
    /// Let any host connect, or only the allowed ones
    AllowAnyHost {
        /// The subsystem's NQN
        nqn: Nqn,
        /// Whether any host may
        #[arg(value_name = "on|off", value_parser = parse_switch, action = ArgAction::Set)]
        switch: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum NamespaceCommand {
    /// List the namespaces of one subsystem or of all
    List {
        /// The subsystem's NQN
        nqn: Option<Nqn>,
    },
    /// Show a namespace
    Show {
        /// The subsystem's NQN
        nqn: Nqn,
        /// Its NSID
        nsid: u32,
    },
    /// Serve a volume as a namespace
    Add(NamespaceAdd),
    /// Change a namespace; connected hosts are told
    Set {
        /// The subsystem's NQN
        nqn: Nqn,
        /// Its NSID
        nsid: u32,
        /// Whether hosts may only read it
        #[arg(long, value_name = "on|off", value_parser = parse_switch)]
        read_only: Option<bool>,
        #[command(flatten)]
        visible: Visible,
        #[command(flatten)]
        limits: LimitArgs,
    },
    /// Remove a namespace; its volume stays
    Remove {
        /// The subsystem's NQN
        nqn: Nqn,
        /// Its NSID
        nsid: u32,
    },
}

#[derive(Debug, Args)]
pub(crate) struct NamespaceAdd {
    /// The subsystem's NQN
    pub(crate) nqn: Nqn,
    /// The volume's name
    pub(crate) volume: VolumeName,
    /// Its NSID [default: the lowest that is free]
    #[arg(long)]
    pub(crate) nsid: Option<u32>,
    /// Its UUID [default: generated]
    #[arg(long)]
    pub(crate) uuid: Option<Uuid>,
    /// Its NGUID [default: generated]
    #[arg(long)]
    pub(crate) nguid: Option<Nguid>,
    /// Its EUI-64 [default: generated]
    #[arg(long)]
    pub(crate) eui64: Option<Eui64>,
    /// Let hosts only read it
    #[arg(long)]
    pub(crate) read_only: bool,
    #[command(flatten)]
    pub(crate) visible: Visible,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

/// Limits of a namespace or a LUN. Bursts are a tenth of their limit unless given, and at least a hundredth.
#[derive(Debug, Args)]
pub(crate) struct LimitArgs {
    /// Reads a second; 0: no limit
    #[arg(long, value_name = "N")]
    pub(crate) read_iops: Option<u64>,
    /// Reads at once, after a time with fewer
    #[arg(long, value_name = "N", requires = "read_iops")]
    pub(crate) read_iops_burst: Option<u64>,
    /// Writes a second; 0: no limit
    #[arg(long, value_name = "N")]
    pub(crate) write_iops: Option<u64>,
    /// Writes at once, after a time with fewer
    #[arg(long, value_name = "N", requires = "write_iops")]
    pub(crate) write_iops_burst: Option<u64>,
    /// Reads and writes a second; 0: no limit
    #[arg(long, value_name = "N")]
    pub(crate) total_iops: Option<u64>,
    /// Reads and writes at once, after a time with fewer
    #[arg(long, value_name = "N", requires = "total_iops")]
    pub(crate) total_iops_burst: Option<u64>,
    /// Bytes read a second, such as 100M; 0: no limit
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) read_bandwidth: Option<u64>,
    /// Bytes read at once, after a time with fewer
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "read_bandwidth")]
    pub(crate) read_bandwidth_burst: Option<u64>,
    /// Bytes written a second; 0: no limit
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) write_bandwidth: Option<u64>,
    /// Bytes written at once, after a time with fewer
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "write_bandwidth")]
    pub(crate) write_bandwidth_burst: Option<u64>,
    /// Bytes read and written a second; 0: no limit
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) total_bandwidth: Option<u64>,
    /// Bytes read and written at once, after a time with fewer
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "total_bandwidth")]
    pub(crate) total_bandwidth_burst: Option<u64>,
}

/// Who sees a namespace or a LUN.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct Visible {
    /// Let only these registered hosts see it; may be given several times
    #[arg(long, value_name = "HOST")]
    pub(crate) visible_to: Vec<HostName>,
    /// Let every host that may connect see it
    #[arg(long)]
    pub(crate) visible_to_all: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HostCommand {
    /// List the registered hosts
    List,
    /// Show a host
    Show {
        /// Its name
        #[arg(value_parser = parse_host)]
        name: HostName,
    },
    /// Register a host
    Add {
        /// Its NQN, as in /etc/nvme/hostnqn; its iSCSI name, as in /etc/iscsi/initiatorname.iscsi; or any name, with --nqn or --iqn
        #[arg(value_parser = parse_host)]
        name: HostName,
        /// An NQN under which it connects [default: its name, where that is one]; may be given several times
        #[arg(long)]
        nqn: Vec<Nqn>,
        /// An iSCSI name under which it logs in [default: its name, where that is one]; may be given several times
        #[arg(long)]
        iqn: Vec<IscsiName>,
        /// What to remember about it
        #[arg(long)]
        note: Option<String>,
        #[command(flatten)]
        socket_options: SocketOptionArgs,
    },
    /// Change a host; socket options hold for its next connections
    Set {
        /// Its name
        #[arg(value_parser = parse_host)]
        name: HostName,
        /// An NQN under which it connects, in place of those that it has; may be given several times
        #[arg(long)]
        nqn: Vec<Nqn>,
        /// An iSCSI name under which it logs in, in place of those that it has; may be given several times
        #[arg(long)]
        iqn: Vec<IscsiName>,
        /// What to remember about it
        #[arg(long)]
        note: Option<String>,
        #[command(flatten)]
        socket_options: SocketOptionArgs,
        /// Leave every socket option that is not given to the listener
        #[arg(long)]
        reset_socket_options: bool,
    },
    /// Remove a host
    Remove {
        /// Its name
        #[arg(value_parser = parse_host)]
        name: HostName,
        /// Take it off every subsystem, namespace, target and LUN that names it
        #[arg(long)]
        force: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ListenerCommand {
    /// List the listeners
    List,
    /// Show a listener
    Show {
        /// Its address with its port
        address: ListenerAddress,
    },
    /// Add a listener
    Add {
        /// ADDRESS, an IPv6 address in brackets, NAME or * for all addresses, and :PORT [default port: 4420, or 8009
        /// with --discovery, 3260 with --protocol iscsi, or 2049 with
        /// --protocol nfs]
        address: String,
        /// What is spoken there [default: nvme]
        #[arg(long, value_name = "nvme|iscsi|nfs", value_parser = parse_protocol)]
        protocol: Option<ProtocolName>,
        /// Serve NVMe's discovery only
        #[arg(long)]
        discovery: bool,
        /// Where iSCSI hosts are told to connect, where that is not this address, as behind a NAT
        #[arg(long, value_name = "HOST:PORT")]
        advertise: Option<Advertised>,
        #[command(flatten)]
        socket_options: SocketOptionArgs,
    },
    /// Change a listener; socket options hold for the next connections
    Set {
        /// Its address with its port
        address: ListenerAddress,
        #[command(flatten)]
        socket_options: SocketOptionArgs,
        /// Leave every socket option that is not given to the system
        #[arg(long)]
        reset_socket_options: bool,
    },
    /// Remove a listener; connections that were accepted there stay
    Remove {
        /// Its address with its port
        address: ListenerAddress,
    },
    /// Try again to open a listener that failed to open
    Retry {
        /// Its address with its port
        address: ListenerAddress,
    },
}

/// Options of TCP connections.
#[derive(Debug, Args)]
#[command(next_help_heading = "Socket options")]
pub(crate) struct SocketOptionArgs {
    /// Send buffer, such as 1M
    #[arg(long, value_name = "SIZE", value_parser = parse_buffer)]
    send_buffer: Option<u32>,
    /// Receive buffer, such as 1M
    #[arg(long, value_name = "SIZE", value_parser = parse_buffer)]
    receive_buffer: Option<u32>,
    /// Congestion control algorithm, such as cubic or bbr
    #[arg(long, value_name = "NAME")]
    congestion_control: Option<String>,
    /// Differentiated services code point, 0 to 63
    #[arg(long, value_name = "NUMBER")]
    dscp: Option<u8>,
    /// Class of service, 0 to 15; above 6 needs CAP_NET_ADMIN
    #[arg(long, value_name = "NUMBER")]
    priority: Option<u8>,
}

impl SocketOptionArgs {
    /// The options that were given; none if none were.
    pub(crate) fn given(self) -> Option<SocketOptions> {
        let options = SocketOptions {
            send_buffer: self.send_buffer,
            receive_buffer: self.receive_buffer,
            congestion_control: self.congestion_control,
            dscp: self.dscp,
            priority: self.priority,
        };
        (options != SocketOptions::default()).then_some(options)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConnectionCommand {
    /// List the connections
    List,
    /// Show a connection
    Show {
        /// Its number
        id: u64,
    },
    /// End a connection; a host that still wants it connects again
    Disconnect {
        /// Its number
        id: u64,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExportCommand {
    /// List the exports
    List,
    /// Show an export
    Show {
        /// Its path
        path: ExportPath,
    },
    /// Add an export
    Add {
        /// Path at which clients see it, such as /exports/share
        path: ExportPath,
        /// Source of its files: a directory by its whole path, as in dir:/srv/share, or volumes: for volumes that
        /// `weir file` adds
        source: String,
        /// Let clients only read
        #[arg(long)]
        read_only: bool,
        /// Let clients use it that have such addresses, as in 192.0.2.0/24; may be given several times
        #[arg(long, value_name = "ADDRESSES")]
        allow: Vec<AddressRange>,
        /// Let clients use it whatever their address
        #[arg(long)]
        allow_any_host: bool,
    },
    /// Change an export
    Set {
        /// Its path
        path: ExportPath,
        /// Let clients only read, or write too
        #[arg(long, value_name = "on|off", value_parser = parse_switch)]
        read_only: Option<bool>,
        /// Let clients use it that have such addresses, and no others; may be given several times
        #[arg(long, value_name = "ADDRESSES")]
        allow: Vec<AddressRange>,
        /// Let clients use it whatever their address, or only those with allowed ones
        #[arg(long, value_name = "on|off", value_parser = parse_switch)]
        allow_any_host: Option<bool>,
    },
    /// Remove an export; its directory, or its volumes, stay
    Remove {
        /// Its path
        path: ExportPath,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TargetCommand {
    /// List the targets
    List,
    /// Show a target
    Show {
        /// Its name
        iqn: IscsiName,
    },
    /// Add a target
    Add {
        /// Its name, such as iqn.2026-01.com.example:storage
        iqn: IscsiName,
        /// A description for people, which hosts are shown
        #[arg(long)]
        alias: Option<String>,
        /// Let any host log in
        #[arg(long)]
        allow_any_host: bool,
    },
    /// Change a target
    Set {
        /// Its name
        iqn: IscsiName,
        /// A description for people, which hosts are shown; "" for none
        #[arg(long)]
        alias: Option<String>,
        /// Let any host log in, or only the allowed ones
        #[arg(long, value_name = "on|off", value_parser = parse_switch)]
        allow_any_host: Option<bool>,
    },
    /// Remove a target; the volumes of its LUNs stay
    Remove {
        /// Its name
        iqn: IscsiName,
        /// Remove its LUNs with it
        #[arg(long)]
        force: bool,
    },
    /// Allow a registered host to log in
    Allow {
        /// The target's name
        iqn: IscsiName,
        /// The host's name
        host: HostName,
    },
    /// Take an allowance back; the host's sessions here are ended
    Deny {
        /// The target's name
        iqn: IscsiName,
        /// The host's name
        host: HostName,
    },
    /// Say what is to be proved at login (CHAP); sessions that there are stay
    Chap(ChapArguments),
}

/// What is to be proved at a target's login. Secrets come from files, from standard input or from the environment, never from the
/// command line, which every user of the machine can see.
#[derive(Debug, Args)]
pub(crate) struct ChapArguments {
    /// The target's name
    pub(crate) iqn: IscsiName,
    /// Ask for no proof any more
    #[arg(long, conflicts_with_all = ["user", "secret_file", "mutual_user", "mutual_secret_file"])]
    pub(crate) none: bool,
    /// The name that initiators give
    #[arg(long, required_unless_present = "none")]
    pub(crate) user: Option<String>,
    /// The file whose first line is the secret, 12 to 255 bytes; - for standard input [default: the variable
    /// WEIR_CHAP_SECRET]
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_file: Option<PathBuf>,
    /// The name that the target gives to initiators that ask it for proof
    #[arg(long, value_name = "USER")]
    pub(crate) mutual_user: Option<String>,
    /// The file whose first line is the target's own secret, another one; - for standard input [default: the variable
    /// WEIR_CHAP_MUTUAL_SECRET]
    #[arg(long, value_name = "FILE", requires = "mutual_user")]
    pub(crate) mutual_secret_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LunCommand {
    /// List the LUNs of one target or of all
    List {
        /// The target's name
        iqn: Option<IscsiName>,
    },
    /// Show a LUN
    Show {
        /// The target's name
        iqn: IscsiName,
        /// Its number
        lun: u16,
    },
    /// Serve a volume as a LUN
    Add {
        /// The target's name
        iqn: IscsiName,
        /// The volume's name
        volume: VolumeName,
        /// Its number [default: the lowest that is free, from 0 on]
        #[arg(long)]
        lun: Option<u16>,
        /// Let hosts only read it
        #[arg(long)]
        read_only: bool,
        #[command(flatten)]
        visible: Visible,
        #[command(flatten)]
        limits: LimitArgs,
    },
    /// Change a LUN; hosts that are logged in are told
    Set {
        /// The target's name
        iqn: IscsiName,
        /// Its number
        lun: u16,
        /// Whether hosts may only read it
        #[arg(long, value_name = "on|off", value_parser = parse_switch)]
        read_only: Option<bool>,
        #[command(flatten)]
        visible: Visible,
        #[command(flatten)]
        limits: LimitArgs,
    },
    /// Remove a LUN; its volume stays
    Remove {
        /// The target's name
        iqn: IscsiName,
        /// Its number
        lun: u16,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum FileCommand {
    /// List the files of one export or of all
    List {
        /// The export's path
        path: Option<ExportPath>,
    },
    /// Show a file
    Show {
        /// The export's path
        path: ExportPath,
        /// The volume's name
        volume: VolumeName,
    },
    /// Serve a volume as a file, whose name is the volume's, of an export with the source volumes:
    Add {
        /// The export's path
        path: ExportPath,
        /// The volume's name
        volume: VolumeName,
        /// Let clients only read it
        #[arg(long)]
        read_only: bool,
        #[command(flatten)]
        limits: LimitArgs,
    },
    /// Change a file
    Set {
        /// The export's path
        path: ExportPath,
        /// The volume's name
        volume: VolumeName,
        /// Let clients only read it, or write too
        #[arg(long, value_name = "on|off", value_parser = parse_switch)]
        read_only: Option<bool>,
        #[command(flatten)]
        limits: LimitArgs,
    },
    /// Remove a file; its volume stays
    Remove {
        /// The export's path
        path: ExportPath,
        /// The volume's name
        volume: VolumeName,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// List the sessions; `weir connection` shows and ends the connection of each
    List,
}

/// Whose times to show: by default those of every namespace.
#[derive(Debug, Args)]
pub(crate) struct LatencyArguments {
    /// Those of one namespace
    #[arg(long, num_args = 2, value_names = ["NQN", "NSID"], group = "of")]
    pub(crate) namespace: Vec<String>,
    /// Those of one LUN
    #[arg(long, num_args = 2, value_names = ["IQN", "LUN"], group = "of")]
    pub(crate) lun: Vec<String>,
    /// Those of every LUN
    #[arg(long, group = "of")]
    pub(crate) luns: bool,
    /// Those of one volume that is a file of an export
    #[arg(long, num_args = 2, value_names = ["PATH", "VOLUME"], group = "of")]
    pub(crate) file: Vec<String>,
    /// Those of every volume that is a file
    #[arg(long, group = "of")]
    pub(crate) files: bool,
    /// Those of one connection
    #[arg(long, value_name = "ID", group = "of")]
    pub(crate) connection: Option<u64>,
    /// Those of every connection
    #[arg(long, group = "of")]
    pub(crate) connections: bool,
    /// Only of commands that end in the next so many seconds, 1 to 60 [default: all since the connection was made, or
    /// the namespace is served]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=60))]
    pub(crate) interval: Option<u32>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ReactorCommand {
    /// List the reactors and how busy they are
    List,
}

fn parse_size(text: &str) -> Result<u64, weir_block::size::SizeError> {
    weir_block::size::parse(text)
}

fn parse_buffer(text: &str) -> Result<u32, String> {
    let bytes = weir_block::size::parse(text).map_err(|error| error.to_string())?;
    u32::try_from(bytes).map_err(|_| format!("{text} is more than a socket buffer can be"))
}

fn parse_switch(text: &str) -> Result<bool, &'static str> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("write on or off"),
    }
}

fn parse_controller_ids(text: &str) -> Result<ControllerIds, &'static str> {
    const WANT: &str = "write two numbers as in 1-1000";
    let (min, max) = text.split_once('-').ok_or(WANT)?;
    let number = |text: &str| text.trim().parse().map_err(|_| WANT);
    Ok(ControllerIds {
        min: number(min)?,
        max: number(max)?,
    })
}

fn parse_protocol(text: &str) -> Result<ProtocolName, &'static str> {
    match text {
        "nvme" => Ok(ProtocolName::Nvme),
        "iscsi" => Ok(ProtocolName::Iscsi),
        "nfs" => Ok(ProtocolName::Nfs),
        _ => Err("write nvme, iscsi or nfs"),
    }
}

/// Reads a host's name. One that begins like an NQN or an iSCSI name must be one.
fn parse_host(text: &str) -> Result<HostName, NameError> {
    let name: HostName = text.parse()?;
    name.own_name()?;
    Ok(name)
}

/// Reads a listener's address, whose port may be left out.
pub(crate) fn listener_address(
    text: &str,
    protocol: ProtocolName,
    discovery: bool,
) -> Result<ListenerAddress, NameError> {
    let port = match (protocol, discovery) {
        (ProtocolName::Iscsi, _) => ListenerAddress::ISCSI_PORT,
        (ProtocolName::Nfs, _) => ListenerAddress::NFS_PORT,
        (ProtocolName::Nvme, true) => ListenerAddress::DISCOVERY_PORT,
        (ProtocolName::Nvme, false) => ListenerAddress::IO_PORT,
    };
    ListenerAddress::parse(text, port)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
