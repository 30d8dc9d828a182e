//! Runs of schedules: the state machine that the agent and the direct engine drive.
//!
//! A [`RunTable`](run_table::RunTable) holds the runs of the ranks of one host, each with an
//! [`Interpreter`](interpreter::Interpreter), and their messages that have arrived before their
//! start. The host passes in what has arrived and what a rank has started, and takes out the runs
//! that have ended. The agent has the runs of all ranks of its node, the direct engine those of one.

pub(crate) mod clock;
pub(crate) mod credits;
pub(crate) mod membership;
mod payloads;
pub(crate) mod run;
pub(crate) mod run_context;
pub(crate) mod run_table;
pub(crate) mod schedule;
pub(crate) mod unexpected;
pub(crate) mod zero_copy;
