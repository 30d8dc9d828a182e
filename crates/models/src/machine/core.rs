//! One core: its threads, its socket, its caches.

use super::Unknown;
use super::core_list::CoreSet;
use super::sysfs::SysFiles;
use std::path::{Path, PathBuf};

/// A core that is online.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Core {
    /// The numbers that are threads of the same core, this one included.
    pub(super) threads: CoreSet,
    /// `None` where the machine does not report it.
    pub(super) socket: Option<u32>,
    /// Those that data go through.
    pub(super) caches: Vec<Cache>,
}

/// A cache of a core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cache {
    /// From 1.
    pub(super) level: u8,
    /// 0 where the machine does not report it.
    pub(super) bytes: u64,
    /// The cores that use it, this one included.
    pub(super) shared_by: CoreSet,
}

impl Core {
    pub(super) fn read(
        tree: &SysFiles,
        number: u32,
        online: &CoreSet,
        or_unknown: &mut impl FnMut(Unknown),
    ) -> Self {
        let directory = PathBuf::from(format!("sys/devices/system/cpu/cpu{number}"));
        let topology = directory.join("topology");
        // The second name is what kernels before 5.3 have.
        let threads = tree
            .list(topology.join("core_cpus_list"))
            .or_else(|| tree.list(topology.join("thread_siblings_list")))
            .map(|threads| with(number, &threads, online));
        if threads.is_none() {
            or_unknown(Unknown::Threads);
        }
        // Without information from the firmware the kernel reports -1.
        let socket = tree.number(topology.join("physical_package_id"));
        if socket.is_none() {
            or_unknown(Unknown::Sockets);
        }
        let caches = Cache::read_all(tree, &directory.join("cache"), number, online);
        if caches.is_empty() {
            or_unknown(Unknown::Caches);
        }
        Core { threads: threads.unwrap_or_else(|| CoreSet::from([number])), socket, caches }
    }
}

impl Cache {
    fn read_all(tree: &SysFiles, directory: &Path, number: u32, online: &CoreSet) -> Vec<Self> {
        let indices = tree.numbered(directory, "index");
        let read =
            |index| Self::read(tree, &directory.join(format!("index{index}")), number, online);
        indices.into_iter().filter_map(read).collect()
    }

    /// Returns `None` for instruction caches, and for caches without a level or a list of cores.
    fn read(tree: &SysFiles, directory: &Path, number: u32, online: &CoreSet) -> Option<Self> {
        /// No machine has so many levels: fingerprints have a place for each.
        const LEVELS: u8 = 16;
        if tree.line(directory.join("type"))? == "Instruction" {
            return None;
        }
        let level = tree
            .line(directory.join("level"))?
            .parse()
            .ok()
            .filter(|level| (1..=LEVELS).contains(level))?;
        let shared_by = with(number, &tree.list(directory.join("shared_cpu_list"))?, online);
        let bytes = tree.line(directory.join("size")).and_then(|size| bytes_of(&size)).unwrap_or(0);
        Some(Cache { level, bytes, shared_by })
    }
}

/// The cores of a list that are online, with this one.
fn with(number: u32, list: &CoreSet, online: &CoreSet) -> CoreSet {
    let mut cores: CoreSet = list.intersection(online).copied().collect();
    cores.insert(number);
    cores
}

/// `1024K` and the like.
fn bytes_of(size: &str) -> Option<u64> {
    let digits = size.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let unit: u64 = match &size[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}
