//! Messages for which a rank has no receive yet, when there are too many of them: most are of runs
//! that it has not started.
//!
//! They lie in slots. When these run out, senders are held back, and what the rank waits for may be
//! behind what it does not want yet. So a rank that waits then takes such messages out of the
//! slots. It brings them back when it has started their runs, a part at a time and in turns, so
//! that each of them gets to its receive some day.

use super::{Rank, too_large};
use crate::layout::{
    FREED, LARGE_SLOTS, MESSAGE_HEADER_BYTES, MIDDLE_BYTES, MIDDLE_SLOTS, PIECE_BYTES, REFUSED,
    SLOT_FILLING, SLOT_FREE, SLOT_GIVEN, SLOT_HEAD_BYTES, SLOT_NEXT, SLOT_WAITING, SLOTS,
    SMALL_BYTES, SMALL_SLOTS, WAITING_FIRST, large_slot_bytes,
};
use crate::system::Mapping;
use network::error::Error;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

/// A communicator's number and that of a run in it.
type RunName = (u32, u64);

/// A rank keeps so many bytes.
const LIMIT_BYTES: usize = 64 << 20;
/// In the place of a rank to ask, this has the program give such messages: `GIVE_UNWANTED`.
const GIVE_UNWANTED: u32 = u32::MAX;
/// So many slots stay free for what comes from other ranks.
const KEPT_FREE: usize = (SMALL_SLOTS + MIDDLE_SLOTS + LARGE_SLOTS) / 2;

/// The messages that a rank has taken out of its slots: headers with their payloads.
#[derive(Debug, Default)]
pub(super) struct EarlyMessages {
    /// Those of runs that have not started.
    by_run: HashMap<RunName, Vec<Vec<u8>>>,
    /// The others.
    returning: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Messages that found no slot, when that was looked at last.
    refused: u64,
}

impl EarlyMessages {
    fn is_empty(&self) -> bool {
        self.by_run.is_empty() && self.returning.is_empty()
    }

    /// Whether there are some whose runs have started.
    fn wants_to_return(&self) -> bool {
        !self.returning.is_empty()
    }

    /// Whether a message has found no slot since this was asked last.
    fn is_pressed(&mut self, memory: &Mapping) -> bool {
        let refused = memory.double_word(REFUSED).load(Ordering::Relaxed);
        std::mem::replace(&mut self.refused, refused) != refused
    }

