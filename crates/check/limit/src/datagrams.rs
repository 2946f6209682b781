//! Sends UDP datagrams from one processor, as load for a recorder.

use std::io::{self, IoSlice};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};
use serde::Serialize;

/// Datagrams of one system call.
const BATCH: usize = 32;

/// Settings of [`send`].
#[derive(Debug, Clone, Copy)]
pub struct SendConfig {
    /// The peer, which need not listen.
    pub to: SocketAddr,
    /// Bytes of each datagram.
    pub bytes: usize,
    /// For how long.
    pub time: Duration,
    /// Datagrams a second; none: as many as there can be.
    pub rate: Option<f64>,
}

/// Datagrams that were sent.
#[derive(Debug, Serialize)]
pub struct Sent {
    /// Datagrams.
    pub datagrams: u64,
    /// Datagrams sent a second.
    pub datagrams_per_second: f64,
}

/// Sends datagrams.
///
/// # Errors
/// The system's.
pub fn send(config: &SendConfig) -> io::Result<Sent> {
    let any: SocketAddr = match config.to {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(config.to)?;
    let data: Vec<u8> = (0..config.bytes).map(|index| (index % 251) as u8).collect();
    let slices = [IoSlice::new(&data)];
    let (began, mut datagrams) = (Instant::now(), 0);
    loop {
        let elapsed = began.elapsed();
        if elapsed >= config.time {
            return Ok(Sent {
                datagrams,
                datagrams_per_second: datagrams as f64 / elapsed.as_secs_f64(),
            });
        }
        let is_early = config
            .rate
            .is_some_and(|rate| datagrams as f64 > rate * elapsed.as_secs_f64());
        if is_early {
            std::hint::spin_loop();
            continue;
        }
        let mut controls: [SendAncillaryBuffer<'_, '_, '_>; BATCH] =
            std::array::from_fn(|_| SendAncillaryBuffer::default());
        let messages = controls
            .iter_mut()
            .map(|control| MMsgHdr::new(&slices, control));
        let mut messages: Vec<_> = messages.collect();
        match sendmmsg(&socket, &mut messages, SendFlags::empty()) {
            Ok(count) => datagrams += count as u64,
            // The peer's host says that nobody listens.
            Err(rustix::io::Errno::CONNREFUSED | rustix::io::Errno::NOBUFS) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
