//! Entry of this process into its job, as its environment describes it.

use crate::attachment::{Attachment, CONNECT_LIMIT, Entry, ONE_NODE, enter, join, request_entry};
use crate::error::ServiceError;
use crate::events::{Events, NodeEvent};
use crate::job_options::job_options_from;
use crate::many_nodes;
use crate::spawn::{Job, spawn};
use engine::node::{EngineKind, Node};
use launch::LaunchError;
use launch::detect::{Launch, detect};
use launch::environment::{CORE, ENGINE, Environment, InternodeEngine, Lookup};
use shm::broker::{BrokerError, Connection, connect};
use shm::process::ProcessHandle;
use std::time::{Duration, Instant};

/// Joins the job for which this process was started, and waits until all ranks have joined.
///
/// The environment identifies the job. The process was started by `tradewind run`, or by another
/// launcher (Slurm, torchrun, one with PMI or PMIx), or the variables TRADEWIND_JOB, TRADEWIND_RANK
/// and TRADEWIND_SIZE are set. Under another launcher the first rank on each node starts the node
/// service, by executing the `tradewind` command. Otherwise the job is this process alone. Ranks on
/// several nodes find each other through PMI, PMIx, or TCP connections with rank 0.
///
/// # Errors
/// If the environment is incomplete, the service cannot be reached or started, or a rank does not
/// join within TRADEWIND_START_TIMEOUT seconds (60 by default); then
/// [`RankFailed`](engine::Error::RankFailed) names it.
pub fn attach() -> Result<Attachment, ServiceError> {
    launch::environment::warn_of_misspelt();
    let _occupied = shm::inherited::occupy_standard_numbers();
    attach_with(&Environment)
}

fn attach_with(environment: &impl Lookup) -> Result<Attachment, ServiceError> {
    let limit = environment.start_timeout()?;
    let mut attachment = match detect(environment)? {
        Launch::Single => alone(environment)?,
        Launch::Run { service, rank, ranks } => enter(&service, rank, ranks, limit)?,
        Launch::OneNode { name, rank, ranks, launcher } => {
            let engine = engine_kind(environment)?;
            let job = Job {
                name,
                ranks,
                launcher,
                engine,
                listen: None,
                command: None,
                internode: InternodeEngine::Any,
                is_embedded: false,
            };
            enter_or_spawn(&job, rank, limit)?
        }
        Launch::ManyNodes { manager, launcher } => {
            let engine = engine_kind(environment)?;
            many_nodes::enter(environment, &manager, launcher, engine, limit)?
        }
    };
    if let Some(core) = environment.number(CORE)? {
        shm::process::bind_current_thread(core as usize)?;
    }
    attachment.member.publish_waits(attachment.rank)?;
    attachment.member.wait_for_all(limit)?;
    Ok(attachment)
}

/// Creates a job of this process alone.
fn alone(environment: &impl Lookup) -> Result<Attachment, ServiceError> {
    let node = Node::create(&job_options_from(environment, 1, engine_kind(environment)?)?)?;
    Ok(Attachment {
        member: node.join(0)?,
        rank: 0,
        ranks: 1,
        agent: None,
        kernel: Err(ONE_NODE.into()),
        internode: InternodeEngine::Any,
        nodes: None,
        rank_endpoint: None,
        address: None,
        network: None,
        node_timeout: Duration::ZERO,
    })
}

/// Returns the engine of a job without `tradewind run`, from TRADEWIND_ENGINE.
pub(crate) fn engine_kind(environment: &impl Lookup) -> Result<EngineKind, ServiceError> {
    let Some(name) = environment.text(ENGINE)? else { return Ok(EngineKind::Peers) };
    name.parse().map_err(|_| {
        let value = name.into();
        LaunchError::Variable { name: ENGINE, value, expected: "peers or caller" }.into()
    })
}

/// Connects to the job's service, or spawns it. Several ranks may do so at once; one of them
/// succeeds in spawning it.
fn enter_or_spawn(job: &Job, rank: u32, limit: Duration) -> Result<Attachment, ServiceError> {
    let deadline = Instant::now() + limit;
    loop {
        // Without a wait: if there is no service, this rank or another one spawns it. A second one
        // of the same name ends at once, because the name is taken.
        let connection = match connect(&job.name, Duration::ZERO) {
            Ok(connection) => connection,
            Err(BrokerError::NoService { .. }) => {
                // The lifeline is for the ranks of other runtimes.
                drop(spawn(job)?);
                connect(&job.name, CONNECT_LIMIT.min(limit))?
            }
            Err(BrokerError::Busy { .. }) => connect(&job.name, CONNECT_LIMIT.min(limit))?,
            Err(error) => return Err(error.into()),
        };
        match request_entry(&connection, rank, job.ranks, limit) {
            Ok(Entry::Admitted(segment, resources)) => {
                return join(segment, resources, &connection, (rank, job.ranks), None);
            }
            // An earlier job of the same name has just ended. Its service ends next, and then the
            // name is free.
            Ok(Entry::Over) | Err(ServiceError::Broker(BrokerError::Closed)) => {
                wait_for_end(&connection, deadline, limit)?
            }
            Err(error) => return Err(error),
        }
    }
}

/// Waits until the process at the other end has ended.
fn wait_for_end(
    connection: &Connection,
    deadline: Instant,
    waited: Duration,
) -> Result<(), ServiceError> {
    let Some(pid) = connection.peer().pid else { return Ok(()) };
    // No process of this number: it has ended already.
    let Ok(process) = ProcessHandle::open(pid) else { return Ok(()) };
    let ended = Events::new()?;
    ended.add(&process, NodeEvent::Listener)?;
    while !process.has_exited() {
        if Instant::now() >= deadline {
            return Err(ServiceError::Stale { pid, waited });
        }
        ended.wait(Some(deadline))?;
    }
    Ok(())
}
