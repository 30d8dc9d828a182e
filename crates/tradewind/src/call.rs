//! Description of one call of a collective.
//!
//! The arguments of the selection, the signature, the lengths of the buffers, the flat collective and
//! the graph all follow from a [`Call`].

#[cfg(test)]
mod tests;

use crate::communicator::Communicator;
use crate::counts::Counts;
use crate::error::Result;
use crate::reduction::{BuiltInReduction, FoldOrder, transport_of_fold};
use crate::selection::choice::SelectedAlgorithm;
use crate::shape::{BufferShape, InPlaceRule, OwnBlock};
use collectives::{Collective, CollectiveError, GraphSpec, Reduction, Sizes};
use engine::flat::{FlatCollective, Pattern, VariableBlocks};
use engine::signature::{CallKind, Signature};
use goal::arithmetic::{Arithmetic, DataType};
use goal::graph::Graph;
use models::decision::CallForm;
use std::num::NonZeroU32;
use std::sync::Arc;

/// Sizes of the blocks of a call, as one rank knows them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Blocks<'c> {
    /// All blocks have this size.
    Equal(u64),
    /// One block for each rank. Every rank knows all sizes.
    Known(&'c Counts),
    /// One block for each rank. A rank knows the size of its own, and the root knows all.
    Own { bytes: u64, all: Option<&'c Counts> },
    /// One block for each pair of ranks. Only these two know its size.
    OfPairs { sent: &'c Counts, received: &'c Counts },
}

/// One call of a collective by one rank.
///
/// All methods for flat collectives are always inlined, and callers pass a constant collective. The
/// compiler then keeps only the flat collective of a short call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'c> {
    /// The collective that signatures and errors name.
    pub(crate) kind: CallKind,
    pub(crate) form: CallForm,
    /// The collective that moves the data. In a reduction by a user-defined function it differs from
    /// the collective that `kind` names.
    pub(crate) collective: Collective,
    rank: u32,
    ranks: u32,
    pub(crate) root: Option<u32>,
    pub(crate) blocks: Blocks<'c>,
    reduction: Option<BuiltInReduction>,
    /// A flat collective leaves the copy of the rank's own block to the caller.
    leaves_own: bool,
}

/// Numbers of contributions to a reduction by a user-defined function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contributions {
    /// Those that reach this rank.
    pub(crate) gathered: u32,
    /// The first of them, which it folds.
    pub(crate) folded: u32,
}

impl Blocks<'_> {
    /// Returns `true` unless all blocks have one size by definition.
    #[inline(always)]
    fn may_differ(&self) -> bool {
        !matches!(self, Blocks::Equal(_))
    }

    /// The sizes of different blocks of all ranks, where this rank knows them.
    pub(crate) fn of_all_ranks(&self) -> &[u64] {
        match self {
            Blocks::Known(counts) | Blocks::Own { all: Some(counts), .. } => &counts.bytes,
            Blocks::Equal(_) | Blocks::Own { all: None, .. } | Blocks::OfPairs { .. } => &[],
        }
    }

    /// Sizes that the ranks reduce separately.
    #[inline(always)]
    pub(crate) fn sizes(&self) -> &[u64] {
        match self {
            Blocks::Equal(bytes) | Blocks::Own { bytes, .. } => std::slice::from_ref(bytes),
            Blocks::Known(counts) | Blocks::OfPairs { sent: counts, .. } => &counts.bytes,
        }
    }
}

