//! Communicators with ranks on several nodes.
//!
//! Their collectives always run as graphs, on a backend of [`network`]; nothing is linked. Every
//! rank can compute the node of every other rank, so all ranks build graphs of the same algorithm.
//! The ranks of one node also form a group of the engine: segment memory comes from it, and a
//! communicator split off on one node continues with that group alone.
//!
//! `group` has the ranks and their backends, `schedule` a graph that a backend has accepted,
//! `request` one run of it, `unattended` the nonblocking collectives that the ranks run themselves.
//! `liveness` detects failed ranks for backends that cannot, `call_forms` ranks in different forms
//! of a call, `external` ranks that run it in another library. `probe` tests a backend before the
//! job uses it, `exit` drains the backends when the process leaves the job, `clocks` and `recording`
//! serve profiles, `waits` marks waiting threads for the agent.

mod call_forms;
pub(crate) mod clocks;
mod exit;
mod external;
pub(crate) mod group;
mod liveness;
pub(crate) mod probe;
mod recording;
pub(crate) mod request;
pub(crate) mod schedule;
mod translation;
pub(crate) mod unattended;
