//! Loom models of a sender and a receiver of a channel.

#[path = "../../src/channel"]
mod protocol {
    pub(crate) mod key;
    #[allow(dead_code, reason = "the file is a library module; the models below use parts of it")]
    pub(crate) mod ring;
}

use crate::model::{assert_deadlock, model};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::wakeup::Wakeup;
use loom::thread;
use protocol::key;
use protocol::ring::{Consumer, Producer, PutError, RingWords, TakeError};
use std::sync::Arc;

testing::tests![
    three_laps_of_ordinary_values_arrive_in_order,
    values_that_leave_every_word_as_it_was_arrive_too,
    changed_and_unchanged_words_in_turn_keep_their_order,
    the_words_before_the_last_one_are_visible_with_it,
    the_words_before_an_unchanged_last_word_are_visible_with_the_notice,
    tails_arrive_with_their_values,
    a_value_in_the_slot_of_an_equal_tail_arrives_too,
    without_the_second_poll_a_wakeup_is_lost,
    a_value_that_was_taken_counts_as_sent,
];

const SLOTS: u64 = 2;

/// Slots of a ring of values with tails.
const TAILED_SLOTS: u64 = 4;

/// The shared memory of a channel. Not in loom's `Arc`, which aborts when a model fails that is
/// meant to fail.
struct Memory {
    slots: Vec<AtomicU64>,
    notice: AtomicU64,
    consumed: AtomicU64,
    wakeups: [AtomicU32; 2],
}

impl Memory {
    fn new(words: u64) -> Arc<Self> {
        Memory::of_words(SLOTS * words)
    }

    fn of_words(words: u64) -> Arc<Self> {
        Arc::new(Memory {
            slots: (0..words).map(|_| AtomicU64::new(0)).collect(),
            notice: AtomicU64::new(0),
            consumed: AtomicU64::new(0),
            wakeups: [AtomicU32::new(0), AtomicU32::new(0)],
        })
    }

    fn words(&self) -> RingWords<'_> {
        RingWords { slots: &self.slots, notice: &self.notice, consumed: &self.consumed }
    }

    fn receiver_wakeup(&self) -> Wakeup<'_> {
        Wakeup::by_store(&self.wakeups[0])
    }

    fn sender_wakeup(&self) -> Wakeup<'_> {
        Wakeup::by_store(&self.wakeups[1])
    }
}

/// Polls, and sleeps in between: the loop of `shm::wait` without its clock.
fn wait<R>(wakeup: Wakeup<'_>, mut look: impl FnMut() -> Option<R>) -> R {
    loop {
        if let Some(found) = look() {
            return found;
        }
        let armed = wakeup.arm();
        let found = look();
        if found.is_none() {
            wakeup.sleep(armed, None);
        }
        wakeup.disarm(armed);
        if let Some(found) = found {
            return found;
        }
    }
}

/// Sends all values, one word each, and ends.
fn send<const LEAD: usize>(memory: &Memory, values: &[([u64; LEAD], u64)]) {
    let mut producer = Producer::new(SLOTS);
    for &(lead, tell) in values {
        wait(memory.sender_wakeup(), || match producer.put(memory.words(), lead, tell) {
            Ok(()) => Some(()),
            Err(PutError::Full) => None,
            Err(PutError::Broken) => panic!("no position is overwritten"),
        });
        memory.receiver_wakeup().notify();
    }
    producer.finish(memory.words());
    memory.receiver_wakeup().notify();
}

/// Receives until the end of the stream.
fn receive<const LEAD: usize>(memory: &Memory) -> Vec<([u64; LEAD], u64)> {
    let mut consumer = Consumer::new(SLOTS);
    let mut received = Vec::new();
    loop {
        let next = wait(memory.receiver_wakeup(), || match consumer.take::<LEAD>(memory.words()) {
            Ok(value) => Some(Some(value)),
            Err(TakeError::Empty) => None,
            Err(TakeError::Closed) => Some(None),
        });
        let Some(value) = next else { return received };
        received.push(value);
        if consumer.is_due() {
            consumer.publish(memory.words());
            memory.sender_wakeup().notify();
        }
    }
}

/// All values arrive once and in order in every interleaving, and no wait lasts for ever (loom
/// reports a deadlock).
fn all_arrive<const LEAD: usize>(values: Vec<([u64; LEAD], u64)>) {
    model(3, move || {
        let memory = Memory::new(LEAD as u64 + 1);
        let theirs = Arc::clone(&memory);
        let sent = values.clone();
        let sender = thread::spawn(move || send(&theirs, &sent));
        let received = receive::<LEAD>(&memory);
        sender.join().expect("the sender ends");
        assert_eq!(received, values);
    });
}

/// The value that leaves the same word in the slot at `position` as the previous lap did, of which
/// every slot held `wire`.
fn unchanged(position: u64, wire: u64) -> u64 {
    key::of_lap(position / SLOTS) ^ wire
}

fn three_laps_of_ordinary_values_arrive_in_order() {
    all_arrive::<0>((0..5).map(|value| ([], value)).collect());
}

fn values_that_leave_every_word_as_it_was_arrive_too() {
    // A fresh slot holds 0, so that even the first lap changes nothing.
    all_arrive::<0>((0..4).map(|position| ([], unchanged(position, 0))).collect());
}

