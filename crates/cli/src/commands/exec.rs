//! `tradewind exec`: runs a GOAL file for real; checks and converts files, and merges profiles.

mod check;
mod convert;
mod launch;
mod messages;
mod pattern;
mod placement;
pub(crate) mod rank;
mod trace;
mod verification;

use crate::failure::{cannot_write, problem_of};
use crate::format::Format;
use crate::goal_file::GoalFile;
use crate::trace as profile;
use ::launch::environment::TRACE;
use comfy_table::{Table, presets};
use engine::node::{EngineKind, RANK_LIMIT};
use goal::check::{GlobalOptions, global};
use goal::graph::{Graph, Operation};
use serde::Serialize;
use service::launcher::LaunchOptions;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Runs a GOAL file, text or binary, with real messages between a process for each of its ranks.
///
/// Payloads are filled with a pattern that depends on source, destination, tag, and position, and
/// every received byte is checked. A receive with a wildcard must have one of the messages that it
/// admits, and no message may be received twice. The nic of an operation is counted and not
/// interpreted.
///
/// A calc spins on its rank's only thread. All other operations of its cpu wait, except a message
/// for a posted receive with a wildcard: it moves at once. Where a
/// cpu has no calc, or calcs are skipped, its messages take only the time to move them. With the
/// peers engine several processes may move them at once; with the caller engine the rank itself
/// executes one operation at a time.
///
/// The file is checked first, as by `tradewind exec check`. The exit status is 1 if the file has an
/// error or a received byte is wrong, else that of the first rank that fails.
#[derive(Debug, clap::Args)]
#[command(after_help = JSON, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    other: Option<Other>,

    /// The file; - is standard input. (`./check` where a file has the name of a subcommand.)
    #[arg(required = true)]
    file: Option<PathBuf>,

    /// Effect of a calc operation: spin for its time, or complete at once.
    #[arg(long, value_enum, default_value_t)]
    calc: Calc,

    /// Engine that runs operations: peers (the rank that completes their last dependency) or caller (their owner,
    /// in its own calls).
    #[arg(long, env = "TRADEWIND_ENGINE", default_value_t = EngineKind::Peers)]
    #[arg(value_parser = super::values::engine)]
    engine: EngineKind,

    #[command(flatten)]
    eager_limit: super::values::EagerLimit,

    /// End the run after this many seconds, with exit status 124. A receive with a
    /// wildcard can block another one.
    #[arg(long, value_name = "SECONDS", value_parser = super::values::time_limit)]
    timeout: Option<Duration>,

    /// Write a profile of every operation to this file, which ui.perfetto.dev opens.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

const JSON: &str = "\
With --format json: {file, engine, calc, ranks, operations, messages, bytes, seconds, verified, nics}. Seconds are from the
moment the first rank starts to the end of the last operation; nics is [{nic, operations}] of sends and receives.";

/// Another action on a file.
#[derive(Debug, clap::Subcommand)]
enum Other {
    /// Reports the errors of a GOAL file.
    Check(check::Arguments),
    /// Converts a GOAL file from text to binary or back.
    Convert(convert::Arguments),
    Trace(trace::Arguments),
}

/// Effect of a calc operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Calc {
    /// Keeps its core busy for its time.
    #[default]
    Spin,
    /// Ends at once.
    Skip,
}

