//! Receiving end of a Basic ring; `ring.rs` describes the protocol.

use super::header_word::{BasicHeader, HeaderWord};
use super::ring::{
    ARRIVALS, ASKS_ARRIVAL, ASKS_HALF_FULL, AWAKE, CLOSED, CREDIT, Corruption, Geometry, IN_SET,
    INDEX, ONE_REQUEST, RECEIVER, RingError, RingSleeper, SENDER, SET, SLEEPS, SPACE, Signal,
};
use super::words::load_bytes;
use crate::remote_waits::{RemoteWaits, wait_beside};
use crate::sync::{AtomicU64, Ordering};
use shm::event::Notify;
use shm::wait::{Sleeper, SpinPolicy, Waiter, wait};
use std::ops::Deref;
use std::time::Instant;

/// Checked location of a message.
#[derive(Debug, Clone, Copy)]
pub struct MessageLocation {
    pub header: BasicHeader,
    pub bytes: usize,
    position: u64,
}

/// Receiving end. A ring has exactly one.
#[derive(Debug)]
pub struct RingReceiver<M: Deref<Target = [AtomicU64]>, S: Signal> {
    memory: M,
    signal: S,
    geometry: Geometry,
    policy: SpinPolicy,
    /// Next position to read.
    head: u64,
    /// Last published credit.
    published: u64,
    /// Bits besides the state: membership in a poll set, and the request.
    flags: u64,
    /// Number of requests so far.
    requests: u64,
}

impl<M: Deref<Target = [AtomicU64]>, S: Signal> RingReceiver<M, S> {
    /// Creates the end; `None` if the memory is too small for the ring.
    pub fn new(memory: M, geometry: Geometry, signal: S, policy: SpinPolicy) -> Option<Self> {
        let fits = memory.len() >= geometry.words();
        fits.then(|| RingReceiver {
            memory,
            signal,
            geometry,
            policy,
            head: 0,
            published: 0,
            flags: 0,
            requests: 0,
        })
    }

    pub fn signal_mut(&mut self) -> &mut S {
        &mut self.signal
    }

    pub fn signal(&self) -> &S {
        &self.signal
    }

    /// Returns the words of a message that was taken and not released.
    pub fn words(&self, found: &MessageLocation) -> &[AtomicU64] {
        let first = self.geometry.header_index(found.position) + 1;
        &self.memory[first..first + found.bytes.div_ceil(8)]
    }

    /// Takes the next message if there is one.
    pub fn take(&mut self) -> Result<Option<MessageLocation>, RingError> {
        let Some(found) = self.look()? else { return Ok(None) };
        self.head = self.end_of(&found);
        Ok(Some(found))
    }

    /// Takes the next message, waiting for one.
    pub fn take_by(&mut self, deadline: Option<Instant>) -> Result<MessageLocation, RingError> {
        loop {
            if let Some(found) = self.take()? {
                return Ok(found);
            }
            self.wait_for_message(deadline)?;
        }
    }

    /// Returns whether [`Self::take`] would return a message or an error.
    pub fn is_ready(&self) -> bool {
        !matches!(self.look(), Ok(None))
    }

    /// Copies the next message, which its sender may overwrite at any time, and releases it.
    pub fn copy_next(&mut self, into: &mut Vec<u8>) -> Result<Option<BasicHeader>, RingError> {
        let Some(found) = self.take()? else { return Ok(None) };
        into.clear();
        into.resize(found.bytes, 0);
        load_bytes(self.words(&found), into);
        self.release();
        Ok(Some(found.header))
    }

    /// Releases all taken messages; publishes the credit once a quarter of the ring has been
    /// released.
    pub fn release(&mut self) {
        if self.head - self.published >= self.geometry.quarter() {
            self.publish_credit();
        }
    }

