//! Broadcast: every rank gets the root's bytes.
//!
//! # Algorithms
//!
//! - **flat**: The root sends to one rank after the other. One message deep.
//!
//!   Barchet-Estefanel, Mounié: "Performance Characterisation of Intra-Cluster Collective
//!   Communications" (2004), table 1: the flat tree.
//! - **flat-rendezvous**: Flat, and each message waits for its receiver: an empty message requests
//!   to send it, and an empty one from the receiver confirms that the bytes have a place.
//!
//!   Barchet-Estefanel, Mounié 2004, table 1: the flat tree with rendezvous, 2 g(1) + 3 L more than
//!   the bytes themselves take.
//! - **segmented-flat**: Flat in segments: the first goes to everyone, then the second, ….
//!
//!   Barchet-Estefanel, Mounié 2004, table 1: the segmented flat tree.
//! - **chain**: Each rank passes the bytes on to the next. `ranks` − 1 messages deep.
//!
//!   Barchet-Estefanel, Mounié 2004, table 1: the chain.
//! - **chain-rendezvous**: Chain, and each message waits for its receiver as in flat-rendezvous.
//!
//!   Barchet-Estefanel, Mounié 2004, table 1: the chain with rendezvous.
//! - **segmented-chain**: Chain in segments: a rank passes one on while it receives the next. With
//!   k segments it is `ranks` − 1 + k − 1 segments long instead of k · (`ranks` − 1).
//!
//!   Barchet-Estefanel, Mounié 2004, table 1: the segmented chain, or pipeline.
//! - **binary**: Each rank passes the bytes on to two others.
//!
//!   Barchet-Estefanel, Mounié 2004, table 1: the binary tree.
//! - **binomial**: A binomial tree: each rank that has the bytes passes them on, to the child with
//!   the largest subtree first. ⌊log₂ ranks⌋ messages deep.
//!
//!   Thakur, Rabenseifner, Gropp: "Optimization of Collective Communication Operations in MPICH",
//!   International Journal of High Performance Computing Applications 19(1), 2005: the tree for
//!   short broadcasts.
//! - **binomial-rendezvous**: Binomial, and each message waits for its receiver as in
//!   flat-rendezvous.
//!
//!   Barchet-Estefanel, Mounié 2004, table 1: the binomial tree with rendezvous.
//! - **segmented-binomial**: Binomial in segments.
//!
//!   Barchet-Estefanel, Mounié 2004, table 1: the segmented binomial tree.
//! - **d-ary**: Each rank passes the bytes on to [`degree`](Tuning::degree) others.
//!
//!   Barchet-Estefanel, Mounié 2004, section 3: d-ary trees; flat tree, chain and binary tree are
//!   special cases.
//! - **scatter-allgather**: Each rank gets one part of the bytes along a binomial tree, then all
//!   parts circulate in a ring. A rank sends about twice the bytes, however many ranks there are.
//!   ⌊log₂ ranks⌋ + `ranks` − 2 messages deep at most: no rank receives its part from the tree a
//!   second time.
//!
//!   Barnett, Shuler, van de Geijn, Gupta, Payne, Watts: "Interprocessor Collective Communication
//!   Library (InterCom)" (1994); Thakur, Rabenseifner, Gropp 2005: long broadcasts.
//! - **two-tree**: Two binary trees, in which no rank has children twice, carry every other segment
//!   each. Every rank sends about as much as it receives, so that the bandwidth of all is used.
//!
//!   Sanders, Speck, Träff: "Two-Tree Algorithms for Full Bandwidth Broadcast, Reduction and Scan",
//!   Parallel Computing 35(12), 2009, section 3. The paper's colouring, which assigns a step to
//!   every message, is omitted: a rank forwards each segment after its arrival.
//! - **join**: One join vertex of all ranks, in which ranks wait for the root only.

mod along_tree;
mod scatter_allgather;
mod two_tree;

