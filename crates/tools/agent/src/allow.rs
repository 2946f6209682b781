//! Which volumes an agent opens for a coordinator.
//!
//! A rule is the beginning of a URL. Of a host it must be the whole name, and the port where the rule has one; of a path of `file:` whole
//! components. Links are not looked at here: they may change before the file is opened, so that whoever opens it does so beneath the
//! folder that the rule names. A volume that is made of others is opened where it and each of them is allowed.
//! Parameters that name files of the agent's machine, or who it is elsewhere (a client of Ceph, an NVMe host), must be those of the rule; others are the
//! coordinator's.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use weir_volume::VolumeUrl;

/// Rules of an agent without `--allow`: volumes that hold nothing.
pub const DEFAULT: [&str; 1] = ["null:"];

/// Parameters that are a rule's: what they say is read on the agent's machine, or is in the name of its owner.
fn own_parameters(scheme: &str) -> &'static [&'static str] {
    match scheme {
        "rbd" => &["conf", "id", "keyring"],
        "nvme+tcp" => &["hostnqn", "hostid"],
        "iscsi" => &[
            "initiator",
            "user",
            "secret_file",
            "mutual_user",
            "mutual_secret_file",
        ],
        _ => &[],
    }
}

/// The beginning of URLs that may be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    url: VolumeUrl,
    text: String,
}

/// A rule that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is no beginning of a URL: {reason}; nvme+tcp: and file:/data/ are")]
pub struct RuleError {
    text: String,
    reason: String,
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let wrong = |reason: String| RuleError {
            text: text.to_owned(),
            reason,
        };
        let url: VolumeUrl = text.parse().map_err(|error| wrong(format!("{error}")))?;
        let parameters = url.parameters();
        for name in own_parameters(url.scheme()) {
            let value = parameters.text(name);
            value.map_err(|error| wrong(format!("{error}")))?;
        }
        if parameters.finish().is_err() {
            let reason = "of parameters only conf, id and keyring of rbd:, and hostnqn and hostid of nvme+tcp:, make a difference";
            return Err(wrong(reason.to_owned()));
        }
        let is_relative =
            url.scheme() == "file" && !url.path().is_empty() && !url.path().starts_with('/');
        if is_relative || has_dots(url.path()) {
            return Err(wrong("the path must be absolute, without '..'".to_owned()));
        }
        Ok(Rule {
            url,
            text: text.to_owned(),
        })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

/// What an agent opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed(Vec<Rule>);

impl Allowed {
    /// What these rules allow; [`DEFAULT`] where there are none.
    ///
    /// # Panics
    /// Never: the rules of the default are constants.
    #[must_use]
    pub fn new(rules: Vec<Rule>) -> Self {
        if !rules.is_empty() {
            return Allowed(rules);
        }
        let rule = |text: &str| text.parse().expect("the default is well formed");
        Allowed(DEFAULT.map(rule).to_vec())
    }

    /// Checks that a volume may be opened. Returns the folder that its file must lie in once links are followed, where the rule names
    /// one. The error says why not.
    ///
    /// # Errors
    /// The words.
    pub fn check(&self, url: &VolumeUrl) -> Result<Option<PathBuf>, String> {
        let rules = self.0.iter().filter(|rule| rule.allows(url));
        // Folders that several rules name hold each other: the largest forbids nothing that another allows.
        if let Some(beneath) = rules.map(|rule| rule.beneath(url)).min() {
            return Ok(beneath);
        }
        let own = own_parameters(url.scheme());
        if !own.is_empty() && self.0.iter().any(|rule| rule.allows_place(url)) {
            return Err(format!(
                "this agent opens {self} only, and {} must be as one of these says, or absent where it says nothing; start it with --allow '{}:?{}=...'",
                own.join(", "),
                url.scheme(),
                own[0]
            ));
        }
        Err(format!(
            "this agent opens {self} only; start it with --allow {}: or a longer beginning of the URL",
            url.scheme()
        ))
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules: Vec<_> = self.0.iter().map(Rule::to_string).collect();
        formatter.write_str(&rules.join(", "))
    }
}

impl Rule {
    fn allows(&self, url: &VolumeUrl) -> bool {
        let of = |url: &VolumeUrl, name| -> Vec<String> {
            let values = url.parameters().all(name);
            values.into_iter().map(str::to_owned).collect()
        };
        let mut own = own_parameters(url.scheme()).iter();
        self.allows_place(url) && own.all(|name| of(&self.url, name) == of(url, name))
    }

    /// The folder that the file of a volume must lie in, where the rule names one. A file that the rule itself names is where its
    /// name leads.
    fn beneath(&self, url: &VolumeUrl) -> Option<PathBuf> {
        let is_file = match url.scheme() {
            "file" => true,
            "ssd" => names_a_file(url.path()),
            _ => false,
        };
        let rule = Path::new(self.url.path());
        let is_folder = rule.parent().is_some() && rule != Path::new(url.path());
        let is_within = is_file && rule.is_absolute() && is_folder;
        is_within.then(|| rule.to_owned())
    }

