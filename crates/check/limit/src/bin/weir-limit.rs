//! The bare server, the bare client and the canned responder, at the command line.

#![forbid(unsafe_code)]

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Parser, Subcommand};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use weir_limit::canned;
use weir_limit::client::{self, ClientConfig, DEPTH_MAX, Until};
use weir_limit::datagrams::SendConfig;
use weir_limit::processor;
use weir_limit::server::{self, ServerConfig};
use weir_limit::work::{Direction, Work};

/// What TCP allows on this machine: servers and clients that do nothing else.
#[derive(Debug, Parser)]
#[command(name = "weir-limit", version, max_term_width = 100)]
struct Cli {
    /// Bind the process to this processor
    #[arg(long, global = true, value_name = "N")]
    processor: Option<usize>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer requests; prints the address as JSON, and when all connections have gone what was served
    Serve(Serve),
    /// Make requests; prints what was answered as JSON
    Drive(Drive),
    /// Answer any NVMe/TCP initiator's reads and writes from nothing; prints the volume's URL as JSON, and when it is
    /// interrupted what was answered
    Canned(Canned),
    /// Copy blocks from one buffer to others, with a checksum (CRC32C) of each full one; prints how fast as JSON
    Copy(Copy),
    /// Send UDP datagrams to a peer that need not listen; prints their number and rate as JSON
    Send(Send),
}

#[derive(Debug, Args)]
struct Send {
    /// Address to send to
    #[arg(value_name = "ADDRESS:PORT")]
    to: SocketAddr,
    /// Bytes of payload in each datagram
    #[arg(long, value_name = "BYTES", default_value_t = 1000, value_parser = clap::value_parser!(u16).range(0..=9000))]
    size: u16,
    /// For how long
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, value_parser = seconds)]
    seconds: f64,
    /// Datagrams a second [default: as many as possible]
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
}

#[derive(Debug, Args)]
struct Copy {
    /// For how long
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, value_parser = seconds)]
    seconds: f64,
}

#[derive(Debug, Args)]
struct Exchange {
    /// What goes to and fro: read:SIZE or write:SIZE; the same at both ends
    #[arg(long, value_name = "WORK", default_value = "read:4k")]
    work: Work,
    /// Connections; the same at both ends
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
    /// Ask for bytes all the time instead of sleeping
    #[arg(long)]
    spin: bool,
}

#[derive(Debug, Args)]
struct Serve {
    #[command(flatten)]
    exchange: Exchange,
    /// Where to listen; port 0 is any that is free
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Read what is sent from this file, all over it, before it is sent; for reads
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Canned {
    /// Where to listen; port 0 is any that is free
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
}

#[derive(Debug, Args)]
struct Drive {
    #[command(flatten)]
    exchange: Exchange,
    /// The server
    #[arg(value_name = "ADDRESS:PORT")]
    address: SocketAddr,
    /// Requests outstanding on each connection
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u64).range(1..=DEPTH_MAX))]
    depth: u64,
    /// For how long
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, value_parser = seconds)]
    seconds: f64,
    /// Until so many operations are done, however long it takes
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    operations: Option<u64>,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir-limit: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let cli = Cli::parse();
    if let Some(number) = cli.processor {
        processor::bind(number)
            .with_context(|| format!("cannot be bound to processor {number}"))?;
    }
    match cli.command {
        Command::Serve(serve) => run_server(&serve),
        Command::Drive(drive) => run_client(&drive),
        Command::Canned(canned) => run_canned(&canned),
        Command::Copy(copy) => print(&weir_limit::copy::run(Duration::from_secs_f64(
            copy.seconds,
        ))),
        Command::Send(send) => print(&weir_limit::datagrams::send(&SendConfig {
            to: send.to,
            bytes: send.size.into(),
            time: Duration::from_secs_f64(send.seconds),
            rate: send.rate,
        })?),
    }
}

fn run_server(arguments: &Serve) -> anyhow::Result<()> {
    let file = match &arguments.file {
        Some(_) if arguments.exchange.work.direction == Direction::Write => {
            bail!(
                "--file is what reads send, and the work is {}",
                arguments.exchange.work
            )
        }
        Some(path) => {
            let file = File::open(path).with_context(|| path.display().to_string())?;
            Some(Arc::new(file))
        }
        None => None,
    };
    let listener = listen(arguments.listen)?;
    let config = ServerConfig {
        work: arguments.exchange.work,
        connections: usize::from(arguments.exchange.connections),
        spin: arguments.exchange.spin,
        file,
    };
    print(&server::serve(&listener, &config).context("the server failed")?)
}

fn run_client(arguments: &Drive) -> anyhow::Result<()> {
    let config = ClientConfig {
        address: arguments.address,
        work: arguments.exchange.work,
        connections: usize::from(arguments.exchange.connections),
        depth: arguments.depth,
        until: match arguments.operations {
            Some(operations) => Until::Operations(operations),
            None => Until::Elapsed(Duration::from_secs_f64(arguments.seconds)),
        },
        spin: arguments.exchange.spin,
    };
    let report = client::drive(&config)
        .with_context(|| format!("the exchange with {} failed", arguments.address))?;
    print(&report)
}

fn run_canned(arguments: &Canned) -> anyhow::Result<()> {
    let (stop, signalled) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM] {
        signal_hook::low_level::pipe::register(signal, signalled.try_clone()?)?;
    }
    let listener = TcpListener::bind(arguments.listen)
        .with_context(|| format!("cannot listen on {}", arguments.listen))?;
    let url = canned::url(listener.local_addr()?);
    print(&Answering { url })?;
    print(&canned::respond(&listener, &stop)?)
}

/// What answers.
#[derive(Serialize)]
struct Answering {
    url: String,
}

/// Where something listens.
#[derive(Serialize)]
struct Listening {
    listening: SocketAddr,
}

/// Listens, and says where on the first line.
fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener =
        TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
    let listening = listener.local_addr()?;
    print(&Listening { listening })?;
    Ok(listener)
}

fn print(report: &impl Serialize) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string(report)?);
    Ok(())
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 86_400.0 => Ok(seconds),
        _ => Err("a number of seconds up to 86400".to_owned()),
    }
}
