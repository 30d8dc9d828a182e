//! `tradewind serve`: the node service of a job that another launcher has started. The first rank
//! executes it.

use crate::failure::Failure;
use engine::node::EngineKind;
use service::spawn::{ServeOptions, serve};
use std::net::IpAddr;
use std::process::ExitCode;

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

    /// The ranks belong to another runtime, such as MPI, and enter all or none: end if standard
    /// output closes before all have joined.
    #[arg(long)]
    embedded: bool,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let Arguments { name, ranks, engine, cores, listen, embedded } = arguments;
    serve(&ServeOptions {
        name: name.clone(),
        ranks: *ranks,
        engine: *engine,
        cores: *cores,
        listen: *listen,
        is_embedded: *embedded,
    })?;
    Ok(ExitCode::SUCCESS)
}
