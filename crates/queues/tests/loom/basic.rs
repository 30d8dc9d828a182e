//! Loom models of the two ends of a Basic ring, over several laps of a tiny ring.

#[path = "../../src/basic/header_word.rs"]
#[allow(
    unreachable_pub,
    unused_imports,
    reason = "the file is a library module, which runs its unit tests"
)]
mod header_word;
#[path = "../../src/basic/ring.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the file is a library module; the models below use parts of it"
)]
mod ring;
#[path = "../../src/basic/ring_receiver.rs"]
#[allow(dead_code, unreachable_pub, reason = "the models below use parts of the library module")]
mod ring_receiver;
#[path = "../../src/basic/ring_sender.rs"]
#[allow(dead_code, unreachable_pub, reason = "the models below use parts of the library module")]
mod ring_sender;
#[path = "../../src/basic/words.rs"]
#[allow(dead_code, unreachable_pub, reason = "the models below use parts of the library module")]
pub(crate) mod words;

use crate::poll_set::{Bits, Members, Poller};
use crate::sync::{AtomicU64, Ordering, fence};
use header_word::{BasicHeader, HeaderWord};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use ring::{ARRIVALS, Geometry, RingError, SPACE, Signal};
use ring_receiver::RingReceiver;
use ring_sender::RingSender;
use shm::event::Notify;
use shm::wait::SpinPolicy;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

testing::tests![
    messages_arrive_once_and_in_order_over_two_laps,
    messages_arrive_once_and_in_order_over_a_lap_with_more_preemptions,
    one_store_publishes_a_whole_batch,
    data_is_never_mistaken_for_a_header_word,
    a_sleeping_sender_notices_a_closed_receiver,
    an_event_request_races_with_a_message_safely,
    each_request_for_an_event_is_answered,
    a_ring_in_a_poll_set_hides_no_message,
    a_sender_in_a_poll_set_needs_no_barrier_of_the_pollers,
];

/// The memory of a ring, the kernel's bucket of sleepers, the receiver's event, and the words of a
/// poll set.
struct Scene {
    words: Vec<AtomicU64>,
    lock: Mutex<()>,
    sleepers: Condvar,
    event: AtomicU64,
    bits: Vec<AtomicU64>,
}

#[derive(Clone)]
struct Words(Arc<Scene>);

impl Deref for Words {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        &self.0.words
    }
}

/// A futex: comparing and falling asleep are one step against a wake.
struct FutexSignal {
    scene: Arc<Scene>,
    own: usize,
    /// The other end's heavy barriers reach this one. Without that the light ones have no effect.
    reached: bool,
}

impl Signal for FutexSignal {
    fn light(&self) {
        if self.reached {
            fence(Ordering::SeqCst);
        }
    }

    fn heavy(&self) -> bool {
        fence(Ordering::SeqCst);
        true
    }

    fn sleep(&self, word: u64, _: Duration) -> bool {
        let locked = self.scene.lock.lock().expect("no panic holds it");
        // Relaxed: the lock orders it against a wake, and nothing else may be relied on.
        if self.scene.words[self.own].load(Ordering::Relaxed) == word {
            drop(self.scene.sleepers.wait(locked).expect("no panic holds it"));
        }
        // Without a limit, as loom has no clock.
        false
    }

    fn wake(&self) {
        let _locked = self.scene.lock.lock().expect("no panic holds it");
        self.scene.sleepers.notify_all();
    }

    fn notify_event(&self) {
        self.scene.event.fetch_add(1, Ordering::AcqRel);
    }

    fn announce(&mut self, set: u64, index: u64) {
        assert_eq!(
            (set, index),
            (AT, INDEX as u64),
            "what the receiver wrote before it said that it is in a set"
        );
        Bits { words: &self.scene.bits, summary: &[] }.announce(INDEX);
    }
}

/// The ring's place in the poll set, and where that lies.
const INDEX: usize = 5;
const AT: u64 = 4096;

/// Ends sleep at once.
const POLICY: SpinPolicy =
    SpinPolicy { eager: 0, spins: 0, yields: 0, slice: Duration::from_millis(100) };

type Ends = (RingSender<Words, FutexSignal>, RingReceiver<Words, FutexSignal>);

fn ends(lines: u64) -> Ends {
    let geometry = Geometry::new(lines).expect("a power of two");
    let words = (0..geometry.words()).map(|_| AtomicU64::new(0)).collect();
    let bits = (0..8).map(|_| AtomicU64::new(0)).collect();
    let lock = Mutex::new(());
    let sleepers = Condvar::new();
    let event = AtomicU64::new(0);
    let scene = Arc::new(Scene { words, lock, sleepers, event, bits });
    let signal = |own| FutexSignal { scene: Arc::clone(&scene), own, reached: true };
    let words = || Words(Arc::clone(&scene));
    (
        RingSender::new(words(), geometry, signal(SPACE), POLICY).expect("enough memory"),
        RingReceiver::new(words(), geometry, signal(ARRIVALS), POLICY).expect("enough memory"),
    )
}

