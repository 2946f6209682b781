//! A second front end, as small as one can be, by which the runtime is tested with something that is not NVMe.
//!
//! A host says `hello HOST REACTOR`, moves to that reactor, and is told `welcome`. Then, for a block of an export each:
//! `read TAG EXPORT LBA`; `write TAG EXPORT LBA` with the block behind it; `offer TAG EXPORT LBA`, which is answered `send TAG` once
//! there is memory, and followed by `bring TAG` with the block; `abort TAG`. Answers are `data TAG` with the block, `done TAG`, and
//! `fail TAG REASON`.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use weir_block::{
    Completion, Completions, HostNumber, Operation, ReadBuffers, Volume, VolumeError,
};
use weir_front::{
    Arrival, AtVolume, Attached, CommandKind, Commands, End, Export, Line, Progress, Protocol,
    Room, Session, Slot, Wants,
};
use weir_memory::{Gather, Segment, View, Views};

/// Bytes of a block of every volume that is served.
pub(crate) const BLOCK: usize = 4096;
/// Bytes of a block, as they are counted.
const BYTES: u32 = BLOCK as u32;
/// Commands of one connection at most.
const SLOTS: usize = 32;
const LINE_BYTES_MAX: usize = 80;

/// The protocol.
pub(crate) struct Lines;

/// A volume, and the hosts that may use it.
#[derive(Clone)]
pub(crate) struct Exported {
    pub(crate) number: u32,
    pub(crate) volume: Arc<dyn Volume>,
    pub(crate) hosts: Vec<String>,
}

impl Export for Exported {
    fn number(&self) -> u32 {
        self.number
    }

    fn volume(&self) -> &Arc<dyn Volume> {
        &self.volume
    }
}

/// All that is served; one group has it all.
#[derive(Default)]
pub(crate) struct Served(pub(crate) Vec<Exported>);

impl Protocol for Lines {
    type Message = ();
    type Group = &'static str;
    type Export = Exported;
    type Snapshot = Served;
    /// Bytes that one connection may have in flight.
    type Shared = u64;
    type Local = ();
    type Port = ();
    /// The host.
    type About = String;

    fn exports(served: &Served) -> impl Iterator<Item = (&&'static str, &[Exported])> {
        std::iter::once((&"all", &served.0[..]))
    }
}

/// How far a command has come.
#[derive(Default)]
enum Phase {
    #[default]
    Free,
    /// It waits for memory for its data, which is then asked for.
    Waits,
    /// Its data comes, so many bytes by now.
    Filled(Segment, usize),
    Runs,
}

#[derive(Default)]
pub(crate) struct Command {
    at: AtVolume<Exported>,
    tag: u32,
    lba: u64,
    phase: Phase,
}

impl Command {
    fn is_free(&self) -> bool {
        matches!(self.phase, Phase::Free)
    }
}

impl Slot for Command {
    type Export = Exported;

    fn at_volume(&self) -> &AtVolume<Exported> {
        &self.at
    }

    fn at_volume_mut(&mut self) -> &mut AtVolume<Exported> {
        &mut self.at
    }
}

/// One connection.
pub(crate) struct LinesSession {
    line: Line<Lines>,
    commands: Commands<Command>,
    room: Room,
    sees: Vec<Rc<Attached<Exported>>>,
    waiting: VecDeque<usize>,
    filling: Option<usize>,
    /// Bytes of a refused command's block that are still to come.
    refused: usize,
    /// A line that has come in part, or waits for memory.
    text: Vec<u8>,
    answers: Vec<(String, Views)>,
    moves_to: Option<usize>,
}

fn broken(what: &str) -> End {
    End::Broken(what.into())
}

fn number(text: &str) -> Result<u32, End> {
    text.parse().map_err(|_| broken("no number"))
}

impl LinesSession {
    /// Whether the host may use what a command is for.
    fn may_run(&self, attached: &Rc<Attached<Exported>>) -> bool {
        let mut sees = self.sees.iter();
        sees.any(|seen| Rc::ptr_eq(&seen.queue, &attached.queue))
    }

    fn slot_of(&self, tag: &str) -> Result<Option<usize>, End> {
        let tag = number(tag)?;
        let is_of = |one: &Command| one.tag == tag && !one.is_free();
        Ok(self.commands.iter().position(is_of))
    }

    /// Does a line; false: it waits for memory or a slot.
    fn do_line(&mut self, line: &str) -> Result<bool, End> {
        let words: Vec<&str> = line.split(' ').collect();
        let is_new = self.line.entry.about.borrow().is_empty();
        match words[..] {
            ["hello", host, reactor] if is_new => {
                let reactors = self.line.shard.shared.counters.len();
                self.moves_to = Some(number(reactor)? as usize % reactors);
                *self.line.entry.about.borrow_mut() = host.to_owned();
                self.line.established();
            }
            [verb @ ("read" | "write" | "offer"), tag, export, lba] if !is_new => {
                return self.begin(verb, number(tag)?, number(export)?, number(lba)?.into());
            }
            ["bring", tag] => match self.slot_of(tag)? {
                Some(slot) if matches!(self.commands[slot].phase, Phase::Filled(_, 0)) => {
                    self.filling = Some(slot);
                }
                _ => return Err(broken("nothing was asked for")),
            },
            ["abort", tag] => {
                if let Some(slot) = self.slot_of(tag)? {
                    self.abort(slot, "aborted");
                }
            }
            _ => return Err(broken("a line that is not known")),
        }
        Ok(true)
    }

