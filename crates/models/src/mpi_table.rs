//! The table of collectives that run faster on tradewind than in an MPI library.
//!
//! A row has the times of one collective on a communicator of one size, in jobs of one size, because
//! ranks that share cores take longer. A call is taken over between sizes
//! that were measured, and only where tradewind is surely faster at both. [`rule`] has what holds
//! where a user has measured nothing.

pub mod rule;

use crate::file::{self, FileError, FileKind};
use crate::machine::Fingerprint;
use crate::statistics::Sample;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::path::Path;

/// Collectives of MPI libraries on one machine.
///
/// ```
/// use models::machine::Fingerprint;
/// use models::mpi_table::{MpiRow, MpiSize, MpiTable};
/// let size = |bytes, ratios: &[f64]| MpiSize::new(bytes, (1.0, ratios[0]), ratios);
/// let row = MpiRow {
///     library: "MPICH 5".to_owned(),
///     job: 4,
///     ranks: 2,
///     collective: "Allreduce".to_owned(),
///     sizes: vec![
///         size(8, &[0.5, 0.5, 0.6]),
///         size(1024, &[0.7, 0.7, 0.7]),
///         size(65536, &[1.4, 0.8, 0.8]),
///     ],
/// };
/// // One repetition at 64 KiB took longer.
/// assert_eq!(row.taken(), [1..=1024]);
/// // A call of unknown size may be longer than all of these.
/// assert!(!row.is_taken_at_any_size());
/// let table = MpiTable::new(Fingerprint::default(), vec![row]);
/// assert_eq!(table.rows("MPICH 5", 4).count(), 1);
/// assert_eq!(table.rows("MPICH 5", 2).count(), 0);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MpiTable {
    fingerprint: Fingerprint,
    rows: Vec<MpiRow>,
}

/// The times of one collective on one communicator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MpiRow {
    /// The MPI library and its version.
    pub library: String,
    /// Number of ranks of the job.
    pub job: u32,
    /// Number of ranks of the communicator.
    pub ranks: u32,
    /// Name of the call without `MPI_`.
    pub collective: String,
    /// The times by size, ascending.
    pub sizes: Vec<MpiSize>,
}

/// The times at one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MpiSize {
    /// Bytes of the longest buffer, or of a block in exchanges with neighbours.
    pub bytes: u64,
    /// Median time of the MPI library, in microseconds: that of the slowest rank. Of a nonblocking
    /// collective it is the time inside the start and the completion, beside a computation.
    pub library: f64,
    /// The same as the mean of all ranks. Files of version 1 have none, and those of version 2 none
    /// of nonblocking collectives, whose `library` is the mean there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub library_mean: Option<f64>,
    /// Median time of tradewind, in microseconds.
    pub tradewind: f64,
    /// Median of the ratios of repetitions in turns, tradewind to the library.
    pub ratio: f64,
    /// Upper quartile of these ratios.
    pub upper: f64,
    /// The same of a nonblocking collective where a rank is late by a part of the computation, each in
    /// turn. Files of versions 1 and 2 have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<MpiTimes>,
}

/// Times in one situation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MpiTimes {
    /// Median time of the MPI library, in microseconds.
    pub library: f64,
    /// Median time of tradewind, in microseconds.
    pub tradewind: f64,
    /// Median of the ratios of repetitions in turns, tradewind to the library.
    pub ratio: f64,
    /// Upper quartile of these ratios.
    pub upper: f64,
}

/// Largest median ratio of a call that is taken over. The margin covers what differs between the
/// measurement and a program.
const MOST_RATIO: f64 = 0.92;

/// Largest upper quartile of the ratios.
const MOST_UPPER: f64 = 1.0;

/// Largest median ratio in one situation of a nonblocking call that is faster in the other.
const MOST_EQUAL_RATIO: f64 = 1.0;

/// Largest upper quartile of the ratios there.
const MOST_EQUAL_UPPER: f64 = 1.05;

/// Distance of a median ratio from [`MOST_RATIO`] within which more repetitions decide.
const CLOSE: f64 = 0.08;

/// The same for [`MOST_EQUAL_RATIO`].
const CLOSE_TO_EQUAL: f64 = 0.04;

/// Share of the time of a short nonblocking call that its persistent form takes in an MPI library, which
/// has set it up before. Measured with MPICH 5 and Intel MPI 2021, allreduces and broadcasts of 8 B and
/// 1 KiB: 0.62 to 0.87, in the median 0.76.
const SHARE_OF_PERSISTENT: f64 = 0.75;

/// Longest call, in bytes, that is short so. Of 64 KiB and more it was 0.95 in the median.
const SHORT: u64 = 32 << 10;

