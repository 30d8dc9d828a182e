//! Channels: opened once between two threads of one or two processes, then a send is one store and
//! a receive two loads.
//!
//! A channel carries one type of value from one [`Sender`] to one [`Receiver`], in order and
//! bounded. Nothing else travels through it while it is held, so a value needs no header, and the
//! receiver uses it where it read it. Hold a pipeline of channels open for as long as a computation
//! lasts; the set-up is paid once.
//!
//! How validity is told from data: every value is combined with a number that changes with every
//! lap around the ring. The receiver remembers what it read from a slot a lap ago; if the word is
//! another one, the value has come. In the one case of 2⁶⁴ in which a new value looks like the old
//! word, the sender says so in a word beside the ring, at which the receiver looks when a slot has
//! not changed. So every bit pattern of every type can be sent.
//!
//! Waiting means a short bounded look, some ten microseconds, and then sleep. A sleeper is woken by
//! the value; the sender pays for that with one load of a line that only sleepers write. The death
//! of the other process ends the wait with an error.
//!
//! After Rosing and Saltz, *Low Latency Messages on Distributed Memory Multiprocessors* (1995),
//! section 4.
//!
//! ```
//! use queues::channel;
//! use shm::{arena::Arena, segment::{Backing, Segment}};
//! use std::sync::Arc;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let segment = Arc::new(Segment::create(1 << 20, Backing::Memory)?);
//! let arena = Arc::new(Arena::new(segment, 0..1 << 20)?);
//! let (mut sender, mut receiver) = channel::pair::<f64>(&arena, 64)?;
//! std::thread::scope(|scope| {
//!     scope.spawn(move || (0..1000).try_for_each(|i| sender.send(f64::from(i))));
//!     let mut sum = 0.0;
//!     while let Ok(value) = receiver.receive() {
//!         sum += value;
//!     }
//!     assert_eq!(sum, 499_500.0);
//! });
//! # Ok(())
//! # }
//! ```

mod error;
mod key;
mod place;
mod ring;
mod value;

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

use shm::arena::Arena;
use shm::segment::{Offset, Segment};

pub use error::{End, OpenError, ReceiveError, SendError};
pub use value::Value;

use crate::patience::{self, Ended};
use crate::peer::Watch;
use place::{Owner, Place};
use ring::{Consumer, Nothing, Producer, Refused};

/// A channel as its maker sees it: memory whose two ends are opened by others, each once.
///
/// When it is dropped, ends that nobody has opened cannot be opened any more, and the memory goes
/// back to the arena if both ends are closed or their processes dead. If somebody still holds an
/// end, the memory stays taken; so keep the value until both sides are done.
///
/// ```
/// use queues::channel::{Channel, Receiver, Sender};
/// use shm::{arena::Arena, segment::{Backing, Segment}};
/// use std::sync::Arc;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let segment = Arc::new(Segment::create(1 << 20, Backing::Memory)?);
/// let arena = Arc::new(Arena::new(Arc::clone(&segment), 0..1 << 20)?);
/// let channel = Channel::<u32>::create(&arena, 100)?;
/// // Other processes map the same segment and learn the offset.
/// let mut sender = Sender::<u32>::open(&segment, channel.offset())?;
/// let mut receiver = Receiver::<u32>::open(&segment, channel.offset())?;
/// assert!(Sender::<u32>::open(&segment, channel.offset()).is_err(), "once only");
/// sender.send(7)?;
/// assert_eq!(receiver.receive()?, 7);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Channel<T: Value> {
    owner: Arc<Owner>,
    carries: PhantomData<T>,
}

impl<T: Value> Channel<T> {
    /// Makes a channel that holds at least `capacity` values that have not been received.
    ///
    /// # Errors
    /// [`OpenError::Capacity`], [`OpenError::Arena`].
    pub fn create(arena: &Arc<Arena>, capacity: u64) -> Result<Self, OpenError> {
        let place = Place::create::<T>(arena, capacity)?;
        Ok(Channel {
            owner: Arc::new(Owner { place, arena: Arc::clone(arena) }),
            carries: PhantomData,
        })
    }

    /// Where it lies; the name by which both ends are opened.
    pub fn offset(&self) -> Offset {
        self.owner.place.offset()
    }

    /// How many values it holds at least.
    pub fn capacity(&self) -> u64 {
        ring::capacity(self.owner.place.count())
    }

    /// Bytes of the segment that it takes.
    pub fn bytes(&self) -> u64 {
        size_of::<place::Head>() as u64 + self.owner.place.count() * T::WORDS * 8
    }
}

