//! Datagrams of a UDP socket, many with one system call (recvmmsg(2)): each with its time, its sender and the address that it was sent to.
//!
//! This module only receives and counts; it does not decide what a loss means.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use socket2::{Domain, InterfaceIndexOrAddress, Protocol, SockRef, Socket, Type};

use crate::Reactor;
use crate::linux::capture::{get, readable, set};
use crate::linux::card;
use crate::linux::socket::{about, set_buffer};

/// Datagrams that are received with one system call at most.
const BATCH: usize = 32;
/// Bytes of the longest payload.
const PAYLOAD_BYTES: usize = 65_527;
/// Bytes from one datagram to the next one. Not a power of two: the beginnings would compete for the same lines of the cache.
const SLOT_BYTES: usize = (DatagramSocket::HEADROOM + PAYLOAD_BYTES).next_multiple_of(64);
/// Bytes of a sender's address (struct sockaddr_in6, the longer one).
const ADDRESS_BYTES: usize = size_of::<libc::sockaddr_in6>();
/// Bytes for control messages of one datagram: a time and an address need 72 at most.
const CONTROL_BYTES: usize = 128;
/// Bytes of the header of a control message (struct cmsghdr).
const CONTROL_HEADER: usize = size_of::<libc::cmsghdr>();
/// Attempts to see a datagram that was stamped when it arrived, a millisecond apart.
const STAMP_ATTEMPTS: usize = 200;
/// Words of the answer to SO_MEMINFO (SK_MEMINFO_VARS of linux/sock_diag.h).
const MEMINFO_WORDS: usize = 9;

/// Settings of sockets for datagrams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatagramOptions {
    /// Address and port to which datagrams come. A multicast address is joined.
    pub address: SocketAddr,
    /// Interface of a link-local address, or the one on which a multicast address is joined. Without it the kernel's routes choose.
    pub interface: Option<String>,
    /// Bytes of each socket's receive buffer.
    pub buffer_bytes: u32,
    /// Sockets among which the datagrams are divided, by flow. Must be 1 for a multicast address.
    pub sockets: u16,
}

/// A datagram.
#[derive(Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Time of arrival in the kernel, in nanoseconds since the beginning of 1970.
    pub time: u64,
    /// Its sender.
    pub from: SocketAddr,
    /// The address and the port that it was sent to.
    pub to: SocketAddr,
    /// [`DatagramSocket::HEADROOM`] bytes of room for headers, and the payload.
    pub room: &'a mut [u8],
}

/// Control messages of a datagram (cmsg(3)).
#[repr(align(8))]
struct Control([u8; CONTROL_BYTES]);

/// A datagram that was received into the slot with the same index.
#[derive(Debug, Clone, Copy)]
struct Received {
    time: u64,
    from: SocketAddr,
    to: IpAddr,
    /// Bytes of the payload.
    bytes: usize,
}

/// A UDP socket, and the last batch of datagrams that was received from it.
pub struct DatagramSocket {
    socket: Arc<OwnedFd>,
    bound: SocketAddr,
    slots: Box<[u8]>,
    received: Vec<Received>,
    current: usize,
    /// The kernel's count of datagrams that it dropped, as last read.
    dropped: u32,
}

impl DatagramSocket {
    /// Bytes of room before each payload: the headers of IPv6 and of UDP.
    pub const HEADROOM: usize = 48;

    /// Begins to receive, on as many sockets as are asked for. Datagrams wait in the receive buffers from now on.
    ///
    /// # Errors
    /// Errors of the system, with the address or option concerned: `AddrInUse`, `AddrNotAvailable`, `NotFound` where there is no such interface.
    pub fn open(options: &DatagramOptions) -> io::Result<Vec<DatagramSocket>> {
        // Keeps time stamps on until the new sockets have requested them.
        let _stamped = stamped();
        let first = DatagramSocket::open_one(options, false)?;
        let mut options = options.clone();
        options.address = first.bound;
        let mut all = vec![first];
        for _ in 1..options.sockets {
            // Set only after the bind, so that another process of this user that already shares the port fails this bind. One may still join from now on.
            SockRef::from(&*all[0].socket).set_reuse_port(true)?;
            all.push(DatagramSocket::open_one(&options, true)?);
        }
        Ok(all)
    }

