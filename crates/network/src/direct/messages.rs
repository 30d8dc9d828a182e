//! Matched messages between ranks, over the connections of the ranks themselves.
//!
//! ```text
//!  thread that sends                                thread that waits
//!  DirectPort ── submissions ── engine ── frames ── engine ── received ── DirectPort
//! ```
//!
//! A port is one end of the messages of a rank, behind the lock of the rank's endpoint. It joins
//! the records for one rank to frames, which leave with the call that publishes them: by this
//! thread, or, if another one has the engine, by that thread. The engine adds the records that
//! arrive to the received ones, from where the port passes them on. The frames and their records
//! are those of the agent ([`record`](crate::transport::records::messages)).
//!
//! **Locks.** A thread takes the lock of the endpoint first, and then only tries to lock the engine:
//! so a thread that has the engine may wait for the endpoint (see [`RemoteDriver::drive`]). The locks
//! of received records and submissions are held for a few instructions, without another one.
//!
//! **No lost wake-up.** A thread that adds received records notifies the endpoint's wake-up word
//! behind that. A thread that sleeps on this word counts itself in [`Messages::sleepers`] first;
//! every thread that leaves the engine arms the background thread while there are such sleepers. A
//! thread that sleeps on the connections has the engine. Other threads of the rank end its sleep by
//! a notification, which [`Submissions`] counts.
//!
//! **Ends.** The end of a connection comes behind all records of the rank, the reason for its exit
//! from the node service (`port::exits`).
//!
//! [`RemoteDriver::drive`]: queues::remote_waits::RemoteDriver::drive
//! [`Submissions`]: super::submissions::Submissions

pub(super) mod received;
pub(super) mod send_credit;

use received::ReceivedRecords;
use send_credit::SendCredit;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

/// Messages of a rank on their way, shared by its engine and its port.
#[derive(Debug)]
pub(super) struct Messages {
    pub(super) received: ReceivedRecords,
    pub(super) send_credit: SendCredit,
    /// Number of threads that sleep until the wake-up word of the endpoint changes.
    sleepers: AtomicU32,
    /// True once the rank has opened its port.
    pub(super) is_open: AtomicBool,
    /// True if a connection has ended without a report of the reason. Relaxed: a hint.
    is_unexplained: AtomicBool,
    /// True once a thread has reported that the system refuses to read. The threads try again.
    pub(super) has_read_error: AtomicBool,
}

impl Messages {
    pub(super) fn new(ranks: u32) -> Self {
        Messages {
            received: ReceivedRecords::new(ranks),
            send_credit: SendCredit::new(ranks),
            sleepers: AtomicU32::new(0),
            is_open: AtomicBool::new(false),
            is_unexplained: AtomicBool::new(false),
            has_read_error: AtomicBool::new(false),
        }
    }

    /// Returns true if a thread sleeps until records arrive. Called behind the release of the engine.
    pub(super) fn has_sleepers(&self) -> bool {
        // Pairs with the fence in `add_sleeper`: a thread that then finds the engine locked has
        // counted itself before, and this load finds it.
        fence(Ordering::SeqCst);
        self.sleepers.load(Ordering::Relaxed) > 0
    }

    /// Counts a thread that is about to sleep. It tries to lock the engine afterwards.
    pub(super) fn add_sleeper(&self) {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    pub(super) fn remove_sleeper(&self) {
        // Relaxed: a thread that still counts this one arms the background thread in vain.
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn set_unexplained(&self, is_unexplained: bool) {
        self.is_unexplained.store(is_unexplained, Ordering::Relaxed);
    }

    pub(super) fn has_unexplained(&self) -> bool {
        self.is_unexplained.load(Ordering::Relaxed)
    }

    /// Returns true if messages may arrive: a rank that leaves may wait until they have.
    pub(super) fn is_open(&self) -> bool {
        // Relaxed: a hint. The thread that opens the port leaves the engine afterwards.
        self.is_open.load(Ordering::Relaxed)
    }
}
