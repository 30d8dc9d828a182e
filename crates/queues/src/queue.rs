//! What Express queues and wide ones have in common: making and finding them, sending, receiving, waiting and closing.
//!
//! | to | look at once | wait | wait until a deadline |
//! |---|---|---|---|
//! | send | [`Sender::try_send`] | [`Sender::send`] | [`Sender::send_until`] |
//! | receive | [`Receiver::try_receive`], [`Receiver::receive`] | [`Receiver::receive_blocking`] | [`Receiver::receive_until`] |
//!
//! To wait is to look some hundred times and then to sleep. See [`crate::express`] and [`crate::lines`] for what a message is.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

use shm::arena::Arena;
use shm::segment::{Offset, Segment};

use crate::bell::Bell;
use crate::departures::{Departures, Watched, departed};
use crate::event::{Event, Notify};
use crate::one_poll::{PollSet, Polled};
use crate::ring::{self, Ring, RingError, Slots};
use crate::sync::{Ordering, spin_loop};
use crate::waiting::{Ringers, Wait, wait};
use crate::word::Message;

pub use crate::form::{Form, Shared, Sole};
pub use crate::refusal::{ReceiveError, SendError};

/// How many pauses of the processor a receiver makes between two looks while messages flow. The sender is probably writing to
/// the very line that would be looked at; a look at once takes the line away from it for a message or two.
const FLOW_PAUSE: u32 = 4;

/// How often it looks before it takes the flow for ended.
const FLOW_LOOKS: u32 = 8;

/// What closing came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closing {
    /// Nothing will ever be sent at this position or after it; positions count the queue's messages from its beginning.
    At(u64),
    /// The queue is full. It closes when something is received, after at most as many messages as it holds.
    WhenReceived,
}

/// How messages of one kind lie in a ring.
pub trait Kind: sealed::Protocol {}

pub(crate) mod sealed {
    use super::{Closing, Form, Message, ReceiveError, Ring, SendError, Slots};

    /// The operations on a ring; those of `Kind` that are nobody else's business.
    pub trait Protocol: Sized + 'static {
        /// What lies in a slot.
        type Slot: Slots;
        /// What is sent.
        type Message: Copy;
        /// What a receiver remembers.
        type Looks: Default + Send + std::fmt::Debug;
        /// What a sender remembers.
        type Aim: Default + Send + Sync + std::fmt::Debug;

        fn try_send(
            ring: &Ring<Self::Slot>,
            message: &Self::Message,
            generation: u32,
            aim: &Self::Aim,
        ) -> Result<u64, SendError>;
        fn try_receive<F: Form>(
            ring: &Ring<Self::Slot>,
            looks: &mut Self::Looks,
        ) -> Result<Option<Self::Message>, ReceiveError>;
        fn try_receive_many<F: Form>(
            ring: &Ring<Self::Slot>,
            looks: &mut Self::Looks,
            into: &mut [Self::Message],
        ) -> Result<usize, ReceiveError>;
        fn is_ready(ring: &Ring<Self::Slot>) -> bool;
        fn holds(ring: &Ring<Self::Slot>, count: u64) -> bool;
        fn close(ring: &Ring<Self::Slot>) -> Closing;
        fn reopen(ring: &Ring<Self::Slot>) -> Option<u32>;
        fn generation(ring: &Ring<Self::Slot>) -> u32;
        fn of_empty(message: Message) -> Self::Message;
        /// Looks after a ring in which nothing has moved for a while.
        fn mend(_ring: &Ring<Self::Slot>) {}
        /// This process's number among those that send.
        fn enter(_ring: &Ring<Self::Slot>) -> u8 {
            0
        }
    }
}

/// A queue in a segment: what its senders and receivers are made from.
pub struct Queue<K: Kind> {
    pub(crate) ring: Ring<K::Slot>,
}

impl<K: Kind> Queue<K> {
    /// How many bytes of a segment a queue takes that holds so many messages.
    ///
    /// # Errors
    /// [`RingError::Capacity`] unless it is a power of two from [`ring::LEAST_CAPACITY`] to [`ring::MOST_CAPACITY`].
    pub fn bytes_for(capacity: usize) -> Result<u64, RingError> {
        ring::bytes_for::<K::Slot>(capacity)
    }

    /// Makes a queue that holds so many messages of a new piece of the arena, in a poll set if one is given, there with this
    /// index. To take the memory back, free the [offset](Self::offset) in the arena when nobody uses the queue any more.
    ///
    /// # Errors
    /// Those of [`Queue::bytes_for`], [`Arena::allocate`], and [`RingError::NoMember`].
    pub fn create(arena: &Arena, capacity: usize, poll: Option<(&PollSet, usize)>) -> Result<Self, RingError> {
        Ok(Queue { ring: Ring::create(arena, capacity, poll)? })
    }