    fn publish_credit(&mut self) {
        self.published = self.head;
        // Release: pairs with the Acquire load in `RingSender::look_at_credit`, so that this end's
        // loads of the lines precede the sender's next stores to them.
        self.memory[CREDIT].store(self.head, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        // Pairs with the heavy barrier in `RingSleeper::arm`.
        self.signal.light();
        if self.memory[SENDER].load(Ordering::Relaxed) != AWAKE {
            // Only this end writes the word, so load and store need not be one operation. Release:
            // pairs with the Acquire load in `RingSleeper::arm`.
            let next = self.memory[SPACE].load(Ordering::Relaxed).wrapping_add(1);
            self.memory[SPACE].store(next, Ordering::Release);
            self.signal.wake();
        }
    }

    fn look(&self) -> Result<Option<MessageLocation>, RingError> {
        self.look_at(self.head)
    }

    #[inline]
    fn look_at(&self, position: u64) -> Result<Option<MessageLocation>, RingError> {
        locate(&self.memory, self.geometry, position)
    }

    /// Returns the position after the message.
    fn end_of(&self, found: &MessageLocation) -> u64 {
        found.position + self.geometry.lines_of(found.bytes)
    }

    /// Waits until [`Self::take`] returns a message or an error.
    #[cold]
    pub fn wait_for_message(&mut self, deadline: Option<Instant>) -> Result<(), RingError> {
        let policy = self.policy;
        wait(&mut MessageWait(self), policy, deadline).unwrap_or(Err(RingError::TimedOut))
    }

    /// Waits as [`Self::wait_for_message`] does, for a message that the node service delivers from
    /// another node.
    #[cold]
    pub fn wait_beside_service(
        &mut self,
        waits: &dyn RemoteWaits,
        deadline: Option<Instant>,
    ) -> Result<(), RingError> {
        wait_beside(waits, &mut MessageWait(self), deadline).unwrap_or(Err(RingError::TimedOut))
    }

    /// Returns the length of the next message if there is one.
    pub fn next_bytes(&self) -> Result<Option<usize>, RingError> {
        Ok(self.look()?.map(|found| found.bytes))
    }

    /// Publishes that this end sleeps. A heavy barrier and a last check must follow before it does.
    pub fn announce_sleep(&self) {
        self.publish_state(SLEEPS);
    }

    /// Publishes the position up to which messages were read. A receiver that sleeps leaves no
    /// message in the ring that it has read, so an observer sees the ring's true fill.
    pub fn publish_position(&mut self) {
        if self.published != self.head {
            self.publish_credit();
        }
    }

    /// Publishes that this end is awake.
    pub fn stir(&self) {
        self.publish_state(AWAKE);
    }

    fn publish_state(&self, state: u64) {
        // Release: pairs with the Acquire load in `RingSender::release`.
        self.memory[RECEIVER].store(state | self.flags, Ordering::Release);
    }

    /// Requests one event notification. Returns whether the condition already holds, or the sender
    /// may not see the request in time.
    pub fn ask(&mut self, when: Notify) -> bool {
        if when == Notify::HalfFull {
            // The sender needs the exact position to compute the fill level.
            self.publish_credit();
        }
        self.requests = self.requests.wrapping_add(ONE_REQUEST);
        let bit = if when == Notify::Arrival { ASKS_ARRIVAL } else { ASKS_HALF_FULL };
        self.flags = self.flags & IN_SET | self.requests | bit;
        self.stir();
        // Pairs with the light barrier in `RingSender::release`, as in `RingSleeper::arm`.
        let certain = self.signal.heavy();
        let is_so = match when {
            Notify::Arrival => self.is_ready(),
            Notify::HalfFull => self.is_half_full(),
        };
        is_so || !certain
    }

    /// Cancels the request.
    pub fn ask_for_nothing(&mut self) {
        self.flags &= IN_SET;
        self.stir();
    }

    fn is_half_full(&self) -> bool {
        let mut end = self.head;
        // At most half a lap, whatever the memory holds.
        while end - self.head < self.geometry.half()
            && let Ok(Some(found)) = self.look_at(end)
        {
            end = self.end_of(&found);
        }
        end - self.head >= self.geometry.half()
    }

    /// Makes the sender announce every message in this poll set. The caller announces messages that
    /// already wait.
    pub fn join(&mut self, set: u64, index: u64) {
        // Relaxed, both: the Release store of the state publishes them.
        self.memory[SET].store(set, Ordering::Relaxed);
        self.memory[INDEX].store(index, Ordering::Relaxed);
        self.flags |= IN_SET;
        self.stir();
        // Pairs with the light barrier in `RingSender::release`: the sender announces every message
        // that this end does not see afterwards. Where the barrier is refused, a waiting thread
        // finds the message when it scans its queues.
        self.signal.heavy();
    }
}

/// Returns the message at a position, with its header word checked. Each word is loaded only once,
/// because a hostile sender may change it at any time.
#[inline]
fn locate(
    memory: &[AtomicU64],
    geometry: Geometry,
    mut position: u64,
) -> Result<Option<MessageLocation>, RingError> {
    loop {
        // Acquire: pairs with the Release store in `RingSender::release`.
        let word = memory[geometry.header_index(position)].load(Ordering::Acquire);
        match HeaderWord::decode(word, geometry.lap(position)) {
            Ok(None) => return Ok(None),
            Ok(Some(HeaderWord::Message { header, bytes })) => {
                let lines = geometry.lines_of(bytes);
                if bytes > geometry.longest() || lines > geometry.before_end(position) {
                    return Err(Corruption::Length { position, bytes }.into());
                }
                return Ok(Some(MessageLocation { header, bytes, position }));
            }
            Ok(Some(HeaderWord::Skip { lines })) => {
                // A skip of a quarter or more is invalid. This also bounds the loop: a second
                // skip in a row would start at the beginning of the ring and be too long.
                if lines != geometry.before_end(position) || lines >= geometry.quarter().max(1) {
                    return Err(Corruption::Skip { position, lines }.into());
                }
                position += lines;
            }
            Ok(Some(HeaderWord::End)) => return Err(RingError::Closed),
            Err(_) => return Err(Corruption::Header { position, word }.into()),
        }
    }
}

/// Returns the number of lines that hold messages from the receiver's published position on. The
/// receiver may have read up to a quarter of the ring of them, unless it sleeps.
pub fn unread_lines(memory: &[AtomicU64], geometry: Geometry) -> u64 {
    // Acquire: pairs with the Release store in `RingReceiver::publish_credit`.
    let start = memory[CREDIT].load(Ordering::Acquire);
    // No ring lives this long; sums of positions below must not overflow.
    if start > u64::MAX / 2 {
        return 0;
    }
    let mut end = start;
    // At most one lap: both ends go on meanwhile, and may write anything.
    while end.wrapping_sub(start) < geometry.lines()
        && let Ok(Some(found)) = locate(memory, geometry, end)
    {
        end = found.position + geometry.lines_of(found.bytes);
    }
    end.wrapping_sub(start).min(geometry.lines())
}

/// Wait until a message or an error is available.
struct MessageWait<'a, M: Deref<Target = [AtomicU64]>, S: Signal>(&'a mut RingReceiver<M, S>);

impl<M: Deref<Target = [AtomicU64]>, S: Signal> Waiter for MessageWait<'_, M, S> {
    type Output = Result<(), RingError>;

    fn sleeper(&self) -> impl Sleeper {
        let RingReceiver { memory, signal, flags, .. } = &*self.0;
        RingSleeper { memory, signal, wakeup: ARRIVALS, state: RECEIVER, flags: *flags }
    }

    fn poll(&mut self) -> Option<Self::Output> {
        self.0.is_ready().then_some(Ok(()))
    }

    fn check(&mut self) -> Option<Self::Output> {
        let interrupted = self.0.signal.check().err()?;
        // Messages sent before the sender ended come first.
        Some(self.poll().unwrap_or(Err(interrupted.into())))
    }
}

impl<M: Deref<Target = [AtomicU64]>, S: Signal> Drop for RingReceiver<M, S> {
    fn drop(&mut self) {
        self.publish_position();
        // Release: pairs with the Acquire load in `RingSender::is_empty`, which then sees the last
        // position. Otherwise the sender reads it on its next publication, or when the ring is full.
        self.memory[RECEIVER].store(CLOSED, Ordering::Release);
        self.wake();
    }
}
