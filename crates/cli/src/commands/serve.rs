//! `tradewind serve`: the node service of a job that another launcher has started. The first rank
//! executes it.

use crate::failure::Failure;
use engine::node::EngineKind;
use service::spawn::{ServeOptions, detach, serve};
use std::net::IpAddr;
use std::process::{Command, ExitCode};

/// Runs the node service of a job that another launcher has started.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
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

    /// The ranks belong to another runtime, such as MPI: keep none of their descriptors.
    #[arg(long)]
    embedded: bool,

    /// Run the service in this process instead of a detached one.
    #[arg(long)]
    stay: bool,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let Arguments { name, ranks, engine, cores, listen, embedded, stay } = arguments;
    if *stay {
        serve(&ServeOptions {
            name: name.clone(),
            ranks: *ranks,
            engine: *engine,
            cores: *cores,
            listen: *listen,
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    // Not the name in the command line: this very program, wherever it was found.
    let mut itself = Command::new("/proc/self/exe");
    let keeps_descriptors = listen.is_some() && !embedded;
    detach(itself.args(std::env::args_os().skip(1)).arg("--stay"), keeps_descriptors)?;
    Ok(ExitCode::SUCCESS)
}
