//! Loom models of the ring of Express words.

#[path = "../../src/express/ring.rs"]
#[allow(dead_code, reason = "the file is a library module; the models below use parts of it")]
pub(crate) mod ring;

#[path = "../../src/express/slot.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "the file is a library module; the models below use parts of it"
)]
pub(crate) mod slot;

use crate::consumers::{Consumers, Multi, Single};
use crate::error::{RecvError, SendError};
use crate::id::SourceName;
use crate::message::ExpressMessage;
use crate::model::{long_model, model};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use loom::sync::Arc;
use loom::thread;
use ring::WordRing;

testing::tests![
    two_senders_and_a_receiver_of_a_full_ring,
    two_senders_and_a_receiver_of_an_empty_ring,
    two_senders_and_a_sole_receiver,
    a_sender_and_two_receivers_of_a_full_ring,
    a_sender_and_two_receivers_of_an_empty_ring,
    a_stopped_sender_blocks_no_thread,
    what_was_sent_before_closing_is_received_and_nothing_afterwards,
    a_ring_that_changes_hands_takes_nothing_from_its_former_senders,
    several_messages_are_taken_at_once_beside_another_receiver,
];

/// Zeroed memory of a ring.
struct Memory {
    slots: Vec<AtomicU64>,
    tail: AtomicU64,
    free_until: AtomicU64,
    head: AtomicU64,
    generation_word: AtomicU32,
}

impl Memory {
    fn new(slots: usize) -> Arc<Memory> {
        let word = || AtomicU64::new(0);
        let slots = (0..slots).map(|_| word()).collect();
        Arc::new(Memory {
            slots,
            tail: word(),
            free_until: word(),
            head: word(),
            generation_word: AtomicU32::new(0),
        })
    }

    fn words(&self) -> WordRing<'_> {
        WordRing {
            slots: &self.slots,
            tail: &self.tail,
            free_until: &self.free_until,
            head: &self.head,
            generation_word: &self.generation_word,
        }
    }

    /// From a sender that has sent nothing before.
    fn send(&self, source: u16, number: u64) -> Result<u64, SendError> {
        self.words().try_send(message(source, number), 0, &AtomicU64::new(0))
    }

    /// Tries so often to send the next of the numbers from 0 on. Returns how many it sent. A model
    /// that waited in a loop would have no end.
    fn send_some(&self, source: u16, tries: usize) -> u64 {
        let next = AtomicU64::new(0);
        (0..tries).fold(0, |number, _| {
            match self.words().try_send(message(source, number), 0, &next) {
                Ok(_) => number + 1,
                Err(SendError::Full) => number,
                Err(why) => panic!("{why}"),
            }
        })
    }

    fn receive<C: Consumers>(&self) -> Result<Option<ExpressMessage>, RecvError> {
        self.words().try_recv::<C>()
    }

    /// Tries so often to receive.
    fn receive_some<C: Consumers>(&self, tries: usize) -> Vec<(u16, u64)> {
        (0..tries)
            .filter_map(|_| self.receive::<C>().expect("neither closed nor broken"))
            .map(read)
            .collect()
    }

    /// Receives what is left when all others have ended.
    fn drain<C: Consumers>(&self) -> Vec<(u16, u64)> {
        let got: Vec<_> =
            std::iter::from_fn(|| self.receive::<C>().expect("neither closed nor broken"))
                .collect();
        got.into_iter().map(read).collect()
    }

    /// A ring that is two laps old or more and holds `full` messages of source 9. If there are
    /// none, its tail does not lie back.
    fn used(slots: usize, full: u64) -> Arc<Memory> {
        let ring = Memory::new(slots);
        for _ in 0..4 {
            assert!(ring.send(9, 0).is_ok() && ring.receive::<Multi>().is_ok());
        }
        assert_eq!(ring.send_some(9, full as usize), full);
        ring
    }
}

fn message(source: u16, number: u64) -> ExpressMessage {
    let source = SourceName::new(source).expect("14 bits");
    ExpressMessage::of_number(source, 0, number).expect("40 bits")
}

fn read(message: ExpressMessage) -> (u16, u64) {
    (message.source().number(), message.number())
}

/// The numbers of one sender, in the order in which they came.
fn of(source: u16, got: &[(u16, u64)]) -> Vec<u64> {
    got.iter().filter(|message| message.0 == source).map(|message| message.1).collect()
}

fn two_senders_one_receiver<C: Consumers>(preemptions: usize, full: u64, tries: usize) {
    let body = move || {
        let ring = Memory::used(2, full);
        let senders = [1, 2].map(|source| {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.send_some(source, tries))
        });
        let mut got = ring.receive_some::<C>(tries + 1);
        let sent = senders.map(|sender| sender.join().expect("no panic"));
        got.extend(ring.drain::<C>());
        for (source, sent) in [(1, sent[0]), (2, sent[1]), (9, full)] {
            assert_eq!(
                of(source, &got),
                (0..sent).collect::<Vec<_>>(),
                "in order, nothing lost or doubled"
            );
        }
    };
    if full == 0 { model(preemptions, body) } else { long_model(preemptions, body) }
}

fn two_senders_and_a_receiver_of_a_full_ring() {
    two_senders_one_receiver::<Multi>(2, 2, 2);
}

fn two_senders_and_a_receiver_of_an_empty_ring() {
    two_senders_one_receiver::<Multi>(3, 0, 2);
}

fn two_senders_and_a_sole_receiver() {
    two_senders_one_receiver::<Single>(2, 1, 2);
}

