//! Splitting a communicator into smaller ones.

use crate::communicator::Communicator;
use crate::context::Offer;
use crate::error::Error;
use crate::signature::{CallKind, Signature};
use crate::state::StateLayout;
use std::sync::Arc;

impl Communicator {
    /// Creates a communicator for each colour, with ranks ordered by key, then by rank in this
    /// communicator. A rank without a colour is a member of none.
    ///
    /// # Errors
    /// Returns an error if a rank has failed or is in another collective, or if the first rank of a
    /// new communicator has no memory for it. Other errors of that rank are its own, and the others
    /// are told that it has one.
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
        let offer = match is_leader {
            true => context.offer_to_all(bytes, sequence),
            false => Offer::none(),
        };
        // The leader names the communicator for the profile, so all its ranks use one name.
        let trace = member.trace().filter(|_| is_leader);
        let name = trace.map_or(0, |trace| trace.name_communicator(member.rank()));
        // All ranks take part, also those without a colour and leaders without memory: the others
        // would wait for them.
        let answers = exchanges.run([offer.word(), name, 0, 0, 0, 0], sequence, call)?;
        let Some(leader) = chosen.first() else { return Ok(None) };
        let [state, name, ..] = answers[*leader as usize];
        let purpose = || format!("one of {} ranks ({bytes} bytes)", chosen.len());
        let state = offer.accept((*leader, state), purpose)?;
        let rank = chosen.iter().position(|rank| *rank == self.rank()).unwrap_or(0) as u32;
        let members = chosen.iter().map(|rank| context.members[*rank as usize]).collect();
        Communicator::new(Arc::clone(member), members, rank, state, name).map(Some)
    }
}
