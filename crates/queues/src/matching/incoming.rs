//! Receiving end of the ring from one rank.

use super::line::{LINE_BYTES, Line};
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
    /// the message. Returns true if the message is complete.
    #[inline]
    pub(super) fn take_lines(&mut self, mut accept: impl FnMut(u64, &Line, usize)) -> bool {
        let Some(mut arrival) = self.arrival else { return false };
        while arrival.done < arrival.bytes {
            let Some(line) = self.take() else {
                self.arrival = Some(arrival);
                return false;
            };
            let length = (arrival.bytes - arrival.done).min(LINE_BYTES as u64);
            accept(arrival.done, &line, length as usize);
            arrival.done += length;
        }
        self.arrival = None;
        true
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
