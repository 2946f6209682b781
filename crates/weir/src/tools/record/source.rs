//! Sources by their URLs.

use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;

use anyhow::{Context, bail};
use weir_block::size::Size;
use weir_libpcap::Filter;
use weir_plan::units;
use weir_reactor::linux::{
    Capture, CaptureOptions, DatagramOptions, DatagramSocket, FilterInstruction,
};
use weir_record::{Content, Generator, Input, Live, Pace, Source, Udp};
use weir_volume::{Parameters, UrlError, VolumeUrl};

/// Bits of the longest pace: a terabit a second.
const RATE_MAX: f64 = 1e12;
/// Packets, or blocks, that are made up at most.
const COUNT_MAX: u64 = 1 << 53;
/// Bytes of the kernel's ring of an interface.
const KERNEL_RING: RangeInclusive<u64> = 2 << 20..=1 << 30;
const KERNEL_RING_USUAL: u64 = 64 << 20;
/// Bytes of the receive buffer of a UDP socket.
const RECEIVE_BUFFER: RangeInclusive<u64> = 4 << 10..=512 << 20;
const RECEIVE_BUFFER_USUAL: u64 = 8 << 20;

/// Bits a second.
fn parse_rate(text: &str) -> Result<u64, String> {
    let rate = units::rate(text).map_err(|error| error.to_string())?;
    match rate >= 1.0 && rate * 8.0 <= RATE_MAX {
        true => Ok((rate * 8.0) as u64),
        false => Err("up to 1 Tb/s".to_owned()),
    }
}

/// The pace that a source's URL asks for.
fn pace_of(parameters: &Parameters<'_>, has_own: bool) -> Result<Pace, UrlError> {
    let rate = parameters.parsed("rate", parse_rate)?;
    let own = match has_own {
        true => parameters.parsed("pace", |text| match text {
            "own" => Ok(Pace::Own),
            "full" => Ok(Pace::Full),
            _ => Err("own or full".to_owned()),
        })?,
        false => None,
    };
    Ok(match (rate, own) {
        (Some(rate), _) => Pace::Rate(rate),
        (None, own) => own.unwrap_or_default(),
    })
}

/// Opens a file or standard input. True: a pipe or a socket, whose sender may lose data when it is read slowly.
fn input_of(path: &str) -> anyhow::Result<(Box<dyn Read + Send>, bool)> {
    let file = if path == "-" {
        io::stdin().as_fd().try_clone_to_owned().map(File::from)
    } else {
        File::open(path)
    };
    let file = file.with_context(|| format!("cannot open {path}"))?;
    let kind = file.metadata().map(|about| about.file_type());
    let is_live = kind.is_ok_and(|kind| kind.is_fifo() || kind.is_socket());
    Ok((Box::new(file), is_live))
}

/// The first connection to an address; whoever makes it sends what is recorded.
struct Connection {
    listener: Option<TcpListener>,
    stream: Option<TcpStream>,
}

impl Read for Connection {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let Some(listener) = self.listener.take() {
            self.stream = Some(listener.accept()?.0);
        }
        match &mut self.stream {
            Some(stream) => stream.read(into),
            None => Ok(0),
        }
    }
}

/// Listens at an address. Returns the connection, and a note that names the address.
fn connection_of(address: &str) -> anyhow::Result<(Box<dyn Read + Send>, String)> {
    let listener = TcpListener::bind(address)
        .with_context(|| format!("cannot listen at {address}; write ADDRESS:PORT"))?;
    let note = format!("waiting for a connection at {}", listener.local_addr()?);
    let connection = Connection {
        listener: Some(listener),
        stream: None,
    };
    Ok((Box::new(connection), note))
}

/// A source that is made on the reactor that reads it.
pub(super) struct Made(Box<dyn FnOnce() -> Source + Send>);

impl Made {
    /// Makes it.
    pub(super) fn make(self) -> Source {
        (self.0)()
    }
}

/// A source that is open.
pub(super) struct Opened {
    pub(super) content: Content,
    /// A part for each stream.
    pub(super) parts: Vec<Made>,
    /// Bytes a second at most, where it tells.
    pub(super) line: Option<f64>,
    /// Note to print when everything is ready.
    pub(super) note: Option<String>,
}

