//! Ranks and nodes that have exited, and the runs that cannot end because of it.

use crate::backend::ExitedRank;
use crate::error::{Error, RankExit};
use crate::node_map::NodeMap;
use crate::run_counts::StartedRuns;
use crate::transport::frame::Frame;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

/// Ranks and nodes that have exited.
#[derive(Debug, Default)]
pub(crate) struct Membership {
    ranks: HashMap<u32, ExitReport>,
    /// Ranks that have announced that they leave, with the runs that each has started on another
    /// backend.
    leaving: HashMap<u32, Vec<StartedRuns>>,
    nodes: HashMap<u32, NodeFailure>,
}

#[derive(Debug)]
struct NodeFailure {
    error: Error,
    /// True if another node has reported it.
    is_reported: bool,
}

#[derive(Debug)]
struct ExitReport {
    how: RankExit,
    /// The runs that it had started. Their messages still arrive.
    started: Vec<StartedRuns>,
}

impl Membership {
    /// Notes the exit of a rank. The first report counts: a rank exits once. Returns true for it.
    pub(crate) fn rank_exited(
        &mut self,
        rank: u32,
        how: RankExit,
        started: Vec<StartedRuns>,
    ) -> bool {
        let Entry::Vacant(entry) = self.ranks.entry(rank) else { return false };
        entry.insert(ExitReport { how, started });
        true
    }

    /// Notes that a rank leaves. Its first announcement counts: it starts nothing afterwards.
    /// Returns true for it.
    pub(crate) fn rank_leaves(&mut self, rank: u32, started: Vec<StartedRuns>) -> bool {
        let Entry::Vacant(entry) = self.leaving.entry(rank) else { return false };
        entry.insert(started);
        true
    }

    /// Returns true if a rank has announced that it leaves.
    pub(crate) fn is_leaving(&self, rank: u32) -> bool {
        self.leaving.contains_key(&rank)
    }

    /// Everything that a node may have missed which is connected only now.
    pub(crate) fn reports(&self) -> Vec<Frame> {
        let leaving = self.leaving.iter();
        let leaving = leaving
            .map(|(rank, started)| Frame::RankLeaves { rank: *rank, started: started.clone() });
        let exited = self.ranks.iter().map(|(rank, report)| Frame::RankExited {
            rank: *rank,
            how: report.how.clone(),
            started: report.started.clone(),
        });
        let failed = self.nodes.iter().filter_map(|(node, NodeFailure { error, .. })| {
            let Error::NodeUnreachable { why, .. } = error else { return None };
            Some(Frame::NodeEnded { node: *node, failure: Some(why.clone()) })
        });
        // Ranks may leave because a node has failed: the cause comes first.
        failed.chain(leaving).chain(exited).collect()
    }

    /// Ranks that leave and have not started this run on another backend.
    pub(crate) fn never_start(&self, communicator: u32, sequence: u64) -> Vec<u32> {
        let leaving = self
            .leaving
            .iter()
            .filter(|(_, started)| sequence >= StartedRuns::find(started, communicator));
        leaving.map(|(rank, _)| *rank).collect()
    }

    /// Notes the failure of a node, which this node has noticed, or another one has reported to
    /// all.
    pub(crate) fn node_failed(&mut self, node: u32, error: Error, is_reported: bool) {
        self.nodes.entry(node).or_insert(NodeFailure { error, is_reported });
    }

    /// Returns true if all nodes learn of this reason why a run cannot end, without a message of
    /// the run.
    pub(crate) fn is_known_to_all(&self, reason: &Error) -> bool {
        match reason {
            Error::RankFailed { .. } => true,
            Error::NodeUnreachable { node, .. } => {
                self.nodes.get(node).is_some_and(|failure| failure.is_reported)
            }
            _ => false,
        }
    }

    pub(crate) fn has_exited(&self, rank: u32) -> bool {
        self.ranks.contains_key(&rank)
    }

