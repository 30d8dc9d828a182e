//! The sending side of a hall: one mapping of it for a process, and a few bytes for each
//! destination that is open.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use shm::segment::{Offset, Segment};

use super::layout::{Class, HallError, Plan};
use super::side::is_half_full;
use crate::bell::Bell;
use crate::cache_line::{CacheLine, CacheLineHeader, CacheLineMessage, CacheLineQueue};
use crate::error::SendError;
use crate::event::Event;
use crate::liveness::{ProcessId, ProcessWatch};
use crate::order;
use crate::process_table::Entry;
use crate::queue::sealed::Protocol;
use crate::sync::{AtomicBool, Ordering};
use crate::waiting::{Wait, wait};

/// How often a sender reads the descriptor again because it found a ring closed. A hall that was
/// closed ends it here.
const ROUNDS: usize = 1 << 10;

/// After so many messages a sender looks whether the process that receives still lives.
pub const NEWS: u8 = 128;

/// What the senders of a process share: the hall's parts, and its rings as they become known.
#[derive(Debug)]
pub struct Entrance {
    plan: Plan,
    misses: [(CacheLineQueue, u32); 2],
    /// As the places in the hall. Rings stay where they are.
    rings: Box<[OnceLock<CacheLineQueue>]>,
    segment: Arc<Segment>,
    event: Option<Event>,
    /// That this process may touch the hall.
    entry: Entry,
    owner: ProcessId,
    watch: Mutex<ProcessWatch>,
    /// The owner has ended.
    gone: AtomicBool,
}

impl Entrance {
    /// Finds the hall that another process or thread made at `offset`, which is still there. Its
    /// memory stays as long as the entrance does.
    ///
    /// # Errors
    /// [`HallError::NoHall`] if something else lies there, [`HallError::Closed`],
    /// [`HallError::TooManyEntrances`], [`HallError::Process`], [`HallError::Ring`] if there is no
    /// such place.
    pub fn attach(segment: &Arc<Segment>, offset: Offset) -> Result<Entrance, HallError> {
        let plan = Plan::attach(segment, offset)?;
        // Before anything is written there: until then the owner may give the memory to others.
        let entry = plan.enter()?;
        let misses = match plan.misses(segment) {
            Ok(misses) => misses,
            Err(error) => {
                plan.processes().detach(&entry);
                return Err(error.into());
            }
        };
        let misses = misses.map(|miss| {
            let generation = miss.generation();
            (miss.entered(), generation)
        });
        Ok(Entrance {
            rings: plan.places.iter().map(|_| OnceLock::new()).collect(),
            segment: Arc::clone(segment),
            event: None,
            entry,
            owner: plan.owner(),
            watch: Mutex::default(),
            gone: AtomicBool::new(false),
            plan,
            misses,
        })
    }

    /// An entrance whose senders notify the receiver's event when the receiver
    /// [asks](super::Hall::ask_for_event) for that.
    #[must_use]
    pub fn with_event(mut self, event: Event) -> Entrance {
        self.event = Some(event);
        self
    }

    /// Opens a destination: one queue's one class, for one sender.
    ///
    /// # Errors
    /// [`HallError::NoQueue`].
    pub fn open(self: &Arc<Self>, queue: usize, class: Class) -> Result<Destination, HallError> {
        let queues = self.plan.queues.len();
        match u16::try_from(queue) {
            Ok(index) if queue < queues => Ok(Destination {
                hall: Arc::clone(self),
                diverted: 0,
                index,
                class,
                patience: NEWS,
            }),
            _ => Err(HallError::NoQueue { offset: self.plan.offset(), queues, index: queue }),
        }
    }

    fn ring(&self, class: Class, ring: usize) -> Result<&CacheLineQueue, SendError> {
        let half = self.rings.len() / 2;
        let place = self.plan.place(class, ring).ok_or(SendError::Broken)?;
        let known = self.rings.get(class as usize * half + ring).ok_or(SendError::Broken)?;
        if let Some(ring) = known.get() {
            return Ok(ring);
        }
        // Relaxed: the descriptor published it.
        let offset = place.load(Ordering::Relaxed).checked_sub(1).ok_or(SendError::Broken)?;
        let found =
            CacheLineQueue::attach(&self.segment, Offset(offset)).map_err(|_| SendError::Broken)?;
        Ok(known.get_or_init(|| found.entered()))
    }

    fn gone(&self) -> Result<(), SendError> {
        // Relaxed: says nothing about other memory.
        if self.gone.load(Ordering::Relaxed) {
            Err(SendError::Gone { pid: self.owner.pid() })
        } else {
            Ok(())
        }
    }

    /// Asks the kernel whether the owner still lives.
    #[cold]
    fn look_at_owner(&self) -> Result<(), SendError> {
        if self.watch.lock().unwrap_or_else(PoisonError::into_inner).has_ended(self.owner) {
            self.gone.store(true, Ordering::Relaxed);
        }
        self.gone()
    }
}

impl Drop for Entrance {
    fn drop(&mut self) {
        self.plan.processes().detach(&self.entry);
    }
}

