//! Observation of the jobs that this user runs on this node.
//!
//! The sockets of the node services have names in the abstract namespace, which the kernel lists.
//! An observer connects with each of them once and gets a descriptor through which the job's
//! segment can only be read. The kernel identifies both ends, so jobs of other users are refused.
//! After that an observer needs nothing from the job: the job may end or be killed at any moment.

use crate::error::ServiceError;
use crate::protocol::{Answer, OBSERVE};
use engine::Error;
use engine::node::observed::JobObserver;
use queues::observed::{ObservedQueue, observe};
use shm::broker::{BrokerError, connect};
use shm::segment::{Offset, SegmentReader};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Time for the response of a node service.
const RESPONSE_LIMIT: Duration = Duration::from_millis(500);

/// Time between two connections with a socket that has no job yet, each of which may delay the view
/// by [`RESPONSE_LIMIT`].
const PAUSE: Duration = Duration::from_secs(3);

/// Number of refusals after which a socket is left alone.
const MOST_REFUSALS: u32 = 3;

/// Beginning of the names of node services, and of those of name servers, which are no node
/// services.
const PREFIX: &str = "tradewind-";
const NAME_SERVERS: &str = "tradewind-names-";

/// The kernel's list of local sockets.
const SOCKETS: &str = "/proc/net/unix";

/// A listening socket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Listener {
    inode: u64,
    name: String,
}

/// A job of this user on this node.
#[derive(Debug)]
pub struct RunningJob {
    /// Name of its node service.
    pub name: String,
    /// Process of its node service: that of `tradewind run`, or one that a rank has started.
    pub service: u32,
    /// Access to its ranks.
    pub observer: JobObserver,
}

/// A queue of a job.
#[derive(Clone, Copy, Debug)]
pub struct QueueOfJob {
    /// Rank on the node that has created it.
    pub rank: u32,
    /// Location in the job's segment.
    pub at: Offset,
    /// Its state.
    pub queue: ObservedQueue,
}

impl RunningJob {
    /// Returns the queues of the job.
    pub fn queues(&self, ranks: u32) -> Vec<QueueOfJob> {
        let places = (0..ranks)
            .flat_map(|rank| self.observer.queues(rank).into_iter().map(move |at| (rank, at)));
        let found = places.filter_map(|(rank, at)| {
            let queue = observe(self.observer.segment(), at)?;
            Some(QueueOfJob { rank, at, queue })
        });
        found.collect()
    }
}

/// State of an observer at a socket.
#[derive(Debug, Default)]
struct Found {
    /// `None` for a socket that belongs to no job of this user and this version.
    job: Option<RunningJob>,
    refusals: u32,
    /// Time of the next connection; `None` for at once.
    next: Option<Instant>,
}

impl Found {
    /// Connects with the socket if it has no job yet.
    fn join(&mut self, name: &str) {
        let is_due = self.next.is_none_or(|next| Instant::now() >= next);
        if self.job.is_some() || self.refusals >= MOST_REFUSALS || !is_due {
            return;
        }
        match join(name) {
            Ok(job) => self.job = Some(job),
            Err(error) => {
                self.refusals += u32::from(is_refusal(&error));
                self.next = Some(Instant::now() + PAUSE);
            }
        }
    }
}

/// Returns false if the error may be one of a service that is stopped or busy.
fn is_refusal(error: &ServiceError) -> bool {
    use BrokerError::{Busy, NoService, System, TimedOut};
    let ServiceError::Broker(error) = error else { return true };
    !matches!(error, Busy { .. } | NoService { .. } | System { .. } | TimedOut { .. })
}

/// The jobs that an observer has found.
#[derive(Debug, Default)]
pub struct RunningJobs {
    known: HashMap<Listener, Found>,
}

impl RunningJobs {
    /// Looks for jobs that have started or ended since the last call, and returns all.
    ///
    /// # Errors
    /// If the kernel does not list the sockets.
    pub fn find(&mut self) -> Result<Vec<&RunningJob>, ServiceError> {
        let list = std::fs::read(SOCKETS).map_err(|source| ServiceError::System {
            action: "read the list of local sockets in /proc/net/unix",
            source,
        })?;
        let listeners = listeners(&String::from_utf8_lossy(&list));
        // A later socket of the same name has another inode, so it gets no state of the former one.
        self.known.retain(|listener, _| listeners.contains(listener));
        for listener in listeners {
            let name = listener.name.clone();
            self.known.entry(listener).or_default().join(&name);
        }
        let mut jobs: Vec<_> = self.known.values().filter_map(|found| found.job.as_ref()).collect();
        jobs.sort_by_key(|job| job.service);
        Ok(jobs)
    }

