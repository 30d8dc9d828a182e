//! `tradewind run`: starts the ranks of a job and waits for their end.

mod hosts;
mod nodes;

use super::values;
use crate::failure::cannot_write;
use crate::trace;
use ::launch::environment::TRACE;
use engine::node::EngineKind;
use names::ReservedNames;
use service::launcher::{Binding, LaunchOptions, NodesOptions, Outcome, Output};
use service::launcher::{launch, launch_on_nodes};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Runs a program as the ranks of a job.
///
/// Each rank finds TRADEWIND_RANK and TRADEWIND_SIZE in its environment. Rank 0 reads this
/// command's standard input, unless that is a terminal. SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2,
/// SIGTSTP and SIGCONT are passed on to the ranks; a second SIGINT or SIGTERM ends them. The exit
/// status is that of the first rank that fails.
///
/// With --nodes or --hostfile the ranks run on other nodes, started through ssh, which must connect
/// without a password. They have an empty standard input, the variables of their node, and those of
/// this command that begin with TRADEWIND_.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Number of ranks [default on several nodes: as many as they have].
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = values::ranks,
        required_unless_present_any = ["nodes", "hostfile"])]
    ranks: Option<u32>,

    #[command(flatten)]
    reach: nodes::Reach,

    /// Engine that runs operations: peers (the rank that completes their last dependency) or caller
    /// (their owner, in its own calls).
    #[arg(long, env = "TRADEWIND_ENGINE", default_value_t = EngineKind::Peers)]
    #[arg(value_parser = super::values::engine)]
    engine: EngineKind,

    /// Give each rank a core of its own [default: core if there are enough].
    #[arg(long, value_enum)]
    bind: Option<Bind>,

    /// The core of each rank, taken in turn: `--map 1,0` swaps two ranks, `--map 0` has all share a
    /// core.
    #[arg(long, value_name = "CORE,...", value_delimiter = ',', conflicts_with_all = ["bind", "nodes", "hostfile"])]
    map: Option<Vec<usize>>,

    /// Write each line of output with its rank before it.
    #[arg(long)]
    prefix: bool,

    /// End the job after this many seconds, with exit status 124.
    #[arg(long, value_name = "SECONDS", value_parser = values::time_limit)]
    timeout: Option<Duration>,

    /// Seconds that the other ranks may continue after one has failed, before they are terminated
    /// (SIGTERM, then SIGKILL).
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = values::seconds)]
    grace: Duration,

    /// Publish this name for the job before its ranks start; once for each name. Programs that
    /// connect with it wait until a rank has called Job::publish with the same name, which makes it
    /// the receiver. The name is free again at the end of the job.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["nodes", "hostfile"])]
    serve: Vec<String>,

    /// Write a profile of every operation to this file, which ui.perfetto.dev opens.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nodes", "hostfile"])]
    trace: Option<PathBuf>,

    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Bind {
    /// A core for each rank.
    Core,
    /// Wherever the system puts them.
    None,
}

pub(crate) fn execute(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Arguments {
        ranks,
        reach,
        engine,
        bind,
        map,
        prefix,
        timeout,
        grace,
        serve,
        trace,
        program,
    } = arguments;
    let (path, arguments) = program
        .split_first()
        .map_or((OsString::new(), &[][..]), |(path, rest)| (path.clone(), rest));
    if reach.has_nodes() {
        let nodes = reach.places(ranks)?;
        let shell = reach.shell();
        let options = NodesOptions {
            nodes: nodes.clone(),
            shell,
            command: nodes::command()?,
            engine,
            binds: bind.map(|bind| bind == Bind::Core),
            prefix,
            environment: reach.variables(),
            grace,
            limit: timeout,
        };
        let outcome = launch_on_nodes(&path, arguments, options)?;
        nodes::report(&outcome, &nodes);
        return Ok(ExitCode::from(outcome.exit_status()));
    }
    // The command line has either ranks or nodes.
    let ranks = ranks.unwrap_or(1);
    let mut options = LaunchOptions::new(ranks, engine)?;
    options.binding = binding(map, bind);
    if prefix {
        options.output = Output::prefixed();
    }
    options.environment = reach.variables();
    options.limit = timeout;
    options.grace = grace;
    // Until the job has ended.
    let itself = std::env::current_exe()?;
    let served = ReservedNames::publish(&serve, &itself)?;
    if !serve.is_empty() {
        options.environment.push(served.variable());
    }
    if let Some(file) = &trace {
        crate::goal_file::check_writable(file)?;
    }
    let parts = trace.is_some().then(tempfile::tempdir).transpose();
    let parts = parts.map_err(cannot_write(&std::env::temp_dir()))?;
    if let Some(parts) = &parts {
        options.environment.push((TRACE.into(), parts.path().into()));
    }
    let outcome = launch(&path, arguments, options)?;
    report(&outcome, timeout, grace);
    if let (Some(parts), Some(file)) = (parts, trace) {
        // What a killed rank has left of a line is no failure of this command.
        trace::merge(parts.path(), ranks, &file)?;
    }
    Ok(ExitCode::from(outcome.exit_status()))
}

fn binding(map: Option<Vec<usize>>, bind: Option<Bind>) -> Binding {
    match (map, bind) {
        (Some(map), _) => Binding::Map(map),
        (None, None) => Binding::Auto,
        (None, Some(Bind::Core)) => Binding::Core,
        (None, Some(Bind::None)) => Binding::None,
    }
}

/// Reports the first rank that failed, and those that were ended.
pub(super) fn report(outcome: &Outcome, timeout: Option<Duration>, grace: Duration) {
    let list: Vec<String> = outcome.ended.iter().map(ToString::to_string).collect();
    let word = if list.len() == 1 { "rank" } else { "ranks" };
    let ended = format!("ended {word} {}", list.join(", "));
    if outcome.out_of_time {
        eprintln!(
            "tradewind: the job was not over after {:?}; {ended}",
            timeout.unwrap_or_default()
        );
        return;
    }
    if let Some((rank, how)) = outcome.failed {
        eprintln!("tradewind: rank {rank} failed: {how}");
        if !list.is_empty() && grace.is_zero() {
            eprintln!("tradewind: {ended}");
        } else if !list.is_empty() {
            let verb = if list.len() == 1 { "was" } else { "were" };
            eprintln!("tradewind: {ended}, which {verb} still running {grace:?} later");
        }
    }
}
