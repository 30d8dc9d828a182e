//! The rounds of earlier passes, kept in a file beside `machine.json` until all are made.

use super::survey::Survey;
use super::transport::Reading;
use crate::harness::{Doubts, Error};
use models::costs::StartCosts;
use models::file::{self, FileKind};
use models::parameters::ParametersError;
use models::statistics::median;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const KIND: FileKind =
    FileKind { name: "tradewind rounds", version: 2, oldest: 2, remedy: "begin anew with --again" };

/// Every pass, by class and engine.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Passes(BTreeMap<String, Vec<Pass>>);

/// Readings of one pass over a class under an engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pass {
    pub(super) rounds: Vec<Vec<Reading>>,
    pub(super) start: StartCosts,
    pub(super) doubts: Doubts,
}

fn place(directory: &Path) -> PathBuf {
    directory.join("plogp-rounds.json")
}

impl Passes {
    /// Passes kept in a directory; none without a directory.
    pub(super) fn read(directory: Option<&Path>) -> Result<Self, Error> {
        match directory {
            Some(directory) => Ok(file::read(&place(directory), &KIND)?),
            None => Ok(Passes::default()),
        }
    }

    pub(super) fn write(&self, directory: Option<&Path>) -> Result<(), Error> {
        match directory {
            Some(directory) => Ok(file::write(&place(directory), &KIND, self)?),
            None => Ok(()),
        }
    }

    /// Removes the file: all is made, and all values are in `machine.json`.
    pub(super) fn remove(directory: &Path) {
        // A file that stays does no harm.
        let _ = std::fs::remove_file(place(directory));
    }

    /// The sizes that were measured in the passes before; all passes go over the same.
    pub(super) fn sizes(&self, curve: &str) -> Option<Vec<u64>> {
        let round = self.0.get(curve)?.first()?.rounds.first()?;
        Some(round.iter().map(|reading| reading.bytes).collect())
    }

    pub(super) fn add(&mut self, curve: &str, pass: Pass) {
        self.0.entry(curve.to_owned()).or_default().push(pass);
    }

    /// Parameters from the passes that nothing disturbed; from all where something disturbed every
    /// one, with doubts then.
    pub(super) fn survey(&self, curve: &str) -> Result<(Survey, StartCosts), ParametersError> {
        let passes = self.0.get(curve).map_or(&[][..], Vec::as_slice);
        let is_quiet = |pass: &&Pass| !pass.doubts.is_disturbed();
        let quiet: Vec<&Pass> = passes.iter().filter(is_quiet).collect();
        let passes = if quiet.is_empty() { passes.iter().collect() } else { quiet };
        let rounds: Vec<Vec<Reading>> =
            passes.iter().flat_map(|pass| pass.rounds.clone()).collect();
        let middle =
            |of: fn(&Pass) -> f64| median(&passes.iter().map(|pass| of(pass)).collect::<Vec<_>>());
        let start = StartCosts {
            fixed: middle(|pass| pass.start.fixed),
            per_byte: middle(|pass| pass.start.per_byte),
        };
        let mut survey = Survey::of(&rounds)?;
        survey.doubts = passes.iter().fold(survey.doubts, |doubts, pass| doubts.and(pass.doubts));
        Ok((survey, start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::plogp::Lap;
    use crate::harness::Sign;

    fn pass(slowdown: f64) -> Pass {
        let lap =
            |count: u32, microseconds: f64| Lap { count, microseconds: microseconds * slowdown };
        let reading = |bytes: u64, each: f64| Reading {
            bytes,
            nothing: 0.0,
            round_trips: lap(1, 2.0 * each),
            stream: lap(2, each + 4.0),
            sends: lap(1, 0.5),
            receives: lap(1, 0.25),
        };
        Pass {
            rounds: vec![vec![reading(0, 2.0), reading(64, 3.0)]; 4],
            start: StartCosts { fixed: slowdown, per_byte: 0.0 },
            doubts: Doubts::default(),
        }
    }

    #[test]
    fn passes_are_kept_and_taken_together() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut passes = Passes::default();
        // One of three passes saw the machine at half its speed.
        for slowdown in [1.0, 2.0, 1.0] {
            passes.add("curve", pass(slowdown));
            passes.write(Some(directory.path())).expect("it can be written");
            passes = Passes::read(Some(directory.path())).expect("it is whole");
        }
        assert_eq!(passes.sizes("curve"), Some(vec![0, 64]));
        assert_eq!(passes.sizes("another"), None);
        let (survey, start) = passes.survey("curve").expect("it has parameters");
        assert_eq!(
            (survey.parameters.arrival(0), survey.parameters.arrival(64), start.fixed),
            (2.0, 3.0, 1.0)
        );
        assert_eq!(survey.samples.round_trip.values.len(), 12);
    }

    /// A pass at twice the speed, under load, would count as the fastest.
    #[test]
    fn disturbed_passes_count_only_where_there_are_no_others() {
        let loaded = Doubts::of([(Sign::OtherProcesses, 0.5)]);
        let mut passes = Passes::default();
        passes.add("curve", Pass { doubts: loaded, ..pass(0.5) });
        let (survey, _) = passes.survey("curve").expect("it has parameters");
        assert_eq!((survey.parameters.arrival(0), survey.doubts), (1.0, loaded));
        passes.add("curve", pass(1.0));
        let (survey, start) = passes.survey("curve").expect("it has parameters");
        assert!(!survey.doubts.is_disturbed(), "{}", survey.doubts);
        assert_eq!((survey.parameters.arrival(0), start.fixed), (2.0, 1.0));
    }

    #[test]
    fn what_is_damaged_or_missing_says_what_to_do() {
        let directory = tempfile::tempdir().expect("a directory");
        let message =
            || Passes::read(Some(directory.path())).expect_err("nothing to read").to_string();
        assert!(message().ends_with("begin anew with --again"), "{}", message());
        std::fs::write(place(directory.path()), "[").expect("it can be written");
        assert!(message().contains("damaged"), "{}", message());
    }
}
