//! Parsers of names, URLs and labels.

use weir_block::size::{self, Size};
use weir_nvme::Nqn;
use weir_nvme::nqn::{HostId, NQN_FIELD_SIZE};
use weir_nvme_host::Options;
use weir_nvme_host::options::{host_and_port, host_id};
use weir_volume::{Access, MemVolume, NullVolume, VolumeUrl};

/// Text: the bytes as far as they are UTF-8.
pub(crate) fn text(data: &[u8]) -> &str {
    match std::str::from_utf8(data) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&data[..error.valid_up_to()]).expect("as far as it is"),
    }
}

/// NQNs, as text and as a field of a structure; host identifiers, addresses and sizes.
pub fn names(data: &[u8]) {
    let text = text(data);
    if let Ok(name) = Nqn::new(text) {
        assert_eq!(name.as_str(), text);
        assert_eq!(Nqn::parse_field(&name.to_field()), Ok(name));
    }
    let mut field = [0; NQN_FIELD_SIZE];
    let length = data.len().min(NQN_FIELD_SIZE);
    field[..length].copy_from_slice(&data[..length]);
    if let Ok(name) = Nqn::parse_field(&field) {
        let end = field.iter().position(|&byte| byte == 0).expect("its end");
        assert_eq!(name.as_str().as_bytes(), &field[..end]);
    }
    if let Some(HostId(id)) = host_id(text) {
        assert_ne!(id, [0; 16]);
    }
    if let Ok((host, port)) = host_and_port(text) {
        assert!(!host.is_empty() && text.contains(host));
        assert!(port != Some(0));
    }
    if let Ok(bytes) = size::parse(text) {
        // It is written for people, and rounded.
        assert!(!Size(bytes).to_string().is_empty());
    }
}

/// Volume URLs, and what each scheme makes of its parameters; nothing is opened that exists outside.
pub fn url(data: &[u8]) {
    let Ok(url) = text(data).parse::<VolumeUrl>() else {
        return;
    };
    let written = url.to_string();
    let again: VolumeUrl = written.parse().expect("what was written can be read");
    assert_eq!(again, url, "{written}");
    assert_eq!(again.to_string(), written);
    let access = Access { read_only: false };
    match url.scheme() {
        "null" => drop(NullVolume::open(&url, access)),
        // A large directory of pages takes long, and says nothing.
        "mem"
            if url
                .parameters()
                .size("size")
                .is_ok_and(|size| size < Some(1 << 30)) =>
        {
            drop(MemVolume::open(&url, access));
        }
        "nvme+tcp" => {
            if let Ok(options) = Options::from_url(&url) {
                assert!(options.common.depth > 0 && options.nsid > 0 && !options.host.is_empty());
            }
        }
        "nfs" => {
            if let Ok(options) = weir_nfs_host::Options::from_url(&url) {
                assert!(!options.path.is_empty() && options.common.depth > 0);
                assert!(options.size != Some(0) && !options.host.is_empty());
            }
        }
        "iscsi" => {
            if let Ok(options) = weir_iscsi_host::Options::from_url(&url) {
                assert!(options.first_burst <= options.max_burst && options.outstanding_r2t > 0);
                assert!(options.common.depth > 0 && !options.host.is_empty());
            }
        }
        _ => {}
    }
}

/// Labels of members. Where the first byte is odd, magic and checksum are made right.
pub fn label(data: &[u8]) {
    const BYTES: usize = 4096;
    const CHECKED: usize = BYTES - 4;
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    let mut bytes = rest.to_vec();
    if first & 1 == 1 {
        let magic = match first & 2 {
            0 => *b"Weir stripe\0\r\n\x1a\n\x01\0\0\0",
            _ => *b"Weir concat\0\r\n\x1a\n\x01\0\0\0",
        };
        bytes.splice(0..0, magic);
        bytes.resize(CHECKED, 0);
        let sum = crc32c::crc32c(&bytes);
        bytes.extend(sum.to_le_bytes());
    }
    if let Some(written) = weir_volume::read_label(&bytes) {
        assert_eq!(weir_volume::read_label(&written), Some(written.clone()));
        assert_eq!(written[..72], bytes[..72]);
    }
}
