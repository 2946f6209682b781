//! One queue's part of its namespace's limits: the tokens that it holds, and the requests that wait for more.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use weir_block::{Operation, Token};
use weir_reactor::Instant;

use super::lane::User;
use super::limits::{Account, CLASSES, Class, Ledger, QueueId, SLICE, Tokens};
use super::table::QueueMailbox;

/// The shortest time between two draws for several requests.
const PAUSE: Duration = Duration::from_micros(250);

/// A request that waits.
pub(super) struct Waiting {
    pub(super) user: User,
    pub(super) operation: Operation,
    bytes: u64,
    since: Instant,
}

#[derive(Default)]
struct OfClass {
    /// In the order in which they came.
    waiting: VecDeque<Waiting>,
    left: Tokens,
    leased: Tokens,
    /// When to draw again for those that wait.
    retry: Option<Instant>,
    /// When what is left goes back.
    lease_ends: Option<Instant>,
}

impl OfClass {
    fn is_due(&self, now: Instant) -> bool {
        let is_new = !self.waiting.is_empty() && self.retry.is_none();
        is_new || self.next().is_some_and(|at| at <= now)
    }

    fn next(&self) -> Option<Instant> {
        let both = [self.retry, self.lease_ends];
        both.into_iter().flatten().min()
    }
}

/// The limits of one queue.
pub(super) struct Meter {
    account: Arc<Account>,
    id: QueueId,
    classes: [OfClass; CLASSES],
    /// The limits changed.
    is_stale: bool,
}

impl Meter {
    pub(super) fn new(account: Arc<Account>, mailbox: &Arc<QueueMailbox>) -> Self {
        Meter {
            id: account.add(mailbox),
            account,
            classes: Default::default(),
            // It knows of no limits until it has asked.
            is_stale: true,
        }
    }

    /// Whether there is any limit.
    pub(super) fn is_limited(&self) -> bool {
        self.account.is_limited()
    }

    /// Has the limits taken over with the next [`Meter::draw`].
    pub(super) fn renew(&mut self) {
        self.is_stale = true;
    }

    /// Pays for a request of the user that comes `now`; where that cannot be done at once, it waits. Whether the queue must then draw.
    pub(super) fn pay(
        &mut self,
        user: User,
        operation: Operation,
        (class, bytes): (Class, u64),
        now: Instant,
    ) -> Result<(User, Operation), bool> {
        let own = &mut self.classes[class as usize];
        if !self.is_stale && own.waiting.is_empty() && own.left.pay(bytes) {
            return Ok((user, operation));
        }
        own.waiting.push_back(Waiting {
            user,
            operation,
            bytes,
            since: now,
        });
        Err(own.retry.is_none())
    }

    /// Draws where it is time to: requests that may go on come out, in their order. When to come again.
    pub(super) fn draw(&mut self, now: Instant, go_on: &mut Vec<Waiting>) -> Option<Instant> {
        if self.is_stale || self.classes.iter().any(|own| own.is_due(now)) {
            let mut ledger = self.account.visit(now);
            for class in Class::ALL {
                let own = &mut self.classes[class as usize];
                draw(&mut ledger, self.id, class, own, now, go_on);
            }
            self.is_stale = false;
        }
        self.classes.iter().filter_map(OfClass::next).min()
    }

    /// Takes out a request that waits.
    pub(super) fn cancel(&mut self, token: Token) -> Option<Waiting> {
        self.classes.iter_mut().find_map(|own| {
            let at = own
                .waiting
                .iter()
                .position(|waiting| waiting.user.request.token == token)?;
            // With the next draw, which is due as before, it leaves the line if it was the last.
            own.waiting.remove(at)
        })
    }

    /// The requests that wait.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &User> {
        let all = self.classes.iter().flat_map(|own| &own.waiting);
        all.map(|waiting| &waiting.user)
    }

    /// Takes out all that wait.
    pub(super) fn cancel_all(&mut self) -> impl Iterator<Item = Waiting> {
        self.classes
            .iter_mut()
            .flat_map(|own| std::mem::take(&mut own.waiting))
    }
}

fn draw(
    ledger: &mut Ledger,
    id: QueueId,
    class: Class,
    own: &mut OfClass,
    now: Instant,
    go_on: &mut Vec<Waiting>,
) {
    let mut is_used = own.left != own.leased;
    ledger.settle(id, class, own.left);
    own.retry = None;
    while let Some(first) = own.waiting.front() {
        if let Err(wait) = ledger.pay(id, class, first.bytes, now) {
            // Several go on together: what comes in meanwhile is not lost.
            let pause = if own.waiting.len() > 1 {
                PAUSE
            } else {
                Duration::ZERO
            };
            own.retry = Some(now + wait.max(pause));
            break;
        }
        let first = own.waiting.pop_front().expect("just seen");
        if now > first.since {
            ledger.note_waited(now.since(first.since));
        }
        is_used = true;
        go_on.push(first);
    }
    own.leased = ledger.nothing(class);
    if own.waiting.is_empty() {
        ledger.leave(id, class);
        if is_used {
            own.leased = ledger.lease(id, class);
        }
    }
    own.left = own.leased;
    own.lease_ends = (!own.left.is_spent()).then(|| now + SLICE);
    ledger.member(id).waiting[class as usize] = own.waiting.len() as u64;
}

impl Drop for Meter {
    fn drop(&mut self) {
        let left = [self.classes[0].left, self.classes[1].left];
        self.account.remove(self.id, left);
    }
}
