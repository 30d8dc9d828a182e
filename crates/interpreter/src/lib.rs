//! The sans-IO state machine that defines the meaning of a schedule.
//!
//! An [`Interpreter`] is one rank running one compiled schedule. It performs no input or output,
//! reads no clock and starts no thread: its owner passes it each [`Event`] with the current time
//! and polls it for [`Effect`]s until it returns none. It is the executable specification of GOAL
//! schedules (Schneider, Eckelmann, Hoefler, Rehm: "Kernel-Based Offload of Collective Operations",
//! 2011, sections 2.1 and 3.3): every engine is tested against it.
//!
//! # A run
//! [`Interpreter::start`] takes the user buffers and executes every independent operation and every
//! operation enabled by them, in a fixed order and without recursion. [`Effect::Completed`] is the
//! last effect of a run. [`Interpreter::reset`] then returns the buffers and makes the interpreter
//! ready for the next run without allocating. Messages may arrive before the start, since another
//! rank may be ahead. An interpreter holds one run; the owner assigns messages to runs.
//!
//! # Messages
//! Interpreters exchange [`Packet`]s. A transport does not interpret packets and may deliver them in
//! any order. A message of up to [`Limits::eager_limit`] bytes is sent immediately with its payload
//! ([`Packet::Eager`]), which completes the send. A longer message uses the rendezvous protocol: a
//! request to send, a clearance from the matching receive, then the payload
//! ([`Packet::RequestToSend`], [`Packet::ClearToSend`], [`Packet::Data`]).
//!
//! An owner that sends and receives long payloads itself sets [`Limits::in_place`]. A long message
//! with its bytes in one block is then an [`Effect::TransmitInPlace`], and the send completes when
//! the owner reports it. [`Interpreter::admit`] assigns an arriving message the memory of its
//! receive, if that is posted.
//!
//! Matching follows [`goal::matching`]: the k-th send to a receiver and tag, in vertex order,
//! matches the k-th receive that names that sender and tag, in vertex order, independently of the
//! order of arrival. A message that no naming receive matches goes to the first posted wildcard
//! receive in vertex order that admits it; a wildcard receive takes the earliest arrived message
//! that it admits.
//!
//! # Unexpected messages
//! Payloads that arrive before their receive is posted are stored, up to
//! [`Limits::unexpected_messages`] of them and [`Limits::unexpected_bytes`] in total. Beyond that,
//! [`Effect::StoreUnexpected`] passes the payload to the owner's transport, which stores it (in its
//! own memory, on disk, or at the sender). The interpreter keeps the envelope only, as for a
//! rendezvous message. When the receive is posted, [`Effect::LoadUnexpected`] requests the payload,
//! and the transport returns it as a [`Packet::Data`] from the same source. Therefore
//! * no message is lost: a message stored by the transport keeps its position among the arrivals;
//! * there is no deadlock: a message with a posted receive is accepted regardless of the limits,
//!   and a message stored by the transport is requested as soon as its receive is posted, without
//!   waiting for any other message;
//! * memory is bounded: beside the payloads there is at most one envelope for each receive of the
//!   schedule, since a message without a possible receive, or a duplicate, is refused with an
//!   [`EventError`].
//!
//! The lookup of a message or a receive takes constant time on average, independently of the number
//! waiting (logarithmic among posted wildcard receives).
//!
//! # Example
//! ```
//! use goal::graph::{Access, Graph};
//! use interpreter::{Effect, Event, Interpreter, Limits};
//! use std::sync::Arc;
//!
//! // Rank 0 sends four bytes to rank 1.
//! let mut sender = Graph::new(0, 2);
//! let mut receiver = Graph::new(1, 2);
//! let block = sender.buffer(Access::Input, 4);
//! sender.send(block, 1, 0);
//! let block = receiver.buffer(Access::Output, 4);
//! receiver.receive(block, 0, 0);
//!
//! let sender = Arc::new(goal::compile::compile(&sender)?);
//! let receiver = Arc::new(goal::compile::compile(&receiver)?);
//! let limits = Limits::new(goal::limits::EAGER_ON_NODE);
//! let mut first = Interpreter::new(sender, limits)?;
//! let mut second = Interpreter::new(receiver, limits)?;
//! first.start(vec![b"wind".to_vec()], 0)?;
//! second.start(vec![vec![0; 4]], 0)?;
//! while let Some(effect) = first.poll() {
//!     if let Effect::Transmit { peer: 1, packet } = effect {
//!         second.handle(Event::Packet { source: 0, packet }, 0)?;
//!     }
//! }
//! assert_eq!(second.poll(), Some(Effect::Completed(Ok(()))));
//! assert_eq!(second.reset(), [b"wind"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod effect;
mod error;
mod external;
mod interpreter;
mod limits;
mod matching;
mod memory;
mod run;

pub use effect::{Effect, Event, Handle, Packet};
pub use error::{EventError, Failure, ScheduleRefused, StartError};
pub use external::{ExternalBuffer, Incoming, Outgoing};
pub use interpreter::{Interpreter, Outstanding};
pub use limits::Limits;
