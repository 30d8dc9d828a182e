//! The runs that a rank has started on a backend, by communicator.
//!
//! Other ranks need the counts when this one exits. A message is late if its run was started and has
//! ended. A rank may create any number of communicators, one after the other: so the table keeps the
//! numbers of those that have ended as ranges, and the counts only of those that ended last.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::ops::RangeInclusive;

/// Most communicators of a rank with runs, and most ranges of ended ones.
const MOST: usize = 1 << 16;
/// Number of ended communicators of which the counts are kept: those that ended last.
const EXACT: usize = 1 << 10;
/// Length of the longest [list](RunCounts::list), which fits a frame. Each exact count may divide a
/// range.
pub const LONGEST: usize = 2 * (MOST + EXACT);
/// Runs that may still be started after a later one was. No program has so many threads.
const MAX_MISSING: u64 = 4096;

/// Communicators of a rank with successive numbers, and the runs of each that the rank has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartedRuns {
    /// The first number.
    pub first: u32,
    /// The last one.
    pub last: u32,
    /// One more than the number of the last run; `u64::MAX` where the rank has forgotten it, because
    /// the communicators ended long ago.
    pub count: u64,
}

impl StartedRuns {
    /// Those of one communicator.
    pub fn of(communicator: u32, count: u64) -> Self {
        StartedRuns { first: communicator, last: communicator, count }
    }

    /// One more than the number of the last run of a communicator in a list, which is in order.
    pub(crate) fn find(list: &[StartedRuns], communicator: u32) -> u64 {
        let behind = list.partition_point(|range| range.first <= communicator);
        let range = list[..behind].last().filter(|range| communicator <= range.last);
        range.map_or(0, |range| range.count)
    }
}

/// The reason why a rank cannot start a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedStart {
    /// A second run with this number would take the messages of the first.
    Repeated,
    /// The rank has ended its use of the communicator.
    Ended,
    /// The rank has runs of 65,536 other communicators.
    Many,
}

impl fmt::Display for RefusedStart {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RefusedStart::Repeated => formatter.write_str("it was started before"),
            RefusedStart::Ended => formatter.write_str("the rank had ended the communicator"),
            RefusedStart::Many => write!(
                formatter,
                "the rank has more than {MOST} communicators; those that end while an older one is \
                 still being created count, too"
            ),
        }
    }
}

/// The runs that a rank has started.
#[derive(Clone, Debug, Default)]
pub struct RunCounts {
    live: BTreeMap<u32, RunCount>,
    /// Ranges of the numbers that have ended, by their first number: the last one. They do not touch
    /// each other, and have no live communicator.
    ended: BTreeMap<u32, u32>,
    /// Counts of the last communicators with runs that ended.
    counts: BTreeMap<u32, u64>,
    /// The same communicators in the order of their ends.
    order: VecDeque<u32>,
    /// The highest number of a communicator of which the count was forgotten.
    forgotten: Option<u32>,
}

impl RunCounts {
    /// Notes the start of a run.
    ///
    /// # Errors
    /// If the run must not start.
    pub fn start(&mut self, communicator: u32, sequence: u64) -> Result<(), RefusedStart> {
        if self.has_ended(communicator) {
            return Err(RefusedStart::Ended);
        }
        if self.live.len() >= MOST && !self.live.contains_key(&communicator) {
            return Err(RefusedStart::Many);
        }
        let is_new = self.live.entry(communicator).or_default().start(sequence);
        is_new.then_some(()).ok_or(RefusedStart::Repeated)
    }

    /// Notes the start of a run with a number above those of earlier starts. Lower numbers count as
    /// started, and take no memory.
    pub fn start_in_order(&mut self, communicator: u32, sequence: u64) {
        if !self.has_ended(communicator) {
            let next = &mut self.live.entry(communicator).or_default().next;
            *next = sequence.saturating_add(1).max(*next);
        }
    }

    /// Returns true if no run of this number is started any more: it was, or its communicator has
    /// ended.
    pub fn is_behind(&self, communicator: u32, sequence: u64) -> bool {
        match self.live.get(&communicator) {
            Some(count) => count.has_started(sequence),
            None => self.has_ended(communicator),
        }
    }

    /// One more than the number of the last run of a communicator that was started; `u64::MAX` if
    /// the communicator has ended.
    pub fn next(&self, communicator: u32) -> u64 {
        match self.live.get(&communicator) {
            Some(count) => count.next,
            None if self.has_ended(communicator) => u64::MAX,
            None => 0,
        }
    }

