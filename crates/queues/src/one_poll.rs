//! OnePoll: a receive from the first non-empty queue of many, in time that does not grow with their
//! number.
//!
//! A [`PollSet`] lies in the segment. A queue joins it at its creation, with an index that is also
//! its priority: 0 comes first (a Basic ring joins with
//! [`Receiver::in_set`](crate::basic::Receiver::in_set)). [`OnePoll`] receives from the set. Its
//! queues may be of one kind or of several: the program passes a [`Polled`] queue for each index,
//! or implements [`Members`].
//!
//! ```
//! use queues::{express::{ExpressQueue, ExpressMessage}, id::SourceName, one_poll::{OnePoll, PollSet}};
//! use shm::{arena::Arena, segment::{Backing, Segment}};
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let segment = Arc::new(Segment::create(1 << 20, Backing::Memory)?);
//! let arena = Arena::new(segment, 0..1 << 20)?;
//! let set = PollSet::create(&arena, 512)?;
//! let queues = [3, 500].map(|index| ExpressQueue::create(&arena, 16, Some((&set, index))));
//! let [urgent, other] = queues;
//! let (urgent, other) = (urgent?, other?);
//! let mut receivers: Vec<_> = (0..512).map(|_| None).collect();
//! receivers[3] = Some(urgent.receiver()?);
//! receivers[500] = Some(other.receiver()?);
//!
//! let message = |data| ExpressMessage::new(SourceName::default(), 0, data);
//! other.sender().try_send(&message(*b"later"))?;
//! urgent.sender().try_send(&message(*b"first"))?;
//! let mut poll = OnePoll::new(&set);
//! assert_eq!(poll.poll(&mut receivers[..]), Some((3, message(*b"first"))));
//! assert_eq!(poll.poll(&mut receivers[..]), Some((500, message(*b"later"))));
//! assert_eq!(poll.poll(&mut receivers[..]), None);
//! # Ok(())
//! # }
//! ```
//!
//! One set for queues of all kinds:
//!
//! ```
//! use queues::basic::{self, bytes_for};
//! use queues::express::{ExpressQueue, ExpressReceiver};
//! use queues::cache_line::{CacheLineHeader, CacheLineMessage, CacheLineQueue, CacheLineReceiver};
//! use queues::one_poll::{OnePoll, PollSet, Polled};
//! use queues::express::ExpressMessage;
//! # use shm::{arena::Arena, segment::{Backing, Segment}};
//!
//! enum Queue {
//!     Words(ExpressReceiver),
//!     Lines(CacheLineReceiver),
//!     Ring(basic::Receiver),
//! }
//!
//! #[derive(Debug, PartialEq)]
//! enum Got {
//!     Word(ExpressMessage),
//!     Line(CacheLineMessage),
//!     /// The message stays in its ring, to be received in place.
//!     Ring,
//! }
//!
//! impl Polled for Queue {
//!     type Item = Got;
//!
//!     fn take(&mut self) -> Option<Got> {
//!         match self {
//!             Queue::Words(words) => words.take().map(Got::Word),
//!             Queue::Lines(lines) => lines.take().map(Got::Line),
//!             Queue::Ring(ring) => ring.take().map(|()| Got::Ring),
//!         }
//!     }
//!
//!     fn is_ready(&self) -> bool {
//!         match self {
//!             Queue::Words(words) => words.is_ready(),
//!             Queue::Lines(lines) => lines.is_ready(),
//!             Queue::Ring(ring) => ring.is_ready(),
//!         }
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let segment = std::sync::Arc::new(Segment::create(1 << 20, Backing::Memory)?);
//! # let arena = Arena::new(std::sync::Arc::clone(&segment), 0..1 << 20)?;
//! let set = PollSet::create(&arena, 3)?;
//! let words = ExpressQueue::create(&arena, 16, Some((&set, 0)))?;
//! let lines = CacheLineQueue::create(&arena, 16, Some((&set, 1)))?;
//! let ring = arena.allocate_zeroed(bytes_for(16)?, 128)?;
//! let mut sender = basic::Sender::connect(&segment, ring, 16)?;
//! let receiver = basic::Receiver::connect(&segment, ring, 16)?.in_set(&set, 2)?;
//! let mut queues = [Queue::Words(words.receiver()?), Queue::Lines(lines.receiver()?), Queue::Ring(receiver)].map(Some);
//!
//! sender.send(basic::BasicHeader::default(), b"a message of any length")?;
//! let line = CacheLineMessage::new(CacheLineHeader::default(), b"a line").expect("at most 48 bytes");
//! lines.sender().try_send(&line)?;
//! let mut poll = OnePoll::new(&set);
//! assert_eq!(poll.poll(&mut queues[..]), Some((1, Got::Line(line))));
//! assert_eq!(poll.poll(&mut queues[..]), Some((2, Got::Ring)));
//! if let Some(Queue::Ring(ring)) = &mut queues[2] {
//!     assert_eq!(ring.recv()?.as_slice(), b"a message of any length");
//! }
//! assert_eq!(poll.poll(&mut queues[..]), None);
//! # Ok(())
//! # }
//! ```

pub(crate) mod bits;
mod set;

use crate::error::RecvError;
use crate::remote_waits::wait_beside;
use std::time::{Duration, Instant};

pub use bits::{MAX_QUEUES, Members, Polled};
pub use set::PollSet;
pub(crate) use set::SetMember;

