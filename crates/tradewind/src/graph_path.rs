//! The path of a collective through the graph of its algorithm.

use crate::communicator::Communicator;
use crate::error::Result;
use crate::path::ExecutionPath;
use crate::selection::choice::SelectedAlgorithm;
use collectives::{CollectiveError, GraphSpec, Reduction};
use engine::signature::Signature;
use goal::arithmetic::{Arithmetic, DataType};
use goal::graph::Graph;
use std::num::NonZeroU32;

impl Communicator {
    /// The path of a collective through a schedule: cached, or built and linked now. `build` builds
    /// the graph of any rank.
    pub(crate) fn linked(
        &self,
        (call, selected): (Signature, &SelectedAlgorithm),
        (arguments, sizes): (u64, Vec<u64>),
        build: impl Fn(u32) -> Result<Graph, CollectiveError>,
    ) -> Result<ExecutionPath> {
        self.path(selected.link_key(call, arguments, sizes), |rank| Ok(build(rank)?))
    }

    /// The path of a collective with blocks of one size through a schedule. `root` and `reduction`
    /// are ignored by collectives without one.
    pub(crate) fn linked_equal(
        &self,
        (call, selected): (Signature, &SelectedAlgorithm),
        arguments: u64,
        (root, bytes, reduction): (u32, u64, Option<Reduction>),
    ) -> Result<ExecutionPath> {
        self.linked((call, selected), (arguments, Vec::new()), |rank| {
            self.equal_graph(selected, rank, (root, bytes, reduction))
        })
    }

    /// The graph of a rank for a collective with blocks of one size.
    pub(crate) fn equal_graph(
        &self,
        selected: &SelectedAlgorithm,
        rank: u32,
        (root, bytes, reduction): (u32, u64, Option<Reduction>),
    ) -> Result<Graph, CollectiveError> {
        let spec = GraphSpec {
            collective: selected.collective,
            rank,
            ranks: self.size(),
            ranks_per_node: selected.ranks_per_node.unwrap_or(NonZeroU32::MIN),
            root,
            bytes,
            reduction: reduction.unwrap_or(Reduction::new(Arithmetic::Add, DataType::U8)),
        };
        collectives::build(&spec, &selected.graph_choice())
    }
}