/// The collective that signatures and errors name.
#[inline(always)]
pub(crate) fn kind_of(collective: Collective, blocks_may_differ: bool) -> CallKind {
    match (collective, blocks_may_differ) {
        (Collective::Barrier, _) => CallKind::Barrier,
        (Collective::Bcast, _) => CallKind::Bcast,
        (Collective::Scatter, false) => CallKind::Scatter,
        (Collective::Scatter, true) => CallKind::Scatterv,
        (Collective::Gather, false) => CallKind::Gather,
        (Collective::Gather, true) => CallKind::Gatherv,
        (Collective::Allgather, false) => CallKind::Allgather,
        (Collective::Allgather, true) => CallKind::Allgatherv,
        (Collective::Alltoall, false) => CallKind::Alltoall,
        (Collective::Alltoall, true) => CallKind::Alltoallv,
        (Collective::Reduce, _) => CallKind::Reduce,
        (Collective::Allreduce, _) => CallKind::Allreduce,
        (Collective::ReduceScatter, false) => CallKind::ReduceScatterBlock,
        (Collective::ReduceScatter, true) => CallKind::ReduceScatter,
        (Collective::Scan, _) => CallKind::Scan,
        (Collective::Exscan, _) => CallKind::Exscan,
    }
}

impl Communicator {
    /// Describes a call of this rank.
    ///
    /// # Errors
    /// Fails if the root is not a rank, or the blocks are longer than 64 bits can count together.
    #[inline(always)]
    pub(crate) fn describe<'c>(
        &self,
        collective: Collective,
        form: CallForm,
        root: Option<u32>,
        blocks: Blocks<'c>,
    ) -> Result<Call<'c>> {
        use Collective::{Allgather, Alltoall, Gather, ReduceScatter, Scatter};
        if let Some(root) = root {
            self.check_root(root)?;
        }
        if let Blocks::Equal(bytes) = blocks
            && matches!(collective, Scatter | Gather | Allgather | Alltoall | ReduceScatter)
        {
            self.for_each_rank(bytes)?;
        }
        Ok(Call::new((self.rank(), self.size()), collective, form, root, blocks))
    }
}

impl<'c> Call<'c> {
    #[inline(always)]
    fn new(
        (rank, ranks): (u32, u32),
        collective: Collective,
        form: CallForm,
        root: Option<u32>,
        blocks: Blocks<'c>,
    ) -> Self {
        use Collective::{Allgather, Alltoall, Gather, Scatter};
        Call {
            kind: kind_of(collective, blocks.may_differ()),
            form,
            collective,
            rank,
            ranks,
            root,
            blocks,
            reduction: None,
            leaves_own: matches!(collective, Scatter | Gather | Allgather | Alltoall),
        }
    }

    /// The call with a built-in operation.
    #[inline(always)]
    pub(crate) fn with_reduction(self, reduction: BuiltInReduction) -> Self {
        Call { reduction: Some(reduction), ..self }
    }

    /// The call that delivers the contributions to a reduction by a user-defined function.
    pub(crate) fn transport_of_fold(self) -> Self {
        Call { collective: transport_of_fold(self.collective), leaves_own: false, ..self }
    }

    /// The contributions to a reduction by a user-defined function on this rank.
    pub(crate) fn contributions_to_fold(&self) -> Contributions {
        let gathered = self.ranks;
        match self.collective {
            Collective::Reduce if !self.is_root() => Contributions { gathered: 0, folded: 0 },
            Collective::Scan => Contributions { gathered, folded: self.rank + 1 },
            Collective::Exscan => Contributions { gathered, folded: self.rank },
            _ => Contributions { gathered, folded: gathered },
        }
    }

    #[inline(always)]
    pub(crate) fn is_root(&self) -> bool {
        self.root == Some(self.rank)
    }

    /// Bytes of this rank's block.
    #[inline(always)]
    pub(crate) fn own_bytes(&self) -> u64 {
        match self.blocks {
            Blocks::Equal(bytes) | Blocks::Own { bytes, .. } => bytes,
            Blocks::Known(counts) | Blocks::OfPairs { sent: counts, .. } => counts.block(self.rank),
        }
    }

    /// Offset of this rank's block among those of all ranks.
    #[inline(always)]
    fn offset(&self) -> u64 {
        match self.blocks {
            Blocks::Equal(bytes) => u64::from(self.rank) * bytes,
            Blocks::Own { all, .. } => all.map_or(0, |counts| counts.offset(self.rank)),
            Blocks::Known(counts) | Blocks::OfPairs { sent: counts, .. } => {
                counts.offset(self.rank)
            }
        }
    }

