//! Communicators that only their members make.

use crate::communicator::Communicator;
use crate::error::{Error, Result, argument};
use engine::communicator::Communicator as NodeCommunicator;
use engine::communicator::split::GroupOffer;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Words that a rank of a new communicator tells the others.
type Words = [u64; 2];

impl Communicator {
    /// Makes a communicator of some ranks of this one, in the order of the list, like
    /// `MPI_Comm_create_group`. Only these ranks call it, all with the same list, and wait for each other.
    ///
    /// The ranks agree by messages of this communicator with `tag`, which no other message of theirs has
    /// meanwhile. Lists with different first ranks, and a rank that others do not list, are not noticed:
    /// these ranks wait for each other.
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// tradewind::local(5, |world| {
    ///     if world.rank() % 2 == 1 {
    ///         return Ok(());
    ///     }
    ///     let even = world.create_from_group(&[4, 2, 0], 7)?;
    ///     assert_eq!((even.size(), even.rank()), (3, 2 - world.rank() / 2));
    ///     even.barrier()
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the list lacks this rank, or has a rank twice or one that does not exist; if another rank
    /// has another list with the same first rank; if a rank of the list is gone; and as
    /// [`split`](Self::split) does.
    pub fn create_from_group(&self, ranks: &[u32], tag: u32) -> Result<Communicator> {
        self.check_group(ranks)?;
        let Some(internode) = self.internode() else {
            let group = self.group_on_node((ranks, ranks), tag)?;
            return self.subset(group, None);
        };
        let node_of = |rank: u32| internode.node_of(rank);
        let own_node = node_of(self.rank());
        // The communicator of this node has its ranks in this order.
        let here: Vec<u32> = (0..self.size()).filter(|rank| node_of(*rank) == own_node).collect();
        let place = |rank: &u32| here.iter().position(|one| one == rank).map(|place| place as u32);
        let chosen: Vec<u32> = ranks.iter().copied().filter(|rank| here.contains(rank)).collect();
        let places: Vec<u32> = chosen.iter().filter_map(place).collect();
        if chosen.len() == ranks.len() {
            let group = self.group_on_node((ranks, &places), tag)?;
            return self.subset(group, None);
        }
        let creation = internode.job().begin_creation();
        let new = self.message_context().begin()?;
        let offers = self.exchange_words(ranks, tag, [u64::from(new.offer()), 0])?;
        let group = self.group_on_node((&chosen, &places), tag)?;
        let number = new.take(offers.iter().map(|[number, _]| *number as u32))?;
        let subset = internode.subset(&group, ranks, number);
        drop(creation);
        self.subset(group, Some(subset))
    }

    /// Refuses a list that is no group with this rank.
    fn check_group(&self, ranks: &[u32]) -> Result<()> {
        let what = "the list of ranks";
        if let Some(rank) = ranks.iter().find(|rank| **rank >= self.size()) {
            let expected = format!("of ranks below {}", self.size());
            return Err(argument(what, format!("one with rank {rank}"), expected));
        }
        let mut seen = BTreeSet::new();
        if let Some(rank) = ranks.iter().find(|rank| !seen.insert(**rank)) {
            return Err(argument(
                what,
                format!("one with rank {rank} twice"),
                "of different ranks",
            ));
        }
        if !seen.contains(&self.rank()) {
            let expected = format!("one with this rank, {}", self.rank());
            return Err(argument(what, format!("{ranks:?}"), expected));
        }
        Ok(())
    }

    /// The communicator of ranks of this node, by their ranks here and in the communicator of the node.
    fn group_on_node(
        &self,
        (ranks, places): (&[u32], &[u32]),
        tag: u32,
    ) -> Result<Arc<NodeCommunicator>> {
        let offer = match ranks.first() == Some(&self.rank()) {
            true => self.group().offer_group(ranks.len()),
            false => GroupOffer::none(),
        };
        // Also without memory, so that the others learn of it.
        let all = self.exchange_words(ranks, tag, offer.words())?;
        let first = all.first().copied().unwrap_or_default();
        Ok(self.group().of_group(places, offer, first)?)
    }

    /// Returns the words of the ranks of the list, in its order: its first rank collects and sends them.
    ///
    /// # Errors
    /// Fails on all ranks of the list if one of them is gone, or has another list with the same first rank.
    fn exchange_words(&self, ranks: &[u32], tag: u32, own: Words) -> Result<Vec<Words>> {
        let list = [ranks.len() as u64, digest(ranks)];
        let mut all = vec![own; ranks.len()];
        let Some((first, others)) = ranks.split_first() else { return Ok(all) };
        if *first != self.rank() {
            self.send(&[list, own], *first, tag)?;
            let status = self.recv(&mut all, *first, tag)?;
            return match status.bytes() == size_of_val(&all[..]) as u64 {
                true => Ok(all),
                false => Err(other_list(*first)),
            };
        }
        let mut outcome = Ok(());
        for (rank, words) in others.iter().zip(&mut all[1..]) {
            let mut theirs = [[0; 2]; 2];
            let received = match self.recv(&mut theirs, *rank, tag) {
                Ok(_) if theirs[0] != list => Err(other_list(*rank)),
                received => received.map(drop),
            };
            *words = theirs[1];
            outcome = outcome.and(received);
        }
        // Nothing, which no rank takes for the words, after a failure. All get it: they wait for it.
        let answer = if outcome.is_ok() { &all[..] } else { &[] };
        for rank in others {
            outcome = outcome.and(self.send(answer, *rank, tag));
        }
        outcome.map(|()| all)
    }
}

/// A number that differs for different lists, in all likelihood (FNV-1a).
fn digest(ranks: &[u32]) -> u64 {
    ranks.iter().fold(0xcbf2_9ce4_8422_2325, |digest: u64, rank| {
        (digest ^ u64::from(*rank)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cold]
fn other_list(rank: u32) -> Error {
    let found = format!("another one on rank {rank}, or a rank of it is gone");
    argument("the list of ranks", found, "the same on all")
}
