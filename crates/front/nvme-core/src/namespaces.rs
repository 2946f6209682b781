//! The namespaces that a host sees.

use std::rc::Rc;

use weir_nvme::Nqn;

use crate::snapshot::Namespace;

/// A namespace on one reactor.
pub type Attached = weir_front::Attached<Namespace>;

/// The namespaces that one host sees of one subsystem on one reactor, in the order of their NSIDs.
#[derive(Default, Clone)]
pub struct Namespaces(Vec<Rc<Attached>>);

impl Namespaces {
    /// These, in the order of their NSIDs.
    pub fn new(mut attached: Vec<Rc<Attached>>) -> Self {
        attached.sort_by_key(|attached| attached.export.nsid);
        Namespaces(attached)
    }

    /// Those of a subsystem's that `host` sees.
    pub fn visible_to(mut attached: Vec<Rc<Attached>>, host: &Nqn) -> Self {
        attached.retain(|attached| attached.export.visible_to.allows(host));
        Namespaces::new(attached)
    }

    /// The active namespace of that number.
    pub fn get(&self, nsid: u32) -> Option<&Rc<Attached>> {
        // Most often NSIDs run from 1 without gaps.
        if let Some(attached) = self.0.get(nsid.wrapping_sub(1) as usize)
            && attached.export.nsid == nsid
        {
            return Some(attached);
        }
        let index = self
            .0
            .binary_search_by_key(&nsid, |attached| attached.export.nsid);
        index.ok().map(|index| &self.0[index])
    }

    /// Yields all, in the order of their NSIDs.
    pub fn iter(&self) -> impl Iterator<Item = &Rc<Attached>> {
        self.0.iter()
    }
}
