//! Receiving end of the ring from one rank.

use super::line::{Ending, LINE_BYTES, Line, gap_lines, tail_lines};
use super::memory::{Mailbox, Ring};
use super::slab::Key;
use crate::channel::ring::Consumer;
use shm::mapped::Mapped;
use shm::word_copy::load_lines;

/// Message with lines on their way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) message: Key,
    /// Bytes that have arrived.
    pub(super) done: u64,
    /// Length of the message.
    pub(super) bytes: u64,
    /// Lines that are in the ring behind the last one that was taken: the rest of its block.
    pub(super) tail: u64,
    /// A line follows that states whether the bytes are the message's.
    pub(super) has_end: bool,
}

/// Destination of the bytes of an arriving message.
#[derive(Debug)]
pub(super) enum Sink<'a> {
    /// None: the bytes are passed over.
    Discarded,
    /// The buffer of the receive, which may be shorter than the message.
    Buffer(&'a mut [u8]),
    /// Memory of this process, for at most so many bytes. It holds all that have arrived.
    Kept(&'a mut Vec<u8>, u64),
}

impl Sink<'_> {
    /// Returns the place of the message's bytes from `at` on, `length` or fewer.
    #[inline]
    pub(super) fn place(&mut self, at: u64, length: u64) -> &mut [u8] {
        match self {
            Sink::Discarded => &mut [],
            Sink::Buffer(buffer) => {
                let end = (buffer.len() as u64).min(at + length) as usize;
                &mut buffer[end.min(at as usize)..end]
            }
            Sink::Kept(data, keep) => {
                let end = (*keep).min(at + length) as usize;
                data.resize(end.max(data.len()), 0);
                &mut data[end.min(at as usize)..end]
            }
        }
    }
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
            self.publish();
        }
        Some(Line { lead, last })
    }

    /// Takes so many lines behind the last one, which have arrived with it.
    #[inline]
    fn take_tail(&mut self, lines: u64, into: &mut [u8]) {
        let before = self.consumer.position();
        let mut rest = into;
        self.consumer.take_tail::<7>(self.ring.words(), lines, |words, lasts| {
            let part;
            let length = rest.len().min(size_of_val(words));
            (part, rest) = std::mem::take(&mut rest).split_at_mut(length);
            load_lines(words, part, lasts);
        });
        if self.consumer.is_due_since(before) {
            self.publish();
        }
    }

    /// Skips the empty lines behind a message.
    #[inline]
    fn skip(&mut self, lines: u64) {
        let before = self.consumer.position();
        self.consumer.skip(lines);
        if self.consumer.is_due_since(before) {
            self.publish();
        }
    }

    /// Publishes which lines are free.
    #[cold]
    fn publish(&self) {
        self.consumer.publish(self.ring.words());
        // The sender may wait for space.
        self.sender.wakeup().notify();
    }

    /// Takes lines of the arriving message until it is complete or no more have arrived. Returns
    /// how the message has ended, if it has.
    #[inline]
    pub(super) fn take_lines(&mut self, sink: &mut Sink<'_>) -> Option<Ending> {
        let mut arrival = self.arrival?;
        while arrival.done < arrival.bytes {
            let left = arrival.bytes - arrival.done;
            // The first line of a block is put in last, so the lines behind it are there and need
            // no check.
            let length = if arrival.tail > 0 {
                let length = left.min(arrival.tail * LINE_BYTES as u64);
                self.take_tail(arrival.tail, sink.place(arrival.done, length));
                arrival.tail = 0;
                length
            } else {
                let Some(line) = self.take() else {
                    self.arrival = Some(arrival);
                    return None;
                };
                let length = left.min(LINE_BYTES as u64);
                line.copy_to(sink.place(arrival.done, length));
                arrival.tail = tail_lines(left - length);
                length
            };
            arrival.done += length;
        }
        // The line with the ending may not have arrived: the next call then continues here.
        self.arrival = Some(arrival);
        let ending = if arrival.has_end {
            Ending::of_line(&self.take()?)
        } else {
            self.skip(gap_lines(arrival.bytes));
            Ending::Whole
        };
        self.arrival = None;
        Some(ending)
    }

    /// Returns credit to the sender.
    #[inline]
    pub(super) fn return_credit(&mut self, bytes: u64) {
        self.returned += bytes;
        // Without a wake-up: a sender that lacks credit offers its message and waits for no credit.
        // At most a quarter of the credit is unpublished, so a sender has three quarters once its
        // messages are delivered.
        if self.returned - self.published >= self.interval {
            self.published = self.returned;
            self.ring.publish_returned(self.returned);
        }
    }
}