fn changed_and_unchanged_words_in_turn_keep_their_order() {
    let wire = |position: u64| if position.is_multiple_of(2) { 0 } else { position };
    all_arrive::<0>((0..5).map(|position| ([], unchanged(position, wire(position)))).collect());
}

fn the_words_before_the_last_one_are_visible_with_it() {
    all_arrive::<1>((0..4).map(|value| ([10 + value], value)).collect());
}

fn the_words_before_an_unchanged_last_word_are_visible_with_the_notice() {
    all_arrive::<1>((0..4).map(|position| ([10 + position], unchanged(position, 0))).collect());
}

/// Values of one word, each with a tail, arrive once and in order in every interleaving.
fn tailed_values_arrive(values: Vec<(u64, Vec<u64>)>) {
    model(3, move || {
        let memory = Memory::of_words(TAILED_SLOTS);
        let theirs = Arc::clone(&memory);
        let sent = values.clone();
        let sender = thread::spawn(move || {
            let mut producer = Producer::new(TAILED_SLOTS);
            for (value, tail) in &sent {
                wait(theirs.sender_wakeup(), || {
                    let mut rest = tail.iter();
                    let fill = |words: &[AtomicU64], lasts: &mut [u64]| {
                        for ((word, last), value) in words.iter().zip(lasts).zip(rest.by_ref()) {
                            word.store(*value, Ordering::Relaxed);
                            *last = *value;
                        }
                    };
                    let slots = tail.len() as u64;
                    match producer.put_with_tail::<0>(theirs.words(), ([], *value), slots, fill) {
                        Ok(()) => Some(()),
                        Err(PutError::Full) => None,
                        Err(PutError::Broken) => panic!("no position is overwritten"),
                    }
                });
                theirs.receiver_wakeup().notify();
            }
        });
        let mut consumer = Consumer::new(TAILED_SLOTS);
        for (value, tail) in &values {
            let before = consumer.position();
            let taken = wait(memory.receiver_wakeup(), || consumer.take::<0>(memory.words()).ok());
            assert_eq!(taken, ([], *value));
            let mut found = Vec::new();
            consumer.take_tail::<0>(memory.words(), tail.len() as u64, |words, lasts| {
                for (word, last) in words.iter().zip(lasts) {
                    *last = word.load(Ordering::Relaxed);
                    found.push(*last);
                }
            });
            assert_eq!(found, *tail);
            if consumer.is_due_since(before) {
                consumer.publish(memory.words());
                memory.sender_wakeup().notify();
            }
        }
        sender.join().expect("the sender ends");
    });
}

fn tails_arrive_with_their_values() {
    // The second tail passes the end of the ring, and the third value waits for space.
    tailed_values_arrive(vec![(1, vec![2, 3]), (4, vec![5]), (6, vec![7, 8])]);
}

fn a_value_in_the_slot_of_an_equal_tail_arrives_too() {
    // The value at position 5 leaves the word of the first tail in its slot.
    let equal = key::of_lap(5 / TAILED_SLOTS) ^ 2;
    tailed_values_arrive(vec![(1, vec![2, 3]), (4, vec![5]), (equal, vec![7])]);
}

/// Omits the second poll after the announcement of the sleeper on purpose: the model has to find
/// the lost wake-up.
fn without_the_second_poll_a_wakeup_is_lost() {
    let receive = || {
        let memory = Memory::new(1);
        let theirs = Arc::clone(&memory);
        let sender = thread::spawn(move || send::<0>(&theirs, &[([], 7)]));
        let mut consumer = Consumer::new(SLOTS);
        while consumer.take::<0>(memory.words()).is_err() {
            let armed = memory.receiver_wakeup().arm();
            memory.receiver_wakeup().sleep(armed, None);
            memory.receiver_wakeup().disarm(armed);
        }
        sender.join().expect("the sender ends");
    };
    assert_deadlock(|| model(3, receive));
}

/// A receiver closes its end right after a value: the sends of the values before succeed, and those
/// of later ones may fail.
fn a_value_that_was_taken_counts_as_sent() {
    model(3, || {
        let memory = Memory::new(1);
        let theirs = Arc::clone(&memory);
        let sender = thread::spawn(move || {
            let mut producer = Producer::new(SLOTS);
            let mut sent = 0;
            for value in 1..=SLOTS {
                producer.put(theirs.words(), [], value).expect("there is space");
                // As `Sender::try_send`.
                let is_closed = theirs.receiver_wakeup().notify();
                let is_final = is_closed && theirs.receiver_wakeup().is_closed();
                if is_closed && !(is_final && producer.is_taken(theirs.words())) {
                    return sent;
                }
                sent = value;
            }
            sent
        });
        let mut consumer = Consumer::new(SLOTS);
        let taken = wait(memory.receiver_wakeup(), || consumer.take::<0>(memory.words()).ok());
        assert_eq!(taken, ([], 1));
        // As `ChannelMemory::close_receiver`.
        consumer.publish(memory.words());
        memory.receiver_wakeup().close();
        let sent = sender.join().expect("the sender ends");
        assert!(sent >= 1, "the first value was received");
    });
}
