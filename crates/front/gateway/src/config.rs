//! What is fixed at start, from a TOML file.
//!
//! Every key has a default, so that an empty file serves. Unknown keys and values out of range are
//! refused with the line they are on. What changes while the gateway runs is not here but in
//! [`crate::state`].

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize};
use weir_block::size;
use weir_nvme_target::{IN_CAPSULE_BYTES_MAX, TRANSFER_BYTES_MAX};
use weir_reactor::Spin;
use weir_reactor::linux::Feature;

/// The longest time to wait awake that may be set.
const SPIN_MAX: Duration = Duration::from_millis(10);

/// What is fixed at start.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How many reactors serve: never more are started than processors are allowed.
    #[serde(deserialize_with = "number::<_, u32, 1, 256>")]
    pub reactors: u32,
    /// Whether each reactor is bound to a processor of its own.
    pub pin: bool,
    /// Kernel features beyond the oldest supported kernel that are not used even where they are.
    #[serde(deserialize_with = "features")]
    pub features_off: Vec<Feature>,
    /// For how long a reactor with nothing to do waits awake; see [`weir_reactor::ReactorConfig::spin`].
    #[serde(deserialize_with = "spin")]
    pub spin: Spin,
    /// Whether the file has a `pause`, which earlier versions knew. It has no effect.
    #[serde(deserialize_with = "is_there")]
    pub pause: bool,
    /// The user to become where root starts it; none: whoever starts it.
    pub user: Option<String>,
    /// That user's group; none: the one that it has.
    pub group: Option<String>,
    /// Where the live state is kept; see [`Config::state_path`].
    pub state: Option<PathBuf>,
    /// The control API.
    pub control: ControlConfig,
    /// What is advertised to hosts.
    pub transport: TransportConfig,
    /// Bounds.
    pub limits: LimitsConfig,
    /// Logging.
    pub log: LogConfig,
    /// Ending.
    pub shutdown: ShutdownConfig,
}

/// The control API.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ControlConfig {
    /// The API's Unix socket; see [`Config::control_socket`].
    pub socket: Option<PathBuf>,
}

/// What is advertised to hosts.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TransportConfig {
    /// Data that an I/O command capsule may carry, in bytes: a multiple of 16 (IOCCSZ).
    #[serde(deserialize_with = "in_capsule_size")]
    pub in_capsule_size: u32,
    /// Largest data transfer of one command, in bytes: a power of two (MDTS).
    #[serde(deserialize_with = "data_transfer_size")]
    pub data_transfer_size_max: u32,
    /// How long sent data may stay unacknowledged before a connection is given up
    /// (`TCP_USER_TIMEOUT`).
    #[serde(deserialize_with = "duration::<_, 1_000_000_000, 3_600_000_000_000>")]
    pub user_timeout: Duration,
    /// After how long a silence a connection asks its host for a sign of life (`SO_KEEPALIVE`): a third of `user_timeout` at
    /// most. When the silence is as long as `user_timeout`, it is given up.
    #[serde(deserialize_with = "duration::<_, 1_000_000_000, 7_200_000_000_000>")]
    pub keep_alive: Duration,
}

/// Bounds. Beyond them hosts are refused or wait; nothing grows.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Connections at once.
    pub connections: CountLimit,
    /// Connections at once that have not connected to a queue yet.
    #[serde(deserialize_with = "number::<_, u32, 1, 65_536>")]
    pub half_open_connections: u32,
    /// Of these, those of one address (of one /64 with IPv6).
    #[serde(deserialize_with = "number::<_, u32, 1, 65_536>")]
    pub half_open_per_address: u32,
    /// How long a connection may take until its Connect command is complete.
    #[serde(deserialize_with = "duration::<_, 100_000_000, 600_000_000_000>")]
    pub handshake_timeout: Duration,
    /// How long a host may take to move on with what it began to send, was asked to send, or is sent.
    #[serde(deserialize_with = "duration::<_, 1_000_000_000, 600_000_000_000>")]
    pub progress_timeout: Duration,
    /// I/O queues of one controller.
    #[serde(deserialize_with = "number::<_, u16, 1, 1024>")]
    pub io_queues: u16,
    /// Entries of one queue (MQES + 1).
    #[serde(deserialize_with = "number::<_, u16, 32, 4096>")]
    pub queue_depth: u16,
    /// Controllers of one host at once, in one subsystem.
    #[serde(deserialize_with = "number::<_, u16, 1, 1024>")]
    pub controllers_per_host: u16,
    /// Controllers at once, of all hosts and subsystems.
    #[serde(deserialize_with = "number::<_, u32, 1, 65_536>")]
    pub controllers: u32,
    /// Data of one connection's commands at once: what it is to send, and what it was sent and has not taken.
    #[serde(deserialize_with = "bytes_in_flight")]
    pub bytes_in_flight_per_connection: u32,
    /// Memory for data buffers.
    pub memory: MemoryLimit,
}

