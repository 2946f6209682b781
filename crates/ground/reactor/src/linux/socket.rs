//! TCP sockets: making them, their options, and what the kernel says of them.

use std::io;
use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::ops::Deref;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use crate::{Handle, SocketOptions, SocketReport};

/// Connections that wait to be accepted where nothing else is said; the kernel's net.core.somaxconn bounds it.
const BACKLOG: u32 = 1024;
/// The DSCP is the upper six bits of the traffic class, the lower two are ECN's (RFC 2474, section 3; RFC 3168).
const DSCP_SHIFT: u32 = 2;
const DSCP_MAX: u8 = 63;
/// Probes without an answer after which a silent connection is given up.
const KEEP_ALIVE_PROBES: u32 = 5;
/// Share of TCP_USER_TIMEOUT after which a silent connection is probed at the latest: one in so many. The rest is for the probes.
const IDLE_SHARE: u32 = 3;

/// A socket that is another's to close.
struct Borrowed(ManuallyDrop<Socket>);

impl Borrowed {
    fn new(handle: Handle) -> Self {
        // SAFETY: the handle is open as long as its owner, who is the caller's caller, and is not closed here.
        let socket = unsafe { Socket::from_raw_fd(handle.0 as RawFd) };
        Borrowed(ManuallyDrop::new(socket))
    }
}

impl Deref for Borrowed {
    type Target = Socket;

    fn deref(&self) -> &Socket {
        &self.0
    }
}

pub(super) fn about(what: &str) -> impl FnOnce(io::Error) -> io::Error + '_ {
    move |error| io::Error::new(error.kind(), format!("{what}: {error}"))
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// A socket for connecting to `address`.
pub(super) fn connecting(address: SocketAddr, options: &SocketOptions) -> io::Result<OwnedFd> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    set(&socket, options)?;
    Ok(socket.into())
}

/// A listening socket, and the address that it has.
pub(super) fn listening(
    address: SocketAddr,
    options: &SocketOptions,
) -> io::Result<(OwnedFd, SocketAddr)> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    // Connections of an earlier run that wait for stray segments must not keep this one from its port.
    socket.set_reuse_address(true)?;
    if let Some(only) = options.only_v6
        && address.is_ipv6()
    {
        socket.set_only_v6(only).map_err(about("IPV6_V6ONLY"))?;
    }
    // Accepted sockets inherit these; a receive buffer must be set before the connection agrees on a window scale.
    set(&socket, options)?;
    let listening_on = |error: io::Error| {
        io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
    };
    socket.bind(&address.into()).map_err(listening_on)?;
    let backlog = options.backlog.unwrap_or(BACKLOG).min(i32::MAX as u32);
    socket.listen(backlog as i32).map_err(listening_on)?;
    let address = address_of(&socket)?;
    Ok((socket.into(), address))
}

/// Makes a listening socket that another process opened fit for the ring, and its address.
pub(super) fn adopt(descriptor: OwnedFd) -> io::Result<(OwnedFd, SocketAddr)> {
    let socket = Socket::from(descriptor);
    let number = socket.as_raw_fd();
    let listens = socket.r#type()? == Type::STREAM && socket.is_listener()?;
    if !listens {
        return Err(invalid(format!(
            "inherited descriptor {number} is not a listening stream socket"
        )));
    }
    let address = address_of(&socket).map_err(|error| {
        invalid(format!(
            "inherited descriptor {number} does not listen on an IP address: {error}"
        ))
    })?;
    // The ring would answer an accept that has to wait with EAGAIN.
    socket.set_nonblocking(false)?;
    socket.set_cloexec(true)?;
    socket.set_tcp_nodelay(true)?;
    Ok((socket.into(), address))
}

fn address_of(socket: &Socket) -> io::Result<SocketAddr> {
    socket
        .local_addr()?
        .as_socket()
        .ok_or_else(|| io::Error::other("the socket is not TCP over IP"))
}

pub(super) fn local_address(handle: Handle) -> io::Result<SocketAddr> {
    address_of(&Borrowed::new(handle))
}

pub(super) fn shutdown(handle: Handle, how: std::net::Shutdown) {
    // An error means that there is no connection to end.
    let _ = Borrowed::new(handle).shutdown(how);
}

