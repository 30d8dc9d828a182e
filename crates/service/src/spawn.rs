//! The node service as a process of its own, for ranks that another launcher than `tradewind run`
//! has started.

use crate::error::ServiceError;
use crate::job_options::job_options;
use engine::node::{EngineKind, JobOptions};
use launch::environment::{COMMAND, Environment, INTERNODE, InternodeEngine, Lookup};
use network::job_nodes::ServiceEndpoint;
use shm::broker::BrokerError;
use shm::detached::{Detached, READY, TAKEN, report};
use std::ffi::OsString;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::process::Command;

/// A job of another launcher.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) ranks: u32,
    /// The launcher's process, if known.
    pub(crate) launcher: Option<u32>,
    pub(crate) engine: EngineKind,
    /// Address at which the service listens for the services of other nodes, if there are any.
    pub(crate) listen: Option<IpAddr>,
    /// The `tradewind` command, if neither the environment nor PATH is to find it.
    pub(crate) command: Option<OsString>,
    /// The choice of the engine between nodes.
    pub(crate) internode: InternodeEngine,
    /// The ranks belong to another runtime, which needs the ends of their descriptors, also where
    /// the job has several nodes. The service ends if its [`Lifeline`] does before all are there.
    pub(crate) is_embedded: bool,
}

impl Job {
    /// Returns whether the service keeps the descriptors of the rank that starts it. A launcher of
    /// several nodes then sees the end of that rank late, and the other ranks of the node can report
    /// the failure before the launcher ends them. Otherwise the service keeps none: as long as it
    /// had the connection of PMI, the launcher would not see the rank end.
    fn keeps_descriptors(&self) -> bool {
        self.listen.is_some() && !self.is_embedded
    }
}

/// The end of the service's standard output in the rank that has started it. The system closes it
/// with the rank, however that ends.
#[derive(Debug)]
pub(crate) struct Lifeline(
    #[expect(dead_code, reason = "it counts as long as it is open")] OwnedFd,
);

/// Result of the start of a service.
#[derive(Debug, Default)]
pub(crate) struct Started {
    /// The endpoint for other nodes, if this call has started the service and the job has others.
    pub(crate) endpoint: Option<ServiceEndpoint>,
    /// Present if this call has started the service.
    pub(crate) lifeline: Option<Lifeline>,
}

/// Spawns the service, unless another rank has, and returns when ranks can connect. The service is
/// no child of this process, which may be the program of another runtime.
pub(crate) fn spawn(job: &Job) -> Result<Started, ServiceError> {
    let command = Environment.get(COMMAND).or_else(|| job.command.clone());
    let command = command.unwrap_or_else(|| OsString::from("tradewind"));
    let mut service = Command::new(&command);
    service
        // What a user loads before the ranks, such as the preload library for MPI, is not for the
        // service.
        .env_remove("LD_PRELOAD")
        .args([
            "internal",
            "serve",
            &job.name,
            "--ranks",
            &job.ranks.to_string(),
            "--engine",
            job.engine.name(),
        ])
        .args(["--cores", &cores(job.launcher).to_string()])
        .args(job.listen.iter().flat_map(|ip| ["--listen".to_owned(), ip.to_string()]))
        .args(job.is_embedded.then_some("--embedded"))
        .envs((job.internode == InternodeEngine::Agent).then_some((INTERNODE, "agent")))
        .envs(provider_ports()?);
    let limit = Environment.start_timeout()?;
    let Detached { line, output } =
        shm::detached::start(&service, job.keeps_descriptors(), limit).map_err(|source| {
            ServiceError::NoCommand { command: command.display().to_string(), source }
        })?;
    let endpoint = line.strip_prefix(READY).and_then(|rest| rest.strip_prefix(' '));
    let invalid = |_| ServiceError::NotReady(format!("it printed an invalid endpoint: {line}"));
    let endpoint = endpoint.map(|text| text.parse().map_err(invalid)).transpose()?;
    match line.as_str() {
        TAKEN => Ok(Started::default()),
        line if line == READY || endpoint.is_some() => {
            Ok(Started { endpoint, lifeline: Some(Lifeline(output)) })
        }
        "" => Err(ServiceError::NotReady(format!("{} ended without a message", command.display()))),
        why => Err(ServiceError::NotReady(why.to_owned())),
    }
}

/// Returns the variables by which libfabric's provider `tcp` chooses its port from the range of the
/// job, unless the user has set one of them. It reads them in the process that loads it.
fn provider_ports() -> Result<Vec<(&'static str, String)>, ServiceError> {
    const RANGE: [&str; 2] = ["FI_TCP_PORT_LOW_RANGE", "FI_TCP_PORT_HIGH_RANGE"];
    let is_set = RANGE.iter().any(|name| Environment.get(name).is_some());
    let bounds = Environment.ports()?.bounds().filter(|_| !is_set);
    let values = bounds.map(|(first, last)| RANGE.into_iter().zip([first, last]));
    Ok(values.into_iter().flatten().map(|(name, port)| (name, port.to_string())).collect())
}

/// Returns the number of cores that the ranks share. A launcher may have bound this rank to one
/// core, but is rarely bound itself.
fn cores(launcher: Option<u32>) -> usize {
    let own = shm::process::allowed_cores().len();
    let of_launcher = launcher
        .and_then(|pid| rustix::process::Pid::from_raw(pid.cast_signed()))
        .and_then(|pid| rustix::thread::sched_getaffinity(Some(pid)).ok())
        .map_or(0, |set| set.count() as usize);
    own.max(of_launcher).max(1)
}

/// Options of `tradewind internal serve`.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Name of the service.
    pub name: String,
    /// Number of ranks.
    pub ranks: u32,
    /// The engine of the job.
    pub engine: EngineKind,
    /// Cores that the ranks share.
    pub cores: u32,
    /// Address at which to listen for the services of other nodes, if there are any.
    pub listen: Option<IpAddr>,
    /// True if the service ends when its standard output closes before all ranks have joined.
    pub is_embedded: bool,
}

/// Runs the node service until the last rank has exited. Prints one line on standard output: that
/// ranks can connect, with the endpoint for other nodes if there are any, or the error.
///
/// # Errors
/// If the service cannot be started; the error is also printed on standard output.
pub fn serve(options: &ServeOptions) -> Result<(), ServiceError> {
    // The rank that has started it may be bound to one core, which it needs itself.
    if shm::process::allowed_cores().len() < options.cores as usize {
        shm::process::allow_all_cores();
    }
    let outcome = job_options(options.ranks, options.engine).and_then(|job| {
        let job = JobOptions { cores: options.cores, ..job };
        let ready = |endpoint: Option<ServiceEndpoint>| match endpoint {
            None => report(READY),
            Some(endpoint) => report(&format!("{READY} {endpoint}")),
        };
        crate::node_service::serve(
            &options.name,
            &job,
            (options.listen, options.is_embedded),
            Environment.start_timeout()?,
            ready,
        )
    });
    match &outcome {
        Ok(()) => {}
        Err(ServiceError::Broker(BrokerError::NameTaken { .. })) => {
            report(TAKEN);
            return Ok(());
        }
        Err(error) => report(&error.to_string()),
    }
    outcome
}
