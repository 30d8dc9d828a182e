//! Many receive queues of one process. The busy ones have a ring of their own; all others share a
//! non-resident queue.
//!
//! Every queue has two classes, requests and replies, that share nothing: each class has its own
//! non-resident queue and its own rings, so full request queues never delay a reply. The messages
//! are those of [`crate::cache_line`]; their tag is the index of the queue. The process that
//! creates the [`ReceiveQueues`] receives. Any process with the segment connects a [`RemoteQueues`]
//! and opens a [`QueueSender`] for each of its senders.
//!
//! # Residency
//! A *resident* queue has a ring. A sender sends into the ring if it has space. If the ring is
//! full, or the queue has none, the message goes into the non-resident queue of the class: the
//! sender is then *diverted*, and stays so until the `sorted` counter has passed the position of
//! its last diverted message. The receiver takes messages from the non-resident queue in order and
//! appends each to the overflow list of its queue, in private memory, with a boundary `T`: the tail
//! of the queue's ring at that moment. Then it advances `sorted`.
//!
//! A queue that gets [`PROMOTION_MESSAGES`] messages through the non-resident queue in a short time
//! becomes resident. If no ring is free, it gets that of the resident queue with the fewest recent
//! messages, if these are less than half of its own. Counts of recent messages are halved after
//! every [`DECAY_MESSAGES`] messages of the class.
//!
//! # Order
//! An overflow entry with boundary `T` is delivered before ring position `T` and after position `T
//! - 1`. That keeps the order of each sender:
//! - An *earlier direct* message of the sender, at position `d`, was published before the entry was
//!   sent. The receiver reads the entry with Acquire and the tail after it, so `T > d`.
//! - A *later direct* message follows the sender's load of `sorted` (Acquire), which was stored
//!   (Release) after the tail was read as `T`. The tail only grows, so the message gets a position
//!   of at least `T`.
//! - Two diverted messages keep the order of their positions in the non-resident queue, and
//!   boundaries never decrease.
//! - *Demotion*: first the descriptor says that there is no ring, then the ring is closed at its
//!   tail, then its contents move into the overflow list, in the order above. Senders that were too
//!   late find the ring closed and read the descriptor again; their messages are sorted later,
//!   behind these contents. A slot that was claimed and not published is voided, and its sender
//!   sends again, through the non-resident queue; it has sent nothing else meanwhile.
//! - *Promotion*: all entries of the overflow list get boundary 0. A sender with unsorted messages
//!   stays diverted, and then has nothing in the new ring; one with sorted messages finds them all
//!   before the ring's first position.
//! - The receiver does not wait for a stopped sender that has claimed a position below `T` and not
//!   published: when nothing below the tail is published, every earlier message of the entry's
//!   sender was delivered, and the entry is delivered too. A voided position makes the ring return
//!   one at or behind `T`; that message waits until the entries before it are delivered.
//!
//! # Cost of receiving
//! After a send, the sender sets its queue's bit, as in a [poll set](crate::one_poll), unless it is
//! set; so does the receiver after sorting. A receive from any queue polls the non-resident queue
//! and the queues with a set bit, so its cost does not grow with the number of queues, resident
//! or not ([`ReceiveQueues::polls`] counts).
//!
//! # Bounds and memory
//! When a queue's overflow list reaches its quota, its descriptor is marked *stopped*. Then its
//! senders alone find it full, until half of it was received. It grows at most by the contents of
//! the non-resident queue and of the queue's ring, and by one message for each sender that had just
//! read the descriptor. At most 255 [`RemoteQueues`] can be connected, normally one per sending
//! process.
//!
//! | memory of | bytes in the segment | bytes in the receiver's private memory |
//! |---|---|---|
//! | a non-resident queue, both classes | 64 | 2 × 64, and 64 for each message in overflow |
//! | each resident class of it | 768 and 64 for each message of the ring's capacity | at most 512 more |
//! | the common part ([`QueuesConfig::bytes`]) | 2,240, two non-resident queues, 16 for each ring, 128 for every 512 queues (and 128 for more than 512) | |
//! | an open [`QueueSender`] | none | 32 or less, in the sender's |
//!
//! Memory of a ring is allocated at its first use and kept for the next queue. All memory returns
//! to the arena when the [`ReceiveQueues`] are dropped, if no living process has a [`RemoteQueues`]
//! then; otherwise when [`DeferredFree::free`] finds that none has.
//!
//! # Closing and failures
//! A sender finds dropped queues [closed](SendError::Closed). If the receiving process has died,
//! the error [names it](SendError::ProcessExited): whenever there is no space, within a tenth of a second
//! while the sender sleeps, and at the latest after [`LIVENESS_INTERVAL`] messages that will not be
//! received. A sender that dies costs at most one slot of a ring.
//!
//! ```
//! use queues::cache_line::{CacheLineHeader, CacheLineMessage};
//! use queues::receive_queues::{Class, QueuesConfig, ReceiveQueues, RemoteQueues};
//! use shm::{arena::Arena, segment::{Backing, Segment}};
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let segment = Arc::new(Segment::create(1 << 20, Backing::Memory)?);
//! let arena = Arc::new(Arena::new(Arc::clone(&segment), 0..1 << 20)?);
//! let mut queues = ReceiveQueues::create(&arena, QueuesConfig::default())?;
//!
//! // Another process would do the same with its own mapping of the segment.
//! let remote = Arc::new(RemoteQueues::connect(&segment, queues.offset())?);
//! let mut sender = remote.open(500, Class::Request)?;
//! let message = CacheLineMessage::new(CacheLineHeader::default(), b"a message");
//! sender.try_send(&message.expect("at most 48 bytes"))?;
//! let received = queues.recv_any()?;
//! assert_eq!((received.queue, received.class), (500, Class::Request));
//! assert_eq!(received.message.data(), b"a message");
//! # Ok(())
//! # }
//! ```

mod class;
mod config;
mod layout;
mod memory;
mod receive;
mod sender;

pub use class::{DECAY_MESSAGES, PROMOTION_MESSAGES};
pub use config::{Class, MAX_QUEUES, MAX_RINGS, QueuesConfig};
pub use receive::{DeferredFree, ReceiveQueues, Received};
pub use sender::{LIVENESS_INTERVAL, QueueSender, RemoteQueues};
pub use shm::event::{Event, Notify};

#[cfg(doc)]
use crate::error::SendError;
