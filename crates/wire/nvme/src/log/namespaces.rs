//! Changed Namespace List, page 04h (NVMe Base 2.0c section 5.16.1.5).

use crate::identify::{IDENTIFY_SIZE, NSID_ALL, decode_namespace_list, encode_namespace_list};

/// Namespaces that the page lists by name; more are told as "more than can be listed".
pub const CHANGED_NAMESPACES_MAX: usize = 1024;

/// Bytes of the page.
const SIZE: usize = IDENTIFY_SIZE;

/// The page for the namespaces that changed, in rising order. More than
/// [`CHANGED_NAMESPACES_MAX`] are told by FFFFFFFFh in the first entry and zeroes after it.
pub fn encode_changed_namespaces(changed: &[u32]) -> [u8; SIZE] {
    if changed.len() > CHANGED_NAMESPACES_MAX {
        encode_namespace_list([NSID_ALL], 0)
    } else {
        encode_namespace_list(changed.iter().copied(), 0)
    }
}

/// The namespaces that the page lists; `None` where there are more than it can list, and a host must
/// look at all.
pub fn decode_changed_namespaces(page: &[u8; SIZE]) -> Option<impl Iterator<Item = u32> + '_> {
    let mut listed = decode_namespace_list(page).peekable();
    (listed.peek() != Some(&NSID_ALL)).then_some(listed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn up_to_1024_namespaces_are_listed() {
        let page = encode_changed_namespaces(&[1, 0x0102_0304]);
        assert_eq!(page[..12], [1, 0, 0, 0, 4, 3, 2, 1, 0, 0, 0, 0]);
        let all: Vec<u32> = (1..=1024).collect();
        let page = encode_changed_namespaces(&all);
        assert!(decode_changed_namespaces(&page).expect("a list").eq(all));
        assert_eq!(encode_changed_namespaces(&[]), [0; 4096]);
    }

    #[test]
    fn more_are_told_as_all() {
        let many: Vec<u32> = (1..=1025).collect();
        let page = encode_changed_namespaces(&many);
        assert_eq!(page[..8], [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
        assert!(page[8..].iter().all(|&byte| byte == 0));
        assert!(decode_changed_namespaces(&page).is_none());
    }
}
