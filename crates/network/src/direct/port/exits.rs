//! Exits of other ranks: the end of the connection, and the reason from the node service.
//!
//! Either may come first. An exit is reported when both are there, behind all records of the rank.
//! Without a reason the connection may have been ended by the network, without an end the rank's last
//! messages may be under way.

use crate::backend::LostRank;
use crate::error::{self, Error};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Time after which a rank counts as gone although only the end of its connection, or only the
/// reason, is there, and nothing arrives.
const GRACE: Duration = Duration::from_secs(20);

/// Exits that were not reported.
#[derive(Debug, Default)]
pub(super) struct Exits {
    /// Encoded errors.
    reasons: BTreeMap<u32, (Vec<u8>, Instant)>,
    ended: BTreeMap<u32, (LostRank, Instant)>,
    /// Ranks of which no sign counts: those of the own node, of which no message comes by a
    /// connection and no reason from the node service, and those that were reported.
    settled: BTreeSet<u32>,
}

impl Exits {
    /// `near` has the ranks of the own node.
    pub(super) fn new(near: impl IntoIterator<Item = u32>) -> Self {
        Exits { settled: near.into_iter().collect(), ..Exits::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.reasons.is_empty() && self.ended.is_empty()
    }

    /// Returns true if a connection has ended without a reason.
    pub(super) fn has_unexplained(&self) -> bool {
        self.ended.keys().any(|rank| !self.reasons.contains_key(rank))
    }

    /// Notes why a rank is gone.
    pub(super) fn explain(&mut self, rank: u32, why: Vec<u8>) {
        if !self.settled.contains(&rank) {
            self.reasons.entry(rank).or_insert((why, Instant::now()));
        }
    }

    /// Notes the end of a connection.
    pub(super) fn end(&mut self, lost: LostRank) {
        if !self.settled.contains(&lost.rank) {
            self.ended.insert(lost.rank, (lost, Instant::now()));
        }
    }

    /// Notes that something has arrived from a rank.
    pub(super) fn note_arrival(&mut self, from: u32) {
        if let Some((_, since)) = self.reasons.get_mut(&from) {
            *since = Instant::now();
        }
    }

    /// Returns an exit to be reported now. The caller has taken all records.
    pub(super) fn next(&mut self) -> Option<(u32, Vec<u8>)> {
        let is_over = |rank: &u32, (why, since): &(Vec<u8>, Instant)| {
            // A node that is unreachable ends no connection.
            let is_vanished =
                || matches!(error::decode_exit(why), Some(Error::NodeUnreachable { .. }));
            self.ended.contains_key(rank) || is_vanished() || since.elapsed() >= GRACE
        };
        let explained = self.reasons.iter().find(|(rank, why)| is_over(rank, why));
        if let Some((rank, _)) = explained {
            let rank = *rank;
            self.settled.insert(rank);
            self.ended.remove(&rank);
            return self.reasons.remove(&rank).map(|(why, _)| (rank, why));
        }
        let is_silent = |one: &&(LostRank, Instant)| one.1.elapsed() >= GRACE;
        let rank = self.ended.values().find(is_silent)?.0.rank;
        self.settled.insert(rank);
        let (lost, _) = self.ended.remove(&rank)?;
        Some((rank, error::encode(&Err(lost.error()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::RankExit;

    fn lost(rank: u32) -> LostRank {
        LostRank { rank, why: "it has closed the connection".into() }
    }

    fn killed(rank: u32) -> Vec<u8> {
        let how = RankExit::Failed("was ended by signal 9".into());
        error::encode(&Err(Error::RankFailed { rank, how }))
    }

    #[test]
    fn an_exit_takes_the_end_of_the_connection_and_the_reason() {
        for end_comes_first in [true, false] {
            let mut exits = Exits::default();
            let mut steps: [&dyn Fn(&mut Exits); 2] =
                [&|exits| exits.end(lost(3)), &|exits| exits.explain(3, killed(3))];
            if !end_comes_first {
                steps.reverse();
            }
            steps[0](&mut exits);
            assert_eq!((exits.next(), exits.has_unexplained()), (None, end_comes_first));
            steps[1](&mut exits);
            assert_eq!(exits.next(), Some((3, killed(3))));
            assert!(exits.is_empty());
        }
    }

    #[test]
    fn a_rank_of_the_own_node_has_no_exit_here() {
        let mut exits = Exits::new([1, 2]);
        exits.end(lost(1));
        assert!(exits.is_empty());
    }

    #[test]
    fn a_node_that_is_unreachable_ends_no_connection() {
        let mut exits = Exits::default();
        let address = "10.0.0.2:1".into();
        let why = Error::NodeUnreachable { node: 1, address, why: "it is silent".into() };
        let why = error::encode(&Err(why));
        exits.explain(3, why.clone());
        assert_eq!(exits.next(), Some((3, why)));
        // The system reports the end of the connection much later.
        exits.end(lost(3));
        assert!(exits.is_empty(), "one exit of a rank");
    }

    #[test]
    fn a_rank_of_which_one_sign_is_missing_counts_as_gone_after_a_while() {
        let mut exits = Exits::default();
        exits.end(lost(1));
        exits.explain(2, killed(2));
        assert_eq!(exits.next(), None);
        exits.ended.values_mut().for_each(|(_, since)| *since -= GRACE);
        exits.reasons.values_mut().for_each(|(_, since)| *since -= GRACE);
        exits.note_arrival(2);
        let (rank, why) = exits.next().expect("rank 1 is lost");
        assert_eq!((rank, error::decode_exit(&why)), (1, Some(lost(1).error())));
        assert_eq!(exits.next(), None, "something has arrived from rank 2");
        exits.reasons.values_mut().for_each(|(_, since)| *since -= GRACE);
        assert_eq!(exits.next(), Some((2, killed(2))));
    }
}
