//! A hall: the many receive queues of one process, of which few have a ring of their own and the
//! rest share a miss ring.
//!
//! Every queue has two classes, requests and replies, that share nothing: each class has its own
//! miss ring and its own rings, so full requests never hold up a reply. The messages are those of
//! [`crate::cache_line`]; their tag is the index of the queue. The process that makes the [`Hall`]
//! receives; any process with the segment opens a [`Destination`] for each of its senders.
//!
//! # Residency
//! A *resident* queue has a ring. A sender sends into it if it has room, otherwise, or if there is
//! no ring, into the miss ring of the class: the sender is then *diverted*, and stays so until the
//! hall's `sorted` counter has passed the position of its last diverted message. Whoever receives
//! takes lines from the miss ring in order and appends each to the overflow list of its queue, in
//! private memory, with a boundary `T`: the tail of the queue's ring at that moment. Then it moves
//! `sorted` on.
//!
//! A queue that gets [`PROMOTE`] messages through the miss ring in a short time is given a ring; if
//! none is free, it gets that of the resident queue with the fewest recent messages, if these are
//! less than half of its own. Counts of recent messages are halved after every [`PERIOD`] messages
//! of the class.
//!
//! # Order
//! An overflow entry with boundary `T` is delivered before ring position `T` and after position `T
//! - 1`. That keeps the order of each sender:
//! - An *earlier direct* message of the sender, at position `d`, was published before the entry was
//!   sent. Who sorts reads the entry with Acquire and the tail after it, so `T > d`.
//! - A *later direct* message follows the sender's look at `sorted` (Acquire), which was stored
//!   (Release) after the tail was read as `T`. The tail only grows, so the message gets a position
//!   of at least `T`.
//! - Two diverted messages keep the order of their positions in the miss ring, and boundaries never
//!   decrease.
//! - *Demotion*: the descriptor says first that there is no ring, then the ring is closed at its
//!   tail, then all that is in it goes into the overflow list, in the order above. Senders that
//!   were too late find the ring closed and read the descriptor again; their messages are sorted
//!   later, behind all that. A line that was claimed and not published is voided, and its sender
//!   sends again, through the miss ring; it has sent nothing else meanwhile.
//! - *Promotion*: everything in the overflow list gets boundary 0. A sender with unsorted messages
//!   stays diverted, and has then nothing in the new ring; one with sorted messages finds them all
//!   before the ring's first position.
//! - A stopped sender that has claimed a position below `T` and not published is not waited for:
//!   when nothing below the tail is published, every earlier message of the entry's sender was
//!   delivered, and the entry is too. A voided position makes the ring give one at or behind `T`;
//!   that message waits until the entries before it are delivered.
//!
//! # Looking
//! Whoever has sent sets its queue's bit, as in a [poll set](crate::one_poll), unless it is set;
//! whoever sorts sets it too. To receive from any queue is to look at the miss ring and at the
//! queues whose bits are set, so its cost does not grow with the number of queues, resident or not
//! ([`Hall::looks`] counts).
//!
//! # Bounds and memory
//! When a queue's overflow list reaches its quota, its descriptor says *stopped*, and its senders
//! alone find it full, until half of it was received. It grows at most by what was in the miss ring
//! and in the queue's ring by then, and one message for each sender that had just read the
//! descriptor. A hall has 255 [`Entrance`]s at most, one a sending process.
//!
//! | what | bytes in the segment | bytes in the receiver's private memory |
//! |---|---|---|
//! | a queue that is not resident, both classes | 64 | 2 × 64, and 64 for each message in overflow |
//! | each class of it that is resident | 768 and 64 for each message of the ring's capacity | at most 512 more |
//! | the hall ([`Shape::bytes`]) | 2,240, two miss rings, 16 for each ring, 128 for every 512 queues (and 128 for more than 512) | |
//! | an open [`Destination`] | none | 32 or less, in the sender's |
//!
//! Memory of rings is allocated when they are first used and kept for the next queue. All of it
//! goes back to the arena when the hall is dropped, if no living process has an [`Entrance`] then;
//! otherwise when [`Ended::free`] finds that none has.
//!
//! # Ends
//! A sender finds a dropped hall [closed](SendError::Closed). If the process that received has
//! died, it is told [who that was](SendError::Gone): whenever there is no room, within a tenth of a
//! second while it sleeps, and at the latest after [`NEWS`] messages that nobody will receive. A
//! sender that dies costs one line of a ring at most.
//!
//! ```
//! use queues::{hall::{Class, Entrance, Hall, Shape}, cache_line::{CacheLineHeader, CacheLineMessage}};
//! use shm::{arena::Arena, segment::{Backing, Segment}};
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let segment = Arc::new(Segment::create(1 << 20, Backing::Memory)?);
//! let arena = Arc::new(Arena::new(Arc::clone(&segment), 0..1 << 20)?);
//! let mut hall = Hall::create(&arena, Shape::default())?;
//!
//! // Another process would do the same with its own mapping of the segment.
//! let entrance = Arc::new(Entrance::attach(&segment, hall.offset())?);
//! let mut destination = entrance.open(500, Class::Request)?;
//! destination.try_send(&CacheLineMessage::new(CacheLineHeader::default(), b"a message").expect("at most 48 bytes"))?;
//! let received = hall.receive_any()?;
//! assert_eq!((received.queue, received.class, received.message.data()), (500, Class::Request, &b"a message"[..]));
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;
use std::time::Instant;

