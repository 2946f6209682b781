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
        match self.destroy_data.iter().find(|url| !used.contains(url)) {
            None => Ok(()),
            Some(url) => bail!(
                "--destroy-data names {}, which is none of the volumes; name it as the volume is named",
                without_in_text(&url.to_string())
            ),
        }
    }

    /// Whether what the volume carries may be lost.
    pub(super) fn names(&self, url: &VolumeUrl) -> bool {
        self.destroy_data.contains(url)
    }

    /// Tells agents of which volumes that is meant.
    pub(super) fn mark(&self, open: &mut Open) {
        let named: Vec<_> = self.destroy_data.iter().map(ToString::to_string).collect();
        for volume in &mut open.volumes {
            volume.destroy_data = named.contains(&volume.url);
        }
    }
}

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
}
