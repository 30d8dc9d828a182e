//! Nodes that are connected from the start.

use std::collections::BTreeSet;

/// Distance up to which nodes are connected from the start.
const NEAR: u32 = 8;
/// Ratio of the distances of those that are farther.
const FAR_RATIO: u32 = 4;

/// Returns the nodes with which one of `nodes` nodes is connected from the start: those at the
/// distances 1 to 8, 32, 128 and so on in the ring of all nodes, both ways. A report passes through
/// this graph in at most ten steps for 10 000 nodes.
///
/// ```
/// use network::transport::tcp::neighbors;
///
/// assert_eq!(neighbors(3, 17).len(), 16);
/// assert_eq!(neighbors(0, 256).len(), 19);
/// assert_eq!(neighbors(0, 10_000).len(), 24);
/// ```
pub fn neighbors(node: u32, nodes: u32) -> BTreeSet<u32> {
    let far = std::iter::successors(Some(NEAR * FAR_RATIO), |far| far.checked_mul(FAR_RATIO));
    let distances = (1..=NEAR).chain(far).take_while(|distance| *distance <= nodes / 2);
    let both = distances
        .flat_map(|distance| [(node + distance) % nodes, (node + nodes - distance) % nodes]);
    both.filter(|other| *other != node).collect()
}
