//! Matching during the run: receives with a wildcard, and the sends that only they can take.
//!
//! Each rank with such receives has a matcher in its frame. An event (a message arrived, a receive
//! was posted) is written to a list. The process that finds the matcher idle processes the list for
//! all others until it is empty; submitting an event costs two additions and a store, and no
//! process waits (see [`combiner`]).
//!
//! Pairs form by the rule of [`goal::matching`]: a message goes to the first posted receive, in
//! vertex order, that admits it; a posted receive takes the earliest arrived message that it
//! admits.

use crate::error::Error;
use crate::protocol::combiner;
use goal::link::{LinkedRank, WildcardSend};
use shm::mapped::{Mapped, MappedSlice};
use shm::segment::{Offset, Segment};
use shm::sync::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

shm::shared_lines! {
    /// The heads of a matcher's lists.
    struct MatcherLine {
        /// Number of events written and not yet processed. AcqRel: transfers the lists below from
        /// one processing rank to the next.
        pending: AtomicU32,
        /// Number of positions reserved for events.
        tail: AtomicU32,
        /// Number of events processed without a gap. This word and the next are accessed by the
        /// processing rank only.
        head: AtomicU32,
        arrived: AtomicU32,
    }
}

/// Returns the bytes of a matcher with this many events in a run.
pub(crate) fn matcher_bytes(events: u64) -> u64 {
    let positions = events.next_power_of_two();
    64 + 8 * positions + 4 * events + 4 * events
}

/// An event at a matcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatcherEvent {
    /// The wildcard receive of this number was posted.
    Posted(u32),
    /// The message of the wildcard send of this number arrived.
    Arrived(u32),
}

/// Flag in the code of an event: an arrival.
const ARRIVED: u32 = 1 << 31;
/// Code of a processed event behind an unprocessed one.
const PROCESSED: u32 = ARRIVED - 1;

/// One rank's matcher in one slot.
#[derive(Debug)]
pub(crate) struct WildcardMatcher {
    line: Mapped<MatcherLine>,
    /// `(position + 1) << 32 | code`
    events: MappedSlice<AtomicU64>,
    /// By wildcard receive: 1 while posted and not matched.
    posted: MappedSlice<AtomicU32>,
    /// Messages in arrival order: number + 1, or 0 after the message was taken.
    messages: MappedSlice<AtomicU32>,
}

/// A wildcard receive and the send that it takes, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MatchedPair {
    pub(crate) receive: u32,
    pub(crate) send: u32,
}

impl WildcardMatcher {
    pub(crate) fn new(
        segment: &Arc<Segment>,
        at: Offset,
        rank: &LinkedRank,
    ) -> Result<Self, Error> {
        let events = rank.wildcards.len() + rank.wildcard_sends.len();
        // A power of two, so consecutive positions stay neighbours when their count wraps.
        let positions = events.next_power_of_two();
        let posted_at = at.0 + 64 + 8 * positions as u64;
        Ok(WildcardMatcher {
            line: Mapped::new(segment, at)?,
            events: MappedSlice::new(segment, Offset(at.0 + 64), positions)?,
            posted: MappedSlice::new(segment, Offset(posted_at), events)?,
            messages: MappedSlice::new(segment, Offset(posted_at + 4 * events as u64), events)?,
        })
    }

    /// Records an event. Returns the pairs that the caller must carry out; none if another process
    /// processes the events.
    pub(crate) fn submit(&self, event: MatcherEvent, rank: &LinkedRank) -> Vec<MatchedPair> {
        let code = match event {
            MatcherEvent::Posted(number) => number,
            MatcherEvent::Arrived(number) => number | ARRIVED,
        };
        // Relaxed: the position is only a number; the store below publishes the event.
        let position = self.line.tail.fetch_add(1, Ordering::Relaxed);
        let entry = u64::from(position.wrapping_add(1)) << 32 | u64::from(code);
        // Release: pairs with the Acquire in `process`.
        self.event(position).store(entry, Ordering::Release);
        let mut pairs = Vec::new();
        combiner::submit(&self.line.pending, |count| self.process(count, rank, &mut pairs));
        pairs
    }

    fn event(&self, position: u32) -> &AtomicU64 {
        &self.events[position as usize % self.events.len()]
    }

