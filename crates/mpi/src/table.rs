//! The blocking collectives that run here: those that are faster than the MPI library's, by the
//! table of `tradewind tune --mpi`, or those that the user names.
//!
//! Rank 0 reads the table and sends what concerns the job to all ranks, so all decide alike.

use crate::report::Kind;
use models::file::FileError;
use models::machine::Topology;
use models::mpi_table::MpiTable;
use std::path::Path;
use std::sync::OnceLock;

/// Number of blocking collectives.
pub(crate) const BLOCKING: usize = Kind::BLOCKING.len();

/// Calls with lengths that only some ranks have. They run here if that is faster at all lengths.
const HAVE_UNKNOWN_LENGTHS: [Kind; 5] = [
    Kind::Gatherv,
    Kind::Scatterv,
    Kind::Alltoallv,
    Kind::Neighbor_allgatherv,
    Kind::Neighbor_alltoallv,
];

/// The sizes at which one blocking collective on one communicator runs here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sizes {
    /// First and last sizes in bytes, ascending.
    ranges: Vec<(u64, u64)>,
    /// All sizes.
    pub(crate) all: bool,
    /// `--only` selects it.
    pub(crate) is_forced: bool,
}

impl Sizes {
    const FORCED: Sizes = Sizes { ranges: Vec::new(), all: true, is_forced: true };

    #[inline]
    pub(crate) fn contain(&self, bytes: u64) -> bool {
        let mut ranges = self.ranges.iter();
        self.is_forced || ranges.any(|(first, last)| (*first..=*last).contains(&bytes))
    }
}

/// The sizes of all blocking collectives on one communicator.
pub(crate) type SizesByKind = Box<[Option<Sizes>]>;

/// The sizes of one collective on communicators of one size.
#[derive(Clone, Debug)]
struct Entry {
    kind: usize,
    ranks: u32,
    sizes: Sizes,
}

/// The blocking collectives of a job that run here.
#[derive(Debug, Default)]
pub(crate) struct Takeover {
    /// Collectives that the user names, a bit for each kind.
    forced: u128,
    /// There is a table, which may select none.
    pub(crate) is_measured: bool,
    entries: Vec<Entry>,
}

static TAKEOVER: OnceLock<Takeover> = OnceLock::new();

impl Takeover {
    /// The entries of a table for a job of this number of ranks with this library.
    pub(crate) fn read(path: &Path, library: &str, job: u32) -> Result<Self, FileError> {
        let table = MpiTable::read_for(path, Topology::here().fingerprint())?;
        let entries = table.rows(library, job).filter_map(|row| {
            let kind = Kind::BLOCKING.iter().position(|kind| kind.name() == row.collective)?;
            let ranges: Vec<_> = row.taken().iter().map(|one| (*one.start(), *one.end())).collect();
            let all = row.is_taken_at_any_size();
            if HAVE_UNKNOWN_LENGTHS.contains(&Kind::BLOCKING[kind]) && !all {
                return None;
            }
            let sizes = Sizes { ranges, all, is_forced: false };
            (!sizes.ranges.is_empty()).then_some(Entry { kind, ranks: row.ranks, sizes })
        });
        Ok(Takeover { forced: 0, is_measured: true, entries: entries.collect() })
    }

    /// The entries in a message of rank 0; those before the first that is incomplete. Without a table
    /// it is empty.
    pub(crate) fn from_message(message: &[u8]) -> Self {
        let mut words = message
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(*word.first_chunk().unwrap_or(&[0; 8])));
        let is_measured = words.next().is_some();
        let mut entries = Vec::new();
        while let Some(head) = words.next() {
            let Some(ranges) =
                (0..head >> 48).map(|_| Some((words.next()?, words.next()?))).collect()
            else {
                break;
            };
            let kind = (head >> 32 & 0xff) as usize;
            let all = head >> 40 & 1 == 1;
            let sizes = Sizes { ranges, all, is_forced: false };
            entries.push(Entry { kind, ranks: head as u32, sizes });
        }
        Takeover { forced: 0, is_measured, entries }
    }

    /// The entries as a message: their number, and for each a word with its call and its number of
    /// ranges, and those.
    pub(crate) fn to_message(&self) -> Vec<u8> {
        let mut words = vec![self.entries.len() as u64];
        for Entry { kind, ranks, sizes } in &self.entries {
            let length = sizes.ranges.len() as u64;
            let head = length << 48 | u64::from(sizes.all) << 40 | (*kind as u64) << 32;
            words.push(head | u64::from(*ranks));
            words.extend(sizes.ranges.iter().flat_map(|(first, last)| [*first, *last]));
        }
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    /// The same with all calls of these kinds, a bit for each.
    pub(crate) fn with_forced(self, forced: u128) -> Self {
        Takeover { forced, ..self }
    }

    /// The kinds of which some calls run here, a bit for each.
    pub(crate) fn kinds(&self) -> u128 {
        let kinds = self.entries.iter().filter_map(|entry| Kind::BLOCKING.get(entry.kind));
        kinds.fold(self.forced & Kind::ALL_BLOCKING, |kinds, kind| kinds | kind.bit())
    }

    fn sizes(&self, index: usize, ranks: u32) -> Option<Sizes> {
        if self.forced & Kind::BLOCKING[index].bit() != 0 {
            return Some(Sizes::FORCED);
        }
        let mut entries = self.entries.iter();
        let found = entries.find(|entry| entry.kind == index && entry.ranks == ranks)?;
        Some(found.sizes.clone())
    }
}

/// Sets the table of this job, once.
pub(crate) fn set(takeover: Takeover) {
    TAKEOVER.get_or_init(|| takeover);
}

/// The sizes of all blocking collectives on a communicator of this number of ranks on this number
/// of nodes. Between nodes nothing has been measured.
pub(crate) fn sizes_on((ranks, nodes): (u32, u32)) -> SizesByKind {
    let Some(takeover) = TAKEOVER.get().filter(|_| nodes == 1) else { return Box::default() };
    (0..BLOCKING).map(|index| takeover.sizes(index, ranks)).collect()
}
