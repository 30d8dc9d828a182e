//! The collectives that run here: those that are faster than the MPI library's, by the table of
//! `tradewind tune --mpi` or else by the built-in rule, or those that the user names.
//!
//! The rule (`rule.txt`) follows from the rows of such tables, of MPICH 5, Open MPI 5 and Intel MPI
//! 2021 in jobs of 2 ranks on 2 cores and of 4 ranks on 2 cores, in private memory:
//! `tests/data/mpi-rows.json`, with which a test compares it. [`models::mpi_table::rule`] says what it
//! means for other libraries, machines and numbers of ranks.
//!
//! Rank 0 reads the user's table and sends what concerns the job to all ranks, so all decide alike.
//! The rule is in each rank; what it depends on is sent, too. For a report rank 0 also sends the
//! measured times of the MPI library.

use crate::kind::{Kind, Lengths};
use crate::reason::Reason;
use models::file::FileError;
use models::machine::Topology;
use models::mpi_table::rule::{JobClass, MOST_RANKS, Rule, Taken};
use models::mpi_table::{MpiRow, MpiTable};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

/// The text of the built-in rule.
const RULE: &str = include_str!("rule.txt");

/// The sizes at which one collective on one communicator runs here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sizes {
    /// First and last sizes in bytes, ascending.
    ranges: Vec<(u64, u64)>,
    /// All sizes.
    pub(crate) all: bool,
    /// `--only` selects it.
    pub(crate) is_forced: bool,
}

/// The sizes of a collective that the user names.
pub(crate) static FORCED: Sizes = Sizes { ranges: Vec::new(), all: true, is_forced: true };

impl Sizes {
    #[inline]
    pub(crate) fn contain(&self, bytes: u64) -> bool {
        let mut ranges = self.ranges.iter();
        self.is_forced || ranges.any(|(first, last)| (*first..=*last).contains(&bytes))
    }
}

impl From<Taken> for Sizes {
    fn from(taken: Taken) -> Self {
        let ranges = taken.ranges.iter().map(|range| (*range.start(), *range.end()));
        Sizes { ranges: ranges.collect(), all: taken.at_any_size, is_forced: false }
    }
}

/// The sizes of all collectives on communicators of one size, by [`Kind`]; `None` if none runs here.
pub(crate) type SizesByKind = [Option<Sizes>; Kind::COUNT];

/// Rows of one collective on communicators of one size.
#[derive(Clone, Debug)]
struct Entry {
    kind: Kind,
    ranks: u32,
    /// The sizes at which it runs here; `None` if the rule decides.
    sizes: Option<Sizes>,
    /// Times of the MPI library by ascending size, in nanoseconds.
    times: Vec<(u64, u64)>,
}

/// The collectives of a job that run here.
#[derive(Debug, Default)]
pub(crate) struct Takeover {
    /// Collectives that the user names, a bit for each kind.
    forced: u128,
    /// The class of the job, by which the rule decides where no entry does; `None` if the user has
    /// chosen, and between nodes.
    pub(crate) class: Option<JobClass>,
    entries: Vec<Entry>,
}

/// The parts of the table that a job uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    /// The sizes at which collectives run here.
    pub(crate) sizes: bool,
    /// The times of the MPI library.
    pub(crate) times: bool,
}

static TAKEOVER: OnceLock<Takeover> = OnceLock::new();

impl Takeover {
    /// The decisions of the rule for a job of this number of ranks with this library.
    pub(crate) fn of_rule((library, job): (&str, u32), parts: Parts) -> Self {
        let class = || Rule::of(RULE).class(library, job, Topology::here().fingerprint());
        Takeover { class: parts.sizes.then(class), ..Takeover::default() }
    }

    /// The same with the entries of a table, which come before the rule.
    pub(crate) fn with_table(
        self,
        path: &Path,
        (library, job): (&str, u32),
        parts: Parts,
    ) -> Result<Self, FileError> {
        let table = MpiTable::read_for(path, Topology::here().fingerprint())?;
        let rows = table.rows(library, job);
        let entries = rows.flat_map(|row| {
            let persistent = row.persistent().and_then(|row| Entry::of(&row, parts));
            Entry::of(row, parts).into_iter().chain(persistent)
        });
        Ok(Takeover { entries: entries.collect(), ..self })
    }

