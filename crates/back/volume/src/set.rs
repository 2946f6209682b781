//! Volumes that are made of others, their members: what all kinds of them have in common.
//!
//! A [`Kind`] says how large a part of each member is used and gives the [`Layout`], which is arithmetic. Everything else is
//! here. Every member carries a label ([`label::Label`]), so that members may be named in any order, and a wrong or missing
//! one is refused by name. A request whose blocks follow one another on one member goes there as it is; any other becomes
//! one request to each member that it touches, and the first error is its result. The loss of one member is the loss of all.

pub(crate) mod label;
mod lane;
mod open;

use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Mutex, Weak};

use weir_block::{
    CompletionSink, FenceReply, Geometry, HealthFuture, HealthReport, Queue, ResizeError,
    ResizeFuture, Volume, VolumeError, VolumeEvent, Watcher,
};
use weir_reactor::{Reactor, Task};

use crate::lane::{Fences, LaneQueue};
use crate::support::{Watchers, lock};
use crate::when_all::WhenAll;
use crate::{Parameters, UrlError};
use label::Label;

pub(crate) use open::open;

/// All kinds of sets.
pub(crate) const KINDS: &[&dyn Kind] = &[&crate::concat::Concat, &crate::stripe::Stripe];

/// A kind of set.
pub(crate) trait Kind: Sync {
    /// The scheme of its URLs, and the word in its members' labels: six letters.
    fn scheme(&self) -> &'static str;

    /// The chunk that a URL asks for, in bytes; none where it asks for none.
    ///
    /// # Errors
    /// It does not fit.
    fn chunk_asked_for(&self, _: &Parameters<'_>) -> Result<Option<u64>, UrlError> {
        Ok(None)
    }

    /// The chunk where none is asked for, in bytes. What is used of a member is a multiple of it.
    fn chunk_bytes(&self) -> u64;

    /// Whether as much is used of every member, so that the shortest decides.
    fn is_even(&self) -> bool;

    /// Where its blocks are; of the labels of its members, in their order.
    fn layout(&self, labels: &[Label]) -> Box<dyn Layout>;
}

/// The kind of this scheme, if it is one of sets.
pub(crate) fn kind_of(scheme: &str) -> Option<&'static dyn Kind> {
    KINDS.iter().copied().find(|kind| kind.scheme() == scheme)
}

/// Where the blocks of a set are. Everything is in blocks.
pub(crate) trait Layout: Send + Sync {
    /// Where a block is.
    fn locate(&self, lba: u64) -> Place;

    /// What a range has on one member, which is one range there; empty where it has nothing there.
    fn on_member(&self, member: usize, lba: u64, blocks: u64) -> Range<u64>;
}

/// Where a block is, and what follows it there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) member: usize,
    pub(crate) lba: u64,
    /// Blocks of the set, this one included, that follow one another here.
    pub(crate) run: u64,
}

/// The part of a range that is in one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) member: usize,
    /// First block on the member.
    pub(crate) lba: u64,
    /// Blocks from the start of the range.
    pub(crate) offset: u64,
    pub(crate) blocks: u64,
}

impl dyn Layout + '_ {
    /// The member that has all of a range, and where, if one has.
    fn single(&self, lba: u64, blocks: u64) -> Option<(usize, u64)> {
        let place = self.locate(lba);
        (blocks <= place.run).then_some((place.member, place.lba))
    }

    /// The pieces of a range, in order.
    fn pieces(&self, lba: u64, blocks: u64) -> impl Iterator<Item = Piece> {
        let mut offset = 0;
        std::iter::from_fn(move || {
            if offset == blocks {
                return None;
            }
            let place = self.locate(lba + offset);
            let piece = Piece {
                member: place.member,
                lba: place.lba,
                offset,
                blocks: place.run.min(blocks - offset),
            };
            offset += piece.blocks;
            Some(piece)
        })
    }
}

/// A set of volumes as one. See the module.
pub struct SetVolume {
    name: String,
    kind: &'static dyn Kind,
    members: Vec<Arc<dyn Volume>>,
    layout: Box<dyn Layout>,
    geometry: Geometry,
    watchers: Watchers,
    fences: Fences,
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
    set: Weak<SetVolume>,
    member: usize,
}

