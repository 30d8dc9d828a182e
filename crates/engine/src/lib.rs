//! Execution of collectives on one node, in shared memory.
//!
//! A collective passes through these modules, from top to bottom:
//!
//! | module | task |
//! |---|---|
//! | [`node`] | the job's segment, its ranks and their liveness |
//! | [`communicator`] | start, wait and fetch; the only part that uses all engines below |
//! | [`streams`] | blocking collectives in pieces: long ones, and blocks of unknown sizes |
//! | [`flat`] | one exchange among all ranks, without linking |
//! | `linked` | any other schedule: frames, matching, execution |
//! | `window` | numbered runs and the slots they use |
//! | `context` | the ranks, calls and shared state of a communicator |
//! | [`node`] | the job's segment, its ranks and their liveness |
//! | `memory` | the order in which runs get memory, and what can be freed |
//! | `state`, `protocol` | shared lines of a communicator; the lock-free words |
//!
//! A module imports modules below it only.

pub mod argument;
pub mod communicator;
mod context;
mod error;
pub mod flat;
mod linked;
mod memory;
pub mod node;
mod protocol;
mod reduction;
mod shortage;
pub mod signature;
mod staging;
mod state;
pub mod streams;
mod sync;
pub mod trace;
mod wait;
mod window;

pub use communicator::input_readers::InputReaders;
pub use communicator::linked_schedule::LinkedSchedule;
pub use communicator::request::Request;
pub use error::{Error, Exit, Outcome, Straggler};
pub use memory::Swept;
pub use node::decisions::Decisions;
pub use wait::{sleep_after, while_waiting};