/// Makes a channel and opens both ends in this process, for two of its threads.
///
/// # Errors
/// [`OpenError::Capacity`], [`OpenError::Arena`], [`OpenError::Process`].
pub fn pair<T: Value>(
    arena: &Arc<Arena>,
    capacity: u64,
) -> Result<(Sender<T>, Receiver<T>), OpenError> {
    let channel = Channel::<T>::create(arena, capacity)?;
    let mut sender = Sender::open(arena.segment(), channel.offset())?;
    let mut receiver = Receiver::open(arena.segment(), channel.offset())?;
    receiver.owner = Some(Arc::clone(&channel.owner));
    sender.owner = Some(channel.owner);
    Ok((sender, receiver))
}

/// The end that sends. Held by one thread at a time.
#[derive(Debug)]
pub struct Sender<T: Value> {
    producer: Producer,
    place: Place,
    watch: Watch,
    carries: PhantomData<Cell<T>>,
    /// Let go of after the end was closed (see `drop`).
    owner: Option<Arc<Owner>>,
}

impl<T: Value> Sender<T> {
    /// Opens the sending end of the channel at `offset`. That can be done once.
    ///
    /// # Errors
    /// [`OpenError::NoChannel`], [`OpenError::OtherType`], [`OpenError::AlreadyOpened`],
    /// [`OpenError::Segment`], [`OpenError::Process`].
    pub fn open(segment: &Arc<Segment>, offset: Offset) -> Result<Self, OpenError> {
        let place = Place::open::<T>(segment, offset)?;
        place.take(End::Sender)?;
        let producer = Producer::new(place.count());
        Ok(Sender { producer, place, watch: Watch::default(), carries: PhantomData, owner: None })
    }

    /// Sends if there is room.
    ///
    /// # Errors
    /// [`SendError::Full`], [`SendError::Closed`], [`SendError::Broken`].
    #[inline]
    pub fn try_send(&mut self, value: T) -> Result<(), SendError> {
        match value::offer(value, &mut self.producer, self.place.words()) {
            // One load of a line that only a sleeping or leaving receiver writes.
            Ok(()) if self.place.wakeup(End::Receiver).wake() => Err(self.closed()),
            Ok(()) => Ok(()),
            Err(refused) => Err(self.refused(refused)),
        }
    }

    /// Sends, and waits for room if there is none: a short look, then sleep.
    ///
    /// # Errors
    /// [`SendError::Closed`], [`SendError::PeerGone`], [`SendError::Broken`].
    #[inline]
    pub fn send(&mut self, value: T) -> Result<(), SendError> {
        match self.try_send(value) {
            Err(SendError::Full { .. }) => self.send_later(value, None),
            other => other,
        }
    }

    /// As [`Sender::send`], but waits no longer than `deadline`.
    ///
    /// # Errors
    /// [`SendError::DeadlinePassed`] and those of [`Sender::send`].
    #[inline]
    pub fn send_until(&mut self, value: T, deadline: Instant) -> Result<(), SendError> {
        match self.try_send(value) {
            Err(SendError::Full { .. }) => self.send_later(value, Some(deadline)),
            other => other,
        }
    }

    #[cold]
    fn send_later(&mut self, value: T, deadline: Option<Instant>) -> Result<(), SendError> {
        let (place, producer) = (&self.place, &mut self.producer);
        let receiver = place.wakeup(End::Receiver);
        let look = || match value::offer(value, producer, place.words()) {
            Err(Refused::Full) => receiver.is_closed().then_some(Ok(true)),
            Err(Refused::Broken) => Some(Err(SendError::Broken { channel: place.offset() })),
            Ok(()) => Some(Ok(receiver.wake())),
        };
        let holder = || place.mark(End::Receiver).holder();
        match patience::wait(place.wakeup(End::Sender), &mut self.watch, holder, deadline, look) {
            Ok(Ok(true)) => Err(self.closed()),
            Ok(other) => other.map(|_| ()),
            Err(Ended::Deadline) => Err(SendError::DeadlinePassed { channel: place.offset() }),
            Err(Ended::PeerGone(process)) => {
                Err(SendError::PeerGone { channel: place.offset(), process })
            }
        }
    }

    #[cold]
    fn closed(&self) -> SendError {
        SendError::Closed { channel: self.place.offset() }
    }

    #[cold]
    fn refused(&self, refused: Refused) -> SendError {
        let channel = self.place.offset();
        match refused {
            Refused::Full if self.place.wakeup(End::Receiver).is_closed() => {
                SendError::Closed { channel }
            }
            Refused::Full => SendError::Full { channel },
            Refused::Broken => SendError::Broken { channel },
        }
    }

    /// Where the channel lies.
    pub fn channel(&self) -> Offset {
        self.place.offset()
    }
}

