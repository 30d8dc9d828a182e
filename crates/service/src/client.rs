//! A rank's way into its job.

use crate::error::ServiceError;
use crate::identity::{self, Origin};
use crate::protocol::{Answer, Hello};
use crate::start;
use crate::variables::{CORE, ENGINE, Environment, Lookup};
use engine::Error;
use engine::member::Member;
use engine::node::{EngineKind, JobOptions, Node};
use shm::broker::{BrokerError, Connection, connect};
use shm::process::ProcessHandle;
use shm::segment::Segment;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The service of `tradewind run` stands before the first rank is started; so a rank that does not find it at once never
/// will. Some time all the same, because all ranks may knock at the same moment.
const KNOCKING: Duration = Duration::from_secs(5);

/// A process that has joined its job.
#[derive(Debug)]
pub struct Attachment {
    /// The membership.
    pub member: Member,
    /// Number of ranks of the job.
    pub ranks: u32,
}

/// Joins the job that this process was started for and waits until all ranks have.
///
/// Who started the process says which job: `tradewind run`; another launcher (Slurm, or one that speaks PMI or is Open
/// MPI's), whose first rank then starts the node service by executing the `tradewind` command; or TRADEWIND_JOB,
/// TRADEWIND_RANK and TRADEWIND_SIZE. Without any of them the job is this process alone.
///
/// # Errors
/// When the environment is incomplete, the service cannot be reached or started, or a rank does not come within
/// TRADEWIND_START_TIMEOUT seconds (60 if not set); then [`Error::RankFailed`] names it.
pub fn attach() -> Result<Attachment, ServiceError> {
    attach_with(&Environment)
}

fn attach_with(environment: &impl Lookup) -> Result<Attachment, ServiceError> {
    let limit = environment.start_timeout()?;
    let attachment = match identity::find(environment)? {
        Origin::Alone => {
            let node = Node::create(&JobOptions::new(1, engine_kind(environment)?)?)?;
            Attachment { member: node.join(0)?, ranks: 1 }
        }
        Origin::Launched { service, rank, ranks } => enter_launched(&service, rank, ranks, limit)?,
        Origin::Foreign { name, rank, ranks, launcher } => {
            let job = start::Job { name, ranks, launcher, engine: engine_kind(environment)? };
            enter_foreign(&job, rank, limit)?
        }
        Origin::Spread { rank, ranks, .. } => {
            return Err(ServiceError::SeveralNodes { here: format!("rank {rank} and perhaps others"), ranks });
        }
    };
    if let Some(core) = environment.number(CORE)? {
        shm::process::bind_current_thread(core as usize)?;
    }
    attachment.member.wait_for_all(limit)?;
    Ok(attachment)
}

/// Who runs operations in a job that has no `tradewind run` to say it.
fn engine_kind(environment: &impl Lookup) -> Result<EngineKind, ServiceError> {
    let Some(name) = environment.text(ENGINE)? else { return Ok(EngineKind::Peers) };
    name.parse().map_err(|_| ServiceError::Variable { name: ENGINE, value: name.into(), expected: "peers or caller" })
}

fn enter_launched(service: &str, rank: u32, ranks: u32, limit: Duration) -> Result<Attachment, ServiceError> {
    let connection = connect(service, KNOCKING.min(limit))?;
    match ask(&connection, rank, ranks, limit) {
        Ok(Asked::Segment(segment)) => join(segment, &connection, rank, ranks),
        Ok(Asked::Over) | Err(ServiceError::Broker(BrokerError::Closed)) => Err(Error::ServiceFailed.into()),
        Err(error) => Err(error),
    }
}

/// Connects to the job's service or starts it; several ranks may do so at once, and one of them succeeds.
fn enter_foreign(job: &start::Job, rank: u32, limit: Duration) -> Result<Attachment, ServiceError> {
    let deadline = Instant::now() + limit;
    loop {
        let connection = match connect(&job.name, Duration::ZERO) {
            Ok(connection) => connection,
            Err(BrokerError::NoService { .. }) => {
                start::start(job)?;
                connect(&job.name, KNOCKING.min(limit))?
            }
            Err(error) => return Err(error.into()),
        };
        match ask(&connection, rank, job.ranks, limit) {
            Ok(Asked::Segment(segment)) => return join(segment, &connection, rank, job.ranks),
            // An earlier job of the same name has just ended. Its service does too, and then the name is free.
            Ok(Asked::Over) | Err(ServiceError::Broker(BrokerError::Closed)) => {
                wait_for_end(&connection, deadline, limit)?
            }
            Err(error) => return Err(error),
        }
    }
}

enum Asked {
    Segment(Segment),
    Over,
}

fn ask(connection: &Connection, rank: u32, ranks: u32, limit: Duration) -> Result<Asked, ServiceError> {
    let started = shm::process::start_time(std::process::id())?;
    connection.send_message(&Hello { rank, ranks, started }.encode(), &[])?;
    let message = connection.receive_message(Some(limit))?;
    match (Answer::decode(&message.bytes), message.descriptors.into_iter().next()) {
        (Some(Answer::Welcome), Some(segment)) => Ok(Asked::Segment(Segment::from_fd(segment).map_err(Error::from)?)),
        (Some(Answer::Refused(why)), _) => Err(ServiceError::Refused(why)),
        (Some(Answer::Over), _) => Ok(Asked::Over),
        _ => Err(ServiceError::Answer),
    }
}

fn join(segment: Segment, connection: &Connection, rank: u32, ranks: u32) -> Result<Attachment, ServiceError> {
    // The number can only have gone to another process if the service is dead. Then the name is nobody's, and the ranks
    // find no service that could tell them of each other's end.
    let service = connection.peer().pid.ok_or(Error::ServiceFailed)?;
    let service = ProcessHandle::open(service)?;
    let mut member = Node::open(Arc::new(segment))?.join(rank)?;
    member.watch_service(service);
    Ok(Attachment { member, ranks })
}

/// Waits until the process at the other end has ended.
fn wait_for_end(connection: &Connection, deadline: Instant, waited: Duration) -> Result<(), ServiceError> {
    let Some(pid) = connection.peer().pid else { return Ok(()) };
    let Ok(process) = ProcessHandle::open(pid) else { return Ok(()) };
    let ended = crate::events::Events::new()?;
    ended.add(&process, crate::events::Event::Door)?;
    while !process.has_exited() {
        if Instant::now() >= deadline {
            return Err(ServiceError::Stale { pid, waited });
        }
        ended.wait(Some(deadline))?;
    }
    Ok(())
}
