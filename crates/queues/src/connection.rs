//! Connections: messages from one port to another, in one direction, between processes that need
//! not trust each other.
//!
//! A connection is a [Basic](crate::basic) ring in memory that only the two processes have mapped,
//! and a socket between them for wake-ups; the [name server](crate::names) creates both. When a
//! process ends, the kernel closes its socket, which the other end observes. Between processes of
//! one job with shared memory, messages of one cache line need neither: they pass through the
//! receiver's [receive queues](crate::receive_queues), and the connection exists only as records of
//! the name server and the two ends.
//!
//! Either end may write any value into the ring at any time. Therefore the receiving end copies
//! every message before it validates it, and checks every word that it uses; a value that no
//! correct sender writes is a [`ConnectionError::Corrupt`] that names the sender, and the
//! connection is closed. The sending end checks the one word that it reads. Only the blocking calls
//! wait for the other end, and those have deadlines.

mod drain;
mod end;
mod error;
mod fill;
mod job_queues;
mod queue_transport;
mod receiver;
mod sender;
mod socket;

pub(crate) use drain::DrainState;
pub use error::ConnectionError;
#[doc(hidden)]
pub use fill::fill_percent;
pub(crate) use job_queues::JobQueues;
pub use receiver::Receiver;
pub(crate) use sender::SendLimit;
pub use sender::Sender;
