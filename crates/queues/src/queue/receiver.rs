//! The receiving end of a queue.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::memory::RingMemory;
use super::{Consumers, Kind, Multi};
use crate::bell::Bell;
use crate::departures::{Departures, Watched, departed};
use crate::error::RecvError;
use crate::event::Notify;
use crate::message::Message;
use crate::one_poll::Polled;
use crate::sync::{Ordering, spin_loop};
use crate::waiting::{Wait, wait};

/// How many pauses of the processor a receiver makes between two looks while messages flow. The
/// sender is probably writing to the very line that would be looked at; a look at once takes the
/// line away from it for a message or two.
const FLOW_PAUSE: u32 = 4;

/// How often it looks before it takes the flow for ended.
const FLOW_LOOKS: u32 = 8;

/// Receives from one queue. Those of the form [`Multi`] can be cloned, one for each thread.
pub struct Receiver<K: Kind, C: Consumers = Multi> {
    ring: RingMemory<K::Slot>,
    looks: K::RecvState,
    /// The last batch was not empty.
    flows: bool,
    watched: Watched,
    form: PhantomData<C>,
}

impl<K: Kind, C: Consumers> Receiver<K, C> {
    pub(super) fn of(ring: RingMemory<K::Slot>) -> Self {
        Receiver {
            ring,
            looks: K::RecvState::default(),
            flows: false,
            watched: None,
            form: PhantomData,
        }
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
    /// [`RecvError`].
    #[inline]
    pub fn try_recv(&mut self) -> Result<Option<K::Message>, RecvError> {
        let received = K::try_recv::<C>(&self.ring, &mut self.looks);
        if let Ok(Some(_)) = received {
            self.ring.announce_room();
        }
        received
    }

    /// Takes the next message; the Empty message if there is none, or the queue is closed. So it
    /// can always be dispatched.
    #[inline]
    pub fn recv_or_empty(&mut self) -> K::Message {
        match self.try_recv() {
            Ok(Some(message)) => message,
            _ => self.empty_message(),
        }
    }

    /// Takes up to `into.len()` messages, as many as there are, with one handshake; gives how many.
    ///
    /// # Errors
    /// [`RecvError`], when there is no message before it.
    pub fn try_recv_many(&mut self, into: &mut [K::Message]) -> Result<usize, RecvError> {
        let looks = if self.flows { FLOW_LOOKS } else { 1 };
        let mut count = 0;
        for _ in 0..looks {
            if self.flows {
                (0..FLOW_PAUSE).for_each(|_| spin_loop());
            }
            count = K::try_recv_many::<C>(&self.ring, &mut self.looks, into)?;
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
    /// [`RecvError`].
    pub fn recv(&mut self) -> Result<K::Message, RecvError> {
        loop {
            if let Some(message) = wait(self, None).transpose()? {
                return Ok(message);
            }
        }
    }

    /// Receives the next message, waiting for at most `timeout`; `None` after that.
    ///
    /// # Errors
    /// [`RecvError`].
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Option<K::Message>, RecvError> {
        wait(self, Instant::now().checked_add(timeout)).transpose()
    }

    /// Receives the next message, waiting until `deadline` at the latest; `None` after that.
    ///
    /// # Errors
    /// [`RecvError`].
    pub fn recv_deadline(&mut self, deadline: Instant) -> Result<Option<K::Message>, RecvError> {
        wait(self, Some(deadline)).transpose()
    }

    /// Whether a message waits, or a line that holds others up and that some more looks will pass
    /// by.
    #[inline]
    #[must_use]
    pub fn is_ready(&self) -> bool {
        K::is_ready(&self.ring)
    }

    /// The message that an empty queue gives. In a new queue: from source 0 for handler 0, five
    /// bytes of 0.
    #[must_use]
    pub fn empty_message(&self) -> K::Message {
        // Relaxed: the message is all in the word.
        K::of_empty(Message::from_bits(self.ring.control.settings.empty.load(Ordering::Relaxed)))
    }

    /// Says what an empty queue gives, to all of its receivers.
    pub fn set_empty_message(&mut self, message: Message) {
        self.ring.control.settings.empty.store(message.to_bits(), Ordering::Relaxed);
    }

    /// Asks that the [`Event`](crate::event::Event) that senders were given be notified once. True
    /// if it is already so; then receive first.
    pub fn request_event(&mut self, when: Notify) -> bool {
        self.ring.request_event(Some(when));
        match when {
            Notify::Arrival => self.is_ready(),
            Notify::HalfFull => K::holds(&self.ring, self.ring.slots.len() as u64 / 2),
        }
    }

    /// Takes back what [`Receiver::request_event`] asked for.
    pub fn cancel_event(&mut self) {
        self.ring.request_event(None);
    }
}

impl<K: Kind, C: Consumers> Wait for Receiver<K, C> {
    type Found = Result<K::Message, RecvError>;

    fn bell(&self) -> Bell<'_> {
        self.ring.bell()
    }

    fn look(&mut self) -> Option<Self::Found> {
        self.try_recv().transpose()
    }

    fn progress(&self) -> u64 {
        // Relaxed: a hint that others receive too.
        self.ring.control.head.position.load(Ordering::Relaxed)
    }

    fn is_ready(&mut self) -> bool {
        Receiver::is_ready(self)
    }

    fn recover(&mut self) -> Option<Self::Found> {
        let rank = departed(&self.watched)?;
        // What it sent before it went comes first.
        Some(self.look().unwrap_or(Err(RecvError::Departed { rank })))
    }
}

impl<K: Kind> Clone for Receiver<K, Multi> {
    fn clone(&self) -> Self {
        // It can only fail when other programs write over the count, or at 2^32 receivers; then one
        // goes uncounted.
        let _ = self.ring.enter_receiver(false);
        let mut clone = Receiver::of(self.ring.clone());
        clone.watched.clone_from(&self.watched);
        clone
    }
}

impl<K: Kind, C: Consumers> Drop for Receiver<K, C> {
    fn drop(&mut self) {
        self.ring.leave_receiver(C::SINGLE);
    }
}

debug_by_offset!("Receiver", K: Kind, C: Consumers> std::fmt::Debug for Receiver<K, C>);

impl<K: Kind, C: Consumers> Polled for Receiver<K, C> {
    type Item = K::Message;

    #[inline]
    fn take(&mut self) -> Option<K::Message> {
        self.try_recv().ok()?
    }

    #[inline]
    fn is_ready(&self) -> bool {
        Receiver::is_ready(self)
    }
}
