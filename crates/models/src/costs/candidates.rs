//! Every way to run a collective that there is a model of, with its price.

use super::level::{Candidate, Costs};
use super::{placed, work};
use crate::query::Query;
use collectives::{Algorithm, Collective};
use collectives::{Choice, Levels};

/// Costs inside nodes and between nodes, with the set of available algorithms.
#[derive(Clone, Copy)]
pub struct CostModel<'a> {
    /// Among the ranks of a node.
    pub inside: &'a Costs,
    /// Between nodes; `None` if there is one node only.
    pub between: Option<&'a Costs>,
    /// Returns `true` if an algorithm can run in so many levels; some models have no
    /// implementation.
    pub available: &'a dyn Fn(Collective, Algorithm, Levels) -> bool,
}

/// Share of its chain that a scan takes: its ranks wait for lower ranks only, so that calls which
/// follow each other overlap, and the work of the nodes decides.
const OVERLAPPING_SCANS: f64 = 0.5;

impl CostModel<'_> {
    /// All ways, fastest first, each with the segment size and degree that suit it; of equals,
    /// those that come first in [`Collective::algorithms`]. Empty if nothing is available, or if
    /// the query has several nodes and nothing is known between nodes.
    pub fn candidates(&self, query: &Query) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        for algorithm in query.operation.algorithms() {
            for levels in Levels::ALL {
                candidates.extend(self.candidate(query, *algorithm, *levels));
            }
        }
        candidates.sort_by(|left, right| left.microseconds.total_cmp(&right.microseconds));
        candidates
    }

    /// Returns the time of this plan for a query, in microseconds; `None` if the plan does not
    /// apply.
    ///
    /// On several nodes it is the time of the longest chain of messages, but not less than what all
    /// messages take of the busiest node. The chain of a one-level plan goes by placement where the
    /// algorithm has a formula for that, else as if all its messages went between nodes; of a
    /// scan, half of the chain counts. A two-level plan runs
    ///
    /// | operation | first | then | last |
    /// |---|---|---|---|
    /// | barrier | a tree up in each node | the algorithm between nodes | the tree down |
    /// | bcast | the algorithm between nodes | the algorithm in each node | |
    /// | reduce | the algorithm in each node | the algorithm between nodes | |
    /// | allreduce | a binomial reduction in each node | the algorithm between nodes | a binomial broadcast in each node |
    /// | allgather | a binomial gather in each node | the algorithm between nodes | a binomial broadcast in each node |
    /// | alltoall | a direct exchange in each node | the algorithm, by each rank with some of the nodes | a direct exchange in each node |
    ///
    /// and takes the sum of their times, and one start. The nodes' ranks lead at their own rate, so
    /// it is an upper bound.
    pub fn price(&self, plan: &Choice, query: &Query) -> Option<f64> {
        let Query { operation, ranks, bytes, .. } = *query;
        if query.nodes() < 2 {
            let is_one_level = plan.levels == Levels::One;
            return self.inside.predict(operation, plan, ranks, bytes).filter(|_| is_one_level);
        }
        let between = self.between?;
        let chain = match plan.levels {
            Levels::One => placed::messages(self.inside, between, plan, query)
                .or_else(|| between.messages(operation, plan, ranks, bytes))?,
            Levels::Two => self.two_levels(plan, query)?,
        };
        let chain = match operation {
            Collective::Scan | Collective::Exscan => OVERLAPPING_SCANS * chain,
            _ => chain,
        };
        let work = work::of_busiest_node(self.inside, between, plan, query);
        Some(chain.max(work) + between.start.of(operation, ranks, bytes))
    }

    fn two_levels(&self, plan: &Choice, query: &Query) -> Option<f64> {
        use Collective::*;
        let nodes = query.nodes();
        let here = query.ranks_per_node.min(query.ranks);
        if !query.has_two_levels() || !query.operation.has_two_levels(plan.algorithm) {
            return None;
        }
        let m = query.bytes;
        let of_node = m.saturating_mul(u64::from(here));
        let of_all = m.saturating_mul(u64::from(query.ranks));
        let binomial = |operation, bytes| {
            self.inside.messages(operation, &Choice::of(Algorithm::Binomial), here, bytes)
        };
        let inside = |operation, bytes| self.inside.messages(operation, plan, here, bytes);
        let between = |bytes| self.between?.messages(query.operation, plan, nodes, bytes);
        let around = match query.operation {
            Barrier => {
                return Some(
                    self.inside.messages(Barrier, &Choice::of(Algorithm::Tree), here, 0)?
                        + between(0)?,
                );
            }
            Bcast | Reduce => return Some(inside(query.operation, m)? + between(m)?),
            Allreduce => (binomial(Reduce, m)?, between(m)?, binomial(Bcast, m)?),
            Allgather => (binomial(Gather, m)?, between(of_node)?, binomial(Bcast, of_all)?),
            Alltoall => {
                // Each rank speaks with so many nodes, in one message each, and the others of its
                // node give it what is for them.
                let nodes_led = (nodes - 1).div_ceil(here);
                let for_leader = of_node.saturating_mul(u64::from(nodes_led));
                let rotated = Choice::of(Algorithm::RotatedDirect);
                let inside = self.inside.messages(Alltoall, &rotated, here, for_leader)?;
                let message = of_node.saturating_mul(u64::from(here));
                let between = self.between?.messages(Alltoall, plan, nodes_led + 1, message)?;
                (inside, between, inside)
            }
            _ => return None,
        };
        Some(around.0 + around.1 + around.2)
    }

    fn candidate(&self, query: &Query, algorithm: Algorithm, levels: Levels) -> Option<Candidate> {
        let Query { operation, ranks, bytes, .. } = *query;
        let nodes = query.nodes();
        let available = |algorithm| (self.available)(operation, algorithm, levels);
        // Before segment sizes are searched: without both levels there is no price for two.
        if !available(algorithm) || (levels == Levels::Two && !query.has_two_levels()) {
            return None;
        }
        let plain = Choice { levels, ..Choice::of(algorithm) };
        let (costs, members) = match (nodes, levels) {
            (1, _) => (self.inside, ranks),
            (_, Levels::One) => (self.between?, ranks),
            // The degrees of a two-level plan are those that suit the messages between nodes.
            (_, Levels::Two) => (self.between?, nodes),
        };
        let best =
            costs.tuned(plain, (operation, members, bytes), |plan| self.price(plan, query))?;
        let one_segment = best.plan.segment_bytes.is_some_and(|segment| segment.get() >= bytes);
        if one_segment && algorithm.unsegmented().is_some_and(available) {
            return None; // the same under another name
        }
        Some(best)
    }
}
