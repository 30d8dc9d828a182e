//! One rank of an experiment: this program, started by itself.

use measure::experiments::find;
use measure::harness::rank_processes::report;
use measure::harness::{Error, Setting, StepContext};
use measure::results::Directory;
use measure::rows::StepRows;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;
use tradewind::Job;

/// Report of rank 0: a step is done.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StepReport {
    /// Its index.
    pub(super) step: usize,
    /// Its rows.
    pub(super) found: StepRows,
}

/// Runs steps of an experiment; `tradewind measure` starts it.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    experiment: String,
    /// First step of this job.
    #[arg(long)]
    first: usize,
    /// Step after the last one of this job.
    #[arg(long)]
    end: usize,
    /// A setting, in JSON.
    #[arg(long)]
    setting: String,
    #[arg(long)]
    directory: PathBuf,
}

/// Failure of a rank.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RankError {
    #[error(transparent)]
    Suite(#[from] Error),
    #[error(transparent)]
    Job(#[from] tradewind::Error),
    #[error(transparent)]
    Bind(#[from] shm::process::ProcessError),
    #[error("the steps {0:?} are none of this experiment: only `tradewind measure` calls this")]
    Steps(Range<usize>),
    #[error("the setting cannot be understood: {0}; only `tradewind measure` calls this")]
    Setting(#[from] serde_json::Error),
    #[error("the rows cannot be written to standard output: {0}")]
    Output(#[from] std::io::Error),
}

/// Returns the arguments with which [`measure`] is called.
pub(super) fn arguments(
    name: &str,
    steps: Range<usize>,
    setting: &Setting,
    directory: &Directory,
) -> Vec<OsString> {
    let setting = serde_json::to_string(setting).unwrap_or_default();
    let options: [(&str, OsString); 4] = [
        ("--first", steps.start.to_string().into()),
        ("--end", steps.end.to_string().into()),
        ("--setting", setting.into()),
        ("--directory", directory.path().into()),
    ];
    let options = options.into_iter().flat_map(|(option, value)| [option.into(), value]);
    [name.into()].into_iter().chain(options).collect()
}

pub(crate) fn measure(arguments: &Arguments) -> Result<(), RankError> {
    let range = arguments.first..arguments.end;
    let setting: Setting = serde_json::from_str(&arguments.setting)?;
    let experiment = find(&arguments.experiment).map(|entry| entry.experiment(&setting));
    let Some(experiment) = experiment else { return Err(RankError::Steps(range)) };
    let steps = experiment.steps().get(range.clone()).unwrap_or_default();
    let Some(shape) = steps.first().map(|step| &step.shape) else {
        return Err(RankError::Steps(range));
    };
    let job = Job::init()?;
    let world = job.world();
    if let Some(core) = shape.cores.get(world.rank() as usize) {
        shm::process::bind_current_thread(*core)?;
    }
    let here = StepContext {
        world,
        shape,
        service: Some(job.service_process()),
        directory: Some(&arguments.directory),
        origin: experiment.origin(),
    };
    for (step, number) in steps.iter().zip(range) {
        let found = step.run(&here)?;
        if world.rank() == 0 {
            report(&StepReport { step: number, found })?;
        }
    }
    Ok(job.finish()?)
}