    /// Whether it does but for the parameters.
    fn allows_place(&self, url: &VolumeUrl) -> bool {
        if url.scheme() != self.url.scheme() {
            return false;
        }
        let host_fits = match (self.url.authority(), url.authority()) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(rule), Some(of)) => {
                rule.host.eq_ignore_ascii_case(&of.host)
                    && rule.port.is_none_or(|port| of.port == Some(port))
            }
        };
        let path = self.url.path();
        host_fits
            && match url.scheme() {
                "ssd" if names_a_file(url.path()) => begins_with(path, url.path()),
                _ if path.is_empty() => true,
                "file" => begins_with(path, url.path()),
                _ => !has_dots(url.path()) && url.path().starts_with(path),
            }
    }
}

/// Whether the profile of a modelled drive is a file of this machine, and not one that is built in.
fn names_a_file(profile: &str) -> bool {
    profile.contains('/') || profile.ends_with(".toml")
}

fn has_dots(path: &str) -> bool {
    path.split('/').any(|part| part == ".." || part == ".")
}

/// Tells whether a path names the file that the rule names, or one in the folder that it names.
fn begins_with(rule: &str, path: &str) -> bool {
    let (rule, file) = (Path::new(rule), Path::new(path));
    rule.is_absolute() && !has_dots(path) && file.starts_with(rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(rules: &[&str]) -> Allowed {
        Allowed::new(rules.iter().map(|rule| rule.parse().unwrap()).collect())
    }

    fn allows(of: &Allowed, url: &str) -> bool {
        of.check(&url.parse().unwrap()).is_ok()
    }

    #[test]
    fn a_modelled_drive_reads_only_files_that_are_allowed() {
        let built_in = allowed(&["ssd:"]);
        assert!(allows(&built_in, "ssd:consumer-tlc?size=1G&over=file:/a"));
        for url in [
            "ssd:own.toml",
            "ssd:./own.toml",
            "ssd:/srv/own.toml",
            "ssd:/etc/passwd",
        ] {
            assert!(!allows(&built_in, url), "{url}");
        }
        let own = allowed(&["ssd:/srv/"]);
        let profile = own.check(&"ssd:/srv/own.toml".parse().unwrap());
        assert_eq!(profile, Ok(Some(PathBuf::from("/srv/"))));
        assert!(!allows(&own, "ssd:/etc/passwd"));
        assert!(!allows(&own, "ssd:consumer-tlc"));
    }

    #[test]
    fn the_default_is_what_holds_nothing_here() {
        let default = allowed(&[]);
        assert!(allows(&default, "null:?size=1G"));
        for url in [
            "nvme+tcp://192.0.2.1/nqn.a?nsid=1",
            "file:/dev/sda",
            "mem:?size=1T",
            "stripe:?member=null:",
            "rbd:pool/image",
        ] {
            assert!(!allows(&default, url), "{url}");
        }
        for (url, way_out) in [
            ("file:/dev/sda", "--allow file:"),
            ("nvme+tcp://192.0.2.1/nqn.a?nsid=1", "--allow nvme+tcp:"),
        ] {
            let said = default.check(&url.parse().unwrap()).unwrap_err();
            let words = ["this agent opens null: only", way_out];
            assert!(words.iter().all(|word| said.contains(word)), "{said}");
        }
    }

    #[test]
    fn a_host_is_a_whole_name() {
        let of = allowed(&[
            "nvme+tcp://192.0.2.1",
            "nvme+tcp://b:4420/nqn.2026-01.com.example:",
        ]);
        for (url, expected) in [
            ("nvme+tcp://192.0.2.1:4420/nqn.x", true),
            ("NVME+TCP://192.0.2.1/nqn.x", true),
            ("nvme+tcp://192.0.2.10/nqn.x", false),
            ("nvme+tcp://192.0.2.1.example.com/nqn.x", false),
            ("nvme+tcp://B:4420/nqn.2026-01.com.example:a", true),
            ("nvme+tcp://b:4421/nqn.2026-01.com.example:a", false),
            ("nvme+tcp://b:4420/nqn.2026-01.com.other:a", false),
            ("nvme+tcp://b:4420/../nqn.2026-01.com.example:a", false),
            ("null:", false),
        ] {
            assert_eq!(allows(&of, url), expected, "{url}");
        }
    }

    #[test]
    fn what_is_read_of_this_machine_is_as_the_rule_says() {
        let any = allowed(&["rbd:pool/"]);
        for (url, expected) in [
            ("rbd:pool/image", true),
            ("rbd:pool/image?cache=writeback&block_size=512", true),
            ("rbd:other/image", false),
            ("rbd:pool/image?conf=/etc/shadow", false),
            ("rbd:pool/image?CONF=/etc/shadow", true), // No parameter at all: whoever opens it refuses it.
            ("rbd:pool/image?%63onf=/etc/shadow", false),
            ("rbd:pool/image?keyring=/etc/key", false),
            ("rbd:pool/image?id=other", false),
            ("rbd:pool/image?conf=", false),
        ] {
            assert_eq!(allows(&any, url), expected, "{url}");
        }
        let said = any.check(&"rbd:pool/image?conf=/etc/shadow".parse().unwrap());
        let said = said.unwrap_err();
        assert!(
            said.contains("rbd:pool/") && said.contains("conf, id, keyring"),
            "{said}"
        );
        let one = allowed(&["rbd:pool/?conf=/etc/ceph/b.conf&id=bench", "rbd:open/"]);
        for (url, expected) in [
            ("rbd:pool/image?conf=/etc/ceph/b.conf&id=bench", true),
            (
                "rbd:pool/image?id=bench&cache=off&conf=/etc/ceph/b.conf",
                true,
            ),
            ("rbd:pool/image?conf=%2Fetc%2Fceph%2Fb.conf&id=bench", true),
            // Another client, or the one that is there where none is named.
            ("rbd:pool/image?conf=/etc/ceph/b.conf", false),
            ("rbd:pool/image", false),
            ("rbd:pool/image?conf=/etc/ceph/b.conf&id=admin", false),
            (
                "rbd:pool/image?conf=/etc/ceph/b.conf&id=bench&keyring=/k",
                false,
            ),
            (
                "rbd:pool/image?conf=/etc/ceph/b.conf&conf=/etc/shadow&id=bench",
                false,
            ),
            ("rbd:open/image", true),
            ("rbd:open/image?id=bench", false),
        ] {
            assert_eq!(allows(&one, url), expected, "{url}");
        }
    }

    #[test]
    fn who_it_is_to_a_target_is_as_the_rule_says() {
        const ID: &str = "00112233-4455-6677-8899-aabbccddeeff";
        let url = |more: &str| format!("nvme+tcp://192.0.2.1/nqn.x?nsid=1{more}");
        let default = allowed(&["nvme+tcp:"]);
        assert!(allows(&default, &url("&queues=4")));
        for more in [
            "&hostnqn=nqn.2026-01.com.example:a".to_owned(),
            "&%68ostnqn=nqn.2026-01.com.example:a".to_owned(),
            "&hostnqn=".to_owned(),
            format!("&hostid={ID}"),
        ] {
            let said = default.check(&url(&more).parse().unwrap()).unwrap_err();
            assert!(
                said.contains("hostnqn, hostid must be")
                    && said.contains("--allow 'nvme+tcp:?hostnqn="),
                "{more}: {said}"
            );
        }
        let named = "nvme+tcp://192.0.2.1/?hostnqn=nqn.2026-01.com.example:a";
        let one = allowed(&[named, "nvme+tcp://192.0.2.2"]);
        for (more, expected) in [
            ("&hostnqn=nqn.2026-01.com.example:a", true),
            ("&hostnqn=nqn.2026-01.com.example:b", false),
            ("&hostnqn=nqn.2026-01.com.example:ab", false),
            // As the machine itself.
            ("", false),
            (
                "&hostnqn=nqn.2026-01.com.example:a&hostnqn=nqn.2026-01.com.example:b",
                false,
            ),
            (
                "&hostnqn=nqn.2026-01.com.example:a&hostid=00112233-4455-6677-8899-aabbccddeeff",
                false,
            ),
        ] {
            assert_eq!(allows(&one, &url(more)), expected, "{more}");
        }
        let elsewhere = "nvme+tcp://192.0.2.2/nqn.x?hostnqn=nqn.2026-01.com.example:a";
        assert!(!allows(&one, elsewhere));
        let both = allowed(&[&format!("{named}&hostid={ID}")]);
        let more = format!("&hostid={ID}&hostnqn=nqn.2026-01.com.example:a");
        assert!(allows(&both, &url(&more)));
        assert!(!allows(&both, &url("&hostnqn=nqn.2026-01.com.example:a")));
    }

    #[test]
    fn a_file_lies_in_the_folder_that_a_rule_names() {
        let of = allowed(&["file:/data/inner", "file:/data/", "file:/dev/sdb"]);
        let data = || Some(PathBuf::from("/data/"));
        for (path, expected) in [
            ("/data/image", Some(data())),
            ("/data/inner/image", Some(data())),
            ("/dev/sdb", Some(None)),
            ("/dev/sdb1", None),
            ("/data-other/image", None),
            ("/data/../etc/passwd", None),
            ("/data/%2e%2e/etc/passwd", None),
            ("data/image", None),
        ] {
            let url = format!("file:{path}").parse().unwrap();
            assert_eq!(of.check(&url).ok(), expected, "{path}");
        }
        for rule in ["file:", "file:/"] {
            let any = allowed(&[rule]);
            let url = "file:/data/image".parse().unwrap();
            assert_eq!(any.check(&url), Ok(None), "{rule}");
        }
    }

    #[test]
    fn rules_that_mean_nothing_are_refused() {
        for wrong in [
            "",
            "file",
            "/data",
            "file:data",
            "file:/a/../b",
            "file:/a?size=1G",
            "rbd:pool/?cache=writeback",
            "rbd:pool/?id=a&id=b",
            "nvme+tcp:?conf=/a",
            "nvme+tcp:?nsid=1",
            "rbd:pool/?hostnqn=nqn.2026-01.com.example:a",
        ] {
            assert!(wrong.parse::<Rule>().is_err(), "{wrong}");
        }
    }
}
