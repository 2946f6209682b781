//! What a protocol does with one connection: bytes in, requests out, completions in, bytes out.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use weir_block::{Announcement, Completion, Completions};
use weir_memory::{Gather, Segment, View};
use weir_reactor::Amount;

use crate::account::Room;
use crate::commands::{Commands, Slot};
use crate::protocol::Protocol;
use crate::reservations::News;
use crate::shard::Line;
use crate::volumes::Attached;
use crate::watch::{Awaited, Stall};

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum End {
    /// The host closed it.
    #[error("the host closed it")]
    Closed,
    /// The system gave it up.
    #[error("the connection was lost: {0}")]
    Lost(#[from] io::Error),
    /// The host broke a rule of the protocol. It is told so, and given time to read it.
    #[error("{0}")]
    Broken(Box<dyn std::error::Error>),
    /// The host asked for what it is not to have. It is told so, and given time to read it.
    #[error("{0}")]
    Refused(Box<dyn std::error::Error>),
    /// The host said that it breaks the connection off.
    #[error("{0}")]
    BrokenOff(&'static str),
    /// It was not established in time.
    #[error("{0}")]
    Handshake(&'static str),
    /// The host was silent for too long.
    #[error("the keep-alive timer expired")]
    KeepAliveExpired,
    /// The host did not move on.
    #[error("{0} in time")]
    Stalled(Stall),
    /// What it belongs to ended in order.
    #[error("{0}")]
    Dismissed(&'static str),
    /// The host left in order. It is given time to read its last answer.
    #[error("the host disconnected")]
    Disconnected,
    /// Commands that a lost volume has not answered may still take effect, for a time that nobody knows.
    #[error(
        "a lost volume has not answered commands of this connection, and they may still take effect"
    )]
    Unfenced,
    /// This side ends it: on request, at a shutdown, or because the host lost its right.
    #[error("{0}")]
    Told(&'static str),
}

/// What [`Session::receive`] left undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// All input was taken.
    Hungry,
    /// A command waits for a slot or a buffer; the rest of the input is to be offered again.
    Blocked,
}

/// What a session lacks at the end of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wants {
    /// It is to look again soon: for what it lacks nobody wakes it.
    pub look_again: bool,
    /// Its input is blocked for want of a buffer.
    pub is_starved: bool,
    /// A command waits for room, or for a buffer.
    pub waits: bool,
}

/// What commands of a session go to.
pub type ExportOf<S> = Rc<Attached<<<S as Session>::Protocol as Protocol>::Export>>;

/// One connection of a protocol.
///
/// Numbers of exports are unique among all that one session may see, of whatever group.
///
/// Each time that the connection's task runs it works in rounds. A round is: messages, completions, what was
/// received, [act](Session::act), [prepare](Session::prepare), what it [submitted](Commands::submit) goes to the volumes, completions of what was done at once,
/// [settle](Session::settle), [write](Session::write).
pub trait Session: Sized + 'static {
    /// Its protocol.
    type Protocol: Protocol;
    /// A slot for one of its commands.
    type Slot: Slot<Export = <Self::Protocol as Protocol>::Export>;
    /// What of it moves to another reactor.
    type Moving: Send + 'static;

    /// The end of a connection that was not [established](Line::established) in time.
    const HANDSHAKE_TIMEOUT: &'static str;

    /// A session for a connection that was just accepted.
    fn accepted(line: Line<Self::Protocol>) -> Self;

    /// A session that was [moved](Session::move_out) here goes on; what it answers first goes to `out`.
    fn moved_in(line: Line<Self::Protocol>, moving: Self::Moving, out: &mut Gather) -> Self;

    /// A session on its way to another reactor is lost: that reactor stopped.
    fn lost_on_the_way(shared: &<Self::Protocol as Protocol>::Shared, moving: Self::Moving) {
        let _ = (shared, moving);
    }

    /// Its commands, as far as volumes work for them.
    fn commands(&mut self) -> &mut Commands<Self::Slot>;

    /// Its data in flight.
    fn room(&mut self) -> &mut Room;

    /// Takes a message of the protocol.
    ///
    /// # Errors
    /// The connection's end.
    fn message(&mut self, message: <Self::Protocol as Protocol>::Message) -> Result<(), End> {
        drop(message);
        Ok(())
    }

    /// Takes a message of the protocol after [`Session::announce_end`], while requests may be under way. A sender that waits for an
    /// answer must not get it before these have ended.
    fn late_message(&mut self, message: <Self::Protocol as Protocol>::Message) {
        Self::Protocol::decline(message);
    }

    /// Takes over what its host may see now: what it may not do any more does not begin, and what is under way of that is
    /// [revoked](Commands::revoke).
    ///
    /// # Errors
    /// The reason for which the connection ends, when its host may not have it any more.
    fn renew(&mut self) -> Result<(), &'static str>;

    /// Reservations changed. Commands that the host may not have run any more do not begin or are [revoked](Commands::revoke), and
    /// those that it may not have and that run [keep the news](Commands::keep_news). Also called when it [serves no
    /// more](Session::announce_end).
    fn rights_changed(&mut self, news: &Arc<News>) {
        let _ = news;
    }

    /// Tells the host what changed of what it sees. It was [renewed](Session::renew) just now.
    fn announce(&mut self) {}

    /// Tells the host that the front end shuts down.
    fn shutting_down(&mut self) {}

    /// Takes completions: this one, and what else waits.
    fn completed(&mut self, first: Completion, others: &Completions);

    /// Something was received.
    fn heard(&mut self) {}

    /// Takes bytes from the front of `input`.
    ///
    /// # Errors
    /// The connection's end.
    fn receive(&mut self, input: &mut View, out: &mut Gather) -> Result<Progress, End>;

    /// Does what commands asked for that is no request of a volume.
    ///
    /// # Errors
    /// The connection's end.
    fn act(&mut self) -> Result<(), End> {
        Ok(())
    }

    /// Looks for memory for commands that wait for some.
    fn prepare(&mut self) {}

    /// Tells others what came of the round.
    fn settle(&mut self) {}

    /// Writes all answers that are ready.
    fn write(&mut self, out: &mut Gather);

    /// Returns what it lacks. `is_blocked`: its input is [blocked](Progress::Blocked).
    fn wants(&mut self, is_blocked: bool) -> Wants;

    /// Number of commands in flight. Leaves out those that only wait for an event and may stay open at a shutdown.
    fn in_flight(&self) -> u32;

    /// Tells whether it takes more input. Not while it waits to be let in, or to be moved.
    fn takes_input(&self) -> bool {
        self.moves_to().is_none()
    }

    /// A segment into which input is to be received without a copy, and from which byte of it on; it comes back by
    /// [`Session::received_directly`]. None: into the reactor's ring.
    fn direct(&mut self) -> Option<(Segment, usize)> {
        None
    }

    /// A segment comes back into which `count` bytes were received.
    fn received_directly(&mut self, segment: Segment, count: usize) {
        unreachable!("{count} bytes were received into {segment:?}, which was not lent");
    }

    /// How much to expect of the next receive into the ring. `last` is how many bytes came with the last one.
    fn expects(&self, last: usize) -> Amount {
        let _ = last;
        Amount::Usual
    }

    /// What was written is being sent.
    fn send_began(&mut self) {}

    /// The send ended.
    fn send_ended(&mut self) {}

    /// The export of this number that its host sees.
    fn attached(&self, number: u32) -> Option<&ExportOf<Self>>;

    /// The number of the message that has come in part, if one has.
    fn arriving(&self) -> Option<u64> {
        None
    }

    /// What the host was asked for and has not sent, for a look once in a period.
    fn look_at_awaited(&mut self) -> Option<Awaited> {
        None
    }

    /// For how long the host may be silent once it is [established](Line::established); none: for ever. It counts from when this
    /// changes.
    fn keep_alive(&mut self) -> Option<Duration> {
        None
    }

    /// Whether the host was heard since the last call. What this writes, such as a ping, is sent.
    fn take_traffic(&mut self) -> bool {
        true
    }

    /// The reactor to which the connection is to be moved, now that it is [established](Line::established) and as soon as no volume works
    /// for it.
    fn moves_to(&self) -> Option<usize> {
        None
    }

    /// Takes out what moves. All that was written has been sent.
    fn move_out(&mut self) -> Self::Moving;

    /// Writes what is to be said at the end.
    fn last_words(&mut self, end: &End, out: &mut Gather) {
        let _ = end;
        self.write(out);
    }

    /// Notes that the connection serves no more: nobody may start anything with it. The returned value is dropped when every queue of
    /// a volume keeps the requests left under way apart from what the host does next. Called once, also after a panic elsewhere.
    fn announce_end(&mut self) -> Announcement {
        Arc::new(())
    }

    /// Drops what the session holds, except what volumes have. Requests that no volume had were taken back before.
    fn give_up(&mut self) {}

    /// Marks the commands that run and that its host may not have run any more ([`Commands::revoke`]); also when it
    /// [serves no more](Session::announce_end).
    fn revoke(&mut self);

    /// Nothing of it is under way any more.
    fn ended(&mut self) {}
}
