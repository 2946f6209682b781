//! Opening a modelled drive: its profile, what the URL makes of it, and the volume below.

use std::io;
use std::sync::Arc;

use weir_block::{BlockSize, DeallocatedRead, Geometry, Volume};
use weir_memory::segments_len;
use weir_reactor::{LocalFile, OpenOptions, UseDirect};
use weir_volume::parts::{Fences, pool_segments};
use weir_volume::url::value_error;
use weir_volume::{NullVolume, OpenError, OpenRequest, UrlError, VolumeUrl};

use super::{Clock, Drive, SCHEME, SsdVolume};
use crate::{Adjustments, Model, Profile};

/// The longest profile that is read from a file, in bytes.
const PROFILE_BYTES_MAX: u64 = 1 << 20;
/// The seed where none is given.
const SEED: u64 = 1;

/// What the URL asks for.
struct Wanted {
    size: Option<u64>,
    seed: u64,
    adjustments: Adjustments,
    clock: Clock,
    /// Of a drive over no volume.
    block_size: Option<BlockSize>,
    over: Option<VolumeUrl>,
}

/// Opens the volume that `ssd:PROFILE?size=...&seed=...&noise=...&time=...&over=...` names.
pub(super) async fn open(request: OpenRequest) -> Result<Arc<dyn Volume>, OpenError> {
    let wanted = wanted(&request.url)?;
    let mut profile = profile(&request).await?;
    wanted.adjustments.apply(&mut profile);
    let inner = match &wanted.over {
        Some(url) => Some(request.open_member(0, url).await?),
        None => None,
    };
    let size = size(&request.url, &wanted, &profile, inner.as_deref())?;
    let profile = profile.scaled(size).map_err(|error| {
        let allowed = match &inner {
            Some(inner) if wanted.size.is_none() => {
                let there = inner.geometry().length_bytes();
                format!("{error}; {} has no more than {there} bytes", inner.name())
            }
            _ => format!("{error}; size= says how many it shall have"),
        };
        OpenError::medium(&request.url, allowed)
    })?;
    let inner = match inner {
        Some(inner) => inner,
        None => nothing(&request, size, wanted.block_size)?,
    };
    let (geometry, passes_deallocations) = geometry(&inner.geometry(), &profile);
    Ok(Arc::new(SsdVolume {
        name: request.url.to_string(),
        geometry,
        passes_deallocations,
        inner,
        drive: Drive::new(Model::new(&profile, wanted.seed), wanted.clock),
        fences: Fences::default(),
    }))
}

fn wanted(url: &VolumeUrl) -> Result<Wanted, UrlError> {
    if url.authority().is_some() || url.path().is_empty() {
        return Err(url.place_error(
            "a profile and no host, as in ssd:consumer-tlc or ssd:/path/to/profile.toml",
        ));
    }
    let parameters = url.parameters();
    let size = parameters.size("size")?;
    let seed = parameters.number("seed", 0..=u64::MAX)?;
    let adjustments = Adjustments::of(&parameters)?;
    let choices = [("real", Clock::Real), ("model", Clock::Model)];
    let clock = parameters.choice("time", &choices)?;
    let block_size = parameters.block_size()?;
    let over = parameters.parsed("over", |url| {
        url.parse().map_err(|error: UrlError| error.to_string())
    })?;
    parameters.finish()?;
    if let (Some(_), Some(block_size)) = (&over, block_size) {
        let allowed = "it is that of the volume below; give it in the URL of over=";
        let bytes = block_size.bytes().to_string();
        return Err(value_error("block_size", &bytes, allowed));
    }
    Ok(Wanted {
        size,
        seed: seed.unwrap_or(SEED),
        adjustments,
        clock: clock.unwrap_or(Clock::Real),
        block_size,
        over,
    })
}