impl Watcher for MemberWatcher {
    fn notice(&self, event: VolumeEvent) {
        if let Some(set) = self.set.upgrade() {
            set.member_event(self.member, event);
        }
    }
}

impl SetVolume {
    fn new(
        name: String,
        kind: &'static dyn Kind,
        members: Vec<Arc<dyn Volume>>,
        layout: Box<dyn Layout>,
        geometry: Geometry,
    ) -> Arc<Self> {
        let set = Arc::new_cyclic(|set: &Weak<SetVolume>| SetVolume {
            name,
            kind,
            layout,
            geometry,
            watchers: Watchers::default(),
            fences: Fences::default(),
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

impl Volume for SetVolume {
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
        let lane = lane::SetLane::new(Arc::clone(&self));
        let queue = LaneQueue::above(lane, &self.members, reactor, depth, sink)?;
        self.fences.add(&queue);
        Ok(Box::new(queue))
    }

    /// Waits until every request taken before is with the members, and fences these.
    fn fence(&self, reply: FenceReply) {
        let members = self.members.clone();
        self.fences.fence(Box::new(move |_| {
            let all = WhenAll::new(reply);
            for member in members {
                let all = Arc::clone(&all);
                member.fence(Box::new(move |result| {
                    if let Err(error) = result {
                        all.fail(error);
                    }
                }));
            }
        }));
    }

    fn resize(self: Arc<Self>, _: &Reactor, _: u64, _: bool) -> ResizeFuture {
        Box::pin(std::future::ready(Err(ResizeError::Unsupported {
            kind: self.kind.scheme(),
        })))
    }

    /// That of all members together, which are asked at the same time.
    fn health(&self, reactor: &Reactor) -> HealthFuture {
        let members = self.members.iter();
        let asked: Vec<_> = members
            .map(|member| (member.name(), reactor.spawn(member.health(reactor))))
            .collect();
        Box::pin(all_told(asked))
    }
}

/// What members say, as one: where one says nothing, nobody knows what all of them would say.
async fn all_told(members: Vec<(String, Task<HealthReport>)>) -> HealthReport {
    let mut set = HealthReport::default();
    let mut healths = Vec::new();
    for (member, asked) in members {
        let report = asked.await;
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
pub(crate) mod tests {
    use std::collections::BTreeSet;
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

    /// That the pieces of a range cover it once, in places of their own, and that each member's are one range without gaps.
    pub(crate) fn check(layout: &dyn Layout, members: usize, range: Range<u64>) {
        let (lba, blocks) = (range.start, range.end - range.start);
        let mut on_members = vec![Vec::new(); members];
        let mut offset = 0;
        for piece in layout.pieces(lba, blocks) {
            assert_eq!(piece.offset, offset);
            assert!(piece.blocks > 0);
            offset += piece.blocks;
            on_members[piece.member].extend(piece.lba..piece.lba + piece.blocks);
        }
        assert_eq!(offset, blocks);
        let places: BTreeSet<_> = range
            .map(|lba| layout.locate(lba))
            .map(|place| (place.member, place.lba))
            .collect();
        assert_eq!(places.len() as u64, blocks);
        for (member, there) in on_members.into_iter().enumerate() {
            let own = layout.on_member(member, lba, blocks);
            assert_eq!(own.collect::<Vec<_>>(), there, "member {member}");
        }
        if let Some((member, at)) = layout.single(lba, blocks) {
            assert_eq!(layout.on_member(member, lba, blocks), at..at + blocks);
        }
    }

    #[test]
    fn what_becomes_of_members_is_told_in_the_order_in_which_it_came_about() {
        let url: VolumeUrl = "null:?size=1M".parse().unwrap();
        let member = || -> Arc<dyn Volume> { NullVolume::open(&url, Access::READ_WRITE).unwrap() };
        let members = vec![member(), member()];
        let geometry = members[0].geometry();
        let kind = KINDS[0];
        let label = Label {
            scheme: kind.scheme(),
            set: [0; 16],
            index: 0,
            members: 2,
            block_bytes: 512,
            chunk_bytes: 4096,
            data_bytes: 4096,
            data_offset: 0,
        };
        let layout = kind.layout(&[label; 2]);
        let set = SetVolume::new("a set".to_owned(), kind, members, layout, geometry);
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
