//! The experiments of the suite: measured step by step, kept in a directory, gone on with when they
//! were cut off.

mod job;
pub(super) mod kept;
mod place;
mod progress;
pub(crate) mod rank;
mod table;
mod text;

use crate::format::Format;
use crate::goal_file;
use anyhow::Context;
use job::{JobEnd, lock};
use kept::SavedPart;
use measure::experiments::decisions::{
    self, Purpose, at_speed, between_nodes, losses_between_nodes,
};
use measure::experiments::{EXPERIMENTS, find, summary};
use measure::harness::{Experiment, Setting};
use measure::page::{Input, Results};
use measure::results::{Directory, Part};
use measure::rows::Measurements;
use models::decision::{DecisionTable, TableError};
use models::machine_file::Machine;
pub(crate) use place::ResultsLocation;
use progress::Progress;
use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
pub(super) use text::no_experiment;

/// Settings of an experiment, and the directory of its results.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(super) place: ResultsLocation,

    /// Takes few sizes and short repetitions, to show the form of the results.
    #[arg(long)]
    pub(super) quick: bool,

    /// The core of each rank, taken in turn [default: a core for each rank where there are enough].
    #[arg(long, value_name = "CORE,...", value_delimiter = ',')]
    pub(super) map: Option<Vec<usize>>,
}

/// Measured parts, and the exit status.
pub(in crate::commands) struct Measured {
    /// Parts that are as complete as they could be made.
    pub(in crate::commands) parts: Vec<Part>,
    pub(in crate::commands) status: ExitCode,
}

impl Arguments {
    pub(super) fn setting(&self) -> anyhow::Result<Setting> {
        let setting = Setting { quick: self.quick, map: self.map.clone(), ..Setting::default() };
        if let Some(core) = setting.map.iter().flatten().find(|core| !setting.cores.contains(core))
        {
            let cores = setting.cores.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
            anyhow::bail!(
                "core {core} of --map is not in this process's affinity mask: choose among {cores}"
            );
        }
        Ok(setting)
    }
}

/// Converts the error of making a decision table, which no input causes.
pub(in crate::commands) fn no_table(error: TableError) -> anyhow::Error {
    anyhow::anyhow!("{error}: please report this")
}

/// Makes one experiment.
pub(crate) fn one(name: &str, arguments: &Arguments, format: Format) -> anyhow::Result<ExitCode> {
    show(measure_one(name, &arguments.setting()?, &arguments.place)?, &arguments.place, format)
}

/// Makes these, in this order, in a directory, whatever is there of them.
pub(crate) fn these(
    names: &[&str],
    setting: &Setting,
    place: &ResultsLocation,
    format: Format,
) -> anyhow::Result<ExitCode> {
    let build = |name: &&str| {
        find(name).map(|entry| entry.experiment(setting)).with_context(|| no_experiment(name))
    };
    let experiments = names.iter().map(build).collect::<anyhow::Result<_>>()?;
    show(measure_all(experiments, setting, place)?, place, format)
}

/// Makes one experiment and shows nothing of it; the exit status.
pub(crate) fn quietly(
    name: &str,
    setting: &Setting,
    place: &ResultsLocation,
) -> anyhow::Result<ExitCode> {
    Ok(measure_one(name, setting, place)?.status)
}

/// Makes all of them.
pub(crate) fn all(arguments: &Arguments, format: Format) -> anyhow::Result<ExitCode> {
    let setting = arguments.setting()?;
    let experiments = EXPERIMENTS.iter().map(|entry| entry.experiment(&setting)).collect();
    show(measure_all(experiments, &setting, &arguments.place)?, &arguments.place, format)
}

pub(in crate::commands) fn show(
    measured: Measured,
    place: &ResultsLocation,
    format: Format,
) -> anyhow::Result<ExitCode> {
    let Measured { parts, status } = measured;
    let directory = (!place.temporary).then_some(place.out.as_path());
    format.print(
        || parts.iter().map(|part| table::of(part, directory)).collect::<Vec<_>>().join("\n\n"),
        &parts,
    )?;
    Ok(status)
}

/// Makes the experiment of this name.
pub(super) fn measure_one(
    name: &str,
    setting: &Setting,
    place: &ResultsLocation,
) -> anyhow::Result<Measured> {
    let entry = find(name).with_context(|| no_experiment(name))?;
    measure_all(vec![entry.experiment(setting)], setting, place)
}

