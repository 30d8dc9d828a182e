//! Messages without a posted receive, when there are too many of them: most belong to runs that the
//! rank has not started.
//!
//! They lie in slots. When the slots run out, senders are held back, and the message that the rank
//! waits for may queue behind unexpected ones. A waiting rank therefore moves unexpected messages
//! out of the slots into its own memory. It puts them back when it has started their runs, some at
//! a time and in turns, so that each of them arrives at its receive.

use crate::memory::layout::{
    FREED, LARGE_SLOTS, MESSAGE_HEADER_BYTES, MIDDLE_BYTES, MIDDLE_SLOTS, PIECE_BYTES, REFUSED,
    SLOT_FILLING, SLOT_FREE, SLOT_HANDED_OVER, SLOT_HEAD_BYTES, SLOT_NEXT, SLOT_WAITING, SLOTS,
    SMALL_BYTES, SMALL_SLOTS, WAITING_FIRST, large_slot_bytes,
};
use crate::memory::mapping::Mapping;
use crate::rank::live_runs::{LiveRuns, RunKey, RunStage};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;

/// Largest number of bytes that a rank keeps outside of its slots.
pub(super) const LIMIT_BYTES: usize = 64 << 20;
/// Argument of the program in place of a rank: the program hands unexpected messages over
/// (`HAND_OVER_UNEXPECTED` in `bpf/tradewind.bpf.c`).
pub(super) const HAND_OVER_UNEXPECTED: u32 = u32::MAX;
/// Number of slots that stay free for arriving messages.
const RESERVED_SLOTS: usize = (SMALL_SLOTS + MIDDLE_SLOTS + LARGE_SLOTS) / 2;

/// Messages that a rank has taken out of its slots: headers with their payloads.
#[derive(Debug, Default)]
pub(super) struct UnexpectedMessages {
    /// Messages of runs that have not started, or that wait for memory.
    by_run: HashMap<RunKey, Vec<Vec<u8>>>,
    /// Messages of started runs, to be put back.
    returning: VecDeque<Vec<u8>>,
    /// Total size.
    pub(super) bytes: usize,
    /// Count of refused messages at the last call of `has_refused`.
    refused: u64,
}

impl UnexpectedMessages {
    pub(super) fn is_empty(&self) -> bool {
        self.by_run.is_empty() && self.returning.is_empty()
    }

    /// Returns true if there are messages of started runs.
    pub(super) fn has_returning(&self) -> bool {
        !self.returning.is_empty()
    }

    /// Returns true if a message found no slot since the last call.
    pub(super) fn has_refused(&mut self, memory: &Mapping) -> bool {
        // Relaxed: the count publishes nothing. An increment that is read late is found by the next
        // call.
        let refused = memory.double_word(REFUSED).load(Ordering::Relaxed);
        std::mem::replace(&mut self.refused, refused) != refused
    }

    /// Copies the messages that the program has handed over, and frees their slots. Keeps none of
    /// runs that are over.
    pub(super) fn take_handed_over(&mut self, memory: &Mapping, runs: &LiveRuns) {
        for MessageSlot { offset: slot, capacity, .. } in slots() {
            // Acquire pairs with the exchange in `hand_over_list`: the message is complete. The
            // program does not touch a slot in this state, so the copy below is not torn.
            if memory.word(slot).load(Ordering::Acquire) != SLOT_HANDED_OVER {
                continue;
            }
            let mut message = vec![0; MESSAGE_HEADER_BYTES];
            memory.read(slot + SLOT_HEAD_BYTES, &mut message);
            let length = word(&message, MESSAGE_HEADER_BYTES - 4) as usize;
            // The limit keeps the copy within the slot even if the rank's memory is corrupt.
            message.resize(MESSAGE_HEADER_BYTES + length.min(capacity), 0);
            memory.read(slot + SLOT_HEAD_BYTES, &mut message);
            // Release pairs with the exchange in `store_among`: the copy above ends before the
            // program fills the slot again.
            memory.word(slot).store(SLOT_FREE, Ordering::Release);
            self.bytes += message.len();
            self.by_run.entry(run_key(&message)).or_default().push(message);
        }
        // The program retries stalled sends of this node when it sees this flag.
        memory.word(FREED).store(1, Ordering::Relaxed);
        self.drop_surplus(runs);
        self.returning.retain(|message| {
            let is_kept = !runs.is_over(run_key(message));
            self.bytes -= if is_kept { 0 } else { message.len() };
            is_kept
        });
    }

