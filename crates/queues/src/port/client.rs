//! Registration of a process at the name server.

use super::error::PortError;
use super::handle::{Port, RESPONSE_TIMEOUT};
use crate::connection::JobQueues;
use crate::id::{NAMES, QueueName};
use crate::names::{
    DestinationTable, JobKey, NameError, PortAddress, Request, Response, ServerConnection,
    SourceTable, queues_config,
};
use shm::broker::connect;
use shm::segment::Segment;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time to wait for the response that distinguishes a port that is not open from a name server that
/// is stopped.
const PROBE: Duration = Duration::from_secs(1);

/// Identity of a process in its job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Name of the job.
    pub job: String,
    /// Index of the process in the job, from 0.
    pub process: u32,
    /// Key of the job, from its [owner](crate::names::JobOwner::key).
    pub key: JobKey,
}

impl Identity {
    /// Returns an identity.
    pub fn new(job: &str, process: u32, key: JobKey) -> Identity {
        Identity { job: job.to_owned(), process, key }
    }
}

/// Registration of this process at the name server. When it, its ports and its connections are
/// dropped, another process may register in its place.
#[derive(Debug)]
pub struct NameClient {
    server: Arc<ServerConnection>,
    identity: Identity,
    /// Number of ports per process of the job.
    ports: u16,
    segment: Option<Arc<Segment>>,
    job_queues: Option<Arc<JobQueues>>,
}

impl NameClient {
    /// Registers at the name server of this name. The server may still be starting: the call
    /// retries until `timeout` has passed.
    ///
    /// # Errors
    ///
    /// [`NameError::Broker`] if there is no name server of this name, [`NameError::Refused`],
    /// [`NameError::NoAnswer`], [`NameError::ServerGone`], [`PortError::Queues`],
    /// [`NameError::Segment`].
    pub fn register(
        name_server: &str,
        identity: &Identity,
        timeout: Duration,
    ) -> Result<NameClient, PortError> {
        let deadline = Instant::now() + timeout;
        let server = Arc::new(ServerConnection::new(
            connect(name_server, timeout).map_err(NameError::from)?,
        ));
        let request = Request::Register {
            job: identity.job.clone(),
            process: identity.process,
            key: identity.key,
            started: shm::process::start_time(std::process::id()).map_err(NameError::from)?,
        };
        let action = || format!("register process {} of job {}", identity.process, identity.job);
        let (response, descriptors) = server.request(action, &request, deadline)?;
        let Response::Registered { ports, resident } = response else {
            return Err(NameError::UnexpectedResponse.into());
        };
        // The name server sends all three descriptors or none, according to the job's segment.
        let (segment, job_queues) = match <[OwnedFd; 3]>::try_from(descriptors) {
            Ok([segment, memory, event]) => {
                let job_queues =
                    JobQueues::create(queues_config(ports, resident), [memory, event])?;
                (
                    Some(Arc::new(Segment::from_fd(segment).map_err(NameError::from)?)),
                    Some(Arc::new(job_queues)),
                )
            }
            Err(none) if none.is_empty() => (None, None),
            Err(_) => return Err(NameError::UnexpectedResponse.into()),
        };
        Ok(NameClient { server, identity: identity.clone(), ports, segment, job_queues })
    }

    /// Returns the segment that the processes of the job share, if the job has one.
    pub fn segment(&self) -> Option<&Arc<Segment>> {
        self.segment.as_ref()
    }

    /// Returns the name of a port of this job, without a request. `None` if the job has no such
    /// port.
    pub fn own_name(&self, process: u32, port: u16) -> Option<QueueName> {
        let number = u64::from(process) * u64::from(self.ports) + u64::from(port);
        let number =
            u16::try_from(number).ok().filter(|&number| port < self.ports && number < NAMES);
        number.and_then(QueueName::new)
    }

    /// Opens one of this process's ports. From then on other ports can send to it.
    ///
    /// # Errors
    ///
    /// [`NameError::Refused`], [`NameError::NoAnswer`], [`NameError::ServerGone`],
    /// [`PortError::Table`].
    pub fn open_port(&self, port: u16) -> Result<Port, PortError> {
        let action = || format!("open port {port}");
        let deadline = Instant::now() + RESPONSE_TIMEOUT;
        let (response, descriptors) =
            self.server.request(action, &Request::OpenPort { port }, deadline)?;
        let Response::PortOpened { name, queue } = response else {
            return Err(NameError::UnexpectedResponse.into());
        };
        let [table, sources] =
            <[OwnedFd; 2]>::try_from(descriptors).map_err(|_| NameError::UnexpectedResponse)?;
        Ok(Port {
            server: Arc::clone(&self.server),
            job_queues: self.job_queues.clone(),
            port,
            name,
            queue,
            table: Arc::new(DestinationTable::from_fd(table)?),
            sources: Arc::new(SourceTable::from_fd(sources)?),
        })
    }

    /// Returns the name that this job has for a port. The port need not be open yet.
    ///
    /// # Errors
    ///
    /// [`NameError::Refused`]: there is no such job or port, no right, or no free name.
    pub fn look_up(&self, address: &PortAddress) -> Result<QueueName, PortError> {
        self.look_up_at(address, false, Instant::now() + RESPONSE_TIMEOUT)
    }

    /// Returns the name of a port as [`Self::look_up`] does, and blocks until the port is open, at
    /// most until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`Self::look_up`], and [`PortError::NotOpen`]. [`NameError::NoAnswer`] is returned one
    /// second after the deadline: the name server has that time to respond that only the port is
    /// missing.
    pub fn look_up_open(
        &self,
        address: &PortAddress,
        deadline: Instant,
    ) -> Result<QueueName, PortError> {
        match self.look_up_at(address, true, deadline) {
            // The server responds to this look-up only when the port opens. A second one without the
            // wait distinguishes a closed port from a server that is stopped.
            Err(PortError::Names(NameError::NoAnswer { waited })) => {
                self.look_up_at(address, false, Instant::now() + PROBE)?;
                Err(PortError::NotOpen { address: address.clone(), waited })
            }
            outcome => outcome,
        }
    }

    /// Opens a connection with a job on another node. `node` is the host and the port at which its
    /// name server listens, `key` is derived from the secret that both name servers have. Returns
    /// the job of this node that stands for the other one.
    ///
    /// # Errors
    ///
    /// [`NameError::Refused`]: the node cannot be reached, or has no such job.
    pub fn open_remote(
        &self,
        job: &str,
        node: &str,
        key: JobKey,
        deadline: Instant,
    ) -> Result<String, PortError> {
        let request = Request::OpenRemote { job: job.to_owned(), node: node.to_owned(), key };
        let action = || format!("open a connection with {job} on {node}");
        match self.server.request(action, &request, deadline)?.0 {
            Response::RemoteOpened { job } => Ok(job),
            _ => Err(NameError::UnexpectedResponse.into()),
        }
    }

    fn look_up_at(
        &self,
        address: &PortAddress,
        wait: bool,
        deadline: Instant,
    ) -> Result<QueueName, PortError> {
        let request = Request::LookUp { address: address.clone(), wait };
        let action = || format!("give job {} a name for {address}", self.identity.job);
        match self.server.request(action, &request, deadline)?.0 {
            Response::Named { name } => Ok(name),
            _ => Err(NameError::UnexpectedResponse.into()),
        }
    }
}
