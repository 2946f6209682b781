//! Whether librbd's options are for an image as this crate needs them.
//!
//! The client sets them, but what is configured of a pool or of an image wins over that.

use crate::error::CephError;
use crate::options::{Cache, ImageName};
use crate::sys::{CONFIG_SOURCE_IMAGE, CONFIG_SOURCE_POOL, Setting};
use crate::volume::DEALLOCATE_BYTES;

/// Refuses what would break a promise to hosts, and says how to be rid of it.
pub(crate) fn check(
    settings: &[Setting],
    image: &ImageName,
    cache: Cache,
) -> Result<(), CephError> {
    let is_on = |name: &str| {
        let found = settings.iter().find(|setting| setting.name == name);
        found.is_some_and(|setting| truth(&setting.value) == Some(true))
    };
    let (cached, skips) = (is_on("rbd_cache"), is_on("rbd_skip_partial_discard"));
    for setting in settings {
        let harm = match &*setting.name {
            "rbd_cache" if cache == Cache::Off && truth(&setting.value) != Some(false) => {
                "writes would end before they are durable, and hosts are told otherwise; or say what is cached (cache=writeback)"
            }
            "rbd_cache_policy" if cached && cache.policy() != Some(&*setting.value) => {
                "cache= says otherwise"
            }
            "rbd_non_blocking_aio" if truth(&setting.value) != Some(true) => {
                "requests would hold up the threads that serve all volumes"
            }
            "rbd_persistent_cache_mode" if setting.value.trim() != "disabled" => {
                "writes would end in a log of this machine, which a gateway elsewhere does not see, and this one does not either after its client was fenced"
            }
            "rbd_discard_granularity_bytes" if skips && exceeds(&setting.value) => {
                "what hosts deallocate would be skipped, and not read as zeroes"
            }
            _ => continue,
        };
        let (name, value) = (&setting.name, &setting.value);
        let way_out = match setting.source {
            CONFIG_SOURCE_IMAGE => format!("`rbd config image rm {image} {name}` is the way out"),
            CONFIG_SOURCE_POOL => {
                format!("`rbd config pool rm {} {name}` is the way out", image.pool)
            }
            _ => "see the client's configuration".to_owned(),
        };
        return Err(CephError::other(
            format!("cannot open image {image}"),
            format!("{name}={value} is configured for it: {harm}; {way_out}"),
        ));
    }
    Ok(())
}

/// A truth value as Ceph reads it; none where it is none.
fn truth(value: &str) -> Option<bool> {
    match value.trim() {
        word if word.eq_ignore_ascii_case("true") => Some(true),
        word if word.eq_ignore_ascii_case("false") => Some(false),
        number => number.parse::<i64>().ok().map(|number| number != 0),
    }
}

/// Whether a length is more than what deallocation works in. What cannot be read (`1Mi`) is.
fn exceeds(bytes: &str) -> bool {
    let bytes = bytes.trim().parse::<u64>();
    bytes.map_or(true, |bytes| bytes > DEALLOCATE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_configured_nearer_to_the_image_is_seen() {
        let image = ImageName::parse("p/i").unwrap();
        let setting = |name: &str, value: &str, source| Setting {
            name: name.to_owned(),
            value: value.to_owned(),
            source,
        };
        let refused = |settings: &[Setting], cache| {
            let checked = check(settings, &image, cache);
            checked.err().map(|error| error.to_string())
        };
        let on = setting("rbd_cache", "true", CONFIG_SOURCE_IMAGE);
        let told = refused(std::slice::from_ref(&on), Cache::Off).unwrap();
        assert!(
            told.contains("`rbd config image rm p/i rbd_cache`"),
            "{told}"
        );
        assert_eq!(refused(std::slice::from_ref(&on), Cache::WriteBack), None);
        let policy = setting("rbd_cache_policy", "writeback", CONFIG_SOURCE_POOL);
        let both = [on, policy.clone()];
        let told = refused(&both, Cache::WriteThrough).unwrap();
        assert!(
            told.contains("`rbd config pool rm p rbd_cache_policy`"),
            "{told}"
        );
        assert_eq!(refused(&both, Cache::WriteBack), None);
        // Without a cache its policy says nothing.
        let off = setting("rbd_cache", "0", 0);
        assert_eq!(refused(&[off, policy], Cache::Off), None);
        let blocking = setting("rbd_non_blocking_aio", "false", CONFIG_SOURCE_IMAGE);
        assert!(refused(&[blocking], Cache::Off).is_some());
        let log = |mode| setting("rbd_persistent_cache_mode", mode, CONFIG_SOURCE_POOL);
        for cache in [Cache::Off, Cache::WriteBack] {
            let told = refused(&[log("ssd")], cache).unwrap();
            assert!(
                told.contains("`rbd config pool rm p rbd_persistent_cache_mode`"),
                "{told}"
            );
            assert_eq!(refused(&[log("disabled")], cache), None);
        }
        let discards = |bytes: &str, skip: &str| {
            [
                setting("rbd_discard_granularity_bytes", bytes, CONFIG_SOURCE_IMAGE),
                setting("rbd_skip_partial_discard", skip, 0),
            ]
        };
        assert_eq!(refused(&discards("65536", "true"), Cache::Off), None);
        assert!(refused(&discards("131072", "true"), Cache::Off).is_some());
        assert_eq!(refused(&discards("131072", "false"), Cache::Off), None);
    }
}