    /// As [`Queue::create`], at a place that is committed, a multiple of 64 (better 128), and nobody else's.
    ///
    /// # Errors
    /// Those of [`Queue::create`], and [`RingError::Segment`] if there is no such place.
    pub fn create_at(
        segment: &Arc<Segment>,
        offset: Offset,
        capacity: usize,
        poll: Option<(&PollSet, usize)>,
    ) -> Result<Self, RingError> {
        Ok(Queue { ring: Ring::create_at(segment, offset, capacity, poll)? })
    }

    /// Finds the queue that another process or thread made at `offset`.
    ///
    /// # Errors
    /// [`RingError::NoQueue`] if something else lies there, [`RingError::Segment`] if there is no such place.
    pub fn attach(segment: &Arc<Segment>, offset: Offset) -> Result<Self, RingError> {
        Ok(Queue { ring: Ring::attach(segment, offset)? })
    }

    /// Where the queue lies: what others attach to.
    #[must_use]
    pub fn offset(&self) -> Offset {
        self.ring.offset()
    }

    /// How many messages it holds.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.ring.slots.len()
    }

    /// A sender to the queue as it is now.
    #[must_use]
    pub fn sender(&self) -> Sender<K> {
        self.sender_of(self.generation())
    }

    /// A sender to the queue of this generation; it finds the queue closed if there is another one in its memory.
    #[must_use]
    pub fn sender_of(&self, generation: u32) -> Sender<K> {
        Sender { ring: self.entered().ring, generation, aim: K::Aim::default(), event: None, watched: None }
    }

    /// The queue as this process sends to it.
    pub(crate) fn entered(&self) -> Self {
        let mut ring = self.ring.clone();
        ring.own = K::enter(&ring);
        Queue { ring }
    }

    /// How often the queue's memory was [opened again](Self::reopen).
    #[must_use]
    pub fn generation(&self) -> u32 {
        K::generation(&self.ring)
    }

    /// One of several receivers.
    ///
    /// # Errors
    /// [`RingError::Held`] while there is a sole receiver.
    pub fn receiver(&self) -> Result<Receiver<K, Shared>, RingError> {
        self.ring.enter_receiver(false)?;
        Ok(Receiver::of(self.ring.clone()))
    }

    /// The only receiver, which needs no read-modify-write.
    ///
    /// # Errors
    /// [`RingError::Held`] while there is any receiver.
    pub fn sole_receiver(&self) -> Result<Receiver<K, Sole>, RingError> {
        self.ring.enter_receiver(true)?;
        Ok(Receiver::of(self.ring.clone()))
    }

    /// Forgets the receivers of a process that has died, which could not take their leave. No receiver may be alive.
    pub fn forget_receivers(&self) {
        self.ring.forget_receivers();
    }

    /// Lets nobody send any more; what was sent can still be received. Receivers that have received it all get
    /// [`ReceiveError::Closed`]. An Express queue that is full closes as soon as something is received; if it was not closed
    /// by then, because a receiver was just at work, close it again.
    pub fn close(&self) -> Closing {
        let closing = K::close(&self.ring);
        self.ring.announce_end();
        closing
    }

    /// Ends a queue whose receivers have died: senders find it closed at once, also those that wait for room. What was sent
    /// and not received is lost. The memory must not hold another queue before these senders are gone.
    pub fn retire(&self) {
        // A generation that nobody has been told of. SeqCst: before the look whether anybody waits.
        self.ring.control.settings.gate.fetch_add(2, Ordering::SeqCst);
        self.ring.announce_end();
    }

    /// Opens a closed queue from which everything was received as another queue: senders that were made before find it closed
    /// for ever. Gives the new generation; `None` if the queue is not closed and empty.
    ///
    /// No receiver may use it meanwhile.
    pub fn reopen(&self) -> Option<u32> {
        K::reopen(&self.ring)
    }
}

/// Sends to one queue. Any number of threads may use one, or clones of one.
pub struct Sender<K: Kind> {
    pub(crate) ring: Ring<K::Slot>,
    pub(crate) generation: u32,
    aim: K::Aim,
    event: Option<Event>,
    watched: Watched,
}

impl<K: Kind> Sender<K> {
    /// A sender that notifies the receiver's event when the receiver asks for that. The event is also notified for the poll
    /// set of the queue.
    #[must_use]
    pub fn with_event(self, event: Event) -> Self {
        Sender { event: Some(event), ..self }
    }

    /// A sender that gives up waiting for room when this says that the receiver has gone.
    #[must_use]
    pub fn watching(self, receiver: Arc<dyn Departures>) -> Self {
        Sender { watched: Some(receiver), ..self }
    }