    /// Drops the messages of runs that are over. Their receives are complete, so the messages are
    /// surplus: another rank has sent more of them than this one receives.
    fn drop_surplus(&mut self, runs: &LiveRuns) {
        self.by_run.retain(|run, messages| {
            let is_kept = !runs.is_over(*run);
            self.bytes -= if is_kept { 0 } else { messages.iter().map(Vec::len).sum() };
            is_kept
        });
    }

    /// Puts messages of runs under way into free slots, as many as there are, and drops surplus
    /// messages. Returns true if any were put into slots.
    pub(super) fn put_back(&mut self, memory: &Mapping, runs: &LiveRuns) -> bool {
        self.drop_surplus(runs);
        // Runs may have started since their messages were taken out. Messages of runs that wait for
        // memory stay: they would fill slots until the runs have it.
        for run in runs.under_way() {
            self.returning.extend(self.by_run.remove(&run).unwrap_or_default());
        }
        // An outdated count is harmless: `put` claims each slot by an exchange.
        let free = slots()
            .filter(|slot| memory.word(slot.offset).load(Ordering::Relaxed) == SLOT_FREE)
            .count();
        let mut restored = 0;
        while restored + RESERVED_SLOTS < free
            && let Some(message) = self.returning.pop_front()
        {
            if runs.stage(run_key(&message)) == Some(RunStage::UnderWay) {
                if !put(memory, &message) {
                    self.returning.push_front(message);
                    break;
                }
                restored += 1;
            }
            self.bytes -= message.len();
        }
        restored > 0
    }
}

/// Slot of a rank's memory.
struct MessageSlot {
    /// Offset in the memory.
    offset: usize,
    /// Largest payload.
    capacity: usize,
    /// Number by which the program links it.
    number: u32,
}

/// Returns all slots, the short ones first. The program numbers them from 1, the long ones first.
fn slots() -> impl Iterator<Item = MessageSlot> {
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
    kinds.into_iter().flat_map(move |(count, bytes, capacity, before)| {
        let first = next;
        next += count * bytes;
        (0..count).map(move |index| MessageSlot {
            offset: first + index * bytes,
            capacity,
            number: (before + index + 1) as u32,
        })
    })
}

