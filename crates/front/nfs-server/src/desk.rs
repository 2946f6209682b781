//! The way of calls to volumes: a call is a task and asks at its connection's desk, and the connection submits, since volumes know
//! connections.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use weir_block::{Completion, Operation, VolumeError};
use weir_front::{Arrival, AtVolume, Attached, CommandKind, Commands, Course, Handle, News, Slot};
use weir_nfs::Status;
use weir_reactor::{Instant, Sender, oneshot};
use weir_reservation::{Access, Registrant};

use crate::exports::Exports;
use crate::protocol::Waiting;
use crate::volumes::VolumeFile;

/// Why a volume did not do what a call asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It was not asked.
    Before(Status),
    /// It failed.
    By(VolumeError),
}

impl std::fmt::Display for Refused {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refused::Before(status) => write!(formatter, "{status:?}"),
            Refused::By(error) => error.fmt(formatter),
        }
    }
}

impl From<Refused> for Status {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Before(status) => status,
            Refused::By(error) => status_of(error),
        }
    }
}

/// The one table from what a volume says to what a client is told. What may pass by itself is asked for again.
fn status_of(error: VolumeError) -> Status {
    match error {
        VolumeError::OutOfRange | VolumeError::NoSpace => Status::Nospc,
        VolumeError::ReadOnly => Status::Rofs,
        VolumeError::Unsupported => Status::Notsupp,
        VolumeError::Invalid => Status::Inval,
        VolumeError::Medium | VolumeError::Miscompare { .. } => Status::Io,
        VolumeError::Lost | VolumeError::TimedOut | VolumeError::Cancelled | VolumeError::Busy => {
            Status::Delay
        }
    }
}

/// The answer of a volume, and how the time was spent.
pub(crate) type Answer = (Result<Operation, Refused>, Course);

/// A request of a call.
struct Asked {
    file: Rc<Attached<VolumeFile>>,
    kind: CommandKind,
    access: Access,
    operation: Operation,
    came: Instant,
    answer: Sender<Answer>,
}

/// Requests of volumes by the calls of a connection.
pub(crate) struct Desk {
    asked: RefCell<VecDeque<Asked>>,
    handle: Handle<Waiting>,
    /// The connection serves no more.
    is_closed: Cell<bool>,
}

impl Desk {
    pub(crate) fn new(handle: Handle<Waiting>) -> Self {
        Desk {
            asked: RefCell::default(),
            handle,
            is_closed: Cell::new(false),
        }
    }

    /// Has a volume do something for a call that came then. A client whose connection ends is told to ask again, whatever becomes of it.
    pub(crate) async fn ask(
        &self,
        file: &Rc<Attached<VolumeFile>>,
        kind: CommandKind,
        operation: Operation,
        came: Instant,
    ) -> Answer {
        let gone = (Err(Refused::Before(Status::Delay)), Course::default());
        if self.is_closed.get() {
            return gone;
        }
        let (answer, answered) = oneshot();
        let changes = operation.modifies() || matches!(operation, Operation::Flush);
        let is_first = self.asked.borrow().is_empty();
        self.asked.borrow_mut().push_back(Asked {
            file: Rc::clone(file),
            kind,
            access: if changes { Access::Write } else { Access::Read },
            operation,
            came,
            answer,
        });
        if is_first {
            // It may have ended meanwhile, and has closed the desk then.
            let _ = self.handle.tell(Waiting);
        }
        answered.await.unwrap_or(gone)
    }

    /// Nobody reads it any more.
    pub(crate) fn close(&self) {
        self.is_closed.set(true);
        self.asked.borrow_mut().clear();
    }
}

/// A slot for a request of a call.
#[derive(Default)]
pub(crate) struct VolumeSlot {
    at: AtVolume<VolumeFile>,
    access: Option<Access>,
    answer: Option<Sender<Answer>>,
}

impl Slot for VolumeSlot {
    type Export = VolumeFile;

    fn at_volume(&self) -> &AtVolume<VolumeFile> {
        &self.at
    }

    fn at_volume_mut(&mut self) -> &mut AtVolume<VolumeFile> {
        &mut self.at
    }
}

impl VolumeSlot {
    /// Tells whether its client may not have it any more.
    fn is_lost(&self, serves: impl Fn(&VolumeFile, Access) -> bool) -> bool {
        let what = self.at.attached.as_ref().zip(self.access);
        self.at.outstanding() > 0
            && what.is_some_and(|(file, access)| !serves(&file.export, access))
    }
}

