//! One connection: its records, the calls that are under way, and their replies.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use weir_block::{Completion, Completions, Landing};
use weir_front::{Commands, End, ExportOf, Line, News, Progress, Room, Session, Wants};
use weir_memory::{Gather, Segment, View};
use weir_nfs::record::Fragment;
use weir_reactor::Amount;
use weir_reservation::Access;

use crate::call;
use crate::context::Context;
use crate::desk::{Requests, VolumeSlot};
use crate::exports::Exports;
use crate::framing::{Framing, Next};
use crate::protocol::{About, NfsProtocol, Waiting};
use crate::volumes::VolumeFile;

/// Calls of one connection under way at most: what comes after them waits.
const CALLS_MAX: u32 = 1024;

/// Bytes of a call's task at most: longer ones do not come from the allocator's fastest lists, which showed in reads of 4 KiB.
const CALL_TASK_BYTES_MAX: usize = 1000;

/// Time after which a connection looks again whether opens that it knows have ended.
const LOOK_AT_OPENS: Duration = Duration::from_secs(5);

/// Bytes of a call at most that also reads: while such a one waits for buffers it must hold none itself, and is copied out.
pub(crate) const READING_CALL_BYTES_MAX: usize = 4096;

/// A call that has come, and waits for buffers.
struct Arrived {
    record: View,
    /// It is no buffer of the pool any more.
    is_copied: bool,
    /// Lengths of the buffers that it waits for.
    lengths: Vec<u32>,
    taken: u64,
}

/// One connection.
pub(crate) struct NfsSession {
    line: Line<NfsProtocol>,
    context: Rc<Context>,
    framing: Framing,
    requests: Requests,
    exports: Rc<Exports>,
    room: Room,
    waiting: Option<Arrived>,
    /// Something waits for room, or for a buffer.
    is_short: bool,
    /// Calls under way.
    calls: u32,
    /// Bytes of what was written since the last send began, and of what is being sent.
    written: u64,
    sending: u64,
    /// No call came yet.
    is_new: bool,
    moves_to: Option<usize>,
}

impl NfsSession {
    fn new(line: Line<NfsProtocol>, is_new: bool) -> Self {
        let config = &line.shard.shared.own.config;
        let account = &line.shard.hub.account;
        let all = config.bytes_in_flight_per_connection;
        let one = 2 * config.message_bytes_max();
        let room = Room::new(account, all.into(), one);
        let peer = line.entry.peer;
        let context = Context::new(Rc::clone(&line.shard), peer, line.entry.handle.clone());
        let exports = Rc::clone(&context.exports.borrow());
        NfsSession {
            framing: Framing::new(config.message_bytes_max()),
            requests: Requests::new(line.entry.owner),
            exports,
            context,
            room,
            waiting: None,
            is_short: false,
            calls: 0,
            written: 0,
            sending: 0,
            is_new,
            moves_to: None,
            line,
        }
    }

    /// Begins a call, once it has the buffers that it needs.
    fn begin(&mut self, waiting: Arrived) -> Result<(), Arrived> {
        let bytes = waiting.lengths.iter().map(|&length| u64::from(length));
        let bytes: u64 = bytes.sum();
        let mut segments = Vec::new();
        if bytes > 0 {
            let pool = self.line.shard.hub.reactor.pool();
            if !self.room.may_take_buffers() || !self.room.take(bytes) {
                return Err(waiting);
            }
            for &length in &waiting.lengths {
                let Some(place) = self.room.place(Landing::Anywhere, length as usize, pool) else {
                    self.room.give_back(bytes);
                    return Err(waiting);
                };
                segments.extend(place);
            }
            self.room.grant();
        }
        self.calls += 1;
        let context = Rc::clone(&self.context);
        let serving = call::serve(context, waiting.record, segments, waiting.taken + bytes);
        debug_assert!(size_of_val(&serving) <= CALL_TASK_BYTES_MAX);
        self.line.shard.hub.reactor.spawn_isolated(serving).detach();
        Ok(())
    }

    /// The first call says that there is a client: its connection goes where it is to stay.
    fn settle_down(&mut self) {
        self.is_new = false;
        self.line.established();
        let shared = &self.line.shard.shared.own;
        let next = &shared.next_reactor;
        let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let reactor = number % self.line.shard.shared.counters.len();
        if reactor != self.line.shard.index {
            self.moves_to = Some(reactor);
        }
    }
}

/// Tells whether the client of a connection may still use a file that is a volume so.
fn serves(context: &Context, exports: &Exports, file: &VolumeFile, access: Access) -> bool {
    let snapshot = context.snapshot.borrow();
    let allowed = snapshot.allowed_of(file.number);
    let now = exports.files.get(&file.number);
    allowed.is_some_and(|allowed| allowed.has(context.peer.ip()))
        && now.is_some_and(|now| {
            Arc::ptr_eq(&now.export.volume, &file.volume)
                && !(access == Access::Write && now.export.is_read_only)
        })
}

impl Session for NfsSession {
    type Protocol = NfsProtocol;
    type Slot = VolumeSlot;
    type Moving = ();

    const HANDSHAKE_TIMEOUT: &'static str = "no call came in time";

    fn accepted(line: Line<NfsProtocol>) -> Self {
        NfsSession::new(line, true)
    }

    fn moved_in(line: Line<NfsProtocol>, (): (), _: &mut Gather) -> Self {
        NfsSession::new(line, false)
    }

    fn commands(&mut self) -> &mut Commands<VolumeSlot> {
        &mut self.requests.commands
    }

