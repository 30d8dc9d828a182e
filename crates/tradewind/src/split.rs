//! Communicators made from others.

use crate::communicator::Communicator;
use crate::error::Result;
use crate::internode::group::InternodeGroup;
use crate::placement::Placement;
use engine::signature::{CallKind, Signature};
use std::sync::Arc;

/// # New communicators
impl Communicator {
    /// Splits the communicator: the ranks with the same `color` form a new one, ordered by `key`,
    /// then by rank in this one. A rank without a colour is in none. A collective call that waits
    /// for all ranks.
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(5, |world| {
    ///     let half = world.split(Some(world.rank() % 2), 0)?;
    ///     let half = half.expect("every rank has a colour");
    ///     assert_eq!(half.size(), if world.rank() % 2 == 0 { 3 } else { 2 });
    ///     assert_eq!(half.rank(), world.rank() / 2);
    ///     half.barrier()
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if a rank is gone or in another collective, or if the segment is full; and in a job of n
    /// ranks after about 2³¹ / n splits and duplications, because numbers of dropped communicators
    /// are not used again.
    pub fn split(&self, color: Option<u32>, key: i64) -> Result<Option<Communicator>> {
        if let Some(internode) = self.internode() {
            return self.split_between_nodes(internode, color, key);
        }
        let group = self.group().split(color, key)?;
        group.map(|group| self.subset(group, None)).transpose()
    }

    /// Duplicates the communicator: the same ranks, in a communication context of their own. A
    /// collective call that waits for all ranks.
    ///
    /// # Errors
    /// The errors of [`split`](Self::split).
    pub fn dup(&self) -> Result<Communicator> {
        let same = self.split(Some(0), i64::from(self.rank()))?;
        Ok(same.unwrap_or_else(|| self.clone()))
    }

    /// Splits off the ranks of this rank's node, which can share memory, in the same order. A
    /// collective call that waits for all ranks.
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(3, |world| {
    ///     assert_eq!(world.split_by_node()?.size(), 3);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`split`](Self::split).
    pub fn split_by_node(&self) -> Result<Communicator> {
        match self.split(Some(self.node()), i64::from(self.rank()))? {
            Some(communicator) => Ok(communicator),
            None => unreachable!("every rank has a colour"),
        }
    }

    /// Number of nodes that the ranks are on.
    pub fn nodes(&self) -> u32 {
        match self.rules().placement() {
            Placement::OneNode(_) => 1,
            Placement::Nodes(layout) => layout.nodes,
        }
    }

    /// Number of this rank's node.
    pub(crate) fn node(&self) -> u32 {
        self.internode().and_then(|internode| internode.node_of(internode.rank())).unwrap_or(0)
    }

    /// Splits a communicator on several nodes. The group of each node is split alike, even where
    /// the new communicator has no use for the part: a split is collective in the group.
    fn split_between_nodes(
        &self,
        internode: &Arc<InternodeGroup>,
        color: Option<u32>,
        key: i64,
    ) -> Result<Option<Communicator>> {
        let creation = internode.job().begin_creation();
        let new = self.message_context().begin()?;
        let words = [
            u64::from(color.is_some()),
            u64::from(color.unwrap_or(0)),
            key.cast_unsigned(),
            u64::from(new.offer()),
            0,
            0,
        ];
        let gathered = self.allgather_words(words, Signature::new(CallKind::Split, 0, 0))?;
        let mut chosen: Vec<u32> = (0..internode.ranks())
            .filter(|rank| color.is_some() && gathered[*rank as usize][..2] == words[..2])
            .collect();
        // The rank decides between equal keys, so all ranks compute the same order.
        chosen.sort_by_key(|rank| (gathered[*rank as usize][2].cast_signed(), *rank));
        let own = chosen.iter().position(|rank| *rank == internode.rank());
        let group = self.group().split(color, own.unwrap_or(0) as i64)?;
        let Some(group) = group else { return Ok(None) };
        // All of them are on this node: the group alone is the communicator.
        if group.size() as usize == chosen.len() {
            return self.subset(group, None).map(Some);
        }
        let number = new.take(chosen.iter().map(|rank| gathered[*rank as usize][3] as u32))?;
        let subset = internode.subset(&group, &chosen, number);
        drop(creation);
        self.subset(group, Some(subset)).map(Some)
    }
}
