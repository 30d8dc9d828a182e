//! Sending end of a Basic ring; `ring.rs` describes the protocol.

use super::header_word::{BasicHeader, HeaderWord};
use super::ring::{
    ARRIVALS, ASKS_ARRIVAL, ASKS_HALF_FULL, AWAKE, CLOSED, CREDIT, Corruption, Geometry, IN_SET,
    INDEX, RECEIVER, REQUEST, RingError, RingSleeper, SENDER, SET, SLEEPS, SPACE, Signal,
};
use crate::sync::{AtomicU64, Ordering, fence};
use shm::wait::{Sleeper, SpinPolicy, Waiter, wait};
use std::ops::Deref;
use std::time::Instant;

/// Free space for a message at the sender's tail.
#[derive(Debug)]
pub struct FreeSpace {
    bytes: usize,
    /// Lines skipped before the end of the ring.
    skipped: u64,
}

/// Sending end. A ring has exactly one.
#[derive(Debug)]
pub struct RingSender<M: Deref<Target = [AtomicU64]>, S: Signal> {
    memory: M,
    signal: S,
    geometry: Geometry,
    policy: SpinPolicy,
    /// Next position to write.
    tail: u64,
    /// Position and header word of the first unpublished message.
    batch: Option<(u64, u64)>,
    /// Last known position up to which the receiver has released.
    credit: u64,
    /// One bit per line: set if its first word is data, or a header word older than the previous
    /// lap.
    stale: Box<[u64]>,
    /// Last answered event request, including its number.
    answered: u64,
    closed: bool,
}

impl<M: Deref<Target = [AtomicU64]>, S: Signal> RingSender<M, S> {
    /// Creates the end; `None` if the memory is too small for the ring. The memory is zero, and no
    /// other sender uses it.
    pub fn new(memory: M, geometry: Geometry, signal: S, policy: SpinPolicy) -> Option<Self> {
        let stale = vec![0; geometry.lines().div_ceil(64) as usize].into();
        let closed = false;
        (memory.len() >= geometry.words()).then(|| RingSender {
            memory,
            signal,
            geometry,
            policy,
            tail: 0,
            batch: None,
            credit: 0,
            stale,
            answered: 0,
            closed,
        })
    }

    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub fn signal_mut(&mut self) -> &mut S {
        &mut self.signal
    }

    pub fn signal(&self) -> &S {
        &self.signal
    }