    fn room(&mut self) -> &mut Room {
        &mut self.room
    }

    fn message(&mut self, Waiting: Waiting) -> Result<(), End> {
        match self.context.outbox.is_broken() {
            true => Err(End::Told("a call of it broke an invariant")),
            false => Ok(()),
        }
    }

    fn renew(&mut self) -> Result<(), &'static str> {
        self.context.renew();
        self.exports = Rc::clone(&self.context.exports.borrow());
        let exports = Rc::clone(&self.exports);
        self.requests
            .withdraw(|file, access| serves(&self.context, &exports, file, access));
        Ok(())
    }

    fn rights_changed(&mut self, news: &Arc<News>) {
        self.requests.rights_changed(news);
    }

    fn act(&mut self) -> Result<(), End> {
        self.requests.take(&self.context.desk, &self.exports);
        Ok(())
    }

    fn completed(&mut self, first: Completion, others: &Completions) {
        self.requests.completed(first);
        while let Some(completion) = others.pop() {
            self.requests.completed(completion);
        }
    }

    fn receive(&mut self, input: &mut View, _: &mut Gather) -> Result<Progress, End> {
        self.is_short = false;
        loop {
            if let Some(waiting) = self.waiting.take()
                && let Err(mut waiting) = self.begin(waiting)
            {
                if !waiting.is_copied {
                    waiting.record = View::copy_of(&waiting.record);
                    waiting.is_copied = true;
                }
                self.waiting = Some(waiting);
                self.is_short = true;
                return Ok(Progress::Blocked);
            }
            if self.moves_to.is_some() {
                return Ok(Progress::Hungry);
            }
            if self.calls >= CALLS_MAX {
                return Ok(Progress::Blocked);
            }
            if self.is_new && self.framing.has_whole_record(input) {
                self.settle_down();
                continue;
            }
            let pool = self.line.shard.hub.reactor.pool();
            let next = self.framing.next(input, pool, &mut self.room);
            match next.map_err(|error| End::Broken(Box::new(error)))? {
                Next::Hungry => return Ok(Progress::Hungry),
                Next::Blocked => {
                    self.is_short = true;
                    return Ok(Progress::Blocked);
                }
                Next::Record(record, taken) => {
                    let max = self.line.shard.shared.own.config.transfer_bytes_max;
                    let lengths = call::lengths_to_read(&record, max);
                    let mut lengths = lengths.map_err(|error| End::Broken(Box::new(error)))?;
                    if record.len() > READING_CALL_BYTES_MAX {
                        // No client writes and reads in one call. To one that does, reading fails.
                        lengths.clear();
                    }
                    if self.is_new {
                        self.is_new = false;
                        self.line.established();
                    }
                    self.waiting = Some(Arrived {
                        record,
                        is_copied: false,
                        lengths,
                        taken,
                    });
                }
            }
        }
    }

    fn write(&mut self, out: &mut Gather) {
        while let Some(reply) = self.context.outbox.take() {
            self.calls -= 1;
            self.written += reply.taken;
            let header = Fragment {
                length: reply.len() as u32,
                is_last: true,
            };
            out.push_header(&header.to_bytes());
            let mut from = 0;
            for (at, view) in reply.data {
                out.push_header(&reply.bytes[from..at]);
                out.push_view(view);
                from = at;
            }
            out.push_header(&reply.bytes[from..]);
        }
        for course in self.context.take_answered() {
            self.requests.commands.answered_by(&course);
        }
        let known = self.line.entry.about.borrow().client;
        let client = self.context.client.get();
        if known != client {
            *self.line.entry.about.borrow_mut() = About { client };
        }
    }

    fn wants(&mut self, is_blocked: bool) -> Wants {
        Wants {
            look_again: is_blocked && self.is_short,
            is_starved: false,
            waits: is_blocked && self.is_short,
        }
    }

    /// A connection that knows opens looks now and then whether they have ended, so that no removed file takes room for long.
    fn keep_alive(&mut self) -> Option<Duration> {
        self.context.knows_opens().then_some(LOOK_AT_OPENS)
    }

    fn take_traffic(&mut self) -> bool {
        self.context.forget_ended();
        true
    }

    fn in_flight(&self) -> u32 {
        self.calls
    }

    fn direct(&mut self) -> Option<(Segment, usize)> {
        self.framing.lend()
    }

    fn received_directly(&mut self, segment: Segment, count: usize) {
        self.framing.returned(segment, count);
    }

    fn expects(&self, _: usize) -> Amount {
        Amount::Usual
    }

    fn send_began(&mut self) {
        self.sending = std::mem::take(&mut self.written);
    }

    fn send_ended(&mut self) {
        self.room.give_back(std::mem::take(&mut self.sending));
    }

    fn attached(&self, number: u32) -> Option<&ExportOf<Self>> {
        self.exports.files.get(&number)
    }

    fn arriving(&self) -> Option<u64> {
        self.framing.arriving()
    }

    fn moves_to(&self) -> Option<usize> {
        self.moves_to
    }

    fn move_out(&mut self) {
        debug_assert_eq!(self.calls, 0, "no call was begun here");
    }

    fn revoke(&mut self) {
        // Nobody else renews what its client sees any more.
        self.context.renew();
        let exports = Rc::clone(&self.context.exports.borrow());
        self.requests
            .revoke(|file, access| serves(&self.context, &exports, file, access));
    }

    /// Calls that would ask a volume for something are not left to wait for it.
    fn give_up(&mut self) {
        self.context.desk.close();
    }
}
