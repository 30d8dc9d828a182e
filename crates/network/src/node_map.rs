//! The node of each rank of a job.

use std::sync::Arc;

/// The nodes of a job, numbered from 0 in the order of their first ranks.
///
/// ```
/// use network::node_map::NodeMap;
///
/// let nodes = NodeMap::new(["a", "a", "b", "b", "a"]);
/// assert_eq!((nodes.count(), nodes.ranks()), (2, 5));
/// assert_eq!(nodes.of(4), Some(0));
/// assert_eq!(nodes.members(0).collect::<Vec<_>>(), [0, 1, 4]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeMap {
    of_rank: Arc<[u32]>,
    count: u32,
}

impl NodeMap {
    /// Numbers the nodes, given the name of each rank's node in rank order.
    pub fn new<N: PartialEq>(names: impl IntoIterator<Item = N>) -> Self {
        let mut known: Vec<N> = Vec::new();
        let of_rank: Arc<[u32]> = names
            .into_iter()
            .map(|name| match known.iter().position(|other| *other == name) {
                Some(node) => node as u32,
                None => {
                    known.push(name);
                    known.len() as u32 - 1
                }
            })
            .collect();
        NodeMap { of_rank, count: known.len() as u32 }
    }

    /// Number of nodes.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u32 {
        self.of_rank.len() as u32
    }

    /// The node of a rank of the job, if there is such a rank.
    pub fn of(&self, rank: u32) -> Option<u32> {
        self.of_rank.get(rank as usize).copied()
    }

    /// The ranks of a node, in order.
    pub fn members(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        (0..self.ranks()).filter(move |rank| self.of(*rank) == Some(node))
    }

    /// The node of every rank, in rank order.
    pub fn node_of_rank(&self) -> &[u32] {
        &self.of_rank
    }
}
