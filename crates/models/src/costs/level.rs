//! Costs of operations on one level of a machine.

use super::flat::FlatCosts;
use super::sharing::Sharing;
use crate::formulas::{
    allgather, allreduce, alltoall, barrier, bcast, gather, reduce, reduce_scatter, scan, scatter,
};
use crate::parameters::Parameters;
use crate::query::private_bytes;
use collectives::{Algorithm, Choice, Collective, Tuning};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};

/// Costs of operations among ranks at equal distance from each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// Parameters of messages.
    pub network: Parameters,
    /// Costs of a run besides its messages.
    pub start: StartCosts,
    /// Time to combine two contributions, in microseconds a byte.
    pub combine: f64,
    /// γ, the contention ratio of direct all-to-all exchanges.
    pub contention: f64,
    /// Costs of flat collectives; operations without an entry have none, as between nodes.
    pub flat: BTreeMap<Collective, FlatCosts>,
    /// Number of cores that the ranks of flat collectives may use.
    pub cores: u32,
    /// Constants of cooperative progress. If there are any, simulations predict graphs, else the
    /// formulas of pLogP.
    pub sharing: Vec<Sharing>,
}

/// Costs of a run besides its messages: a + c × m, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartCosts {
    /// a: to start, and to detect that all is done.
    pub fixed: f64,
    /// c, for each byte of private buffers, which are copied in or out. What lies in the job's
    /// memory costs nothing.
    pub per_byte: f64,
}

impl StartCosts {
    /// The costs of a collective with private buffers, in microseconds.
    pub fn of(self, operation: Collective, ranks: u32, bytes: u64) -> f64 {
        if ranks < 2 {
            return 0.0;
        }
        self.fixed + self.per_byte * private_bytes(operation, ranks, bytes) as f64
    }
}

/// A way to run a collective, with its predicted time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The algorithm with its levels, segments and degree.
    pub plan: Choice,
    /// The predicted time in microseconds.
    pub microseconds: f64,
}

impl Costs {
    /// Costs of messages alone: starting and combining are free, direct exchanges take their upper
    /// bound, and there are no flat collectives.
    pub fn of_messages(network: Parameters) -> Self {
        Costs {
            network,
            start: StartCosts::default(),
            combine: 0.0,
            contention: 1.0,
            flat: BTreeMap::new(),
            cores: u32::MAX,
            sharing: Vec::new(),
        }
    }

    /// The same where so many ranks send at once on one way: a gap follows the other.
    pub(super) fn shared_by(&self, senders: f64) -> Costs {
        Costs { network: self.network.shared_by(senders), ..self.clone() }
    }

    /// Returns the time of a call with private buffers, in microseconds; `None` if the operation
    /// has no such algorithm, or no costs of flat collectives are known.
    pub fn predict(
        &self,
        operation: Collective,
        choice: &Choice,
        ranks: u32,
        bytes: u64,
    ) -> Option<f64> {
        if !operation.algorithms().contains(&choice.algorithm) {
            return None;
        }
        if ranks < 2 {
            return Some(0.0);
        }
        if choice.algorithm == Algorithm::Join {
            return self.flat.get(&operation).map(|costs| costs.on_cores(ranks, bytes, self.cores));
        }
        let simulated = Sharing::nearest(&self.sharing, ranks)
            .and_then(|sharing| sharing.predict(operation, choice, ranks, bytes));
        match simulated {
            Some(microseconds) => Some(microseconds),
            None => {
                let messages = self.messages(operation, choice, ranks, bytes)?;
                Some(messages + self.start.of(operation, ranks, bytes))
            }
        }
    }