/// Tells whether reservations of a volume let clients use it so.
pub(crate) fn is_allowed(file: &VolumeFile, access: Access) -> bool {
    let reservations = file.reservations.as_ref();
    reservations.is_none_or(|these| these.allows(&Registrant::NOBODY, access))
}

/// The requests that a connection has at volumes.
pub(crate) struct Requests {
    pub(crate) commands: Commands<VolumeSlot>,
    free: Vec<usize>,
}

impl Requests {
    pub(crate) fn new(owner: u32) -> Self {
        Requests {
            commands: Commands::new(owner),
            free: Vec::new(),
        }
    }

    /// Submits what was asked at the desk.
    pub(crate) fn take(&mut self, desk: &Desk, exports: &Exports) {
        while let Some(asked) = { desk.asked.borrow_mut().pop_front() } {
            self.begin(asked, exports);
        }
    }

    fn begin(&mut self, asked: Asked, exports: &Exports) {
        let number = asked.file.export.number;
        let refused = match exports.files.get(&number) {
            None => Some(Refused::Before(Status::Stale)),
            // Another volume has its place: it is looked at anew.
            Some(now) if !Arc::ptr_eq(&now.export.volume, &asked.file.export.volume) => {
                Some(Refused::Before(Status::Delay))
            }
            Some(now) if now.is_read_only() && asked.operation.modifies() => {
                Some(Refused::Before(Status::Rofs))
            }
            Some(now) if !is_allowed(&now.export, asked.access) => {
                Some(Refused::Before(Status::Access))
            }
            Some(now) => now.queue.ready().err().map(Refused::By),
        };
        if let Some(refused) = refused {
            return asked.answer.send((Err(refused), Course::default()));
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            let slot = self.commands.len();
            self.commands.resize_with(slot + 1, VolumeSlot::default);
            slot
        });
        let now = self.commands.now();
        let own = &mut self.commands[slot];
        own.at.attached = exports.files.get(&number).cloned();
        own.at.course.begin(Arrival::at(asked.came), number, now);
        own.access = Some(asked.access);
        own.answer = Some(asked.answer);
        self.commands.submit(slot, asked.kind, asked.operation);
    }

    pub(crate) fn completed(&mut self, completion: Completion) {
        let slot = self.commands.completed(completion.token);
        let operation = completion.operation;
        let is_revoked = self.commands[slot].at.is_revoked();
        let result = completion.result.map(|()| operation);
        let result = result.map_err(|error| match error {
            VolumeError::Cancelled if is_revoked => Refused::Before(Status::Stale),
            error => Refused::By(error),
        });
        self.end(slot, result);
    }

    fn end(&mut self, slot: usize, result: Result<Operation, Refused>) {
        let own = &mut self.commands[slot];
        let (answer, course) = (own.answer.take(), own.at.course);
        own.at.clear();
        self.free.push(slot);
        answer.expect("a call waits").send((result, course));
    }

    /// Takes back what its client may not have any more, and asks volumes to end the rest of that early.
    pub(crate) fn withdraw(&mut self, serves: impl Fn(&VolumeFile, Access) -> bool) {
        let lost = self.revoke(serves);
        for request in self.commands.withdraw(&lost) {
            let slot = self.commands.ended(request.token);
            self.end(slot, Err(Refused::Before(Status::Stale)));
        }
        self.commands.end_early(&lost);
    }

    /// Marks what its client may not have any more; in order.
    pub(crate) fn revoke(&mut self, serves: impl Fn(&VolumeFile, Access) -> bool) -> Vec<usize> {
        let slots = 0..self.commands.len();
        let lost: Vec<usize> = slots
            .filter(|&slot| self.commands[slot].is_lost(&serves))
            .collect();
        for &slot in &lost {
            self.commands.revoke(slot);
        }
        lost
    }

    /// Reservations changed: the change is answered when nothing is under way that they forbid.
    pub(crate) fn rights_changed(&mut self, news: &Arc<News>) {
        for slot in 0..self.commands.len() {
            let own = &self.commands[slot];
            let Some((file, access)) = own.at.attached.as_ref().zip(own.access) else {
                continue;
            };
            let file = &file.export;
            if news.is_of(file.reservations.as_ref()) && !is_allowed(file, access) {
                self.commands.keep_news(slot, news);
            }
        }
    }
}
