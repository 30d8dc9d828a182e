//! Messages for which a rank has no receive yet, when there are too many of them: most are of runs that it has not started.
//!
//! They lie in slots. When these run out, senders are held back, and what the rank waits for may be behind what it does not
//! want yet. So a rank that waits then takes such messages out of the slots. It brings them back when it has started their
//! runs, a part at a time and in turns, so that each of them gets to its receive some day.

use super::{Books, Rank, too_large};
use crate::layout::{
    ARENA, FREED, LARGE_SLOTS, MESSAGE_HEADER_BYTES, MIDDLE_BYTES, MIDDLE_SLOTS, PIECE_BYTES, REFUSED, RUN_UNDER_WAY,
    SLOT_FILLING, SLOT_FREE, SLOT_GIVEN, SLOT_HEAD_BYTES, SLOT_WAITING, SLOTS, SMALL_BYTES, SMALL_SLOTS, WAITING_SLOTS,
    large_slot_bytes,
};
use crate::system::Mapping;
use network::carrier::Error;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;

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
    /// Whether there are some that wait for their runs to start.
    pub(super) fn wait_for_runs(&self) -> bool {
        !self.by_run.is_empty()
    }

    /// Whether a message has found no slot since this was asked last.
    fn is_pressed(&mut self, memory: &Mapping) -> bool {
        let refused = memory.double_word(REFUSED).load(Ordering::Relaxed);
        std::mem::replace(&mut self.refused, refused) != refused
    }

    /// Takes what the program has given, and frees its slots.
    fn take_given(&mut self, memory: &Mapping, is_started: impl Fn(RunName) -> bool) {
        for (slot, room) in slots() {
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
            match run_name(&message) {
                name if is_started(name) => self.returning.push_back(message),
                name => self.by_run.entry(name).or_default().push(message),
            }
        }
        // Senders of this host may wait for room.
        memory.word(FREED).store(1, Ordering::Relaxed);
    }

    /// A run has started: its messages may return.
    fn start(&mut self, name: RunName) {
        self.returning.extend(self.by_run.remove(&name).unwrap_or_default());
    }

    /// Puts messages into slots, as far as there are enough of them, and forgets those of runs that have ended. Gives whether
    /// any were put there.
    fn bring_back(&mut self, memory: &Mapping, is_under_way: impl Fn(RunName) -> bool) -> bool {
        let free = slots().filter(|(slot, _)| memory.word(*slot).load(Ordering::Relaxed) == SLOT_FREE).count();
        let mut brought = 0;
        while brought + KEPT_FREE < free
            && let Some(message) = self.returning.pop_front()
        {
            if is_under_way(run_name(&message)) {
                if !put(memory, &message) {
                    self.returning.push_front(message);
                    break;
                }
                brought += 1;
            }
            self.bytes -= message.len();
        }
        if brought > 0 {
            // The program looks at the slots after it has seen this. Partner: its exchange in `work`.
            memory.word(WAITING_SLOTS).store(1, Ordering::Release);
        }
        brought > 0
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
    /// Makes room if messages have found none because of others that this rank does not want yet; else brings some of these
    /// back.
    pub(super) fn make_room(&self) -> Result<(), Error> {
        let is_pressed = self.books().early.is_pressed(&self.memory);
        if is_pressed {
            self.take_unwanted()?;
        }
        if self.books().early.returning.is_empty() {
            return Ok(());
        }
        if !is_pressed && !self.bring_back(None)? {
            // What wants to return is kept out by what does not want to, either.
            self.take_unwanted()?;
        }
        self.bring_back(None).map(drop)
    }

    /// Brings back the messages of a run that has started since they were taken away.
    pub(super) fn bring_back_for(&self, communicator: u32, sequence: u64) -> Result<(), Error> {
        self.bring_back(Some((communicator, sequence))).map(drop)
    }

    fn take_unwanted(&self) -> Result<(), Error> {
        self.run_program(GIVE_UNWANTED)?;
        let mut books = self.books();
        let states = self.states(&books);
        books.early.take_given(&self.memory, |name| states.contains_key(&name));
        let bytes = books.early.bytes as u64;
        if bytes <= LIMIT_BYTES as u64 {
            return Ok(());
        }
        let way_out = "start collectives in about the same order on all ranks, or set TRADEWIND_BETWEEN_HOSTS=agent";
        let what = "keeping messages of collectives that this rank has not started";
        Err(too_large(what, bytes, LIMIT_BYTES as u64, way_out))
    }

    /// Gives whether there were any to bring back, and room for some.
    fn bring_back(&self, started: Option<RunName>) -> Result<bool, Error> {
        let mut books = self.books();
        if let Some(name) = started {
            books.early.start(name);
        }
        let states = self.states(&books);
        let is_under_way = |name| states.get(&name).is_some_and(|state| *state == RUN_UNDER_WAY);
        let brought = books.early.bring_back(&self.memory, is_under_way);
        drop(books);
        if brought {
            self.kick()?;
        }
        Ok(brought)
    }

    /// The states of all runs that have not been fetched.
    fn states(&self, books: &Books) -> HashMap<RunName, u32> {
        let state = |(frame, number): (&u32, &u64)| {
            let run = self.run(*frame);
            Some(((books.prepared.get(number)?.context.number, run.sequence), run.state))
        };
        books.runs.iter().filter_map(state).collect()
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