    /// Sends a message if there is room.
    ///
    /// # Errors
    /// [`SendError`]; the message was then not sent.
    #[inline]
    pub fn try_send(&self, message: &K::Message) -> Result<(), SendError> {
        K::try_send(&self.ring, message, self.generation, &self.aim)?;
        self.announce();
        Ok(())
    }

    /// Sends a message, and waits for room if there is none.
    ///
    /// # Errors
    /// [`SendError::Closed`], [`SendError::Broken`], [`SendError::Departed`].
    #[inline]
    pub fn send(&self, message: &K::Message) -> Result<(), SendError> {
        match self.try_send(message) {
            Err(SendError::Full) => self.send_later(message, None),
            other => other,
        }
    }

    /// Sends a message, and waits for room until `deadline` if there is none.
    ///
    /// # Errors
    /// [`SendError::Full`] at the deadline, [`SendError::Closed`], [`SendError::Broken`], [`SendError::Departed`].
    #[inline]
    pub fn send_until(&self, message: &K::Message, deadline: Instant) -> Result<(), SendError> {
        match self.try_send(message) {
            Err(SendError::Full) => self.send_later(message, Some(deadline)),
            other => other,
        }
    }

    #[cold]
    fn send_later(&self, message: &K::Message, deadline: Option<Instant>) -> Result<(), SendError> {
        // Without a deadline the wait has no other end than a result.
        wait(&mut Later { sender: self, message }, deadline).unwrap_or(Err(SendError::Full))
    }

    /// Announces what was just published.
    #[inline(always)]
    pub(crate) fn announce(&self) {
        self.ring.announce(self.event.as_ref(), || K::holds(&self.ring, self.ring.slots.len() as u64 / 2));
    }
}

/// A message that waits for room.
struct Later<'a, K: Kind> {
    sender: &'a Sender<K>,
    message: &'a K::Message,
}

impl<K: Kind> Wait for Later<'_, K> {
    type Found = Result<(), SendError>;

    fn bell(&self) -> Bell<'_> {
        self.sender.ring.room()
    }

    fn ringers(&self) -> Ringers {
        self.sender.ring.room_ringers()
    }

    fn look(&mut self) -> Option<Self::Found> {
        Some(self.sender.try_send(self.message)).filter(|result| *result != Err(SendError::Full))
    }

    fn mend(&mut self) -> Option<Self::Found> {
        K::mend(&self.sender.ring);
        let rank = departed(&self.sender.watched)?;
        // It may have made room as the last that it did; then the message is sent, to nobody.
        Some(self.look().unwrap_or(Err(SendError::Departed { rank })))
    }
}

/// Receives from one queue. Those of the form [`Shared`] can be cloned, one for each thread.
pub struct Receiver<K: Kind, F: Form = Shared> {
    ring: Ring<K::Slot>,
    looks: K::Looks,
    /// The last batch was not empty.
    flows: bool,
    watched: Watched,
    form: PhantomData<F>,
}

impl<K: Kind, F: Form> Receiver<K, F> {
    fn of(ring: Ring<K::Slot>) -> Self {
        Receiver { ring, looks: K::Looks::default(), flows: false, watched: None, form: PhantomData }
    }

    /// A receiver that gives up waiting when this says that nobody is left who might send.
    #[must_use]
    pub fn watching(mut self, senders: Arc<dyn Departures>) -> Self {
        self.watched = Some(senders);
        self
    }

    /// Takes the next message if there is one.
    ///
    /// # Errors
    /// [`ReceiveError`].
    #[inline]
    pub fn try_receive(&mut self) -> Result<Option<K::Message>, ReceiveError> {
        let received = K::try_receive::<F>(&self.ring, &mut self.looks);
        if let Ok(Some(_)) = received {
            self.ring.announce_room();
        }
        received
    }

    /// Takes the next message; the Empty message if there is none, or the queue is closed. So it can always be dispatched.
    #[inline]
    pub fn receive(&mut self) -> K::Message {
        match self.try_receive() {
            Ok(Some(message)) => message,
            _ => self.empty_message(),
        }
    }

    /// Takes up to `into.len()` messages, as many as there are, with one handshake; gives how many.
    ///
    /// # Errors
    /// [`ReceiveError`], when there is no message before it.
    pub fn receive_many(&mut self, into: &mut [K::Message]) -> Result<usize, ReceiveError> {
        let looks = if self.flows { FLOW_LOOKS } else { 1 };
        let mut count = 0;
        for _ in 0..looks {
            if self.flows {
                (0..FLOW_PAUSE).for_each(|_| spin_loop());
            }
            count = K::try_receive_many::<F>(&self.ring, &mut self.looks, into)?;
            if count != 0 {
                break;
            }
        }
        self.flows = count != 0;
        if count != 0 {
            self.ring.announce_room();
        }
        Ok(count)
    }

