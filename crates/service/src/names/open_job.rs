//! Jobs that admit all others: those that programs have published, and those of their clients.

use queues::names::JobConfig;

/// Beginning of the names of jobs that no program has published. It is no character of a name.
pub(super) const PRIVATE: char = ':';

/// Beginning of the names of jobs that stand for clients on other nodes; the node follows.
pub(super) const REMOTE: &str = ":@";

/// Returns the configuration of a job with one port that every other job may send to. `clients` is
/// the number of jobs to which it can send at the same time.
pub(super) fn open_job(name: &str, clients: u16) -> JobConfig {
    JobConfig { names: clients + 1, admits_all: true, ..JobConfig::new(name) }
}
