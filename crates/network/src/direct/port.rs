//! A rank's end of its messages with other ranks.
//!
//! The first message to a rank leaves at once. A short one that follows another within some
//! microseconds, without a wait or a test between, stays until others share its frame. It leaves with
//! the next call that waits or tests, or by the background thread, which then looks every
//! millisecond.

mod exits;

use super::messages::received::Arrived;
use super::messages::send_credit::frame_bytes;
use crate::agent::messages::port::MessagePort;
use crate::direct::driver::Driver;
use crate::transport::records::BATCH_BYTES;
use crate::transport::records::messages::{
    Class, HEAD_BYTES, Head, MAX_BYTES, record_bytes, split_first,
};
use exits::Exits;
use shm::mapped::Mapped;
use shm::sync::AtomicU32;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time between two looks at the connections in calls that do not wait for other nodes.
const LOOK_INTERVAL: Duration = Duration::from_micros(20);

/// Time between two messages up to which the second one may wait for others.
const BURST_INTERVAL: Duration = Duration::from_micros(10);

/// Longest record that waits, and bytes of records that do.
const JOINED_RECORD: usize = 256;
const JOINED: usize = 1 << 10;

/// Words that no rank sends: the receiver refuses their sender.
const INVALID: [u64; 3] = [u64::MAX; 3];

/// A rank's end of its messages. One thread at a time uses it.
#[derive(Debug)]
pub struct DirectPort {
    rank: u32,
    driver: Arc<Driver>,
    /// Reports exits. No rank sends messages by it.
    reports: MessagePort,
    /// Records that were put and not published, by receiver, in frames.
    unpublished: Vec<(u32, Vec<u8>)>,
    /// Frames that have arrived, and the position of the next record in the first one.
    arrived: VecDeque<Arrived>,
    at: usize,
    exits: Exits,
    current: Option<Current>,
    looked: Instant,
    burst: Option<Burst>,
}

/// Messages to one rank, without a call between that looks for others.
#[derive(Clone, Copy, Debug)]
struct Burst {
    to: u32,
    /// Time of the last one.
    last: Instant,
    /// Bytes that were passed to the engine and wait for others.
    waiting: usize,
}

/// The first record.
#[derive(Debug)]
enum Current {
    /// The next one of the first frame.
    InFrame(Head),
    /// The exit of a rank, with these bytes.
    Exit(u32, Vec<u8>),
    /// A sign that a rank sends what no rank sends.
    Invalid(u32),
}

impl Current {
    fn head(&self) -> Head {
        match self {
            Current::InFrame(head) => *head,
            Current::Exit(peer, why) => {
                Head { peer: *peer, class: Class::Exit, bytes: why.len(), words: [0; 3] }
            }
            Current::Invalid(peer) => {
                Head { peer: *peer, class: Class::Message, bytes: 0, words: INVALID }
            }
        }
    }
}

impl DirectPort {
    pub(in crate::direct) fn new(
        rank: u32,
        driver: Arc<Driver>,
        reports: MessagePort,
        wakeup: Mapped<AtomicU32>,
        near: impl IntoIterator<Item = u32>,
    ) -> Self {
        driver.messages.received.set_wakeup(wakeup);
        driver.messages.is_open.store(true, Ordering::Relaxed);
        // A thread that leaves the engine begins the looks.
        drop(driver.try_lock());
        DirectPort {
            rank,
            driver,
            reports,
            unpublished: Vec::new(),
            arrived: VecDeque::new(),
            at: 0,
            exits: Exits::new(near),
            current: None,
            looked: Instant::now(),
            burst: None,
        }
    }

    /// Returns true if so many records for a rank, of so many bytes together, may be added to what
    /// has not been sent. They then are its next ones that can be put, whatever else the rank
    /// sends. Otherwise the rank's waiting threads are woken when there is space.
    #[inline]
    pub fn has_space(&mut self, to: u32, records: u64, bytes: u64) -> bool {
        let own = self.unpublished.iter().filter(|(other, _)| *other == to);
        let own: u64 = own.map(|(_, records)| frame_bytes(records.len())).sum();
        // Each record may begin a frame.
        let added = records * frame_bytes(0) + bytes;
        self.driver.messages.send_credit.has_space(to, own + added)
    }

