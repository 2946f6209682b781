//! Exports, and the tree of names that leads to them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use weir_files::FileSystem;

use crate::volumes::{VolumeFile, VolumeFiles};

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// An address of it.
    pub address: IpAddr,
    /// The bits that all its addresses have in common.
    pub prefix: u8,
}

impl Network {
    /// Tells whether it has an address. One of IPv4 that came in the form of IPv6 is one of IPv4.
    #[must_use]
    pub fn has(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differ = own.to_bits() ^ other.to_bits();
                differ.leading_zeros() >= self.prefix.into()
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differ = own.to_bits() ^ other.to_bits();
                differ.leading_zeros() >= self.prefix.into()
            }
            _ => false,
        }
    }
}

/// Clients that may use an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allowed {
    /// Everybody who can reach it.
    Any,
    /// Clients with such addresses.
    These(Vec<Network>),
}

impl Allowed {
    /// Tells whether a client at this address may.
    #[must_use]
    pub fn has(&self, address: IpAddr) -> bool {
        match self {
            Allowed::Any => true,
            Allowed::These(networks) => networks.iter().any(|network| network.has(address)),
        }
    }
}

/// Source of an export's files.
#[derive(Clone)]
pub enum Source {
    /// A file system.
    Files(Arc<dyn FileSystem>),
    /// Volumes, each of them a file.
    Volumes(Arc<VolumeFiles>),
}

impl Source {
    /// The volumes, where it is of volumes.
    pub(crate) fn volumes(&self) -> &[VolumeFile] {
        match self {
            Source::Files(_) => &[],
            Source::Volumes(volumes) => volumes.files(),
        }
    }
}

/// One export.
#[derive(Clone)]
pub struct Export {
    /// Its number, which its handles have in them: another export never has it.
    pub number: u32,
    /// Path at which clients see it: names with slashes between them, none at the ends.
    pub path: Arc<str>,
    /// Source of its files.
    pub source: Source,
    /// Its identity for clients (fsid).
    pub fsid: (u64, u64),
    /// Forbids every change.
    pub is_read_only: bool,
    /// Clients that may use it.
    pub allowed: Allowed,
}

/// All that is served.
#[derive(Clone, Default)]
pub(crate) struct Snapshot {
    exports: BTreeMap<u32, Export>,
    /// By the number of the place: the first is the root.
    places: Vec<Place>,
    /// Grows with each snapshot.
    generation: u64,
}

/// A directory that is on no file system: it leads to exports.
#[derive(Clone, Default)]
pub(crate) struct Place {
    /// Its path.
    pub(crate) path: String,
    /// Its parent.
    pub(crate) parent: usize,
    /// Its entries.
    pub(crate) children: BTreeMap<String, Leads>,
}

/// Target of a name in a [`Place`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leads {
    /// Another one.
    Place(usize),
    /// An export, by its number.
    Export(u32),
}

impl Snapshot {
    /// A snapshot of these exports. No path is, or is within, another's.
    ///
    /// # Panics
    /// When one is.
    pub(crate) fn new(exports: Vec<Export>, generation: u64) -> Self {
        let mut places = vec![Place::default()];
        for export in &exports {
            let mut at = 0;
            let mut names = export.path.split('/').peekable();
            while let Some(name) = names.next() {
                let known = places[at].children.get(name).copied();
                if names.peek().is_none() {
                    assert!(known.is_none(), "exports do not nest");
                    let leads = Leads::Export(export.number);
                    places[at].children.insert(name.to_owned(), leads);
                    break;
                }
                at = match known {
                    Some(Leads::Place(place)) => place,
                    Some(Leads::Export(_)) => panic!("exports do not nest"),
                    None => {
                        let path = format!("{}/{name}", places[at].path);
                        let place = places.len();
                        places.push(Place {
                            path,
                            parent: at,
                            children: BTreeMap::new(),
                        });
                        let leads = Leads::Place(place);
                        places[at].children.insert(name.to_owned(), leads);
                        place
                    }
                };
            }
        }
        if exports.is_empty() {
            places.truncate(1);
        }
        let exports = exports.into_iter().map(|export| (export.number, export));
        Snapshot {
            exports: exports.collect(),
            places,
            generation,
        }
    }

    /// The export of a number.
    pub(crate) fn export(&self, number: u32) -> Option<&Export> {
        self.exports.get(&number)
    }

    /// All exports.
    pub(crate) fn exports(&self) -> impl Iterator<Item = &Export> {
        self.exports.values()
    }

    /// Clients that may use the file of this number that is a volume.
    pub(crate) fn allowed_of(&self, file: u32) -> Option<&Allowed> {
        let has_file = |export: &&Export| match &export.source {
            Source::Files(_) => false,
            Source::Volumes(volumes) => volumes.file(file).is_some(),
        };
        self.exports().find(has_file).map(|export| &export.allowed)
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// A place by its number; the root is always there.
    pub(crate) fn place(&self, number: usize) -> Option<&Place> {
        self.places.get(number)
    }

    /// Number and place of every one.
    pub(crate) fn places(&self) -> impl Iterator<Item = (usize, &Place)> {
        self.places.iter().enumerate()
    }

    /// The place in which an export is.
    pub(crate) fn place_of(&self, export: u32) -> usize {
        let is_in = |place: &Place| {
            let mut leads = place.children.values();
            leads.any(|leads| *leads == Leads::Export(export))
        };
        self.places.iter().position(is_in).unwrap_or(0)
    }

    /// Tells whether a client at this address sees anything through a name.
    pub(crate) fn is_seen(&self, leads: Leads, address: IpAddr) -> bool {
        match leads {
            Leads::Export(number) => self
                .export(number)
                .is_some_and(|export| export.allowed.has(address)),
            Leads::Place(place) => self.places[place]
                .children
                .values()
                .any(|&leads| self.is_seen(leads, address)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_their_addresses() {
        let network = |address: &str, prefix| Network {
            address: address.parse().expect("an address"),
            prefix,
        };
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let private = network("10.1.2.0", 24);
        assert!(private.has(address("10.1.2.255")) && !private.has(address("10.1.3.1")));
        assert!(private.has(address("::ffff:10.1.2.7")));
        assert!(!private.has(address("::1")));
        assert!(network("0.0.0.0", 0).has(address("255.255.255.255")));
        let one = network("fe80::1", 128);
        assert!(one.has(address("fe80::1")) && !one.has(address("fe80::2")));
        assert!(!Allowed::These(Vec::new()).has(address("10.0.0.1")));
    }
}
