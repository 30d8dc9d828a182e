//! Communicators that only their members make.

use crate::communicator::Communicator;
use crate::error::{Error, Result, argument};
use engine::communicator::Communicator as NodeCommunicator;
use engine::communicator::split::GroupOffer;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Words that a rank of a new communicator tells the others: the number that it offers for it, and from
/// the first rank on each node the words of its [`GroupOffer`].
type Words = [u64; 3];

/// The ranks of a list that are on this node.
struct PartOnNode {
    /// Index in the list of the first of them.
    first: usize,
    /// Their ranks in the communicator of the node.
    places: Vec<u32>,
}

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
        let part = self.part_on_node(ranks);
        let internode = self.internode().filter(|_| part.places.len() < ranks.len());
        let Some(internode) = internode else {
            let (group, _) = self.agree(ranks, &part, tag, 0)?;
            return self.subset(group, None);
        };
        let creation = internode.job().begin_creation();
        let new = self.message_context().begin()?;
        let (group, numbers) = self.agree(ranks, &part, tag, new.offer())?;
        let subset = internode.subset(&group, ranks, new.take(numbers)?);
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

    fn part_on_node(&self, ranks: &[u32]) -> PartOnNode {
        let Some(internode) = self.internode() else {
            return PartOnNode { first: 0, places: ranks.to_vec() };
        };
        let own_node = internode.node_of(self.rank());
        let is_here = |rank: &u32| internode.node_of(*rank) == own_node;
        // The communicator of this node has its ranks in this order.
        let here: Vec<u32> = (0..self.size()).filter(is_here).collect();
        let places = ranks.iter().filter_map(|rank| here.binary_search(rank).ok());
        PartOnNode {
            first: ranks.iter().position(is_here).unwrap_or(0),
            places: places.map(|place| place as u32).collect(),
        }
    }

    /// Makes the communicator of the ranks of the list that are on this node, once all ranks have the same
    /// list. Returns it with the numbers that they have offered.
    fn agree(
        &self,
        ranks: &[u32],
        part: &PartOnNode,
        tag: u32,
        number: u32,
    ) -> Result<(Arc<NodeCommunicator>, Vec<u32>)> {
        let offer = match ranks.get(part.first) == Some(&self.rank()) {
            true => self.group().offer_group(part.places.len()),
            false => GroupOffer::none(),
        };
        let [state, name] = offer.words();
        // Also without memory, so that the others learn of it.
        let all = match self.exchange_words(ranks, tag, [number.into(), state, name])? {
            Ok(all) => all,
            Err(refused) => {
                self.group().take_back(offer);
                return Err(refused);
            }
        };
        let [_, state, name] = all.get(part.first).copied().unwrap_or_default();
        let group = self.group().of_group(&part.places, offer, [state, name])?;
        Ok((group, all.iter().map(|[number, ..]| *number as u32).collect()))
    }

    /// Returns the words of the ranks of the list, in its order. Its first rank collects them, compares the
    /// lists, and sends all words to the others.
    ///
    /// # Errors
    /// The inner error is that of all ranks: one of them is gone, or has another list with the same first
    /// rank. None has got any words. With the outer error, some ranks may have got them.
    fn exchange_words(
        &self,
        ranks: &[u32],
        tag: u32,
        own: Words,
    ) -> Result<std::result::Result<Vec<Words>, Error>> {
        let list: Vec<u64> = ranks.iter().map(|rank| u64::from(*rank)).collect();
        let mut all = vec![own; ranks.len()];
        let Some((first, others)) = ranks.split_first() else { return Ok(Ok(all)) };
        if *first != self.rank() {
            self.send(&[&own[..], &list].concat(), *first, tag)?;
            let status = self.recv(&mut all, *first, tag)?;
            let is_refused = status.bytes() != size_of_val(&all[..]) as u64;
            return Ok(if is_refused { Err(other_list(*first)) } else { Ok(all) });
        }
        let mut outcome = Ok(());
        // With space for the longest list, so that none is cut off where it differs.
        let mut message = vec![0; own.len() + self.size() as usize];
        for (rank, words) in others.iter().zip(&mut all[1..]) {
            let received = self.recv(&mut message, *rank, tag).and_then(|status| {
                let count = status.count::<u64>().unwrap_or(0);
                let found = message[..count].split_first_chunk();
                let (theirs, _) =
                    found.filter(|(_, same)| *same == list).ok_or_else(|| other_list(*rank))?;
                *words = *theirs;
                Ok(())
            });
            outcome = outcome.and(received);
        }
        // Nothing, which no rank takes for the words, after a failure. All get it: they wait for it.
        let answer = if outcome.is_ok() { &all[..] } else { &[] };
        let mut sent = Ok(());
        for rank in others {
            sent = sent.and(self.send(answer, *rank, tag));
        }
        match outcome {
            Ok(()) => sent.map(|()| Ok(all)),
            Err(refused) => Ok(Err(refused)),
        }
    }
}

#[cold]
fn other_list(rank: u32) -> Error {
    let found = format!("another one on rank {rank}, or a rank of it is gone");
    argument("the list of ranks", found, "the same on all")
}