/// A sender's way to one queue. Each sender has its own; messages of two senders have no order
/// between them.
#[derive(Debug)]
pub struct Destination {
    hall: Arc<Entrance>,
    /// The position of the last diverted message plus one; 0 when the sender is direct.
    diverted: u64,
    index: u16,
    class: Class,
    /// Counts down to the next look whether the owner lives.
    patience: u8,
}

// What the module's page says.
const _: () = assert!(size_of::<Destination>() <= 32);

impl Destination {
    /// Sends a message if there is room. The queue's index takes the place of its tag.
    ///
    /// # Errors
    /// [`SendError`]; the message was then not sent.
    pub fn try_send(&mut self, message: &CacheLineMessage) -> Result<(), SendError> {
        self.hall.gone()?;
        self.patience -= 1;
        if self.patience == 0 {
            self.patience = NEWS;
            self.hall.look_at_owner()?;
        }
        match self.attempt(message) {
            Err(SendError::Full) => self.hall.look_at_owner().and(Err(SendError::Full)),
            other => other,
        }
    }

    fn attempt(&mut self, message: &CacheLineMessage) -> Result<(), SendError> {
        let header = CacheLineHeader { tag: self.index, ..message.header() };
        let message = CacheLineMessage::new(header, message.data()).unwrap_or_default();
        let queue = usize::from(self.index);
        for _ in 0..ROUNDS {
            let state = self.hall.plan.state(queue, self.class);
            if let (Some((ring, generation)), true) = (state.ring, self.is_direct()) {
                let ring = self.hall.ring(self.class, ring)?;
                match CacheLine::try_send(&ring.ring, &message, generation, &()) {
                    // Full: into the miss ring instead. Closed: it was taken away, and the
                    // descriptor says so by now.
                    Err(SendError::Full) => {}
                    Err(SendError::Closed) => continue,
                    other => {
                        other?;
                        self.hall.plan.bits(self.class).announce(queue);
                        self.announce(ring);
                        return Ok(());
                    }
                }
            }
            if state.stopped {
                return Err(SendError::Full);
            }
            let (miss, generation) = &self.hall.misses[self.class as usize];
            let position = CacheLine::try_send(&miss.ring, &message, *generation, &())?;
            self.diverted = position.wrapping_add(1);
            self.announce(miss);
            return Ok(());
        }
        Err(SendError::Closed)
    }

    /// Sends a message, and waits for room if there is none.
    ///
    /// # Errors
    /// [`SendError::Closed`], [`SendError::Gone`], [`SendError::Broken`].
    pub fn send(&mut self, message: &CacheLineMessage) -> Result<(), SendError> {
        // Without a deadline the wait has no other end than a result.
        self.wait_to_send(message, None)
    }

    /// Sends a message, and waits for room until `deadline` if there is none.
    ///
    /// # Errors
    /// [`SendError::Full`] at the deadline, and those of [`Destination::send`].
    pub fn send_until(
        &mut self,
        message: &CacheLineMessage,
        deadline: Instant,
    ) -> Result<(), SendError> {
        self.wait_to_send(message, Some(deadline))
    }

    fn wait_to_send(
        &mut self,
        message: &CacheLineMessage,
        deadline: Option<Instant>,
    ) -> Result<(), SendError> {
        match self.try_send(message) {
            Err(SendError::Full) => wait(&mut Later { destination: self, message }, deadline)
                .unwrap_or(Err(SendError::Full)),
            other => other,
        }
    }

    /// Whether everything that was sent through the miss ring is sorted.
    fn is_direct(&mut self) -> bool {
        if self.diverted != 0 {
            // Acquire: pairs with the Release in `Side::sort`: the ring's tail is then at least the
            // boundary.
            let sorted = self.hall.plan.class(self.class).sorted.load(Ordering::Acquire);
            if sorted < self.diverted {
                return false;
            }
            self.diverted = 0;
        }
        true
    }

    /// Tells the receiver of a message that was just sent into this ring.
    fn announce(&self, ring: &CacheLineQueue) {
        order::settle();
        self.hall.plan.arrival().ring();
        if let Some(event) = &self.hall.event {
            self.hall.plan.request().answer(|| is_half_full(ring), || event.notify());
        }
    }
}

/// A message that waits for room.
struct Later<'a> {
    destination: &'a mut Destination,
    message: &'a CacheLineMessage,
}

impl Wait for Later<'_> {
    type Found = Result<(), SendError>;

    fn bell(&self) -> Bell<'_> {
        self.destination.hall.plan.room(self.destination.class)
    }

    fn look(&mut self) -> Option<Self::Found> {
        let attempt =
            self.destination.hall.gone().and_then(|()| self.destination.attempt(self.message));
        Some(attempt).filter(|result| *result != Err(SendError::Full))
    }

    fn recover(&mut self) -> Option<Self::Found> {
        // Nobody has rung for a while. What it finds the next look says.
        let _ = self.destination.hall.look_at_owner();
        None
    }
}
