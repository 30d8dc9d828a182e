//! OnePoll: receiving from the first of many queues that holds something, in time that does not
//! grow with their number.
//!
//! A [`PollSet`] lies in the segment. A queue joins it when it is made, with an index that is also
//! its priority: 0 comes first (a Basic ring joins when [its receiver says
//! so](crate::basic::Receiver::in_set)). [`OnePoll`] is a receiver's view of the set. The queues
//! may be of one kind or of several, as the caller says: a [`Polled`] queue for each index, or
//! [`Members`] of its own.
//!
//! ```
//! use queues::{express::{ExpressQueue, Message}, name::SourceName, one_poll::{OnePoll, PollSet}};
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
//! let message = |data| Message::new(SourceName::default(), 0, data);
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
//! use queues::express::Message;
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
//!     Word(Message),
//!     Line(CacheLineMessage),
//!     /// The message waits in its ring, to be received where it lies.
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
//! let mut sender = basic::Sender::open(&segment, ring, 16)?;
//! let receiver = basic::Receiver::open(&segment, ring, 16)?.in_set(&set, 2)?;
//! let mut queues = [Queue::Words(words.receiver()?), Queue::Lines(lines.receiver()?), Queue::Ring(receiver)].map(Some);
//!
//! sender.send(basic::Header::default(), b"a message of any length")?;
//! let line = CacheLineMessage::new(CacheLineHeader::default(), b"a line").expect("at most 48 bytes");
//! lines.sender().try_send(&line)?;
//! let mut poll = OnePoll::new(&set);
//! assert_eq!(poll.poll(&mut queues[..]), Some((1, Got::Line(line))));
//! assert_eq!(poll.poll(&mut queues[..]), Some((2, Got::Ring)));
//! if let Some(Queue::Ring(ring)) = &mut queues[2] {
//!     assert_eq!(ring.receive()?.as_slice(), b"a message of any length");
//! }
//! assert_eq!(poll.poll(&mut queues[..]), None);
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;
use std::time::Instant;

use shm::arena::Arena;
use shm::mapped::{Mapped, MappedSlice};
use shm::segment::{Offset, Segment};

use crate::bell::{Bell, Request};
use crate::error::CreateError;
use crate::event::{Event, Notify};
use crate::poll_set::{Bit, Bits, Poller, QUEUES_PER_LINE};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::waiting::{Wait, wait};

pub use crate::poll_set::{MOST_QUEUES, Members, Polled};

const MAGIC: u64 = 0x7477_706f;

/// How many queues a waiter looks through, after a sleep that nobody ended, for messages whose
/// senders died before they could announce them.
const SURVEY: usize = 4096;

shm::shared_lines! {
    /// What the maker says about the set, and where receivers sleep.
    struct Settings {
        /// [`MAGIC`] and how many queues.
        layout: AtomicU64,
        bell: AtomicU32,
        request: AtomicU32,
    }
}

/// The bits of a set of queues in a segment.
#[derive(Debug, Clone)]
pub struct PollSet {
    settings: Mapped<Settings>,
    words: MappedSlice<AtomicU64>,
    summary: MappedSlice<AtomicU64>,
    segment: Arc<Segment>,
    capacity: usize,
    offset: Offset,
}

/// A sender's way to announce a message in one queue of a set.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    word: Mapped<AtomicU64>,
    summary: Option<Mapped<AtomicU64>>,
    settings: Mapped<Settings>,
    index: u32,
    set: Offset,
}

fn lines_for(capacity: usize) -> (usize, usize) {
    let lines = capacity.div_ceil(QUEUES_PER_LINE);
    (lines, if lines > 1 { 1 } else { 0 })
}

