//! Gather: the root gets every rank's block, in rank order.

use crate::CollectiveError;
use crate::binomial_tree::BinomialTree;
use crate::blocks::{Row, merged};
use crate::member::Member;
use goal::graph::{Access, Blocks, Graph};

/// A binomial tree: each rank collects its subtree's blocks in the scratchpad and passes them on as one message.
/// ⌈log₂ ranks⌉ messages deep, `ranks` − 1 messages in all.
///
/// The collecting ranks need temporary memory that belongs to the run, not to whoever drew the graph: this is the
/// example for which Schneider et al. 2011, section 2.2, give schedules a scratchpad. Buffer 1 is empty on all ranks
/// but the root.
///
/// # Errors
/// [`CollectiveError::RankOutOfRange`], [`CollectiveError::RootOutOfRange`], [`CollectiveError::TooManyBytes`].
///
/// ```
/// // Rank 4 of 8 collects for 5, 6 and 7 and hands four blocks to the root.
/// let graph = collectives::gather::tree_gather(4, 8, 0, 16)?;
/// assert_eq!(graph.scratchpad_bytes(), 3 * 16);
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
pub fn tree_gather(rank: u32, ranks: u32, root: u32, bytes: u64) -> Result<Graph, CollectiveError> {
    const TAG: u32 = 0;
    let member = Member::new(rank, ranks)?;
    let tree = BinomialTree::new(member, ranks, root)?;
    let mut graph = member.graph();
    let input = graph.buffer(Access::Input, bytes);
    let Some(parent) = tree.parent else {
        let output = Row::buffer(&mut graph, Access::Output, ranks, bytes)?;
        graph.copy(input, output.at(rank));
        for child in &tree.children {
            graph.receive(round(output, child.rank, child.size, ranks), child.rank, TAG);
        }
        return Ok(graph);
    };
    graph.buffer(Access::Output, 0);
    // Subtrees of 1, 2, 4, … ranks follow each other, so a child's place is its distance less this rank's own block.
    let collected = tree.children.iter().map(|child| child.size).sum();
    let subtrees = Row::scratchpad(&mut graph, collected, bytes)?;
    let receives: Vec<_> = tree
        .children
        .iter()
        .map(|child| graph.receive(subtrees.range(child.distance - 1, child.size), child.rank, TAG))
        .collect();
    let send = match collected {
        0 => graph.send(input, parent, TAG),
        _ => graph.send([input, subtrees.all()], parent, TAG),
    };
    for receive in receives {
        graph.requires(send, receive);
    }
    Ok(graph)
}

/// The blocks of `count` ranks from `first` on, which continue with rank 0 after the last rank.
fn round(output: Row, first: u32, count: u32, ranks: u32) -> Blocks {
    let before_wrap = count.min(ranks - first);
    let parts = [output.range(first, before_wrap), output.range(0, count - before_wrap)];
    merged(parts.into_iter().filter(|part| part.length > 0))
}