    /// Bytes of a block for each rank.
    #[inline(always)]
    fn total(&self) -> u64 {
        match self.blocks {
            // No overflow: `describe` has counted the blocks of all ranks.
            Blocks::Equal(bytes) => u64::from(self.ranks) * bytes,
            Blocks::Own { all, .. } => all.map_or(0, |counts| counts.total),
            Blocks::Known(counts) | Blocks::OfPairs { sent: counts, .. } => counts.total,
        }
    }

    /// Sizes of different blocks, as far as this rank knows them: those of all ranks, its own, or those
    /// that it sends to each and then those that it receives from each.
    pub(crate) fn sizes_of_key(&self) -> Vec<u64> {
        match self.blocks {
            Blocks::Equal(_) => Vec::new(),
            Blocks::Known(counts) | Blocks::Own { all: Some(counts), .. } => counts.bytes.to_vec(),
            Blocks::Own { bytes, all: None } => vec![bytes],
            Blocks::OfPairs { sent, received } => [&sent.bytes[..], &received.bytes[..]].concat(),
        }
    }

    /// Returns `true` unless every rank knows all sizes.
    #[inline(always)]
    pub(crate) fn has_unknown_sizes(&self) -> bool {
        matches!(self.blocks, Blocks::Own { .. } | Blocks::OfPairs { .. })
    }

    /// Returns `true` for an exchange between all pairs in which the blocks of a pair may differ
    /// from those of another one.
    #[inline(always)]
    pub(crate) fn exchanges_different_sizes(&self) -> bool {
        self.collective == Collective::Alltoall && self.blocks.may_differ()
    }

    /// Bytes as [`Collective`] counts them; the same on all ranks.
    #[inline(always)]
    pub(crate) fn model_bytes(&self) -> u64 {
        match self.blocks {
            Blocks::Equal(bytes) => bytes,
            Blocks::Known(counts) => counts.total / u64::from(self.ranks),
            // The choice must be the same on all ranks, and not every rank knows the total size.
            Blocks::Own { .. } | Blocks::OfPairs { .. } => 0,
        }
    }

    /// Freedom of the algorithm to order the contributions.
    #[inline(always)]
    pub(crate) fn order(&self) -> FoldOrder {
        self.reduction.map_or(FoldOrder::Any, BuiltInReduction::order)
    }

    /// The signature, which ranks compare: equal in all calls that match.
    #[inline(always)]
    pub(crate) fn signature(&self, choice: &SelectedAlgorithm) -> Signature {
        let choice = choice.digest();
        let arguments = match (self.root, self.reduction) {
            (None, None) => choice,
            (None, Some(known)) => choice << 16 | known.number(),
            (Some(root), None) => choice << 32 | u64::from(root),
            (Some(root), Some(known)) => choice << 48 ^ known.number() << 32 | u64::from(root),
        };
        let (bytes, sizes) = match self.blocks {
            Blocks::Equal(_) if self.collective == Collective::Alltoall => (self.total(), 0),
            Blocks::Equal(bytes) => (bytes, 0),
            Blocks::Known(counts) if self.reduction.is_some() => {
                (counts.total, counts.digest() << 24)
            }
            Blocks::Known(counts) => (counts.total, counts.digest()),
            Blocks::Own { .. } | Blocks::OfPairs { .. } => (0, 0),
        };
        // The delivery of contributions matches no call of a built-in operation.
        let folds = u64::from(self.delivers_to_fold()) << 63;
        Signature::new(self.kind, bytes, arguments ^ sizes ^ folds)
    }

    /// Returns `true` if it delivers the contributions to a user-defined reduction.
    #[inline(always)]
    fn delivers_to_fold(&self) -> bool {
        self.kind != kind_of(self.collective, self.blocks.may_differ())
    }