/// How many there may be of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountLimit {
    /// As many as the memory allows, to a bound.
    Automatic,
    /// This many.
    Count(u32),
}

/// How much memory data buffers may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryLimit {
    /// A quarter of what the machine or the control group allows, 4 GiB at most.
    Automatic,
    /// This many bytes.
    Bytes(u64),
}

/// Logging.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// The least severe lines to log.
    pub level: LogLevel,
    /// How lines are written.
    pub format: LogFormat,
}

/// How severe a line must be to be logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Only what needs an operator.
    Error,
    /// And what may.
    Warn,
    /// And changes, connections, start and end.
    Info,
    /// And single steps.
    Debug,
    /// And everything else.
    Trace,
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Lines of text.
    Text,
    /// One JSON object a line.
    Json,
}

/// Ending.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ShutdownConfig {
    /// How long commands in flight may take at the end.
    #[serde(deserialize_with = "duration::<_, 0, 600_000_000_000>")]
    pub drain: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            reactors: 4,
            pin: false,
            features_off: Vec::new(),
            spin: Spin::Auto,
            pause: false,
            user: None,
            group: None,
            state: None,
            control: ControlConfig::default(),
            transport: TransportConfig::default(),
            limits: LimitsConfig::default(),
            log: LogConfig::default(),
            shutdown: ShutdownConfig::default(),
        }
    }
}

impl Default for TransportConfig {
    fn default() -> Self {
        Self {
            in_capsule_size: 16 << 10,
            data_transfer_size_max: 1 << 20,
            user_timeout: Duration::from_secs(30),
            keep_alive: Duration::from_secs(30),
        }
    }
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            connections: CountLimit::Automatic,
            half_open_connections: 256,
            half_open_per_address: 128,
            handshake_timeout: Duration::from_secs(10),
            progress_timeout: Duration::from_secs(30),
            io_queues: 128,
            queue_depth: 128,
            controllers_per_host: 16,
            controllers: 1024,
            bytes_in_flight_per_connection: 64 << 20,
            memory: MemoryLimit::Automatic,
        }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            level: LogLevel::Info,
            format: LogFormat::Text,
        }
    }
}

impl Default for ShutdownConfig {
    fn default() -> Self {
        Self {
            drain: Duration::from_secs(10),
        }
    }
}

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The text is not a configuration; the message shows the line.
    #[error("the configuration {} is not right: {message}", path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the line.
        message: String,
    },
    /// Two values that are right alone do not go together.
    #[error("the configuration {} is not right: {problem}", path.display())]
    Together {
        /// The file.
        path: PathBuf,
        /// What does not go together, and what would.
        problem: String,
    },
}

/// What of the process's environment the defaults depend on.
pub struct Environment<'a> {
    /// Looks a variable up.
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// Whether the process runs as root.
    pub root: bool,
}

impl Environment<'_> {
    /// The real one of this process.
    pub fn of_this_process() -> Environment<'static> {
        let root = rustix::process::geteuid().is_root();
        Environment {
            variable: &|name| std::env::var_os(name),
            root,
        }
    }

    /// The first directory in a variable that may hold several, as systemd sets it.
    fn directory(&self, name: &str) -> Option<PathBuf> {
        let value = (self.variable)(name)?;
        let first = std::env::split_paths(&value).next()?;
        first.is_absolute().then_some(first)
    }
}