    fn begin(&mut self, verb: &str, tag: u32, export: u32, lba: u64) -> Result<bool, End> {
        let Some(slot) = self.commands.iter().position(Command::is_free) else {
            return Ok(false);
        };
        let found = self.attached(export);
        let Some(attached) = found.filter(|one| one.geometry.get().contains(lba, 1)) else {
            self.refused = if verb == "write" { BLOCK } else { 0 };
            self.answers
                .push((format!("fail {tag} no such block\n"), Views::new()));
            return Ok(true);
        };
        let attached = Rc::clone(attached);
        attached.queue.ready().map_err(|_| broken("no queue"))?;
        let phase = match verb {
            "write" => self
                .place(&attached, lba)
                .map(|segment| Phase::Filled(segment, 0)),
            "read" => self.room.take(BYTES.into()).then_some(Phase::Runs),
            _ => Some(Phase::Waits),
        };
        let Some(phase) = phase else {
            return Ok(false);
        };
        let now = self.commands.now();
        let command = &mut self.commands[slot];
        command.at.course.begin(Arrival::at(now), export, now);
        command.at.attached = Some(attached);
        (command.tag, command.lba, command.phase) = (tag, lba, phase);
        match verb {
            "write" => {
                self.filling = Some(slot);
                self.room.grant();
            }
            "read" => {
                let read = Operation::Read {
                    lba,
                    blocks: 1,
                    buffers: ReadBuffers::Lend,
                };
                self.commands.submit(slot, CommandKind::Read, read);
            }
            _ => self.waiting.push_back(slot),
        }
        Ok(true)
    }

    /// Room for a block that is to be written, and the place that it is received in.
    fn place(&mut self, attached: &Attached<Exported>, lba: u64) -> Option<Segment> {
        if !self.room.may_take_buffers() || !self.room.take(BYTES.into()) {
            return None;
        }
        let pool = self.line.shard.hub.reactor.pool();
        let place = self.room.place(attached.queue.landing(lba, 1), BLOCK, pool);
        if place.is_none() {
            self.room.give_back(BYTES.into());
        }
        place.and_then(|mut place| place.pop())
    }

    /// A command is over; its answer keeps its room until it has been sent.
    fn answer(&mut self, slot: usize, verb: &str, reason: &str, data: Views) {
        let command = &mut self.commands[slot];
        let phase = std::mem::take(&mut command.phase);
        let held = BYTES * u32::from(!matches!(phase, Phase::Waits));
        let line = format!("{verb} {} {reason}", command.tag);
        self.answers.push((format!("{}\n", line.trim_end()), data));
        self.commands.answered(slot, held);
        self.commands[slot].at.clear();
    }

    /// Ends a command that no volume has. One whose data is coming goes on.
    fn abort(&mut self, slot: usize, reason: &str) {
        let is_over = match self.commands[slot].phase {
            Phase::Waits => true,
            Phase::Runs => self.commands.cancel(slot).is_some(),
            Phase::Free | Phase::Filled(..) => false,
        };
        if is_over {
            self.waiting.retain(|&other| other != slot);
            self.answer(slot, "fail", reason, Views::new());
        }
    }

    /// Takes in data of the block that is coming; false: there is more to come.
    fn take_data(&mut self, slot: usize, input: &mut View) -> bool {
        let command = &mut self.commands[slot];
        let Phase::Filled(segment, filled) = &mut command.phase else {
            unreachable!("it is being filled");
        };
        let count = input.len().min(BLOCK - *filled);
        segment[*filled..*filled + count].copy_from_slice(&input[..count]);
        input.advance(count);
        *filled += count;
        if *filled < BLOCK {
            return false;
        }
        self.filling = None;
        let Phase::Filled(segment, _) = std::mem::replace(&mut command.phase, Phase::Runs) else {
            unreachable!("it was filled");
        };
        let (lba, attached) = (command.lba, command.at.attached.clone());
        if !attached.is_some_and(|attached| self.may_run(&attached)) {
            self.answer(slot, "fail", "denied", Views::new());
            return true;
        }
        let write = Operation::Write {
            lba,
            blocks: 1,
            data: Views::from_iter([segment.freeze()]),
            fua: false,
        };
        self.commands.submit(slot, CommandKind::Write, write);
        true
    }
}

impl Session for LinesSession {
    type Protocol = Lines;
    type Slot = Command;
    type Moving = String;

    const HANDSHAKE_TIMEOUT: &'static str = "it did not say hello in time";

