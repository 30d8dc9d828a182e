//! Connections: messages from one program to another, in one direction, between processes that need
//! not trust each other.
//!
//! A connection is a [Basic](queues::basic) ring in memory that only the two processes have mapped,
//! and a socket between them for wake-ups; the name server creates both. When a process ends, the
//! kernel closes its socket, which the other end observes.
//!
//! Either end may write any value into the ring at any time. Therefore the receiving end copies
//! every message before it validates it, and checks every word that it uses; a value that no
//! correct sender writes is a [`ConnectionError::Corrupt`] that names the sender, and the
//! connection is closed. The sending end checks the one word that it reads. Only the blocking calls
//! wait for the other end, and those have deadlines.
//!
//! **A name that moves.** The name server changes the sender's table. The sender finds that before
//! its next message, waits until its ring is empty, drops the connection and opens one to the new
//! destination. So what the receiver of the first one has not received keeps the sender from the
//! second one, and no message is lost, duplicated or reordered.

mod end;
mod error;
mod fill;
mod receiver;
mod sender;
mod socket;

pub use error::ConnectionError;
pub(crate) use fill::fill_percent;
pub(crate) use receiver::Receiver;
pub(crate) use sender::{SendLimit, Sender};
