//! What an `iscsi:` URL says, and the name of this host.
//!
//! Text in, typed values out; nothing is opened here.

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use weir_initiator::options::{CommonOptions, bytes, number, refused};
use weir_iscsi::Name;
use weir_scsi::lun::Lun;
use weir_volume::url::value_error;
use weir_volume::{UrlError, VolumeUrl};

/// The scheme of the URLs of this crate's volumes.
pub const SCHEME: &str = "iscsi";
/// The port of iSCSI targets (RFC 7143 section 4.2.7.1).
pub const PORT: u16 = 3260;
/// The most sessions that may be asked for.
pub const SESSIONS_MAX: u16 = 1024;
/// Bytes that a burst may have (RFC 7143 sections 13.13 and 13.14).
pub const BURST_BYTES: std::ops::RangeInclusive<u64> = 512..=(1 << 24) - 1;
/// MaxBurstLength, where the URL does not say.
pub const MAX_BURST_BYTES: u32 = 1 << 20;
/// FirstBurstLength, where the URL does not say.
pub const FIRST_BURST_BYTES: u32 = 256 << 10;
/// MaxOutstandingR2T, where the URL does not say.
pub const OUTSTANDING_R2T: u32 = 4;

/// The parameters that have a value, and are not flags.
const VALUES: [&str; 9] = [
    "user",
    "secret_file",
    "mutual_user",
    "mutual_secret_file",
    "initiator",
    "sessions",
    "first_burst",
    "max_burst",
    "outstanding_r2t",
];

/// Reason for which the name of a machine was not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the initiator name '{text}' is not one: {error}")]
pub struct IdentityError {
    /// The text.
    pub text: String,
    /// The reason.
    #[source]
    pub error: weir_iscsi::names::NameError,
}

/// The name that a machine says it has, in the file that open-iscsi uses: the value of `InitiatorName=`. Without one it is made of 16
/// random bytes, and is another one each time.
///
/// # Errors
/// [`IdentityError`].
pub fn initiator_name(text: Option<&str>, random: [u8; 16]) -> Result<Name, IdentityError> {
    let lines = text.unwrap_or_default().lines().map(str::trim);
    let stated = lines
        .filter_map(|line| line.strip_prefix("InitiatorName="))
        .map(str::trim)
        .rfind(|name| !name.is_empty());
    let text = match stated {
        Some(name) => name.to_owned(),
        None => format!(
            "iqn.2026-01.invalid.weir:{:032x}",
            u128::from_be_bytes(random)
        ),
    };
    text.parse().map_err(|error| IdentityError { text, error })
}

/// CHAP: names, and the files whose first lines are the secrets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChapOptions {
    /// CHAP_N of this host.
    pub user: Option<String>,
    /// The file of its secret.
    pub secret_file: Option<PathBuf>,
    /// CHAP_N of the target, which must prove itself.
    pub mutual_user: Option<String>,
    /// The file of the target's secret.
    pub mutual_secret_file: Option<PathBuf>,
}

/// Where to connect, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Name or address of the target's portal, without brackets.
    pub host: String,
    /// Its TCP port.
    pub port: u16,
    /// Name of the target.
    pub target: Name,
    /// The logical unit that becomes the volume.
    pub lun: u16,
    /// CHAP.
    pub chap: ChapOptions,
    /// The initiator's name, in place of the one that the program has.
    pub initiator: Option<Name>,
    /// Sessions for I/O; `None`: one for each reactor.
    pub sessions: Option<u16>,
    /// Whether data may go with its command.
    pub immediate_data: bool,
    /// Whether data waits for the target to ask for it, but what goes with its command.
    pub initial_r2t: bool,
    /// FirstBurstLength in bytes.
    pub first_burst: u32,
    /// MaxBurstLength in bytes.
    pub max_burst: u32,
    /// MaxOutstandingR2T.
    pub outstanding_r2t: u32,
    /// What every initiator has.
    pub common: CommonOptions,
}

impl Options {
    /// Everything as by default, for unit `lun` of `target` at `host`.
    #[must_use]
    pub fn new(host: &str, port: u16, target: Name, lun: u16) -> Self {
        Options {
            host: host.to_owned(),
            port,
            target,
            lun,
            chap: ChapOptions::default(),
            initiator: None,
            sessions: None,
            immediate_data: true,
            initial_r2t: false,
            first_burst: FIRST_BURST_BYTES,
            max_burst: MAX_BURST_BYTES,
            outstanding_r2t: OUTSTANDING_R2T,
            common: CommonOptions::default(),
        }
    }