    /// Decodes a message of rank 0: the entries before the first incomplete one.
    pub(crate) fn from_message(message: &[u8]) -> Self {
        let mut words = message
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(*word.first_chunk().unwrap_or(&[0; 8])));
        let class = words.next().and_then(class_of_word);
        let entries = std::iter::from_fn(|| Entry::next_in(&mut words)).collect();
        Takeover { forced: 0, class, entries }
    }

    /// The class of the job and the entries as a message.
    pub(crate) fn to_message(&self) -> Vec<u8> {
        let mut words = vec![self.class.map_or(0, word_of_class)];
        self.entries.iter().for_each(|entry| entry.add_to(&mut words));
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    /// The same with all calls of these kinds, a bit for each.
    pub(crate) fn with_forced(self, forced: u128) -> Self {
        Takeover { forced, ..self }
    }

    /// The kinds of which some calls run here, a bit for each.
    pub(crate) fn kinds(&self) -> u128 {
        let by_rule = 2..=self.class.map_or(2, |class| class.ranks.min(MOST_RANKS));
        let ranks = by_rule.chain(self.entries.iter().map(|entry| entry.ranks));
        let ranks: BTreeSet<u32> = ranks.collect();
        ranks.into_iter().fold(self.forced, |kinds, ranks| {
            let sizes = self.sizes_on((ranks, 1));
            let taken = Kind::ALL.iter().filter(|kind| sizes[kind.index()].is_some());
            taken.fold(kinds, |kinds, kind| kinds | kind.bit())
        })
    }

    /// Why calls are left of which none runs here, where the user has chosen none.
    pub(crate) fn reason_of_others(&self) -> Reason {
        match self.class {
            None => Reason::Nodes,
            Some(class) if class.ranks > MOST_RANKS && self.entries.is_empty() => Reason::Ranks,
            Some(_) => Reason::Slower,
        }
    }

    fn entry(&self, kind: Kind, ranks: u32) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.kind == kind && entry.ranks == ranks)
    }

    /// The sizes on a communicator of this number of ranks on this number of nodes. Between nodes
    /// nothing has been measured, and blocking collectives are left.
    fn sizes_on(&self, (ranks, nodes): (u32, u32)) -> SizesByKind {
        let rule = self.class.filter(|_| nodes == 1).map(|class| (class, Rule::of(RULE)));
        std::array::from_fn(|place| {
            let kind = Kind::ALL[place];
            if self.forced & kind.bit() != 0 && (nodes == 1 || !kind.is_blocking()) {
                return Some(FORCED.clone());
            }
            let (class, rule) = rule.as_ref()?;
            let measured = self.entry(kind, ranks).and_then(|entry| entry.sizes.clone());
            let by_rule = || Sizes::from(rule.taken(*class, ranks, kind.name()));
            let sizes = measured.unwrap_or_else(by_rule);
            // A part of the sizes decides nothing about calls whose size only some ranks have, and
            // finding the sum of a list would slow short calls that are left.
            let is_cheap = kind.collective.lengths() != Lengths::List || sizes.contain(1);
            let decides = sizes.all || (!kind.has_unknown_lengths() && is_cheap);
            (decides && !sizes.ranges.is_empty()).then_some(sizes)
        })
    }
}

/// A class of jobs as a word, which is not 0.
fn word_of_class(class: JobClass) -> u64 {
    let JobClass { ranks, library, is_recorded_machine } = class;
    let library = library.map_or(0, |place| u64::from(place) + 1);
    1 << 63 | u64::from(is_recorded_machine) << 62 | library << 32 | u64::from(ranks)
}

fn class_of_word(word: u64) -> Option<JobClass> {
    let library = (word >> 32 & 0x1ff).checked_sub(1).and_then(|place| u8::try_from(place).ok());
    let is_recorded_machine = word >> 62 & 1 == 1;
    (word >> 63 == 1).then_some(JobClass { ranks: word as u32, library, is_recorded_machine })
}

impl Entry {
    /// The parts of a row that the job uses; `None` if there is nothing in them.
    fn of(row: &MpiRow, parts: Parts) -> Option<Self> {
        let kind = Kind::named(&row.collective)?;
        // Older tables have no times of nonblocking calls where a rank is late.
        let decides = kind.is_blocking() || row.sizes.iter().all(|size| size.late.is_some());
        let sizes = (parts.sizes && decides).then(|| Sizes::from(Taken::of(row)));
        let mut entry = Entry { kind, ranks: row.ranks, sizes, times: Vec::new() };
        if parts.times {
            // As the report has them, which are means of all ranks.
            let times = row.sizes.iter().map(|size| {
                // In older tables the times of nonblocking calls are means.
                let older = || (!kind.is_blocking() && size.late.is_none()).then_some(size.library);
                Some((size.bytes, (1e3 * size.library_mean.or_else(older)?) as u64))
            });
            entry.times = times.collect::<Option<_>>().unwrap_or_default();
        }
        (entry.sizes.is_some() || !entry.times.is_empty()).then_some(entry)
    }

    /// Adds the entry to a message: a word with its call and the lengths of its lists, and the lists.
    fn add_to(&self, words: &mut Vec<u64>) {
        let Entry { kind, ranks, sizes, times } = self;
        let ranges = sizes.as_ref().map(|sizes| &sizes.ranges[..]).unwrap_or_default();
        let all = u64::from(sizes.as_ref().is_some_and(|sizes| sizes.all));
        let decides = u64::from(sizes.is_some());
        let lengths = (ranges.len() as u64) << 56 | (times.len() as u64) << 48;
        let call = decides << 41 | all << 40 | (kind.index() as u64) << 32 | u64::from(*ranks);
        words.push(lengths | call);
        let pairs = ranges.iter().chain(times);
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
        let sizes = (head >> 41 & 1 == 1).then_some(sizes);
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

/// The sizes on communicators of this number of ranks on this number of nodes. They are kept for all
/// of them.
pub(crate) fn sizes_on((ranks, nodes): (u32, u32)) -> &'static SizesByKind {
    static NONE: SizesByKind = [const { None }; Kind::COUNT];
    static KNOWN: Mutex<BTreeMap<(u32, bool), &SizesByKind>> = Mutex::new(BTreeMap::new());
    let Some(takeover) = TAKEOVER.get() else { return &NONE };
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let sizes = || Box::leak(Box::new(takeover.sizes_on((ranks, nodes)))) as &SizesByKind;
    known.entry((ranks, nodes == 1)).or_insert_with(sizes)
}

/// The time in nanoseconds that a call of this length takes in the MPI library, on communicators of
/// this number of ranks: measured, or for a persistent collective estimated.
pub(crate) fn library_time(kind: Kind, ranks: u32, bytes: u64) -> Option<u64> {
    TAKEOVER.get()?.entry(kind, ranks)?.time(bytes)
}