    /// Collective that moves the data, operation and type, and root. The key of a schedule has them
    /// in full, because the digest of a signature has 15 bits.
    pub(crate) fn arguments(&self) -> u64 {
        // A number of 16 bits.
        let operation = self.reduction.map_or(0, BuiltInReduction::number);
        (self.collective as u64) << 48 | operation << 32 | u64::from(self.root.unwrap_or(0))
    }

    /// Lengths of the buffers. With `leaves_own`, the rank copies its own block to the output.
    #[inline(always)]
    pub(crate) fn shape(&self, leaves_own: bool) -> BufferShape {
        let bytes = self.own_bytes();
        let own = |from, to| leaves_own.then_some(OwnBlock { from, to, bytes });
        match self.collective {
            Collective::Gather | Collective::Reduce if !self.is_root() => {
                let in_place = InPlaceRule::Never;
                BufferShape { output: None, in_place, ..BufferShape::new(bytes, 0) }
            }
            Collective::Scatter if !self.is_root() => {
                let in_place = InPlaceRule::Never;
                BufferShape { input: None, in_place, ..BufferShape::new(0, bytes) }
            }
            Collective::Scatter => {
                let shape = BufferShape::new(self.total(), bytes);
                let in_place = InPlaceRule::Output;
                BufferShape { in_place, own: own(self.offset(), 0), ..shape }
            }
            Collective::Gather | Collective::Allgather => {
                let at = self.offset();
                let shape = BufferShape::new(bytes, self.total());
                BufferShape { in_place: InPlaceRule::InputAt(at), own: own(0, at), ..shape }
            }
            Collective::Alltoall => self.shape_of_exchange(own),
            Collective::ReduceScatter => BufferShape::new(self.total(), bytes),
            Collective::Barrier
            | Collective::Bcast
            | Collective::Reduce
            | Collective::Allreduce
            | Collective::Scan
            | Collective::Exscan => BufferShape::new(bytes, bytes),
        }
    }

    #[inline(always)]
    fn shape_of_exchange(&self, own: impl Fn(u64, u64) -> Option<OwnBlock>) -> BufferShape {
        let from = self.offset();
        let Blocks::OfPairs { sent, received } = self.blocks else {
            return BufferShape {
                own: own(from, from),
                ..BufferShape::new(self.total(), self.total())
            };
        };
        // In place, each block is replaced by one of its size.
        let in_place =
            if sent.bytes == received.bytes { InPlaceRule::InputAt(0) } else { InPlaceRule::Never };
        let own = own(from, received.offset(self.rank));
        BufferShape { in_place, own, ..BufferShape::new(sent.total, received.total) }
    }

    /// The flat collective.
    #[inline(always)]
    pub(crate) fn flat(&self, choice: &SelectedAlgorithm) -> FlatCollective {
        let root = self.root.unwrap_or(0);
        let bytes = self.own_bytes();
        let (pattern, bytes) = match self.collective {
            Collective::Barrier => (Pattern::Barrier, 0),
            Collective::Bcast => (Pattern::Broadcast { root }, bytes),
            Collective::Scatter => (Pattern::Scatter { root }, self.total()),
            Collective::Gather => (Pattern::GatherTo { root }, bytes),
            Collective::Allgather => (Pattern::Gather, bytes),
            Collective::Alltoall => (Pattern::Exchange, self.total()),
            Collective::Reduce => (Pattern::ReduceTo { root }, bytes),
            Collective::Allreduce => (Pattern::Reduce, bytes),
            Collective::ReduceScatter => {
                (Pattern::ReduceScatter { at: self.offset(), bytes }, self.total())
            }
            Collective::Scan => (Pattern::Scan, bytes),
            Collective::Exscan => (Pattern::Exscan, bytes),
        };
        let blocks = self.variable_blocks();
        let bytes = if blocks.is_some() { 0 } else { bytes };
        FlatCollective {
            arithmetic: self.reduction.map(BuiltInReduction::arithmetic),
            leaves_own: self.leaves_own,
            blocks: blocks.map(Arc::new),
            ..FlatCollective::new(pattern, bytes, self.signature(choice))
        }
    }

