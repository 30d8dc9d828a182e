//! A directed graph in compressed rows: an order in which every arc leads forward, or a cycle.

use std::collections::VecDeque;

/// An arc, seen from the node it leads from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arc {
    /// The node it leads to.
    pub(super) to: usize,
    /// `true` if the target waits for the completion of the other rather than for its start.
    pub(super) until_complete: bool,
}

/// The arcs of all nodes, those of one node side by side.
pub(super) struct Digraph {
    first: Vec<usize>,
    arcs: Vec<Arc>,
}

impl Digraph {
    /// The graph of `nodes` nodes with these arcs, each with the node it leads from.
    pub(super) fn new(nodes: usize, arcs: &[(usize, Arc)]) -> Self {
        // Counting sort by the node that an arc leads from. It is stable: the arcs of a node keep
        // their order, on which the reported cycle depends.
        let mut first = vec![0usize; nodes + 1];
        for (from, _) in arcs {
            first[from + 1] += 1;
        }
        for node in 0..nodes {
            first[node + 1] += first[node];
        }
        let mut next = first.clone();
        let mut sorted = vec![Arc { to: 0, until_complete: false }; arcs.len()];
        for (from, arc) in arcs {
            sorted[next[*from]] = *arc;
            next[*from] += 1;
        }
        Digraph { first, arcs: sorted }
    }

    /// The number of nodes.
    pub(super) fn nodes(&self) -> usize {
        self.first.len() - 1
    }

    /// The arcs that lead from a node.
    pub(super) fn arcs(&self, node: usize) -> &[Arc] {
        &self.arcs[self.first[node]..self.first[node + 1]]
    }

    /// All nodes in an order in which every arc leads forward.
    ///
    /// # Errors
    /// The nodes of one cycle, along its arcs.
    pub(super) fn order(&self) -> Result<Vec<usize>, Vec<usize>> {
        // Kahn, "Topological sorting of large networks" (1962). `order` is the queue as well: a
        // node enters it when all nodes with an arc to it are in it. A node on a cycle never does.
        let mut missing = vec![0usize; self.nodes()];
        for arc in &self.arcs {
            missing[arc.to] += 1;
        }
        let mut order: Vec<usize> = (0..self.nodes()).filter(|node| missing[*node] == 0).collect();
        let mut next = 0;
        while let Some(node) = order.get(next).copied() {
            next += 1;
            for arc in self.arcs(node) {
                missing[arc.to] -= 1;
                if missing[arc.to] == 0 {
                    order.push(arc.to);
                }
            }
        }
        if order.len() == self.nodes() { Ok(order) } else { Err(self.cycle(&missing)) }
    }

    /// A cycle among the nodes that still miss something: each of them has an arc from another of
    /// them, so following these arcs backwards must come round. Of the cycles through the node
    /// where it does, a shortest one.
    fn cycle(&self, missing: &[usize]) -> Vec<usize> {
        let stuck = || (0..self.nodes()).filter(|node| missing[*node] > 0);
        let mut before = vec![usize::MAX; self.nodes()];
        for node in stuck() {
            for arc in self.arcs(node).iter().filter(|arc| missing[arc.to] > 0) {
                before[arc.to] = node;
            }
        }
        // The first node that the walk meets twice lies on a cycle; those before it need not.
        let mut seen = vec![false; self.nodes()];
        let mut node = stuck().next().unwrap_or(0);
        while !seen[node] {
            seen[node] = true;
            node = before[node];
        }
        let mut cycle = self.shortest_way_round(node, missing);
        // The same cycle is reported from the same node, wherever the search began.
        let lowest = (0..cycle.len()).min_by_key(|index| cycle[*index]).unwrap_or(0);
        cycle.rotate_left(lowest);
        cycle
    }

    /// The nodes along a shortest cycle through `home`, which lies on one. Breadth first.
    fn shortest_way_round(&self, home: usize, missing: &[usize]) -> Vec<usize> {
        // `home` counts as not reached at first, so that the search records the way back to it.
        let mut reached_from = vec![usize::MAX; self.nodes()];
        let mut queue = VecDeque::from([home]);
        while let Some(node) = queue.pop_front() {
            for arc in self.arcs(node).iter().filter(|arc| missing[arc.to] > 0) {
                if reached_from[arc.to] == usize::MAX {
                    reached_from[arc.to] = node;
                    queue.push_back(arc.to);
                }
            }
            if reached_from[home] != usize::MAX {
                break;
            }
        }
        let mut cycle = vec![home];
        let mut member = reached_from[home];
        while member != home {
            cycle.push(member);
            member = reached_from[member];
        }
        cycle.reverse();
        cycle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digraph(nodes: usize, arcs: &[(usize, usize)]) -> Digraph {
        let arcs: Vec<_> =
            arcs.iter().map(|(from, to)| (*from, Arc { to: *to, until_complete: true })).collect();
        Digraph::new(nodes, &arcs)
    }

    #[test]
    fn every_arc_leads_forward() {
        let order = digraph(4, &[(3, 1), (1, 0), (3, 0)]).order().expect("has no cycle");
        assert_eq!(order, [2, 3, 1, 0]);
    }

    #[test]
    fn a_cycle_is_named_without_what_hangs_on_it() {
        let cycle = digraph(6, &[(5, 4), (4, 2), (2, 3), (3, 4), (3, 1), (1, 0)])
            .order()
            .expect_err("2, 3 and 4");
        assert_eq!(cycle, [2, 3, 4]);
    }

    #[test]
    fn the_shortest_way_round_is_named() {
        let arcs = [(0, 1), (1, 2), (2, 3), (3, 0), (1, 3), (3, 2)];
        let cycle = digraph(4, &arcs).order().expect_err("all of them are stuck");
        assert!(cycle.len() <= 3, "{cycle:?}");
    }

    #[test]
    fn a_node_that_waits_for_itself_is_a_cycle() {
        assert_eq!(digraph(2, &[(1, 1)]).order(), Err(vec![1]));
    }
}
