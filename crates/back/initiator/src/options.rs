//! Options that every initiator has, as the parameters of a volume's URL say them, and addresses of targets.
//!
//! Text in, typed values out; nothing is opened here.

#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;
use std::time::Duration;

use weir_reactor::SocketOptions;
use weir_volume::UrlError;
use weir_volume::url::{Parameters, value_error};

/// Outstanding commands per connection, where the URL does not say.
pub const DEPTH: u16 = 128;
/// The most outstanding commands per connection that may be asked for.
pub const DEPTH_MAX: u16 = 1024;
/// Keep-alive time-out, where the URL does not say.
pub const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// For how long a lost target is tried to be reached again, where the URL does not say.
pub const CONTROLLER_LOSS_TIMEOUT: Duration = Duration::from_secs(600);
/// The longest pause between two attempts to reach a lost target, where the URL does not say.
pub const RECONNECT_DELAY: Duration = Duration::from_secs(2);
/// After how long a command is aborted, where the URL does not say.
pub const IO_TIMEOUT: Duration = Duration::from_secs(30);
/// The smallest and the largest socket buffer that may be asked for, in bytes.
pub const SOCKET_BUFFER_BYTES: RangeInclusive<u64> = 4 << 10..=1 << 30;
/// The longest name of a congestion control algorithm, in bytes (Linux, `TCP_CA_NAME_MAX` less its NUL).
pub const CONGESTION_CONTROL_LENGTH_MAX: usize = 15;
/// The largest differentiated services code point (RFC 2474 section 3).
pub const DSCP_MAX: u8 = 63;

/// The longest time that a parameter takes where no other bound is said.
const DURATION_MAX: Duration = Duration::from_secs(3600);

/// The parameters that have a value, and are not flags.
const VALUES: [&str; 10] = [
    "depth",
    "kato",
    "ctrl_loss_timeout",
    "reconnect_delay",
    "io_timeout",
    "flush_after_reconnect",
    "sndbuf",
    "rcvbuf",
    "congestion",
    "dscp",
];

/// Reason for which `HOST:PORT` was not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// There is no host, or a bracket without its other.
    #[error(
        "'{text}' is not an address: write HOST, HOST:PORT, or an IPv6 address in brackets, such as [fd00::1] or [fd00::1]:PORT"
    )]
    Host {
        /// The text.
        text: String,
    },
    /// The port is no port.
    #[error("'{text}' is not a port: write a number from 1 to 65535, or leave it out")]
    Port {
        /// The text.
        text: String,
    },
}

/// Times and rules by which a volume goes on when its target does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Patience {
    /// After so long a command is aborted.
    pub(crate) io_timeout: Duration,
    /// The longest pause between two attempts to reach a lost target.
    pub(crate) reconnect_delay: Duration,
    /// For so long a lost target is tried to be reached again; `None`: for ever.
    pub(crate) loss_timeout: Option<Duration>,
    /// Trusts the target to keep what it acknowledged: flushes succeed also after a reconnect over which writes may have been
    /// lost.
    pub(crate) trusts_after_reconnect: bool,
}

/// Options that do not depend on the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommonOptions {
    /// Outstanding commands per connection that carries them.
    pub depth: u16,
    /// Whether headers carry a digest.
    pub header_digest: bool,
    /// Whether data carries a digest.
    pub data_digest: bool,
    /// Time after which a silent target is asked for a sign of life, or is told to take this host for gone.
    pub keep_alive: Duration,
    /// For how long a lost target is tried to be reached again; `None`: for ever.
    pub controller_loss_timeout: Option<Duration>,
    /// The longest pause between two attempts.
    pub reconnect_delay: Duration,
    /// After how long a command is aborted.
    pub io_timeout: Duration,
    /// Trusts the target to keep what it acknowledged: Flush succeeds also after a reconnect over which writes may have been
    /// lost.
    pub flush_after_reconnect: bool,
    /// SO_SNDBUF of every connection, in bytes; `None`: as the system has it.
    pub send_buffer: Option<u32>,
    /// SO_RCVBUF of every connection, in bytes; `None`: as the system has it.
    pub receive_buffer: Option<u32>,
    /// TCP_CONGESTION of every connection; `None`: as the system has it.
    pub congestion_control: Option<String>,
    /// Differentiated services code point of every connection; `None`: as the system has it.
    pub dscp: Option<u8>,
}

