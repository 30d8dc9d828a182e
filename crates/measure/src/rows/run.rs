//! A run of an experiment: the rows of its steps.

use super::row::Row;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Rows and notes of one step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The rows.
    pub rows: Vec<Row>,
    /// Remarks for the reader, such as the reason why something could not be measured.
    pub notes: Vec<String>,
    /// True if all rows of the step are there.
    pub whole: bool,
}

impl From<Vec<Row>> for Step {
    fn from(rows: Vec<Row>) -> Self {
        Step { rows, notes: Vec::new(), whole: true }
    }
}

/// One run of an experiment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// Number of the run in its file.
    pub(crate) id: u64,
    /// Name of the run: that of the experiment, with the nodes and the engine it was made for.
    pub name: String,
    /// Properties that its rows share, by name.
    pub setting: BTreeMap<String, String>,
    /// Number of steps of the experiment.
    pub steps: u64,
    /// The steps that there are, by number.
    pub found: BTreeMap<u64, Step>,
}

impl Run {
    /// The rows of the steps of which all rows are there.
    pub fn whole_rows(&self) -> impl Iterator<Item = &Row> {
        self.found.values().filter(|step| step.whole).flat_map(|step| &step.rows)
    }

    /// The first step of which rows are missing; `None` if the run is complete.
    pub fn first_missing(&self) -> Option<u64> {
        (0..self.steps).find(|number| !self.is_done(*number))
    }

    /// Returns true if all rows of a step are there.
    pub fn is_done(&self, step: u64) -> bool {
        self.found.get(&step).is_some_and(|step| step.whole)
    }

    /// Number of steps of which all rows are there.
    pub fn done(&self) -> u64 {
        self.found.values().filter(|step| step.whole).count() as u64
    }

    /// Returns true if nothing is missing.
    pub fn is_complete(&self) -> bool {
        self.first_missing().is_none()
    }

    /// All rows, in the order of their steps.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.found.values().flat_map(|step| &step.rows)
    }

    /// All notes, each once.
    pub fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = Vec::new();
        for note in self.found.values().flat_map(|step| &step.notes) {
            if !notes.contains(note) {
                notes.push(note.clone());
            }
        }
        notes
    }
}

#[cfg(test)]
impl Run {
    /// A complete run of steps of one row each.
    pub(crate) fn of(rows: impl IntoIterator<Item = Row>) -> Self {
        let found: BTreeMap<u64, Step> =
            (0..).zip(rows.into_iter().map(|row| Step::from(vec![row]))).collect();
        Run { steps: found.len() as u64, found, ..Run::default() }
    }
}