/// Puts a message into a free slot, as one that waits to be matched; false if there is none.
fn put(memory: &Mapping, message: &[u8]) -> bool {
    let length = message.len() - MESSAGE_HEADER_BYTES;
    let free = slots().filter(|slot| length <= slot.capacity).find(|slot| {
        // The exchange claims the slot: the program skips slots that are being filled. Acquire
        // pairs with the release that frees the slot, here or in `slot_free`: earlier readers are
        // done.
        let claimed = memory.word(slot.offset).compare_exchange(
            SLOT_FREE,
            SLOT_FILLING,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        claimed.is_ok()
    });
    let Some(MessageSlot { offset: slot, number, .. }) = free else { return false };
    memory.write(slot + SLOT_HEAD_BYTES, message);
    // Relaxed: the exchange below publishes the slot. Until then it is on no list, and the program
    // skips it.
    memory.word(slot).store(SLOT_WAITING, Ordering::Relaxed);
    let stack = memory.word(WAITING_FIRST);
    let mut first = stack.load(Ordering::Relaxed);
    loop {
        memory.word(slot + SLOT_NEXT).store(first, Ordering::Relaxed);
        // Release pairs with the exchange in `accept_waiting`, which takes the whole stack: it sees
        // the message, the slot's state and its link. The program never pops single slots, so
        // a reused slot number (ABA) cannot corrupt the stack.
        match stack.compare_exchange_weak(first, number, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(found) => first = found,
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytemuck::pod_read_unaligned(&bytes[at..at + 4])
}

/// Returns the run to which a message belongs, from its header.
fn run_key(message: &[u8]) -> RunKey {
    (word(message, 0), bytemuck::pod_read_unaligned(&message[8..16]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::layout::{ARENA, RANK_BYTES};
    use network::run_counts::RunCounts;

    #[test]
    fn slots_fill_the_memory_up_to_the_arena() {
        let all: Vec<MessageSlot> = slots().collect();
        assert_eq!(all.len(), SMALL_SLOTS + MIDDLE_SLOTS + LARGE_SLOTS);
        assert_eq!(all.first().map(|slot| slot.offset), Some(SLOTS));
        assert_eq!(all.last().map(|slot| slot.offset + large_slot_bytes()), Some(ARENA));
        let mut numbers: Vec<u32> = all.iter().map(|slot| slot.number).collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(1..=all.len() as u32));
    }

    /// Hands messages of these runs over in place of the program, in the short slots.
    fn hand_over(memory: &Mapping, runs: &[RunKey]) {
        for (slot, (communicator, sequence)) in slots().zip(runs) {
            let mut header = [0; MESSAGE_HEADER_BYTES];
            header[..4].copy_from_slice(&communicator.to_le_bytes());
            header[8..16].copy_from_slice(&sequence.to_le_bytes());
            memory.write(slot.offset + SLOT_HEAD_BYTES, &header);
            memory.word(slot.offset).store(SLOT_HANDED_OVER, Ordering::Release);
        }
    }

    #[test]
    fn messages_of_runs_that_are_over_do_not_count() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(RANK_BYTES as u64).expect("a longer file");
        let memory = Mapping::new(&file, 0, RANK_BYTES, true).expect("memory");
        let mut unexpected = UnexpectedMessages::default();
        let live = |stages: &[(u64, RunStage)], count: u64| {
            let stages = stages.iter().map(|(sequence, stage)| ((1, *sequence), *stage));
            let mut counts = RunCounts::default();
            counts.start(1, count - 1).expect("it is new");
            LiveRuns::new(stages.collect(), counts)
        };
        // The first run has number 5; another backend runs those before.
        let queued = live(&[(5, RunStage::UnderWay), (6, RunStage::Queued)], 7);
        hand_over(&memory, &[(1, 3), (1, 5), (1, 6), (1, 7), (2, 0)]);
        unexpected.take_handed_over(&memory, &queued);
        assert_eq!(unexpected.bytes, 4 * MESSAGE_HEADER_BYTES, "that of run 3 is surplus");
        assert!(unexpected.put_back(&memory, &queued), "run 5 receives its message");
        assert!(!unexpected.has_returning());
        assert_eq!(unexpected.bytes, 3 * MESSAGE_HEADER_BYTES, "run 6 has no memory yet");
        // Run 5 was fetched, and one message of run 6 waits for a slot when that run completes.
        unexpected.returning.push_back(unexpected.by_run[&(1, 6)][0].clone());
        unexpected.bytes += MESSAGE_HEADER_BYTES;
        hand_over(&memory, &[(1, 5), (1, 6)]);
        unexpected.take_handed_over(&memory, &live(&[(6, RunStage::Complete)], 7));
        assert!(!unexpected.has_returning());
        assert_eq!(unexpected.bytes, 2 * MESSAGE_HEADER_BYTES);
        assert!(unexpected.by_run.keys().all(|run| [(1, 7), (2, 0)].contains(run)));
    }
}