use shm::arena::Arena;
use shm::segment::Offset;

use crate::bell::Bell;
use crate::cache_line::CacheLineMessage;
use crate::error::RecvError;
#[cfg(doc)]
use crate::error::SendError;
use crate::sync::{Ordering, fence};
use crate::waiting::{Wait, wait};

mod entrance;
mod layout;
mod memory;
mod side;

pub use crate::event::{Event, Notify};
pub use entrance::{Destination, Entrance, NEWS};
pub use layout::{Class, HallError, MOST_QUEUES, MOST_RINGS, Shape};
pub(crate) use side::Progress;
pub use side::{PERIOD, PROMOTE};

use layout::Plan;
use memory::Memory;
use side::Side;

/// A message and where it came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// The index of the queue.
    pub queue: usize,
    /// Its class.
    pub class: Class,
    /// What was sent; its tag is the index of the queue.
    pub message: CacheLineMessage,
}

/// The receiving end of all queues of a hall. When it is dropped, senders find the hall closed; its
/// memory goes back to the arena if no living process has an [`Entrance`], otherwise it stays taken
/// ([`Hall::end`] can do better).
#[derive(Debug)]
pub struct Hall {
    plan: Plan,
    sides: [Side; 2],
    memory: Arc<Memory>,
}

/// A hall that is closed, and that somebody may still touch.
#[derive(Debug)]
pub struct Ended {
    memory: Arc<Memory>,
}

impl Ended {
    /// Gives the memory back to the arena if no living process has an [`Entrance`] any more.
    ///
    /// # Errors
    /// Itself, to try again later. Dropped, it tries once more; then the memory stays taken.
    pub fn free(self) -> Result<(), Ended> {
        if self.memory.give_back() { Ok(()) } else { Err(self) }
    }
}

impl Hall {
    /// Makes a hall of this shape of new pieces of the arena, from which it also takes its rings
    /// later.
    ///
    /// # Errors
    /// [`HallError`].
    pub fn create(arena: &Arc<Arena>, shape: Shape) -> Result<Hall, HallError> {
        let memory = Arc::new(Memory::new(arena));
        let (plan, [request, reply]) = Plan::create(&memory, shape)?;
        let side = |class, miss| Side::new(&memory, &plan, class, miss, shape);
        let sides = [side(Class::Request, request)?, side(Class::Reply, reply)?];
        Ok(Hall { plan, sides, memory })
    }

    /// Closes the hall and gives its memory back to the arena, if no living process has an
    /// [`Entrance`]. What was not received is lost.
    ///
    /// # Errors
    /// What is left of it, if one has.
    pub fn end(self) -> Result<(), Ended> {
        let memory = Arc::clone(&self.memory);
        drop(self);
        Ended { memory }.free()
    }

    /// Where the hall lies: what senders attach to.
    #[must_use]
    pub fn offset(&self) -> Offset {
        self.plan.offset()
    }

    fn side(&mut self, class: Class) -> &mut Side {
        &mut self.sides[class as usize]
    }

    /// Takes the next message of one queue if there is one.
    ///
    /// # Errors
    /// [`RecvError::Broken`]; [`RecvError::Closed`] if there is no such queue.
    pub fn try_receive(
        &mut self,
        queue: usize,
        class: Class,
    ) -> Result<Option<CacheLineMessage>, RecvError> {
        self.side(class).try_receive(queue)
    }

    /// As [`Hall::try_receive`], and sleeps until there is a message.
    ///
    /// # Errors
    /// Those of [`Hall::try_receive`].
    pub fn receive(&mut self, queue: usize, class: Class) -> Result<CacheLineMessage, RecvError> {
        loop {
            if let Some(message) = wait(&mut One { hall: self, queue, class }, None).transpose()? {
                return Ok(message);
            }
        }
    }

    /// As [`Hall::receive`], until the deadline; then `None`.
    ///
    /// # Errors
    /// Those of [`Hall::try_receive`].
    pub fn receive_until(
        &mut self,
        queue: usize,
        class: Class,
        deadline: Instant,
    ) -> Result<Option<CacheLineMessage>, RecvError> {
        wait(&mut One { hall: self, queue, class }, Some(deadline)).transpose()
    }

