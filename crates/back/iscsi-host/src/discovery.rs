//! What a target has to offer: a discovery session, and SendTargets (RFC 7143 section 4.3 and appendix C).

use std::time::Duration;

use weir_initiator::{CloseOnDrop, within};
use weir_iscsi::Name;
use weir_iscsi::keys::Pairs;
use weir_iscsi::login::SessionType;
use weir_reactor::Reactor;

use crate::asking::{CommandFailure, log_out};
use crate::nexus::{Answer, Nexus};
use crate::options::{ChapOptions, Options, PORT};
use crate::session::{ConnectError, identity, open, settings};

/// For how long a target may take to list what it has.
const TIMEOUT: Duration = Duration::from_secs(30);
/// For how long its logout is waited for.
const LOGOUT_TIMEOUT: Duration = Duration::from_secs(1);
/// The most targets that are listed.
pub const ENTRIES_MAX: usize = 65_536;

/// A target, as its portal lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoveryEntry {
    /// TargetName.
    pub target: Name,
    /// TargetAddress of each of its portals, with portal group; none where it is the one that was asked.
    pub addresses: Vec<String>,
}

/// Asks the target at `host` which targets there are for `initiator`.
///
/// # Errors
/// [`ConnectError`].
pub async fn discover(
    reactor: &Reactor,
    host: &str,
    port: Option<u16>,
    initiator: &Name,
    chap: ChapOptions,
) -> Result<Vec<DiscoveryEntry>, ConnectError> {
    // There is no target in a discovery session; the name says nothing.
    let mut options = Options::new(host, port.unwrap_or(PORT), initiator.clone(), 0);
    options.chap = chap;
    let identity = identity(reactor, &options, initiator, None).await?;
    let settings = settings(reactor, &options, &identity, 0, SessionType::Discovery, 1);
    let (caller, _) = open(reactor, &options, &settings).await?;
    let guard = CloseOnDrop::new(&caller.connection);
    let submit = |nexus: &mut Nexus, user| nexus.submit_text(b"SendTargets=All\0", user);
    let asked = within(reactor, TIMEOUT, caller.ask_at_once(0, submit)).await;
    let result = log_out(&caller, LOGOUT_TIMEOUT).await;
    tracing::debug!(?result, "logged out");
    guard.disarm();
    caller.connection.close();
    let command = "Text Request";
    let answer = asked.ok_or(CommandFailure::TimedOut {
        command,
        timeout: TIMEOUT,
    })?;
    match answer {
        Ok((Answer::Text(text), _)) => entries(&text),
        Ok(_) => Err(ConnectError::Nonsense("answer to SendTargets")),
        Err(reason) => Err(CommandFailure::Ended {
            command,
            reason: reason.to_string(),
        }
        .into()),
    }
}

/// Reads the records of targets. One without a valid name is left out, with a word in the log.
fn entries(text: &[u8]) -> Result<Vec<DiscoveryEntry>, ConnectError> {
    let mut entries: Vec<DiscoveryEntry> = Vec::new();
    let mut known = false;
    for pair in Pairs::new(text) {
        let pair = pair.map_err(|_| ConnectError::Nonsense("answer to SendTargets"))?;
        match pair.key {
            "TargetName" => {
                let name: Result<Name, _> = pair.value.parse();
                known = name.is_ok();
                match name {
                    Ok(target) => entries.push(DiscoveryEntry {
                        target,
                        addresses: Vec::new(),
                    }),
                    Err(error) => tracing::warn!(%error, "a target is left out"),
                }
            }
            "TargetAddress" if known => {
                let entry = entries.last_mut().expect("a name came first");
                entry.addresses.push(pair.value.to_owned());
            }
            _ => {}
        }
        if entries.len() > ENTRIES_MAX {
            return Err(ConnectError::Nonsense("number of targets"));
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_taken_apart() {
        let text = b"TargetName=iqn.2026-01.org.example:a\0TargetAddress=10.0.0.1:3260,1\0\
            TargetAddress=[fd00::1]:3260,1\0TargetName=nonsense\0TargetAddress=10.0.0.9:1,1\0\
            TargetName=iqn.2026-01.org.example:b\0X-com.example=1\0";
        let entries = entries(text).expect("records");
        let names: Vec<_> = entries.iter().map(|entry| entry.target.as_str()).collect();
        assert_eq!(
            names,
            ["iqn.2026-01.org.example:a", "iqn.2026-01.org.example:b"]
        );
        assert_eq!(
            entries[0].addresses,
            ["10.0.0.1:3260,1", "[fd00::1]:3260,1"]
        );
        assert!(entries[1].addresses.is_empty());
        assert!(super::entries(b"TargetName").is_err());
        assert_eq!(super::entries(b"").expect("none"), []);
    }
}
