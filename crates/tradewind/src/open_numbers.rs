//! The communicators between nodes that a rank has, and what its backends learn of those that end.
//!
//! A backend frees the memory of the numbers that the rank neither has nor will have. Numbers ascend,
//! but threads create communicators at the same time: so a number waits as long as a thread may still
//! get it, or a lower one.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Numbers of the communicators between nodes of a rank.
#[derive(Debug, Default)]
pub(crate) struct OpenNumbers {
    open: BTreeSet<u32>,
    /// For each communicator that is being created, a number that is not above its own.
    creating: Vec<u32>,
    /// Numbers that have ended, and of which the backends have not learnt.
    waiting: BTreeSet<u32>,
}

impl OpenNumbers {
    /// Notes that a communicator is being created. Its number will be `least` or above.
    pub(crate) fn begin(&mut self, least: u32) {
        self.creating.push(least);
    }

    /// Notes a communicator, before the [end](Self::end_creation) of its creation.
    pub(crate) fn open(&mut self, number: u32) {
        self.open.insert(number);
    }

    /// Notes the end of a creation, with a communicator or without.
    pub(crate) fn end_creation(&mut self, least: u32) {
        if let Some(at) = self.creating.iter().position(|other| *other == least) {
            self.creating.swap_remove(at);
        }
    }

    /// Notes the end of a communicator.
    pub(crate) fn close(&mut self, number: u32) {
        if self.open.remove(&number) {
            self.waiting.insert(number);
        }
    }

    /// Numbers that the rank does not use any more, in ranges of which each ends with a communicator
    /// that has ended, in order.
    pub(crate) fn take_ended(&mut self) -> Vec<RangeInclusive<u32>> {
        let least = self.creating.iter().min().copied().unwrap_or(u32::MAX);
        let later = self.waiting.split_off(&least);
        let ended = std::mem::replace(&mut self.waiting, later);
        // Not above the last number before that is in use. That of all ranks never ends.
        let first = |number: u32| self.open.range(..number).next_back().map_or(1, |open| open + 1);
        ended.into_iter().map(|number| first(number)..=number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_number_ends_when_no_lower_one_can_come() {
        let mut numbers = OpenNumbers::default();
        numbers.begin(1);
        numbers.begin(2);
        numbers.open(7);
        numbers.end_creation(2);
        numbers.close(7);
        assert_eq!(numbers.take_ended(), [], "the other may be below");
        numbers.open(5);
        numbers.end_creation(1);
        assert_eq!(numbers.take_ended(), [6..=7]);
        numbers.begin(8);
        numbers.close(5);
        assert_eq!(numbers.take_ended(), [1..=5], "the next is above");
        assert_eq!(numbers.take_ended(), []);
        assert!(numbers.open.is_empty() && numbers.waiting.is_empty());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Begin,
        /// Ends one of the creations, some with a communicator.
        Create(usize, bool),
        Close(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            Just(Step::Begin),
            (any::<usize>(), any::<bool>()).prop_map(|(at, is_made)| Step::Create(at, is_made)),
            any::<usize>().prop_map(Step::Close),
        ]
    }

    proptest! {
        #[test]
        fn ended_numbers_are_all_but_those_that_are_open_or_come(
            steps in prop::collection::vec(step(), 0..100)
        ) {
            let mut numbers = OpenNumbers::default();
            let (mut creations, mut open, mut closed) = (Vec::new(), Vec::new(), Vec::new());
            let mut ended = BTreeSet::new();
            let mut next = 1;
            for step in steps {
                match step {
                    Step::Begin => {
                        numbers.begin(next);
                        // Ranks of the other nodes may have had more communicators.
                        creations.push((next, next + 1));
                        next += 2;
                    }
                    Step::Create(at, is_made) if !creations.is_empty() => {
                        let (least, number) = creations.swap_remove(at % creations.len());
                        if is_made {
                            numbers.open(number);
                            open.push(number);
                        }
                        numbers.end_creation(least);
                    }
                    Step::Close(at) if !open.is_empty() => {
                        let number = open.swap_remove(at % open.len());
                        numbers.close(number);
                        closed.push(number);
                    }
                    Step::Create(..) | Step::Close(_) => {}
                }
                for range in numbers.take_ended() {
                    prop_assert!(closed.contains(range.end()));
                    ended.extend(range);
                }
                let coming = creations.iter().map(|(_, number)| *number);
                prop_assert!(open.iter().copied().chain(coming).all(|one| !ended.contains(&one)));
                prop_assert!(ended.range(next..).next().is_none());
                let least = creations.iter().map(|(least, _)| *least).min().unwrap_or(u32::MAX);
                let are_told = |one: &u32| *one >= least || ended.contains(one);
                prop_assert!(closed.iter().all(are_told));
            }
        }
    }
}
