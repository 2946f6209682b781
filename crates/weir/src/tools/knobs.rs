//! Settings that `--sweep` goes through: the connections to a volume and their options, and which of a gateway's listeners they go to.
//!
//! A listener's own options are the gateway's (`weir listener add --send-buffer ...`): a gateway has several listeners that differ in them, and the sweep goes
//! from one to the next.

use std::str::FromStr;

use anyhow::bail;
use weir_block::size;
use weir_volume::VolumeUrl;

/// Settings of a sweep: each is opened, and measured for minutes.
const SETTINGS_MAX: usize = 64;
/// The largest differentiated services code point.
const DSCP_MAX: u8 = 63;

/// The parameter of a volume's URL that says how many connections carry its I/O; none where it has none.
pub(super) fn connections_parameter(url: &VolumeUrl) -> Option<&'static str> {
    match url.scheme() {
        weir_nvme_host::SCHEME => Some("queues"),
        weir_iscsi_host::SCHEME => Some("sessions"),
        weir_nfs_host::SCHEME => Some("connections"),
        _ => None,
    }
}

/// What one value of a sweep changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Connections,
    SendBuffer,
    ReceiveBuffer,
    CongestionControl,
    Dscp,
    Listener,
}

impl Kind {
    const ALL: [Kind; 6] = [
        Kind::Connections,
        Kind::SendBuffer,
        Kind::ReceiveBuffer,
        Kind::CongestionControl,
        Kind::Dscp,
        Kind::Listener,
    ];

    /// As `weir listener` calls it.
    fn name(self) -> &'static str {
        match self {
            Kind::Connections => "connections",
            Kind::SendBuffer => "send-buffer",
            Kind::ReceiveBuffer => "receive-buffer",
            Kind::CongestionControl => "congestion-control",
            Kind::Dscp => "dscp",
            Kind::Listener => "listener",
        }
    }

    /// The parameter of a URL; none where it is another part of it.
    fn parameter(self, url: &VolumeUrl) -> Option<&'static str> {
        match self {
            Kind::Connections => connections_parameter(url),
            Kind::SendBuffer => Some("sndbuf"),
            Kind::ReceiveBuffer => Some("rcvbuf"),
            Kind::CongestionControl => Some("congestion"),
            Kind::Dscp => Some("dscp"),
            Kind::Listener => None,
        }
    }

    fn check(self, value: &str) -> Result<(), String> {
        match self {
            Kind::SendBuffer | Kind::ReceiveBuffer => size::parse(value)
                .map(drop)
                .map_err(|error| error.to_string()),
            Kind::Dscp => match value.parse::<u8>() {
                Ok(number) if number <= DSCP_MAX => Ok(()),
                _ => Err(format!("'{value}' is not a number from 0 to {DSCP_MAX}")),
            },
            Kind::Connections => match value.parse::<u16>() {
                Ok(1..) => Ok(()),
                _ => Err(format!(
                    "'{value}' is not a number of connections, 1 or more"
                )),
            },
            Kind::Listener => authority(value).map(drop),
            // Which there are is the kernel's matter.
            Kind::CongestionControl if value.is_empty() => {
                Err("a congestion control has a name, such as cubic".to_owned())
            }
            Kind::CongestionControl => Ok(()),
        }
    }
}

/// `HOST:PORT`.
fn authority(text: &str) -> Result<(String, Option<u16>), String> {
    let url = format!("nvme+tcp://{text}/nqn");
    let url = url
        .parse::<VolumeUrl>()
        .map_err(|error| error.to_string())?;
    match url.authority() {
        Some(found) if url.path() == "/nqn" => Ok((found.host.clone(), found.port)),
        _ => Err(format!("'{text}' is not HOST:PORT")),
    }
}

/// One axis of a sweep: `send-buffer=64KiB,256KiB,1MiB`.
#[derive(Debug, Clone)]
pub(super) struct Knob {
    kind: Kind,
    values: Vec<String>,
}

impl FromStr for Knob {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || Kind::ALL.map(Kind::name).join(", ");
        let Some((name, values)) = text.split_once('=') else {
            return Err(format!(
                "write WHAT=VALUE,VALUE,..., where WHAT is one of {}",
                names()
            ));
        };
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name);
        let kind =
            kind.ok_or_else(|| format!("'{name}' cannot be swept; what can be is {}", names()))?;
        let values: Vec<String> = values.split(',').map(|of| of.trim().to_owned()).collect();
        values.iter().try_for_each(|value| kind.check(value))?;
        let twice = (1..values.len()).find(|&at| values[..at].contains(&values[at]));
        match (twice, values.len()) {
            (Some(at), _) => Err(format!("{} is there twice", values[at])),
            (None, 1) => Err("one value is no sweep; name two at least".to_owned()),
            (None, _) => Ok(Knob { kind, values }),
        }
    }
}

/// A value of each axis, and the volumes as they are with it.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    /// Such as `send-buffer=64KiB, dscp=10`; empty where nothing is swept.
    pub(super) name: String,
    pub(super) urls: Vec<VolumeUrl>,
}