/// Which of a source's packets are wanted, and how much of them.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) filter: Option<String>,
    pub(super) snap_length: Option<u64>,
    /// Streams among which they are divided.
    pub(super) streams: u16,
}

impl Wanted {
    /// Bytes of a packet that are kept at most.
    fn snap_bytes(&self) -> anyhow::Result<u32> {
        let longest = weir_pcap::PACKET_BYTES_MAX as u64;
        let snap = self.snap_length.unwrap_or(longest);
        if !(16..=longest).contains(&snap) {
            bail!("--snap-length {snap} is out of range: use 16 to {longest} bytes");
        }
        Ok(snap as u32)
    }
}

fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("yes or no".to_owned()),
    }
}

/// An interface, whose packets come from now on.
fn interface_of(url: &VolumeUrl, wanted: &Wanted) -> anyhow::Result<Opened> {
    let (name, parameters) = (url.path(), url.parameters());
    let ring = parameters.parsed("ring", |text| {
        let bytes = weir_block::size::parse(text).map_err(|error| error.to_string())?;
        let is_fit = KERNEL_RING.contains(&bytes) && bytes.is_multiple_of(1 << 20);
        is_fit
            .then_some(bytes)
            .ok_or("2M to 1G, a multiple of 1M".to_owned())
    })?;
    let promiscuous = parameters.parsed("promiscuous", yes_or_no)?;
    let outgoing = parameters.parsed("direction", |text| match text {
        "in" => Ok(false),
        "both" => Ok(true),
        _ => Err("in or both".to_owned()),
    })?;
    parameters.finish()?;
    if name.is_empty() {
        bail!("interface: names no interface; `ip link` lists what there is");
    }
    let snap = wanted.snap_bytes()?;
    let filter = match &wanted.filter {
        Some(expression) => Filter::for_interface(expression, name, snap)?.instructions(),
        None => vec![FilterInstruction::keep(snap)],
    };
    let options = CaptureOptions {
        interface: name.to_owned(),
        ring_bytes: ring.unwrap_or(KERNEL_RING_USUAL) as usize,
        sockets: wanted.streams,
        promiscuous: promiscuous.unwrap_or(true),
        outgoing: outgoing.unwrap_or(true),
        filter,
    };
    let (captures, info) = Capture::open(&options).map_err(explained)?;
    if !info.offloads.is_empty() {
        eprintln!(
            "warning: {name}: {} {} on, so that packets are recorded merged or without checksums; `ethtool -K {name} {}` records them as they are on the wire",
            info.offloads.join(", "),
            if info.offloads.len() == 1 {
                "is"
            } else {
                "are"
            },
            info.offloads
                .iter()
                .map(|one| format!("{one} off"))
                .collect::<Vec<_>>()
                .join(" "),
        );
    }
    let captures = captures.into_iter().enumerate();
    let made = captures.map(|(number, capture)| {
        let filter = wanted.filter.clone();
        let live = Live::new(capture, &info, name, snap, filter, number == 0)?;
        Ok(Made(Box::new(move || Source::Live(Box::new(live)))))
    });
    Ok(Opened {
        content: Content::Packets,
        parts: made.collect::<anyhow::Result<_>>()?,
        line: info.speed.map(|bits| bits as f64 / 8.0),
        note: None,
    })
}

/// Says how to get what is missing.
fn explained(error: io::Error) -> anyhow::Error {
    let is_forbidden = error.kind() == io::ErrorKind::PermissionDenied;
    let error = anyhow::Error::from(error);
    match is_forbidden {
        true => error.context(
            "recording an interface needs CAP_NET_RAW: run as root, or give it to the program with `setcap cap_net_raw+ep PROGRAM`; to try it without root, run it under `unshare -rn`, which has its own interfaces",
        ),
        false => error,
    }
}