    /// Takes the next message of the first queue that holds any, replies before requests, then by
    /// index.
    ///
    /// # Errors
    /// [`RecvError::Broken`].
    pub fn try_receive_any(&mut self) -> Result<Option<Received>, RecvError> {
        for class in [Class::Reply, Class::Request] {
            if let Some((queue, message)) =
                self.sides[class as usize].try_receive_any(&self.plan)?
            {
                return Ok(Some(Received { queue, class, message }));
            }
        }
        Ok(None)
    }

    /// As [`Hall::try_receive_any`], and sleeps until there is a message.
    ///
    /// # Errors
    /// [`RecvError::Broken`].
    pub fn receive_any(&mut self) -> Result<Received, RecvError> {
        loop {
            if let Some(received) = wait(&mut Any(self), None).transpose()? {
                return Ok(received);
            }
        }
    }

    /// As [`Hall::receive_any`], until the deadline; then `None`.
    ///
    /// # Errors
    /// [`RecvError::Broken`].
    pub fn receive_any_until(&mut self, deadline: Instant) -> Result<Option<Received>, RecvError> {
        wait(&mut Any(self), Some(deadline)).transpose()
    }

    /// Asks that the [`Event`] that senders were given ([`Entrance::with_event`]) be notified once:
    /// when a message arrives, or when a ring or a miss ring is half full. True if it is already
    /// so, or if an overflow list has half of its quota; then receive first.
    pub fn ask_for_event(&mut self, when: Notify) -> bool {
        self.plan.request().ask(when);
        // Between the request and the look.
        fence(Ordering::SeqCst);
        match when {
            Notify::Arrival => self.is_ready(),
            Notify::HalfFull => self.sides.iter().any(Side::is_half_full),
        }
    }

    /// Takes back what [`Hall::ask_for_event`] asked for.
    pub fn ask_for_no_event(&mut self) {
        self.plan.request().cancel();
    }

    fn is_ready(&mut self) -> bool {
        self.sides.iter_mut().any(|side| side.is_ready(&self.plan))
    }

    /// As [`Hall::ask_for_event`] for an arrival, without a look.
    pub(crate) fn ask(&mut self) {
        self.plan.request().ask(Notify::Arrival);
        fence(Ordering::SeqCst);
    }

    /// Whether a queue of a class, or the miss ring, needs another look before its receiver can
    /// sleep.
    pub(crate) fn needs_look(&self, queue: usize, class: Class) -> bool {
        let side = &self.sides[class as usize];
        side.is_miss_ready() || side.is_queue_ready(queue)
    }

    /// What is known of the messages of a class now.
    pub(crate) fn progress(&self, queue: usize, class: Class) -> Progress {
        self.sides[class as usize].progress(queue)
    }

    /// How often the hall has looked at a ring or an overflow list so far: what receiving costs.
    #[must_use]
    pub fn looks(&self) -> u64 {
        self.sides.iter().map(|side| side.looks).sum()
    }

    /// Gives a queue a ring now, if there is a free one and memory for it; gives whether it has
    /// one.
    pub fn promote(&mut self, queue: usize, class: Class) -> bool {
        self.side(class).promote(queue)
    }

    /// Takes a queue's ring away, if it has one.
    ///
    /// # Errors
    /// [`RecvError::Broken`]; the ring is then lost, with what is in it.
    pub fn demote(&mut self, queue: usize, class: Class) -> Result<(), RecvError> {
        self.side(class).demote(queue)
    }

    /// Whether a queue has a ring.
    #[must_use]
    pub fn is_resident(&self, queue: usize, class: Class) -> bool {
        self.sides[class as usize].is_resident(queue)
    }

    /// How many messages lie in a queue's overflow list.
    #[must_use]
    pub fn overflow(&self, queue: usize, class: Class) -> usize {
        self.sides[class as usize].overflow(queue)
    }
}

/// Waits for one queue.
struct One<'a> {
    hall: &'a mut Hall,
    queue: usize,
    class: Class,
}

impl Wait for One<'_> {
    type Found = Result<CacheLineMessage, RecvError>;

    fn bell(&self) -> Bell<'_> {
        self.hall.plan.arrival()
    }

    fn look(&mut self) -> Option<Self::Found> {
        self.hall.try_receive(self.queue, self.class).transpose()
    }

    fn is_ready(&mut self) -> bool {
        self.hall.needs_look(self.queue, self.class)
    }
}

/// Waits for all queues.
struct Any<'a>(&'a mut Hall);

impl Wait for Any<'_> {
    type Found = Result<Received, RecvError>;

    fn bell(&self) -> Bell<'_> {
        self.0.plan.arrival()
    }

    fn look(&mut self) -> Option<Self::Found> {
        self.0.try_receive_any().transpose()
    }

    fn is_ready(&mut self) -> bool {
        self.0.is_ready()
    }

    fn recover(&mut self) -> Option<Self::Found> {
        self.0.sides.iter().for_each(Side::survey);
        None
    }
}
