//! The placement of a communicator's ranks on nodes.

use models::decision::CallForm;
use models::decision::rules::MachineClass;
use models::machine_file::Engine;
use std::num::NonZeroU32;

/// Placement of the ranks of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// All ranks are on one node of this class.
    OneNode(MachineClass),
    /// The ranks are on several nodes.
    Nodes(NodeLayout),
}

/// Arrangement of ranks on several nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeLayout {
    /// Number of nodes.
    pub(crate) nodes: u32,
    /// Number of consecutive ranks on each node, at least two, where it is the same on every node
    /// but perhaps the last, which may have fewer.
    pub(crate) ranks_per_node: Option<NonZeroU32>,
    /// Name of the preferred backend between the nodes.
    pub(crate) backend: &'static str,
    /// Collectives that run inside the ranks instead of the node service.
    pub(crate) in_ranks: InRanks,
}

/// Collectives that run inside the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InRanks {
    /// None: the ranks are not connected.
    Nothing,
    /// Those in blocking form, and others of one step that exchange fewer than these bytes with
    /// one rank. 0 where the node services have cores for these.
    Blocking(u64),
    /// Those in both forms.
    All,
}

impl InRanks {
    /// Returns true if calls of this form run inside the ranks.
    fn has(self, form: CallForm) -> bool {
        match form {
            CallForm::Blocking => self != InRanks::Nothing,
            CallForm::Nonblocking => self == InRanks::All,
        }
    }
}

impl NodeLayout {
    /// Arrangement that follows from the node of each rank.
    pub(crate) fn new(nodes: &[u32], backend: &'static str, in_ranks: InRanks) -> Self {
        let mut distinct = nodes.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let count = distinct.len();
        let each = nodes.iter().take_while(|node| Some(*node) == nodes.first()).count();
        let regular = each > 1
            && nodes.len().div_ceil(each) == count
            && nodes.chunks(each).all(|chunk| chunk.iter().all(|node| *node == chunk[0]));
        let ranks_per_node = if regular { NonZeroU32::new(each as u32) } else { None };
        NodeLayout { nodes: count as u32, ranks_per_node, backend, in_ranks }
    }

    /// Name of the engine of calls of a form with graphs that this backend executes: where ranks
    /// are connected, the node service's graphs run inside them in one form or both.
    pub(crate) fn engine_of(&self, form: CallForm, backend: &'static str) -> &'static str {
        if self.in_ranks.has(form) && backend == Engine::Agent.name() {
            Engine::Direct.name()
        } else {
            backend
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_ranks_of_equal_nodes_form_levels() {
        let levels = |nodes: &[u32]| {
            let layout = NodeLayout::new(nodes, "", InRanks::Nothing);
            (layout.nodes, layout.ranks_per_node.map_or(1, NonZeroU32::get))
        };
        assert_eq!(levels(&[0, 0, 1, 1]), (2, 2));
        assert_eq!(levels(&[3, 3, 3, 0, 0, 0, 1]), (3, 3), "the last may have fewer");
        assert_eq!(levels(&[0, 1]), (2, 1), "one rank a node is one level");
        assert_eq!(levels(&[0, 0, 1, 1, 1]), (2, 1), "the last has more");
        assert_eq!(levels(&[0, 0, 1, 2, 2]), (3, 1), "one in the middle has fewer");
        assert_eq!(levels(&[0, 1, 0, 1]), (2, 1), "not consecutive");
        assert_eq!(levels(&[0, 0, 1, 1, 0, 0]), (2, 1), "not consecutive");
    }
}
