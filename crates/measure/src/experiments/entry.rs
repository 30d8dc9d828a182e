//! An experiment of the suite: its steps, and the figures that its rows make.

use crate::harness::{Experiment, Setting};
use crate::results::Part;
use crate::rows::Run;

/// An experiment of the suite.
pub struct SuiteEntry {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// Method and interpretation, in a few sentences.
    pub(super) about: &'static str,
    /// The paper and its section that the experiment comes from.
    pub(super) source: &'static str,
    /// The experiment under a setting.
    pub(super) steps: fn(&Setting) -> Experiment,
    /// Adds the figures, maps and tables of a run to a part that has the words above.
    pub(super) view: fn(&Run, &mut Part),
}

impl SuiteEntry {
    /// Name on the command line, and of a run on one node.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The experiment for a setting.
    pub fn experiment(&self, setting: &Setting) -> Experiment {
        (self.steps)(setting)
    }

    /// Figures, maps and tables of a run of this experiment.
    pub fn part(&self, run: &Run) -> Part {
        let mut part = Part::new(&run.name, self.title);
        self.about.clone_into(&mut part.about);
        self.source.clone_into(&mut part.source);
        (self.view)(run, &mut part);
        part.figures.retain(|figure| !figure.series.is_empty());
        part.complete = run.is_complete();
        part.steps_done = run.done();
        part.setting.clone_from(&run.setting);
        part.notes.extend(run.notes());
        part
    }
}
