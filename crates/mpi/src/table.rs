//! The blocking collectives that run here: those that are faster than the MPI library's, by the
//! table of `tradewind tune --mpi`, or those that the user names.
//!
//! Rank 0 reads the table and sends what concerns the job to all ranks, so all decide alike. For a
//! report it also sends the measured times of the MPI library.

use crate::kind::Kind;
use models::file::FileError;
use models::machine::Topology;
use models::mpi_table::{MpiRow, MpiTable};
use std::path::Path;
use std::sync::OnceLock;

/// Calls with lengths that only some ranks have. They run here if that is faster at all lengths.
const HAVE_UNKNOWN_LENGTHS: [Kind; 7] = [
    Kind::Gatherv,
    Kind::Scatterv,
    Kind::Alltoallv,
    Kind::Neighbor_allgather,
    Kind::Neighbor_allgatherv,
    Kind::Neighbor_alltoall,
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

/// Rows of one collective on communicators of one size.
#[derive(Clone, Debug)]
struct Entry {
    /// Blocking or nonblocking.
    kind: Kind,
    ranks: u32,
    /// The sizes at which a blocking one runs here.
    sizes: Sizes,
    /// Times of the MPI library by ascending size, in nanoseconds.
    times: Vec<(u64, u64)>,
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

/// The parts of the table that a job uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    /// The sizes at which blocking collectives run here.
    pub(crate) sizes: bool,
    /// The times of the MPI library.
    pub(crate) times: bool,
}

static TAKEOVER: OnceLock<Takeover> = OnceLock::new();

impl Takeover {
    /// The entries of a table for a job of this number of ranks with this library.
    pub(crate) fn read(
        path: &Path,
        (library, job): (&str, u32),
        parts: Parts,
    ) -> Result<Self, FileError> {
        let table = MpiTable::read_for(path, Topology::here().fingerprint())?;
        let rows = table.rows(library, job);
        let entries = rows.filter_map(|row| Entry::of(row, parts)).collect();
        Ok(Takeover { forced: 0, is_measured: parts.sizes, entries })
    }

    /// The entries in a message of rank 0; those before the first that is incomplete. Without a table
    /// it is empty.
    pub(crate) fn from_message(message: &[u8]) -> Self {
        let mut words = message
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(*word.first_chunk().unwrap_or(&[0; 8])));
        let is_measured = words.next() == Some(1);
        let entries = std::iter::from_fn(|| Entry::next_in(&mut words)).collect();
        Takeover { forced: 0, is_measured, entries }
    }

    /// The entries as a message: whether it is a table for decisions, and the entries.
    pub(crate) fn to_message(&self) -> Vec<u8> {
        let mut words = vec![u64::from(self.is_measured)];
        self.entries.iter().for_each(|entry| entry.add_to(&mut words));
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    /// The same with all calls of these kinds, a bit for each.
    pub(crate) fn with_forced(self, forced: u128) -> Self {
        Takeover { forced, ..self }
    }

    /// The kinds of which some calls run here, a bit for each.
    pub(crate) fn kinds(&self) -> u128 {
        let entries = self.entries.iter().filter(|entry| entry.runs_here());
        let forced = self.forced & Kind::ALL_BLOCKING;
        entries.fold(forced, |kinds, entry| kinds | entry.kind.bit())
    }

    fn entry(&self, kind: Kind, ranks: u32) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.kind == kind && entry.ranks == ranks)
    }

    fn sizes(&self, kind: Kind, ranks: u32) -> Option<Sizes> {
        if self.forced & kind.bit() != 0 {
            return Some(Sizes::FORCED);
        }
        let found = self.entry(kind, ranks).filter(|entry| entry.runs_here())?;
        Some(found.sizes.clone())
    }
}

impl Entry {
    /// The parts of a row that the job uses; `None` if there is nothing in them.
    fn of(row: &MpiRow, parts: Parts) -> Option<Self> {
        let kind = *Kind::ALL.iter().find(|kind| kind.name() == row.collective)?;
        let mut entry =
            Entry { kind, ranks: row.ranks, sizes: Sizes::default(), times: Vec::new() };
        let all = row.is_taken_at_any_size();
        let decides = parts.sizes && Kind::BLOCKING.contains(&kind);
        if decides && (all || !HAVE_UNKNOWN_LENGTHS.contains(&kind)) {
            let taken = row.taken();
            entry.sizes.ranges = taken.iter().map(|one| (*one.start(), *one.end())).collect();
            entry.sizes.all = all;
        }
        if parts.times {
            // As the report has them, which are means of all ranks.
            let times = row.sizes.iter().map(|size| {
                let time = if kind.is_blocking() { size.library_mean } else { Some(size.library) };
                Some((size.bytes, (1e3 * time?) as u64))
            });
            entry.times = times.collect::<Option<_>>().unwrap_or_default();
        }
        (entry.runs_here() || !entry.times.is_empty()).then_some(entry)
    }

    /// Returns whether there are sizes at which the collective runs here.
    fn runs_here(&self) -> bool {
        !self.sizes.ranges.is_empty()
    }

