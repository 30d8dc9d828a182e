//! One test suite for every engine: shared vectors and random programs against a sequential
//! reference.
//!
//! A program is one [`Graph`](goal::graph::Graph) for each rank. An engine implements [`Engine`]:
//! it runs a program for several rounds and returns the buffers of every round. [`run_suite`] runs
//! * the [`vectors`]: programs written by hand, with their expected results;
//! * [`random`] programs, free of deadlocks and of data races by construction. Their results must
//!   equal those of the [`reference`](mod@reference), a plain sequential evaluator. It shares only
//!   arithmetic and the matching rule with the engines; [`goal`] defines both.
//!
//! ```
//! // The reference itself is an engine, the slowest and simplest one.
//! testing::conformance::run_suite(&testing::conformance::reference::ReferenceEngine);
//! ```
mod engine;
pub mod random;
pub mod reference;
mod suite;
mod vector;
pub mod vectors;

pub use engine::{Buffers, Capabilities, Engine, Failure, Fault, Round, RoundOutcome};
pub use suite::run_suite;
pub use vector::{Check, Expected, Vector};
