//! Sleeping at an end of a ring on words of the segment, and what else the receiver may want to be
//! told by.

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

/// How long an end sleeps that watches its peer, before it looks whether the peer lives.
const WATCH: Duration = Duration::from_millis(100);

/// Sleeping on words of the segment.
#[derive(Debug)]
pub(super) struct FutexBell {
    /// Changes when this end is to look.
    own: Mapped<AtomicU32>,
    /// The word on which the other end sleeps.
    other: Mapped<AtomicU32>,
    pub(super) peer: Option<ProcessHandle>,
    /// What the sender notifies when the receiver asks for that.
    pub(super) event: Option<Event>,
    segment: Arc<Segment>,
    /// The place in a poll set that was announced last.
    member: Option<SetMember>,
}

impl FutexBell {
    /// For a ring at `at`: the numbers of the two words.
    pub(super) fn new(
        segment: &Arc<Segment>,
        at: Offset,
        own: usize,
        other: usize,
    ) -> Result<Self, SegmentError> {
        // The futex is the half of the word that counts. Nobody but the kernel looks at a half.
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
        let (set, index) = (Offset(set), index as usize);
        if self.member.as_ref().is_none_or(|member| member.set() != set || member.index() != index)
        {
            // The receiver has found the set there, so that this fails only when memory has been
            // spoilt.
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
