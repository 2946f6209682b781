//! What a volume should hold: an array of bytes.

use weir_block::{DeallocatedRead, Geometry};

use crate::harness::Client;

pub(super) struct Oracle {
    bytes: Vec<u8>,
    geometry: Geometry,
    retains: bool,
}

/// Bytes of one read when everything is checked.
const CHECK_BYTES: u64 = 256 << 10;

impl Oracle {
    /// An oracle of what the volume holds now.
    pub(super) async fn read(client: &Client, geometry: Geometry, retains: bool) -> Self {
        let mut oracle = Oracle {
            bytes: Vec::new(),
            geometry,
            retains,
        };
        oracle.bytes = oracle.read_range(client, 0, geometry.blocks).await;
        oracle
    }

    fn range(&self, lba: u64, blocks: u64) -> std::ops::Range<usize> {
        let shift = self.geometry.block_size.shift();
        (lba << shift) as usize..((lba + blocks) << shift) as usize
    }

    pub(super) fn data(&self, lba: u64, blocks: u64) -> &[u8] {
        &self.bytes[self.range(lba, blocks)]
    }

    pub(super) fn write(&mut self, lba: u64, data: &[u8]) {
        if self.retains {
            let start = self.range(lba, 0).start;
            self.bytes[start..start + data.len()].copy_from_slice(data);
        }
    }

    async fn read_range(&self, client: &Client, lba: u64, blocks: u64) -> Vec<u8> {
        let step = CHECK_BYTES >> self.geometry.block_size.shift();
        let mut bytes = Vec::new();
        let mut next = lba;
        while next < lba + blocks {
            let length = step.min(lba + blocks - next);
            bytes.extend_from_slice(&client.read(next, length as u32).await.unwrap());
            next += length;
        }
        bytes
    }

    /// Every block of the volume is as it should be.
    pub(super) async fn check_all(&self, client: &Client) {
        let read = self.read_range(client, 0, self.geometry.blocks).await;
        if read != self.bytes {
            let at = read
                .iter()
                .zip(&self.bytes)
                .position(|(read, should)| read != should);
            let block = at.unwrap() as u64 >> self.geometry.block_size.shift();
            panic!("block {block} is not what was written");
        }
    }

    /// Deallocated blocks are what they were, or what the geometry says that they become; and stay that.
    pub(super) async fn resolve(&mut self, client: &Client, lba: u64, blocks: u64) {
        let read = self.read_range(client, lba, blocks).await;
        let block_bytes = self.geometry.block_size.bytes() as usize;
        let range = self.range(lba, blocks);
        let old = self.bytes[range.clone()].chunks(block_bytes);
        for (index, (read, old)) in read.chunks(block_bytes).zip(old).enumerate() {
            let zeroes = read.iter().all(|&byte| byte == 0);
            let promised =
                self.geometry.deallocated_read == DeallocatedRead::Unknown || read == old || zeroes;
            assert!(
                promised,
                "deallocated block {} is neither",
                lba + index as u64
            );
        }
        self.bytes[range].copy_from_slice(&read);
    }
}
