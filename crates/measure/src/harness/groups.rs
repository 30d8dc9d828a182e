//! Communicators of some of the ranks of a job, for steps that not all ranks take part in.

use super::error::Error;
use super::nodes::Nodes;
use super::setting::JobShape;
use std::collections::BTreeMap;
use tradewind::Communicator;

/// Communicators of some of a job's ranks, for the shapes of steps.
#[derive(Debug)]
pub struct Groups<'w> {
    world: &'w Communicator,
    nodes: Nodes,
    made: BTreeMap<Vec<u32>, Option<Communicator>>,
}

impl<'w> Groups<'w> {
    /// Groups of this job.
    pub fn new(world: &'w Communicator, nodes: Nodes) -> Self {
        Groups { world, nodes, made: BTreeMap::new() }
    }

    /// The communicator of a step's ranks; none on a rank that does not take part. All ranks call
    /// this, in the same order of shapes.
    ///
    /// # Errors
    /// When a rank is gone.
    pub fn of(&mut self, shape: &JobShape) -> Result<Option<&Communicator>, Error> {
        let Some(wanted) = shape.nodes.as_ref().filter(|wanted| wanted.ranks != self.nodes.ranks)
        else {
            return Ok(Some(self.world));
        };
        if !self.made.contains_key(&wanted.ranks) {
            let rank = self.world.rank();
            let node = self.nodes.node_of(rank);
            let before: u32 = self.nodes.ranks[..node].iter().sum();
            let taken = wanted.ranks.get(node).copied().unwrap_or(0);
            let color = (rank - before < taken).then_some(0);
            let group = self.world.split(color, i64::from(rank))?;
            self.made.insert(wanted.ranks.clone(), group);
        }
        Ok(self.made.get(&wanted.ranks).and_then(Option::as_ref))
    }

    /// Returns when all ranks of the job have called it. A rank that waits here sleeps, and leaves
    /// its core to those that measure.
    ///
    /// # Errors
    /// When a rank is gone.
    pub fn meet(&self) -> Result<(), Error> {
        Ok(self.world.ibarrier()?.wait()?)
    }
}