impl Default for CommonOptions {
    fn default() -> Self {
        CommonOptions {
            depth: DEPTH,
            header_digest: false,
            data_digest: false,
            keep_alive: KEEP_ALIVE,
            controller_loss_timeout: Some(CONTROLLER_LOSS_TIMEOUT),
            reconnect_delay: RECONNECT_DELAY,
            io_timeout: IO_TIMEOUT,
            flush_after_reconnect: false,
            send_buffer: None,
            receive_buffer: None,
            congestion_control: None,
            dscp: None,
        }
    }
}

impl CommonOptions {
    /// Reads the parameters of a URL: `depth=32&hdgst&kato=15s&...`. What is not given is as by default; other parameters are left alone.
    ///
    /// # Errors
    /// [`UrlError`] names what is wrong and what may be written.
    pub fn from_parameters(parameters: &Parameters<'_>) -> Result<Self, UrlError> {
        let mut options = CommonOptions {
            header_digest: parameters.flag("hdgst")?,
            data_digest: parameters.flag("ddgst")?,
            ..CommonOptions::default()
        };
        for name in VALUES {
            if let Some(value) = parameters.text(name)? {
                options.set(name, value)?;
            }
        }
        Ok(options)
    }

    fn set(&mut self, name: &'static str, value: &str) -> Result<(), UrlError> {
        match name {
            "depth" => {
                let allowed = "outstanding commands per connection, from 1 to 1024";
                self.depth = number(name, value, 1..=DEPTH_MAX.into(), allowed)? as u16;
            }
            "sndbuf" => self.send_buffer = Some(socket_buffer(name, value)?),
            "rcvbuf" => self.receive_buffer = Some(socket_buffer(name, value)?),
            "congestion" => {
                let allowed = "a name from /proc/sys/net/ipv4/tcp_available_congestion_control, such as cubic";
                let control = congestion_control(value);
                self.congestion_control =
                    Some(control.ok_or_else(|| refused(name, value, allowed))?);
            }
            "dscp" => {
                let allowed = "a differentiated services code point, 0 to 63";
                self.dscp = Some(number(name, value, 0..=DSCP_MAX.into(), allowed)? as u8);
            }
            other => self.set_time(other, value)?,
        }
        Ok(())
    }

    fn set_time(&mut self, name: &'static str, value: &str) -> Result<(), UrlError> {
        let refuse = |allowed| refused(name, value, allowed);
        match name {
            "kato" => {
                self.keep_alive = duration(value, Duration::from_secs(1)).ok_or_else(|| {
                    refuse("a keep-alive timeout of 1 s to 1 hour, such as 5s; without one a write could never be retried safely")
                })?;
            }
            "ctrl_loss_timeout" => {
                self.controller_loss_timeout = match value {
                    "-1" => None,
                    value => Some(long_duration(value).ok_or_else(|| {
                        refuse("how long to try to reconnect, such as 600s, or -1 for ever")
                    })?),
                };
            }
            "reconnect_delay" => {
                self.reconnect_delay =
                    duration(value, Duration::from_millis(10)).ok_or_else(|| {
                        refuse("the longest pause between attempts, 10ms to 1 hour, such as 2s")
                    })?;
            }
            "io_timeout" => {
                self.io_timeout = duration(value, Duration::from_millis(100)).ok_or_else(|| {
                    refuse("after how long a command is aborted, 100ms to 1 hour, such as 30s")
                })?;
            }
            "flush_after_reconnect" => {
                if value != "trust" {
                    return Err(refuse(
                        "trust: the target keeps what it acknowledged, also when its power fails; without it flushes fail after a reconnect that may have lost writes",
                    ));
                }
                self.flush_after_reconnect = true;
            }
            other => unreachable!("{other} is not in VALUES"),
        }
        Ok(())
    }