/// Sends a reset now and drops what was not sent: dissolves the connection by connecting to no address (connect(2),
/// AF_UNSPEC). What waits for it fails with ECONNRESET.
pub(super) fn abort(handle: Handle) {
    let socket = Borrowed::new(handle);
    // Where there is nothing to dissolve any more, closing must not deliver either. Errors mean that all has ended.
    let _ = socket.set_linger(Some(Duration::ZERO));
    // SAFETY: all zeroes is a value of this structure of integers, whose family is AF_UNSPEC.
    let nobody: libc::sockaddr = unsafe { std::mem::zeroed() };
    let length = size_of_val(&nobody) as libc::socklen_t;
    // SAFETY: the descriptor is open, and the address as long as is said.
    let _ = unsafe { libc::connect(socket.as_raw_fd(), &nobody, length) };
}

pub(super) fn set_options(handle: Handle, options: &SocketOptions) -> io::Result<()> {
    set(&Borrowed::new(handle), options)
}

fn set(socket: &Socket, options: &SocketOptions) -> io::Result<()> {
    socket.set_tcp_nodelay(true).map_err(about("TCP_NODELAY"))?;
    if let Some(bytes) = options.send_buffer {
        set_buffer(socket, libc::SO_SNDBUFFORCE, bytes)
            .or_else(|_| socket.set_send_buffer_size(bytes as usize))
            .map_err(about("SO_SNDBUF"))?;
    }
    if let Some(bytes) = options.receive_buffer {
        set_buffer(socket, libc::SO_RCVBUFFORCE, bytes)
            .or_else(|_| socket.set_recv_buffer_size(bytes as usize))
            .map_err(about("SO_RCVBUF"))?;
    }
    if let Some(name) = &options.congestion_control {
        set_congestion_control(socket, name)?;
    }
    if let Some(dscp) = options.dscp {
        // IP_TOS changes SO_PRIORITY too, and what is not asked for stays as it is.
        let priority = socket.priority()?;
        set_dscp(socket, dscp)?;
        if socket.priority()? != priority {
            set_priority(socket, priority)?;
        }
    }
    if let Some(priority) = options.priority {
        set_priority(socket, priority)?;
    }
    if let Some(timeout) = options.user_timeout {
        socket
            .set_tcp_user_timeout(Some(timeout))
            .map_err(about("TCP_USER_TIMEOUT"))?;
    }
    if options.keep_alive.is_some() || options.user_timeout.is_some() {
        set_keep_alive(socket, options.keep_alive)?;
    }
    Ok(())
}

/// How a silent connection is probed: the values of TCP_KEEPIDLE and TCP_KEEPINTVL, in whole seconds, one at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Probing {
    idle: Duration,
    interval: Duration,
}

impl Probing {
    /// Where TCP_USER_TIMEOUT is set, the kernel does not count probes: it looks after `idle` and then after each `interval`,
    /// and gives up as soon as the silence is as long as that and one probe is out (tcp(7)). So the probes must fit before it,
    /// or one that is lost would end the connection.
    fn new(keep_alive: Duration, user_timeout: Option<Duration>) -> Self {
        let seconds = |time: Duration| Duration::from_secs(time.as_secs().max(1));
        let Some(user_timeout) = user_timeout else {
            return Probing {
                idle: seconds(keep_alive),
                interval: seconds(keep_alive / KEEP_ALIVE_PROBES),
            };
        };
        let idle = seconds(keep_alive.min(user_timeout / IDLE_SHARE));
        let rest = user_timeout.saturating_sub(idle);
        Probing {
            idle,
            interval: seconds(rest / KEEP_ALIVE_PROBES),
        }
    }
}

/// Has a silent connection probed; `None`: where it is already, so that the probes fit a user time-out that has changed.
fn set_keep_alive(socket: &Socket, wanted: Option<Duration>) -> io::Result<()> {
    let about = || about("SO_KEEPALIVE");
    let wanted = match wanted {
        Some(wanted) => wanted,
        None if socket.keepalive().map_err(about())? => {
            socket.tcp_keepalive_time().map_err(about())?
        }
        None => return Ok(()),
    };
    if wanted.is_zero() {
        return socket.set_keepalive(false).map_err(about());
    }
    let user_timeout = socket.tcp_user_timeout().map_err(about())?;
    let probing = Probing::new(wanted, user_timeout.filter(|time| !time.is_zero()));
    let keep_alive = TcpKeepalive::new()
        .with_time(probing.idle)
        .with_interval(probing.interval)
        .with_retries(KEEP_ALIVE_PROBES);
    socket.set_tcp_keepalive(&keep_alive).map_err(about())
}

