//! Basic, unshared: a ring of cache lines between one sender and one receiver of the same job.
//!
//! A message is composed where it will be read, and read where it was composed. No operation is a
//! read-modify-write; a message of at most [`LINE_BYTES`] bytes costs the transfer of one cache
//! line. Longer ones, up to a quarter of the ring ([`Sender::longest_message`]), occupy several
//! consecutive lines.
//!
//! | Send | Receive |
//! |---|---|
//! | reserve a buffer: [`Sender::reserve`] | receive the next message: [`Receiver::recv`] |
//! | write to it | read it |
//! | finish it: [`Buffer::finish`], then [`Sender::publish`] | release it: drop the [`BasicMessage`] |
//!
//! One store publishes several messages, and one handshake releases several ([`Receiver::batch`]).
//! Each operation that may wait has several forms: `try_…` never waits, the plain one waits,
//! `…_timeout` and `…_deadline` wait for a limited time. A waiting thread polls a bounded number of
//! times and then sleeps.
//!
//! A receiver can also be notified through an eventfd ([`Receiver::request_event`]) or, with
//! hundreds of others, through a poll set ([`Receiver::in_set`], [`crate::one_poll`]).
//!
//! Memory: [`bytes_for`] the ring, and one bit per line in the sender. The memory never grows: a
//! slow receiver slows its sender.
//!
//! The two ends trust each other to follow the protocol, as processes of one job do. Between jobs
//! the crate `names` copies every message before it checks it.
//!
//! ```
//! use queues::basic::{BasicHeader, Receiver, Sender, bytes_for};
//! use shm::segment::{Backing, Offset, Segment};
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let segment = Arc::new(Segment::create(bytes_for(64)?, Backing::Memory)?);
//! segment.commit(Offset(0), bytes_for(64)?)?;
//! // Each in its own process or thread:
//! let mut sender = Sender::connect(&segment, Offset(0), 64)?;
//! let mut receiver = Receiver::connect(&segment, Offset(0), 64)?;
//!
//! let mut buffer = sender.reserve(BasicHeader::default(), 5)?;
//! buffer.as_mut_slice().copy_from_slice(b"hello");
//! buffer.finish();
//! sender.publish();
//! assert_eq!(receiver.recv()?.as_slice(), b"hello");
//! # Ok(())
//! # }
//! ```

mod header_word;
mod memory;
mod receiver;
#[doc(hidden)]
pub mod ring;
#[doc(hidden)]
pub mod ring_receiver;
#[doc(hidden)]
pub mod ring_sender;
mod sender;
mod signal;
#[doc(hidden)]
pub mod words;

pub use header_word::BasicHeader;
pub(crate) use header_word::HeaderWord;
pub use memory::{LINE_BYTES, bytes_for};
#[doc(hidden)]
pub use memory::{geometry, map};
pub use receiver::{BasicMessage, Batch, Part, Receiver};
pub use ring::Corruption;
pub use sender::{Buffer, Sender};
