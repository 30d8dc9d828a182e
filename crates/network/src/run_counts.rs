//! The runs that a rank has started on a backend, by communicator.
//!
//! Other ranks need the counts when this one exits. A message is late if its run was started and has
//! ended. A rank may create any number of communicators, one after the other: so the table keeps those
//! that have ended as a few ranges of numbers, between the numbers of live communicators.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;

/// Most communicators of a rank with runs, and most ranges of ended ones, so that a list of both fits
/// a frame.
pub const MOST: usize = 1 << 16;
/// Number of ranges, those with the highest numbers, that keep exact counts.
const EXACT: usize = 256;
/// Runs that may still be started after a later one was. No program has so many threads.
const MAX_MISSING: u64 = 4096;

/// Communicators of a rank with successive numbers, and the runs of each that the rank has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartedRuns {
    /// The first number.
    pub first: u32,
    /// The last one.
    pub last: u32,
    /// One more than the number of the last run. Of communicators that ended long ago it may be
    /// that of a neighbour which had more.
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
    /// The rank has runs of [`MOST`] other communicators.
    Many,
}

impl fmt::Display for RefusedStart {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RefusedStart::Repeated => formatter.write_str("it was started before"),
            RefusedStart::Ended => formatter.write_str("the rank had ended the communicator"),
            RefusedStart::Many => write!(formatter, "the rank has more than {MOST} communicators"),
        }
    }
}

/// The runs that a rank has started.
#[derive(Clone, Debug, Default)]
pub struct RunCounts {
    live: BTreeMap<u32, RunCount>,
    /// Ranges by their first number: the last one, and the count. They do not overlap, and have no
    /// live communicator.
    ended: BTreeMap<u32, (u32, u64)>,
    /// Number of ranges above which adjacent ones are joined.
    most_ranges: usize,
}

impl RunCounts {
    /// Notes the start of a run.
    ///
    /// # Errors
    /// If the run must not start.
    pub fn start(&mut self, communicator: u32, sequence: u64) -> Result<(), RefusedStart> {
        if self.ended_count(communicator).is_some() {
            return Err(RefusedStart::Ended);
        }
        if self.live.len() >= MOST && !self.live.contains_key(&communicator) {
            return Err(RefusedStart::Many);
        }
        let is_new = self.live.entry(communicator).or_default().start(sequence);
        is_new.then_some(()).ok_or(RefusedStart::Repeated)
    }

    /// Returns true if no run of this number is started any more: it was, or its communicator has
    /// ended.
    pub fn is_behind(&self, communicator: u32, sequence: u64) -> bool {
        match self.live.get(&communicator) {
            Some(count) => count.has_started(sequence),
            None => self.ended_count(communicator).is_some(),
        }
    }

    /// One more than the number of the last run of a communicator that was started; `u64::MAX` if
    /// the communicator has ended.
    pub fn next(&self, communicator: u32) -> u64 {
        let ended = || self.ended_count(communicator).map_or(0, |_| u64::MAX);
        self.live.get(&communicator).map_or_else(ended, |count| count.next)
    }

    fn ended_count(&self, communicator: u32) -> Option<u64> {
        let (_, (last, count)) = self.ended.range(..=communicator).next_back()?;
        (communicator <= *last).then_some(*count)
    }

    /// Notes that the rank neither has nor will have a communicator with one of these numbers. The
    /// last of them has just ended. Returns false if there are too many ranges: no rank has so many
    /// communicators between them.
    pub fn end(&mut self, numbers: RangeInclusive<u32>) -> bool {
        if numbers.is_empty() {
            return true;
        }
        let (mut first, last) = numbers.into_inner();
        let mut ends: Vec<(u32, u64)> = Vec::new();
        while let Some((number, count)) = self.live.range(first..=last).next() {
            ends.push((*number, count.next));
            self.live.remove(&ends[ends.len() - 1].0);
        }
        if ends.last().is_none_or(|(number, _)| *number != last) {
            ends.push((last, 0));
        }
        // The numbers between are of other ranks. With the count of the next one they separate no
        // ranges.
        for (number, count) in ends {
            self.end_alike(first, number, count);
            first = number.saturating_add(1);
        }
        self.ended.len() <= MOST
    }

    /// Adds these numbers with a count, except for those that have ended before.
    fn end_alike(&mut self, first: u32, last: u32, count: u64) {
        // One more than the last number may be 2³².
        let mut next = u64::from(first);
        let before = self.ended.range(..first).next_back().map(|(_, (last, _))| *last);
        before.into_iter().for_each(|before| next = next.max(u64::from(before) + 1));
        let known: Vec<(u32, u32)> =
            self.ended.range(first..=last).map(|(first, (last, _))| (*first, *last)).collect();
        let after = known.into_iter().map(|(first, last)| (u64::from(first), u64::from(last) + 1));
        let end = u64::from(last) + 1;
        for (known, behind) in after.chain([(end, end)]) {
            if next < known {
                self.insert(next as u32, (known - 1) as u32, count);
            }
            next = next.max(behind);
        }
    }

    /// Inserts a range, joined with adjacent ones of the same count.
    fn insert(&mut self, mut first: u32, mut last: u32, count: u64) {
        let before =
            self.ended.range(..first).next_back().map(|(at, (last, of))| (*at, *last, *of));
        if let Some((at, end, of)) = before
            && (end.checked_add(1), of) == (Some(first), count)
        {
            first = at;
        }
        if let Some(after) = last.checked_add(1)
            && let Some((end, of)) = self.ended.get(&after).copied()
            && of == count
        {
            self.ended.remove(&after);
            last = end;
        }
        self.ended.insert(first, (last, count));
        if self.ended.len() > self.most_ranges {
            self.join_old();
            // Not with the next one again: a rank may have many communicators between.
            self.most_ranges = self.ended.len() + EXACT;
        }
    }

    /// Joins adjacent ranges, except for the last ones. The joined range has the highest count: a lower
    /// one would fail a run that was started and that a slower rank still waits for. A higher one only
    /// hides that a run was not started, which the other ranks have noticed long ago.
    fn join_old(&mut self) {
        let Some((first, _)) = self.ended.iter().nth_back(EXACT) else { return };
        let last_ones = self.ended.split_off(&first.saturating_add(1));
        let mut joined: Vec<(u32, (u32, u64))> = Vec::new();
        for (first, (last, count)) in std::mem::take(&mut self.ended) {
            match joined.last_mut() {
                Some((_, (end, most))) if end.checked_add(1) == Some(first) => {
                    (*end, *most) = (last, count.max(*most));
                }
                _ => joined.push((first, (last, count))),
            }
        }
        self.ended = joined.into_iter().chain(last_ones).collect();
    }

    /// The counts of all communicators with runs, and of those that have ended, in order.
    pub fn list(&self) -> Vec<StartedRuns> {
        let live = self.live.iter().map(|(number, count)| StartedRuns::of(*number, count.next));
        let ended = self.ended.iter();
        let ended = ended.map(|(first, (last, count))| StartedRuns {
            first: *first,
            last: *last,
            count: *count,
        });
        let mut list: Vec<StartedRuns> = live.chain(ended).collect();
        list.sort_unstable_by_key(|range| range.first);
        list
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