impl Config {
    /// Reads a configuration from the file at `path`.
    ///
    /// # Errors
    /// The file cannot be read or is not a right configuration.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text, path)
    }

    /// Reads a configuration from `text`; `path` is for messages.
    ///
    /// # Errors
    /// It is not a right configuration; the message shows the line.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text).map_err(|error| {
            let message = error.to_string().trim_end().to_owned();
            ConfigError::Text {
                path: path.to_owned(),
                message,
            }
        })?;
        let limits = &config.limits;
        if let CountLimit::Count(connections) = limits.connections
            && limits.half_open_connections > connections
        {
            let problem = format!(
                "limits.half_open_connections is {}, more than the {connections} of limits.connections",
                limits.half_open_connections
            );
            return Err(ConfigError::Together {
                path: path.to_owned(),
                problem,
            });
        }
        if config.group.is_some() && config.user.is_none() {
            return Err(ConfigError::Together {
                path: path.to_owned(),
                problem: "group is of no use without user".to_owned(),
            });
        }
        if config.transport.data_transfer_size_max > limits.bytes_in_flight_per_connection {
            let problem = "transport.data_transfer_size_max is more than limits.bytes_in_flight_per_connection";
            let problem = problem.to_owned();
            return Err(ConfigError::Together {
                path: path.to_owned(),
                problem,
            });
        }
        if config.transport.in_capsule_size > config.transport.data_transfer_size_max {
            let problem = "transport.in_capsule_size is more than transport.data_transfer_size_max";
            let problem = problem.to_owned();
            return Err(ConfigError::Together {
                path: path.to_owned(),
                problem,
            });
        }
        Ok(config)
    }

    /// Where the live state is: as configured; else `state.json` in `$STATE_DIRECTORY`; else in
    /// `/var/lib/weir` for root, in `$XDG_STATE_HOME/weir` or `~/.local/state/weir` for others.
    pub fn state_path(&self, environment: &Environment<'_>) -> PathBuf {
        const FILE: &str = "state.json";
        if let Some(path) = &self.state {
            return path.clone();
        }
        if let Some(directory) = environment.directory("STATE_DIRECTORY") {
            return directory.join(FILE);
        }
        let home = || {
            let home = environment.directory("HOME")?;
            Some(home.join(".local/state"))
        };
        let user = || environment.directory("XDG_STATE_HOME").or_else(home);
        match user().filter(|_| !environment.root) {
            Some(directory) => directory.join("weir").join(FILE),
            None => Path::new("/var/lib/weir").join(FILE),
        }
    }

    /// Where the control socket is: as configured; else `weir.sock` in `$RUNTIME_DIRECTORY`; else
    /// in `/run/weir` for root, in `$XDG_RUNTIME_DIR/weir` for others where it is set.
    pub fn control_socket(&self, environment: &Environment<'_>) -> PathBuf {
        const FILE: &str = "weir.sock";
        if let Some(path) = &self.control.socket {
            return path.clone();
        }
        if let Some(directory) = environment.directory("RUNTIME_DIRECTORY") {
            return directory.join(FILE);
        }
        match environment
            .directory("XDG_RUNTIME_DIR")
            .filter(|_| !environment.root)
        {
            Some(directory) => directory.join("weir").join(FILE),
            None => Path::new("/run/weir").join(FILE),
        }
    }
}

/// Reads a whole number from `MIN` to `MAX`.
fn number<'de, D, T, const MIN: i64, const MAX: i64>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<i64>,
{
    let value = i64::deserialize(deserializer)?;
    let refuse = || de::Error::custom(format!("{value} is out of range: want {MIN} to {MAX}"));
    if !(MIN..=MAX).contains(&value) {
        return Err(refuse());
    }
    T::try_from(value).map_err(|_| refuse())
}

/// A size: a number of bytes, or a text with a unit.
struct SizeVisitor;

impl de::Visitor<'_> for SizeVisitor {
    type Value = u64;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a size such as \"16k\", \"1M\" or a number of bytes")
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<u64, E> {
        u64::try_from(value).map_err(|_| E::custom("a size cannot be negative"))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
        size::parse(text).map_err(E::custom)
    }
}

fn sized<'de, D: Deserializer<'de>>(
    deserializer: D,
    fits: impl Fn(u32) -> bool,
    want: &str,
) -> Result<u32, D::Error> {
    let bytes = deserializer.deserialize_any(SizeVisitor)?;
    match u32::try_from(bytes) {
        Ok(value) if fits(value) => Ok(value),
        _ => Err(de::Error::custom(format!(
            "{bytes} bytes is not right: want {want}"
        ))),
    }
}

fn in_capsule_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let fits = |bytes: u32| bytes.is_multiple_of(4096) && bytes <= IN_CAPSULE_BYTES_MAX;
    sized(
        deserializer,
        fits,
        "a multiple of 4 KiB, at most 64 KiB; 0 for none",
    )
}

fn data_transfer_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    // One page cannot be said: MDTS counts in powers of two of pages, and 0 is no limit.
    let fits =
        |bytes: u32| bytes.is_power_of_two() && (8 << 10..=TRANSFER_BYTES_MAX).contains(&bytes);
    sized(deserializer, fits, "a power of two from 8 KiB to 4 MiB")
}

fn bytes_in_flight<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let fits = |bytes: u32| (64 << 10..=1 << 30).contains(&bytes);
    sized(deserializer, fits, "64 KiB to 1 GiB")
}

