//! The content of blocks: every sector says which write it is of, and where it belongs.
//!
//! A value is the number of the write that made it; 0 is a block of zeroes. A sector of 512 bytes repeats 16 bytes: the value,
//! and a word made of the namespace and the sector's place. So a read tells which write each block is of, a block that is of
//! two writes is seen, and so is one that belongs somewhere else.

/// Bytes of the smallest block.
pub(crate) const SECTOR: usize = 512;
const UNIT: usize = 16;

/// The content that a block was found to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The write of this number, or 0: zeroes.
    Value(u64),
    /// Sectors of several writes.
    Torn(Vec<u64>),
    /// Bytes that nobody wrote there.
    Foreign,
}

fn place(namespace: usize, sector: u64) -> u64 {
    (sector + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ ((namespace as u64 + 1) << 56)
}

/// Fills blocks from `lba` on with the data of write `value`.
pub(crate) fn fill(bytes: &mut [u8], value: u64, namespace: usize, lba: u64, block: usize) {
    if value == 0 {
        return bytes.fill(0);
    }
    let first = lba * (block / SECTOR) as u64;
    for (index, sector) in bytes.chunks_exact_mut(SECTOR).enumerate() {
        let unit = unit(value, namespace, first + index as u64);
        for part in sector.chunks_exact_mut(UNIT) {
            part.copy_from_slice(&unit);
        }
    }
}

fn unit(value: u64, namespace: usize, sector: u64) -> [u8; UNIT] {
    let mut unit = [0; UNIT];
    unit[..8].copy_from_slice(&value.to_le_bytes());
    unit[8..].copy_from_slice(&place(namespace, sector).to_le_bytes());
    unit
}

/// Reads the content of one block.
pub(crate) fn read(bytes: &[u8], namespace: usize, lba: u64) -> Seen {
    let first = lba * (bytes.len() / SECTOR) as u64;
    let sectors = bytes.chunks_exact(SECTOR).enumerate();
    let values: Option<Vec<u64>> = sectors
        .map(|(index, sector)| sector_value(sector, namespace, first + index as u64))
        .collect();
    match values {
        None => Seen::Foreign,
        Some(values) if values.iter().all(|value| *value == values[0]) => Seen::Value(values[0]),
        Some(values) => Seen::Torn(values),
    }
}

fn sector_value(sector: &[u8], namespace: usize, number: u64) -> Option<u64> {
    let value = u64::from_le_bytes(sector[..8].try_into().expect("eight bytes"));
    let unit = match value {
        0 => [0; UNIT],
        _ => unit(value, namespace, number),
    };
    let whole = sector.chunks_exact(UNIT).all(|part| part == unit);
    whole.then_some(value)
}

/// The value that a write's data begins with, unchecked.
pub(crate) fn peek(bytes: &[u8]) -> Option<u64> {
    let word = bytes.get(..8)?;
    Some(u64::from_le_bytes(word.try_into().expect("eight bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_tell_their_write_and_their_place() {
        let mut bytes = vec![0; 8192];
        fill(&mut bytes, 77, 1, 5, 4096);
        assert_eq!(read(&bytes[..4096], 1, 5), Seen::Value(77));
        assert_eq!(read(&bytes[4096..], 1, 6), Seen::Value(77));
        assert_eq!(read(&bytes[4096..], 1, 5), Seen::Foreign);
        assert_eq!(read(&bytes[..4096], 0, 5), Seen::Foreign);
        assert_eq!(peek(&bytes), Some(77));
        fill(&mut bytes[..512], 78, 1, 5 * 8, 512);
        let torn = read(&bytes[..4096], 1, 5);
        assert_eq!(torn, Seen::Torn(vec![78, 77, 77, 77, 77, 77, 77, 77]));
        bytes[700] ^= 1;
        assert_eq!(read(&bytes[..4096], 1, 5), Seen::Foreign);
        assert_eq!(read(&[0; 512], 3, 9), Seen::Value(0));
    }
}