impl PollSet {
    /// How many bytes a set of so many queues takes.
    ///
    /// # Errors
    /// [`CreateError::Capacity`] for none or more than [`MOST_QUEUES`].
    pub fn bytes_for(capacity: usize) -> Result<u64, CreateError> {
        if !(1..=MOST_QUEUES).contains(&capacity) {
            return Err(CreateError::Capacity { capacity });
        }
        let (lines, summary) = lines_for(capacity);
        Ok(64 * (1 + summary + lines) as u64)
    }

    /// Makes a set of so many queues of a new piece of the arena.
    ///
    /// # Errors
    /// Those of [`PollSet::bytes_for`] and [`Arena::allocate`].
    pub fn create(arena: &Arena, capacity: usize) -> Result<PollSet, CreateError> {
        let offset = arena.allocate_zeroed(Self::bytes_for(capacity)?, 128)?;
        let set = Self::map(arena.segment(), offset, capacity)?;
        // Release: pairs with the Acquire in `attach`.
        set.settings.layout.store(MAGIC << 32 | capacity as u64, Ordering::Release);
        Ok(set)
    }

    /// Finds the set that another made at `offset`.
    ///
    /// # Errors
    /// [`CreateError::NoQueue`] if something else lies there, [`CreateError::Segment`] if there is no
    /// such place.
    pub fn attach(segment: &Arc<Segment>, offset: Offset) -> Result<PollSet, CreateError> {
        // Acquire: pairs with the Release in `create`.
        let found = Mapped::<Settings>::new(segment, offset)?.layout.load(Ordering::Acquire);
        let capacity = (found & 0xffff_ffff) as usize;
        if found >> 32 != MAGIC || Self::bytes_for(capacity).is_err() {
            return Err(CreateError::NoQueue { offset, kind: "poll set" });
        }
        Self::map(segment, offset, capacity)
    }

    fn map(
        segment: &Arc<Segment>,
        offset: Offset,
        capacity: usize,
    ) -> Result<PollSet, CreateError> {
        let (lines, summary) = lines_for(capacity);
        let after = |count: usize| Offset(offset.0.saturating_add(64 * count as u64));
        Ok(PollSet {
            settings: Mapped::new(segment, offset)?,
            summary: MappedSlice::new(segment, after(1), 8 * summary)?,
            words: MappedSlice::new(segment, after(1 + summary), 8 * lines)?,
            segment: Arc::clone(segment),
            capacity,
            offset,
        })
    }

    /// Where the set lies.
    #[must_use]
    pub fn offset(&self) -> Offset {
        self.offset
    }

    /// How many queues it has.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    fn bits(&self) -> Bits<'_> {
        Bits { words: &self.words, summary: &self.summary }
    }

    /// What the senders of one queue need.
    pub(crate) fn member(&self, index: usize) -> Result<Member, CreateError> {
        if index >= self.capacity {
            return Err(CreateError::NoMember {
                offset: self.offset,
                capacity: self.capacity,
                index,
            });
        }
        let (_, summary) = lines_for(self.capacity);
        let word_at = |line: usize, index: usize| {
            let bytes = 64 * line + 8 * (index / 64);
            Mapped::new(&self.segment, Offset(self.offset.0.saturating_add(bytes as u64)))
        };
        let line = index / QUEUES_PER_LINE;
        Ok(Member {
            word: word_at(1 + summary, index)?,
            summary: (summary != 0).then(|| word_at(1, line)).transpose()?,
            settings: self.settings.clone(),
            index: index as u32,
            set: self.offset,
        })
    }
}

impl Member {
    /// Its set.
    pub(crate) fn set(&self) -> Offset {
        self.set
    }

    /// Its index in the set.
    pub(crate) fn index(&self) -> usize {
        self.index as usize
    }

    /// Announces a message that was sent by an exchange just now.
    #[inline(always)]
    pub(crate) fn announce(&self, event: Option<&Event>) {
        Bit { word: &self.word, mask: 1 << (self.index % 64) }.set();
        if let Some(summary) = &self.summary {
            let line = self.index as usize / QUEUES_PER_LINE;
            Bit { word: summary, mask: 1 << (line % 64) }.set();
        }
        Bell(&self.settings.bell).ring();
        if let Some(event) = event {
            // A set is never half full.
            Request(&self.settings.request).answer(|| false, || event.notify());
        }
    }
}

