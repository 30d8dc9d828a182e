//! The experiments of the suite: measured step by step, kept in a directory, gone on with when they were cut off.

mod job;
mod kept;
mod progress;
pub(crate) mod rank;
mod table;

use crate::failure::Failure;
use crate::format::Format;
use job::{JobEnd, lock};
use kept::Kept;
use measure::results::{Directory, Part};
use measure::suite::{EXPERIMENTS, Experiment, Setting};
use plogp::select::DecisionTable;
use progress::Progress;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

/// How an experiment is made, and where what it finds is kept.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Where results are kept; made if it is not there.
    #[arg(long, value_name = "DIR", default_value = "tradewind-measurements")]
    out: PathBuf,

    /// Takes few sizes and short repetitions, to see what comes out.
    #[arg(long)]
    quick: bool,

    /// Measures anew what is in the directory already.
    #[arg(long)]
    again: bool,

    /// The core of each rank, taken in turn [default: a core for each rank where there are enough].
    #[arg(long, value_name = "CORE,...", value_delimiter = ',')]
    map: Option<Vec<usize>>,
}

impl Arguments {
    fn setting(&self) -> Result<Setting, Failure> {
        let setting = Setting { quick: self.quick, map: self.map.clone(), ..Setting::default() };
        if let Some(core) = setting.map.iter().flatten().find(|core| !setting.cores.contains(core)) {
            let cores = setting.cores.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
            return Err(Failure::Map { core: *core, cores });
        }
        Ok(setting)
    }
}

/// Makes one experiment.
pub(crate) fn one(name: &str, arguments: &Arguments, format: Format) -> Result<ExitCode, Failure> {
    let (name, draw) =
        EXPERIMENTS.iter().find(|(known, _)| *known == name).ok_or_else(|| Failure::NoExperiment(name.to_owned()))?;
    let setting = arguments.setting()?;
    run(vec![(name, draw(&setting))], &setting, arguments, format)
}

/// Makes these, in this order, in a directory, whatever is there of them.
pub(crate) fn these(
    names: &[&str],
    setting: &Setting,
    directory: &std::path::Path,
    format: Format,
) -> Result<ExitCode, Failure> {
    let arguments =
        Arguments { out: directory.to_owned(), quick: setting.quick, again: true, map: setting.map.clone() };
    let mut experiments = Vec::new();
    for name in names {
        let (name, draw) = EXPERIMENTS
            .iter()
            .find(|(known, _)| known == name)
            .ok_or_else(|| Failure::NoExperiment((*name).to_owned()))?;
        experiments.push((*name, draw(setting)));
    }
    run(experiments, setting, &arguments, format)
}

/// Makes all of them.
pub(crate) fn all(arguments: &Arguments, format: Format) -> Result<ExitCode, Failure> {
    let setting = arguments.setting()?;
    let experiments = EXPERIMENTS.iter().map(|(name, draw)| (*name, draw(&setting))).collect();
    run(experiments, &setting, arguments, format)
}

fn run(
    experiments: Vec<(&str, Experiment)>,
    setting: &Setting,
    arguments: &Arguments,
    format: Format,
) -> Result<ExitCode, Failure> {
    let directory = Directory::create(&arguments.out)?;
    // Before anything is measured: what is there may stand in the way.
    let mut all = Vec::new();
    for (name, experiment) in experiments {
        all.push(Kept::open(&directory, name, experiment, setting, arguments.again)?);
    }
    let progress = Progress::new(all.iter().map(Kept::milliseconds_left).sum());
    let mut status = ExitCode::SUCCESS;
    let mut parts = Vec::new();
    for kept in all {
        progress.say(&kept.announcement());
        let kept = Arc::new(Mutex::new(kept));
        match measure(&kept, setting, &progress)? {
            JobEnd::Done => {}
            JobEnd::Interrupted(code) => {
                progress.finish();
                eprintln!("tradewind: interrupted; {}", lock(&kept).how_far());
                return Ok(ExitCode::from(code));
            }
            JobEnd::Failed { why, code } => {
                let kept = lock(&kept);
                progress.say(&format!("tradewind: {}: {why}; {}", kept.name(), kept.how_far()));
                status = ExitCode::from(code);
            }
        }
        part_written(&directory)?;
        parts.push(lock(&kept).part().clone());
    }
    progress.finish();
    format.print(|| parts.iter().map(|part| table::of(part, &directory)).collect::<Vec<_>>().join("\n\n"), &parts)?;
    Ok(status)
}

/// Makes the steps that are missing, a job for each run of steps that can share one.
fn measure(kept: &Arc<Mutex<Kept>>, setting: &Setting, progress: &Progress) -> Result<JobEnd, Failure> {
    loop {
        let steps = lock(kept).next_job();
        if steps.is_empty() {
            return Ok(JobEnd::Done);
        }
        match job::run(kept, steps, setting, progress)? {
            JobEnd::Done => {}
            end => return Ok(end),
        }
    }
}

/// A part of the directory is new. What is made of several parts is made here.
fn part_written(directory: &Directory) -> Result<(), Failure> {
    if let Some(table) = decisions(directory)? {
        table.write(&directory.path().join(measure::decisions::FILE))?;
    }
    Ok(())
}

/// The decision table that a directory's measurements make, if any of them are there.
pub(crate) fn decisions(directory: &Directory) -> Result<Option<DecisionTable>, Failure> {
    let Some(part) = directory.read("decisions")? else { return Ok(None) };
    let here = topology::Topology::here().fingerprint().clone();
    measure::decisions::table(&part, here).map(Some).map_err(Failure::Decisions)
}

/// Numbers that people read.
fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// A part's file, for messages.
fn file_of(directory: &Directory, part: &Part) -> String {
    directory.path().join(format!("{}.json", part.name)).display().to_string()
}