    fn open_one(options: &DatagramOptions, shares_port: bool) -> io::Result<DatagramSocket> {
        let mut address = options.address;
        let named = address.to_string();
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP));
        let socket = OwnedFd::from(socket.map_err(about(&named))?);
        let of = SockRef::from(&socket);
        set_buffer(&of, libc::SO_RCVBUFFORCE, options.buffer_bytes)
            .or_else(|_| of.set_recv_buffer_size(options.buffer_bytes as usize))
            .map_err(about("SO_RCVBUF"))?;
        // Set before any datagram comes: each has its time and its address.
        set(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1_i32)
            .map_err(about("SO_TIMESTAMPNS"))?;
        let (level, option) = match address {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_PKTINFO),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
        };
        set(&socket, level, option, &1_i32).map_err(about("packet information"))?;
        let mut index = index_of(&socket, options.interface.as_deref())?;
        if let SocketAddr::V6(address) = &mut address {
            of.set_only_v6(false).map_err(about("IPV6_V6ONLY"))?;
            match (index, address.scope_id()) {
                (0, scope) => index = scope,
                (index, _) => address.set_scope_id(index),
            }
        }
        of.set_reuse_port(shares_port)
            .map_err(about("SO_REUSEPORT"))?;
        if !address.ip().is_multicast() {
            of.bind(&address.into()).map_err(about(&named))?;
        } else {
            if let Some(name) = &options.interface {
                // Otherwise IPv6 groups that other programs joined on another interface arrive, too.
                of.bind_device(Some(name.as_bytes())).map_err(about(name))?;
            }
            // Other programs of this machine may receive the same group.
            of.set_reuse_address(true).map_err(about("SO_REUSEADDR"))?;
            of.bind(&address.into()).map_err(about(&named))?;
            join(&socket, address.ip(), index).map_err(about(&format!(
                "{named} cannot be joined; name an interface that is up and takes multicast (interface=NAME)"
            )))?;
        }
        let bound = of.local_addr()?.as_socket();
        let bound = bound.ok_or_else(|| io::Error::other("the socket has no address"))?;
        Ok(DatagramSocket {
            socket: Arc::new(socket),
            bound,
            slots: vec![0; BATCH * SLOT_BYTES].into(),
            received: Vec::with_capacity(BATCH),
            current: 0,
            dropped: 0,
        })
    }

    /// The address and the port that it is bound to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.bound
    }

    /// Bytes of the receive buffer, in the unit of [`DatagramOptions::buffer_bytes`].
    ///
    /// # Errors
    /// The system's.
    pub fn buffer_bytes(&self) -> io::Result<usize> {
        // The kernel doubles the size that it is asked for (socket(7)).
        Ok(SockRef::from(&*self.socket).recv_buffer_size()? / 2)
    }

    /// Goes on to the next datagram; false where none has come.
    ///
    /// # Errors
    /// The system's.
    pub fn advance(&mut self) -> io::Result<bool> {
        self.current += 1;
        if self.current >= self.received.len() {
            self.receive()?;
        }
        Ok(!self.received.is_empty())
    }

    /// The datagram that the socket is at; none where the last call of [`DatagramSocket::advance`] found none.
    pub fn current(&mut self) -> Option<Datagram<'_>> {
        let one = self.received.get(self.current)?;
        let slot = self.current * SLOT_BYTES;
        Some(Datagram {
            time: one.time,
            from: one.from,
            to: SocketAddr::new(one.to, self.bound.port()),
            room: &mut self.slots[slot..slot + Self::HEADROOM + one.bytes],
        })
    }

    /// Waits until a datagram comes. The future may be dropped at any time.
    ///
    /// # Errors
    /// The system's.
    pub async fn ready(&self, reactor: &Reactor) -> io::Result<()> {
        readable(&self.socket, reactor).await
    }

    /// Datagrams that found no room in the receive buffer, or had a wrong checksum, since this was last asked.
    ///
    /// # Errors
    /// The system's.
    pub fn take_lost(&mut self) -> io::Result<u64> {
        // SO_RXQ_OVFL has the same count, but only as of the last datagram that came through.
        let dropped = self.meminfo()?[libc::SK_MEMINFO_DROPS as usize];
        let before = std::mem::replace(&mut self.dropped, dropped);
        Ok(dropped.wrapping_sub(before).into())
    }

    /// Share of the receive buffer that waits for the program, from 0 to 1.
    #[must_use]
    pub fn fill(&self) -> f64 {
        let Ok(info) = self.meminfo() else { return 0.0 };
        let [waiting, all] = [libc::SK_MEMINFO_RMEM_ALLOC, libc::SK_MEMINFO_RCVBUF]
            .map(|word| f64::from(info[word as usize]));
        let share = waiting / all.max(1.0);
        share.min(1.0)
    }

    fn meminfo(&self) -> io::Result<[u32; MEMINFO_WORDS]> {
        let mut info = [0; MEMINFO_WORDS];
        get(&self.socket, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut info)?;
        Ok(info)
    }

    /// Receives a batch of what waits, in place of the last one.
    fn receive(&mut self) -> io::Result<()> {
        self.received.clear();
        self.current = 0;
        let mut addresses = [[0_u8; ADDRESS_BYTES]; BATCH];
        let mut controls = [const { Control([0; CONTROL_BYTES]) }; BATCH];
        // SAFETY: all zeroes is a valid value of both types.
        let (mut buffers, mut messages): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let slots = self.slots.chunks_exact_mut(SLOT_BYTES);
        for (index, slot) in slots.enumerate() {
            let payload = &mut slot[Self::HEADROOM..Self::HEADROOM + PAYLOAD_BYTES];
            buffers[index].iov_base = payload.as_mut_ptr().cast();
            buffers[index].iov_len = payload.len();
            let header = &mut messages[index].msg_hdr;
            header.msg_name = addresses[index].as_mut_ptr().cast();
            header.msg_namelen = ADDRESS_BYTES as libc::socklen_t;
            header.msg_iov = &raw mut buffers[index];
            header.msg_iovlen = 1;
            header.msg_control = controls[index].0.as_mut_ptr().cast();
            header.msg_controllen = CONTROL_BYTES as _;
        }
        let count = loop {
            // SAFETY: the descriptor is open; each message points to an address, a control buffer and a slot of its own, with their
            // lengths, and all of them outlive the call.
            let count = unsafe {
                libc::recvmmsg(
                    self.socket.as_raw_fd(),
                    messages.as_mut_ptr(),
                    BATCH as libc::c_uint,
                    libc::MSG_DONTWAIT as _,
                    std::ptr::null_mut(),
                )
            };
            if count >= 0 {
                break count as usize;
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::WouldBlock => return Ok(()),
                io::ErrorKind::Interrupted => {}
                _ => return Err(error),
            }
        };
        for (index, message) in messages[..count].iter().enumerate() {
            let used = message.msg_hdr.msg_controllen.min(CONTROL_BYTES);
            let (time, to) = parse_control(&controls[index].0[..used]);
            let bytes = (message.msg_len as usize).min(PAYLOAD_BYTES);
            self.received.push(Received {
                time: time.unwrap_or_else(wall_clock),
                from: sender(&addresses[index]),
                to: to.unwrap_or(self.bound.ip()),
                bytes,
            });
        }
        Ok(())
    }
}