impl<'de> Deserialize<'de> for CountLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = CountLimit;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("\"auto\" or a number from 2 to 65536")
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<CountLimit, E> {
                match u32::try_from(value) {
                    Ok(count @ 2..=65_536) => Ok(CountLimit::Count(count)),
                    _ => Err(E::custom(format!(
                        "{value} is out of range: want 2 to 65536, or \"auto\""
                    ))),
                }
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<CountLimit, E> {
                match text {
                    "auto" => Ok(CountLimit::Automatic),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

/// The names of kernel features.
fn features<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Feature>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    names
        .iter()
        .map(|name| name.parse().map_err(de::Error::custom))
        .collect()
}

impl<'de> Deserialize<'de> for MemoryLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = MemoryLimit;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("\"auto\" or a size such as \"1G\"")
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<MemoryLimit, E> {
                SizeVisitor.visit_i64(value).map(MemoryLimit::Bytes)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<MemoryLimit, E> {
                match text {
                    "auto" => Ok(MemoryLimit::Automatic),
                    _ => SizeVisitor.visit_str(text).map(MemoryLimit::Bytes),
                }
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

/// A text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a duration: write a whole number and us, ms, s, m or h, such as \"10s\"")]
pub struct DurationError {
    /// The text.
    pub text: String,
}

/// Reads a duration such as `50us`, `10s` or `2m`.
///
/// # Errors
/// The text is not a whole number with a unit.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let refuse = || DurationError {
        text: text.to_owned(),
    };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| refuse())?;
    let microseconds = match unit.trim_start() {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        _ => return Err(refuse()),
    };
    number
        .checked_mul(microseconds)
        .map(Duration::from_micros)
        .ok_or_else(refuse)
}

/// Writes a duration in the largest unit that makes it whole.
pub fn format_duration(duration: Duration) -> String {
    let microseconds = duration.as_micros();
    let units = [
        (3_600_000_000, "h"),
        (60_000_000, "m"),
        (1_000_000, "s"),
        (1_000, "ms"),
    ];
    match units
        .iter()
        .find(|(unit, _)| microseconds != 0 && microseconds.is_multiple_of(*unit))
    {
        Some((unit, name)) => format!("{}{name}", microseconds / unit),
        None => format!("{microseconds}us"),
    }
}

/// Reads a duration from `MIN` to `MAX` nanoseconds.
fn duration<'de, D, const MIN: u64, const MAX: u64>(deserializer: D) -> Result<Duration, D::Error>
where
    D: Deserializer<'de>,
{
    let text = String::deserialize(deserializer)?;
    let duration = parse_duration(&text).map_err(de::Error::custom)?;
    let (min, max) = (Duration::from_nanos(MIN), Duration::from_nanos(MAX));
    if !(min..=max).contains(&duration) {
        let (min, max) = (format_duration(min), format_duration(max));
        return Err(de::Error::custom(format!(
            "{text} is out of range: want {min} to {max}"
        )));
    }
    Ok(duration)
}

/// Reads `"auto"`, or a time to wait awake.
fn spin<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Spin, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text == "auto" {
        return Ok(Spin::Auto);
    }
    let time = parse_duration(&text).map_err(|_| {
        de::Error::custom(format!(
            "\"{text}\" is not \"auto\" and not a duration such as 50us"
        ))
    })?;
    if time > SPIN_MAX {
        return Err(de::Error::custom(format!(
            "{text} is out of range: want \"auto\", or 0us to {}",
            format_duration(SPIN_MAX)
        )));
    }
    Ok(Spin::For(time))
}

