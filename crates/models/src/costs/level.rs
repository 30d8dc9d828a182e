//! Costs of operations on one level of a machine.

use crate::formulas::join::{JoinCosts, join};
use crate::formulas::{
    allgather, allreduce, alltoall, barrier, bcast, gather, reduce, reduce_scatter, scan, scatter,
};
use crate::parameters::Parameters;
use collectives::{Algorithm, Choice, Collective, Tuning};
use std::collections::BTreeMap;
use std::num::NonZeroU64;

/// Costs of operations among ranks at equal distance from each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// Parameters of messages.
    pub network: Parameters,
    /// Time to combine two contributions, in microseconds a byte.
    pub combine: f64,
    /// γ, the contention ratio of direct all-to-all exchanges.
    pub contention: f64,
    /// Costs of joins; operations without an entry have no join, as between nodes.
    pub joins: BTreeMap<Collective, JoinCosts>,
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
    /// Costs of messages alone: combining is free, direct exchanges take their upper bound, and
    /// there are no joins.
    pub fn of_messages(network: Parameters) -> Self {
        Costs { network, combine: 0.0, contention: 1.0, joins: BTreeMap::new() }
    }

    /// Returns the time of an algorithm in microseconds; `None` if the operation has no such
    /// algorithm, or no join is known.
    ///
    /// ```
    /// use models::costs::Costs;
    /// use collectives::{Algorithm, Choice, Collective};
    /// use models::parameters::Parameters;
    ///
    /// let costs = Costs::of_messages(Parameters::linear(10.0, (0.0, 0.0), (0.0, 0.0), (2.0, 0.5))?);
    /// assert_eq!(costs.predict(Collective::Bcast, &Choice::of(Algorithm::Binomial), 8, 8), Some(48.0));
    /// assert_eq!(costs.predict(Collective::Bcast, &Choice::of(Algorithm::Bruck), 8, 8), None);
    /// # Ok::<(), models::parameters::ParametersError>(())
    /// ```
    pub fn predict(
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
        if algorithm == A::Join {
            return self.joins.get(&operation).map(|costs| join(*costs, ranks, bytes));
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

    /// The same, with the segment size or the degree that makes the algorithm fastest. Segments are
    /// multiples of 64 bytes.
    pub fn best(
        &self,
        operation: Collective,
        algorithm: Algorithm,
        ranks: u32,
        bytes: u64,
    ) -> Option<Candidate> {
        /// Segments that begin in the middle of a cache line cost more than they save.
        const LINE: NonZeroU64 = NonZeroU64::new(64).expect("not zero");
        let plain = Choice::of(algorithm);
        let predict = |choice: &Choice| self.predict(operation, choice, ranks, bytes);
        predict(&plain)?;
        let plan = match algorithm {
            Algorithm::Dary => {
                let degree = match operation {
                    Collective::Reduce => {
                        reduce::best_degree(&self.network, self.combine, ranks, bytes)
                    }
                    _ => bcast::best_degree(&self.network, ranks, bytes),
                };
                Choice { degree: Some(degree), ..plain }
            }
            Algorithm::Multiphase => {
                let degree = alltoall::best_degree(&self.network, ranks, bytes);
                Choice { degree: Some(degree), ..plain }
            }
            _ if algorithm.is_segmented() => {
                let with = |bytes| Choice { segment_bytes: NonZeroU64::new(bytes), ..plain };
                let found = super::segment::search(bytes, LINE, |bytes| {
                    predict(&with(bytes)).unwrap_or(f64::INFINITY)
                });
                Choice { segment_bytes: Some(found.bytes), ..plain }
            }
            _ => plain,
        };
        Some(Candidate { plan, microseconds: predict(&plan)? })
    }
}
