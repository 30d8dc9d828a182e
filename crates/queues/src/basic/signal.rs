//! Sleep and wake-up of the ends of a ring on words of the segment, and the notification of events
//! and poll sets.

use super::ring::{Interrupted, Signal};
use crate::fence;
use crate::one_poll::{PollSet, SetMember};
use shm::event::Event;
use shm::futex::{self, WaitOutcome};
use shm::liveness::{PeerExit, RankWatch};
use shm::mapped::Mapped;
use shm::process::ProcessHandle;
use shm::segment::{Offset, Segment, SegmentError};
use shm::sync::AtomicU32;
use std::sync::Arc;
use std::time::Duration;

/// Sleep and wake-up on words of the segment.
#[derive(Debug)]
pub(super) struct FutexSignal {
    /// Wake-up word of this end.
    own: Mapped<AtomicU32>,
    /// Wake-up word of the other end.
    other: Mapped<AtomicU32>,
    pub(super) peer: Option<ProcessHandle>,
    /// Liveness check of the rank at the other end.
    pub(super) rank: RankWatch,
    /// Event that the sender notifies on request.
    pub(super) event: Option<Event>,
    /// Event of the other end, if it is the node service, which sleeps on no word.
    pub(super) service: Option<Event>,
    segment: Arc<Segment>,
    /// Most recent membership in a poll set.
    member: Option<SetMember>,
}

impl FutexSignal {
    /// Maps the words with the numbers `own` and `other` of the ring at `at`.
    pub(super) fn new(
        segment: &Arc<Segment>,
        at: Offset,
        own: usize,
        other: usize,
    ) -> Result<Self, SegmentError> {
        // The futex is the low half of the 64-bit word, since a futex has 32 bits. Only the kernel
        // accesses a half.
        let low = if cfg!(target_endian = "little") { 0 } else { 4 };
        let half =
            |word: usize| Mapped::new(segment, Offset(at.0.saturating_add(word as u64 * 8 + low)));
        fence::register();
        Ok(FutexSignal {
            own: half(own)?,
            other: half(other)?,
            peer: None,
            rank: RankWatch::default(),
            event: None,
            service: None,
            segment: Arc::clone(segment),
            member: None,
        })
    }

    pub(super) fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Returns the reason of an interruption: the exit of the watched rank, or else the process
    /// number of the watched process.
    pub(super) fn interruption(&self) -> Result<PeerExit, u32> {
        self.rank.exited().ok_or_else(|| self.peer.as_ref().map_or(0, ProcessHandle::pid))
    }
}

impl Signal for FutexSignal {
    #[inline]
    fn light(&self) {
        fence::light();
    }

    fn heavy(&self) -> bool {
        fence::heavy()
    }

    fn sleep(&self, word: u64, limit: Duration) -> bool {
        // The kernel compares the low half of the word. It may wrap to the same value only if the
        // other end notified 2³² times since it was read, within one slice.
        futex::wait(&self.own, word as u32, Some(limit)) == WaitOutcome::TimedOut
    }

    fn wake(&self) {
        match &self.service {
            Some(event) => event.notify(),
            None => _ = futex::wake_all(&self.other),
        }
    }

    fn notify_event(&self) {
        if let Some(event) = &self.event {
            event.notify();
        }
    }

    fn announce(&mut self, set: u64, index: u64) {
        let set = Offset(set);
        let index = index as usize;
        if self.member.as_ref().is_none_or(|member| member.set() != set || member.index() != index)
        {
            // The receiver has connected to the set, so this fails only if memory is corrupt.
            self.member =
                PollSet::connect(&self.segment, set).and_then(|set| set.member(index)).ok();
        }
        if let Some(member) = &self.member {
            member.announce(self.event.as_ref());
        }
    }

    fn check(&self) -> Result<(), Interrupted> {
        match &self.peer {
            // A pidfd refers to one process for good, so a reused number cannot be mistaken for it.
            Some(peer) if peer.has_exited() => Err(Interrupted),
            _ if self.rank.exited().is_some() => Err(Interrupted),
            _ => Ok(()),
        }
    }
}
