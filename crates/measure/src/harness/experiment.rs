//! An experiment: its steps, each of which returns rows.

use crate::harness::context::{RowsOrigin, StepContext};
use crate::harness::error::Error;
use crate::harness::load::LoadMeter;
use crate::harness::nodes::Nodes;
use crate::harness::setting::{JobShape, Setting};
use crate::harness::undisturbed::of_all_ranks;
use crate::rows::{Load, StepRows};
use std::ops::Range;

/// Steps of a measurement.
pub struct Experiment {
    name: String,
    origin: RowsOrigin,
    notes: Vec<String>,
    steps: Vec<Step>,
}

/// One step.
pub struct Step {
    /// Name of the measurement, shown as progress.
    pub what: String,
    /// The job that it needs.
    pub shape: JobShape,
    /// About how long it takes.
    pub milliseconds: u64,
    measure: Box<Measure>,
}

type Measure = dyn Fn(&StepContext<'_>) -> Result<StepRows, Error> + Send + Sync;

impl Step {
    /// A step that takes about so many milliseconds and returns [rows](StepContext::row); with notes,
    /// as [`StepRows`]. All ranks of a job run `measure` at the same time; its result on rank 0 counts.
    pub fn new<R: Into<StepRows>>(
        what: impl Into<String>,
        shape: JobShape,
        milliseconds: u64,
        measure: impl Fn(&StepContext<'_>) -> Result<R, Error> + Send + Sync + 'static,
    ) -> Self {
        let measure = Box::new(move |here: &StepContext<'_>| measure(here).map(Into::into));
        Step { what: what.into(), shape, milliseconds, measure }
    }

    /// Runs it on this rank. Each row gets the load of the whole step if it has none of its own.
    ///
    /// # Errors
    /// The error of the step, with its name.
    pub fn run(&self, here: &StepContext<'_>) -> Result<StepRows, Error> {
        self.with_load(here).map_err(|error| error.in_step(&self.what))
    }

    fn with_load(&self, here: &StepContext<'_>) -> Result<StepRows, Error> {
        let meter = LoadMeter::start(here)?;
        let mut found = (self.measure)(here)?;
        let load = Some(Load::from(of_all_ranks(here, meter.doubts(here)?)?));
        found.rows.iter_mut().for_each(|row| row.load = row.load.or(load));
        Ok(found)
    }
}

impl Experiment {
    /// An experiment of this name that makes these steps.
    pub fn new(name: &str, setting: &Setting, steps: impl IntoIterator<Item = Step>) -> Self {
        let origin = RowsOrigin { experiment: name.to_owned(), link: setting.link };
        let steps = steps.into_iter().collect();
        Experiment { name: name.to_owned(), origin, notes: Vec::new(), steps }
    }

    /// An experiment that measures nothing here, and says why.
    pub fn not_here(name: &str, setting: &Setting, why: &str) -> Self {
        let why = why.to_owned();
        let step = Step::new("nothing", JobShape::bound(setting, 2), 0, move |_| {
            Ok(StepRows { notes: vec![why.clone()], ..Vec::new().into() })
        });
        Experiment::new(name, setting, [step])
    }

    /// The same with remarks for its readers, which [go with the first step](Self::step_rows).
    #[must_use]
    pub fn noting(mut self, notes: impl IntoIterator<Item = String>) -> Self {
        self.notes.extend(notes);
        self
    }

    /// The same with a remark if ranks of a step take turns on cores.
    #[must_use]
    pub fn noting_crowds(self) -> Self {
        let mut crowds: Vec<String> = Vec::new();
        for shape in self.steps.iter().map(|step| &step.shape).filter(|shape| shape.is_crowded()) {
            let words = shape.describe();
            if !crowds.contains(&words) {
                crowds.push(words);
            }
        }
        let words = crowds.join(", ");
        let note = format!("More ranks than cores, which take turns: {words}.");
        self.noting((!crowds.is_empty()).then_some(note))
    }

    /// The rows of a step with what it has to say. Remarks about the whole experiment go with its
    /// first step.
    pub fn step_rows(&self, number: usize, mut found: StepRows) -> StepRows {
        found.notes.extend(self.notes.iter().filter(|_| number == 0).cloned());
        found
    }

    /// Properties that its rows share.
    pub fn origin(&self) -> &RowsOrigin {
        &self.origin
    }

    /// The same as a run of its own on the nodes that its steps run on.
    #[must_use]
    pub(crate) fn between(mut self, nodes: &Nodes) -> Self {
        let engine = nodes.engine.as_ref().map(|engine| format!("-{engine}"));
        self.name.push_str(&format!("-nodes{}", engine.unwrap_or_default()));
        self.notes.extend(nodes.sharing());
        self
    }

    /// Name of its run.
    pub fn name(&self) -> &str {
        &self.name
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
}
