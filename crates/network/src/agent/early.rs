//! What has come for runs that ranks of this node have not started.
//!
//! Senders hold back eager payloads (`windows`). What nobody holds back is bounded here, by number
//! and by bytes: beyond that it is dropped, and the runs that it was for fail when they start.

use super::run::{Incoming, Origin, RunKey};
use super::windows::WINDOW;
use crate::carrier::Error;
use std::collections::HashMap;

/// Messages that may wait for runs which a rank has not started.
pub(super) const EARLY_MESSAGES: usize = 1 << 20;
/// Bytes that they may have, besides a window of each node.
pub(super) const EARLY_BYTES: u64 = 64 << 20;

#[derive(Debug)]
pub(super) struct Early {
    pub(super) origin: Origin,
    pub(super) incoming: Incoming,
}

/// The messages of all ranks of this node.
#[derive(Debug)]
pub(super) struct EarlyMessages {
    pub(super) by_run: HashMap<RunKey, Vec<Early>>,
    /// How many there are for each rank, and how many bytes they have.
    pub(super) by_rank: HashMap<u32, (usize, u64)>,
    /// By rank and communicator: the first run for which messages were dropped, because there were
    /// too many.
    pub(super) overrun: HashMap<(u32, u32), u64>,
    /// Bytes that those of a rank may have.
    most: u64,
}

impl EarlyMessages {
    /// Of so many nodes.
    pub(super) fn new(nodes: u32) -> Self {
        let most = EARLY_BYTES + WINDOW * u64::from(nodes);
        EarlyMessages {
            by_run: HashMap::new(),
            by_rank: HashMap::new(),
            overrun: HashMap::new(),
            most,
        }
    }

    /// Keeps a message until its run starts. Gives it back if there are too many.
    pub(super) fn keep(&mut self, key: RunKey, message: Early) -> Result<(), Early> {
        let (messages, bytes) = self.by_rank.entry(key.rank).or_default();
        if *messages >= EARLY_MESSAGES || bytes.saturating_add(message.incoming.bytes()) > self.most
        {
            let lowest = self.overrun.entry((key.rank, key.communicator)).or_insert(key.sequence);
            *lowest = key.sequence.min(*lowest);
            return Err(message);
        }
        *messages += 1;
        *bytes += message.incoming.bytes();
        self.by_run.entry(key).or_default().push(message);
        Ok(())
    }

    /// What waits for a run, which waits no longer.
    pub(super) fn take(&mut self, key: RunKey) -> Vec<Early> {
        let taken = self.by_run.remove(&key).unwrap_or_default();
        if let Some((messages, bytes)) = self.by_rank.get_mut(&key.rank) {
            *messages -= taken.len();
            *bytes -= taken.iter().map(|early| early.incoming.bytes()).sum::<u64>();
        }
        taken
    }

    /// Runs of a rank for which something waits.
    pub(super) fn runs_of(&self, rank: u32) -> Vec<RunKey> {
        self.by_run.keys().filter(|key| key.rank == rank).copied().collect()
    }

    /// Why a run that starts cannot go well: messages for it may have been dropped.
    pub(super) fn verdict(&self, key: RunKey) -> Option<Error> {
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
