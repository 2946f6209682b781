//! The bare server: answers as many requests as arrived in one receive with one send.
//!
//! It uses one thread and is asleep when nothing comes, unless it is to spin. It does not look at what it receives.

use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::engine::{self, Side, Waiting};
use crate::flow::Flow;
use crate::processor;
use crate::work::{ANSWER_BYTES, Work};

/// What to serve.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Which requests, and which answers.
    pub work: Work,
    /// How many connections come, at least 1. Serving begins when all are there and ends when all have gone.
    pub connections: usize,
    /// Ask for bytes all the time instead of sleeping.
    pub spin: bool,
    /// Read the data of each answer from this file.
    pub file: Option<Arc<File>>,
}

/// What was served, between the last connection's coming and the last one's going.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ServerReport {
    /// Requests that were answered.
    pub operations: u64,
    /// Seconds that it took.
    pub elapsed_seconds: f64,
    /// Processor seconds, user and system, all threads.
    pub processor_seconds: f64,
}

impl ServerReport {
    pub(crate) fn new(operations: u64, elapsed: Duration, processor: Duration) -> Self {
        ServerReport {
            operations,
            elapsed_seconds: elapsed.as_secs_f64(),
            processor_seconds: processor.as_secs_f64(),
        }
    }
}

struct Answering {
    open: usize,
    operations: u64,
}

impl Side for Answering {
    fn answer(&mut self, units: u64) -> u64 {
        self.operations += units;
        units
    }

    fn is_done(&self) -> bool {
        self.open == 0
    }

    fn closed(&mut self) -> io::Result<()> {
        self.open -= 1;
        Ok(())
    }
}

/// Serves the connections that come to `listener`.
///
/// # Errors
/// A connection failed, or was closed inside a request, or the file cannot be read.
pub fn serve(listener: &TcpListener, config: &ServerConfig) -> io::Result<ServerReport> {
    assert!(config.connections > 0, "somebody is to be served");
    let mut flows = Vec::with_capacity(config.connections);
    for _ in 0..config.connections {
        let (stream, _) = listener.accept()?;
        let (incoming, outgoing) = (config.work.request_bytes(), config.work.answer_bytes());
        let mut flow = Flow::new(stream, incoming, outgoing)?;
        if let Some(file) = &config.file {
            flow.read_from(file, ANSWER_BYTES)?;
        }
        flows.push(flow);
    }
    let mut side = Answering {
        open: flows.len(),
        operations: 0,
    };
    let (began, processor_began) = (Instant::now(), processor::own_time());
    let waiting = Waiting::of(flows.len(), config.spin);
    engine::run(&mut flows, waiting, &mut side)?;
    let processor = processor::own_time() - processor_began;
    Ok(ServerReport::new(
        side.operations,
        began.elapsed(),
        processor,
    ))
}