/// The fences of the ring must suffice for its poll set.
fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    crate::fence::without_fence_after_exchange();
    crate::model::model(preemptions, body);
}

/// Composes a message of `words` words that all hold `value`.
fn compose(sender: &mut RingSender<Words, FutexSignal>, words: usize, value: u64) {
    let space = sender.wait_for_space(words * 8, None).expect("the receiver reads");
    let message =
        sender.compose(BasicHeader { handler: value as u8, ..BasicHeader::default() }, space);
    message.words().iter().for_each(|word| word.store(value, Ordering::Relaxed));
    message.finish();
}

/// Takes the next message, whose words must all be alike and which must be for the handler of that
/// number.
fn receive(receiver: &mut RingReceiver<Words, FutexSignal>) -> Result<u64, RingError> {
    let found = receiver.take_by(None)?;
    let values: Vec<u64> =
        receiver.words(&found).iter().map(|word| word.load(Ordering::Relaxed)).collect();
    assert!(values.iter().all(|value| *value == values[0]), "torn: {values:x?}");
    assert_eq!(found.header.handler, values[0] as u8);
    receiver.release();
    Ok(values[0])
}

/// A ring of four lines holds three messages, so both ends wait for each other on the way through
/// two laps.
fn messages_arrive_once_and_in_order(messages: u64, preemptions: usize) {
    model(preemptions, move || {
        let (mut sender, mut receiver) = ends(4);
        let thread = thread::spawn(move || {
            for value in 1..=messages {
                compose(&mut sender, 1, value);
                sender.publish();
            }
        });
        for expected in 1..=messages {
            assert_eq!(receive(&mut receiver), Ok(expected));
        }
        assert_eq!(receive(&mut receiver), Err(RingError::Closed));
        thread.join().expect("the sender ends");
    });
}

fn messages_arrive_once_and_in_order_over_two_laps() {
    messages_arrive_once_and_in_order(9, 1);
}

fn messages_arrive_once_and_in_order_over_a_lap_with_more_preemptions() {
    messages_arrive_once_and_in_order(5, 3);
}

/// The second message of each pair has a header word that is written by a plain store, before the
/// first one's release.
fn one_store_publishes_a_whole_batch() {
    model(2, || {
        let (mut sender, mut receiver) = ends(8);
        let thread = thread::spawn(move || {
            for pair in 0..5 {
                // Space for both, so that the first need not be published to make space for the
                // second.
                sender.wait_for_space(2 * 56, None).expect("the receiver reads");
                compose(&mut sender, 1, 2 * pair + 1);
                compose(&mut sender, 1, 2 * pair + 2);
                sender.publish();
            }
            sender
        });
        for pair in 0..5 {
            assert_eq!(receive(&mut receiver), Ok(2 * pair + 1));
            let second = receiver.take().expect("well formed").expect("published with the first");
            assert_eq!(receiver.words(&second)[0].load(Ordering::Relaxed), 2 * pair + 2);
            receiver.release();
        }
        drop(thread.join().expect("the sender ends"));
    });
}

/// Messages of two lines of a ring of eight, whose data look like the header words that the
/// receiver waits for at the places where it will look for them; and a skip at the end of each lap.
fn data_is_never_mistaken_for_a_header_word() {
    model(2, || {
        let (mut sender, mut receiver) = ends(8);
        let plausible =
            |lap| HeaderWord::Message { header: BasicHeader::default(), bytes: 8 }.encode(lap);
        let values = [plausible(1), plausible(1), 3, plausible(1), plausible(2), 6];
        let words = [8, 8, 1, 8, 8, 1];
        let thread = thread::spawn(move || {
            for (value, words) in values.into_iter().zip(words) {
                compose(&mut sender, words, value);
                sender.publish();
            }
        });
        for value in values {
            assert_eq!(receive(&mut receiver), Ok(value));
        }
        assert_eq!(receive(&mut receiver), Err(RingError::Closed));
        thread.join().expect("the sender ends");
    });
}

fn a_sleeping_sender_notices_a_closed_receiver() {
    model(3, || {
        let (mut sender, mut receiver) = ends(4);
        let thread = thread::spawn(move || {
            assert_eq!(receive(&mut receiver), Ok(1));
        });
        for value in 1.. {
            match sender.wait_for_space(8, None) {
                Ok(space) => {
                    let message = sender.compose(
                        BasicHeader { handler: value as u8, ..BasicHeader::default() },
                        space,
                    );
                    message.words()[0].store(value, Ordering::Relaxed);
                    message.finish();
                    sender.publish();
                }
                Err(error) => {
                    assert_eq!(error, RingError::Closed);
                    break;
                }
            }
        }
        thread.join().expect("the receiver ends");
    });
}

