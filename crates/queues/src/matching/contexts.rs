//! Communicators for which a rank receives messages.
//!
//! Messages of all other communicators are discarded, because no receive follows for them: their
//! senders need the credit and answers. A rank notes the communicators that it has, and not those
//! that it has dropped, so its memory is bounded by the former.
//!
//! A message may arrive while its communicator is being created here: another rank has completed
//! the creation, in which this one has taken part before. Numbers distinguish such a message from
//! those of dropped communicators: some of their bits count, and the ranks of a new communicator agree
//! on a count above those of all communicators that any of them has had.

use std::collections::BTreeSet;

/// Numbers of the communicators for which a rank receives messages. That of all ranks has number 0.
#[derive(Clone, Debug)]
pub struct Contexts {
    live: BTreeSet<u32>,
    /// Bits of a number that count.
    count_bits: u32,
    /// Number of communicators that are being created.
    creating: u32,
    /// Those that are being created have higher counts.
    floor: u32,
    /// Numbers above the floor that were dropped since.
    dropped: BTreeSet<u32>,
}

impl Contexts {
    /// Creates the contexts of a rank that has only the communicator of all ranks. The bits of
    /// `count_bits` in the number of a communicator count.
    pub fn new(count_bits: u32) -> Self {
        Contexts {
            live: BTreeSet::new(),
            count_bits,
            creating: 0,
            floor: 0,
            dropped: BTreeSet::new(),
        }
    }

    /// Notes that a communicator is being created. The count of `offer` is above those of all
    /// communicators so far, and that of the new one is not below it.
    pub fn begin(&mut self, offer: u32) {
        let floor = (offer & self.count_bits).saturating_sub(1);
        // Threads that begin at the same time may come here in any order.
        self.floor = if self.creating == 0 { floor } else { self.floor.min(floor) };
        self.creating += 1;
    }

    /// Notes the end of a creation: the number of the new communicator, or `None` if there is none.
    pub fn end(&mut self, number: Option<u32>) {
        self.live.extend(number);
        self.creating = self.creating.saturating_sub(1);
        if self.creating == 0 {
            self.dropped.clear();
        }
    }

    /// Notes that a communicator is dropped. No later one has its number.
    pub fn drop(&mut self, number: u32) {
        self.live.remove(&number);
        if self.may_be_new(number) {
            self.dropped.insert(number);
        }
    }

    /// Returns true if receives may follow for messages of the communicator.
    #[inline]
    pub fn accepts(&self, number: u32) -> bool {
        number == 0
            || self.live.contains(&number)
            || self.may_be_new(number) && !self.dropped.contains(&number)
    }

    /// Returns true if a communicator that is being created may have the number.
    fn may_be_new(&self, number: u32) -> bool {
        self.creating > 0 && number & self.count_bits > self.floor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_a_new_communicator_wait_for_its_creation() {
        let mut contexts = Contexts::new(0xffff);
        assert!(contexts.accepts(0) && !contexts.accepts(1 << 16 | 5));
        contexts.begin(3);
        assert!(contexts.accepts(1 << 16 | 5), "it may be the new one");
        contexts.end(Some(1 << 16 | 5));
        assert!(contexts.accepts(1 << 16 | 5) && !contexts.accepts(5));
        contexts.begin(6);
        contexts.drop(1 << 16 | 5);
        assert!(!contexts.accepts(1 << 16 | 5), "it is no new one");
        contexts.begin(7);
        contexts.end(Some(8));
        contexts.drop(8);
        assert!(!contexts.accepts(8) && contexts.accepts(9), "another one is being created");
        contexts.end(None);
        assert!(!contexts.accepts(9));
    }

    #[test]
    fn dropped_communicators_leave_nothing() {
        let mut contexts = Contexts::new(u32::MAX);
        for number in 1..1000 {
            contexts.begin(number);
            contexts.end(Some(number));
            contexts.drop(number);
        }
        assert!(contexts.live.is_empty() && contexts.dropped.is_empty());
    }
}