/// A socket for which the kernel has begun to stamp datagrams as they arrive; none where that cannot be seen. The kernel begins some time after it was
/// first asked to (net_enable_timestamp of net/core/dev.c); until then it stamps a datagram when that is read, which may be later than the
/// next one arrives.
fn stamped() -> Option<DatagramSocket> {
    let options = DatagramOptions {
        address: (Ipv4Addr::LOCALHOST, 0).into(),
        interface: None,
        buffer_bytes: 4096,
        sockets: 1,
    };
    let mut socket = DatagramSocket::open_one(&options, false).ok()?;
    let out = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
    for _ in 0..STAMP_ATTEMPTS {
        out.send_to(&[], socket.bound).ok()?;
        let sent = wall_clock();
        if socket.advance().ok()? && socket.current().is_some_and(|one| one.time <= sent) {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Some(socket)
}

/// Nanoseconds since the beginning of 1970.
fn wall_clock() -> u64 {
    UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos() as u64
}

/// Number of an interface; 0 where none is named.
fn index_of(socket: &OwnedFd, interface: Option<&str>) -> io::Result<u32> {
    let Some(name) = interface else {
        return Ok(0);
    };
    card::index_of(socket, name).ok_or_else(|| {
        let text = format!("there is no interface {name}; `ip link` lists what there is");
        io::Error::new(io::ErrorKind::NotFound, text)
    })
}

/// Joins a group, and ignores groups that other sockets joined.
fn join(socket: &OwnedFd, group: IpAddr, index: u32) -> io::Result<()> {
    let of = SockRef::from(socket);
    match group {
        IpAddr::V4(group) => {
            of.set_multicast_all_v4(false)?;
            of.join_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(index))
        }
        IpAddr::V6(group) => {
            set(socket, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_ALL, &0_i32)?;
            of.join_multicast_v6(&group, index)
        }
    }
}

/// An address from the bytes of a struct sockaddr_in or sockaddr_in6. Addresses of IPv4 that came to an IPv6 socket are mapped back.
fn sender(address: &[u8; ADDRESS_BYTES]) -> SocketAddr {
    let family = u16::from_ne_bytes([address[0], address[1]]);
    let port = u16::from_be_bytes([address[2], address[3]]);
    let ip = match family.into() {
        libc::AF_INET6 => v6(&address[8..]),
        _ => v4(&address[4..]),
    };
    SocketAddr::new(ip, port)
}

fn v4(bytes: &[u8]) -> IpAddr {
    Ipv4Addr::from(*bytes.first_chunk::<4>().expect("four bytes")).into()
}

fn v6(bytes: &[u8]) -> IpAddr {
    Ipv6Addr::from(*bytes.first_chunk::<16>().expect("16 bytes")).to_canonical()
}

/// Time of a datagram and the address that it was sent to, where its control messages have them.
fn parse_control(mut control: &[u8]) -> (Option<u64>, Option<IpAddr>) {
    let (mut time, mut to) = (None, None);
    while let Some((header, _)) = control.split_at_checked(CONTROL_HEADER) {
        let number = |at: usize| {
            libc::c_int::from_ne_bytes(*header[at..].first_chunk().expect("four bytes"))
        };
        let length = usize::from_ne_bytes(*header.first_chunk().expect("a length"));
        let Some(data) = control.get(CONTROL_HEADER..length) else {
            break;
        };
        let level = number(std::mem::offset_of!(libc::cmsghdr, cmsg_level));
        let kind = number(std::mem::offset_of!(libc::cmsghdr, cmsg_type));
        match (level, kind) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS)
                if data.len() >= size_of::<libc::timespec>() =>
            {
                let half =
                    |at: usize| i64::from_ne_bytes(*data[at..].first_chunk().expect("eight bytes"));
                time = Some((half(0) * 1_000_000_000 + half(8)) as u64);
            }
            // The destination of the header is behind the interface and the address to answer from (struct in_pktinfo).
            (libc::IPPROTO_IP, libc::IP_PKTINFO) if data.len() >= size_of::<libc::in_pktinfo>() => {
                to = Some(v4(&data[std::mem::offset_of!(libc::in_pktinfo, ipi_addr)..]));
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO)
                if data.len() >= size_of::<libc::in6_pktinfo>() =>
            {
                to = Some(v6(data));
            }
            _ => {}
        }
        control = control
            .get(length.next_multiple_of(size_of::<usize>())..)
            .unwrap_or(&[]);
    }
    (time, to)
}