    /// Starts a message in the space that [`Self::space_for`] or [`Self::wait_for_space`] returned.
    pub fn compose(&mut self, header: BasicHeader, space: FreeSpace) -> ReservedMessage<'_, M, S> {
        // Recorded now, before the message is finished: an abandoned message leaves data in its
        // lines, too.
        for line in 1..self.geometry.lines_of(space.bytes) {
            self.set_stale(self.tail + space.skipped + line, true);
        }
        ReservedMessage { sender: self, header, space }
    }

    /// Returns space for a message of this length; `None` if there is none.
    pub fn space_for(&mut self, bytes: usize) -> Result<Option<FreeSpace>, RingError> {
        let most = self.geometry.longest();
        if bytes > most {
            return Err(RingError::Oversized { bytes, most });
        }
        if self.closed {
            return Err(RingError::Closed);
        }
        let lines = self.geometry.lines_of(bytes);
        let left = self.geometry.before_end(self.tail);
        let skipped = if lines > left { left } else { 0 };
        // One line stays free: the word of the next header word is cleared, and the end header word
        // needs one.
        let end = self.tail + skipped + lines + 1;
        if end - self.credit > self.geometry.lines() {
            self.look_at_credit()?;
        }
        Ok((end - self.credit <= self.geometry.lines()).then_some(FreeSpace { bytes, skipped }))
    }

    /// Loads the receiver's position, and checks it: an impossible one is an error.
    fn look_at_credit(&mut self) -> Result<(), RingError> {
        if self.memory[RECEIVER].load(Ordering::Relaxed) & CLOSED != 0 {
            self.closed = true;
            return Err(RingError::Closed);
        }
        self.load_credit()
    }

    fn load_credit(&mut self) -> Result<(), RingError> {
        // Acquire: pairs with the Release store in `RingReceiver::publish_credit`, so that the receiver
        // has read the lines before they are overwritten.
        let credit = self.memory[CREDIT].load(Ordering::Acquire);
        if credit.wrapping_sub(self.credit) > self.tail - self.credit {
            return Err(Corruption::Credit { credit, known: self.credit, tail: self.tail }.into());
        }
        self.credit = credit;
        Ok(())
    }

    /// Returns space like [`Self::space_for`], waiting for it. Publishes finished messages first.
    pub fn wait_for_space(
        &mut self,
        bytes: usize,
        deadline: Option<Instant>,
    ) -> Result<FreeSpace, RingError> {
        if let Some(space) = self.space_for(bytes)? {
            return Ok(space);
        }
        // The receiver cannot release unpublished messages, so waiting without this could never
        // end.
        self.publish();
        let policy = self.policy;
        wait(&mut SpaceWait { sender: self, bytes }, policy, deadline)
            .unwrap_or(Err(RingError::TimedOut))
    }

    /// Returns true if the receiver has released all messages. Publishes finished ones first.
    pub fn is_empty(&mut self) -> Result<bool, RingError> {
        self.publish();
        // Acquire: pairs with the Release store when the receiver is dropped, which follows that of
        // its last position. So the position that is loaded behind a closed state is the last one.
        let is_closed = self.memory[RECEIVER].load(Ordering::Acquire) & CLOSED != 0;
        self.load_credit()?;
        match self.credit == self.tail {
            false if is_closed => Err(RingError::Closed),
            is_empty => Ok(is_empty),
        }
    }

    /// Waits until the receiver has released all messages.
    pub fn wait_until_empty(&mut self, deadline: Option<Instant>) -> Result<(), RingError> {
        let policy = self.policy;
        wait(&mut EmptyWait { sender: self }, policy, deadline).unwrap_or(Err(RingError::TimedOut))
    }

    /// Publishes that this end sleeps until the receiver releases lines. A last check for space
    /// must follow before it does. Returns true if the wake-up is certain.
    pub fn announce_sleep(&self) -> bool {
        self.mark_asleep();
        // Pairs with the light barrier in `RingReceiver::wake`: either the receiver sees that this
        // end sleeps, or the last check sees the lines that it has released.
        self.signal.heavy()
    }

    /// Publishes that this end sleeps, without the barrier that must precede the last check.
    pub fn mark_asleep(&self) {
        // Release: pairs with the load in `RingReceiver::wake`.
        self.memory[SENDER].store(SLEEPS, Ordering::Release);
    }

    /// Publishes that this end is awake.
    pub fn stir(&self) {
        self.memory[SENDER].store(AWAKE, Ordering::Release);
    }

    /// Publishes all finished messages with one store.
    pub fn publish(&mut self) {
        let Some((position, header_word)) = self.batch.take() else { return };
        self.clear_next();
        self.release(position, header_word);
    }

    /// Clears the word at the tail, where the receiver will expect a header word, if it holds data.
    fn clear_next(&mut self) {
        if self.set_stale(self.tail, false) {
            // Relaxed: the Release store that publishes follows, and the receiver reads this word
            // only after it has seen that store.
            self.memory[self.geometry.header_index(self.tail)].store(0, Ordering::Relaxed);
        }
    }

    fn release(&mut self, position: u64, header_word: u64) {
        // Release: pairs with the Acquire load in `RingReceiver::look_at`. It publishes the whole
        // batch: the receiver reads no later message before this header word.
        self.memory[self.geometry.header_index(position)].store(header_word, Ordering::Release);
        // Pairs with the heavy barriers in `RingSleeper::arm`, `RingReceiver::ask` and `join`: either the
        // receiver sees the header word, or this end sees its state.
        self.signal.light();
        // Acquire: pairs with the Release store in `RingReceiver::publish_state`, so that the poll set and index
        // are visible.
        let state = self.memory[RECEIVER].load(Ordering::Acquire);
        if state != AWAKE {
            self.serve_requests(state);
        }
    }

    /// Serves the requests in the state of the receiver.
    #[cold]
    fn serve_requests(&mut self, state: u64) {
        self.closed |= state & CLOSED != 0;
        if state & IN_SET != 0 {
            // Relaxed: constant once the flag is set.
            let [set, index] = [SET, INDEX].map(|word| self.memory[word].load(Ordering::Relaxed));
            // Pairs with the fence between a poller's clearing of the ring's bit and its last poll
            // of the ring.
            fence(Ordering::SeqCst);
            self.signal.announce(set, index);
        }
        if state & SLEEPS != 0 {
            // Only this end writes the word, so load and store need not be one operation. Release:
            // pairs with the Acquire load in `RingSleeper::arm`.
            let next = self.memory[ARRIVALS].load(Ordering::Relaxed).wrapping_add(1);
            self.memory[ARRIVALS].store(next, Ordering::Release);
            self.signal.wake();
        }
        let request = state & REQUEST;
        let is_new = request != self.answered;
        if is_new
            && (request & ASKS_ARRIVAL != 0 || request & ASKS_HALF_FULL != 0 && self.is_half_full())
        {
            self.answered = request;
            self.signal.notify_event();
        }
    }

    fn is_half_full(&mut self) -> bool {
        // An error is reported by the next search for space.
        let _ = self.look_at_credit();
        self.tail - self.credit >= self.geometry.half()
    }

    /// Writes the header word of the line at the tail, or keeps it if it will publish a batch.
    fn write_header_word(&mut self, header_word: HeaderWord) {
        let position = self.tail;
        let word = header_word.encode(self.geometry.lap(self.tail));
        self.set_stale(position, false);
        match self.batch {
            // Relaxed: published by the store of the batch's first header word.
            Some(_) => {
                self.memory[self.geometry.header_index(position)].store(word, Ordering::Relaxed)
            }
            None => self.batch = Some((position, word)),
        }
    }

    /// Records whether the first word of a line is not a header word of this lap; returns the
    /// former record.
    fn set_stale(&mut self, position: u64, stale: bool) -> bool {
        let index = self.geometry.index(position);
        let word = &mut self.stale[(index / 64) as usize];
        let bit = 1 << (index % 64);
        let before = *word & bit != 0;
        *word = if stale { *word | bit } else { *word & !bit };
        before
    }
}

