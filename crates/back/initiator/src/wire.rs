//! The protocol of one connection: a state machine without socket, clock or randomness.

use std::fmt;

use weir_memory::{Gather, Views};

/// A command's data.
#[derive(Debug)]
pub enum Payload {
    /// None.
    None,
    /// To the target.
    Out(Views),
    /// From the target: so many bytes.
    In(u32),
}

/// Whether the target may have carried out a command that was not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposure {
    /// It cannot: it was not sent, or nothing of the data that it writes was.
    Never,
    /// It may.
    Possible,
}

/// Takes what comes of commands; `user` is what they were submitted with.
pub trait Commands<Answer> {
    /// Data of a command, `offset` bytes from its start.
    fn data(&self, user: u64, offset: u32, bytes: &[u8]);
    /// A command ended.
    fn answer(&self, user: u64, answer: Answer);
}

/// The protocol of one connection: commands in, bytes out; bytes in, data and answers out. How a command is submitted is each
/// protocol's own.
pub trait Wire: 'static {
    /// The end of a command.
    type Answer: 'static;
    /// The reason for which a connection cannot go on.
    type Fault: fmt::Display + Clone;

    /// Commands that can be submitted now.
    fn room(&self) -> usize;

    /// Why it cannot go on, if so. What is to be sent before the connection is closed still comes from [`Wire::transmit`].
    fn fault(&self) -> Option<&Self::Fault>;

    /// Returns whether there is something to send.
    fn has_output(&self) -> bool;

    /// Adds what is to be sent next. It counts as sent.
    fn transmit(&mut self, gather: &mut Gather);

    /// Takes received bytes.
    fn receive(&mut self, bytes: &[u8], commands: &dyn Commands<Self::Answer>);

    /// Takes the commands that were not answered, when the connection has ended.
    fn take_unanswered(&mut self) -> Vec<(u64, Exposure)>;
}
