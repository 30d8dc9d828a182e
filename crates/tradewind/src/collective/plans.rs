//! Plans of the collectives with an input and an output.

use crate::call::{Blocks, Call, kind_of};
use crate::communicator::Communicator;
use crate::counts::Counts;
use crate::error::Result;
use crate::forms::CallStart;
use crate::path::ExecutionPath;
use crate::plan::{CollectivePlan, TwoBuffers};
use crate::reduction::{Combination, FoldFunction, ReduceOp};
use crate::selection::choice::SelectedAlgorithm;
use bytemuck::Pod;
use collectives::{Collective, CollectiveError};

/// A plan with an input and an output.
type Plan<T> = CollectivePlan<TwoBuffers<T>>;

impl Communicator {
    /// The plan of a collective without a root, with blocks of one size.
    #[inline(always)]
    pub(super) fn plan_equal<T: Pod>(
        &self,
        collective: Collective,
        start: CallStart,
    ) -> Result<Plan<T>> {
        let bytes = self.block_bytes::<T>(collective, &start, None)?;
        self.plan(&self.describe(collective, start.form(), None, Blocks::Equal(bytes))?)
    }

    /// The plan of a collective with a root, with blocks of one size.
    #[inline(always)]
    pub(super) fn plan_rooted<T: Pod>(
        &self,
        collective: Collective,
        start: CallStart,
        root: u32,
    ) -> Result<Plan<T>> {
        let root = Some(root);
        let bytes = self.block_bytes::<T>(collective, &start, root)?;
        self.plan(&self.describe(collective, start.form(), root, Blocks::Equal(bytes))?)
    }

    /// The plan of a reduction without a root, with blocks of one size.
    #[inline(always)]
    pub(super) fn plan_reduction<T: Pod>(
        &self,
        collective: Collective,
        start: CallStart,
        op: impl ReduceOp<T>,
    ) -> Result<Plan<T>> {
        let bytes = self.block_bytes::<T>(collective, &start, None)?;
        self.plan_combined(self.describe(collective, start.form(), None, Blocks::Equal(bytes))?, op)
    }

    /// The plan of a reduction with a root.
    #[inline(always)]
    pub(super) fn plan_rooted_reduction<T: Pod>(
        &self,
        collective: Collective,
        start: CallStart,
        op: impl ReduceOp<T>,
        root: u32,
    ) -> Result<Plan<T>> {
        let root = Some(root);
        let bytes = self.block_bytes::<T>(collective, &start, root)?;
        self.plan_combined(self.describe(collective, start.form(), root, Blocks::Equal(bytes))?, op)
    }

    /// The plan of a reduction with blocks of sizes that all ranks know.
    pub(super) fn plan_known_reduction<T: Pod>(
        &self,
        collective: Collective,
        start: CallStart,
        counts: &[usize],
        op: impl ReduceOp<T>,
    ) -> Result<Plan<T>> {
        let counts = self.counts_of_ranks::<T>(collective, "the list of counts", counts)?;
        let blocks = Blocks::Known(&counts);
        self.plan_combined(self.describe(collective, start.form(), None, blocks)?, op)
    }

    /// The plan of a collective with blocks of sizes that all ranks know.
    #[inline(always)]
    pub(super) fn plan_known<T: Pod>(
        &self,
        collective: Collective,
        start: CallStart,
        counts: &[usize],
    ) -> Result<Plan<T>> {
        let counts = self.counts_of_ranks::<T>(collective, "the list of counts", counts)?;
        self.plan(&self.describe(collective, start.form(), None, Blocks::Known(&counts))?)
    }

    /// The plan of a collective with blocks of sizes that the root knows.
    #[inline(always)]
    pub(super) fn plan_known_at_root<T: Pod>(
        &self,
        collective: Collective,
        start: CallStart,
        counts: &[usize],
        root: u32,
    ) -> Result<Plan<T>> {
        self.check_algorithm(collective)?;
        let counts = if self.rank() == root {
            Some(self.counts_of_ranks::<T>(collective, "the list of counts", counts)?)
        } else {
            None
        };
        let bytes = match (&counts, start) {
            (Some(counts), _) => counts.block(root),
            (None, CallStart::Prepared { block }) => block,
            (None, CallStart::Buffers { output, .. }) if collective == Collective::Scatter => {
                output.unwrap_or(0)
            }
            (None, CallStart::Buffers { input, .. }) => input.unwrap_or(0),
        };
        let blocks = Blocks::Own { bytes, all: counts.as_ref() };
        self.plan(&self.describe(collective, start.form(), Some(root), blocks)?)
    }