fn a_sender_and_two_receivers(full: u64, tries: usize) {
    model(3, move || {
        let ring = Memory::used(2, full);
        let receivers = [0, 1].map(|_| {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.receive_some::<Multi>(2))
        });
        let sent = ring.send_some(1, tries);
        let mut got = receivers.map(|receiver| receiver.join().expect("no panic")).to_vec();
        got.push(ring.drain::<Multi>());
        for source in [1, 9] {
            assert!(
                got.iter().all(|each| of(source, each).is_sorted()),
                "each receiver gets them in order"
            );
        }
        let mut all = got.concat();
        all.sort_unstable();
        let expected =
            (0..sent).map(|number| (1, number)).chain((0..full).map(|number| (9, number)));
        assert_eq!(all, expected.collect::<Vec<_>>(), "nothing lost or doubled");
    });
}

fn a_sender_and_two_receivers_of_a_full_ring() {
    a_sender_and_two_receivers(2, 3);
}

fn a_sender_and_two_receivers_of_an_empty_ring() {
    a_sender_and_two_receivers(0, 3);
}

/// A sender that commits and is then stopped for ever, before it moves the tail.
fn a_stopped_sender_blocks_no_thread() {
    model(3, || {
        let ring = Memory::used(2, 0);
        let stopped = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                let words = ring.words();
                // The first steps of `try_send`, and then nothing any more.
                let tail = words.tail.load(Ordering::Acquire);
                let lap = tail / 2;
                let full = slot::full(lap, message(1, 77));
                let slot = &words.slots[tail as usize % 2];
                slot.compare_exchange(slot::empty(lap), full, Ordering::SeqCst, Ordering::Acquire)
                    .is_ok()
            })
        };
        let other = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.send_some(2, 2))
        };
        let mut got = ring.receive_some::<Multi>(2);
        let committed = stopped.join().expect("no panic");
        let sent = other.join().expect("no panic");
        got.extend(ring.drain::<Multi>());
        assert_eq!(of(2, &got), (0..sent).collect::<Vec<_>>());
        assert_eq!(
            of(1, &got),
            if committed { vec![77] } else { vec![] },
            "committed means received, once"
        );
        // And the ring goes on as if nothing had been.
        for number in 0..4 {
            assert!(ring.send(3, number).is_ok());
            assert_eq!(ring.drain::<Multi>(), [(3, number)]);
        }
    });
}

fn what_was_sent_before_closing_is_received_and_nothing_afterwards() {
    model(3, || {
        let ring = Memory::used(2, 0);
        let sender = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                let sent = (0..2).take_while(|&number| ring.send(1, number).is_ok()).count();
                assert!(sent == 2 || ring.send(1, 9) == Err(SendError::Closed));
                sent
            })
        };
        let end = ring.words().close();
        let mut got = Vec::new();
        let mut receive = || match ring.receive::<Multi>() {
            Ok(message) => got.extend(message.map(|message| read(message).1)),
            Err(why) => assert_eq!(why, RecvError::Closed),
        };
        receive();
        receive();
        let sent = sender.join().expect("no panic");
        receive();
        receive();
        assert_eq!(got, (0..sent as u64).collect::<Vec<_>>(), "what was sent was received");
        assert!(end.is_none_or(|end| end == 4 + sent as u64));
        assert_eq!(ring.receive::<Multi>(), Err(RecvError::Closed));
        assert_eq!(ring.send(2, 0), Err(SendError::Closed));
    });
}

/// A sender of the former queue may be anywhere in its sending when the ring gets a new owner.
fn a_ring_that_changes_hands_takes_nothing_from_its_former_senders() {
    model(3, || {
        let ring = Memory::new(2);
        let late = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.send(1, 7))
        };
        let words = ring.words();
        let end = words.close().expect("it is not full");
        let mut got = Vec::new();
        while let Ok(Some(message)) = words.try_recv::<Multi>() {
            got.push(read(message));
        }
        let generation = words.reopen().expect("it is closed and empty");
        assert_eq!(
            words.try_send(message(2, 8), generation, &AtomicU64::new(0)).map(|_| ()),
            Ok(())
        );
        let sent = late.join().expect("no panic");
        assert_eq!(got, if sent.is_ok() { vec![(1, 7)] } else { vec![] });
        assert_eq!(end, got.len() as u64);
        assert_eq!(words.try_recv::<Multi>().map(|message| message.map(read)), Ok(Some((2, 8))));
        assert_eq!(words.try_recv::<Multi>(), Ok(None));
    });
}

fn several_messages_are_taken_at_once_beside_another_receiver() {
    model(2, || {
        let ring = Memory::new(4);
        assert_eq!(ring.send_some(9, 3), 3);
        let other = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.receive_some::<Multi>(1))
        };
        let sender = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.send_some(1, 2))
        };
        let mut got = Vec::new();
        let mut some = [ExpressMessage::default(); 3];
        for _ in 0..2 {
            let count =
                ring.words().try_recv_many::<Multi>(&mut some).expect("neither closed nor broken");
            got.extend(some[..count].iter().map(|&message| read(message)));
        }
        let sent = sender.join().expect("no panic");
        got.extend(other.join().expect("no panic"));
        got.extend(ring.drain::<Multi>());
        got.sort_unstable();
        let expected = (0..sent).map(|number| (1, number)).chain((0..3).map(|number| (9, number)));
        assert_eq!(got, expected.collect::<Vec<_>>());
    });
}
