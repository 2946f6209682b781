//! The reservations of a volume in force: one line of operations, the table that all reactors ask, and the news of each change.
//!
//! An operation is carried out in four steps: what it makes of the table is stored, put in force, and told to every connection
//! of every front end; it is answered when nothing that a loser began can take effect any more. The next one waits until then.
//! The rules are those of [`weir_reservation`].

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use weir_reactor::SharedSection;
use weir_reservation::{
    Access, Change, Notice, Operation, Refused, Registrant, StoredTable, Table,
};

/// Keeps the stored form of a volume's table.
pub trait Keeper: Send + Sync + 'static {
    /// Stores `table` in place of the one before, durably; none: nothing is to be stored any more. Returns at once, and says
    /// through `kept` what came of it.
    fn keep(&self, table: Option<StoredTable>, kept: Kept);
}

impl<F: Fn(Option<StoredTable>, Kept) + Send + Sync + 'static> Keeper for F {
    fn keep(&self, table: Option<StoredTable>, kept: Kept) {
        self(table, kept);
    }
}

/// The word of a [`Keeper`]. Dropped without one, the table was not stored.
pub struct Kept(Option<Box<dyn FnOnce(bool) + Send>>);

impl Kept {
    /// Has `tell` called with what comes of it.
    pub fn new(tell: impl FnOnce(bool) + Send + 'static) -> Self {
        Kept(Some(Box::new(tell)))
    }

    /// Says whether the table is stored. Where it is not, what was stored before still is.
    pub fn tell(mut self, is_stored: bool) {
        if let Some(tell) = self.0.take() {
            tell(is_stored);
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(tell) = self.0.take() {
            tell(false);
        }
    }
}

/// Takes the end of an operation, on any thread.
type Answer = Box<dyn FnOnce(Result<(), Refused>) + Send>;

/// A piece of work in the line.
enum Asked {
    /// An operation of a host.
    By(Registrant, Operation),
    /// All is to be given up, at the operator's word.
    Discard,
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<(Asked, Answer)>,
    /// One is being carried out.
    is_busy: bool,
}

/// Tells every connection of every front end.
pub(crate) type Tell = Box<dyn Fn(Arc<News>) + Send + Sync>;

/// The reservations of one volume, for all front ends on the same hubs ([`crate::Hubs::reservations`]).
pub struct Reservations {
    /// Tells every connection of every front end.
    tell: Tell,
    keeper: Box<dyn Keeper>,
    table: ArcSwap<Table>,
    /// Nothing is reserved: every command is allowed.
    is_free: AtomicBool,
    line: Mutex<Line>,
}

impl Reservations {
    pub(crate) fn new(tell: Tell, stored: Option<StoredTable>, keeper: impl Keeper) -> Arc<Self> {
        let table = stored.map(Table::from).unwrap_or_default();
        Arc::new(Reservations {
            tell,
            keeper: Box::new(keeper),
            is_free: AtomicBool::new(is_free(&table)),
            table: ArcSwap::from_pointee(table),
            line: Mutex::default(),
        })
    }

    /// The table that is in force.
    #[must_use]
    pub fn table(&self) -> Arc<Table> {
        self.table.load_full()
    }

    /// Verdict on a command of a host. Any thread may ask, and none waits.
    #[inline]
    #[must_use]
    pub fn allows(&self, registrant: &Registrant, access: Access) -> bool {
        self.is_free.load(Ordering::Acquire) || self.table.load().allows(registrant, access)
    }

    /// Has an operation carried out when those before it are. `answer` is called once, on any thread.
    pub fn ask(
        self: &Arc<Self>,
        caller: Registrant,
        operation: Operation,
        answer: impl FnOnce(Result<(), Refused>) + Send + 'static,
    ) {
        self.stand_in_line(Asked::By(caller, operation), Box::new(answer));
    }

    /// Has everything that is registered and reserved given up, when the operations before that are carried out.
    pub fn discard(self: &Arc<Self>, answer: impl FnOnce(Result<(), Refused>) + Send + 'static) {
        self.stand_in_line(Asked::Discard, Box::new(answer));
    }

