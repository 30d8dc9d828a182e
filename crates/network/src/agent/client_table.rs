//! A rank's table of its schedules and runs at the agent.

use super::shared_region::SharedRegion;
use super::submission::SLOTS;
use crate::backend::RunId;
use crate::error::Error;
use crate::runs::schedule::BufferLayout;
use shm::segment::Offset;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The rank's schedules and runs, and the state of its ring.
#[derive(Debug, Default)]
pub(super) struct ClientTable {
    pub(super) next_schedule: u64,
    pub(super) schedules: HashMap<u64, Arc<BufferLayout>>,
    pub(super) slots: Vec<SlotEntry>,
    pub(super) free_slots: Vec<u32>,
    /// Runs that were discarded and may not have ended.
    pub(super) discarded: Vec<RunId>,
    /// Number of entries published.
    pub(super) published: u64,
    /// The last epoch of the agent for which it was notified.
    pub(super) notified: u64,
    /// Number of queries, in 30 bits as the agent counts its answers.
    pub(super) queries: u32,
    /// True once the last entry has been published.
    pub(super) has_left: bool,
    /// Memory that is free once the agent has consumed this number of entries.
    pub(super) retired: VecDeque<(u64, Offset)>,
}

#[derive(Debug, Default)]
pub(super) struct SlotEntry {
    /// Number of runs that have used the slot.
    pub(super) generation: u32,
    pub(super) run: Option<ClientRun>,
}

#[derive(Clone, Debug)]
pub(super) struct ClientRun {
    pub(super) layout: Arc<BufferLayout>,
    pub(super) at: Option<Offset>,
}

impl ClientTable {
    /// Takes a slot, with the generation of its next run.
    pub(super) fn take_slot(&mut self, region: &SharedRegion) -> Result<(u32, u32), Error> {
        let slot = match self.free_slots.pop() {
            Some(slot) => slot,
            None => {
                let fresh = self.slots.len() as u32;
                if fresh == SLOTS {
                    return Err(Error::TooLarge {
                        backend: "agent",
                        what: "the runs that are under way or not fetched".into(),
                        needed: u64::from(SLOTS) + 1,
                        limit: u64::from(SLOTS),
                        way_out: "fetch or discard some before you start more",
                    });
                }
                region.commit_slot(fresh)?;
                self.slots.push(SlotEntry::default());
                fresh
            }
        };
        let entry = &mut self.slots[slot as usize];
        // The completion word has 30 bits.
        entry.generation = (entry.generation + 1) % (1 << 30);
        Ok((slot, entry.generation))
    }

    /// Looks up a run that has not been fetched.
    pub(super) fn run(&self, run: RunId) -> Option<&ClientRun> {
        let (slot, generation) = slot_of(run);
        let entry = self.slots.get(slot as usize)?;
        entry.run.as_ref().filter(|_| entry.generation == generation)
    }
}

/// The slot of a run, and its generation there.
pub(super) fn slot_of(run: RunId) -> (u32, u32) {
    (run.0 as u32, (run.0 >> 32) as u32)
}
