//! Rings on memory, and what is read back from them.

use std::sync::Arc;

use weir_block::Volume;
use weir_load::Stop;
use weir_pcap::{Found, Packet, Reader};
use weir_reactor::Reactor;
use weir_record::{
    Content, Extract, Extracted, Generator, Pace, RecordConfig, Recorded, Ring, RingConfig, Source,
    WhenFull, extract, record,
};
use weir_volume::{Access, Guard, GuardConfig, MemVolume};

pub(crate) const SEGMENT: u32 = 4 << 20;

pub(crate) fn memory(size: &str) -> Arc<Guard> {
    let url = format!("mem:?size={size}&block_size=512");
    let volume = MemVolume::open(&url.parse().unwrap(), Access { read_only: false }).unwrap();
    Guard::new(volume, GuardConfig::default()).unwrap()
}

pub(crate) fn volumes(count: usize, size: &str) -> Vec<Arc<dyn Volume>> {
    (0..count)
        .map(|_| memory(size) as Arc<dyn Volume>)
        .collect()
}

pub(crate) async fn made(reactor: &Reactor, volumes: &[Arc<dyn Volume>], content: Content) -> Ring {
    let config = RingConfig {
        content,
        segment_bytes: SEGMENT,
    };
    Ring::make(reactor, volumes, &config).await.expect("a ring")
}

pub(crate) async fn opened(reactor: &Reactor, volumes: &[Arc<dyn Volume>]) -> Ring {
    Ring::open(reactor, volumes, false).await.expect("a ring")
}

/// Packets that are made up, as fast as they are taken.
pub(crate) fn packets(count: u64, sizes: &[usize]) -> Source {
    let generator = Generator::new(Content::Packets, sizes, Pace::Full, Some(count));
    Source::Generator(generator)
}

pub(crate) fn config(when_full: WhenFull) -> RecordConfig {
    RecordConfig {
        when_full,
        ..RecordConfig::default()
    }
}

pub(crate) async fn recorded(ring: Ring, mut source: Source, when_full: WhenFull) -> Recorded {
    let config = config(when_full);
    let recorded = record(ring, &mut source, &config, &Stop::new(), |_| ()).await;
    recorded.expect("it is recorded")
}

pub(crate) fn all() -> Extract {
    Extract::all()
}

pub(crate) async fn extracted(ring: &Ring, what: &Extract) -> (Vec<u8>, Extracted) {
    let mut file = Vec::new();
    let done = extract(ring, what, &Stop::new(), &mut file).await;
    (file, done.expect("it is extracted"))
}

/// Calls `each` with every packet of a file.
pub(crate) fn each(file: &[u8], mut each: impl FnMut(Packet<'_>)) {
    let (mut reader, mut left) = (Reader::new(), file);
    while let Some(found) = reader.next(&mut left).expect("a file") {
        if let Found::Packet(packet) = found {
            each(packet);
        }
    }
    reader.end(left).expect("it is whole");
}

/// The numbers of packets that were made up.
pub(crate) fn numbers(file: &[u8]) -> Vec<u64> {
    let mut numbers = Vec::new();
    each(file, |packet| {
        numbers.push(Generator::number_of(packet.data).expect("it has one"));
    });
    numbers
}
