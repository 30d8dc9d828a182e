//! A rule: the calls of MPI libraries that are taken over where the user has no measurement.
//!
//! It follows from the rows of measurements on some machine, by the decision that also reads a user's
//! table. Where a collective was measured in several runs, all of them have to take a size: a rule is
//! for programs that have not been measured, so it relies on no single run. It says for a call:
//!
//! * On the machine of the measurement, with a library of a measured major version, in a job and on a
//!   communicator of a measured number of ranks: the sizes at which this measurement takes the call.
//! * With such a library on another machine, with other numbers of ranks, or where this collective was
//!   not measured: the sizes at which all measurements of this library take it, those with a core for
//!   each rank and those without.
//! * With an unknown library, or another major version: the sizes at which all measurements of all
//!   libraries take it.
//! * In jobs of more than [`MOST_RANKS`] ranks, and between nodes: none.
//!
//! Persistent collectives go by [estimates](MpiRow::persistent) from the rows of nonblocking ones.
//!
//! The kind of memory decides nothing, because a rank knows only that of its own buffers.

use super::{MpiRow, MpiTable};
use crate::machine::Fingerprint;
use std::fmt::Write as _;
use std::ops::RangeInclusive;

/// Most ranks of a job in which the rule takes calls over: twice those of the measurement.
pub const MOST_RANKS: u32 = 8;

/// Begin of the line of a measured communicator.
const GROUP: &str = "ranks ";

/// Word of a collective that is taken over at any size.
const ANY_SIZE: &str = "any";

/// The sizes at which a collective is taken over, in bytes as a table counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Ascending.
    pub ranges: Vec<RangeInclusive<u64>>,
    /// Calls of unknown size are taken over, too.
    pub at_any_size: bool,
}

impl Taken {
    /// The decision of a measured row.
    pub fn of(row: &MpiRow) -> Self {
        Taken { ranges: row.taken(), at_any_size: row.is_taken_at_any_size() }
    }

    /// The sizes in both.
    fn and(&self, other: &Taken) -> Taken {
        let pairs =
            self.ranges.iter().flat_map(|one| other.ranges.iter().map(move |two| (one, two)));
        let common =
            pairs.map(|(one, two)| *one.start().max(two.start())..=*one.end().min(two.end()));
        Taken {
            ranges: common.filter(|range| !range.is_empty()).collect(),
            at_any_size: self.at_any_size && other.at_any_size,
        }
    }
}

/// The properties of a job that the rule depends on. They are the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobClass {
    /// Number of ranks.
    pub ranks: u32,
    /// Place of the library among those of the rule.
    pub library: Option<u8>,
    /// The machine is that of the measurement.
    pub is_recorded_machine: bool,
}

/// Measured communicators of one size in jobs of one size.
#[derive(Clone, Debug)]
struct Group<'a> {
    library: &'a str,
    job: u32,
    ranks: u32,
    collectives: Vec<(&'a str, Taken)>,
}

impl Group<'_> {
    /// `None` if the collective was not measured.
    fn taken(&self, collective: &str) -> Option<Taken> {
        let found = self.collectives.iter().find(|(name, _)| *name == collective);
        found.map(|(_, taken)| taken.clone())
    }
}

/// The decisions of a measurement.
#[derive(Clone, Debug)]
pub struct Rule<'a> {
    machine: &'a str,
    groups: Vec<Group<'a>>,
}

/// The name of a library without what follows its major version.
fn major(library: &str) -> &str {
    library.split('.').next().unwrap_or_default()
}

/// The properties of a machine that change these times most.
fn machine(fingerprint: &Fingerprint) -> String {
    let Fingerprint { processor, cores, caches, .. } = fingerprint;
    let caches: Vec<String> = caches.iter().map(u64::to_string).collect();
    format!("{processor}, {cores} cores, caches of {}", caches.join(" "))
}

