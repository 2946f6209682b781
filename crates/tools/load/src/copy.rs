//! Copies one volume onto another.

use std::sync::Arc;
use std::time::Duration;

use weir_block::{Geometry, Operation, ReadBuffers, Volume};
use weir_memory::{View, Views};
use weir_reactor::{Instant, Reactor};

use crate::lane::{Lane, LaneError};
use crate::{PROGRESS_INTERVAL, Stop};

/// How a copy is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyConfig {
    /// Bytes per request, at most. It is lowered to what both volumes transfer at once.
    pub request_bytes: u64,
    /// Requests in flight on each side.
    pub depth: u32,
}

impl Default for CopyConfig {
    fn default() -> Self {
        CopyConfig {
            request_bytes: 1 << 20,
            depth: 16,
        }
    }
}

/// Why a volume was not copied, or not to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    /// The target is too small.
    #[error(
        "{target} holds {target_bytes} bytes, which is less than the {source_bytes} bytes of {source_name}; nothing was copied"
    )]
    TooSmall {
        /// Name of the source.
        source_name: String,
        /// Its length.
        source_bytes: u64,
        /// Name of the target.
        target: String,
        /// Its length.
        target_bytes: u64,
    },
    /// The source's length is no multiple of the target's block.
    #[error(
        "the {source_bytes} bytes of {source_name} are not a multiple of the {block_bytes}-byte blocks of {target}; nothing was copied"
    )]
    Unaligned {
        /// Name of the source.
        source_name: String,
        /// Its length.
        source_bytes: u64,
        /// Name of the target.
        target: String,
        /// Its block size.
        block_bytes: u64,
    },
    /// The target is read-only.
    #[error("{target} is read-only; nothing was copied")]
    ReadOnly {
        /// Name of the target.
        target: String,
    },
    /// It was asked to end early.
    #[error(
        "stopped after {copied_bytes} of {total_bytes} bytes; {target} holds a part of the copy"
    )]
    Stopped {
        /// Bytes that the target holds.
        copied_bytes: u64,
        /// Bytes in all.
        total_bytes: u64,
        /// Name of the target.
        target: String,
    },
    /// A request failed; the target holds a part of the copy.
    #[error(transparent)]
    Lane(#[from] LaneError),
}

/// How far a copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyProgress {
    /// Bytes that the target holds.
    pub copied_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
    /// Since the start.
    pub elapsed: Duration,
}

/// What was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyReport {
    /// Bytes copied, zeroes included.
    pub copied_bytes: u64,
    /// Of these, bytes that were zero and were not sent but zeroed in place.
    pub zero_bytes: u64,
    /// How long it took, the final flush included.
    pub elapsed: Duration,
}

/// Copies `source` onto the start of `target`, and flushes. Runs of zeroes are zeroed in place, deallocated where that reads
/// as zeroes.
///
/// # Errors
/// [`CopyError`].
pub async fn run(
    reactor: &Reactor,
    source: &Arc<dyn Volume>,
    target: &Arc<dyn Volume>,
    config: &CopyConfig,
    stop: &Stop,
    mut progress: impl FnMut(CopyProgress),
) -> Result<CopyReport, CopyError> {
    let (from, to) = (source.geometry(), target.geometry());
    check(source, &from, target, &to)?;
    let depth = config.depth.max(1);
    let mut copy = Copy {
        reads: Lane::open(reactor, source, depth)?,
        writes: Lane::open(reactor, target, depth)?,
        from,
        to,
        request_bytes: request_bytes(config, &from, &to),
        next_byte: 0,
        report: CopyReport {
            copied_bytes: 0,
            zero_bytes: 0,
            elapsed: Duration::ZERO,
        },
        waiting: Vec::new(),
    };
    let began = reactor.now();
    let mut reported = began;
    while copy.report.copied_bytes < from.length_bytes() {
        if stop.is_asked() {
            let copied_bytes = copy.report.copied_bytes;
            let total_bytes = from.length_bytes();
            return Err(CopyError::Stopped {
                copied_bytes,
                total_bytes,
                target: target.name(),
            });
        }
        copy.start_reads();
        copy.advance().await?;
        report_progress(reactor, began, &mut reported, &copy, &mut progress);
    }
    copy.writes.alone(0, Operation::Flush).await?;
    copy.report.elapsed = reactor.now() - began;
    Ok(copy.report)
}

