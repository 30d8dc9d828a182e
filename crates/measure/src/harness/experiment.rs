//! An experiment: its outline, its steps, and its conclusions.

use crate::harness::context::{RowsOrigin, StepContext};
use crate::harness::error::Error;
use crate::harness::finding::Finding;
use crate::harness::load::LoadMeter;
use crate::harness::nodes::Nodes;
use crate::harness::setting::{JobShape, Setting};
use crate::harness::undisturbed::of_all_ranks;
use crate::results::Part;
use crate::rows::{Load, Row, StepRows};
use std::ops::Range;

/// Steps of a measurement, the part that they fill, and the conclusions from it.
pub struct Experiment {
    outline: Part,
    steps: Vec<Step>,
    conclude: Box<Conclude>,
    of_rows: Option<RowsOrigin>,
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

type Measure = dyn Fn(&StepContext<'_>) -> Result<Vec<Finding>, Error> + Send + Sync;
type Conclude = dyn Fn(&mut Part) -> Result<(), Error> + Send + Sync;

impl Step {
    /// A step that takes about so many milliseconds. All ranks of a job run `measure` at the same
    /// time; its result on rank 0 counts.
    pub fn new(
        what: impl Into<String>,
        shape: JobShape,
        milliseconds: u64,
        measure: impl Fn(&StepContext<'_>) -> Result<Vec<Finding>, Error> + Send + Sync + 'static,
    ) -> Self {
        Step { what: what.into(), shape, milliseconds, measure: Box::new(measure) }
    }

    /// A step that returns [rows](StepContext::row), each of which gets the load of the whole step
    /// if it has none of its own; with notes, as [`StepRows`].
    pub fn of_rows<R: Into<StepRows>>(
        what: impl Into<String>,
        shape: JobShape,
        milliseconds: u64,
        measure: impl Fn(&StepContext<'_>) -> Result<R, Error> + Send + Sync + 'static,
    ) -> Self {
        Step::new(what, shape, milliseconds, move |here| {
            let meter = LoadMeter::start(here)?;
            let StepRows { rows, notes, .. } = measure(here)?.into();
            let load = Some(Load::from(of_all_ranks(here, meter.doubts(here)?)?));
            let with_load = |row: Row| Row { load: row.load.or(load), ..row };
            let rows = rows.into_iter().map(|row| Finding::Time(Box::new(with_load(row))));
            Ok(rows.chain(notes.into_iter().map(Finding::Note)).collect())
        })
    }

    /// Runs it on this rank.
    ///
    /// # Errors
    /// The error of the step, with its name.
    pub fn run(&self, here: &StepContext<'_>) -> Result<Vec<Finding>, Error> {
        (self.measure)(here).map_err(|error| error.in_step(&self.what))
    }
}

impl Experiment {
    /// An experiment that makes these steps. The outline has figures with axes, maps and tables
    /// with columns, which findings name, and all words; nothing measured.
    pub fn new(outline: Part, steps: impl IntoIterator<Item = Step>) -> Self {
        let conclude = Box::new(|_: &mut Part| Ok(()));
        Experiment { outline, steps: steps.into_iter().collect(), conclude, of_rows: None }
    }

    /// An experiment of this name that consists of [rows](crate::rows).
    pub fn of_rows(name: &str, setting: &Setting, steps: impl IntoIterator<Item = Step>) -> Self {
        let origin = RowsOrigin { experiment: name.to_owned(), link: setting.link };
        let experiment = Experiment::new(Part::new(name, ""), steps);
        Experiment { of_rows: Some(origin), ..experiment }
    }

    /// An experiment of rows that measures nothing here, and says why.
    pub fn not_here(name: &str, setting: &Setting, why: &str) -> Self {
        let why = why.to_owned();
        let step = Step::of_rows("nothing", JobShape::bound(setting, 2), 0, move |_| {
            Ok(StepRows { notes: vec![why.clone()], ..Vec::new().into() })
        });
        Experiment::of_rows(name, setting, [step])
    }

    /// The same with remarks for its readers, which [go with the first step](Self::step_rows).
    #[must_use]
    pub fn noting(mut self, notes: impl IntoIterator<Item = String>) -> Self {
        self.outline.notes.extend(notes);
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

    /// Rows and notes among what a step found. The remarks about the whole experiment go with its
    /// first step.
    pub fn step_rows(&self, number: usize, findings: Vec<Finding>) -> StepRows {
        let mut step = StepRows::from(Vec::new());
        for finding in findings {
            match finding {
                Finding::Time(row) => step.rows.push(*row),
                Finding::Note(note) => step.notes.push(note),
                _ => {}
            }
        }
        step.notes.extend(self.outline.notes.iter().filter(|_| number == 0).cloned());
        step
    }

    /// Properties that its rows share; `None` if it does not consist of rows.
    pub fn origin(&self) -> Option<&RowsOrigin> {
        self.of_rows.as_ref()
    }

    /// Adds conclusions: fits, fitted curves, tables of parameters. They are computed
    /// again and again from however much there is, so that what they wrote before has to be
    /// replaced; see [`Part::replace_series`].
    #[must_use]
    pub fn concluding(
        self,
        conclude: impl Fn(&mut Part) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Self {
        Experiment { conclude: Box::new(conclude), ..self }
    }

    /// The same as a part of its own for the nodes that its steps run on.
    #[must_use]
    pub(crate) fn between(mut self, nodes: &Nodes) -> Self {
        let engine = nodes.engine.as_ref().map(|engine| format!("-{engine}"));
        self.outline.name.push_str(&format!("-nodes{}", engine.unwrap_or_default()));
        self.outline.title.push_str(" between nodes");
        self.outline.notes.extend(nodes.sharing());
        self
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
    /// A finding that names what the outline does not have, or has a value that is not a number.
    pub fn add(&self, part: &mut Part, findings: Vec<Finding>) -> Result<(), Error> {
        let mut grown = part.clone();
        findings.into_iter().try_for_each(|finding| finding.add_to(&mut grown))?;
        grown.steps_done += 1;
        *part = grown;
        Ok(())
    }

    /// Computes the conclusions from the steps so far, and notes whether all are done.
    ///
    /// # Errors
    /// The error of the conclusions.
    pub fn conclude(&self, part: &mut Part) -> Result<(), Error> {
        part.complete = part.steps_done as usize == self.steps.len();
        (self.conclude)(part)
    }
}
