//! A hall: the many receive queues of one process, of which few have a ring of their own and the rest share a miss ring.
//!
//! Every queue has two classes, requests and replies, that share nothing: each class has its own miss ring and its own rings,
//! so full requests never hold up a reply. The messages are those of [`crate::lines`]; their tag is the index of the queue. The
//! process that makes the [`Hall`] receives; any process with the segment opens a [`Destination`] for each of its senders.
//!
//! # Residency
//! A *resident* queue has a ring. A sender sends into it if it has room, otherwise, or if there is no ring, into the miss ring
//! of the class: the sender is then *diverted*, and stays so until the hall's `sorted` counter has passed the position of its
//! last diverted message. Whoever receives takes lines from the miss ring in order and appends each to the overflow list
//! of its queue, in private memory, with a boundary `T`: the tail of the queue's ring at that moment. Then it moves `sorted` on.
//!
//! A queue that gets [`PROMOTE`] messages through the miss ring in a short time is given a ring; if none is free, it gets that of
//! the resident queue with the fewest recent messages, if these are less than half of its own. Counts of recent messages
//! are halved after every [`PERIOD`] messages of the class.
//!
//! # Order
//! An overflow entry with boundary `T` is delivered before ring position `T` and after position `T - 1`. That keeps the order
//! of each sender:
//! - An *earlier direct* message of the sender, at position `d`, was published before the entry was sent. Who sorts
//!   reads the entry with Acquire and the tail after it, so `T > d`.
//! - A *later direct* message follows the sender's look at `sorted` (Acquire), which was stored (Release) after the tail was
//!   read as `T`. The tail only grows, so the message gets a position of at least `T`.
//! - Two diverted messages keep the order of their positions in the miss ring, and boundaries never decrease.
//! - *Demotion*: the descriptor says first that there is no ring, then the ring is closed at its tail, then all that is in it
//!   goes into the overflow list, in the order above. Senders that were too late find the ring closed and read the descriptor
//!   again; their messages are sorted later, behind all that. A line that was claimed and not published is voided, and its sender
//!   sends again, through the miss ring; it has sent nothing else meanwhile.
//! - *Promotion*: everything in the overflow list gets boundary 0. A sender with unsorted messages stays diverted, and has then
//!   nothing in the new ring; one with sorted messages finds them all before the ring's first position.
//! - A stopped sender that has claimed a position below `T` and not published is not waited for: when nothing below the tail is
//!   published, every earlier message of the entry's sender was delivered, and the entry is too. A voided position
//!   makes the ring give one at or behind `T`; that message waits until the entries before it are delivered.
//!
//! # Bounds and memory
//! When a queue's overflow list reaches its quota, its descriptor says *stopped*, and its senders alone find it full,
//! until half of it was received. It grows at most by what was in the miss ring and in the queue's ring by then, and one
//! message for each sender that had just read the descriptor.
//!
//! | what | bytes in the segment | bytes in the receiver's private memory |
//! |---|---|---|
//! | a queue that is not resident, both classes | 64 | 2 × 64, and 64 for each message in overflow |
//! | each class of it that is resident | 256 and 64 for each message of the ring's capacity more | at most 512 more |
//! | the hall | 256, two miss rings, 16 for each ring | |
//! | an open [`Destination`] | none | 32 or less, in the sender's |
//!
//! Memory of rings is allocated when they are first used and kept for the next queue.
//!
//! ```
//! use queues::{hall::{Class, Entrance, Hall, Shape}, lines::{LineHeader, WideMessage}};
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
//! destination.try_send(&WideMessage::new(LineHeader::default(), b"a message").expect("at most 48 bytes"))?;
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
use crate::lines::WideMessage;
use crate::refusal::ReceiveError;
use crate::waiting::{Wait, wait};

mod entrance;
mod layout;
mod side;

pub use entrance::{Destination, Entrance};
pub use layout::{Class, HallError, MOST_QUEUES, MOST_RINGS, Shape};
pub use side::{PERIOD, PROMOTE};

use layout::Plan;
use side::Side;

/// A message and where it came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// The index of the queue.
    pub queue: usize,
    /// Its class.
    pub class: Class,
    /// What was sent; its tag is the index of the queue.
    pub message: WideMessage,
}

