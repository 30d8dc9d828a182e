//! The sans-IO state machine that defines what a schedule does.
//!
//! An [`Interpreter`] is one rank running one compiled schedule. It does no input or output, reads
//! no clock and starts no thread: its owner hands it an [`Event`] and the time, and polls it for
//! each [`Effect`] until there is none. It is the executable specification of GOAL schedules
//! (Schneider, Eckelmann, Hoefler, Rehm: "Kernel-Based Offload of Collective Operations", 2011,
//! sections 2.1 and 3.3): every engine is held against it.
//!
//! # A run
//! [`Interpreter::start`] takes the user buffers, executes every independent operation and
//! everything that enables, in a fixed order and without recursion. [`Effect::Completed`] is the
//! last effect of a run; [`Interpreter::reset`] then gives the buffers back and makes the
//! interpreter ready for the next run without allocating. Messages may arrive before the start:
//! another rank may be ahead. Which run a message belongs to is for the owner to know; one
//! interpreter holds one run.
//!
//! # Messages
//! What the interpreters say to each other is a [`Packet`]; whoever carries packets need not look
//! inside, and may deliver them in any order. A message of up to [`Limits::eager_limit`] bytes is
//! sent at once with its payload ([`Packet::Eager`]), and its send is then complete. A longer one
//! is announced, requested by the receive it belongs to, and only then sent ([`Packet::Announce`],
//! [`Packet::Request`], [`Packet::Data`]): the rendezvous protocol.
//!
//! Matching is that of [`goal::matching`]: the k-th send to a receiver and tag, in vertex order,
//! belongs to the k-th receive that names that sender and tag, in vertex order, whatever arrives
//! when. A message that no naming receive claims goes to the first posted wildcard receive in
//! vertex order that admits it, and a wildcard receive takes the earliest arrived message that it
//! admits.
//!
//! # Unexpected messages
//! Payloads that arrive before their receive is posted are kept, up to
//! [`Limits::unexpected_messages`] of them and [`Limits::unexpected_bytes`] altogether. One more is
//! handed back with [`Effect::HoldBack`]: the owner's transport keeps it (in its own memory, on
//! disk, or with the sender) and the interpreter remembers the envelope only, as if the message had
//! been announced. When its receive wants it, [`Effect::Release`] asks for it, and the transport
//! answers with a [`Packet::Data`] from the same source. So
//! * no message is lost: a message held back has kept its place among the arrivals;
//! * nothing deadlocks: a message whose receive is posted is taken whatever the limits are, and one
//!   that was held back is asked for as soon as its receive is posted, for which no other message
//!   has to move first;
//! * memory stays bounded: beside the payloads there is at most one envelope for each receive of
//!   the schedule, since a message that can have no receive, or that arrives twice, is refused with
//!   an [`EventError`].
//!
//! Looking up a message or a receive takes constant time on average, however many are waiting
//! (logarithmic among posted wildcard receives).
//!
//! # Example
//! ```
//! use goal::graph::{Access, Graph};
//! use interpreter::{Effect, Event, Interpreter, Limits};
//! use std::sync::Arc;
//!
//! // Rank 0 sends four bytes to rank 1.
//! let (mut sender, mut receiver) = (Graph::new(0, 2), Graph::new(1, 2));
//! let block = sender.buffer(Access::Input, 4);
//! sender.send(block, 1, 0);
//! let block = receiver.buffer(Access::Output, 4);
//! receiver.receive(block, 0, 0);
//!
//! let mut first = Interpreter::new(Arc::new(goal::compile::compile(&sender)?), Limits::default())?;
//! let mut second = Interpreter::new(Arc::new(goal::compile::compile(&receiver)?), Limits::default())?;
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
pub mod join;
mod machine;
mod memory;
mod named;
mod run;
mod unexpected;
mod wildcards;

pub use effect::{Effect, Event, Handle, Packet};
pub use error::{EventError, Failure, ScheduleRefused, StartError};
pub use external::ExternalBuffer;
pub use machine::{Interpreter, Limits};
