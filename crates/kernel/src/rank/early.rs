//! Messages of runs that a rank has not started, when there are too many of them.
//!
//! They lie in slots. When these run out, senders are held back, and what the rank waits for may be behind what it does not
//! want yet. So a rank that waits then takes such messages out of the slots, and brings them back when it starts their runs.

use super::{Rank, too_large};
use crate::layout::{
    ARENA, FREED, LARGE_SLOTS, MESSAGE_HEADER_BYTES, MIDDLE_BYTES, MIDDLE_SLOTS, PIECE_BYTES, REFUSED, SLOT_FILLING,
    SLOT_FREE, SLOT_GIVEN, SLOT_HEAD_BYTES, SLOT_WAITING, SLOTS, SMALL_BYTES, SMALL_SLOTS, WAITING_SLOTS,
    large_slot_bytes,
};
use crate::system::Mapping;
use network::carrier::Error;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

/// A communicator's number and that of a run in it.
type RunName = (u32, u64);

/// A rank keeps so many bytes.
const LIMIT_BYTES: usize = 64 << 20;
/// In the place of a rank to ask, this has the program give such messages: `GIVE_EARLY`.
const GIVE_EARLY: u32 = u32::MAX;

/// The messages that a rank has taken out of its slots.
#[derive(Debug, Default)]
pub(super) struct EarlyMessages {
    /// Headers with their payloads.
    by_run: HashMap<RunName, Vec<Vec<u8>>>,
    bytes: usize,
    /// Messages that found no slot, when that was looked at last.
    refused: u64,
}

impl EarlyMessages {
    pub(super) fn is_empty(&self) -> bool {
        self.by_run.is_empty()
    }

    /// Whether a message has found no slot since this was asked last.
    fn is_pressed(&mut self, memory: &Mapping) -> bool {
        let refused = memory.double_word(REFUSED).load(Ordering::Relaxed);
        std::mem::replace(&mut self.refused, refused) != refused
    }

    /// Takes what the program has given, and frees its slots.
    fn take_given(&mut self, memory: &Mapping) {
        for (slot, room) in slots() {
            // Partner: the exchange in `give_early`.
            if memory.word(slot).load(Ordering::Acquire) != SLOT_GIVEN {
                continue;
            }
            let mut message = vec![0; MESSAGE_HEADER_BYTES];
            memory.read(slot + SLOT_HEAD_BYTES, &mut message);
            let length = word(&message, MESSAGE_HEADER_BYTES - 4) as usize;
            message.resize(MESSAGE_HEADER_BYTES + length.min(room), 0);
            memory.read(slot + SLOT_HEAD_BYTES, &mut message);
            // Partner: the exchange in `store_among`, which fills the slot anew.
            memory.word(slot).store(SLOT_FREE, Ordering::Release);
            self.bytes += message.len();
            self.by_run.entry(run_name(&message)).or_default().push(message);
        }
        // Senders of this host may wait for room.
        memory.word(FREED).store(1, Ordering::Relaxed);
    }

    /// Puts the messages of these runs into slots, as far as there are any, and forgets those of runs that have ended.
    /// Gives whether there were any.
    fn bring_back(&mut self, memory: &Mapping, runs: impl Iterator<Item = (RunName, bool)>) -> bool {
        let mut brought = false;
        for (name, is_under_way) in runs {
            let Some(mut messages) = self.by_run.remove(&name) else { continue };
            while let Some(message) = messages.pop() {
                if is_under_way && !put(memory, &message) {
                    messages.push(message);
                    break;
                }
                self.bytes -= message.len();
                brought |= is_under_way;
            }
            if !messages.is_empty() {
                self.by_run.insert(name, messages);
                break;
            }
        }
        if brought {
            // The program looks at the slots after it has seen this. Partner: its exchange in `work`.
            memory.word(WAITING_SLOTS).store(1, Ordering::Release);
        }
        brought
    }
}

/// Where each slot begins in a rank's memory, and how long a payload it takes; the short ones first.
fn slots() -> impl Iterator<Item = (usize, usize)> {
    let kinds = [
        (SMALL_SLOTS, SLOT_HEAD_BYTES + MESSAGE_HEADER_BYTES + SMALL_BYTES, SMALL_BYTES),
        (MIDDLE_SLOTS, SLOT_HEAD_BYTES + MESSAGE_HEADER_BYTES + MIDDLE_BYTES, MIDDLE_BYTES),
        (LARGE_SLOTS, large_slot_bytes(), PIECE_BYTES),
    ];
    let mut next = SLOTS;
    kinds.into_iter().flat_map(move |(count, bytes, room)| {
        let first = next;
        next += count * bytes;
        (0..count).map(move |index| (first + index * bytes, room))
    })
}

/// Puts a message into a slot that is free, as one that nobody has looked at; false if there is none.
fn put(memory: &Mapping, message: &[u8]) -> bool {
    let length = message.len() - MESSAGE_HEADER_BYTES;
    let free = slots().filter(|(_, room)| length <= *room).find(|(slot, _)| {
        // Partner: the exchange that frees the slot, here or in `slot_free`.
        let claimed =
            memory.word(*slot).compare_exchange(SLOT_FREE, SLOT_FILLING, Ordering::Acquire, Ordering::Relaxed);
        claimed.is_ok()
    });
    let Some((slot, _)) = free else { return false };
    memory.write(slot + SLOT_HEAD_BYTES, message);
    // Partner: `accept_waiting`.
    memory.word(slot).store(SLOT_WAITING, Ordering::Release);
    true
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytemuck::pod_read_unaligned(&bytes[at..at + 4])
}

/// The run that a message belongs to, by its header.
fn run_name(message: &[u8]) -> RunName {
    (word(message, 0), bytemuck::pod_read_unaligned(&message[8..16]))
}

impl Rank {
    fn early(&self) -> MutexGuard<'_, EarlyMessages> {
        self.early.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes room if messages have found none because of others that this rank does not want yet.
    pub(super) fn make_room(&self) -> Result<(), Error> {
        if self.early().is_pressed(&self.memory) {
            self.run_program(GIVE_EARLY)?;
            let mut early = self.early();
            early.take_given(&self.memory);
            self.has_early.store(!early.is_empty(), Ordering::Relaxed);
            if early.bytes > LIMIT_BYTES {
                let way_out =
                    "start collectives in about the same order on all ranks, or set TRADEWIND_BETWEEN_HOSTS=agent";
                let what = "keeping messages of collectives that this rank has not started";
                return Err(too_large(what, early.bytes as u64, LIMIT_BYTES as u64, way_out));
            }
        }
        self.bring_back()
    }

    /// Brings back the messages of runs that were started since they were taken away.
    pub(super) fn bring_back(&self) -> Result<(), Error> {
        if !self.has_early.load(Ordering::Relaxed) {
            return Ok(());
        }
        let runs = self.books().started(&self.memory);
        let mut early = self.early();
        let brought = early.bring_back(&self.memory, runs.into_iter());
        self.has_early.store(!early.is_empty(), Ordering::Relaxed);
        drop(early);
        if brought { self.kick() } else { Ok(()) }
    }
}

const _: () = assert!(ARENA > SLOTS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_fill_the_memory_up_to_the_arena() {
        let all: Vec<(usize, usize)> = slots().collect();
        assert_eq!(all.len(), SMALL_SLOTS + MIDDLE_SLOTS + LARGE_SLOTS);
        assert_eq!(all.first().map(|(slot, _)| *slot), Some(SLOTS));
        assert_eq!(all.last().map(|(slot, _)| slot + large_slot_bytes()), Some(ARENA));
    }
}