/// Sets a buffer size past the limit for all (net.core.[rw]mem_max), which takes CAP_NET_ADMIN.
pub(super) fn set_buffer(socket: &Socket, option: libc::c_int, bytes: u32) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    // SAFETY: the option takes one int, of which pointer and length are given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            std::ptr::from_ref(&bytes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn set_congestion_control(socket: &Socket, name: &str) -> io::Result<()> {
    socket
        .set_tcp_congestion(name.as_bytes())
        .map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT) => invalid(format!(
                "the kernel has no congestion control {name:?}, only {}; where it is a module, load tcp_{name}",
                congestion_controls()
            )),
            Some(libc::EPERM) => io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!(
                    "congestion control {name:?} takes CAP_NET_ADMIN, or a place in net.ipv4.tcp_allowed_congestion_control"
                ),
            ),
            _ => about("TCP_CONGESTION")(error),
        })
}

/// The names of those that the kernel has now.
fn congestion_controls() -> String {
    const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    match std::fs::read_to_string(AVAILABLE) {
        Ok(names) => names.split_whitespace().collect::<Vec<_>>().join(", "),
        Err(_) => format!("those in {AVAILABLE}"),
    }
}

fn set_dscp(socket: &Socket, dscp: u8) -> io::Result<()> {
    if dscp > DSCP_MAX {
        return Err(invalid(format!(
            "a DSCP is 0 to {DSCP_MAX}, and {dscp} is not"
        )));
    }
    let class = u32::from(dscp) << DSCP_SHIFT;
    if is_v6(socket)? {
        socket.set_tclass_v6(class).map_err(about("IPV6_TCLASS"))?;
        // Counts for IPv4 hosts of a socket that serves both; one for IPv6 alone may refuse it.
        let _ = socket.set_tos_v4(class);
        Ok(())
    } else {
        socket.set_tos_v4(class).map_err(about("IP_TOS"))
    }
}

fn set_priority(socket: &Socket, priority: u32) -> io::Result<()> {
    socket
        .set_priority(priority)
        .map_err(|error| match error.raw_os_error() {
            Some(libc::EPERM) => io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!(
                    "a priority of {priority} (SO_PRIORITY) takes CAP_NET_ADMIN; 0 to 6 do not"
                ),
            ),
            _ => about("SO_PRIORITY")(error),
        })
}

/// Gives an accepted socket what it does not inherit from its listener: the priority alone.
pub(super) fn inherit(listener: Handle, accepted: Handle) -> io::Result<()> {
    match Borrowed::new(listener).priority()? {
        0 => Ok(()),
        priority => set_priority(&Borrowed::new(accepted), priority),
    }
}

fn is_v6(socket: &Socket) -> io::Result<bool> {
    Ok(socket.domain()? == Domain::IPV6)
}

pub(super) fn report(handle: Handle) -> io::Result<SocketReport> {
    let socket = Borrowed::new(handle);
    let info = tcp_info(&socket)?;
    let class = if is_v6(&socket)? {
        socket.tclass_v6()?
    } else {
        socket.tos_v4()?
    };
    let congestion = socket.tcp_congestion()?;
    let name = congestion.split(|&byte| byte == 0).next().unwrap_or(&[]);
    Ok(SocketReport {
        send_buffer: socket.send_buffer_size()? as u32,
        receive_buffer: socket.recv_buffer_size()? as u32,
        congestion_control: String::from_utf8_lossy(name).into_owned(),
        dscp: (class >> DSCP_SHIFT) as u8,
        priority: socket.priority()?,
        user_timeout: socket.tcp_user_timeout()?.unwrap_or(Duration::ZERO),
        keep_alive: match socket.keepalive()? {
            true => socket.tcp_keepalive_time()?,
            false => Duration::ZERO,
        },
        no_delay: socket.tcp_nodelay()?,
        round_trip: Duration::from_micros(u64::from(info.tcpi_rtt)),
        retransmits: info.tcpi_total_retrans,
        congestion_window: info.tcpi_snd_cwnd,
        bytes_acknowledged: info.tcpi_bytes_acked,
        bytes_received: info.tcpi_bytes_received,
    })
}

