//! Framework of the measurement suite: the interface of an experiment, so that it can run on rank
//! processes, be watched, interrupted and resumed, and its results be kept.
//!
//! An [`Experiment`] is a list of [`Step`]s and the outline of the [`Part`](crate::results::Part) that they fill. A step
//! names the [`JobShape`] that it needs (number of ranks, cores, engine); it is a function that all
//! ranks of such a job run, and returns [`Finding`]s: points, rows, cells, notes. Steps are short,
//! and the findings of one are kept when the next one is interrupted. The list depends on the
//! [`Setting`] alone, so every process builds the same list, and a part stores the number of steps
//! that are done.
//!
//! ```
//! use measure::results::{Axis, Figure, Part, Point};
//! use measure::harness::{Experiment, Finding, Setting, JobShape, Step, run_on_threads};
//! use tradewind::Op;
//!
//! /// The time of an allreduce, among as many ranks as there are cores.
//! fn experiment(setting: &Setting) -> Experiment {
//!     let mut outline = Part::new("allreduce", "Allreduce");
//!     let (x, y) = (Axis::number("numbers"), Axis::microseconds("time"));
//!     outline.figures.push(Figure::new("time", "Time of an allreduce", x, y));
//!     let step = |numbers: usize| {
//!         Step::new(format!("{numbers} numbers"), JobShape::bound(setting, 2), 1, move |here| {
//!             let (mine, mut sum) = (vec![1.0; numbers], vec![0.0; numbers]);
//!             let begin = measure::harness::clock::now_ns();
//!             here.world.allreduce(&mine, &mut sum, Op::Sum)?;
//!             let time = measure::harness::clock::microseconds(begin, measure::harness::clock::now_ns());
//!             Ok(vec![Finding::measured("time", "join", Point::of(numbers as f64, &[time]))])
//!         })
//!     };
//!     Experiment::new(outline, [1, 100].map(step))
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let part = run_on_threads(&experiment(&Setting::default()))?;
//! assert!(part.complete && part.figures[0].series[0].points.len() == 2);
//! # Ok(())
//! # }
//! ```

pub(crate) mod agreement;
pub mod clock;
pub mod computation;
mod context;
mod doubts;
mod error;
mod experiment;
mod finding;
mod groups;
mod load;
mod nodes;
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
pub use finding::Finding;
pub use groups::Groups;
pub use nodes::Nodes;
pub(crate) use nodes::leaders;
pub(crate) use setting::OTHER_MACHINES;
pub use setting::{JobShape, Setting};
pub use threads::{rows_on_threads, run_on_threads};
pub(crate) use undisturbed::{ATTEMPTS, QUICK_ATTEMPTS, undisturbed_rows};
