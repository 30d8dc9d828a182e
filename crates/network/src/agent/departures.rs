//! Who has left, what they had started, and which runs cannot end because of it.

use crate::carrier::{Error, Exit, Outbox};
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// Ranks and nodes that are gone.
#[derive(Debug, Default)]
pub(crate) struct Departures {
    ranks: HashMap<u32, Departed>,
    nodes: HashMap<u32, Error>,
}

#[derive(Debug)]
struct Departed {
    how: Exit,
    /// By communicator: how many runs it had started. Their messages come all the same.
    started: HashMap<u32, u64>,
}

impl Departures {
    pub(crate) fn rank(&mut self, rank: u32, how: Exit, started: Vec<(u32, u64)>) {
        // The first report counts: a rank leaves once.
        self.ranks
            .entry(rank)
            .or_insert_with(|| Departed { how, started: started.into_iter().collect() });
    }

    pub(crate) fn node(&mut self, node: u32, error: Error) {
        self.nodes.entry(node).or_insert(error);
    }

    pub(crate) fn has_left(&self, rank: u32) -> bool {
        self.ranks.contains_key(&rank)
    }

    /// Why a run cannot end, if it cannot: its members and their nodes, its communicator and
    /// number.
    pub(crate) fn verdict(
        &self,
        members: &[u32],
        nodes: &[u32],
        communicator: u32,
        sequence: u64,
    ) -> Option<Error> {
        if self.ranks.is_empty() && self.nodes.is_empty() {
            return None;
        }
        let missing = members.iter().find_map(|member| {
            let departed = self.ranks.get(member)?;
            let started = departed.started.get(&communicator).copied().unwrap_or(0);
            (sequence >= started)
                .then(|| Error::RankFailed { rank: *member, how: departed.how.clone() })
        });
        missing.or_else(|| nodes.iter().find_map(|node| self.nodes.get(node)).cloned())
    }
}

/// The runs of one communicator that a rank has started, in the order of their numbers but for
/// threads that were faster than others. Numbers may be left out, because another engine carried
/// those runs.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// One more than the highest.
    next: u64,
    /// Lower numbers that were not started (yet).
    missing: BTreeSet<u64>,
}

/// Runs that may still be started after a later one was. No program has so many threads.
const STRAGGLERS: u64 = 4096;

impl Ledger {
    /// Notes a start; false when the run was started before.
    pub(crate) fn start(&mut self, sequence: u64) -> bool {
        if sequence < self.next {
            return self.missing.remove(&sequence);
        }
        self.missing.extend(self.next.max(sequence.saturating_sub(STRAGGLERS))..sequence);
        while self.missing.first().is_some_and(|first| first.saturating_add(STRAGGLERS) < sequence)
        {
            self.missing.pop_first();
        }
        self.next = sequence.saturating_add(1);
        true
    }

    pub(crate) fn has_started(&self, sequence: u64) -> bool {
        sequence < self.next && !self.missing.contains(&sequence)
    }

    /// One more than the number of the last run that was started.
    pub(crate) fn started(&self) -> u64 {
        self.next
    }
}

/// How the agent of a node parts from the others.
///
/// `Bye` follows every other frame of its connection, and `Farewell` answers it. So when all nodes
/// have answered, their agents have read everything that this node has sent: it no longer lies in a
/// socket's buffer, where the end of this process could still destroy it. (The kernel discards
/// unsent data and resets the connection if the process dies with unread data in its socket.)
#[derive(Debug)]
pub(super) struct Farewell {
    pub(super) said: bool,
    /// Nodes that know that nothing more comes from here.
    pub(super) answered: Vec<bool>,
    /// Nodes from which nothing more comes.
    pub(super) heard: Vec<bool>,
    /// What another engine of this node may still have to send.
    pub(super) outbox: Option<Box<dyn Outbox>>,
    /// Whether all that this node's ranks have started to send has reached the other nodes.
    pub(super) is_drained: bool,
    /// Until the outbox is looked at again.
    interval: Duration,
}

/// First and longest time between two looks at an outbox.
const INTERVALS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(32)];

impl Farewell {
    /// Of one of so many nodes, which need not tell itself.
    pub(super) fn of_node(node: u32, nodes: u32) -> Self {
        let mut answered = vec![false; nodes as usize];
        answered[node as usize] = true;
        let (heard, interval) = (answered.clone(), INTERVALS[0]);
        Farewell { said: false, heard, answered, outbox: None, is_drained: false, interval }
    }

    /// Notes that everything has been sent and acknowledged, as soon as that is so.
    pub(super) fn drain(&mut self, lost: &[bool]) -> bool {
        if self.is_drained || !self.is_answered() {
            return self.is_drained;
        }
        // Where the ranks of all nodes have left, what the outbox still holds is of no use.
        let is_empty =
            all(&self.heard) || self.outbox.as_mut().is_none_or(|outbox| outbox.is_empty(lost));
        self.is_drained = is_empty;
        is_empty
    }

    /// Time until [`drain`](Self::drain) should be called again, if it waits for the outbox.
    pub(super) fn until_look(&mut self) -> Option<Duration> {
        if self.is_drained || !self.is_answered() {
            return None;
        }
        let next = (2 * self.interval).min(INTERVALS[1]);
        Some(std::mem::replace(&mut self.interval, next))
    }

    fn is_answered(&self) -> bool {
        self.said && all(&self.answered)
    }

    pub(super) fn is_done(&self) -> bool {
        // The programs of the other engine are there until no rank of the job needs them.
        self.is_answered() && (self.outbox.is_none() || all(&self.heard))
    }
}

fn all(nodes: &[bool]) -> bool {
    nodes.iter().all(|node| *node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_may_be_started_out_of_order_but_once() {
        let mut ledger = Ledger::default();
        assert!(ledger.start(1) && ledger.start(0) && ledger.start(3));
        assert!(!ledger.start(0) && !ledger.start(1) && !ledger.start(3));
        assert_eq!(ledger.started(), 4);
        assert!(ledger.has_started(3) && !ledger.has_started(2));
        assert!(ledger.start(u64::MAX) && ledger.missing.len() as u64 <= STRAGGLERS);
    }

    #[test]
    fn what_a_rank_had_started_before_it_left_can_end() {
        let mut departures = Departures::default();
        departures.rank(4, Exit::Left, vec![(9, 3)]);
        let verdict =
            |communicator, sequence| departures.verdict(&[1, 4], &[0, 1], communicator, sequence);
        assert_eq!(verdict(9, 2), None);
        let failed = Some(Error::RankFailed { rank: 4, how: Exit::Left });
        assert_eq!(verdict(9, 3), failed);
        assert_eq!(verdict(8, 0), failed);
        assert_eq!(departures.verdict(&[1, 2], &[0, 0], 8, 0), None);
    }
}