    /// Takes the next message, and sleeps until there is one.
    ///
    /// # Errors
    /// [`ReceiveError`].
    pub fn receive_blocking(&mut self) -> Result<K::Message, ReceiveError> {
        loop {
            if let Some(message) = wait(self, None).transpose()? {
                return Ok(message);
            }
        }
    }

    /// Takes the next message, and sleeps until there is one or the deadline has come; then `None`.
    ///
    /// # Errors
    /// [`ReceiveError`].
    pub fn receive_until(&mut self, deadline: Instant) -> Result<Option<K::Message>, ReceiveError> {
        wait(self, Some(deadline)).transpose()
    }

    /// Whether a message waits, or a line that holds others up and that some more looks will pass by.
    #[inline]
    #[must_use]
    pub fn is_ready(&self) -> bool {
        K::is_ready(&self.ring)
    }

    /// The message that an empty queue gives. In a new queue: from source 0 for handler 0, five bytes of 0.
    #[must_use]
    pub fn empty_message(&self) -> K::Message {
        // Relaxed: the message is all in the word.
        K::of_empty(Message::from_bits(self.ring.control.settings.empty.load(Ordering::Relaxed)))
    }

    /// Says what an empty queue gives, to all of its receivers.
    pub fn set_empty_message(&mut self, message: Message) {
        self.ring.control.settings.empty.store(message.to_bits(), Ordering::Relaxed);
    }

    /// Asks that the [`Event`] that senders were given be notified once. True if it is already so; then receive first.
    pub fn ask_for_event(&mut self, when: Notify) -> bool {
        self.ring.ask(Some(when));
        match when {
            Notify::Arrival => self.is_ready(),
            Notify::HalfFull => K::holds(&self.ring, self.ring.slots.len() as u64 / 2),
        }
    }

    /// Takes back what [`Receiver::ask_for_event`] asked for.
    pub fn ask_for_no_event(&mut self) {
        self.ring.ask(None);
    }
}

impl<K: Kind, F: Form> Wait for Receiver<K, F> {
    type Found = Result<K::Message, ReceiveError>;

    fn bell(&self) -> Bell<'_> {
        self.ring.bell()
    }

    fn look(&mut self) -> Option<Self::Found> {
        self.try_receive().transpose()
    }

    fn progress(&self) -> u64 {
        // Relaxed: a hint that others receive too.
        self.ring.control.head.position.load(Ordering::Relaxed)
    }

    fn is_ready(&mut self) -> bool {
        Receiver::is_ready(self)
    }

    fn mend(&mut self) -> Option<Self::Found> {
        let rank = departed(&self.watched)?;
        // What it sent before it went comes first.
        Some(self.look().unwrap_or(Err(ReceiveError::Departed { rank })))
    }
}

impl<K: Kind> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Queue { ring: self.ring.clone() }
    }
}

impl<K: Kind> Clone for Sender<K> {
    fn clone(&self) -> Self {
        let (ring, event, watched) = (self.ring.clone(), self.event.clone(), self.watched.clone());
        Sender { ring, generation: self.generation, aim: K::Aim::default(), event, watched }
    }
}

impl<K: Kind> Clone for Receiver<K, Shared> {
    fn clone(&self) -> Self {
        // It can only fail when other programs write over the count, or at 2^32 receivers; then one goes uncounted.
        let _ = self.ring.enter_receiver(false);
        let mut clone = Receiver::of(self.ring.clone());
        clone.watched.clone_from(&self.watched);
        clone
    }
}

impl<K: Kind, F: Form> Drop for Receiver<K, F> {
    fn drop(&mut self) {
        self.ring.leave_receiver(F::SOLE);
    }
}

macro_rules! debug_by_offset {
    ($name:literal, $($type:tt)+) => {
        impl<$($type)+ {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.debug_struct($name).field("offset", &self.ring.offset()).finish_non_exhaustive()
            }
        }
    };
}

debug_by_offset!("Queue", K: Kind> std::fmt::Debug for Queue<K>);
debug_by_offset!("Sender", K: Kind> std::fmt::Debug for Sender<K>);
debug_by_offset!("Receiver", K: Kind, F: Form> std::fmt::Debug for Receiver<K, F>);

impl<K: Kind, F: Form> Polled for Receiver<K, F> {
    type Item = K::Message;

    #[inline]
    fn take(&mut self) -> Option<K::Message> {
        self.try_receive().ok()?
    }

    #[inline]
    fn is_ready(&self) -> bool {
        Receiver::is_ready(self)
    }
}
