//! The frame of the measurement suite: what an experiment gives, so that it can be run on rank
//! processes, watched, interrupted, taken up again, and kept.
//!
//! An [`Experiment`] is a list of [`Step`]s and the outline of the [`Part`] that they fill. A step
//! asks for a [`Shape`] of job (how many ranks, on which cores, which engine), is a function that
//! all ranks of such a job run, and gives [`Finding`]s: points, rows, cells, notes. Steps are
//! short, and what one of them found is kept when the next one is cut off. The list depends on the
//! [`Setting`] alone, so every process draws it up for itself, and a part says by a number how much
//! of it is done.
//!
//! ```
//! use measure::results::{Axis, Figure, Part, Point};
//! use measure::suite::{Experiment, Finding, Setting, Shape, Step, run_on_threads};
//! use tradewind::Op;
//!
//! /// The time of an allreduce, among as many ranks as there are cores.
//! fn experiment(setting: &Setting) -> Experiment {
//!     let mut outline = Part::new("allreduce", "Allreduce");
//!     let (x, y) = (Axis::number("numbers"), Axis::microseconds("time"));
//!     outline.figures.push(Figure::new("time", "Time of an allreduce", x, y));
//!     let step = |numbers: usize| {
//!         Step::new(format!("{numbers} numbers"), Shape::bound(setting, 2), 1, move |here| {
//!             let (mine, mut sum) = (vec![1.0; numbers], vec![0.0; numbers]);
//!             let begin = measure::clock::now_ns();
//!             here.world.allreduce(&mine, &mut sum, Op::Sum)?;
//!             let time = measure::clock::microseconds(begin, measure::clock::now_ns());
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

mod error;
mod finding;
mod setting;
mod threads;

pub use error::SuiteError;
pub use finding::Finding;
pub use setting::{Setting, Shape};
pub use threads::run_on_threads;

use crate::results::Part;
use std::ops::Range;
use std::path::Path;
use tradewind::Communicator;

/// How an experiment is drawn up.
pub type Draw = fn(&Setting) -> Experiment;

/// All experiments with their names, in the order in which they are made.
pub const EXPERIMENTS: &[(&str, Draw)] = &[
    ("plogp", crate::plogp::experiment),
    ("memory", crate::memory::experiment),
    ("pingpong", crate::pingpong::experiment),
    ("barrier", crate::barrier::experiment),
    ("hypercube", crate::hypercube::experiment),
    ("matchings", crate::matchings::experiment),
    ("contention", crate::contention::experiment),
    ("placement", crate::placement::experiment),
    ("queues", crate::queues::experiment),
    ("overlap", crate::overlap::experiment),
    ("models", crate::models::experiment),
    ("decisions", crate::decisions::experiment),
    ("regret", crate::decisions::regret),
];

/// The experiment of this name.
pub fn find(name: &str) -> Option<Draw> {
    EXPERIMENTS.iter().find(|(known, _)| *known == name).map(|(_, draw)| *draw)
}

/// What is measured, step by step, and what becomes of it.
pub struct Experiment {
    outline: Part,
    steps: Vec<Step>,
    conclude: Box<Conclude>,
}

/// One step.
pub struct Step {
    /// What it measures, in a few words for whoever waits.
    pub what: String,
    /// The job that it needs.
    pub shape: Shape,
    /// About how long it takes.
    pub milliseconds: u64,
    measure: Box<Measure>,
}

type Measure = dyn Fn(&Here<'_>) -> Result<Vec<Finding>, SuiteError> + Send + Sync;
type Conclude = dyn Fn(&mut Part) -> Result<(), SuiteError> + Send + Sync;

/// Where a step runs: one rank of a job of its shape.
#[derive(Clone, Copy, Debug)]
pub struct Here<'a> {
    /// All ranks of the job.
    pub world: &'a Communicator,
    /// The shape that was asked for.
    pub shape: &'a Shape,
    /// The process of the node service, where it is one of its own.
    pub service: Option<u32>,
    /// Where results are kept; none in a trial on threads. An experiment that keeps more than its
    /// part (`machine.json`) writes it there from rank 0.
    pub directory: Option<&'a Path>,
}

impl Step {
    /// A step that takes about so many milliseconds. All ranks of a job run `measure` at the same
    /// time; what it gives on rank 0 counts.
    pub fn new(
        what: impl Into<String>,
        shape: Shape,
        milliseconds: u64,
        measure: impl Fn(&Here<'_>) -> Result<Vec<Finding>, SuiteError> + Send + Sync + 'static,
    ) -> Self {
        Step { what: what.into(), shape, milliseconds, measure: Box::new(measure) }
    }

    /// Runs it on this rank.
    ///
    /// # Errors
    /// What it says itself, with its name.
    pub fn run(&self, here: &Here<'_>) -> Result<Vec<Finding>, SuiteError> {
        (self.measure)(here).map_err(|error| error.in_step(&self.what))
    }
}

impl Experiment {
    /// An experiment that makes these steps. The outline has figures with axes, maps and tables
    /// with columns, which findings name, and all words; nothing measured.
    pub fn new(outline: Part, steps: impl IntoIterator<Item = Step>) -> Self {
        Experiment { outline, steps: steps.into_iter().collect(), conclude: Box::new(|_| Ok(())) }
    }

    /// The same, which draws conclusions: fits, fitted curves, tables of parameters. They are drawn
    /// again and again from however much there is, so that what they wrote before has to be
    /// replaced; see [`Part::replace_series`].
    #[must_use]
    pub fn concluding(
        self,
        conclude: impl Fn(&mut Part) -> Result<(), SuiteError> + Send + Sync + 'static,
    ) -> Self {
        Experiment { conclude: Box::new(conclude), ..self }
    }

    /// The part before anything is measured.
    pub fn outline(&self) -> &Part {
        &self.outline
    }

    /// The steps, in their order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Steps from this one on that one job can make: neighbours of the same shape.
    pub fn job_from(&self, first: usize) -> Range<usize> {
        let Some(step) = self.steps.get(first) else { return first..first };
        let same = self.steps[first..].iter().take_while(|other| other.shape == step.shape).count();
        first..first + same
    }

    /// Adds what the next step found. Nothing is added if any of it does not fit.
    ///
    /// # Errors
    /// A finding that names what the outline does not have, or whose value is not a number.
    pub fn add(&self, part: &mut Part, findings: Vec<Finding>) -> Result<(), SuiteError> {
        let mut grown = part.clone();
        findings.into_iter().try_for_each(|finding| finding.add_to(&mut grown))?;
        grown.steps_done += 1;
        *part = grown;
        Ok(())
    }

    /// Draws the conclusions from what there is so far, and says whether all is there.
    ///
    /// # Errors
    /// What the conclusions say.
    pub fn conclude(&self, part: &mut Part) -> Result<(), SuiteError> {
        part.complete = part.steps_done as usize == self.steps.len();
        (self.conclude)(part)
    }
}
