//! `tradewind tune`: the decision table of this machine.

mod built_in;
pub(crate) mod mpi;

use super::measure::made_nodes::{MadeNodes, NodesWanted};
use super::measure::nodes::refuse_in_job;
use super::measure::{nodes, suite};
use crate::failure::cannot_write;
use crate::format::Format;
use anyhow::Context;
use clap::error::ErrorKind;
use engine::node::RANK_LIMIT;
use launch::detect::{Launch, detect};
use launch::environment::{Environment, Lookup};
use measure::experiments::decisions::{
    EFFORT, MEASURE_ALL, MODELS_ONLY, Purpose, UNTIL, losses_between_nodes,
};
use measure::experiments::networks::{self, Comparison};
use measure::harness::{RANKS, Setting, USUAL_RANKS};
use measure::results::Directory;
use measure::rows::Measurements;
use models::decision::{DecisionTable, Evidence, Row as DecisionRow};
use models::machine_file::{FastestNetwork, Machine, Networks, TCP};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tradewind::Job;

/// Selects the fastest algorithm for each collective and size on this machine, and writes the table
/// that programs read.
///
/// Measures the parameters of the models, builds the table from what they predict, and spends the
/// rest of its time on timing the candidates that are predicted to lie within the models' error of
/// the best, most used sizes first. Every job on this machine uses the table from then on; programs
/// need not be built anew. In a job that a launcher has started on several nodes (mpiexec -hosts
/// A,B tradewind tune), or with --nodes, it does so for collectives between the nodes, and compares
/// the networks for TRADEWIND_NETWORK=auto: TCP, and libfabric where it is installed.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    /// The file to write [default: $TRADEWIND_DECISIONS, else tradewind/decisions.json under
    /// $XDG_CONFIG_HOME or ~/.config]. The parameters are written beside it, to machine.json.
    #[arg(long, value_name = "FILE", group = "place")]
    out: Option<PathBuf>,

    /// Numbers of ranks; for others the nearest one counts, up to twice or half as many.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "2,4,8")]
    #[arg(value_parser = super::values::number("ranks", 2..=RANK_LIMIT), conflicts_with = "nodes")]
    ranks: Vec<u32>,

    /// Time for all measurements; what has not been timed by then is predicted. Between nodes,
    /// candidates get a third of it even where measuring the parameters takes longer.
    /// [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = super::values::seconds)]
    time: Option<Duration>,

    /// Times no candidates: the models decide everywhere. Between nodes every plan is still timed at
    /// three sizes, which corrects the models.
    #[arg(long, conflicts_with_all = ["measure_all"])]
    models_only: bool,

    /// Times every algorithm at every size, however long that takes. Between nodes, with
    /// --measurements, it continues after the results in that directory.
    #[arg(long, conflicts_with = "time")]
    measure_all: bool,

    /// Checks the table in jobs of their own, at sizes that it was not made from: the times of its
    /// choices, and of those of the models alone, over the best time.
    #[arg(long)]
    check: bool,

    /// Takes few operations, few sizes and short repetitions, to show the steps. Programs should
    /// not use the resulting table, so --out must name another file; with --mpi, nothing is written
    /// without it.
    #[arg(long)]
    quick: bool,

    /// Writes all measurements to this directory, and uses parameters that it already has.
    #[arg(long, value_name = "DIR")]
    measurements: Option<PathBuf>,

    #[command(flatten)]
    made: NodesWanted,

    /// Times the collectives of an MPI library and tradewind's in turns: `tradewind mpi` takes over
    /// those that are faster from then on, instead of those of its built-in rule [default of --out:
    /// mpi.json beside the decision table]. In a job (mpiexec -n 4 tradewind tune --mpi) for its
    /// number of ranks; otherwise it starts a job for each number of --ranks. PLACE is the directory
    /// of the library, with bin and lib, or its launcher, such as /usr/bin/mpiexec.openmpi [default:
    /// the directory of the launcher, else the library that the loader finds].
    #[arg(long, value_name = "PLACE", num_args = 0..=1)]
    #[arg(conflicts_with_all = ["nodes", "check", "models_only", "measure_all"])]
    mpi: Option<Option<PathBuf>>,

    /// Measures the parameters that are built in, on this machine and on nodes made on it, and writes
    /// their files to this directory. Needs root.
    #[arg(long, value_name = "DIR", group = "place")]
    #[arg(conflicts_with_all = ["nodes", "mpi", "check", "ranks"])]
    built_in: Option<PathBuf>,

    /// Number of ranks on each node.
    #[arg(long, value_name = "R", default_value = "1", requires = "nodes")]
    #[arg(value_parser = super::values::number("ranks", NonZeroU32::MIN..=NonZeroU32::MAX))]
    ranks_per_node: NonZeroU32,
}