    /// Returns the time of an algorithm's messages by the formulas of pLogP, in microseconds;
    /// `None` if the operation has no such algorithm, or it sends no messages.
    ///
    /// ```
    /// use models::costs::Costs;
    /// use collectives::{Algorithm, Choice, Collective};
    /// use models::parameters::Parameters;
    ///
    /// let costs = Costs::of_messages(Parameters::linear(10.0, (0.0, 0.0), (0.0, 0.0), (2.0, 0.5))?);
    /// assert_eq!(costs.messages(Collective::Bcast, &Choice::of(Algorithm::Binomial), 8, 8), Some(48.0));
    /// assert_eq!(costs.messages(Collective::Bcast, &Choice::of(Algorithm::Bruck), 8, 8), None);
    /// # Ok::<(), models::parameters::ParametersError>(())
    /// ```
    pub fn messages(
        &self,
        operation: Collective,
        choice: &Choice,
        ranks: u32,
        bytes: u64,
    ) -> Option<f64> {
        use Algorithm as A;
        let algorithm = choice.algorithm;
        if !operation.algorithms().contains(&algorithm) {
            return None;
        }
        let network = &self.network;
        let combine = self.combine;
        let Tuning { segment_bytes: segment, degree } = choice.tuning();
        Some(match (operation, algorithm) {
            (Collective::Barrier, A::Dissemination) => barrier::dissemination(network, ranks),
            (Collective::Barrier, A::RecursiveDoubling) => {
                barrier::recursive_doubling(network, ranks)
            }
            (Collective::Barrier, A::Tree) => barrier::tree(network, ranks),
            (Collective::Barrier, A::Flat) => barrier::flat(network, ranks),
            (Collective::Bcast, A::Flat) => bcast::flat(network, ranks, bytes),
            (Collective::Bcast, A::FlatRendezvous) => bcast::flat_rendezvous(network, ranks, bytes),
            (Collective::Bcast, A::SegmentedFlat) => {
                bcast::segmented_flat(network, ranks, bytes, segment)
            }
            (Collective::Bcast, A::Chain) => bcast::chain(network, ranks, bytes),
            (Collective::Bcast, A::ChainRendezvous) => {
                bcast::chain_rendezvous(network, ranks, bytes)
            }
            (Collective::Bcast, A::SegmentedChain) => {
                bcast::segmented_chain(network, ranks, bytes, segment)
            }
            (Collective::Bcast, A::Binary) => bcast::binary(network, ranks, bytes),
            (Collective::Bcast, A::Binomial) => bcast::binomial(network, ranks, bytes),
            (Collective::Bcast, A::BinomialRendezvous) => {
                bcast::binomial_rendezvous(network, ranks, bytes)
            }
            (Collective::Bcast, A::SegmentedBinomial) => {
                bcast::segmented_binomial(network, ranks, bytes, segment)
            }
            (Collective::Bcast, A::Dary) => bcast::dary(network, ranks, bytes, degree),
            (Collective::Bcast, A::ScatterAllgather) => {
                bcast::scatter_allgather(network, ranks, bytes)
            }
            (Collective::Bcast, A::TwoTree) => bcast::two_tree(network, ranks, bytes, segment),
            (Collective::Scatter, A::Flat) => scatter::flat(network, ranks, bytes),
            (Collective::Scatter, A::Chain) => scatter::chain(network, ranks, bytes),
            (Collective::Scatter, A::PipelinedChain) => {
                scatter::pipelined_chain(network, ranks, bytes)
            }
            (Collective::Scatter, A::Binomial) => scatter::binomial(network, ranks, bytes),
            (Collective::Gather, A::Flat) => gather::flat(network, ranks, bytes),
            (Collective::Gather, A::Chain) => gather::chain(network, ranks, bytes),
            (Collective::Gather, A::PipelinedChain) => {
                gather::pipelined_chain(network, ranks, bytes)
            }
            (Collective::Gather, A::Binomial) => gather::binomial(network, ranks, bytes),
            (Collective::Allgather, A::Ring) => allgather::ring(network, ranks, bytes),
            (Collective::Allgather, A::RecursiveDoubling) => {
                allgather::recursive_doubling(network, ranks, bytes)
            }
            (Collective::Allgather, A::Bruck) => allgather::bruck(network, ranks, bytes),
            (Collective::Allgather, A::GatherBcast) => {
                allgather::gather_bcast(network, ranks, bytes)
            }
            (Collective::Reduce, A::Flat) => reduce::flat(network, combine, ranks, bytes),
            (Collective::Reduce, A::Chain) => reduce::chain(network, combine, ranks, bytes),
            (Collective::Reduce, A::SegmentedChain) => {
                reduce::segmented_chain(network, combine, ranks, bytes, segment)
            }
            (Collective::Reduce, A::Binomial) => reduce::binomial(network, combine, ranks, bytes),
            (Collective::Reduce, A::Dary) => reduce::dary(network, combine, ranks, bytes, degree),
            (Collective::Reduce, A::Rabenseifner) => {
                reduce::rabenseifner(network, combine, ranks, bytes)
            }
            (Collective::Allreduce, A::RecursiveDoubling) => {
                allreduce::recursive_doubling(network, combine, ranks, bytes)
            }
            (Collective::Allreduce, A::Dissemination) => {
                allreduce::dissemination(network, combine, ranks, bytes)
            }
            // All ranks send to all others, as in an all-to-all.
            (Collective::Barrier, A::RotatedDirect) => {
                alltoall::one_step(network, self.contention, ranks, 0)
            }
            (Collective::Allgather, A::RotatedDirect) => {
                alltoall::one_step(network, self.contention, ranks, bytes)
            }
            (Collective::Allreduce, A::RotatedDirect) => {
                allreduce::rotated_direct(network, (combine, self.contention), ranks, bytes)
            }
            (Collective::Allreduce, A::Ring) => allreduce::ring(network, combine, ranks, bytes),
            (Collective::Allreduce, A::Rabenseifner) => {
                allreduce::rabenseifner(network, combine, ranks, bytes)
            }
            (Collective::Allreduce, A::ReduceBcast) => {
                allreduce::reduce_bcast(network, combine, ranks, bytes)
            }
            (Collective::ReduceScatter, A::Ring) => {
                reduce_scatter::ring(network, combine, ranks, bytes)
            }
            (Collective::ReduceScatter, A::Pairwise) => {
                reduce_scatter::pairwise(network, combine, ranks, bytes)
            }
            (Collective::ReduceScatter, A::RecursiveHalving) => {
                reduce_scatter::recursive_halving(network, combine, ranks, bytes)
            }
            (Collective::ReduceScatter, A::ReduceThenScatter) => {
                reduce_scatter::reduce_then_scatter(network, combine, ranks, bytes)
            }
            (Collective::Scan | Collective::Exscan, A::Chain) => {
                scan::chain(network, combine, ranks, bytes)
            }
            (Collective::Scan | Collective::Exscan, A::RecursiveDoubling) => {
                scan::recursive_doubling(network, combine, ranks, bytes)
            }
            (Collective::Alltoall, A::Direct | A::RotatedDirect) => {
                alltoall::direct(network, self.contention, ranks, bytes)
            }
            (Collective::Alltoall, A::Bruck) => alltoall::bruck(network, ranks, bytes),
            (Collective::Alltoall, A::Pairwise) => alltoall::pairwise(network, ranks, bytes),
            (Collective::Alltoall, A::Multiphase) => {
                alltoall::multiphase(network, ranks, bytes, degree)
            }
            _ => return None,
        })
    }