/// A call of unknown length may be as long as memory allows. A measurement says something about it
/// from this size on.
const LONG: u64 = 16 << 20;

impl MpiTimes {
    /// The medians of the library and of tradewind, and the ratios of repetitions in turns.
    pub fn new((library, tradewind): (f64, f64), ratios: &[f64]) -> Self {
        let quantiles = Sample::of(ratios.to_vec()).quantiles;
        MpiTimes { library, tradewind, ratio: quantiles.median, upper: quantiles.p75 }
    }

    /// The times of the persistent form of a nonblocking call: tradewind's are the same.
    fn of_persistent(self) -> Self {
        let Self { library, tradewind, ratio, upper } = self;
        let share = SHARE_OF_PERSISTENT;
        MpiTimes { library: library * share, tradewind, ratio: ratio / share, upper: upper / share }
    }

    /// Returns whether tradewind is surely faster.
    fn is_faster(&self) -> bool {
        self.ratio <= MOST_RATIO && self.upper <= MOST_UPPER
    }

    /// Returns whether tradewind is not slower.
    fn is_equal(&self) -> bool {
        self.ratio <= MOST_EQUAL_RATIO && self.upper <= MOST_EQUAL_UPPER
    }

    /// Returns whether further repetitions may change [`is_faster`](Self::is_faster).
    fn is_nearly_faster(&self) -> bool {
        let is_near = (self.ratio - MOST_RATIO).abs() <= CLOSE;
        is_near || (self.ratio <= MOST_RATIO && self.upper > MOST_UPPER)
    }

    /// Returns whether further repetitions may change [`is_equal`](Self::is_equal).
    fn is_nearly_equal(&self) -> bool {
        let is_near = (self.ratio - MOST_EQUAL_RATIO).abs() <= CLOSE_TO_EQUAL;
        is_near || (self.ratio <= MOST_EQUAL_RATIO && self.upper > MOST_EQUAL_UPPER)
    }
}

impl MpiSize {
    /// The times at a size: the medians of the library and of tradewind, and the ratios of
    /// repetitions in turns.
    pub fn new(bytes: u64, times: (f64, f64), ratios: &[f64]) -> Self {
        let MpiTimes { library, tradewind, ratio, upper } = MpiTimes::new(times, ratios);
        MpiSize { bytes, library, library_mean: None, tradewind, ratio, upper, late: None }
    }

    /// The estimated times of the persistent form.
    fn of_persistent(&self) -> Self {
        if self.bytes > SHORT {
            return self.clone();
        }
        let MpiTimes { library, tradewind, ratio, upper } = self.together().of_persistent();
        let late = self.late.map(MpiTimes::of_persistent);
        let library_mean = self.library_mean.map(|mean| mean * SHARE_OF_PERSISTENT);
        MpiSize { bytes: self.bytes, library, library_mean, tradewind, ratio, upper, late }
    }

    /// The times where ranks start together.
    fn together(&self) -> MpiTimes {
        let MpiSize { library, tradewind, ratio, upper, .. } = *self;
        MpiTimes { library, tradewind, ratio, upper }
    }

    /// Returns whether further repetitions may change the decision.
    pub fn is_close(&self) -> bool {
        let together = self.together();
        match self.late {
            None => together.is_nearly_faster(),
            Some(late) => {
                let situations = [together, late];
                let may_be_equal = |one: &MpiTimes| one.is_equal() || one.is_nearly_equal();
                situations.iter().all(may_be_equal)
                    && (situations.iter().any(MpiTimes::is_nearly_equal)
                        || !situations.iter().any(MpiTimes::is_faster)
                            && situations.iter().any(MpiTimes::is_nearly_faster))
            }
        }
    }

    /// Returns whether calls of this size are taken over: a blocking one if tradewind is surely faster,
    /// a nonblocking one if it is so in one situation and not slower in the other.
    pub fn is_taken(&self) -> bool {
        let together = self.together();
        match self.late {
            None => together.is_faster(),
            Some(late) => {
                let situations = [together, late];
                situations.iter().any(MpiTimes::is_faster)
                    && situations.iter().all(MpiTimes::is_equal)
            }
        }
    }
}