    /// Times and rules by which a volume goes on when its target does not answer.
    pub(crate) fn patience(&self) -> Patience {
        Patience {
            io_timeout: self.io_timeout,
            reconnect_delay: self.reconnect_delay,
            loss_timeout: self.controller_loss_timeout,
            trusts_after_reconnect: self.flush_after_reconnect,
        }
    }

    /// Options of the sockets that carry commands.
    #[must_use]
    pub fn socket_options(&self) -> SocketOptions {
        SocketOptions {
            // Data that the peer does not take for so long is not delivered any more: by then it counts the host as gone.
            user_timeout: Some(self.keep_alive),
            send_buffer: self.send_buffer,
            receive_buffer: self.receive_buffer,
            congestion_control: self.congestion_control.clone(),
            dscp: self.dscp,
            ..SocketOptions::default()
        }
    }
}

/// The error that says what `name` may be.
#[must_use]
pub fn refused(name: &str, value: &str, allowed: &str) -> UrlError {
    value_error(name, value, allowed.to_owned())
}

/// Reads a number of decimal digits within a range.
///
/// # Errors
/// [`UrlError::Value`], with `allowed`.
pub fn number(
    name: &str,
    value: &str,
    range: RangeInclusive<u32>,
    allowed: &str,
) -> Result<u32, UrlError> {
    digits(value)
        .filter(|number| range.contains(number))
        .ok_or_else(|| refused(name, value, allowed))
}

/// Reads a size, such as `64k`, within a range of bytes.
///
/// # Errors
/// [`UrlError::Value`], with `allowed` where the size is not within the range.
pub fn bytes(
    name: &str,
    value: &str,
    range: RangeInclusive<u64>,
    allowed: &str,
) -> Result<u32, UrlError> {
    let bytes = weir_block::size::parse(value);
    let bytes = bytes.map_err(|error| value_error(name, value, error.to_string()))?;
    match u32::try_from(bytes) {
        Ok(narrow) if range.contains(&bytes) => Ok(narrow),
        _ => Err(refused(name, value, allowed)),
    }
}

fn socket_buffer(name: &str, value: &str) -> Result<u32, UrlError> {
    let allowed = "a socket buffer of 4k to 1G; the kernel doubles it for its own bookkeeping";
    bytes(name, value, SOCKET_BUFFER_BYTES, allowed)
}

fn congestion_control(name: &str) -> Option<String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let fits = (1..=CONGESTION_CONTROL_LENGTH_MAX).contains(&name.len());
    (fits && name.bytes().all(is_allowed)).then(|| name.to_owned())
}

/// Takes `HOST`, `HOST:PORT`, `[V6]`, `[V6]:PORT` or a bare IPv6 address apart.
///
/// # Errors
/// [`AddressError`].
pub fn host_and_port(text: &str) -> Result<(&str, Option<u16>), AddressError> {
    let no_host = || AddressError::Host {
        text: text.to_owned(),
    };
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or_else(no_host)?;
            match rest.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if rest.is_empty() => (host, None),
                None => return Err(no_host()),
            }
        }
        // An IPv6 address without brackets has no room for a port.
        None if text.matches(':').count() > 1 => (text, None),
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err(no_host());
    }
    let port = port.map(|port| match digits(port) {
        Some(number @ 1..=0xffff) => Ok(number as u16),
        _ => Err(AddressError::Port {
            text: port.to_owned(),
        }),
    });
    Ok((host, port.transpose()?))
}

/// Writes an address as [`host_and_port`] reads it.
#[must_use]
pub fn authority(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

fn digits(text: &str) -> Option<u32> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// Seconds, or a number with `ms`, `s`, `m` or `h`.
fn any_duration(text: &str) -> Option<Duration> {
    let digits = text
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(text.len());
    let (value, unit) = text.split_at(digits);
    let value: u64 = value.parse().ok()?;
    let milliseconds = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    value.checked_mul(milliseconds).map(Duration::from_millis)
}

fn duration(text: &str, least: Duration) -> Option<Duration> {
    any_duration(text).filter(|duration| (least..=DURATION_MAX).contains(duration))
}

fn long_duration(text: &str) -> Option<Duration> {
    any_duration(text).filter(|duration| *duration <= 24 * 365 * DURATION_MAX)
}