/// A built-in profile by its name; anything with a slash in it, or that ends like one, is a file.
async fn profile(request: &OpenRequest) -> Result<Profile, OpenError> {
    let name = request.url.path();
    if let Some(profile) = Profile::builtin(name) {
        return Ok(profile);
    }
    if !name.contains('/') && !name.ends_with(".toml") {
        let reason = format!(
            "there is no profile '{name}'; there are {}, and a file is named as ssd:/path/to/profile.toml",
            Profile::builtins().join(", ")
        );
        return Err(OpenError::medium(&request.url, reason));
    }
    let bytes = read_file(request, name).await.map_err(|source| {
        OpenError::medium(
            &request.url,
            format!("its profile cannot be read: {source}"),
        )
    })?;
    let text = String::from_utf8(bytes)
        .map_err(|_| OpenError::medium(&request.url, "its profile is not UTF-8".to_owned()))?;
    Profile::parse(&text, name).map_err(|error| OpenError::medium(&request.url, error.to_string()))
}

async fn read_file(request: &OpenRequest, name: &str) -> io::Result<Vec<u8>> {
    let options = OpenOptions {
        direct: UseDirect::Never,
        ..OpenOptions::default()
    };
    let (file, info) = request.open_file(name, options).await?;
    let reactor = &request.reactor;
    if info.length > PROFILE_BYTES_MAX {
        let text = format!(
            "it has {} bytes, and a profile at most {PROFILE_BYTES_MAX}",
            info.length
        );
        return Err(io::Error::other(text));
    }
    if info.length == 0 {
        return Ok(Vec::new());
    }
    let segments = pool_segments(reactor.pool(), info.length as usize)
        .ok_or_else(|| io::Error::other("there is no buffer for it"))?;
    debug_assert_eq!(segments_len(&segments) as u64, info.length);
    let (count, segments) = LocalFile::new(file).read(reactor, 0, segments).await;
    let mut bytes: Vec<u8> = segments
        .iter()
        .flat_map(|segment| segment.to_vec())
        .collect();
    bytes.truncate(count?);
    Ok(bytes)
}

/// What keeps nothing, for a drive over no volume.
fn nothing(
    request: &OpenRequest,
    size: u64,
    block_size: Option<BlockSize>,
) -> Result<Arc<dyn Volume>, OpenError> {
    let mut url = VolumeUrl::new("null", "").with("size", size);
    if let Some(block_size) = block_size {
        url = url.with("block_size", block_size.bytes());
    }
    Ok(NullVolume::open(&url, request.access)?)
}

/// The size of the drive: as asked for, or else that of the volume below, or that of the profile.
fn size(
    url: &VolumeUrl,
    wanted: &Wanted,
    profile: &Profile,
    inner: Option<&dyn Volume>,
) -> Result<u64, OpenError> {
    let Some(inner) = inner else {
        return Ok(wanted.size.unwrap_or(profile.capacity_bytes));
    };
    let there = inner.geometry().length_bytes();
    match wanted.size {
        None => Ok(there / crate::CAPACITY_BYTES_UNIT * crate::CAPACITY_BYTES_UNIT),
        Some(size) if size <= there => Ok(size),
        Some(size) => {
            let reason = format!(
                "it shall have {size} bytes, and {} has {there}; make size= smaller or that volume larger",
                inner.name()
            );
            Err(OpenError::medium(url, reason))
        }
    }
}

/// What the drive is like, and whether the volume below deallocates.
fn geometry(below: &Geometry, profile: &Profile) -> (Geometry, bool) {
    let passes_deallocations = below.deallocate_blocks > 0;
    let geometry = Geometry {
        generation: 0,
        blocks: profile.capacity_bytes >> below.block_size.shift(),
        volatile_cache: below.volatile_cache || profile.volatile_cache,
        deallocate_blocks: below.deallocate_blocks.max(1),
        deallocated_read: match passes_deallocations {
            true => below.deallocated_read,
            false => DeallocatedRead::Unknown,
        },
        ..*below
    };
    debug_assert!(
        geometry.length_bytes() == profile.capacity_bytes,
        "{SCHEME}"
    );
    (geometry, passes_deallocations)
}
