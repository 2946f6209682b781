//! Locks, drains and holds that wait for requests to end. Each is tied to the requests that it waits for, of which the queue below
//! and the lane's own tables tell, and to nothing that comes later.

use std::ops::Range;
use std::rc::Rc;

use weir_block::{Announcement, GUARD_OWNER, InFlight, Token};

use super::super::table::overlaps;
use super::{Lane, Origin, Ticket, User};

/// Holds of one connection on one queue at most: every request of every queue is compared with each of them. What more there are to hold
/// is held together with its neighbours.
const HOLDS_MAX: usize = 64;

/// Waits for a request to end. Who waits is told when this is dropped.
pub(super) enum Tie {
    /// A lock: until it has ended below.
    Lock(Announcement),
    /// A drain: until its user is told.
    Drain(Announcement),
    /// Of a user that is gone: until then its host is kept back from its blocks.
    Hold(#[expect(dead_code, reason = "lets the host go on when dropped")] Rc<Ticket>),
}

impl Tie {
    fn into_announcement(self) -> Option<Announcement> {
        match self {
            Tie::Lock(announcement) | Tie::Drain(announcement) => Some(announcement),
            Tie::Hold(_) => None,
        }
    }
}

impl Lane {
    /// Visits each request that passed and has not ended.
    fn each_passed(&self, mut visit: impl FnMut(InFlight)) {
        for request in self.outgoing.borrow().iter() {
            if request.token.owner != GUARD_OWNER {
                visit(InFlight::of(request.token, &request.operation));
            }
        }
        if let Some(inner) = &*self.inner.borrow() {
            inner.in_flight(&mut |request| {
                if request.token.owner != GUARD_OWNER {
                    visit(request);
                }
            });
        }
    }

    /// Visits each request of the user that has begun, and has not passed.
    fn each_begun(&self, mut visit: impl FnMut(&mut User)) {
        for (_, below) in self.below.borrow_mut().iter_mut() {
            if let Origin::User(user) = &mut below.origin {
                visit(user);
            }
        }
        for (_, entry) in self.emulated.borrow_mut().iter_mut() {
            visit(&mut entry.user);
        }
    }

    /// Visits each request of the user that a lock or a hold keeps back.
    fn each_kept_back(&self, mut visit: impl FnMut(&mut User)) {
        for kept in self.kept_back.borrow_mut().iter_mut() {
            if let Origin::User(user) = &mut kept.origin {
                visit(user);
            }
        }
    }

    pub(super) fn in_flight(&self, visit: &mut dyn FnMut(InFlight)) {
        self.each_passed(&mut *visit);
        self.each_begun(|user| visit(user.request.clone()));
        self.each_kept_back(|user| visit(user.request.clone()));
        for (user, ..) in self.ended.borrow().iter() {
            visit(user.request.clone());
        }
        if let Some(meter) = &*self.meter.borrow() {
            meter.waiting().for_each(|user| visit(user.request.clone()));
        }
    }

    fn tie(&self, token: Token, tie: Tie) {
        let mut ties = self.ties.borrow_mut();
        ties.entry(token).or_default().push(tie);
    }

    /// Takes over what waits for any request; to be dropped when none can take effect any more.
    pub(super) fn take_ties(&self) -> Vec<Announcement> {
        let passed = std::mem::take(&mut *self.ties.borrow_mut());
        let mut all: Vec<Tie> = passed.into_values().flatten().collect();
        self.each_begun(|user| all.append(&mut user.ties));
        self.each_kept_back(|user| all.append(&mut user.ties));
        for (_, below) in self.below.borrow_mut().iter_mut() {
            all.append(&mut below.locks);
        }
        for (user, ..) in self.ended.borrow_mut().iter_mut() {
            all.append(&mut user.ties);
        }
        all.append(&mut self.loosened.borrow_mut());
        all.into_iter().filter_map(Tie::into_announcement).collect()
    }

    /// Has a lock wait for what is below in its range.
    pub(super) fn tie_lock(&self, range: &Range<u64>, acknowledged: &Announcement) {
        let tie = || Tie::Lock(acknowledged.clone());
        self.each_passed(|request| {
            if overlaps(&request.range, range) {
                self.tie(request.token, tie());
            }
        });
        for (_, below) in self.below.borrow_mut().iter_mut() {
            if overlaps(&below.range, range) {
                below.locks.push(tie());
            }
        }
    }

    /// Has a drain wait for all that was taken.
    pub(super) fn tie_drain(&self, all: &Announcement) {
        let tie = || Tie::Drain(all.clone());
        self.each_passed(|request| self.tie(request.token, tie()));
        self.each_begun(|user| user.ties.push(tie()));
        self.each_kept_back(|user| user.ties.push(tie()));
    }

    /// Has everything that `owner` has left here hold its range: what has not begun was cancelled.
    pub(super) fn abandon(&self, owner: u32, announcement: &Announcement) {
        let Some(host) = self.sink.host_of(owner) else {
            return;
        };
        let is_left = |request: &InFlight| request.token.owner == owner && request.kind.modifies();
        let mut left = Vec::new();
        self.each_passed(|request| left.extend(is_left(&request).then_some(request.range)));
        self.each_begun(|user| {
            let request = &user.request;
            left.extend(is_left(request).then(|| self.range_below(request)));
        });
        left.sort_by_key(|range| range.start);
        let each = left.len().div_ceil(HOLDS_MAX).max(1);
        let hold = |together: &[Range<u64>]| {
            let ends = together.iter().map(|range| range.end);
            let range = together[0].start..ends.max().expect("a chunk has one at least");
            let id = self.guard.table.hold(range.clone(), host, announcement);
            (range, Rc::new(self.ticket(id)))
        };
        let holds: Vec<_> = left.chunks(each).map(hold).collect();
        let tie = |range: &Range<u64>| {
            let covers = |held: &Range<u64>| held.start <= range.start && range.end <= held.end;
            let hold = holds.iter().find(|(held, _)| covers(held));
            Tie::Hold(Rc::clone(&hold.expect("each has a hold").1))
        };
        self.each_passed(|request| {
            if is_left(&request) {
                self.tie(request.token, tie(&request.range));
            }
        });
        self.each_begun(|user| {
            if is_left(&user.request) {
                user.ties.push(tie(&self.range_below(&user.request)));
            }
        });
    }
}
