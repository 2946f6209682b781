//! `stripe:` spreads blocks over several volumes, chunk by chunk (RAID 0). It adds speed and room, and no safety: the loss
//! of one member is the loss of all.
//!
//! Every member carries a label ([`label::Label`]), so that members may be named in any order, and a wrong or missing one is
//! refused by name. A request that lies in one chunk goes to its member as it is; one that does not becomes one request to
//! each member that it touches, and the first error is its result.

pub(crate) mod label;
mod lane;
mod layout;
mod open;

use std::rc::Rc;
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;

use weir_block::{
    CompletionSink, FenceReply, Geometry, HealthFuture, HealthReport, Queue, ResizeError,
    ResizeFuture, Volume, VolumeError, VolumeEvent, Watcher,
};
use weir_reactor::Reactor;

use crate::mailbox::WhenAll;
use crate::support::{Watchers, lock};
use layout::Layout;

pub(crate) use open::open;

/// A set of volumes as one. See the module.
pub struct StripeVolume {
    name: String,
    members: Vec<Arc<dyn Volume>>,
    layout: Layout,
    geometry: Geometry,
    watchers: Watchers,
    /// Where each member stands.
    standings: Mutex<Vec<Standing>>,
    /// Held while what became of the set is told, so that it is told in the order in which it came about. Taken before `standings`.
    telling: Mutex<()>,
    /// Kept, because members refer to their watchers weakly.
    member_watchers: Vec<Arc<MemberWatcher>>,
}

/// Where a member stands: whether it is lost, and whether it has left requests unanswered that may take effect still.
#[derive(Clone, Copy, Default)]
struct Standing {
    lost: bool,
    unfenced: bool,
}

impl Standing {
    /// Of all members together.
    fn of_all(members: &[Standing]) -> Self {
        Standing {
            lost: members.iter().any(|member| member.lost),
            unfenced: members.iter().any(|member| member.unfenced),
        }
    }
}

/// Tells the set what happens to one member.
struct MemberWatcher {
    set: Weak<StripeVolume>,
    member: usize,
}

impl Watcher for MemberWatcher {
    fn notice(&self, event: VolumeEvent) {
        if let Some(set) = self.set.upgrade() {
            set.member_event(self.member, event);
        }
    }
}

impl StripeVolume {
    fn new(
        name: String,
        members: Vec<Arc<dyn Volume>>,
        layout: Layout,
        geometry: Geometry,
    ) -> Arc<Self> {
        let set = Arc::new_cyclic(|set: &Weak<StripeVolume>| StripeVolume {
            name,
            layout,
            geometry,
            watchers: Watchers::default(),
            standings: Mutex::new(vec![Standing::default(); members.len()]),
            telling: Mutex::default(),
            member_watchers: (0..members.len())
                .map(|member| {
                    let set = Weak::clone(set);
                    Arc::new(MemberWatcher { set, member })
                })
                .collect(),
            members,
        });
        for (member, watcher) in set.members.iter().zip(&set.member_watchers) {
            let watcher: Weak<MemberWatcher> = Arc::downgrade(watcher);
            member.watch(watcher);
        }
        set
    }

    /// The set is lost with the first member that is, and restored with the last; and so with what is unfenced. Its size is the
    /// label's, whatever its members' are.
    fn member_event(&self, member: usize, event: VolumeEvent) {
        let telling = lock(&self.telling);
        let mut standings = lock(&self.standings);
        let before = Standing::of_all(&standings);
        let one = &mut standings[member];
        match event {
            VolumeEvent::Lost => one.lost = true,
            VolumeEvent::Restored => one.lost = false,
            VolumeEvent::Unfenced => one.unfenced = true,
            VolumeEvent::Fenced => one.unfenced = false,
            VolumeEvent::Resized | VolumeEvent::CacheLost => {}
        }
        let now = Standing::of_all(&standings);
        drop(standings);
        let is_news = (now.lost, now.unfenced) != (before.lost, before.unfenced);
        if is_news || event == VolumeEvent::CacheLost {
            self.watchers.tell(event);
        }
        drop(telling);
    }
}

impl Volume for StripeVolume {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn watch(&self, watcher: Weak<dyn Watcher>) {
        self.watchers.add(watcher);
    }

    fn open_queue(
        self: Arc<Self>,
        reactor: &Reactor,
        depth: u32,
        sink: Rc<dyn CompletionSink>,
    ) -> Result<Box<dyn Queue>, VolumeError> {
        Ok(Box::new(lane::StripeQueue::open(
            self, reactor, depth, sink,
        )?))
    }