/// A UDP socket, whose datagrams come from now on.
fn udp_of(url: &VolumeUrl, wanted: &Wanted) -> anyhow::Result<Opened> {
    let parameters = url.parameters();
    let content = parameters.parsed("content", |text| match text {
        "packets" => Ok(Content::Packets),
        "bytes" => Ok(Content::Bytes),
        _ => Err("packets or bytes".to_owned()),
    })?;
    let content = content.unwrap_or(Content::Packets);
    let interface = parameters.text("interface")?.map(str::to_owned);
    let buffer = parameters.parsed("receive-buffer", |text| {
        let bytes = weir_block::size::parse(text).map_err(|error| error.to_string())?;
        let is_fit = RECEIVE_BUFFER.contains(&bytes);
        is_fit.then_some(bytes).ok_or("4k to 512M".to_owned())
    })?;
    parameters.finish()?;
    let words = || {
        format!(
            "'{}' is not an address to receive at; write udp:ADDRESS:PORT",
            url.path()
        )
    };
    let address = url.path().to_socket_addrs().with_context(words)?.next();
    let mut address = address.with_context(words)?;
    if let IpAddr::V4(ip) = address.ip().to_canonical() {
        address.set_ip(ip.into());
    }
    let is_multicast = address.ip().is_multicast();
    let is_link_local = is_link_local(&address);
    if interface.is_some() && !is_multicast && !is_link_local {
        bail!(
            "interface= is for multicast and link-local addresses, and {} is neither; remove interface=",
            address.ip()
        );
    }
    if is_link_local && interface.is_none() {
        bail!(
            "{} is a link-local address; name its interface (interface=NAME)",
            address.ip()
        );
    }
    if content == Content::Bytes && (wanted.filter.is_some() || wanted.snap_length.is_some()) {
        bail!(
            "--filter and --snap-length work on packets, not on {url}; remove them, or use content=packets"
        );
    }
    if wanted.streams > 1 && (is_multicast || content == Content::Bytes) {
        bail!(
            "--reactors above 1 needs a unicast address and content=packets; leave --reactors out for {url}"
        );
    }
    let buffer = buffer.unwrap_or(RECEIVE_BUFFER_USUAL);
    let options = DatagramOptions {
        address,
        interface,
        buffer_bytes: buffer as u32,
        sockets: wanted.streams,
    };
    let sockets =
        DatagramSocket::open(&options).map_err(|error| udp_explained(error, address.port()))?;
    let given = sockets[0].buffer_bytes()? as u64;
    if given < buffer {
        eprintln!(
            "warning: {url}: the kernel gave a receive buffer of {} instead of {}, and drops datagrams when it is full; `sysctl -w net.core.rmem_max={buffer}` allows more",
            Size(given),
            Size(buffer)
        );
    }
    let address = sockets[0].address();
    let snap = wanted.snap_bytes()?;
    let made = sockets.into_iter().map(|socket| {
        let udp = Udp::new(socket, content, snap, wanted.filter.clone())?;
        Ok(Made(Box::new(move || Source::Udp(Box::new(udp)))))
    });
    let parts = made.collect::<anyhow::Result<_>>()?;
    Ok(Opened {
        content,
        parts,
        line: None,
        note: Some(format!("waiting for datagrams at {address}")),
    })
}

/// Tells whether an address means something only together with an interface.
fn is_link_local(address: &SocketAddr) -> bool {
    let SocketAddr::V6(address) = address else {
        return false;
    };
    let ip = address.ip();
    // The scope of a multicast address (RFC 4291, section 2.7): of the interface, or of the link.
    let is_near = ip.is_multicast() && matches!(ip.octets()[1] & 0xf, 1 | 2);
    address.scope_id() == 0 && (ip.is_unicast_link_local() || is_near)
}

/// Adds the way out to an error of opening a UDP socket.
fn udp_explained(error: io::Error, port: u16) -> anyhow::Error {
    let way_out = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another program receives there: `ss -ulnp` shows it; end it, or record another port"
        }
        io::ErrorKind::AddrNotAvailable => {
            "this machine does not have the address: `ip address` lists its addresses"
        }
        io::ErrorKind::PermissionDenied if port < 1024 => {
            "a port below 1024 needs CAP_NET_BIND_SERVICE: run as root, or give it to the program with `setcap cap_net_bind_service+ep PROGRAM`"
        }
        _ => return error.into(),
    };
    anyhow::Error::from(error).context(way_out)
}