/// Whether the peer has ended its direction, or the connection is over.
pub(super) fn has_peer_ended(handle: Handle) -> bool {
    // TCP_ESTABLISHED of the kernel's enumeration of states (linux/tcp_states.h), which TCP_INFO tells.
    const ESTABLISHED: u8 = 1;
    tcp_info(&Borrowed::new(handle)).map_or(true, |info| info.tcpi_state != ESTABLISHED)
}

fn tcp_info(socket: &Socket) -> io::Result<libc::tcp_info> {
    // SAFETY: all zeroes is a value of this structure of integers.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes of the structure; a shorter answer leaves zeroes.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            std::ptr::from_mut(&mut info).cast(),
            &mut length,
        )
    };
    if result == 0 {
        Ok(info)
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Probes that are lost before the kernel gives up, and after how long a silence it does: its rule, look by look
    /// (Linux, tcp_keepalive_timer).
    fn given_up(probing: Probing, user_timeout: Option<Duration>) -> (u32, Duration) {
        let (mut silence, mut lost) = (probing.idle, 0);
        loop {
            let gives_up = match user_timeout {
                Some(user_timeout) => silence >= user_timeout && lost > 0,
                None => lost >= KEEP_ALIVE_PROBES,
            };
            if gives_up {
                return (lost, silence);
            }
            lost += 1;
            silence += probing.interval;
        }
    }

    #[test]
    fn several_probes_must_be_lost_before_a_connection_is_given_up() {
        for keep_alive in [1, 2, 5, 10, 29, 30, 31, 60, 7200] {
            let keep_alive = keep_alive * SECOND;
            let probing = Probing::new(keep_alive, None);
            let (lost, silence) = given_up(probing, None);
            assert_eq!(lost, KEEP_ALIVE_PROBES);
            assert!(silence <= (2 * keep_alive).max(keep_alive + lost * SECOND));
            for milliseconds in [
                1000, 2500, 5000, 5001, 7500, 10_000, 30_000, 45_000, 3_600_000,
            ] {
                let user_timeout = Duration::from_millis(milliseconds);
                let probing = Probing::new(keep_alive, Some(user_timeout));
                let (lost, silence) = given_up(probing, Some(user_timeout));
                let about = format!("{keep_alive:?} {user_timeout:?}: {probing:?}");
                assert!(probing.idle <= keep_alive, "{about}");
                // Never before its time, nor much after it.
                assert!(silence >= user_timeout, "{about}: {silence:?}");
                assert!(
                    silence <= user_timeout + probing.interval + SECOND,
                    "{about}: {silence:?}"
                );
                if user_timeout >= 5 * SECOND {
                    assert!(lost >= 4, "{about}: {lost}");
                }
            }
        }
        let defaults = Probing::new(30 * SECOND, Some(30 * SECOND));
        assert_eq!(
            (defaults.idle, defaults.interval),
            (10 * SECOND, 4 * SECOND)
        );
        assert_eq!(given_up(defaults, Some(30 * SECOND)), (5, 30 * SECOND));
    }

    #[test]
    fn probes_fit_the_user_time_out_whenever_it_is_set() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
        let options = |keep_alive: Option<u32>, user_timeout: Option<u32>| SocketOptions {
            keep_alive: keep_alive.map(|time| time * SECOND),
            user_timeout: user_timeout.map(|time| time * SECOND),
            ..SocketOptions::default()
        };
        let probing = || Probing {
            idle: socket.tcp_keepalive_time().unwrap(),
            interval: socket.tcp_keepalive_interval().unwrap(),
        };
        set(&socket, &options(None, Some(60))).unwrap();
        assert!(!socket.keepalive().unwrap());
        for (given, idle, interval) in [
            (options(Some(30), None), 20, 8),
            (options(None, Some(30)), 10, 4),
            (options(Some(5), Some(30)), 5, 5),
        ] {
            set(&socket, &given).unwrap();
            let (idle, interval) = (idle * SECOND, interval * SECOND);
            assert_eq!(probing(), Probing { idle, interval }, "{given:?}");
        }
        set(&socket, &options(Some(0), None)).unwrap();
        assert!(!socket.keepalive().unwrap());
    }
}
