//! Reduce: the root gets all ranks' contributions combined.
//!
//! # Algorithms
//!
//! - **flat**: Every rank sends its contribution to the root, which folds them from the left in
//!   rank order. One message deep.
//!
//!   Barchet-Estefanel, Mounié: "Performance Characterisation of Intra-Cluster Collective
//!   Communications" (2004), table 1 read backwards: the flat tree.
//! - **chain**: From both ends towards the root: each rank combines what it gets with its own
//!   contribution and passes that on. As many messages deep as the root is away from the farther
//!   end; `ranks` − 1 if it is an end itself.
//!
//!   Barchet-Estefanel, Mounié 2004, table 1 read backwards: the chain. Two ends in place of a turn
//!   over the last rank keep the contributions in rank order.
//! - **segmented-chain**: Chain in segments: a rank combines one while it receives the next.
//!
//!   Barchet-Estefanel, Mounié 2004, table 1 read backwards: the segmented chain, or pipeline.
//! - **binomial**: In round k, of two runs of 2^k consecutive ranks one hands what it has combined
//!   to the other. At most ⌈log₂ ranks⌉ messages deep, `ranks` − 1 in all.
//!
//!   Thakur, Rabenseifner, Gropp: "Optimization of Collective Communication Operations in MPICH",
//!   International Journal of High Performance Computing Applications 19(1), 2005: the binomial
//!   tree. The run with the root is always the one that goes on, so that any root gets the
//!   contributions in rank order without a message more.
//! - **d-ary**: Each rank combines for up to [`degree`](Tuning::degree) runs of consecutive ranks
//!   beside it, its children.
//!
//!   Barchet-Estefanel, Mounié 2004, section 3 read backwards: d-ary trees.
//! - **rabenseifner**: Partners 2^k apart swap halves of the vector and combine them, until every
//!   rank of a power of two has a part; then the parts are gathered along the same tree. A rank
//!   sends about twice the vector, however many ranks there are. For long vectors.
//!
//!   Rabenseifner: "Optimization of Collective Reduction Operations", International Conference on
//!   Computational Science, 2004.
//! - **join**: One join vertex of all ranks that folds their contributions from the left in rank
//!   order; only the root takes the result.

mod rabenseifner;
mod run_tree;

use crate::blocks::Segments;
use crate::builder::GraphBuilder;
use crate::{Algorithm, Collective, CollectiveError, Reduction, Tuning};
use goal::graph::{Access, Block, Blocks, Graph, JoinMode};
use run_tree::RunTree;

/// Builds the graph of an algorithm; `bytes` is the size of a contribution. Buffer 0 is the input,
/// the contribution; buffer 1 the output, at the root the result, elsewhere empty.
///
/// # Errors
/// [`CollectiveError::Algorithm`], [`CollectiveError::RankOutOfRange`],
/// [`CollectiveError::RootOutOfRange`], [`CollectiveError::NotWholeElements`],
/// [`CollectiveError::NotApplicable`], [`CollectiveError::TooManyBytes`]; in segments,
/// [`CollectiveError::TooManySegments`]; for subtraction and division,
/// [`CollectiveError::NotAssociative`] unless the algorithm [folds from the
/// left](Collective::folds_from_left).
///
/// ```
/// use collectives::{Algorithm, Reduction, Tuning, reduce};
/// use goal::arithmetic::{Arithmetic, DataType};
///
/// let sum = Reduction::new(Arithmetic::Add, DataType::F64);
/// let graph = reduce::graph(Algorithm::Binomial, 1, 4, 0, 80, sum, Tuning::default())?;
/// assert_eq!(graph.vertices().len(), 1); // rank 1 sends its contribution
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
pub fn graph(
    algorithm: Algorithm,
    rank: u32,
    ranks: u32,
    root: u32,
    bytes: u64,
    reduction: Reduction,
    tuning: Tuning,
) -> Result<Graph, CollectiveError> {
    let mut builder = GraphBuilder::new(rank, ranks)?;
    builder.member().behind(root)?;
    reduction.check(bytes)?;
    let input = builder.buffer(Access::Input, bytes);
    let output = builder.buffer(Access::Output, if rank == root { bytes } else { 0 });
    build(
        algorithm,
        &mut builder,
        root,
        reduction,
        input,
        (rank == root).then_some(output),
        tuning,
    )?;
    Ok(builder.finish())
}

/// Builds it for the ranks of a group; the output is the root's.
pub(crate) fn build(
    algorithm: Algorithm,
    builder: &mut GraphBuilder,
    root: u32,
    reduction: Reduction,
    input: Block,
    output: Option<Block>,
    tuning: Tuning,
) -> Result<(), CollectiveError> {
    reduction.check_grouping(Collective::Reduce, algorithm)?;
    let member = builder.member();
    let segments = || Segments::new(tuning.segment_bytes, reduction.unit(), input.length);
    let (tree, segments) = match algorithm {
        Algorithm::Flat => (RunTree::flat(member, root), Segments::WHOLE),
        Algorithm::Chain => (RunTree::of_degree(member, root, 1), Segments::WHOLE),
        Algorithm::SegmentedChain => (RunTree::of_degree(member, root, 1), segments()?),
        Algorithm::Binomial => (RunTree::binomial(member, root), Segments::WHOLE),
        Algorithm::Dary => (RunTree::of_degree(member, root, tuning.degree.get()), Segments::WHOLE),
        Algorithm::Rabenseifner => {
            return rabenseifner::build(builder, root, reduction, input, output);
        }
        Algorithm::Join => {
            let mode =
                JoinMode::Reduce { operation: reduction.operation, data_type: reduction.data_type };
            builder.join(mode, input, output.map_or(Blocks::none(), Blocks::from));
            return Ok(());
        }
        other => return Err(Collective::Reduce.lacks(other).into()),
    };
    tree.build(builder, reduction, input, output, segments)
}
