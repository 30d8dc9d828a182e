//! Messages for runs that ranks of this node have not started.
//!
//! Eager payloads are bounded by [credits](super::credits). Everything else is bounded here, by
//! number and by bytes: further messages are dropped, and their runs fail when they start. Each
//! node has a share, which it may use whatever the others have sent: so a node that sends what no
//! run receives makes runs without its ranks lose nothing.

use super::credits::CREDIT;
use super::run_context::{MessageOrigin, RunInput, RunKey};
use crate::error::Error;
use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;

/// Largest number of messages for runs that a rank has not started.
pub(crate) const MAX_MESSAGES: usize = 1 << 20;
/// Largest number of their bytes, besides the credit of each node.
pub(crate) const MAX_BYTES: u64 = 64 << 20;
/// Most communicators of which the dropped messages of a node are noted one by one.
const MOST_OVERRUN: usize = 256;

/// A message for a run that has not started.
#[derive(Debug)]
pub(crate) struct UnexpectedMessage {
    pub(crate) origin: MessageOrigin,
    pub(crate) input: RunInput,
}

/// The unexpected messages of all ranks of this node.
#[derive(Debug)]
pub(crate) struct UnexpectedMessages {
    pub(crate) by_run: BTreeMap<RunKey, Vec<UnexpectedMessage>>,
    /// Messages for each rank.
    pub(crate) by_rank: HashMap<u32, Total>,
    /// The part of them from each node.
    by_node: HashMap<(u32, u32), Total>,
    /// By rank and node: the runs for which messages of the node were dropped, because there were
    /// too many.
    overrun: HashMap<(u32, u32), Overrun>,
    /// Most messages for a rank.
    most: Total,
    /// The share of a node.
    share: Total,
}

/// Runs of a rank for which messages of a node were dropped.
#[derive(Debug, Default)]
struct Overrun {
    /// By communicator: the first such run.
    by_communicator: HashMap<u32, u64>,
    /// The least number of such a run of the communicators that are not noted one by one.
    others: Option<u64>,
}

impl Overrun {
    fn note(&mut self, communicator: u32, sequence: u64) {
        // The node chooses the communicator, and may name another one in each message.
        let is_noted = self.by_communicator.contains_key(&communicator);
        let lowest = if is_noted || self.by_communicator.len() < MOST_OVERRUN {
            self.by_communicator.entry(communicator).or_insert(sequence)
        } else {
            self.others.get_or_insert(sequence)
        };
        *lowest = sequence.min(*lowest);
    }

    /// The first run of a communicator for which messages may have been dropped. Others than those
    /// that are noted share one number: more of their runs fail than had messages dropped.
    fn first(&self, communicator: u32) -> Option<u64> {
        self.by_communicator.get(&communicator).copied().or(self.others)
    }
}

/// Messages, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Total {
    pub(crate) messages: usize,
    pub(crate) bytes: u64,
}

impl Total {
    /// Returns true if a message of so many bytes is more than `most`.
    fn is_full(self, bytes: u64, most: Total) -> bool {
        self.messages >= most.messages || self.bytes.saturating_add(bytes) > most.bytes
    }

    fn add(&mut self, bytes: u64) {
        self.messages += 1;
        self.bytes += bytes;
    }

    fn remove(&mut self, bytes: u64) {
        self.messages -= 1;
        self.bytes -= bytes;
    }
}

impl UnexpectedMessages {
    pub(crate) fn new(nodes: u32) -> Self {
        let bytes = MAX_BYTES + CREDIT * u64::from(nodes);
        let count = nodes.max(1);
        UnexpectedMessages {
            by_run: BTreeMap::new(),
            by_rank: HashMap::new(),
            by_node: HashMap::new(),
            overrun: HashMap::new(),
            most: Total { messages: MAX_MESSAGES, bytes },
            share: Total {
                messages: MAX_MESSAGES / count as usize,
                bytes: bytes / u64::from(count),
            },
        }
    }

