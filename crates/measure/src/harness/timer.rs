//! The one timer: subjects in turns, with or without a computation.
//!
//! A **repetition** is one run of a subject on all ranks, or several runs back to back. It begins
//! with a barrier, or where a single short run is timed at a moment that rank 0
//! names. In a **round** every subject has its turn, and each round begins with another one, so that
//! all see the same machine and none always follows the same. A [row](crate::rows::Row) has the times
//! of one subject.
//!
//! | | a repetition | its time |
//! |---|---|---|
//! | [`Batches`] | many runs, after a barrier | of the rank that takes longest |
//! | [`Timer::compare`] | one run, at a common moment | from that moment to the last rank's end |
//! | [`Timer::compare`] of ranks that share cores | one run, after a barrier | from the first rank's start to the last rank's end |
//! | [`Timer::compare`] between machines | several runs, after a barrier | of the rank that takes longest |
//! | [`Timer::over`] | a skew, one run over a computation, after a barrier | of the rank that takes longest, or as above |

mod batches;
mod compare;
mod over;
mod repetition;

pub use batches::Batches;
pub use compare::Budget;
pub use over::{Extent, MOST_COMPUTATION_US, OverTimes};
pub use repetition::{Meanwhile, Place, Subject, Timer, calls};
