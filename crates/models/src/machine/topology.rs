//! The machine: its cores, the caches they share, its sockets, and the distance of two cores.
//!
//! Everything is read from `/sys` and `/proc`, where the kernel reports it as text (its
//! documentation, "How CPU topology info is exported via sysfs", and the ABI description of
//! `/sys/devices/system/cpu/`). A library such as hwloc would know more, such as devices, but has
//! to be installed with its headers before tradewind can be built, and reads the same files.
//!
//! A **core** is what the kernel numbers and programs are bound to. Where cores have hardware
//! threads, each thread has a number; the numbers that are threads of one core are
//! [same-core](models::machine::PairClass::SameCore) to each other.
//!
//! Nothing here fails. Containers hide files, virtual machines hide caches: what could not be found
//! out is [said](Topology::unknown), with what is assumed instead.
//!
//! ```
//! let machine = models::machine::Topology::here();
//! println!("{:?}", machine.fingerprint());
//! for (class, (one, other)) in machine.pairs() {
//!     println!("{class}: cores {one} and {other}");
//! }
//! for unknown in machine.unknown() {
//!     println!("{unknown}");
//! }
//! ```

use super::core::{Cache, Core};
use super::core_list::CoreSet;
use super::sysfs::SysFiles;
use super::{Fingerprint, PairClass, Unknown, processor};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The cores, caches and sockets of this machine, read once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// The cores that are online.
    cores: BTreeMap<u32, Core>,
    /// Those of them that this process may use.
    usable: CoreSet,
    fingerprint: Fingerprint,
    unknown: BTreeSet<Unknown>,
}

impl Topology {
    /// Reads this machine.
    pub fn here() -> Self {
        Self::read(Path::new("/"))
    }

    /// Reads a machine from `/sys` and `/proc` below this directory.
    pub fn read(root: &Path) -> Self {
        let tree = SysFiles::new(root);
        let mut unknown = BTreeSet::new();
        let mut or_unknown = |what| {
            unknown.insert(what);
        };
        let allowed = tree.allowed();
        if allowed.is_none() {
            or_unknown(Unknown::Allowed);
        }
        let online = tree.online().or_else(|| allowed.clone()).unwrap_or_else(|| {
            or_unknown(Unknown::Cores);
            CoreSet::from([0])
        });
        let cores: BTreeMap<u32, Core> = online
            .iter()
            .map(|core| (*core, Core::read(&tree, *core, &online, &mut or_unknown)))
            .collect();
        let usable: CoreSet = match &allowed {
            Some(allowed) if !allowed.is_disjoint(&online) => {
                online.intersection(allowed).copied().collect()
            }
            _ => online.clone(),
        };
        let fingerprint = fingerprint(&tree, &cores, &mut or_unknown);
        Topology { cores, usable, fingerprint, unknown }
    }

    /// The cores that this process may use and that are online, in ascending order; never empty.
    pub fn usable(&self) -> Vec<u32> {
        self.usable.iter().copied().collect()
    }

    /// Returns the properties that distinguish this machine from others.
    ///
    /// It has the cores that are online and that the control group leaves to its processes
    /// (cpuset), whatever this process is bound to: a rank on one core finds the same machine as
    /// the command that measured it.
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    /// Returns the distance of two cores. An unknown core counts as one of the same socket.
    pub fn class_of(&self, one: u32, other: u32) -> PairClass {
        if one == other {
            return PairClass::SameCore;
        }
        let (Some(core), Some(its_peer)) = (self.cores.get(&one), self.cores.get(&other)) else {
            return PairClass::SameSocket;
        };
        if core.threads.contains(&other) {
            PairClass::SameCore
        } else if core.socket != its_peer.socket {
            PairClass::OtherSocket
        } else if core
            .caches
            .iter()
            .any(|cache| cache.shared_by.contains(&other) && self.is_inner(core, cache))
        {
            PairClass::SharedCache
        } else {
            PairClass::SameSocket
        }
    }

    /// For every class of pairs among the [usable](Self::usable) cores the first pair of it; a core
    /// with itself is one.
    pub fn pairs(&self) -> BTreeMap<PairClass, (u32, u32)> {
        self.pairs_among(&self.usable())
    }

    /// For every class of pairs among these cores the first pair of it; a core with itself is one.
    pub fn pairs_among(&self, cores: &[u32]) -> BTreeMap<PairClass, (u32, u32)> {
        let mut pairs = BTreeMap::new();
        for (place, one) in cores.iter().enumerate() {
            for other in &cores[place..] {
                pairs.entry(self.class_of(*one, *other)).or_insert((*one, *other));
            }
        }
        pairs
    }

    /// Returns the properties that could not be determined; their texts state the assumption
    /// instead.
    pub fn unknown(&self) -> impl Iterator<Item = Unknown> {
        self.unknown.iter().copied()
    }

    /// Returns `true` if a cache is nearer to its core than the last level of the socket: of a
    /// lower level, or one of several.
    fn is_inner(&self, core: &Core, cache: &Cache) -> bool {
        let mut socket = self.cores.iter().filter(|(_, other)| other.socket == core.socket);
        let last = core.caches.iter().map(|cache| cache.level).max();
        Some(cache.level) < last || socket.any(|(number, _)| !cache.shared_by.contains(number))
    }
}

fn fingerprint(
    tree: &SysFiles,
    cores: &BTreeMap<u32, Core>,
    or_unknown: &mut impl FnMut(Unknown),
) -> Fingerprint {
    let group = tree.cpuset().filter(|group| cores.keys().any(|core| group.contains(core)));
    let ours: Vec<&Core> = cores
        .iter()
        .filter(|(number, _)| group.as_ref().is_none_or(|group| group.contains(number)))
        .map(|(_, core)| core)
        .collect();
    let count = |of: usize| u32::try_from(of).unwrap_or(u32::MAX);
    let distinct: BTreeSet<&CoreSet> = ours.iter().map(|core| &core.threads).collect();
    let sockets: BTreeSet<Option<u32>> = ours.iter().map(|core| core.socket).collect();
    let mut caches: Vec<u64> = Vec::new();
    for cache in ours.iter().flat_map(|core| &core.caches) {
        let place = usize::from(cache.level) - 1;
        caches.resize(caches.len().max(place + 1), 0);
        caches[place] = caches[place].max(cache.bytes);
    }
    let processor = processor::model(tree);
    if processor.is_none() {
        or_unknown(Unknown::Processor);
    }
    let kernel = tree.line("proc/sys/kernel/osrelease");
    if kernel.is_none() {
        or_unknown(Unknown::Kernel);
    }
    Fingerprint {
        processor: processor.unwrap_or_default(),
        cores: count(distinct.len()),
        threads_per_core: count(ours.iter().map(|core| core.threads.len()).max().unwrap_or(1)),
        sockets: count(sockets.len()),
        caches,
        kernel: kernel.unwrap_or_default(),
        hypervisor: processor::hypervisor(tree),
    }
}
