//! Queues between nodes.
//!
//! ```text
//!  rank                          node service                   other node
//!  Sender ── outgoing queue ──► QueueRouter ── frames ──► QueueRouter ── queue ──► Receiver
//! ```
//!
//! A queue is reached from another node through an outgoing queue of that node, in the segment of
//! its ranks: they share it as they would share the queue itself. Its agent takes the messages of
//! all outgoing queues, joins those for one node to frames, and the agent there sends them to the
//! queues as one more sender. The connection of an outgoing queue with its queue is a *link*.
//!
//! **Names.** A queue is named by its owner, a rank of the job, and a port, a number that all ranks
//! of a communicator agree on. On each node the member with the lowest number opens the links to the
//! queues on other nodes, and its number is part of their names. Both numbers are those of the
//! connections over which names are opened or used, so no rank can take the name of another. A
//! queue admits the openers of the members' nodes; whatever another rank sends to it is dropped.
//!
//! **Order.** Messages of one sender to one queue arrive in their order, each once: every part of
//! the path is a queue. The exit of a rank is reported on the same link, behind its last message, so
//! a receiver detects it after it has received all of them.
//!
//! **Credit.** A queue grants each opener 64 KiB, which it returns as its ring takes the
//! messages. So a receiver that is behind stops the outgoing queues that lead to it, and then their
//! senders, and nothing else. What a queue's ring cannot take is kept by the agent, at most the
//! credit; a node that sends more is refused.
//!
//! **Memory.** A rank's queues take at most 256 MiB of its agent: 64 KiB of credit for each opener
//! that its receive queues admit, and 1 KiB for each queue. Another queue is refused with an error.
//!
//! **End.** A receive queue is closed with its last receiver, which its senders get as an answer; a
//! link is closed when the ranks of its node have dropped their senders and everything was sent. A
//! rank that exits closes all of its queues.
//!
//! **Sleep.** The outgoing queues of a port are members of a poll set. Before the agent sleeps it
//! requests one notification of each set from the senders, and one of each full queue from its
//! receivers.

mod incoming;
mod outgoing;
pub(super) mod router;
pub mod table;

use shm::mapped::Mapped;
use shm::sync::{AtomicU64, Ordering};

/// Bytes that a node may send to a queue before the queue has taken them.
pub(crate) const CREDIT: u64 = 64 << 10;

/// Bytes of this process that the queues of one rank may take.
pub(crate) const MEMORY: u64 = 256 << 20;
/// The part of it for a queue without messages, or for one admitted opener.
pub(crate) const QUEUE_BYTES: u64 = 1 << 10;

/// Part of the memory of a rank, and a use of its objects in the segment of the job, which the count
/// beside them includes.
#[derive(Debug)]
struct Charge {
    bytes: u64,
    uses: Mapped<AtomicU64>,
}

impl Charge {
    fn new(bytes: u64, uses: Mapped<AtomicU64>) -> Self {
        Charge { bytes, uses }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        // Release: the rank acquires the count before it frees the objects, and this process
        // accesses them no more.
        self.uses.fetch_sub(1, Ordering::Release);
    }
}

/// Reason why an agent does not open a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The rank has opened a port with this number already.
    Taken = 1,
    /// The queues would take more than [`MEMORY`].
    Memory = 2,
    /// No such queues lie in the segment of the job.
    Invalid = 3,
}
