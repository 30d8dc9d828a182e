//! Measured times, each a [`Row`]: one line of `measurements.jsonl` in a directory of results.
//!
//! The file is the only record: figures, tables and the step at which an experiment goes on are
//! functions of its rows.
//!
//! A line is a JSON object with one field, which says what the line is:
//!
//! | field | content |
//! |---|---|
//! | `format` | name and version of the format; the first line |
//! | `run` | an experiment begins: the number of the run, its name, [setting](crate::harness::Setting::words) and number of steps |
//! | `row` | one measured time: a [`Row`] |
//! | `step` | a step of a run is complete: its number, its notes, and the count of its rows, which stand directly above |
//!
//! Lines are only appended. A step that is measured again replaces the rows of the earlier one for
//! every reader, and a new run (`--again`) replaces the earlier run as soon as its first step is
//! complete. A line that cannot be read, or a file that is cut off, costs the step of that line, or the
//! run that the line begins, and nothing else: see [`Measurements::read`].
//!
//! # How an experiment uses it
//!
//! A [`Step`](crate::harness::Step) returns rows, which it makes of what a
//! [`Timer`](crate::harness::timer::Timer) returns. What can be timed is a
//! [`Subject`](crate::harness::timer::Subject): one method runs it once. The figures and tables of
//! an experiment are a function from rows to a [`Part`](crate::results::Part), which
//! [`experiments`](crate::experiments) lists by name.
//!
//! ```
//! use measure::harness::timer::{Batches, calls};
//! use measure::harness::{Experiment, JobShape, Setting, Step, run_on_threads};
//! use measure::rows::{Quantity, Row, What};
//! use collectives::Collective;
//!
//! /// The time of a barrier, among two ranks.
//! fn experiment(setting: &Setting) -> Experiment {
//!     let batches = Batches { rounds: 5, microseconds: 100.0 };
//!     let shape = JobShape::bound(setting, 2);
//!     let step = Step::new("barrier", shape, batches.milliseconds(), move |here| {
//!         let times = batches.time(here.world, &mut calls(|| Ok(here.world.barrier()?)))?;
//!         Ok(vec![here.row(What::Collective(Collective::Barrier), Quantity::Alone, times)])
//!     });
//!     Experiment::new("barrier", setting, [step])
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let run = run_on_threads(&experiment(&Setting::default()))?;
//! let row = run.rows().next().expect("a step has one");
//! assert_eq!((row.times.len(), row.ranks, row.experiment.as_str()), (5, 2, "barrier"));
//! # Ok(())
//! # }
//! ```

mod add;
mod exchange;
mod file;
mod mechanism;
mod row;
mod run;

pub use add::RunFile;
pub use exchange::{Exchange, Pairs, Pattern, Receive};
pub use file::{FILE, Measurements, Problem, RowsError};
pub use mechanism::Mechanism;
pub use row::{Chooser, Cores, Load, Quantity, Row, What};
pub use run::{Run, Step as StepRows};
