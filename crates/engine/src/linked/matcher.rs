//! Matching during the run: receives with a wildcard and the sends that only they can take.
//!
//! Each rank with such receives has a matcher in its frame. What happens (a message arrives, a
//! receive is posted) is written to a list; whoever finds the matcher idle processes the list, for
//! everybody, until nothing is left. Nobody waits: to submit an event is two additions and a store,
//! and the one who brought `pending` from zero does the work.
//!
//! Which pairs form is the rule of [`goal::matching`]: a message goes to the first posted receive,
//! in vertex order, that admits it; a posted receive takes the earliest arrived message that it
//! admits.

use crate::error::Error;
use crate::linked::linker::{LinkedRank, WildcardSend};
use crate::protocol::combiner;
use shm::mapped::{Mapped, MappedSlice};
use shm::segment::{Offset, Segment};
use shm::sync::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

shm::shared_lines! {
    /// The heads of a matcher's lists.
    struct MatcherLine {
        /// Events written and not yet processed. AcqRel: hands the lists below from one processing
        /// rank to the next.
        pending: AtomicU32,
        /// ContributionLocation given out for events.
        tail: AtomicU32,
        /// Events processed without a gap; only the processing rank touches what follows.
        head: AtomicU32,
        arrived: AtomicU32,
    }
}

/// Bytes of a matcher with this many events a run.
pub(crate) fn matcher_bytes(events: u64) -> u64 {
    let locations = events.next_power_of_two();
    64 + 8 * locations + 4 * events + 4 * events
}

/// What can happen at a matcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The wildcard receive of this number is posted.
    Posted(u32),
    /// The matched send of this number has come.
    Arrived(u32),
}

const ARRIVED: u32 = 1 << 31;
/// Code of an event that is processed, but lies behind one that is not.
const PROCESSED: u32 = ARRIVED - 1;

/// One rank's matcher in one slot.
#[derive(Debug)]
pub(crate) struct WildcardMatcher {
    line: Mapped<MatcherLine>,
    /// `(place + 1) << 32 | code`
    events: MappedSlice<AtomicU64>,
    /// By wildcard receive: 1 while posted and not matched.
    posted: MappedSlice<AtomicU32>,
    /// Messages in arrival order: number + 1, or 0 when taken.
    messages: MappedSlice<AtomicU32>,
}

/// A receive and the send it takes.
pub(crate) type Match = (u32, u32);

impl WildcardMatcher {
    pub(crate) fn new(
        segment: &Arc<Segment>,
        at: Offset,
        rank: &LinkedRank,
    ) -> Result<Self, Error> {
        let events = rank.wildcards.len() + rank.wildcard_sends.len();
        // A power of two, so that locations go on without a jump when their count wraps.
        let locations = events.next_power_of_two();
        let posted_at = at.0 + 64 + 8 * locations as u64;
        Ok(WildcardMatcher {
            line: Mapped::new(segment, at)?,
            events: MappedSlice::new(segment, Offset(at.0 + 64), locations)?,
            posted: MappedSlice::new(segment, Offset(posted_at), events)?,
            messages: MappedSlice::new(segment, Offset(posted_at + 4 * events as u64), events)?,
        })
    }

    /// Says what happened; gives the pairs to carry out, when this caller is the one to process
    /// events.
    pub(crate) fn submit(&self, event: Event, rank: &LinkedRank) -> Vec<Match> {
        let code = match event {
            Event::Posted(number) => number,
            Event::Arrived(number) => number | ARRIVED,
        };
        let place = self.line.tail.fetch_add(1, Ordering::Relaxed);
        let entry = u64::from(place.wrapping_add(1)) << 32 | u64::from(code);
        // Release: pairs with the Acquire in `process`.
        self.event(place).store(entry, Ordering::Release);
        let mut matches = Vec::new();
        combiner::submit(&self.line.pending, |count| self.process(count, rank, &mut matches));
        matches
    }

    fn event(&self, place: u32) -> &AtomicU64 {
        &self.events[place as usize % self.events.len()]
    }

    /// Processes `count` events. Each of them was written before `pending` counted it, but an event
    /// with an earlier place may still be in the writing; it is passed over.
    fn process(&self, count: u32, rank: &LinkedRank, matches: &mut Vec<Match>) {
        let mut place = self.line.head.load(Ordering::Relaxed);
        let mut left = count;
        while left > 0 {
            // Acquire: pairs with the Release in `submit`.
            let entry = self.event(place).load(Ordering::Acquire);
            let tag = place.wrapping_add(1);
            if (entry >> 32) as u32 == tag && entry as u32 != PROCESSED {
                self.settle(entry as u32, rank, matches);
                self.event(place)
                    .store(u64::from(tag) << 32 | u64::from(PROCESSED), Ordering::Relaxed);
                left -= 1;
            }
            place = place.wrapping_add(1);
        }
        let mut head = self.line.head.load(Ordering::Relaxed);
        let processed = |place: u32| u64::from(place.wrapping_add(1)) << 32 | u64::from(PROCESSED);
        while head != place && self.event(head).load(Ordering::Relaxed) == processed(head) {
            head = head.wrapping_add(1);
        }
        self.line.head.store(head, Ordering::Relaxed);
    }

    fn settle(&self, code: u32, rank: &LinkedRank, matches: &mut Vec<Match>) {
        let admits = |receive: u32, send: &WildcardSend| {
            let operation = rank.wildcards[receive as usize];
            let record = &rank.schedule.view().operations()[operation as usize];
            record.peer().is_none_or(|peer| peer == send.rank)
                && record.tag().is_none_or(|tag| tag == send.tag)
        };
        if code & ARRIVED == 0 {
            let arrived = self.line.arrived.load(Ordering::Relaxed);
            let found = (0..arrived).find(|at| {
                let number = self.messages[*at as usize].load(Ordering::Relaxed);
                number != 0 && admits(code, &rank.wildcard_sends[number as usize - 1])
            });
            match found {
                Some(at) => {
                    let number = self.messages[at as usize].swap(0, Ordering::Relaxed);
                    self.forget_taken(arrived);
                    matches.push((code, number - 1));
                }
                None => self.posted[code as usize].store(1, Ordering::Relaxed),
            }
            return;
        }
        let number = code & !ARRIVED;
        let send = &rank.wildcard_sends[number as usize];
        let posted = (0..rank.wildcards.len() as u32).find(|receive| {
            self.posted[*receive as usize].load(Ordering::Relaxed) != 0 && admits(*receive, send)
        });
        match posted {
            Some(receive) => {
                self.posted[receive as usize].store(0, Ordering::Relaxed);
                matches.push((receive, number));
            }
            None => {
                let at = self.line.arrived.load(Ordering::Relaxed);
                self.messages[at as usize].store(number + 1, Ordering::Relaxed);
                self.line.arrived.store(at + 1, Ordering::Relaxed);
            }
        }
    }

    /// Shortens the list of messages when nothing is left in it.
    fn forget_taken(&self, arrived: u32) {
        let all_taken =
            (0..arrived).rev().all(|at| self.messages[at as usize].load(Ordering::Relaxed) == 0);
        if all_taken {
            self.line.arrived.store(0, Ordering::Relaxed);
        }
    }
}
