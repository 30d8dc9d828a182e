//! Environment of a step, and the rows that it makes.

use crate::harness::setting::{JobShape, machine};
use crate::rows::{Cores, Quantity, Row, What};
use std::path::Path;
use tradewind::Communicator;

/// Properties that all rows of an experiment share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowsOrigin {
    /// Name of the experiment.
    pub experiment: String,
    /// Speed of the link between virtual nodes in bits a second.
    pub link: Option<u64>,
}

/// Environment of a step: one rank of a job of its shape.
#[derive(Clone, Copy, Debug)]
pub struct StepContext<'a> {
    /// All ranks of the job.
    pub world: &'a Communicator,
    /// The requested shape.
    pub shape: &'a JobShape,
    /// The process of the node service, where it is one of its own.
    pub service: Option<u32>,
    /// Directory of the results; none in a trial on threads.
    pub directory: Option<&'a Path>,
    /// Properties that its rows share.
    pub origin: &'a RowsOrigin,
}

impl StepContext<'_> {
    /// A row of this step, of no size and no engine.
    pub fn row(&self, what: What, quantity: Quantity, times: Vec<f64>) -> Row {
        let ranks = self.world.size();
        let nodes = self.shape.nodes.as_ref();
        let node_of = |rank| nodes.map(|nodes| nodes.node_of(rank) as u32);
        let JobShape { cores: bound, shared_cores, .. } = self.shape;
        let cores = match bound.get(..ranks as usize) {
            Some(bound) => Cores::Bound(bound.to_vec()),
            None => Cores::Shared(*shared_cores),
        };
        let times = times.into_iter().map(to_hundredths_of_nanoseconds).collect();
        Row {
            nodes: self.world.nodes(),
            ranks_per_node: nodes.and_then(|nodes| nodes.ranks.first().copied()).unwrap_or(ranks),
            node_of_rank: (0..ranks).filter_map(node_of).collect(),
            cores: Some(cores),
            link: self.origin.link,
            machine: machine().to_owned(),
            ..Row::new(&self.origin.experiment, what, quantity, ranks, times)
        }
    }
}

/// Microseconds with five decimals: the mean of many calls has no more, and files are shorter.
fn to_hundredths_of_nanoseconds(microseconds: f64) -> f64 {
    (microseconds * 1e5).round() / 1e5
}