fn report_progress(
    reactor: &Reactor,
    began: Instant,
    reported: &mut Instant,
    copy: &Copy,
    progress: &mut impl FnMut(CopyProgress),
) {
    let now = reactor.now();
    if now - *reported >= PROGRESS_INTERVAL {
        *reported = now;
        progress(CopyProgress {
            copied_bytes: copy.report.copied_bytes,
            total_bytes: copy.from.length_bytes(),
            elapsed: now - began,
        });
    }
}

fn check(
    source: &Arc<dyn Volume>,
    from: &Geometry,
    target: &Arc<dyn Volume>,
    to: &Geometry,
) -> Result<(), CopyError> {
    let (source_bytes, target_bytes) = (from.length_bytes(), to.length_bytes());
    let block_bytes = u64::from(to.block_size.bytes());
    let (source_name, target) = (source.name(), target.name());
    if to.read_only {
        Err(CopyError::ReadOnly { target })
    } else if target_bytes < source_bytes {
        Err(CopyError::TooSmall {
            source_name,
            source_bytes,
            target,
            target_bytes,
        })
    } else if !source_bytes.is_multiple_of(block_bytes) {
        Err(CopyError::Unaligned {
            source_name,
            source_bytes,
            target,
            block_bytes,
        })
    } else {
        Ok(())
    }
}

/// The longest request that both volumes take, a multiple of both block sizes.
fn request_bytes(config: &CopyConfig, from: &Geometry, to: &Geometry) -> u64 {
    let block = u64::from(from.block_size.bytes().max(to.block_size.bytes()));
    let longest = |of: &Geometry| u64::from(of.transfer_blocks_max) << of.block_size.shift();
    let bytes = config.request_bytes.min(longest(from)).min(longest(to));
    (bytes / block * block).max(block)
}

struct Copy {
    /// Tagged with the first byte of the range.
    reads: Lane<u64>,
    /// Tagged with the number of bytes.
    writes: Lane<u64>,
    from: Geometry,
    to: Geometry,
    request_bytes: u64,
    next_byte: u64,
    report: CopyReport,
    /// Data read that waits for room on the writing side: first byte, and data.
    waiting: Vec<(u64, Views)>,
}

impl Copy {
    fn start_reads(&mut self) {
        let length = self.from.length_bytes();
        while self.reads.has_room() && self.waiting.is_empty() && self.next_byte < length {
            let bytes = self.request_bytes.min(length - self.next_byte);
            let shift = self.from.block_size.shift();
            let operation = Operation::Read {
                lba: self.next_byte >> shift,
                blocks: (bytes >> shift) as u32,
                buffers: ReadBuffers::Lend,
            };
            self.reads.push(self.next_byte, operation);
            self.next_byte += bytes;
        }
        self.reads.submit();
    }

    /// Waits for one read or write, and takes what follows from it.
    async fn advance(&mut self) -> Result<(), CopyError> {
        let (reads, writes) = (&mut self.reads, &mut self.writes);
        let (read, written) = std::future::poll_fn(|context| {
            use std::task::Poll;
            if let Poll::Ready(ended) = writes.poll_next(context) {
                return Poll::Ready((None, Some(ended)));
            }
            reads.poll_next(context).map(|ended| (Some(ended), None))
        })
        .await;
        if let Some(ended) = written {
            ended
                .result
                .map_err(|error| self.writes.error(&ended.operation, error))?;
            self.report.copied_bytes += ended.tag;
        }
        if let Some(ended) = read {
            ended
                .result
                .map_err(|error| self.reads.error(&ended.operation, error))?;
            let Operation::Read {
                buffers: ReadBuffers::Filled(data),
                ..
            } = ended.operation
            else {
                unreachable!("a read that succeeded is filled")
            };
            self.waiting.push((ended.tag, data));
        }
        while self.writes.has_room() {
            let Some((first_byte, data)) = self.waiting.pop() else {
                break;
            };
            self.write(first_byte, data);
        }
        self.writes.submit();
        Ok(())
    }

    fn write(&mut self, first_byte: u64, data: Views) {
        let bytes = weir_memory::views_len(&data) as u64;
        let shift = self.to.block_size.shift();
        let (lba, blocks) = (first_byte >> shift, bytes >> shift);
        let operation = if data.iter().all(is_zero) {
            self.report.zero_bytes += bytes;
            Operation::WriteZeroes {
                lba,
                blocks,
                deallocate: true,
                fua: false,
            }
        } else {
            Operation::Write {
                lba,
                blocks: blocks as u32,
                data,
                fua: false,
            }
        };
        self.writes.push(bytes, operation);
    }
}

fn is_zero(view: &View) -> bool {
    view.iter().all(|&byte| byte == 0)
}
