//! The sending side of a hall: one mapping of it for a process, and a few bytes for each destination that is open.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use shm::segment::{Offset, Segment};

use super::layout::{Class, HallError, Plan};
use crate::bell::Bell;
use crate::lines::{LineHeader, Wide, WideMessage, WideQueue};
use crate::order;
use crate::queue::sealed::Protocol;
use crate::refusal::SendError;
use crate::sync::Ordering;
use crate::waiting::{Wait, wait};

/// How often a sender reads the descriptor again because it found a ring closed. A hall that was closed ends it here.
const ROUNDS: usize = 1 << 10;

/// What the senders of a process share: the hall's parts, and its rings as they become known.
#[derive(Debug)]
pub struct Entrance {
    plan: Plan,
    misses: [(WideQueue, u32); 2],
    /// As the places in the hall. Rings stay where they are.
    rings: Box<[OnceLock<WideQueue>]>,
    segment: Arc<Segment>,
}

impl Entrance {
    /// Finds the hall that another process or thread made at `offset`.
    ///
    /// # Errors
    /// [`HallError::NoHall`] if something else lies there, [`HallError::Ring`] if there is no such place.
    pub fn attach(segment: &Arc<Segment>, offset: Offset) -> Result<Entrance, HallError> {
        let (plan, misses) = Plan::attach(segment, offset)?;
        let misses = misses.map(|miss| {
            let generation = miss.generation();
            (miss.entered(), generation)
        });
        let rings = plan.places.iter().map(|_| OnceLock::new()).collect();
        Ok(Entrance { plan, misses, rings, segment: Arc::clone(segment) })
    }

    /// Opens a destination: one queue's one class, for one sender.
    ///
    /// # Errors
    /// [`HallError::NoQueue`].
    pub fn open(self: &Arc<Self>, queue: usize, class: Class) -> Result<Destination, HallError> {
        let queues = self.plan.queues.len();
        match u16::try_from(queue) {
            Ok(index) if queue < queues => Ok(Destination { hall: Arc::clone(self), diverted: 0, index, class }),
            _ => Err(HallError::NoQueue { offset: self.plan.offset(), queues, index: queue }),
        }
    }

    fn ring(&self, class: Class, ring: usize) -> Result<&WideQueue, SendError> {
        let half = self.rings.len() / 2;
        let place = self.plan.place(class, ring).ok_or(SendError::Broken)?;
        let known = self.rings.get(class as usize * half + ring).ok_or(SendError::Broken)?;
        if let Some(ring) = known.get() {
            return Ok(ring);
        }
        // Relaxed: the descriptor published it.
        let offset = place.load(Ordering::Relaxed).checked_sub(1).ok_or(SendError::Broken)?;
        let found = WideQueue::attach(&self.segment, Offset(offset)).map_err(|_| SendError::Broken)?;
        Ok(known.get_or_init(|| found.entered()))
    }
}

/// A sender's way to one queue. Each sender has its own; messages of two senders have no order between them.
#[derive(Debug)]
pub struct Destination {
    hall: Arc<Entrance>,
    /// The position of the last diverted message plus one; 0 when the sender is direct.
    diverted: u64,
    index: u16,
    class: Class,
}

impl Destination {
    /// Sends a message if there is room. The queue's index takes the place of its tag.
    ///
    /// # Errors
    /// [`SendError`]; the message was then not sent.
    pub fn try_send(&mut self, message: &WideMessage) -> Result<(), SendError> {
        let header = LineHeader { tag: self.index, ..message.header() };
        let message = WideMessage::new(header, message.data()).unwrap_or_default();
        let queue = usize::from(self.index);
        for _ in 0..ROUNDS {
            let state = self.hall.plan.state(queue, self.class);
            if let (Some((ring, generation)), true) = (state.ring, self.is_direct()) {
                let ring = self.hall.ring(self.class, ring)?;
                match Wide::try_send(&ring.ring, &message, generation, &()) {
                    // Full: into the miss ring instead. Closed: it was taken away, and the descriptor says so by now.
                    Err(SendError::Full) => {}
                    Err(SendError::Closed) => continue,
                    other => return other.map(|_| self.announce()),
                }
            }
            if state.stopped {
                return Err(SendError::Full);
            }
            let (miss, generation) = &self.hall.misses[self.class as usize];
            let position = Wide::try_send(&miss.ring, &message, *generation, &())?;
            self.diverted = position.wrapping_add(1);
            self.announce();
            return Ok(());
        }
        Err(SendError::Closed)
    }

    /// Sends a message, and waits for room if there is none.
    ///
    /// # Errors
    /// [`SendError::Closed`], [`SendError::Broken`].
    pub fn send(&mut self, message: &WideMessage) -> Result<(), SendError> {
        // Without a deadline the wait has no other end than a result.
        wait(&mut Later { destination: self, message }, None).unwrap_or(Err(SendError::Full))
    }

    /// Sends a message, and waits for room until `deadline` if there is none.
    ///
    /// # Errors
    /// [`SendError::Full`] at the deadline, [`SendError::Closed`], [`SendError::Broken`].
    pub fn send_until(&mut self, message: &WideMessage, deadline: Instant) -> Result<(), SendError> {
        wait(&mut Later { destination: self, message }, Some(deadline)).unwrap_or(Err(SendError::Full))
    }

    /// Whether everything that was sent through the miss ring is sorted.
    fn is_direct(&mut self) -> bool {
        if self.diverted != 0 {
            // Acquire: pairs with the Release in `Side::sort`: the ring's tail is then at least the boundary.
            let sorted = self.hall.plan.class(self.class).sorted.load(Ordering::Acquire);
            if sorted < self.diverted {
                return false;
            }
            self.diverted = 0;
        }
        true
    }

    fn announce(&self) {
        order::settle();
        self.hall.plan.arrival().ring();
    }
}

/// A message that waits for room.
struct Later<'a> {
    destination: &'a mut Destination,
    message: &'a WideMessage,
}

impl Wait for Later<'_> {
    type Found = Result<(), SendError>;

    fn bell(&self) -> Bell<'_> {
        self.destination.hall.plan.room(self.destination.class)
    }

    fn look(&mut self) -> Option<Self::Found> {
        Some(self.destination.try_send(self.message)).filter(|result| *result != Err(SendError::Full))
    }
}