    fn accepted(line: Line<Lines>) -> Self {
        let mut commands = Commands::new(line.entry.owner);
        commands.resize_with(SLOTS, Command::default);
        let bytes_max = *line.shard.shared.own;
        LinesSession {
            room: Room::new(&line.shard.hub.account, bytes_max, BYTES),
            line,
            commands,
            sees: Vec::new(),
            waiting: VecDeque::new(),
            filling: None,
            refused: 0,
            text: Vec::new(),
            answers: Vec::new(),
            moves_to: None,
        }
    }

    fn moved_in(line: Line<Lines>, host: String, out: &mut Gather) -> Self {
        let number = HostNumber(host.len() as u64);
        line.shard.hub.router.set_host(line.entry.owner, number);
        *line.entry.about.borrow_mut() = host;
        out.push_header(b"welcome\n");
        LinesSession::accepted(line)
    }

    fn commands(&mut self) -> &mut Commands<Command> {
        &mut self.commands
    }

    fn room(&mut self) -> &mut Room {
        &mut self.room
    }

    fn renew(&mut self) -> Result<(), &'static str> {
        let host = self.line.entry.about.borrow().clone();
        self.sees = self.line.shard.exports_of(&"all");
        self.sees.retain(|one| one.export.hosts.contains(&host));
        self.revoke();
        for slot in 0..SLOTS {
            if self.commands[slot].at.is_revoked() {
                self.abort(slot, "denied");
            }
        }
        Ok(())
    }

    fn completed(&mut self, first: Completion, others: &Completions) {
        let mut next = Some(first);
        while let Some(Completion {
            token,
            result,
            operation,
        }) = next
        {
            let slot = self.commands.completed(token);
            match (result, operation) {
                _ if self.commands[slot].at.is_revoked() => {
                    self.answer(slot, "fail", "denied", Views::new())
                }
                (
                    Ok(()),
                    Operation::Read {
                        buffers: ReadBuffers::Filled(data),
                        ..
                    },
                ) => {
                    self.answer(slot, "data", "", data);
                }
                (Ok(()), _) => self.answer(slot, "done", "", Views::new()),
                (Err(VolumeError::Cancelled), _) => {
                    self.answer(slot, "fail", "aborted", Views::new())
                }
                (Err(_), _) => self.answer(slot, "fail", "volume", Views::new()),
            }
            next = others.pop();
        }
    }

    fn receive(&mut self, input: &mut View, _: &mut Gather) -> Result<Progress, End> {
        while self.moves_to.is_none() {
            if let Some(slot) = self.filling {
                if !self.take_data(slot, input) {
                    return Ok(Progress::Hungry);
                }
                continue;
            }
            let refused = self.refused.min(input.len());
            input.advance(refused);
            self.refused -= refused;
            if !self.text.ends_with(b"\n") {
                let end = input.iter().position(|&byte| byte == b'\n');
                let count = end.map_or(input.len(), |end| end + 1);
                self.text.extend_from_slice(&input[..count]);
                input.advance(count);
                if self.text.len() > LINE_BYTES_MAX {
                    return Err(broken("a line that is too long"));
                }
                if end.is_none() {
                    return Ok(Progress::Hungry);
                }
            }
            let text = std::mem::take(&mut self.text);
            let line = std::str::from_utf8(&text).map_err(|_| broken("no text"))?;
            if !self.do_line(line.trim_end())? {
                self.text = text;
                return Ok(Progress::Blocked);
            }
        }
        Ok(Progress::Hungry)
    }

    /// Asks for the data of commands that wait for memory, in their order.
    fn prepare(&mut self) {
        while let Some(&slot) = self.waiting.front() {
            let (lba, attached) = (
                self.commands[slot].lba,
                self.commands[slot].at.attached.clone(),
            );
            let attached = attached.expect("it waits for an export");
            let Some(segment) = self.place(&attached, lba) else {
                return;
            };
            self.waiting.pop_front();
            self.commands[slot].phase = Phase::Filled(segment, 0);
            self.room.grant();
            let line = format!("send {}\n", self.commands[slot].tag);
            self.answers.push((line, Views::new()));
        }
    }

    fn write(&mut self, out: &mut Gather) {
        for (line, data) in self.answers.drain(..) {
            out.push_header(line.as_bytes());
            data.into_iter().for_each(|view| out.push_view(view));
        }
    }

    fn wants(&mut self, is_blocked: bool) -> Wants {
        let waits = is_blocked || !self.waiting.is_empty();
        Wants {
            look_again: waits,
            waits,
            ..Wants::default()
        }
    }

    fn in_flight(&self) -> u32 {
        self.commands.iter().filter(|one| !one.is_free()).count() as u32
    }

    fn attached(&self, number: u32) -> Option<&Rc<Attached<Exported>>> {
        self.sees.iter().find(|one| one.export.number == number)
    }

    fn moves_to(&self) -> Option<usize> {
        self.moves_to
    }

    fn move_out(&mut self) -> String {
        self.line.entry.about.borrow().clone()
    }

    fn revoke(&mut self) {
        for slot in 0..SLOTS {
            let attached = self.commands[slot].at.attached.clone();
            if attached.is_some_and(|attached| !self.may_run(&attached)) {
                self.commands.revoke(slot);
            }
        }
    }
}