impl<M: Deref<Target = [AtomicU64]>, S: Signal> Drop for RingSender<M, S> {
    /// Publishes finished messages and the end header word.
    fn drop(&mut self) {
        // The line at the tail is always free (see `space_for`).
        self.write_header_word(HeaderWord::End);
        if let Some((position, header_word)) = self.batch.take() {
            self.release(position, header_word);
        }
    }
}

/// Wait for space for a message of this length.
struct SpaceWait<'a, M: Deref<Target = [AtomicU64]>, S: Signal> {
    sender: &'a mut RingSender<M, S>,
    bytes: usize,
}

impl<M: Deref<Target = [AtomicU64]>, S: Signal> Waiter for SpaceWait<'_, M, S> {
    type Output = Result<FreeSpace, RingError>;

    fn sleeper(&self) -> impl Sleeper {
        let RingSender { memory, signal, .. } = &*self.sender;
        RingSleeper { memory, signal, wakeup: SPACE, state: SENDER, flags: 0 }
    }

    fn poll(&mut self) -> Option<Self::Output> {
        self.sender.space_for(self.bytes).transpose()
    }

    fn check(&mut self) -> Option<Self::Output> {
        let interrupted = self.sender.signal.check().err()?;
        // The receiver may have released lines before it ended.
        Some(self.poll().unwrap_or(Err(interrupted.into())))
    }
}

/// Wait until the receiver has released all messages.
struct EmptyWait<'a, M: Deref<Target = [AtomicU64]>, S: Signal> {
    sender: &'a mut RingSender<M, S>,
}

impl<M: Deref<Target = [AtomicU64]>, S: Signal> Waiter for EmptyWait<'_, M, S> {
    type Output = Result<(), RingError>;

    fn sleeper(&self) -> impl Sleeper {
        let RingSender { memory, signal, .. } = &*self.sender;
        RingSleeper { memory, signal, wakeup: SPACE, state: SENDER, flags: 0 }
    }

    fn poll(&mut self) -> Option<Self::Output> {
        match self.sender.is_empty() {
            Ok(false) => None,
            Ok(true) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        }
    }

    fn check(&mut self) -> Option<Self::Output> {
        let interrupted = self.sender.signal.check().err()?;
        // The receiver may have released the last lines before it ended.
        Some(self.poll().unwrap_or(Err(interrupted.into())))
    }
}

/// Message composed in place. Dropping it before it is finished discards it.
#[derive(Debug)]
pub struct ReservedMessage<'a, M: Deref<Target = [AtomicU64]>, S: Signal> {
    sender: &'a mut RingSender<M, S>,
    header: BasicHeader,
    space: FreeSpace,
}

impl<M: Deref<Target = [AtomicU64]>, S: Signal> ReservedMessage<'_, M, S> {
    pub fn bytes(&self) -> usize {
        self.space.bytes
    }

    /// Returns the words of the message. Only the sender accesses them until publication.
    pub fn words(&self) -> &[AtomicU64] {
        let geometry = self.sender.geometry;
        let first = geometry.header_index(self.sender.tail + self.space.skipped) + 1;
        &self.sender.memory[first..first + self.space.bytes.div_ceil(8)]
    }

    /// Adds the message to the batch.
    pub fn finish(self) {
        let sender = self.sender;
        let FreeSpace { bytes, skipped } = self.space;
        if skipped > 0 {
            sender.write_header_word(HeaderWord::Skip { lines: skipped });
            // The other skipped lines keep header words of an earlier lap, so they need clearing
            // later.
            for line in 1..skipped {
                sender.set_stale(sender.tail + line, true);
            }
            sender.tail += skipped;
        }
        sender.write_header_word(HeaderWord::Message { header: self.header, bytes });
        sender.tail += sender.geometry.lines_of(bytes);
    }
}