impl<T: Value> Drop for Sender<T> {
    /// The receiver gets everything that was sent, and then learns that it was all.
    fn drop(&mut self) {
        self.producer.finish(self.place.words());
        self.place.wakeup(End::Receiver).wake();
        self.place.mark(End::Sender).leave();
    }
}

/// The end that receives. Held by one thread at a time.
#[derive(Debug)]
pub struct Receiver<T: Value> {
    consumer: Consumer,
    place: Place,
    watch: Watch,
    carries: PhantomData<Cell<T>>,
    /// Let go of after the end was closed (see `drop`).
    owner: Option<Arc<Owner>>,
}

impl<T: Value> Receiver<T> {
    /// Opens the receiving end of the channel at `offset`. That can be done once.
    ///
    /// # Errors
    /// [`OpenError::NoChannel`], [`OpenError::OtherType`], [`OpenError::AlreadyOpened`],
    /// [`OpenError::Segment`], [`OpenError::Process`].
    pub fn open(segment: &Arc<Segment>, offset: Offset) -> Result<Self, OpenError> {
        let place = Place::open::<T>(segment, offset)?;
        place.take(End::Receiver)?;
        let consumer = Consumer::new(place.count());
        Ok(Receiver { consumer, place, watch: Watch::default(), carries: PhantomData, owner: None })
    }

    /// Receives the next value if it has arrived.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`], [`ReceiveError::Closed`].
    #[inline]
    pub fn try_receive(&mut self) -> Result<T, ReceiveError> {
        match take(&mut self.consumer, &self.place) {
            Ok(value) => Ok(value),
            Err(Nothing::Yet) => Err(ReceiveError::Empty { channel: self.place.offset() }),
            Err(Nothing::More) => Err(ReceiveError::Closed { channel: self.place.offset() }),
        }
    }

    /// Receives the next value, and waits for it if it has not arrived: a short look, then sleep.
    ///
    /// # Errors
    /// [`ReceiveError::Closed`], [`ReceiveError::PeerGone`].
    #[inline]
    pub fn receive(&mut self) -> Result<T, ReceiveError> {
        self.look_briefly();
        match take(&mut self.consumer, &self.place) {
            Ok(value) => Ok(value),
            Err(_) => self.receive_later(None),
        }
    }

    /// As [`Receiver::receive`], but waits no longer than `deadline`.
    ///
    /// # Errors
    /// [`ReceiveError::DeadlinePassed`] and those of [`Receiver::receive`].
    #[inline]
    pub fn receive_until(&mut self, deadline: Instant) -> Result<T, ReceiveError> {
        self.look_briefly();
        match take(&mut self.consumer, &self.place) {
            Ok(value) => Ok(value),
            Err(_) => self.receive_later(Some(deadline)),
        }
    }

    /// Looks for a value that is on its way, with nothing between its arrival and its use but
    /// leaving the loop.
    #[inline(always)]
    fn look_briefly(&self) {
        let next = value::next::<T>(&self.consumer, self.place.words());
        for _ in 0..patience::EAGER_LOOKS {
            if next.is_there() {
                break;
            }
        }
    }

    fn receive_later(&mut self, deadline: Option<Instant>) -> Result<T, ReceiveError> {
        let (place, consumer) = (&self.place, &mut self.consumer);
        let channel = place.offset();
        let next = value::next::<T>(consumer, place.words());
        let look = || {
            if !next.is_there() {
                return None;
            }
            match take(consumer, place) {
                Ok(value) => Some(Ok(value)),
                Err(Nothing::Yet) => None,
                Err(Nothing::More) => Some(Err(ReceiveError::Closed { channel })),
            }
        };
        let holder = || place.mark(End::Sender).holder();
        match patience::wait(place.wakeup(End::Receiver), &mut self.watch, holder, deadline, look) {
            Ok(received) => received,
            Err(Ended::Deadline) => Err(ReceiveError::DeadlinePassed { channel }),
            Err(Ended::PeerGone(process)) => Err(ReceiveError::PeerGone { channel, process }),
        }
    }

    /// Where the channel lies.
    pub fn channel(&self) -> Offset {
        self.place.offset()
    }
}

/// Takes a value out and now and then gives the sender room.
#[inline(always)]
fn take<T: Value>(consumer: &mut Consumer, place: &Place) -> Result<T, Nothing> {
    let value = value::take(consumer, place.words())?;
    if consumer.is_due() {
        consumer.publish(place.words());
        place.wakeup(End::Sender).wake();
    }
    Ok(value)
}

impl<T: Value> Drop for Receiver<T> {
    /// The sender is told with its next value, or at once if it waits for room.
    fn drop(&mut self) {
        self.place.wakeup(End::Receiver).close();
        self.place.wakeup(End::Sender).wake();
        self.place.mark(End::Receiver).leave();
    }
}
