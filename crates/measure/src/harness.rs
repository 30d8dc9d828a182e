//! Framework of the measurement suite: the interface of an experiment, so that it can run on rank
//! processes, be watched, interrupted and resumed, and its results be kept.
//!
//! An [`Experiment`] is a list of [`Step`]s. A step names the [`JobShape`] that it needs (number of
//! ranks, cores, engine); it is a function that all ranks of such a job run, and returns
//! [rows](crate::rows): that page has an example. Steps are short, and the rows of one are kept when
//! the next one is interrupted. The list depends on the [`Setting`] alone, so every process builds the
//! same list.

pub(crate) mod agreement;
pub mod clock;
pub mod computation;
mod context;
mod doubts;
mod error;
mod experiment;
mod groups;
mod load;
mod nodes;
pub(crate) mod options;
pub mod processor_time;
pub mod rank_processes;
mod setting;
mod threads;
pub mod timer;
mod undisturbed;

pub use context::{RowsOrigin, StepContext};
pub use doubts::{Doubts, Sign};
pub use error::Error;
pub use experiment::{Experiment, Step};
pub use groups::Groups;
pub use nodes::Nodes;
pub(crate) use nodes::leaders;
pub use options::{RANKS, USUAL_RANKS};
pub(crate) use setting::OTHER_MACHINES;
pub use setting::{JobShape, Setting};
pub use threads::run_on_threads;
pub(crate) use undisturbed::{ATTEMPTS, QUICK_ATTEMPTS, undisturbed_rows};
