//! Figures of a recording under way as Prometheus text.

use weir_gateway::metrics::{self, Family, Kind};
use weir_record::Progress;

use super::status::About;

/// The whole page. Before the first figures, only the ring and its size.
pub(super) fn page(about: &About, progress: Option<&Progress>) -> String {
    let ring = about.ring.to_string();
    let mut info = Family::new(
        "weir_record_info",
        Kind::Gauge,
        "The ring that is recorded to.",
    );
    info.add([("ring", ring.as_str())], 1_u64);
    let mut families = vec![
        info,
        Family::single(
            "weir_record_ring_bytes",
            Kind::Gauge,
            "Bytes that the ring has room for.",
            about.capacity_bytes,
        ),
    ];
    if let Some(progress) = progress {
        families.extend(of_recorder(progress));
        families.extend(of_volumes(about, progress));
    }
    metrics::page(&families)
}

fn of_recorder(progress: &Progress) -> Vec<Family> {
    let counts = &progress.counts;
    let counter = |name, help, value: u64| Family::single(name, Kind::Counter, help, value);
    let mut lost = Family::new(
        "weir_record_lost_total",
        Kind::Counter,
        "Packets or reads that were lost, by cause (docs/record.md).",
    );
    for (cause, count) in [
        ("before", counts.source_lost),
        ("slow", counts.slow_lost),
        ("socket", counts.socket_lost),
        ("interface", counts.interface_lost),
        ("failed", counts.failed_lost),
    ] {
        lost.add([("cause", cause)], count);
    }
    let (used, all) = progress.buffers;
    let mut buffers = Family::new(
        "weir_record_buffers",
        Kind::Gauge,
        "Number of 1 MiB buffers, by state.",
    );
    buffers.add([("state", "used")], used as u64);
    buffers.add([("state", "free")], (all - used) as u64);
    let mut families = vec![
        Family::single(
            "weir_record_elapsed_seconds",
            Kind::Gauge,
            "Time since the recording began.",
            progress.elapsed.as_secs_f64(),
        ),
        counter(
            "weir_record_received_total",
            "Packets or reads that came, lost ones included.",
            counts.received,
        ),
        counter(
            "weir_record_received_bytes_total",
            "Bytes that came to the recorder.",
            counts.received_bytes,
        ),
        counter(
            "weir_record_kept_total",
            "Packets or reads that were recorded.",
            counts.kept,
        ),
        counter(
            "weir_record_filtered_total",
            "Packets that --filter rejected in the recorder.",
            counts.filtered,
        ),
        lost,
        counter(
            "weir_record_written_bytes_total",
            "Bytes that were written to the volumes.",
            progress.written_bytes,
        ),
        buffers,
        Family::single(
            "weir_record_no_segment_seconds_total",
            Kind::Counter,
            "Time without a segment to write to, because the oldest ones were not given up yet.",
            progress.no_segment.as_secs_f64(),
        ),
        counter(
            "weir_record_clock_steps_total",
            "Steps of the wall clock of 1 ms and more since the recording began.",
            progress.clock_steps.count.into(),
        ),
        Family::single(
            "weir_record_clock_steps_seconds",
            Kind::Gauge,
            "Sum of the steps of the wall clock; negative if it was set back.",
            progress.clock_steps.seconds(),
        ),
        Family::single(
            "weir_record_ring_room_bytes",
            Kind::Gauge,
            "Bytes that can be written until the ring is full, or its oldest segments must be given up.",
            progress.room_bytes,
        ),
    ];
    if let Some(fill) = progress.source_fill {
        families.push(Family::single(
            "weir_record_kernel_buffer_ratio",
            Kind::Gauge,
            "Share of the kernel's buffer of the source that waits for the recorder.",
            fill,
        ));
    }
    families
}

fn of_volumes(about: &About, progress: &Progress) -> Vec<Family> {
    let counter = |name, help| Family::new(name, Kind::Counter, help);
    let gauge = |name, help| Family::new(name, Kind::Gauge, help);
    let mut written = counter(
        "weir_record_volume_written_bytes_total",
        "Bytes that were written to a volume.",
    );
    let mut waited = counter(
        "weir_record_volume_waited_seconds_total",
        "Total time of all requests to a volume. It grows fastest for the slowest volume.",
    );
    let mut held_up = counter(
        "weir_record_volume_held_up_seconds_total",
        "A volume's part of the time without a free buffer, by the buffers that waited for it.",
    );
    let mut buffers = gauge(
        "weir_record_volume_buffers",
        "Buffers that wait for a volume.",
    );
    let mut failed = gauge(
        "weir_record_volume_failed",
        "1: a write failed, and nothing more is recorded on the volume.",
    );
    for (number, (name, figures)) in about.volumes.iter().zip(&progress.volumes).enumerate() {
        // Without their secrets, two names may be equal, hence the number.
        let number = number.to_string();
        let labels = [("number", number.as_str()), ("volume", name)];
        written.add(labels, figures.written_bytes);
        waited.add(labels, figures.waited.as_secs_f64());
        held_up.add(labels, figures.held_up.as_secs_f64());
        buffers.add(labels, figures.buffers as u64);
        failed.add(labels, u64::from(figures.has_failed));
    }
    vec![written, waited, held_up, buffers, failed]
}
