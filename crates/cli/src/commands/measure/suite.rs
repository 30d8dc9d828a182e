//! The experiments of the suite: measured step by step, kept in a directory, gone on with when they
//! were cut off.

mod job;
pub(super) mod kept;
mod progress;
pub(crate) mod rank;
mod table;
mod text;

use crate::format::Format;
use crate::goal_file;
use anyhow::Context;
use job::{JobEnd, lock};
use kept::SavedPart;
use measure::experiments::decisions::nodes::Purpose;
use measure::experiments::decisions::{
    FILE, at_speed, between_nodes, corrected, losses, of_table, parts_between_nodes, parts_of,
    table, timed_between_nodes,
};
use measure::experiments::{EXPERIMENTS, find};
use measure::harness::{Experiment, Setting};
use measure::page::{Input, Results};
use measure::results::{Directory, Part};
use models::decision::{DecisionTable, TableError};
use models::machine_file::Machine;
use progress::Progress;
use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::path::PathBuf;
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

/// Directory of the results.
#[derive(Debug, clap::Args)]
pub(crate) struct ResultsLocation {
    /// Directory of the results; created if it does not exist.
    #[arg(long, value_name = "DIR", default_value = "tradewind-measurements")]
    pub(crate) out: PathBuf,

    /// Measures anew what is in the directory already.
    #[arg(long)]
    pub(crate) again: bool,

    /// The directory is removed at the end: its files are not worth naming.
    #[arg(skip)]
    pub(crate) temporary: bool,
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
    let build =
        |name: &&str| find(name).map(|build| build(setting)).with_context(|| no_experiment(name));
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
    let experiments = EXPERIMENTS.iter().map(|(_, build)| build(&setting)).collect();
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
    let build = find(name).with_context(|| no_experiment(name))?;
    measure_all(vec![build(setting)], setting, place)
}

fn measure_all(
    experiments: Vec<Experiment>,
    setting: &Setting,
    place: &ResultsLocation,
) -> anyhow::Result<Measured> {
    let directory = Directory::create(&place.out)?;
    // Before anything is measured: what is there may stand in the way.
    let open = |experiment| SavedPart::open(&directory, experiment, setting, place.again);
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
        part_written(&directory, kept.name())?;
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
            lock(kept).complete()?;
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
pub(super) fn part_written(directory: &Directory, name: &str) -> anyhow::Result<()> {
    if is_of(Purpose::Calibration, name) || is_of(Purpose::Decision, name) {
        correct_models(directory)?;
    }
    if name == "decisions" {
        follow_speed(directory)?;
    }
    if name.starts_with("decisions")
        && let Ok(Some(table)) = decisions(directory)
    {
        table.write(&directory.path().join(FILE))?;
    }
    if is_of(Purpose::Check, name) {
        let machine = Machine::read(&directory.machine())?;
        let table = DecisionTable::read(&directory.path().join(FILE)).ok();
        let parts = parts_between_nodes(directory, Purpose::Check)?;
        let models = of_table(&machine, &timed_between_nodes(directory)?);
        directory.write(&losses(&parts, &models, table.as_ref()))?;
    }
    directory.write(&measure::results::summary::of(directory))?;
    let input = Input { results: Results::of(directory), other: None };
    goal_file::write(
        &directory.path().join("report.html"),
        measure::page::render(&input).as_bytes(),
    )
}

fn is_of(purpose: Purpose, name: &str) -> bool {
    parts_of(purpose).iter().any(|(part, _)| part == name)
}

/// Corrects the parameters between nodes of a directory's machine by all times in the directory.
fn correct_models(directory: &Directory) -> anyhow::Result<()> {
    let path = directory.machine();
    if !path.exists() {
        return Ok(());
    }
    Ok(corrected(&timed_between_nodes(directory)?, &Machine::read(&path)?).write(&path)?)
}

/// Changes the parameters of one node to the speed at which candidates were timed.
fn follow_speed(directory: &Directory) -> anyhow::Result<()> {
    let path = directory.machine();
    if let (true, Some(part)) = (path.exists(), directory.read("decisions")?) {
        at_speed(&part, &Machine::read(&path)?).write(&path)?;
    }
    Ok(())
}

/// The decision table that a directory's machine file and measurements make, if any of them are
/// there: rows of one node, and rows between nodes.
pub(crate) fn decisions(directory: &Directory) -> anyhow::Result<Option<DecisionTable>> {
    let here = models::machine::Topology::here().fingerprint().clone();
    let path = directory.machine();
    let machine = if path.exists() { Machine::read_for(&path, &here)? } else { Machine::new(here) };
    let of_node = directory.read("decisions")?;
    let of_node = of_node.map(|part| table(&part, &machine)).transpose();
    let parts = parts_between_nodes(directory, Purpose::Decision)?;
    let models = of_table(&machine, &timed_between_nodes(directory)?);
    let between = (!parts.is_empty()).then(|| between_nodes(&parts, (&machine, &models)));
    let between = between.transpose();
    Ok(match (of_node.map_err(no_table)?, between.map_err(no_table)?) {
        (Some(of_node), Some(between)) => Some(of_node.replaced_by(&between)),
        (one, other) => one.or(other),
    })
}
