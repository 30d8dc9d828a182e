//! Simulation of a collective with cooperative progress and with ranks that share cores.
//!
//! Between processes of one node, messages are not sent: the process that brings the last thing
//! that an operation waited for executes it, for whichever rank it is, and goes on with what that
//! enables. So the formulas of [`models`](crate::formulas), in which ranks work side by side, do
//! not say how long a collective takes there: one process may run all of a tree, and then the shape
//! of the tree does not matter, but the sum of its operations does. With more ranks than cores,
//! processes of one core come one after the other besides, and each turn costs a switch.
//!
//! This is the model of that, played through rather than written as a formula. A [`Program`] has
//! the operations of all ranks and what each waits for. [`run`] assigns every process its core,
//! lets the process with the least time behind it do its next operation, and counts what lies on
//! the way to the moment at which the last process is done:
//!
//! - a process begins: a fixed cost, and its private input is copied to where others can read it;
//! - an operation: a fixed cost, and its bytes are copied or combined, copies being dearer where
//!   another core has written the bytes last;
//! - what another core has done is seen after a crossing;
//! - a core turns to another of its processes when one has to wait or is done: a switch;
//! - a process ends: its output is copied to its private memory.
//!
//! [`Constants`] say what each of these costs; they are the only thing that is measured, by
//! [`fit`](mod@fit), from a few algorithms, and then hold for all. The result never lies below the
//! [`bounds`]: all work spread over all cores, and what the busiest process must do by itself.

mod bounds;
pub mod fit;
pub mod linked;
mod play;
mod program;

pub use bounds::{Bounds, bounds};
pub use play::run;
pub use program::{Constants, Counts, Curve, KNOTS, Moment, Program, ProgramStep, Rank};
