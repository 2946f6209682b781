//! `--destroy-data`: volumes that may be overwritten though they carry something.

use anyhow::bail;
use weir_agent::message::Open;
use weir_lab::secret::without_in_text;
use weir_volume::VolumeUrl;

/// Options of what overwrites.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct DestroyArguments {
    /// Overwrite this volume though it carries data (a file system, a partition table). Named as it is named to be used, and once for each volume of which that is
    /// meant
    #[arg(long, value_name = "URL")]
    destroy_data: Vec<VolumeUrl>,
}

impl DestroyArguments {
    /// Refuses names of what is not used: a volume that is misspelt here would be refused, or another one lost.
    pub(super) fn check<'a>(
        &self,
        used: impl IntoIterator<Item = &'a VolumeUrl>,
    ) -> anyhow::Result<()> {
        let used: Vec<_> = used.into_iter().collect();
        let is_used = |url: &VolumeUrl| used.iter().any(|used| is_same(used, url));
        match self.destroy_data.iter().find(|url| !is_used(url)) {
            None => Ok(()),
            Some(url) => bail!(
                "--destroy-data names {}, which is none of the volumes; name it as the volume is named",
                without_in_text(&url.to_string())
            ),
        }
    }

    /// Whether what the volume carries may be lost.
    pub(super) fn names(&self, url: &VolumeUrl) -> bool {
        self.destroy_data.iter().any(|named| is_same(named, url))
    }

    /// Tells agents of which volumes that is meant.
    pub(super) fn mark(&self, open: &mut Open) {
        for volume in &mut open.volumes {
            let url = volume.url.parse();
            volume.destroy_data = url.is_ok_and(|url| self.names(&url));
        }
    }
}

/// Whether both are one volume, named in the same way. Over how many connections it is reached is set by `--queues` and by
/// job files, too.
fn is_same(one: &VolumeUrl, other: &VolumeUrl) -> bool {
    one.clone().without(QUEUES) == other.clone().without(QUEUES)
}

/// The parameter that sets the number of connections.
const QUEUES: &str = "queues";

#[cfg(test)]
mod tests {
    use super::*;
    use weir_agent::message::Usage;

    fn url(text: &str) -> VolumeUrl {
        text.parse().expect("it is a URL")
    }

    #[test]
    fn only_what_is_named_may_be_lost() {
        let (one, other) = (url("file:/a"), url("file:/b"));
        let arguments = DestroyArguments {
            destroy_data: vec![one.clone()],
        };
        arguments.check([&one, &other]).unwrap();
        assert!(arguments.names(&one) && !arguments.names(&other));
        let error = arguments.check([&other]).unwrap_err().to_string();
        assert!(error.contains("--destroy-data names file:/a"), "{error}");
        DestroyArguments::default().check([&other]).unwrap();
        let sides = [vec![one.to_string()], vec![other.to_string()]];
        let mut open = Open::of_sides(&sides, 1, 1, Usage::Overwrites).unwrap();
        arguments.mark(&mut open);
        let marked: Vec<_> = open.volumes.iter().map(|of| of.destroy_data).collect();
        assert_eq!(marked, [true, false]);
    }

    #[test]
    fn a_number_of_connections_makes_no_other_volume() {
        let named = url("nvme+tcp://127.0.0.1/nqn.2025-01.org.example:a?nsid=1");
        let used = named.clone().with("queues", "4");
        let arguments = DestroyArguments {
            destroy_data: vec![named],
        };
        arguments.check([&used]).unwrap();
        assert!(arguments.names(&used));
        let other = url("nvme+tcp://127.0.0.1/nqn.2025-01.org.example:a?nsid=2");
        assert!(!arguments.names(&other));
        let mut open = Open::of_sides(&[vec![used.to_string()]], 1, 1, Usage::Overwrites).unwrap();
        arguments.mark(&mut open);
        assert!(open.volumes[0].destroy_data);
    }
}