    /// Takes what the program has given, and frees its slots.
    fn take_given(&mut self, memory: &Mapping) {
        for Slot { place: slot, room, .. } in slots() {
            // Partner: the exchange in `give_list`.
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
        // Senders of this node may wait for room.
        memory.word(FREED).store(1, Ordering::Relaxed);
    }

    /// Puts messages of these runs into slots, as far as there are enough of them, and forgets
    /// those of runs that are not under way any more. Gives whether any were put there.
    fn bring_back(&mut self, memory: &Mapping, runs: &HashMap<RunName, bool>) -> bool {
        // Runs may have started since their messages were taken away.
        for name in runs.keys() {
            self.returning.extend(self.by_run.remove(name).unwrap_or_default());
        }
        let free = slots()
            .filter(|slot| memory.word(slot.place).load(Ordering::Relaxed) == SLOT_FREE)
            .count();
        let mut brought = 0;
        while brought + KEPT_FREE < free
            && let Some(message) = self.returning.pop_front()
        {
            if runs.get(&run_name(&message)) == Some(&true) {
                if !put(memory, &message) {
                    self.returning.push_front(message);
                    break;
                }
                brought += 1;
            }
            self.bytes -= message.len();
        }
        brought > 0
    }
}

/// A slot: where it begins in a rank's memory, how long a payload it takes, and what the program
/// calls it.
struct Slot {
    place: usize,
    room: usize,
    number: u32,
}

/// All slots, the short ones first. The program counts from 1, and the long ones first.
fn slots() -> impl Iterator<Item = Slot> {
    let kinds = [
        (
            SMALL_SLOTS,
            SLOT_HEAD_BYTES + MESSAGE_HEADER_BYTES + SMALL_BYTES,
            SMALL_BYTES,
            LARGE_SLOTS + MIDDLE_SLOTS,
        ),
        (
            MIDDLE_SLOTS,
            SLOT_HEAD_BYTES + MESSAGE_HEADER_BYTES + MIDDLE_BYTES,
            MIDDLE_BYTES,
            LARGE_SLOTS,
        ),
        (LARGE_SLOTS, large_slot_bytes(), PIECE_BYTES, 0),
    ];
    let mut next = SLOTS;
    kinds.into_iter().flat_map(move |(count, bytes, room, before)| {
        let first = next;
        next += count * bytes;
        (0..count).map(move |index| Slot {
            place: first + index * bytes,
            room,
            number: (before + index + 1) as u32,
        })
    })
}

/// Puts a message into a slot that is free, as one that nobody has looked at; false if there is
/// none.
fn put(memory: &Mapping, message: &[u8]) -> bool {
    let length = message.len() - MESSAGE_HEADER_BYTES;
    let free = slots().filter(|slot| length <= slot.room).find(|slot| {
        // Partner: the exchange that frees the slot, here or in `slot_free`.
        let claimed = memory.word(slot.place).compare_exchange(
            SLOT_FREE,
            SLOT_FILLING,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        claimed.is_ok()
    });
    let Some(Slot { place: slot, number, .. }) = free else { return false };
    memory.write(slot + SLOT_HEAD_BYTES, message);
    memory.word(slot).store(SLOT_WAITING, Ordering::Relaxed);
    let stack = memory.word(WAITING_FIRST);
    let mut first = stack.load(Ordering::Relaxed);
    loop {
        memory.word(slot + SLOT_NEXT).store(first, Ordering::Relaxed);
        // Partner: the exchange in `accept_waiting`. Who takes the stack sees the message.
        match stack.compare_exchange_weak(first, number, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(found) => first = found,
        }
    }
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

    /// Makes room if messages have found none because of others that this rank does not want yet;
    /// else brings some of these back.
    pub(super) fn make_room(&self) -> Result<(), Error> {
        let is_pressed = self.early().is_pressed(&self.memory);
        if is_pressed {
            self.take_unwanted()?;
        }
        if !self.bring_back()? && !is_pressed && self.early().wants_to_return() {
            // What wants to return is kept out by what is not wanted, either.
            self.take_unwanted()?;
            self.bring_back()?;
        }
        Ok(())
    }

    fn take_unwanted(&self) -> Result<(), Error> {
        self.run_program(GIVE_UNWANTED)?;
        let mut early = self.early();
        early.take_given(&self.memory);
        self.has_early.store(!early.is_empty(), Ordering::Relaxed);
        if early.bytes <= LIMIT_BYTES {
            return Ok(());
        }
        let way_out = "start collectives in about the same order on all ranks, or set TRADEWIND_INTERNODE=agent";
        let what = "keeping messages of collectives that this rank has not started";
        Err(too_large(what, early.bytes as u64, LIMIT_BYTES as u64, way_out))
    }

    /// Brings back messages of runs that have started since they were taken away. Gives whether
    /// there were any, and room.
    pub(super) fn bring_back(&self) -> Result<bool, Error> {
        if !self.has_early.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let runs = self.books().started(&self.memory);
        let mut early = self.early();
        let brought = early.bring_back(&self.memory, &runs);
        self.has_early.store(!early.is_empty(), Ordering::Relaxed);
        drop(early);
        if brought {
            self.kick()?;
        }
        Ok(brought)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::ARENA;

    #[test]
    fn slots_fill_the_memory_up_to_the_arena() {
        let all: Vec<Slot> = slots().collect();
        assert_eq!(all.len(), SMALL_SLOTS + MIDDLE_SLOTS + LARGE_SLOTS);
        assert_eq!(all.first().map(|slot| slot.place), Some(SLOTS));
        assert_eq!(all.last().map(|slot| slot.place + large_slot_bytes()), Some(ARENA));
        let mut numbers: Vec<u32> = all.iter().map(|slot| slot.number).collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(1..=all.len() as u32));
    }
}