    /// Adds a record for a rank; false if there is no space. `bytes` has at most
    /// [`MAX_BYTES`]. It leaves with the next [`publish`](Self::publish).
    #[inline]
    pub fn put(&mut self, to: u32, words: [u64; 3], bytes: &[u8]) -> bool {
        let length = record_bytes(bytes.len());
        if to == self.rank || bytes.len() > MAX_BYTES || !self.has_space(to, 1, length) {
            return false;
        }
        let is_open =
            |(other, records): &&mut (u32, Vec<u8>)| *other == to && records.len() < BATCH_BYTES;
        // The last one: frames for a rank leave in order.
        let frame = match self.unpublished.iter_mut().rev().find(is_open) {
            Some((_, records)) => records,
            None => {
                self.unpublished.push((to, Vec::with_capacity(length as usize)));
                let Some((_, records)) = self.unpublished.last_mut() else { return false };
                records
            }
        };
        let head = Head { peer: to, class: Class::Message, bytes: bytes.len(), words };
        let end = frame.len() + length as usize;
        frame.extend_from_slice(&head.encode());
        frame.extend_from_slice(bytes);
        frame.resize(end, 0);
        true
    }

    /// Passes the records that were put on to the system, or to the thread that has the engine.
    #[inline]
    pub fn publish(&mut self) {
        if self.unpublished.is_empty() {
            return;
        }
        for (to, records) in &self.unpublished {
            self.driver.messages.send_credit.submit(*to, frame_bytes(records.len()));
        }
        self.driver.submissions.send(&mut self.unpublished);
        self.driver.send();
        self.burst = None;
    }

    /// As [`publish`](Self::publish), for a message. The first one leaves at once. A short one that
    /// follows another one to its rank at once waits for further ones, until the rank looks for
    /// messages, or the background thread does: a call of the system takes longer than many of them.
    #[inline]
    pub fn publish_soon(&mut self) {
        let [(to, records)] = &mut self.unpublished[..] else { return self.publish() };
        let to = *to;
        let length = records.len();
        let now = Instant::now();
        let waiting = match self.burst {
            Some(Burst { to: last_to, last, waiting }) if last_to == to => {
                let follows = now.saturating_duration_since(last) < BURST_INTERVAL;
                let waits = follows && length <= JOINED_RECORD && waiting + length <= JOINED;
                (waits && self.driver.background.is_started()).then_some(waiting + length)
            }
            _ => None,
        };
        if let Some(waiting) = waiting {
            let send_credit = &self.driver.messages.send_credit;
            send_credit.submit(to, frame_bytes(length));
            if self.driver.submissions.join(to, std::mem::take(records)) {
                // The frame that they have joined has a header.
                send_credit.sent(to, frame_bytes(0));
            }
            self.unpublished.clear();
            self.driver.background.tick();
            self.burst = Some(Burst { to, last: now, waiting });
            return;
        }
        self.publish();
        self.burst = Some(Burst { to, last: now, waiting: 0 });
    }

    /// Ends a burst: what waits leaves.
    #[inline]
    fn end_burst(&mut self) {
        if let Some(Burst { waiting: 1.., .. }) = self.burst.take() {
            self.driver.send();
        }
    }

    /// Takes what has arrived at the connections, in a call that waits for other nodes or now and
    /// then in every other call. Returns false if it has not looked.
    pub fn look(&mut self, is_awaited: bool) -> bool {
        self.end_burst();
        if !is_awaited {
            let now = Instant::now();
            if now.saturating_duration_since(self.looked) < LOOK_INTERVAL {
                return false;
            }
            self.looked = now;
        }
        self.driver.advance();
        true
    }