/// A receiver's view of a poll set. Several threads may poll a set, each with a view of its own.
#[derive(Debug)]
pub struct OnePoll {
    set: PollSet,
    poller: Poller,
    surveyed: usize,
}

impl OnePoll {
    /// A view of this set.
    #[must_use]
    pub fn new(set: &PollSet) -> OnePoll {
        OnePoll { set: set.clone(), poller: Poller::default(), surveyed: 0 }
    }

    /// The set.
    #[must_use]
    pub fn set(&self) -> &PollSet {
        &self.set
    }

    /// Takes the next thing from the first queue that holds something; gives that queue's index
    /// too. `None` if all are empty.
    #[inline]
    pub fn poll<M: Members + ?Sized>(&mut self, members: &mut M) -> Option<(usize, M::Item)> {
        self.poller.poll(self.set.bits(), None, members)
    }

    /// As [`OnePoll::poll`], from the queues alone whose bit is set in `wanted`: bit `i % 64` of
    /// word `i / 64`.
    #[inline]
    pub fn poll_among<M: Members + ?Sized>(
        &mut self,
        wanted: &[u64],
        members: &mut M,
    ) -> Option<(usize, M::Item)> {
        self.poller.poll(self.set.bits(), Some(wanted), members)
    }

    /// As [`OnePoll::poll`], and sleeps until something comes.
    pub fn poll_blocking<M: Members + ?Sized>(&mut self, members: &mut M) -> (usize, M::Item) {
        loop {
            if let Some(found) = self.wait(members, None) {
                return found;
            }
        }
    }

    /// As [`OnePoll::poll`], and sleeps until something comes, at most until `deadline`; then
    /// `None`.
    pub fn poll_until<M: Members + ?Sized>(
        &mut self,
        members: &mut M,
        deadline: Instant,
    ) -> Option<(usize, M::Item)> {
        self.wait(members, Some(deadline))
    }

    fn wait<M: Members + ?Sized>(
        &mut self,
        members: &mut M,
        deadline: Option<Instant>,
    ) -> Option<(usize, M::Item)> {
        wait(&mut Waiter { poll: self, members }, deadline)
    }

    /// Asks that the [`Event`] that senders were given be notified once, when something arrives in
    /// any queue of the set. True if something is there already; then poll first.
    pub fn ask_for_event<M: Members + ?Sized>(&mut self, members: &mut M) -> bool {
        Request(&self.set.settings.request).ask(Notify::Arrival);
        self.poller.is_any_ready(self.set.bits(), None, members)
    }

    /// Sets the bits of queues whose senders died before they could.
    fn survey<M: Members + ?Sized>(&mut self, members: &mut M) {
        let count = self.set.capacity.min(SURVEY);
        for _ in 0..count {
            self.surveyed = (self.surveyed + 1) % self.set.capacity;
            if members.is_ready(self.surveyed) {
                self.set.bits().announce(self.surveyed);
            }
        }
    }
}

struct Waiter<'a, M: Members + ?Sized> {
    poll: &'a mut OnePoll,
    members: &'a mut M,
}

impl<M: Members + ?Sized> Wait for Waiter<'_, M> {
    type Found = (usize, M::Item);

    fn bell(&self) -> Bell<'_> {
        Bell(&self.poll.set.settings.bell)
    }

    fn look(&mut self) -> Option<Self::Found> {
        self.poll.poll(self.members)
    }

    fn is_ready(&mut self) -> bool {
        self.poll.poller.is_any_ready(self.poll.set.bits(), None, self.members)
    }

    fn recover(&mut self) -> Option<Self::Found> {
        self.poll.survey(self.members);
        None
    }
}
