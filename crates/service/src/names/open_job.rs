//! Jobs that admit all others: those that programs have published, and those of their clients.

use queues::names::JobConfig;
use std::time::Duration;

/// Beginning of the names of jobs that no program has published. It is no character of a name.
pub(super) const PRIVATE: char = ':';

/// Beginning of the names of jobs that stand for clients on other nodes; the node follows.
pub(super) const REMOTE: &str = ":@";

/// Time to wait for the name server, which may have to be started.
pub(super) const SERVER_TIMEOUT: Duration = Duration::from_secs(30);

/// Number of clients that may be connected with a published name at the same time.
pub const MAX_CLIENTS: u16 = 4000;

/// Returns the configuration of a job with one port that every other job may send to. `clients` is
/// the number of jobs to which it can send at the same time.
pub(super) fn open_job(name: &str, clients: u16) -> JobConfig {
    JobConfig { names: clients + 1, admits_all: true, ..JobConfig::new(name) }
}
