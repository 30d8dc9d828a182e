//! Sleep and wake-up of the ends of a ring on words of the segment, and the notification of events
//! and poll sets.

use super::ring::{Bell, Interrupted, RingError, Seen};
use super::{BasicError, UNCERTAIN};
use crate::event::Event;
use crate::fence;
use crate::one_poll::{PollSet, SetMember};
use shm::futex;
use shm::mapped::Mapped;
use shm::process::ProcessHandle;
use shm::segment::{Offset, Segment, SegmentError};
use shm::sync::AtomicU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest sleep of an end that watches its peer, before it checks that the peer is alive.
const WATCH: Duration = Duration::from_millis(100);

/// Sleep and wake-up on words of the segment.
#[derive(Debug)]
pub(super) struct FutexBell {
    /// Wake-up word of this end.
    own: Mapped<AtomicU32>,
    /// Wake-up word of the other end.
    other: Mapped<AtomicU32>,
    pub(super) peer: Option<ProcessHandle>,
    /// Event that the sender notifies on request.
    pub(super) event: Option<Event>,
    segment: Arc<Segment>,
    /// Most recent membership in a poll set.
    member: Option<SetMember>,
}

impl FutexBell {
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
        Ok(FutexBell {
            own: half(own)?,
            other: half(other)?,
            peer: None,
            event: None,
            segment: Arc::clone(segment),
            member: None,
        })
    }

    pub(super) fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    pub(super) fn gone(&self) -> BasicError {
        BasicError::PeerGone { pid: self.peer.as_ref().map_or(0, ProcessHandle::pid) }
    }

    pub(super) fn explain(&self, error: RingError) -> BasicError {
        match error {
            RingError::Corrupt(corruption) => BasicError::Corrupt(corruption),
            RingError::Closed => BasicError::Closed,
            RingError::Oversized { bytes, most } => BasicError::Oversized { bytes, most },
            RingError::TimedOut => BasicError::TimedOut,
            RingError::Interrupted => self.gone(),
        }
    }
}

impl Bell for FutexBell {
    #[inline]
    fn light(&self) {
        fence::light();
    }

    fn heavy(&self) -> bool {
        fence::heavy()
    }

    fn sleep(&self, seen: Seen, deadline: Option<Instant>) -> Result<(), Interrupted> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let watch = self.peer.as_ref().map(|_| WATCH);
        let uncertain = (!seen.certain).then_some(UNCERTAIN);
        let limit = [left, watch, uncertain].into_iter().flatten().min();
        futex::wait(&self.own, seen.word as u32, limit);
        self.check()
    }

    fn ring(&self) {
        futex::wake_all(&self.other);
    }

    fn notify(&self) {
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
            Some(peer) if peer.has_exited() => Err(Interrupted),
            _ => Ok(()),
        }
    }
}
