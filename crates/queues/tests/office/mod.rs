//! A name server for tests, jobs and processes registered with it, and assertions about refusals.
#![allow(dead_code, reason = "each test program uses a part")]

use crate::part::PATIENCE;
use queues::names::{JobConfig, JobKey, NameError, NameServer, Refusal};
use queues::port::{Identity, NameClient, Port, PortError, PortReceiver, PortSender};
use shm::broker::unguessable_name;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

/// A name server with its own thread.
pub(crate) struct Office {
    pub(crate) post: Arc<NameServer>,
    thread: Option<JoinHandle<()>>,
}

impl Office {
    pub(crate) fn open() -> Office {
        let name = unguessable_name("tradewind-test").expect("random bytes");
        let post = Arc::new(NameServer::bind(&name).expect("a new name"));
        let serving = Arc::clone(&post);
        let thread = std::thread::spawn(move || serving.serve().expect("it can sleep"));
        Office { post, thread: Some(thread) }
    }

    pub(crate) fn job(&self, name: &str) -> JobKey {
        self.post.add_job(JobConfig::new(name)).expect("a new job")
    }

    pub(crate) fn allow_both(&self, one: &str, other: &str) {
        self.post.allow(one, other).expect("two jobs");
        self.post.allow(other, one).expect("two jobs");
    }

    pub(crate) fn enter(&self, job: &str, process: u32, key: JobKey) -> NameClient {
        NameClient::register(self.post.name(), &Identity::new(job, process, key), PATIENCE)
            .expect("let in")
    }

    /// Adds a job of one process with one port, and opens it.
    pub(crate) fn single(&self, name: &str) -> (NameClient, Port) {
        let registration = self.enter(name, 0, self.job(name));
        let port = registration.open_port(0).expect("a new port");
        (registration, port)
    }

    pub(crate) fn close(&mut self) {
        self.post.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it served without a panic");
        }
    }
}

impl Drop for Office {
    fn drop(&mut self) {
        self.close();
    }
}

/// Returns a deadline that no correct test exceeds.
pub(crate) fn soon() -> Instant {
    Instant::now() + PATIENCE
}

impl Office {
    /// Returns the argument with which a child becomes this process of this job.
    pub(crate) fn identity(&self, job: &str, process: u32, key: JobKey) -> String {
        format!("{} {job} {process} {key}", self.post.name())
    }
}

/// In a child: registers as its argument says, and returns the rest of the argument.
pub(crate) fn become_told(argument: &str) -> (NameClient, String) {
    let how = argument.splitn(5, ' ').nth(4).unwrap_or_default();
    (try_to_become_told(argument).expect("let in"), how.to_owned())
}

/// In a child: tries to register as its argument says.
pub(crate) fn try_to_become_told(argument: &str) -> Result<NameClient, PortError> {
    let words: Vec<&str> = argument.split(' ').collect();
    let [post, job, process, key, ..] = words[..] else { panic!("{argument}") };
    let process = process.parse().expect("a number");
    NameClient::register(post, &Identity::new(job, process, key.parse()?), PATIENCE)
}

/// Transport of messages between the processes of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Path {
    /// The job shares no memory.
    Lane,
    Hall,
}

impl Path {
    pub(crate) const BOTH: [Path; 2] = [Path::Lane, Path::Hall];

    /// Returns the configuration of a job with this name.
    pub(crate) fn plan(self, name: &str, processes: u32, ports: u16) -> JobConfig {
        let segment_bytes = if self == Path::Hall { 1 << 16 } else { 0 };
        let names =
            u16::try_from(processes * u32::from(ports)).expect("as many as there can be").max(512);
        JobConfig { processes, ports, names, segment_bytes, ..JobConfig::new(name) }
    }
}

impl Office {
    /// Adds a job and opens these ports in all its processes. Returns the senders and receivers,
    /// and the registrations.
    pub(crate) fn settle(
        &self,
        plan: JobConfig,
    ) -> (Vec<NameClient>, Vec<Vec<(PortSender, PortReceiver)>>) {
        let name = plan.name.clone();
        let processes = plan.processes;
        let ports = plan.ports;
        let key = self.post.add_job(plan).expect("a new job");
        let ranks: Vec<NameClient> =
            (0..processes).map(|process| self.enter(&name, process, key)).collect();
        let open = |rank: &NameClient| {
            (0..ports).map(|port| rank.open_port(port).expect("a new port").split()).collect()
        };
        let open = ranks.iter().map(open).collect();
        (ranks, open)
    }
}

/// Returns the refusal, which is required.
pub(crate) fn refusal<T: std::fmt::Debug>(outcome: Result<T, PortError>) -> Refusal {
    match outcome {
        Err(PortError::Names(NameError::Refused { refusal, .. })) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}
