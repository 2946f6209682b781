//! Whether what was measured is a device, or a model of one: figures of a model say what its profile says, and must not pass for a measurement.

use percent_encoding::percent_decode_str;

/// The scheme of modelled drives.
const SCHEME: &str = "ssd:";
/// What volumes are made of others by this parameter.
const MEMBER: &str = "member=";

/// Whether a volume's URL names a modelled drive, or something that is made of one. What is behind a network nobody can tell by its URL.
#[must_use]
pub fn is_modelled(url: &str) -> bool {
    if url.starts_with(SCHEME) {
        return true;
    }
    let parameters = url.split_once('?').map_or("", |(_, parameters)| parameters);
    let members = parameters
        .split('&')
        .filter_map(|parameter| parameter.strip_prefix(MEMBER));
    members
        .map(|member| percent_decode_str(member).decode_utf8_lossy())
        // Each is shorter than what it stands in.
        .any(|member| is_modelled(&member))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stripe_of_a_modelled_drive_is_a_model_and_a_file_of_that_name_is_none() {
        for (url, expected) in [
            ("ssd:optane?size=1G", true),
            ("stripe:?chunk=128k&member=file:/a&member=ssd:optane", true),
            ("stripe:?member=ssd%3Aoptane%3Fsize%3D1G", true),
            ("stripe:?member=stripe%3A%3Fmember%3Dssd%253Aoptane", true),
            ("file:/srv/ssd:optane", false),
            ("file:/dev/nvme0n1?direct=never", false),
            ("stripe:?member=file:/a&label=ssd:x", false),
            ("nvme+tcp://host/nqn.2026-01:ssd:optane", false),
            ("", false),
        ] {
            assert_eq!(is_modelled(url), expected, "{url}");
        }
    }
}
