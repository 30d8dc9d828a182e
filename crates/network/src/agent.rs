//! The agent engine: the node service runs the collectives between nodes, asleep until a rank or
//! the network wakes it.
//!
//! ```text
//!  rank                        node service                         other nodes
//!  Client ── area: ring ─────► Desk ──► Core ──► Run: Interpreter ──► Transport ──►
//!    ▲        (doorbell,                  │ ▲         ▲                   │
//!    └─ slot: count, futex ◄── Desk ◄─────┘ └─────────┴── frames ◄────────┘
//! ```
//!
//! A rank has an area of memory in common with its agent ([`area`]). It writes there what it asks
//! for, a schedule or a run with its buffers, and rings if the agent sleeps; test is one load of a
//! count in the area, wait sleeps on it. The agent copies what it is given before it uses it, so
//! that no rank can harm it, but for long buffers of which it only sends or into which it only
//! receives (`lent`), and runs an [`Interpreter`](interpreter::Interpreter) for each run. What an
//! interpreter says to one on another node goes through the [transport](crate::transport), what it
//! says to one on the same node through a queue.
//!
//! # Who is ahead
//! Messages for a run that the rank has not started are kept. Their payloads are bounded, because a
//! node sends others, and its ranks each other, only a window of eager bytes before it announces
//! messages instead (`windows`). What nobody holds back, envelopes and contributions to meetings,
//! is bounded by number and bytes: beyond that it is dropped, and the run fails.
//!
//! # Who is gone
//! What a rank has started its agent carries through, even when the rank's process has ended since.
//! When a rank leaves or dies, its agent tells all nodes how many runs of each communicator it had
//! started: those can end, later ones cannot and end with
//! [`RankFailed`](crate::carrier::Error::RankFailed) on every node. When a node is gone, all runs
//! with a member there end with [`NodeUnreachable`](crate::carrier::Error::NodeUnreachable). An
//! agent whose ranks have all gone parts from the others (`Bye`, answered by `Farewell`), so that
//! the end of a connection after that is no failure.

pub mod area;
mod bell;
mod client;
mod core;
mod departures;
mod desk;
mod early;
mod lent;
mod local;
mod plan;
mod run;
mod windows;
mod worker;

pub use client::{Client, Home};
pub use interpreter::Limits;
pub use local::{local, local_over};
pub use worker::Agent;

/// The limits of an agent's interpreters. Between nodes a message that is announced first takes two
/// more wake-ups of node services, longer than half a megabyte takes to travel; how much arrives
/// unasked the windows bound.
pub fn limits() -> Limits {
    Limits { eager_limit: 512 << 10, ..Limits::default() }
}
