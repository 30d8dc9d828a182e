//! A name server for tests, jobs and processes registered with it, and assertions about refusals.

use crate::child::TIMEOUT;
use queues::names::{JobConfig, JobKey, NameError, Refusal};
use queues::port::{Identity, NameClient, Port, PortError, PortReceiver, PortSender};
use service::names::NameServer;
use shm::broker::unguessable_name;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

/// A name server with its own thread.
pub(crate) struct TestServer {
    pub(crate) inner: Arc<NameServer>,
    thread: Option<JoinHandle<()>>,
}

impl TestServer {
    pub(crate) fn start() -> TestServer {
        let name = unguessable_name("tradewind-test").expect("random bytes");
        let inner = Arc::new(NameServer::bind(&name).expect("a new name"));
        let serving = Arc::clone(&inner);
        let thread = std::thread::spawn(move || serving.serve().expect("it can sleep"));
        TestServer { inner, thread: Some(thread) }
    }

    pub(crate) fn job(&self, name: &str) -> JobKey {
        self.inner.add_job(JobConfig::new(name)).expect("a new job")
    }

    pub(crate) fn allow_both(&self, one: &str, other: &str) {
        self.inner.allow(one, other).expect("two jobs");
        self.inner.allow(other, one).expect("two jobs");
    }

    pub(crate) fn register(&self, job: &str, process: u32, key: JobKey) -> NameClient {
        NameClient::register(self.inner.name(), &Identity::new(job, process, key), TIMEOUT)
            .expect("a free process number and the right key")
    }

    /// Adds a job of one process with one port, and opens it.
    pub(crate) fn single(&self, name: &str) -> (NameClient, Port) {
        let client = self.register(name, 0, self.job(name));
        let port = client.open_port(0).expect("a new port");
        (client, port)
    }

    /// Adds a job and opens these ports in all its processes. Returns the registrations, and the
    /// senders and receivers.
    pub(crate) fn open_ports(
        &self,
        config: JobConfig,
    ) -> (Vec<NameClient>, Vec<Vec<(PortSender, PortReceiver)>>) {
        let name = config.name.clone();
        let processes = config.processes;
        let ports = config.ports;
        let key = self.inner.add_job(config).expect("a new job");
        let ranks: Vec<NameClient> =
            (0..processes).map(|process| self.register(&name, process, key)).collect();
        let open = |rank: &NameClient| {
            (0..ports).map(|port| rank.open_port(port).expect("a new port").split()).collect()
        };
        let open = ranks.iter().map(open).collect();
        (ranks, open)
    }

    /// Returns the argument with which a child becomes this process of this job.
    pub(crate) fn identity(&self, job: &str, process: u32, key: JobKey) -> String {
        format!("{} {job} {process} {key}", self.inner.name())
    }

    pub(crate) fn close(&mut self) {
        self.inner.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it served without a panic");
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.close();
    }
}

/// Returns a deadline that no correct test exceeds.
pub(crate) fn deadline() -> Instant {
    Instant::now() + TIMEOUT
}

/// In a child: registers as its argument says, and returns the rest of the argument.
pub(crate) fn register_child(argument: &str) -> (NameClient, String) {
    let rest = argument.splitn(5, ' ').nth(4).unwrap_or_default();
    (try_register_child(argument).expect("a free process number"), rest.to_owned())
}

/// In a child: tries to register as its argument says.
pub(crate) fn try_register_child(argument: &str) -> Result<NameClient, PortError> {
    let words: Vec<&str> = argument.split(' ').collect();
    let [server, job, process, key, ..] = words[..] else { panic!("{argument}") };
    let process = process.parse().expect("a number");
    NameClient::register(server, &Identity::new(job, process, key.parse()?), TIMEOUT)
}

/// Transport of messages between the processes of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    /// A ring for each connection: the job shares no memory.
    Rings,
    /// The receive queues of each process, in the segment of the job.
    Queues,
}

impl Transport {
    pub(crate) const BOTH: [Transport; 2] = [Transport::Rings, Transport::Queues];

    /// Returns the configuration of a job with this name.
    pub(crate) fn job(self, name: &str, processes: u32, ports: u16) -> JobConfig {
        let segment_bytes = if self == Transport::Queues { 1 << 16 } else { 0 };
        let names =
            u16::try_from(processes * u32::from(ports)).expect("as many as there can be").max(512);
        JobConfig { processes, ports, names, segment_bytes, ..JobConfig::new(name) }
    }
}

/// Returns the refusal, which is required.
pub(crate) fn refusal<T: std::fmt::Debug>(outcome: Result<T, PortError>) -> Refusal {
    match outcome {
        Err(PortError::Names(NameError::Refused { refusal, .. })) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}