/// Every value of each axis with every value of the others; the volumes as they are where there is no axis.
pub(super) fn settings(urls: &[VolumeUrl], knobs: &[Knob]) -> anyhow::Result<Vec<Setting>> {
    let mut settings = vec![Setting {
        name: String::new(),
        urls: urls.to_vec(),
    }];
    for (index, knob) in knobs.iter().enumerate() {
        if knobs[..index].iter().any(|other| other.kind == knob.kind) {
            bail!("--sweep {}= is given twice", knob.kind.name());
        }
        if settings.len() * knob.values.len() > SETTINGS_MAX {
            bail!("there are more than {SETTINGS_MAX} settings: leave values of --sweep out");
        }
        let mut next = Vec::with_capacity(settings.len() * knob.values.len());
        for setting in &settings {
            for value in &knob.values {
                next.push(setting.with(knob.kind, value)?);
            }
        }
        settings = next;
    }
    Ok(settings)
}

impl Setting {
    fn with(&self, kind: Kind, value: &str) -> anyhow::Result<Setting> {
        let urls = self.urls.iter().map(|url| turned(url, kind, value));
        let before = match self.name.as_str() {
            "" => String::new(),
            name => format!("{name}, "),
        };
        Ok(Setting {
            name: format!("{before}{}={value}", kind.name()),
            urls: urls.collect::<anyhow::Result<_>>()?,
        })
    }
}

/// The URL with another value of this.
fn turned(url: &VolumeUrl, kind: Kind, value: &str) -> anyhow::Result<VolumeUrl> {
    if connections_parameter(url).is_none() {
        bail!("{url} has no TCP connection: --sweep goes with nvme+tcp:, iscsi: and nfs: volumes");
    }
    let Some(parameter) = kind.parameter(url) else {
        let (host, port) = authority(value).map_err(anyhow::Error::msg)?;
        return Ok(url.clone().with_authority(&host, port));
    };
    if url.parameters().text(parameter)?.is_some() {
        bail!(
            "{url} says {parameter}= itself, and --sweep {}= does too",
            kind.name()
        );
    }
    Ok(url.clone().with(parameter, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knobs(texts: &[&str]) -> Vec<Knob> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn url(text: &str) -> VolumeUrl {
        text.parse().unwrap()
    }

    #[test]
    fn every_value_goes_with_every_other() {
        let urls = [
            url("nvme+tcp://h:1/n?nsid=1"),
            url("nvme+tcp://h:1/n?nsid=2"),
        ];
        let knobs = knobs(&["send-buffer=64KiB,1M", "listener=a:1,[::1]:2"]);
        let settings = settings(&urls, &knobs).unwrap();
        let names: Vec<_> = settings.iter().map(|of| of.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "send-buffer=64KiB, listener=a:1",
                "send-buffer=64KiB, listener=[::1]:2",
                "send-buffer=1M, listener=a:1",
                "send-buffer=1M, listener=[::1]:2"
            ]
        );
        let urls: Vec<_> = settings[1].urls.iter().map(VolumeUrl::to_string).collect();
        assert_eq!(
            urls,
            [
                "nvme+tcp://[::1]:2/n?nsid=1&sndbuf=64KiB",
                "nvme+tcp://[::1]:2/n?nsid=2&sndbuf=64KiB"
            ]
        );
    }

    #[test]
    fn connections_have_the_name_that_their_protocol_gives_them() {
        let axis = knobs(&["connections=1,16"]);
        for (of, with) in [
            ("nvme+tcp://h/n", "nvme+tcp://h/n?queues=16"),
            (
                "iscsi://h/iqn.2026-01.org.example:a/0",
                "iscsi://h/iqn.2026-01.org.example:a/0?sessions=16",
            ),
            ("nfs://h/export/file", "nfs://h/export/file?connections=16"),
        ] {
            let settings = settings(&[url(of)], &axis).unwrap();
            assert_eq!(settings[1].urls[0].to_string(), with);
        }
    }

    #[test]
    fn without_an_axis_the_volumes_are_as_they_are() {
        let settings = settings(&[url("mem:?size=1M")], &[]).unwrap();
        assert_eq!((settings.len(), settings[0].name.as_str()), (1, ""));
        assert_eq!(settings[0].urls[0], url("mem:?size=1M"));
    }

    #[test]
    fn what_cannot_be_swept_is_refused_with_what_can() {
        for (text, part) in [
            ("send-buffer", "WHAT=VALUE"),
            ("sndbuf=1k,2k", "send-buffer, receive-buffer"),
            ("send-buffer=1k", "two at least"),
            ("connections=0,1", "'0' is not a number of connections"),
            ("send-buffer=1k,x", "'x' is not a size"),
            ("dscp=1,64", "0 to 63"),
            ("dscp=1,2,1", "1 is there twice"),
            ("congestion-control=,cubic", "has a name"),
            ("listener=a:1,b:x", "HOST:PORT"),
            ("listener=a:1,b/c", "HOST:PORT"),
        ] {
            let error = text.parse::<Knob>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        let refused = |of: &str, texts: &[&str]| {
            let error = settings(&[url(of)], &knobs(texts)).unwrap_err();
            error.to_string()
        };
        let remote = "nvme+tcp://h/n";
        assert!(refused("mem:?size=1M", &["dscp=1,2"]).contains("no TCP connection"));
        assert!(refused("nvme+tcp://h/n?dscp=3", &["dscp=1,2"]).contains("says dscp= itself"));
        assert!(refused(remote, &["dscp=1,2", "dscp=3,4"]).contains("twice"));
        let many: Vec<String> = (0..33).map(|number| number.to_string()).collect();
        let many = format!("dscp={}", many.join(","));
        assert!(refused(remote, &[&many, "send-buffer=1M,2M"]).contains("more than 64"));
    }
}
