//! What commands of a session may look at.

use std::rc::Rc;
use std::sync::Arc;

use weir_front::{Attached, GroupCounters, IoCounters, Line};
use weir_iscsi::names::Name;
use weir_memory::Pool;
use weir_reservation::{Access, Registrant};

use crate::config::{IscsiConfig, PORTAL_GROUP};
use crate::protocol::{IscsiProtocol, SessionInfo};
use crate::registry::{Nexus, Shared};
use crate::served::Lun;

/// A logical unit on one reactor.
pub(crate) type AttachedLun = Attached<Lun>;

/// What commands of a session may look at.
pub(crate) struct Scene {
    pub(crate) line: Line<IscsiProtocol>,
    info: Option<Arc<SessionInfo>>,
    /// The session; none before its login has ended, and none of a discovery session.
    pub(crate) shared: Option<Arc<Shared>>,
    /// Who it is to reservations; none where there is no session.
    pub(crate) registrant: Option<Registrant>,
    /// What the initiator sees, by number.
    luns: Vec<Rc<AttachedLun>>,
    counters: Option<Arc<GroupCounters>>,
    no_counters: IoCounters,
}

impl Scene {
    pub(crate) fn new(line: Line<IscsiProtocol>) -> Self {
        Scene {
            line,
            info: None,
            shared: None,
            registrant: None,
            luns: Vec::new(),
            counters: None,
            no_counters: IoCounters::default(),
        }
    }

    pub(crate) fn config(&self) -> &IscsiConfig {
        &self.line.shard.shared.own.config
    }

    pub(crate) fn pool(&self) -> &Pool {
        self.line.shard.hub.reactor.pool()
    }

    /// Where I/O of this session is counted.
    #[inline]
    pub(crate) fn counters(&self) -> &IoCounters {
        match &self.counters {
            Some(counters) => &counters.by_reactor[self.line.shard.index],
            None => &self.no_counters,
        }
    }

    /// The session is there.
    pub(crate) fn enter(&mut self, info: Arc<SessionInfo>, shared: Option<Arc<Shared>>) {
        if let Some(shared) = &shared {
            self.counters = self.line.shard.shared.own.groups.get(&shared.nexus.target);
            self.registrant = Some(registrant_of(&shared.nexus));
        }
        (self.info, self.shared) = (Some(info), shared);
    }

    /// The initiator, once it has logged in.
    pub(crate) fn initiator(&self) -> Option<&Name> {
        self.info.as_ref().map(|info| &info.initiator)
    }

    /// The target that the session is with.
    pub(crate) fn target(&self) -> Option<&Name> {
        self.shared.as_ref().map(|shared| &shared.nexus.target)
    }

    /// Tells whether reservations of a logical unit let the initiator use it so.
    #[inline]
    pub(crate) fn allows(&self, lun: &AttachedLun, access: Access) -> bool {
        match (&lun.export.reservations, &self.registrant) {
            (Some(reservations), Some(registrant)) => reservations.allows(registrant, access),
            _ => true,
        }
    }

    /// The logical unit of that number that the initiator sees.
    #[inline]
    pub(crate) fn lun(&self, number: u16) -> Option<&Rc<AttachedLun>> {
        // Most often they are numbered from 0 without gaps.
        match self.luns.get(usize::from(number)) {
            Some(lun) if lun.export.number == number => Some(lun),
            _ => self.search(number),
        }
    }

    #[inline(never)]
    fn search(&self, number: u16) -> Option<&Rc<AttachedLun>> {
        let index = self
            .luns
            .binary_search_by_key(&number, |lun| lun.export.number);
        index.ok().map(|index| &self.luns[index])
    }

    /// All logical units that the initiator sees, by number.
    pub(crate) fn luns(&self) -> &[Rc<AttachedLun>] {
        &self.luns
    }

    /// Takes over what the initiator sees now. False: it may not use the target any more.
    pub(crate) fn renew(&mut self) -> bool {
        let Some(shared) = &self.shared else {
            return true;
        };
        let (initiator, target) = (&shared.nexus.initiator, &shared.nexus.target);
        let snapshot = self.line.shard.snapshot();
        let found = snapshot.target(target);
        self.luns.clear();
        if !found.is_some_and(|target| target.allowed.allows(initiator)) {
            return false;
        }
        self.luns = self.line.shard.exports_of(target);
        self.luns
            .retain(|lun| lun.export.visible_to.allows(initiator));
        self.luns.sort_by_key(|lun| lun.export.number);
        true
    }
}

/// The registrant that the session of a nexus is.
fn registrant_of(nexus: &Nexus) -> Registrant {
    Registrant::Nexus(weir_reservation::Nexus {
        initiator: nexus.initiator.as_str().into(),
        isid: nexus.isid.0,
        target: nexus.target.as_str().into(),
        portal_group: PORTAL_GROUP,
    })
}
