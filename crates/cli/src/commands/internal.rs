//! `tradewind internal`: processes that commands and ranks start. No user calls it.

use super::measure::suite;
use super::{exec, run};
use engine::node::EngineKind;
use service::spawn::ServeOptions;
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

/// Is a process of a job: a rank, the launcher of a node, or a service.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    process: Process,
}

#[derive(Debug, clap::Subcommand)]
enum Process {
    /// Runs one rank of a measurement or of a GOAL file.
    Rank {
        #[command(subcommand)]
        task: Task,
    },
    /// Is the launcher of one node of a job on several; `tradewind run --nodes` executes it there.
    Node,
    /// Runs the node service of a job that another launcher has started. The first rank executes
    /// it.
    Serve(NodeService),
    /// Runs the name server of a user on a node. The first job that needs it executes it.
    ServeNames {
        /// Name of the server's listening socket.
        name: String,
    },
}

#[derive(Debug, clap::Subcommand)]
enum Task {
    Steps(suite::rank::Arguments),
    File(exec::rank::Arguments),
}

/// The node service of a job.
#[derive(Debug, clap::Args)]
struct NodeService {
    /// Name of the service's listening socket.
    name: String,

    /// Number of ranks.
    #[arg(long)]
    ranks: u32,

    /// Engine that runs operations.
    #[arg(long)]
    engine: EngineKind,

    /// Cores that the ranks share.
    #[arg(long)]
    cores: u32,

    /// Address at which to listen for the node services of the job's other nodes.
    #[arg(long)]
    listen: Option<IpAddr>,

    /// The ranks belong to another runtime, such as MPI, and enter all or none: end if standard
    /// output closes before all have joined.
    #[arg(long)]
    embedded: bool,
}

impl Arguments {
    /// Returns true if ranks have started this process; their launcher has reported its variables.
    pub(crate) fn is_service(&self) -> bool {
        matches!(self.process, Process::Serve(_) | Process::ServeNames { .. })
    }
}

pub(crate) fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    match &arguments.process {
        Process::Rank { task: Task::Steps(arguments) } => {
            Ok(exit_code(suite::rank::measure(arguments)))
        }
        Process::Rank { task: Task::File(arguments) } => {
            exec::rank::execute(arguments)?;
            Ok(ExitCode::SUCCESS)
        }
        Process::Node => {
            let outcome = service::launcher::launch_on_this_node()?;
            run::report(&outcome, None, Duration::ZERO);
            Ok(ExitCode::from(outcome.exit_status()))
        }
        Process::Serve(of_job) => {
            let NodeService { name, ranks, engine, cores, listen, embedded } = of_job;
            service::spawn::serve(&ServeOptions {
                name: name.clone(),
                ranks: *ranks,
                engine: *engine,
                cores: *cores,
                listen: *listen,
                is_embedded: *embedded,
            })?;
            Ok(ExitCode::SUCCESS)
        }
        Process::ServeNames { name } => {
            names::serve(name)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Prints the error of a rank; the command that started it writes the number of the rank before it.
fn exit_code(result: Result<(), impl std::fmt::Display>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
