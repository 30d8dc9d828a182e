//! The check of a job on one node, by a local socket: some ten microseconds instead of a dozen requests
//! to the launcher, each of which waits for a core on which the ranks compute.
//!
//! The rank that comes first binds a name that only the ranks of this job find. The others connect, send
//! their numbers and wait for its answer. It answers when all have done so, or closes the connections
//! after a limit, or when the system refuses it a connection. So all ranks obey one decision: a rank that
//! has connected waits for the decision, and one that has found no name by then has sent no number,
//! without which nothing is complete.

use launch::detect::{Launch, detect};
use launch::environment::{Environment, JOB, RANK, SIZE};
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
    /// Another rank has not found all, or none answers: some may be there. The reason, on one rank that
    /// has it.
    Unknown(Option<String>),
}

/// Nodes of the ranks of a job.
pub(super) enum Place {
    /// All on this node, where they find each other by this name.
    Node(String),
    Nodes,
    /// The launcher does not say it: why, and the way out.
    Unknown(String),
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
        Ok(_) => Place::Unknown(format!(
            "no variable of a launcher describes this job of {ranks} ranks: set {RANK}, {SIZE} and \
             {JOB} in each rank"
        )),
        Err(error) => Place::Unknown(error.to_string()),
    }
}

/// Returns when all ranks are there, or after a limit.
pub(super) fn check(name: &str, (rank, ranks): (u32, u32), limit: Duration) -> Presence {
    match Broker::bind(name) {
        Ok(broker) => collect(|rest| broker.accept_within(rest), (rank, ranks), limit),
        Err(BrokerError::NameTaken { .. }) => match ask(name, rank, limit) {
            Ok(true) => Presence::Complete,
            _ => Presence::Unknown(None),
        },
        // One line for all: most refusals are the same on every rank.
        Err(error) => Presence::Unknown(Some(error.to_string()).filter(|_| rank == 0)),
    }
}

/// Announces this rank and returns the answer.
fn ask(name: &str, rank: u32, limit: Duration) -> Result<bool, BrokerError> {
    let connection = connect(name, limit)?;
    connection.send_message(&rank.to_le_bytes(), &[])?;
    // Without a limit: the other rank counts this one from now on.
    Ok(connection.receive_message(None)?.bytes == COMPLETE)
}

/// Collects the announcements of the other ranks and answers them. `accept` waits for a connection at
/// most for this time.
fn collect(
    accept: impl Fn(Duration) -> Result<Option<Connection>, BrokerError>,
    (own, ranks): (u32, u32),
    limit: Duration,
) -> Presence {
    let begin = Instant::now();
    let mut connections: Vec<Option<Connection>> = (0..ranks).map(|_| None).collect();
    let mut left = ranks.saturating_sub(1);
    while left > 0 {
        let Some(rest) = limit.checked_sub(begin.elapsed()) else { break };
        let connection = match accept(rest) {
            Ok(Some(connection)) => connection,
            Ok(None) | Err(BrokerError::OtherUser { .. }) => continue,
            // The connection stays pending, so the next attempt would fail as well, at once.
            Err(error) => return Presence::Unknown(Some(error.to_string())),
        };
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_refused_connection_ends_the_collection_with_its_reason() {
        let attempts = Cell::new(0);
        let accept = |_| {
            attempts.set(attempts.get() + 1);
            let source = std::io::Error::from_raw_os_error(libc::EMFILE);
            Err(BrokerError::System { action: "accept a connection", source })
        };
        let presence = collect(accept, (0, 2), Duration::from_secs(3600));
        let Presence::Unknown(Some(why)) = presence else { panic!("a decision") };
        assert!(why.contains("ulimit -n"), "{why}");
        assert_eq!(attempts.get(), 1);
    }
}
