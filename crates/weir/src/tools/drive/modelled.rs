//! `weir drive --simulated`: modelled drives on a clock of their own, in one thread, without a volume.

use std::fs;
use std::time::Instant;

use anyhow::{Context, bail};
use weir_drive::config::{Config, Limits};
use weir_drive::simulated::{self, Device, Progress, Striped};
use weir_drive::{DriveState, Identity};
use weir_lab::secret::without_in_text;
use weir_load::Stop;
use weir_report::words;
use weir_ssd::{Adjustments, CAPACITY_BYTES_UNIT, Model, Profile};
use weir_volume::VolumeUrl;

use crate::tools::present::Line;

/// The scheme of modelled drives.
const SCHEME: &str = "ssd";
/// The seed where none is given, as `ssd:` volumes have it.
const SEED: u64 = 1;
/// The longest write: no volume is in the way of one.
const BLOCK_BYTES_MAX: u64 = 64 << 20;

/// A modelled drive that nothing was written to.
struct Modelled {
    url: String,
    profile: Profile,
    model: Model,
}

impl Modelled {
    /// Of `ssd:PROFILE?size=...&seed=...`.
    fn of(url: &VolumeUrl) -> anyhow::Result<Self> {
        if url.scheme() != SCHEME {
            bail!(
                "--simulated is for modelled drives, such as ssd:consumer-tlc, and {url} is none"
            );
        }
        if url.authority().is_some() || url.path().is_empty() {
            bail!(url.place_error(
                "a profile and no host, as in ssd:consumer-tlc or ssd:/path/to/profile.toml"
            ));
        }
        let parameters = url.parameters();
        let size = parameters.size("size")?;
        let seed = parameters.number("seed", 0..=u64::MAX)?;
        let adjustments = Adjustments::of(&parameters)?;
        parameters.finish().with_context(|| {
            format!("{url}: of a modelled drive on its own clock there are size, seed, noise, noise_correlation and counters")
        })?;
        let mut profile = profile(url.path())?;
        adjustments.apply(&mut profile);
        if let Some(bytes) = size {
            profile = profile.scaled(bytes).with_context(|| format!("{url}"))?;
        }
        let model = Model::new(&profile, seed.unwrap_or(SEED));
        Ok(Modelled {
            url: without_in_text(&url.to_string()),
            profile,
            model,
        })
    }
}

/// Rated writes of a modelled drive that is served as a volume; none of what is no model, or of which the profile is not there.
pub(super) fn rated_write_bytes(url: &str) -> Option<u64> {
    let url: VolumeUrl = url.parse().ok()?;
    if url.scheme() != SCHEME {
        return None;
    }
    let whole = profile(url.path()).ok()?;
    let sized = match url.parameters().size("size").ok()? {
        Some(bytes) => whole.scaled(bytes).ok()?,
        None => whole,
    };
    Some(sized.rated_write_bytes)
}

/// A built-in profile by its name; anything with a slash in it, or that ends like one, is a file.
fn profile(name: &str) -> anyhow::Result<Profile> {
    if let Some(profile) = Profile::builtin(name) {
        return Ok(profile);
    }
    if !name.contains('/') && !name.ends_with(".toml") {
        bail!(
            "there is no profile '{name}'; there are {}, and a file is named as ssd:/path/to/profile.toml",
            Profile::builtins().join(", ")
        );
    }
    let text = fs::read_to_string(name).with_context(|| format!("{name} cannot be read"))?;
    Ok(Profile::parse(&text, name)?)
}

