//! Messages between ranks of different nodes that belong to no run.
//!
//! ```text
//!  rank                         node service                other node
//!  MessagePort ── send ring ──► MessageRouter ── frames ──► MessageRouter ─ receive ring ► MessagePort
//! ```
//!
//! A rank and its agent share two rings of records (`area`). The agent takes what the rank has put
//! into its send ring, joins the records for one node to a frame, however many there are, and puts
//! what arrives into the receive rings of its ranks. It does so while the ranks compute, and it
//! reads no more of a record than its destination: the ranks match messages and account for credit.
//!
//! **Order.** The records from one rank to another arrive in their order, each once. The exit of a
//! rank is a record too ([`Class::Exit`]), behind everything that the rank has sent.
//!
//! **Bounds.** While the queue of a node is long, the agent takes nothing from a send ring behind a
//! record for that node, and its ranks wait for space. A full receive ring stops its own senders
//! only: the agent keeps what arrives in memory of its own. Receivers grant their senders credit,
//! so that is little. Of a sender that ignores credit the agent keeps a bounded amount and drops
//! the rest.
//!
//! [`Class::Exit`]: crate::transport::records::messages::Class::Exit

pub(super) mod area;
pub mod port;
pub(super) mod router;
