//! The check of a job on one node, by a local socket: some ten microseconds instead of a dozen requests
//! to the launcher, each of which waits for a core on which the ranks compute.
//!
//! The rank that comes first binds a name that only the ranks of this job find. The others connect, send their
//! numbers and wait for its answer. It answers when all have done so, or closes the connections after a
//! limit. So all ranks obey one decision: a rank that has connected waits for the decision, and one that
//! has found no name by then has sent no number, without which nothing is complete.

use launch::detect::{Launch, detect};
use launch::environment::Environment;
use shm::broker::{Broker, BrokerError, Connection, connect};
use std::time::{Duration, Instant};

/// The answer if all ranks are there.
const COMPLETE: &[u8] = b"complete";

/// Outcome of the check.
pub(super) enum Presence {
    /// All ranks are there.
    Complete,
    /// These ranks have not come within the time, as far as this one knows; the others that are there
    /// get this outcome or the next.
    Missing(Vec<u32>),
    /// Another rank has not found all, or none answers: some may be there.
    Unknown,
}

/// Nodes of the ranks of a job.
pub(super) enum Place {
    /// All on this node, where they find each other by this name.
    Node(String),
    Nodes,
    Unknown,
}

/// Finds out where the ranks of this job are, by the variables of its launcher.
pub(super) fn place(ranks: u32) -> Place {
    match detect(&Environment) {
        Ok(Launch::OneNode { name, ranks: started, .. }) if started == ranks => {
            // Containers may share the names of local sockets, and the numbers of processes that the
            // name of a job is made of. Their processes are in different namespaces.
            let processes = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
            Place::Node(format!("{name}-ranks-{}", processes.display()))
        }
        Ok(Launch::ManyNodes { .. }) => Place::Nodes,
        _ => Place::Unknown,
    }
}

/// Returns when all ranks are there, or after a limit.
pub(super) fn check(name: &str, (rank, ranks): (u32, u32), limit: Duration) -> Presence {
    let answered = match Broker::bind(name) {
        Ok(broker) => return collect(&broker, (rank, ranks), limit),
        Err(BrokerError::NameTaken { .. }) => ask(name, rank, limit),
        Err(_) => return Presence::Unknown,
    };
    if answered.is_ok_and(|is_complete| is_complete) {
        Presence::Complete
    } else {
        Presence::Unknown
    }
}

/// Announces this rank and returns the answer.
fn ask(name: &str, rank: u32, limit: Duration) -> Result<bool, BrokerError> {
    let connection = connect(name, limit)?;
    connection.send_message(&rank.to_le_bytes(), &[])?;
    // Without a limit: the other rank counts this one from now on.
    Ok(connection.receive_message(None)?.bytes == COMPLETE)
}

/// Collects the announcements of the other ranks and answers them.
fn collect(broker: &Broker, (own, ranks): (u32, u32), limit: Duration) -> Presence {
    let begin = Instant::now();
    let mut connections: Vec<Option<Connection>> = (0..ranks).map(|_| None).collect();
    let mut left = ranks.saturating_sub(1);
    while left > 0 {
        let Some(rest) = limit.checked_sub(begin.elapsed()) else { break };
        let Ok(Some(connection)) = broker.accept_within(rest) else { continue };
        let rest = limit.saturating_sub(begin.elapsed());
        let Ok(message) = connection.receive_message(Some(rest)) else { continue };
        let rank = message.bytes.try_into().map(u32::from_le_bytes);
        let place = rank.ok().filter(|rank| *rank != own);
        if let Some(place) = place.and_then(|rank| connections.get_mut(rank as usize)) {
            left -= u32::from(place.replace(connection).is_none());
        }
    }
    if left == 0 {
        let others = connections.iter().flatten();
        // A rank that has ended needs no answer.
        others.for_each(|connection| _ = connection.send_message(COMPLETE, &[]));
        return Presence::Complete;
    }
    let missing = (0..ranks).zip(&connections);
    let missing = missing.filter(|(rank, connection)| *rank != own && connection.is_none());
    Presence::Missing(missing.map(|(rank, _)| rank).collect())
}