    /// Returns the reported exit of a rank on a node that has ended in order. A rank without a report
    /// has left in order, too.
    pub(crate) fn exit_of(&self, rank: u32) -> RankExit {
        self.ranks.get(&rank).map_or(RankExit::Left, |exited| exited.how.clone())
    }

    /// Ranks that have exited, by number. All ranks of a node that has failed are among them.
    pub(crate) fn exited(&self, nodes: &NodeMap) -> BTreeMap<u32, ExitedRank> {
        // The ranks of a failed node cannot report their own exits.
        let lost = self.nodes.keys().flat_map(|node| nodes.members(*node));
        let lost = lost.map(|rank| ExitedRank { rank, has_failed: true });
        // A rank that left before its node failed comes second here, and remains: it left in order.
        let exited = self.ranks.iter().map(|(rank, exited)| ExitedRank {
            rank: *rank,
            has_failed: exited.how != RankExit::Left,
        });
        lost.chain(exited).map(|rank| (rank.rank, rank)).collect()
    }

    /// The reason why a run cannot end, if there is one. The run is given by its members and their
    /// nodes, its communicator and its number.
    pub(crate) fn failure_of(
        &self,
        members: &[u32],
        nodes: &[u32],
        communicator: u32,
        sequence: u64,
    ) -> Option<Error> {
        // The usual case, checked on every start.
        if self.ranks.is_empty() && self.nodes.is_empty() {
            return None;
        }
        let missing = |has_left: bool| {
            members.iter().find_map(|member| {
                let exited = self.ranks.get(member)?;
                // A rank that had started the run before it exited does not fail it: its agent
                // carries that part through.
                let started = StartedRuns::find(&exited.started, communicator);
                let is_missing = sequence >= started && has_left == (exited.how == RankExit::Left);
                is_missing.then(|| Error::RankFailed { rank: *member, how: exited.how.clone() })
            })
        };
        let failed = || nodes.iter().find_map(|node| self.nodes.get(node));
        // Ranks may leave because another one, or a node, has failed: the cause comes first.
        missing(false)
            .or_else(|| failed().map(|failure| failure.error.clone()))
            .or_else(|| missing(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_that_leaves_never_starts_what_it_has_not_started() {
        let mut membership = Membership::default();
        membership.rank_leaves(4, vec![StartedRuns::of(9, 3)]);
        assert!(membership.never_start(9, 2).is_empty());
        assert_eq!(membership.never_start(9, 3), [4]);
        assert_eq!(membership.never_start(8, 0), [4]);
        assert_eq!(membership.failure_of(&[1, 4], &[0, 1], 9, 3), None, "it has not left yet");
    }

    #[test]
    fn a_node_that_has_failed_is_reported_before_ranks_that_have_left() {
        let mut membership = Membership::default();
        membership.rank_exited(4, RankExit::Left, Vec::new());
        let error = Error::NodeUnreachable { node: 1, address: String::new(), why: String::new() };
        membership.node_failed(1, error.clone(), true);
        assert_eq!(membership.failure_of(&[1, 4], &[0, 1], 9, 0), Some(error));
        membership.rank_exited(1, RankExit::Failed("it was killed".into()), Vec::new());
        let failed = membership.failure_of(&[1, 4], &[0, 1], 9, 0);
        assert!(matches!(failed, Some(Error::RankFailed { rank: 1, .. })), "{failed:?}");
    }

    #[test]
    fn runs_that_a_rank_had_started_before_it_left_can_end() {
        let mut membership = Membership::default();
        membership.rank_exited(4, RankExit::Left, vec![StartedRuns::of(9, 3)]);
        let failure = |communicator, sequence| {
            membership.failure_of(&[1, 4], &[0, 1], communicator, sequence)
        };
        assert_eq!(failure(9, 2), None);
        let failed = Some(Error::RankFailed { rank: 4, how: RankExit::Left });
        assert_eq!(failure(9, 3), failed);
        assert_eq!(failure(8, 0), failed);
        assert_eq!(membership.failure_of(&[1, 2], &[0, 0], 8, 0), None);
    }
}
