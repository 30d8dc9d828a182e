//! Messages for runs that ranks of this node have not started.
//!
//! Eager payloads are bounded by [credits](super::credits). Everything else is bounded here, by
//! number and by bytes: further messages are dropped, and their runs fail when they start.

use super::credits::CREDIT;
use super::run_context::{MessageOrigin, RunInput, RunKey};
use crate::error::Error;
use std::collections::HashMap;

/// Largest number of messages for runs that a rank has not started.
pub(super) const MAX_MESSAGES: usize = 1 << 20;
/// Largest number of their bytes, besides the credit of each node.
pub(super) const MAX_BYTES: u64 = 64 << 20;

/// A message for a run that has not started.
#[derive(Debug)]
pub(super) struct UnexpectedMessage {
    pub(super) origin: MessageOrigin,
    pub(super) input: RunInput,
}

/// The unexpected messages of all ranks of this node.
#[derive(Debug)]
pub(super) struct UnexpectedMessages {
    pub(super) by_run: HashMap<RunKey, Vec<UnexpectedMessage>>,
    /// Number of messages for each rank, and of their bytes.
    pub(super) by_rank: HashMap<u32, (usize, u64)>,
    /// By rank and communicator: the first run for which messages were dropped, because there were
    /// too many.
    pub(super) overrun: HashMap<(u32, u32), u64>,
    /// Largest number of bytes for one rank.
    max_bytes: u64,
}

impl UnexpectedMessages {
    pub(super) fn new(nodes: u32) -> Self {
        UnexpectedMessages {
            by_run: HashMap::new(),
            by_rank: HashMap::new(),
            overrun: HashMap::new(),
            max_bytes: MAX_BYTES + CREDIT * u64::from(nodes),
        }
    }

    /// Keeps a message until its run starts. Returns it if there are too many.
    pub(super) fn keep(
        &mut self,
        key: RunKey,
        message: UnexpectedMessage,
    ) -> Result<(), UnexpectedMessage> {
        let (messages, bytes) = self.by_rank.entry(key.rank).or_default();
        let more = message.input.bytes();
        if *messages >= MAX_MESSAGES || bytes.saturating_add(more) > self.max_bytes {
            // The run cannot complete without this message, nor can later ones be trusted to have
            // theirs: `failure_of` fails all of them.
            let lowest = self.overrun.entry((key.rank, key.communicator)).or_insert(key.sequence);
            *lowest = key.sequence.min(*lowest);
            return Err(message);
        }
        *messages += 1;
        *bytes += more;
        self.by_run.entry(key).or_default().push(message);
        Ok(())
    }

    /// Removes and returns the messages for a run, in the order of their arrival.
    pub(super) fn take(&mut self, key: RunKey) -> Vec<UnexpectedMessage> {
        // The counters follow the table in both directions, so a rank that catches up may fall
        // behind again.
        let messages = self.by_run.remove(&key).unwrap_or_default();
        if let Some((count, bytes)) = self.by_rank.get_mut(&key.rank) {
            *count -= messages.len();
            *bytes -= messages.iter().map(|message| message.input.bytes()).sum::<u64>();
        }
        messages
    }

    /// Returns true if there are messages for a run.
    pub(super) fn has_any(&self, key: RunKey) -> bool {
        self.by_run.contains_key(&key)
    }

    /// Runs of a rank for which there are messages.
    pub(super) fn runs_of(&self, rank: u32) -> Vec<RunKey> {
        self.by_run.keys().filter(|key| key.rank == rank).copied().collect()
    }

    /// The failure of a run that starts although messages for it may have been dropped.
    pub(super) fn failure_of(&self, key: RunKey) -> Option<Error> {
        let RunKey { rank, communicator, sequence } = key;
        let lowest = self.overrun.get(&(rank, communicator)).filter(|lowest| sequence >= **lowest);
        lowest.map(|_| {
            Error::Operation(format!(
                "rank {rank} started run {sequence} of communicator {communicator} when more messages of others had come for \
                 runs that it had not started than are kept, and some were dropped: let ranks catch up with a barrier now and then"
            ))
        })
    }
}