fn an_event_request_races_with_a_message_safely() {
    for (when, enough) in [(Notify::Arrival, 1), (Notify::HalfFull, 2)] {
        model(3, move || {
            let (mut sender, mut receiver) = ends(4);
            let thread = thread::spawn(move || {
                for value in 1..=enough {
                    compose(&mut sender, 1, value);
                    sender.publish();
                }
                sender
            });
            if !receiver.ask(when) {
                // There was no reason then, so the sender gives one.
                while receiver.signal().scene.event.load(Ordering::Acquire) == 0 {
                    thread::yield_now();
                }
            }
            for expected in 1..=enough {
                let found = receiver.take().expect("well formed").expect("it was announced");
                assert_eq!(u64::from(found.header.handler), expected);
                receiver.release();
            }
            drop(thread.join().expect("the sender ends"));
            assert!(
                receiver.signal().scene.event.load(Ordering::Acquire) <= 1,
                "one for a request"
            );
        });
    }
}

/// A second request is answered although the sender is at work on the first.
fn each_request_for_an_event_is_answered() {
    model(3, || {
        let (mut sender, mut receiver) = ends(8);
        let thread = thread::spawn(move || {
            for value in 1..=2 {
                compose(&mut sender, 1, value);
                sender.publish();
            }
            sender
        });
        let mut received = 0;
        while received < 2 {
            let before = receiver.signal().scene.event.load(Ordering::Acquire);
            if !receiver.ask(Notify::Arrival) {
                while receiver.signal().scene.event.load(Ordering::Acquire) == before {
                    thread::yield_now();
                }
            }
            // The event may be a late answer to the request before.
            received += u64::from(receiver.take().expect("well formed").is_some());
            receiver.release();
        }
        drop(thread.join().expect("the sender ends"));
    });
}

/// The only member of its set, as a poller sees it.
struct Ring<'a>(&'a mut RingReceiver<Words, FutexSignal>);

impl Members for Ring<'_> {
    type Item = u64;

    fn take(&mut self, _: usize) -> Option<u64> {
        let found = self.0.take().expect("well formed")?;
        self.0.release();
        Some(found.header.handler.into())
    }

    fn is_ready(&mut self, _: usize) -> bool {
        self.0.is_ready()
    }
}

/// A ring that joins while messages are sent, and whose bit is cleared whenever a poller finds it
/// empty.
fn a_ring_in_a_poll_set_hides_no_message() {
    model(3, || {
        let (mut sender, mut receiver) = ends(8);
        let scene = Arc::clone(&receiver.signal().scene);
        let bits = Bits { words: &scene.bits, summary: &[] };
        let thread = thread::spawn(move || {
            for value in 1..=2 {
                compose(&mut sender, 1, value);
                sender.publish();
            }
            sender
        });
        receiver.join(AT, INDEX as u64);
        if receiver.is_ready() {
            bits.announce(INDEX);
        }
        // Twice with a poller that has not seen the ring before, and so clears its bit.
        let poll = |receiver: &mut _| {
            Poller::default().poll(bits, None, &mut Ring(receiver)).map(|(_, value)| value)
        };
        let mut got: Vec<u64> = (0..2).filter_map(|_| poll(&mut receiver)).collect();
        let _open = thread.join().expect("the sender ends");
        got.extend((0..2).filter_map(|_| poll(&mut receiver)));
        assert_eq!(got, [1, 2]);
    });
}

/// Pollers make no heavy barrier: the sender's own fence has to keep its message before its look at
/// the bit.
fn a_sender_in_a_poll_set_needs_no_barrier_of_the_pollers() {
    model(3, || {
        let (mut sender, mut receiver) = ends(8);
        let scene = Arc::clone(&receiver.signal().scene);
        let bits = Bits { words: &scene.bits, summary: &[] };
        receiver.join(AT, INDEX as u64);
        bits.announce(INDEX);
        sender.signal_mut().reached = false;
        let thread = thread::spawn(move || {
            compose(&mut sender, 1, 1);
            sender.publish();
            sender
        });
        let poll = |receiver: &mut _| {
            Poller::default().poll(bits, None, &mut Ring(receiver)).map(|(_, value)| value)
        };
        let first = poll(&mut receiver);
        let _open = thread.join().expect("the sender ends");
        assert_eq!(first.or_else(|| poll(&mut receiver)), Some(1));
    });
}