/// Reads a value that has no effect.
fn is_there<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    de::IgnoredAny::deserialize(deserializer).map(|_| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(text, Path::new("weir.toml"))
    }

    const EXAMPLE: &str = include_str!("../../../../docs/weir.toml");

    #[test]
    fn the_example_is_the_defaults() {
        assert_eq!(parse(EXAMPLE).unwrap(), Config::default());
        assert_eq!(parse("").unwrap(), Config::default());
    }

    /// The example's commented-out keys are right too, and no key is missing from it.
    #[test]
    fn the_example_shows_every_key() {
        let uncommented: String = EXAMPLE
            .lines()
            .map(|line| match line.strip_prefix("# ") {
                Some(rest)
                    if rest
                        .split_once(" = ")
                        .is_some_and(|(key, _)| !key.contains(' ')) =>
                {
                    format!("{rest}\n")
                }
                _ => format!("{line}\n"),
            })
            .collect();
        let config = parse(&uncommented).unwrap();
        assert_eq!(
            config.state.as_deref(),
            Some(Path::new("/var/lib/weir/state.json"))
        );
        let socket = config.control.socket.as_deref();
        assert_eq!(socket, Some(Path::new("/run/weir/weir.sock")));
        let debug = format!("{config:#?}");
        let fields = debug
            .lines()
            .filter_map(|line| line.trim().split_once(": "));
        for (field, _) in fields {
            let shown = uncommented.lines().any(|line| {
                line.starts_with(&format!("{field} =")) || line == format!("[{field}]")
            });
            assert!(shown, "docs/weir.toml does not show {field}");
        }
    }

    #[test]
    fn wrong_values_name_the_line_and_the_right_ones() {
        let cases = [
            ("reactors = 0", "0 is out of range: want 1 to 256"),
            ("\n\nreactor = 4", "line 3"),
            ("reactors = \"many\"", "invalid type"),
            (
                "spin = \"1s\"",
                "1s is out of range: want \"auto\", or 0us to 10ms",
            ),
            (
                "spin = \"fast\"",
                "\"fast\" is not \"auto\" and not a duration",
            ),
            ("[limits]\nconnections = 1", "line 2"),
            ("[limits]\nconnections = \"all\"", "\"auto\" or a number"),
            (
                "[limits]\nbytes_in_flight_per_connection = \"512k\"",
                "data_transfer_size_max is more than limits.bytes",
            ),
            ("[limits]\nmemory = \"10X\"", "'10X' is not a size"),
            ("[limits]\nmemory = true", "\"auto\" or a size"),
            (
                "[transport]\nin_capsule_size = \"5k\"",
                "want a multiple of 4 KiB",
            ),
            (
                "[transport]\ndata_transfer_size_max = 3000000",
                "want a power of two",
            ),
            (
                "[transport]\nin_capsule_size = 0\ndata_transfer_size_max = \"4k\"",
                "from 8 KiB to 4 MiB",
            ),
            (
                "[log]\nlevel = \"loud\"",
                "unknown variant `loud`, expected one of `error`",
            ),
            ("[log]\nlevel = \"info\"\nlevel = \"info\"", "duplicate key"),
            ("[nonsense]", "unknown field `nonsense`"),
            (
                "[limits]\nconnections = 100",
                "half_open_connections is 256, more than the 100",
            ),
        ];
        for (text, want) in cases {
            let message = parse(text).unwrap_err().to_string();
            assert!(
                message.contains(want),
                "{text:?} gives {message:?} without {want:?}"
            );
            assert!(
                message.contains("weir.toml"),
                "{message:?} does not name the file"
            );
        }
    }

    #[test]
    fn durations() {
        for text in ["0us", "50us", "7ms", "10s", "2m", "3h"] {
            assert_eq!(format_duration(parse_duration(text).unwrap()), text);
        }
        assert_eq!(
            parse_duration("60 s").unwrap(),
            parse_duration("1m").unwrap()
        );
        for text in [
            "",
            "s",
            "10",
            "1.5s",
            "-1s",
            "10S",
            "1d",
            "99999999999999999999s",
        ] {
            assert!(parse_duration(text).is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn paths_depend_on_the_environment() {
        fn paths(root: bool, set: &[(&str, &str)]) -> (String, String) {
            let lookup = |name: &str| {
                set.iter()
                    .find(|(key, _)| *key == name)
                    .map(|(_, value)| OsString::from(value))
            };
            let environment = Environment {
                variable: &lookup,
                root,
            };
            let config = Config::default();
            let state = config.state_path(&environment).display().to_string();
            (
                state,
                config.control_socket(&environment).display().to_string(),
            )
        }
        let pair = |state: &str, socket: &str| (state.to_owned(), socket.to_owned());
        let system = pair("/var/lib/weir/state.json", "/run/weir/weir.sock");
        assert_eq!(
            paths(
                true,
                &[("HOME", "/root"), ("XDG_RUNTIME_DIR", "/run/user/0")]
            ),
            system
        );
        assert_eq!(paths(false, &[]), system);
        assert_eq!(
            paths(
                true,
                &[("STATE_DIRECTORY", "/s:/t"), ("RUNTIME_DIRECTORY", "/r")]
            ),
            pair("/s/state.json", "/r/weir.sock")
        );
        assert_eq!(
            paths(
                false,
                &[("HOME", "/home/a"), ("XDG_RUNTIME_DIR", "/run/user/1")]
            ),
            pair(
                "/home/a/.local/state/weir/state.json",
                "/run/user/1/weir/weir.sock"
            )
        );
        assert_eq!(
            paths(false, &[("HOME", "/home/a"), ("XDG_STATE_HOME", "/x")]).0,
            "/x/weir/state.json"
        );
    }
}
