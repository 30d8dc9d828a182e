//! Loom models of append buffers: senders and a receiver that voids their slots at every possible
//! moment, with slots of several words, on the source files that run in production.

#[path = "../../src/append/records.rs"]
#[allow(dead_code, reason = "the file is a library module; the models below use parts of it")]
mod records;

use crate::error::SendError;
use crate::model::model;
use crate::slot_ring::{RecvState, SenderId, SlotMemory, SlotRing, SlotWords, VoidPolicy};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use loom::thread;
use std::sync::Arc;

testing::tests![
    two_senders_and_a_receiver_share_two_slots,
    a_record_is_voided_and_appended_again,
    a_sender_that_dies_costs_one_slot_until_it_is_recovered,
];

/// State, header, and two words that have to agree.
const SLOT_WORDS: usize = 4;

/// Zeroed memory of a buffer, and one bit for each ended process.
struct Memory {
    words: Vec<AtomicU64>,
    capacity: u64,
    tail: AtomicU64,
    seen: AtomicU64,
    head: AtomicU64,
    generation_word: AtomicU32,
    dead: AtomicU64,
}

impl<'a> SlotMemory<'a> for &'a Memory {
    fn count(self) -> u64 {
        (self.words.len() / SLOT_WORDS) as u64
    }

    fn capacity(self) -> u64 {
        self.capacity
    }

    fn slot(self, index: usize) -> SlotWords<'a> {
        let words = &self.words[index * SLOT_WORDS..][..SLOT_WORDS];
        SlotWords { state: &words[0], header: &words[1], data: &words[2..] }
    }

    fn is_dead(self, sender: SenderId) -> bool {
        self.dead.load(Ordering::Acquire) >> sender.number() & 1 != 0
    }
}

/// Receiver that voids as soon as it may.
fn eager_voider() -> RecvState {
    RecvState::with_policy(VoidPolicy { near: 1, far: 1, times: 1, unknown_times: 0 })
}

impl Memory {
    /// A buffer for `capacity` records in the next power of two of slots.
    fn new(capacity: u64) -> Arc<Self> {
        let slots = capacity.next_power_of_two().max(2);
        let word = |_| AtomicU64::with_every_order(0);
        Arc::new(Memory {
            words: (0..slots * SLOT_WORDS as u64).map(word).collect(),
            capacity,
            tail: word(0),
            seen: word(0),
            head: word(0),
            generation_word: AtomicU32::new(0),
            dead: word(0),
        })
    }

    fn ring(&self, own: u64) -> SlotRing<'_, &Memory> {
        let Memory { tail, seen, head, generation_word, .. } = self;
        SlotRing { memory: self, tail, seen, head, generation_word, own: SenderId::from_bits(own) }
    }

    /// Appends a record that holds `value` and its complement.
    fn send(&self, own: u64, value: u64) -> Result<(), SendError> {
        let record = [value.to_ne_bytes(), (!value).to_ne_bytes()].concat();
        records::send(&self.ring(own), &record)
    }

    /// Appends like [`Memory::send`], and recovers slots as `append.rs` does.
    fn send_or_recover(&self, own: u64, value: u64) -> Result<(), SendError> {
        self.send(own, value).inspect_err(|_| _ = self.ring(own).recover_if_stuck())
    }

    /// Receives the next record.
    fn receive(&self, state: &mut RecvState) -> Option<u64> {
        let mut record = Vec::new();
        let received = records::receive(&self.ring(0), state, 16, &mut record).expect("intact");
        received.then(|| {
            let (words, _) = record.as_chunks::<8>();
            let [value, complement] = [words[0], words[1]].map(u64::from_ne_bytes);
            assert_eq!((record.len(), complement), (16, !value), "a record is whole");
            value
        })
    }

    /// Receives what is left when all others have ended.
    fn drain(&self, state: &mut RecvState) -> Vec<u64> {
        let mut left = Vec::new();
        loop {
            match self.receive(state) {
                Some(value) => left.push(value),
                None if !self.ring(0).is_ready() => return left,
                None => {}
            }
        }
    }

    /// All slots can be used.
    fn assert_whole(&self, state: &mut RecvState) {
        for _ in 0..2 {
            let values: Vec<u64> = (0..self.capacity).collect();
            for &value in &values {
                assert_eq!(self.send(9, value), Ok(()));
            }
            assert_eq!(self.send(9, 99), Err(SendError::Full));
            assert_eq!(self.drain(state), values);
        }
    }
}

/// Each of two senders tries to append its values while the receiver polls `polls` times. What was
/// appended arrives, once and in its sender's order; what found the buffer full does not.
fn what_is_appended_arrives(capacity: u64, polls: usize, values: [&'static [u64]; 2]) {
    model(2, move || {
        let memory = Memory::new(capacity);
        let senders = [(1, values[0]), (2, values[1])].map(|(own, values)| {
            let memory = Arc::clone(&memory);
            thread::spawn(move || {
                values.iter().copied().filter(|&value| memory.send(own, value).is_ok()).collect()
            })
        });
        let mut state = eager_voider();
        let mut taken: Vec<u64> = (0..polls).filter_map(|_| memory.receive(&mut state)).collect();
        let appended: [Vec<u64>; 2] = senders.map(|sender| sender.join().expect("a sender ends"));
        taken.extend(memory.drain(&mut state));
        assert_eq!(taken.len(), appended[0].len() + appended[1].len());
        for values in appended {
            let of_one: Vec<u64> =
                taken.iter().copied().filter(|value| values.contains(value)).collect();
            assert_eq!(of_one, values);
        }
        memory.assert_whole(&mut state);
    });
}

fn two_senders_and_a_receiver_share_two_slots() {
    what_is_appended_arrives(2, 2, [&[1, 2], &[11]]);
}

fn a_record_is_voided_and_appended_again() {
    what_is_appended_arrives(3, 2, [&[1], &[11, 12]]);
}

/// One sender stops for good right after it has claimed its slot, before or after it wrote its
/// header. The others and the receiver go on, and recover the slot.
fn a_sender_that_dies_costs_one_slot_until_it_is_recovered() {
    for has_named_itself in [false, true] {
        model(2, move || {
            let memory = Memory::new(4);
            let claimed = memory.ring(1).claim(0).expect("space");
            if has_named_itself {
                memory.ring(1).put_header(claimed, 16);
            }
            memory.dead.store(1 << 1, Ordering::Release);
            let theirs = Arc::clone(&memory);
            let sender = thread::spawn(move || {
                (1..=4).filter(|&value| theirs.send_or_recover(2, value).is_ok()).collect()
            });
            let mut state = eager_voider();
            let mut taken: Vec<u64> = (0..2).filter_map(|_| memory.receive(&mut state)).collect();
            let appended: Vec<u64> = sender.join().expect("it ends");
            taken.extend(memory.drain(&mut state));
            assert_eq!(taken, appended);
            // With one slot less the buffer still works, lap after lap.
            for value in 5..8 {
                assert_eq!(memory.send(2, value), Ok(()));
                assert_eq!(memory.send(2, 100 + value), Ok(()));
                assert_eq!(memory.drain(&mut state), [value, 100 + value]);
            }
            assert!(memory.ring(3).recover() <= 1, "if no sender has done so");
            assert_eq!(memory.ring(3).recover(), 0, "once");
            // The slot rests for a lap or two.
            for value in 0..8 {
                let sent = u64::from(memory.send(2, value).is_ok());
                assert_eq!(memory.drain(&mut state).len() as u64, sent);
            }
            memory.assert_whole(&mut state);
        });
    }
}