use bits::Poller;
use shm::event::EventRequest;
use shm::event::Notify;
use shm::wait::{Sleeper, SpinPolicy, Waiter, wait};

/// Number of queues that a waiting receiver checks, after a sleep without a wake-up, for messages
/// of senders that died before they set the bit.
const CHECKED_QUEUES: usize = 4096;

/// A receiver of the queues of a poll set. Several threads may poll a set, each with a `OnePoll` of
/// its own.
#[derive(Debug)]
pub struct OnePoll {
    set: PollSet,
    poller: Poller,
    checked: usize,
}

impl OnePoll {
    /// Creates a receiver for this set.
    #[must_use]
    pub fn new(set: &PollSet) -> OnePoll {
        OnePoll { set: set.clone(), poller: Poller::default(), checked: 0 }
    }

    /// Returns the set.
    #[must_use]
    pub fn set(&self) -> &PollSet {
        &self.set
    }

    /// Receives the next item of the first queue that has one, with the queue's index. Returns
    /// `None` if all are empty.
    #[inline]
    pub fn poll<M: Members + ?Sized>(&mut self, members: &mut M) -> Option<(usize, M::Item)> {
        self.poller.poll(self.set.bits(), None, members)
    }

    /// Receives as [`OnePoll::poll`] does, but only from the queues selected by `wanted`:
    /// queue `i` by bit `i % 64` of word `i / 64`.
    #[inline]
    pub fn poll_among<M: Members + ?Sized>(
        &mut self,
        wanted: &[u64],
        members: &mut M,
    ) -> Option<(usize, M::Item)> {
        self.poller.poll(self.set.bits(), Some(wanted), members)
    }

    /// Receives as [`OnePoll::poll`] does, and blocks until there is an item.
    ///
    /// # Errors
    /// [`RecvError::RankExited`] if a rank that might have sent to one of the queues has failed, or
    /// all have left; [`RecvError::NodeServiceEnded`].
    pub fn poll_blocking<M: Members + ?Sized>(
        &mut self,
        members: &mut M,
    ) -> Result<(usize, M::Item), RecvError> {
        loop {
            if let Some(found) = self.wait(members, None) {
                return found;
            }
        }
    }

    /// Receives as [`OnePoll::poll`] does, and blocks at most until `deadline`; then returns
    /// `None`.
    ///
    /// # Errors
    /// Those of [`OnePoll::poll_blocking`].
    pub fn poll_deadline<M: Members + ?Sized>(
        &mut self,
        members: &mut M,
        deadline: Instant,
    ) -> Result<Option<(usize, M::Item)>, RecvError> {
        self.wait(members, Some(deadline)).transpose()
    }

    /// Receives as [`OnePoll::poll`] does, and blocks at most for `timeout`; then returns `None`.
    ///
    /// # Errors
    /// Those of [`OnePoll::poll_blocking`].
    pub fn poll_timeout<M: Members + ?Sized>(
        &mut self,
        members: &mut M,
        timeout: Duration,
    ) -> Result<Option<(usize, M::Item)>, RecvError> {
        self.wait(members, Instant::now().checked_add(timeout)).transpose()
    }

    fn wait<M: Members + ?Sized>(
        &mut self,
        members: &mut M,
        deadline: Option<Instant>,
    ) -> Option<Result<(usize, M::Item), RecvError>> {
        let remote = members.remote_waits();
        let mut waiter = SetWaiter { poll: self, members };
        match remote {
            Some(waits) => wait_beside(&*waits, &mut waiter, deadline),
            None => wait(&mut waiter, SpinPolicy::MESSAGE, deadline),
        }
    }

    /// Requests one notification of the senders' [`Event`](crate::event::Event): when a message
    /// arrives in any queue of the set. Returns true if one has already arrived; then poll first.
    pub fn ask_for_event<M: Members + ?Sized>(&mut self, members: &mut M) -> bool {
        EventRequest(&self.set.settings.request).request(Notify::Arrival);
        self.poller.is_any_ready(self.set.bits(), None, members)
    }

    /// Sets the bits of queues with messages of senders that died between the send and the bit.
    fn restore_bits<M: Members + ?Sized>(&mut self, members: &mut M) {
        let count = self.set.capacity().min(CHECKED_QUEUES);
        for _ in 0..count {
            self.checked = (self.checked + 1) % self.set.capacity();
            // A sender killed between its send and the bit leaves a message that no poll would find.
            // Setting the bit of a queue that is just being emptied only costs a poll.
            if members.is_ready(self.checked) {
                self.set.bits().announce(self.checked);
            }
        }
    }
}

/// Wait for an item of any queue of the set.
struct SetWaiter<'a, M: Members + ?Sized> {
    poll: &'a mut OnePoll,
    members: &'a mut M,
}

impl<M: Members + ?Sized> Waiter for SetWaiter<'_, M> {
    type Output = Result<(usize, M::Item), RecvError>;

    fn sleeper(&self) -> impl Sleeper {
        self.poll.set.arrival()
    }

    fn poll(&mut self) -> Option<Self::Output> {
        self.poll.poll(self.members).map(Ok)
    }

    fn must_poll(&mut self) -> bool {
        self.poll.poller.is_any_ready(self.poll.set.bits(), None, self.members)
    }

    fn check(&mut self) -> Option<Self::Output> {
        self.poll.restore_bits(self.members);
        let exit = self.members.exited()?;
        // Messages it sent before it left or failed come first.
        Some(self.poll().unwrap_or(Err(exit.into())))
    }
}
