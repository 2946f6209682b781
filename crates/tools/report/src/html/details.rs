//! How it was measured: the command, the machine, the volumes, what was asked for, and what the run says of itself.

use std::fmt::Write as _;

use maud::{Markup, html};
use weir_lab::document::{Arrivals, Document, Load, Run, Stream, Volume};

use crate::measured::Measured;
use crate::words;
use crate::{ReportError, Source};

/// Runs of which each has its own paragraph.
const RUNS_MAX: usize = 12;

pub(super) fn section(
    source: &Source,
    runs: &[&Measured<'_>],
    several: bool,
) -> Result<Markup, ReportError> {
    let document = &source.document;
    let machine = &document.machine;
    let unknown = |text: &str| match text {
        "" => "unknown".to_owned(),
        text => text.to_owned(),
    };
    let mut paragraphs = Vec::new();
    for of in runs.iter().take(RUNS_MAX) {
        paragraphs.push(run(of, runs.len() > 1)?);
    }
    Ok(html! {
        section.details {
            h2 { @if several { (source.name) ": how it was measured" } @else { "How it was measured" } }
            pre.command { code { (shell(&document.command)) } }
            dl {
                dt { "Weir" } dd { (document.version) }
                dt { "Began" } dd { (document.started) }
                dt { "Machine" }
                dd {
                    (unknown(&machine.processor)) ", " (machine.processors) " processors, "
                    (size(machine.memory_bytes)) " of memory"
                }
                dt { "System" } dd { (unknown(&machine.operating_system)) ", Linux " (unknown(&machine.kernel)) }
                dt { "Clock" } dd { (unknown(&machine.clock_source)) }
                @for volume in volumes(document) {
                    dt { "Volume" }
                    dd {
                        code { (volume.url) } ": " (size(volume.length_bytes)) ", " (volume.block_size_bytes) "-byte blocks"
                        @if volume.volatile_cache { ", volatile write cache" }
                    }
                }
            }
            @for paragraph in paragraphs { (paragraph) }
            @if runs.len() > RUNS_MAX {
                p.quiet { "And " (runs.len() - RUNS_MAX) " more runs, which the result holds in full." }
            }
        }
    })
}

fn run(of: &Measured<'_>, several: bool) -> Result<Markup, ReportError> {
    let run = of.run;
    let lag = match &run.lag {
        Some(lag) => Some((lag.percentile_ns(99.0).map_err(of.failed())?, lag.max_ns)),
        None => None,
    };
    let busy =
        |seconds: f64| words::trimmed(seconds / run.elapsed_seconds.max(f64::MIN_POSITIVE), 2);
    let agents = super::agents::section(run.agents.as_ref()).map_err(of.failed())?;
    let list = html! {
        (agents)
        dl {
            dt { "Workload" }
            dd { @if let Some(name) = &run.workload.name { (name) ": " } (run.workload.text) }
            @if let Some(source) = &run.workload.source { dt { "From" } dd { (source) } }
            @if run.workload.streams.len() > 1 {
                @for stream in &run.workload.streams { dt {} dd { (stream_text(stream)) } }
            }
            dt { "Load" } dd { (load(&run.load)) }
            dt { "Time" }
            dd { (words::seconds(run.elapsed_seconds)) " after " (words::seconds(run.ramp_seconds)) " of ramp, seed " (run.seed) }
            @if let Some((p99, longest)) = lag {
                dt { "Lag of the schedule" }
                dd { "p99 " (words::latency(p99 as f64)) ", longest " (words::latency(longest as f64)) "; " (words::grouped(run.unsent)) " requests were never sent" }
            }
            @if let Some(law) = &run.littles_law {
                dt { "Little's law" }
                dd {
                    (words::trimmed(law.in_flight, 2)) " in flight, " (words::trimmed(law.from_latency, 2))
                    " from throughput and latency: " (format!("{:+.2}%", law.error_percent))
                }
            }
            @if let Some(steady) = &run.steady_state {
                dt { "Steady state" }
                dd {
                    @match (steady.reached, steady.held) {
                        (false, _) => "not reached",
                        (true, Some(false)) => "reached, and left again",
                        (true, _) => "reached",
                    }
                    ": " (steady.metric) " in rounds of " (words::seconds(steady.round_seconds)) " "
                    (words::trimmed(steady.range_percent, 1)) "% apart (20% may be), slope "
                    (words::trimmed(steady.slope_percent, 1)) "% (10% may be)"
                }
            }
            dt { "Processors" }
            dd {
                "generator " (run.processor.generator_seconds.map_or_else(|| "unknown".to_owned(), busy))
                @if let Some(seconds) = run.processor.gateway_seconds { ", gateway " (busy(seconds)) }
                @if run.processor.generator_saturated { "; the generator was the limit" }
            }
            @if let Some(error) = &run.first_error {
                dt { "Failed" } dd { (words::grouped(run.errors())) " requests; the first: " (error) }
            }
        }
    };
    Ok(match several {
        true => html! { details { summary { (of.name) } (list) } },
        false => list,
    })
}

pub(super) fn load(load: &Load) -> String {
    let mut text = match *load {
        Load::Closed { depth, .. } => format!("closed loop, {depth} in flight for each queue"),
        Load::Open {
            rate,
            arrivals,
            depth_max,
            ..
        } => {
            let arrivals = match arrivals {
                Arrivals::Uniform => "evenly spaced",
                Arrivals::Exponential => "with exponential gaps",
            };
            let rate = words::per_second(rate);
            format!(
                "open loop, {rate} per second {arrivals}, at most {depth_max} in flight for each queue"
            )
        }
    };
    let count = |number: u32, name: &str| match number {
        1 => format!(", 1 {name}"),
        number => format!(", {number} {name}s"),
    };
    text.push_str(&count(load.queues(), "queue"));
    text.push_str(&count(load.hosts(), "host"));
    text
}

pub(super) fn stream_text(stream: &Stream) -> String {
    let mut text = format!("{}% of requests: ", words::trimmed(stream.share_percent, 2));
    for (percent, name) in [
        (stream.read_percent, "read"),
        (stream.write_percent, "write"),
        (stream.deallocate_percent, "deallocate"),
        (stream.flush_percent, "flush"),
    ] {
        if percent > 0.0 {
            write!(text, "{}% {name}, ", words::trimmed(percent, 2)).expect("writing to a string");
        }
    }
    let sizes: Vec<_> = stream
        .sizes
        .iter()
        .map(|share| {
            format!(
                "{} {}%",
                size(share.bytes),
                words::trimmed(share.percent, 2)
            )
        })
        .collect();
    write!(text, "{}, {}", sizes.join(" + "), stream.pattern).expect("writing to a string");
    text
}

/// All volumes of a document, each once.
pub(super) fn volumes(document: &Document) -> Vec<&Volume> {
    let mut volumes: Vec<&Volume> = Vec::new();
    for volume in document
        .runs()
        .into_iter()
        .flat_map(|run: &Run| &run.volumes)
    {
        if volumes.iter().all(|other| other.url != volume.url) {
            volumes.push(volume);
        }
    }
    volumes
}

/// Bytes in the unit that suits them.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", words::trimmed(value, 1), UNITS[unit])
}

/// Words as a shell takes them.
pub(super) fn shell(words: &[String]) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=,+@%".contains(letter);
    let quoted: Vec<_> = words
        .iter()
        .map(|word| match !word.is_empty() && word.chars().all(plain) {
            true => word.clone(),
            false => format!("'{}'", word.replace('\'', r"'\''")),
        })
        .collect();
    quoted.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_pasted_into_a_shell() {
        let words = ["weir", "bench", "a b", "it's", "", "null:?rate=1&delay=2us"];
        assert_eq!(
            shell(&words.map(str::to_owned)),
            r"weir bench 'a b' 'it'\''s' '' 'null:?rate=1&delay=2us'"
        );
    }

    #[test]
    fn sizes_have_the_unit_that_suits_them() {
        assert_eq!(size(512), "512 bytes");
        assert_eq!(size(4096), "4 KiB");
        assert_eq!(size(3 << 29), "1.5 GiB");
    }
}