impl MpiRow {
    /// The row of the persistent form of a nonblocking collective. It is not measured: its times follow
    /// from those of the nonblocking one. `None` for blocking collectives.
    ///
    /// ```
    /// use models::mpi_table::{MpiRow, MpiSize};
    /// let row = |collective: &str| MpiRow {
    ///     library: "MPICH 5".to_owned(),
    ///     job: 2,
    ///     ranks: 2,
    ///     collective: collective.to_owned(),
    ///     sizes: vec![MpiSize::new(8, (1.0, 0.8), &[0.8])],
    /// };
    /// assert_eq!(row("Iallreduce").taken(), [1..=8]);
    /// let persistent = row("Iallreduce").persistent().expect("it is nonblocking");
    /// assert_eq!(persistent.collective, "Allreduce_init");
    /// assert_eq!(persistent.taken(), []);
    /// assert!(row("Allreduce").persistent().is_none());
    /// ```
    pub fn persistent(&self) -> Option<MpiRow> {
        let name = self.collective.strip_prefix('I')?;
        let (first, rest) = name.split_at_checked(1)?;
        let collective = format!("{}{rest}_init", first.to_uppercase());
        let sizes = self.sizes.iter().map(MpiSize::of_persistent).collect();
        Some(MpiRow { collective, sizes, library: self.library.clone(), ..*self })
    }

    /// The sizes at which calls are taken over, ascending: those between two measured ones that are
    /// faster. Shorter calls than the shortest measured one count as that, except those without data:
    /// MPI libraries end them at once.
    pub fn taken(&self) -> Vec<RangeInclusive<u64>> {
        let mut ranges: Vec<RangeInclusive<u64>> = Vec::new();
        let mut was_taken = false;
        for (index, size) in self.sizes.iter().enumerate() {
            let is_taken = size.is_taken();
            if is_taken {
                let from = if index == 0 { size.bytes.min(1) } else { size.bytes };
                match ranges.last_mut().filter(|_| was_taken) {
                    Some(range) => *range = *range.start()..=size.bytes,
                    None => ranges.push(from..=size.bytes),
                }
            }
            was_taken = is_taken;
        }
        ranges
    }

    /// Returns whether calls are taken over at all sizes, up to long ones. Calls of unknown size are
    /// taken over then.
    pub fn is_taken_at_any_size(&self) -> bool {
        let is_long = self.sizes.last().is_some_and(|size| size.bytes >= LONG);
        is_long && self.sizes.iter().all(MpiSize::is_taken)
    }

    fn key(&self) -> (&str, u32, u32, &str) {
        (&self.library, self.job, self.ranks, &self.collective)
    }
}

impl MpiTable {
    /// All rows.
    pub fn all_rows(&self) -> &[MpiRow] {
        &self.rows
    }

    /// The machine on which they were measured.
    pub fn machine(&self) -> &Fingerprint {
        &self.fingerprint
    }

    /// A table of these rows.
    pub fn new(fingerprint: Fingerprint, rows: Vec<MpiRow>) -> Self {
        MpiTable { fingerprint, rows }
    }

    /// The rows of a library in jobs of this number of ranks.
    pub fn rows<'a>(&'a self, library: &'a str, job: u32) -> impl Iterator<Item = &'a MpiRow> + 'a {
        self.rows.iter().filter(move |row| row.library == library && row.job == job)
    }

    /// The same with the rows of a newer table of the same machine, which replace those of the same
    /// calls.
    #[must_use]
    pub fn replaced_by(mut self, newer: MpiTable) -> Self {
        self.rows.retain(|row| newer.rows.iter().all(|other| other.key() != row.key()));
        self.rows.extend(newer.rows);
        self
    }

    /// Reads the table of this machine.
    ///
    /// # Errors
    /// [`FileError`], which names the file, the place, and what to do.
    pub fn read_for(path: &Path, here: &Fingerprint) -> Result<Self, FileError> {
        let table: MpiTable = file::read(path, &FileKind::MPI_TABLE)?;
        file::belongs(path, &FileKind::MPI_TABLE, &table.fingerprint, here)?;
        Ok(table)
    }

    /// The table of this machine that a newer one is to replace; an empty one where the file is absent,
    /// or of another machine, or of an older tradewind.
    ///
    /// # Errors
    /// [`FileError`] if the file is anything else, which is not to be overwritten.
    pub fn to_be_replaced(path: &Path, here: &Fingerprint) -> Result<Self, FileError> {
        match MpiTable::read_for(path, here) {
            Err(FileError::Unreadable { source, .. }) if source.kind() == ErrorKind::NotFound => {}
            Err(FileError::OtherMachine { .. } | FileError::Older { .. }) => {}
            outcome => return outcome,
        }
        Ok(MpiTable::new(here.clone(), Vec::new()))
    }

    /// Writes the file, whole or not at all.
    ///
    /// # Errors
    /// [`FileError::Unwritable`].
    pub fn write(&self, path: &Path) -> Result<(), FileError> {
        file::write(path, &FileKind::MPI_TABLE, self)
    }
}