    /// Reads an `iscsi:` URL: `iscsi://HOST:PORT/IQN/LUN?sessions=4&...`. Without a port it is [`PORT`].
    ///
    /// # Errors
    /// [`UrlError`] names what is wrong and what may be written.
    pub fn from_url(url: &VolumeUrl) -> Result<Self, UrlError> {
        const PLACE: &str = "//HOST:PORT/IQN-OF-THE-TARGET/LUN";
        let place = || url.place_error(PLACE);
        let authority = url.authority().ok_or_else(place)?;
        let path = url.path().strip_prefix('/').unwrap_or("");
        let (target, lun) = path.split_once('/').ok_or_else(place)?;
        if authority.host.is_empty() || target.is_empty() || lun.is_empty() {
            return Err(place());
        }
        let target = name("the target", target)?;
        let allowed = "the number of a logical unit, 0 to 16383";
        let lun = number("the LUN", lun, 0..=Lun::NUMBER_MAX.into(), allowed)? as u16;
        let port = authority.port.unwrap_or(PORT);
        let mut options = Options::new(&authority.host, port, target, lun);
        let parameters = url.parameters();
        options.common = CommonOptions::from_parameters(&parameters)?;
        if let Some(immediate) = parameters.flag_if_given("immediate_data")? {
            options.immediate_data = immediate;
        }
        options.initial_r2t = parameters.flag("initial_r2t")?;
        for name in VALUES {
            if let Some(value) = parameters.text(name)? {
                options.set(name, value)?;
            }
        }
        parameters.finish()?;
        options.check()?;
        Ok(options)
    }

    fn set(&mut self, name: &'static str, value: &str) -> Result<(), UrlError> {
        let text = |allowed| match value.is_empty() {
            true => Err(refused(name, value, allowed)),
            false => Ok(value.to_owned()),
        };
        let file = "the path of a file whose first line is the secret";
        match name {
            "user" => self.chap.user = Some(text("the name that the target knows (CHAP_N)")?),
            "secret_file" => self.chap.secret_file = Some(text(file)?.into()),
            "mutual_user" => {
                let allowed = "the name by which the target proves itself (CHAP_N)";
                self.chap.mutual_user = Some(text(allowed)?);
            }
            "mutual_secret_file" => self.chap.mutual_secret_file = Some(text(file)?.into()),
            "initiator" => self.initiator = Some(self::name(name, value)?),
            "sessions" => {
                let allowed = "a number of sessions from 1 to 1024";
                let sessions = number(name, value, 1..=SESSIONS_MAX.into(), allowed)?;
                self.sessions = Some(sessions as u16);
            }
            "first_burst" => self.first_burst = burst(name, value)?,
            "max_burst" => self.max_burst = burst(name, value)?,
            "outstanding_r2t" => {
                let allowed = "outstanding R2Ts of a command, from 1 to 65535";
                self.outstanding_r2t = number(name, value, 1..=0xffff, allowed)?;
            }
            other => unreachable!("{other} is not in VALUES"),
        }
        Ok(())
    }

    /// Refuses parameters that say nothing without others.
    fn check(&mut self) -> Result<(), UrlError> {
        let ChapOptions {
            user,
            secret_file,
            mutual_user,
            mutual_secret_file,
        } = &self.chap;
        let path = |path: &PathBuf| path.display().to_string();
        if let (Some(file), None) = (mutual_secret_file, mutual_user) {
            let allowed = "given with mutual_user=, the name by which the target proves itself";
            return Err(refused("mutual_secret_file", &path(file), allowed));
        }
        if let (Some(file), None) = (secret_file, user) {
            let allowed = "given with user=, the name that the target knows";
            return Err(refused("secret_file", &path(file), allowed));
        }
        if let (Some(mutual), None) = (mutual_user, user) {
            let allowed = "given with user=: a target proves itself to a host that does, too";
            return Err(refused("mutual_user", mutual, allowed));
        }
        self.first_burst = self.first_burst.min(self.max_burst);
        Ok(())
    }
}

fn name(parameter: &str, value: &str) -> Result<Name, UrlError> {
    value
        .parse()
        .map_err(|error: weir_iscsi::names::NameError| {
            value_error(parameter, value, error.to_string())
        })
}

fn burst(name: &str, value: &str) -> Result<u32, UrlError> {
    bytes(
        name,
        value,
        BURST_BYTES,
        "a burst of 512 bytes to 16 MiB - 1",
    )
}
