//! The rows of an experiment that grow, and those that were there before.

use super::place::ResultsLocation;
use super::text::{count, no_experiment};
use measure::experiments::plogp::{check_machine, write_machine};
use measure::harness::{Experiment, Setting, Step};
use measure::results::{Directory, Part};
use measure::rows::{RunFile, StepRows};
use std::ops::Range;
use std::sync::Arc;

/// State of the run in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    Partial,
    Complete,
}

/// A run, its place in the directory, and the figures and tables that it makes.
pub(in crate::commands::measure) struct SavedPart {
    experiment: Arc<Experiment>,
    directory: Directory,
    found: Found,
    part: Part,
    rows: RunFile,
    /// As [`ResultsLocation::temporary`].
    is_temporary: bool,
}

impl SavedPart {
    /// Opens the run of this experiment to resume it; an empty one if all is measured again.
    pub(in crate::commands::measure) fn open(
        experiment: Experiment,
        setting: &Setting,
        place: &ResultsLocation,
    ) -> anyhow::Result<Self> {
        let directory = Directory::create(&place.out)?;
        let name = experiment.name();
        let steps = experiment.steps().len() as u64;
        check_machine(directory.path(), name)?;
        let rows = RunFile::open(directory.path(), name, setting.words(), steps, place.again)?;
        let found = match rows.run().done() {
            0 => Found::Nothing,
            done if done == steps => Found::Complete,
            _ => Found::Partial,
        };
        let part = measure::experiments::part(rows.run());
        let part = part.ok_or_else(|| anyhow::anyhow!(no_experiment(name)))?;
        // An earlier command may have ended before it wrote the file, or it was removed.
        if found == Found::Complete && !directory.machine().exists() {
            write_machine(directory.path(), rows.run())?;
        }
        let experiment = Arc::new(experiment);
        let is_temporary = place.temporary;
        Ok(SavedPart { experiment, directory, found, part, rows, is_temporary })
    }

    /// Returns true if the results of a step are there.
    pub(in crate::commands::measure) fn is_done(&self, step: usize) -> bool {
        self.rows.run().is_done(step as u64)
    }

    /// Lines of the file that could not be read, in words.
    pub(in crate::commands::measure) fn problems(&self) -> impl Iterator<Item = String> {
        self.rows.problems().iter().map(ToString::to_string)
    }

    pub(in crate::commands::measure) fn name(&self) -> &str {
        &self.part.name
    }

    pub(in crate::commands::measure) fn experiment(&self) -> &Arc<Experiment> {
        &self.experiment
    }

    pub(in crate::commands::measure) fn directory(&self) -> &Directory {
        &self.directory
    }

    pub(in crate::commands::measure) fn is_temporary(&self) -> bool {
        self.is_temporary
    }

    pub(in crate::commands::measure) fn part(&self) -> &Part {
        &self.part
    }

    fn steps_left(&self) -> impl Iterator<Item = &Step> {
        let steps = self.experiment.steps().iter().enumerate();
        steps.filter(|(number, _)| !self.is_done(*number)).map(|(_, step)| step)
    }

    pub(in crate::commands::measure) fn milliseconds_left(&self) -> u64 {
        self.steps_left().map(|step| step.milliseconds).sum()
    }

    /// The steps that the next job makes: neighbours of one shape; none if all are made.
    pub(in crate::commands::measure) fn next_job(&self) -> Range<usize> {
        let steps = self.experiment.steps().len();
        let Some(first) = (0..steps).find(|step| !self.is_done(*step)) else { return 0..0 };
        let job = self.experiment.job_from(first);
        let end = job.clone().find(|step| self.is_done(*step));
        first..end.unwrap_or(job.end)
    }

    /// The step that is made next, in words.
    pub(in crate::commands::measure) fn what_comes(&self) -> String {
        let step = self.steps_left().next().map(|step| format!(": {}", step.what));
        format!("{}{}", self.part.name, step.unwrap_or_default())
    }

    /// Takes in what a step found.
    pub(in crate::commands::measure) fn add(
        &mut self,
        step: usize,
        found: StepRows,
    ) -> anyhow::Result<()> {
        let StepRows { rows, notes, .. } = self.experiment.step_rows(step, found);
        Ok(self.rows.add(step as u64, rows, notes)?)
    }

    /// Makes the part of the rows so far, and writes what follows from them.
    pub(in crate::commands::measure) fn conclude(&mut self) -> anyhow::Result<()> {
        write_machine(self.directory.path(), self.rows.run())?;
        if let Some(part) = measure::experiments::part(self.rows.run()) {
            self.part = part;
        }
        if !self.is_temporary {
            self.directory.write_tables(&self.part)?;
        }
        Ok(())
    }

    /// Message at the start of the experiment.
    pub(in crate::commands::measure) fn announcement(&self) -> String {
        let name = &self.part.name;
        let file = self.rows.path().display();
        match self.found {
            Found::Nothing => format!("{name}: {}", self.part.title),
            Found::Partial => format!("{name}: goes on behind {} in {file}", self.steps()),
            Found::Complete => format!("{name}: is complete in {file}; --again measures it anew"),
        }
    }

    /// Message after an interruption.
    pub(in crate::commands::measure) fn how_far(&self) -> String {
        let file = self.rows.path().display();
        format!(
            "{} of {} are kept in {file}, and the same command goes on behind them",
            self.steps(),
            self.part.name
        )
    }

    fn steps(&self) -> String {
        let steps = self.experiment.steps().len();
        let done = (0..steps).filter(|step| self.is_done(*step)).count();
        format!("{done} of {}", count(steps, "step"))
    }
}
