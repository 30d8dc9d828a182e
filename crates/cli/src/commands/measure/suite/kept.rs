//! The results of an experiment that grow, and what was there of them before: rows of the file of
//! rows, or a part of an experiment that has a file of its own.

use super::text::{count, file_of, no_experiment};
use measure::experiments::plogp::{check_machine, write_machine};
use measure::harness::{Experiment, Finding, Setting, Step};
use measure::results::{Directory, Part, ResultsError};
use measure::rows::{RunFile, StepRows};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// State of the part in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    Partial,
    Complete,
}

/// A part and its place in the directory.
pub(in crate::commands::measure) struct SavedPart {
    experiment: Arc<Experiment>,
    directory: Directory,
    found: Found,
    part: Part,
    /// The rows, if the experiment consists of rows.
    rows: Option<RunFile>,
}

impl SavedPart {
    /// Opens the part of this experiment to resume it; an empty part if `again`.
    pub(in crate::commands::measure) fn open(
        directory: &Directory,
        experiment: Experiment,
        setting: &Setting,
        again: bool,
    ) -> anyhow::Result<Self> {
        let words = setting.words();
        if experiment.origin().is_some() {
            return Self::open_rows(directory, experiment, words, again);
        }
        let fresh = || Part { setting: words.clone(), ..experiment.outline().clone() };
        let there = if again { None } else { directory.read(&experiment.outline().name)? };
        let (found, part) = match there {
            None => (Found::Nothing, fresh()),
            Some(part) if part.setting != words => {
                return Err(other_setting(directory, &part, &words));
            }
            Some(part) if part.complete => (Found::Complete, part),
            Some(part) if part.steps_done as usize > experiment.steps().len() => {
                return Err(other_setting(directory, &part, &words));
            }
            Some(part) => {
                (if part.steps_done == 0 { Found::Nothing } else { Found::Partial }, part)
            }
        };
        Ok(SavedPart {
            experiment: Arc::new(experiment),
            directory: directory.clone(),
            found,
            part,
            rows: None,
        })
    }

    fn open_rows(
        directory: &Directory,
        experiment: Experiment,
        words: BTreeMap<String, String>,
        again: bool,
    ) -> anyhow::Result<Self> {
        let name = experiment.outline().name.clone();
        let steps = experiment.steps().len() as u64;
        check_machine(directory.path(), &name)?;
        let rows = RunFile::open(directory.path(), &name, words, steps, again)?;
        let found = match rows.run().done() {
            0 => Found::Nothing,
            done if done == steps => Found::Complete,
            _ => Found::Partial,
        };
        let part = measure::experiments::part(rows.run());
        Ok(SavedPart {
            experiment: Arc::new(experiment),
            directory: directory.clone(),
            found,
            part: part.ok_or_else(|| anyhow::anyhow!(no_experiment(&name)))?,
            rows: Some(rows),
        })
    }

    /// Returns true if the results of a step are there.
    pub(in crate::commands::measure) fn is_done(&self, step: usize) -> bool {
        match &self.rows {
            Some(rows) => rows.run().is_done(step as u64),
            None => self.found == Found::Complete || step < self.part.steps_done as usize,
        }
    }

    /// Lines of the file of rows that could not be read, in words.
    pub(in crate::commands::measure) fn problems(&self) -> Vec<String> {
        let problems = self.rows.iter().flat_map(|rows| rows.problems());
        problems.map(ToString::to_string).collect()
    }

    fn file(&self) -> PathBuf {
        match &self.rows {
            Some(rows) => rows.path().to_owned(),
            None => file_of(self.directory.path(), &self.part),
        }
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
        findings: Vec<Finding>,
    ) -> anyhow::Result<()> {
        let Some(file) = &mut self.rows else {
            return Ok(self.experiment.add(&mut self.part, findings)?);
        };
        let StepRows { rows, notes, .. } = self.experiment.step_rows(step, findings);
        Ok(file.add(step as u64, rows, notes)?)
    }

    /// Writes what there is, as it is. Nothing does not replace what was there.
    pub(in crate::commands::measure) fn save(&self) -> Result<(), ResultsError> {
        if self.rows.is_some() {
            return Ok(());
        }
        let is_nothing = self.part.steps_done == 0 && !self.part.complete;
        if is_nothing && self.directory.read(self.name()).is_ok_and(|there| there.is_some()) {
            return Ok(());
        }
        self.directory.write(&self.part)
    }

    /// Computes the conclusions and writes the part.
    pub(in crate::commands::measure) fn conclude(&mut self) -> anyhow::Result<()> {
        if let Some(rows) = &self.rows {
            if let Some(part) = measure::experiments::part(rows.run()) {
                self.part = part;
                self.directory.write_tables(&self.part)?;
            }
            write_machine(self.directory.path(), rows.run())?;
            return Ok(());
        }
        self.experiment.conclude(&mut self.part)?;
        Ok(self.save()?)
    }

    /// Writes a part to which nothing is missing, unless that has been done: one without any step.
    pub(in crate::commands::measure) fn complete(&mut self) -> anyhow::Result<()> {
        if self.part.complete { Ok(()) } else { self.conclude() }
    }

    /// Message at the start of the experiment.
    pub(in crate::commands::measure) fn announcement(&self) -> String {
        let name = &self.part.name;
        let file = self.file();
        let file = file.display();
        match self.found {
            Found::Nothing => format!("{name}: {}", self.part.title),
            Found::Partial => format!("{name}: goes on behind {} in {file}", self.steps()),
            Found::Complete => format!("{name}: is complete in {file}; --again measures it anew"),
        }
    }

    /// Message after an interruption.
    pub(in crate::commands::measure) fn how_far(&self) -> String {
        let file = self.file();
        let file = file.display();
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

/// Why what is there cannot be gone on with.
fn other_setting(
    directory: &Directory,
    part: &Part,
    asked: &BTreeMap<String, String>,
) -> anyhow::Error {
    let names: BTreeSet<&String> = part.setting.keys().chain(asked.keys()).collect();
    let value = |of: &BTreeMap<String, String>, name: &String| {
        of.get(name).cloned().unwrap_or_else(|| "none".to_owned())
    };
    let differences: Vec<String> = names
        .into_iter()
        .filter(|name| part.setting.get(*name) != asked.get(*name))
        .map(|name| {
            format!("{name} {} there, {} now", value(&part.setting, name), value(asked, name))
        })
        .collect();
    let differences =
        if differences.is_empty() { "more steps there".to_owned() } else { differences.join("; ") };
    let file = file_of(directory.path(), part);
    anyhow::anyhow!(
        "{} was measured with another setting ({differences}) and is left as it is: --again measures it anew, --out \
         names another directory",
        file.display()
    )
}