    fn stand_in_line(self: &Arc<Self>, asked: Asked, answer: Answer) {
        self.lock().waiting.push_back((asked, answer));
        self.go_on();
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out what waits, up to an operation whose end has to be waited for.
    fn go_on(self: &Arc<Self>) {
        // A panic here would stop the line for all hosts.
        let _shared = SharedSection::enter();
        loop {
            let (asked, answer) = {
                let mut line = self.lock();
                if line.is_busy {
                    return;
                }
                let Some(asked) = line.waiting.pop_front() else {
                    return;
                };
                line.is_busy = true;
                asked
            };
            if !self.carry_out(asked, answer) {
                return;
            }
            self.lock().is_busy = false;
        }
    }

    /// Carries out an operation. Returns whether it has ended.
    fn carry_out(self: &Arc<Self>, asked: Asked, answer: Answer) -> bool {
        let table = self.table.load();
        let change = match asked {
            Asked::By(caller, operation) => table.apply(&caller, &operation),
            Asked::Discard => Ok(table.discard()),
        };
        let change = match change {
            Ok(change) => change,
            Err(refused) => {
                answer(Err(refused));
                return true;
            }
        };
        if !change.stores {
            return self.put_in_force(change, answer);
        }
        let (stored, this) = (change.table.stored(), Arc::clone(self));
        let kept = move |is_stored| {
            let has_ended = match is_stored {
                true => this.put_in_force(change, answer),
                false => {
                    answer(Err(Refused::NotStored));
                    true
                }
            };
            if has_ended {
                this.ended();
            }
        };
        self.keeper.keep(stored, Kept::new(kept));
        false
    }

    /// Puts the table of a change in force. Returns whether nobody has to hear of it, so that it was answered.
    fn put_in_force(self: &Arc<Self>, change: Change, answer: Answer) -> bool {
        let is_free = is_free(&change.table);
        if !is_free {
            self.is_free.store(false, Ordering::Release);
        }
        self.table.store(Arc::new(change.table.clone()));
        if is_free {
            self.is_free.store(true, Ordering::Release);
        }
        let concerns_others = change.strangers_lose
            || !(change.losers.is_empty() && change.aborts.is_empty() && change.notices.is_empty());
        if !concerns_others {
            answer(Ok(()));
            return true;
        }
        let news = Arc::new(News {
            of: Arc::clone(self),
            change,
            answer: Mutex::new(Some(answer)),
        });
        (self.tell)(news);
        false
    }

    /// The operation that was carried out has ended.
    fn ended(self: &Arc<Self>) {
        self.lock().is_busy = false;
        self.go_on();
    }
}

fn is_free(table: &Table) -> bool {
    table.rights() == weir_reservation::Rights::Free
}

impl fmt::Debug for Reservations {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Reservations")
            .field("table", &self.table.load())
            .finish_non_exhaustive()
    }
}

/// A change of a volume's reservations that is in force. The operation behind it is answered when the last handle of the news is
/// dropped: each command that goes on without its right [keeps one](crate::Commands::keep_news) until it has ended.
pub struct News {
    of: Arc<Reservations>,
    change: Change,
    answer: Mutex<Option<Answer>>,
}

impl News {
    /// Tells whether it is of the reservations of this export.
    #[must_use]
    pub fn is_of(&self, reservations: Option<&Arc<Reservations>>) -> bool {
        reservations.is_some_and(|these| Arc::ptr_eq(these, &self.of))
    }

    /// Tells whether commands of this registrant are to be aborted.
    #[must_use]
    pub fn aborts(&self, registrant: &Registrant) -> bool {
        self.change.aborts.contains(registrant)
    }

    /// What this registrant is to be told.
    pub fn notices(&self, registrant: &Registrant) -> impl Iterator<Item = Notice> {
        let of_registrant =
            move |(whom, notice): &(Registrant, Notice)| (whom == registrant).then_some(*notice);
        self.change.notices.iter().filter_map(of_registrant)
    }

    /// Number of registrants in the table now.
    #[must_use]
    pub fn registrants(&self) -> usize {
        self.change.table.registrations().len()
    }
}

impl Drop for News {
    fn drop(&mut self) {
        let _shared = SharedSection::enter();
        let answer = self
            .answer
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = answer.take() {
            answer(Ok(()));
        }
        self.of.ended();
    }
}

impl fmt::Debug for News {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("News")
            .field("change", &self.change)
            .finish_non_exhaustive()
    }
}
