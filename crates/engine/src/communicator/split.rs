//! Splitting a communicator into smaller ones.

use crate::communicator::Communicator;
use crate::context::Offer;
use crate::error::Error;
use crate::signature::{CallKind, Signature};
use crate::state::StateLayout;
use std::sync::Arc;

/// State of a new communicator, which its first rank has allocated for all.
#[derive(Debug)]
pub struct GroupOffer {
    offer: Offer,
    /// Name of the communicator in a profile.
    name: u64,
}

impl GroupOffer {
    /// The offer of another rank.
    pub fn none() -> Self {
        GroupOffer { offer: Offer::none(), name: 0 }
    }

    /// Returns the words for the other ranks.
    pub fn words(&self) -> [u64; 2] {
        [self.offer.word(), self.name]
    }
}

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
        let offer = match chosen.first() == Some(&self.rank()) {
            true => self.offer_group(chosen.len()),
            false => GroupOffer::none(),
        };
        let [state, name] = offer.words();
        // All ranks take part, also those without a colour and leaders without memory: the others
        // would wait for them.
        let answers = exchanges.run([state, name, 0, 0, 0, 0], sequence, call)?;
        let Some(leader) = chosen.first() else { return Ok(None) };
        let [state, name, ..] = answers[*leader as usize];
        self.of_group(&chosen, offer, [state, name]).map(Some)
    }

    /// Allocates the state of a communicator of this many ranks of this one. Its first rank calls this for
    /// all of them, and gives the words to the others.
    pub fn offer_group(&self, ranks: usize) -> GroupOffer {
        let bytes = StateLayout::new(ranks.max(1) as u32).bytes();
        let offer = self.context.offer_to_all(bytes, self.context.last_sequence());
        // The leader names the communicator for the profile, so all its ranks use one name.
        let member = self.member();
        let name = member.trace().map_or(0, |trace| trace.name_communicator(member.rank()));
        GroupOffer { offer, name }
    }

    /// Opens the communicator of `ranks` of this one, in this order. This rank is one of them. `offer` is
    /// its own offer, the words are from the offer of the first rank.
    ///
    /// # Errors
    /// Returns an error if the first rank has no memory for it. Another error of that rank is its own,
    /// and the others are told that it has one.
    pub fn of_group(
        self: &Arc<Self>,
        ranks: &[u32],
        offer: GroupOffer,
        [state, name]: [u64; 2],
    ) -> Result<Arc<Communicator>, Error> {
        let leader = ranks.first().copied().unwrap_or(0);
        let purpose = || format!("one of {} ranks", ranks.len());
        let state = offer.offer.accept((leader, state), purpose)?;
        let rank = ranks.iter().position(|rank| *rank == self.rank()).unwrap_or(0) as u32;
        let members = ranks.iter().map(|rank| self.context.members[*rank as usize]).collect();
        Communicator::new(Arc::clone(self.member()), members, rank, state, name)
    }

    /// Frees the state that this rank has offered. No other rank has got the words of the offer, so none
    /// opens the state.
    pub fn take_back(&self, offer: GroupOffer) {
        if let Some(at) = offer.offer.memory() {
            // This rank is its only user.
            self.member().release_shared(at, 1, true);
            self.member().end_some();
        }
    }
}
