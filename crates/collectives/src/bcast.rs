//! Broadcast: every rank gets the root's bytes.

use crate::CollectiveError;
use crate::binomial_tree::BinomialTree;
use crate::member::Member;
use goal::graph::{Access, Block, Blocks, Graph, JoinMode};

algorithms! {
    "bcast",
    /// [`binomial`].
    Binomial = "binomial",
    /// [`join`].
    Join = "join",
}

impl Algorithm {
    /// The graph that this algorithm draws.
    ///
    /// # Errors
    /// As the algorithm's function.
    pub fn graph(self, rank: u32, ranks: u32, root: u32, bytes: u64) -> Result<Graph, CollectiveError> {
        match self {
            Algorithm::Binomial => binomial(rank, ranks, root, bytes),
            Algorithm::Join => join(rank, ranks, root, bytes),
        }
    }
}

/// A binomial tree: whoever has the bytes passes them on, to the child with the largest subtree first.
/// ⌈log₂ ranks⌉ messages deep.
///
/// Thakur, Rabenseifner, Gropp: "Optimization of Collective Communication Operations in MPICH", International Journal
/// of High Performance Computing Applications 19(1), 2005: the tree for short broadcasts.
///
/// # Errors
/// [`CollectiveError::RankOutOfRange`], [`CollectiveError::RootOutOfRange`].
///
/// ```
/// let root = collectives::bcast::binomial(3, 8, 3, 1024)?;
/// assert_eq!(root.vertices().len(), 3); // sends to the ranks 7, 5 and 4
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
pub fn binomial(rank: u32, ranks: u32, root: u32, bytes: u64) -> Result<Graph, CollectiveError> {
    const TAG: u32 = 0;
    let member = Member::new(rank, ranks)?;
    let tree = BinomialTree::new(member, ranks, root)?;
    let mut graph = member.graph();
    let data = buffer(&mut graph, root, bytes);
    let receive = tree.parent.map(|parent| graph.receive(data, parent, TAG));
    for child in tree.children.iter().rev() {
        let send = graph.send(data, child.rank, TAG);
        if let Some(receive) = receive {
            graph.requires(send, receive);
        }
    }
    Ok(graph)
}

/// All ranks meet in one join vertex, in which nobody waits for anyone but the root.
///
/// # Errors
/// [`CollectiveError::RankOutOfRange`], [`CollectiveError::RootOutOfRange`].
///
/// ```
/// assert_eq!(collectives::bcast::join(0, 8, 3, 1024)?.vertices().len(), 1);
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
pub fn join(rank: u32, ranks: u32, root: u32, bytes: u64) -> Result<Graph, CollectiveError> {
    let member = Member::new(rank, ranks)?;
    let is_root = member.behind(root)? == 0;
    let mut graph = member.graph();
    let data = Blocks::from(buffer(&mut graph, root, bytes));
    let (contribution, result) = if is_root { (data, Blocks::none()) } else { (Blocks::none(), data) };
    graph.join(JoinMode::Broadcast { root }, contribution, result);
    Ok(graph)
}

/// The one buffer: the root's input, everyone else's output.
fn buffer(graph: &mut Graph, root: u32, bytes: u64) -> Block {
    let access = if graph.rank() == root { Access::Input } else { Access::Output };
    graph.buffer(access, bytes)
}