const AFTER: &str = "\
With TRADEWIND_EXPLAIN=1 a program prints the algorithm of each collective and the reason for it.
With TRADEWIND_DECISIONS set to an empty value it uses no table.";

const QUICK_PLACE: &str =
    "with --quick, the table must not be that of all programs: name a file with --out\n";

/// Time of all measurements without --time.
const USUAL_TIME: Duration = Duration::from_secs(60);

impl Arguments {
    fn time(&self) -> Duration {
        let is_short = self.mpi.is_some() && self.quick;
        self.time.unwrap_or(if is_short { mpi::QUICK } else { USUAL_TIME })
    }
}

const NO_PLACE: &str =
    "there is no place for the decision table: name a file with --out, or set HOME";

pub(crate) fn execute(arguments: &Arguments, format: Format) -> anyhow::Result<ExitCode> {
    if let Some(place) = &arguments.mpi {
        if format == Format::Json {
            let error = "--format json: the result of --mpi is text\n";
            clap::Error::raw(ErrorKind::ArgumentConflict, error).exit();
        }
        return measure_mpi(arguments, place.as_deref());
    }
    if arguments.quick && arguments.out.is_none() && arguments.built_in.is_none() {
        clap::Error::raw(ErrorKind::MissingRequiredArgument, QUICK_PLACE).exit();
    }
    if let Some(directory) = &arguments.built_in {
        let temporary = tempfile::tempdir()?;
        let measurements = arguments.measurements.as_deref().unwrap_or(temporary.path());
        let tune_nodes =
            |nodes, out: &Path, path: &Path| on_made_nodes(arguments, nodes, out, path, format);
        return built_in::execute(arguments.quick, directory, measurements, tune_nodes);
    }
    anyhow::ensure!(
        arguments.made.link.is_none() || arguments.out.is_some(),
        "--link gives choices for nodes with links of that speed, and the table of this machine is for all its \
         programs: name another file with --out"
    );
    // Before minutes are spent on it.
    let out = arguments.out.clone().or_else(service::decisions_path).context(NO_PLACE)?;
    let folder = folder_of(&out)?;
    tempfile::tempfile_in(folder).map_err(cannot_write(&out))?;
    let temporary = tempfile::tempdir()?;
    if let Some(nodes) = arguments.made.nodes {
        let path = arguments.measurements.as_deref().unwrap_or(temporary.path());
        let nodes = (nodes, arguments.ranks_per_node);
        return on_made_nodes(arguments, nodes, &out, path, format);
    }
    if let Ok(Launch::ManyNodes { .. }) = detect(&Environment) {
        return in_job(arguments, &out, temporary.path(), format);
    }
    refuse_in_job()?;
    let path = arguments.measurements.clone().unwrap_or_else(|| temporary.path().to_owned());
    warn_of_crowds(&arguments.ranks);
    let setting = setting(arguments);
    let place = |again| suite::ResultsLocation {
        out: path.clone(),
        again,
        temporary: arguments.measurements.is_none(),
    };
    // As `measure progress` without options, so that its results can be used.
    let usual = arguments.ranks == USUAL_RANKS;
    let options = if usual { BTreeMap::new() } else { ranks_option(arguments) };
    let progress = Setting { options, ..setting.clone() };
    let mut status = suite::quietly("progress", &progress, &place(false))?;
    if status == ExitCode::SUCCESS {
        let check = [Purpose::Check.name()].into_iter().filter(|_| arguments.check);
        let names: Vec<&str> = [Purpose::Decision.name()].into_iter().chain(check).collect();
        status = suite::these(&names, &setting, &place(true), format)?;
    }
    // What was measured before an interruption counts.
    keep(&Directory::create(&path)?, &out, arguments.quick)?;
    Ok(status)
}