    fn has_ended(&self, communicator: u32) -> bool {
        let range = self.ended.range(..=communicator).next_back();
        range.is_some_and(|(_, last)| communicator <= *last)
    }

    /// Notes that the rank neither has nor will have a communicator with one of these numbers. The
    /// last of them has just ended. Returns false if there are too many ranges: no rank has so many
    /// communicators between them.
    pub fn end(&mut self, numbers: RangeInclusive<u32>) -> bool {
        if numbers.is_empty() {
            return true;
        }
        while let Some((number, count)) = self.live.range(numbers.clone()).next() {
            let number = *number;
            let count = count.next;
            self.live.remove(&number);
            self.keep(number, count);
        }
        self.insert(numbers);
        self.ended.len() <= MOST
    }

    /// Keeps the count of a communicator that has ended.
    fn keep(&mut self, number: u32, count: u64) {
        self.counts.insert(number, count);
        self.order.push_back(number);
        if self.order.len() > EXACT
            && let Some(oldest) = self.order.pop_front()
        {
            self.counts.remove(&oldest);
            self.forgotten = self.forgotten.max(Some(oldest));
        }
    }

    /// Adds these numbers to the ended ones.
    fn insert(&mut self, numbers: RangeInclusive<u32>) {
        let (mut first, mut last) = numbers.into_inner();
        if let Some((before, end)) = self.ended.range(..first).next_back()
            && end.saturating_add(1) >= first
        {
            (first, last) = (*before, last.max(*end));
        }
        let touches = |ended: &BTreeMap<u32, u32>, last: u32| {
            let next = ended.range(first..=last.saturating_add(1)).next();
            next.map(|(first, last)| (*first, *last))
        };
        while let Some((other, end)) = touches(&self.ended, last) {
            self.ended.remove(&other);
            last = last.max(end);
        }
        self.ended.insert(first, last);
    }

    /// The counts of all communicators with runs, and of those that have ended, in order.
    ///
    /// A number without a count is one of which the rank has started no run: another rank that waits
    /// in it learns that this one never comes. A forgotten count is the highest: a lower one would
    /// fail a run that was started and that a slower rank still waits for.
    pub fn list(&self) -> Vec<StartedRuns> {
        let live = self.live.iter().map(|(number, count)| StartedRuns::of(*number, count.next));
        let exact = self.counts.iter().map(|(number, count)| StartedRuns::of(*number, *count));
        let mut list: Vec<StartedRuns> = live.chain(exact).chain(self.forgotten()).collect();
        list.sort_unstable_by_key(|range| range.first);
        list.dedup_by(|next, range| {
            let joins = range.last.checked_add(1) == Some(next.first) && range.count == next.count;
            if joins {
                range.last = next.last;
            }
            joins
        });
        list
    }

    /// The ended numbers up to the highest of which the count was forgotten, without those of which
    /// the count is known.
    fn forgotten(&self) -> impl Iterator<Item = StartedRuns> {
        let ended = self.forgotten.into_iter().flat_map(|most| self.ended.range(..=most));
        ended.flat_map(|(first, last)| {
            let most = self.forgotten.unwrap_or(0).min(*last);
            let known = self.counts.range(*first..=most).map(|(number, _)| u64::from(*number));
            let end = u64::from(most) + 1;
            let mut next = u64::from(*first);
            known.chain([end]).filter_map(move |known| {
                let begin = std::mem::replace(&mut next, known + 1);
                (begin < known).then(|| StartedRuns {
                    first: begin as u32,
                    last: (known - 1) as u32,
                    count: u64::MAX,
                })
            })
        })
    }
}

/// The runs of one communicator that a rank has started. Threads may start them slightly out of
/// order, and numbers may be missing because another backend executed those runs.
#[derive(Clone, Debug, Default)]
struct RunCount {
    /// One more than the highest number.
    next: u64,
    /// Lower numbers that were not started (yet).
    missing: BTreeSet<u64>,
}

impl RunCount {
    /// Notes a start; false if the run was started before.
    fn start(&mut self, sequence: u64) -> bool {
        // Below `next` only the missing numbers have not been started.
        if sequence < self.next {
            return self.missing.remove(&sequence);
        }
        self.missing.extend(self.next.max(sequence.saturating_sub(MAX_MISSING))..sequence);
        while self.missing.first().is_some_and(|first| first.saturating_add(MAX_MISSING) < sequence)
        {
            self.missing.pop_first();
        }
        self.next = sequence.saturating_add(1);
        true
    }

    fn has_started(&self, sequence: u64) -> bool {
        sequence < self.next && !self.missing.contains(&sequence)
    }
}

#[cfg(test)]
mod tests;