    /// Processes `count` events. Each was written before `pending` counted it. An entry at an
    /// earlier position may still be unwritten: it is not counted yet, so it is skipped here and
    /// processed by the process that its writer's count starts.
    fn process(&self, count: u32, rank: &LinkedRank, pairs: &mut Vec<MatchedPair>) {
        // Relaxed, here and below: `pending` orders the accesses of successive processing ranks.
        let mut position = self.line.head.load(Ordering::Relaxed);
        let mut left = count;
        while left > 0 {
            // Acquire: pairs with the Release in `submit`.
            let entry = self.event(position).load(Ordering::Acquire);
            let tag = position.wrapping_add(1);
            if (entry >> 32) as u32 == tag && entry as u32 != PROCESSED {
                self.handle(entry as u32, rank, pairs);
                self.event(position)
                    .store(u64::from(tag) << 32 | u64::from(PROCESSED), Ordering::Relaxed);
                left -= 1;
            }
            position = position.wrapping_add(1);
        }
        // The head stops at the first skipped entry, so a later call finds that entry.
        let mut head = self.line.head.load(Ordering::Relaxed);
        let processed = |at: u32| u64::from(at.wrapping_add(1)) << 32 | u64::from(PROCESSED);
        while head != position && self.event(head).load(Ordering::Relaxed) == processed(head) {
            head = head.wrapping_add(1);
        }
        self.line.head.store(head, Ordering::Relaxed);
    }

    fn handle(&self, code: u32, rank: &LinkedRank, pairs: &mut Vec<MatchedPair>) {
        let number = code & !ARRIVED;
        let pair = if code & ARRIVED == 0 {
            self.take_message(number, rank).map(|send| MatchedPair { receive: number, send })
        } else {
            self.take_posted(number, rank).map(|receive| MatchedPair { receive, send: number })
        };
        pairs.extend(pair);
    }

    /// Takes the earliest arrived message that a receive admits, or marks the receive as posted.
    fn take_message(&self, receive: u32, rank: &LinkedRank) -> Option<u32> {
        let arrived = self.line.arrived.load(Ordering::Relaxed);
        let found = (0..arrived).find(|at| {
            let number = self.messages[*at as usize].load(Ordering::Relaxed);
            number != 0 && admits(rank, receive, &rank.wildcard_sends[number as usize - 1])
        });
        let Some(at) = found else {
            self.posted[receive as usize].store(1, Ordering::Relaxed);
            return None;
        };
        let number = self.messages[at as usize].swap(0, Ordering::Relaxed);
        self.forget_taken(arrived);
        Some(number - 1)
    }

    /// Takes the first posted receive that admits a message, or appends the message to the list.
    fn take_posted(&self, send: u32, rank: &LinkedRank) -> Option<u32> {
        let message = &rank.wildcard_sends[send as usize];
        let found = (0..rank.wildcards.len() as u32).find(|receive| {
            self.posted[*receive as usize].load(Ordering::Relaxed) != 0
                && admits(rank, *receive, message)
        });
        let Some(receive) = found else {
            // There is a place: a use of the slot has no more arrivals than the list has places,
            // and the list is emptied when the last message in it is taken.
            let at = self.line.arrived.load(Ordering::Relaxed);
            self.messages[at as usize].store(send + 1, Ordering::Relaxed);
            self.line.arrived.store(at + 1, Ordering::Relaxed);
            return None;
        };
        // Taken: each receive is paired once in a use of the slot.
        self.posted[receive as usize].store(0, Ordering::Relaxed);
        Some(receive)
    }

    /// Empties the list of messages after the last was taken.
    fn forget_taken(&self, arrived: u32) {
        let all_taken =
            (0..arrived).rev().all(|at| self.messages[at as usize].load(Ordering::Relaxed) == 0);
        if all_taken {
            self.line.arrived.store(0, Ordering::Relaxed);
        }
    }
}

/// Returns whether the wildcard receive of this number admits the message of a send.
fn admits(rank: &LinkedRank, receive: u32, send: &WildcardSend) -> bool {
    let operation = rank.wildcards[receive as usize];
    let record = &rank.schedule.view().operations()[operation as usize];
    record.peer().is_none_or(|peer| peer == send.rank)
        && record.tag().is_none_or(|tag| tag == send.tag)
}
