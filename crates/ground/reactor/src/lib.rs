//! The event loop: one thread, one driver, one executor.
//!
//! A [`Reactor`] runs local tasks, timers and I/O operations. What it runs on is a parameter, the [`Driver`]: io_uring on
//! a real machine ([`linux`]), or a deterministic simulation of several machines in one thread ([`sim`]). What does not
//! belong to one reactor (opening files, listening, the wall clock, starting reactors) is the [`System`]'s.
//!
//! Everything on a reactor is `!Send`. Other threads reach it through its [`Remote`].
//!
//! This crate is the only one that touches the kernel's I/O interfaces, a clock, randomness or a thread-local. It knows no
//! protocol and no volume.

mod channel;
mod core;
mod driver;
mod executor;
mod file;
mod foreign;
#[cfg(feature = "counting-heap")]
pub mod heap;
mod in_flight;
pub mod linux;
mod mailbox;
mod net;
pub mod random;
mod remote;
pub mod sim;
mod slots;
mod system;
mod task_waker;
mod time;
mod waiting;

pub use channel::{Receiver, Sender, oneshot};
pub use core::{
    LocalFuture, OpFuture, PanicPolicy, Panicked, Reactor, ReactorConfig, ReactorId, ReactorMain,
    ReactorStats, ReactorThread, Runner, SharedSection, Source, Step, panic_is_contained,
};
pub use driver::{
    AllocateMode, Amount, Driver, Handle, Notifier, Op, OpToken, Outcome, Output, ProcessorTimes,
    ReceiveInto, Wait,
};
pub use executor::Task;
pub use file::{AdminQuery, File, FileInfo, FileKind, LocalFile, OpenOptions, Sought, UseDirect};
pub use foreign::{DELIVERIES_MAX, Delivery, Recipient, Ticket};
pub use in_flight::{Handler, InFlight, Owner};
pub use mailbox::Mailbox;
pub use net::{
    DetachedStream, Listener, Received, Shutdown, Socket, SocketOptions, SocketReport, TcpListener,
    TcpStream,
};
pub use remote::{Call, Remote, Stopped};
pub use slots::{Key, Slots};
pub use system::System;
pub use task_waker::TaskWaker;
pub use time::{Instant, Sleep, Timer};
pub use waiting::Spin;