    /// Adds the entry to a message: a word with its call and the lengths of its lists, and the lists.
    fn add_to(&self, words: &mut Vec<u64>) {
        let Entry { kind, ranks, sizes, times } = self;
        let lengths = (sizes.ranges.len() as u64) << 56 | (times.len() as u64) << 48;
        let call = u64::from(sizes.all) << 40 | (*kind as u64) << 32 | u64::from(*ranks);
        words.push(lengths | call);
        let pairs = sizes.ranges.iter().chain(times);
        words.extend(pairs.flat_map(|(first, second)| [*first, *second]));
    }

    /// The next entry of a message, unless it is incomplete.
    fn next_in(words: &mut impl Iterator<Item = u64>) -> Option<Self> {
        let head = words.next()?;
        let mut pairs = |count: u64| {
            (0..count & 0xff).map(|_| Some((words.next()?, words.next()?))).collect::<Option<_>>()
        };
        let ranges = pairs(head >> 56)?;
        let times = pairs(head >> 48)?;
        let kind = *Kind::ALL.get((head >> 32 & 0xff) as usize)?;
        let sizes = Sizes { ranges, all: head >> 40 & 1 == 1, is_forced: false };
        Some(Entry { kind, ranks: head as u32, sizes, times })
    }

    /// The time of the MPI library for this length, between those of the next measured ones; `None`
    /// for lengths above all of them.
    fn time(&self, bytes: u64) -> Option<u64> {
        let next = self.times.partition_point(|(size, _)| *size < bytes);
        let (to, later) = *self.times.get(next)?;
        let Some((from, earlier)) = next.checked_sub(1).map(|last| self.times[last]) else {
            return Some(later);
        };
        let share = (bytes - from) as f64 / (to - from) as f64;
        Some((earlier as f64 + share * (later as f64 - earlier as f64)) as u64)
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
    Kind::BLOCKING.iter().map(|kind| takeover.sizes(*kind, ranks)).collect()
}

/// The time in nanoseconds that a call of this length has taken in the MPI library, as measured on
/// communicators of this number of ranks. That of a persistent collective is that of its nonblocking
/// form.
pub(crate) fn library_time(kind: Kind, ranks: u32, bytes: u64) -> Option<u64> {
    TAKEOVER.get()?.entry(kind.measured_form(), ranks)?.time(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use models::mpi_table::MpiSize;

    fn row(collective: &str, ratio: f64) -> MpiRow {
        // The times of the slowest ranks of blocking collectives are not those of reports.
        let is_blocking = !collective.starts_with('I');
        let slowest = if is_blocking { 1.5 } else { 1.0 };
        let size = |bytes, time| MpiSize {
            library_mean: is_blocking.then_some(time),
            ..MpiSize::new(bytes, (slowest * time, ratio * slowest * time), &[ratio])
        };
        let sizes = vec![size(8, 1.0), size(1024, 2.0), size(65536, 10.0)];
        MpiRow { library: String::new(), job: 4, ranks: 2, collective: collective.into(), sizes }
    }

    fn sent(parts: Parts) -> Takeover {
        let rows = [row("Allreduce", 0.5), row("Bcast", 2.0), row("Iallreduce", 0.5)];
        let entries = rows.iter().filter_map(|row| Entry::of(row, parts)).collect();
        let own = Takeover { forced: 0, is_measured: parts.sizes, entries };
        Takeover::from_message(&own.to_message())
    }

    #[test]
    fn jobs_receive_the_parts_that_they_use() {
        for (sizes, times) in [(false, false), (false, true), (true, false), (true, true)] {
            let sent = sent(Parts { sizes, times });
            assert_eq!(sent.is_measured, sizes);
            let decided = if sizes { Kind::Allreduce.bit() } else { 0 };
            assert_eq!(sent.kinds(), decided);
            let contained = sent.sizes(Kind::Allreduce, 2).map(|sizes| sizes.contain(65536));
            assert_eq!(contained, sizes.then_some(true));
            let without_data = sent.sizes(Kind::Allreduce, 2).map(|sizes| sizes.contain(0));
            assert_eq!(without_data, sizes.then_some(false));
            for kind in [Kind::Allreduce, Kind::Bcast, Kind::Iallreduce] {
                let time = sent.entry(kind, 2).and_then(|entry| entry.time(1024));
                assert_eq!(time, times.then_some(2000), "{kind:?}");
            }
            assert!(sent.entry(Kind::Allreduce, 4).is_none());
        }
    }

    #[test]
    fn older_tables_have_no_times_of_blocking_collectives_for_reports() {
        let mut old = row("Allreduce", 2.0);
        old.sizes.iter_mut().for_each(|size| size.library_mean = None);
        assert!(Entry::of(&old, Parts { sizes: true, times: true }).is_none());
    }

    #[test]
    fn times_lie_between_the_measured_ones() {
        let sent = sent(Parts { sizes: false, times: true });
        let entry = sent.entry(Kind::Iallreduce, 2).expect("it is sent");
        let times = [0, 8, 516, 1024, 33280, 65536, 65537].map(|bytes| entry.time(bytes));
        let expected = [1000, 1000, 1500, 2000, 6000, 10_000].map(Some);
        assert_eq!(times[..6], expected);
        assert_eq!(times[6], None);
    }

    #[test]
    fn an_incomplete_message_ends_before_its_last_entry() {
        let own = sent(Parts { sizes: true, times: true });
        let message = own.to_message();
        for length in (0..message.len()).step_by(8) {
            let part = Takeover::from_message(&message[..length]);
            assert!(part.entries.len() < own.entries.len());
        }
    }
}
