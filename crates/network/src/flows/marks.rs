//! Marks of ranks, which wake the ends of flows at rest.
//!
//! An end without traffic is at *rest*: its request was made before a barrier, and it is not polled.
//! A rank that finds the request sets the mark of the end's object before it writes to the event. So
//! a turn in which nothing happens costs at most eight loads for each rank, however many channels are
//! open. Objects share 512 marks; a mark wakes all ends at rest that have it.
//!
//! A mark stays set after it has woken its ends. It wakes nothing more, because no end with it rests,
//! and it is cleared before the next one does.

use shm::mapped::Mapped;
use shm::segment::Offset;
use shm::sync::{AtomicU64, Ordering};
use std::collections::HashMap;

const WORDS: usize = 8;

shm::shared_lines! {
    /// Marks of the objects of one rank. The rank sets them; its node service clears that of an end
    /// that is about to rest.
    pub(crate) struct MarkLine {
        words: [AtomicU64; WORDS],
    }
}

/// Place of a mark: its word and its bit.
type Mark = (usize, u64);

/// Returns the mark of the object at an offset. Offsets have steps of many sizes.
fn mark_of(at: Offset) -> Mark {
    let number = at.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 55;
    ((number / 64) as usize, 1 << (number % 64))
}

impl MarkLine {
    /// Marks the object at an offset. The caller has changed it before, and notifies afterwards.
    pub(crate) fn set(&self, at: Offset) {
        let (word, bit) = mark_of(at);
        // A mark found set is cleared later: the barrier in between makes the change visible to the
        // poll that follows the clear. SeqCst: pairs with the clear in `AtRest::clear` and the load
        // in `AtRest::wake`.
        if self.words[word].load(Ordering::SeqCst) & bit == 0 {
            self.words[word].fetch_or(bit, Ordering::SeqCst);
        }
    }
}

/// An end of a flow, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum EndNumber {
    Source(usize),
    Sink(usize),
}

/// An end that may rest: the rank with its object, and the offset of that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resting {
    pub(super) end: EndNumber,
    pub(super) rank: u32,
    pub(super) at: Offset,
}

/// Ends that are polled only once their objects are marked.
#[derive(Debug, Default)]
pub(super) struct AtRest {
    ranks: HashMap<u32, RankAtRest>,
}

#[derive(Debug)]
struct RankAtRest {
    line: Mapped<MarkLine>,
    ends: HashMap<Mark, Vec<EndNumber>>,
    /// The mark of each of these ends. An end that was polled for another reason, or closed, stays
    /// among them, so a number has one place however often it rests. Its mark then activates an end
    /// that does not rest, which costs one poll.
    places: HashMap<EndNumber, Mark>,
    /// Marks of these ends.
    awaited: [u64; WORDS],
}

impl AtRest {
    /// Adds a rank with its marks.
    pub(super) fn open(&mut self, rank: u32, line: Mapped<MarkLine>) {
        let opened =
            RankAtRest { line, ends: HashMap::new(), places: HashMap::new(), awaited: [0; WORDS] };
        self.ranks.insert(rank, opened);
    }

    /// Removes a rank and its ends.
    pub(super) fn close(&mut self, rank: u32) {
        self.ranks.remove(&rank);
    }

    /// Clears the mark of an end before the barrier after which it may rest, and passes the ends at
    /// rest that were marked to `woken`. Returns false if the rank has no marks.
    pub(super) fn clear(&mut self, resting: Resting, woken: impl FnMut(EndNumber)) -> bool {
        let Some(rank) = self.ranks.get_mut(&resting.rank) else { return false };
        let mark @ (word, bit) = mark_of(resting.at);
        // SeqCst: pairs with the load in `MarkLine::set`. A rank that still finds the mark has changed
        // its object before, and the barrier of the caller precedes its poll of the object. Any other
        // rank sets the mark again.
        if rank.line.words[word].fetch_and(!bit, Ordering::SeqCst) & bit != 0 {
            rank.awaited[word] &= !bit;
            rank.take(mark, woken);
        }
        true
    }

    /// Number of places of ends.
    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        let lists = self.ranks.values().flat_map(|rank| rank.ends.values());
        let listed = lists.map(Vec::len).sum();
        let placed: usize = self.ranks.values().map(|rank| rank.places.len()).sum();
        assert_eq!(placed, listed);
        listed
    }

    /// Puts an end to rest: its mark was cleared, and it had nothing after the barrier.
    pub(super) fn rest(&mut self, resting: Resting) {
        if let Some(rank) = self.ranks.get_mut(&resting.rank) {
            let mark @ (word, bit) = mark_of(resting.at);
            rank.awaited[word] |= bit;
            let before = rank.places.insert(resting.end, mark);
            if before == Some(mark) {
                return;
            }
            // The number was that of another end.
            if let Some(ends) = before.and_then(|before| rank.ends.get_mut(&before)) {
                ends.retain(|end| *end != resting.end);
            }
            rank.ends.entry(mark).or_default().push(resting.end);
        }
    }

    /// Passes the ends with marks to `woken`.
    pub(super) fn wake(&mut self, mut woken: impl FnMut(EndNumber)) {
        for rank in self.ranks.values_mut() {
            for word in 0..WORDS {
                if rank.awaited[word] == 0 {
                    continue;
                }
                // SeqCst: pairs with `MarkLine::set`. What the rank has changed before is visible.
                let mut marked = rank.line.words[word].load(Ordering::SeqCst) & rank.awaited[word];
                rank.awaited[word] &= !marked;
                while marked != 0 {
                    let bit = marked & marked.wrapping_neg();
                    marked ^= bit;
                    rank.take((word, bit), &mut woken);
                }
            }
        }
    }
}

impl RankAtRest {
    /// Passes the ends with a mark to `woken`: they rest no more.
    fn take(&mut self, mark: Mark, mut woken: impl FnMut(EndNumber)) {
        for end in self.ends.remove(&mark).into_iter().flatten() {
            self.places.remove(&end);
            woken(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shm::segment::{Backing, Segment};
    use std::sync::Arc;

    #[test]
    fn an_end_that_rests_again_and_again_has_one_place() {
        let segment = Arc::new(Segment::create(4096, Backing::Memory).expect("memory"));
        let line = Mapped::<MarkLine>::new(&segment, Offset(0)).expect("inside");
        let mut at_rest = AtRest::default();
        at_rest.open(0, line.clone());
        let end = EndNumber::Sink(3);
        for at in [64, 64, 128, 192, 64].map(Offset).into_iter().cycle().take(10_000) {
            at_rest.clear(Resting { end, rank: 0, at }, |_| panic!("no mark is set"));
            at_rest.rest(Resting { end, rank: 0, at });
        }
        assert_eq!(at_rest.places(), 1);
        line.set(Offset(64));
        let mut woken = Vec::new();
        at_rest.wake(|end| woken.push(end));
        at_rest.wake(|_| panic!("it rests no more"));
        assert_eq!(woken, [end]);
    }
}