/// Opens a source, in as many parts as streams are wanted.
pub(super) fn open(url: &VolumeUrl, wanted: &Wanted) -> anyhow::Result<Opened> {
    if url.scheme() == "interface" {
        return interface_of(url, wanted);
    }
    if url.scheme() == "udp" {
        return udp_of(url, wanted);
    }
    if wanted.streams > 1 {
        bail!(
            "--reactors above 1 works for interface: and udp: only, not for {url}; leave --reactors out"
        );
    }
    open_one(url, wanted)
}

fn open_one(url: &VolumeUrl, wanted: &Wanted) -> anyhow::Result<Opened> {
    if wanted.snap_length.is_some() {
        bail!(
            "--snap-length works for interface: and udp: only, not for {url}; leave --snap-length out"
        );
    }
    let parameters = url.parameters();
    let content = match (url.scheme(), url.path()) {
        ("pcap", _) | ("generate", "packets") => Content::Packets,
        ("bytes", _) | ("generate", "bytes") => Content::Bytes,
        ("tcp", _) => parameters
            .parsed("content", |text| match text {
                "pcap" => Ok(Content::Packets),
                "bytes" => Ok(Content::Bytes),
                _ => Err("pcap or bytes".to_owned()),
            })?
            .unwrap_or(Content::Bytes),
        ("generate", other) => {
            bail!("generate:{other} is no source; there are generate:packets and generate:bytes")
        }
        (other, _) => {
            bail!(
                "{other}: is no source; there are interface:, udp:, pcap:, bytes:, tcp: and generate:"
            )
        }
    };
    if wanted.filter.is_some() && (content == Content::Bytes || url.scheme() == "generate") {
        bail!(
            "--filter works on packets of interface:, udp:, pcap: and tcp: with content=pcap, not on {url}; leave --filter out"
        );
    }
    let opened = |make: Box<dyn FnOnce() -> Source + Send>, pace: Pace, note| Opened {
        content,
        parts: vec![Made(make)],
        line: match pace {
            Pace::Rate(bits) => Some(bits as f64 / 8.0),
            _ => None,
        },
        note,
    };
    if url.scheme() != "generate" {
        let pace = match url.scheme() {
            // The sender has a pace, and waits where that is too fast.
            "tcp" => Pace::Full,
            _ => pace_of(&parameters, content == Content::Packets)?,
        };
        parameters.finish()?;
        let (from, is_live, note) = match (url.scheme(), url.path()) {
            ("tcp", path) => {
                let (from, note) = connection_of(path)?;
                (from, true, Some(note))
            }
            (scheme, "") => bail!("{scheme}: names no file; - is standard input"),
            (_, path) => {
                let (from, is_live) = input_of(path)?;
                (from, is_live, None)
            }
        };
        let (name, filter) = (url.path().to_owned(), wanted.filter.clone());
        let make = move || {
            let input = Input::new(&name, content, pace, from).filtered_by(filter);
            Source::Input(Box::new(input.live(is_live)))
        };
        return Ok(opened(Box::new(make), pace, note));
    }
    let pace = pace_of(&parameters, false)?;
    let count = parameters.number("count", 1..=COUNT_MAX)?;
    let sizes = parameters.parsed("size", |text| match (text, content) {
        ("mix", Content::Packets) => Ok(Generator::MIX.to_vec()),
        _ => {
            let bytes = weir_block::size::parse(text).map_err(|error| error.to_string())?;
            let range = Generator::SIZES;
            match range.contains(&(bytes as usize)) {
                true => Ok(vec![bytes as usize]),
                false => Err(format!(
                    "{} to {} bytes, or mix",
                    range.start(),
                    range.end()
                )),
            }
        }
    })?;
    parameters.finish()?;
    let sizes = sizes.unwrap_or_else(|| match content {
        Content::Packets => Generator::MIX.to_vec(),
        Content::Bytes => vec![64 << 10],
    });
    let make = move || Source::Generator(Generator::new(content, &sizes, pace, count));
    Ok(opened(Box::new(make), pace, None))
}
