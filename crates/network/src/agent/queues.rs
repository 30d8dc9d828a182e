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
//! queues as one more sender. A queue is named by its owner, a rank of the job, and a port, a
//! number that all ranks of a communicator agree on. An outgoing queue is registered for one such
//! name, and this table of names is all that a rank can send to.
//!
//! **Order.** Messages of one sender to one queue arrive in their order, each once: every part of
//! the way is a queue.
//!
//! **Credit.** A queue grants each node 64 KiB, which it returns as its ring takes the
//! messages. So a receiver that is behind stops the outgoing queues that lead to it, and then their
//! senders, and nothing else. What a queue's ring cannot take is kept by the agent, at most the
//! credit; a node that sends more is refused.
//!
//! **Sleep.** The outgoing queues of a port are members of a poll set. Before the agent sleeps it
//! requests one notification of each set from the senders, and one of each full queue from its
//! receivers.

pub(crate) mod record;
pub(super) mod router;
pub mod table;

/// Bytes that a node may send to a queue before the queue has taken them.
pub(crate) const CREDIT: u64 = 64 << 10;