    /// The sizes of this rank's blocks, unless they follow from one number on all ranks.
    #[inline(always)]
    fn variable_blocks(&self) -> Option<VariableBlocks> {
        let own = self.own_bytes();
        let each = |counts: &'c Counts| counts.bytes.iter().copied();
        Some(match (self.blocks, self.collective) {
            (Blocks::Equal(_), _) | (Blocks::Known(_), Collective::ReduceScatter) => return None,
            (Blocks::Known(counts), Collective::Alltoall) => {
                // A rank receives a block of its own size from each.
                VariableBlocks::new(each(counts), each(counts).map(|_| own))
            }
            // All ranks know all sizes, so they agree that no table of blocks is needed.
            (Blocks::Known(counts), _) if each(counts).all(|other| other == own) => return None,
            (Blocks::Known(counts), _) => VariableBlocks::new([own], each(counts)),
            (Blocks::Own { all, .. }, collective) => {
                let of_root = all.into_iter().flat_map(each);
                let of_others = all.is_none().then_some(own);
                match collective {
                    Collective::Scatter => VariableBlocks::new(of_root, of_others),
                    _ => VariableBlocks::new(of_others, of_root),
                }
            }
            (Blocks::OfPairs { sent, received }, _) => {
                VariableBlocks::new(each(sent), each(received))
            }
        })
    }

    /// The graph of this rank, which may not know all sizes.
    pub(crate) fn own_graph(&self, choice: &SelectedAlgorithm) -> Result<Graph, CollectiveError> {
        match self.blocks {
            Blocks::OfPairs { sent, received } => {
                let algorithm = choice.algorithm;
                collectives::alltoall::graph_v(algorithm, self.rank, &sent.bytes, &received.bytes)
            }
            Blocks::Own { bytes, all: None } => {
                // The graph of a rank that is not the root has its own block only.
                let own = |rank| if rank == self.rank { bytes } else { 0 };
                let sizes: Vec<u64> = (0..self.ranks).map(own).collect();
                self.graph(choice, self.rank, &sizes)
            }
            _ => self.graph(choice, self.rank, self.blocks.of_all_ranks()),
        }
    }

    /// The graph of a rank. `sizes` are those of the blocks of all ranks, if they may differ.
    pub(crate) fn graph(
        &self,
        choice: &SelectedAlgorithm,
        rank: u32,
        sizes: &[u64],
    ) -> Result<Graph, CollectiveError> {
        let any = Reduction::new(Arithmetic::Add, DataType::U8);
        let reduction = self.reduction.map_or(any, BuiltInReduction::reduction);
        let algorithm = choice.algorithm;
        let in_rank_order = self.order() == FoldOrder::FromLeft;
        let spec = GraphSpec {
            collective: self.collective,
            rank,
            ranks: self.ranks,
            ranks_per_node: choice.ranks_per_node.unwrap_or(NonZeroU32::MIN),
            root: self.root.unwrap_or(0),
            bytes: self.own_bytes(),
            reduction,
        };
        match self.collective {
            Collective::Allreduce
                if in_rank_order && !self.collective.folds_from_left(algorithm) =>
            {
                self.collective.check_algorithm(algorithm)?;
                collectives::allreduce::fold_from_left(rank, self.ranks, spec.bytes, reduction)
            }
            Collective::Alltoall if self.blocks.may_differ() => {
                let received = vec![sizes.get(rank as usize).copied().unwrap_or(0); sizes.len()];
                collectives::alltoall::graph_v(algorithm, rank, sizes, &received)
            }
            _ if self.blocks.may_differ() => {
                collectives::build_with_sizes(&spec, &Sizes::each(sizes)?, &choice.graph_choice())
            }
            _ => collectives::build(&spec, &choice.graph_choice()),
        }
    }
}