/// Qualifies the drives, one after the other; all as one stripe where chunks have a length.
pub(super) fn run(
    urls: &[VolumeUrl],
    chunk_bytes: Option<u64>,
    config: &Config,
    stop: &Stop,
    mut show: impl FnMut(Line),
) -> anyhow::Result<Vec<DriveState>> {
    let drives = urls
        .iter()
        .map(Modelled::of)
        .collect::<anyhow::Result<Vec<_>>>()?;
    let mut jobs: Vec<(DriveState, Box<dyn Device>)> = Vec::new();
    match chunk_bytes {
        None => {
            for drive in drives {
                let mut state = fresh(config, &drive.url, drive.profile.capacity_bytes)?;
                state.truth = Some(drive.profile.truth().into());
                state.rated_write_bytes = Some(drive.profile.rated_write_bytes);
                jobs.push((state, Box::new(drive.model)));
            }
        }
        Some(chunk) => {
            let members: Vec<String> = drives.iter().map(|drive| drive.url.clone()).collect();
            // As long as its shortest member allows.
            let shortest = drives.iter().map(|of| of.profile.capacity_bytes).min();
            let rows = shortest.unwrap_or(0).checked_div(chunk).unwrap_or(0);
            let name = format!("{} modelled drives as a stripe", members.len());
            let mut state = fresh(config, &name, rows * chunk * members.len() as u64)?;
            state.members = members;
            let least = drives.iter().map(|of| of.profile.rated_write_bytes).min();
            state.rated_write_bytes = least.map(|of| of.saturating_mul(drives.len() as u64));
            let models = drives.into_iter().map(|drive| drive.model).collect();
            jobs.push((state, Box::new(Striped::new(models, chunk))));
        }
    }
    let (began, count) = (Instant::now(), jobs.len());
    let mut states = Vec::new();
    for (index, (mut state, mut device)) in jobs.into_iter().enumerate() {
        let all: u64 = state.size_bytes * config.passes.len() as u64;
        simulated::run(&mut *device, config, &mut state, stop, |progress| {
            show(line(&progress, config, (index, count), all, began));
        });
        states.push(state);
    }
    Ok(states)
}

fn fresh(config: &Config, name: &str, capacity_bytes: u64) -> anyhow::Result<DriveState> {
    let limits = Limits {
        drive: name.to_owned(),
        capacity_bytes,
        multiple: CAPACITY_BYTES_UNIT,
        block_bytes_max: BLOCK_BYTES_MAX,
        read_only: false,
        deallocates: true,
    };
    let size = config.check(&limits)?;
    let identity = Identity {
        url: name.to_owned(),
        capacity_bytes,
        block_size_bytes: CAPACITY_BYTES_UNIT as u32,
    };
    Ok(DriveState::new(identity, name.to_owned(), size))
}

fn line(
    progress: &Progress,
    config: &Config,
    (index, count): (usize, usize),
    all_bytes: u64,
    began: Instant,
) -> Line {
    let place = config.passes.iter().position(|of| *of == progress.pass);
    let before = place.unwrap_or(0) as f64 / config.passes.len() as f64;
    let part = progress.written_bytes as f64 / progress.end_bytes.max(1) as f64;
    let done = before + part / config.passes.len() as f64;
    let elapsed = began.elapsed();
    let fraction = (index as f64 + done) / count as f64;
    let left = elapsed.as_secs_f64() * (1.0 - fraction) / fraction.max(1e-6);
    Line {
        elapsed,
        fraction,
        text: format!(
            "drive {} of {count}, {} {:.0}% after {} of its time ({} in all), about {} left",
            index + 1,
            progress.pass.name(),
            part * 100.0,
            words::seconds(progress.drive_seconds.round()),
            words::decimal_bytes(all_bytes as f64),
            words::seconds(left.round()),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        let url = url.parse().expect("it is well formed");
        match Modelled::of(&url) {
            Ok(_) => panic!("{url} is taken"),
            Err(error) => format!("{error:#}"),
        }
    }

    #[test]
    fn what_is_no_modelled_drive_is_refused_with_those_there_are() {
        for (url, part) in [
            ("null:?size=1G", "ssd:consumer-tlc"),
            ("ssd:", "a profile"),
            ("ssd:nothing", "970-evo-plus-1tb"),
            ("ssd:/nowhere/at.toml", "cannot be read"),
            ("ssd:optane?time=real", "size, seed, noise"),
            ("ssd:optane?noise=51", "noise"),
            ("ssd:optane?size=1", "16 MiB"),
        ] {
            let said = refused(url);
            assert!(said.contains(part), "{url}: {said}");
        }
        let url = "ssd:optane?size=1G&seed=7&noise=10".parse().unwrap();
        let drive = Modelled::of(&url).unwrap();
        assert_eq!(
            (drive.profile.capacity_bytes, drive.profile.noise),
            (1 << 30, 0.1)
        );
    }

    #[test]
    fn a_served_model_is_rated_as_its_profile_and_size_say() {
        let rated = rated_write_bytes;
        assert_eq!(rated("ssd:970-evo-plus-1tb"), Some(600_000_000_000_000));
        let half = rated("ssd:970-evo-plus-1tb?size=500G&time=real").unwrap();
        assert!(half < 400_000_000_000_000, "{half}");
        for none in ["null:?size=1G", "ssd:nothing", "no url"] {
            assert_eq!(rated(none), None, "{none}");
        }
    }
}