use crate::blocks::Segments;
use crate::builder::GraphBuilder;
use crate::tree::Tree;
use crate::{Algorithm, Collective, CollectiveError, Tuning};
use along_tree::Handshake;
use goal::graph::{Access, Block, Blocks, Graph, JoinMode};

/// Builds the graph of an algorithm. Buffer 0 is the root's input and the output of all others.
///
/// # Errors
/// [`CollectiveError::Algorithm`], [`CollectiveError::RankOutOfRange`],
/// [`CollectiveError::RootOutOfRange`]; in segments, [`CollectiveError::TooManySegments`].
///
/// ```
/// use collectives::{Algorithm, Tuning, bcast};
///
/// let root = bcast::graph(Algorithm::Binomial, 3, 8, 3, 1024, Tuning::default())?;
/// assert_eq!(root.vertices().len(), 3); // sends to the ranks 7, 5 and 4
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
pub fn graph(
    algorithm: Algorithm,
    rank: u32,
    ranks: u32,
    root: u32,
    bytes: u64,
    tuning: Tuning,
) -> Result<Graph, CollectiveError> {
    let mut builder = GraphBuilder::new(rank, ranks)?;
    let data = builder.buffer(if rank == root { Access::Input } else { Access::Output }, bytes);
    build(algorithm, &mut builder, root, data, tuning)?;
    Ok(builder.finish())
}

/// Builds it for the ranks of a group; `data` is what the root has and the others are to get.
pub(crate) fn build(
    algorithm: Algorithm,
    builder: &mut GraphBuilder,
    root: u32,
    data: Block,
    tuning: Tuning,
) -> Result<(), CollectiveError> {
    let member = builder.member();
    member.behind(root)?;
    let segments = || Segments::new(tuning.segment_bytes, 1, data.length);
    let (tree, segments, handshake) = match algorithm {
        Algorithm::Flat => (Tree::flat(member, root)?, Segments::WHOLE, Handshake::None),
        Algorithm::FlatRendezvous => {
            (Tree::flat(member, root)?, Segments::WHOLE, Handshake::Rendezvous)
        }
        Algorithm::SegmentedFlat => (Tree::flat(member, root)?, segments()?, Handshake::None),
        Algorithm::Chain => (Tree::chain(member, root)?, Segments::WHOLE, Handshake::None),
        Algorithm::ChainRendezvous => {
            (Tree::chain(member, root)?, Segments::WHOLE, Handshake::Rendezvous)
        }
        Algorithm::SegmentedChain => (Tree::chain(member, root)?, segments()?, Handshake::None),
        Algorithm::Binary => (Tree::of_degree(member, root, 2)?, Segments::WHOLE, Handshake::None),
        Algorithm::Binomial => (Tree::binomial(member, root)?, Segments::WHOLE, Handshake::None),
        Algorithm::BinomialRendezvous => {
            (Tree::binomial(member, root)?, Segments::WHOLE, Handshake::Rendezvous)
        }
        Algorithm::SegmentedBinomial => {
            (Tree::binomial(member, root)?, segments()?, Handshake::None)
        }
        Algorithm::Dary => {
            (Tree::of_degree(member, root, tuning.degree.get())?, Segments::WHOLE, Handshake::None)
        }
        Algorithm::ScatterAllgather => return scatter_allgather::build(builder, root, data),
        Algorithm::TwoTree => return two_tree::build(builder, root, data, segments()?),
        Algorithm::Join => return join(builder, root, data),
        other => return Err(Collective::Bcast.lacks(other).into()),
    };
    along_tree::build(builder, &tree, data, segments, handshake);
    Ok(())
}

fn join(builder: &mut GraphBuilder, root: u32, data: Block) -> Result<(), CollectiveError> {
    let data = Blocks::from(data);
    let is_root = builder.member().rank() == root;
    let (contribution, result) =
        if is_root { (data, Blocks::none()) } else { (Blocks::none(), data) };
    builder.join(JoinMode::Broadcast { root }, contribution, result);
    Ok(())
}
