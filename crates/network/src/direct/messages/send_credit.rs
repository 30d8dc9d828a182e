//! Credit of the port for sends: bytes of messages that have not left this rank, by receiver.

use crate::transport::frame::HEADER_BYTES;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// Bytes for one rank that wait at most: more than the longest message that is sent without a
/// request.
const LIMIT: u64 = 4 << 20;

/// Returns the number of bytes of a frame with so many bytes of records.
pub(in crate::direct) fn frame_bytes(records: usize) -> u64 {
    (HEADER_BYTES + records) as u64
}

/// Bytes of frames of messages by receiver. What collectives send to it is not counted: it may come
/// at any time, so space for messages would be gone before the port uses it.
#[derive(Debug)]
pub(in crate::direct) struct SendCredit {
    /// From the submission by the port until the system has them. One atomic for both the
    /// submissions and the queue of the connection: bytes that pass from one to the other are
    /// counted all the time. Relaxed: the lock of the submissions orders an addition before the
    /// subtraction of the same bytes.
    waiting: Box<[AtomicU64]>,
    /// Changes whenever something leaves, of messages or collectives.
    progress: Box<[AtomicU64]>,
    /// True for a rank that reads nothing while this one leaves: what waits for it is lost.
    given_up: Box<[AtomicBool]>,
    /// True if the port has found no space.
    is_awaited: AtomicBool,
}

impl SendCredit {
    pub(in crate::direct) fn new(ranks: u32) -> Self {
        let counts = || (0..ranks).map(|_| AtomicU64::new(0)).collect();
        let given_up = (0..ranks).map(|_| AtomicBool::new(false)).collect();
        let is_awaited = AtomicBool::new(false);
        SendCredit { waiting: counts(), progress: counts(), given_up, is_awaited }
    }

    /// Returns true if so many more bytes may wait for a rank. Otherwise the rank's threads are
    /// woken when fewer wait. Only the port adds bytes, so space that it has found stays until it
    /// uses it.
    pub(in crate::direct) fn has_space(&self, to: u32, bytes: u64) -> bool {
        let Some(waiting) = self.waiting.get(to as usize) else { return false };
        let has_space = || waiting.load(Ordering::Relaxed) + bytes <= LIMIT;
        if has_space() {
            return true;
        }
        // SeqCst: either the engine finds the request behind its change, or the change is here.
        self.is_awaited.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        has_space()
    }

    /// Notes that the port passes bytes to the engine. Called before that.
    pub(in crate::direct) fn submit(&self, to: u32, bytes: u64) {
        if let Some(waiting) = self.waiting.get(to as usize) {
            waiting.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Notes that bytes that were submitted wait no more.
    pub(in crate::direct) fn sent(&self, to: u32, bytes: u64) {
        if let Some(waiting) = self.waiting.get(to as usize) {
            waiting.fetch_sub(bytes, Ordering::Relaxed);
        }
        self.note_progress(to);
    }

    /// Notes that something has left for a rank.
    pub(in crate::direct) fn note_progress(&self, to: u32) {
        if let Some(progress) = self.progress.get(to as usize) {
            progress.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns a number that changes whenever something leaves for a rank, if bytes wait for that;
    /// `None` if none do.
    pub(in crate::direct) fn held_up(&self, to: u32) -> Option<u64> {
        let waiting = self.waiting.get(to as usize)?.load(Ordering::Relaxed);
        let progress = self.progress.get(to as usize)?.load(Ordering::Relaxed);
        (waiting > 0).then_some(progress)
    }

    /// Notes that what waits for a rank is lost.
    pub(in crate::direct) fn give_up(&self, to: u32) {
        if let Some(given_up) = self.given_up.get(to as usize) {
            // Relaxed: the thread that leaves reads it, too.
            given_up.store(true, Ordering::Relaxed);
        }
    }

    /// Returns true if what waits for a rank is lost.
    pub(in crate::direct) fn is_given_up(&self, to: u32) -> bool {
        self.given_up.get(to as usize).is_some_and(|given_up| given_up.load(Ordering::Relaxed))
    }

    /// Returns true, once, if the port has found no space. Called behind the changes.
    pub(in crate::direct) fn take_request(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_awaited.load(Ordering::Relaxed) && self.is_awaited.swap(false, Ordering::SeqCst)
    }
}