/// The receiving end of all queues of a hall. When it is dropped, senders find the hall closed; the memory in the segment
/// stays allocated.
#[derive(Debug)]
pub struct Hall {
    plan: Plan,
    sides: [Side; 2],
}

impl Hall {
    /// Makes a hall of this shape of new pieces of the arena, from which it also takes its rings later.
    ///
    /// # Errors
    /// [`HallError`].
    pub fn create(arena: &Arc<Arena>, shape: Shape) -> Result<Hall, HallError> {
        let (plan, [request, reply]) = Plan::create(arena, shape)?;
        let side = |class, miss| Side::new(arena, &plan, class, miss, shape);
        let sides = [side(Class::Request, request)?, side(Class::Reply, reply)?];
        Ok(Hall { plan, sides })
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
    /// [`ReceiveError::Broken`]; [`ReceiveError::Closed`] if there is no such queue.
    pub fn try_receive(&mut self, queue: usize, class: Class) -> Result<Option<WideMessage>, ReceiveError> {
        self.side(class).try_receive(queue)
    }

    /// As [`Hall::try_receive`], and sleeps until there is a message.
    ///
    /// # Errors
    /// Those of [`Hall::try_receive`].
    pub fn receive(&mut self, queue: usize, class: Class) -> Result<WideMessage, ReceiveError> {
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
    ) -> Result<Option<WideMessage>, ReceiveError> {
        wait(&mut One { hall: self, queue, class }, Some(deadline)).transpose()
    }

    /// Takes the next message of the first queue that holds any, replies before requests, then by index. Looks at the resident
    /// queues and at one bit for each of the others.
    ///
    /// # Errors
    /// [`ReceiveError::Broken`].
    pub fn try_receive_any(&mut self) -> Result<Option<Received>, ReceiveError> {
        for class in [Class::Reply, Class::Request] {
            if let Some((queue, message)) = self.side(class).try_receive_any()? {
                return Ok(Some(Received { queue, class, message }));
            }
        }
        Ok(None)
    }

    /// As [`Hall::try_receive_any`], and sleeps until there is a message.
    ///
    /// # Errors
    /// [`ReceiveError::Broken`].
    pub fn receive_any(&mut self) -> Result<Received, ReceiveError> {
        loop {
            if let Some(received) = wait(&mut Any(self), None).transpose()? {
                return Ok(received);
            }
        }
    }

    /// As [`Hall::receive_any`], until the deadline; then `None`.
    ///
    /// # Errors
    /// [`ReceiveError::Broken`].
    pub fn receive_any_until(&mut self, deadline: Instant) -> Result<Option<Received>, ReceiveError> {
        wait(&mut Any(self), Some(deadline)).transpose()
    }

    /// Gives a queue a ring now, if there is a free one and memory for it; gives whether it has one.
    pub fn promote(&mut self, queue: usize, class: Class) -> bool {
        self.side(class).promote(queue)
    }

    /// Takes a queue's ring away, if it has one.
    ///
    /// # Errors
    /// [`ReceiveError::Broken`]; the ring is then lost, with what is in it.
    pub fn demote(&mut self, queue: usize, class: Class) -> Result<(), ReceiveError> {
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
    type Found = Result<WideMessage, ReceiveError>;

    fn bell(&self) -> Bell<'_> {
        self.hall.plan.arrival()
    }

    fn look(&mut self) -> Option<Self::Found> {
        self.hall.try_receive(self.queue, self.class).transpose()
    }

    fn is_ready(&mut self) -> bool {
        self.hall.side(self.class).has_ready_ring(Some(self.queue))
    }
}

/// Waits for all queues.
struct Any<'a>(&'a mut Hall);

impl Wait for Any<'_> {
    type Found = Result<Received, ReceiveError>;

    fn bell(&self) -> Bell<'_> {
        self.0.plan.arrival()
    }

    fn look(&mut self) -> Option<Self::Found> {
        self.0.try_receive_any().transpose()
    }

    fn is_ready(&mut self) -> bool {
        self.0.sides.iter().any(|side| side.has_ready_ring(None))
    }
}
