//! A part that grows, and what was there of it before.

use super::text::{count, file_of};
use measure::harness::{Experiment, Finding, Setting, Step};
use measure::results::{Directory, Part, ResultsError};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
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
        })
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

    fn steps_left(&self) -> &[Step] {
        match self.found {
            Found::Complete => &[],
            _ => &self.experiment.steps()[self.part.steps_done as usize..],
        }
    }

    pub(in crate::commands::measure) fn milliseconds_left(&self) -> u64 {
        self.steps_left().iter().map(|step| step.milliseconds).sum()
    }

    /// The steps that the next job makes; none if all are made.
    pub(in crate::commands::measure) fn next_job(&self) -> Range<usize> {
        match self.found {
            Found::Complete => 0..0,
            _ => self.experiment.job_from(self.part.steps_done as usize),
        }
    }

    /// The step that is made next, in words.
    pub(in crate::commands::measure) fn what_comes(&self) -> String {
        let step = self.steps_left().first().map(|step| format!(": {}", step.what));
        format!("{}{}", self.part.name, step.unwrap_or_default())
    }

    /// Takes in what the next step found.
    pub(in crate::commands::measure) fn add(
        &mut self,
        findings: Vec<Finding>,
    ) -> anyhow::Result<()> {
        Ok(self.experiment.add(&mut self.part, findings)?)
    }

    /// Writes what there is, as it is. Nothing does not replace what was there.
    pub(in crate::commands::measure) fn save(&self) -> Result<(), ResultsError> {
        let is_nothing = self.part.steps_done == 0 && !self.part.complete;
        if is_nothing && self.directory.read(self.name()).is_ok_and(|there| there.is_some()) {
            return Ok(());
        }
        self.directory.write(&self.part)
    }

    /// Computes the conclusions and writes the part.
    pub(in crate::commands::measure) fn conclude(&mut self) -> anyhow::Result<()> {
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
        let file = file_of(self.directory.path(), &self.part);
        match self.found {
            Found::Nothing => format!("{name}: {}", self.part.title),
            Found::Partial => format!("{name}: goes on behind {} in {file}", self.steps()),
            Found::Complete => format!("{name}: is complete in {file}; --again measures it anew"),
        }
    }

    /// Message after an interruption.
    pub(in crate::commands::measure) fn how_far(&self) -> String {
        let file = file_of(self.directory.path(), &self.part);
        format!(
            "{} of {} are kept in {file}, and the same command goes on behind them",
            self.steps(),
            self.part.name
        )
    }

    fn steps(&self) -> String {
        format!("{} of {}", self.part.steps_done, count(self.experiment.steps().len(), "step"))
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
        "{file} was measured with another setting ({differences}) and is left as it is: --again measures it anew, --out \
         names another directory"
    )
}
