//! Loom models of the slot ring: every interleaving of a few threads, on the source files that run
//! in production.

#[path = "../../src/cache_line"]
#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "the files are library modules; the models below use parts of them"
)]
mod protocol {
    pub(crate) mod message;
    pub(crate) mod slots;
}

use crate::consumers::{Consumers, Multi, Single};
use crate::error::{RecvError, SendError};
use crate::id::SourceName;
use crate::model::{long_model, model};
use crate::slot_ring::{RecvState, SenderId, SlotMemory, SlotRing, SlotWords, VoidPolicy};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use loom::sync::Arc;
use loom::thread;
use protocol::message::{CacheLineHeader, CacheLineMessage};
use protocol::slots::CacheLineSlot;

mod recovery;

testing::tests![
    two_senders_and_an_eager_voider_of_an_empty_ring,
    two_senders_and_an_eager_voider_of_a_full_ring,
    two_senders_and_an_eager_single_voider,
    a_sender_and_two_receivers,
    a_voided_slot_is_skipped_and_released,
    a_slot_is_published_or_voided_and_never_both,
    an_abandoned_claim_leaves_a_consistent_ring,
    what_was_claimed_before_closing_is_received_or_refused,
    a_ring_that_changes_hands_takes_nothing_from_its_former_senders,
];

/// Slots, and one bit for each ended process, which the kernel reports in production.
#[derive(Debug, Clone, Copy)]
struct Lines<'a> {
    slots: &'a [CacheLineSlot],
    dead: &'a AtomicU64,
}

impl<'a> SlotMemory<'a> for Lines<'a> {
    fn count(self) -> u64 {
        self.slots.len() as u64
    }

    fn slot(self, index: usize) -> SlotWords<'a> {
        self.slots[index].words()
    }

    fn is_dead(self, sender: SenderId) -> bool {
        self.dead.load(Ordering::Acquire) >> sender.number() & 1 != 0
    }
}

/// Zeroed memory of a ring.
struct Memory {
    lines: Vec<CacheLineSlot>,
    tail: AtomicU64,
    seen: AtomicU64,
    head: AtomicU64,
    generation_word: AtomicU32,
    dead: AtomicU64,
}

fn source(number: u16) -> SourceName {
    SourceName::new(number).expect("14 bits")
}

/// A message of two words that a mixture of two messages could not pass for.
fn message(from: u16, number: u64) -> CacheLineMessage {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..].copy_from_slice(&(!number ^ u64::from(from)).to_le_bytes());
    CacheLineMessage::new(
        CacheLineHeader { source: source(from), handler: 1, tag: number as u16 },
        &bytes,
    )
    .expect("16 bytes")
}

fn read(got: CacheLineMessage) -> (u16, u64) {
    let header = got.header();
    assert_eq!(
        got,
        message(header.source.number(), u64::from(header.tag)),
        "whole and of one piece"
    );
    (header.source.number(), u64::from(header.tag))
}

/// Voids as soon as it may.
fn eager_voider() -> RecvState {
    let mut looks = RecvState::default();
    looks.policy = VoidPolicy { near: 1, far: 1, times: 1, unknown_times: 0 };
    looks
}

impl Memory {
    /// A ring that is some laps old and holds `full` messages of source 9.
    fn used(lines: usize, full: u64) -> Arc<Memory> {
        let word = || AtomicU64::new(0);
        let memory = Memory {
            lines: (0..lines).map(|_| CacheLineSlot::of(word)).collect(),
            tail: word(),
            seen: word(),
            head: word(),
            generation_word: AtomicU32::new(0),
            dead: word(),
        };
        for _ in 0..3 {
            assert!(memory.send(9, 0).is_ok() && memory.drain::<Multi>() == [(9, 0)]);
        }
        assert_eq!(memory.send_some(9, full as usize), full);
        Arc::new(memory)
    }

    /// The ring as the receivers see it.
    fn lines(&self) -> SlotRing<'_, Lines<'_>> {
        self.lines_of(0)
    }

    /// As seen by the process of this sender.
    fn lines_of(&self, from: u16) -> SlotRing<'_, Lines<'_>> {
        let Memory { lines, tail, seen, head, generation_word, dead } = self;
        SlotRing {
            memory: Lines { slots: lines, dead },
            tail,
            seen,
            head,
            generation_word,
            own: SenderId::from_bits(from.into()),
        }
    }

    fn send(&self, from: u16, number: u64) -> Result<u64, SendError> {
        self.send_in(0, from, number)
    }

    fn send_in(&self, generation: u32, from: u16, number: u64) -> Result<u64, SendError> {
        self.lines_of(from).try_send(&message(from, number), generation).inspect_err(|&why| {
            // As `cache_line.rs` does.
            if why == SendError::Full && self.lines_of(from).is_stuck() {
                self.lines_of(from).recover();
            }
        })
    }