    /// Keeps a message until its run starts. Returns it if there are too many, and a sign of a wait
    /// also if it contains nothing new.
    pub(crate) fn keep(
        &mut self,
        key: RunKey,
        message: UnexpectedMessage,
    ) -> Result<(), UnexpectedMessage> {
        let MessageOrigin { node, signature, .. } = message.origin;
        let is_sign = matches!(message.input, RunInput::Waits);
        // The checks for other collectives need one message of each, and no run needs a sign: so
        // signs take the memory of no message that a run needs.
        let is_known = |kept: &UnexpectedMessage| kept.origin.signature == signature;
        if is_sign && self.by_run.get(&key).is_some_and(|run| run.iter().any(is_known)) {
            return Err(message);
        }
        let of_rank = self.by_rank.entry(key.rank).or_default();
        let of_node = self.by_node.entry((key.rank, node)).or_default();
        let bytes = message.input.bytes();
        if of_rank.is_full(bytes, self.most) && of_node.is_full(bytes, self.share) {
            if is_sign {
                return Err(message);
            }
            // The run cannot complete without this message, nor can later ones be trusted to have
            // theirs: `failure_of` fails all of them that have a rank of the node.
            let overrun = self.overrun.entry((key.rank, node)).or_default();
            overrun.note(key.communicator, key.sequence);
            return Err(message);
        }
        of_rank.add(bytes);
        of_node.add(bytes);
        self.by_run.entry(key).or_default().push(message);
        Ok(())
    }

    /// Removes and returns the messages for a run, in the order of their arrival.
    pub(crate) fn take(&mut self, key: RunKey) -> Vec<UnexpectedMessage> {
        // The counters follow the table in both directions, so a rank that catches up may fall
        // behind again.
        let messages = self.by_run.remove(&key).unwrap_or_default();
        for UnexpectedMessage { origin, input } in &messages {
            let of_rank = self.by_rank.get_mut(&key.rank);
            let of_node = self.by_node.get_mut(&(key.rank, origin.node));
            of_rank.into_iter().chain(of_node).for_each(|total| total.remove(input.bytes()));
        }
        messages
    }

    /// Returns true if there are messages for a run.
    pub(crate) fn has_any(&self, key: RunKey) -> bool {
        self.by_run.contains_key(&key)
    }

    /// Runs of these communicators of a rank for which there are messages.
    pub(crate) fn runs_of(&self, rank: u32, communicators: RangeInclusive<u32>) -> Vec<RunKey> {
        let (first, last) = communicators.into_inner();
        if first > last {
            return Vec::new();
        }
        let begin = RunKey { rank, communicator: first, sequence: 0 };
        let end = RunKey { rank, communicator: last, sequence: u64::MAX };
        self.by_run.range(begin..=end).map(|(key, _)| *key).collect()
    }

    /// Forgets the dropped messages for a rank that starts no run any more.
    pub(crate) fn forget_dropped(&mut self, rank: u32) {
        self.overrun.retain(|(of, _), _| *of != rank);
    }

    /// Forgets the dropped messages for communicators of a rank that have ended.
    pub(crate) fn forget_dropped_of(&mut self, rank: u32, communicators: &RangeInclusive<u32>) {
        for (_, overrun) in self.overrun.iter_mut().filter(|((of, _), _)| *of == rank) {
            overrun.by_communicator.retain(|number, _| !communicators.contains(number));
        }
    }