    /// Returns the head of the first record that has arrived, until it is
    /// [released](Self::release).
    #[inline]
    pub fn first(&mut self) -> Option<Head> {
        self.end_burst();
        if self.current.is_none() {
            self.current = self.next();
        }
        self.current.as_ref().map(Current::head)
    }

    fn next(&mut self) -> Option<Current> {
        loop {
            match self.arrived.front() {
                Some(Arrived::Records { from, records }) => {
                    let from = *from;
                    if let Some((head, ..)) = split_first(&records[self.at..]) {
                        let is_own = head.peer == self.rank;
                        let head = Head { peer: from, ..head };
                        return Some(match is_own {
                            true => Current::InFrame(head),
                            false => Current::Invalid(from),
                        });
                    }
                    // The decoder of frames has checked that they consist of whole records.
                    self.at = 0;
                    self.arrived.pop_front();
                    if !self.exits.is_empty() {
                        self.exits.note_arrival(from);
                    }
                }
                Some(Arrived::Invalid { from }) => return Some(Current::Invalid(*from)),
                Some(Arrived::Lost(lost)) => {
                    self.exits.end(lost.clone());
                    self.arrived.pop_front();
                }
                None if self.driver.messages.received.has_any() => {
                    self.driver.messages.received.take(&mut self.arrived);
                }
                None => return self.next_exit(),
            }
        }
    }

    /// The next exit; nothing else has arrived.
    fn next_exit(&mut self) -> Option<Current> {
        while let Some(head) = self.reports.first() {
            if head.class == Class::Exit {
                let mut why = vec![0; head.bytes];
                self.reports.read(0, &mut why);
                self.exits.explain(head.peer, why);
                // What has arrived before a node has vanished comes first.
                self.driver.advance();
            }
            self.reports.release();
        }
        if self.exits.is_empty() || self.driver.messages.received.has_any() {
            return None;
        }
        let exit = self.exits.next();
        self.driver.messages.set_unexplained(self.exits.has_unexplained());
        exit.map(|(rank, why)| Current::Exit(rank, why))
    }

    /// Reads bytes of the first record, from byte `at` on.
    #[inline]
    pub fn read(&self, at: usize, into: &mut [u8]) {
        let bytes = match (&self.current, self.arrived.front()) {
            (Some(Current::InFrame(head)), Some(Arrived::Records { records, .. })) => {
                let start = self.at + HEAD_BYTES;
                records.get(start..start + head.bytes)
            }
            (Some(Current::Exit(_, why)), _) => Some(&why[..]),
            _ => None,
        };
        let bytes = bytes.and_then(|bytes| bytes.get(at..at + into.len()));
        debug_assert!(bytes.is_some() || into.is_empty(), "the bytes belong to the record");
        if let Some(bytes) = bytes {
            into.copy_from_slice(bytes);
        }
    }

    /// Removes the first record.
    #[inline]
    pub fn release(&mut self) {
        match self.current.take() {
            Some(Current::InFrame(head)) => self.at += head.record_bytes() as usize,
            // The rest of an invalid frame counts as little.
            Some(Current::Invalid(_)) => {
                self.at = 0;
                self.arrived.pop_front();
            }
            Some(Current::Exit(..)) | None => {}
        }
    }

    /// Ends the sleep of a thread of the rank on the connections.
    pub fn wake(&self) {
        self.driver.submissions.notify();
    }

    /// Returns a number that changes whenever something leaves for a rank, if there are bytes that the
    /// system does not take before the rank reads; `None` if there are none.
    pub fn held_up(&self, to: u32) -> Option<u64> {
        self.driver.messages.send_credit.held_up(to)
    }

    /// Gives up what has not left for a rank: this one, which leaves, waits for it no longer.
    pub fn give_up(&mut self, to: u32) {
        self.driver.messages.send_credit.give_up(to);
    }

    /// Returns true if exits are reported no more: the node service has ended.
    pub fn has_failed(&self) -> bool {
        self.reports.has_failed()
    }
}