impl<'a> Rule<'a> {
    /// The rule of a text as [`Rule::text`] writes it; lines that are none are ignored.
    ///
    /// ```
    /// use models::machine::Fingerprint;
    /// use models::mpi_table::rule::Rule;
    /// let text = "a machine\n\
    ///             ranks 2 of 2, MPICH Version: 5\nBcast 1-1024\nIgatherv\n\
    ///             ranks 2 of 2, Open MPI v5\nBcast 8-65536\nIgatherv 1-16777216 any\n";
    /// let rule = Rule::of(text);
    /// let class = |library| rule.class(library, 2, &Fingerprint::default());
    /// assert_eq!(rule.taken(class("MPICH Version: 5.0.2"), 2, "Bcast").ranges, [1..=1024]);
    /// assert!(rule.taken(class("Open MPI v5.0.11"), 2, "Igatherv").at_any_size);
    /// // This library was not measured.
    /// assert_eq!(rule.taken(class("Open MPI v4.1.4"), 2, "Bcast").ranges, [8..=1024]);
    /// assert!(!rule.taken(class("Open MPI v4.1.4"), 2, "Igatherv").at_any_size);
    /// assert_eq!(rule.taken(class("Open MPI v5.0.11"), 4096, "Bcast").ranges, []);
    /// // Nor jobs of this size.
    /// let large = rule.class("Open MPI v5.0.11", 9, &Fingerprint::default());
    /// assert_eq!(rule.taken(large, 2, "Bcast").ranges, []);
    /// ```
    pub fn of(text: &'a str) -> Self {
        let mut lines = text.lines();
        let machine = lines.next().unwrap_or_default();
        let mut groups: Vec<Group<'a>> = Vec::new();
        for line in lines {
            match (line.strip_prefix(GROUP), groups.last_mut()) {
                (Some(head), _) => groups.extend(group(head)),
                (None, Some(group)) => group.collectives.extend(collective(line)),
                (None, None) => {}
            }
        }
        Rule { machine, groups }
    }

    /// The libraries, in the order of their first group.
    fn libraries(&self) -> Vec<&str> {
        let mut libraries: Vec<&str> = self.groups.iter().map(|group| group.library).collect();
        libraries.dedup();
        libraries
    }

    /// The class of a job of this number of ranks with a library.
    pub fn class(&self, library: &str, ranks: u32, here: &Fingerprint) -> JobClass {
        let place = self.libraries().iter().position(|known| *known == major(library));
        JobClass {
            ranks,
            library: place.and_then(|place| u8::try_from(place).ok()),
            is_recorded_machine: self.machine == machine(here),
        }
    }

    /// The sizes at which a collective runs on tradewind, on communicators of `ranks` ranks of one
    /// node.
    pub fn taken(&self, job: JobClass, ranks: u32, collective: &str) -> Taken {
        if ranks.max(job.ranks) > MOST_RANKS {
            return Taken::default();
        }
        let library =
            job.library.and_then(|place| Some(*self.libraries().get(usize::from(place))?));
        let of_library = |group: &&Group| library.is_none_or(|library| library == group.library);
        let groups = self.groups.iter().filter(of_library);
        let is_same = |group: &&Group| group.job == job.ranks && group.ranks == ranks;
        let measured = groups.clone().find(is_same).and_then(|group| group.taken(collective));
        match measured.filter(|_| library.is_some() && job.is_recorded_machine) {
            Some(measured) => measured,
            None => {
                let all = groups.filter_map(|group| group.taken(collective));
                all.reduce(|all, one| all.and(&one)).unwrap_or_default()
            }
        }
    }

    /// The text of a rule that follows from a measurement.
    pub fn text(table: &MpiTable) -> String {
        let mut text = machine(table.machine()) + "\n";
        let head = |row: &MpiRow| (major(&row.library).to_owned(), row.job, row.ranks);
        let measured = table.all_rows();
        let mut rows: Vec<MpiRow> = measured.iter().filter_map(MpiRow::persistent).collect();
        rows.extend_from_slice(measured);
        rows.sort_by_key(|row| (head(row), row.collective.clone()));
        for group in rows.chunk_by(|one, other| head(one) == head(other)) {
            let (library, job, ranks) = head(&group[0]);
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{GROUP}{ranks} of {job}, {library}");
            for runs in group.chunk_by(|one, other| one.collective == other.collective) {
                let each = runs.iter().map(Taken::of);
                let taken = each.reduce(|all, one| all.and(&one)).unwrap_or_default();
                text.push_str(&runs[0].collective);
                for range in &taken.ranges {
                    let _ = write!(text, " {}-{}", range.start(), range.end());
                }
                text.push_str(if taken.at_any_size { " any\n" } else { "\n" });
            }
        }
        text
    }
}

/// The group of a line such as `ranks 2 of 4, Open MPI v5`, without the first word.
fn group(head: &str) -> Option<Group<'_>> {
    let (numbers, library) = head.split_once(", ")?;
    let (ranks, job) = numbers.split_once(" of ")?;
    let (ranks, job) = (ranks.parse().ok()?, job.parse().ok()?);
    Some(Group { library, job, ranks, collectives: Vec::new() })
}

/// The decision of a line such as `Bcast 1-1024 4096-65536`.
fn collective(line: &str) -> Option<(&str, Taken)> {
    let mut words = line.split(' ');
    let name = words.next()?;
    let mut taken = Taken::default();
    for word in words {
        if word == ANY_SIZE {
            taken.at_any_size = true;
        } else {
            let (first, last) = word.split_once('-')?;
            taken.ranges.push(first.parse().ok()?..=last.parse().ok()?);
        }
    }
    Some((name, taken))
}