    /// The algorithm with the segment size or the degree that makes it fastest by `price`, which
    /// returns the time of a plan. Segments are multiples of 64 bytes, and of one part in 256 of
    /// the message.
    pub(super) fn tuned(
        &self,
        plain: Choice,
        (operation, ranks, bytes): (Collective, u32, u64),
        price: impl Fn(&Choice) -> Option<f64>,
    ) -> Option<Candidate> {
        /// Segments that begin in the middle of a cache line cost more than they save.
        const LINE: u64 = 64;
        /// Shorter segments only make graphs longer.
        const MOST_SEGMENTS: u64 = 256;
        price(&plain)?;
        let time = |plan: &Choice| price(plan).unwrap_or(f64::INFINITY);
        let plan = match plain.algorithm {
            algorithm if algorithm.has_degree() => {
                let with = |degree| Choice { degree: Some(degree), ..plain };
                let degrees = self.degrees(operation, ranks, bytes).into_iter().map(with);
                degrees.min_by(|left, right| time(left).total_cmp(&time(right)))?
            }
            algorithm if algorithm.is_segmented() => {
                let with = |bytes| Choice { segment_bytes: NonZeroU64::new(bytes), ..plain };
                let granule = (bytes / MOST_SEGMENTS).next_multiple_of(LINE).max(LINE);
                let granule = NonZeroU64::new(granule).unwrap_or(NonZeroU64::MIN);
                let found = super::segment::search(bytes, granule, |bytes| time(&with(bytes)));
                Choice { segment_bytes: Some(found.bytes), ..plain }
            }
            _ => plain,
        };
        Some(Candidate { plan, microseconds: price(&plan)? })
    }

    /// Degrees among which the fastest is sought: few, and the one that the formulas find.
    fn degrees(&self, operation: Collective, ranks: u32, bytes: u64) -> Vec<NonZeroU32> {
        const FEW: [u32; 3] = [2, 4, 8];
        let by_formula = match operation {
            Collective::Reduce => reduce::best_degree(&self.network, self.combine, ranks, bytes),
            Collective::Alltoall => alltoall::best_degree(&self.network, ranks, bytes),
            _ => bcast::best_degree(&self.network, ranks, bytes),
        };
        let few = FEW.into_iter().filter(|degree| *degree < ranks.max(3));
        few.filter_map(NonZeroU32::new).chain([by_formula]).collect()
    }
}