    fn fence(&self, reply: FenceReply) {
        let all = WhenAll::new(reply);
        for member in &self.members {
            let all = Arc::clone(&all);
            member.fence(Box::new(move |result| {
                if let Err(error) = result {
                    all.fail(error);
                }
            }));
        }
    }

    fn resize(self: Arc<Self>, _: &Reactor, _: u64, _: bool) -> ResizeFuture {
        Box::pin(std::future::ready(Err(ResizeError::Unsupported {
            kind: "stripe",
        })))
    }

    /// That of all members together.
    /// Asks all members at the same time.
    fn health(&self, reactor: &Reactor) -> HealthFuture {
        let members = self.members.iter();
        let asked: Vec<_> = members
            .map(|member| (member.name(), Answer::Awaited(member.health(reactor))))
            .collect();
        Box::pin(all_told(asked))
    }
}

/// What becomes of asking a member.
enum Answer {
    Awaited(HealthFuture),
    Told(Box<HealthReport>),
}

/// What members say, as one: where one says nothing, nobody knows what all of them would say.
async fn all_told(mut members: Vec<(String, Answer)>) -> HealthReport {
    std::future::poll_fn(|context| {
        let mut all = Poll::Ready(());
        for (_, answer) in &mut members {
            if let Answer::Awaited(asked) = answer {
                match asked.as_mut().poll(context) {
                    Poll::Ready(report) => *answer = Answer::Told(Box::new(report)),
                    Poll::Pending => all = Poll::Pending,
                }
            }
        }
        all
    })
    .await;
    let mut set = HealthReport::default();
    let mut healths = Vec::new();
    for (member, answer) in members {
        let Answer::Told(report) = answer else {
            unreachable!("all are awaited")
        };
        healths.push(report.health);
        set.drives.extend(report.drives);
        let unknown = report.unknown.into_iter();
        set.unknown
            .extend(unknown.map(|reason| format!("{member}: {reason}")));
    }
    let each: Option<Vec<_>> = healths.into_iter().collect();
    set.health = each.and_then(|each| each.into_iter().reduce(weir_block::Health::with));
    set
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Access, NullVolume, VolumeUrl};

    /// Hears that a set is fenced, and takes its time.
    struct Slow(std::sync::mpsc::Sender<()>);

    impl Watcher for Slow {
        fn notice(&self, event: VolumeEvent) {
            if event == VolumeEvent::Fenced {
                let _ = self.0.send(());
                std::thread::sleep(Duration::from_millis(200));
            }
        }
    }

    #[derive(Default)]
    struct Heard(Mutex<Vec<VolumeEvent>>);

    impl Watcher for Heard {
        fn notice(&self, event: VolumeEvent) {
            lock(&self.0).push(event);
        }
    }

    #[test]
    fn what_becomes_of_members_is_told_in_the_order_in_which_it_came_about() {
        let url: VolumeUrl = "null:?size=1M".parse().unwrap();
        let member = || -> Arc<dyn Volume> { NullVolume::open(&url, Access::READ_WRITE).unwrap() };
        let members = vec![member(), member()];
        let layout = Layout {
            members: 2,
            chunk: 1,
            data_start: 0,
        };
        let geometry = members[0].geometry();
        let set = StripeVolume::new("stripe:".to_owned(), members, layout, geometry);
        let (entered, is_told) = std::sync::mpsc::channel();
        let (slow, heard) = (Arc::new(Slow(entered)), Arc::new(Heard::default()));
        let watchers: [Weak<dyn Watcher>; 2] = [
            Arc::<Slow>::downgrade(&slow),
            Arc::<Heard>::downgrade(&heard),
        ];
        watchers.into_iter().for_each(|watcher| set.watch(watcher));
        set.member_event(0, VolumeEvent::Unfenced);
        std::thread::scope(|scope| {
            scope.spawn(|| set.member_event(0, VolumeEvent::Fenced));
            is_told.recv().unwrap();
            set.member_event(1, VolumeEvent::Unfenced);
        });
        set.member_event(1, VolumeEvent::CacheLost);
        let expected = [
            VolumeEvent::Unfenced,
            VolumeEvent::Fenced,
            VolumeEvent::Unfenced,
            VolumeEvent::CacheLost,
        ];
        assert_eq!(*lock(&heard.0), expected);
    }
}