fn measure_all(
    experiments: Vec<Experiment>,
    setting: &Setting,
    place: &ResultsLocation,
) -> anyhow::Result<Measured> {
    // Before anything is measured: what is there may stand in the way.
    let open = |experiment| SavedPart::open(experiment, setting, place);
    let all = experiments.into_iter().map(open).collect::<Result<Vec<_>, _>>()?;
    show_problems(&all);
    let progress = Progress::new(all.iter().map(SavedPart::milliseconds_left).sum());
    let mut measured = Measured { parts: Vec::new(), status: ExitCode::SUCCESS };
    for kept in all {
        if !place.temporary || std::io::stderr().is_terminal() {
            progress.say(&kept.announcement());
        }
        let kept = Arc::new(Mutex::new(kept));
        let end = measure(&kept, setting, &progress)?;
        let kept = lock(&kept);
        match end {
            JobEnd::Done => {}
            JobEnd::Interrupted(code) => {
                progress.finish();
                eprintln!("tradewind: interrupted; {}", how_far(&kept, place));
                if place.temporary {
                    measured.parts.push(kept.part().clone());
                }
                return Ok(Measured { status: ExitCode::from(code), ..measured });
            }
            JobEnd::Failed { why, code } => {
                progress.say(&format!(
                    "tradewind: {}: {why}; {}",
                    kept.name(),
                    how_far(&kept, place)
                ));
                measured.status = ExitCode::from(code);
            }
        }
        part_written(&kept)?;
        measured.parts.push(kept.part().clone());
    }
    progress.finish();
    Ok(measured)
}

/// Prints the faults of kept results, once each: those of one file are faults of all its parts.
pub(super) fn show_problems(kept: &[SavedPart]) {
    let problems: BTreeSet<String> = kept.iter().flat_map(SavedPart::problems).collect();
    problems.iter().for_each(|problem| eprintln!("tradewind: {problem}"));
}

fn how_far(kept: &SavedPart, place: &ResultsLocation) -> String {
    if place.temporary { "nothing of it is kept".to_owned() } else { kept.how_far() }
}

/// Makes the steps that are missing, a job for each run of steps that can share one.
fn measure(
    kept: &Arc<Mutex<SavedPart>>,
    setting: &Setting,
    progress: &Progress,
) -> anyhow::Result<JobEnd> {
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

/// A part of the directory is new. What is made of several parts is made here, of those that can be
/// read: a damaged part does not prevent the measurement of another, and the page names it.
pub(super) fn part_written(kept: &SavedPart) -> anyhow::Result<()> {
    let directory = kept.directory();
    let name = kept.name();
    let measured = Measurements::read(directory.path())?;
    let is_of = |purposes: &[Purpose]| {
        between_nodes(&measured, purposes).iter().any(|run| run.name == name)
    };
    let path = directory.machine();
    let is_of_one_node = name == Purpose::Decision.name();
    if path.exists() && is_of(&Purpose::OF_TABLE) {
        let runs = between_nodes(&measured, &Purpose::OF_TABLE);
        decisions::table::corrected(&runs, &Machine::read(&path)?).write(&path)?;
    }
    if let (true, true, Some(run)) = (path.exists(), is_of_one_node, measured.run(name)) {
        at_speed(run, &Machine::read(&path)?).write(&path)?;
    }
    if (is_of_one_node || is_of(&[Purpose::Decision]))
        && let Ok(Some(table)) = decisions(directory)
    {
        table.write(&directory.path().join(decisions::table::FILE))?;
    }
    if kept.is_temporary() {
        return Ok(());
    }
    if is_of(&[Purpose::Check])
        && let Some(losses) = losses_between_nodes(&measured)
    {
        directory.write_tables(&losses)?;
    }
    directory.write_tables(&summary::of(&measured))?;
    let input = Input { results: Results::of(directory), other: None };
    goal_file::write(
        &directory.path().join("report.html"),
        measure::page::render(&input).as_bytes(),
    )
}

/// The decision table that a directory's machine file and measurements make, if any of them are
/// there: rows of one node, and rows between nodes.
pub(crate) fn decisions(directory: &Directory) -> anyhow::Result<Option<DecisionTable>> {
    let here = models::machine::Topology::here().fingerprint().clone();
    let path = directory.machine();
    let machine = if path.exists() { Machine::read_for(&path, &here)? } else { Machine::new(here) };
    let measured = Measurements::read(directory.path())?;
    let run = measured.run(Purpose::Decision.name());
    let of_node = run.map(|run| decisions::table::on_one_node(run, &machine)).transpose();
    let runs = between_nodes(&measured, &[Purpose::Decision]);
    let models =
        decisions::table::of_table(&machine, &between_nodes(&measured, &Purpose::OF_TABLE));
    let between =
        (!runs.is_empty()).then(|| decisions::table::between_nodes(&runs, &machine, &models));
    let between = between.transpose();
    Ok(match (of_node.map_err(no_table)?, between.map_err(no_table)?) {
        (Some(of_node), Some(between)) => Some(of_node.replaced_by(&between)),
        (one, other) => one.or(other),
    })
}
