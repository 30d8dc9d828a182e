//! Bytes that have not left this rank, by receiver.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes for one rank that wait at most: more than the longest message that is sent without a
/// request.
const LIMIT: u64 = 4 << 20;

/// Numbers of bytes. All are hints for the port, which bound what it adds: Relaxed.
#[derive(Debug)]
pub(in crate::direct) struct Outbox {
    lanes: Box<[Lane]>,
    /// True if the port has found no space.
    is_awaited: AtomicBool,
}

#[derive(Debug, Default)]
struct Lane {
    /// Passed to the engine, which has not taken them.
    submitted: AtomicU64,
    /// In the queue of the connection.
    queued: AtomicU64,
}

impl Outbox {
    pub(in crate::direct) fn new(ranks: u32) -> Self {
        let lanes = (0..ranks).map(|_| Lane::default()).collect();
        Outbox { lanes, is_awaited: AtomicBool::new(false) }
    }

    /// Returns true if so many more bytes may wait for a rank. Otherwise the rank's threads are woken
    /// when fewer wait.
    pub(in crate::direct) fn has_space(&self, to: u32, bytes: u64) -> bool {
        let Some(lane) = self.lanes.get(to as usize) else { return false };
        let has_space = || {
            let waiting = lane.submitted.load(Ordering::Relaxed);
            waiting + lane.queued.load(Ordering::Relaxed) + bytes <= LIMIT
        };
        if has_space() {
            return true;
        }
        // SeqCst: either the engine finds the request behind its change, or the change is here.
        self.is_awaited.store(true, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
        has_space()
    }

    pub(in crate::direct) fn submit(&self, to: u32, bytes: u64) {
        if let Some(lane) = self.lanes.get(to as usize) {
            lane.submitted.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Notes that the engine has taken bytes.
    pub(in crate::direct) fn take(&self, to: u32, bytes: u64) {
        if let Some(lane) = self.lanes.get(to as usize) {
            lane.submitted.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Notes the length of the queue of a connection.
    pub(in crate::direct) fn set_queued(&self, to: u32, bytes: u64) {
        if let Some(lane) = self.lanes.get(to as usize) {
            lane.queued.store(bytes, Ordering::Relaxed);
        }
    }

    /// Returns true, once, if the port has found no space. Called behind the changes.
    pub(in crate::direct) fn take_request(&self) -> bool {
        std::sync::atomic::fence(Ordering::SeqCst);
        self.is_awaited.load(Ordering::Relaxed) && self.is_awaited.swap(false, Ordering::SeqCst)
    }
}
