//! Receiving end of the ring from one rank.

use super::line::{Ending, LINE_BYTES, Line};
use super::memory::{Mailbox, Ring};
use super::slab::Key;
use crate::channel::ring::Consumer;
use shm::mapped::Mapped;

/// Message whose lines are on their way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) message: Key,
    /// Bytes that have arrived.
    pub(super) done: u64,
    /// Length of the message.
    pub(super) bytes: u64,
    /// A line follows that states whether the bytes are the message's.
    pub(super) has_end: bool,
}

/// Receiving end of a ring.
#[derive(Debug)]
pub(super) struct Incoming {
    ring: Ring,
    consumer: Consumer,
    sender: Mapped<Mailbox>,
    pub(super) arrival: Option<Arrival>,
    /// Credit returned in all, and the part of it that is published.
    returned: u64,
    published: u64,
    /// Credit after which the number is published.
    interval: u64,
}

impl Incoming {
    pub(super) fn new(ring: Ring, slots: u64, sender: Mapped<Mailbox>, credit: u64) -> Self {
        let consumer = Consumer::new(slots);
        let interval = credit / 4;
        Incoming { ring, consumer, sender, arrival: None, returned: 0, published: 0, interval }
    }

    /// Takes the next line, if it has arrived.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Option<Line> {
        // The stream never ends: a rank that leaves is found in the job's table of ranks.
        let (lead, last) = self.consumer.take::<7>(self.ring.words()).ok()?;
        if self.consumer.is_due() {
            self.consumer.publish(self.ring.words());
            // The sender may wait for space.
            self.sender.wakeup().notify();
        }
        Some(Line { lead, last })
    }

    /// Takes lines of the arriving message until it is complete, and passes each with its place in
    /// the message. Returns how the message has ended, if it has.
    #[inline]
    pub(super) fn take_lines(
        &mut self,
        mut accept: impl FnMut(u64, &Line, usize),
    ) -> Option<Ending> {
        let mut arrival = self.arrival?;
        while arrival.done < arrival.bytes {
            let Some(line) = self.take() else {
                self.arrival = Some(arrival);
                return None;
            };
            let length = (arrival.bytes - arrival.done).min(LINE_BYTES as u64);
            accept(arrival.done, &line, length as usize);
            arrival.done += length;
        }
        self.arrival = Some(arrival);
        let ending = if arrival.has_end { Ending::of_line(&self.take()?) } else { Ending::Whole };
        self.arrival = None;
        Some(ending)
    }

    /// Returns credit to the sender.
    #[inline]
    pub(super) fn return_credit(&mut self, bytes: u64) {
        self.returned += bytes;
        if self.returned - self.published >= self.interval {
            self.published = self.returned;
            self.ring.publish_returned(self.returned);
        }
    }
}