    /// A sender claims a line and dies, just then or after it has written its header.
    fn die_composing(&self, from: u16, has_named_itself: bool) {
        let claimed = self.lines_of(from).claim(0).expect("space");
        if has_named_itself {
            self.lines_of(from).put_header(claimed, CacheLineHeader::default().pack(0));
            self.lines_of(from).put(claimed, 0, 77);
        }
        // Release, as the kernel's word about a death would be.
        self.dead.fetch_or(1 << from, Ordering::Release);
    }

    /// Tries so often to send the next of the numbers from 0 on. Returns how many it sent.
    fn send_some(&self, from: u16, tries: usize) -> u64 {
        self.send_some_in(0, from, tries)
    }

    fn send_some_in(&self, generation: u32, from: u16, tries: usize) -> u64 {
        (0..tries).fold(0, |number, _| match self.send_in(generation, from, number) {
            Ok(_) => number + 1,
            Err(SendError::Full) => number,
            Err(why) => panic!("{why}"),
        })
    }

    /// Tries so often to receive.
    fn receive_some<C: Consumers>(&self, tries: usize) -> Vec<(u16, u64)> {
        let mut looks = eager_voider();
        let mut receive =
            |_| self.lines().try_recv::<C>(&mut looks).expect("neither closed nor broken");
        (0..tries).filter_map(&mut receive).map(read).collect()
    }

    /// Receives what is left when all others have ended.
    fn drain<C: Consumers>(&self) -> Vec<(u16, u64)> {
        let mut looks = eager_voider();
        let mut receive =
            || self.lines().try_recv::<C>(&mut looks).expect("neither closed nor broken");
        let got: Vec<_> = std::iter::from_fn(|| receive().map(read)).collect();
        assert!(!self.lines().is_ready());
        got
    }

    /// Sends and receives for so many laps, with whatever lines there are.
    fn pass_laps(&self, laps: usize) {
        for _ in 0..laps * self.lines.len() {
            let sent = self.send_some(7, 1);
            assert_eq!(self.drain::<Multi>().len() as u64, sent);
        }
    }

    /// All of its lines can be used.
    fn assert_whole(&self) {
        self.assert_whole_in(0);
    }

    fn assert_whole_in(&self, generation: u32) {
        for _ in 0..2 {
            let count = self.lines.len() as u64;
            let sent = self.send_some_in(generation, 8, self.lines.len() + 1);
            assert_eq!(sent, count, "no line is lost");
            assert_eq!(
                self.drain::<Multi>(),
                (0..count).map(|number| (8, number)).collect::<Vec<_>>()
            );
        }
    }
}

/// The numbers of one sender, in the order in which they came.
fn of(from: u16, got: &[(u16, u64)]) -> Vec<u64> {
    got.iter().filter(|message| message.0 == from).map(|message| message.1).collect()
}

fn two_senders_one_receiver<C: Consumers>(preemptions: usize, full: u64, tries: usize) {
    let body = move || {
        let ring = Memory::used(2, full);
        let senders = [1, 2].map(|from| {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.send_some(from, tries))
        });
        let mut got = ring.receive_some::<C>(tries + 1);
        let sent = senders.map(|sender| sender.join().expect("no panic"));
        got.extend(ring.drain::<C>());
        for (from, sent) in [(1, sent[0]), (2, sent[1]), (9, full)] {
            assert_eq!(
                of(from, &got),
                (0..sent).collect::<Vec<_>>(),
                "in order, nothing lost or doubled"
            );
        }
        ring.assert_whole();
    };
    if full == 0 { model(preemptions, body) } else { long_model(preemptions, body) }
}

fn two_senders_and_an_eager_voider_of_an_empty_ring() {
    two_senders_one_receiver::<Multi>(3, 0, 1);
}

fn two_senders_and_an_eager_voider_of_a_full_ring() {
    two_senders_one_receiver::<Multi>(2, 2, 2);
}

fn two_senders_and_an_eager_single_voider() {
    two_senders_one_receiver::<Single>(2, 1, 2);
}

fn a_sender_and_two_receivers() {
    model(2, || {
        let ring = Memory::used(2, 2);
        let receivers = [0, 1].map(|_| {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.receive_some::<Multi>(2))
        });
        let sent = ring.send_some(1, 3);
        let mut got = receivers.map(|receiver| receiver.join().expect("no panic")).to_vec();
        got.push(ring.drain::<Multi>());
        for from in [1, 9] {
            assert!(
                got.iter().all(|each| of(from, each).is_sorted()),
                "each receiver gets them in order"
            );
        }
        let mut all = got.concat();
        all.sort_unstable();
        let expected = (0..sent).map(|number| (1, number)).chain((0..2).map(|number| (9, number)));
        assert_eq!(all, expected.collect::<Vec<_>>(), "nothing lost or doubled");
        ring.assert_whole();
    });
}