/// Measures an MPI library.
fn measure_mpi(arguments: &Arguments, place: Option<&Path>) -> anyhow::Result<ExitCode> {
    let default = || Environment.mpi_table_file().context(NO_PLACE);
    let out = match &arguments.out {
        Some(out) => Some(out.clone()),
        None if arguments.quick => None,
        None => Some(default()?),
    };
    if let Some(out) = &out {
        folder_of(out)?;
    }
    let out = out.map(std::path::absolute).transpose()?;
    let measurement = mpi::MpiMeasurement {
        place,
        out: out.as_deref(),
        time: arguments.time(),
        is_quick: arguments.quick,
    };
    measurement.execute(&arguments.ranks)
}

/// Makes nodes, and tunes in a job on them: once for the engines in user space, once for the
/// kernel.
fn on_made_nodes(
    arguments: &Arguments,
    (nodes, ranks_per_node): (u32, NonZeroU32),
    out: &Path,
    path: &Path,
    format: Format,
) -> anyhow::Result<ExitCode> {
    let made = MadeNodes::new(nodes, ranks_per_node, arguments.made.link)?;
    let mut line: Vec<OsString> = vec!["tune".into(), "--out".into()];
    line.push(std::path::absolute(out)?.into());
    line.extend(["--measurements".into(), std::path::absolute(path)?.into()]);
    line.extend(arguments.quick.then(|| "--quick".into()));
    line.extend(arguments.models_only.then(|| "--models-only".into()));
    line.extend(arguments.measure_all.then(|| "--measure-all".into()));
    let engines = made.engines();
    if !arguments.measure_all {
        let share = arguments.time().as_secs_f64() / engines.len().max(1) as f64;
        line.extend(["--time".into(), share.to_string().into()]);
    }
    for engine in engines {
        made.run(engine, &line, format)?;
    }
    if arguments.check {
        // The table is complete when all engines have been measured.
        let mut line: Vec<OsString> = vec!["measure".into(), "regret".into(), "--again".into()];
        line.extend(["--out".into(), std::path::absolute(path)?.into()]);
        line.extend(arguments.quick.then(|| "--quick".into()));
        for engine in engines {
            made.run(engine, &line, format)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Tunes collectives between the nodes of the job that this process is a rank of.
fn in_job(
    arguments: &Arguments,
    out: &Path,
    temporary: &Path,
    format: Format,
) -> anyhow::Result<ExitCode> {
    let path = arguments.measurements.clone().unwrap_or_else(|| temporary.to_owned());
    let temporary = arguments.measurements.is_none();
    let place = |again| suite::ResultsLocation { out: path.clone(), again, temporary };
    // Before the parameters are measured, which takes part of the time.
    let setting = setting(arguments);
    let plain = Setting { options: BTreeMap::new(), ..setting.clone() };
    let setting = arguments.made.with_link(setting);
    let plain = arguments.made.with_link(plain);
    let job = Job::init()?;
    let world = job.world();
    let plain = nodes::of_job(world, plain)?;
    nodes::announce_engine(world, &plain);
    super::measure::in_job::in_job(&job, &plain, &place(false), || {
        nodes::experiment("plogp", &plain)
    })?;
    let networks = compare_networks(&job, &setting);
    let setting = Setting { nodes: plain.nodes.clone(), ..setting };
    // With a limit on the time, what was timed before depends on it; all of it goes on.
    let again = !arguments.measure_all;
    let measure = |purpose: Purpose, setting: &Setting| {
        let build = || nodes::experiment(purpose.name(), setting);
        super::measure::in_job::in_job(&job, setting, &place(again), build)
    };
    measure(Purpose::Calibration, &setting)?;
    // Parameters that were not there take more than the time: some is left for candidates.
    let mut found =
        measure(Purpose::Decision, &until_at_least(setting.clone(), arguments.time() / 3))?;
    if arguments.check {
        found.parts.extend(measure(Purpose::Check, &setting)?.parts);
    }
    let mut kept = Ok(());
    if world.rank() == 0 {
        let losses = losses_between_nodes(&Measurements::read(&path)?);
        found.parts.extend(losses.filter(|_| arguments.check));
        suite::show(found, &place(true), format)?;
        let directory = Directory::create(&path)?;
        if !networks.0.is_empty() {
            let mut machine = Machine::read(&directory.machine())?;
            machine.networks = networks;
            machine.write(&directory.machine())?;
        }
        kept = keep(&directory, out, arguments.quick);
    }
    job.finish()?;
    kept.map(|()| ExitCode::SUCCESS)
}

/// Times over the networks between the first two nodes, on rank 0, which prints the fastest one.
/// Without them the rest of the measurements counts.
fn compare_networks(job: &Job, setting: &Setting) -> Networks {
    let Some(address) = job.address() else { return Networks::default() };
    let compared = networks::compare(job.world(), address, setting);
    if job.world().rank() != 0 {
        return Networks::default();
    }
    let Comparison { networks, skipped } = compared.unwrap_or_else(|error| Comparison {
        skipped: vec![format!("networks are not compared: {error}")],
        ..Comparison::default()
    });
    for text in skipped {
        eprintln!("tradewind: {text}");
    }
    if let Some(FastestNetwork { provider, why }) = networks.fastest() {
        let name = provider.map_or_else(|| TCP.to_owned(), |name| Networks::of_provider(&name));
        eprintln!("tradewind: TRADEWIND_NETWORK=auto takes {name}: {why}");
    }
    networks
}

/// Adds a directory's table and parameters to those that are kept; noisy ones replace none that are
/// not, unless all of it is quick.
fn keep(directory: &Directory, out: &Path, is_quick: bool) -> anyhow::Result<()> {
    let table = match suite::decisions(directory)? {
        Some(table) if !table.rows().is_empty() => table,
        _ => {
            let path = out.display();
            eprintln!("tradewind: nothing was measured, so that {path} is left as it is");
            return Ok(());
        }
    };
    let here = table.fingerprint().clone();
    let written = summary(&table);
    let machine = directory.machine();
    let newer = machine.exists().then(|| Machine::read(&machine)).transpose()?;
    let beside = out.with_file_name(service::MACHINE_FILE);
    // What is of another machine or cannot be read any more is replaced.
    let old = Machine::read_for(&beside, &here).ok();
    if let (Some(old), Some(newer)) = (&old, &newer) {
        let spoilt = old.spoilt_by(newer);
        if !spoilt.is_empty() && !is_quick {
            anyhow::bail!(
                "noisy: {}; {} and the parameters beside it are left as they are: tune again when less else runs on the \
                 machine",
                spoilt.join("; "),
                out.display()
            );
        }
    }
    for line in noisy_rows(&table) {
        eprintln!("tradewind: noisy: {line}");
    }
    // Another `tradewind tune` may write, too. A new file has nothing to lose.
    let _lock = out.exists().then(|| models::file::lock(out)).transpose()?;
    match DecisionTable::read_for(out, &here) {
        Ok(old) if is_quick => old.replaced_by(&table).write(out)?,
        Ok(old) => {
            let all = table.rows().len();
            let unspoilt = old.unspoilt_by(table);
            let kept = all - unspoilt.rows().len();
            if kept > 0 {
                eprintln!(
                    "tradewind: {kept} rows that were measured without noise before are left as \
                     they are: tune again when less else runs on the machine"
                );
            }
            old.replaced_by(&unspoilt).write(out)?;
        }
        Err(_) => table.write(out)?,
    }
    if let Some(newer) = newer {
        for noisy in newer.disturbances() {
            eprintln!("tradewind: noisy: {noisy}; tune again when less else runs on the machine");
        }
        let machine = match old {
            Some(mut old) => {
                old.absorb(newer);
                old
            }
            None => newer,
        };
        machine.write(&beside)?;
    }
    eprintln!("tradewind: {written} written to {}", out.display());
    Ok(())
}

/// A line for each disturbance of rows.
fn noisy_rows(table: &DecisionTable) -> Vec<String> {
    let mut rows: BTreeMap<&str, Vec<&DecisionRow>> = BTreeMap::new();
    for row in table.rows() {
        if let Some(why) = &row.disturbed {
            rows.entry(why).or_default().push(row);
        }
    }
    let line = |(why, rows): (&str, Vec<&DecisionRow>)| match rows[..] {
        [DecisionRow { form, operation, ranks, .. }] => {
            format!("{form} {operation} among {ranks} ranks: {why}")
        }
        _ => format!("{} rows of the table: {why}", rows.len()),
    };
    rows.into_iter().map(line).collect()
}

fn ranks_option(arguments: &Arguments) -> BTreeMap<String, String> {
    let ranks = arguments.ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    [(RANKS.to_owned(), ranks)].into()
}

fn setting(arguments: &Arguments) -> Setting {
    let mut options = ranks_option(arguments);
    if arguments.models_only {
        options.insert(EFFORT.to_owned(), MODELS_ONLY.to_owned());
    } else if arguments.measure_all {
        options.insert(EFFORT.to_owned(), MEASURE_ALL.to_owned());
    } else {
        options.insert(UNTIL.to_owned(), milliseconds_after(arguments.time()).to_string());
    }
    Setting { quick: arguments.quick, options, ..Setting::default() }
}

/// Milliseconds from the epoch to the end of this time.
fn milliseconds_after(time: Duration) -> u128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_add(time).as_millis()
}

/// The setting with at least this time from now on, if it has a limit.
fn until_at_least(mut setting: Setting, time: Duration) -> Setting {
    if let Some(until) = setting.options.get_mut(UNTIL) {
        let least = milliseconds_after(time);
        let given = until.parse().unwrap_or(least);
        *until = given.max(least).to_string();
    }
    setting
}

/// "66 rows: 120 plans predicted, 14 measured, 83 both".
fn summary(table: &DecisionTable) -> String {
    let ranges = || table.rows().iter().flat_map(|row| &row.ranges);
    let count = |evidence| ranges().filter(|range| range.time.evidence() == Some(evidence)).count();
    let [predicted, measured, both] = Evidence::ALL else { return String::new() };
    format!(
        "{} rows ({} plans predicted, {} measured, {} predicted and measured)",
        table.rows().len(),
        count(*predicted),
        count(*measured),
        count(*both)
    )
}

/// The directory of the table, made if it is not there.
fn folder_of(out: &Path) -> anyhow::Result<&Path> {
    let folder =
        out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(cannot_write(out))?;
    Ok(folder)
}

/// Many ranks on few cores take turns, and their measurement its time.
fn warn_of_crowds(ranks: &[u32]) {
    /// Ranks a core that a measurement is made for.
    const USUAL: usize = 8;
    let cores = shm::process::allowed_cores().len();
    for ranks in ranks.iter().filter(|ranks| **ranks as usize > USUAL * cores) {
        eprintln!(
            "tradewind: {ranks} ranks share {cores} cores: this takes long, and what it finds out is \
             mostly how they take turns"
        );
    }
}