    /// The failure of a run with ranks on these nodes that starts although messages for it may have
    /// been dropped.
    pub(crate) fn failure_of(&self, key: RunKey, nodes: &[u32]) -> Option<Error> {
        if self.overrun.is_empty() {
            return None;
        }
        let RunKey { rank, communicator, sequence } = key;
        let is_overrun = |node: &u32| {
            let overrun = self.overrun.get(&(rank, *node));
            let first = overrun.and_then(|overrun| overrun.first(communicator));
            first.is_some_and(|first| sequence >= first)
        };
        nodes.iter().any(is_overrun).then(|| {
            Error::Operation(format!(
                "rank {rank} started run {sequence} of communicator {communicator} when more messages of others had come for \
                 runs that it had not started than are kept, and some were dropped: let ranks catch up with a barrier now and then"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANK: u32 = 0;

    fn message(node: u32) -> UnexpectedMessage {
        let origin = MessageOrigin { node, source: 0, signature: 0 };
        UnexpectedMessage { origin, input: RunInput::Join { ordinal: 0, contribution: vec![0; 8] } }
    }

    fn key(communicator: u32, sequence: u64) -> RunKey {
        RunKey { rank: RANK, communicator, sequence }
    }

    #[test]
    fn a_node_that_sends_too_much_takes_the_share_of_no_other() {
        let mut unexpected = UnexpectedMessages::new(3);
        let more = (0..).find(|run| unexpected.keep(key(1, *run), message(1)).is_err());
        assert_eq!(more, Some(MAX_MESSAGES as u64), "the others use nothing");
        assert!(unexpected.keep(key(2, 5), message(1)).is_err());
        let share = MAX_MESSAGES as u64 / 3;
        let more = (0..).find(|run| unexpected.keep(key(2, *run), message(2)).is_err());
        assert_eq!(more, Some(share));
        let failure = |key, nodes| unexpected.failure_of(key, nodes).is_some();
        assert!(failure(key(2, 5), &[0, 1]) && !failure(key(2, 4), &[0, 1]));
        assert!(failure(key(2, share), &[0, 2]) && !failure(key(2, share - 1), &[0, 2]));
        assert!(!failure(key(2, share), &[0, 3]), "no message of theirs was dropped");
        assert_eq!(unexpected.take(key(2, 0)).len(), 1);
        assert!(unexpected.keep(key(2, 0), message(2)).is_ok(), "the rank catches up");
    }

    #[test]
    fn a_sign_of_a_wait_is_kept_if_it_is_news_and_fails_no_run_if_not() {
        let mut unexpected = UnexpectedMessages::new(3);
        let sign = |node, signature| {
            let origin = MessageOrigin { node, source: node, signature };
            UnexpectedMessage { origin, input: RunInput::Waits }
        };
        assert!(unexpected.keep(key(1, 0), sign(1, 0)).is_ok());
        assert!(unexpected.keep(key(1, 0), sign(2, 0)).is_err(), "of the same collective");
        assert!(unexpected.keep(key(1, 0), sign(2, 9)).is_ok(), "of another one");
        assert!(unexpected.keep(key(1, 0), message(2)).is_ok(), "the run needs it");
        assert_eq!(unexpected.take(key(1, 0)).len(), 3);
        (unexpected.most, unexpected.share) = (Total::default(), Total::default());
        assert!(unexpected.keep(key(1, 1), sign(1, 0)).is_err());
        assert!(unexpected.failure_of(key(1, 1), &[0, 1]).is_none());
        assert!(unexpected.keep(key(1, 1), message(1)).is_err());
        assert!(unexpected.failure_of(key(1, 1), &[0, 1]).is_some());
    }

    #[test]
    fn dropped_messages_of_any_number_of_communicators_take_bounded_memory() {
        let mut unexpected = UnexpectedMessages::new(3);
        let none = Total::default();
        (unexpected.most, unexpected.share) = (none, none);
        let most = MOST_OVERRUN as u32;
        for communicator in 0..100 * most {
            // The others begin at run 7, not with the first of them.
            let sequence = if communicator == 2 * most { 7 } else { 9 };
            assert!(unexpected.keep(key(communicator, sequence), message(1)).is_err());
        }
        assert!(unexpected.keep(key(3, 5), message(1)).is_err());
        let overrun = &unexpected.overrun[&(RANK, 1)];
        assert_eq!((unexpected.overrun.len(), overrun.by_communicator.len()), (1, MOST_OVERRUN));
        let failure = |key, nodes| unexpected.failure_of(key, nodes).is_some();
        assert!(failure(key(2, 9), &[0, 1]) && !failure(key(2, 8), &[0, 1]));
        assert!(failure(key(3, 5), &[0, 1]) && !failure(key(3, 4), &[0, 1]), "noted before");
        assert!(failure(key(3 * most, 9), &[0, 1]) && failure(key(2 * most, 7), &[0, 1]));
        assert!(!failure(key(2 * most, 6), &[0, 1]), "none of these was dropped");
        assert!(!failure(key(3 * most, 9), &[0, 2]), "another node has sent nothing");
        unexpected.forget_dropped_of(RANK, &(0..=most / 2));
        assert_eq!(unexpected.overrun[&(RANK, 1)].by_communicator.len() as u32, most / 2 - 1);
        unexpected.forget_dropped(RANK + 1);
        assert_eq!(unexpected.overrun.len(), 1);
        unexpected.forget_dropped(RANK);
        assert!(unexpected.overrun.is_empty());
    }
}