#[derive(Debug, Serialize)]
struct ExecReport {
    file: String,
    engine: &'static str,
    calc: Calc,
    ranks: usize,
    operations: usize,
    messages: u64,
    bytes: u64,
    seconds: f64,
    verified: bool,
    nics: Vec<Nic>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Nic {
    nic: u8,
    operations: u64,
}

pub(crate) fn execute(arguments: &Arguments, format: Format) -> anyhow::Result<ExitCode> {
    match (&arguments.other, &arguments.file) {
        (Some(Other::Check(arguments)), _) => check::execute(arguments, format),
        (Some(Other::Convert(arguments)), _) => convert::execute(arguments, format),
        (Some(Other::Trace(arguments)), _) => trace::execute(arguments),
        (None, Some(file)) => run(file, arguments, format),
        (None, None) => Err(anyhow::anyhow!("name a file; --help lists the arguments")),
    }
}

/// Runs the file.
fn run(path: &Path, arguments: &Arguments, format: Format) -> anyhow::Result<ExitCode> {
    let read = GoalFile::read(path)?;
    let ranks = read.graphs.len() as u32;
    if ranks > RANK_LIMIT {
        let problem = format!("it has {ranks} ranks, a job has at most {RANK_LIMIT}");
        return Err(problem_of(path)(problem));
    }
    let mut options = LaunchOptions::new(ranks, arguments.engine)?;
    options.job.skip_calc = arguments.calc == Calc::Skip;
    options.job.eager_limit = arguments.eager_limit.bytes()?;
    if let Err(problems) =
        global(&read.graphs, &GlobalOptions { eager_limit: options.job.eager_limit })
    {
        for problem in problems {
            eprintln!("{}: {problem}", path.display());
        }
        return Ok(ExitCode::FAILURE);
    }
    if let Some(file) = &arguments.trace {
        crate::goal_file::check_writable(file)?;
    }
    options.limit = arguments.timeout;
    let scratch = tempfile::tempdir().map_err(cannot_write(&std::env::temp_dir()))?;
    if arguments.trace.is_some() {
        options.environment.push((TRACE.into(), scratch.path().into()));
    }
    let file = for_ranks(path, &read.graphs, scratch.path())?;
    let (outcome, heard) = launch::run(&file, options)?;
    match outcome.failed {
        _ if outcome.out_of_time => {
            eprintln!(
                "tradewind: the run was not over after {:?}",
                arguments.timeout.unwrap_or_default()
            );
        }
        Some((rank, how)) => eprintln!("tradewind: rank {rank} failed: {how}"),
        None => {}
    }
    if let Some(file) = &arguments.trace {
        profile::merge(scratch.path(), ranks, file)?;
    }
    let Some(heard) = heard else {
        return Ok(ExitCode::from(outcome.exit_status().max(1)));
    };
    let report = report(path, arguments, &read.graphs, heard);
    format.print(|| table(&report), &report)?;
    Ok(if report.verified { ExitCode::from(outcome.exit_status()) } else { ExitCode::FAILURE })
}

/// The file that ranks read: a copy of standard input, which is readable once.
fn for_ranks(path: &Path, graphs: &[Graph], scratch: &Path) -> anyhow::Result<PathBuf> {
    if path != Path::new("-") {
        return Ok(path.to_owned());
    }
    let copy = scratch.join("input.bin");
    let bytes = goal::binary::write(graphs).map_err(|error| problem_of(path)(error.to_string()))?;
    std::fs::write(&copy, bytes).map_err(cannot_write(&copy))?;
    Ok(copy)
}

fn report(
    path: &Path,
    arguments: &Arguments,
    graphs: &[Graph],
    heard: rank::RankReport,
) -> ExecReport {
    let (mut messages, mut bytes, mut nics) = (0, 0, BTreeMap::<u8, u64>::new());
    for entry in graphs.iter().flat_map(Graph::vertices) {
        if let Operation::Send { data, .. } = &entry.operation {
            messages += 1;
            bytes += data.bytes().unwrap_or(0);
        }
        if !matches!(entry.operation, Operation::Calc { .. }) {
            *nics.entry(entry.nic).or_default() += 1;
        }
    }
    ExecReport {
        file: path.display().to_string(),
        engine: arguments.engine.name(),
        calc: arguments.calc,
        ranks: graphs.len(),
        operations: graphs.iter().map(|graph| graph.vertices().len()).sum(),
        messages,
        bytes,
        seconds: heard.nanoseconds as f64 / 1e9,
        verified: heard.wrong == 0,
        nics: nics.into_iter().map(|(nic, operations)| Nic { nic, operations }).collect(),
    }
}

fn table(report: &ExecReport) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    let nics: Vec<String> =
        report.nics.iter().map(|Nic { nic, operations }| format!("{nic}: {operations}")).collect();
    let rows = [
        ("file", report.file.clone()),
        ("engine", report.engine.to_owned()),
        ("ranks", report.ranks.to_string()),
        ("operations", report.operations.to_string()),
        ("messages", report.messages.to_string()),
        ("bytes", report.bytes.to_string()),
        ("seconds", format!("{:.6}", report.seconds)),
        (
            "verified",
            if report.verified { "every byte".to_owned() } else { "no: see above".to_owned() },
        ),
        ("operations by nic", nics.join(", ")),
    ];
    for (name, value) in rows {
        table.add_row([name, value.as_str()]);
    }
    table.to_string()
}