/// A sender is so slow that its line is voided, passed by for some laps, and given back while
/// others come round to it.
fn a_voided_slot_is_skipped_and_released() {
    long_model(2, || {
        let ring = Memory::used(2, 0);
        let slow = ring.lines_of(1).claim(0).expect("space");
        ring.lines_of(1).put_header(
            slow,
            CacheLineHeader { source: source(1), ..CacheLineHeader::default() }.pack(0),
        );
        // The other line passes three messages on meanwhile, and the slow one is voided again every
        // lap.
        for number in 0..3 {
            assert!(ring.send(2, number).is_ok());
            assert_eq!(ring.receive_some::<Multi>(1), [(2, number)]);
        }
        let late = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                let lines = ring.lines();
                lines.write(slow, &message(1, 0));
                assert!(lines.publish(slow).is_err(), "it was voided");
                assert_eq!(lines.composed(slow), message(1, 0), "no write in between");
                lines.release(slow);
                ring.send_some(1, 1)
            })
        };
        let other = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.send_some(2, 2))
        };
        let mut got = ring.receive_some::<Multi>(2);
        let sent = [late, other].map(|sender| sender.join().expect("no panic"));
        got.extend(ring.drain::<Multi>());
        assert_eq!(of(1, &got), (0..sent[0]).collect::<Vec<_>>());
        assert_eq!(of(2, &got), (0..sent[1]).collect::<Vec<_>>());
        ring.assert_whole();
    });
}

/// Publication, void and a second receiver meet.
fn a_slot_is_published_or_voided_and_never_both() {
    model(3, || {
        let ring = Memory::used(2, 0);
        let claimed = ring.lines().claim(0).expect("space");
        assert!(ring.send(2, 0).is_ok(), "something lies behind");
        let composing = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                let lines = ring.lines();
                lines.write(claimed, &message(1, 0));
                let published = lines.publish(claimed).is_ok();
                if !published {
                    lines.release(claimed);
                }
                published
            })
        };
        let receivers = [0, 1].map(|_| {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.receive_some::<Multi>(1))
        });
        let mut got = receivers.map(|receiver| receiver.join().expect("no panic")).concat();
        let published = composing.join().expect("no panic");
        got.extend(ring.drain::<Multi>());
        assert_eq!(of(1, &got), if published { vec![0] } else { vec![] });
        assert_eq!(of(2, &got), [0]);
        ring.assert_whole();
    });
}

fn an_abandoned_claim_leaves_a_consistent_ring() {
    model(3, || {
        let ring = Memory::used(2, 0);
        let giving_up = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                if let Ok(claimed) = ring.lines().claim(0) {
                    ring.lines().abandon(claimed);
                }
            })
        };
        let other = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.send_some(2, 2))
        };
        let mut got = ring.receive_some::<Multi>(1);
        giving_up.join().expect("no panic");
        let sent = other.join().expect("no panic");
        got.extend(ring.drain::<Multi>());
        assert_eq!(got, (0..sent).map(|number| (2, number)).collect::<Vec<_>>());
        ring.assert_whole();
    });
}

fn what_was_claimed_before_closing_is_received_or_refused() {
    model(3, || {
        let ring = Memory::used(2, 0);
        let sender = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                let sent = (0..2).take_while(|&number| ring.send(1, number).is_ok()).count() as u64;
                assert!(sent == 2 || ring.send(1, 9) == Err(SendError::Closed));
                sent
            })
        };
        ring.lines().close();
        let mut got = Vec::new();
        let mut looks = eager_voider();
        let mut receive = || match ring.lines().try_recv::<Multi>(&mut looks) {
            Ok(message) => got.extend(message.map(read)),
            Err(why) => assert_eq!(why, RecvError::Closed),
        };
        receive();
        receive();
        let sent = sender.join().expect("no panic");
        (0..4).for_each(|_| receive());
        assert_eq!(
            got,
            (0..sent).map(|number| (1, number)).collect::<Vec<_>>(),
            "what was sent was received"
        );
        assert_eq!(ring.lines().try_recv::<Multi>(&mut looks), Err(RecvError::Closed));
        assert_eq!(ring.send(2, 0), Err(SendError::Closed));
    });
}

/// A sender of the former queue may be anywhere in its sending when the ring gets a new owner.
fn a_ring_that_changes_hands_takes_nothing_from_its_former_senders() {
    model(3, || {
        let ring = Memory::used(2, 0);
        let late = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.send(1, 7))
        };
        let lines = ring.lines();
        lines.close();
        let mut got = Vec::new();
        let mut looks = eager_voider();
        let generation = loop {
            match lines.try_recv::<Multi>(&mut looks) {
                Ok(message) => got.extend(message.map(read)),
                Err(RecvError::Closed) => break lines.reopen().expect("it is closed and empty"),
                Err(why) => panic!("{why}"),
            }
        };
        assert!(
            (0..2).any(|number| lines.try_send(&message(2, number), generation).is_ok()),
            "one line may be away"
        );
        let sent = late.join().expect("no panic");
        assert_eq!(got, if sent.is_ok() { vec![(1, 7)] } else { vec![] });
        assert_eq!(of(2, &ring.drain::<Multi>()).len(), 1);
        assert_eq!(lines.recover(), 0, "the late sender has given back what it had");
        for number in 0..4 {
            assert!(lines.try_send(&message(2, number), generation).is_ok());
            assert!(lines.try_send(&message(3, number), generation).is_ok(), "no line is lost");
            assert_eq!(ring.drain::<Multi>(), [(2, number), (3, number)]);
        }
    });
}
