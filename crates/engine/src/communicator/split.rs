//! Splitting a communicator into smaller ones.

use crate::communicator::Communicator;
use crate::error::Error;
use crate::signature::{CallKind, Signature};
use crate::state::StateLayout;
use shm::segment::Offset;
use std::sync::Arc;

/// State offset of a new communicator without memory.
const NO_MEMORY: u64 = u64::MAX;

impl Communicator {
    /// Creates a communicator for each colour, with ranks ordered by key, then by rank in this
    /// communicator. A rank without a colour is a member of none.
    ///
    /// # Errors
    /// Returns an error if a rank has failed or is in another collective, or if the first rank of a
    /// new communicator has no memory for it.
    pub fn split(
        self: &Arc<Self>,
        color: Option<u32>,
        key: i64,
    ) -> Result<Option<Arc<Communicator>>, Error> {
        let context = &self.context;
        let member = &context.member;
        let call = Signature::new(CallKind::Split, 0, 0);
        let sequence = context.begin(call);
        let mut exchanges = context.exchanges();
        let has_color = u64::from(color.is_some());
        let mine = [has_color, u64::from(color.unwrap_or(0)), key.cast_unsigned(), 0, 0, 0];
        let all = exchanges.run(mine, sequence, call)?;
        let mut chosen: Vec<u32> = (0..self.size())
            .filter(|rank| color.is_some() && all[*rank as usize][..2] == mine[..2])
            .collect();
        chosen.sort_by_key(|rank| (all[*rank as usize][2].cast_signed(), *rank));
        let is_leader = chosen.first() == Some(&self.rank());
        let bytes = StateLayout::new(chosen.len().max(1) as u32).bytes();
        let state = match is_leader {
            true => context.allocate_for_all(bytes, sequence).map_or(NO_MEMORY, |at| at.0),
            false => 0,
        };
        // The leader names the communicator for the profile, so all its ranks use one name.
        let trace = member.trace().filter(|_| is_leader);
        let name = trace.map_or(0, |trace| trace.name_communicator(member.rank()));
        // All ranks take part, also those without a colour and leaders without memory: the others
        // would wait for them.
        let answers = exchanges.run([state, name, 0, 0, 0, 0], sequence, call)?;
        let Some(leader) = chosen.first() else { return Ok(None) };
        let [state, name, ..] = answers[*leader as usize];
        if state == NO_MEMORY {
            return Err(Error::NoMemory(format!(
                "rank {leader} has no memory for a communicator of {} ranks ({bytes} bytes): \
                 set TRADEWIND_ARENA_MIB to more",
                chosen.len()
            )));
        }
        let rank = chosen.iter().position(|rank| *rank == self.rank()).unwrap_or(0) as u32;
        let members = chosen.iter().map(|rank| context.members[*rank as usize]).collect();
        Communicator::new(Arc::clone(member), members, rank, Offset(state), name).map(Some)
    }
}
