//! One suite for every mechanism that carries messages: between threads, ranks and processes.
//!
//! The suite sends numbers. A [`Sender`] makes a message of a number, and its [`Receiver`] checks
//! every byte of it before it returns the number. [`between_threads`] tests two ends in one process;
//! the other functions are called by all ranks of a job.

mod ends;
mod ranks;
mod threads;

pub use ends::{End, Ends, Job, Mechanism, Receiver, Sender, Wait, content, merge};
pub use ranks::{
    beside_a_killed_rank, beside_a_vanished_node, carries_all_between_all, closes_for_senders,
    closes_for_the_receiver, full_stops_its_own_senders_only, gives_what_precedes_an_exit,
    outlives_its_senders, uses_memory_again,
};
pub use threads::{between_threads, closed_ends_end_waits, deadlines_end_waits_without_loss};
