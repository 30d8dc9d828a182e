//! Flows: what ranks of different nodes exchange, beside collectives and matched messages.
//!
//! ```text
//!  rank                node service                    other node
//!  Source ── outbound ──► records in frames ──► inbound ──► Sink
//! ```
//!
//! A flow is bytes in order from a rank of one node to a rank of another, with a receiver's credit
//! and an end at either side. It leads out of a [`Source`](queues::internode::Source) in the memory
//! of the sending ranks into a [`Sink`](queues::internode::Sink) in that of the receiving one. Four
//! kinds of it differ in these ends only: messages to a queue, values of a channel, commands on a
//! window, and the answers to commands.
//!
//! **Names.** A flow is named by its kind, a rank at either end, and a port, a number that all ranks
//! of a communicator agree on. Each rank opens its own end, so it opens flows in its own name only.
//! All ranks of a node share one flow to a queue of another node, in the name of the member with the
//! lowest number there, its *opener*. A node sends bytes for its own ranks, and credit for flows that
//! lead to them; other records of it are refused.
//!
//! **Order.** Bytes of one flow arrive in their order, each once. The exit of a rank is a record of
//! each flow to a queue that it may have used, behind its last message, so a receiver detects it after
//! it has received all of them.
//!
//! **Credit.** The sink grants credit in bytes. The node of the receiver returns it in quarters, as
//! they are released: when a queue has taken the messages, a receiver the values, or the node service
//! has executed the commands. So a receiver that is behind stops its own senders, and nothing else.
//! Bytes without space in the sink are kept, at most the credit. A flow with more bytes ends.
//!
//! **Memory.** The ports of a rank take at most 256 MiB of its node service: the credit that a queue
//! grants each opener, and 1 KiB for each end. Its channels take at most 1 GiB: their credit, which is no
//! less than the words for their slots, and 1 KiB for each end. Its windows take at most 8 GiB: the
//! credit of the commands of each rank that may use one. Another end is refused with an error.
//!
//! **Ends.** An end that is closed is reported to the other node, behind all bytes. What a rank has
//! sent before its exit is sent before the end of its flows, however late its exit is known. When a
//! node is lost, the flows with it end. A damaged source or sink ends its own flow.
//!
//! **Windows.** The far end of commands is the window itself: the node service of the owner executes
//! them, as far as it has credit for their answers, and keeps the others. It accepts commands of the
//! ranks that the owner has named, each from its own node. A damaged command ends both flows. So does
//! the owner when it withdraws the window, and commands that arrive later are answered by their end.
//! The report of the owner's exit follows all answers: a command that still lies in a ring then is
//! lost.
//!
//! **Sleep.** The sources of a port are members of a poll set, which requests one notification from
//! all senders. At every other end the node service requests one, as a sleeper on its word. Before a
//! sleep without new requests it passes one barrier for all of them. For the first sleep it sets a
//! timer instead, because the barrier takes longer than a value, and values that follow each other end
//! the sleep before. Ends without traffic rest (`marks`).

mod channel_end;
mod ends;
mod inbound;
pub(crate) mod marks;
mod memory;
mod outbound;
pub(crate) mod ports;
mod router;
pub mod table;
mod windows;

pub use channel_end::{ANSWERS, COMMANDS, ChannelEnd};
pub(crate) use memory::{Purpose, Refusal};
pub(crate) use router::Flows;

#[cfg(test)]
mod tests;