    /// Closes the descriptors of jobs without a running rank on this node, because they would keep
    /// the jobs' memory. The next call of [`find`](Self::find) opens those again that still have a
    /// node service.
    pub fn release_ended(&mut self) {
        for found in self.known.values_mut() {
            found.job.take_if(|job| job.observer.has_ended());
        }
    }
}

/// Connects with the node service of this name as an observer.
fn join(name: &str) -> Result<RunningJob, ServiceError> {
    let connection = connect(name, Duration::ZERO)?;
    connection.send_message(OBSERVE, &[])?;
    let message = connection.receive_message(Some(RESPONSE_LIMIT))?;
    if Answer::decode(&message.bytes) != Some(Answer::Welcome) {
        return Err(ServiceError::Answer);
    }
    let file = message.descriptors.into_iter().next().ok_or(ServiceError::Answer)?;
    let segment = SegmentReader::from_fd(file).map_err(Error::from)?;
    Ok(RunningJob {
        name: name.to_owned(),
        service: connection.peer().pid.unwrap_or(0),
        observer: JobObserver::open(segment)?,
    })
}

/// Returns the listening sockets with names of node services in the kernel's list.
fn listeners(list: &str) -> Vec<Listener> {
    /// Flag of a socket that accepts connections (`__SO_ACCEPTCON`).
    const ACCEPTS: u32 = 1 << 16;
    let parse = |line: &str| {
        // Number, references, protocol, flags, type, state, inode, name; `@` stands for abstract.
        let mut fields = line.split_ascii_whitespace();
        let flags = u32::from_str_radix(fields.nth(3)?, 16).ok()?;
        let inode = fields.nth(2)?.parse().ok()?;
        let name = fields.next()?.strip_prefix('@')?;
        let is_service = name.starts_with(PREFIX) && !name.starts_with(NAME_SERVERS);
        (flags & ACCEPTS != 0 && is_service).then(|| Listener { inode, name: name.to_owned() })
    };
    list.lines().filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use shm::broker::{Broker, unguessable_name};

    #[test]
    fn a_service_without_a_response_is_no_refusal() {
        let name = unguessable_name("tradewind-test").expect("random bytes");
        let mut found = Found::default();
        let mut attempt = |next| {
            found.next = next;
            found.join(&name);
            (found.refusals, found.next.is_some_and(|next| next > Instant::now()))
        };
        // No listener, then one that responds to nothing, then one that is not asked yet.
        assert_eq!(attempt(None), (0, true));
        let service = Broker::bind(&name).expect("a new name");
        let is_pending = || service.accept().expect("a listener").is_some();
        assert_eq!(attempt(None), (0, true));
        assert!(is_pending());
        let later = Some(Instant::now() + PAUSE);
        assert_eq!(attempt(later), (0, true));
        assert!(!is_pending());
        // It refuses three times, and is then left alone.
        for refusals in 1..=MOST_REFUSALS {
            let refused = std::thread::scope(|scope| {
                let refuse = scope.spawn(|| {
                    let connection = std::iter::repeat_with(|| service.accept().expect("listens"));
                    drop(connection.flatten().next());
                });
                let refused = attempt(None);
                refuse.join().expect("no panic");
                refused
            });
            assert_eq!(refused, (refusals, true));
        }
        attempt(None);
        assert!(!is_pending());
    }

    #[test]
    fn listening_services_are_found_in_the_list() {
        let list = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0005 01 41 @tradewind-00ff\n\
            0000000000000000: 00000003 00000000 00000000 0005 03 42 @tradewind-00ff\n\
            0000000000000000: 00000002 00000000 00010000 0005 01 43 @tradewind-names-0\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 44 /run/tradewind-1\n\
            0000000000000000: 00000002 00000000 00010000 0005 01 45 @tradewind-0-slurm-7\n\
            0000000000000000: 00000002 00000000 00010000 0005 01 46\n\
            0000000000000000: 00000002 00000000 x 0005 01 y @tradewind-9\n\
            \n@tradewind-8";
        let found = |inode, name: &str| Listener { inode, name: name.to_owned() };
        let expected = [found(41, "tradewind-00ff"), found(45, "tradewind-0-slurm-7")];
        assert_eq!(listeners(list), expected);
        assert_eq!(listeners(""), []);
    }
}