    /// The plan of an exchange with blocks of sizes that only sender and receiver know.
    #[inline(always)]
    pub(super) fn plan_pairs<T: Pod>(
        &self,
        collective: Collective,
        start: CallStart,
        sent: &[usize],
        received: &[usize],
    ) -> Result<Plan<T>> {
        self.check_algorithm(collective)?;
        let sent = if start.is_input_in_place() { received } else { sent };
        let sent = self.counts_of_ranks::<T>(collective, "the list of sent counts", sent)?;
        let received =
            self.counts_of_ranks::<T>(collective, "the list of received counts", received)?;
        let rank = self.rank();
        let own = sent.block(rank);
        let expected = received.block(rank);
        if own != expected {
            return Err(CollectiveError::OwnSizesDiffer { rank, sent: own, expected }.into());
        }
        let blocks = Blocks::OfPairs { sent: &sent, received: &received };
        self.plan(&self.describe(collective, start.form(), None, blocks)?)
    }

    /// The plan of a call.
    #[inline(always)]
    fn plan<T: Pod>(&self, call: &Call<'_>) -> Result<Plan<T>> {
        let choice = self.choose(call);
        let path = self.path_of_call(call, &choice)?;
        let shape = call.shape(matches!(path, ExecutionPath::Flat(_)));
        Ok(CollectivePlan::new(path, shape, call.order()))
    }

    /// The plan of a reduction.
    #[inline(always)]
    fn plan_combined<T: Pod>(&self, call: Call<'_>, op: impl ReduceOp<T>) -> Result<Plan<T>> {
        match op.into_combination(call.blocks.sizes())? {
            Combination::BuiltIn(known) => self.plan(&call.with_reduction(known)),
            Combination::UserDefined(function) => self.plan_folded(call, function),
        }
    }

    /// The plan of a reduction by a function that this rank calls.
    #[cold]
    fn plan_folded<T: Pod>(&self, call: Call<'_>, function: FoldFunction) -> Result<Plan<T>> {
        self.for_each_rank(call.own_bytes())?;
        let delivers = self.plan::<T>(&call.transport_of_fold())?;
        let contributions = call.contributions_to_fold();
        Ok(delivers.with_fold(function, call.shape(false), contributions, call.own_bytes()))
    }

    /// The path of a call by this algorithm.
    #[inline(always)]
    pub(super) fn path_of_call(
        &self,
        call: &Call<'_>,
        choice: &SelectedAlgorithm,
    ) -> Result<ExecutionPath> {
        if choice.is_join() {
            return Ok(ExecutionPath::Flat(call.flat(choice)));
        }
        // Copies, so that a flat collective needs no description in memory.
        self.path_by_graph(*call, *choice)
    }

    /// The path of a call through the graph of its algorithm: cached, or built and linked now.
    #[inline(never)]
    pub(super) fn path_by_graph(
        &self,
        call: Call<'_>,
        choice: SelectedAlgorithm,
    ) -> Result<ExecutionPath> {
        let key = choice.link_key(call.signature(&choice), call.arguments(), call.sizes_of_key());
        let sizes = call.blocks.of_all_ranks();
        match self.internode() {
            Some(internode) if call.has_unknown_sizes() => {
                let has_one_step = call.collective.sends_at_start(choice.algorithm, self.size());
                self.path_of_own_sizes(
                    internode,
                    key,
                    has_one_step,
                    || Ok(call.own_graph(&choice)?),
                )
            }
            // On one node a call with unknown sizes is a join, which has no graph.
            _ => self.path(key, |rank| Ok(call.graph(&choice, rank, sizes)?)),
        }
    }

    /// Bytes of a block, all of one size, by the lengths of the buffers.
    #[inline(always)]
    fn block_bytes<T>(
        &self,
        collective: Collective,
        start: &CallStart,
        root: Option<u32>,
    ) -> Result<u64> {
        let (input, output) = match *start {
            CallStart::Prepared { block } => return Ok(block),
            CallStart::Buffers { input, output, .. } => (input, output),
        };
        let part = |what, bytes: Option<u64>| {
            self.equal_part::<T>(kind_of(collective, false), what, bytes.unwrap_or(0))
        };
        let is_root = root == Some(self.rank());
        match (collective, input, output) {
            (Collective::Allgather | Collective::Alltoall, ..) => part("the output", output),
            (Collective::ReduceScatter, None, _) => part("the output", output),
            (Collective::Gather, None, _) if is_root => part("the output", output),
            (Collective::Gather, bytes, _) => Ok(bytes.unwrap_or(0)),
            (Collective::Scatter, _, None) if is_root => part("the input", input),
            (Collective::Reduce, Some(bytes), _) => Ok(bytes),
            (.., bytes) => Ok(bytes.unwrap_or(0)),
        }
    }

    #[inline(always)]
    fn counts_of_ranks<T>(
        &self,
        collective: Collective,
        what: &'static str,
        counts: &[usize],
    ) -> Result<Counts> {
        Counts::of::<T>(kind_of(collective, true), what, counts, self.size())
    }
}
